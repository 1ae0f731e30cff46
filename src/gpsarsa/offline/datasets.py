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
import fnmatch
import glob
import os
from pathlib import Path
from typing import Any

from gpsarsa import _validation as check
from gpsarsa.offline import _minari
from gpsarsa.offline._blocks import Dataset, Logs
from gpsarsa.offline._memory import Memory
from gpsarsa.offline._parquet import Table
from gpsarsa.offline._records import Block, DatasetError, Partition, Rows, needed
from gpsarsa.transitions import Transitions

__all__ = ["Block", "Dataset", "DatasetError", "Logs", "Partition", "Rows", "needed", "open_dataset"]

PREFIX = "minari:"


def open_dataset(source: Any, *, rows_per_partition: int = 200_000) -> Dataset:
    """Logs as a Dataset; only their metadata is read and checked here.

    Parameters
    ----------
    source : path, list of paths, str, Minari dataset, Transitions or Dataset
        A Parquet file, a folder (every *.parquet in it, at any depth), a pattern such as "logs/*.parquet",
        or a list of these; "minari:<id>" for a local Minari dataset. Transitions keep their own discounts,
        whatever γ is asked for; their inputs count as observations, to which no policy can be asked. A
        Dataset stays as it is.
    rows_per_partition : int
        About how many rows a partition has; a row group is never divided.
    """
    size = check.at_least_one(rows_per_partition, "rows_per_partition")
    if isinstance(source, Dataset):
        return source
    if isinstance(source, Transitions):
        return Memory(source, size)
    if hasattr(source, "iterate_episodes") and hasattr(source, "storage"):
        return _minari.Minari(source, size)
    if isinstance(source, str) and source.startswith(PREFIX):
        return _minari.Minari(_minari.load(source.removeprefix(PREFIX)), size)
    if isinstance(source, str | os.PathLike) and (folder := _minari.data_folder(Path(source))) is not None:
        return _minari.Minari(_minari.open_folder(folder), size)
    return Table(_found(source), size)


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
    files = [file for path in source for file in _found_one(Path(os.path.expanduser(path)))]
    return list({os.path.realpath(file): file for file in files}.values())


def _found_one(path: Path) -> list[Path]:
    if path.is_dir():
        if (whole := path.resolve()) == whole.parent:
            raise DatasetError(f"{path} is the whole disk; name the folder that holds the tables")
        found = _below(path)
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
    near = []
    with contextlib.suppress(OSError):
        near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1)
    raise DatasetError(f"{path} does not exist{f'; did you mean {near[0]}?' if near else ''}")


def _below(folder: Path) -> list[Path]:
    """All tables in a folder, but those that other programs are still writing: hidden, by custom."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        tables = fnmatch.filter(files, "*.parquet")
        found += [Path(place) / name for name in tables if not name.startswith((".", "_"))]
    return found
