"""The log evidence against dense algebra, and its gradient against differences of dense algebra."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from oracle import (
    as_from_the_start,
    kernel_matrix,
    log_normal,
    noise_covariance,
    rows_covariance,
    rows_cross,
)
from problems import KERNELS, episode, pseudo_inputs, transitions
from scipy.stats import multivariate_normal
from test_sparse import Cosine

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions, evidence, kernels
from gpsarsa.basis import Basis
from gpsarsa.evidence import log_evidence

EMPTY = np.zeros((0, 3))

MODELS = [
    *({"weights": w, "noise": n} for w, n in itertools.product(("fitc", "dtc"), ("iid", "correlated"))),
    *({"objective": "variational", "noise": n} for n in ("iid", "correlated")),
]
NOISES = [{"noise": "iid"}, {"noise": "correlated"}]


def name_of(settings):
    return "-".join(settings.values())


def dense(kernel, sigma2, Z, t, weights="fitc", noise="iid", prior_mean=0.0, objective="evidence"):
    """log N(r; 0, C), or Titsias' bound, from full matrices."""
    t = as_from_the_start(t)
    r = t.rewards - prior_mean * (1 - t.discounts)
    K, Lambda = rows_covariance(kernel, t), noise_covariance(t, sigma2, noise)
    if Z is None:
        return log_normal(r, K + Lambda)
    K_rz = rows_cross(kernel, t, Z)
    Q = K_rz @ np.linalg.solve(kernel_matrix(kernel, Z, Z), K_rz.T)
    if objective == "variational":
        left = np.trace(K - Q) if noise == "iid" else unexplained(kernel, Z, t).sum()
        return log_normal(r, Q + Lambda) - left / (2 * sigma2)
    if weights == "fitc":
        Lambda = Lambda + np.diag(np.diag(K - Q))
    return log_normal(r, Q + Lambda)


def unexplained(kernel, Z, t):
    """k(x, x) − k(x, Z) K_zz⁻¹ k(Z, x) of every x, and of every x′ that the row after does not continue."""
    last = [j for j in range(len(t)) if t.discounts[j] > 0 and (j + 1 == len(t) or t.starts[j + 1])]
    X = np.vstack([t.inputs, t.next_inputs[last]])
    k = kernel_matrix(kernel, X, Z)
    return kernel.diag(X) - np.einsum("ij,ji->i", k, np.linalg.solve(kernel_matrix(kernel, Z, Z), k.T))


def visited(t):
    """Every input once."""
    return np.unique(np.vstack([t.inputs, t.next_inputs]), axis=0)


def flat(gradient):
    """The gradient as one vector."""
    own = [np.ravel(value) for value in gradient.kernel.values()]
    return np.concatenate(
        [gradient.pseudo_inputs.ravel(), *own, [gradient.noise_variance, gradient.prior_mean]]
    )


def same(actual, expected, rtol=1e-10):
    """Two pairs (value, Gradient) agree, relative to the largest entry."""
    assert actual[0] == pytest.approx(expected[0], rel=rtol, abs=rtol)
    a, b = flat(actual[1]), flat(expected[1])
    np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(np.abs(b).max(), 1.0))


# -- the value ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
@pytest.mark.parametrize("name", KERNELS)
def test_the_value_equals_dense_algebra_and_the_model(name, settings, rng):
    kernel, t, Z = KERNELS[name], transitions(rng), pseudo_inputs(rng, 8)
    value = log_evidence(kernel, 0.2, Z, t, prior_mean=0.7, **settings)
    assert isinstance(value, float)
    assert value == pytest.approx(dense(kernel, 0.2, Z, t, prior_mean=0.7, **settings), rel=1e-11)
    if settings.get("objective") != "variational":
        model = SparseGPSarsa(kernel, 0.2, Z, prior_mean=0.7, **settings)
        assert value == pytest.approx(model.fit(t).log_evidence(), rel=1e-12)
    else:
        with_weights = [log_evidence(kernel, 0.2, Z, t, weights=w, **settings) for w in ("fitc", "dtc")]
        assert with_weights[0] == with_weights[1]


@pytest.mark.parametrize("settings", NOISES, ids=name_of)
@pytest.mark.parametrize("name", KERNELS)
def test_the_exact_value_equals_dense_algebra_and_the_model(name, settings, rng):
    kernel, t = KERNELS[name], transitions(rng)
    value = log_evidence(kernel, 0.2, None, t, prior_mean=0.7, **settings)
    assert value == pytest.approx(dense(kernel, 0.2, None, t, prior_mean=0.7, **settings), rel=1e-11)
    model = GPSarsa(kernel, 0.2, prior_mean=0.7, **settings).fit(t)
    assert value == pytest.approx(model.log_evidence(), rel=1e-12)


def test_the_bound_is_the_dtc_evidence_less_a_trace(rng):
    kernel, t, Z = KERNELS["matern52"], transitions(rng), pseudo_inputs(rng, 8)
    K_rz = rows_cross(kernel, t, Z)
    explained = np.einsum("ij,ji->i", K_rz, np.linalg.solve(kernel(Z, Z), K_rz.T))
    taus = np.diag(rows_covariance(kernel, t)) - explained
    bound = log_evidence(kernel, 0.2, Z, t, objective="variational")
    dtc = log_evidence(kernel, 0.2, Z, t, weights="dtc")
    assert dtc - bound == pytest.approx(taus.sum() / 0.4, rel=1e-10)
    assert taus.sum() > 1.0


@pytest.mark.parametrize("gamma", [0.9, 1.0])
@pytest.mark.parametrize("terminated", [True, False])
def test_the_bound_under_correlated_noise_is_that_of_titsias_or_a_little_less(gamma, terminated, rng):
    """log N(r; 0, Q + Σ) − ½ tr(Σ⁻¹(K − Q)): the same where every episode ends."""
    kernel, Z = KERNELS["matern52"], pseudo_inputs(rng, 8)
    t = Transitions.concatenate([episode(rng, n, terminated, gamma) for n in (12, 1, 9)])
    K, Sigma, K_rz = (
        rows_covariance(kernel, t),
        noise_covariance(t, 0.2, "correlated"),
        rows_cross(kernel, t, Z),
    )
    Q = K_rz @ np.linalg.solve(kernel(Z, Z), K_rz.T)
    titsias = log_normal(t.rewards, Q + Sigma) - 0.5 * np.trace(np.linalg.solve(Sigma, K - Q))
    bound = log_evidence(kernel, 0.2, Z, t, objective="variational", noise="correlated")
    if terminated:
        assert bound == pytest.approx(titsias, rel=1e-10)
    else:
        assert bound < titsias
        assert bound > titsias - unexplained(kernel, Z, t).sum() / 0.4
    assert titsias < log_evidence(kernel, 0.2, None, t, noise="correlated")


@pytest.mark.parametrize("noise", ["iid", "correlated"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("sigma2", [1.0, 0.01])
def test_the_bound_climbs_with_every_pseudo_input_and_stays_below_the_exact_evidence(
    name, sigma2, noise, rng
):
    kernel, t, Z = KERNELS[name], transitions(rng), pseudo_inputs(rng, 12)
    exact = log_evidence(kernel, sigma2, None, t, noise=noise)
    settings = {"objective": "variational", "noise": noise}
    bounds = [log_evidence(kernel, sigma2, Z[:m], t, **settings) for m in range(13)]
    assert bounds[-1] < exact
    assert (np.diff(bounds) > 0.0).all()


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_with_every_visited_input_a_pseudo_input_it_is_the_exact_model(settings, rng):
    """K_rr − Q_rr is 0 there whatever the hyperparameters, and at its minimum as a function of Z."""
    kernel, t = KERNELS["matern32"], transitions(rng)
    noise = {"noise": settings.get("noise", "iid")}
    value, gradient = log_evidence(kernel, 0.1, visited(t), t, prior_mean=0.3, gradient=True, **settings)
    expected, exact = log_evidence(kernel, 0.1, None, t, prior_mean=0.3, gradient=True, **noise)
    assert value == pytest.approx(expected, rel=1e-9)
    for name, slope in exact.kernel.items():
        np.testing.assert_allclose(gradient.kernel[name], slope, rtol=1e-7)
    assert gradient.noise_variance == pytest.approx(exact.noise_variance, rel=1e-7)
    assert gradient.prior_mean == pytest.approx(exact.prior_mean, rel=1e-7)
    assert np.abs(gradient.pseudo_inputs).max() < 1e-7 * np.abs(flat(exact)).max()


def test_without_discounts_it_is_the_evidence_of_gp_regression(rng):
    kernel, X, y = KERNELS["rbf"], rng.standard_normal((25, 3)), rng.standard_normal(25)
    t = Transitions(X, y, np.full_like(X, np.nan), np.zeros(25))
    expected = multivariate_normal(np.full(25, 0.4), kernel(X, X) + 0.1 * np.eye(25)).logpdf(y)
    for Z, settings in itertools.product((None, X), NOISES):
        assert log_evidence(kernel, 0.1, Z, t, prior_mean=0.4, **settings) == pytest.approx(
            expected, rel=1e-9
        )


def test_the_first_row_is_a_start(rng):
    t, Z = episode(rng, 9, terminated=False), pseudo_inputs(rng, 4)
    odd = Transitions(t.inputs, t.rewards, t.next_inputs, t.discounts, np.zeros(9, bool))
    for pseudo in (Z, None):
        expected, actual = (
            log_evidence(KERNELS["sum"], 0.1, pseudo, rows, noise="correlated", gradient=True)
            for rows in (t, odd)
        )
        same(actual, expected)


# -- the gradient ---------------------------------------------------------------------------------


def difference(f, x, i, low=-np.inf, h=1e-3):
    """∂f/∂x_i by five points, all on one side where x_i lies at its lower end."""
    h *= max(abs(x[i]), 1e-1)
    if x[i] - 2 * h < low:
        offsets, weights = (0, 1, 2, 3, 4), (-25, 48, -36, 16, -3)
    else:
        offsets, weights = (-2, -1, 1, 2), (1, -8, 8, -1)
    total = 0.0
    for offset, weight in zip(offsets, weights, strict=True):
        moved = np.array(x, dtype=float)
        moved[i] += offset * h
        total += weight * f(moved)
    return total / (12 * h)


def slopes(kernel, sigma2, Z, prior_mean, t, settings):
    """(name, ∂) of the dense evidence by every parameter that is not discrete."""
    for name, value in kernel.parameters.items():
        x = np.ravel(value)

        def by_kernel(x, name=name, value=value):
            other = kernel.with_parameters({name: x if np.ndim(value) else float(x[0])})
            return dense(other, sigma2, Z, t, prior_mean=prior_mean, **settings)

        numeric = [difference(by_kernel, x, i, low=0.0) for i in range(len(x))]
        yield name, np.array(numeric) if np.ndim(value) else numeric[0]

    def by_noise(x):
        return dense(kernel, x[0], Z, t, prior_mean=prior_mean, **settings)

    def by_mean(x):
        return dense(kernel, sigma2, Z, t, prior_mean=x[0], **settings)

    yield "noise_variance", difference(by_noise, [sigma2], 0)
    yield "prior_mean", difference(by_mean, [prior_mean], 0)
    if Z is not None:
        free = [c for c in range(3) if c not in kernel.discrete_columns(3)]

        def by_inputs(x):
            moved = Z.copy()
            moved[:, free] = x.reshape(len(Z), len(free))
            return dense(kernel, sigma2, moved, t, prior_mean=prior_mean, **settings)

        x = Z[:, free].ravel()
        yield "pseudo_inputs", np.array([difference(by_inputs, x, i) for i in range(len(x))]).reshape(-1)


def check_gradient(kernel, sigma2, Z, prior_mean, t, settings):
    _, gradient = log_evidence(kernel, sigma2, Z, t, prior_mean=prior_mean, gradient=True, **settings)
    free = [c for c in range(3) if c not in kernel.discrete_columns(3)]
    analytic = gradient.kernel | {
        "noise_variance": gradient.noise_variance,
        "prior_mean": gradient.prior_mean,
        "pseudo_inputs": gradient.pseudo_inputs[:, free].ravel(),
    }
    floor = 1e-6 * np.linalg.norm(flat(gradient))
    seen = set()
    for name, numeric in slopes(kernel, sigma2, Z, prior_mean, t, settings):
        assert np.shape(analytic[name]) == np.shape(numeric), name
        error = np.abs(analytic[name] - numeric) / np.maximum(np.abs(numeric), floor)
        assert np.max(error, initial=0.0) < 1e-6, f"{name}: {analytic[name]} and {numeric}"
        seen.add(name)
    assert seen == {*kernel.parameters, "noise_variance", "prior_mean"} | (
        set() if Z is None else {"pseudo_inputs"}
    )


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
@pytest.mark.parametrize("name", KERNELS)
def test_every_entry_of_the_gradient_is_a_difference_of_dense_algebra(name, settings, rng):
    t, Z = transitions(rng, 24), pseudo_inputs(rng, 5)
    check_gradient(KERNELS[name], 0.2, Z, 0.7, t, settings)


@pytest.mark.parametrize("settings", NOISES, ids=name_of)
@pytest.mark.parametrize("name", KERNELS)
def test_every_entry_of_the_exact_gradient_is_a_difference_of_dense_algebra(name, settings, rng):
    check_gradient(KERNELS[name], 0.2, None, 0.7, transitions(rng, 24), settings)


SHAPES = {
    "three factors": kernels.RBF(0.9, columns=0)
    * kernels.Matern32(1.3, columns=1, variance=2.0)
    * kernels.Delta(2, share=0.3),
    "same column twice": kernels.RBF(0.9, columns=[0, 1]) * kernels.Matern52([1.1, 0.7], columns=[1, 2]),
    "last columns": kernels.Matern52([0.8, 1.5], columns=[-1, -3]) + kernels.RBF(1.2, columns=-2),
    "two deltas": kernels.RBF(1.0, columns=0) * kernels.Delta([1, 2], share=0.6) + kernels.Delta(2, 0.1),
    "all in common": kernels.RBF(1.0, columns=[0, 1]) + kernels.RBF(2.0, columns=0) * kernels.Delta(2, 0.9),
    "product of sums": (kernels.RBF(0.8, variance=1.5) + kernels.Matern32(2.0))
    * (kernels.RBF(1.7, columns=0) + kernels.Delta(2, 0.5) * kernels.Matern52(0.6, columns=1)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_gradient_of_other_expressions(name, rng):
    t, Z = transitions(rng, 24), pseudo_inputs(rng, 4)
    if name == "two deltas":
        Z[:, 1] = rng.integers(0, 2, 4)
    check_gradient(SHAPES[name], 0.2, Z, -0.3, t, {"noise": "correlated"})
    check_gradient(SHAPES[name], 0.2, None, -0.3, t, {"noise": "iid"})


def test_delta_columns_alone_move_no_pseudo_input(rng):
    t = transitions(rng)
    _, gradient = log_evidence(kernels.Delta(2, 0.3), 0.1, pseudo_inputs(rng, 1), t, gradient=True)
    np.testing.assert_array_equal(gradient.pseudo_inputs, np.zeros((1, 3)))


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_the_gradient_with_many_pseudo_inputs(settings, rng):
    """Large enough for the triangular products of BLAS; along random directions of the parameters."""
    t = Transitions.concatenate([transitions(rng, 150), episode(rng, 160, False)])
    Z = pseudo_inputs(rng, 32)
    Z[:, :2] *= 2.0
    assert len(t) * len(Z) ** 2 > 2**18
    scales, sigma2, mean = np.array([0.8, 0.9, 1.1]), 0.1, 0.4
    _, gradient = log_evidence(kernels.RBF(scales), sigma2, Z, t, prior_mean=mean, gradient=True, **settings)
    for _ in range(2):
        dZ, ds, dv, dn, dm = rng.standard_normal((32, 3)), 0.1 * rng.standard_normal(3), 0.3, 0.02, 0.5

        def along(x, dZ=dZ, ds=ds, dv=dv, dn=dn, dm=dm):
            kernel = kernels.RBF(scales + x[0] * ds, variance=1.0 + x[0] * dv)
            moved = {"prior_mean": mean + x[0] * dm}
            return dense(kernel, sigma2 + x[0] * dn, Z + 0.1 * x[0] * dZ, t, **moved, **settings)

        expected = 0.1 * np.sum(gradient.pseudo_inputs * dZ) + gradient.kernel["lengthscales"] @ ds
        expected += gradient.kernel["variance"] * dv + gradient.noise_variance * dn + gradient.prior_mean * dm
        assert difference(along, [0.0], 0, h=1e-1) == pytest.approx(expected, rel=1e-6)


# -- block after block ----------------------------------------------------------------------------


def in_blocks(monkeypatch, size):
    def blocks(self, n):
        return (slice(lo, min(lo + size, n)) for lo in range(0, n, size))

    monkeypatch.setattr(Basis, "blocks", blocks)


def long_and_short(rng, settings):
    """Episodes over many blocks, loose rows, rows chained in noise but not in place and the reverse."""
    t = Transitions.concatenate([episode(rng, 45, False), transitions(rng, 40), episode(rng, 30, True)])
    if settings.get("objective") == "variational" and settings.get("noise") == "correlated":
        return Transitions.concatenate([t, t])  # this bound needs unbroken paths
    starts = t.starts.copy()
    starts[::9] = ~starts[::9]
    shuffled = t[rng.permutation(len(t))]
    return Transitions.concatenate(
        [t, Transitions(t.inputs, t.rewards, t.next_inputs, t.discounts, starts), shuffled]
    )


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "again"])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_blocks_of_any_size_give_the_same(settings, size, keep, rng, monkeypatch):
    """Their features kept from the first pass for the second, or computed again."""
    kernel, t, Z = KERNELS["sum"], long_and_short(rng, settings), pseudo_inputs(rng, 7)
    run = {"prior_mean": 0.3, "gradient": True} | settings
    in_blocks(monkeypatch, 10**6)
    whole = log_evidence(kernel, 0.1, Z, t, **run)
    in_blocks(monkeypatch, size)
    monkeypatch.setattr(evidence, "KEEP", 10**9 if keep else 0)
    same(log_evidence(kernel, 0.1, Z, t, **run), whole)
    assert whole[0] == pytest.approx(dense(kernel, 0.1, Z, t, prior_mean=0.3, **settings), rel=1e-10)


@pytest.mark.parametrize("settings", [MODELS[0], MODELS[1], *MODELS[4:]], ids=name_of)
def test_small_and_large_products_give_the_same(settings, rng, monkeypatch):
    t, Z = long_and_short(rng, settings), pseudo_inputs(rng, 40)
    Z[:, :2] *= 2.0
    kernel = KERNELS["matern52"]
    assert len(t) * len(Z) ** 2 > 2**18
    whole = log_evidence(kernel, 0.1, Z, t, gradient=True, **settings)
    monkeypatch.setattr(evidence, "KEEP", 0)
    same(log_evidence(kernel, 0.1, Z, t, gradient=True, **settings), whole)
    in_blocks(monkeypatch, 7)
    same(log_evidence(kernel, 0.1, Z, t, gradient=True, **settings), whole)


def test_the_blocks_as_they_are(rng, monkeypatch):
    t = Transitions.concatenate([episode(rng, 6000, False), episode(rng, 4000, True)])
    Z = pseudo_inputs(rng, 4)
    assert len(list(Basis(KERNELS["rbf"], 3).blocks(len(t)))) > 1
    run = {"noise": "correlated", "gradient": True}
    actual = log_evidence(KERNELS["rbf"], 0.1, Z, t, **run)
    monkeypatch.setattr(evidence, "KEEP", 0)
    same(actual, log_evidence(KERNELS["rbf"], 0.1, Z, t, **run), rtol=1e-9)
    in_blocks(monkeypatch, 10**6)
    same(actual, log_evidence(KERNELS["rbf"], 0.1, Z, t, **run), rtol=1e-9)


# -- special cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_a_redundant_pseudo_input_changes_nothing(settings, rng):
    kernel, t, Z = KERNELS["action"], transitions(rng), pseudo_inputs(rng, 5)
    value, gradient = log_evidence(kernel, 0.1, Z, t, gradient=True, **settings)
    doubled = np.vstack([Z[:2], Z[:1], Z[2:], Z[3:4]])  # rows 2 and 6 repeat earlier ones
    again, other = log_evidence(kernel, 0.1, doubled, t, gradient=True, **settings)
    assert again == pytest.approx(value, rel=1e-12)
    np.testing.assert_array_equal(other.pseudo_inputs[[2, 6]], 0.0)
    np.testing.assert_allclose(other.pseudo_inputs[[0, 1, 3, 4, 5]], gradient.pseudo_inputs, rtol=1e-8)
    for name, slope in gradient.kernel.items():
        np.testing.assert_allclose(other.kernel[name], slope, rtol=1e-8)
    assert other.noise_variance == pytest.approx(gradient.noise_variance, rel=1e-8)


@pytest.mark.filterwarnings("ignore:.* pseudo-inputs are determined by")
@pytest.mark.parametrize("settings", MODELS[:4], ids=name_of)
def test_the_pseudo_inputs_left_out_are_those_that_the_model_leaves_out(settings, rng):
    """However near to another one they lie."""
    kernel, t, Z, counts = KERNELS["rbf"], transitions(rng), pseudo_inputs(rng, 5), set()
    for gap in 10.0 ** -np.arange(1, 12):
        close = np.vstack([Z[:3], Z[:1] + gap, Z[3:]])
        model = SparseGPSarsa(kernel, 0.1, close, **settings).fit(t)
        value, gradient = log_evidence(kernel, 0.1, close, t, gradient=True, **settings)
        assert value == pytest.approx(model.log_evidence(), rel=1e-5)
        assert np.isfinite(flat(gradient)).all()
        admitted = len(model.pseudo_inputs)
        assert (gradient.pseudo_inputs != 0.0).any(axis=1).sum() == admitted
        counts.add(admitted)
    assert counts == {5, 6}


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_without_pseudo_inputs(settings, rng):
    kernel, t = KERNELS["nested"], transitions(rng, 24)
    assert log_evidence(kernel, 0.3, EMPTY, t, **settings) == pytest.approx(
        dense(kernel, 0.3, EMPTY, t, **settings), rel=1e-12
    )
    if settings.get("weights") != "dtc":
        check_gradient(kernel, 0.3, EMPTY, 0.2, t, settings)
    else:  # a kernel without any part in it
        _, gradient = log_evidence(kernel, 0.3, EMPTY, t, gradient=True, **settings)
        assert all(np.all(slope == 0.0) for slope in gradient.kernel.values())


@pytest.mark.parametrize("pseudo", [EMPTY, np.eye(3), None], ids=["none", "three", "exact"])
def test_without_transitions(pseudo, rng):
    value, gradient = log_evidence(KERNELS["sum"], 0.3, pseudo, transitions(rng)[:0], gradient=True)
    assert value == 0.0
    assert gradient.kernel.keys() == KERNELS["sum"].parameters.keys()
    np.testing.assert_array_equal(flat(gradient), 0.0)


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_one_transition(settings, rng):
    t, Z = episode(rng, 1, terminated=False), pseudo_inputs(rng, 3)
    check_gradient(KERNELS["matern52"], 0.3, Z, 0.2, t, settings)


@pytest.mark.parametrize("sigma2", [1e-6, 1e6])
def test_the_gradient_at_extreme_noise_is_finite_and_right(sigma2, rng):
    kernel, t, Z = KERNELS["matern52"], transitions(rng, 24), pseudo_inputs(rng, 5)
    for settings in MODELS:
        _, gradient = log_evidence(kernel, sigma2, Z, t, gradient=True, **settings)
        assert np.isfinite(flat(gradient)).all()

        def by_noise(x, settings=settings):
            return dense(kernel, sigma2 * math.exp(x[0]), Z, t, **settings)

        slope = difference(by_noise, [0.0], 0, h=1e-1)
        assert gradient.noise_variance * sigma2 == pytest.approx(slope, rel=1e-5)


# -- bad input ------------------------------------------------------------------------------------


class Smoother(kernels.RBF):
    """A subclass may do anything; what the table says of it is not known to be true."""


@pytest.mark.parametrize("kernel", [Cosine(), Smoother(1.0), 3], ids=["own", "subclass", "number"])
@pytest.mark.parametrize("pseudo", [np.eye(3), None], ids=["sparse", "exact"])
def test_only_kernels_whose_derivatives_are_known(kernel, pseudo, rng):
    with pytest.raises(TypeError, match=r"derivatives of .* not known.*compose one from RBF, Matern32"):
        log_evidence(kernel, 0.1, pseudo, transitions(rng), gradient=True)


def test_without_a_gradient_any_kernel_will_do(rng):
    t, Z = transitions(rng), pseudo_inputs(rng, 5)
    model = SparseGPSarsa(Cosine(), 0.1, Z).fit(t)
    assert log_evidence(Cosine(), 0.1, Z, t) == pytest.approx(model.log_evidence(), rel=1e-10)
    with pytest.raises(TypeError, match="kernel = 3; expected"):
        log_evidence(3, 0.1, Z, t)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"objective": "elbo"}, ValueError, "objective = 'elbo'; expected one of 'evidence', 'variational'"),
        ({"weights": "vfe"}, ValueError, "weights = 'vfe'; expected one of 'fitc', 'dtc'"),
        ({"noise": "white"}, ValueError, "noise = 'white'; expected one of 'iid', 'correlated'"),
        ({"noise_variance": 0.0}, ValueError, "noise_variance = 0.0; expected a number above 0"),
        ({"noise_variance": None}, TypeError, "noise_variance = None"),
        ({"noise_variance": 1e-310}, ValueError, "noise_variance = 1e-310 is too small: its inverse"),
        (
            {"pseudo_inputs": None, "objective": "variational"},
            ValueError,
            "'variational' is of sparse models",
        ),
        ({"prior_mean": np.nan}, ValueError, "prior_mean = nan"),
        ({"transitions": [1, 2]}, TypeError, "transitions is a list; expected Transitions"),
        ({"pseudo_inputs": np.eye(2)}, ValueError, "pseudo_inputs has 2 columns; expected 3"),
        ({"pseudo_inputs": [[0.0, np.inf, 0.0]]}, ValueError, r"pseudo_inputs\[0\] = .*inf"),
        ({"pseudo_inputs": np.zeros(3)}, ValueError, r"pseudo_inputs has shape \(3,\)"),
        ({"kernel": kernels.RBF([1.0, 2.0])}, ValueError, "2 lengthscales, but the inputs have 3 columns"),
        ({"kernel": kernels.RBF(1.0, columns=5)}, ValueError, "reads column 5"),
    ],
)
def test_bad_arguments(change, error, message, rng):
    good = {
        "kernel": KERNELS["rbf"],
        "noise_variance": 0.1,
        "pseudo_inputs": pseudo_inputs(rng, 3),
        "transitions": transitions(rng),
    }
    with pytest.raises(error, match=message):
        log_evidence(**(good | change))
