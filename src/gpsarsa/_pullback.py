"""Adjoints of the compiled kernel functions: from ∂F/∂k back to the inputs and the kernel's table.

For each base kernel φ of the scaled distance r² = Σ ((z_c − x_c) s_c)², with s the inverse
lengthscales, ∂φ/∂r² is known in closed form, and

    ∂r²/∂z_c = 2 (z_c − x_c) s_c²,    ∂r²/∂s_c = 2 (z_c − x_c)² s_c.

All functions add to the arrays that receive the gradients: `values_bar` in the layout of the table's
values, where entry 0 stands for k(x, x), and `Zt_bar` with one pseudo-input a column.
"""

from __future__ import annotations

import math

import numpy as np

from gpsarsa._linalg import compiled
from gpsarsa._table import DELTA, MATERN32, RBF, Table, exp, squared_distances
from gpsarsa._validation import Array

__all__ = ["pull_differences", "pull_matrix", "scratch_for"]


def scratch_for(table: Table, n: int) -> Array:
    """Scratch rows for kernel rows of n entries: two a factor, and four more."""
    codes, factors, c = table[0], 0, 1
    for _ in range(codes[0]):
        factors, own = max(factors, codes[c]), codes[c]
        c += 1
        for _ in range(own):
            c += 2 + codes[c + 1]
    return np.empty((2 * factors + 4, n + 1))


@compiled
def _factor_and_slope(kind, codes, values, c, v, n_columns, Zt, n, X, t, phi, slope):
    """phi[j] = base kernel of z_j and X[t]; slope[j] = its derivative by r², for DELTA by the share."""
    if kind == DELTA:
        for j in range(n):
            slope[j] = 0.0
        for i in range(n_columns):
            column = codes[c + i]
            x = X[t, column]
            for j in range(n):
                slope[j] = slope[j] if Zt[column, j] == x else 1.0
        share = values[v]
        for j in range(n):
            phi[j] = 1.0 - slope[j] * (1.0 - share)
        return
    squared_distances(codes, values, c, v, n_columns, Zt, n, X, t, phi)
    if kind == RBF:
        for j in range(n):
            phi[j] = exp(-0.5 * phi[j])
            slope[j] = -0.5 * phi[j]
    elif kind == MATERN32:
        for j in range(n):
            s = min(math.sqrt(3.0 * phi[j]), 708.0)
            e = exp(-s)
            phi[j] = (1.0 + s) * e
            slope[j] = -1.5 * e
    else:
        for j in range(n):
            s = min(math.sqrt(5.0 * phi[j]), 708.0)
            e = exp(-s)
            phi[j] = (1.0 + s + s * s / 3.0) * e
            slope[j] = (-5.0 / 6.0) * (1.0 + s) * e


@compiled
def _pull_distances(codes, values, c, v, n_columns, Zt, n, X, t, bar, values_bar, Zt_bar):
    """bar[j] = ∂F/∂r²_j, pulled back to the inverse lengthscales and to Z."""
    for i in range(n_columns):
        column, inverse = codes[c + i], values[v + i]
        x, total = X[t, column], 0.0
        for j in range(n):
            u = Zt[column, j] - x
            h = 2.0 * inverse * u * bar[j]
            total += h * u
            Zt_bar[column, j] += h * inverse
        values_bar[v + i] += total


@compiled
def pull_row(codes, values, Zt, n, X, t, weights, values_bar, Zt_bar, scratch):
    """Add Σ_j weights[j] ∂k(z_j, X[t]) to both gradients; uses scratch rows 4…"""
    c, v = 1, 1
    for _ in range(codes[0]):
        n_factors, variance, at = codes[c], values[v], v
        c, v = c + 1, v + 1
        first_c, first_v = c, v
        for f in range(n_factors):
            kind, n_columns = codes[c], codes[c + 1]
            c += 2
            _factor_and_slope(
                kind, codes, values, c, v, n_columns, Zt, n, X, t, scratch[4 + 2 * f], scratch[5 + 2 * f]
            )
            c += n_columns
            v += 1 if kind == DELTA else n_columns
        bar, c, v = scratch[3], first_c, first_v
        for f in range(n_factors):
            kind, n_columns = codes[c], codes[c + 1]
            c += 2
            phi, slope = scratch[4 + 2 * f], scratch[5 + 2 * f]
            for j in range(n):
                bar[j] = weights[j]
            for other in range(n_factors):
                if other != f:
                    for j in range(n):
                        bar[j] *= scratch[4 + 2 * other, j]
            if f == 0:
                total = 0.0
                for j in range(n):
                    total += bar[j] * phi[j]
                values_bar[at] += total
            for j in range(n):
                bar[j] *= variance * slope[j]
            if kind == DELTA:
                total = 0.0
                for j in range(n):
                    total += bar[j]
                values_bar[v] += total
                v += 1
            else:
                _pull_distances(codes, values, c, v, n_columns, Zt, n, X, t, bar, values_bar, Zt_bar)
                v += n_columns
            c += n_columns


@compiled
def pull_matrix(codes, values, At, n, B, weights, values_bar, At_bar, scratch):
    """Add Σ_ij weights[i, j] ∂k(B_i, a_j), the a_j being the first n columns of At."""
    for i in range(B.shape[0]):
        pull_row(codes, values, At, n, B, i, weights[i], values_bar, At_bar, scratch)


@compiled
def pull_differences(
    codes, values, Zt, n, X, following, gamma, delta_bar, kappa_bar, values_bar, Zt_bar, scratch
):
    """The adjoint of `basis.kernel_differences`: from ∂F/∂δ and ∂F/∂κ to the gradients.

    Where a row's x is the x′ of the row before, both are pulled back together.
    """
    rows, columns = X.shape
    other, ignored = np.empty((columns, 1)), np.zeros((columns, 1))
    weights, single = scratch[0], scratch[1]
    for t in range(rows):
        g, bar = gamma[t], kappa_bar[t]
        for j in range(n):
            weights[j] = delta_bar[t, j]
        if t > 0 and gamma[t - 1] > 0.0:
            before, same = gamma[t - 1], True
            for i in range(columns):
                same = same and X[t, i] == following[t - 1, i]
            if same:
                for j in range(n):
                    weights[j] -= before * delta_bar[t - 1, j]
            else:
                _pull_next(
                    codes, values, Zt, n, following, t - 1, before, delta_bar, values_bar, Zt_bar, scratch
                )
        pull_row(codes, values, Zt, n, X, t, weights, values_bar, Zt_bar, scratch)
        values_bar[0] += bar * (1.0 + g * g)
        if g > 0.0:
            for i in range(columns):
                other[i, 0] = following[t, i]
            single[0] = -2.0 * g * bar
            pull_row(codes, values, other, other.shape[1], X, t, single, values_bar, ignored, scratch)
    if rows > 0 and gamma[rows - 1] > 0.0:
        g = gamma[rows - 1]
        _pull_next(codes, values, Zt, n, following, rows - 1, g, delta_bar, values_bar, Zt_bar, scratch)


@compiled
def _pull_next(codes, values, Zt, n, following, t, gamma, delta_bar, values_bar, Zt_bar, scratch):
    """The part −γ k(Z, x′) of row t's δ."""
    weights = scratch[2]
    for j in range(n):
        weights[j] = -gamma * delta_bar[t, j]
    pull_row(codes, values, Zt, n, following, t, weights, values_bar, Zt_bar, scratch)
