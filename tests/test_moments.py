"""The compiled posterior at a few inputs, its slopes, and copies of a model."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import sparse_posterior
from problems import KERNELS, episode, pseudo_inputs, transitions
from test_errors import fingerprint
from test_sparse import COMBINATIONS, Cosine, close

from gpsarsa import SparseGPSarsa
from gpsarsa._moments import FEW
from gpsarsa.kernels import RBF, Delta, Matern52

SIZES = (0, 1, 3, 4, 5, 33)


def spread_out(rng, count):
    """Pseudo-inputs so far apart that K_zz is well conditioned."""
    return pseudo_inputs(rng, count) * [2.0, 2.0, 1.0]


def learnt(kernel, size, rng, **options):
    Z = spread_out(rng, size)
    return SparseGPSarsa(kernel, 0.2, Z, prior_mean=0.7, **options).fit(transitions(rng))


def precision(model):
    """1e-11, or what the condition of K_zz leaves of double precision."""
    Z = model.pseudo_inputs
    cond = np.linalg.cond(model.kernel(Z, Z)) if len(Z) else 1.0
    assert cond < 1e6
    return max(1e-11, 30 * cond * np.finfo(float).eps)


def in_pieces(model, X, size):
    """Mean and variance, never asked for more than `size` rows at once."""
    pieces = [model.predict(X[lo : lo + size], return_std=True) for lo in range(0, len(X), size)]
    return np.concatenate([mean for mean, _ in pieces]), np.concatenate([std**2 for _, std in pieces])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KERNELS)
def test_few_rows_many_rows_and_dense_algebra_agree(name, size, rng):
    kernel = KERNELS[name]
    t, Z = transitions(rng), spread_out(rng, size)
    model = SparseGPSarsa(kernel, 0.2, Z, prior_mean=0.7).fit(t)
    X = np.vstack([pseudo_inputs(rng, FEW + 9), Z])
    rtol, dense = precision(model), sparse_posterior(kernel, 0.2, Z, t, X, prior_mean=0.7)
    scale = max(np.abs(dense.mean).max(), 1.0), np.abs(kernel.diag(X)).max()
    for rows in (1, 2, 5, FEW, FEW + 1, len(X)):
        mean, variance = in_pieces(model, X, rows)
        close(mean, dense.mean, scale[0], rtol)
        close(variance, np.diag(dense.cov), scale[1], rtol)
        np.testing.assert_array_equal(model.predict(X[:rows]), model.predict(X[:rows], return_std=True)[0])
    assert model.predict(X[:0]).shape == (0,)


@pytest.mark.parametrize(("growth", "weights", "noise"), COMBINATIONS)
def test_a_few_rows_follow_every_change_of_the_model(growth, weights, noise, rng):
    kernel = KERNELS["nested"]
    model = learnt(kernel, 3, rng, growth=growth, weights=weights, noise=noise)
    X = pseudo_inputs(rng, FEW + 8)
    changes = [
        lambda: model.observe(X[0], 2.0, X[1], 0.9),
        lambda: model.add_pseudo_inputs(spread_out(rng, 6)),
        lambda: model.update(episode(rng, 12, True)),
        lambda: model.remove_pseudo_inputs([1, 4]),
        lambda: model.fit(transitions(rng)),
        lambda: model.remove_pseudo_inputs(np.arange(len(model.pseudo_inputs))),
    ]
    before = model.predict(X)
    for change in changes:
        change()
        mean, std = model.predict(X, return_std=True)
        few_mean, few_variance = in_pieces(model, X, 7)
        close(few_mean, mean, max(np.abs(mean).max(), 1.0), precision(model))
        close(few_variance, std**2, kernel.diag(X).max(), precision(model))
    np.testing.assert_array_equal(few_mean, np.full(len(X), 0.7))  # no pseudo-input is left: the prior
    assert np.abs(before - few_mean).max() > 0.1


def test_a_few_rows_in_any_layout(rng):
    model, X = learnt(KERNELS["action"], 5, rng), pseudo_inputs(rng, 12)
    expected = model.predict(X)
    wide = np.zeros((12, 6))
    wide[:, ::2] = X
    read_only = X.copy()
    read_only.flags.writeable = False
    for same in (np.asfortranarray(X), wide[:, ::2], X.tolist(), read_only, np.vstack([X, X])[:12]):
        np.testing.assert_array_equal(model.predict(same), expected)
    np.testing.assert_array_equal(model.predict(X[::2]), expected[::2])


def test_pseudo_inputs_that_explain_too_much_are_an_error_for_few_rows_too(rng):
    model = learnt(KERNELS["rbf"], 5, rng)
    model._basis.W[:] *= 1.5
    X = np.vstack([spread_out(rng, FEW), model.pseudo_inputs])
    for rows in (X, X[-5:]):
        with pytest.raises(ArithmeticError, match=r"explain .* more than rounding allows"):
            model.predict(rows, return_std=True)


# ── slopes ───────────────────────────────────────────────────────────────────────────────────────────


def differences(function, X, h=1e-3):
    """∂function/∂x by central differences of fourth order."""
    slope = np.empty(X.shape)
    for c in range(X.shape[1]):
        step = np.zeros(X.shape[1])
        step[c] = h
        far = function(X + 2 * step) - function(X - 2 * step)
        slope[:, c] = (8 * (function(X + step) - function(X - step)) - far) / (12 * h)
    return slope


def upper(model, bonus):
    def function(X):
        mean, std = model.predict(X, return_std=True)
        return mean + bonus * std

    return function


@pytest.mark.parametrize("bonus", [0.0, 1.3, -0.7])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KERNELS)
def test_slopes_are_the_differences_of_predict(name, size, bonus, rng):
    """The last column lies between the categories of Z, where what a Delta gives is constant."""
    model, X = learnt(KERNELS[name], size, rng), pseudo_inputs(rng, 20)
    X[:, 2] += 0.45
    slope, expected = model._slopes(X, bonus), differences(upper(model, bonus), X)
    np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-8 * max(np.abs(expected).max(), 1.0))
    assert (np.abs(slope).max() > 1e-3) == (size > 0)


@pytest.mark.parametrize("bonus", [0.0, 1.3, -0.7])
def test_columns_that_a_delta_compares_have_no_slope(bonus, rng):
    model, X = learnt(KERNELS["action"], 33, rng), pseudo_inputs(rng, 20)
    slope, expected = model._slopes(X, bonus), differences(upper(model, bonus), X)
    assert (slope[:, 2] == 0.0).all()
    np.testing.assert_allclose(slope[:, :2], expected[:, :2], rtol=0, atol=1e-8 * np.abs(expected).max())
    assert np.abs(slope[:, :2]).max() > 1e-3


@pytest.mark.parametrize("bonus", [0.0, 2.0])
def test_slopes_at_the_pseudo_inputs_themselves(bonus, rng):
    model = learnt(KERNELS["rbf"], 5, rng)
    X = model.pseudo_inputs
    expected = differences(upper(model, bonus), X)
    np.testing.assert_allclose(model._slopes(X, bonus), expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_a_column_that_a_delta_and_another_kernel_read(rng):
    """Only the other kernel's slope counts, as if each read a copy of the column."""
    shared = RBF([0.8, 1.0], columns=[0, 2]) + Matern52(1.2, columns=[1, 2]) * Delta(2, share=0.3)
    apart = RBF([0.8, 1.0], columns=[0, 2]) + Matern52(1.2, columns=[1, 2]) * Delta(3, share=0.3)
    t, Z, X = transitions(rng), spread_out(rng, 9), pseudo_inputs(rng, 12)
    model = SparseGPSarsa(shared, 0.2, Z).fit(t)
    doubled = SparseGPSarsa(apart, 0.2, Z[:, [0, 1, 2, 2]])
    doubled.fit(type(t)(t.inputs[:, [0, 1, 2, 2]], t.rewards, t.next_inputs[:, [0, 1, 2, 2]], t.discounts))
    expected = differences(upper(doubled, 0.5), X[:, [0, 1, 2, 2]])[:, :3]
    np.testing.assert_allclose(model._slopes(X, 0.5), expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_a_kernel_of_the_users_own_has_no_slopes(rng):
    model = SparseGPSarsa(Cosine(), 0.1, rng.standard_normal((4, 3)))
    with pytest.raises(TypeError, match=r"no derivatives here; use a kernel of gpsarsa\.kernels"):
        model._slopes(np.zeros((1, 3)), 0.0)


# ── copies ───────────────────────────────────────────────────────────────────────────────────────────


def a_life(model, rng):
    """Everything that changes a model, on more rows than the first buffers hold."""
    X = pseudo_inputs(rng, 6)
    model.observe(X[0], 1.0, X[1], 0.9, start=True)
    model.observe(X[1], -1.0, X[2], 0.9)
    model.add_pseudo_inputs(pseudo_inputs(rng, 9))
    model.update(transitions(rng, 120))
    model.remove_pseudo_inputs([0, 2])
    model.observe(X[3], 0.5, None, 0.0)
    model.move_pseudo_inputs(pseudo_inputs(rng, 7))
    return model


@pytest.mark.parametrize("size", [0, 5])
@pytest.mark.parametrize("kernel", [KERNELS["sum"], Cosine()], ids=["built-in", "own"])
@pytest.mark.parametrize(("growth", "weights", "noise"), COMBINATIONS)
def test_a_copy_goes_its_own_way(growth, weights, noise, kernel, size, rng):
    model = SparseGPSarsa(
        kernel, 0.1, 2 * rng.standard_normal((size, 3)), growth=growth, weights=weights, noise=noise,
        prior_mean=0.3,
    )  # fmt: skip
    model.update(transitions(rng))
    model.observe(np.zeros(3), 1.0, np.ones(3), 0.9)  # the compiled state is warm
    X, twin = pseudo_inputs(rng, 7), model.copy()
    assert type(twin) is SparseGPSarsa
    assert twin.get_params().keys() == model.get_params().keys()
    assert fingerprint(twin) == fingerprint(model)
    for a, b in zip(model.predict(X, return_cov=True), twin.predict(X, return_cov=True), strict=True):
        np.testing.assert_array_equal(a, b)
    untouched = fingerprint(model)
    third = a_life(twin, np.random.default_rng(5)).copy()
    assert fingerprint(model) == untouched
    assert fingerprint(twin) != untouched
    a_life(model, np.random.default_rng(5))
    assert fingerprint(model) == fingerprint(twin) == fingerprint(third)
    later = fingerprint(third)
    a_life(model, np.random.default_rng(6))
    assert fingerprint(twin) == fingerprint(third) == later
