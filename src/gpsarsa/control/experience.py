"""A bounded store of what an agent saw, whose next actions can be chosen anew.

A row holds an input x = (observation, action), the reward, the next observation, the discount (0 where
the episode terminated) and the next action: at first the one that was taken, later the one that an
improved policy would take. When the store is full, a new row takes the place of the oldest one, so that
episodes stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.transitions import Transitions

__all__ = ["Experience"]

RECENT = 50  # rows that count as the newest


class Experience:
    """At most `capacity` transitions of `observation` + `action` columns."""

    def __init__(self, observation: int, action: int, capacity: int) -> None:
        self.split, self.columns, self.capacity = observation, observation + action, capacity
        # x, x′ (next observation, next action), r, γ, and whether the row is part of the sums kept
        self._rows = np.zeros((min(capacity, 256), 2 * self.columns + 3))
        self._size = 0
        self._gone: list[Array] = []  # rows that are part of the sums kept, but were replaced
        self._oldest = 0  # row, whose place is the next to be taken when the store is full

    def __len__(self) -> int:
        return self._size

    def add(self, x: Array, reward: float, following: Array, discount: float) -> None:
        """Take in a transition from x to `following` (x′, complete)."""
        if self._size < self.capacity:
            if self._size == len(self._rows):
                larger = np.zeros((min(2 * self._size, self.capacity), self._rows.shape[1]))
                larger[: self._size] = self._rows
                self._rows = larger
            at = self._size
            self._size += 1
        else:
            at, self._oldest = self._oldest, (self._oldest + 1) % self.capacity
            if self._rows[at, -1]:
                self._gone.append(self._rows[at].copy())
        row, d = self._rows[at], self.columns
        row[:d], row[d : 2 * d] = x, following
        row[2 * d :] = reward, discount, 0.0

    @property
    def inputs(self) -> Array:
        return self._rows[: self._size, : self.columns]

    @property
    def newest(self) -> NDArray[np.intp]:
        """The rows that came last, the newest at the end."""
        return self.by_age[-RECENT:]

    @property
    def by_age(self) -> NDArray[np.intp]:
        """All rows, the oldest first."""
        return np.roll(np.arange(self._size), -self._oldest)

    @property
    def rewards(self) -> Array:
        return self._rows[: self._size, 2 * self.columns]

    @property
    def following(self) -> Array:
        """x′: next observations with their present next actions."""
        return self._rows[: self._size, self.columns : 2 * self.columns]

    @property
    def discounts(self) -> Array:
        return self._rows[: self._size, 2 * self.columns + 1]

    def relabel(self, rows: NDArray[np.intp], actions: Array) -> None:
        """Give these rows other next actions."""
        self._rows[rows, self.columns + self.split : 2 * self.columns] = actions

    def transitions(self, rows: NDArray[np.intp] | slice = slice(None)) -> Transitions:
        """Some of the rows, each with noise of its own."""
        return self._as_transitions(self._rows[: self._size][rows])

    def _as_transitions(self, rows: Array) -> Transitions:
        d = self.columns
        X, following = np.ascontiguousarray(rows[:, :d]), np.ascontiguousarray(rows[:, d : 2 * d])
        ended = rows[:, 2 * d + 1] == 0.0
        following[ended] = X[ended]
        return Transitions._trusted(
            X, rows[:, 2 * d].copy(), following, rows[:, 2 * d + 1].copy(), np.ones(len(X), dtype=np.bool_)
        )

    def uncounted(self) -> NDArray[np.intp]:
        """The rows that are not part of the sums yet."""
        return np.flatnonzero(self._rows[: self._size, -1] == 0.0)

    def gone(self) -> Transitions:
        """Rows that are part of the sums, but no longer kept."""
        return self._as_transitions(np.array(self._gone).reshape(-1, self._rows.shape[1]))

    def all_counted(self) -> None:
        """From now on the sums are those of the rows as they are."""
        self._rows[: self._size, -1] = 1.0
        self._gone.clear()

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """At most `count` rows, all different, in order."""
        if self._size <= count:
            return np.arange(self._size)
        return np.sort(rng.choice(self._size, count, replace=False))

    def state(self) -> dict[str, NDArray[Any]]:
        gone = np.array(self._gone).reshape(-1, self._rows.shape[1])
        return {"rows": self._rows[: self._size], "gone": gone, "oldest": np.array([self._oldest])}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> Self:
        rows = check.rows(arrays["rows"], "rows", self._rows.shape[1])
        if len(rows) > self.capacity:
            raise ValueError(f"{len(rows)} transitions are kept; expected at most {self.capacity}")
        oldest = int(check.vector(arrays["oldest"], "oldest", 1)[0])
        if oldest != 0 and not 0 < oldest < len(rows) == self.capacity:
            raise ValueError(f"oldest is row {oldest}; there are {len(rows)} of {self.capacity}")
        self._oldest = oldest
        self._size = len(rows)
        size = 256
        while size < len(rows):
            size *= 2
        self._rows = np.zeros((min(size, self.capacity), rows.shape[1]))
        self._rows[: len(rows)] = rows
        self._gone = list(check.rows(arrays["gone"], "gone", rows.shape[1]))
        return self
