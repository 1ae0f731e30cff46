"""What was observed: rows r = Q(x) − γ Q(x′) + ε.

Each row carries its own discount: γ of the problem, γⁿ for an n-step row, 0 where the episode
terminated. An episode that was merely cut off (truncated) is not terminated: its last row keeps its
discount and its next input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._validation import Array

__all__ = ["History", "Transitions"]


class Transitions:
    """N observed transitions; immutable.

    Parameters
    ----------
    inputs : (N, d) array
        x, the state-action pairs that were left.
    rewards : (N,) array
        r, one for each row.
    next_inputs : (N, d) array
        x′, the state-action pairs that were entered. Ignored where the discount is 0, whatever
        they hold; the stored copy repeats x there.
    discounts : (N,) array in [0, 1]
        0 where the episode terminated.
    starts : (N,) array of bool, optional
        `starts[j]`: row j does not continue row j − 1. By default a row continues where its x
        equals the x′ of the row before and that row's discount is above 0; row 0 is a start.
    """

    __slots__ = ("_discounts", "_inputs", "_next_inputs", "_rewards", "_starts")

    def __init__(
        self, inputs: Any, rewards: Any, next_inputs: Any, discounts: Any, starts: Any = None
    ) -> None:
        x = check.rows(inputs, "inputs").copy()
        n, d = x.shape
        r = check.vector(rewards, "rewards", n).copy()
        following = check.rows(next_inputs, "next_inputs", d, finite=False).copy()
        if len(following) != n:
            raise ValueError(f"next_inputs has {len(following)} rows; expected {n}, as many as inputs")
        if check.raw_array(discounts, "discounts").dtype.kind == "b" and n:
            raise TypeError("discounts holds flags; expected numbers, 0 where the episode terminated")
        gamma = check.vector(discounts, "discounts", n).copy()
        outside = (gamma < 0) | (gamma > 1)
        if outside.any():
            row = int(np.argmax(outside))
            raise ValueError(f"discounts[{row}] = {gamma[row]}; expected a number in [0, 1]")
        following[gamma == 0] = x[gamma == 0]
        check.rows(following, "next_inputs")
        begun = _inferred_starts(x, following, gamma) if starts is None else check.flags(starts, "starts", n)
        self._inputs, self._rewards, self._next_inputs = x, r, following
        self._discounts, self._starts = gamma, begun

    @classmethod
    def _trusted(cls, *arrays: Any) -> Self:
        """Wrap the five arrays, checked before, without copying them."""
        self = object.__new__(cls)
        self._inputs, self._rewards, self._next_inputs, self._discounts, self._starts = arrays
        return self

    @classmethod
    def _outcomes(cls, X: Array, y: Array) -> Self:
        """The regression of y on x: rewards without a next input."""
        return cls._trusted(X, y, X, np.zeros(len(y)), np.ones(len(y), dtype=np.bool_))

    @classmethod
    def from_trajectory(cls, inputs: Any, rewards: Any, gamma: float, *, terminated: bool) -> Self:
        """The transitions of one episode of T steps.

        `inputs` holds the T + 1 visited state-action pairs, the last one where the episode was cut
        off; a terminated episode may leave the last one out (T rows).
        """
        terminated = check.flag(terminated, "terminated")
        x = check.rows(inputs, "inputs", finite=False)
        r = check.vector(rewards, "rewards")
        discount = check.discount(gamma, "gamma")
        steps = len(r)
        if len(x) == steps and terminated:
            x = np.vstack([x, x[-1:]])
        elif len(x) != steps + 1:
            expected = f"{steps + 1} or {steps}" if terminated else f"{steps + 1}"
            raise ValueError(
                f"inputs has {len(x)} rows for {steps} rewards; expected {expected} "
                f"with terminated={bool(terminated)}"
            )
        discounts = np.full(steps, discount)
        if terminated and steps:
            discounts[-1] = 0.0
        starts = np.zeros(steps, dtype=np.bool_)
        starts[:1] = True
        return cls(x[:-1], r, x[1:], discounts, starts)

    @classmethod
    def concatenate(cls, parts: Iterable[Transitions]) -> Self:
        """All rows in order; each part keeps its own `starts`."""
        parts = check.listed(parts, "parts", "a list of Transitions")
        if not parts:
            raise ValueError("parts is empty; expected at least one Transitions")
        for i, part in enumerate(parts):
            if not isinstance(part, Transitions):
                raise TypeError(f"parts[{i}] is a {type(part).__name__}; expected Transitions")
            if part.columns != parts[0].columns:
                raise ValueError(f"parts[{i}] has {part.columns} columns; parts[0] has {parts[0].columns}")
        return cls._trusted(*(np.concatenate(c) for c in zip(*(p._arrays for p in parts), strict=True)))

    def __len__(self) -> int:
        return len(self._rewards)

    def __getitem__(self, rows: slice | int | NDArray[Any]) -> Self:
        """The chosen rows, with their `starts` as they are."""
        if isinstance(rows, bool):
            raise TypeError(f"row {rows}; expected a whole number")
        if check.is_whole(rows):
            at = int(rows)  # type: ignore[arg-type]
            if not -len(self) <= at < len(self):
                raise IndexError(f"row {at} of {len(self)} transitions")
            rows = slice(at, at + 1 or None)
        elif not isinstance(rows, slice):
            rows = check.raw_array(rows, "rows")
            if rows.ndim != 1 or rows.dtype.kind not in "iub":
                raise TypeError("rows are chosen by a slice, a number, or a list of numbers or flags")
        try:
            return self._trusted(*(np.ascontiguousarray(array[rows]) for array in self._arrays))
        except (IndexError, TypeError) as error:
            raise type(error)(f"rows of {len(self)} transitions: {error}") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transitions):
            return NotImplemented
        return all(np.array_equal(a, b) for a, b in zip(self._arrays, other._arrays, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Transitions({len(self)} rows, {self.columns} columns, {int(self._starts.sum())} starts)"

    @property
    def columns(self) -> int:
        """d, the number of input columns."""
        return int(self._inputs.shape[1])

    @property
    def inputs(self) -> Array:
        """x, (N, d)."""
        return _read_only(self._inputs)

    @property
    def rewards(self) -> Array:
        """r, (N,)."""
        return _read_only(self._rewards)

    @property
    def next_inputs(self) -> Array:
        """x′, (N, d); x where the discount is 0."""
        return _read_only(self._next_inputs)

    @property
    def discounts(self) -> Array:
        """γ of each row, (N,); 0 where the episode terminated."""
        return _read_only(self._discounts)

    @property
    def starts(self) -> NDArray[np.bool_]:
        """Which rows do not continue the row before, (N,)."""
        return _read_only(self._starts)

    @property
    def _arrays(self) -> tuple[Array, Array, Array, Array, NDArray[np.bool_]]:
        """The arrays themselves, writable for the compiled loops, which do not write them."""
        return self._inputs, self._rewards, self._next_inputs, self._discounts, self._starts


class History:
    """What an estimator has observed: how many transitions, the newest, and, to `keep`, all of them.

    A transition is one record of 2d + 4 numbers: x, x′, r, γ, its residual variance τ on arrival
    (see `basis`), and whether it was a start. `newest` is the last record followed by the number of
    transitions so far; `records` is a buffer that doubles, without rows where none are kept. The
    compiled step writes both together with the belief, so that no interruption comes between.
    """

    def __init__(self, columns: int, *, keep: bool = True) -> None:
        self.columns = columns
        self.keep = keep
        self.newest = np.zeros(2 * columns + 5)
        self.records = np.empty((64 if keep else 0, 2 * columns + 4))

    @classmethod
    def restored(cls, columns: int, newest: Any, kept: Any) -> Self:
        """The history that held these arrays, checked as transitions are."""
        rows = None if kept is None else check.rows(kept, "history", 2 * columns + 4)
        self = cls(columns, keep=rows is not None)
        last = check.vector(newest, "newest", 2 * columns + 5)
        if rows is not None:
            if len(rows) != last[-1]:
                raise ValueError(f"history has {len(rows)} rows; expected {last[-1]}")
            self.reserve(len(rows))
            self.records[: len(rows)] = rows
        self.newest[:] = last
        if self.keep:
            Transitions(*self.transitions._arrays)
        return self

    def append(self, t: Transitions, residuals: Array) -> None:
        if len(t) == 0:
            return
        x, r, following, gamma, starts = t._arrays
        numbers = (column[:, None] for column in (r, gamma, residuals, starts))
        new = np.hstack([x, following, *numbers])
        if self.keep:
            self.reserve(len(self) + len(t))
            self.records[len(self) : len(self) + len(t)] = new
        self.newest[:] = [*new[-1], self.count + len(t)]

    def reserve(self, size: int) -> None:
        """Make room for `size` records."""
        if size > len(self.records):
            larger = np.empty((max(size, 2 * len(self.records)), self.records.shape[1]))
            larger[: len(self)] = self.kept
            self.records = larger

    def __len__(self) -> int:
        """How many transitions are kept."""
        return self.count if self.keep else 0

    @property
    def count(self) -> int:
        """How many transitions there have been."""
        return int(self.newest[-1])

    @property
    def end(self) -> tuple[Array, float]:
        """x′ and γ of the newest transition; γ = 0 where there is none."""
        d = self.columns
        return self.newest[d : 2 * d], float(self.newest[2 * d + 1])

    @property
    def kept(self) -> Array:
        return self.records[: len(self)]

    @property
    def transitions(self) -> Transitions:
        """Everything kept so far, copied into arrays of its own."""
        d, kept = self.columns, self.kept
        return Transitions._trusted(
            kept[:, :d].copy(),
            kept[:, 2 * d].copy(),
            kept[:, d : 2 * d].copy(),
            kept[:, 2 * d + 1].copy(),
            kept[:, 2 * d + 3] != 0.0,
        )

    @property
    def residuals(self) -> Array:
        return self.kept[:, 2 * self.columns + 2].copy()


def _inferred_starts(x: Array, following: Array, gamma: Array) -> NDArray[np.bool_]:
    starts = np.ones(len(x), dtype=np.bool_)
    starts[1:] = (x[1:] != following[:-1]).any(axis=1) | (gamma[:-1] == 0)
    return starts


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
