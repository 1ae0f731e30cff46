"""Situations that once went wrong, or easily could: rounding, interruptions, odd kernels."""

from __future__ import annotations

import copy
import os
import threading

import numpy as np
import pytest
from oracle import exact_posterior, sparse_posterior
from problems import KERNELS, pseudo_inputs, transitions
from test_errors import fingerprint
from test_sparse import LEARN, Cosine, close

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions
from gpsarsa.kernels import RBF, Delta, Kernel, Matern32, Matern52


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("kernel", [RBF(1.0), Matern32(1.0), Matern52(1.0, variance=25.0), Delta(0)])
def test_a_state_that_leads_to_itself(kernel, gamma):
    x = np.arange(5.0)[:, None]
    t = Transitions(x, np.ones(5), x, np.full(5, gamma))
    for learn in LEARN.values():
        model = learn(SparseGPSarsa(kernel, 0.1, x), t)
        close(model.predict(x), exact_posterior(kernel, 0.1, t, x).mean, scale=1.0, rtol=1e-10)


@pytest.mark.parametrize("kernel", [RBF(0.1), RBF(0.3), RBF(0.5), RBF(1.0), Matern52(3.0)])
@pytest.mark.parametrize("count", [41, 200])
@pytest.mark.filterwarnings("ignore:.*pseudo-inputs are determined")
def test_a_crowd_of_pseudo_inputs_keeps_the_posterior_honest(kernel, count):
    """What is admitted is well enough conditioned that no variance is lost in rounding."""
    x = np.linspace(0, 1, count)[:, None]
    t = Transitions(x[:-1], np.sin(6 * x[:-1, 0]), x[1:], np.full(count - 1, 0.9))
    model = SparseGPSarsa(kernel, 1e-2, x).fit(t)
    X = np.linspace(0, 1, 23)[:, None]
    Psi = model._basis.whiten(model._basis.kernel_rows(X))
    assert (kernel.diag(X) - (Psi**2).sum(axis=1)).min() > -1e-6
    std = model.predict(X, return_std=True)[1]
    assert (std <= np.sqrt(kernel.diag(X))).all()
    exact = GPSarsa(kernel, 1e-2).fit(t).predict(X)
    assert np.abs(model.predict(X) - exact).max() < 0.1 * np.abs(exact).max()


class Linear:
    def __call__(self, A, B):
        return A @ B.T

    def diag(self, A):
        return (A * A).sum(axis=1)


def test_a_pseudo_input_without_variance_is_refused():
    model = SparseGPSarsa(Linear(), 0.1, [[1.0, 0.0]])
    model.update(Transitions([[1.0, 2.0]], [1.0], [[0.0, 0.0]], [0.9]))
    assert model.add_pseudo_inputs([[0.0, 0.0], [0.0, 1.0]]).tolist() == [False, True]
    assert np.isfinite(model.predict([[1.0, 1.0]])).all()
    with pytest.raises(ValueError, match=r"has variance 0\.0; expected a finite number above 0"):
        SparseGPSarsa(RBF(1.0, 1e-200) * RBF(1.0, 1e-200), 0.1, [[0.0]])


class Cached:
    """A kernel that keeps what it has answered."""

    def __init__(self):
        self.known = {}

    def __call__(self, A, B):
        return self.known.setdefault((A.tobytes(), B.tobytes()), RBF(1.0)(A, B))

    def diag(self, A):
        return np.ones(len(A))


def test_what_a_users_kernel_returned_stays_as_it_is(rng):
    t, X = transitions(rng), rng.standard_normal((8, 3))
    model = SparseGPSarsa(Cached(), 0.1, rng.standard_normal((5, 3))).fit(t)
    first = model.predict(X)
    np.testing.assert_array_equal(model.predict(X), first)


class Bumpy(RBF):
    """A subclass that does something else than its parent."""

    def __call__(self, A, B):
        return super().__call__(A, B) + 1.0

    def diag(self, A):
        return super().diag(A) + 1.0


class Scratch(Kernel):
    def __call__(self, A, B):
        return RBF(1.0)(A, B)

    def diag(self, A):
        return np.ones(len(A))


@pytest.mark.parametrize("kernel", [Bumpy(1.0), Scratch()])
def test_a_subclass_of_a_kernel_is_a_users_own(kernel, tmp_path, rng):
    t, Z, X = transitions(rng), rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    model = SparseGPSarsa(kernel, 0.1, Z).fit(t)
    close(model.predict(X), sparse_posterior(kernel, 0.1, Z, t, X).mean)
    far = np.full((1, 3), 50.0)
    spread = np.std([draw(far)[0] for draw in model.sample(400, 1)])
    assert spread == pytest.approx(model.predict(far, return_std=True)[1][0], rel=0.2)
    model.save(tmp_path / "model")
    loaded = SparseGPSarsa.load(tmp_path / "model", kernel=kernel)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(TypeError, match="combines kernels of this module"):
        kernel + RBF(1.0)


@pytest.mark.parametrize("wrong", [lambda K: K[:, :1], lambda K: K * np.nan, lambda K: K * 1j])
def test_the_exact_model_checks_a_users_kernel_too(wrong, rng):
    class Wrong(Cosine):
        def __call__(self, A, B):
            return wrong(super().__call__(A, B))

    with pytest.raises((ValueError, TypeError), match=r"kernel\(A, B\) returned"):
        GPSarsa(Wrong(), 0.1).fit(transitions(rng))


def test_kernels_stay_immutable_when_copied():
    kernel = RBF([1.0, 2.0], columns=[0, 1]) * Delta(2)
    twin = copy.deepcopy(kernel)
    assert twin == kernel
    with pytest.raises(ValueError, match="read-only"):
        twin.parts[0].lengthscales[0] = 3.0


# -- interruptions --------------------------------------------------------------------------------


class Interruption(BaseException):
    """As Ctrl-C is."""


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_an_interruption_while_growing_leaves_the_model_as_it_was(growth, rng, monkeypatch):
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 7), growth=growth).update(transitions(rng))
    before, Z = fingerprint(model), pseudo_inputs(rng, 4)

    def interrupt(*_, **__):
        raise Interruption

    added = 0
    for place in ("belief.Belief.extend", "belief.Belief.border", "sparse.Statistics"):
        with monkeypatch.context() as patch:
            patch.setattr(f"gpsarsa.{place}", interrupt)
            try:
                model.add_pseudo_inputs(Z)
                added += 1
            except Interruption:
                assert fingerprint(model) == before
        if len(model.pseudo_inputs) > 7:
            model.remove_pseudo_inputs(range(7, 11))
            before = fingerprint(model)
    assert added < 3
    model.observe(np.zeros(3), 1.0, np.ones(3), 0.9)
    assert model.add_pseudo_inputs(Z).all()


def test_observing_goes_on_after_a_refused_update(rng):
    """The single-step path must not keep working on a belief that was rolled back."""
    t = transitions(rng)
    model, twin = (SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 5)[:5]) for _ in "ab")
    twin = SparseGPSarsa(KERNELS["rbf"], 0.1, model.pseudo_inputs)
    row = t.inputs[0], 1.0, t.next_inputs[0], 0.9
    model.observe(*row)
    with pytest.raises(ValueError, match="overflows"):
        model.update(Transitions(t.inputs[:3], [1.0, 1e300, 1.0], t.next_inputs[:3], t.discounts[:3]))
    model.observe(*row)
    twin.observe(*row).observe(*row)
    X = pseudo_inputs(rng, 5)
    np.testing.assert_array_equal(model.predict(X), twin.predict(X))


def test_models_in_threads_do_not_disturb_each_other(rng):
    t, X = transitions(rng), pseudo_inputs(rng, 200)
    Z = pseudo_inputs(rng, 20)
    expected = SparseGPSarsa(KERNELS["rbf"], 0.1, Z).update(t).predict(X)
    results = []

    def work():
        results.append(SparseGPSarsa(KERNELS["rbf"], 0.1, Z).update(t).predict(X))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    for result in results:
        np.testing.assert_array_equal(result, expected)


# -- small print ----------------------------------------------------------------------------------


def test_fitting_nothing_with_forgetting(rng):
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 4), forgetting=0.9)
    assert model.update(transitions(rng)).fit(transitions(rng)[:0]).log_evidence() == 0.0


@pytest.mark.parametrize("start", ["False", np.nan, 0.5, [], 2])
def test_a_start_is_true_or_false(start, rng):
    for model in (SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 4)), GPSarsa(KERNELS["rbf"], 0.1)):
        with pytest.raises(TypeError, match=r"start = .*; expected True or False"):
            model.observe(np.zeros(3), 1.0, np.ones(3), 0.9, start=start)


def test_the_ignored_input_at_the_end_of_a_trajectory_may_be_anything():
    path = np.array([[0.0], [1.0], [np.nan]])
    assert len(Transitions.from_trajectory(path, [1.0, 2.0], 0.9, terminated=True)) == 2
    with pytest.raises(ValueError, match="next_inputs"):
        Transitions.from_trajectory(path, [1.0, 2.0], 0.9, terminated=False)
    with pytest.raises(TypeError, match="terminated = 'False'"):
        Transitions.from_trajectory(path, [1.0, 2.0], 0.9, terminated="False")


@pytest.mark.parametrize("rows", [None, True, [[0, 1]], "a", [0.5]])
def test_rows_are_chosen_by_numbers(rows, rng):
    with pytest.raises(TypeError, match="row"):
        transitions(rng)[rows]


def test_a_column_named_from_both_ends_is_named_twice():
    with pytest.raises(ValueError, match="names a column twice"):
        RBF(1.0, columns=[0, -2])(np.zeros((1, 2)), np.zeros((1, 2)))


def test_a_drawn_function_does_not_depend_on_the_model_it_came_from(rng):
    model = GPSarsa(KERNELS["rbf"], 0.1).fit(transitions(rng))
    draw, X = model.sample(1, 0)[0], pseudo_inputs(rng, 700)
    before = draw(X)
    model.fit(Transitions([[1.0, 1.0, 1.0]], [1.0], [[1.0, 1.0, 1.0]], [0.0]))
    np.testing.assert_array_equal(draw(X), before)
    assert before.shape == (700,)


def test_saving_through_a_link_and_keeping_permissions(tmp_path, rng):
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 4))
    target, link = tmp_path / "target", tmp_path / "link"
    model.save(target)
    os.chmod(target, 0o600)
    link.symlink_to(target)
    model.update(transitions(rng)).save(str(link))
    assert link.is_symlink()
    assert SparseGPSarsa.load(target).n_transitions == model.n_transitions
    assert target.stat().st_mode & 0o777 == 0o600
