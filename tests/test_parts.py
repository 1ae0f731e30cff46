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
from gpsarsa.basis import Basis, pivots
from gpsarsa.belief import DONE, INDEFINITE, OVERFLOW, Belief, condition
from gpsarsa.kernels import RBF
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


def test_a_belief_about_other_values(rng):
    """w′ given w is N(T w, I − TTᵀ)"""
    root, T = rng.standard_normal((5, 5)), 0.3 * rng.standard_normal((3, 5))
    mean, R, c = rng.standard_normal(5), root @ root.T, rng.standard_normal(5)
    found = Belief.restored(mean, R, c, np.zeros(3)).projected(T)
    close(found.mean, T @ mean)
    close(found.covariance, T @ R @ T.T + np.eye(3) - T @ T.T)
    close(found.c[:3], T @ c)


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


@pytest.mark.parametrize("size", [1, 3, 4, 9])
@pytest.mark.parametrize("name", KERNELS)
def test_a_single_input_given_the_pseudo_inputs(name, size, rng):
    """ℓ = L⁻¹ k(Z, x) and ρ = k(x, x) − ℓᵀℓ"""
    kernel, Z, x = KERNELS[name], pseudo_inputs(rng, 9)[:size], pseudo_inputs(rng, 1)
    basis = Basis(kernel, 3)
    basis.append(Z)
    ell, rho, prior = basis.conditional(x[0])
    expected = np.linalg.solve(np.linalg.cholesky(kernel(Z, Z)), kernel(Z, x)[:, 0])
    assert prior == kernel.diag(x)[0]
    close(ell, expected)
    close(rho, prior - expected @ expected)


@pytest.mark.parametrize("column", range(3))
def test_kernel_rows_are_reused_along_a_path_and_only_there(column, rng):
    """A row's x that is the x′ before, or nearly, or after a terminal row: δ is always its own."""
    kernel, path = KERNELS["rbf"], rng.standard_normal((6, 3))
    X, following = path[:-1].copy(), path[1:].copy()
    X[2, column] += 1e-9
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


class Called:
    """A built-in kernel as if it were a user's own."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, A, B):
        return self.kernel(A, B)

    def diag(self, A):
        return self.kernel.diag(A)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_pivots_are_those_of_largest_conditional_variance(scale, rng):
    X = np.linspace(0.0, 1.0, 60)[:, None] ** 2
    kernel = RBF(0.3, scale)
    chosen, left = [], scale * np.ones(60)
    while left.max() > 1e-9 * scale:
        chosen.append(int(np.argmax(left)))
        solved = np.linalg.solve(kernel(X[chosen], X[chosen]), kernel(X[chosen], X))
        left = scale - np.einsum("ij,ij->j", kernel(X[chosen], X), solved)
        left[chosen] = 0.0
    for one in (kernel, Called(kernel)):
        assert pivots(one, X, 60)[:7] == chosen[:7]  # later ones differ by rounding
        assert len(pivots(one, X, 60)) == len(chosen)
        assert pivots(one, X, 3) == chosen[:3]
        half = len(pivots(one, X, 60, least=1e-3))
        assert 1 < half < len(chosen)
        assert pivots(one, X, 60, least=1e-3) == chosen[:half]


@pytest.mark.parametrize("scale", [0.02, 1.0, 50.0])
def test_a_basis_made_at_once_is_the_one_made_row_by_row(scale, rng):
    refused = 0
    sets = [np.array([[0.0], [1.0], [1.0 + gap]]) for gap in 10.0 ** np.arange(-5.4, -4.6, 0.02)]
    sets += [np.sort(rng.random((count, 1)), axis=0) for count in range(4, 16) for _ in range(4)]
    for Z in sets:
        row_by_row = Basis(RBF(1.0, scale), 1)
        admitted = row_by_row.append(Z)
        at_once, which = Basis.spanned_by(RBF(1.0, scale), Z)
        np.testing.assert_array_equal(which, admitted)
        np.testing.assert_array_equal(at_once.Z, row_by_row.Z)
        refused += not admitted.all()
    assert 20 < refused < len(sets) - 20


def test_rounding_is_as_large_as_the_condition_allows(rng):
    Z = pseudo_inputs(rng, 12)
    for kernel in (KERNELS["matern52"], RBF([1.0, 2.0, 0.5], 7.0)):
        whole = Basis(kernel, 3)
        whole.append(Z)
        removed = whole.copy()
        removed.remove(3)
        truncated = whole.copy()
        truncated.truncate(5)
        for basis in (whole, whole.copy(), removed, truncated, Basis.spanned_by(kernel, Z)[0]):
            K = kernel(basis.Z, basis.Z)
            expected = 100.0 * _linalg.EPS * (1.0 + np.trace(np.linalg.inv(K)) * K.diagonal().max())
            assert basis.rounding == pytest.approx(expected, rel=1e-6)
    crowded = Basis.spanned_by(RBF(1.0), np.linspace(0.0, 1.0, 8)[:, None])[0]
    assert crowded.rounding == 1e-3


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_what_is_explained_beyond_rounding_is_an_error(scale):
    basis = Basis(RBF(1.0, scale), 1)
    basis.append(np.array([[0.0], [1.0]]))
    X, room = np.zeros((3, 1)), basis.rounding

    def features(share):
        Psi = np.full((3, 2), np.sqrt(0.25 * scale))
        Psi[1] = np.sqrt(scale * (1.0 + share * room)), 0.0
        return Psi

    left = basis.unexplained(X, features(0.9))
    np.testing.assert_allclose(left, [0.5 * scale, 0.0, 0.5 * scale])
    covariance = basis.unexplained_covariance(X, features(0.0))
    np.testing.assert_allclose(covariance.diagonal(), left)
    np.testing.assert_allclose(covariance[0, 2], 0.5 * scale)
    with pytest.raises(
        ArithmeticError, match=rf"at X\[8\] is {scale}, but the pseudo-inputs explain {scale}"
    ):
        basis.unexplained(X, features(1.2), first=7)
    Psi = features(0.0)
    Psi[1, 0] = 1.5 * np.sqrt(scale)
    with pytest.raises(ArithmeticError, match=rf"is {scale}, .* explain {2.25 * scale}"):
        basis.unexplained(X, Psi)


def test_the_row_of_which_too_large_a_share_is_explained_is_named():
    """Not the one of which most is: k(x, x) is 1 there and 100 at the other."""

    class Linear:
        def __call__(self, A, B):
            return A @ B.T

        def diag(self, A):
            return A[:, 0] ** 2

    basis = Basis(Linear(), 1)
    basis.append(np.ones((1, 1)))
    with pytest.raises(ArithmeticError, match=r"at X\[1\] is 1\.0, but the pseudo-inputs explain 2\.25"):
        basis.unexplained(np.array([[10.0], [1.0]]), np.array([[11.0], [1.5]]))


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_a_kernel_of_the_users_own_that_is_not_positive(scale):
    """k(x, x′) is larger than k(x, x) by a little more, or less, than rounding allows."""

    class Odd:
        def __init__(self, beyond):
            self.beyond = beyond

        def __call__(self, A, B):
            return scale * np.where(A == B.T, 1.0, 1.0 + self.beyond)

        def diag(self, A):
            return np.full(len(A), scale)

    X, following, one = np.zeros((2, 1)), np.array([[0.0], [1.0]]), np.ones(2)
    _, kappa = Basis(Odd(0.9e-8), 1).differences(X, following, one)
    np.testing.assert_array_equal(kappa, 0.0)
    with pytest.raises(ArithmeticError, match="is negative"):
        Basis(Odd(1.1e-8), 1).differences(X, following, one)


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


def taken_in(belief, psi, r=1.0, tau=0.2, gamma=0.9, sigma2=0.3, correlated=False, start=True):
    """What `condition` answers."""
    n = belief.size
    padded, q, moved = (np.zeros(_linalg.blocked(n)) for _ in range(3))
    padded[:n] = psi
    state = belief.m, belief.R, belief.c, belief.scalars
    return condition(*state, n, padded, r, tau, gamma, sigma2, correlated, start, 1.0, q, moved)


@pytest.mark.parametrize("psi", [[1.0, 2.0, 3.0], [3.0, 2.0, 0.5]])
def test_variances_below_zero_by_rounding_are_none(psi):
    """ψᵀRψ may be below 0 by 1e-8 ψᵀψ, and counts as 0 then."""
    for factor, allowed in ((-0.9e-8, True), (1e-9, True), (-1.1e-8, False)):
        belief = Belief.restored(np.zeros(3), factor * np.eye(3), np.zeros(3), np.zeros(3))
        for count in (1, 16, 17, 40):
            Psi = np.tile(psi, (count, 1))
            if allowed:
                expected = max(factor, 0.0) * np.dot(psi, psi)
                np.testing.assert_allclose(belief.variances(Psi), expected, rtol=1e-12)
                np.testing.assert_allclose(belief.covariances(Psi).diagonal(), expected, rtol=1e-12)
            else:
                with pytest.raises(ArithmeticError, match="lost its positive definiteness"):
                    belief.variances(Psi)
        before = belief.R.copy()
        assert taken_in(belief, psi) == (DONE if allowed else INDEFINITE)
        if allowed:
            V = max(factor, 0.0) * np.dot(psi, psi) + 0.5
            assert belief.log_evidence == pytest.approx(-0.5 * (np.log(2.0 * np.pi * V) + 1.0 / V), rel=1e-12)
        else:
            np.testing.assert_array_equal(belief.R, before)
            assert not belief.m.any()


def test_draws_from_a_covariance_that_rounding_made_indefinite(rng):
    for least, allowed in ((-0.9e-8, True), (0.5e-8, True), (-1.1e-8, False)):
        belief = Belief.restored(np.zeros(2), np.diag([1.0, least]), np.zeros(2), np.zeros(3))
        if allowed:
            assert np.abs(belief.draws(50, rng)[1]).max() < 1e-3
        else:
            with pytest.raises(ArithmeticError, match="lost its positive definiteness"):
                belief.draws(50, rng)


def test_a_row_whose_variance_would_not_be_positive_changes_nothing():
    """Correlated noise: V = s + γ²σ² + 2ψᵀc here."""
    for c, answer in ((-0.3, DONE), (-0.4, INDEFINITE)):
        belief = Belief.restored(np.zeros(2), np.zeros((2, 2)), [c, 0.0], [0.0, 0.3, 0.0])
        assert taken_in(belief, [1.0, 1.0], tau=0.1, correlated=True, start=False) == answer
        assert (belief.m[0] == 0.0) == (answer == INDEFINITE)


@pytest.mark.parametrize("entry", [0, 1, 2])
def test_a_mean_that_would_overflow_changes_nothing(entry):
    c = np.zeros(3)
    c[entry] = 1e200
    psi = np.ones(3)
    psi[entry] = 0.0
    belief = Belief.restored(np.zeros(3), np.eye(3), c, [0.0, 0.3, 0.0])
    before = [array.copy() for array in (belief.m, belief.R, belief.c, belief.scalars)]
    assert taken_in(belief, psi, r=1e120, correlated=True, start=False) == OVERFLOW
    for now, then in zip((belief.m, belief.R, belief.c, belief.scalars), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_mean_from_sums_is_refined(rng):
    """What a product with the inverse leaves of the equations, 1e-6 of them here, one more step removes."""
    Q = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    gram = Q @ np.diag(10.0 ** np.linspace(0.0, 12.0, 12)) @ Q.T
    gram = 0.5 * (gram + gram.T)
    w = rng.standard_normal(12)
    moment = gram @ w + w
    m = Belief.from_information(gram, moment).mean
    assert np.abs(moment - m - gram @ m).max() < 1e-9 * np.abs(gram).max() * np.abs(m).max()


def test_gains_of_bordering_are_what_bordering_adds(rng):
    Psi, r = rng.standard_normal((30, 8)), rng.standard_normal(30)
    old, new = Psi[:, :5], Psi[:, 5:]
    belief = Belief.from_information(old.T @ old, old.T @ r)
    gains = belief.border_gains(old.T @ new, 1.0 + (new**2).sum(axis=0), new.T @ r)
    for j, gain in enumerate(gains):
        one, eta = belief.copy(), new[:, j : j + 1]
        one.border(old.T @ eta, 1.0 + eta.T @ eta, eta.T @ r)
        assert one.log_evidence - belief.log_evidence == pytest.approx(gain, rel=1e-10)
