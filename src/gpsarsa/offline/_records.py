"""What passes between the readers of logs and those who use them: partitions, rows, blocks, and refusals."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa._validation import Array
from gpsarsa.transitions import Transitions

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


class DatasetError(ValueError):
    """Logs that cannot be used: the file, the column, the row (from 0) and what would help."""


def needed(module: str, extra: str) -> Any:
    """A module that one of the package's extras installs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DatasetError(f"{module} is not installed: pip install 'gpsarsa[{extra}]'") from error


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
        chosen: dict[str, Any] = {}
        for field in fields(self):
            array = getattr(self, field.name)
            chosen[field.name] = None if array is None else array[rows]
        return type(self)(**chosen)

    @property
    def jumps(self) -> Flags:
        """Rows that do not stand right after the row before in their file."""
        return np.diff(self.numbers, prepend=-2) != 1

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {}
        for field in fields(cls):
            arrays = [getattr(part, field.name) for part in parts]
            if any(array is not None for array in arrays):
                joined[field.name] = np.concatenate(
                    [
                        np.zeros(len(part), dtype=np.bool_) if array is None else array
                        for part, array in zip(parts, arrays, strict=True)
                    ]
                )
        return cls(**joined)


@dataclass(frozen=True, eq=False)
class Block:
    """Some transitions of a partition, possibly none."""

    transitions: Transitions
    """Inputs are the observation's columns, then the action's."""
    first: Flags
    """Rows that begin an episode; none where episodes are not known."""
    episodes: Integers
    """A number for each row's episode, its own in the file; -1 where episodes are not known."""
    numbers: Integers
    """The rows' numbers in their file, of Minari in their partition."""
    left_out: int
    """Rows read for this block that were truncated and have no next action."""
    file: int = 0
    """The number of its file among those of the dataset."""
    target_first: Array | None = None
    """The inputs of the `first` rows with the target policy's action in place of the logged one."""

    @classmethod
    def concatenate(cls, blocks: Sequence[Self]) -> Self:
        """The blocks of a sample as one."""
        if len(blocks) == 1:
            return blocks[0]
        first = [block.target_first for block in blocks if block.target_first is not None]
        return cls(
            Transitions.concatenate(block.transitions for block in blocks),
            np.concatenate([block.first for block in blocks]),
            np.concatenate([block.episodes for block in blocks]),
            np.concatenate([block.numbers for block in blocks]),
            sum(block.left_out for block in blocks),
            blocks[0].file,
            np.concatenate(first) if first else None,
        )
