"""The parts that the estimators are made of, each against dense algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import residuals, rows_cross
from problems import KERNELS, episode, pseudo_inputs, transitions
from test_sparse import close

from gpsarsa import Transitions, _linalg
from gpsarsa.basis import Basis
from gpsarsa.belief import Belief
from gpsarsa.statistics import Likelihood, Statistics

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65]


def buffer(matrix):
    """A matrix in a larger buffer, as the compiled loops want it."""
    n = len(matrix)
    out = _linalg.square(n)
    out[:n, :n] = matrix
    return out


def padded(x):
    out = np.zeros(_linalg.blocked(len(x)))
    out[: len(x)] = x
    return out


@pytest.mark.parametrize("n", SIZES)
def test_triangular_and_symmetric_products(n, rng):
    W, x = np.tril(rng.standard_normal((n, n))), rng.standard_normal(n)
    X = np.array([padded(row) for row in rng.standard_normal((3, n))])
    out = np.full((3, X.shape[1]), np.nan)
    _linalg.lower_times(buffer(W), X, n, out)
    close(out[:, :n], X[:, :n] @ W.T, rtol=1e-13)
    assert not out[:, n:].any()
    y = np.full(X.shape[1], np.nan)
    _linalg.lower_transposed_times(buffer(W), padded(x), n, y)
    close(y[:n], W.T @ x, rtol=1e-13)
    R = W @ W.T
    lower = buffer(R)
    for i in range(n):  # nothing above the diagonal blocks is read
        lower[i, _linalg.blocked(i + 1) : n] = np.nan
    _linalg.symmetric_times(lower, padded(x), n, y)
    close(y[:n], R @ x, rtol=1e-13)
    _linalg.subtract_outer(lower, padded(x), 0.3, n)
    _linalg.shrink_to_identity(lower, 0.9, n)
    close(_linalg.symmetrised(lower, n), 0.9 * (R - 0.3 * np.outer(x, x)) + 0.1 * np.eye(n), rtol=1e-13)


@given(st.integers(1, 600))
def test_buffers_are_aligned_and_their_strides_are_not_powers_of_two(capacity):
    made = _linalg.square(capacity)
    assert made.shape[0] == made.shape[1] >= max(capacity, 8)
    assert made.shape[0] % 8 == 0
    assert made.shape[0] % 64 != 0
    assert made.ctypes.data % 64 == 0
    assert not made.any()


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in (2, 5, 8, 9) for k in {0, n // 2, n - 1}])
def test_rotations_drop_one_variable(n, k, rng):
    A = rng.standard_normal((n, n + 2))
    K = A @ A.T
    W = buffer(np.linalg.inv(np.linalg.cholesky(K)))
    S = rng.standard_normal((n, n))
    Sigma = S @ S.T  # a covariance of u; of w = L⁻¹u it is W Σ Wᵀ
    m, R = padded(W[:n, :n] @ np.arange(n)), buffer(W[:n, :n] @ Sigma @ W[:n, :n].T)
    cosines, sines = np.zeros(n), np.zeros(n)
    _linalg.eliminate_column(W, k, n, cosines, sines)
    _linalg.rotate_vector(m, k, n, cosines, sines)
    _linalg.rotate_symmetric(R, k, n, cosines, sines)
    keep = np.delete(np.arange(n), k)
    expected = np.linalg.inv(np.linalg.cholesky(K[np.ix_(keep, keep)]))
    close(W[: n - 1, : n - 1], expected, rtol=1e-11)
    close(m[: n - 1], expected @ keep, rtol=1e-11)
    close(_linalg.symmetrised(R, n - 1), expected @ Sigma[np.ix_(keep, keep)] @ expected.T, rtol=1e-10)
    assert not W[n - 1 :].any()
    assert not W[:, n - 1 :].any()
    assert not m[n - 1 :].any()
    assert not R[n - 1 :].any()
    assert not R[:, n - 1 :].any()


# -- basis ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_features_and_residuals(name, rng):
    kernel, t, Z = KERNELS[name], transitions(rng), pseudo_inputs(rng, 9)
    basis = Basis(kernel, 3)
    assert basis.append(Z).all()
    X, _, following, gamma, _ = t._arrays
    delta, kappa = basis.differences(X, following, gamma)
    close(delta, rows_cross(kernel, t, Z), rtol=1e-14)
    Psi = basis.whiten(delta.copy())
    L = np.linalg.cholesky(kernel(Z, Z))
    close(Psi, np.linalg.solve(L, delta.T).T)
    close(kappa - (Psi**2).sum(axis=1), residuals(kernel, Z, t))
    close(basis.A, np.linalg.inv(kernel(Z, Z)))
    close(basis.newest_features(delta, 3), Psi[:, -3:])


def test_kernel_rows_are_reused_along_a_path_and_only_there(rng):
    """A row's x that is the x′ before, or nearly, or after a terminal row: δ is always its own."""
    kernel, path = KERNELS["rbf"], rng.standard_normal((6, 3))
    X, following = path[:-1].copy(), path[1:].copy()
    X[2, 1] += 1e-9
    gamma = np.array([0.9, 0.9, 0.0, 0.9, 0.9])
    basis = Basis(kernel, 3)
    basis.append(rng.standard_normal((5, 3)))
    delta, _ = basis.differences(X, following, gamma)
    for j in range(5):
        alone, _ = basis.differences(X[j : j + 1], following[j : j + 1], gamma[j : j + 1])
        np.testing.assert_array_equal(delta[j], alone[0])


def test_appending_truncating_and_copying(rng):
    kernel, Z = KERNELS["matern52"], pseudo_inputs(rng, 40)
    whole, pieces = Basis(kernel, 3), Basis(kernel, 3)
    whole.append(Z)
    for z in Z:
        pieces.append(z[None])
    np.testing.assert_array_equal(whole.factor, pieces.factor)
    copy = whole.copy()
    whole.truncate(10)
    whole.append(Z[10:])
    np.testing.assert_array_equal(whole.factor, copy.factor)
    np.testing.assert_array_equal(whole.Z, Z)
    assert whole.rounding == pytest.approx(copy.rounding)


# -- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("fitc", [False, True])
def test_statistics_add_up_however_the_episodes_are_shared_out(correlated, fitc, rng):
    kernel, Z = KERNELS["action"], pseudo_inputs(rng, 7)
    basis, likelihood = Basis(kernel, 3), Likelihood(0.1, fitc, correlated, 0.4)
    basis.append(Z)
    parts = [episode(rng, int(n), bool(n % 2)) for n in rng.integers(1, 12, 9)]
    whole = Statistics.from_block(basis, Transitions.concatenate(parts), likelihood)
    blocks = [Statistics.from_block(basis, part, likelihood) for part in parts]
    reference = whole.posterior(likelihood)
    for order in ([*range(9)], [*range(9)][::-1], rng.permutation(9)):
        shuffled = [blocks[i] for i in order]
        left = list(itertools.accumulate(shuffled, lambda a, b: a + b))[-1]
        tree = (shuffled[0] + (shuffled[1] + shuffled[2])) + (
            (shuffled[3] + shuffled[4]) + (shuffled[5] + (shuffled[6] + (shuffled[7] + shuffled[8])))
        )
        for total in (left, tree):
            assert total.count == whole.count
            close(np.tril(total.gram), np.tril(whole.gram), rtol=1e-12)
            close(total.moment, whole.moment, rtol=1e-12)
            belief = total.posterior(likelihood)
            close(belief.mean, reference.mean, rtol=1e-10)
            close(belief.covariance, reference.covariance, rtol=1e-10)
            close(belief.log_evidence, reference.log_evidence, rtol=1e-10)
    with pytest.raises(ValueError, match="over 7 and 3 pseudo-inputs do not add"):
        whole + Statistics(3)
    with pytest.raises(TypeError):
        whole + 1


# -- belief ---------------------------------------------------------------------------------------


def test_bordering_many_at_once_is_bordering_one_by_one(rng):
    Psi, r = rng.standard_normal((30, 8)), rng.standard_normal(30)
    whole = Belief.from_information(Psi.T @ Psi, Psi.T @ r)
    one_by_one, at_once = (Belief.from_information(Psi[:, :3].T @ Psi[:, :3], Psi[:, :3].T @ r) for _ in "ab")
    new = Psi[:, 3:]
    at_once.border(Psi[:, :3].T @ new, np.eye(5) + new.T @ new, new.T @ r)
    for j in range(3, 8):
        eta = Psi[:, j : j + 1]
        one_by_one.border(Psi[:, :j].T @ eta, 1.0 + eta.T @ eta, eta.T @ r)
    for belief in (one_by_one, at_once):
        close(belief.mean, whole.mean)
        close(belief.covariance, whole.covariance)
        close(belief.log_evidence, whole.log_evidence)


def test_draws_have_the_beliefs_moments(rng):
    Psi = rng.standard_normal((6, 4))
    belief = Belief.from_information(3 * Psi.T @ Psi, rng.standard_normal(4))
    w = belief.draws(200_000, rng)
    np.testing.assert_allclose(w.mean(axis=1), belief.mean, atol=0.01)
    np.testing.assert_allclose(np.cov(w), belief.covariance, atol=0.01)


def test_a_covariance_that_is_none_is_reported(rng):
    belief = Belief(4)
    belief.R[2, 2] = -0.5
    for ask in (lambda: belief.variances(np.eye(4)), lambda: belief.variances(np.eye(40, 4)),
                lambda: belief.draws(1, rng)):  # fmt: skip
        with pytest.raises(ArithmeticError, match="lost its positive definiteness"):
            ask()
    with pytest.raises(ArithmeticError, match="not positive definite"):
        Belief.from_information(-5 * np.eye(3), np.zeros(3))
