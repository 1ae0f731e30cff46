"""Learning pseudo-inputs and hyperparameters: what is promised of the result, and of every way out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from oracle import (
    DenseFilter,
    noise_covariance,
    residuals,
    rows_covariance,
    sparse_posterior,
)
from problems import KERNELS, episode, pseudo_inputs, transitions
from test_errors import fingerprint
from test_sparse import COMBINATIONS, Cosine, agrees, by_observe, close

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions, exact, sparse
from gpsarsa.belief import Belief
from gpsarsa.evidence import log_evidence
from gpsarsa.kernels import RBF, Delta, Matern52

AT_BOUND = "ignore:.* ended at its bound"

MODELS = [
    {"weights": "fitc", "noise": "iid"},
    {"weights": "fitc", "noise": "correlated"},
    {"weights": "dtc", "noise": "iid"},
    {"weights": "dtc", "noise": "correlated"},
]


def name_of(settings):
    return "-".join(settings.values())


def drawn(rng, n, kernel, sigma2, gamma=0.9, noise="iid", columns=2):
    """Episodes through [0, 2]ᵈ whose rewards follow a value function drawn from the kernel."""
    steps = 20
    path = np.cumsum(0.3 * rng.standard_normal((n + n // steps, columns)), axis=0) % 2.0
    pieces = [path[lo : lo + steps + 1] for lo in range(0, len(path) - 1, steps + 1)]
    t = Transitions.concatenate(
        Transitions.from_trajectory(x, np.zeros(len(x) - 1), gamma, terminated=bool(i % 2))
        for i, x in enumerate(pieces)
    )
    covariance = rows_covariance(kernel, t) + noise_covariance(t, sigma2, noise)
    rewards = np.linalg.cholesky(covariance) @ rng.standard_normal(len(t))
    return Transitions(t.inputs, rewards, t.next_inputs, t.discounts, t.starts)


def with_rewards(t, rewards):
    return Transitions(t.inputs, rewards, t.next_inputs, t.discounts, t.starts)


@pytest.fixture
def data(rng):
    return drawn(rng, 80, RBF(0.6), 0.05)


@pytest.fixture
def Z(data):
    return data.inputs[::9] + 0.01


# -- what it did ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings(AT_BOUND)
@pytest.mark.parametrize("settings", MODELS, ids=name_of)
@pytest.mark.parametrize("name", KERNELS)
def test_the_model_becomes_the_one_that_was_found(name, settings, rng):
    kernel, t, Z, X = KERNELS[name], transitions(rng), pseudo_inputs(rng, 6), pseudo_inputs(rng, 9)
    model = SparseGPSarsa(kernel, 0.2, Z, prior_mean=0.3, **settings)
    before = SparseGPSarsa(kernel, 0.2, Z, prior_mean=0.3, **settings).fit(t).log_evidence()
    report = model.optimize(t, max_iterations=12)
    assert report.start == pytest.approx(before, rel=1e-12)
    assert report.end > report.start + 0.1
    assert report.end == pytest.approx(model.log_evidence(), rel=1e-8)
    assert 0 < report.iterations <= 12
    assert report.evaluations > report.iterations
    assert len(report.trace) == report.iterations
    assert report.trace[-1] == report.end
    assert report.trace[0] > report.start
    assert (np.diff(report.trace) >= 0.0).all()
    assert report.converged is (report.reason == "converged")
    assert not report.interrupted
    # the model is a fresh one with what was learnt
    assert type(model.kernel) is type(kernel)
    assert model.kernel != kernel
    assert model.noise_variance != 0.2
    assert model.get_params()["prior_mean"] == 0.3
    for option, value in settings.items():
        assert getattr(model, option) == value
    fresh = SparseGPSarsa(**model.get_params()).fit(t)
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))
    np.testing.assert_array_equal(model.predict(X, return_cov=True)[1], fresh.predict(X, return_cov=True)[1])
    learnt = {"prior_mean": 0.3, **settings}
    agrees(
        model, sparse_posterior(model.kernel, model.noise_variance, model.pseudo_inputs, t, X, **learnt), X
    )
    assert model.n_transitions == len(t)


@pytest.mark.filterwarnings(AT_BOUND)
@pytest.mark.parametrize("noise", ["iid", "correlated"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_exact_model_becomes_the_one_that_was_found(name, noise, rng):
    kernel, t, X = KERNELS[name], transitions(rng), pseudo_inputs(rng, 9)
    model = GPSarsa(kernel, 0.2, noise=noise, prior_mean=0.3)
    before = GPSarsa(kernel, 0.2, noise=noise, prior_mean=0.3).fit(t).log_evidence()
    report = model.optimize(t, max_iterations=12)
    assert report.start == pytest.approx(before, rel=1e-12)
    assert report.end == pytest.approx(model.log_evidence(), rel=1e-8)
    assert report.end == report.trace[-1] > report.trace[0] > report.start
    assert (np.diff(report.trace) >= 0.0).all()
    assert model.kernel != kernel
    assert (model.noise, model.prior_mean, model.n_transitions) == (noise, 0.3, len(t))
    fresh = GPSarsa(**model.get_params()).fit(t)
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_the_variational_bound_is_what_climbs(settings, data, Z):
    model = SparseGPSarsa(RBF(1.0), 0.3, Z, **settings)
    report = model.optimize(data, objective="variational", max_iterations=30)
    noise = {"noise": settings["noise"]}
    bounds = [
        log_evidence(kernel, sigma2, inputs, data, objective="variational", **noise)
        for kernel, sigma2, inputs in (
            (RBF(1.0), 0.3, Z),
            (model.kernel, model.noise_variance, model.pseudo_inputs),
        )
    ]
    assert [report.start, report.end] == pytest.approx(bounds, rel=1e-8)
    assert report.end > report.start
    assert report.objective == "variational"
    assert report.end < log_evidence(model.kernel, model.noise_variance, None, data, **noise)
    assert model.weights == settings["weights"]
    np.testing.assert_array_equal(model.predict(Z), SparseGPSarsa(**model.get_params()).fit(data).predict(Z))
    assert "variational bound" in str(report)


def test_the_report_reads_well(data, Z):
    report = SparseGPSarsa(RBF(1.0), 0.3, Z).optimize(data, max_iterations=3)
    assert str(report) == (
        f"log evidence {report.start:.6g} → {report.end:.6g} in 3 iterations "
        f"({report.evaluations} evaluations): stopped at max_iterations = 3"
    )
    assert not report.converged
    assert "trace" not in repr(report)
    done = SparseGPSarsa(RBF(1.0), 0.3, Z).optimize(data, False, max_iterations=200)
    assert done.converged
    assert str(done).endswith(": converged")


def test_a_shorter_search_is_the_beginning_of_a_longer_one(data, Z):
    long = SparseGPSarsa(RBF(1.0), 0.3, Z).optimize(data, max_iterations=9)
    for j in (1, 4):
        short = SparseGPSarsa(RBF(1.0), 0.3, Z).optimize(data, max_iterations=j)
        assert short.trace == long.trace[:j]
        assert short.iterations == j


def test_nothing_to_do(data, Z):
    for model in (SparseGPSarsa(RBF(1.0), 0.3, Z), GPSarsa(RBF(1.0), 0.3)):
        fresh = type(model)(**model.get_params()).fit(data)
        report = model.optimize(data, max_iterations=0)
        assert (report.iterations, report.start) == (0, report.end)
        assert report.start == pytest.approx(fresh.log_evidence(), rel=1e-12)
        np.testing.assert_array_equal(model.predict(Z), fresh.predict(Z))
    model = SparseGPSarsa(RBF(1.0), 0.3, Z)
    report = model.optimize(data, pseudo_inputs=False, hyperparameters=False)
    assert report.reason == "nothing to learn"
    assert report.converged
    assert (model.kernel, model.noise_variance) == (RBF(1.0), 0.3)
    np.testing.assert_array_equal(model.pseudo_inputs, Z)


def test_a_second_search_starts_where_the_first_ended(data, Z):
    model = SparseGPSarsa(RBF(1.0), 0.3, Z)
    first = model.optimize(data, max_iterations=200)
    second = model.optimize(data, max_iterations=200)
    assert second.start == pytest.approx(first.end, rel=1e-8)
    assert second.end >= second.start
    assert second.iterations < first.iterations


def test_progress_is_said_on_standard_error(data, Z, capsys):
    SparseGPSarsa(RBF(1.0), 0.3, Z).optimize(data, max_iterations=2)
    assert capsys.readouterr().err == ""
    report = SparseGPSarsa(RBF(1.0), 0.3, Z).optimize(data, max_iterations=2, progress_bar=True)
    assert f"optimize: iteration 2/2 [0 s] {report.end:.6g}" in capsys.readouterr().err


@pytest.mark.filterwarnings(AT_BOUND)
def test_a_learnt_model_can_be_saved(data, Z, tmp_path):
    for model in (SparseGPSarsa(RBF(1.0), 0.3, Z), GPSarsa(RBF([1.0, 1.0]), 0.3)):
        model.optimize(data, max_iterations=5)
        model.save(tmp_path / "model")
        assert fingerprint(type(model).load(tmp_path / "model")) == fingerprint(model)


# -- what comes after -----------------------------------------------------------------------------


@pytest.mark.parametrize(("growth", "weights", "noise"), COMBINATIONS)
def test_it_goes_on_like_a_model_fitted_anew(growth, weights, noise, data, Z, rng):
    settings = {"growth": growth, "weights": weights, "noise": noise}
    cut, X = 47, rng.random((9, 2))
    assert not data.starts[cut]  # the open episode goes on
    model = SparseGPSarsa(RBF(1.0), 0.3, Z, **settings)
    model.observe(data.inputs[0], 1.0, data.next_inputs[0], 0.9)
    model.optimize(data[:cut], max_iterations=5)
    fresh = SparseGPSarsa(**model.get_params()).fit(data[:cut])
    for other in (model, fresh):
        for j in range(cut, cut + 9):
            x, following = data.inputs[j], data.next_inputs[j]
            other.observe(x, data.rewards[j], following, data.discounts[j])
        other.update(data[cut + 9 :])
        assert other.add_pseudo_inputs([[0.3, 1.9], [1.8, 0.1]]).all()
        other.remove_pseudo_inputs([1, 4])
        other.observe(X[0], 1.0, X[1], 0.9)
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))
    np.testing.assert_array_equal(model.predict(X, return_std=True)[1], fresh.predict(X, return_std=True)[1])
    assert model.log_evidence() == fresh.log_evidence()
    assert model.n_transitions == len(data) + 1
    assert fingerprint(model) == fingerprint(fresh)


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_the_exact_model_goes_on_like_one_fitted_anew(noise, data, rng):
    model, X = GPSarsa(RBF(1.0), 0.3, noise=noise), rng.random((9, 2))
    model.optimize(data[:47], max_iterations=5)
    fresh = GPSarsa(**model.get_params()).fit(data[:47])
    for other in (model, fresh):
        other.observe(data.inputs[47], data.rewards[47], data.next_inputs[47], data.discounts[47])
        other.update(data[48:])
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))
    assert fingerprint(model) == fingerprint(fresh)


def test_the_transitions_kept_are_learnt_from_by_default(data, Z):
    for growth in ("exact", "frozen"):
        model = SparseGPSarsa(RBF(1.0), 0.3, Z, growth=growth).update(data[:50]).update(data[50:])
        other = SparseGPSarsa(RBF(1.0), 0.3, Z, growth=growth)
        assert model.optimize(max_iterations=4) == other.optimize(data, max_iterations=4)
        np.testing.assert_array_equal(model.predict(Z), other.predict(Z))
    model, other = GPSarsa(RBF(1.0), 0.3).update(data), GPSarsa(RBF(1.0), 0.3)
    assert model.optimize(max_iterations=4) == other.optimize(data, max_iterations=4)
    np.testing.assert_array_equal(model.predict(Z), other.predict(Z))


def test_without_any_transitions_kept_they_must_be_passed(data, Z):
    streaming = SparseGPSarsa(RBF(1.0), 0.3, Z, growth="streaming").update(data)
    for model in (streaming, SparseGPSarsa(RBF(1.0), 0.3, Z), GPSarsa(RBF(1.0), 0.3)):
        before = fingerprint(model)
        with pytest.raises(ValueError, match="no transitions kept to learn from; pass them to optimize"):
            model.optimize()
        assert fingerprint(model) == before
    streaming.optimize(data, max_iterations=2)
    assert streaming.n_transitions == len(data)


def test_refit_on_other_transitions(data, Z):
    for model in (SparseGPSarsa(RBF(1.0), 0.3, Z), GPSarsa(RBF(1.0), 0.3)):
        other = type(model)(**model.get_params())
        report, expected = (
            m.optimize(data[:50], max_iterations=5, refit_on=rows)
            for m, rows in ((model, data), (other, None))
        )
        assert report == expected
        assert model.kernel == other.kernel
        assert (model.n_transitions, other.n_transitions) == (len(data), 50)
        fresh = type(model)(**model.get_params()).fit(data)
        np.testing.assert_array_equal(model.predict(Z), fresh.predict(Z))
        assert model.log_evidence() == fresh.log_evidence()


def test_with_forgetting_the_model_is_fitted_row_by_row(data, Z):
    model = SparseGPSarsa(RBF(1.0), 0.3, Z, forgetting=0.95)
    model.optimize(data, max_iterations=5)
    assert model.forgetting == 0.95
    fresh = SparseGPSarsa(**model.get_params()).fit(data)
    np.testing.assert_array_equal(model.predict(Z), fresh.predict(Z))


# -- what is learnt -------------------------------------------------------------------------------


def inside(model, low, high):
    return ((model.pseudo_inputs >= low) & (model.pseudo_inputs <= high)).all()


@pytest.mark.filterwarnings(AT_BOUND)
@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_pseudo_inputs_stay_near_the_data(settings, data, Z):
    both = np.vstack([data.inputs, data.next_inputs])
    low, high = both.min(axis=0), both.max(axis=0)
    margin = 0.05 * (high - low)
    model = SparseGPSarsa(RBF(1.0), 0.3, Z, **settings)
    model.optimize(data)
    assert inside(model, low - margin, high + margin)
    assert np.abs(model.pseudo_inputs - Z).max() > 0.05
    outside = np.array([[5.0, 1.0], [-4.0, -4.0], [1.0, 1.0], [0.4, 1.3], [1.6, 0.5]])
    model = SparseGPSarsa(RBF(1.0), 0.3, outside, **settings)
    report = model.optimize(data)
    assert report.end > report.start
    assert inside(model, low - margin, high + margin)
    assert len(model.pseudo_inputs) == 5


def test_some_pseudo_inputs_end_at_the_edge_of_the_box(data, Z):
    """Otherwise the test above would say little."""
    model = SparseGPSarsa(RBF(1.0), 0.3, Z)
    model.optimize(data, bounds={"pseudo_inputs": ([0.9, 0.8], [1.1, 1.4])})
    at_edge = np.isin(model.pseudo_inputs, [0.9, 0.8, 1.1, 1.4])
    assert at_edge.any()
    assert not at_edge.all()


@pytest.mark.filterwarnings(AT_BOUND, "ignore:the bounds exclude the start")
def test_bounds_are_kept(data, Z):
    bounds = {
        "pseudo_inputs": (0.2, [1.7, 1.5]),
        "noise_variance": (0.2, 0.25),
        "lengthscales": (0.9, [1.0, 1.1]),
        "variance": (2.0, 2.0),
        "prior_mean": (0.4, 0.5),
    }
    model = SparseGPSarsa(RBF([1.5, 1.5]), 0.3, Z)
    model.optimize(data, prior_mean=True, bounds=bounds)
    assert inside(model, 0.2, [1.7, 1.5])
    assert 0.2 <= model.noise_variance <= 0.25
    assert (model.kernel.lengthscales >= 0.9).all()
    assert (model.kernel.lengthscales <= [1.0, 1.1]).all()
    assert model.kernel.variance == 2.0
    assert 0.4 <= model.prior_mean <= 0.5
    del bounds["pseudo_inputs"]
    model = GPSarsa(RBF([1.5, 1.5]), 0.3)
    model.optimize(data, prior_mean=True, bounds=bounds)
    assert 0.2 <= model.noise_variance <= 0.25
    assert (model.kernel.lengthscales <= [1.0, 1.1]).all()


@pytest.mark.filterwarnings(AT_BOUND, "ignore:the bounds exclude the start")
def test_bounds_are_kept_to_the_last_digit(data, Z, rng):
    """Parameters are searched in other units than their own."""
    for fixed in 10.0 ** rng.uniform(-3, 0, 12):
        model = SparseGPSarsa(RBF(1.0), 0.3, Z[:3])
        names = ("lengthscales", "noise_variance", "pseudo_inputs")
        model.optimize(data, bounds=dict.fromkeys(names, (fixed, fixed)), max_iterations=2)
        assert model.kernel.lengthscales == model.noise_variance == fixed
        assert model.kernel.variance != 1.0
        np.testing.assert_array_equal(model.pseudo_inputs, fixed)


@pytest.mark.filterwarnings(AT_BOUND)
def test_bounds_that_exclude_the_start_may_cost_evidence_and_say_so(data, Z):
    model = SparseGPSarsa(RBF(0.6), 0.05, Z)
    with pytest.warns(UserWarning, match="bounds exclude the start.* before, .* after") as record:
        report = model.optimize(data, False, ["noise_variance"], bounds={"noise_variance": (50.0, 60.0)})
    assert any("noise_variance ended at its bound: 50 in [50, 60]" in str(w.message) for w in record)
    assert report.end < report.start
    assert model.noise_variance == pytest.approx(50.0, rel=1e-12)
    assert report.end == pytest.approx(model.log_evidence(), rel=1e-8)


def test_a_parameter_at_its_bound_is_pointed_out(data):
    model = GPSarsa(RBF(1.0), 0.3)
    with pytest.warns(UserWarning, match=r"lengthscales ended at its bound: 0\.9 in \[0\.9, 2\]"):
        model.optimize(data, bounds={"lengthscales": (0.9, 2.0)})
    assert model.kernel.lengthscales == pytest.approx(0.9, rel=1e-12)
    with warnings.catch_warnings():  # a parameter that could not move is no news
        warnings.simplefilter("error")
        GPSarsa(RBF(0.9), 0.3).optimize(data, bounds={"lengthscales": (0.9, 0.9)})


@pytest.mark.filterwarnings(AT_BOUND)
@pytest.mark.parametrize("name", ["action", "sum", "nested"])
def test_discrete_columns_do_not_move(name, rng):
    t, Z = transitions(rng, 60), pseudo_inputs(rng, 7)
    model = SparseGPSarsa(KERNELS[name], 0.2, Z)
    model.optimize(t, max_iterations=20)
    assert len(model.pseudo_inputs) == len(Z)
    np.testing.assert_array_equal(model.pseudo_inputs[:, 2], Z[:, 2])
    assert (np.abs(model.pseudo_inputs[:, :2] - Z[:, :2]).max(axis=0) > 1e-3).all()


def test_with_nothing_but_discrete_columns_no_pseudo_input_moves(rng):
    t, Z = transitions(rng), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    model = SparseGPSarsa(Delta(2, 0.3), 0.2, Z)
    report = model.optimize(t)
    np.testing.assert_array_equal(model.pseudo_inputs, Z)
    assert report.end > report.start
    assert 0.0 <= model.kernel.share <= 1.0


def test_only_what_was_asked_for_is_learnt(data, Z):
    kernel = RBF([1.0, 1.2], variance=2.0)

    def learnt(*args, **options):
        model = SparseGPSarsa(kernel, 0.3, Z, prior_mean=0.1)
        report = model.optimize(data, *args, max_iterations=4, **options)
        assert report.end > report.start
        changed = set()
        if not np.array_equal(model.pseudo_inputs, Z):
            changed.add("pseudo_inputs")
        if model.noise_variance != 0.3:
            changed.add("noise_variance")
        if model.prior_mean != 0.1:
            changed.add("prior_mean")
        for name, value in kernel.parameters.items():
            if not np.array_equal(model.kernel.parameters[name], value):
                changed.add(name)
        return changed

    every = {"lengthscales", "variance", "noise_variance"}
    assert learnt() == every | {"pseudo_inputs"}
    assert learnt(pseudo_inputs=False) == every
    assert learnt(hyperparameters=False) == {"pseudo_inputs"}
    assert learnt(False, False, True) == {"prior_mean"}
    assert learnt(prior_mean=True) == every | {"pseudo_inputs", "prior_mean"}
    assert learnt(False, ["noise_variance"]) == {"noise_variance"}
    assert learnt(False, "noise_variance") == {"noise_variance"}
    assert learnt(False, ("variance", "lengthscales")) == {"variance", "lengthscales"}
    assert learnt(True, iter(["lengthscales"])) == {"lengthscales", "pseudo_inputs"}


def test_parts_of_a_kernel_are_learnt_by_their_names(data, Z):
    kernel = RBF(1.0) + Matern52(2.0, variance=0.1)
    for model in (SparseGPSarsa(kernel, 0.3, Z), GPSarsa(kernel, 0.3)):
        model.optimize(data, hyperparameters=["1.variance", "0.lengthscales"], max_iterations=3)
        changed = [k for k, v in model.kernel.parameters.items() if v != kernel.parameters[k]]
        assert changed == ["0.lengthscales", "1.variance"]
        assert model.noise_variance == 0.3


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_constant_rewards_have_a_constant_value(noise, rng):
    """c at every step for ever is worth c/(1 − γ)."""
    t = Transitions.concatenate([episode(rng, 20, terminated=False, gamma=0.9) for _ in range(3)])
    t = with_rewards(t, np.full(len(t), 2.0))
    for model in (
        SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 5), noise=noise),
        GPSarsa(KERNELS["rbf"], 0.1, noise=noise),
    ):
        model.optimize(t, hyperparameters=False, prior_mean=True)
        assert model.prior_mean == pytest.approx(20.0, rel=1e-4)
        np.testing.assert_allclose(model.predict(t.inputs), 20.0, rtol=1e-4)


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_the_prior_mean_is_that_of_generalised_least_squares(noise, rng):
    kernel, t = KERNELS["matern52"], transitions(rng)
    h = 1.0 - t.discounts
    weighted = np.linalg.solve(rows_covariance(kernel, t) + noise_covariance(t, 0.2, noise), h)
    expected = weighted @ t.rewards / (weighted @ h)
    model = GPSarsa(kernel, 0.2, noise=noise)
    model.optimize(t, hyperparameters=False, prior_mean=True)
    assert model.prior_mean == pytest.approx(expected, rel=1e-4)


# -- whether it finds anything --------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.9])
@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_the_exact_model_recovers_what_the_data_were_drawn_from(gamma, noise, rng):
    t = drawn(rng, 300, RBF(0.5), 0.05, gamma, noise)
    model = GPSarsa(RBF(1.5), 1.0, noise=noise)
    report = model.optimize(t)
    assert report.converged
    assert 0.25 < model.kernel.lengthscales < 1.0
    assert 0.025 < model.noise_variance < 0.1
    assert report.end > GPSarsa(RBF(0.5), 0.05, noise=noise).fit(t).log_evidence()


@pytest.mark.parametrize(
    ("noise", "options"),
    [
        ("iid", {"pseudo_inputs": False}),
        ("iid", {"objective": "variational"}),
        ("correlated", {"pseudo_inputs": False}),
        ("correlated", {}),
        ("correlated", {"objective": "variational"}),
    ],
)
def test_the_sparse_model_recovers_what_the_data_were_drawn_from(noise, options, rng):
    t = drawn(rng, 300, RBF(0.5), 0.05, 0.9, noise)
    model = SparseGPSarsa(RBF(0.9), 0.5, t.inputs[::10], noise=noise)
    model.optimize(t, max_iterations=80, **options)
    assert 0.25 < model.kernel.lengthscales < 1.0
    assert 0.025 < model.noise_variance < 0.1


def test_the_bound_leaves_the_noise_to_the_noise(rng):
    """FITC with pseudo-inputs that move explains part of the noise by what they leave out."""
    t, learnt = drawn(rng, 300, RBF(0.5), 0.05), {}
    for objective in ("evidence", "variational"):
        model = SparseGPSarsa(RBF(0.9), 0.5, t.inputs[::10])
        model.optimize(t, objective=objective, max_iterations=60)
        learnt[objective] = abs(np.log(model.noise_variance / 0.05))
    assert learnt["variational"] < 0.25 < learnt["evidence"] < 2.0


def test_the_search_ends_where_the_evidence_is_level(data, Z):
    """∂F by the logarithms of the hyperparameters, and by Z in units of its range."""
    model = GPSarsa(RBF([1.0, 1.0]), 0.3)
    assert model.optimize(data).converged
    _, gradient = log_evidence(model.kernel, model.noise_variance, None, data, gradient=True)
    slopes = [
        gradient.noise_variance * model.noise_variance,
        *(gradient.kernel["lengthscales"] * model.kernel.lengthscales),
        gradient.kernel["variance"] * model.kernel.variance,
    ]
    start = log_evidence(RBF([1.0, 1.0]), 0.3, None, data, gradient=True)[1]
    assert np.abs(slopes).max() < 1e-3
    assert abs(start.noise_variance * 0.3) > 1.0
    model = SparseGPSarsa(RBF(1.0), 0.3, Z)
    assert model.optimize(data, hyperparameters=False, max_iterations=1000).converged
    _, gradient = log_evidence(RBF(1.0), 0.3, model.pseudo_inputs, data, gradient=True)
    both = np.vstack([data.inputs, data.next_inputs])
    low, high = both.min(axis=0), both.max(axis=0)
    free = (model.pseudo_inputs > low) & (model.pseudo_inputs < high)
    assert free.sum() > 5
    assert np.abs(gradient.pseudo_inputs[free]).max() < 0.05


def test_pseudo_inputs_pay(data, rng):
    """A few that were moved explain more than any as many among the data, and than more of them."""
    few = SparseGPSarsa(RBF(0.6), 0.05, data.inputs[::10])
    few.optimize(data, hyperparameters=False, max_iterations=200)
    choices = [rng.permutation(len(data))[:8] for _ in range(50)]
    for rows in (*choices, slice(None, None, 8)):
        other = SparseGPSarsa(RBF(0.6), 0.05, data.inputs[rows]).fit(data)
        assert few.log_evidence() > other.log_evidence() + 1.0


@pytest.mark.filterwarnings(AT_BOUND)
def test_restarts(data, Z):
    def run(**options):
        model = SparseGPSarsa(RBF(30.0), 10.0, Z[:4])
        report = model.optimize(data, max_iterations=25, **options)
        assert report.end == pytest.approx(model.log_evidence(), rel=1e-8)
        assert (np.diff(report.trace) >= 0.0).all()
        assert report.trace[-1] == report.end
        return report, model

    once, _ = run()
    ends = set()
    for seed in (1, 2):
        first, one = run(restarts=3, seed=seed)
        again, other = run(restarts=3, seed=seed)
        assert first == again
        assert fingerprint(one) == fingerprint(other)
        assert first.end >= once.end
        assert first.iterations > once.iterations
        ends.add(first.end)
    assert len(ends) == 2  # seeds matter
    assert max(ends) > once.end + 0.5  # which a single climb does not find from so far away
    assert run(restarts=3, seed=np.random.default_rng(1))[0] == run(restarts=3, seed=1)[0]


def test_restarts_of_the_exact_model(data):
    ends = []
    for restarts in (0, 2):
        model = GPSarsa(RBF(1.0), 0.3)
        report = model.optimize(data, restarts=restarts, seed=0)
        assert report.end == pytest.approx(model.log_evidence(), rel=1e-8)
        ends.append(report.end)
    assert ends[1] >= ends[0]


# -- hard data ------------------------------------------------------------------------------------


START = RBF(1.0)


def both_models(Z, kernel=START):
    return SparseGPSarsa(kernel, 0.3, Z), GPSarsa(kernel, 0.3)


def sane(model, t, **options):
    """Finite in every answer, and no worse than before."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* ended at its bound", UserWarning)
        warnings.filterwarnings("ignore", ".* too few to determine them", UserWarning)
        report = model.optimize(t, **options)
    assert report.end >= report.start
    assert np.isfinite([report.start, report.end, model.log_evidence(), model.noise_variance]).all()
    X = np.vstack([t.inputs, t.next_inputs, t.inputs + 10.0])
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0.0).any()
    model.update(t)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("prior_mean", [False, True])
@pytest.mark.parametrize("reward", [3.0, 0.0, -1e-5, 1e-200, 1e30])
def test_equal_rewards(reward, prior_mean, data, Z):
    for model in both_models(Z):
        sane(model, with_rewards(data, np.full(len(data), reward)), prior_mean=prior_mean)


@pytest.mark.filterwarnings(AT_BOUND)
def test_rewards_that_say_nothing_are_pointed_out(data, Z):
    for model in both_models(Z):
        with pytest.warns(UserWarning, match=r"noise_variance ended at its bound.*rewards or a column"):
            model.optimize(with_rewards(data, np.zeros(len(data))))


@pytest.mark.parametrize("prior_mean", [False, True])
def test_repeated_data(prior_mean, data, Z):
    one = data[5:6]
    repeated = Transitions.concatenate([one] * 30)
    twice = Transitions.concatenate([data, data])
    for t in (repeated, twice):
        for model in both_models(Z):
            sane(model, t, prior_mean=prior_mean, max_iterations=40)


def test_pseudo_inputs_at_every_datum(data):
    model = SparseGPSarsa(Matern52(0.4), 0.3, data.inputs)
    sane(model, data, max_iterations=20)


@pytest.mark.parametrize("kernel", [RBF(1.0), RBF([1.0, 1.0]), Matern52([1.0, 1.0])], ids=repr)
def test_a_constant_column(kernel, data, Z):
    flat = [np.column_stack([x[:, 0], np.full(len(x), 7.0)]) for x in (data.inputs, data.next_inputs, Z)]
    t = Transitions(flat[0], data.rewards, flat[1], data.discounts, data.starts)
    for model in both_models(flat[2], kernel):
        sane(model, t)
        if isinstance(model, SparseGPSarsa):
            assert np.abs(model.pseudo_inputs[:, 1] - 7.0).max() <= 0.05


def test_a_single_place(Z):
    """Every transition from one input to itself."""
    x = np.ones((6, 2))
    t = Transitions(x, np.arange(6.0), x, np.full(6, 0.5))
    for model in both_models(Z):
        sane(model, t)


def test_fewer_transitions_than_hyperparameters(data, Z):
    for n in (1, 2):
        for model in both_models(Z):
            with pytest.warns(
                UserWarning, match=f"3 hyperparameters are learnt from {n} transitions: too few"
            ):
                model.optimize(data[:n])
            assert np.isfinite(model.predict(Z, return_std=True)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GPSarsa(RBF(1.0), 0.3).optimize(data[:2], ["noise_variance"], bounds={"noise_variance": (1e-9, 1e9)})


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_scale_of_inputs_and_rewards_does_not_matter(scale, data, Z):
    """The same search in other units gives the same answer in those units."""
    scaled = Transitions(
        scale * data.inputs, scale * data.rewards, scale * data.next_inputs, data.discounts, data.starts
    )
    small, large = (
        SparseGPSarsa(RBF(1.0), 0.3, Z),
        SparseGPSarsa(RBF(scale, variance=scale**2), 0.3 * scale**2, scale * Z),
    )
    first, second = small.optimize(data, max_iterations=10), large.optimize(scaled, max_iterations=10)
    assert second.end - second.start == pytest.approx(first.end - first.start, rel=1e-4)
    np.testing.assert_allclose(large.predict(scale * Z) / scale, small.predict(Z), rtol=1e-2, atol=1e-3)


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"bounds": {"noise_variance": (2.0, 1.0)}},
            ValueError,
            "cannot be met: low = 2.0 is above high = 1",
        ),
        ({"bounds": {"noise_variance": (0.0, 1.0)}}, ValueError, r"\(0.0, 1.0\); expected numbers above 0"),
        ({"bounds": {"lengthscales": (-1.0, 1.0)}}, ValueError, "expected numbers above 0"),
        ({"bounds": {"variance": (1.0, np.inf)}}, ValueError, r"bounds\['variance'\]\[0\] = inf"),
        ({"bounds": {"variance": (np.nan, 1.0)}}, ValueError, r"bounds\['variance'\]\[0\] = nan"),
        (
            {"bounds": {"length": (1.0, 2.0)}},
            ValueError,
            "names 'length'; this model has lengthscales, varian",
        ),
        ({"bounds": {"prior_mean": (0.0, 1.0)}}, ValueError, "'prior_mean', which is not being learnt"),
        (
            {"bounds": {"variance": (1.0, 2.0)}, "hyperparameters": ["noise_variance"]},
            ValueError,
            "'variance', which is not being learnt; those are: noise_variance",
        ),
        ({"bounds": {"noise_variance": 1.0}}, TypeError, r"expected a pair \(low, high\)"),
        ({"bounds": {"noise_variance": (1.0, 2.0, 3.0)}}, TypeError, r"expected a pair \(low, high\)"),
        ({"bounds": {"noise_variance": ("a", "b")}}, TypeError, r"bounds\['noise_variance'\] has dtype"),
        ({"bounds": {"lengthscales": ([1, 1, 1], 3)}}, ValueError, "has 3 numbers; expected one or 2"),
        ({"bounds": [(1.0, 2.0)]}, TypeError, "expected a dict such as"),
        (
            {"hyperparameters": ["lengthscale"]},
            ValueError,
            "names 'lengthscale'; this model has lengthscales",
        ),
        ({"hyperparameters": "sigma"}, ValueError, "names 'sigma'; this model has"),
        ({"hyperparameters": 2}, TypeError, "hyperparameters = 2; expected True or False"),
        ({"max_iterations": -1}, ValueError, "max_iterations = -1; expected 0 or more"),
        ({"max_iterations": 1.5}, TypeError, "max_iterations = 1.5; expected a whole number"),
        ({"restarts": -1}, ValueError, "restarts = -1"),
        ({"restarts": True}, TypeError, "restarts = True"),
        ({"seed": "a", "restarts": 1}, TypeError, "SeedSequence expects"),
        ({"progress_bar": "yes"}, TypeError, "progress_bar = 'yes'; expected True or False"),
        ({"refit_on": 3}, TypeError, "refit_on is a int; expected Transitions"),
        ({"transitions": "data"}, TypeError, "transitions is a str; expected Transitions"),
    ],
)
def test_bad_arguments(options, error, message, data, Z):
    kernel = RBF([1.0, 1.0])
    for model in (SparseGPSarsa(kernel, 0.3, Z).fit(data), GPSarsa(kernel, 0.3).fit(data)):
        before = fingerprint(model)
        with pytest.raises(error, match=message):
            model.optimize(**({"transitions": data} | options))
        assert fingerprint(model) == before


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bounds": {"pseudo_inputs": (1.0, 0.0)}}, ValueError, "low = 1.0 is above high = 0.0"),
        ({"bounds": {"pseudo_inputs": ([0, 0], [1, -1])}}, ValueError, "low = 0.0 is above high = -1.0"),
        ({"bounds": {"pseudo_inputs": ([0, 0, 0], 1)}}, ValueError, "has 3 numbers; expected one or 2"),
        ({"bounds": {"pseudo_inputs": (0, 1)}, "pseudo_inputs": False}, ValueError, "not being learnt"),
        ({"pseudo_inputs": "all"}, TypeError, "pseudo_inputs = 'all'; expected True or False"),
        ({"prior_mean": 0.5}, TypeError, "prior_mean = 0.5; expected True or False"),
        ({"objective": "elbo"}, ValueError, "objective = 'elbo'; expected one of"),
    ],
)
def test_bad_arguments_of_the_sparse_model(options, error, message, data, Z):
    model = SparseGPSarsa(RBF([1.0, 1.0]), 0.3, Z).fit(data)
    before = fingerprint(model)
    with pytest.raises(error, match=message):
        model.optimize(data, **options)
    assert fingerprint(model) == before


def test_shares_are_bounded_by_zero_and_one(rng):
    t, Z = transitions(rng), pseudo_inputs(rng, 5)
    for pair in ((-0.1, 0.5), (0.5, 1.5)):
        with pytest.raises(ValueError, match=r"expected numbers in \[0, 1\]"):
            SparseGPSarsa(KERNELS["action"], 0.3, Z).optimize(t, bounds={"1.share": pair})
    model = SparseGPSarsa(KERNELS["action"], 0.3, Z)
    model.optimize(t, False, "1.share", bounds={"1.share": (0.3, 0.45)})
    assert 0.3 <= model.kernel.parameters["1.share"] <= 0.45
    assert model.kernel.parameters["1.share"] != 0.4


def test_it_needs_transitions(data, Z, rng):
    for model in both_models(Z):
        with pytest.raises(ValueError, match="no transitions to learn from"):
            model.optimize(data[:0])
        model.fit(data)
        before = fingerprint(model)
        with pytest.raises(ValueError, match="have 3 columns; the model has 2"):
            model.optimize(transitions(rng))
        with pytest.raises(ValueError, match="have 3 columns; the model has 2"):
            model.optimize(data, refit_on=transitions(rng))
        assert fingerprint(model) == before


def test_it_needs_a_kernel_whose_derivatives_are_known(data, Z):
    for model in both_models(Z[:3], Cosine()):
        model.fit(data)
        before = fingerprint(model)
        with pytest.raises(TypeError, match=r"derivatives of .* compose one from RBF"):
            model.optimize()
        assert fingerprint(model) == before


def test_names_may_come_from_an_iterator(data, Z):
    names = ["lengthscales", "variance", "noise_variance"]
    one, other = SparseGPSarsa(RBF(1.0), 0.3, Z), SparseGPSarsa(RBF(1.0), 0.3, Z)
    one.optimize(data, hyperparameters=names, max_iterations=5)
    other.optimize(data, hyperparameters=iter(names), max_iterations=5)
    assert fingerprint(one) == fingerprint(other)


# -- exceptions and interruptions -----------------------------------------------------------------


def raising(monkeypatch, error, at, module=sparse, name="sparse_evidence"):
    """Let evaluation number `at`, or each of several, raise; the list returned holds the calls."""
    calls, original = [], getattr(module, name)
    bad = {at} if isinstance(at, int) else set(at)

    def evidence(*args):
        calls.append(args)
        if len(calls) in bad:
            raise error
        return original(*args)

    monkeypatch.setattr(module, name, evidence)
    return calls


def accepted_after(data, Z, evaluations):
    """How many steps are accepted by the time so many evaluations were made."""
    for j in range(1, 100):
        report = SparseGPSarsa(RBF(1.0), 0.3, Z).optimize(data, max_iterations=j)
        if 1 + report.evaluations > evaluations:  # one more than the search itself counts
            return j - 1
    raise AssertionError


@pytest.mark.parametrize("at", [1, 2, 4, 6, 7, 8, 20])
def test_an_interruption_leaves_the_last_accepted_step(at, data, Z, monkeypatch):
    accepted = accepted_after(data, Z, at - 1)
    assert accepted == 0 if at <= 2 else accepted > 0 or at < 20
    model = SparseGPSarsa(RBF(1.0), 0.3, Z).fit(data[:30])
    before = fingerprint(model)
    with monkeypatch.context() as patch:
        calls = raising(patch, KeyboardInterrupt, at)
        with pytest.raises(KeyboardInterrupt):
            model.optimize(data)
    assert len(calls) == at
    if accepted == 0:
        assert fingerprint(model) == before
        return
    other = SparseGPSarsa(RBF(1.0), 0.3, Z)
    report = other.optimize(data, max_iterations=accepted)
    assert fingerprint(model) == fingerprint(other)
    assert model.log_evidence() == pytest.approx(report.end, rel=1e-8)
    assert model.log_evidence() > report.start
    assert model.n_transitions == len(data)
    model.update(data)


def test_an_interruption_of_the_exact_model(data, monkeypatch):
    reports = [GPSarsa(RBF(1.0), 0.3).optimize(data, max_iterations=j) for j in (1, 2, 3)]
    for at in (1, 2, *(2 + report.evaluations for report in reports)):
        model = GPSarsa(RBF(1.0), 0.3).fit(data[:30])
        before = fingerprint(model)
        with monkeypatch.context() as patch:
            raising(patch, KeyboardInterrupt, at, exact, "exact_evidence")
            with pytest.raises(KeyboardInterrupt):
                model.optimize(data)
        if at <= 2:
            assert fingerprint(model) == before
        else:
            accepted = [1 + report.evaluations < at for report in reports].count(True)
            other = GPSarsa(RBF(1.0), 0.3)
            other.optimize(data, max_iterations=accepted)
            assert fingerprint(model) == fingerprint(other)


def test_an_interruption_in_a_restart_keeps_the_best_so_far(data, Z, monkeypatch):
    first = SparseGPSarsa(RBF(1.0), 0.3, Z)
    report = first.optimize(data, max_iterations=6)
    model = SparseGPSarsa(RBF(1.0), 0.3, Z)
    for more in (1, 2, 6):
        with monkeypatch.context() as patch:
            calls = raising(patch, KeyboardInterrupt, 1 + report.evaluations + more)
            with pytest.raises(KeyboardInterrupt):
                model.optimize(data, max_iterations=6, restarts=5, seed=3)
        assert len(calls) == 1 + report.evaluations + more  # and no climb after it
        assert model.log_evidence() >= first.log_evidence()
        model = SparseGPSarsa(RBF(1.0), 0.3, Z)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError, ArithmeticError])
def test_an_exception_in_the_fit_that_follows_leaves_the_model_as_it_was(error, data, Z, monkeypatch):
    model = SparseGPSarsa(RBF(1.0), 0.3, Z).fit(data[:30])
    before = fingerprint(model)

    def fit(self, transitions):
        raise error

    monkeypatch.setattr(SparseGPSarsa, "fit", fit)
    with pytest.raises(error):
        model.optimize(data, max_iterations=3)
    assert fingerprint(model) == before


@pytest.mark.parametrize("at", [1, 2, 7])
@pytest.mark.parametrize("error", [MemoryError, RuntimeError, TypeError])
def test_an_unexpected_exception_leaves_the_model_as_it_was(error, at, data, Z, monkeypatch):
    model = SparseGPSarsa(RBF(1.0), 0.3, Z).fit(data[:30])
    before = fingerprint(model)
    raising(monkeypatch, error, at)
    with pytest.raises(error):
        model.optimize(data)
    assert fingerprint(model) == before


@pytest.mark.parametrize("error", [ArithmeticError, ValueError])
@pytest.mark.parametrize("bad", [(3,), (4, 5), (7,), range(8, 1000), range(2, 1000)])
def test_points_that_cannot_be_evaluated_are_avoided(error, bad, data, Z, monkeypatch):
    """Say a covariance that is not positive definite in double precision."""
    model = SparseGPSarsa(RBF(1.0), 0.3, Z)
    with monkeypatch.context() as patch:
        raising(patch, error, tuple(bad))
        report = model.optimize(data, max_iterations=20)
    assert report.end >= report.start
    assert report.end == pytest.approx(model.log_evidence(), rel=1e-8)
    assert np.isfinite(model.predict(Z)).all()
    if len(bad) < 3:
        assert report.end > report.start + 1.0


@pytest.mark.parametrize("error", [ArithmeticError, ValueError])
def test_a_start_that_cannot_be_evaluated_is_an_error(error, data, Z, monkeypatch):
    model = SparseGPSarsa(RBF(1.0), 0.3, Z).fit(data)
    before = fingerprint(model)
    raising(monkeypatch, error("no"), 1)
    with pytest.raises(error, match="no"):
        model.optimize()
    assert fingerprint(model) == before


# -- move_pseudo_inputs ---------------------------------------------------------------------------


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_moved_under_exact_growth_is_as_if_there_from_the_start(settings, forgetting, rng):
    kernel, t, X = KERNELS["action"], transitions(rng), pseudo_inputs(rng, 9)
    old, new = pseudo_inputs(rng, 6), pseudo_inputs(rng, 4)
    settings = settings | {"prior_mean": 0.3, "forgetting": forgetting}
    model = SparseGPSarsa(kernel, 0.2, old, **settings).update(t)
    again = SparseGPSarsa(kernel, 0.2, new, **settings).fit(t)
    for other in (model, again):
        other.observe(X[2], 0.5, X[3], 0.9)
    model.move_pseudo_inputs(new)
    np.testing.assert_array_equal(model.pseudo_inputs, new)
    close(model.predict(X), again.predict(X))
    close(model.predict(X, return_cov=True)[1], again.predict(X, return_cov=True)[1])
    close(model.log_evidence(), again.log_evidence())
    model.observe(X[0], 1.0, X[1], 0.9)
    again.observe(X[0], 1.0, X[1], 0.9)
    close(model.predict(X), again.predict(X))


@pytest.mark.parametrize("weights", ["fitc", "dtc"])
def test_moved_under_frozen_growth_each_row_keeps_its_weight(weights, rng):
    kernel, t, X = KERNELS["matern52"], transitions(rng), pseudo_inputs(rng, 9)
    old, new = pseudo_inputs(rng, 6), pseudo_inputs(rng, 5)
    model = SparseGPSarsa(kernel, 0.2, old, growth="frozen", weights=weights).update(t[:-1])
    by_observe(model, t[-1])
    model.move_pseudo_inputs(new)
    taus = residuals(kernel, old, t)
    agrees(model, sparse_posterior(kernel, 0.2, new, t, X, weights=weights, taus=taus), X)
    by_observe(model, t[0])
    twice, taus = Transitions.concatenate([t, t[0]]), np.append(taus, residuals(kernel, new, t[0]))
    agrees(model, sparse_posterior(kernel, 0.2, new, twice, X, weights=weights, taus=taus), X)
    # as adding and removing would
    other = SparseGPSarsa(kernel, 0.2, old, growth="frozen", weights=weights).update(t)
    other.add_pseudo_inputs(new)
    other.remove_pseudo_inputs(np.arange(6))
    by_observe(other, t[0])
    close(model.predict(X), other.predict(X), rtol=1e-9)
    close(model.log_evidence(), other.log_evidence(), rtol=1e-9)


@pytest.mark.parametrize("settings", MODELS, ids=name_of)
def test_moved_under_streaming_growth_is_added_then_removed(settings, rng):
    kernel, t, X = KERNELS["action"], transitions(rng), pseudo_inputs(rng, 9)
    old, new = pseudo_inputs(rng, 6), pseudo_inputs(rng, 5)
    model = SparseGPSarsa(kernel, 0.2, old, growth="streaming", **settings).update(t[:-1])
    by_observe(model, t[-1])
    dense = DenseFilter(kernel, 0.2, old, **settings)
    for j in range(len(t)):
        dense.observe(t[j])
    model.move_pseudo_inputs(new)
    for z in new:
        dense.add(z)
    for _ in range(6):
        dense.remove(0)
    np.testing.assert_array_equal(model.pseudo_inputs, new)
    mean, cov = dense.predict(X)
    close(model.predict(X), mean, rtol=1e-9)
    close(model.predict(X, return_cov=True)[1], cov, rtol=1e-9)
    close(model.log_evidence(), dense.log_evidence)
    # and on it goes, the open episode with it
    by_observe(model, t)
    for j in range(len(t)):
        dense.observe(t[j])
    close(model.predict(X), dense.predict(X)[0], rtol=1e-9)


def rows_of(Z):
    return {tuple(z) for z in np.asarray(Z).tolist()}


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_moving_some_of_them_loses_none(growth, rng):
    t, old = transitions(rng), pseudo_inputs(rng, 6)
    new = np.vstack([old[3:4], pseudo_inputs(rng, 2), old[:1], old[5:] + 1e-9])
    model = SparseGPSarsa(KERNELS["rbf"], 0.2, old, growth=growth).update(t)
    model.move_pseudo_inputs(new)
    assert rows_of(model.pseudo_inputs) == rows_of(new)
    assert len(model.pseudo_inputs) == len(new)
    assert np.isfinite(model.predict(old, return_std=True)).all()
    model.update(t)
    assert np.isfinite(model.predict(old, return_std=True)).all()


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_moving_leaves_out_what_the_others_determine(growth, rng):
    t, old, new = transitions(rng), pseudo_inputs(rng, 6), pseudo_inputs(rng, 4)
    model, other = (SparseGPSarsa(KERNELS["rbf"], 0.2, old, growth=growth).update(t) for _ in range(2))
    model.move_pseudo_inputs(np.vstack([new, new[1:3]]))
    other.move_pseudo_inputs(new)
    np.testing.assert_array_equal(model.pseudo_inputs, new)
    close(model.predict(old), other.predict(old))


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_moving_before_any_transition(growth, rng):
    t, old, new = transitions(rng), pseudo_inputs(rng, 6), pseudo_inputs(rng, 4)
    model = SparseGPSarsa(KERNELS["rbf"], 0.2, old, growth=growth)
    model.move_pseudo_inputs(new)
    np.testing.assert_array_equal(model.pseudo_inputs, new)
    other = SparseGPSarsa(KERNELS["rbf"], 0.2, new, growth=growth)
    np.testing.assert_array_equal(model.update(t).predict(old), other.update(t).predict(old))


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_moving_to_none_at_all(growth, rng):
    t, X = transitions(rng), pseudo_inputs(rng, 4)
    model = SparseGPSarsa(KERNELS["rbf"], 0.2, pseudo_inputs(rng, 6), growth=growth, prior_mean=2.0).update(t)
    model.move_pseudo_inputs(np.zeros((0, 3)))
    np.testing.assert_array_equal(model.predict(X), 2.0)
    model.move_pseudo_inputs(X)
    assert len(model.pseudo_inputs) == 4
    assert np.isfinite(model.update(t).predict(X)).all()


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_a_bad_move_changes_nothing(growth, rng, monkeypatch):
    t, Z = transitions(rng), pseudo_inputs(rng, 6)
    model = SparseGPSarsa(KERNELS["rbf"], 0.2, Z, growth=growth).update(t)
    model.observe(Z[0], 1.0, Z[1], 0.9)
    before = fingerprint(model)
    for bad, message in (
        (Z[:, :2], "Z has 2 columns; expected 3"),
        (Z[0], r"Z has shape \(3,\)"),
        (np.full((1, 3), np.nan), r"Z\[0\] = .*nan"),
    ):
        with pytest.raises(ValueError, match=message):
            model.move_pseudo_inputs(bad)
        assert fingerprint(model) == before

    def broken(*args):
        raise MemoryError

    new = pseudo_inputs(rng, 4)
    with monkeypatch.context() as patch:
        owner, name = (Belief, "projected") if growth == "streaming" else (SparseGPSarsa, "_posterior")
        patch.setattr(owner, name, broken)
        with pytest.raises(MemoryError):
            model.move_pseudo_inputs(new)
    assert fingerprint(model) == before
    model.observe(Z[0], 1.0, Z[1], 0.9)
    model.move_pseudo_inputs(new)
    assert rows_of(model.pseudo_inputs) == rows_of(new)


# -- what a review found ------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_a_streaming_move_is_adding_before_removing(noise, rng):
    t, Z = transitions(rng, 60), pseudo_inputs(rng, 6)
    new = pseudo_inputs(rng, 5)
    moved, stepwise = (
        SparseGPSarsa(KERNELS["rbf"], 0.1, Z, growth="streaming", noise=noise).update(t[:40])
        for _ in range(2)
    )
    moved.move_pseudo_inputs(new)
    assert stepwise.add_pseudo_inputs(new).all()
    stepwise.remove_pseudo_inputs(np.arange(6))
    for model in (moved, stepwise):
        model.update(t[40:])
    X = pseudo_inputs(rng, 9)
    for a, b in zip(moved.predict(X, return_cov=True), stepwise.predict(X, return_cov=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
    assert moved.log_evidence() == pytest.approx(stepwise.log_evidence(), rel=1e-10)


def test_a_streaming_move_to_where_they_are_changes_nothing(rng):
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 6), growth="streaming").fit(
        transitions(rng)
    )
    X = pseudo_inputs(rng, 9)
    before = model.predict(X, return_cov=True)
    model.move_pseudo_inputs(model.pseudo_inputs[::-1])
    for a, b in zip(model.predict(X, return_cov=True), before, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "make", [lambda: SparseGPSarsa(KERNELS["rbf"], 0.1, np.eye(3)), lambda: GPSarsa(KERNELS["rbf"], 0.1)]
)
def test_rewards_that_overflow_the_evidence(make, rng):
    t = transitions(rng)
    huge = Transitions(t.inputs, 1e200 * t.rewards, t.next_inputs, t.discounts)
    model = make()
    with pytest.raises(ValueError, match=r"rewards\[\d+\] = .* rescale"):
        model.optimize(huge)
    assert model.n_transitions == 0


def test_bounds_that_leave_a_single_point(rng):
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 5))
    t = transitions(rng)
    report = model.optimize(t, False, ["noise_variance"], bounds={"noise_variance": (0.1, 0.1)})
    assert report.end == report.start == pytest.approx(model.log_evidence())
    with pytest.warns(UserWarning, match="bounds exclude the start"):
        report = model.optimize(t, False, ["noise_variance"], bounds={"noise_variance": (50.0, 50.0)})
    assert model.noise_variance == 50.0
    assert report.end < report.start


def test_tiny_rewards_leave_a_model_that_can_be_updated(rng):
    t = transitions(rng)
    tiny = Transitions(t.inputs, 1e-8 * t.rewards, t.next_inputs, t.discounts)
    model = GPSarsa(RBF(1.0), 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.optimize(tiny)
    model.update(tiny[:5])
    assert np.isfinite(model.predict(t.inputs)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hyperparameters": None}, "hyperparameters = None"),
        ({"hyperparameters": 1.5}, "hyperparameters = 1.5"),
        ({"prior_mean": 0.7}, "prior_mean = 0.7"),
        ({"progress_bar": "yes", "max_iterations": 0}, "progress_bar = 'yes'"),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_settings_of_a_search_that_make_no_sense(options, message, exact, rng):
    model = (
        GPSarsa(KERNELS["rbf"], 0.1) if exact else SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 4))
    )
    with pytest.raises(TypeError, match=message):
        model.optimize(transitions(rng), **options)


def test_broken_paths_have_no_bound_under_correlated_noise():
    t = Transitions([[0.0], [1.0]], [0, 0], [[10.0], [0.0]], [0.9, 0.0], [True, False])
    model = SparseGPSarsa(RBF(1.0), 0.1, [[0.0], [1.0]], noise="correlated")
    with pytest.raises(ValueError, match=r"starts\[1\] is False"):
        model.optimize(t, hyperparameters=False, objective="variational")


@pytest.mark.parametrize("exact", [True, False])
def test_the_scale_of_the_rewards_does_not_matter(exact, rng):
    x = np.cumsum(0.3 * rng.standard_normal((151, 2)), axis=0)
    x -= x.mean(axis=0)
    rewards, ends = np.sin(x[:-1, 0]) + 0.1 * rng.standard_normal(150), []
    for c in (1e-6, 1e-3, 1.0, 1e3, 1e6):
        t = Transitions.from_trajectory(x, c * rewards, 0.9, terminated=False)
        model = GPSarsa(RBF([1.0, 1.0]), 0.1) if exact else SparseGPSarsa(RBF([1.0, 1.0]), 0.1, x[::12])
        report = model.optimize(t, max_iterations=200)
        ends.append(report.end + 150 * np.log(c))
        assert np.std(model.predict(x)) > 0.1 * c
    noise_alone = -75.0 * (np.log(2.0 * np.pi * np.mean(rewards**2)) + 1.0)
    assert min(ends) > noise_alone + 0.3 * (ends[2] - noise_alone)


def test_pseudo_inputs_outside_the_box_never_make_it_worse(rng):
    """The default box excludes the start, not the user: whatever happens, no lower evidence."""
    t = transitions(rng)
    for seed in range(5):
        Z = np.vstack([t.inputs[:3], 100.0 + pseudo_inputs(np.random.default_rng(seed), 3)])
        model = SparseGPSarsa(KERNELS["rbf"], 0.1, Z)
        report = model.optimize(
            t, hyperparameters=["variance"], bounds={"variance": (1.0, 1.0)}, max_iterations=3
        )
        assert report.end >= report.start
