"""The paper's equations and errata, against dense linear algebra.

The dense side is written with the paper's letters and with plain inverses, the kernel included:
it shares no code with the package. `docs/paper.md` lists the equations and names these tests.
"""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.linalg import inv, solve

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions
from gpsarsa._linalg import append_inverse_row, square
from gpsarsa.basis import Basis
from gpsarsa.belief import Belief
from gpsarsa.kernels import RBF
from gpsarsa.statistics import Likelihood, Statistics, border_terms

TIGHT = 1e-12  # what agreement means, relative to the largest entry
CLEAR = 1e-2  # what disagreement means

SEEDS = range(6)
GROWTHS = ("exact", "frozen", "streaming")

LENGTHSCALES, VARIANCE = np.array([0.6, 0.8]), 1.5
KERNEL = RBF(LENGTHSCALES, variance=VARIANCE)
GAMMA, SIGMA2 = 0.9, 0.1


def k(A, B):
    """The kernel matrix of `KERNEL`, written out."""
    scaled = (A[:, None, :] - B[None, :, :]) / LENGTHSCALES
    return VARIANCE * np.exp(-0.5 * (scaled**2).sum(axis=2))


def error(ours, dense):
    """The largest difference, relative to the largest entry."""
    ours, dense = np.asarray(ours), np.asarray(dense)
    assert ours.shape == dense.shape
    return np.abs(ours - dense).max() / np.abs(dense).max()


def agree(ours, dense):
    return error(ours, dense) < TIGHT


def clearly_differ(a, b):
    return error(a, b) > CLEAR


def bellman(discounts):
    """The paper's H: row j is (0, …, 1, −γ_j, …, 0)."""
    N = len(discounts)
    H = np.zeros((N, N + 1))
    H[np.arange(N), np.arange(N)] = 1.0
    H[np.arange(N), np.arange(N) + 1] = -np.asarray(discounts)
    return H


class Problem:
    """One trajectory x_0 … x_N with rewards, k − 1 pseudo-inputs, and one more, z_k."""

    def __init__(self, seed, N=30, M=7):
        rng = np.random.default_rng(seed)
        steps = rng.normal(scale=0.5, size=(N + 1, 2))
        self.X = np.tanh(np.cumsum(steps, axis=0))  # a walk between −1 and 1
        corners = np.array([(a, b) for a in (-0.9, 0.9) for b in (-0.9, 0.9)])
        distances = np.linalg.norm(corners[:, None] - self.X[None, :-1], axis=2).min(axis=1)
        self.X[-1] = corners[np.argmax(distances)]  # the last step tells something new
        self.r = np.sin(3.0 * self.X[:-1, 0]) + rng.normal(scale=0.3, size=N)
        self.H = bellman(np.full(N, GAMMA))
        grid = np.array([(a, b) for a in (-0.8, 0.0, 0.8) for b in (-0.8, 0.0, 0.8)])
        self.Z = rng.permutation(grid)[:M] + rng.uniform(-0.15, 0.15, (M, 2))
        self.old, self.z = self.Z[:-1], self.Z[-1:]
        self.stars = rng.uniform(-1.0, 1.0, (20, 2))
        self.transitions = Transitions.from_trajectory(self.X, self.r, GAMMA, terminated=False)

    def model(self, Z, growth="exact", **options):
        return SparseGPSarsa(KERNEL, SIGMA2, Z, growth=growth, **options)


@pytest.fixture(params=SEEDS)
def problem(request):
    return Problem(request.param)


# -- dense algebra, as the paper prints it --------------------------------------------------------


def weights(H, X, Z):
    """b_j: the diagonal of B = [diag(H K_tt Hᵀ − H K_tk K_kk⁻¹ K_kt Hᵀ) + Σ]⁻¹."""
    HK = H @ k(X, Z)
    return 1.0 / (np.diag(H @ k(X, X) @ H.T - HK @ inv(k(Z, Z)) @ HK.T) + SIGMA2)


def parameters(H, X, Z, r, b):
    """(α, A, C, P) with α = C K_kt Hᵀ B r, A = K_kk⁻¹, C = [K_kk + K_kt Hᵀ B H K_tk]⁻¹, P = A − C."""
    B, K_kt_Ht = np.diag(b), (H @ k(X, Z)).T
    A = inv(k(Z, Z))
    C = inv(k(Z, Z) + K_kt_Ht @ B @ K_kt_Ht.T)
    return C @ K_kt_Ht @ B @ r, A, C, A - C


def moments(stars, Z, alpha, P):
    """Mean and variance at x_*: k_u*ᵀα and k(x_*, x_*) − k_u*ᵀ P k_u*."""
    k_us = k(Z, stars)
    return k_us.T @ alpha, np.diag(k(stars, stars) - k_us.T @ P @ k_us)


def assert_is(model, stars, Z, alpha, A, C, P):
    """The model holds these parameters and predicts what they say."""
    assert np.array_equal(model.pseudo_inputs, Z)
    assert agree(model.alpha, alpha)
    assert agree(model.A, A)
    assert agree(model.C, C)
    assert agree(model.P, P)
    mean, variance = moments(stars, Z, alpha, P)
    ours, std = model.predict(stars, return_std=True)
    assert agree(ours, mean)
    assert agree(std**2, variance)


class Bordering:
    """What the recursion has in hand when x_t and z_k arrive together, named as in the paper.

    The last transition and the last row of Z are the new ones. `b` are the past transitions' weights,
    from before z_k; C, α and P are those of the step before.
    """

    def __init__(self, X, r, Z, b, C, alpha, P):
        H = bellman(np.full(len(r), GAMMA))
        old, z = Z[:-1], Z[-1:]
        self.B, self.C, self.alpha, self.P = np.diag(b), C, alpha, P
        self.r, self.r_t = r[:-1], r[-1]
        self.b_t = weights(H, X, Z)[-1]

        self.K = k(old, old)  # K_{k−1 k−1}
        self.k = k(old, z)[:, 0]  # k_{k−1}(z_k)
        self.k_kk = k(z, z)[0, 0]
        HK, Hk = H @ k(X, old), (H @ k(X, z))[:, 0]
        self.HK, self.dk = HK[:-1], HK[-1]  # H_{t−1} K_{t−1 k−1} and Δk_{k−1}(x_t)
        self.Hk, self.dk_k = Hk[:-1], Hk[-1]  # H_{t−1} k_{t−1}(z_k) and Δk_k(x_t)

        self.f = self.HK.T @ self.B @ self.Hk
        self.f_k = self.Hk @ self.B @ self.Hk
        self.df = self.f + self.b_t * self.dk * self.dk_k  # Δf_{k−1}
        self.df_k = self.f_k + self.b_t * self.dk_k**2  # Δf_k

    @classmethod
    def at_the_end_of(cls, p):
        """The last transition and the last pseudo-input of a problem, all before them being right."""
        b = weights(p.H[:-1, :-1], p.X[:-1], p.old)
        alpha, _, C, P = parameters(p.H[:-1, :-1], p.X[:-1], p.old, p.r[:-1], b)
        return cls(p.X, p.r, p.Z, b, C, alpha, P)

    def without_transition(self):
        """z_k alone: the transition's terms are zero."""
        self.b_t, self.df, self.df_k = 0.0, self.f, self.f_k
        return self

    def bordered(self, C):
        """(C_kk, c̃, w_k) from a C_{k−1 k−1}, with the Schur complement corrected."""
        c = C @ (self.k + self.df)
        w = 1.0 / (self.k_kk + self.df_k - c @ (self.k + self.df))
        return bordered(C, c, w), c, w

    def printed_alpha(self, C, c, w):
        """α_t = (α_{t−1}, 0) + (α̃_{t−1}, α̃_t), term by term."""
        past = (c @ self.HK.T - self.Hk) @ self.B @ self.r  # [c̃ᵀK − kᵀ]HᵀB r_{t−2}
        new = self.b_t * self.r_t
        top = w * c * past + new * ((C + w * np.outer(c, c)) @ self.dk - w * c * self.dk_k)
        corner = -w * past - w * new * (c @ self.dk - self.dk_k)
        return np.append(self.alpha + top, corner)

    def printed_P(self, c, w):
        """P_kk = blkdiag(P_{k−1 k−1}, 0) + [[s g gᵀ − w c̃ c̃ᵀ, w c̃ − s g], [·, s − w]]."""
        g = inv(self.K) @ self.k
        s = 1.0 / (self.k_kk - self.k @ inv(self.K) @ self.k)
        corner = (w * c - s * g)[:, None]
        top = self.P + s * np.outer(g, g) - w * np.outer(c, c)
        return np.block([[top, corner], [corner.T, np.array([[s - w]])]])


def bordered(inverse, c, w):
    """[[C + w c cᵀ, −w c], [−w cᵀ, w]]"""
    c = c[:, None]
    return np.block([[inverse + w * c @ c.T, -w * c], [-w * c.T, np.array([[w]])]])


# -- GP-SARSA: equations 1 to 3 -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fit", "update"])
def test_gp_sarsa_moments(problem, how):
    p = problem
    K_rr = p.H @ k(p.X, p.X) @ p.H.T
    k_rs = p.H @ k(p.X, p.stars)
    G = inv(K_rr + SIGMA2 * np.eye(len(p.r)))
    v = k_rs.T @ G @ p.r
    s = np.diag(k(p.stars, p.stars) - k_rs.T @ G @ k_rs)

    model = getattr(GPSarsa(KERNEL, SIGMA2), how)(p.transitions)
    mean, std = model.predict(p.stars, return_std=True)
    assert agree(mean, v)
    assert agree(std**2, s)


def test_transition_likelihood(problem):
    """Equation 1: before any data, r ~ N(0, Var[Q(x) − γ Q(x′)] + σ²), whatever the pseudo-inputs."""
    p = problem
    K = k(p.X[:2], p.X[:2])
    V = K[0, 0] - 2 * GAMMA * K[0, 1] + GAMMA**2 * K[1, 1] + SIGMA2
    density = -0.5 * (np.log(2 * np.pi * V) + p.r[0] ** 2 / V)
    for model in GPSarsa(KERNEL, SIGMA2), p.model(p.Z):
        assert model.update(p.transitions[0]).log_evidence() == pytest.approx(density, rel=TIGHT)


# -- SPGP-SARSA: equations 4 and 5 ----------------------------------------------------------------


@pytest.mark.parametrize("how", ["fit", "update"])
@pytest.mark.parametrize("growth", GROWTHS)
def test_spgp_sarsa_moments(problem, growth, how):
    """ṽ and p̃ with M = K_uu + K_ur (Q + σ²I)⁻¹ K_ru and Q = diag(K_rr − K_ru K_uu⁻¹ K_ur)."""
    p = problem
    K_uu, K_ur = k(p.Z, p.Z), k(p.Z, p.X) @ p.H.T
    K_rr = p.H @ k(p.X, p.X) @ p.H.T
    Q = np.diag(np.diag(K_rr - K_ur.T @ inv(K_uu) @ K_ur))
    G = inv(Q + SIGMA2 * np.eye(len(p.r)))
    M = K_uu + K_ur @ G @ K_ur.T
    k_us = k(p.Z, p.stars)
    v = k_us.T @ inv(M) @ K_ur @ G @ p.r
    variance = np.diag(k(p.stars, p.stars) - k_us.T @ (inv(K_uu) - inv(M)) @ k_us)

    mean, std = getattr(p.model(p.Z, growth), how)(p.transitions).predict(p.stars, return_std=True)
    assert agree(mean, v)
    assert agree(std**2, variance)


@pytest.mark.parametrize("growth", GROWTHS)
def test_parameters(problem, growth):
    """α, A, C and P, in batch and one transition at a time."""
    p = problem
    dense = parameters(p.H, p.X, p.Z, p.r, weights(p.H, p.X, p.Z))
    assert_is(p.model(p.Z, growth).fit(p.transitions), p.stars, p.Z, *dense)

    model = p.model(p.Z, growth)
    for x, r, x_next in zip(p.X[:-1], p.r, p.X[1:], strict=True):
        model.observe(x, r, x_next, GAMMA)
    assert_is(model, p.stars, p.Z, *dense)


def test_parameters_in_whitened_coordinates(problem):
    """S = I + Σ bψψᵀ = W C⁻¹ Wᵀ, m = R Σ bψr: then A = WᵀW, C = WᵀRW, α = Wᵀm."""
    p = problem
    b = weights(p.H, p.X, p.Z)
    alpha, A, C, P = parameters(p.H, p.X, p.Z, p.r, b)
    W = inv(np.linalg.cholesky(k(p.Z, p.Z)))
    Psi = p.H @ k(p.X, p.Z) @ W.T
    gram, moment = Psi.T @ np.diag(b) @ Psi, Psi.T @ np.diag(b) @ p.r
    belief = Belief.from_information(gram, moment)
    assert agree(W.T @ W, A)
    assert agree(W.T @ belief.covariance @ W, C)
    assert agree(W.T @ belief.mean, alpha)
    assert agree(W.T @ (np.eye(len(W)) - belief.covariance) @ W, P)

    basis = Basis(KERNEL, 2)
    basis.append(p.Z)
    statistics = Statistics.from_block(basis, p.transitions, Likelihood(SIGMA2))
    assert agree(basis.factor, W)
    assert agree(np.tril(statistics.gram), np.tril(gram))
    assert agree(statistics.moment, moment)


# -- the inversion lemma and A: equations 6, 7, 11, 15 to 17 --------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_partitioned_inversion_lemma(seed):
    rng = np.random.default_rng(seed)
    t = 6
    G = rng.normal(size=(t, 2 * t))
    K_t = G @ G.T
    K, k_t, k_tt = K_t[:-1, :-1], K_t[:-1, -1], K_t[-1, -1]
    s_t = k_tt - k_t @ inv(K) @ k_t
    border = np.append(inv(K) @ k_t, -1.0)
    lemma = np.outer(border, border) / s_t
    lemma[:-1, :-1] += inv(K)
    assert agree(lemma, inv(K_t))

    W = square(t)
    W[: t - 1, : t - 1] = inv(np.linalg.cholesky(K))
    column = np.zeros(len(W))
    column[: t - 1] = k_t
    assert append_inverse_row(W, column, k_tt, t - 1, 0.0, 0.0)
    assert W[t - 1, t - 1] ** -2 == pytest.approx(s_t, rel=TIGHT)
    assert agree(W[:t, :t].T @ W[:t, :t], lemma)


def test_lemma_on_the_belief(problem):
    """`Belief.border` inverts [[S, s], [sᵀ, s_kk]] from R = S⁻¹, and moves m with it."""
    p = problem
    W = inv(np.linalg.cholesky(k(p.Z, p.Z)))
    Psi = p.H @ k(p.X, p.Z) @ W.T
    b = weights(p.H, p.X, p.old)
    S, v = np.eye(len(W)) + Psi.T @ np.diag(b) @ Psi, Psi.T @ (b * p.r)
    belief = Belief.from_information(S[:-1, :-1] - np.eye(len(W) - 1), v[:-1])
    belief.border(S[:-1, -1:], S[-1:, -1:], v[-1:])
    assert agree(belief.covariance, inv(S))
    assert agree(belief.mean, solve(S, v))


def test_A_by_bordering(problem):
    """Equations 15 to 17: g = K⁻¹k, 1/s_k = k_kk − kᵀK⁻¹k; in whitened terms g = Wᵀℓ, s_k = 1/ρ."""
    p = problem
    K, k_z, k_kk = k(p.old, p.old), k(p.old, p.z)[:, 0], k(p.z, p.z)[0, 0]
    g = inv(K) @ k_z
    s_k = 1.0 / (k_kk - k_z @ inv(K) @ k_z)
    assert agree(bordered(inv(K), g, s_k), inv(k(p.Z, p.Z)))

    model = p.model(p.old)
    W = inv(np.linalg.cholesky(K))
    ell = W @ k_z
    assert agree(model.A, inv(K))
    assert model.add_pseudo_inputs(p.z).all()
    assert agree(model.A, bordered(inv(K), g, s_k))
    assert agree(W.T @ ell, g)
    assert 1.0 / (k_kk - ell @ ell) == pytest.approx(s_k, rel=TIGHT)


# -- compound matrices: equations 12 to 14, D, B and F --------------------------------------------


def test_kernel_differences(problem):
    """H K_tk has the rows Δk, and Δ²k is the diagonal of H K_tt Hᵀ."""
    p = problem
    basis = Basis(KERNEL, 2)
    basis.append(p.Z)
    delta, kappa = basis.differences(p.X[:-1], p.X[1:], np.full(len(p.r), GAMMA))
    own = np.array([k(p.X[j : j + 2], p.X[j : j + 2]) for j in range(len(p.r))])
    second = own[:, 0, 0] - 2 * GAMMA * own[:, 0, 1] + GAMMA**2 * own[:, 1, 1]
    assert agree(basis.kernel_rows(p.X), k(p.X, p.Z))
    assert agree(delta, p.H @ k(p.X, p.Z))
    assert agree(delta, k(p.X[:-1], p.Z) - GAMMA * k(p.X[1:], p.Z))
    assert agree(kappa, np.diag(p.H @ k(p.X, p.X) @ p.H.T))
    assert agree(kappa, second)


def test_D_and_weights(problem):
    """D = H K_tk A K_kt Hᵀ = ΨΨᵀ, Δd_t block by block, and 1/b = Δ²k − Δd + σ² = τ + σ²."""
    p = problem
    A = inv(k(p.Z, p.Z))
    HK = p.H @ k(p.X, p.Z)
    D = HK @ A @ HK.T
    top, a, a_k = A[:-1, :-1], A[:-1, -1], A[-1, -1]  # the blocks of A_kk
    dk, dk_k = HK[:, :-1], HK[:, -1]

    def printed(block):
        """Δd_t for every t, with what stands for A_{k−1 k−1}."""
        first = np.einsum("ti,ti->t", dk, dk @ block + np.outer(dk_k, a))
        return first + dk_k * (dk @ a + a_k * dk_k)

    assert agree(printed(top), np.diag(D))
    assert clearly_differ(printed(inv(k(p.old, p.old))), np.diag(D))  # not the A of the step before

    basis = Basis(KERNEL, 2)
    basis.append(p.Z)
    delta, kappa = basis.differences(p.X[:-1], p.X[1:], np.full(len(p.r), GAMMA))
    Psi = basis.whiten(delta.copy())
    assert agree(Psi @ Psi.T, D)
    tau = Statistics(len(p.Z)).accumulate(basis, p.transitions, Likelihood(SIGMA2))
    assert agree(tau, kappa - np.diag(D))
    assert agree(1.0 / (tau + SIGMA2), weights(p.H, p.X, p.Z))


def test_symmetric_part_of_D_tilde(problem):
    """ΔD with D̃ = 2 K a kᵀ + a_k k kᵀ gives H K A K Hᵀ on the diagonal, and there alone."""
    p = problem
    A = inv(k(p.Z, p.Z))
    K, k_z = k(p.X, p.old), k(p.X, p.z)[:, 0]
    tilde = 2.0 * np.outer(K @ A[:-1, -1], k_z) + A[-1, -1] * np.outer(k_z, k_z)
    printed = p.H @ (K @ A[:-1, :-1] @ K.T + tilde) @ p.H.T
    D = p.H @ k(p.X, p.Z) @ A @ k(p.Z, p.X) @ p.H.T
    assert agree(np.diag(printed), np.diag(D))
    assert clearly_differ(printed, D)


def test_F_by_bordering(problem):
    """Equations 19 to 22, and f, f_k from the whitened s = Σ bψη and s_kk = 1 + Σ bη²."""
    p = problem
    q = Bordering.at_the_end_of(p)
    F = q.HK.T @ q.B @ q.HK
    F_kk = np.block([[F, q.f[:, None]], [q.f[None, :], np.array([[q.f_k]])]])
    dk = np.append(q.dk, q.dk_k)
    HK = p.H @ k(p.X, p.Z)
    B = np.diag(np.append(np.diag(q.B), q.b_t))
    assert agree(F_kk + q.b_t * np.outer(dk, dk), HK.T @ B @ HK)

    basis, past = Basis(KERNEL, 2), p.transitions[:-1]
    basis.append(p.old)
    statistics = Statistics(len(p.old))
    tau = statistics.accumulate(basis, past, Likelihood(SIGMA2))
    gram = np.tril(statistics.gram) + np.tril(statistics.gram, -1).T
    L = np.linalg.cholesky(q.K)
    ell = solve(L, q.k)
    root = np.sqrt(q.k_kk - ell @ ell)
    basis.append(p.z)
    s, s_kk, _ = border_terms(basis, 1, past, Likelihood(SIGMA2), tau)
    s, s_kk = s[:, 0], s_kk[0, 0]
    assert agree(L @ gram @ L.T, F)
    assert agree(L @ (gram @ ell + root * s), q.f)
    assert agree(ell @ gram @ ell + 2 * root * (ell @ s) + root**2 * (s_kk - 1.0), q.f_k)


# -- bordering C, α and P: equations 23 to 28 -----------------------------------------------------


def test_border_without_a_new_transition(problem):
    """With z_k alone and the Schur complement corrected, C_kk, α and P are right as printed."""
    p = problem
    q = Bordering.at_the_end_of(p).without_transition()
    C, c, w = q.bordered(q.C)
    dense = parameters(p.H[:-1, :-1], p.X[:-1], p.Z, p.r[:-1], np.diag(q.B))
    assert agree(q.printed_alpha(q.C, c, w), dense[0])
    assert agree(C, dense[2])
    assert agree(q.printed_P(c, w), dense[3])

    model = p.model(p.old, "frozen").fit(p.transitions[:-1])
    assert model.add_pseudo_inputs(p.z).all()
    assert_is(model, p.stars, p.Z, *dense)


def test_border_in_whitened_coordinates(problem):
    """c̃ = g + √ρ Wᵀc and w_k = ω/ρ, with c = R s and ω = 1/(s_kk − sᵀc)."""
    p = problem
    q = Bordering.at_the_end_of(p).without_transition()
    past = p.transitions[:-1]
    basis = Basis(KERNEL, 2)
    basis.append(p.old)
    W = basis.factor.copy()
    statistics = Statistics(len(p.old))
    tau = statistics.accumulate(basis, past, Likelihood(SIGMA2))
    R = statistics.posterior(Likelihood(SIGMA2)).covariance
    basis.append(p.z)
    s, s_kk, _ = border_terms(basis, 1, past, Likelihood(SIGMA2), tau)
    c = R @ s[:, 0]
    omega = 1.0 / (s_kk[0, 0] - s[:, 0] @ c)
    ell = W @ q.k
    rho = q.k_kk - ell @ ell

    _, c_tilde, w = q.bordered(q.C)
    assert agree(W.T @ ell + np.sqrt(rho) * W.T @ c, c_tilde)
    assert omega / rho == pytest.approx(w, rel=TIGHT)


# -- errata ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrives", ["z", "x and z"])
def test_erratum_1_schur_complement(problem, arrives):
    """1/w_k = k_kk + Δf_k − c̃ᵀ(k + Δf), the corner of C_kk; −c̃ᵀ C c̃ is something else."""
    p = problem
    q = Bordering.at_the_end_of(p)
    model = p.model(p.old, "frozen").fit(p.transitions[:-1])
    model.add_pseudo_inputs(p.z)
    if arrives == "z":
        q.without_transition()
    else:
        model.update(p.transitions[-1])
    C = inv(inv(q.C) + q.b_t * np.outer(q.dk, q.dk))
    C_kk = parameters(p.H, p.X, p.Z, p.r, np.append(np.diag(q.B), q.b_t))[2]
    c = C @ (q.k + q.df)
    printed = 1.0 / (q.k_kk + q.df_k - c @ C @ c)
    schur = 1.0 / (q.k_kk + q.df_k - c @ (q.k + q.df))

    assert clearly_differ(printed, C_kk[-1, -1])
    assert clearly_differ(bordered(C, c, printed), C_kk)
    assert agree(schur, C_kk[-1, -1])
    assert agree(bordered(C, c, schur), C_kk)
    assert agree(c @ inv(C) @ c, c @ (q.k + q.df))  # what the printed term was to be

    w = model.C[-1, -1]
    assert agree(w, schur)
    assert agree(-model.C[:-1, -1] / w, c)
    assert agree(model.C, C_kk)


def test_erratum_2_new_transition_before_the_border(problem):
    """x_t and z_k together: C_{k−1}, α_{t−1} and P_{k−1} must know x_t before they are bordered."""
    p = problem
    q = Bordering.at_the_end_of(p)
    b = np.append(np.diag(q.B), q.b_t)  # B_tt = blkdiag(B_{t−1 t−1}, b_t)
    right = alpha, _, C_kk, P = parameters(p.H, p.X, p.Z, p.r, b)
    C_t = inv(inv(q.C) + q.b_t * np.outer(q.dk, q.dk))  # (K_{k−1 k−1} + ΔF_{k−1 k−1})⁻¹

    # as printed, with C_{k−1} of the step before: x_t enters through Δf and Δf_k alone
    C, c, w = q.bordered(q.C)
    assert clearly_differ(C, C_kk)
    assert clearly_differ(q.printed_alpha(q.C, c, w), alpha)
    assert clearly_differ(q.printed_P(c, w), P)

    # with C_{k−1} = (K + ΔF)⁻¹ instead, C_kk is right, but α_{t−1} and P_{k−1} lack the same term
    C, c, w = q.bordered(C_t)
    assert agree(C, C_kk)
    assert clearly_differ(q.printed_alpha(C_t, c, w), alpha)
    assert clearly_differ(q.printed_P(c, w), P)

    # Sherman–Morrison first, then the border
    gain = q.C @ q.dk / (1.0 / q.b_t + q.dk @ q.C @ q.dk)
    assert agree(q.C - np.outer(gain, q.dk @ q.C), C_t)
    q.P += np.outer(gain, q.dk @ q.C)
    alpha_t = q.alpha + gain * (q.r_t - q.dk @ q.alpha)
    d = q.Hk @ q.B @ q.r + q.b_t * q.dk_k * q.r_t - (q.k + q.df) @ alpha_t
    assert agree(np.append(alpha_t - w * c * d, w * d), alpha)
    assert agree(q.printed_P(c, w), P)

    model = p.model(p.old, "frozen").fit(p.transitions[:-1])
    model.add_pseudo_inputs(p.z)
    model.observe(p.X[-2], p.r[-1], p.X[-1], GAMMA)
    assert_is(model, p.stars, p.Z, *right)


def test_erratum_2_unrolled(problem):
    """A transition and a pseudo-input at every step: what the printed recursion leaves out adds up."""
    p = problem
    H, X, r = p.H[:1, :2], p.X[:2], p.r[:1]
    b = weights(H, X, p.Z[:1])
    alpha, _, C, P = parameters(H, X, p.Z[:1], r, b)
    model = p.model(p.Z[:1], "frozen").update(p.transitions[0])
    for n in range(2, len(p.Z) + 1):
        q = Bordering(p.X[: n + 1], p.r[:n], p.Z[:n], b, C, alpha, P)
        b = np.append(b, q.b_t)
        bordered_C, c, w = q.bordered(C)
        C, alpha, P = bordered_C, q.printed_alpha(C, c, w), q.printed_P(c, w)
        model.add_pseudo_inputs(p.Z[n - 1 : n])
        model.update(p.transitions[n - 1])
    right = parameters(p.H[:n, : n + 1], p.X[: n + 1], p.Z, p.r[:n], b)
    assert clearly_differ(alpha, right[0])
    assert clearly_differ(C, right[2])
    assert clearly_differ(P, right[3])
    assert_is(model, p.stars, p.Z, *right)


def test_erratum_3_a_new_pseudo_input_changes_every_weight(problem):
    """B_{t−1} belongs to Z as it was: `frozen` keeps it, `exact` recomputes it."""
    p = problem
    old, new = p.Z[:-3], p.Z[-3:]
    kept, recomputed = weights(p.H, p.X, old), weights(p.H, p.X, p.Z)
    W = inv(np.linalg.cholesky(k(p.Z, p.Z)))
    eta = (p.H @ k(p.X, p.Z) @ W.T)[:, -3:]
    assert (recomputed > kept).all()
    assert agree(1.0 / kept - 1.0 / recomputed, (eta**2).sum(axis=1))  # τ ← τ − η²
    assert clearly_differ(kept, recomputed)

    frozen, exact = (p.model(old, growth).fit(p.transitions) for growth in ("frozen", "exact"))
    for model in frozen, exact:
        assert model.add_pseudo_inputs(new).all()
    assert_is(frozen, p.stars, p.Z, *parameters(p.H, p.X, p.Z, p.r, kept))
    assert_is(exact, p.stars, p.Z, *parameters(p.H, p.X, p.Z, p.r, recomputed))
    assert clearly_differ(frozen.C, exact.C)
    assert clearly_differ(frozen.alpha, exact.alpha)
    assert clearly_differ(frozen.predict(p.stars), exact.predict(p.stars))


def two_episodes(p):
    """The trajectory as two terminated episodes of x_0 … x_m and x_{m+1} … x_N, a reward at every x."""
    N, m = len(p.r), len(p.r) // 2
    r = np.append(p.r, 1.0)
    first = Transitions.from_trajectory(p.X[: m + 1], r[: m + 1], GAMMA, terminated=True)
    second = Transitions.from_trajectory(p.X[m + 1 :], r[m + 1 :], GAMMA, terminated=True)
    discounts = np.full(N + 1, GAMMA)
    discounts[[m, N]] = 0.0
    return Transitions.concatenate([first, second]), r, discounts


def test_erratum_4_terminal_rows(problem):
    """With γ in a terminal row an episode would go on into the next one; its discount is 0."""
    p = problem
    t, r, discounts = two_episodes(p)
    assert np.array_equal(t.discounts, discounts)
    X = np.vstack([p.X, p.X[-1:]])  # Q(x_{N+1}) has the coefficient 0 in the last row

    H = bellman(discounts)
    right = parameters(H, X, p.Z, r, weights(H, X, p.Z))
    for how in "fit", "update":
        assert_is(getattr(p.model(p.Z), how)(t), p.stars, p.Z, *right)
    model = p.model(p.Z)
    for j, (x, gamma) in enumerate(zip(p.X, discounts, strict=True)):
        model.observe(x, r[j], X[j + 1] if gamma else None, gamma)
    assert_is(model, p.stars, p.Z, *right)

    # the printed H can only leave the last row out and link the episodes
    H = bellman(discounts)[:-1, :-1]
    H[len(p.r) // 2, len(p.r) // 2 + 1] = -GAMMA
    assert np.array_equal(H, p.H)
    alpha, _, _, P = parameters(H, p.X, p.Z, p.r, weights(H, p.X, p.Z))
    linked, linked_variance = moments(p.stars, p.Z, alpha, P)
    mean, std = model.predict(p.stars, return_std=True)
    assert clearly_differ(linked, mean)
    assert clearly_differ(linked_variance, std**2)

    # γ in place of 0 in the same rows
    H = bellman(np.full(len(r), GAMMA))
    wrong = parameters(H, X, p.Z, r, weights(H, X, p.Z))
    assert clearly_differ(wrong[0], model.alpha)
    assert clearly_differ(moments(p.stars, p.Z, wrong[0], wrong[3])[0], mean)


def test_erratum_4_terminal_rows_of_gp_sarsa(problem):
    p = problem
    t, r, discounts = two_episodes(p)
    X = np.vstack([p.X, p.X[-1:]])

    def mean(H):
        G = inv(H @ k(X, X) @ H.T + SIGMA2 * np.eye(len(r)))
        return (H @ k(X, p.stars)).T @ G @ r

    ours = GPSarsa(KERNEL, SIGMA2).fit(t).predict(p.stars)
    assert agree(ours, mean(bellman(discounts)))
    assert clearly_differ(mean(bellman(np.full(len(r), GAMMA))), ours)


# -- what growth guarantees, and the four modalities ----------------------------------------------


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_growth_exact_equals_batch(problem, noise):
    """After any adding and removing: what today's Z would have given from the start."""
    p = problem
    model = p.model(p.Z[:4], "exact", noise=noise).update(p.transitions[:10])
    model.add_pseudo_inputs(p.Z[4:6])
    model.update(p.transitions[10:20])
    model.remove_pseudo_inputs([0, 2])
    model.add_pseudo_inputs(p.Z[6:])
    model.update(p.transitions[20:])
    batch = p.model(p.Z[[1, 3, 4, 5, 6]], noise=noise).fit(p.transitions)
    assert np.array_equal(model.pseudo_inputs, batch.pseudo_inputs)
    assert agree(model.alpha, batch.alpha)
    assert agree(model.C, batch.C)
    assert model.log_evidence() == pytest.approx(batch.log_evidence(), rel=TIGHT)


def test_growth_frozen_keeps_weights_of_arrival(problem):
    """After any adding and removing: the batch formulas with each b_j as at t = j."""
    p = problem
    t = p.transitions
    model = p.model(p.Z[:4], "frozen").update(t[:10])
    model.add_pseudo_inputs(p.Z[4:6])
    model.update(t[10:20])
    model.remove_pseudo_inputs([0, 2])
    model.add_pseudo_inputs(p.Z[6:])
    model.update(t[20:])
    today = p.Z[[1, 3, 4, 5, 6]]
    on_arrival = [(p.Z[:4], slice(0, 10)), (p.Z[:6], slice(10, 20)), (today, slice(20, None))]
    b = np.concatenate([weights(p.H, p.X, Z)[rows] for Z, rows in on_arrival])
    assert_is(model, p.stars, today, *parameters(p.H, p.X, today, p.r, b))
    assert clearly_differ(model.alpha, p.model(today).fit(t).alpha)


def test_growth_frozen_equals_exact_with_dtc(problem):
    """DTC weights 1/σ² do not depend on Z, so there is nothing to freeze."""
    p = problem
    frozen, exact = (
        p.model(p.old, growth, weights="dtc").fit(p.transitions) for growth in ("frozen", "exact")
    )
    for model in frozen, exact:
        model.add_pseudo_inputs(p.z)
    b = np.full(len(p.r), 1.0 / SIGMA2)
    for model in frozen, exact:
        assert_is(model, p.stars, p.Z, *parameters(p.H, p.X, p.Z, p.r, b))


def test_growth_streaming_conditions_on_the_past_alone(problem):
    """Past rows keep seeing Z as it was: Δk is replaced by K_k,k−1 A_{k−1} Δk_{k−1}; nothing moves."""
    p = problem
    model = p.model(p.old, "streaming").fit(p.transitions[:20])
    before = model.predict(p.stars, return_cov=True)
    model.add_pseudo_inputs(p.z)
    after = model.predict(p.stars, return_cov=True)
    assert agree(after[0], before[0])
    assert agree(after[1], before[1])

    model.update(p.transitions[20:])
    HK = p.H @ k(p.X, p.Z)
    HK[:20] = (p.H @ k(p.X, p.old))[:20] @ inv(k(p.old, p.old)) @ k(p.old, p.Z)
    b = np.append(weights(p.H, p.X, p.old)[:20], weights(p.H, p.X, p.Z)[20:])
    C = inv(k(p.Z, p.Z) + HK.T @ np.diag(b) @ HK)
    assert agree(model.C, C)
    assert agree(model.alpha, C @ HK.T @ (b * p.r))
    assert clearly_differ(model.alpha, p.model(p.Z).fit(p.transitions).alpha)


def test_growth_streaming_removes_as_a_marginal(problem):
    """The values at the pseudo-inputs that stay keep their joint posterior."""
    p = problem
    model = p.model(p.Z, "streaming").fit(p.transitions)
    kept = np.delete(p.Z, [1, 4], axis=0)
    mean, covariance = model.predict(kept, return_cov=True)
    model.remove_pseudo_inputs([1, 4])
    after = model.predict(kept, return_cov=True)
    assert np.array_equal(model.pseudo_inputs, kept)
    assert agree(after[0], mean)
    assert agree(after[1], covariance)


# -- the page -------------------------------------------------------------------------------------

PAGE = (Path(__file__).parent.parent / "docs" / "paper.md").read_text(encoding="utf-8")
QUOTED = set(re.findall(r"`([^`\n]+)`", PAGE))
CODE_NAMES = sorted(name for name in QUOTED if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name))
TEST_NAMES = sorted(name for name in QUOTED if re.fullmatch(r"test_\w+", name))


def resolve(dotted):
    """The object of that name: the longest importable module, then attributes."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted)


@pytest.mark.parametrize("name", CODE_NAMES)
def test_page_names_exist(name):
    assert name.startswith("gpsarsa.")
    assert resolve(name) is not None


@pytest.mark.parametrize("name", TEST_NAMES)
def test_page_tests_exist(name):
    assert callable(globals().get(name))


def test_page_names_every_erratum():
    assert len(CODE_NAMES) > 20
    for number in (1, 2, 3, 4):
        assert any(name.startswith(f"test_erratum_{number}_") for name in TEST_NAMES)


@pytest.mark.parametrize("name", ["gpsarsa.sparse.SparseGPSarsa.beta", "gpsarsa.nothing"])
def test_page_names_can_fail(name):
    with pytest.raises(AttributeError):
        resolve(name)
