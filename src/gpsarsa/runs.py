"""The folder of a run: what it holds, reading it and writing it safely.

    agent.safetensors            the agent; agent.previous.safetensors is the checkpoint before
    config.json                  environment, seed, steps, discount, settings, versions
    progress.csv                 one line per finished episode
    summary.json                 how far the run came and how the agent did in the end
    report.html                  the pictures

A run may be killed at any moment. Whole files are therefore replaced and never rewritten in place,
and `progress.csv`, which grows line by line, may end in half a line that readers leave out.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._progress import say
from gpsarsa.checkpoint import atomic

if sys.platform != "win32":
    import fcntl

__all__ = ["COLUMNS", "ROLES", "Log", "Run", "RunError", "read", "read_all"]
__all__ += [
    "locked",
    "read_config",
    "read_json",
    "read_progress",
    "read_summary",
    "versions",
    "write_json",
    "write_text",
]

CONFIG = "config.json"
SUMMARY = "summary.json"
PROGRESS = "progress.csv"
LOCK = ".lock"
EVALUATION = "evaluation"  # the `kind` in an evaluation's config.json
SOFTWARE = ("gpsarsa", "numpy", "scipy", "numba", "gymnasium")

COLUMNS = (
    "step", "episode", "return", "length", "terminated", "role", "predicted", "predicted_std", "discounted",
    "pseudo_inputs", "log_evidence", "noise_variance", "seconds",
)  # fmt: skip
COUNTS = ("step", "episode", "length", "terminated", "pseudo_inputs")
MAY_BE_EMPTY = ("predicted", "predicted_std", "log_evidence", "noise_variance")
ROLES = ("explore", "trial", "incumbent", "random")

PathLike = str | os.PathLike[str]


class RunError(Exception):
    """A run that cannot be read or reported: names the file, what is wrong with it, and the cure."""


@dataclass(frozen=True)
class Run:
    """What a run's folder says; `progress` has an array per column, with nan where a number is missing."""

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any] | None
    progress: dict[str, NDArray[Any]]


# -- reading --------------------------------------------------------------------------------------


def read(folder: PathLike) -> Run:
    """The run in a folder; one that is still going on, or was killed, is read as far as it came."""
    folder = _reachable(check.path(folder, "folder"))
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise RunError(f"{folder} {what}; give the folder that a training run wrote")
    if not (folder / CONFIG).exists():
        raise RunError(f"{folder} is not a run's folder: it holds no {CONFIG}")
    config, summary = read_config(folder), read_summary(folder)
    return Run(folder, config, summary, read_progress(folder))


def read_all(folders: PathLike | Sequence[PathLike]) -> list[Run]:
    """The runs in some folders, each a run's own or one whose sub-folders are runs, sorted and each once."""
    given = paths(folders, "folders")
    if not given:
        raise RunError("no folder was given; give the folder of a run, or one that holds several")
    found = {os.path.realpath(path): path for folder in given for path in _run_folders(folder)}
    return [read(path) for path in sorted(found.values(), key=_natural)]


def paths(value: Any, name: str) -> list[Path]:
    """A path or several, as a list."""
    single = isinstance(value, str | os.PathLike)
    several = [value] if single else check.listed(value, name, "a path or a list of paths")
    return [check.path(one, name) for one in several]


def _run_folders(folder: Path) -> list[Path]:
    """The folder itself, or those of its sub-folders that are runs."""
    _reachable(folder)
    if not folder.is_dir() or (folder / CONFIG).exists():
        return [folder]
    try:
        inside = [path for path in folder.iterdir() if (path / CONFIG).exists()]
    except OSError as error:
        raise RunError(f"{folder} cannot be read: {error.strerror}") from None
    if not inside:
        raise RunError(f"{folder} is not a run's folder: neither it nor a folder in it holds a {CONFIG}")
    return inside


def _reachable(folder: Path) -> Path:
    """The folder, of which can be said whether it is there."""
    try:
        (folder / CONFIG).exists()
    except OSError as error:
        raise RunError(f"{folder} cannot be read: {error.strerror}") from None
    return folder


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A sort key that puts seed-2 before seed-10."""
    words = re.findall(r"\d+|\D+", str(path))
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None


# -- one process at a time ------------------------------------------------------------------------


@contextlib.contextmanager
def locked(folder: Path, does: str) -> Iterator[None]:
    """Make the folder, and keep other processes from working in it; `does` says at what."""
    folder = check.path(folder, "folder")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "a") as file:
        if sys.platform != "win32":
            _lock(file, folder, does)
        yield


def _lock(file: IO[str], folder: Path, does: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            say(f"{file.name} cannot be locked ({error.strerror}): do not use {folder} twice at a time")
            return
        raise RunError(
            f"another process {does} in {folder} and holds {file.name}; wait for it, or choose another --out"
        ) from None


# -- JSON -----------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_count(value: Any) -> bool:
    return is_number(value) and isinstance(value, int) and value >= 0


def is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


Shape = tuple[str, Callable[[Any], bool], str]  # a dotted key, what its value satisfies, in words

_CONFIG: tuple[Shape, ...] = (
    ("environment", lambda value: isinstance(value, dict), "an object"),
    ("environment.id", lambda value: isinstance(value, str), "a string"),
    ("environment.arguments", lambda value: isinstance(value, dict), "an object"),
    ("seed", lambda value: isinstance(value, int), "a whole number"),
    ("steps", is_count, "a whole number"),
    ("gamma", lambda value: is_number(value) and 0 <= value <= 1, "a number in [0, 1]"),
    ("agent", lambda value: isinstance(value, dict), "an object"),
    ("versions", lambda value: isinstance(value, dict), "an object"),
)
_SUMMARY: tuple[Shape, ...] = (
    ("steps", is_count, "a whole number"),
    ("episodes", is_count, "a whole number"),
    ("finished", lambda value: isinstance(value, bool), "true or false"),
    ("seconds", is_number, "a number"),
    ("evaluation", lambda value: value is None or isinstance(value, dict), "an object or null"),
    ("evaluation.episodes", is_count, "a whole number"),
    ("evaluation.mean", is_number, "a number"),
    ("evaluation.standard_error", is_number_or_none, "a number or null"),
    ("evaluation.threshold", is_number_or_none, "a number or null"),
)


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json says."""
    folder = check.path(folder, "folder")
    if read_json(folder / CONFIG).get("kind") == EVALUATION:
        raise RunError(
            f"{folder} holds an evaluation, not a training run; its report is {folder}/report.html"
        )
    return read_json(folder / CONFIG, _CONFIG)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """What summary.json says; None where there is none yet."""
    path = check.path(folder, "folder") / SUMMARY
    return read_json(path, _SUMMARY) if path.exists() else None


def read_json(path: Path, shapes: Sequence[Shape] = ()) -> dict[str, Any]:
    """A JSON object with the keys it needs."""
    path = check.path(path, "path")
    try:
        document = json.loads(_read_bytes(path).decode())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: it is no JSON ({error}); restore it or run again") from None
    if not isinstance(document, dict):
        raise RunError(f"{path} is damaged: it holds no JSON object; restore it or run again")
    for key, holds, expected in shapes:
        parent, _, name = key.rpartition(".")
        owner = document[parent] if parent else document
        if owner is None:  # an optional object that is not there
            continue
        if name not in owner or not holds(owner[name]):
            value = repr(owner[name]) if name in owner else "missing"
            raise RunError(f"{path} is damaged: {key} is {value}, expected {expected}; run again")
    return document


# -- progress.csv ---------------------------------------------------------------------------------

Row = dict[str, float | str]


def read_progress(folder: Path) -> dict[str, NDArray[Any]]:
    """What progress.csv says, an array per column; without rows where no episode has ended yet."""
    path = check.path(folder, "folder") / PROGRESS
    return _arrays(_read_progress(path) if path.exists() else [])


def _read_progress(path: Path) -> list[Row]:
    """The episodes of a progress file; what follows its last line end is left out."""
    rows = []
    for number, line in enumerate(_lines(path), start=2):
        try:
            rows.append(_parse(line))
        except ValueError as error:
            cure = "remove the line, or resume the run from its checkpoint"
            raise RunError(f"{path}, line {number}: {error}; {cure}") from None
    return rows


def _lines(path: Path) -> list[bytes]:
    """The finished lines below the header."""
    header, *lines = _read_bytes(path).split(b"\n")
    if header.rstrip(b"\r") != ",".join(COLUMNS).encode():
        shown = header[:60].decode(errors="replace")
        raise RunError(
            f"{path} has the header {shown!r}; expected {','.join(COLUMNS)!r}. "
            "It is damaged or of another release: move it away"
        )
    return lines[:-1]


def _parse(line: bytes) -> Row:
    """One line as a row; ValueError says what is wrong with it."""
    try:
        words = line.decode("ascii").rstrip("\r").split(",")
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    if len(words) != len(COLUMNS):
        raise ValueError(f"it has {len(words)} values, expected {len(COLUMNS)}")
    return {name: _value(name, word) for name, word in zip(COLUMNS, words, strict=True)}


def _value(name: str, word: str) -> float | str:
    if name == "role":
        return check.one_of(word, name, ROLES)
    if word == "" and name in MAY_BE_EMPTY:
        return math.nan
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (name in COUNTS and (value < 0 or value != int(value))):
        raise ValueError(f"{name} = {word!r}; expected a {'whole ' if name in COUNTS else ''}number")
    return value


def _arrays(rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
    return {
        name: np.array([row[name] for row in rows], dtype=np.str_ if name == "role" else np.float64)
        for name in COLUMNS
    }


def _text(row: Mapping[str, Any]) -> bytes:
    """A row as a line of the file, every number in full."""
    row = check.mapping(row, "row")
    unknown = [name for name in row if name not in COLUMNS]
    if unknown:
        raise ValueError(f"row has the key {unknown[0]!r}; expected only {', '.join(COLUMNS)}")
    return (",".join(_word(name, row.get(name)) for name in COLUMNS) + "\n").encode("ascii")


def _word(name: str, value: Any) -> str:
    if name == "role":
        return check.one_of(value, "role", ROLES)
    if value is None and name not in MAY_BE_EMPTY:
        raise ValueError(f"row has no {name!r}; expected a number")
    if name in MAY_BE_EMPTY and (value is None or (isinstance(value, float) and not math.isfinite(value))):
        return ""
    number = check.number(value, name)
    if name not in COUNTS:
        return repr(number)
    if number < 0 or number != int(number):
        raise ValueError(f"{name} = {value!r}; expected a whole number, 0 or more")
    return str(int(number))


class Log:
    """The writer of progress.csv.

    Parameters
    ----------
    path : path
        The file; it is replaced at once, by its header and the episodes to keep.
    keep : int
        How many episodes of an existing file to keep: as many as the checkpoint that the run goes on
        from had seen, 0 to start afresh. Where the file has fewer, a warning says so.
    """

    def __init__(self, path: PathLike, *, keep: int) -> None:
        self._path = check.path(path, "path")
        kept = self._kept(check.count(keep, "keep"))
        with atomic(self._path) as file:
            file.write(b"".join([",".join(COLUMNS).encode() + b"\n", *kept]))
        if len(kept) < keep:
            warnings.warn(
                f"{self._path} holds {len(kept)} good lines, fewer than the {keep} episodes of the "
                "checkpoint; the report will lack the others",
                stacklevel=2,
            )
        self._file = open(self._path, "ab")  # noqa: SIM115 - `close` closes it

    def _kept(self, keep: int) -> list[bytes]:
        """The first lines of an existing file, up to the first bad one."""
        kept: list[bytes] = []
        if keep == 0 or not self._path.exists():
            return kept
        for line in _lines(self._path)[:keep]:
            try:
                _parse(line)
            except ValueError:
                break
            kept.append(line.rstrip(b"\r") + b"\n")
        return kept

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one episode's line and hand it to the system, so a killed process does not lose it."""
        self._file.write(_text(row))
        self._file.flush()

    def sync(self) -> None:
        """Put all lines on the disk; called before a checkpoint that counts them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# -- writing --------------------------------------------------------------------------------------


def write_text(path: PathLike, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"text is a {type(text).__name__}; expected a string")
    data = text.encode()
    with atomic(path) as file:
        file.write(data)


def write_json(path: PathLike, value: Any) -> None:
    """Write a JSON document atomically; NumPy's numbers and arrays count as Python's."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"value is nothing that JSON can hold: {error}") from None
    write_text(path, text + "\n")


def versions() -> dict[str, str]:
    """Of Python and of what results depend on."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in SOFTWARE}}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray) and value.dtype != np.longdouble:
        return value.tolist()
    raise TypeError(f"{value!r} has type {type(value).__name__}, which JSON cannot hold")
