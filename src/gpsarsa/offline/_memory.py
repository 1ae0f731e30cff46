"""Transitions in memory as a dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from gpsarsa.offline._blocks import Dataset
from gpsarsa.offline._records import Block, DatasetError, Integers, Partition
from gpsarsa.offline._sampling import stretches
from gpsarsa.offline._target import Target
from gpsarsa.transitions import Transitions


class Memory(Dataset):
    """Transitions, cut into partitions where a chain starts."""

    action_columns, discrete_action = 0, False

    def __init__(self, transitions: Transitions, rows_per_partition: int) -> None:
        if len(transitions) == 0:
            raise DatasetError("the Transitions hold no rows; expected at least one")
        self._transitions, self.rows = transitions, len(transitions)
        self.observation_columns = transitions.columns
        self.names = tuple(f"input[{i}]" for i in range(transitions.columns))
        starts = transitions.starts.copy()
        starts[0] = True
        self._starts = starts
        self.has_episodes = not bool(starts[1:].all())
        self._episodes = np.cumsum(starts) - 1 if self.has_episodes else np.full(self.rows, -1)
        digest = hashlib.sha256()
        for array in transitions._arrays:
            digest.update(np.ascontiguousarray(array).data)
        mark = digest.hexdigest()[:16]
        self.partitions = [
            Partition("memory", begin, end - 1, index, self.rows, 0, mark)
            for index, (begin, end) in enumerate(_cuts(np.flatnonzero(starts), self.rows, rows_per_partition))
        ]

    def _blocks(
        self, partition: Partition, gamma: float, target: Target | None, count: int
    ) -> Iterator[Block]:
        for begin in range(partition.first, partition.last + 1, count):
            yield self._chosen(np.arange(begin, min(begin + count, partition.last + 1)))

    def _sample(self, count: int, rng: np.random.Generator, gamma: float, target: Target | None) -> Block:
        edges = np.append(np.flatnonzero(self._starts), self.rows)
        return self._chosen(stretches(edges, np.ones(len(edges) - 1), count, rng))

    def _chosen(self, rows: Integers) -> Block:
        *numbers, _ = self._transitions[rows]._arrays
        starts = self._starts[rows]
        first = starts if self.has_episodes else np.zeros(len(rows), dtype=np.bool_)
        jumps = np.diff(rows, prepend=rows[0] - 1) != 1
        part = Transitions._trusted(*numbers, starts | jumps)
        return Block(part, first, self._episodes[rows], rows, 0)


def _cuts(starts: Integers, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """From row 0 to the end, cut at the first start after every `size` rows."""
    begin = 0
    while begin < rows:
        later = int(np.searchsorted(starts, begin + size))
        end = int(starts[later]) if later < len(starts) else rows
        yield begin, end
        begin = end
