"""The compiled posterior at a few inputs: what an agent asks before every step.

With ψ = W k(Z, x): mean ψᵀm, variance k(x, x) − ψᵀψ + ψᵀRψ. For many rows the matrix products of
`Basis` and `Belief` are faster.
"""

from __future__ import annotations

import numpy as np

from gpsarsa._linalg import blocked, compiled, lower_times, lower_transposed_times, symmetric_times
from gpsarsa._pullback import pull_row
from gpsarsa._table import kernel_row

__all__ = ["FEW", "moments", "slopes"]

FEW = 32  # rows up to which these loops are used


@compiled
def moments(codes, values, Zt, W, m, R, n, X, with_variance, rounding, mean, variance):
    """Fill `mean` and, if wanted, `variance` for the rows of X.

    Returns the first row at which Z explains more than the prior variance and `rounding`, or −1.
    """
    rows, width = X.shape[0], blocked(n + 1)
    work = np.zeros((2 * rows + 3, width))
    k, Psi, q = work[:rows], work[rows : 2 * rows], work[2 * rows]
    for t in range(rows):
        kernel_row(codes, values, Zt, n, X, t, k[t], work[2 * rows + 1], work[2 * rows + 2])
    lower_times(W, k, n, Psi)
    prior = values[0]
    for t in range(rows):
        psi, total = Psi[t], 0.0
        for j in range(n):
            total += psi[j] * m[j]
        mean[t] = total
        if with_variance:
            left, kept = prior, 0.0
            symmetric_times(R, psi, n, q)
            for j in range(n):
                left -= psi[j] * psi[j]
                kept += psi[j] * q[j]
            if left < -rounding * prior:
                return t
            variance[t] = max(left, 0.0) + max(kept, 0.0)
    return -1


@compiled
def slopes(codes, values, Zt, W, m, R, n, X, bonus, scratch, out):
    """out[t, c] = ∂/∂x_c (mean + bonus · standard deviation) at the rows x of X.

    Both are sums over k(z_j, x) with weights Wᵀm and, for the deviation s, Wᵀ(R − I)ψ/s; columns that a
    Delta compares have no slope. `scratch` is that of `_pullback`.
    """
    rows, columns = X.shape
    width = blocked(n + 1)
    work = np.zeros((6, width))
    k, psi, q, weights = work[0], work[1], work[2], work[3]
    ignored, pulled = np.zeros(values.shape[0]), np.zeros((columns, width))
    for t in range(rows):
        kernel_row(codes, values, Zt, n, X, t, k, work[4], work[5])
        lower_times(W, k.reshape(1, -1), n, work[1:2])
        if bonus != 0.0:
            symmetric_times(R, psi, n, q)
            variance = values[0]
            for j in range(n):
                variance += psi[j] * (q[j] - psi[j])
            scale = bonus / np.sqrt(max(variance, 1e-300))
            for j in range(n):
                q[j] = m[j] + scale * (q[j] - psi[j])
        else:
            for j in range(n):
                q[j] = m[j]
        lower_transposed_times(W, q, n, weights)
        for c in range(columns):
            for j in range(n):
                pulled[c, j] = 0.0
        pull_row(codes, values, Zt, n, X, t, weights, ignored, pulled, scratch)
        for c in range(columns):
            total = 0.0
            for j in range(n):
                total -= pulled[c, j]  # k depends on x − z
            out[t, c] = total
