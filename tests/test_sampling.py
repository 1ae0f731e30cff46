"""Drawn functions: coherent, and with the posterior's covariance everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from problems import KERNELS, pseudo_inputs, transitions
from test_sparse import Cosine

from gpsarsa import GPSarsa, SparseGPSarsa
from gpsarsa.draws import prior_draw

DRAWS = 1500


def assert_moments(values, mean, cov):
    """Sample mean and covariance within five standard errors of what they should be."""
    n = len(values)
    std = np.sqrt(np.diag(cov))
    np.testing.assert_array_less(np.abs(values.mean(axis=0) - mean), 5 * std / np.sqrt(n) + 1e-9)
    centred = values - mean
    products = centred[:, :, None] * centred[:, None, :]
    error = np.abs(products.mean(axis=0) - cov)
    np.testing.assert_array_less(error, 5 * products.std(axis=0) / np.sqrt(n) + 1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_prior_draws_have_the_kernels_covariance(name, rng):
    kernel, X = KERNELS[name], pseudo_inputs(rng, 6)
    X[5] = X[0] + [0.1, 0.1, 0.0]
    values = np.array([prior_draw(kernel, 3, generator)(X) for generator in rng.spawn(DRAWS)])
    assert_moments(values, np.zeros(6), kernel(X, X))


@pytest.mark.parametrize("kind", ["streaming", "exact growth", "GPSarsa", "correlated GPSarsa"])
def test_posterior_draws_have_the_posteriors_moments_near_data_and_far_away(kind, rng):
    kernel, t = KERNELS["action"], transitions(rng)
    model = {
        "streaming": lambda: SparseGPSarsa(kernel, 0.1, pseudo_inputs(rng, 8), growth="streaming"),
        "exact growth": lambda: SparseGPSarsa(kernel, 0.1, pseudo_inputs(rng, 8), prior_mean=2.0),
        "GPSarsa": lambda: GPSarsa(kernel, 0.1, prior_mean=-1.0),
        "correlated GPSarsa": lambda: GPSarsa(kernel, 0.1, noise="correlated"),
    }[kind]()
    model.update(t)
    X = np.vstack([t.inputs[:4], pseudo_inputs(rng, 3), [[9.0, 9.0, 1.0], [-9.0, 3.0, 0.0]]])
    values = np.array([f(X) for f in model.sample(DRAWS, rng)])
    assert_moments(values, *model.predict(X, return_cov=True))
    far = values[:, -1]
    assert far.std() > 0.9  # away from Z the draws still spread as the prior does


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("estimator", [SparseGPSarsa, GPSarsa])
def test_a_function_answers_the_same_at_every_call(own, estimator, rng):
    kernel = Cosine() if own else KERNELS["sum"]
    Z, t = rng.standard_normal((5, 3)), transitions(rng)
    model = SparseGPSarsa(kernel, 0.1, Z) if estimator is SparseGPSarsa else GPSarsa(kernel, 0.1)
    model.update(t)
    X = rng.standard_normal((20, 3))
    functions = model.sample(3, 7)
    first = [f(X) for f in functions]
    for f, values in zip(functions, first, strict=True):
        np.testing.assert_allclose(f(X), values, rtol=0, atol=1e-7)
        np.testing.assert_allclose(np.concatenate([f(X[i : i + 1]) for i in range(20)]), values, atol=1e-7)
        np.testing.assert_allclose(f(X[::-1])[::-1], values, rtol=0, atol=1e-7)
        assert f(X[:0]).shape == (0,)
    assert np.abs(first[0] - first[1]).max() > 1e-3


def test_the_users_kernel_is_drawn_with_its_own_covariance(rng):
    kernel, t = Cosine(), transitions(rng)
    X = rng.standard_normal((4, 3))
    model = SparseGPSarsa(kernel, 0.1, rng.standard_normal((4, 3))).fit(t)
    assert_moments(np.array([f(X) for f in model.sample(1500, rng)]), *model.predict(X, return_cov=True))
    exact = GPSarsa(kernel, 0.1).fit(t)
    assert_moments(np.array([f(X) for f in exact.sample(1000, rng)]), *exact.predict(X, return_cov=True))


def test_seeds_repeat_and_later_learning_does_not_move_a_function(rng):
    t, X = transitions(rng), pseudo_inputs(rng, 6)
    for model in (
        SparseGPSarsa(KERNELS["action"], 0.1, pseudo_inputs(rng, 6), growth="streaming").update(t),
        GPSarsa(KERNELS["action"], 0.1).update(t),
    ):
        a, b, c = model.sample(1, 5)[0], model.sample(1, 5)[0], model.sample(1, 6)[0]
        np.testing.assert_array_equal(a(X), b(X))
        assert np.abs(a(X) - c(X)).max() > 1e-3
        before = a(X)
        model.update(transitions(rng))
        if isinstance(model, SparseGPSarsa):
            model.add_pseudo_inputs(pseudo_inputs(rng, 3))
            model.remove_pseudo_inputs([0])
        np.testing.assert_array_equal(a(X), before)
        assert model.sample(0) == []


def test_without_pseudo_inputs_draws_come_from_the_prior(rng):
    X = pseudo_inputs(rng, 4)
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, np.empty((0, 3)), prior_mean=1.0)
    values = np.array([f(X) for f in model.sample(2000, rng)])
    assert_moments(values, np.ones(4), KERNELS["rbf"](X, X))
    with pytest.raises(RuntimeError, match="call fit or update first"):
        GPSarsa(KERNELS["rbf"], 0.1).sample(1)
