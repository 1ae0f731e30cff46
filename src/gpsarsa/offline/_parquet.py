"""Tables in Parquet files as logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from gpsarsa._validation import Array
from gpsarsa.offline._blocks import Logs
from gpsarsa.offline._chains import Chain
from gpsarsa.offline._columns import Columns
from gpsarsa.offline._files import File, batches
from gpsarsa.offline._records import DatasetError, Integers, Partition, Rows
from gpsarsa.offline._sampling import merged, singles, stretches
from gpsarsa.offline._schema import check_same, inspected

GROUPS = 16  # row groups that a sample is drawn from
LOOKED_THROUGH = 1_000_000  # rows that may be looked through for a small sample
AT_A_TIME = 65_536  # rows that are decoded to pick some of them


class Table(Logs):
    """Parquet files of one schema."""

    def __init__(self, paths: Sequence[Path], rows_per_partition: int) -> None:
        self._files: dict[str, File] = {}
        shape, model = None, ""
        for path in paths:
            file, own = inspected(path)
            if own is None:
                continue
            if shape is None:
                shape, model = own, file.path
            check_same(file.path, own, model, shape)
            self._files[file.path] = file
        if shape is None:
            raise DatasetError(f"{paths[0]} has no rows; expected at least one transition")
        self._numbers = {path: number for number, path in enumerate(sorted(self._files))}
        self._shape = shape
        self.observation_columns, self.action_columns = shape.observation or 1, shape.action or 1
        self.discrete_action, self.has_episodes = shape.discrete, shape.episodes
        self.names = shape.names
        self.rows = sum(file.edges[-1] for file in self._files.values())
        self.partitions = []
        for file in self._files.values():
            for first, last in _runs(file.edges, rows_per_partition):
                self.partitions.append(
                    Partition(file.path, first, last, len(self.partitions), file.size, file.mtime_ns)
                )

    def _number(self, file: str) -> int:
        return self._numbers[file]

    def read(self, partition: Partition, count: int) -> Iterator[Rows]:
        file = self._files.get(partition.file)
        if file is None or partition.last >= file.groups:
            raise DatasetError(f"{partition.file}: the partition is not one of this dataset")
        if self.has_episodes:
            return self._read_episodes(file, partition, count)
        groups = range(partition.first, partition.last + 1)
        return map(self._converted, _read(file, groups, self._shape.columns, count))

    def _read_episodes(self, file: File, partition: Partition, count: int) -> Iterator[Rows]:
        """From the first start of an episode to where the last one that starts here is complete."""
        end = file.edges[partition.last + 1]
        chain = Chain(file.path)
        begun, complete = partition.first == 0, False
        for columns in _read(file, range(partition.first, file.groups), self._shape.columns, count):
            row, after = int(columns.numbers[0]), int(columns.numbers[-1]) + 1
            begin, stop = row, after
            if not begun or after > end:
                starts = columns.numbers[columns.whole("step") == 0]
                here, beyond = starts[starts < end], starts[starts >= end]
                if not begun:
                    begun = len(here) > 0
                    begin = int(here[0]) if begun else after
                complete = len(beyond) > 0 or not (begun or after < end)
                stop = int(beyond[0]) if len(beyond) else after
            if begin < stop:
                rows = self._converted(columns.between(begin - row, stop - row))
                chain.check(rows)
                yield rows
            if complete:
                return

    def _converted(self, columns: Columns) -> Rows:
        shape, n = self._shape, len(columns)
        observations, _ = columns.rows("observation", shape.observation)
        actions, _ = columns.rows("action", shape.action, whole=shape.discrete)
        rewards, _ = columns.rows("reward", None)
        next_observations, no_observation = columns.rows("next_observation", shape.observation, nulls=True)
        next_actions, no_action = columns.rows("next_action", shape.action, nulls=True, whole=shape.discrete)
        steps = columns.whole("step") if shape.episodes else np.zeros(n, dtype=np.int64)
        return Rows(
            observations=observations,
            actions=actions,
            rewards=rewards[:, 0],
            next_observations=next_observations,
            next_actions=next_actions,
            terminated=columns.flags("terminated"),
            truncated=columns.flags("truncated") if shape.truncated else np.zeros(n, dtype=np.bool_),
            episodes=columns.whole("episode") if shape.episodes else np.full(n, -1),
            steps=steps,
            starts=steps == 0,
            numbers=columns.numbers,
            no_observation=no_observation,
            no_action=no_action,
        )

    # -- sampling -----------------------------------------------------------------------------

    def _draw(self, count: int, rng: np.random.Generator) -> Iterator[tuple[str, Rows]]:
        groups, rates = self._groups(count, rng)
        edges = np.append(0, np.cumsum(_sizes(groups)))  # of the groups, laid end to end
        if self.has_episodes:
            begins = [at + _episodes_in(*group) for at, group in zip(edges, groups, strict=False)]
            each = np.repeat(rates, [len(b) for b in begins])
            wanted = stretches(np.concatenate([*begins, edges[-1:]]), each, count, rng)
        else:
            wanted = singles(edges, rates, count, rng)
        cuts = np.searchsorted(wanted, edges)
        found: dict[str, list[Rows]] = {}
        for i, (file, group) in enumerate(groups):
            mine = wanted[cuts[i] : cuts[i + 1]] - edges[i] + file.edges[group]
            if len(mine):
                found.setdefault(file.path, []).extend(self._picked(file, group, mine))
        for path, parts in found.items():
            rows = Rows.concatenate(parts)
            if self.has_episodes:
                Chain(path).check(rows, rows.jumps)
            yield path, rows

    def _groups(self, count: int, rng: np.random.Generator) -> tuple[list[tuple[File, int]], Array]:
        """Row groups to draw a sample from, in order, and at what rate rows are to be drawn from each.

        Neighbours that are small count as one. Of some draws, each hitting a group with a chance ∝ its
        rows, m hit it: its rate is m / rows, the same for every row of the table on average. If that many
        draws can be afforded, all groups are taken at one rate.
        """
        every = [(file, group) for file in self._files.values() for group in range(file.groups)]
        sizes = _sizes(every)
        shared = merged(sizes, 4 * count // GROUPS)
        rows = np.bincount(shared, sizes)
        afforded = max(4 * count, LOOKED_THROUGH) * len(rows) // self.rows
        draws = min(GROUPS, max(afforded, 1))
        if draws >= len(rows):
            return every, np.ones(len(every))
        hits = rng.multinomial(draws, rows / self.rows)
        hit = np.flatnonzero(hits[shared])
        return [every[i] for i in hit], hits[shared[hit]] / rows[shared[hit]]

    def _picked(self, file: File, group: int, wanted: Integers) -> Iterator[Rows]:
        """Some rows of a row group, given by their numbers in the file."""
        for columns in _read(file, [group], self._shape.columns, AT_A_TIME):
            row = columns.numbers[0]
            lower, upper = np.searchsorted(wanted, [row, row + len(columns)])
            if lower < upper:
                yield self._converted(columns.take(wanted[lower:upper] - row))


def _read(file: File, groups: Sequence[int], names: Sequence[str], count: int) -> Iterator[Columns]:
    """Some columns of row groups that follow one another, `count` rows at a time."""
    row = file.edges[groups[0]]
    for batch in batches(file, groups, names, count):
        yield Columns(file.path, batch, np.arange(row, row + len(batch)))
        row += len(batch)


def _episodes_in(file: File, group: int) -> Integers:
    """Where in a row group its episodes begin, the one that is under way included."""
    begin = file.edges[group]
    starts = [
        columns.numbers[columns.whole("step") == 0]
        for columns in _read(file, [group], ["step"], LOOKED_THROUGH)
    ]
    return np.unique(np.concatenate([[begin], *starts])) - begin


def _sizes(groups: Sequence[tuple[File, int]]) -> Integers:
    """How many rows row groups have."""
    return np.array([file.edges[group + 1] - file.edges[group] for file, group in groups])


def _runs(edges: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Runs of whole row groups, each as near to `size` rows as they allow."""
    first = 0
    for group in range(1, len(edges) - 1):
        if (edges[group] + edges[group + 1]) / 2 - edges[first] > size:
            yield first, group - 1
            first = group
    yield first, len(edges) - 2
