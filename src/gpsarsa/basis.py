"""Z and W: from the kernel differences δ of a transition to its whitened feature ψ.

The pseudo-inputs Z have the covariance K_zz = L Lᵀ, and W = L⁻¹ is kept as the one factor from
which everything else follows:

    δ = k(Z, x) − γ k(Z, x′)                               the paper's Δk
    κ = k(x, x) − 2γ k(x, x′) + γ² k(x′, x′)               the paper's Δ²k
    ψ = W δ,    τ = κ − ψᵀψ ≥ 0                            what Z cannot explain

A new z appends a row to W, a removed one leaves by Givens rotations; either costs O(M²).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dpotrf, dtrtri

from gpsarsa._linalg import (
    EPS,
    aligned,
    append_inverse_row,
    blocked,
    compiled,
    eliminate_column,
    enlarged,
    lower_times,
    product,
    square,
    transposed_product,
)
from gpsarsa._table import Table, kernel_matrix, kernel_row
from gpsarsa._validation import Array
from gpsarsa.kernels import KernelLike, diagonal, is_built_in, matrix

__all__ = ["Basis", "kernel_differences", "pivots"]

NOVELTY = 1e-10  # a pseudo-input whose conditional variance is below this share of its own is refused

ROUNDING = 100.0 * EPS  # of a variance: what its computation may err by, for each unit of condition

NOT_POSITIVE = "the kernel is not positive definite, or the pseudo-inputs lie too close together for it"

SMALL = 2**18  # products of less work are not worth the threads that triangular BLAS calls start

SCRATCH = 4  # rows of scratch that `kernel_differences` needs


@compiled
def kernel_differences(codes, values, Zt, n, X, following, gamma, delta, kappa, scratch):
    """Rows δ and entries κ for built-in kernels, all rows of X.

    Where a row's x is the x′ of the row before, its kernel row is not computed again. `scratch` has
    SCRATCH rows of at least max(n, 1) entries.
    """
    rows, columns = X.shape
    row, ahead, term, factor = scratch[0], scratch[1], scratch[2], scratch[3]
    other = np.empty((columns, 1))
    k = values[0]  # k(x, x)
    known = False  # whether `ahead` holds the kernel row of this row's x
    for t in range(rows):
        g = gamma[t]
        if known:
            for i in range(columns):
                known = known and X[t, i] == following[t - 1, i]
        if known:
            row, ahead = ahead, row
        else:
            kernel_row(codes, values, Zt, n, X, t, row, term, factor)
        known = g > 0.0
        if not known:
            kappa[t] = k
            for j in range(n):
                delta[t, j] = row[j]
            continue
        kernel_row(codes, values, Zt, n, following, t, ahead, term, factor)
        for j in range(n):
            delta[t, j] = row[j] - g * ahead[j]
        for i in range(columns):
            other[i, 0] = following[t, i]
        kernel_row(codes, values, other, other.shape[1], X, t, kappa[t : t + 1], term, factor)
        # κ = (1 − γ)² k(x, x) + 2γ (k(x, x) − k(x, x′)), which keeps its digits where x′ is near x
        kappa[t] = (1.0 - g) * (1.0 - g) * k + 2.0 * g * max(k - kappa[t], 0.0)


@compiled
def _whitened_row(codes, values, Zt, W, n, X):
    """W k(Z, x) for the single row x of X, padded with zeros."""
    work = np.zeros((4, blocked(n) + 1))
    kernel_row(codes, values, Zt, n, X, X.shape[0] - 1, work[0], work[1], work[2])
    lower_times(W, work[:1], n, work[3:])
    return work[3]


def pivots(kernel: KernelLike, X: Array, count: int, least: float = 10.0 * NOVELTY) -> list[int]:
    """The rows of X of largest conditional variance, each given those before: pivoted Cholesky of K_xx.

    At most `count`, and none of whose variance the others leave no more than the share `least`.
    """
    prior, chosen = diagonal(kernel, X), list[int]()
    left, rows = prior.copy(), np.empty((count, len(X)))
    kernel_row_of = _kernel_rows_with(kernel, X)
    for i in range(count):
        pivot = int(np.argmax(left))
        if left[pivot] <= least * prior[pivot]:
            break
        row = kernel_row_of(pivot)
        row -= rows[:i, pivot] @ rows[:i]
        row /= np.sqrt(left[pivot])
        rows[i] = row
        left = np.maximum(left - np.square(row, out=row), 0.0)
        left[pivot] = 0.0
        chosen.append(pivot)
    return chosen


def _kernel_rows_with(kernel: KernelLike, X: Array) -> Callable[[int], Array]:
    """The function i ↦ k(x_i, X); what a built-in kernel needs is laid out once."""
    if not is_built_in(kernel):
        return lambda i: matrix(kernel, X[i : i + 1], X)[0]
    table, Xt = kernel.table(X.shape[1]), np.ascontiguousarray(X.T)  # type: ignore[attr-defined]

    def row(i: int) -> Array:
        out = np.empty((1, len(X)))
        kernel_matrix(*table, Xt, len(X), X[i : i + 1], out)
        return out[0]

    return row


class Basis:
    """A set of pseudo-inputs that can grow and shrink, and the triangular factor W.

    Buffers are larger than the set and double when it outgrows them.
    """

    def __init__(self, kernel: KernelLike, columns: int) -> None:
        self.kernel = kernel
        self.columns = columns
        self.size = 0
        # None for a kernel of the user's own
        self.table: Table | None = kernel.table(columns) if is_built_in(kernel) else None  # type: ignore[attr-defined]
        self._Z = np.zeros((8, columns))
        self.Zt = aligned((columns, 8))
        self.W = square(8)
        self._trace = 0.0  # of K_zz⁻¹ = WᵀW
        self.scale = 0.0  # the largest k(z, z)

    def copy(self) -> Basis:
        return Basis.restored(self.kernel, self.Z, self.factor)

    @classmethod
    def restored(cls, kernel: KernelLike, Z: Array, W: Array) -> Basis:
        """The basis that held these arrays; its features are bit for bit the same."""
        self = cls(kernel, Z.shape[1])
        self._fill(Z, W, float(np.max(diagonal(kernel, Z), initial=0.0)))
        return self

    @classmethod
    def spanned_by(cls, kernel: KernelLike, Z: Array) -> tuple[Basis, NDArray[np.bool_]]:
        """The basis that `append` makes of Z, and which of Z it admits; all at once where it can be."""
        self = cls(kernel, Z.shape[1])
        factor, info = dpotrf(matrix(kernel, Z, Z), lower=1, clean=1) if len(Z) else (None, 1)
        if info == 0:
            W = dtrtri(factor, lower=1)[0]
            pivots = W.diagonal()
            weight = np.abs(W).sum(axis=1) / pivots  # 1 + Σ|K⁻¹k|, as in `append_inverse_row`
            variances = diagonal(kernel, Z)
            scale = np.maximum.accumulate(variances)
            least = np.maximum(NOVELTY * variances, ROUNDING * weight**2 * scale)
            if (pivots**-2.0 >= least).all():
                self._fill(Z, W, float(scale[-1]))
                return self, np.ones(len(Z), dtype=np.bool_)
        return self, self.append(Z)

    # -- what it knows ------------------------------------------------------------------------

    @property
    def Z(self) -> Array:
        """The pseudo-inputs, one a row."""
        return self._Z[: self.size]

    @property
    def factor(self) -> Array:
        """W = L⁻¹ without the spare rows."""
        return self.W[: self.size, : self.size]

    @property
    def variances(self) -> Array:
        """k(z, z)"""
        if self.table is None:
            return diagonal(self.kernel, self.Z)
        return np.full(self.size, self.table[1][0])

    @property
    def redundancy(self) -> Array:
        """A_ii k(z_i, z_i) ≥ 1: how much larger z_i's prior variance is than what the others leave of it."""
        return np.einsum("ij,ij->j", self.factor, self.factor) * self.variances

    @property
    def A(self) -> Array:
        """The paper's A = K_zz⁻¹ = WᵀW."""
        return self.factor.T @ self.factor

    def unwhiten(self, m: Array) -> Array:
        """Wᵀ m"""
        return np.asarray(self.factor.T @ m)

    def sandwich(self, R: Array) -> Array:
        """Wᵀ R W"""
        W = np.ascontiguousarray(self.factor)
        return transposed_product(W, product(R, W))

    @property
    def rounding(self) -> float:
        """How much, relative to the prior variances, rounding can take off τ: eps · cond(K_zz), but
        never a share of them that matters."""
        return min(ROUNDING * (1.0 + self._trace * self.scale), 1e-3)

    def _measure(self) -> None:
        self._trace = float(np.einsum("ij,ij->", self.factor, self.factor))

    # -- features -----------------------------------------------------------------------------

    def differences(
        self, X: Array, following: Array, gamma: Array, out: Array | None = None
    ) -> tuple[Array, Array]:
        """δ (N × M) and κ (N) of the transitions from X to `following`; δ in `out` if given."""
        kappa = np.empty(len(X))
        delta = np.empty((len(X), self.size)) if out is None else out[: len(X)]
        if self.table is not None:
            scratch = np.empty((SCRATCH, self.size + 1))
            kernel_differences(*self.table, self.Zt, self.size, X, following, gamma, delta, kappa, scratch)
            return delta, kappa
        k, Z = self.kernel, self.Z
        delta[:], kappa[:] = matrix(k, X, Z), diagonal(k, X)
        on = np.flatnonzero(gamma)
        if len(on):
            g, Y = gamma[on], following[on]
            delta[on] -= g[:, None] * matrix(k, Y, Z)
            prior = kappa[on] + g * g * diagonal(k, Y)
            pairs = [matrix(k, X[i : i + 1], following[i : i + 1])[0, 0] for i in on]
            kappa[on] = prior - 2.0 * g * np.array(pairs)
            if (kappa[on] < -1e-8 * prior).any():
                raise ArithmeticError("the variance of Q(x) − γ Q(x′) is negative: " + NOT_POSITIVE)
        return delta, np.maximum(kappa, 0.0)

    def differences_by_block(
        self, X: Array, following: Array, gamma: Array
    ) -> Iterator[tuple[slice, Array, Array]]:
        """(rows, δ, κ) block after block; δ may be overwritten and lasts until the next block."""
        buffer = None
        for rows in self.blocks(len(X)):
            if buffer is None:
                buffer = np.empty((rows.stop - rows.start, self.size))
            yield rows, *self.differences(X[rows], following[rows], gamma[rows], buffer)

    def kernel_rows(self, X: Array) -> Array:
        """k(X, Z)"""
        if self.table is None:
            return matrix(self.kernel, X, self.Z)
        out = np.empty((len(X), self.size))
        kernel_matrix(*self.table, self.Zt, self.size, X, out)
        return out

    def whiten(self, delta: Array) -> Array:
        """Ψ = Δ Wᵀ, row by row ψ = W δ; may overwrite its argument."""
        if len(delta) * self.size**2 < SMALL:
            return delta @ self.factor.T
        return dtrmm(1.0, self.W.T, delta.T, trans_a=1, overwrite_b=1).T

    def unwhiten_rows(self, Psi_bar: Array) -> Array:
        """Ψ̄ W, row by row Wᵀ ψ̄: the adjoint of `whiten`; may overwrite its argument."""
        if len(Psi_bar) * self.size**2 < SMALL:
            return Psi_bar @ self.factor
        return dtrmm(1.0, self.W.T, Psi_bar.T, overwrite_b=1).T

    def conditional(self, x: Array) -> tuple[Array, float, float]:
        """ℓ = W k(Z, x) and ρ = k(x, x) − ℓᵀℓ ≥ 0 of a single input, and k(x, x)."""
        row = x[None]
        if self.table is None:
            ell = self.whiten(self.kernel_rows(row))
            return ell[0], float(self.unexplained(row, ell)[0]), float(diagonal(self.kernel, row)[0])
        ell = _whitened_row(*self.table, self.Zt, self.W, self.size, row)[: self.size]
        prior = float(self.table[1][0])
        return ell, max(prior - float(ell @ ell), 0.0), prior

    def unexplained(self, X: Array, Psi: Array, first: int = 0) -> Array:
        """k(x, x) − ψᵀψ ≥ 0 for each row, ψ = W k(Z, x): the prior variance that Z leaves.

        `first` is the number of the first row, for the error message.
        """
        prior = diagonal(self.kernel, X)
        left = prior - np.einsum("ij,ij->i", Psi, Psi)
        if (left < -self.rounding * prior).any():
            row = int(np.argmin(left / prior))
            raise ArithmeticError(
                f"the prior variance at X[{first + row}] is {prior[row]}, but the pseudo-inputs explain "
                f"{prior[row] - left[row]}, more than rounding allows: {NOT_POSITIVE}"
            )
        return np.maximum(left, 0.0)

    def unexplained_covariance(self, X: Array, Psi: Array) -> Array:
        """k(X, X) − ΨΨᵀ, with the diagonal of `unexplained`."""
        left = matrix(self.kernel, X, X) - Psi @ Psi.T
        np.fill_diagonal(left, self.unexplained(X, Psi))
        return 0.5 * (left + left.T)

    def newest_features(self, delta: Array, count: int) -> Array:
        """The last `count` columns of Ψ, without the others."""
        return np.asarray(delta @ self.factor[self.size - count :].T)

    def blocks(self, n: int) -> Iterator[slice]:
        """Slices of n rows whose features fill about a megabyte, the second-level cache."""
        step = max(64, 2**17 // max(self.size, 16))
        return (slice(lo, min(lo + step, n)) for lo in range(0, n, step))

    # -- growing and shrinking ----------------------------------------------------------------

    def append(self, Z: Array) -> NDArray[np.bool_]:
        """Admit each row of Z that the ones before do not already determine.

        ℓ = W k(Z, z), ρ = k(z, z) − ℓᵀℓ, W ← [[W, 0], [−ℓᵀW/√ρ, 1/√ρ]]; a z with
        ρ < 1e-10 k(z, z), or with a ρ that is lost in rounding, is refused: K_zz would be singular in
        double precision.
        """
        admitted = np.zeros(len(Z), dtype=np.bool_)
        variances = diagonal(self.kernel, Z)
        before = self.size
        try:
            self._admit(Z, variances, admitted)
        except BaseException:  # a user's own kernel may fail on any z
            self.truncate(before)
            raise
        return admitted

    def _admit(self, Z: Array, variances: Array, admitted: NDArray[np.bool_]) -> None:
        for i in range(len(Z)):
            M = self.size
            self._reserve(M + 1)
            k = np.zeros(len(self.W))
            k[:M] = self.kernel_rows(Z[i : i + 1])[0]
            scale = max(self.scale, float(variances[i]))
            admitted[i] = append_inverse_row(self.W, k, variances[i], M, NOVELTY * variances[i], scale)
            if admitted[i]:
                self._Z[M] = Z[i]
                self.Zt[:, M] = Z[i]
                self.size += 1
                self._trace += float(self.W[M] @ self.W[M])
                self.scale = scale

    def projection(self, old: Basis) -> Array:
        """T = W k(Z, Z_old) W_oldᵀ: prior covariances of these whitened values with the old ones."""
        return product(np.ascontiguousarray(self.factor), old.whiten(old.kernel_rows(self.Z)))

    def _fill(self, Z: Array, W: Array, scale: float) -> None:
        M = len(Z)
        self._reserve(M)
        self._Z[:M], self.Zt[:, :M], self.W[:M, :M] = Z, Z.T, W
        self.size, self.scale = M, scale
        self._measure()

    def truncate(self, size: int) -> None:
        """Drop the newest pseudo-inputs until `size` are left."""
        self.W[size : self.size] = 0.0
        self.size = size
        self._measure()

    def remove(self, index: int) -> tuple[Array, Array]:
        """Drop one pseudo-input; returns the rotations (cosines, sines) that did it."""
        M = self.size
        cosines, sines = np.zeros(M), np.zeros(M)
        eliminate_column(self.W, index, M, cosines, sines)
        self._Z[index : M - 1] = self._Z[index + 1 : M]
        self.Zt[:, : M - 1] = self._Z[: M - 1].T
        self.size = M - 1
        self._measure()
        return cosines, sines

    def _reserve(self, size: int) -> None:
        if size > len(self.W):
            self.W = enlarged(self.W, size)
            Z = self.Z
            self._Z, self.Zt = np.zeros((len(self.W), self.columns)), aligned((self.columns, len(self.W)))
            self._Z[: len(Z)], self.Zt[:, : len(Z)] = Z, Z.T
