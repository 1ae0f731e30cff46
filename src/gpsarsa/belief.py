"""N(m, R) over the whitened pseudo-values w, and what can be done to it.

The prior is N(0, I). A transition with feature ψ, residual variance τ and reward r says
r = ψᵀw + noise, and conditions the belief in O(M²). The belief can also gain a dimension, lose one
as an exact marginal, forget, and be sampled. It knows neither kernels nor environments.

Correlated noise ε = e − γ e′ (Engel 2005) makes the next row's noise depend on this row's; the
belief carries the mean ē and the variance s of the shared e and its covariance c with w.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs

from gpsarsa._linalg import (
    aligned,
    blocked,
    compiled,
    enlarged,
    product,
    rotate_symmetric,
    rotate_vector,
    shrink_to_identity,
    square,
    subtract_outer,
    symmetric_times,
    symmetrised,
)
from gpsarsa._validation import Array

__all__ = ["Belief", "condition"]

# what `condition` can answer
DONE, OVERFLOW, INDEFINITE = 0, 1, 2

CARRY_MEAN, CARRY_VARIANCE, LOG_EVIDENCE = 0, 1, 2  # entries of Belief.scalars


LOST_DEFINITENESS = (
    "the posterior covariance has lost its positive definiteness; the noise variance is too small "
    "for double precision with these pseudo-inputs: increase noise_variance or use fewer of them"
)


@compiled
def condition(m, R, c, scalars, n, psi, r, tau, gamma, sigma2, correlated, start, kept, q, moved):
    """Take in one transition; nothing is written unless the answer is DONE.

    iid noise:         V = ψᵀRψ + τ + σ²
    correlated noise:  V = ψᵀRψ + 2ψᵀc + s + γ²σ² + τ

        q = Rψ (+ c) ;  e = r − ψᵀm (− ē) ;  m ← m + q e/V ;  R ← R − q qᵀ/V
        log evidence ← log evidence + log N(e; 0, V)
        ē ← −γσ² e/V ;  s ← σ² − γ²σ⁴/V ;  c ← γσ² q/V

    At an episode's start (ē, s, c) = (0, σ², 0). Forgetting comes before the row:
    R ← λR + (1 − λ)I, m ← √λ m, c ← √λ c with λ = `kept`. `q` and `moved` are scratch vectors.
    """
    root = math.sqrt(kept)
    symmetric_times(R, psi, n, q)
    if kept < 1.0:
        for j in range(n):
            q[j] = kept * q[j] + (1.0 - kept) * psi[j]
    predicted, explained, norm = 0.0, 0.0, 0.0
    for j in range(n):
        predicted += psi[j] * m[j]
        explained += psi[j] * q[j]
        norm += psi[j] * psi[j]
    if explained < -1e-8 * norm:
        return INDEFINITE
    explained = max(explained, 0.0)
    e, noise = r - root * predicted, sigma2
    if correlated:
        noise = sigma2 + gamma * gamma * sigma2
        if not start:
            shared = 0.0
            for j in range(n):
                shared += psi[j] * c[j]
                q[j] += root * c[j]
            noise = scalars[CARRY_VARIANCE] + gamma * gamma * sigma2 + 2.0 * root * shared
            e -= scalars[CARRY_MEAN]
    V = explained + tau + noise
    if not V > 0.0:
        return INDEFINITE
    log_density = -0.5 * (math.log(2.0 * math.pi * V) + e * e / V)
    gain, total = e / V, log_density
    for j in range(n):
        moved[j] = root * m[j] + q[j] * gain
        total += 0.0 * moved[j]  # not finite if any entry is not
    if not math.isfinite(total):
        return OVERFLOW

    if kept < 1.0:
        shrink_to_identity(R, kept, n)
    subtract_outer(R, q, 1.0 / V, n)
    for j in range(n):
        m[j] = moved[j]
    if correlated:
        passed_on = gamma * sigma2 / V  # a ratio first: σ⁴ may leave the range of a double
        for j in range(n):
            c[j] = passed_on * q[j]
        scalars[CARRY_MEAN] = -passed_on * e
        scalars[CARRY_VARIANCE] = sigma2 - gamma * sigma2 * passed_on
    scalars[LOG_EVIDENCE] += log_density
    return DONE


@compiled
def _quadratic_forms(R, n, Psi, out):
    """out[t] = ψ_tᵀ R ψ_t"""
    psi, q = np.zeros(blocked(n)), np.zeros(blocked(n))
    for t in range(Psi.shape[0]):
        for j in range(n):
            psi[j] = Psi[t, j]
        symmetric_times(R, psi, n, q)
        total = 0.0
        for j in range(n):
            total += psi[j] * q[j]
        out[t] = total


class Belief:
    """A Gaussian over `size` whitened pseudo-values, in buffers that double."""

    def __init__(self, size: int = 0) -> None:
        self.size = 0
        self.m, self.c = aligned((8,)), aligned((8,))
        self.R = square(8)
        self.scalars = np.zeros(3)
        self.extend(size)

    @classmethod
    def restored(cls, m: Array, R: Array, c: Array, scalars: Array) -> Belief:
        """The belief that held these arrays; it goes on bit for bit as that one would."""
        self = cls(len(m))
        M = self.size
        self.m[:M], self.R[:M, :M], self.c[:M], self.scalars[:] = m, R, c, scalars
        return self

    @classmethod
    def from_information(cls, gram: Array, moment: Array) -> Belief:
        """R = (I + gram)⁻¹, m = R moment; the log evidence starts at ½ log|R| + ½ mᵀ moment."""
        M = len(moment)
        self = cls(M)
        if M == 0:
            return self
        S = np.array(gram, order="F")
        S.flat[:: M + 1] += 1.0
        factor, info = dpotrf(S, lower=1, clean=1, overwrite_a=1)
        if info:
            raise ArithmeticError(f"I + Σ bψψᵀ is not positive definite (pivot {info} of {M})")
        R = symmetrised(dpotri(factor, lower=1)[0], M)
        m = product(R, moment)
        m += product(R, moment - m - product(gram, m))  # one step of refinement
        self.m[:M], self.R[:M, :M] = m, R
        self.scalars[LOG_EVIDENCE] = -np.log(factor.diagonal()).sum() + 0.5 * float(m @ moment)
        return self

    def copy(self) -> Belief:
        M = self.size
        return Belief.restored(self.m[:M], self.R[:M, :M], self.c[:M], self.scalars)

    # -- what it knows ------------------------------------------------------------------------

    @property
    def mean(self) -> Array:
        return self.m[: self.size]

    @property
    def covariance(self) -> Array:
        return symmetrised(self.R, self.size)

    @property
    def log_evidence(self) -> float:
        return float(self.scalars[LOG_EVIDENCE])

    def variances(self, Psi: Array) -> Array:
        """ψᵀRψ for each row."""
        if len(Psi) <= 16:  # too few rows to be worth a full copy of R
            values = np.empty(len(Psi))
            _quadratic_forms(self.R, self.size, Psi, values)
        else:
            values = np.einsum("ij,ij->i", Psi @ self.covariance, Psi)
        if (values < -1e-8 * np.einsum("ij,ij->i", Psi, Psi)).any():
            raise ArithmeticError(LOST_DEFINITENESS)
        return np.maximum(values, 0.0)

    def covariances(self, Psi: Array) -> Array:
        """ΨRΨᵀ, with the diagonal of `variances`."""
        full = Psi @ self.covariance @ Psi.T
        np.fill_diagonal(full, self.variances(Psi))
        return 0.5 * (full + full.T)

    def precisions(self, W: Array) -> Array | None:
        """diag(WᵀR⁻¹W); None where R has lost its definiteness to rounding."""
        factor, info = dpotrf(self.covariance, lower=1, clean=1)
        if info:
            return None
        whitened = dtrtrs(factor, W, lower=1)[0]
        return np.asarray(np.einsum("ij,ij->j", whitened, whitened))

    def draws(self, count: int, rng: np.random.Generator) -> Array:
        """(M, count) samples of w."""
        values, vectors = np.linalg.eigh(self.covariance)
        if len(values) and values[0] < -1e-8:
            raise ArithmeticError(LOST_DEFINITENESS)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return self.mean[:, None] + root @ rng.standard_normal((self.size, count))

    # -- growing and shrinking ----------------------------------------------------------------

    def extend(self, count: int) -> None:
        """Add dimensions that nothing has been observed about: prior N(0, 1), no covariance."""
        self.reserve(self.size + count)
        new = np.arange(self.size, self.size + count)
        self.R[new, new] = 1.0
        self.size += count

    def reserve(self, size: int) -> None:
        """Make room for `size` dimensions, up to whole groups of rows, as the compiled loops expect."""
        self.m, self.c = (enlarged(v, blocked(size)) for v in (self.m, self.c))
        self.R = enlarged(self.R, size)

    def truncate(self, size: int) -> None:
        """Drop the newest dimensions, of which nothing has been observed yet."""
        self.R[size : self.size], self.R[:, size : self.size] = 0.0, 0.0
        self.m[size : self.size], self.c[size : self.size] = 0.0, 0.0
        self.size = size

    def border(self, cross: Array, corner: Array, moment: Array) -> None:
        """Add dimensions that past transitions inform: s = cross, S_kk = corner, v_k = moment.

        c = R s, Ω = (S_kk − sᵀc)⁻¹, d = v_k − sᵀm
        R ← [[R + cΩcᵀ, −cΩ], [−Ωcᵀ, Ω]], m ← (m − cΩd, Ωd)
        log evidence ← log evidence + ½ log|Ω| + ½ dᵀΩd
        """
        M, K = cross.shape
        R = self.covariance
        c = R @ cross
        factor, info = dpotrf(corner - cross.T @ c, lower=1, clean=1)
        if info:
            raise ArithmeticError("the new pseudo-inputs are determined by the old ones and the data")
        omega = symmetrised(dpotri(factor, lower=1)[0], K)
        d = moment - cross.T @ self.mean
        step = omega @ d
        self.extend(K)
        N = self.size
        self.R[:M, :M] = R + c @ omega @ c.T
        self.R[M:N, :M] = -(c @ omega).T
        self.R[:M, M:N] = -(c @ omega)
        self.R[M:N, M:N] = omega
        self.m[:M] -= c @ step
        self.m[M:N] = step
        self.scalars[LOG_EVIDENCE] += -np.log(factor.diagonal()).sum() + 0.5 * float(d @ step)

    def border_gains(self, cross: Array, corners: Array, moments: Array) -> Array:
        """What `border` would add to the log evidence, for each column of `cross` alone."""
        omega = 1.0 / (corners - np.einsum("ij,ij->j", cross, self.covariance @ cross))
        d = moments - self.mean @ cross
        return 0.5 * (np.log(omega) + omega * d * d)

    def carry(self, psi: Array, r: float, shared: float, sigma2: float) -> None:
        """Set (ē, s, c) after a batch whose last row, divided by its noise, was (ψ, r).

        With g = `shared`, the covariance −g of that row's unit noise with the e it passes on:
        ē = −g (r − ψᵀm), s = σ² − g² + g² ψᵀRψ, c = g Rψ.
        """
        q = self.covariance @ psi
        self.c[: self.size] = shared * q
        self.scalars[CARRY_MEAN] = -shared * (r - float(psi @ self.mean))
        self.scalars[CARRY_VARIANCE] = sigma2 - shared**2 * (1.0 - float(psi @ q))

    def projected(self, T: Array) -> Belief:
        """What this belief says about other whitened values w′, given their prior covariance T with w.

        w′ given w is N(T w, I − TTᵀ), so m′ = T m, R′ = T R Tᵀ + I − TTᵀ, c′ = T c.
        """
        M = self.size
        R = T @ (self.covariance - np.eye(M)) @ T.T + np.eye(len(T))
        return Belief.restored(T @ self.mean, R, T @ self.c[:M], self.scalars)

    def marginalise(self, index: int, cosines: Array, sines: Array) -> None:
        """Integrate one pseudo-input out, by the rotations that took it out of the basis.

        m ← T m, R ← T R Tᵀ, c ← T c, where T = (G)[:−1] has orthonormal rows.
        """
        M = self.size
        rotate_vector(self.m, index, M, cosines, sines)
        rotate_vector(self.c, index, M, cosines, sines)
        rotate_symmetric(self.R, index, M, cosines, sines)
        self.size = M - 1
