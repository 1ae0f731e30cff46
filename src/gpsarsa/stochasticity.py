"""Are transitions deterministic? Asked of the data, because iid noise is biased where they are not.

Deterministic environments measured at most 0.003, stochastic ones 0.015 and more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpsarsa._validation import Array

__all__ = ["NOISY", "undetermined"]

NOISY = 0.01  # a larger undetermined share counts as stochastic
NEAREST = 5  # neighbours with which each input is compared
FEW = 20  # pairs of which fewer say nothing


def undetermined(X: Array, Y: Array, category: NDArray[np.bool_]) -> float:
    """The share of the variance of Y, the next observations, that inputs X do not determine.

    A Gamma test: half the squared difference between the outcomes of two inputs grows with their squared
    distance, and what is left at distance 0 is noise. Columns that hold a `category` are alike or not at all;
    those of Y are the first ones of X.
    """
    split = Y.shape[1]
    width = np.maximum(np.std(X, axis=0), 1e-12)
    outcome = np.where(category[:split], Y, Y - X[:, :split])
    spread = np.std(outcome, axis=0)
    moving = spread > 1e-12
    if not moving.any():
        return 0.0
    numbers = ~category[:split] & moving
    scaled = outcome[:, numbers] / spread[numbers]
    A = X[:, ~category] / width[~category]
    distance = np.square(A[:, None] - A[None]).sum(axis=2) if A.shape[1] else np.zeros((len(X), len(X)))
    for column in np.flatnonzero(category):
        distance[X[:, column][:, None] != X[:, column][None]] = np.inf
    np.fill_diagonal(distance, np.inf)
    near = np.argpartition(distance, min(NEAREST, len(X) - 1) - 1, axis=1)[:, :NEAREST]
    at = np.take_along_axis(distance, near, axis=1)
    i, j = np.nonzero(np.isfinite(at))
    other = near[i, j]
    if len(i) < FEW:
        return 0.0
    half = 0.5 * np.square(scaled[i] - scaled[other]).mean(axis=1) if numbers.any() else np.zeros(len(i))
    labels = category[:split] & moving
    if labels.any():
        unlike = (outcome[i][:, labels] != outcome[other][:, labels]).mean(axis=1)
        half = 0.5 * (half + unlike) if numbers.any() else unlike
    squared = at[i, j]
    close = squared <= np.quantile(squared, 0.5)
    squared, half = squared[close], half[close]
    if np.ptp(squared) < 1e-12:
        return float(half.mean())
    inside = half <= np.quantile(half, 0.95)  # without pairs on both sides of a wall or an edge
    squared, half = squared[inside], half[inside]
    centred = squared - squared.mean()
    slope = max(float(centred @ half) / max(float(centred @ centred), 1e-300), 0.0)
    return max(float(half.mean() - slope * squared.mean()), 0.0)
