"""Compiled loops over triangular and symmetric matrices, nothing else.

Matrices live in square C-ordered buffers larger than what they hold, so that they can grow in
place. The products take four rows at a time and therefore run to `blocked(n)`, the next multiple
of four; they rely on two conventions:

- beyond the n-th row and column a buffer holds zeros, and vectors are zero beyond entry n;
- a symmetric matrix is kept in its lower triangle and in the 4 x 4 blocks on its diagonal, a
  lower triangular one has zeros above its diagonal.

Four rows share each load of the vector, which is what makes them faster than bare BLAS
calls on matrices that fit the cache. `fastmath` allows reassociation and contraction only, so that
NaN and infinity keep their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import njit
from scipy.linalg.blas import dgemm, dgemv

from gpsarsa._validation import Array

ROWS = 4  # rows that one pass of a loop takes

EPS = float(np.finfo(np.float64).eps)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile to machine code at the first call, cached on disk; releases the interpreter lock.

    Inlined into what calls it: of several compiled copies of one function the process would use the one
    it met first, and round differently from a process that went another way.
    """
    decorate = njit(
        cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"}, forceinline=True
    )
    return cast(Callable[..., Any], decorate(function))


def square(capacity: int) -> Array:
    """A zeroed (at least capacity)² buffer whose rows start on cache lines.

    The row length is a multiple of eight doubles, but not of 64: strides of a power of two map all
    rows of a column to the same few cache sets.
    """
    stride = -(-max(capacity, 8) // 8) * 8
    stride += 8 * (stride % 64 == 0)
    return aligned((stride, stride))


def aligned(shape: tuple[int, ...]) -> Array:
    """A zeroed array that starts on a cache line."""
    size = math.prod(shape)
    buffer = np.zeros(size + 7)
    start = (-buffer.ctypes.data // 8) % 8
    return buffer[start : start + size].reshape(shape)


def enlarged(buffer: Array, capacity: int) -> Array:
    """The buffer of a square matrix or of a vector, grown by doubling to hold `capacity` rows."""
    old = len(buffer)
    if capacity <= old:
        return buffer
    capacity = max(capacity, 2 * old)
    if buffer.ndim == 1:
        larger = aligned((capacity,))
        larger[:old] = buffer
    else:
        larger = square(capacity)
        larger[:old, :old] = buffer
    return larger


def product(A: Array, B: Array) -> Array:
    """A B, for a matrix A and a matrix or vector B, by SciPy's BLAS.

    NumPy brings a BLAS of its own. Where products alternate between the two libraries, the threads of
    the one that waits compete with those of the other, and everything takes several times as long.
    """
    if 0 in A.shape or 0 in B.shape:
        return A @ B
    if B.ndim == 1:
        return np.asarray(dgemv(1.0, A.T, B, trans=1))
    return np.asarray(dgemm(1.0, B.T, A.T).T)


def transposed_product(A: Array, B: Array) -> Array:
    """Aᵀ B, likewise."""
    if 0 in A.shape or 0 in B.shape:
        return A.T @ B
    if B.ndim == 1:
        return np.asarray(dgemv(1.0, A.T, B))
    return np.asarray(dgemm(1.0, B.T, A.T, trans_b=1).T)


def least_squares(A: Array, b: Array) -> Array:
    """The shortest x that makes ‖A x − b‖ least; directions of A below 1e-6 of the largest count as none."""
    x: Any = np.linalg.lstsq(A, b, rcond=1e-6)[0]
    return np.asarray(x, dtype=np.float64)


def symmetrised(R: Array, n: int) -> Array:
    """The full n x n matrix whose lower triangle the buffer R holds."""
    full = np.array(R[:n, :n], order="C")
    mirror(full, n)
    return full


@compiled
def mirror(R, n):
    """Copy the lower triangle into the upper one."""
    for i in range(n):
        for j in range(i):
            R[j, i] = R[i, j]


@compiled
def blocked(n: int) -> int:
    """n rounded up to whole groups of rows."""
    return (n + ROWS - 1) // ROWS * ROWS


@compiled
def lower_times(W, X, n, out):
    """out = W x for lower triangular W and every row x of X, row by row."""
    for i in range(0, blocked(n), ROWS):
        for t in range(X.shape[0]):  # these rows of W stay in the nearest cache meanwhile
            s0 = s1 = s2 = s3 = 0.0
            for j in range(i + ROWS):
                x = X[t, j]
                s0 += W[i, j] * x
                s1 += W[i + 1, j] * x
                s2 += W[i + 2, j] * x
                s3 += W[i + 3, j] * x
            out[t, i], out[t, i + 1], out[t, i + 2], out[t, i + 3] = s0, s1, s2, s3


@compiled
def lower_transposed_times(W, x, n, out):
    """out = Wᵀ x for lower triangular W."""
    for j in range(blocked(n)):
        out[j] = 0.0
    for i in range(0, blocked(n), ROWS):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(i + ROWS):
            out[j] += W[i, j] * x0 + W[i + 1, j] * x1 + W[i + 2, j] * x2 + W[i + 3, j] * x3


@compiled
def append_inverse_row(W, k, variance, n, least, scale):
    """Extend W = L⁻¹ of a covariance K = L Lᵀ by a variable with covariances k and `variance`.

    ℓ = W k, ρ = variance − ℓᵀℓ, g = Wᵀℓ = K⁻¹k, W ← [[W, 0], [−gᵀ/√ρ, 1/√ρ]]. Returns whether ρ is
    large enough: at least `least`, and well above what rounding in K can make of nothing, which is
    eps (1 + Σ|g|)² times the `scale` of K's entries. Where it is not, W stays as it is.
    """
    work = np.empty((2, blocked(n)))
    ell, g = work[0], work[1]
    lower_times(W, k.reshape(1, -1), n, work[:1])
    rho = variance
    for j in range(n):
        rho -= ell[j] * ell[j]
    lower_transposed_times(W, ell, n, g)
    weight = 1.0
    for j in range(n):
        weight += abs(g[j])
    if not (rho > 0.0 and rho >= least and rho >= 100.0 * EPS * weight * weight * scale):
        return False
    inverse_root = 1.0 / np.sqrt(rho)
    for j in range(n):
        W[n, j] = -g[j] * inverse_root
    W[n, n] = inverse_root
    return True


@compiled
def symmetric_times(R, x, n, out):
    """out = R x for symmetric R."""
    for i in range(0, blocked(n), ROWS):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        s0 = s1 = s2 = s3 = 0.0
        for j in range(i):
            v, r0, r1, r2, r3 = x[j], R[i, j], R[i + 1, j], R[i + 2, j], R[i + 3, j]
            s0 += r0 * v
            s1 += r1 * v
            s2 += r2 * v
            s3 += r3 * v
            out[j] += r0 * x0 + r1 * x1 + r2 * x2 + r3 * x3
        for j in range(i, i + ROWS):
            v = x[j]
            s0 += R[i, j] * v
            s1 += R[i + 1, j] * v
            s2 += R[i + 2, j] * v
            s3 += R[i + 3, j] * v
        out[i], out[i + 1], out[i + 2], out[i + 3] = s0, s1, s2, s3


@compiled
def subtract_outer(R, q, scale, n):
    """R ← R − scale q qᵀ for symmetric R."""
    for i in range(0, blocked(n), ROWS):
        q0, q1, q2, q3 = scale * q[i], scale * q[i + 1], scale * q[i + 2], scale * q[i + 3]
        for j in range(i + ROWS):
            v = q[j]
            R[i, j] -= q0 * v
            R[i + 1, j] -= q1 * v
            R[i + 2, j] -= q2 * v
            R[i + 3, j] -= q3 * v


@compiled
def shrink_to_identity(R, kept, n):
    """R ← kept R + (1 − kept) I for symmetric R."""
    for i in range(n):
        for j in range(blocked(i + 1)):
            R[i, j] *= kept
        R[i, i] += 1.0 - kept


@compiled
def eliminate_column(W, k, n, cosines, sines):
    """Drop row and column k of K = (WᵀW)⁻¹ from its triangular factor W, in place.

    Rotations G of the rows (j, j + 1), j = k … n − 2, push column k of W into its last row;
    W' = (G W)[:−1, without k] is lower triangular with a positive diagonal and belongs to the
    smaller K. `cosines` and `sines` receive G for `rotate_vector` and `rotate_symmetric`.
    """
    for j in range(k, n - 1):
        a, b = W[j, k], W[j + 1, k]
        h = np.hypot(a, b)
        cosine, sine = a / h, b / h
        cosines[j], sines[j] = cosine, sine
        upper, lower = W[j], W[j + 1]
        for i in range(j + 2):
            u, v = upper[i], lower[i]
            upper[i] = cosine * v - sine * u
            lower[i] = cosine * u + sine * v
    for j in range(n):
        row = W[j]
        for i in range(k, n - 1):
            row[i] = row[i + 1]
        row[n - 1] = 0.0
    for i in range(n):
        W[n - 1, i] = 0.0


@compiled
def rotate_vector(m, k, n, cosines, sines):
    """m ← (G m)[:−1] for the rotations of `eliminate_column`."""
    for j in range(k, n - 1):
        u, v = m[j], m[j + 1]
        m[j] = cosines[j] * v - sines[j] * u
        m[j + 1] = cosines[j] * u + sines[j] * v
    m[n - 1] = 0.0


@compiled
def rotate_symmetric(R, k, n, cosines, sines):
    """R ← (G R Gᵀ)[:−1, :−1] for the rotations of `eliminate_column`; R in full storage on return."""
    mirror(R, n)
    for j in range(k, n - 1):
        cosine, sine = cosines[j], sines[j]
        upper, lower = R[j], R[j + 1]
        for i in range(n):
            u, v = upper[i], lower[i]
            upper[i] = cosine * v - sine * u
            lower[i] = cosine * u + sine * v
    for i in range(n):
        row = R[i]
        for j in range(k, n - 1):
            u, v = row[j], row[j + 1]
            row[j] = cosines[j] * v - sines[j] * u
            row[j + 1] = cosines[j] * u + sines[j] * v
        row[n - 1] = 0.0
    for j in range(n):
        R[n - 1, j] = 0.0
