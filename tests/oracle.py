"""Dense, obvious implementations of every posterior, in the paper's coordinates u = Q(Z).

Nothing here is shared with the package but the kernel's numbers, and those have their own tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpsarsa import Transitions


def kernel_matrix(kernel, A, B):
    return np.asarray(kernel(A, B)) if len(A) and len(B) else np.zeros((len(A), len(B)))


def rows_covariance(kernel, t):
    """K_rr = H K Hᵀ from the stacked inputs (x_1 … x_N, x′_1 … x′_N)."""
    stacked = np.vstack([t.inputs, t.next_inputs])
    H = np.hstack([np.eye(len(t)), -np.diag(t.discounts)])
    return H @ kernel_matrix(kernel, stacked, stacked) @ H.T


def rows_cross(kernel, t, X):
    """H k(·, X)"""
    return kernel_matrix(kernel, t.inputs, X) - t.discounts[:, None] * kernel_matrix(kernel, t.next_inputs, X)


def noise_covariance(t, sigma2, noise):
    """σ²I, or σ²H_eH_eᵀ where each row ε = e − γe′ shares e with the row that continues it."""
    n = len(t)
    if noise == "iid":
        return sigma2 * np.eye(n)
    # one e for each row's beginning, and one for the end of each chain
    mixing = np.zeros((n, 2 * n))
    for j in range(n):
        mixing[j, j] = 1.0
        continued = j + 1 < n and not t.starts[j + 1]
        mixing[j, j + 1 if continued else n + j] = -t.discounts[j]
    return sigma2 * mixing @ mixing.T


def log_normal(r, covariance):
    sign, log_det = np.linalg.slogdet(covariance)
    assert sign > 0
    return -0.5 * (len(r) * np.log(2 * np.pi) + log_det + r @ np.linalg.solve(covariance, r))


def as_from_the_start(t):
    """The same rows with row 0 as a start, as `fit` takes them."""
    if len(t) == 0:
        return t
    starts = t.starts.copy()
    starts[0] = True
    return Transitions(t.inputs, t.rewards, t.next_inputs, t.discounts, starts)


@dataclass
class Posterior:
    mean: np.ndarray
    cov: np.ndarray
    log_evidence: float
    alpha: np.ndarray | None = None
    C: np.ndarray | None = None
    P: np.ndarray | None = None


def exact_posterior(kernel, sigma2, t, X, noise="iid", prior_mean=0.0):
    t = as_from_the_start(t)
    covariance = rows_covariance(kernel, t) + noise_covariance(t, sigma2, noise)
    k = rows_cross(kernel, t, X)
    r = t.rewards - prior_mean * (1 - t.discounts)
    mean = prior_mean + k.T @ np.linalg.solve(covariance, r)
    cov = kernel_matrix(kernel, X, X) - k.T @ np.linalg.solve(covariance, k)
    return Posterior(mean, cov, log_normal(r, covariance))


def residuals(kernel, Z, t):
    """τ = diag(K_rr − K_rz K_zz⁻¹ K_zr)"""
    K_rr = np.diag(rows_covariance(kernel, t))
    if len(Z) == 0:
        return K_rr
    K_rz = rows_cross(kernel, t, Z)
    return K_rr - np.einsum("ij,ji->i", K_rz, np.linalg.solve(kernel_matrix(kernel, Z, Z), K_rz.T))


def sparse_posterior(
    kernel, sigma2, Z, t, X, weights="fitc", noise="iid", prior_mean=0.0, taus=None
) -> Posterior:
    """The SPGP posterior from all rows at once; `taus` replaces the residual variances of FITC."""
    t = as_from_the_start(t)
    K_zz, K_zr, K_zx = (kernel_matrix(kernel, Z, B) for B in (Z, Z[:0], X))
    K_zr = rows_cross(kernel, t, Z).T
    r = t.rewards - prior_mean * (1 - t.discounts)
    Lambda = noise_covariance(t, sigma2, noise)
    if weights == "fitc":
        Lambda = Lambda + np.diag(residuals(kernel, Z, t) if taus is None else taus)
    B_K_rz, B_r = np.linalg.solve(Lambda, K_zr.T), np.linalg.solve(Lambda, r)
    A, C = np.linalg.inv(K_zz), np.linalg.inv(K_zz + K_zr @ B_K_rz)
    alpha = C @ (K_zr @ B_r)
    P = A - C
    mean = prior_mean + K_zx.T @ alpha
    cov = kernel_matrix(kernel, X, X) - K_zx.T @ P @ K_zx
    return Posterior(mean, cov, log_normal(r, K_zr.T @ A @ K_zr + Lambda), alpha, C, P)


@dataclass
class DenseFilter:
    """The recursion as a textbook Kalman filter over (u, e), growing and shrinking as `streaming`."""

    kernel: object
    sigma2: float
    Z: np.ndarray
    weights: str = "fitc"
    noise: str = "iid"
    prior_mean: float = 0.0
    forgetting: float = 1.0
    log_evidence: float = 0.0
    mean: np.ndarray = field(init=False)
    cov: np.ndarray = field(init=False)

    def __post_init__(self):
        M = len(self.Z)
        self.mean = np.zeros(M + 1)  # u, then e
        self.cov = np.zeros((M + 1, M + 1))
        self.cov[:M, :M] = kernel_matrix(self.kernel, self.Z, self.Z)
        self.cov[M, M] = self.sigma2

    def forget(self):
        M, kept = len(self.Z), self.forgetting
        self.mean[:M] *= np.sqrt(kept)
        self.cov[:M, :M] = kept * self.cov[:M, :M] + (1 - kept) * kernel_matrix(self.kernel, self.Z, self.Z)
        self.cov[:M, M] *= np.sqrt(kept)
        self.cov[M, :M] *= np.sqrt(kept)

    def observe(self, row: Transitions):
        """One transition, a Transitions of one row."""
        M = len(self.Z)
        self.forget()
        gamma = row.discounts[0]
        if row.starts[0] or self.noise == "iid":
            self.mean[M] = 0.0
            self.cov[M, :] = self.cov[:, M] = 0.0
            self.cov[M, M] = self.sigma2
        tau = max(residuals(self.kernel, self.Z, row)[0], 0.0) if self.weights == "fitc" else 0.0
        # r = aᵀu + e (− γe′) + residual, with aᵀ = δᵀ K_zz⁻¹
        h = np.zeros(M + 1)
        if M:
            delta = rows_cross(self.kernel, row, self.Z)[0]
            h[:M] = np.linalg.solve(kernel_matrix(self.kernel, self.Z, self.Z), delta)
        h[M] = 1.0
        fresh = gamma * gamma * self.sigma2 if self.noise == "correlated" else 0.0
        V = h @ self.cov @ h + fresh + tau
        e = row.rewards[0] - self.prior_mean * (1 - gamma) - h @ self.mean
        self.log_evidence += -0.5 * (np.log(2 * np.pi * V) + e * e / V)
        # the joint over (u, e, e′), then e is dropped in favour of e′
        gain = self.cov @ h / V
        cross_next = -gamma * self.sigma2  # cov(e′, r)
        mean_u = self.mean + gain * e
        cov_u = self.cov - np.outer(gain, gain) * V
        new_mean, new_cov = np.empty(M + 1), np.empty((M + 1, M + 1))
        new_mean[:M], new_cov[:M, :M] = mean_u[:M], cov_u[:M, :M]
        new_mean[M] = cross_next * e / V
        new_cov[M, M] = self.sigma2 - cross_next**2 / V
        new_cov[:M, M] = new_cov[M, :M] = -gain[:M] * cross_next
        self.mean, self.cov = new_mean, new_cov

    def add(self, z):
        """u_z given u by the prior: mean aᵀu, variance aᵀΣa + conditional variance."""
        M = len(self.Z)
        k = kernel_matrix(self.kernel, self.Z, z[None])[:, 0]
        K = kernel_matrix(self.kernel, self.Z, self.Z)
        a = np.linalg.solve(K, k) if M else np.zeros(0)
        T = np.zeros((M + 2, M + 1))
        T[:M, :M] = np.eye(M)
        T[M, :M] = a
        T[M + 1, M] = 1.0
        self.mean, self.cov = T @ self.mean, T @ self.cov @ T.T
        self.cov[M, M] += self.kernel.diag(z[None])[0] - k @ a
        self.Z = np.vstack([self.Z, z[None]])

    def remove(self, index):
        keep = np.delete(np.arange(len(self.Z) + 1), index)
        self.mean, self.cov = self.mean[keep], self.cov[np.ix_(keep, keep)]
        self.Z = np.delete(self.Z, index, axis=0)

    def predict(self, X):
        M = len(self.Z)
        K = kernel_matrix(self.kernel, self.Z, self.Z)
        k = kernel_matrix(self.kernel, self.Z, X)
        a = np.linalg.solve(K, k) if M else k
        mean = self.prior_mean + a.T @ self.mean[:M]
        return mean, kernel_matrix(self.kernel, X, X) - k.T @ a + a.T @ self.cov[:M, :M] @ a
