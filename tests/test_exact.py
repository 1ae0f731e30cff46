"""Exact GP-SARSA against dense algebra, its recursion against its batch form."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import exact_posterior
from problems import KERNELS, episode, pseudo_inputs, transitions
from test_sparse import agrees, close

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions
from gpsarsa.kernels import RBF


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_fit_and_update_equal_dense_algebra(name, noise, rng):
    kernel, t, X = KERNELS[name], transitions(rng), pseudo_inputs(rng, 12)
    expected = exact_posterior(kernel, 0.1, t, X, noise=noise, prior_mean=0.6)
    settings = {"noise": noise, "prior_mean": 0.6}
    agrees(GPSarsa(kernel, 0.1, **settings).fit(t), expected, X)
    agrees(GPSarsa(kernel, 0.1, **settings).update(t), expected, X)
    pieces = GPSarsa(kernel, 0.1, **settings).fit(t[:9])
    for lo in range(9, len(t), 5):
        pieces.update(t[lo : lo + 5]).update(t[:0])
    agrees(pieces, expected, X)
    assert pieces.n_transitions == len(t)
    by_row = GPSarsa(kernel, 0.1, **settings)
    for j in range(len(t)):
        by_row.observe(t.inputs[j], t.rewards[j], t.next_inputs[j], t.discounts[j], bool(t.starts[j]))
    agrees(by_row, expected, X)


def test_update_extends_the_factor_and_never_refactorises(rng, monkeypatch):
    t = transitions(rng)
    model = GPSarsa(KERNELS["rbf"], 0.1).fit(t[:20])
    old = model._W[:20, :20].copy()
    monkeypatch.setattr("gpsarsa.exact.dpotrf", None)
    model.update(t[20:])
    np.testing.assert_array_equal(model._W[:20, :20], old)


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_correlated_noise_is_regression_on_monte_carlo_returns(gamma, rng):
    """For terminated episodes; Engel 2005."""
    kernel, X = KERNELS["matern32"], pseudo_inputs(rng, 10)
    episodes = [episode(rng, n, True, gamma) for n in (4, 9, 1, 6)]
    returns = []
    for one in episodes:
        total, backwards = 0.0, []
        for r, g in zip(one.rewards[::-1], one.discounts[::-1], strict=True):
            total = r + g * total
            backwards.append(total)
        returns.append(backwards[::-1])
    inputs, y = np.vstack([e.inputs for e in episodes]), np.concatenate(returns)
    K = kernel(inputs, inputs) + 0.2 * np.eye(len(y))
    model = GPSarsa(kernel, 0.2, noise="correlated").fit(Transitions.concatenate(episodes))
    close(model.predict(X), kernel(X, inputs) @ np.linalg.solve(K, y), rtol=1e-10)
    cov = kernel(X, X) - kernel(X, inputs) @ np.linalg.solve(K, kernel(inputs, X))
    close(model.predict(X, return_cov=True)[1], cov, rtol=1e-10)


def test_before_any_data_it_is_the_prior(rng):
    model, X = GPSarsa(KERNELS["rbf"], 0.1, prior_mean=1.5), pseudo_inputs(rng, 3)
    mean, cov = model.predict(X, return_cov=True)
    np.testing.assert_array_equal(mean, np.full(3, 1.5))
    np.testing.assert_allclose(cov, KERNELS["rbf"](X, X))
    assert model.log_evidence() == 0.0
    assert model.predict(X, return_std=True)[1].shape == (3,)


def test_ten_identical_transitions_are_no_trouble(rng):
    t = episode(rng, 1, True)
    model = GPSarsa(KERNELS["rbf"], 1e-6)
    for _ in range(10):
        model.update(t)
    mean, std = model.predict(t.inputs, return_std=True)
    np.testing.assert_allclose(mean, t.rewards, rtol=1e-4)
    assert std[0] == pytest.approx(np.sqrt(1e-7), rel=1e-2)


def test_a_long_undiscounted_episode_ends_with_little_noise_left():
    """With γ = 1 the terminal row's noise is known to σ²/n: small, but no breakdown."""
    n = 1200
    kernel, path = RBF(1.0, variance=1e-6), np.linspace(0, 30, n)[:, None]
    rewards = np.random.default_rng(0).standard_normal(n)
    t = Transitions.from_trajectory(path, rewards, 1.0, terminated=True)
    model, batch = (GPSarsa(kernel, 1.0, noise="correlated") for _ in "ab")
    X = np.linspace(0, 30, 7)[:, None]
    close(model.update(t[:1000]).update(t[1000:]).predict(X), batch.fit(t).predict(X), rtol=1e-9)
    Z = np.linspace(0, 30, 40)[:, None]
    rows, whole = (SparseGPSarsa(kernel, 1.0, Z, noise="correlated") for _ in "ab")
    close(rows.update(t).predict(X), whole.fit(t).predict(X), rtol=1e-9)
    close(rows.log_evidence(), batch.log_evidence(), rtol=1e-3)
