"""Sums over transitions that can be taken back: the projected fixed point, and the residual's posterior."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest
from oracle import Posterior, kernel_matrix, rows_cross, sparse_posterior
from problems import KERNELS, pseudo_inputs, transitions
from test_errors import fingerprint
from test_sparse import close

from gpsarsa import SparseGPSarsa, Transitions
from gpsarsa.kernels import RBF
from gpsarsa.statistics import FixedPoint, Likelihood, Statistics

RTOL = 1e-9
SUMS = {"fixed point": FixedPoint, "residual": Statistics}


def fixed_point_posterior(kernel, sigma2, Z, t, X, weights="fitc", prior_mean=0.0) -> Posterior:
    """LSTD in the paper's coordinates: Q(x) = k(x, Z) α with (K_zz + K_zx B Δ) α = K_zx B r, where B
    weighs each row by what Z leaves of its x and the noise."""
    K_zz, K_zx = kernel_matrix(kernel, Z, Z), kernel_matrix(kernel, Z, t.inputs)
    left = kernel.diag(t.inputs) - np.einsum("ji,ji->i", K_zx, np.linalg.solve(K_zz, K_zx))
    b = 1.0 / (sigma2 + (left if weights == "fitc" else 0.0))
    r = t.rewards - prior_mean * (1.0 - t.discounts)
    G = np.linalg.inv(K_zz + (K_zx * b) @ rows_cross(kernel, t, Z))
    alpha = G @ (K_zx @ (b * r))
    C = G @ (K_zz + (K_zx * b) @ K_zx.T) @ G.T
    k = kernel_matrix(kernel, Z, X)
    cov = kernel_matrix(kernel, X, X) - k.T @ np.linalg.solve(K_zz, k) + k.T @ C @ k
    return Posterior(prior_mean + k.T @ alpha, cov, np.nan, alpha, C)


def solved(model, sums):
    """The model with the posterior that the sums give."""
    model.__dict__.update(_belief=sums.posterior(model._likelihood), _hot=None)
    return model


def sums_of(kind, model, t):
    return kind.from_block(model._basis, t, model._likelihood)


def at_zero_discount(t):
    return Transitions(t.inputs, t.rewards, t.next_inputs, np.zeros(len(t)))


def same_posterior(model, expected, X, rtol=RTOL):
    mean, cov = model.predict(X, return_cov=True)
    close(mean, expected.mean, max(np.abs(expected.mean).max(), 1.0), rtol)
    close(cov, expected.cov, np.abs(expected.cov).max(), rtol)


@pytest.mark.parametrize("size", [1, 4, 12])
@pytest.mark.parametrize("weights", ["fitc", "dtc"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_fixed_point_is_the_dense_solution(name, weights, size, rng):
    kernel = KERNELS[name]
    t, Z, X = transitions(rng, 80), pseudo_inputs(rng, size) * [2.0, 2.0, 1.0], pseudo_inputs(rng, 9)
    model = SparseGPSarsa(kernel, 0.2, Z, weights=weights, prior_mean=0.7)
    solved(model, sums_of(FixedPoint, model, t))
    same_posterior(model, fixed_point_posterior(kernel, 0.2, Z, t, X, weights, 0.7), X)


@pytest.mark.parametrize("weights", ["fitc", "dtc"])
@pytest.mark.parametrize("name", KERNELS)
def test_without_a_future_it_is_plain_regression(name, weights, rng):
    kernel, t, X = KERNELS[name], at_zero_discount(transitions(rng, 80)), pseudo_inputs(rng, 9)
    Z = pseudo_inputs(rng, 12) * [2.0, 2.0, 1.0]
    options = {"weights": weights, "prior_mean": -0.4}
    fixed = SparseGPSarsa(kernel, 0.2, Z, **options)
    solved(fixed, sums_of(FixedPoint, fixed, t))
    fitted = SparseGPSarsa(kernel, 0.2, Z, **options).fit(t)
    for actual, expected in zip(
        fixed.predict(X, return_cov=True), fitted.predict(X, return_cov=True), strict=True
    ):
        close(actual, expected, rtol=1e-11)
    close(fixed._belief.covariance, fitted._belief.covariance, 1.0, 1e-11)
    close(fixed._belief.mean, fitted._belief.mean, rtol=1e-11)
    np.testing.assert_array_equal(fixed._belief.covariance, fixed._belief.covariance.T)


def test_without_pseudo_inputs_there_is_nothing_to_solve(rng):
    model = SparseGPSarsa(KERNELS["rbf"], 0.2, np.empty((0, 3)), prior_mean=1.5)
    solved(model, sums_of(FixedPoint, model, transitions(rng)))
    mean, std = model.predict(np.zeros((2, 3)), return_std=True)
    np.testing.assert_array_equal(mean, [1.5, 1.5])
    np.testing.assert_array_equal(std, [1.0, 1.0])


def test_a_fixed_point_that_does_not_exist_is_an_error():
    """I + Σ bφψᵀ is singular, or is no number at all."""
    sums = FixedPoint(2)
    sums.cross[:] = -np.eye(2)
    with pytest.raises(ArithmeticError, match="fixed point does not exist"):
        sums.posterior(Likelihood(0.1))
    sums.cross[0, 0] = np.nan
    with pytest.raises(ArithmeticError, match="fixed point does not exist"):
        sums.posterior(Likelihood(0.1))


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────────


def loose(t):
    """The same rows, each with noise of its own."""
    return Transitions(t.inputs, t.rewards, t.next_inputs, t.discounts, np.ones(len(t), bool))


def problem(rng, rows=160):
    model = SparseGPSarsa(KERNELS["sum"], 0.2, pseudo_inputs(rng, 12) * [2.0, 2.0, 1.0], prior_mean=0.3)
    return model, loose(transitions(rng, rows)), pseudo_inputs(rng, 9)


def posterior(model, sums, X):
    return Posterior(*solved(model, sums).predict(X, return_cov=True), np.nan)


@pytest.mark.parametrize("kind", SUMS.values(), ids=SUMS)
@pytest.mark.parametrize("seed", range(5))
def test_sums_add_over_any_partition(kind, seed):
    rng = np.random.default_rng(seed)
    model, t, X = problem(rng)
    whole = sums_of(kind, model, t)
    expected = posterior(model, whole, X)
    shuffled = rng.permutation(len(t))
    parts = np.split(shuffled, np.sort(rng.integers(0, len(t) + 1, 5)))  # some may be empty
    rows = [
        Transitions(t.inputs[i], t.rewards[i], t.next_inputs[i], t.discounts[i], t.starts[i]) for i in parts
    ]
    total = functools.reduce(operator.add, (sums_of(kind, model, part) for part in rows))
    assert total.count == whole.count == len(t)
    same_posterior(solved(model, total), expected, X)


@pytest.mark.parametrize("kind", SUMS.values(), ids=SUMS)
def test_what_was_added_can_be_taken_back(kind, rng):
    model, t, X = problem(rng)
    A, B = sums_of(kind, model, t[:100]), sums_of(kind, model, t[100:])
    expected = posterior(model, A, X)
    operands = [{name: array.copy() for name, array in sums.state().items()} for sums in (A, B)]
    back = (A + B) - B
    assert type(back) is kind
    assert back.count == A.count
    same_posterior(solved(model, back), expected, X, 1e-9)
    if kind is Statistics:
        evidence = back.posterior(model._likelihood).log_evidence
        close(evidence, A.posterior(model._likelihood).log_evidence, rtol=1e-9)
    for sums, before in zip((A, B), operands, strict=True):  # + and − leave what they are given alone
        for name, array in sums.state().items():
            np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("kind", SUMS.values(), ids=SUMS)
def test_rows_taken_out_and_put_in_again_leave_no_drift(kind, rng):
    model, t, X = problem(rng)
    sums = sums_of(kind, model, t)
    expected = posterior(model, sums, X)
    for _ in range(300):
        lo = int(rng.integers(len(t) - 5))
        part = sums_of(kind, model, t[lo : lo + 5])
        sums = sums - part + part
    same_posterior(solved(model, sums), expected, X, 1e-9)


@pytest.mark.parametrize("kind", SUMS.values(), ids=SUMS)
def test_restored_sums_are_the_same_bit_for_bit(kind, rng):
    model, t, _ = problem(rng)
    sums, more = sums_of(kind, model, t[:100]), sums_of(kind, model, t[100:])
    restored = kind.restored({name: array.copy() for name, array in sums.state().items()})
    assert type(restored) is kind
    assert restored.count == sums.count
    twin = model.copy()
    for one, other in ((sums, restored), (sums + more, restored + more), (sums - more, restored - more)):
        assert fingerprint(solved(model, one)) == fingerprint(solved(twin, other))
        for name, array in one.state().items():
            assert array.tobytes() == other.state()[name].tobytes()


@pytest.mark.parametrize("kind", SUMS.values(), ids=SUMS)
@pytest.mark.parametrize("combine", [operator.add, operator.sub])
def test_sums_of_other_sizes_or_kinds_do_not_combine(kind, combine):
    for size in (1, 4):
        with pytest.raises(ValueError, match=f"3 and {size} pseudo-inputs"):
            combine(kind(3), kind(size))
    other = next(known for known in SUMS.values() if known is not kind)
    for stranger in (other(3), 1.0):
        with pytest.raises(TypeError):
            combine(kind(3), stranger)


def test_the_residuals_sums_give_the_dense_posterior_after_a_subtraction(rng):
    model, t, X = problem(rng)
    sums = sums_of(Statistics, model, t) - sums_of(Statistics, model, t[40:90])
    kept = Transitions.concatenate([t[:40], t[90:]])
    dense = sparse_posterior(model.kernel, 0.2, model.pseudo_inputs, loose(kept), X, prior_mean=0.3)
    same_posterior(solved(model, sums), dense, X)


# ── what it is for ───────────────────────────────────────────────────────────────────────────────────

STATES, GAMMA = 19, 0.95


def random_walk(rng, rows):
    """From a random state one step left or right; 1 for leaving on the right, −1 on the left."""
    state = rng.integers(0, STATES, rows)
    reached = state + rng.choice([-1, 1], rows)
    out = (reached < 0) | (reached >= STATES)
    rewards = np.where(reached < 0, -1.0, np.where(reached >= STATES, 1.0, 0.0))
    discounts = np.where(out, 0.0, GAMMA)
    return Transitions(state[:, None], rewards, np.clip(reached, 0, STATES - 1)[:, None], discounts)


def true_values():
    P = 0.5 * (np.eye(STATES, k=1) + np.eye(STATES, k=-1))
    r = np.zeros(STATES)
    r[0], r[-1] = -0.5, 0.5
    return np.linalg.solve(np.eye(STATES) - GAMMA * P, r)


def test_on_a_random_walk_it_is_unbiased_where_the_residual_is_not(rng):
    t, states = loose(random_walk(rng, 20_000)), np.arange(STATES)[:, None]
    model = SparseGPSarsa(RBF(1.0, variance=1.0), 0.1, states.astype(float))
    residual = model.copy().fit(t).predict(states)
    mean, std = solved(model, sums_of(FixedPoint, model, t)).predict(states, return_std=True)
    truth = true_values()
    assert np.abs(mean - truth).mean() < 0.02
    assert np.abs(residual - truth).mean() > 0.1
    assert (std < 0.1).all()
