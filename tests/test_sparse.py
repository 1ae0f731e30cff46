"""SPGP-SARSA against dense algebra: every defined combination, in batch and row by row."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from oracle import DenseFilter, exact_posterior, residuals, sparse_posterior
from problems import KERNELS, episode, pseudo_inputs, transitions

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions

RTOL = 1e-11

COMBINATIONS = [
    (growth, weights, noise)
    for growth, weights, noise in itertools.product(
        ("exact", "frozen", "streaming"), ("fitc", "dtc"), ("iid", "correlated")
    )
    if not (growth == "frozen" and noise == "correlated")
]


def by_observe(model, t):
    for j in range(len(t)):
        x, following = t.inputs[j], t.next_inputs[j]
        model.observe(x, t.rewards[j], following, t.discounts[j], bool(t.starts[j]))
    return model


LEARN = {
    "fit": lambda model, t: model.fit(t),
    "update": lambda model, t: model.update(t),
    "observe": by_observe,
    "pieces": lambda model, t: model.update(t[:7]).update(t[7:8]).update(t[8:8]).update(t[8:]),
}


def close(actual, expected, scale=None, rtol=RTOL):
    """Equal relative to the largest expected magnitude."""
    scale = np.abs(expected).max() if scale is None else scale
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * scale)


def agrees(model, expected, X):
    """Every quantity within 1e-11, or within what the condition of K_zz leaves of double precision
    (never more than 1e-8 up to a condition of 1e6)."""
    rtol = RTOL
    if isinstance(model, SparseGPSarsa) and len(model.pseudo_inputs):
        cond = np.linalg.cond(model.kernel(model.pseudo_inputs, model.pseudo_inputs))
        assert cond < 1e6
        rtol = max(RTOL, 30 * cond * np.finfo(float).eps)
    mean, cov = model.predict(X, return_cov=True)
    scale = np.abs(np.diag(model.kernel(X, X))).max()
    close(mean, expected.mean, max(np.abs(expected.mean).max(), 1.0), rtol)
    close(cov, expected.cov, scale, rtol)
    close(model.predict(X), mean, max(np.abs(mean).max(), 1.0), rtol)
    close(model.predict(X, return_std=True)[1] ** 2, np.diag(expected.cov), scale, rtol)
    close(model.log_evidence(), expected.log_evidence, max(abs(expected.log_evidence), 1.0), rtol)
    if expected.alpha is not None:
        for name in ("alpha", "C", "P"):
            close(getattr(model, name), getattr(expected, name), rtol=rtol)


@pytest.mark.parametrize("how", LEARN)
@pytest.mark.parametrize(("growth", "weights", "noise"), COMBINATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_every_combination_equals_dense_algebra(growth, weights, noise, how, seed):
    rng = np.random.default_rng(seed)
    kernel = list(KERNELS.values())[(seed + len(how)) % len(KERNELS)]
    t, Z, X = transitions(rng), pseudo_inputs(rng, 9), pseudo_inputs(rng, 21)
    settings = {"weights": weights, "noise": noise, "prior_mean": 0.7}
    model = LEARN[how](SparseGPSarsa(kernel, 0.2, Z, growth=growth, **settings), t)
    agrees(model, sparse_posterior(kernel, 0.2, Z, t, X, **settings), X)
    assert model.n_transitions == len(t)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_every_kernel_equals_dense_algebra(name, noise, rng):
    kernel, t, Z, X = KERNELS[name], transitions(rng), pseudo_inputs(rng, 8), pseudo_inputs(rng, 10)
    expected = sparse_posterior(kernel, 0.05, Z, t, X, noise=noise)
    for learn in LEARN.values():
        agrees(learn(SparseGPSarsa(kernel, 0.05, Z, noise=noise), t), expected, X)


@pytest.mark.parametrize("weights", ["fitc", "dtc"])
@pytest.mark.parametrize("noise", ["iid", "correlated"])
@pytest.mark.parametrize("forgetting", [1.0, 0.97, 0.5])
def test_recursion_equals_a_dense_kalman_filter(weights, noise, forgetting, rng):
    kernel, t, Z, X = KERNELS["matern52"], transitions(rng), pseudo_inputs(rng, 7), pseudo_inputs(rng, 9)
    settings = {"weights": weights, "noise": noise, "forgetting": forgetting, "prior_mean": -0.4}
    dense = DenseFilter(kernel, 0.1, Z, **settings)
    for j in range(len(t)):
        dense.observe(t[j])
    mean, cov = dense.predict(X)
    for how in LEARN:
        for growth in ("exact", "streaming"):
            model = LEARN[how](SparseGPSarsa(kernel, 0.1, Z, growth=growth, **settings), t)
            close(model.predict(X), mean)
            close(model.predict(X, return_cov=True)[1], cov)
            close(model.log_evidence(), dense.log_evidence)


def test_a_fit_with_correlated_noise_hands_the_open_episode_on(rng):
    """update after fit continues the chain, as if all rows had come by update."""
    kernel, Z, X = KERNELS["rbf"], pseudo_inputs(rng, 8), pseudo_inputs(rng, 8)
    whole = episode(rng, 30, terminated=False)
    expected = sparse_posterior(kernel, 0.3, Z, whole, X, noise="correlated")
    for cut in (1, 13, 29):
        model = SparseGPSarsa(kernel, 0.3, Z, noise="correlated", growth="streaming")
        agrees(model.fit(whole[:cut]).update(whole[cut:]), expected, X)


def test_observe_infers_starts(rng):
    kernel, Z, X = KERNELS["rbf"], pseudo_inputs(rng, 8), pseudo_inputs(rng, 8)
    t = transitions(rng)
    told = SparseGPSarsa(kernel, 0.3, Z, noise="correlated")
    inferred = SparseGPSarsa(kernel, 0.3, Z, noise="correlated")
    for j in range(len(t)):
        row = t.inputs[j], t.rewards[j], t.next_inputs[j], t.discounts[j]
        told.observe(*row, start=bool(t.starts[j]))
        inferred.observe(*row)
    assert t.starts.sum() > 4
    np.testing.assert_array_equal(inferred.predict(X), told.predict(X))
    np.testing.assert_array_equal(inferred._history.transitions.starts, t.starts)


def test_a_first_row_that_continues_nothing_is_a_start(rng):
    t = episode(rng, 6, terminated=True)
    odd = Transitions(t.inputs, t.rewards, t.next_inputs, t.discounts, np.zeros(6, bool))
    Z, X = pseudo_inputs(rng, 5), pseudo_inputs(rng, 5)
    for learn in LEARN.values():
        model = SparseGPSarsa(KERNELS["rbf"], 0.3, Z, noise="correlated")
        reference = SparseGPSarsa(KERNELS["rbf"], 0.3, Z, noise="correlated").fit(t)
        close(learn(model, odd).predict(X), reference.predict(X))


# -- reductions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_pseudo_inputs_at_every_input_give_the_exact_model(noise, rng):
    kernel, t, X = KERNELS["matern32"], transitions(rng), pseudo_inputs(rng, 12)
    Z = np.unique(np.vstack([t.inputs, t.next_inputs]), axis=0)
    sparse = SparseGPSarsa(kernel, 0.1, Z, noise=noise, prior_mean=0.3).fit(t)
    exact = GPSarsa(kernel, 0.1, noise=noise, prior_mean=0.3).fit(t)
    close(sparse.predict(X), exact.predict(X), rtol=1e-9)
    close(sparse.predict(X, return_cov=True)[1], exact.predict(X, return_cov=True)[1], rtol=1e-9)
    close(sparse.log_evidence(), exact.log_evidence(), rtol=1e-9)


def test_without_discounts_it_is_gp_regression(rng):
    kernel, X, y = KERNELS["rbf"], rng.standard_normal((25, 3)), rng.standard_normal(25)
    new = rng.standard_normal((6, 3))
    t = Transitions(X, y, np.full_like(X, np.nan), np.zeros(25))
    K = kernel(X, X) + 0.1 * np.eye(25)
    mean = kernel(new, X) @ np.linalg.solve(K, y)
    cov = kernel(new, new) - kernel(new, X) @ np.linalg.solve(K, kernel(X, new))
    for model in (GPSarsa(kernel, 0.1), SparseGPSarsa(kernel, 0.1, X)):
        for learnt in (model.fit(t),):
            close(learnt.predict(new), mean)
            close(learnt.predict(new, return_cov=True)[1], cov)


def test_no_pseudo_inputs_is_the_prior(rng):
    t, X = transitions(rng), pseudo_inputs(rng, 4)
    kernel = KERNELS["matern32"]
    for learn in LEARN.values():
        model = learn(SparseGPSarsa(kernel, 0.2, np.zeros((0, 3)), prior_mean=2.0), t)
        np.testing.assert_array_equal(model.predict(X), np.full(4, 2.0))
        np.testing.assert_allclose(model.predict(X, return_std=True)[1], np.sqrt(kernel.diag(X)))
        V = residuals(kernel, np.zeros((0, 3)), t) + 0.2
        r = t.rewards - 2.0 * (1 - t.discounts)
        close(model.log_evidence(), -0.5 * np.sum(np.log(2 * np.pi * V) + r**2 / V))
        assert model.alpha.shape == (0,)
        assert model.C.shape == (0, 0)


def test_prior_mean_is_a_shift_of_the_rewards(rng):
    t, Z, X = transitions(rng), pseudo_inputs(rng, 8), pseudo_inputs(rng, 5)
    shifted = Transitions(t.inputs, t.rewards - 3.0 * (1 - t.discounts), t.next_inputs, t.discounts, t.starts)
    with_mean = SparseGPSarsa(KERNELS["rbf"], 0.1, Z, prior_mean=3.0).fit(t)
    without = SparseGPSarsa(KERNELS["rbf"], 0.1, Z).fit(shifted)
    close(with_mean.predict(X), without.predict(X) + 3.0)


def test_the_order_of_independent_rows_does_not_matter(rng):
    t, Z, X = transitions(rng), pseudo_inputs(rng, 8), pseudo_inputs(rng, 5)
    shuffled = t[rng.permutation(len(t))]
    a, b = (SparseGPSarsa(KERNELS["rbf"], 0.1, Z).update(rows) for rows in (t, shuffled))
    close(a.predict(X), b.predict(X))
    close(a.log_evidence(), b.log_evidence())


def test_fit_starts_over(rng):
    t, Z, X = transitions(rng), pseudo_inputs(rng, 8), pseudo_inputs(rng, 5)
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, Z).update(transitions(rng)).fit(t)
    np.testing.assert_array_equal(model.predict(X), SparseGPSarsa(KERNELS["rbf"], 0.1, Z).fit(t).predict(X))
    assert model.fit(t[:0]).log_evidence() == 0.0
    np.testing.assert_array_equal(model.predict(X), np.zeros(5))


# -- a user's own kernel --------------------------------------------------------------------------


class Cosine:
    """A kernel of our own that is not stationary: a bounded linear kernel plus one."""

    def __call__(self, A, B):
        A, B = np.tanh(A), np.tanh(B)
        return 1.0 + A @ B.T + 0.5 * (A @ B.T) ** 2

    def diag(self, A):
        squares = (np.tanh(A) ** 2).sum(axis=1)
        return 1.0 + squares + 0.5 * squares**2


@pytest.mark.parametrize("how", LEARN)
@pytest.mark.parametrize(("growth", "weights", "noise"), COMBINATIONS)
def test_a_kernel_of_the_users_own(growth, weights, noise, how, rng):
    t, Z, X = transitions(rng), rng.standard_normal((6, 3)), rng.standard_normal((9, 3))
    settings = {"weights": weights, "noise": noise}
    model = LEARN[how](SparseGPSarsa(Cosine(), 0.2, Z, growth=growth, **settings), t)
    agrees(model, sparse_posterior(Cosine(), 0.2, Z, t, X, **settings), X)


def test_exact_model_with_a_kernel_of_the_users_own(rng):
    t, X = transitions(rng), rng.standard_normal((9, 3))
    expected = exact_posterior(Cosine(), 0.2, t, X)
    agrees(GPSarsa(Cosine(), 0.2).fit(t), expected, X)
    agrees(GPSarsa(Cosine(), 0.2).update(t[:5]).update(t[5:]), expected, X)


# -- prediction -----------------------------------------------------------------------------------


def test_many_rows_and_few_rows_agree(rng):
    """Short and long requests take different ways through the covariance."""
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 30)).fit(transitions(rng))
    X = pseudo_inputs(rng, 5000)
    mean, std = model.predict(X, return_std=True)
    for rows in (slice(0, 1), slice(3, 19), slice(100, 117)):
        m, s = model.predict(X[rows], return_std=True)
        close(m, mean[rows])
        close(s, std[rows])
    assert model.predict(X[:0]).shape == (0,)
    assert model.predict(X[:0], return_cov=True)[1].shape == (0, 0)


def test_get_params_rebuilds_the_model(rng):
    model = SparseGPSarsa(KERNELS["action"], 0.1, pseudo_inputs(rng, 5), growth="streaming", forgetting=0.9)
    other = SparseGPSarsa(**model.get_params())
    assert other.get_params().keys() == model.get_params().keys()
    for name, value in model.get_params().items():
        np.testing.assert_equal(other.get_params()[name], value)
    assert "forgetting=0.9" in repr(model)
    assert GPSarsa(**GPSarsa(KERNELS["rbf"], 0.1).get_params()).get_params()["noise"] == "iid"


def test_a_setting_cannot_be_changed_behind_the_posteriors_back(rng):
    for model in (SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 3)), GPSarsa(KERNELS["rbf"], 0.1)):
        for name in model.get_params():
            with pytest.raises(AttributeError):
                setattr(model, name, None)


def test_copies_go_their_own_way(rng):
    t, X = transitions(rng), pseudo_inputs(rng, 5)
    for model in (SparseGPSarsa(KERNELS["sum"], 0.1, pseudo_inputs(rng, 6)), GPSarsa(KERNELS["sum"], 0.1)):
        model.observe(t.inputs[0], 1.0, t.next_inputs[0], 0.9)
        for duplicate in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))):
            other = duplicate(model)
            before = model.predict(X)
            other.observe(t.inputs[1], 1.0, t.next_inputs[1], 0.9).update(t)
            np.testing.assert_array_equal(model.predict(X), before)
            again = duplicate(model).observe(t.inputs[1], 1.0, t.next_inputs[1], 0.9).update(t)
            np.testing.assert_array_equal(again.predict(X), other.predict(X))
