"""Gymnasium's spaces as rows of numbers, and back.

An estimator sees every observation and every action as a row of float64 in the environment's own
units. `Observations` and `Actions` hold that translation for one space each: what the columns are
called, which of them hold unordered categories, and between which bounds they lie. `Actions` also
finds the action of the highest score. `Scaling` is how wide the values of each column turned out to
be, the unit in which lengthscales are measured.

Each of the three describes itself in JSON and is made again from its description, so that an agent
can be loaded where its environment is not installed.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from gymnasium import Space, spaces

from gpsarsa import _validation as check
from gpsarsa._validation import Array

Config = dict[str, Any]
Score = Callable[[Array], Array]  # rows (C, columns) to numbers (C,)
Slope = Callable[[Array], Array]  # rows (C, columns) to ∂score/∂row (C, columns)

UNBOUNDED = 1e30  # bounds beyond are none: float32 cannot say infinity better than 3.4e38
EXACT = 2.0**53  # whole numbers below are exact in float64
ROUNDING = 1e-6  # how far outside of its bounds, relative to them, an action in float32 may lie

LIMIT = 1024  # as many discrete actions are all tried
DRAWS = 64  # random actions from which the search among more of them begins
GRID = 17  # points along a Box of one column
SPREAD = 32  # points in a Box of several columns
CORNERS = 16  # corners are among the points if there are at most so many
CLIMBS = 3  # points from which the slope is followed
APART = 0.1  # two of them differ by that much of the width
ROUNDS = 20
FIRST_STEP, LONGEST_STEP, SHORTEST_STEP = 0.1, 0.25, 1e-6  # of the width
FLAT = 1e-300  # slopes below are none; one over them overflows
DIFFERENCE = 1e-4  # of the width, for central differences

_NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_KINDS = (*_NUMBERS, spaces.Dict, spaces.Tuple)

__all__ = ["Actions", "Observations", "Scaling", "SpaceError"]


class SpaceError(ValueError):
    """A space that cannot be made into rows, or a value that does not belong to it."""


# ── spaces as descriptions ───────────────────────────────────────────────────────────────────────────


def _description(space: Any, where: str) -> Config:
    """All that matters of a space, in JSON."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _branch_description(space, where)
    if isinstance(space, spaces.Box):
        low = np.where(space.bounded_below, space.low, -np.inf)
        high = np.where(space.bounded_above, space.high, np.inf)
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        low = np.asarray(space.start, dtype=np.float64)
        high = low + (np.asarray(counts, dtype=np.float64) - 1.0)
        if max(np.abs(low).max(initial=0.0), np.abs(high).max(initial=0.0)) >= EXACT:
            raise SpaceError(
                f"{where} is a {_short(space)}; expected whole numbers that a double holds, ±2**53"
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


def _branch_description(space: spaces.Dict | spaces.Tuple[Any], where: str) -> Config:
    items: list[tuple[Any, Any]]
    items = list(space.spaces.items()) if isinstance(space, spaces.Dict) else list(enumerate(space.spaces))
    if not items:
        raise SpaceError(f"{where} is an empty {_kind(space)}; expected at least one space inside")
    for key, _ in items:
        if not isinstance(key, str | int):
            raise SpaceError(f"{where} has the key {key!r}; expected text or whole numbers as keys")
    parts = [[key, _description(part, _inside(where, key))] for key, part in items]
    return {"kind": _kind(space), "parts": parts}


def _kind(space: Any) -> str:
    """The name of the space's class in Gymnasium, also for a subclass of it."""
    return next(kind.__name__ for kind in _KINDS if isinstance(space, kind))


def _unknown(space: Any, where: str) -> SpaceError:
    if not isinstance(space, Space):
        return SpaceError(f"{where} space = {_short(space)}; expected a space of gymnasium.spaces")
    return SpaceError(
        f"{where} is a {_short(space)}; expected Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple "
        "of these. Wrap the environment so that it gives numbers: gymnasium.wrappers.TransformObservation, "
        "FilterObservation or FlattenObservation"
    )


def _short(value: Any) -> str:
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


class _Leaf:
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

    def leaves(self) -> Iterator[_Leaf]:
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
            raise SpaceError(f"{self.where} = {_short(value)}; expected real numbers of shape {self.shape}")
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
            _part(part, _inside(where, key), self._name(name, key)) for key, part in config["parts"]
        ]

    def leaves(self) -> Iterator[_Leaf]:
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
                raise SpaceError(f"{self.where} = {_short(value)}; expected a dict with the keys {self.keys}")
            if value.keys() != set(self.keys):
                raise SpaceError(f"{self.where} has the keys {list(value)}; expected {self.keys}")
            return [value[key] for key in self.keys]
        if not isinstance(value, tuple | list):
            raise SpaceError(f"{self.where} = {_short(value)}; expected a tuple of {len(self.keys)}")
        if len(value) != len(self.keys):
            raise SpaceError(f"{self.where} has {len(value)} parts; expected a tuple of {len(self.keys)}")
        return list(value)


def _part(config: Config, where: str, name: str) -> _Leaf | _Branch:
    return (_Branch if "parts" in config else _Leaf)(config, where, name)


def _indexed(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """'name' for a scalar, else 'name[0]', 'name[0, 1]' and so on."""
    if not shape:
        return (name,)
    return tuple(f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape))


def _amount(size: int | None) -> str:
    return "a single one" if size is None else f"a batch of {size}"


def _text(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(float(value))


# ── observations ─────────────────────────────────────────────────────────────────────────────────────


class _Described:
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


class Observations(_Described):
    """Observations of one space as rows.

    `columns` of them, called `names`; `categories` says which hold a Discrete value, whose order means
    nothing; `low` and `high` are the space's bounds, ±inf where there are none.
    """

    def __init__(self, space: Any, name: str = "observation"):
        self._build({"name": name, "space": _description(space, name)})

    def _build(self, config: Config) -> None:
        name, space = config["name"], config["space"]
        self._config = config
        self._part = _part(space, name, "" if space["kind"] == "Dict" else name)
        leaves = list(self._part.leaves())
        self.columns = sum(leaf.columns for leaf in leaves)
        if self.columns == 0:
            raise SpaceError(f"{name} has shape {leaves[0].shape}; expected at least one number")
        self.names = tuple(name for leaf in leaves for name in leaf.names)
        self.categories = tuple(leaf.category for leaf in leaves for _ in leaf.names)
        self.low: Array = np.concatenate([leaf.low for leaf in leaves])
        self.high: Array = np.concatenate([leaf.high for leaf in leaves])

    def row(self, observation: Any) -> Array:
        """One observation as a fresh row. Numbers need only be finite, categories lie in their space."""
        return self._part.take(observation, ())

    def batch(self, observation: Any) -> int | None:
        """How many observations a batch of a vector environment holds; None for a single observation."""
        return self._part.batch(observation)

    def rows(self, observations: Any) -> Array:
        """A batch, as vector environments give it, as (n, columns)."""
        size = self._part.batch(observations)
        if size is None:
            raise SpaceError(f"{self._part.where} is a single one; expected a batch. row() takes one")
        return self._part.take(observations, (size,))


# ── actions ──────────────────────────────────────────────────────────────────────────────────────────


class Actions(_Described):
    """Actions of one space as rows, and the search for the best of them.

    `candidates` holds every action of a discrete space as a row, or None if there are more than LIMIT;
    a Box is `continuous` and has none. The other attributes are those of `Observations`.
    """

    def __init__(self, space: Any):
        if isinstance(space, Space) and not isinstance(space, _NUMBERS):
            raise SpaceError(
                f"action is a {_short(space)}; expected Box, Discrete, MultiDiscrete or MultiBinary. Wrap "
                "the environment so that it takes one: gymnasium.wrappers.TransformAction"
            )
        self._build(_description(space, "action"))

    def _build(self, config: Config) -> None:
        self._config = config
        self._leaf = leaf = _Leaf(config, "action", "action", strict=True)
        self.columns, self.names, self.low, self.high = leaf.columns, leaf.names, leaf.low, leaf.high
        self.continuous = not leaf.whole
        self.categories = (leaf.whole,) * leaf.columns
        if self.columns == 0:
            raise SpaceError(f"action has shape {leaf.shape}; expected at least one number")
        if self.continuous:
            self._check_box()
        self.candidates = self._every()

    def _check_box(self) -> None:
        if self._leaf.dtype.kind != "f":
            raise SpaceError(
                f"action is a Box of {self._leaf.dtype}; expected floats. Whole numbers fit a MultiDiscrete"
            )
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        if not bounded.all():
            i = int(np.argmin(bounded))
            raise SpaceError(
                f"{self.names[i]} lies between {self.low[i]} and {self.high[i]}; expected bounds on both "
                "sides. Leave out gymnasium.wrappers.ClipAction, which removes them, or set your own bounds: "
                "gymnasium.wrappers.TransformAction(env, lambda action: action, Box(low, high))"
            )

    def _every(self) -> Array | None:
        """Every action of a discrete space, the last column fastest, unless there are too many."""
        if self.continuous:
            return None
        counts = [int(count) for count in self.high - self.low + 1]
        if math.prod(counts) > LIMIT:
            return None
        return np.indices(counts).reshape(self.columns, -1).T + self.low

    def some(self, line: int, spread: int) -> Array:
        """Every action, as rows; where there are too many, so many on a `line`, or in more dimensions
        `spread` of them, the same each time."""
        if self.candidates is not None:
            return self.candidates
        if self.continuous and self.columns == 1:
            return np.linspace(self.low, self.high, line)
        return self.random(spread, np.random.default_rng(0))

    def row(self, action: Any) -> Array:
        """One action as a fresh row; it must lie in the space, up to rounding."""
        return self._leaf.take(action, ())

    def action(self, row: Array) -> Any:
        """What `env.step` takes: a number for Discrete, else an array; of the space's shape and dtype."""
        if self._leaf.category:
            return self._leaf.dtype.type(np.rint(row[0]))
        return self.actions(row[None])[0, ...]

    def actions(self, rows: Array) -> np.ndarray[Any, Any]:
        """A batch of actions, (n, *shape), of the space's dtype."""
        values = np.clip(rows, self.low, self.high) if self.continuous else np.rint(rows)
        return values.astype(self._leaf.dtype).reshape(len(rows), *self._leaf.shape)

    def taken(self, row: Array) -> Array:
        """The row as the environment takes it, rounded to the space's dtype."""
        return self.actions(row[None]).reshape(-1).astype(np.float64) if self.continuous else row

    def random(self, count: int, rng: np.random.Generator) -> Array:
        """Uniform draws from the space, (count, columns)."""
        size = (count, self.columns)
        if self.continuous:
            return rng.uniform(self.low, self.high, size)
        low, high = self.low.astype(np.int64), self.high.astype(np.int64)
        return rng.integers(low, high, size, endpoint=True).astype(np.float64)

    def best(
        self, score: Score, rng: np.random.Generator, *, slope: Slope | None = None, start: Any = None
    ) -> Array:
        """The row of the highest score: of all if there are few discrete ones, else of those searched.

        More discrete actions than LIMIT: from random ones and `start`, the best goes uphill by changing
        one column at a time. Box: from a spread of points and `start`, the best few go uphill along
        `slope`, which is taken by differences of the score unless given.
        """
        if self.candidates is not None:
            return self.candidates[int(np.argmax(score(self.candidates)))].copy()
        given = np.empty((0, self.columns)) if start is None else np.asarray(start, dtype=np.float64)
        given = np.clip(given.reshape(-1, self.columns), self.low, self.high)
        if not self.continuous:
            return self._best_by_column(score, rng, np.concatenate([given, self.random(DRAWS, rng)]))
        rows = np.concatenate([given, self._spread(rng)])
        scores = score(rows)
        chosen = _distinct(rows, scores, self.high - self.low)
        slope = slope or _differences(score, self.low, self.high)
        climbed, reached = _ascend(rows[chosen], scores[chosen], score, slope, self.low, self.high)
        return climbed[int(np.argmax(reached))]

    def _spread(self, rng: np.random.Generator) -> Array:
        """Points all over the Box, the same number every time."""
        if self.columns == 1:
            return np.linspace(self.low, self.high, GRID)
        points = [(self.low + self.high)[None] / 2]
        if 2**self.columns <= CORNERS:
            points.append(np.array(list(itertools.product(*zip(self.low, self.high, strict=True)))))
        points.append(self.random(SPREAD - sum(map(len, points)), rng))
        return np.concatenate(points)

    def _best_by_column(self, score: Score, rng: np.random.Generator, rows: Array) -> Array:
        """Coordinate ascent from the best row, until no column on its own improves it."""
        scores = score(rows)
        best = int(np.argmax(scores))
        row, highest = rows[best], scores[best]
        tired = 0
        for column in itertools.cycle(range(self.columns)):
            values = self._values(column, rng)
            trial = np.repeat(row[None], len(values), axis=0)
            trial[:, column] = values
            scores = score(trial)
            best = int(np.argmax(scores))
            if scores[best] > highest:
                row, highest, tired = trial[best], scores[best], 0
            tired += 1
            if tired > self.columns:
                break
        return row.copy()

    def _values(self, column: int, rng: np.random.Generator) -> Array:
        """The values of a discrete column; LIMIT random ones if it has more."""
        low, high = int(self.low[column]), int(self.high[column])
        if high - low < LIMIT:
            return np.arange(low, high + 1, dtype=np.float64)
        return rng.integers(low, high, LIMIT, endpoint=True).astype(np.float64)


# ── uphill in a box ──────────────────────────────────────────────────────────────────────────────────


def _distinct(rows: Array, scores: Array, width: Array) -> list[int]:
    """The best few rows, each some way from the better ones."""
    chosen: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if all((np.abs(rows[i] - rows[j]) > APART * width).any() for j in chosen):
            chosen.append(int(i))
        if len(chosen) == CLIMBS:
            break
    return chosen


def _differences(score: Score, low: Array, high: Array) -> Slope:
    """∂score/∂row by central differences, one-sided at the bounds."""
    shift = np.diag(DIFFERENCE * (high - low))

    def slope(rows: Array) -> Array:
        up = np.minimum(rows[:, None] + shift, high)
        down = np.maximum(rows[:, None] - shift, low)
        values = score(np.concatenate([up, down]).reshape(-1, len(low)))
        above, below = values.reshape(2, *rows.shape)
        gap = np.diagonal(up - down, axis1=1, axis2=2)
        return np.divide(above - below, gap, out=np.zeros_like(rows), where=gap > 0)

    return slope


def _ascend(
    rows: Array, scores: Array, score: Score, slope: Slope, low: Array, high: Array
) -> tuple[Array, Array]:
    """Projected gradient ascent from all rows at once; none ends lower than it began.

    With u the row in units of the width w and g = ∂score/∂u, a step is u ← clip(u + t g). One that does
    not improve is tried again with t/2; after one that does, t is the secant's -ΔuᵀΔu / ΔuᵀΔg where
    the score is concave along Δu, else 2t.
    """
    width = high - low
    unit = np.where(width > 0, width, 1.0)
    g = slope(rows) * width
    t = FIRST_STEP * _reach(g, rows, low, high)
    going = np.isfinite(t)
    for _ in range(ROUNDS):
        i = np.flatnonzero(going)
        if len(i) == 0:
            break
        trial = np.clip(rows[i] + t[i, None] * g[i] * width, low, high)
        du = (trial - rows[i]) / unit
        values = score(trial)
        going[i] = np.abs(du).max(axis=1) > SHORTEST_STEP
        better = values > scores[i]
        t[i[~better]] /= 2
        if not better.any():
            continue
        j, du = i[better], du[better]
        rows[j], scores[j] = trial[better], values[better]
        before, g[j] = g[j], slope(rows[j]) * width
        bend = -np.sum(du * (g[j] - before), axis=1)
        secant = np.divide(np.sum(du * du, axis=1), bend, out=2 * t[j], where=bend > FLAT)
        longest = LONGEST_STEP * _reach(g[j], rows[j], low, high)
        t[j] = np.minimum(secant, longest)
        going[j] &= np.isfinite(longest)
    return rows, scores


def _reach(g: Array, rows: Array, low: Array, high: Array) -> Array:
    """The t at which t g is one width along the fastest column that is free to move; inf if none is."""
    free = ((rows > low) | (g > 0)) & ((rows < high) | (g < 0))
    fastest = np.max(np.abs(g), axis=1, where=free, initial=0.0)
    return np.divide(1.0, fastest, out=np.full(len(g), np.inf), where=fastest > FLAT)


# ── the width of the columns ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Scaling:
    """How wide each column's values are: the unit in which lengthscales are measured."""

    low: Array
    """The smallest value seen, per column."""
    high: Array
    """The largest."""

    def __post_init__(self) -> None:
        low = check.vector(self.low, "low")
        high = check.vector(self.high, "high", len(low))
        if not (low < high).all():
            i = int(np.argmin(low < high))
            raise ValueError(f"low[{i}] = {low[i]}, high[{i}] = {high[i]}; expected low below high")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @classmethod
    def of(cls, rows: Any, low: Any, high: Any) -> Self:
        """The extremes of the rows. A column that does not vary is as wide as the space's bounds `low` and
        `high`, or one unit where there are none."""
        rows = check.rows(rows, "rows")
        if len(rows) == 0:
            raise ValueError("rows holds no row; expected at least one, from which widths can be seen")
        least, most = rows.min(axis=0), rows.max(axis=0)
        low, high = np.broadcast_to(low, least.shape), np.broadcast_to(high, least.shape)
        bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
        half = np.maximum(0.5, np.spacing(np.maximum(np.abs(least), np.abs(most))))
        still = least == most
        return cls(
            np.where(still, np.where(bounded, np.minimum(low, least), least - half), least),
            np.where(still, np.where(bounded, np.maximum(high, most), most + half), most),
        )

    @property
    def width(self) -> Array:
        """From the smallest to the largest value, above 0."""
        return self.high - self.low
