"""Kernels against their definitions, alone and combined."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import KERNELS, pseudo_inputs

from gpsarsa._table import exp as _exp
from gpsarsa.kernels import RBF, Delta, Kernel, KernelLike, Matern32, Matern52, Product, Sum


def distance(a, b, scales):
    return math.sqrt(sum(((x - y) / s) ** 2 for x, y, s in zip(a, b, scales, strict=True)))


FORMULAS = {
    RBF: lambda r: math.exp(-(r**2) / 2),
    Matern32: lambda r: (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r),
    Matern52: lambda r: (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r),
}


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 7])
def test_stationary_kernels_are_their_formulas(kind, columns, rng):
    A, B = rng.standard_normal((5, columns)), rng.standard_normal((9, columns))
    scales = rng.uniform(0.5, 2.0, columns)
    expected = [[1.7 * FORMULAS[kind](distance(a, b, scales)) for b in B] for a in A]
    np.testing.assert_allclose(kind(scales, variance=1.7)(A, B), expected, rtol=1e-13)
    one = [[FORMULAS[kind](distance(a, b, [0.8] * columns)) for b in B] for a in A]
    np.testing.assert_allclose(kind(0.8)(A, B), one, rtol=1e-13)


def test_columns_choose_what_a_kernel_reads(rng):
    A, B = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    expected = RBF([0.5, 2.0])(A[:, [2, 0]], B[:, [2, 0]])
    np.testing.assert_array_equal(RBF([0.5, 2.0], columns=[2, 0])(A, B), expected)
    np.testing.assert_array_equal(RBF([0.5, 2.0], columns=[-1, 0])(A, B), expected)


def test_delta_shares_between_values():
    A, B = np.array([[0.0, 1], [0, 2], [1, 1]]), np.array([[9.0, 1], [0, 3]])
    np.testing.assert_array_equal(Delta(1, share=0.25)(A, B), [[1, 0.25], [0.25, 0.25], [1, 0.25]])
    np.testing.assert_array_equal(Delta([0, 1])(A, A), np.eye(3))
    tiny = np.array([[0.0], [5e-324]])  # different however close
    np.testing.assert_array_equal(Delta(0)(tiny, tiny), np.eye(2))


def test_sums_and_products_are_sums_and_products(rng):
    A, B = pseudo_inputs(rng, 6), pseudo_inputs(rng, 7)
    a, b = RBF(0.9, variance=2.0), Matern52([1.0, 2.0], columns=[0, 1])
    c, d = Delta(2, share=0.3), Matern32(1.5, variance=0.2)
    for kernel, expected in (
        (a + b, a(A, B) + b(A, B)),
        (a * c, a(A, B) * c(A, B)),
        ((a + b) * (c + d), (a(A, B) + b(A, B)) * (c(A, B) + d(A, B))),
        (a * b + c * d + a, a(A, B) * b(A, B) + c(A, B) * d(A, B) + a(A, B)),
        (a * (b + c) * d, a(A, B) * (b(A, B) + c(A, B)) * d(A, B)),
    ):
        np.testing.assert_allclose(kernel(A, B), expected, rtol=1e-14)
    assert len((a + b + c).parts) == 3
    assert isinstance(a + b, Sum)
    assert isinstance(a * b, Product)


def test_rbfs_that_follow_each_other_take_one_exponential(rng):
    """In the table they are one factor; the numbers, and so the derivatives by them, stay where they are."""
    A, B, C = RBF([0.5, 2.0], 3.0, [0, 2]), RBF(0.7, 1.0, [1]), RBF(1.5, 0.5, [0])
    X, Z = rng.normal(size=(2, 9, 3))
    one = A * B * Matern32(2.0) * C
    assert one.table(3)[0].tolist() == [1, 3, 0, 3, 0, 2, 1, 1, 3, 0, 1, 2, 0, 1, 0]
    np.testing.assert_allclose(one(X, Z), A(X, Z) * B(X, Z) * Matern32(2.0)(X, Z) * C(X, Z), rtol=1e-13)
    np.testing.assert_allclose(one.table(3)[1][2:5], [1 / 0.5, 1 / 2.0, 1 / 0.7])


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_kernel_is_symmetric_positive_and_has_its_diagonal(kernel, rng):
    A = pseudo_inputs(rng, 30)
    K = kernel(A, A)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), kernel.diag(A))
    assert np.linalg.eigvalsh(K)[0] > -1e-12
    assert isinstance(kernel, KernelLike)


def test_far_apart_is_zero_and_never_nan():
    far = np.array([[0.0], [1e3], [1e160], [-1e308]])
    for kind in FORMULAS:
        K = kind(0.1)(far, far)
        assert np.isfinite(K).all()
        np.testing.assert_array_less(K - np.eye(4), 1e-290)


def test_distances_keep_their_digits_far_from_the_origin():
    for offset in (0.0, 1e4, 2.0**30):
        A = np.array([[offset], [offset + 0.5]])
        assert RBF(1.0)(A, A)[0, 1] == pytest.approx(math.exp(-0.125), rel=1e-15)


@given(st.floats(-700, 0))
def test_the_exponential_is_within_two_units_in_the_last_place(x):
    with mp.workdps(30):
        assert abs(mp.mpf(_exp(x)) / mp.exp(mp.mpf(x)) - 1) < 2 * 2.3e-16


def test_the_exponential_at_its_ends():
    assert _exp(0.0) == 1.0
    assert 0 <= _exp(-1e9) < 1e-300
    assert 0 <= _exp(-math.inf) < 1e-300


# -- as objects -----------------------------------------------------------------------------------


def test_a_kernel_does_not_change():
    kernel = RBF([1.0, 2.0])
    with pytest.raises(AttributeError, match="with_parameters"):
        kernel.variance = 2.0
    with pytest.raises(ValueError, match="read-only"):
        kernel.lengthscales[0] = 3.0


def test_parameters_of_a_composite_are_named():
    kernel = RBF([1.0, 2.0], columns=[0, 1]) * Delta(2, share=0.5) + Matern32(3.0, variance=0.1)
    names = ["0.0.lengthscales", "0.0.variance", "0.1.share", "1.lengthscales", "1.variance"]
    assert list(kernel.parameters) == names
    changed = kernel.with_parameters({"0.1.share": 0.25, "1.variance": 0.7})
    assert changed.parameters["0.1.share"] == 0.25
    assert changed.parameters["1.variance"] == 0.7
    np.testing.assert_array_equal(changed.parameters["0.0.lengthscales"], [1.0, 2.0])
    assert kernel.parameters["0.1.share"] == 0.5
    with pytest.raises(ValueError, match=r"unknown parameter 'share'; this kernel has 0.0.lengthscales"):
        kernel.with_parameters({"share": 0.1})
    with pytest.raises(ValueError, match=r"variance = -1.0; expected a number above 0"):
        kernel.with_parameters({"1.variance": -1.0})


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_description_gives_the_kernel_back(kernel, rng):
    copy = Kernel.from_config(kernel.to_config())
    assert copy == kernel
    assert hash(copy) == hash(kernel)
    assert repr(copy) == repr(kernel)
    assert copy != RBF(123.0)
    A = pseudo_inputs(rng, 4)
    np.testing.assert_array_equal(copy(A, A), kernel(A, A))


@pytest.mark.parametrize(
    "config", [{}, {"kind": "Exec"}, {"kind": "RBF", "file": 1}, {"kind": "Sum", "parts": 3}, 7]
)
def test_a_foreign_description_is_refused(config):
    with pytest.raises(ValueError, match="not a description of a kernel"):
        Kernel.from_config(config)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RBF(0.0), ValueError, r"lengthscales = 0.0; expected a number above 0"),
        (lambda: RBF([1.0, -2.0]), ValueError, r"lengthscales\[1\] = -2.0"),
        (lambda: RBF([1.0, np.nan]), ValueError, r"lengthscales\[1\] = nan"),
        (lambda: RBF(1e-320), ValueError, "too small"),
        (lambda: RBF([]), ValueError, "lengthscales"),
        (lambda: RBF("1.0"), TypeError, "lengthscales = '1.0'"),
        (lambda: RBF(1.0, variance=0), ValueError, "variance = 0.0; expected a number above 0"),
        (lambda: RBF(1.0, variance=np.inf), ValueError, "variance = inf"),
        (lambda: RBF([1.0, 2.0], columns=[0]), ValueError, r"lengthscales has shape \(2,\); expected \(1,\)"),
        (lambda: RBF(1.0, columns=[0, 0]), ValueError, "names a column twice"),
        (lambda: RBF(1.0, columns=[]), ValueError, "columns is empty"),
        (lambda: RBF(1.0, columns=[0.5]), TypeError, "columns holds 0.5"),
        (lambda: Delta(0, share=1.5), ValueError, r"share = 1.5; expected a number in \[0, 1\]"),
        (lambda: Delta(True), TypeError, "columns holds True"),
        (lambda: RBF(1.0) + 1, TypeError, "unsupported operand"),
        (lambda: Sum(RBF(1.0), 3), TypeError, "combines kernels"),
        (
            lambda: RBF([1.0, 2.0])(np.zeros((2, 3)), np.zeros((2, 3))),
            ValueError,
            "2 lengthscales.*3 columns",
        ),
        (lambda: Delta(3)(np.zeros((2, 3)), np.zeros((2, 3))), ValueError, "reads column 3.*3 columns"),
        (lambda: RBF(1.0)(np.zeros((2, 3)), np.zeros((2, 2))), ValueError, "B has 2 columns; expected 3"),
        (lambda: RBF(1.0)(np.zeros(3), np.zeros((2, 3))), ValueError, r"A has shape \(3,\)"),
        (lambda: RBF(1.0)([[np.nan]], [[0.0]]), ValueError, r"A\[0\] = \[nan\]"),
    ],
)
def test_errors_name_the_argument(make, error, message):
    with pytest.raises(error, match=message):
        make()
