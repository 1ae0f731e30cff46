"""Checks at the public boundary: each names the argument, the value and what is expected."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

__all__ = [
    "Array",
    "at_least_one",
    "count",
    "discount",
    "flag",
    "flags",
    "fraction",
    "generator",
    "is_whole",
    "listed",
    "mapping",
    "noise_variance",
    "number",
    "one_of",
    "path",
    "positive",
    "raw_array",
    "rows",
    "vector",
]


def _real(value: Any, name: str) -> Array:
    """A float64 array as the compiled loops take it, borrowed if it is one already, else a copy.

    Refuses text, objects, complex numbers and ragged lists.
    """
    raw = raw_array(value, name)
    if raw.dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {raw.dtype}; expected real numbers")
    with np.errstate(over="ignore"):  # infinity is found later
        return np.require(raw, np.float64, ["C", "ALIGNED", "WRITEABLE", "ENSUREARRAY"])


def raw_array(value: Any, name: str) -> NDArray[Any]:
    """An array of whatever type; ragged lists, and objects that promise to be arrays, are refused."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{name} is not a rectangular array: {error}") from None


def _first_bad(array: Array) -> int | None:
    """Index of the first row that holds NaN or infinity; None where there is none."""
    finite = np.isfinite(array)
    if finite.all():
        return None
    return int(np.argmin(finite if array.ndim == 1 else finite.all(axis=1)))


def rows(value: Any, name: str, columns: int | None = None, *, finite: bool = True) -> Array:
    """A (rows, columns) array of finite numbers."""
    array = _real(value, name)
    if array.ndim != 2:
        expected = "(rows, columns)" if columns is None else f"(rows, {columns})"
        raise ValueError(f"{name} has shape {array.shape}; expected {expected}{_hint(array, columns)}")
    if columns is not None and array.shape[1] != columns:
        raise ValueError(f"{name} has {array.shape[1]} columns; expected {columns}")
    if array.shape[1] == 0:
        raise ValueError(f"{name} has no columns; an input needs at least one")
    if finite and (row := _first_bad(array)) is not None:
        raise ValueError(f"{name}[{row}] = {array[row]}; expected finite numbers")
    return array


def _hint(array: Array, columns: int | None) -> str:
    """How a flat array could become rows."""
    if array.ndim != 1:
        return ""
    if len(array) == 0:
        return f"; no rows at all are np.empty((0, {columns or 'columns'}))"
    single_row, single_column = f"(1, {len(array)})", f"({len(array)}, 1)"
    if columns == len(array):
        return f"; a single row is reshape{single_row}"
    if columns == 1:
        return f"; a single column is reshape{single_column}"
    return f"; a single row is reshape{single_row}, a single column reshape{single_column}"


def vector(value: Any, name: str, length: int | None = None) -> Array:
    """A (length,) array of finite numbers."""
    array = _real(value, name)
    if array.ndim != 1 or (length is not None and len(array) != length):
        expected = "(n,)" if length is None else f"({length},)"
        raise ValueError(f"{name} has shape {array.shape}; expected {expected}")
    if (row := _first_bad(array)) is not None:
        raise ValueError(f"{name}[{row}] = {array[row]}; expected a finite number")
    return array


def flags(value: Any, name: str, length: int) -> NDArray[np.bool_]:
    """A (length,) array of booleans; 0 and 1 are taken for them."""
    raw = raw_array(value, name)
    if raw.shape != (length,):
        raise ValueError(f"{name} has shape {raw.shape}; expected ({length},)")
    if length == 0:
        return np.zeros(0, dtype=np.bool_)
    if raw.dtype.kind not in "biu" or not np.isin(raw, (0, 1)).all():
        raise TypeError(f"{name} has dtype {raw.dtype}; expected booleans")
    return raw.astype(np.bool_)


def flag(value: Any, name: str) -> bool:
    """True or False; 0 and 1 are taken for them."""
    if isinstance(value, bool | np.bool_ | int | np.integer) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} = {value!r}; expected True or False")


def number(value: Any, name: str) -> float:
    """One finite real number."""
    if not isinstance(value, float | int):
        raw = raw_array(value, name)
        if raw.ndim != 0 or raw.dtype.kind not in ("O" if raw is not value else "") + "fiub":
            raise TypeError(f"{name} = {value!r}; expected one real number")
    try:
        with np.errstate(over="ignore"):
            result = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} = {value!r}; expected one real number") from None
    except OverflowError:
        raise ValueError(f"{name} = {value!r} does not fit a double") from None
    if not np.isfinite(result):
        raise ValueError(f"{name} = {result}; expected a finite number")
    return result


def discount(value: Any, name: str) -> float:
    """One number in [0, 1]; a flag is refused, since it may well say the opposite."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} = {value}; expected a number, 0 where the episode terminated")
    return fraction(value, name)


def positive(value: Any, name: str) -> float:
    """One finite number above zero."""
    result = number(value, name)
    if result <= 0:
        raise ValueError(f"{name} = {result}; expected a number above 0")
    return result


def noise_variance(value: Any) -> float:
    """σ² > 0 with a finite inverse."""
    found = positive(value, "noise_variance")
    if not np.isfinite(1.0 / found):
        raise ValueError(f"noise_variance = {found} is too small: its inverse overflows")
    return found


def fraction(value: Any, name: str) -> float:
    """One number in [0, 1]."""
    result = number(value, name)
    if not 0 <= result <= 1:
        raise ValueError(f"{name} = {result}; expected a number in [0, 1]")
    return result


def count(value: Any, name: str) -> int:
    """One whole number, zero or more."""
    if not is_whole(value):
        raise TypeError(f"{name} = {value!r}; expected a whole number")
    if value < 0:
        raise ValueError(f"{name} = {value}; expected 0 or more")
    return int(value)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; flags are none, and to NumPy durations are."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def at_least_one(value: Any, name: str) -> int:
    """One whole number, 1 or more."""
    if count(value, name) == 0:
        raise ValueError(f"{name} = 0; expected 1 or more")
    return int(value)


def one_of(value: Any, name: str, options: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in options:
        expected = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name} = {value!r}; expected one of {expected}")
    return str(value)


def listed(value: Any, name: str, expected: str) -> list[Any]:
    """The entries of anything that has some."""
    try:
        return list(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r}; expected {expected}") from None


def mapping(value: Any, name: str) -> dict[Any, Any]:
    """A dict, or what can stand for one."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} = {value!r}; expected a dict")
    return dict(value)


def path(value: Any, name: str) -> Path:
    """Where a file or a folder is."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} = {value!r}; expected a path")
    try:
        nameable = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        nameable = False
    if not nameable:
        raise ValueError(f"{name} = {value!r}; no file can have that name")
    return Path(value)


def generator(seed: Any, name: str = "seed") -> np.random.Generator:
    """The generator itself, or a new one from a seed; None takes one from the system."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        expected = "a whole number, 0 or more, a Generator or None"
        raise kind(f"{name} = {seed!r}; expected {expected} ({error})") from None
