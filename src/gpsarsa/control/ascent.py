"""Uphill in a box: the highest score near some rows, along its slope.

A score is a function of rows; its slope is given, or taken by differences.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpsarsa._validation import Array

__all__ = ["Score", "Slope", "climbed"]

Score = Callable[[Array], Array]  # rows (C, columns) to numbers (C,)
Slope = Callable[[Array], Array]  # rows (C, columns) to ∂score/∂row (C, columns)

CLIMBS = 3  # points from which the slope is followed
APART = 0.1  # two of them differ by that much of the width
ROUNDS = 20
FIRST_STEP, LONGEST_STEP, SHORTEST_STEP = 0.1, 0.25, 1e-6  # of the width
FLAT = 1e-300  # slopes below are none; one over them overflows
DIFFERENCE = 1e-4  # of the width, for central differences


def climbed(rows: Array, score: Score, slope: Slope | None, low: Array, high: Array) -> Array:
    """The row of the highest score that the best few of some rows reach."""
    scores = score(rows)
    chosen = _distinct(rows, scores, high - low)
    slope = slope or _differences(score, low, high)
    tops, reached = _ascend(rows[chosen], scores[chosen], score, slope, low, high)
    return tops[int(np.argmax(reached))]


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
