"""What a batch of transitions says about w, as sums over transitions.

With the noise of a block factorised as L Lᵀ (diagonal for iid noise, bidiagonal L for correlated
noise), each row is divided by its noise, Ψ̃ = L⁻¹Ψ and r̃ = L⁻¹r, and

    S = I + Σ ψ̃ψ̃ᵀ,   v = Σ ψ̃r̃,   R = S⁻¹,   m = R v
    log evidence = −½ (N log 2π + log|LLᵀ| + Σ r̃² + log|S| − vᵀR v).

Every term is a sum, so blocks, files and machines can be added up in any order; with correlated
noise they must be cut where an episode starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dgesv

from gpsarsa._linalg import compiled, product, symmetrised, transposed_product
from gpsarsa._step import OVEREXPLAINED
from gpsarsa._validation import Array
from gpsarsa.basis import Basis
from gpsarsa.belief import CARRY_VARIANCE, DONE, LOG_EVIDENCE, OVERFLOW, Belief
from gpsarsa.transitions import Transitions

__all__ = ["FixedPoint", "Likelihood", "Refused", "Statistics", "border_terms", "solved"]


@dataclass(frozen=True)
class Likelihood:
    """How rewards depend on w: the noise, and whether it includes what Z cannot explain."""

    noise_variance: float
    fitc: bool = True  # b = 1/(τ + σ²); else DTC, b = 1/σ²
    correlated: bool = False
    prior_mean: float = 0.0


class Refused(ArithmeticError):
    """A transition that cannot be taken in: which row, and why (an answer of `_step`)."""

    def __init__(self, answer: int, row: int) -> None:
        super().__init__(answer, row)
        self.answer, self.row = answer, row


@compiled
def _divide_by_noise(
    Psi, r, kappa, gamma, starts, sigma2, fitc, correlated, rounding, scale, given, residuals, chain, before
):
    """Ψ ← L⁻¹Ψ, r ← L⁻¹r in place. Returns (answer, row, log|LLᵀ|).

    `residuals` receives τ, or holds it where `given`. `chain` = (r̃, pivot, γ) and `before` = ψ̃ of
    the row before the first; they leave as those of the last row.
    """
    log_det = 0.0
    for t in range(Psi.shape[0]):
        row = Psi[t]
        if not given:
            tau = kappa[t]
            for j in range(row.shape[0]):
                tau -= row[j] * row[j]
            if tau < -rounding * (kappa[t] + scale):
                return OVEREXPLAINED, t, 0.0
            residuals[t] = max(tau, 0.0)
        variance = sigma2 + (residuals[t] if fitc else 0.0)
        coupling = 0.0
        if correlated:
            variance += gamma[t] * gamma[t] * sigma2
            if not starts[t]:
                coupling = -chain[2] * sigma2 / chain[1]
                variance -= coupling * coupling
        pivot = math.sqrt(variance)
        inverse = 1.0 / pivot
        if coupling == 0.0:
            for j in range(row.shape[0]):
                row[j] *= inverse
            r[t] *= inverse
        else:
            for j in range(row.shape[0]):
                row[j] = (row[j] - coupling * before[j]) * inverse
            r[t] = (r[t] - coupling * chain[0]) * inverse
        if not math.isfinite(r[t] * r[t]):
            return OVERFLOW, t, 0.0
        log_det += math.log(variance)
        if correlated:
            before = row
        chain[0], chain[1], chain[2] = r[t], pivot, gamma[t]
    return DONE, -1, log_det


class Statistics:
    """The sums over transitions from which a posterior follows.

    `gram` is Σ ψ̃ψ̃ᵀ (its lower triangle), `moment` Σ ψ̃r̃, `square` Σ r̃², `log_det` log|LLᵀ| and
    `count` the number of transitions.
    """

    def __init__(self, size: int) -> None:
        self.gram = np.zeros((size, size), order="F")
        self.moment = np.zeros(size)
        self.square = 0.0
        self.log_det = 0.0
        self.count = 0
        self._chain = np.array([0.0, 1.0, 0.0])  # r̃, pivot and γ of the last row; at first γ = 0: a start
        self._before = np.zeros(size)  # its ψ̃

    @classmethod
    def from_block(cls, basis: Basis, transitions: Transitions, likelihood: Likelihood) -> Self:
        """The statistics of transitions, whose first row is taken as a start."""
        self = cls(basis.size)
        self.accumulate(basis, transitions, likelihood)
        return self

    def accumulate(
        self,
        basis: Basis,
        transitions: Transitions,
        likelihood: Likelihood,
        residuals: Array | None = None,
        keep: list[Array] | None = None,
    ) -> Array:
        """Add transitions block by block; returns their residual variances τ.

        `residuals` are used instead of the basis's own where they are given. `keep` receives a copy of
        each block's features Ψ.
        """
        given = residuals is not None
        taus = residuals if residuals is not None else np.empty(len(transitions))
        for Psi, r, log_det in self._by_noise(basis, transitions, likelihood, taus, given, keep):
            self._add(Psi, r)
            self.log_det += log_det
            self.count += len(r)
        return taus

    def _by_noise(
        self,
        basis: Basis,
        transitions: Transitions,
        likelihood: Likelihood,
        taus: Array,
        given: bool,
        keep: list[Array] | None = None,
    ) -> Iterator[tuple[Array, Array, float]]:
        """Block by block Ψ̃ = L⁻¹Ψ, r̃ = L⁻¹r and log|LLᵀ|, going on where the last block ended."""
        rounding, scale = basis.rounding, basis.scale
        X, rewards, following, discounts, all_starts = transitions._arrays
        for block, delta, kappa in basis.differences_by_block(X, following, discounts):
            Psi, gamma, starts = basis.whiten(delta), discounts[block], all_starts[block]
            if keep is not None:
                keep.append(Psi.copy())
            r = rewards[block] - likelihood.prior_mean * (1.0 - gamma)
            answer, row, log_det = _divide_by_noise(
                Psi, r, kappa, gamma, starts, likelihood.noise_variance, likelihood.fitc,
                likelihood.correlated, rounding, scale, given, taus[block], self._chain, self._before,
            )  # fmt: skip
            if answer != DONE:
                raise Refused(answer, block.start + row)
            self._before[:] = Psi[-1]
            yield Psi, r, log_det

    def equations(
        self, basis: Basis, transitions: Transitions, likelihood: Likelihood
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Block by block Ψ̃, Ψ̃ and r̃: a row adds ψ̃ψ̃ᵀ to S and ψ̃r̃ to v. For rows that come one after
        another, in call after call."""
        taus = np.empty(len(transitions))
        for Psi, r, _ in self._by_noise(basis, transitions, likelihood, taus, False):
            yield Psi, Psi, r

    def _add(self, Psi: Array, r: Array) -> None:
        if len(self.moment):
            self.gram = dsyrk(1.0, Psi.T, beta=1.0, c=self.gram, lower=1, overwrite_c=1)
            self.moment += transposed_product(Psi, r)
        self.square += float(r @ r)

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        _require_same_size(self, other)
        total = Statistics(len(self.moment))
        total.gram = np.asfortranarray(self.gram + other.gram)
        total.moment = self.moment + other.moment
        total.square = self.square + other.square
        total.log_det = self.log_det + other.log_det
        total.count = self.count + other.count
        last = other if other.count else self
        total._chain, total._before = last._chain.copy(), last._before.copy()
        return total

    def __sub__(self, other: Statistics) -> Statistics:
        """Without transitions that were added before; rows with noise of their own only."""
        if not isinstance(other, Statistics):
            return NotImplemented
        negative = Statistics(len(other.moment))
        negative.gram, negative.moment = -other.gram, -other.moment
        negative.square, negative.log_det, negative.count = -other.square, -other.log_det, -other.count
        negative._chain, negative._before = self._chain, self._before
        return self + negative

    def state(self) -> dict[str, Array]:
        """Arrays from which `restored` makes the same sums again, for rows with noise of their own."""
        return {
            "gram": self.gram, "moment": self.moment,
            "numbers": np.array([self.square, self.log_det, float(self.count)]),
        }  # fmt: skip

    @classmethod
    def restored(cls, arrays: Mapping[str, Array]) -> Self:
        self = cls(len(arrays["moment"]))
        self.gram, self.moment = np.array(arrays["gram"], order="F"), np.array(arrays["moment"])
        self.square, self.log_det = float(arrays["numbers"][0]), float(arrays["numbers"][1])
        self.count = int(arrays["numbers"][2])
        return self

    def inverse(self) -> Array:
        """R = (I + Σ ψ̃ψ̃ᵀ)⁻¹."""
        return Belief.from_information(symmetrised(self.gram, len(self.moment)), self.moment).covariance

    def posterior(self, likelihood: Likelihood) -> Belief:
        """N(m, R), its log evidence, and the noise that the last row passes on."""
        belief = Belief.from_information(symmetrised(self.gram, len(self.moment)), self.moment)
        belief.scalars[LOG_EVIDENCE] -= 0.5 * (
            self.count * math.log(2 * math.pi) + self.log_det + self.square
        )
        if likelihood.correlated:
            r, pivot, gamma = self._chain
            sigma2 = likelihood.noise_variance
            belief.carry(self._before, r, gamma * sigma2 / pivot, sigma2)
        return belief


def solved(cross: Array, right: Array) -> Array:
    """(I + A)⁻¹ B for the matrix A = Σ bφψᵀ of a projected fixed point and a matrix or vector B."""
    M = len(cross)
    if M == 0:
        return np.empty_like(right)
    found, info = dgesv(np.eye(M) + cross, right)[2:]
    if info or not np.isfinite(found).all():
        raise ArithmeticError("the projected fixed point does not exist: I + Σ bφψᵀ is singular")
    return np.ascontiguousarray(found)


class FixedPoint:
    """Sums from which the projected fixed point follows: LSTD in the same features.

    With φ = W k(Z, x), ψ = W δ and b = 1/(k(x, x) − φᵀφ + σ²), the weights m solve

        (I + Σ bφψᵀ) m = Σ bφ r,

    the regression of r + γQ(x′) on φ whose own answer is Q. Unlike the residual's posterior it stays
    unbiased where transitions are stochastic. Its covariance is G (I + Σ bφφᵀ) Gᵀ with
    G = (I + Σ bφψᵀ)⁻¹; at γ = 0 both are those of plain regression.
    """

    def __init__(self, size: int) -> None:
        self.cross, self.gram = np.zeros((size, size)), np.zeros((size, size))
        self.moment = np.zeros(size)
        self.count = 0

    @classmethod
    def from_block(cls, basis: Basis, transitions: Transitions, likelihood: Likelihood) -> Self:
        self = cls(basis.size)
        self.accumulate(basis, transitions, likelihood)
        return self

    def accumulate(self, basis: Basis, transitions: Transitions, likelihood: Likelihood) -> None:
        """Add transitions, block by block."""
        for weighted, Phi, Psi, r in _regression(basis, transitions, likelihood):
            self.cross += transposed_product(weighted, Psi)
            self.gram += transposed_product(weighted, Phi)
            self.moment += transposed_product(weighted, r)
            self.count += len(r)

    def equations(
        self, basis: Basis, transitions: Transitions, likelihood: Likelihood
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Block by block bΦ, Ψ and r: a row adds bφψᵀ to the matrix and bφr to the right-hand side."""
        for weighted, _, Psi, r in _regression(basis, transitions, likelihood):
            yield weighted, Psi, r

    def _combined(self, other: FixedPoint, sign: int) -> FixedPoint:
        _require_same_size(self, other)
        total = FixedPoint(len(self.moment))
        total.cross, total.gram = self.cross + sign * other.cross, self.gram + sign * other.gram
        total.moment, total.count = self.moment + sign * other.moment, self.count + sign * other.count
        return total

    def __add__(self, other: FixedPoint) -> FixedPoint:
        return self._combined(other, 1) if isinstance(other, FixedPoint) else NotImplemented

    def __sub__(self, other: FixedPoint) -> FixedPoint:
        return self._combined(other, -1) if isinstance(other, FixedPoint) else NotImplemented

    def state(self) -> dict[str, Array]:
        """Arrays from which `restored` makes the same sums again."""
        return {
            "cross": self.cross, "gram": self.gram, "moment": self.moment,
            "numbers": np.array([float(self.count)]),
        }  # fmt: skip

    @classmethod
    def restored(cls, arrays: Mapping[str, Array]) -> Self:
        self = cls(len(arrays["moment"]))
        self.cross, self.gram, self.moment = (np.array(arrays[name]) for name in ("cross", "gram", "moment"))
        self.count = int(arrays["numbers"][0])
        return self

    def inverse(self) -> Array:
        """G = (I + Σ bφψᵀ)⁻¹. ArithmeticError where the fixed point does not exist."""
        return solved(self.cross, np.eye(len(self.moment)))

    def posterior(self, likelihood: Likelihood) -> Belief:
        """N(m, R) as above. ArithmeticError where the fixed point does not exist."""
        M = len(self.moment)
        belief = Belief(M)
        belief.scalars[CARRY_VARIANCE] = likelihood.noise_variance
        if M == 0:
            return belief
        G = self.inverse()
        m = product(G, self.moment)
        R = product(product(G, np.eye(M) + self.gram), np.ascontiguousarray(G.T))
        return Belief.restored(m, 0.5 * (R + R.T), np.zeros(M), belief.scalars)


def _require_same_size(one: Statistics | FixedPoint, other: Statistics | FixedPoint) -> None:
    if len(one.moment) != len(other.moment):
        raise ValueError(
            f"statistics over {len(one.moment)} and {len(other.moment)} pseudo-inputs do not add"
        )


def _regression(
    basis: Basis, transitions: Transitions, likelihood: Likelihood
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Block by block bΦ, Φ, Ψ and r."""
    X, rewards, following, gamma, _ = transitions._arrays
    for block, delta, _ in basis.differences_by_block(X, following, gamma):
        Psi, Phi = basis.whiten(delta), basis.whiten(basis.kernel_rows(X[block]))
        left = basis.unexplained(X[block], Phi) if likelihood.fitc else np.zeros(len(Phi))
        weighted = Phi / (likelihood.noise_variance + left)[:, None]
        yield weighted, Phi, Psi, rewards[block] - likelihood.prior_mean * (1.0 - gamma[block])


def border_terms(
    basis: Basis, count: int, transitions: Transitions, likelihood: Likelihood, residuals: Array
) -> tuple[Array, Array, Array]:
    """What past transitions say about the newest `count` pseudo-inputs, their weights b unchanged.

    With η the new features of a row: s = Σ bψηᵀ = W Σ bδηᵀ, S_kk = I + Σ bηηᵀ, v_k = Σ bηr. O(NM) each.
    """
    M = basis.size - count
    cross, corner, moment = np.zeros((M, count)), np.eye(count), np.zeros(count)
    X, rewards, following, discounts, _ = transitions._arrays
    for block, delta, _ in basis.differences_by_block(X, following, discounts):
        eta, gamma = basis.newest_features(delta, count), discounts[block]
        b = 1.0 / (likelihood.noise_variance + (residuals[block] if likelihood.fitc else np.zeros(len(eta))))
        weighted = b[:, None] * eta
        cross += delta[:, :M].T @ weighted
        corner += eta.T @ weighted
        moment += (rewards[block] - likelihood.prior_mean * (1.0 - gamma)) @ weighted
    return basis.factor[:M, :M] @ cross, corner, moment
