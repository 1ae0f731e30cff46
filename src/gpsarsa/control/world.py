"""A world that was learnt, in the form in which steps are imagined: fast, and without chance.

All its regressions, walls, brinks and flags are arrays, read by one compiled loop. What happens by chance
in the environment is decided here by a number from 0 to 1 that an imagined episode keeps to its end: where
half of those who came there touched the ground, so do the episodes whose number is below one half. Ground
that is there stays there, and imagined episodes can be repeated and compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsarsa._linalg import compiled, product
from gpsarsa._table import kernel_matrix, kernel_row
from gpsarsa._validation import Array
from gpsarsa.kernels import Kernel

__all__ = [
    "ENDED",
    "LOST",
    "POINTS",
    "SURE",
    "TURN",
    "World",
    "chances",
    "check_partners",
    "limits",
    "outcomes",
]
__all__ += ["strange", "tabulated"]

SURE = 0.1  # a flag changes by chance, but not where that is so improbable, and always where so probable
TURN = 0.5  # a flag that has just changed counts as so much beyond what it is now
ENDED, LOST = 1, 2  # what became of an imagined episode
POINTS, BEYOND = 2048, 6.5  # of a table; lengthscales from what was seen to its end


class World(NamedTuple):
    """All regressions as the compiled loop reads them: those of the observation's columns, of the end, of
    the reward while the episode goes on, of the last one, and V. Of the end's kernel the terms for single
    columns are tabulated; what `codes` says of it is the one for all of them."""

    codes: NDArray[np.int64]  # a row for each regression, −1 beyond its end
    values: Array  # likewise
    Zt: Array
    sizes: NDArray[np.int64]
    weights: Array
    offset: Array
    scale: Array
    terms: Array  # of each column its part in the end, at points that lie equally far apart
    grid: Array  # two rows: the first of these points, and how many there are to a unit; 0: there is no part
    walls: Array  # two rows: the least and largest value of each column where there is a wall, else ∓∞
    known: Array  # two rows: observations never left this range by much
    brinks: Array  # two rows: beyond them every episode ended, else ∓∞
    flags: Array  # two rows: the only values of a column that has two, the usual one first, else NaN
    partners: NDArray[np.int64]  # of each column: the other one of a circle, else −1
    rest: Array  # the action that is taken where a flag is not as usual, if any is
    worth: Array  # one: how much more touches earn by it than otherwise
    touching: NDArray[np.bool_]  # one: whether episodes are over where a flag is not as usual

    def outcomes(self, X: Array, chance: Array | None = None) -> tuple[Array, Array, NDArray[np.int8]]:
        """After each input: the next observation (the action's columns are 0), the reward, and whether the
        episode goes on (0), ends (ENDED), or leaves what is known (LOST); by `chance`, one half if None."""
        ahead, rewards, fate = np.zeros_like(X), np.empty(len(X)), np.empty(len(X), dtype=np.int8)
        chance = np.full(len(X), 0.5) if chance is None else chance
        outcomes(*self, X, limits(chance), ahead, rewards, fate)
        return ahead, rewards, fate

    def potential(self, states: Array) -> Array:
        """V of observations."""
        n, X = self.sizes[-1], np.zeros((len(states), self.Zt.shape[1]))
        X[:, : states.shape[1]] = states
        K = np.empty((len(X), n))
        kernel_matrix(self.codes[-1], self.values[-1], self.Zt[-1], n, X, K)
        return self.scale[-1] * product(K, self.weights[-1, :n])

    def level(self) -> World:
        """The world in which V earns nothing."""
        return self._replace(sizes=np.append(self.sizes[:-1], 0))


def chances(numbers: NDArray[np.intp]) -> Array:
    """A number from 0 to 1 for each of the numbered episodes, spread evenly however many there are."""
    golden: Array = (0.5 + numbers * (np.sqrt(5.0) - 1.0) / 2.0) % 1.0
    return golden


def limits(chance: Array) -> Array:
    """Below which of these a flag changes, or an episode touches, that has some number from 0 to 1."""
    return SURE + (1.0 - 2.0 * SURE) * chance


def strange(states: Array, usual: Array) -> NDArray[np.bool_]:
    """Which observations have a flag that is not as usual; columns whose usual value is NaN are none."""
    return ((states[:, : len(usual)] != usual) & ~np.isnan(usual)).any(axis=1)


def check_partners(partners: NDArray[Any], split: int) -> None:
    """ValueError where they are not columns, or −1."""
    if partners.shape != (split,) or not ((partners >= -1) & (partners < split)).all():
        raise ValueError(f"the world's partners are {partners}; expected {split} columns, or -1")


def tabulated(
    term: Kernel, column: int, columns: int, Z: Array, weights: Array
) -> tuple[Array, float, float]:
    """Σ_j w_j k(z_j, x), where k reads one column alone, at points of it that lie equally far apart: its
    values, the first point, and how many points there are to a unit. Beyond them it is 0, as good as."""
    reach = BEYOND * float(np.max(term.parameters["lengthscales"]))
    low, high = float(Z[:, column].min()) - reach, float(Z[:, column].max()) + reach
    X = np.zeros((POINTS, columns))
    X[:, column] = np.linspace(low, high, POINTS)
    return product(term(X, Z), weights), low, (POINTS - 1) / (high - low)


@compiled
def _predict(regressions, r, X, many, scratch, out):
    """out[t] = offset + scale · Σ_j w_j k(z_j, X[t]) of regression r, for the first `many` rows of X. The
    inner loop goes over inputs or over pseudo-inputs, whichever are more."""
    codes, values, Zt, sizes, weights, offset, scale = regressions
    columns, rows, work = scratch
    n = sizes[r]
    for t in range(many):
        out[t] = 0.0
    if n > 0:
        over_inputs = many > n
        inner, outer = (many, n) if over_inputs else (n, many)
        if over_inputs:
            for c in range(X.shape[1]):
                for t in range(many):
                    columns[c, t] = X[t, c]
                for j in range(n):
                    rows[j, c] = Zt[r, c, j]
        across, along = (columns, rows) if over_inputs else (Zt[r], X)
        for i in range(outer):
            kernel_row(codes[r], values[r], across, inner, along, i, work[0], work[1], work[2])
            if over_inputs:
                for t in range(many):
                    out[t] += weights[r, i] * work[0, t]
            else:
                total = 0.0
                for j in range(n):
                    total += weights[r, j] * work[0, j]
                out[i] = total
    for t in range(many):
        out[t] = offset[r] + scale[r] * out[t]


@compiled
def _tabled(terms, grid, x):
    """The sum of what is tabulated for each column, by a cubic through the four nearest points."""
    total = 0.0
    for c in range(terms.shape[0]):
        u = (x[c] - grid[0, c]) * grid[1, c]
        if u >= 1.0 and u < terms.shape[1] - 2.0:
            i = int(u)
            f = u - i
            a, b, g = f + 1.0, f - 1.0, f - 2.0
            total += (terms[c, i + 2] * a - terms[c, i - 1] * g) * f * b / 6.0
            total += (terms[c, i] * b - terms[c, i + 1] * f) * a * g / 2.0
    return total


@compiled
def _round(partners, before, after):
    """Columns of a circle stay as far from its middle as they were."""
    for i in range(len(partners)):
        j = partners[i]
        if j > i:
            far = np.hypot(after[i], after[j])
            if far > 0.0:
                factor = np.hypot(before[i], before[j]) / far
                after[i] *= factor
                after[j] *= factor


@compiled
def outcomes(
    codes, values, Zt, sizes, weights, offset, scale, terms, grid, walls, known, brinks, flags, partners,
    rest, worth, touching, X, chance, ahead, rewards, fate,
):  # fmt: skip
    """For all inputs together, by turns: the flags; the other columns and circles; which episodes are over,
    and rewards, to which V adds what a step earns. `rest` is not read: who acts knows it."""
    many, split = X.shape[0], walls.shape[1]
    longest = max(many, Zt.shape[2])
    regressions = codes, values, Zt, sizes, weights, offset, scale
    scratch = np.empty((X.shape[1], longest)), np.empty((longest, X.shape[1])), np.empty((3, longest))
    found, inputs = np.zeros((split + 5, many)), X.copy()  # as regressions read them
    lost, over = np.zeros(many, dtype=np.bool_), np.zeros(many, dtype=np.bool_)
    flagged = ~np.isnan(flags[0])
    end, going, last, V, V_ahead = range(split, split + 5)
    for turn in range(3):
        for r in range(split + 5):  # in one place, or compiling takes several times as long
            flag = r < split and flagged[r]
            if turn == (2 if r >= split else 0 if flag else 1) and not (flag and touching[0]):
                by_next = r in (end, V_ahead) or (r == last and touching[0])
                source = ahead if by_next else X if r == V else inputs
                _predict(regressions, min(r, V), source, many, scratch, found[r])
        if turn == 0:
            for j in range(split):
                for t in range(many if flagged[j] else 0):
                    value = X[t, j]
                    if touching[0]:
                        over[t] = over[t] or value != flags[0, j]
                    else:
                        value = flags[int((value == flags[1, j]) + found[j, t] > chance[t]), j]
                    ahead[t, j] = value
                    inputs[t, j] = value + TURN * (value - X[t, j])
        elif turn == 1:
            for t in range(many):
                for j in range(split):
                    if not flagged[j]:
                        ahead[t, j] = min(max(X[t, j] + found[j, t], walls[0, j]), walls[1, j])
                _round(partners, X[t], ahead[t])
                for j in range(split):
                    value = ahead[t, j]
                    lost[t] = lost[t] or (not flagged[j] and (value < known[0, j] or value > known[1, j]))
                    over[t] = over[t] or value < brinks[0, j] or value > brinks[1, j]
    for t in range(many):
        limit = chance[t] if touching[0] else 0.5
        total = found[end, t] + scale[end] * _tabled(terms, grid, ahead[t])
        fate[t] = ENDED if over[t] or total > limit else LOST if lost[t] else 0
        if fate[t] == ENDED:
            rewards[t] = found[last, t] + (worth[0] if touching[0] else 0.0)
        else:
            rewards[t] = found[going, t] + found[V, t] - found[V_ahead, t]
