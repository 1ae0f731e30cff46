"""The log evidence of a model and its exact gradient.

With Λ the noise of the rewards (for FITC including what Z cannot explain) and C = ΨΨᵀ + Λ their
covariance, F = log N(r; 0, C). The adjoint method needs the posterior N(m, R) and, per transition,

    a = Λ⁻¹(r − Ψm),   y = Λ⁻¹ψ,   Q = aaᵀ − C⁻¹,   g = 2 ∂F/∂τ = diag(Q) for FITC, 0 for DTC,

from which follow, a block of transitions at a time,

    ∂F/∂δ = Wᵀ(a m − R y − g ψ),   ∂F/∂κ = g/2,   ∂F/∂μ₀ = Σ a (1 − γ),   ∂F/∂σ² = ½ tr(Q ∂Λ/∂σ²),
    ∂F/∂K_zz = −½ Wᵀ(m mᵀ − I + R − Σ g ψψᵀ) W,

and each kernel pulls ∂F/∂δ, ∂F/∂κ and ∂F/∂K_zz back to Z and its own parameters (`_pullback`).
O(NM²) time; beside a few numbers a transition, memory for one block of features, or for those of up
to 64 MiB of transitions.

Titsias' variational bound is the DTC evidence minus tr(Σ⁻¹(K_rr − ΨΨᵀ))/2. For iid noise the trace is
Σ τ/σ², so that g = −1/σ². For correlated noise, Σ = σ²HHᵀ, it is at most Σ ρ/σ² over the inputs
visited, ρ being what Z leaves of each Q(x)'s variance, with equality for terminated episodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from gpsarsa import _validation as check
from gpsarsa._linalg import EPS, compiled, product, symmetrised, transposed_product
from gpsarsa._pullback import pull_differences, pull_matrix, scratch_for
from gpsarsa._step import explain_row
from gpsarsa._table import Table, kernel_matrix
from gpsarsa._validation import Array
from gpsarsa.basis import Basis
from gpsarsa.kernels import Kernel, checked_kernel, is_built_in
from gpsarsa.statistics import Likelihood, Refused, Statistics
from gpsarsa.transitions import Transitions

__all__ = ["Gradient", "exact_evidence", "log_evidence", "noise_covariance", "sparse_evidence"]


CURE = "increase noise_variance, or check that the kernel is positive definite"

KEEP = 2**23  # features of no more numbers than this (64 MiB) are kept from the first pass for the second


@dataclass(frozen=True)
class Gradient:
    """∂ log evidence by every parameter; `kernel` has the names of `kernel.parameters`."""

    pseudo_inputs: Array
    kernel: dict[str, Any]
    noise_variance: float
    prior_mean: float


def log_evidence(
    kernel: Kernel,
    noise_variance: float,
    pseudo_inputs: Any,
    transitions: Transitions,
    *,
    weights: str = "fitc",
    noise: str = "iid",
    prior_mean: float = 0.0,
    objective: str = "evidence",
    gradient: bool = False,
) -> Any:
    """log p(rewards) of a sparse model; with `gradient` the pair (value, Gradient).

    `pseudo_inputs` None is the exact model. `objective="variational"` is Titsias' lower bound on the
    exact model's evidence; `weights` have no part in it.
    """
    if not isinstance(transitions, Transitions):
        raise TypeError(f"transitions is a {type(transitions).__name__}; expected Transitions")
    gradient = check.flag(gradient, "gradient")
    if gradient or pseudo_inputs is None:
        require_gradient(kernel)
    checked_kernel(kernel)
    variational = check.one_of(objective, "objective", ("evidence", "variational")) == "variational"
    likelihood = Likelihood(
        check.noise_variance(noise_variance),
        check.one_of(weights, "weights", ("fitc", "dtc")) == "fitc",
        check.one_of(noise, "noise", ("iid", "correlated")) == "correlated",
        check.number(prior_mean, "prior_mean"),
    )
    if pseudo_inputs is None and variational:
        raise ValueError(
            "objective = 'variational' is of sparse models; pseudo_inputs is None, the exact one"
        )
    if pseudo_inputs is None:
        value, slopes = exact_evidence(kernel, transitions, likelihood)
    else:
        Z = check.rows(pseudo_inputs, "pseudo_inputs", transitions.columns)
        if not gradient:
            return _Sums(Basis.spanned_by(kernel, Z)[0], transitions, likelihood, variational).value
        value, slopes = sparse_evidence(kernel, Z, transitions, likelihood, variational)
    return (value, slopes) if gradient else value


def require_gradient(kernel: Any) -> Kernel:
    """The kernel, if it is one whose derivatives are known."""
    if not is_built_in(kernel):
        raise TypeError(
            f"the derivatives of {kernel!r} are not known: learning needs a kernel of gpsarsa.kernels; "
            "compose one from RBF, Matern32, Matern52 and Delta by + and *"
        )
    return kernel


# -- the sparse model -------------------------------------------------------------------------


def sparse_evidence(
    kernel: Kernel, Z: Array, t: Transitions, likelihood: Likelihood, variational: bool = False
) -> tuple[float, Gradient]:
    """The log evidence, or the variational bound, and its gradient.

    A pseudo-input that the others determine is left out, as the model would; its gradient is 0.
    """
    basis, admitted = Basis.spanned_by(kernel, Z)
    sums = _Sums(basis, t, likelihood, variational)
    value = sums.value
    values_bar, Zt_bar, sigma2_bar, mean_bar = sums.gradient()
    Z_bar = np.zeros(Z.shape)
    Z_bar[admitted] = Zt_bar[:, : basis.size].T
    return value, Gradient(Z_bar, kernel.gradient(t.columns, values_bar), sigma2_bar, mean_bar)


class _Sums:
    """Two passes over the transitions: forwards for the posterior, backwards for the gradient."""

    def __init__(self, basis: Basis, t: Transitions, likelihood: Likelihood, variational: bool) -> None:
        if variational:
            likelihood = replace(likelihood, fitc=False)
        self.basis, self.t, self.likelihood, self.variational = basis, t, likelihood, variational
        statistics = Statistics(basis.size)
        self.taus = np.empty(len(t))
        self.blocks = list(basis.blocks(len(t)))
        self.before: list[tuple[Array, float]] = []  # L⁻¹ψ and L⁻¹r of the row before each block
        self.kept: list[Array] | None = [] if len(t) * basis.size <= KEEP else None
        for rows in self.blocks:
            self.before.append((statistics._before.copy(), float(statistics._chain[0])))
            try:
                self.taus[rows] = statistics.accumulate(basis, t[rows], likelihood, keep=self.kept)
            except Refused as refused:
                explain_row(refused.answer, rows.start + refused.row, t)
        self.belief, self.gram = statistics.posterior(likelihood), statistics.gram
        self.value = self.belief.log_evidence
        if variational:
            self.trace = self._unexplained() if likelihood.correlated else float(self.taus.sum())
            self.value -= 0.5 * self.trace / likelihood.noise_variance

    def _features(self, rows: slice) -> Array:
        """Ψ of one block."""
        X, _, following, discounts, _ = self.t._arrays
        return self.basis.whiten(self.basis.differences(X[rows], following[rows], discounts[rows])[0])

    def _unexplained(self) -> float:
        """Σ ρ over the inputs visited."""
        basis, self.points = self.basis, _visited(self.t)
        return sum(
            float(basis.unexplained(X, basis.whiten(basis.kernel_rows(X))).sum())
            for X in (self.points[rows] for rows in basis.blocks(len(self.points)))
        )

    def gradient(self) -> tuple[Array, Array, float, float]:
        """∂F by the table's values, Z (one a column), σ² and μ₀."""
        basis, belief, t = self.basis, self.belief, self.t
        assert basis.table is not None
        M, sigma2 = basis.size, self.likelihood.noise_variance
        X, rewards, following, discounts, starts = t._arrays
        m, R = belief.mean, belief.covariance
        factors = _noise_factor(
            self.taus, discounts, starts, sigma2, self.likelihood.fitc, self.likelihood.correlated
        )
        scratch = scratch_for(basis.table, M)
        values_bar, Zt_bar = np.zeros(len(basis.table[1])), np.zeros((basis.columns, M + 1))
        slack = -1.0 / sigma2 if self.variational and not self.likelihood.correlated else 0.0
        # Σ g ψψᵀ; for the bound with iid noise it is what S is made of
        gram, totals = -symmetrised(self.gram, M) if slack else np.zeros((M, M)), np.zeros(2)
        after = np.zeros((2, M))  # y and R y of the row after the block,
        after_a = np.zeros(1)  # and its a
        for rows, (before, before_r) in zip(reversed(self.blocks), reversed(self.before), strict=True):
            gamma = discounts[rows]
            Psi = self.kept.pop() if self.kept else self._features(rows)
            Y, a = Psi.copy(), rewards[rows] - self.likelihood.prior_mean * (1.0 - gamma) - product(Psi, m)
            _solve_noise(Y, a, factors, rows.start, before, before_r - float(before @ m), after, after_a)
            bar = product(Y, R)
            g = np.full(len(a), slack)
            _adjoints(
                Psi, Y, bar, a, m, g, factors, rows.start, gamma, self.likelihood.fitc,
                self.likelihood.correlated, after, after_a, totals,
            )  # fmt: skip
            if self.likelihood.fitc:
                gram += transposed_product(Y, Psi)  # Y now holds gψ
            pull_differences(
                *basis.table, basis.Zt, M, X[rows], following[rows], gamma, basis.unwhiten_rows(bar), 0.5 * g,
                values_bar, Zt_bar, scratch,
            )  # fmt: skip
        if self.variational:
            totals[0] += self.trace / sigma2**2
            if self.likelihood.correlated:
                self._pull_unexplained(-1.0 / sigma2, gram, values_bar, Zt_bar, scratch)
        self._pull_prior(m, R, gram, values_bar, Zt_bar, scratch)
        return values_bar, Zt_bar, 0.5 * float(totals[0]), float(totals[1])

    def _pull_unexplained(
        self, g: float, gram: Array, values_bar: Array, Zt_bar: Array, scratch: Array
    ) -> None:
        """The part ½ g Σ ρ: as of rows with γ = 0 that have no reward."""
        basis = self.basis
        assert basis.table is not None
        for rows in basis.blocks(len(self.points)):
            X = self.points[rows]
            Psi = basis.whiten(basis.kernel_rows(X))
            gram += g * transposed_product(Psi, Psi)
            pull_differences(
                *basis.table, basis.Zt, basis.size, X, X, np.zeros(len(X)), basis.unwhiten_rows(-g * Psi),
                np.full(len(X), 0.5 * g), values_bar, Zt_bar, scratch,
            )  # fmt: skip

    def _pull_prior(
        self, m: Array, R: Array, gram: Array, values_bar: Array, Zt_bar: Array, scratch: Array
    ) -> None:
        """∂F/∂K_zz = −½ Wᵀ(m mᵀ − I + R − Σ g ψψᵀ) W, pulled back."""
        basis, M = self.basis, self.basis.size
        assert basis.table is not None
        K_bar = -0.5 * basis.sandwich(np.outer(m, m) - np.eye(M) + R - 0.5 * (gram + gram.T))
        own = np.zeros(Zt_bar.shape)
        pull_matrix(*basis.table, basis.Zt, M, basis.Z.copy(), K_bar, values_bar, own, scratch)
        Zt_bar += 2.0 * own  # each z is in a row and in a column of K_zz


def _visited(t: Transitions) -> Array:
    """Every x, and every x′ that is not the x of the row after."""
    ends = t.discounts > 0.0
    apart = (t.inputs[1:] != t.next_inputs[:-1]).any(axis=1) & ~t.starts[1:]
    if (apart & ends[:-1]).any():
        row = int(np.argmax(apart & ends[:-1])) + 1
        raise ValueError(
            f"starts[{row}] is False, but inputs[{row}] is not next_inputs[{row - 1}]: the variational bound "
            "with correlated noise needs unbroken paths; use objective='evidence'"
        )
    ends[:-1] &= t.starts[1:]
    return np.concatenate([t.inputs, t.next_inputs[ends]])


PIVOT, COUPLING, DIAGONAL, BESIDE = range(4)  # rows of what `_noise_factor` returns


@compiled
def _noise_factor(taus, gamma, starts, sigma2, fitc, correlated):
    """Λ = L Lᵀ with L bidiagonal, and the tridiagonal part of Λ⁻¹, for all rows and one beyond.

    Row t of L is (…, coupling, pivot); BESIDE is (Λ⁻¹)_{t,t−1}.
    """
    n = len(taus)
    out = np.zeros((4, n + 1))
    for t in range(n):
        variance = sigma2 + (taus[t] if fitc else 0.0)
        if correlated:
            variance += gamma[t] * gamma[t] * sigma2
            if t > 0 and not starts[t]:
                out[COUPLING, t] = -gamma[t - 1] * sigma2 / out[PIVOT, t - 1]
                variance -= out[COUPLING, t] * out[COUPLING, t]
        out[PIVOT, t] = math.sqrt(variance)
    for t in range(n - 1, -1, -1):
        pivot, coupling = out[PIVOT, t], out[COUPLING, t + 1]
        ratio = coupling / pivot
        out[DIAGONAL, t] = 1.0 / (pivot * pivot) + ratio * ratio * out[DIAGONAL, t + 1]
        out[BESIDE, t + 1] = -ratio * out[DIAGONAL, t + 1]
    return out


@compiled
def _solve_noise(Y, a, factors, first, before, before_e, after, after_a):
    """Y ← Λ⁻¹Y, a ← Λ⁻¹a for the block whose first row is number `first`.

    `before` and `before_e` are L⁻¹ψ and L⁻¹e of the row before it, `after[0]` and `after_a[0]` are
    Λ⁻¹ψ and Λ⁻¹e of the row after it.
    """
    rows, n = Y.shape
    for t in range(rows):
        inverse, coupling = 1.0 / factors[PIVOT, first + t], factors[COUPLING, first + t]
        if coupling != 0.0:
            if t == 0:
                a[t] -= coupling * before_e
                for j in range(n):
                    Y[t, j] -= coupling * before[j]
            else:
                a[t] -= coupling * a[t - 1]
                for j in range(n):
                    Y[t, j] -= coupling * Y[t - 1, j]
        a[t] *= inverse
        for j in range(n):
            Y[t, j] *= inverse
    for t in range(rows - 1, -1, -1):
        inverse, coupling = 1.0 / factors[PIVOT, first + t], factors[COUPLING, first + t + 1]
        if coupling != 0.0:
            if t == rows - 1:
                a[t] -= coupling * after_a[0]
                for j in range(n):
                    Y[t, j] -= coupling * after[0, j]
            else:
                a[t] -= coupling * a[t + 1]
                for j in range(n):
                    Y[t, j] -= coupling * Y[t + 1, j]
        a[t] *= inverse
        for j in range(n):
            Y[t, j] *= inverse


@compiled
def _adjoints(Psi, Y, bar, a, m, g, factors, first, gamma, fitc, correlated, after, after_a, totals):
    """bar: Ry → a m − Ry − gψ; Y: y → gψ; g ← diag(Q) for FITC.

    Adds tr(Q ∂Λ/∂σ²) to totals[0], Σ a(1 − γ) to totals[1]. `after` and `after_a` enter as y, Ry and
    a of the row after the block and leave as those of its first row.
    """
    rows, n = Psi.shape
    for t in range(rows - 1, -1, -1):
        q = a[t] * a[t] - factors[DIAGONAL, first + t]
        for j in range(n):
            q += Y[t, j] * bar[t, j]
        totals[1] += a[t] * (1.0 - gamma[t])
        if correlated:
            totals[0] += q * (1.0 + gamma[t] * gamma[t])
            if factors[COUPLING, first + t + 1] != 0.0:  # row t + 1 continues row t
                beside = a[t] * after_a[0] - factors[BESIDE, first + t + 1]
                for j in range(n):
                    beside += Y[t, j] * after[1, j]
                totals[0] -= 2.0 * gamma[t] * beside
            after_a[0] = a[t]
            for j in range(n):
                after[0, j] = Y[t, j]
                after[1, j] = bar[t, j]
        else:
            totals[0] += q
        if fitc:
            g[t] = q
        weight, own = a[t], g[t]
        for j in range(n):
            scaled = own * Psi[t, j]
            bar[t, j] = weight * m[j] - bar[t, j] - scaled
            Y[t, j] = scaled


# -- the exact model --------------------------------------------------------------------------


def noise_covariance(t: Transitions, noise_variance: float, correlated: bool, first: int = 0) -> Array:
    """Columns `first`… of Σ: σ²I, or tridiagonal σ²HHᵀ within episodes."""
    n, gamma = len(t), t.discounts
    columns = np.arange(first, n)
    Sigma = np.zeros((n, n - first))
    Sigma[columns, columns - first] = noise_variance * (1.0 + gamma[first:] ** 2 if correlated else 1.0)
    if correlated:
        linked = np.flatnonzero(~t.starts[1:]) + 1  # row j continues row j − 1
        for j in linked[linked >= first]:
            Sigma[j - 1, j - first] = -gamma[j - 1] * noise_variance
            if j - 1 >= first:
                Sigma[j, j - 1 - first] = Sigma[j - 1, j - first]
    return Sigma


def require_definite(factor: Array, info: int) -> None:
    """Refuse the Cholesky factor of a covariance, with LAPACK's `info`, that is lost in rounding."""
    pivots, variances = factor.diagonal() ** 2, np.einsum("ij,ij->i", factor, factor)
    lost = pivots < 4.0 * EPS * variances
    if info or lost.any():
        row = info - 1 if info else int(np.argmax(lost))
        raise ArithmeticError(f"the rewards' covariance is not positive definite at row {row}: {CURE}")


def exact_evidence(kernel: Kernel, t: Transitions, likelihood: Likelihood) -> tuple[float, Gradient]:
    """The exact model's log evidence and gradient: ∂F = ½ tr(Q ∂(K_rr + Σ)). O(N³)."""
    n, (X, rewards, following, gamma, _) = len(t), t._arrays
    table = kernel.table(t.columns)
    Xt, Yt = np.ascontiguousarray(X.T), np.ascontiguousarray(following.T)
    unit_noise = noise_covariance(t, 1.0, likelihood.correlated)
    K = (
        _matrix(table, Xt, X)
        - gamma[:, None] * _matrix(table, Xt, following)
        - _matrix(table, Yt, X) * gamma
        + np.outer(gamma, gamma) * _matrix(table, Yt, following)
    )
    factor, info = dpotrf(K + likelihood.noise_variance * unit_noise, lower=1, clean=1) if n else (K, 0)
    if n:
        require_definite(factor, info)
    inverse = symmetrised(dpotri(factor, lower=1)[0], n) if n else K
    r = rewards - likelihood.prior_mean * (1.0 - gamma)
    with np.errstate(over="ignore", invalid="ignore"):
        a = inverse @ r
        square = float(r @ a)
    if not math.isfinite(square):
        row = int(np.argmax(np.abs(rewards)))
        raise ValueError(f"rewards[{row}] = {rewards[row]} overflows the evidence; rescale the rewards")
    value = -float(np.log(factor.diagonal()).sum()) - 0.5 * (n * math.log(2 * math.pi) + square)
    Q = np.outer(a, a) - inverse
    values_bar, unused, scratch = np.zeros(len(table[1])), np.zeros(Xt.shape), scratch_for(table, n)
    for At, B, weights in (
        (Xt, X, 0.5 * Q),
        (Xt, following, -gamma[:, None] * Q),
        (Yt, following, 0.5 * np.outer(gamma, gamma) * Q),
    ):
        pull_matrix(*table, At, n, B, weights, values_bar, unused, scratch)
    slopes = Gradient(
        np.empty((0, t.columns)),
        kernel.gradient(t.columns, values_bar),
        0.5 * float(np.einsum("ij,ij->", Q, unit_noise)),
        float(a @ (1.0 - gamma)),
    )
    return value, slopes


def _matrix(table: Table, At: Array, B: Array) -> Array:
    out = np.empty((len(B), At.shape[1]))
    kernel_matrix(*table, At, At.shape[1], B, out)
    return out
