"""Are transitions deterministic, and rewards exact? Asked of the data.

iid noise is biased where transitions are stochastic, however much data comes, and a noise variance that
is bounded too low mistakes noise for value. Three tests on pairs of neighbouring inputs:

- the next observation: half the squared difference between the outcomes of two inputs grows with their
  squared distance, and what is left at distance 0 is noise (a Gamma test);
- the reward, likewise;
- the end: where episodes end at random, those that ended have no more neighbours that ended than chance
  would give them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpsarsa._validation import Array

__all__ = ["Neighbours", "ends_at_random", "is_noise", "looks_stochastic", "noise_variance", "undetermined"]

Flags = NDArray[np.bool_]

# An undetermined share above NOISY + FEW_ROWS / rows counts as stochastic. Measured on CartPole, Mountain
# Car, Acrobot and Pendulum: at most 0.022 with 200 rows, 0.003 with many; with every fifth action random 0.05
# to 0.2, but 0.005 on Acrobot, where one action matters little.
NOISY, FEW_ROWS = 0.01, 4.0
NEAREST = 5  # neighbours with which each input is compared
FEW = 20  # pairs, or ended episodes, of which fewer say nothing
TRIMMED = 0.05  # of the pairs: those on both sides of a wall or an edge
CHANCE = 2.0  # times as many neighbours as by chance: not at random


@dataclass(frozen=True)
class Neighbours:
    """Pairs of inputs that lie close together: rows `one` and `other`, and their squared distance.

    Columns that hold a category are alike or not at all; a column that does not vary does not count.
    """

    one: NDArray[np.intp]
    other: NDArray[np.intp]
    squared: Array

    @classmethod
    def of(cls, X: Array, category: Flags, among: Array | None = None) -> Neighbours:
        """Each row's nearest ones, among the other rows or those of another array."""
        Y = X if among is None else among
        width = np.std(Y, axis=0)
        numbers = ~category & (width > 1e-12 * np.abs(Y).max(axis=0, initial=0.0))
        A, B = X[:, numbers] / width[numbers], Y[:, numbers] / width[numbers]
        distance = np.square(A[:, None] - B[None]).sum(axis=2)
        for column in np.flatnonzero(category):
            distance[X[:, column][:, None] != Y[:, column][None]] = np.inf
        if among is None:
            np.fill_diagonal(distance, np.inf)
        count = min(NEAREST, distance.shape[1])
        near = np.argpartition(distance, count - 1, axis=1)[:, :count]
        at = np.take_along_axis(distance, near, axis=1)
        i, j = np.nonzero(np.isfinite(at))
        return cls(i, near[i, j], at[i, j])

    def closer_half(self) -> Neighbours:
        close = self.squared <= np.quantile(self.squared, 0.5)
        return Neighbours(self.one[close], self.other[close], self.squared[close])

    def at_distance_0(self, half: Array) -> float:
        """What is left of half the squared differences between outcomes as their inputs coincide."""
        squared = self.squared
        if np.ptp(squared) <= 1e-12 * squared.max():
            return float(half.mean())
        inside = half <= np.quantile(half, 1.0 - TRIMMED)
        squared, half = squared[inside], half[inside]
        centred = squared - squared.mean()
        spread = float(centred @ centred)
        slope = max(float(centred @ half) / spread, 0.0) if spread > 0.0 else 0.0
        return max(float(half.mean() - slope * squared.mean()), 0.0)


def looks_stochastic(X: Array, Y: Array, category: Flags) -> bool:
    """Whether next observations Y are more than a function of inputs X, whose first columns they share."""
    return len(X) > FEW and undetermined(X, Y, category) > NOISY + FEW_ROWS / len(X)


def undetermined(X: Array, Y: Array, category: Flags) -> float:
    """The share of the variance of the next observations Y that inputs X do not determine."""
    pairs = Neighbours.of(X, category)
    if len(pairs.one) < FEW:
        return 0.0
    pairs = pairs.closer_half()
    labels = category[: Y.shape[1]]
    halves = [
        _half_differences(pairs, outcome) / variance
        for outcome in (Y[:, ~labels] - X[:, : Y.shape[1]][:, ~labels]).T
        if (variance := float(np.var(outcome))) > 1e-24 * float(np.square(outcome).max(initial=0.0))
    ]
    halves += [
        (outcome[pairs.one] != outcome[pairs.other]).astype(np.float64)
        for outcome in Y[:, labels].T
        if np.ptp(outcome) > 0.0
    ]
    return pairs.at_distance_0(np.mean(halves, axis=0)) if halves else 0.0


def noise_variance(X: Array, outcome: Array, category: Flags) -> float:
    """The variance of an outcome, such as the reward, that inputs X do not determine."""
    pairs = Neighbours.of(X, category)
    if len(pairs.one) < FEW or np.ptp(outcome) == 0.0:
        return 0.0
    pairs = pairs.closer_half()
    return pairs.at_distance_0(_half_differences(pairs, outcome))


def is_noise(variance: float, outcome: Array) -> bool:
    """Whether so much of an outcome's variance is too much to be an artefact of few rows."""
    return len(outcome) > FEW and variance > (NOISY + FEW_ROWS / len(outcome)) * float(np.var(outcome))


def _half_differences(pairs: Neighbours, outcome: Array) -> Array:
    return np.asarray(0.5 * np.square(outcome[pairs.one] - outcome[pairs.other]))


def ends_at_random(X: Array, ended: Flags, category: Flags) -> bool:
    """Whether episodes end at random places: inputs that ended one have no neighbours that did.

    Neighbours are the nearest of all inputs; chance gives them the share of those that ended.
    """
    share = float(np.mean(ended)) if len(ended) else 0.0
    if np.count_nonzero(ended) < FEW or share > 0.3:
        return False
    at = np.flatnonzero(ended)
    pairs = Neighbours.of(X[at], category, among=X)
    real = at[pairs.one] != pairs.other  # not with themselves
    if np.count_nonzero(real) < FEW:
        return False
    return float(np.mean(ended[pairs.other[real]])) < CHANCE * share
