"""A bounded, uniform sample of a stream of transitions, for the slow timescales to learn from."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa.transitions import Transitions

__all__ = ["Reservoir"]


class Reservoir:
    """At most `capacity` transitions, every stretch of the stream equally likely to be among them.

    Transitions are kept in stretches of `stretch` that came one after another (1 for iid noise;
    correlated noise is only seen along a path), whose first is taken as a start. Every completed
    stretch replaces a random one with probability slots/seen (Vitter's algorithm R). The stretch being
    filled is always included.
    """

    def __init__(self, columns: int, capacity: int, *, stretch: int = 1) -> None:
        if check.count(stretch, "stretch") == 0 or check.count(capacity, "capacity") < 2 * stretch:
            raise ValueError(f"capacity = {capacity}; expected room for two stretches of {stretch} or more")
        self.columns, self.stretch = columns, stretch
        slots = capacity // stretch - 1  # and the one being filled
        try:  # x, x′, r, γ, start; last: being filled
            self._records = np.zeros((slots + 1, stretch, 2 * columns + 3))
        except (ValueError, MemoryError):
            raise ValueError(f"capacity = {capacity}; there is no memory for so many transitions") from None
        self._lengths = np.zeros(slots + 1, dtype=np.int64)
        self._arrivals = np.zeros(slots + 1, dtype=np.int64)  # when each stretch was completed
        self._seen = 0  # completed stretches

    def add(
        self, x: Any, reward: float, x_next: Any, discount: float, start: bool, rng: np.random.Generator
    ) -> None:
        """Take in one transition; `start` where it does not continue the one before."""
        d, open_ = self.columns, len(self._records) - 1
        if self._lengths[open_] == self.stretch:
            self._complete(rng)
        at = self._lengths[open_]
        record = self._records[open_, at]
        record[:d], record[d : 2 * d] = x, x if discount == 0.0 else x_next
        record[2 * d :] = reward, discount, start or at == 0
        self._lengths[open_] += 1

    def _complete(self, rng: np.random.Generator) -> None:
        open_ = len(self._records) - 1
        slot = self._seen if self._seen < open_ else int(rng.integers(self._seen + 1))
        self._seen += 1
        if slot < open_:
            self._records[slot] = self._records[open_]
            self._lengths[slot] = self._lengths[open_]
            self._arrivals[slot] = self._seen
        self._lengths[open_] = 0

    def __len__(self) -> int:
        return int(self._lengths.sum())

    @property
    def transitions(self) -> Transitions:
        """What is kept, in order of arrival."""
        d, slots = self.columns, len(self._records) - 1
        order = [*np.argsort(self._arrivals[:slots], kind="stable"), slots]
        kept = np.concatenate([self._records[i, : self._lengths[i]] for i in order])
        return Transitions(
            kept[:, :d], kept[:, 2 * d], kept[:, d : 2 * d], kept[:, 2 * d + 1], kept[:, 2 * d + 2] != 0.0
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything, as arrays."""
        return {
            "records": self._records, "lengths": self._lengths, "arrivals": self._arrivals,
            "seen": np.array([self._seen]),
        }  # fmt: skip

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        records = arrays["records"]
        slots, stretch, width = records.shape
        self = cls((width - 3) // 2, slots * stretch, stretch=stretch)
        self._records[:], self._lengths[:] = records, arrays["lengths"]
        self._arrivals[:], self._seen = arrays["arrivals"], int(arrays["seen"][0])
        if (self._lengths < 0).any() or (self._lengths > stretch).any():
            raise ValueError("lengths of stretches are out of range")
        return self
