"""Gymnasium's spaces as rows of numbers, and back.

An estimator sees every observation and every action as a row of float64 in the environment's own
units. `Observations` and `Actions` hold that translation for one space each: what the columns are
called, which of them hold unordered categories, and between which bounds they lie. `Actions` also
finds the action of the highest score. `Scaling` is how wide the values of each column turned out to
be, the unit in which lengthscales are measured.

Observations and actions describe themselves in JSON and are made again from that, so that an agent can be
loaded where its environment is not installed.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from gymnasium import Space

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.control.ascent import Score, Slope, climbed
from gpsarsa.control.descriptions import (
    NUMBERS,
    Config,
    Described,
    Leaf,
    SpaceError,
    description,
    part_of,
    short,
)

LIMIT = 1024  # as many discrete actions are all tried
DRAWS = 64  # random actions from which the search among more of them begins
GRID = 17  # points along a Box of one column
SPREAD = 32  # points in a Box of several columns
CORNERS = 16  # corners are among the points if there are at most so many

__all__ = ["Actions", "Observations", "Scaling", "SpaceError"]


# ── observations ─────────────────────────────────────────────────────────────────────────────────────


class Observations(Described):
    """Observations of one space as rows.

    `columns` of them, called `names`; `categories` says which hold a Discrete value, whose order means
    nothing; `low` and `high` are the space's bounds, ±inf where there are none.
    """

    def __init__(self, space: Any, name: str = "observation"):
        self._build({"name": name, "space": description(space, name)})

    def _build(self, config: Config) -> None:
        name, space = config["name"], config["space"]
        self._config = config
        self._part = part_of(space, name, "" if space["kind"] == "Dict" else name)
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


class Actions(Described):
    """Actions of one space as rows, and the search for the best of them.

    `candidates` holds every action of a discrete space as a row, or None if there are more than LIMIT;
    a Box is `continuous` and has none. The other attributes are those of `Observations`.
    """

    def __init__(self, space: Any):
        if isinstance(space, Space) and not isinstance(space, NUMBERS):
            raise SpaceError(
                f"action is a {short(space)}; expected Box, Discrete, MultiDiscrete or MultiBinary. Wrap "
                "the environment so that it takes one: gymnasium.wrappers.TransformAction"
            )
        self._build(description(space, "action"))

    def _build(self, config: Config) -> None:
        self._config = config
        self._leaf = leaf = Leaf(config, "action", "action", strict=True)
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

    def some(self, line: int, spread: int, rng: np.random.Generator | None = None) -> Array:
        """Every action, as rows; where there are too many, so many on a `line`, or in more dimensions
        `spread` of them at random, without `rng` the same each time."""
        if self.candidates is not None:
            return self.candidates
        if self.continuous and self.columns == 1:
            return np.linspace(self.low, self.high, line)
        return self.random(spread, np.random.default_rng(0) if rng is None else rng)

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
        return climbed(rows, score, slope, self.low, self.high)

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
