"""Datasets: logged rows become blocks of transitions, with the logged next actions or a target policy's."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.offline._records import Block, DatasetError, Flags, Integers, Partition, Rows
from gpsarsa.offline._target import Target
from gpsarsa.transitions import Transitions


class Dataset(ABC):
    """Logged transitions that are read partition by partition. Small, and goes through pickle."""

    observation_columns: int
    action_columns: int
    discrete_action: bool
    """Whether the action's columns hold categories."""
    has_episodes: bool
    """Whether it is known which row continues which."""
    names: tuple[str, ...]
    """The input columns' names."""
    rows: int
    partitions: list[Partition]

    def blocks(
        self, partition: Partition, *, gamma: float, target_policy: Any = None, rows: int = 16_384
    ) -> Iterator[Block]:
        """The transitions of a partition in order, about `rows` at a time.

        A block's first row may continue the last one of the block before. With a target policy (whatever
        has Stable-Baselines3's `predict`) the next actions are its own, and a row continues the one before
        only if the target would have gone on as the log did.
        """
        gamma = check.discount(gamma, "gamma")
        rows = check.at_least_one(rows, "rows")
        return self._blocks(partition, gamma, self.target(target_policy), rows)

    def sample(
        self, count: int, rng: np.random.Generator, *, gamma: float, target_policy: Any = None
    ) -> Block:
        """About `count` transitions from all over the table, of which only a part is read.

        Where episodes are known they stay whole, apart from those that the edge of a row group cuts, and
        those longer than a quarter of the sample, which are divided. Every row is about as likely to be
        drawn as any other. A count of at least `rows` gives all of them.
        """
        gamma = check.discount(gamma, "gamma")
        count = check.at_least_one(count, "count")
        return self._sample(count, rng, gamma, self.target(target_policy))

    def target(self, policy: Any) -> Target | None:
        """A policy as blocks are read for it; None where there is none."""
        if policy is None:
            return None
        return Target(policy, self.observation_columns, self.action_columns, discrete=self.discrete_action)

    @abstractmethod
    def _blocks(
        self, partition: Partition, gamma: float, target: Target | None, count: int
    ) -> Iterator[Block]: ...

    @abstractmethod
    def _sample(self, count: int, rng: np.random.Generator, gamma: float, target: Target | None) -> Block: ...


class Logs(Dataset):
    """Logs that are read as `Rows`."""

    @abstractmethod
    def read(self, partition: Partition, count: int) -> Iterator[Rows]:
        """The rows of a partition in order, about `count` at a time, whether or not they can be used."""

    @abstractmethod
    def _draw(self, count: int, rng: np.random.Generator) -> Iterator[tuple[str, Rows]]:
        """The rows of a sample, with the file they are from."""

    def _place(self, file: str, rows: Rows, i: int) -> str:
        """Where a row is, for messages."""
        return f"{file}, row {rows.numbers[i]}"

    def _number(self, file: str) -> int:
        """Of a file, among those of the dataset."""
        return 0

    def _episodes_of(self, rows: Rows) -> Integers:
        """A number for each row's episode, whatever the log calls it: that of its first row."""
        return rows.numbers - rows.steps if self.has_episodes else rows.episodes

    def _blocks(
        self, partition: Partition, gamma: float, target: Target | None, count: int
    ) -> Iterator[Block]:
        last = None
        for rows in self.read(partition, count):
            block = self._block(partition.file, rows, gamma, target, last)
            if len(block.transitions):
                last = block.transitions.next_inputs[-1]
            yield block

    def _sample(self, count: int, rng: np.random.Generator, gamma: float, target: Target | None) -> Block:
        blocks = []
        for file, rows in self._draw(count, rng):
            apart = replace(rows, starts=rows.starts | rows.jumps)
            blocks.append(self._block(file, apart, gamma, target, None))
        return Block.concatenate(blocks)

    def _block(self, file: str, rows: Rows, gamma: float, target: Target | None, last: Array | None) -> Block:
        """The transitions of the rows that can be used; `last` is the x′ before them, None if unknown."""
        read = len(rows)
        rows = self._usable(file, rows, asked=target is not None)
        x = np.concatenate([rows.observations, rows.actions], axis=1)
        self._check_finite(file, rows, rows.rewards[:, None], ["reward"])
        self._check_finite(file, rows, x, self.names)
        following = self._following(file, rows, x, target)
        if gamma == 0:
            following[:] = x
        starts, target_first = rows.starts, None
        first = rows.steps == 0 if self.has_episodes else np.zeros(len(rows), dtype=np.bool_)
        if target is not None:
            starts = starts | _departures(x, following, last)
            target_first = x[first]
            o = self.observation_columns
            target_first[:, o:] = target(target_first[:, :o])
        discounts = np.where(rows.terminated, 0.0, gamma)
        transitions = Transitions._trusted(x, rows.rewards.copy(), following, discounts, starts)
        return Block(
            transitions, first, self._episodes_of(rows), rows.numbers, read - len(rows),
            self._number(file), target_first,
        )  # fmt: skip

    def _usable(self, file: str, rows: Rows, *, asked: bool) -> Rows:
        """The rows without those that were truncated and lack what comes next."""
        left = np.zeros(len(rows), dtype=np.bool_)
        for missing in (rows.no_observation, None if asked else rows.no_action):
            if missing is not None:
                left |= missing
        left &= ~rows.terminated
        if not left.any():
            return rows
        if (bad := left & ~rows.truncated).any():
            i = int(np.argmax(bad))
            gone = rows.no_observation is not None and rows.no_observation[i]
            what = "next_observation" if gone else "next_action"
            raise DatasetError(
                f"{self._place(file, rows, i)}: {what} is null, but the row is neither terminated nor "
                f"truncated; expected a {what}. Mark the end of an episode in terminated or truncated"
            )
        return rows[~left]

    def _following(self, file: str, rows: Rows, x: Array, target: Target | None) -> Array:
        """x′, with the target's action if there is one; x where the episode terminated."""
        o = self.observation_columns
        following = np.empty_like(x)
        following[:, :o] = rows.next_observations
        following[:, o:] = rows.next_actions if target is None else 0.0
        following[rows.terminated] = x[rows.terminated]
        self._check_finite(file, rows, following, [f"next_{name}" for name in self.names])
        if target is not None:
            going = ~rows.terminated
            following[going, o:] = target(following[going, :o])
        return following

    def _check_finite(self, file: str, rows: Rows, values: Array, names: Sequence[str]) -> None:
        """Name the first value that is not finite."""
        with np.errstate(all="ignore"):
            if math.isfinite(values.sum()):  # faster than isfinite, but may overflow
                return
        finite = np.isfinite(values)
        if not finite.all():
            i, column = divmod(int(np.argmin(finite)), values.shape[1])
            raise DatasetError(
                f"{self._place(file, rows, i)}: {names[column]} = {values[i, column]}; expected a finite "
                "number. Leave out the episode, or log what was observed"
            )


def _departures(x: Array, following: Array, last: Array | None) -> Flags:
    """Rows whose x is not the x′ of the row before."""
    departs = np.ones(len(x), dtype=np.bool_)
    departs[1:] = (x[1:] != following[:-1]).any(axis=1)
    if len(x) and last is not None:
        departs[0] = bool((x[0] != last).any())
    return departs
