"""Logged transitions as a stream of blocks, in bounded memory.

    data = open_dataset("logs/")                       # Parquet files, "minari:<id>", or Transitions
    for partition in data.partitions:                  # independent of one another
        for block in data.blocks(partition, gamma=0.99):
            ...

A table has one self-contained row per transition: `observation`, `action`, `reward`, `next_observation`,
`next_action`, `terminated`; optionally `truncated`, `episode`, `step`. An observation is a list of numbers
or one number; a discrete action a whole number or a list of them, a continuous one a list of floats. Where
an episode terminated, the next observation and action are not looked at. Where it was truncated, the next
action may be null: such a row is left out, unless a target policy says what it would have done.

With both `episode` and `step` the chains are known: the rows of an episode stand one after another in one
file, their steps counted from 0. Partitions are runs of whole row groups, cut at the next start of an
episode, so that every chain lies in one of them.
"""

from __future__ import annotations

import contextlib
import difflib
import glob
import hashlib
import importlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.control.spaces import Observations, SpaceError
from gpsarsa.transitions import Transitions

__all__ = ["Block", "Dataset", "DatasetError", "Logs", "Partition", "Rows", "needed", "open_dataset"]

REQUIRED = ("observation", "action", "reward", "next_observation", "next_action", "terminated")
OPTIONAL = ("truncated", "episode", "step")
EXACT = 2.0**53  # whole numbers below are exact in float64
BUFFER = 1 << 20  # bytes of a column that are read at a time
GROUPS = 16  # row groups that a sample is drawn from
LOOKED_THROUGH = 1_000_000  # rows that may be looked through for a small sample
LONGEST = 4  # no part of an episode is more than a quarter of a sample
EPISODES = 64  # of a Minari dataset that are asked for at a time
PREFIX = "minari:"

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


class DatasetError(ValueError):
    """Logs that cannot be used: the file, the column, the row (from 0) and what would help."""


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Partition:
    """A run of row groups of one file, or of episodes of a Minari dataset, `first` to `last`."""

    file: str
    first: int
    last: int
    index: int
    size: int
    mtime_ns: int
    mark: str = ""
    """Sets apart what file and time do not."""

    @property
    def key(self) -> str:
        """Equal after a restart if the file is unchanged and cut in the same way."""
        return f"{self.file}|{self.size}|{self.mtime_ns}|{self.first}-{self.last}|{self.mark}"


@dataclass(frozen=True, eq=False)
class Block:
    """Some transitions of a partition, possibly none."""

    transitions: Transitions
    """Inputs are the observation's columns, then the action's."""
    first: Flags
    """Rows that begin an episode; none where episodes are not known."""
    episodes: Integers
    """The episodes' numbers, -1 where they are not known."""
    first_row: int
    """The number, in its file (of Minari in its partition), of the first row read for this block."""
    left_out: int
    """Rows read for this block that were truncated and have no next action."""
    target_first: Array | None = None
    """The inputs of the `first` rows with the target policy's action in place of the logged one."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table as arrays, before any policy is asked."""

    observations: Array
    actions: Array
    rewards: Array
    next_observations: Array
    next_actions: Array
    terminated: Flags
    truncated: Flags
    episodes: Integers
    steps: Integers
    starts: Flags
    """Rows that do not continue the row before."""
    numbers: Integers
    """The rows' numbers in their file."""
    no_observation: Flags | None = None
    """Rows without a next observation; None where there are none."""
    no_action: Flags | None = None
    """Rows without a next action; None where there are none."""

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, rows: Any) -> Self:
        parts: dict[str, Any] = {}
        for field in fields(self):
            part = getattr(self, field.name)
            parts[field.name] = None if part is None else part[rows]
        return type(self)(**parts)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {}
        for field in fields(cls):
            arrays = [getattr(part, field.name) for part in parts]
            if all(array is None for array in arrays):
                continue
            none = (np.zeros(len(part), dtype=np.bool_) for part in parts)
            joined[field.name] = np.concatenate(
                [n if array is None else array for array, n in zip(arrays, none, strict=True)]
            )
        return cls(**joined)


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
        rows = _at_least_one(rows, "rows")
        return self._blocks(partition, gamma, self._target(target_policy), rows)

    def sample(
        self, count: int, rng: np.random.Generator, *, gamma: float, target_policy: Any = None
    ) -> Block:
        """About `count` transitions from all over the table, of which only a part is read.

        Where episodes are known they stay whole, apart from those that the edge of a row group cuts, and
        those longer than a quarter of the sample, which are divided. Every row is about as likely to be
        drawn as any other. A count of at least `rows` gives all of them.
        """
        gamma = check.discount(gamma, "gamma")
        count = _at_least_one(count, "count")
        return self._sample(count, rng, gamma, self._target(target_policy))

    def _target(self, policy: Any) -> _Target | None:
        return None if policy is None else _Target(policy, self)

    @abstractmethod
    def _blocks(
        self, partition: Partition, gamma: float, target: _Target | None, count: int
    ) -> Iterator[Block]: ...

    @abstractmethod
    def _sample(
        self, count: int, rng: np.random.Generator, gamma: float, target: _Target | None
    ) -> Block: ...


class _Target:
    """A policy that is asked what it would do."""

    def __init__(self, policy: Any, dataset: Dataset) -> None:
        if not callable(getattr(policy, "predict", None)):
            raise TypeError(f"target_policy is a {type(policy).__name__}; expected something with predict")
        if dataset.action_columns == 0:
            raise DatasetError(
                "Transitions do not say which columns are the action's, so no target_policy can be asked; "
                "write them to a table: gpsarsa.offline.recording.write_table"
            )
        self._policy, self._dataset = policy, dataset
        self._space = _expected(policy)
        if self._space is not None and _width(self._space) != dataset.observation_columns:
            raise DatasetError(
                f"target_policy takes observations of {_width(self._space)} numbers; the table's have "
                f"{dataset.observation_columns}"
            )

    def __call__(self, observations: Array) -> Array:
        """Its actions as rows."""
        n, a = len(observations), self._dataset.action_columns
        given = observations if self._space is None else _shaped(self._space, observations)
        answer = self._policy.predict(given, deterministic=True)
        actions = np.asarray(answer[0] if isinstance(answer, tuple) else answer)
        if actions.size != n * a or actions.shape[:1] != (n,) or actions.dtype.kind not in "fiub":
            raise DatasetError(
                f"target_policy.predict gave {actions.dtype} of shape {actions.shape} for {n} observations; "
                f"expected an action of {a} number(s) for each"
            )
        rows = actions.reshape(n, a).astype(np.float64)
        if not np.isfinite(rows).all():
            raise DatasetError("target_policy.predict gave an action that is not finite")
        if self._dataset.discrete_action and (rows != np.rint(rows)).any():
            raise DatasetError(
                f"target_policy.predict gave the action {rows[(rows != np.rint(rows)).any(axis=1)][0]}; the "
                "table's actions are whole numbers"
            )
        return rows


def _expected(policy: Any) -> Mapping[str, Any] | None:
    """What the policy takes for an observation, as `Observations.describe` has it; None if it is not said."""
    observations = getattr(policy, "observations", None)
    if not isinstance(observations, Observations):
        space = getattr(policy, "observation_space", None)
        if not isinstance(space, Space):
            return None
        observations = Observations(space)
    return observations.describe()["space"]


def _width(space: Mapping[str, Any]) -> int:
    """How many numbers an observation has."""
    if "parts" in space:
        return sum(_width(part) for _, part in space["parts"])
    return math.prod(space["shape"])


def _shaped(space: Mapping[str, Any], rows: Array) -> Any:
    """A batch of observations of the space, from rows of numbers."""
    if "parts" not in space:
        return rows.astype(space["dtype"]).reshape(len(rows), *space["shape"])
    inside, at = {}, 0
    for key, part in space["parts"]:
        inside[key] = _shaped(part, rows[:, at : at + _width(part)])
        at += _width(part)
    return inside if space["kind"] == "Dict" else tuple(inside.values())


# ── from logged rows to blocks ───────────────────────────────────────────────────────────────────────


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

    def _blocks(
        self, partition: Partition, gamma: float, target: _Target | None, count: int
    ) -> Iterator[Block]:
        last = None
        for rows in self.read(partition, count):
            block, last = self._block(partition.file, rows, gamma, target, last)
            yield block

    def _sample(self, count: int, rng: np.random.Generator, gamma: float, target: _Target | None) -> Block:
        return _joined(
            [self._block(file, rows, gamma, target, None)[0] for file, rows in self._draw(count, rng)]
        )

    def _block(
        self, file: str, rows: Rows, gamma: float, target: _Target | None, last: Array | None
    ) -> tuple[Block, Array | None]:
        """A block, and its last x′; `last` is that of the block before."""
        read, first_row = len(rows), int(rows.numbers[0])
        rows = self._usable(file, rows, asked=target is not None)
        x = np.concatenate([rows.observations, rows.actions], axis=1)
        if not _all_finite(rows.rewards):
            self._refuse(file, rows, rows.rewards[:, None], ("reward",))
        if not _all_finite(x):
            self._refuse(file, rows, x, self.names)
        following = self._following(file, rows, x, target)
        discounts = np.where(rows.terminated, 0.0, gamma)
        if gamma == 0:
            following[:] = x
        starts = rows.starts.copy()
        first = rows.steps == 0 if self.has_episodes else np.zeros(len(rows), dtype=np.bool_)
        target_first = None
        if target is not None:
            starts |= _departures(x, following, last)
            target_first = x[first]
            if len(target_first):
                o = self.observation_columns
                target_first[:, o:] = target(target_first[:, :o])
        transitions = Transitions._trusted(x, rows.rewards.copy(), following, discounts, starts)
        block = Block(transitions, first, rows.episodes, first_row, read - len(rows), target_first)
        return block, following[-1] if len(rows) else last

    def _usable(self, file: str, rows: Rows, *, asked: bool) -> Rows:
        """The rows without those that were truncated and lack what comes next."""
        without = rows.no_observation if asked else _either(rows.no_observation, rows.no_action)
        if without is None or not (left := without & ~rows.terminated).any():
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

    def _following(self, file: str, rows: Rows, x: Array, target: _Target | None) -> Array:
        """x′, with the target's action if there is one; x where the episode terminated."""
        o, going = self.observation_columns, ~rows.terminated
        following = np.empty_like(x)
        following[:, :o] = rows.next_observations
        following[:, o:] = rows.next_actions if target is None else 0.0
        following[rows.terminated] = x[rows.terminated]
        if not _all_finite(following):
            self._refuse(file, rows, following, tuple(f"next_{name}" for name in self.names))
        if target is not None and going.any():
            following[going, o:] = target(following[going, :o])
        return following

    def _refuse(self, file: str, rows: Rows, values: Array, names: tuple[str, ...]) -> None:
        """Name the first value that is not finite; there may be none after all."""
        finite = np.isfinite(values)
        if finite.all():
            return
        i, column = divmod(int(np.argmin(finite)), values.shape[1])
        raise DatasetError(
            f"{self._place(file, rows, i)}: {names[column]} = {values[i, column]}; expected a finite number. "
            "Leave out the episode, or log what was observed"
        )


def _at_least_one(value: Any, name: str) -> int:
    if check.count(value, name) == 0:
        raise ValueError(f"{name} = 0; expected 1 or more")
    return int(value)


def _all_finite(values: Array) -> bool:
    """False where a value is not finite, and perhaps where the sum overflows; faster than isfinite."""
    with np.errstate(all="ignore"):
        return math.isfinite(values.sum())


def _either(a: Flags | None, b: Flags | None) -> Flags | None:
    if a is None or b is None:
        return b if a is None else a
    return a | b


def _departures(x: Array, following: Array, last: Array | None) -> Flags:
    """Rows whose x is not the x′ of the row before."""
    departs = np.ones(len(x), dtype=np.bool_)
    departs[1:] = (x[1:] != following[:-1]).any(axis=1)
    if len(x) and last is not None:
        departs[0] = bool((x[0] != last).any())
    return departs


def _joined(blocks: Sequence[Block]) -> Block:
    """The blocks of a sample as one."""
    if len(blocks) == 1:
        return blocks[0]
    first = [block.target_first for block in blocks if block.target_first is not None]
    return Block(
        Transitions.concatenate(block.transitions for block in blocks),
        np.concatenate([block.first for block in blocks]),
        np.concatenate([block.episodes for block in blocks]),
        blocks[0].first_row,
        sum(block.left_out for block in blocks),
        np.concatenate(first) if first else None,
    )


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────


def open_dataset(source: Any, *, rows_per_partition: int = 200_000) -> Dataset:
    """Logs as a Dataset; only their metadata is read and checked here.

    Parameters
    ----------
    source : path, list of paths, str, Minari dataset or Transitions
        A Parquet file, a folder (every *.parquet in it, at any depth), a pattern such as "logs/*.parquet",
        or a list of these; "minari:<id>" for a local Minari dataset. Transitions keep their own discounts,
        whatever γ is asked for; their inputs count as observations, to which no policy can be asked.
    rows_per_partition : int
        About how many rows a partition has; a row group is never divided.
    """
    size = _at_least_one(rows_per_partition, "rows_per_partition")
    if isinstance(source, Transitions):
        return _Memory(source, size)
    if hasattr(source, "iterate_episodes") and hasattr(source, "storage"):
        return _Minari(source, size)
    if isinstance(source, str) and source.startswith(PREFIX):
        return _Minari(_load_minari(source.removeprefix(PREFIX)), size)
    if isinstance(source, str | os.PathLike) and (folder := _minari_folder(Path(source))) is not None:
        return _Minari(_open_minari(folder), size)
    return _Table(_found(source), size)


def _found(source: Any) -> list[Path]:
    """The files that a path, a pattern or a list of them stands for, each once."""
    if isinstance(source, str | os.PathLike):
        source = [source]
    if not isinstance(source, list | tuple) or not all(isinstance(s, str | os.PathLike) for s in source):
        raise DatasetError(
            f"source is a {type(source).__name__}; expected a path, a list of paths, 'minari:<id>', a Minari "
            "dataset or Transitions"
        )
    if not source:
        raise DatasetError("source is an empty list; expected at least one path")
    files = [file for path in source for file in _found_one(Path(path).expanduser())]
    return list({file.resolve(): file for file in files}.values())


def _found_one(path: Path) -> list[Path]:
    if path.is_dir():
        found = [file for file in path.rglob("*.parquet") if not _hidden(file.relative_to(path))]
        if not found:
            raise DatasetError(f"{path} holds no *.parquet file; gpsarsa.offline.recording writes them")
        return sorted(found)
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        if not matches:
            raise DatasetError(f"no file matches {path}; quote the pattern, and check its folder")
        return [file for match in matches for file in _found_one(match)]
    near = difflib.get_close_matches(path.name, _siblings(path), n=1)
    raise DatasetError(f"{path} does not exist{f'; did you mean {near[0]}?' if near else ''}")


def _siblings(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [other.name for other in path.parent.iterdir()]
    return []


def _hidden(path: Path) -> bool:
    """Files that other programs are still writing, by custom."""
    return any(part.startswith((".", "_")) for part in path.parts)


def needed(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DatasetError(f"{module} is not installed: pip install 'gpsarsa[{extra}]'") from error


# ── tables in Parquet files ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Shape:
    """How a file stores its rows. A length of None is one number that is no list."""

    observation: int | None
    action: int | None
    discrete: bool
    episodes: bool
    truncated: bool


@dataclass(frozen=True)
class _File:
    """A Parquet file and the rows at which its row groups begin, the last entry being its end."""

    path: str
    size: int
    mtime_ns: int
    edges: tuple[int, ...]


class _Table(Logs):
    """Parquet files of one schema."""

    def __init__(self, paths: Sequence[Path], rows_per_partition: int) -> None:
        self._files: dict[str, _File] = {}
        shape, model = None, ""
        for path in paths:
            file, own = _inspected(path)
            if own is None:
                continue
            if shape is None:
                shape, model = own, file.path
            _check_same(file.path, own, model, shape)
            self._files[file.path] = file
        if shape is None:
            raise DatasetError(f"{paths[0]} has no rows; expected at least one transition")
        self._shape = shape
        self.observation_columns, self.action_columns = shape.observation or 1, shape.action or 1
        self.discrete_action, self.has_episodes = shape.discrete, shape.episodes
        self.names = (*_names("observation", shape.observation), *_names("action", shape.action))
        self.rows = sum(file.edges[-1] for file in self._files.values())
        self._columns = [*REQUIRED, *(["truncated"] if shape.truncated else [])]
        self._columns += ["episode", "step"] if shape.episodes else []
        self.partitions = []
        for file in self._files.values():
            for first, last in _runs(file.edges, rows_per_partition):
                self.partitions.append(
                    Partition(file.path, first, last, len(self.partitions), file.size, file.mtime_ns)
                )

    def read(self, partition: Partition, count: int) -> Iterator[Rows]:
        file = self._files.get(partition.file)
        if file is None or partition.last + 1 >= len(file.edges):
            raise DatasetError(f"{partition.file}: the partition is not one of this dataset")
        if self.has_episodes:
            return self._read_episodes(file, partition, count)
        return self._read_rows(file, range(partition.first, partition.last + 1), count)

    def _read_rows(self, file: _File, groups: Sequence[int], count: int) -> Iterator[Rows]:
        row = file.edges[groups[0]]
        for batch in _batches(file, groups, self._columns, count):
            yield self._converted(file.path, batch, np.arange(row, row + len(batch)))
            row += len(batch)

    def _read_episodes(self, file: _File, partition: Partition, count: int) -> Iterator[Rows]:
        """From the first start of an episode to where the last one that starts here is complete."""
        row, end = file.edges[partition.first], file.edges[partition.last + 1]
        chain = _Chain(file.path)
        begun = partition.first == 0
        for batch in _batches(file, range(partition.first, len(file.edges) - 1), self._columns, count):
            if not begun or row + len(batch) > end:
                steps = _Columns(file.path, batch, np.arange(row, row + len(batch))).whole("step")
                starts = np.flatnonzero(steps == 0) + row
                beyond = starts[starts >= end]
            else:
                starts = beyond = np.empty(0, dtype=np.int64)
            begin, stop = row, int(beyond[0]) if len(beyond) else row + len(batch)
            if not begun:
                begun = len(starts) > 0 and starts[0] < end
                begin = int(starts[0]) if begun else stop
            if begin < stop:
                rows = self._converted(
                    file.path, batch.slice(begin - row, stop - begin), np.arange(begin, stop)
                )
                chain.check(rows)
                yield rows
            row += len(batch)
            if len(beyond) or (row >= end and not begun):
                return

    def _converted(self, file: str, batch: Any, numbers: Integers) -> Rows:
        """A record batch as arrays; nothing is done row by row."""
        columns, shape, n = _Columns(file, batch, numbers), self._shape, len(numbers)
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
            numbers=numbers,
            no_observation=no_observation,
            no_action=no_action,
        )

    # -- sampling -----------------------------------------------------------------------------

    def _draw(self, count: int, rng: np.random.Generator) -> Iterator[tuple[str, Rows]]:
        groups, rates = self._groups(count, rng)
        sizes = np.array([file.edges[g + 1] - file.edges[g] for file, g in groups])
        edges = np.concatenate([[0], np.cumsum(sizes)])  # of the groups, laid end to end
        if self.has_episodes:
            begins = [at + self._episodes_in(*group) for at, group in zip(edges, groups, strict=False)]
            each = np.repeat(rates, [len(b) for b in begins])
            wanted = _stretches(np.concatenate([*begins, edges[-1:]]), each, count, rng)
        else:
            wanted = _singles(edges, rates, count, rng)
        cuts = np.searchsorted(wanted, edges)
        found: dict[str, list[Rows]] = {}
        for i, (file, group) in enumerate(groups):
            mine = wanted[cuts[i] : cuts[i + 1]] - edges[i] + file.edges[group]
            if len(mine):
                found.setdefault(file.path, []).extend(self._picked(file, group, mine))
        for path, parts in found.items():
            rows = Rows.concatenate(parts)
            jumps = np.diff(rows.numbers, prepend=-2) != 1
            if self.has_episodes:
                _Chain(path).check(rows, jumps)
            yield path, replace(rows, starts=rows.starts | jumps)

    def _groups(self, count: int, rng: np.random.Generator) -> tuple[list[tuple[_File, int]], Array]:
        """Row groups to draw a sample from, in order, and at what rate rows are to be drawn from each.

        Neighbours that are small count as one. Of some draws, each hitting a group with a chance ∝ its
        rows, m hit it: its rate is m / rows, the same for every row of the table on average. If that many
        draws can be afforded, all groups are taken at one rate.
        """
        every = [(file, g) for file in self._files.values() for g in range(len(file.edges) - 1)]
        sizes = np.array([file.edges[g + 1] - file.edges[g] for file, g in every])
        shared = _merged(sizes, 4 * count // GROUPS)
        rows = np.bincount(shared, sizes)
        afforded = max(4 * count, LOOKED_THROUGH) * len(rows) // self.rows
        draws = min(GROUPS, max(afforded, 1))
        if draws >= len(rows):
            return every, np.ones(len(every))
        hits = rng.multinomial(draws, rows / self.rows)
        hit = np.flatnonzero(hits[shared])
        return [every[i] for i in hit], (hits / rows)[shared[hit]]

    def _episodes_in(self, file: _File, group: int) -> Integers:
        """Where in a row group its episodes begin, the one that is under way included."""
        found, row = [np.zeros(1, dtype=np.int64)], 0
        for batch in _batches(file, [group], ["step"], LOOKED_THROUGH):
            numbers = np.arange(row, row + len(batch)) + file.edges[group]
            found.append(np.flatnonzero(_Columns(file.path, batch, numbers).whole("step") == 0) + row)
            row += len(batch)
        return np.unique(np.concatenate(found))

    def _picked(self, file: _File, group: int, wanted: Integers) -> Iterator[Rows]:
        """Some rows of a row group, given by their numbers in the file."""
        row = file.edges[group]
        for batch in _batches(file, [group], self._columns, 65_536):
            lower, upper = np.searchsorted(wanted, [row, row + len(batch)])
            if lower < upper:
                numbers = wanted[lower:upper]
                yield self._converted(file.path, batch.take(_arrow().array(numbers - row)), numbers)
            row += len(batch)


def _merged(sizes: Integers, least: int) -> Integers:
    """Numbers for row groups, the same for neighbours that only together have `least` rows."""
    numbers, number, rows = np.zeros_like(sizes), 0, 0
    for i, size in enumerate(sizes):
        if rows >= least:
            number, rows = number + 1, 0
        numbers[i] = number
        rows += int(size)
    return numbers


def _stretches(edges: Integers, rates: Array, count: int, rng: np.random.Generator) -> Integers:
    """About `count` rows of episodes between these edges, drawn at these rates; long episodes in parts."""
    if edges[-1] <= count:
        return np.arange(edges[-1])
    lengths = np.diff(edges)
    parts = -(-lengths // max(count // LONGEST, 1))
    which = np.repeat(np.arange(len(lengths)), parts)
    nth = _ranges(np.zeros_like(parts), parts)
    begins = edges[which] + nth * lengths[which] // parts[which]
    sizes = np.diff(begins, append=edges[-1])
    order = np.argsort(rng.exponential(size=len(begins)) / rates[which])
    enough = int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1
    chosen = np.sort(order[:enough])
    return _ranges(begins[chosen], sizes[chosen])


def _singles(edges: Integers, rates: Array, count: int, rng: np.random.Generator) -> Integers:
    """About `count` single rows between these edges, drawn at these rates."""
    sizes = np.diff(edges)
    if edges[-1] <= count:
        return np.arange(edges[-1])
    if (rates == rates[0]).all():
        return np.sort(rng.choice(edges[-1], count, replace=False, shuffle=False))
    shares = np.minimum(rng.multinomial(count, rates * sizes / np.sum(rates * sizes)), sizes)
    drawn = [
        begin + rng.choice(size, share, replace=False, shuffle=False)
        for begin, size, share in zip(edges[:-1], sizes, shares, strict=True)
    ]
    return np.sort(np.concatenate(drawn))


def _ranges(begins: Integers, lengths: Integers) -> Integers:
    """The ranges begin … begin + length − 1, one after another."""
    return np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def _runs(edges: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Runs of whole row groups, each as near to `size` rows as they allow."""
    first = 0
    for group in range(1, len(edges) - 1):
        if (edges[group] + edges[group + 1]) / 2 - edges[first] > size:
            yield first, group - 1
            first = group
    yield first, len(edges) - 2


class _Chain:
    """Whether rows follow one another as `episode` and `step` say."""

    def __init__(self, file: str) -> None:
        self._file, self._before = file, (-1, -1, True, -2)

    def check(self, rows: Rows, jumps: Flags | None = None) -> None:
        """Check rows that come after those of the call before; `jumps` are where a sample leaves some out."""
        ended = rows.terminated | rows.truncated
        follows = np.empty(len(rows), dtype=np.bool_)
        follows[1:] = (rows.steps[1:] == rows.steps[:-1] + 1) & (rows.episodes[1:] == rows.episodes[:-1])
        follows[1:] &= ~ended[:-1]
        episode, step, over, _ = self._before
        follows[0] = rows.steps[0] == step + 1 and rows.episodes[0] == episode and not over
        good = follows | (rows.steps == 0)
        if jumps is not None:
            good |= jumps
        if not good.all():
            i = int(np.argmin(good))
            if i:
                self._keep(rows, ended, i - 1)
            raise self._broken(int(rows.episodes[i]), int(rows.steps[i]), int(rows.numbers[i]))
        self._keep(rows, ended, -1)

    def _keep(self, rows: Rows, ended: Flags, i: int) -> None:
        self._before = int(rows.episodes[i]), int(rows.steps[i]), bool(ended[i]), int(rows.numbers[i])

    def _broken(self, episode: int, step: int, row: int) -> DatasetError:
        before, last, _, number = self._before
        where = f"{self._file}, row {row}: episode {episode}"
        if number < 0 or before != episode:
            return DatasetError(
                f"{where} begins with step = {step}; expected 0. The rows of an episode stand one after "
                "another in one file, and their steps count from 0: sort the table by episode and step"
            )
        if step != last + 1:
            return DatasetError(
                f"{where} has step = {step} after step {last}; expected {last + 1}. Log every step, or drop "
                "the columns episode and step"
            )
        return DatasetError(
            f"{where} goes on with step = {step} after a row that is terminated or truncated; expected "
            "another episode. Give each episode its own number, and count its steps from 0"
        )


# -- columns of a record batch --------------------------------------------------------------------


class _Columns:
    """The columns of a record batch as arrays; `numbers` are its rows' numbers in the file."""

    def __init__(self, file: str, batch: Any, numbers: Integers) -> None:
        self._file, self._batch, self._numbers = file, batch, numbers

    def rows(
        self, name: str, length: int | None, *, nulls: bool = False, whole: bool = False
    ) -> tuple[Array, Flags | None]:
        """A column as (rows, numbers), NaN where it is null, and the rows that are, if there are any."""
        column = self._batch.column(name)
        missing = _nulls(column) if column.null_count else None
        if missing is not None and not nulls:
            raise self._error(name, int(np.argmax(missing)), "null", "a value", "Leave out the episode")
        if missing is not None and missing.all():
            return np.full((len(column), length or 1), np.nan), missing
        values = self._lists(name, column, length, missing) if length else _float64(column)[:, None]
        if whole:
            missing = self._check_whole(name, column, values, missing)
        return values, missing

    def _lists(self, name: str, column: Any, length: int, missing: Flags | None) -> Array:
        self._check_lengths(name, column, length, missing)
        flat = column.flatten()
        rows = np.arange(len(column)) if missing is None else np.flatnonzero(~missing)
        if flat.null_count:
            i = int(rows[int(np.argmax(_nulls(flat))) // length])
            raise self._error(name, i, "a list with a null", "numbers", "Leave out the episode")
        values = _float64(flat).reshape(-1, length)
        if missing is None:
            return values
        filled = np.full((len(column), length), np.nan)
        filled[rows] = values
        return filled

    def _check_lengths(self, name: str, column: Any, length: int, missing: Flags | None) -> None:
        if _arrow().types.is_fixed_size_list(column.type):
            return
        lengths = np.diff(column.offsets.to_numpy())
        bad = lengths != length
        if missing is not None:
            bad &= ~missing
        if bad.any():
            i = int(np.argmax(bad))
            raise self._error(
                name, i, f"a list of {lengths[i]}", f"a list of {length}", "All rows need as many numbers"
            )

    def _check_whole(self, name: str, column: Any, values: Array, missing: Flags | None) -> Flags | None:
        """Refuse what is no category. NaN among whole numbers can only mean that there is none."""
        types, inner = _arrow().types, _inner(column.type)
        if types.is_integer(inner) and inner.bit_width == 64:
            bad = np.abs(values) >= EXACT
            expected = "a whole number below 2**53"
        elif types.is_floating(inner) or types.is_decimal(inner):
            absent = np.asarray(np.isnan(values).all(axis=1))
            if absent.any():
                missing = _either(missing, absent)
            bad = (values != np.rint(values)) & ~absent[:, None]
            expected = "a whole number, as in the column action"
        else:
            return missing
        if bad.any():
            i, j = divmod(int(np.argmax(bad)), values.shape[1])
            raise self._error(name, i, str(values[i, j]), expected, "Number the discrete actions from 0")
        return missing

    def whole(self, name: str) -> Integers:
        """A column of whole numbers without nulls."""
        column = self._batch.column(name)
        if column.null_count:
            i = int(np.argmax(_nulls(column)))
            raise self._error(name, i, "null", "a whole number", "Number all episodes and their steps")
        return column.to_numpy(zero_copy_only=False).astype(np.int64)

    def flags(self, name: str) -> Flags:
        """A column of booleans without nulls."""
        column = self._batch.column(name)
        if column.null_count:
            raise self._error(
                name,
                int(np.argmax(_nulls(column))),
                "null",
                "true or false",
                "Write false where it is not so",
            )
        return column.to_numpy(zero_copy_only=False)

    def _error(self, name: str, i: int, found: str, expected: str, cure: str) -> DatasetError:
        return DatasetError(
            f"{self._file}, row {self._numbers[i]}: {name} is {found}; expected {expected}. {cure}"
        )


def _nulls(column: Any) -> Flags:
    return column.is_null().to_numpy(zero_copy_only=False)


def _float64(column: Any) -> Array:
    """Numbers of any type as doubles, NaN where null; a view if they are doubles."""
    pa = _arrow()
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.float64())
    return column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def _inner(kind: Any) -> Any:
    """The type of the numbers in a list, or of a number."""
    return kind.value_type if _is_list(kind) else kind


def _is_list(kind: Any) -> bool:
    types = _arrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


# -- files and their schemas ----------------------------------------------------------------------


def _arrow() -> Any:
    return needed("pyarrow", "offline")


def _parquet() -> Any:
    return needed("pyarrow.parquet", "offline")


@contextlib.contextmanager
def _readable(path: str | Path) -> Iterator[None]:
    """Whatever goes wrong in reading a file, said with its name."""
    pa = _arrow()
    try:
        yield
    except MemoryError:
        raise
    except PermissionError as error:
        raise DatasetError(f"{path} cannot be opened: no permission to read it (chmod u+r)") from error
    except FileNotFoundError as error:
        raise DatasetError(f"{path} does not exist") from error
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{path} is damaged, incomplete or no Parquet file: {str(error).strip()}. Write or copy it again"
        ) from error


def _batches(file: _File, groups: Sequence[int], columns: list[str], count: int) -> Iterator[Any]:
    """Record batches of some row groups, decoded as they are asked for, on the caller's thread."""
    with _readable(file.path):
        stat = os.stat(file.path)
        if (stat.st_size, stat.st_mtime_ns) != (file.size, file.mtime_ns):
            raise DatasetError(f"{file.path} has changed since it was opened; open the dataset again")
        with _parquet().ParquetFile(file.path, buffer_size=BUFFER, pre_buffer=False) as parquet:
            batches = parquet.iter_batches(
                batch_size=count, row_groups=list(groups), columns=columns, use_threads=False
            )
            yield from (batch for batch in batches if len(batch))


def _inspected(path: Path) -> tuple[_File, _Shape | None]:
    """A file's row groups and shape, from its metadata; no shape where it has no rows."""
    whole = os.path.abspath(path)
    with _readable(path):
        stat = os.stat(whole)
        with _parquet().ParquetFile(whole) as parquet:
            metadata, schema = parquet.metadata, parquet.schema_arrow
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    edges = (0, *(int(edge) for edge in np.cumsum(sizes)))
    file = _File(whole, stat.st_size, stat.st_mtime_ns, edges)
    _check_columns(whole, schema.names)
    _check_types(whole, schema)
    if edges[-1] == 0:
        return file, None
    types = _arrow().types
    inner = _inner(schema.field("action").type)
    shape = _Shape(
        observation=_length(file, metadata, schema, "observation"),
        action=_length(file, metadata, schema, "action"),
        discrete=types.is_integer(inner) or types.is_boolean(inner),
        episodes="episode" in schema.names and "step" in schema.names,
        truncated="truncated" in schema.names,
    )
    return file, shape


def _check_columns(file: str, names: Sequence[str]) -> None:
    others = [name for name in names if name not in (*REQUIRED, *OPTIONAL)]
    for name in REQUIRED:
        if name not in names:
            near = difflib.get_close_matches(name, others, n=1)
            cure = f"Rename the column {near[0]}" if near else f"It has {', '.join(names)}"
            if name == "next_action" and not near:
                cure += ". A column of nulls will do if a target policy is given"
            raise DatasetError(f"{file} has no column {name}. {cure}")
    for name in OPTIONAL:
        if name not in names and (near := difflib.get_close_matches(name, others, n=1, cutoff=0.85)):
            raise DatasetError(
                f"{file} has a column {near[0]}, which is not read; rename it to {name}, or drop it"
            )


def _check_types(file: str, schema: Any) -> None:
    types = _arrow().types
    kinds = {name: schema.field(name).type for name in (*REQUIRED, *OPTIONAL) if name in schema.names}
    for name, kind in kinds.items():
        expected = ""
        if name in ("terminated", "truncated"):
            if not types.is_boolean(kind):
                expected = "bool. Write a comparison, such as flag == 1"
        elif name in ("episode", "step"):
            if not types.is_integer(kind):
                expected = "whole numbers. Number the episodes, and the steps of each from 0"
        elif name == "reward":
            if not _is_number(kind):
                expected = "numbers"
        elif name in ("observation", "action"):
            if not _is_number(_inner(kind)):
                expected = "numbers, or lists of numbers. Flatten arrays; give columns of their own a list"
            elif name == "action" and not _is_list(kind) and not types.is_integer(kind):
                expected = (
                    "whole numbers for a discrete action, or lists of floats for a continuous one (also for "
                    "a single float)"
                )
        elif not types.is_null(kind):
            model = kinds[name.removeprefix("next_")]
            if _is_list(kind) != _is_list(model) or not _is_number(_inner(kind)):
                expected = f"{model}, as {name.removeprefix('next_')}"
        if expected:
            raise DatasetError(f"{file}: column {name} holds {kind}; expected {expected}")


def _is_number(kind: Any) -> bool:
    types = _arrow().types
    return (
        types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    )


def _length(file: _File, metadata: Any, schema: Any, name: str) -> int | None:
    """How many numbers the lists of a column have, None for no lists; of the first row if that differs."""
    kind = schema.field(name).type
    if not _is_list(kind):
        return None
    if _arrow().types.is_fixed_size_list(kind):
        length = kind.list_size
    else:
        leaves = [metadata.schema.column(i).path.split(".")[0] for i in range(metadata.num_columns)]
        leaf = leaves.index(name)
        groups = range(metadata.num_row_groups)
        values = sum(metadata.row_group(i).column(leaf).num_values for i in groups)
        length, rest = divmod(values, metadata.num_rows)
        if rest:
            first = next(_batches(file, list(groups), [name], 1)).column(name)[0]
            length = len(first) if first.is_valid else 1
    if length == 0:
        raise DatasetError(f"{file.path}: column {name} holds empty lists; expected at least one number")
    return int(length)


def _check_same(file: str, own: _Shape, model: str, shape: _Shape) -> None:
    """Files of a dataset store their rows in the same way."""
    for name in ("observation", "action"):
        a, b = getattr(own, name), getattr(shape, name)
        if a != b:
            raise DatasetError(
                f"{file}: column {name} holds {_amount(a)}, in {model} {_amount(b)}; expected the same in "
                "all files"
            )
    if own.discrete != shape.discrete:
        kinds = ("floats", "whole numbers")
        raise DatasetError(
            f"{file}: column action holds {kinds[own.discrete]}, in {model} {kinds[shape.discrete]}; "
            "expected the same in all files"
        )
    for what, has in (("episode and step", "episodes"), ("truncated", "truncated")):
        if getattr(own, has) != getattr(shape, has):
            lacks = file if getattr(shape, has) else model
            raise DatasetError(
                f"{lacks} has no column {what}, another file has; expected it in all files or none"
            )


def _amount(length: int | None) -> str:
    return "one number" if length is None else f"lists of {length}"


def _names(name: str, length: int | None) -> tuple[str, ...]:
    return (name,) if length is None else tuple(f"{name}[{i}]" for i in range(length))


# ── Minari ───────────────────────────────────────────────────────────────────────────────────────────


class _Minari(Logs):
    """The episodes of a Minari dataset; partitions are ranges of them."""

    has_episodes = True

    def __init__(self, dataset: Any, rows_per_partition: int) -> None:
        self._path = str(Path(dataset.storage.data_path).resolve())
        self._chosen = np.asarray(dataset.episode_indices, dtype=np.int64)
        self.rows = int(dataset.total_steps)
        if self.rows == 0:
            raise DatasetError(f"{self._path} has no episodes with a step; expected at least one transition")
        action = dataset.action_space
        try:
            self._observations = Observations(dataset.observation_space)
            if isinstance(action, spaces.Dict | spaces.Tuple):
                raise SpaceError(f"action is a {type(action).__name__}; expected Box, Discrete or alike")
            self._actions = Observations(action, "action")
        except SpaceError as error:
            raise DatasetError(f"{self._path}: {error}") from error
        self.observation_columns, self.action_columns = self._observations.columns, self._actions.columns
        self.discrete_action = not isinstance(action, spaces.Box)
        self.names = (*self._observations.names, *self._actions.names)
        self.partitions = self._ranges(rows_per_partition)

    def _ranges(self, rows: int) -> list[Partition]:
        """As many episodes to a partition as have `rows` rows on average."""
        stat = os.stat(Path(self._path) / "metadata.json")
        many = max(1, round(rows * len(self._chosen) / self.rows))
        partitions: list[Partition] = []
        for first in range(0, len(self._chosen), many):
            chosen = self._chosen[first : first + many]
            partitions.append(
                Partition(
                    self._path,
                    first,
                    first + len(chosen) - 1,
                    len(partitions),
                    stat.st_size,
                    stat.st_mtime_ns,
                    hashlib.sha256(chosen.tobytes()).hexdigest()[:16],
                )
            )
        return partitions

    def read(self, partition: Partition, count: int) -> Iterator[Rows]:
        if partition.file != self._path or partition.last >= len(self._chosen):
            raise DatasetError(f"{partition.file}: the partition is not one of this dataset")
        return _gathered(self._episodes(self._chosen[partition.first : partition.last + 1]), count)

    def _draw(self, count: int, rng: np.random.Generator) -> Iterator[tuple[str, Rows]]:
        everything = count >= self.rows
        parts, read = [], 0
        for rows in self._episodes(self._chosen if everything else rng.permutation(self._chosen)):
            parts.append(rows)
            read += len(rows)
            if read >= 2 * count and not everything:
                break
        rows = Rows.concatenate(parts)
        edges = np.append(np.flatnonzero(rows.starts), len(rows))
        rows = rows[_stretches(edges, np.ones(len(edges) - 1), count, rng)]
        yield self._path, replace(rows, starts=rows.starts | (np.diff(rows.numbers, prepend=-2) != 1))

    def _place(self, file: str, rows: Rows, i: int) -> str:
        return f"{file}, episode {rows.episodes[i]}, step {rows.steps[i]}"

    def _episodes(self, chosen: Integers) -> Iterator[Rows]:
        """The rows of some episodes, episode by episode."""
        number = 0
        with _minari_installed(self._path):
            dataset = _open_minari(Path(self._path))
            for at in range(0, len(chosen), EPISODES):
                some = chosen[at : at + EPISODES]
                notes = dataset.storage.get_episode_metadata(some)
                for note, episode in zip(notes, dataset.iterate_episodes(some), strict=True):
                    rows = self._episode(episode, note, number)
                    if len(rows):
                        yield rows
                    number += len(rows)

    def _episode(self, episode: Any, note: Mapping[str, Any], number: int) -> Rows:
        steps = len(episode.rewards)
        where = f"{self._path}, episode {episode.id}"
        if int(note.get("total_steps", steps)) != steps:
            raise DatasetError(
                f"{where} has {note['total_steps']} steps, of which Minari gives {steps}; store long "
                "episodes in the format hdf5"
            )
        try:
            observations, actions = (
                self._observations.rows(episode.observations),
                self._actions.rows(episode.actions),
            )
        except SpaceError as error:
            raise DatasetError(f"{where}: {error}") from error
        if len(observations) != steps + 1 or len(actions) != steps:
            raise DatasetError(
                f"{where} has {len(observations)} observations and {len(actions)} actions for {steps} "
                f"rewards; expected {steps + 1} and {steps}"
            )
        last = np.arange(steps) == steps - 1
        terminated = np.array(episode.terminations, dtype=np.bool_)
        truncated = np.array(episode.truncations, dtype=np.bool_) | (last & ~terminated)
        if ((terminated | truncated) & ~last).any():
            i = int(np.argmax(terminated | truncated))
            raise DatasetError(f"{where} goes on after step {i}, which is terminated or truncated")
        return Rows(
            observations=observations[:-1],
            actions=actions,
            rewards=np.array(episode.rewards, dtype=np.float64),
            next_observations=observations[1:],
            next_actions=np.concatenate([actions[1:], np.full((1, actions.shape[1]), np.nan)])[:steps],
            terminated=terminated,
            truncated=truncated,
            episodes=np.full(steps, int(episode.id)),
            steps=np.arange(steps),
            starts=np.arange(steps) == 0,
            numbers=np.arange(number, number + steps),
            no_action=last,
        )


def _gathered(parts: Iterable[Rows], count: int) -> Iterator[Rows]:
    """The same rows, `count` at a time."""
    waiting: list[Rows] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= count:
            rows = Rows.concatenate(waiting)
            while len(rows) >= count:
                yield rows[:count]
                rows = rows[count:]
            waiting = [rows] if len(rows) else []
    if waiting:
        yield Rows.concatenate(waiting)


@contextlib.contextmanager
def _minari_installed(path: str) -> Iterator[None]:
    """Minari imports h5py, PyArrow and Pillow when it reads a dataset."""
    try:
        yield
    except ImportError as error:
        raise DatasetError(f"{path} cannot be read: {error}. pip install 'gpsarsa[minari]'") from error
    except OSError as error:
        raise DatasetError(f"{path} is damaged or incomplete: {error}. Download or write it again") from error


def _load_minari(name: str) -> Any:
    minari = needed("minari", "minari")
    with _minari_installed(name):
        try:
            return minari.load_dataset(name)
        except (FileNotFoundError, ValueError, TypeError) as error:
            local = ", ".join(minari.list_local_datasets()) or "none"
            raise DatasetError(
                f"the Minari dataset {name} is not here: {error} Found: {local}. Download it with "
                f"`minari download {name}`, or set MINARI_DATASETS_PATH"
            ) from error


def _open_minari(folder: Path) -> Any:
    minari = needed("minari", "minari")
    with _minari_installed(str(folder)):
        return minari.MinariDataset(str(folder))


def _minari_folder(path: Path) -> Path | None:
    """Where a folder holds a Minari dataset's data; None if it holds none."""
    for folder in (path, path / "data"):
        with contextlib.suppress(OSError, ValueError):
            if "minari_version" in json.loads((folder / "metadata.json").read_text()):
                return folder
    return None


# ── transitions in memory ────────────────────────────────────────────────────────────────────────────


class _Memory(Dataset):
    """Transitions, cut into partitions where a chain starts."""

    action_columns, discrete_action = 0, False

    def __init__(self, transitions: Transitions, rows_per_partition: int) -> None:
        if len(transitions) == 0:
            raise DatasetError("the Transitions hold no rows; expected at least one")
        self._transitions, self.rows = transitions, len(transitions)
        self.observation_columns = transitions.columns
        self.names = tuple(f"input[{i}]" for i in range(transitions.columns))
        starts = transitions.starts
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
        self, partition: Partition, gamma: float, target: _Target | None, count: int
    ) -> Iterator[Block]:
        for begin in range(partition.first, partition.last + 1, count):
            yield self._chosen(np.arange(begin, min(begin + count, partition.last + 1)))

    def _sample(self, count: int, rng: np.random.Generator, gamma: float, target: _Target | None) -> Block:
        starts = np.flatnonzero(self._transitions.starts)
        edges = np.unique(np.concatenate([[0], starts, [self.rows]]))
        return self._chosen(_stretches(edges, np.ones(len(edges) - 1), count, rng))

    def _chosen(self, rows: Integers) -> Block:
        part = self._transitions[rows]
        starts = part.starts.copy()
        first = starts.copy() if self.has_episodes else np.zeros(len(rows), dtype=np.bool_)
        starts[1:] |= np.diff(rows) != 1
        part = Transitions._trusted(*part._arrays[:4], starts)
        return Block(part, first, self._episodes[rows], int(rows[0]), 0)


def _cuts(starts: Integers, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """From row 0 to the end, cut at the first start after every `size` rows."""
    begin = 0
    while begin < rows:
        later = int(np.searchsorted(starts, begin + size))
        end = int(starts[later]) if later < len(starts) else rows
        yield begin, end
        begin = end
