"""Pseudo-inputs that come and go: what each growth promises, against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import DenseFilter, residuals, sparse_posterior
from problems import KERNELS, pseudo_inputs, transitions
from test_sparse import Cosine, agrees, close

from gpsarsa import SparseGPSarsa
from gpsarsa.basis import NOVELTY

EMPTY = np.zeros((0, 3))


class Story:
    """Random growth, shrinkage and transitions in any order, one or many at a time."""

    def __init__(self, seed, model, on_row=None, on_add=None, on_remove=None):
        rng = np.random.default_rng(seed)
        t = transitions(rng, 60)
        done = 0
        while done < len(t):
            choice = rng.choice(["row", "rows", "add", "many", "remove"], p=[0.3, 0.2, 0.25, 0.1, 0.15])
            M = len(model.pseudo_inputs)
            if choice == "row":
                j = done
                model.observe(
                    t.inputs[j], t.rewards[j], t.next_inputs[j], t.discounts[j], start=bool(t.starts[j])
                )
                self._each(on_row, t[j : j + 1])
                done += 1
            elif choice == "rows":
                n = min(int(rng.integers(1, 9)), len(t) - done)
                model.update(t[done : done + n])
                self._each(on_row, t[done : done + n])
                done += n
            elif choice in ("add", "many"):
                Z = pseudo_inputs(rng, 1 if choice == "add" else 4)
                assert model.add_pseudo_inputs(Z).all()
                for z in Z:
                    if on_add:
                        on_add(z)
            elif M > 2:
                places = rng.choice(M, size=int(rng.integers(1, 3)), replace=False)
                model.remove_pseudo_inputs(places)
                for place in sorted(places, reverse=True):
                    if on_remove:
                        on_remove(place)
        self.t = t

    def _each(self, call, rows):
        for j in range(len(rows)):
            if call:
                call(rows[j])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("weights", ["fitc", "dtc"])
@pytest.mark.parametrize("noise", ["iid", "correlated"])
@pytest.mark.parametrize("forgetting", [1.0, 0.95])
def test_exact_growth_is_as_if_todays_set_had_been_there_from_the_start(
    seed, start, weights, noise, forgetting
):
    rng = np.random.default_rng(100 + seed)
    kernel, X = KERNELS["matern52"], pseudo_inputs(rng, 12)
    settings = {"weights": weights, "noise": noise, "forgetting": forgetting, "prior_mean": 0.2}
    model = SparseGPSarsa(kernel, 0.1, pseudo_inputs(rng, start), growth="exact", **settings)
    t = Story(seed, model).t
    again = SparseGPSarsa(kernel, 0.1, model.pseudo_inputs, growth="exact", **settings).update(t)
    close(model.predict(X), again.predict(X))
    close(model.predict(X, return_cov=True)[1], again.predict(X, return_cov=True)[1])
    close(model.log_evidence(), again.log_evidence())
    if forgetting == 1.0:
        del settings["forgetting"]
        agrees(model, sparse_posterior(kernel, 0.1, model.pseudo_inputs, t, X, **settings), X)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("weights", ["fitc", "dtc"])
def test_frozen_growth_keeps_each_rows_weight_as_on_arrival(seed, start, weights):
    rng = np.random.default_rng(200 + seed)
    kernel, X = KERNELS["matern52"], pseudo_inputs(rng, 12)
    model = SparseGPSarsa(kernel, 0.1, pseudo_inputs(rng, start), growth="frozen", weights=weights)
    taus, Z_now = [], [model.pseudo_inputs]  # τ by dense algebra, for the pseudo-inputs of the moment

    def arrived(row):
        taus.append(residuals(kernel, Z_now[0], row)[0])

    def added(z):
        Z_now[0] = np.vstack([Z_now[0], z[None]])

    def removed(place):
        Z_now[0] = np.delete(Z_now[0], place, axis=0)

    t = Story(seed, model, arrived, added, removed).t
    np.testing.assert_array_equal(Z_now[0], model.pseudo_inputs)
    Z = model.pseudo_inputs
    expected = sparse_posterior(kernel, 0.1, Z, t, X, weights=weights, taus=np.array(taus))
    agrees(model, expected, X)
    if weights == "fitc":
        recomputed = sparse_posterior(kernel, 0.1, Z, t, X)
        assert np.abs(recomputed.mean - expected.mean).max() > 1e-3 * np.abs(expected.mean).max()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("weights", ["fitc", "dtc"])
@pytest.mark.parametrize("noise", ["iid", "correlated"])
@pytest.mark.parametrize("forgetting", [1.0, 0.95])
def test_streaming_growth_is_conditioning_and_marginalising(seed, start, weights, noise, forgetting):
    rng = np.random.default_rng(300 + seed)
    kernel, X = KERNELS["action"], pseudo_inputs(rng, 12)
    Z = pseudo_inputs(rng, start)
    settings = {"weights": weights, "noise": noise, "forgetting": forgetting, "prior_mean": 0.2}
    model = SparseGPSarsa(kernel, 0.1, Z, growth="streaming", **settings)
    dense = DenseFilter(kernel, 0.1, Z, **settings)
    Story(seed, model, dense.observe, dense.add, dense.remove)
    mean, cov = dense.predict(X)
    close(model.predict(X), mean, rtol=1e-10)
    close(model.predict(X, return_cov=True)[1], cov, rtol=1e-10)
    close(model.log_evidence(), dense.log_evidence, rtol=1e-10)
    np.testing.assert_array_equal(model.pseudo_inputs, dense.Z)
    assert len(model._history) == 0


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_growth_with_a_kernel_of_the_users_own(growth, rng):
    t, X = transitions(rng), rng.standard_normal((7, 3))
    Z = rng.standard_normal((7, 3))
    model = SparseGPSarsa(Cosine(), 0.1, Z[:3], growth=growth, weights="dtc")
    model.update(t[:10])
    model.add_pseudo_inputs(Z[3:])
    model.update(t[10:])
    model.remove_pseudo_inputs([1])
    if growth != "streaming":
        expected = sparse_posterior(Cosine(), 0.1, np.delete(Z, 1, axis=0), t, X, weights="dtc")
        agrees(model, expected, X)
    else:
        dense = DenseFilter(Cosine(), 0.1, Z[:3], weights="dtc")
        for j in range(len(t)):
            if j == 10:
                for z in Z[3:]:
                    dense.add(z)
            dense.observe(t[j])
        dense.remove(1)
        close(model.predict(X), dense.predict(X)[0], rtol=1e-8)


def test_adding_in_streaming_mode_moves_no_prediction(rng):
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 6), growth="streaming")
    model.update(transitions(rng))
    X = pseudo_inputs(rng, 20)
    mean, cov = model.predict(X, return_cov=True)
    evidence = model.log_evidence()
    model.add_pseudo_inputs(pseudo_inputs(rng, 10))
    close(model.predict(X), mean)
    close(model.predict(X, return_cov=True)[1], cov)
    assert model.log_evidence() == evidence


def test_adding_and_removing_the_same_point_changes_nothing_in_streaming_mode(rng):
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 6), growth="streaming")
    model.update(transitions(rng))
    X = pseudo_inputs(rng, 20)
    before = model.predict(X, return_cov=True)
    Z = model.pseudo_inputs
    model.add_pseudo_inputs(pseudo_inputs(rng, 3))
    model.remove_pseudo_inputs([6, 7, 8])
    np.testing.assert_array_equal(model.pseudo_inputs, Z)
    for a, b in zip(model.predict(X, return_cov=True), before, strict=True):
        close(a, b)


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_a_redundant_pseudo_input_is_refused_by_the_mask(growth, rng):
    Z, t, X = pseudo_inputs(rng, 6), transitions(rng), pseudo_inputs(rng, 5)
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, Z, growth=growth).update(t)
    before = model.predict(X)
    assert model.add_pseudo_inputs(Z[[2, 2]]).tolist() == [False, False]
    np.testing.assert_array_equal(model.predict(X), before)
    new = pseudo_inputs(rng, 2)
    mask = model.add_pseudo_inputs(np.vstack([new[0], Z[0], new[1], new[0]]))
    assert mask.tolist() == [True, False, True, False]
    np.testing.assert_array_equal(model.pseudo_inputs, np.vstack([Z, new]))
    close_by = new[0] + np.array([1e-7, 0, 0])
    assert model.add_pseudo_inputs(close_by[None]).tolist() == [False]


def test_the_novelty_tolerance_is_where_it_is_said_to_be():
    """Two points at distance ε have conditional variance ε²/ℓ²: admitted down to 1e-10."""
    from gpsarsa.kernels import RBF

    for epsilon, admitted in ((1.05e-5, True), (0.95e-5, False)):
        model = SparseGPSarsa(RBF(1.0, variance=7.0), 0.1, [[0.0]])
        assert (epsilon**2 > NOVELTY) == admitted
        assert model.add_pseudo_inputs([[epsilon]]).tolist() == [admitted]


def test_the_constructor_warns_of_redundant_pseudo_inputs(rng):
    Z = pseudo_inputs(rng, 4)
    with pytest.warns(UserWarning, match=r"1 of 5 pseudo-inputs .* row 3"):
        model = SparseGPSarsa(KERNELS["rbf"], 0.1, np.vstack([Z[:3], Z[1], Z[3]]))
    np.testing.assert_array_equal(model.pseudo_inputs, Z)


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_everything_can_be_removed_and_grown_again(growth, rng):
    t, X = transitions(rng), pseudo_inputs(rng, 5)
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 6), growth=growth).update(t)
    model.remove_pseudo_inputs(np.arange(6))
    assert model.pseudo_inputs.shape == (0, 3)
    np.testing.assert_array_equal(model.predict(X), np.zeros(5))
    Z = pseudo_inputs(rng, 5)
    model.add_pseudo_inputs(Z)
    if growth == "exact":
        agrees(model, sparse_posterior(KERNELS["rbf"], 0.1, Z, t, X), X)
    assert np.isfinite(model.update(t).predict(X)).all()


def test_capacity_grows_by_doubling(rng):
    """Growing to M reallocates O(log M) times, so that adding is O(M²) amortised."""
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, EMPTY, growth="streaming")
    capacities = set()
    for z in 20 * rng.standard_normal((300, 3)):
        model.add_pseudo_inputs(z[None])
        capacities.add((len(model._basis.W), len(model._belief.R)))
    assert len(model.pseudo_inputs) > 250
    assert len(capacities) <= 2 * 8


def test_ten_thousand_adds_and_removes_leave_no_drift(rng):
    kernel = KERNELS["matern52"]
    model = SparseGPSarsa(kernel, 0.1, EMPTY, growth="streaming")
    t = transitions(rng, 200)
    dense = DenseFilter(kernel, 0.1, EMPTY)
    changes = 0
    while changes < 10_000:
        if changes % 500 == 0:
            j = changes // 500
            model.update(t[j : j + 1])
            dense.observe(t[j])
        M = len(model.pseudo_inputs)
        if M < 12 or (M < 30 and rng.random() < 0.5):
            z = pseudo_inputs(rng, 1)
            if model.add_pseudo_inputs(z)[0]:
                dense.add(z[0])
                changes += 1
        else:
            place = int(rng.integers(M))
            model.remove_pseudo_inputs(place)
            dense.remove(place)
            changes += 1
    Z = model.pseudo_inputs
    W = np.linalg.inv(np.linalg.cholesky(kernel(Z, Z)))
    close(model._basis.factor, W, rtol=1e-8)
    Sigma_u = dense.cov[:-1, :-1]
    close(model._belief.covariance, W @ Sigma_u @ W.T, rtol=1e-8)
    close(model._belief.mean, W @ dense.mean[:-1], rtol=1e-8)
