"""Gymnasium's spaces as descriptions in JSON, and the values of a described space as rows of numbers.

A description is a leaf (Box, Discrete, MultiDiscrete, MultiBinary) or a branch (Dict, Tuple) of others; equal
spaces have equal ones, and what is described needs no environment to be understood again.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from gymnasium import Space, spaces

from gpsarsa._validation import Array

__all__ = ["NUMBERS", "Config", "Described", "Leaf", "SpaceError", "description", "part_of", "short"]

Config = dict[str, Any]

UNBOUNDED = 1e30  # bounds beyond are none: float32 cannot say infinity better than 3.4e38
EXACT = 2.0**53  # whole numbers below are exact in float64
ROUNDING = 1e-6  # how far outside of its bounds, relative to them, an action in float32 may lie

NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_KINDS = (*NUMBERS, spaces.Dict, spaces.Tuple)


class SpaceError(ValueError):
    """A space that cannot be made into rows, or a value that does not belong to it."""


def description(space: Any, where: str) -> Config:
    """All that matters of a space, in JSON."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _branch(space, where)
    if isinstance(space, spaces.Box):
        low = np.where(space.bounded_below, space.low, -np.inf)
        high = np.where(space.bounded_above, space.high, np.inf)
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        low = np.asarray(space.start, dtype=np.float64)
        high = low + (np.asarray(counts, dtype=np.float64) - 1.0)
        if max(np.abs(low).max(initial=0.0), np.abs(high).max(initial=0.0)) >= EXACT:
            raise SpaceError(
                f"{where} is a {short(space)}; expected whole numbers that a double holds, ±2**53"
            )
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(space.shape), np.ones(space.shape)
    else:
        raise _unknown(space, where)
    assert space.shape is not None
    assert space.dtype is not None
    return {
        "kind": _kind(space),
        "shape": [int(length) for length in space.shape],
        "dtype": space.dtype.name,
        "low": _packed(low),
        "high": _packed(high),
    }


def _branch(space: spaces.Dict | spaces.Tuple[Any], where: str) -> Config:
    items: list[tuple[Any, Any]]
    items = list(space.spaces.items()) if isinstance(space, spaces.Dict) else list(enumerate(space.spaces))
    if not items:
        raise SpaceError(f"{where} is an empty {_kind(space)}; expected at least one space inside")
    for key, _ in items:
        if not isinstance(key, str | int):
            raise SpaceError(f"{where} has the key {key!r}; expected text or whole numbers as keys")
    parts = [[key, description(part, _inside(where, key))] for key, part in items]
    return {"kind": _kind(space), "parts": parts}


def _kind(space: Any) -> str:
    """The name of the space's class in Gymnasium, also for a subclass of it."""
    return next(kind.__name__ for kind in _KINDS if isinstance(space, kind))


def _unknown(space: Any, where: str) -> SpaceError:
    if not isinstance(space, Space):
        return SpaceError(f"{where} space = {short(space)}; expected a space of gymnasium.spaces")
    return SpaceError(
        f"{where} is a {short(space)}; expected Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple "
        "of these. Wrap the environment so that it gives numbers: gymnasium.wrappers.TransformObservation, "
        "FilterObservation or FlattenObservation"
    )


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _inside(where: str, key: str | int) -> str:
    """Where a part of a Dict or Tuple sits, as one would write it."""
    return f"{where}[{json.dumps(key, ensure_ascii=False)}]"


def _packed(bounds: Any) -> Any:
    """Bounds in JSON: null for none, one number where all are the same."""
    flat = np.asarray(bounds, dtype=np.float64).ravel().tolist()
    values = [value if abs(value) <= UNBOUNDED else None for value in flat]
    return values[0] if values and all(value == values[0] for value in values) else values


def _unpacked(values: Any, size: int, none: float) -> Array:
    """The inverse of `_packed`."""
    if not isinstance(values, list):
        values = [values] * size
    return np.array([none if value is None else value for value in values], dtype=np.float64)


# ── descriptions as parts that take values ───────────────────────────────────────────────────────────


class Leaf:
    """A space of numbers in one array: Box, Discrete, MultiDiscrete or MultiBinary."""

    def __init__(self, config: Config, where: str, name: str, *, strict: bool = False):
        self.where = where
        self.category = config["kind"] == "Discrete"
        self.whole = config["kind"] != "Box"
        self.strict = strict or self.category  # values must lie within the bounds
        self.shape = tuple(config["shape"])
        self.columns = math.prod(self.shape)
        self.dtype = np.dtype(config["dtype"])
        self.low = _unpacked(config["low"], self.columns, -np.inf)
        self.high = _unpacked(config["high"], self.columns, np.inf)
        self.names = _indexed(name, self.shape)
        slack = 0.0 if self.whole else ROUNDING * np.maximum(np.abs(self.low), np.abs(self.high))
        self._least, self._most = self.low - slack, self.high + slack

    def leaves(self) -> Iterator[Leaf]:
        yield self

    def take(self, value: Any, lead: tuple[int, ...]) -> Array:
        """The value as fresh rows of shape (*lead, columns)."""
        raw = self._array(value)
        if raw.shape != (*lead, *self.shape):
            raise SpaceError(f"{self.where} has shape {raw.shape}; expected {(*lead, *self.shape)}")
        flat = np.array(raw, dtype=np.float64, order="C").reshape(-1)
        finite = np.isfinite(flat)
        if np.count_nonzero(finite) != flat.size:  # faster than finite.all()
            raise self._refusal(flat, finite, "a finite number", lead)
        if self.strict:
            self._check_bounds(flat, lead)
        return flat.reshape(*lead, self.columns) if lead else flat

    def batch(self, value: Any) -> int | None:
        """How many values the batch holds; None for a single one."""
        shape = self._array(value).shape
        if shape == self.shape:
            return None
        if shape and shape[1:] == self.shape:
            return int(shape[0])
        many = "(" + ", ".join(["n", *map(str, self.shape)]) + ("," if not self.shape else "") + ")"
        raise SpaceError(f"{self.where} has shape {shape}; expected {self.shape}, or {many} for a batch")

    def _check_bounds(self, flat: Array, lead: tuple[int, ...]) -> None:
        """Refuse what lies outside by more than rounding, or is not whole where it must be."""
        rows = flat.reshape(*lead, self.columns) if lead else flat
        good = (rows >= self._least) & (rows <= self._most)
        if self.whole:
            good &= rows == np.rint(rows)
        if np.count_nonzero(good) != good.size:
            raise self._refusal(flat, good.ravel(), "", lead)

    def _array(self, value: Any) -> np.ndarray[Any, Any]:
        try:
            raw = np.asarray(value)
        except ValueError as error:
            raise SpaceError(f"{self.where} is not a rectangular array: {error}") from None
        if raw.dtype.kind not in "fiub":
            raise SpaceError(f"{self.where} = {short(value)}; expected real numbers of shape {self.shape}")
        return raw

    def _refusal(self, flat: Array, good: Any, expected: str, lead: tuple[int, ...]) -> SpaceError:
        """The first value that is not good, by name, and what was expected: its bounds unless said."""
        row, column = divmod(int(np.argmin(good)), self.columns)
        if not expected:
            kind = "whole number" if self.whole else "number"
            expected = f"a {kind} from {_text(self.low[column])} to {_text(self.high[column])}"
        value = _text(flat[row * self.columns + column])
        place = f" in row {row}" if lead else ""
        return SpaceError(f"{self.names[column]} = {value}{place}; expected {expected}")


class _Branch:
    """A Dict or Tuple: its parts' columns side by side."""

    def __init__(self, config: Config, where: str, name: str):
        self.where = where
        self.named = config["kind"] == "Dict"
        self.keys: list[str | int] = [key for key, _ in config["parts"]]
        self.parts = [
            part_of(part, _inside(where, key), self._name(name, key)) for key, part in config["parts"]
        ]

    def leaves(self) -> Iterator[Leaf]:
        return itertools.chain.from_iterable(part.leaves() for part in self.parts)

    def take(self, value: Any, lead: tuple[int, ...]) -> Array:
        """The value as fresh rows of shape (*lead, columns)."""
        values = self._values(value)
        return np.concatenate(
            [part.take(v, lead) for part, v in zip(self.parts, values, strict=True)], axis=-1
        )

    def batch(self, value: Any) -> int | None:
        """How many values the batch holds; None for a single one."""
        sizes = [part.batch(v) for part, v in zip(self.parts, self._values(value), strict=True)]
        for part, size in zip(self.parts, sizes, strict=True):
            if size != sizes[0]:
                first = f"{self.parts[0].where} is {_amount(sizes[0])}"
                raise SpaceError(f"{first}, {part.where} {_amount(size)}; expected as many of each")
        return sizes[0]

    def _name(self, name: str, key: str | int) -> str:
        if not self.named:
            return f"{name}[{key}]"
        return f"{name}.{key}" if name else str(key)

    def _values(self, value: Any) -> list[Any]:
        if self.named:
            if not isinstance(value, Mapping):
                raise SpaceError(f"{self.where} = {short(value)}; expected a dict with the keys {self.keys}")
            if value.keys() != set(self.keys):
                raise SpaceError(f"{self.where} has the keys {list(value)}; expected {self.keys}")
            return [value[key] for key in self.keys]
        if not isinstance(value, tuple | list):
            raise SpaceError(f"{self.where} = {short(value)}; expected a tuple of {len(self.keys)}")
        if len(value) != len(self.keys):
            raise SpaceError(f"{self.where} has {len(value)} parts; expected a tuple of {len(self.keys)}")
        return list(value)


def part_of(config: Config, where: str, name: str) -> Leaf | _Branch:
    return (_Branch if "parts" in config else Leaf)(config, where, name)


def _indexed(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """'name' for a scalar, else 'name[0]', 'name[0, 1]' and so on."""
    if not shape:
        return (name,)
    return tuple(f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape))


def _amount(size: int | None) -> str:
    return "a single one" if size is None else f"a batch of {size}"


def _text(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(float(value))


class Described:
    """A space that can be put into JSON and made again from it."""

    _config: Config

    def _build(self, config: Config) -> None:
        raise NotImplementedError

    def describe(self) -> Config:
        """The space in JSON; equal for equal spaces only."""
        return copy.deepcopy(self._config)

    @classmethod
    def described(cls, config: Config) -> Self:
        """The inverse of `describe`."""
        self = cls.__new__(cls)
        self._build(copy.deepcopy(config))
        return self
