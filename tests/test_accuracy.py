"""How much of double precision is left: against 50-digit arithmetic, and after a million updates."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from oracle import sparse_posterior
from problems import KERNELS, episode, pseudo_inputs, transitions
from test_sparse import LEARN, Cosine, close

from gpsarsa import SparseGPSarsa, Transitions, kernels

EPS = np.finfo(float).eps


def mp_kernel(kernel, a, b):
    scales = np.broadcast_to(kernel.lengthscales, len(a))
    d2 = mp.fsum(((mp.mpf(x) - mp.mpf(y)) / mp.mpf(s)) ** 2 for x, y, s in zip(a, b, scales, strict=True))
    variance = mp.mpf(kernel.variance)
    if isinstance(kernel, kernels.RBF):
        return variance * mp.exp(-d2 / 2)
    if isinstance(kernel, kernels.Matern32):
        s = mp.sqrt(3 * d2)
        return variance * (1 + s) * mp.exp(-s)
    s = mp.sqrt(5 * d2)
    return variance * (1 + s + s**2 / 3) * mp.exp(-s)


def mp_posterior(kernel, sigma2, Z, t, X, weights, noise):
    """The SPGP posterior in 50 digits, straight from the definition."""
    x, y, z, new = (a.astype(float).tolist() for a in (t.inputs, t.next_inputs, Z, X))
    gamma, r = [mp.mpf(g) for g in t.discounts.tolist()], mp.matrix(t.rewards.tolist())
    N, M = len(x), len(z)

    def k(a, b):
        return mp_kernel(kernel, a, b)

    K = mp.matrix(M, M)
    for i in range(M):
        for j in range(M):
            K[i, j] = k(z[i], z[j])
    D = mp.matrix(M, N)
    for i in range(M):
        for j in range(N):
            D[i, j] = k(z[i], x[j]) - gamma[j] * k(z[i], y[j])
    A = mp.inverse(K)
    AD = A * D
    Lambda = mp.matrix(N, N)
    for j in range(N):
        Lambda[j, j] = mp.mpf(sigma2) * (1 + gamma[j] ** 2 if noise == "correlated" else 1)
        if weights == "fitc":
            prior = k(x[j], x[j]) - 2 * gamma[j] * k(x[j], y[j]) + gamma[j] ** 2 * k(y[j], y[j])
            Lambda[j, j] += prior - mp.fsum(D[i, j] * AD[i, j] for i in range(M))
        if noise == "correlated" and j and not t.starts[j]:
            Lambda[j - 1, j] = Lambda[j, j - 1] = -gamma[j - 1] * mp.mpf(sigma2)
    B = mp.inverse(Lambda)
    C = mp.inverse(K + D * B * D.T)
    alpha = C * (D * (B * r))
    P = A - C
    covariance = D.T * A * D + Lambda
    evidence = (
        -(N * mp.log(2 * mp.pi) + mp.log(mp.det(covariance)) + (r.T * mp.inverse(covariance) * r)[0]) / 2
    )
    mean, variance = [], []
    for p in new:
        kz = mp.matrix([k(p, q) for q in z])
        mean.append((kz.T * alpha)[0])
        variance.append(k(p, p) - (kz.T * P * kz)[0])

    def real(matrix):
        return np.array(matrix.tolist(), dtype=float)

    return {
        "mean": np.array(mean, dtype=float),
        "variance": np.array(variance, dtype=float),
        "evidence": float(evidence),
        "alpha": real(alpha)[:, 0],
        "C": real(C),
        "P": real(P),
    }


def crowded(rng, spread, columns=2):
    """Seven pseudo-inputs, three of them `spread` away from another."""
    Z = rng.standard_normal((7, columns))
    Z[4:] = Z[:3] + spread * rng.standard_normal((3, columns))
    return Z


SPREADS = {
    "rbf": (1.0, 1e-1, 1e-2, 1e-3, 1e-4),
    "matern32": (1e-2, 1e-3, 1e-4),
    "matern52": (1e-2, 1e-3, 1e-4),
}
CASES = [(name, spread) for name, spreads in SPREADS.items() for spread in spreads]
MP_KERNELS = {
    "rbf": kernels.RBF([0.9, 1.3]),
    "matern32": kernels.Matern32(1.2, variance=1.7),
    "matern52": kernels.Matern52([0.9, 1.3], variance=0.6),
}


@pytest.mark.parametrize(
    ("weights", "noise"), [("fitc", "iid"), ("dtc", "correlated"), ("fitc", "correlated")]
)
@pytest.mark.parametrize(("name", "spread"), CASES)
def test_within_a_hundred_roundings_times_the_condition(name, spread, weights, noise):
    rng = np.random.default_rng(int(1 / spread))
    kernel, Z, X = MP_KERNELS[name], crowded(rng, spread), rng.standard_normal((5, 2))
    t = Transitions.concatenate([episode(rng, 6, True, columns=2), episode(rng, 6, False, columns=2)])
    cond = np.linalg.cond(kernel(Z, Z))
    assert cond < 2e10
    with mp.workdps(50):
        expected = mp_posterior(kernel, 0.05, Z, t, X, weights, noise)
    bound = max(100 * cond * EPS, 1e-12) if cond > 1e6 else min(1e-8, max(100 * cond * EPS, 1e-12))
    for learn in LEARN.values():
        model = learn(SparseGPSarsa(kernel, 0.05, Z, weights=weights, noise=noise), t)
        mean, std = model.predict(X, return_std=True)
        actual = {
            "mean": mean,
            "variance": std**2,
            "evidence": model.log_evidence(),
            "alpha": model.alpha,
            "C": model.C,
            "P": model.P,
        }
        for quantity, value in expected.items():
            error = np.abs(actual[quantity] - value).max() / np.abs(value).max()
            assert error < bound, (quantity, error, bound)


def test_conditions_reach_ten_to_the_ten():
    conditions = [
        np.linalg.cond(MP_KERNELS[name](Z, Z))
        for name, spread in CASES
        for Z in [crowded(np.random.default_rng(int(1 / spread)), spread)]
    ]
    assert max(conditions) > 5e9
    assert min(conditions) < 1e4


def walk(rng, n, columns=3):
    """n rows of one long bounded path with an end here and there."""
    angle = np.cumsum(0.4 * rng.standard_normal((n + 1, columns)), axis=0)
    path = 2 * np.sin(angle)
    gamma = np.where(rng.random(n) < 0.01, 0.0, 0.95)
    rewards = np.cos(path[:-1, 0]) + 0.2 * rng.standard_normal(n)
    return Transitions(path[:-1], rewards, path[1:], gamma)


@pytest.mark.parametrize(("noise", "sigma2"), [("iid", 1e-1), ("iid", 1e-8), ("correlated", 1e-2)])
def test_a_million_updates_do_not_drift(noise, sigma2, rng):
    kernel, t = kernels.Matern52([1.0, 1.2, 0.9]), walk(rng, 1_000_000)
    Z, X = 1.5 * rng.standard_normal((24, 3)), rng.standard_normal((200, 3))
    recursive = SparseGPSarsa(kernel, sigma2, Z, noise=noise, growth="streaming")
    for lo in range(0, len(t), 100_000):
        recursive.update(t[lo : lo + 100_000])
    batch = SparseGPSarsa(kernel, sigma2, Z, noise=noise, growth="streaming").fit(t)
    assert recursive.n_transitions == 1_000_000
    (mean, std), (expected, expected_std) = (m.predict(X, return_std=True) for m in (recursive, batch))
    close(mean, expected, rtol=1e-9)
    close(std**2, expected_std**2, rtol=1e-9)
    close(recursive.log_evidence(), batch.log_evidence(), rtol=1e-9)
    close(recursive._belief.covariance, batch._belief.covariance, rtol=1e-9)


def test_no_variance_is_negative_however_small_the_noise(rng):
    for sigma2 in (1e-2, 1e-6, 1e-10):
        Z = pseudo_inputs(rng, 40)
        model = SparseGPSarsa(KERNELS["matern52"], sigma2, Z, growth="streaming")
        model.update(walk(rng, 20_000))
        X = np.vstack([Z, pseudo_inputs(rng, 500)])
        std = model.predict(X, return_std=True)[1]
        assert (std >= 0).all()
        eigenvalues = np.linalg.eigvalsh(model._belief.covariance)
        assert eigenvalues[0] > -1e-14
        assert eigenvalues[-1] < 1 + 1e-12


def test_memory_is_flat_in_streaming_mode(rng):
    """No buffer of the model depends on how many transitions it has seen."""

    def held(model):
        basis, belief = model._basis, model._belief
        history = model._history
        arrays = [basis.W, basis.Zt, basis._Z, belief.R, belief.m, belief.c, history.newest, history.records]
        return sum(array.nbytes for array in arrays)

    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 10), growth="streaming")
    t = walk(rng, 1000)
    model.update(t[:1])
    before = held(model), set(vars(model))
    for _ in range(100):
        model.update(t)
    assert (held(model), set(vars(model))) == before
    assert len(model._history) == 0


def test_inputs_far_from_the_origin_lose_nothing(rng):
    """Distances are differences of the inputs, so an offset costs no digits."""
    kernel = kernels.RBF([1.0, 0.5, 2.0])

    # steps of 2⁻²⁰ survive an offset of 2²⁰ exactly
    def grid(n):
        return np.round(rng.standard_normal((n, 3)) * 2**20) / 2**20

    X, Y, Z, new = grid(30), grid(30), grid(8), grid(6)
    r, gamma = rng.standard_normal(30), np.full(30, 0.9)
    near = SparseGPSarsa(kernel, 0.1, Z).fit(Transitions(X, r, Y, gamma))
    offset = 2.0**20
    far = SparseGPSarsa(kernel, 0.1, Z + offset).fit(Transitions(X + offset, r, Y + offset, gamma))
    np.testing.assert_array_equal(near.predict(new), far.predict(new + offset))


def test_the_batch_is_the_same_whatever_the_block(rng, monkeypatch):
    t, Z, X = walk(rng, 700), pseudo_inputs(rng, 9), pseudo_inputs(rng, 9)
    for noise in ("iid", "correlated"):
        expected = sparse_posterior(KERNELS["rbf"], 0.1, Z, t, X, noise=noise)
        for step in (1, 13, 700, 5000):
            model = SparseGPSarsa(KERNELS["rbf"], 0.1, Z, noise=noise)
            monkeypatch.setattr(
                type(model._basis),
                "blocks",
                lambda self, n, step=step: (slice(a, min(a + step, n)) for a in range(0, n, step)),
            )
            close(model.fit(t).predict(X), expected.mean, rtol=1e-10)
            close(model.log_evidence(), expected.log_evidence, rtol=1e-10)
            assert math.isfinite(model.log_evidence())


@pytest.mark.parametrize("noise", ["iid", "correlated"])
@pytest.mark.parametrize("step", [0.0, 1e-12, 1e-9, 1e-6])
def test_a_step_that_hardly_moves_is_no_breakdown(step, noise, rng):
    """With γ = 1 and x′ close to x, κ and ψᵀψ are both lost in rounding."""
    X = rng.standard_normal((40, 3))
    t = Transitions(X, np.full(40, 0.1), X + step * rng.standard_normal((40, 3)), np.ones(40))
    for kernel in (*KERNELS.values(), Cosine()):
        Z = pseudo_inputs(rng, 6)
        for size in (0, 1, 6):
            for learn in LEARN.values():
                model = learn(SparseGPSarsa(kernel, 1e-3, Z[:size], noise=noise), t)
                mean, std = model.predict(X, return_std=True)
                assert np.isfinite(mean).all()
                assert np.isfinite(std).all()


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_the_unit_of_the_rewards_does_not_matter(scale, noise, rng):
    t, Z, X = transitions(rng), pseudo_inputs(rng, 9), pseudo_inputs(rng, 5)
    scaled = Transitions(t.inputs, t.rewards * scale, t.next_inputs, t.discounts, t.starts)
    for learn, growth in itertools.product(LEARN.values(), ("exact", "streaming")):
        plain, large = (
            SparseGPSarsa(
                kernels.RBF(1.1, variance=s**2), 0.1 * s**2, Z, growth=growth, noise=noise, prior_mean=2 * s
            )
            for s in (1.0, scale)
        )
        for model, rows in ((plain, t), (large, scaled)):
            learn(model, rows)
            model.remove_pseudo_inputs([1])
            model.add_pseudo_inputs(X[:2])
        (mean, std), (mean_large, std_large) = (m.predict(X, return_std=True) for m in (plain, large))
        close(mean_large / scale, mean, rtol=1e-12)
        close(std_large / scale, std, rtol=1e-12)
        evidence = plain.log_evidence() - len(t) * math.log(scale)
        close(large.log_evidence(), evidence, rtol=1e-12)
