"""A kernel as a flat table, and the compiled function that reads it.

Every kernel of `kernels` is a sum of terms, each a variance times a product of base kernels. The
table spells that out in two arrays:

    codes   number of terms; per term the number of its factors; per factor its kind, the number of
            columns it reads and their indices
    values  k(x, x), which is the same everywhere; per term its variance; per factor the inverse
            lengthscales or, for DELTA, the share
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from gpsarsa._linalg import compiled

__all__ = ["DELTA", "MATERN32", "MATERN52", "RBF", "Factor", "Table", "Term"]
__all__ += ["exp", "kernel_matrix", "kernel_row", "numbers_read", "squared_distances", "write_table"]

RBF, MATERN32, MATERN52, DELTA = range(4)  # kinds of base kernels

Factor = tuple[int, tuple[int, ...], tuple[float, ...]]  # kind, columns, inverse lengthscales or share
Term = tuple[float, tuple[Factor, ...]]  # variance, factors
Table = tuple[np.ndarray, np.ndarray]  # codes, values


def write_table(terms: Sequence[Term]) -> Table:
    """The table of a sum of terms."""
    codes: list[int] = [len(terms)]
    values: list[float] = [sum(variance for variance, _ in terms)]
    for variance, factors in terms:
        merged = _merged(factors)
        codes.append(len(merged))
        values.append(variance)
        for kind, columns, numbers in merged:
            codes += [kind, len(columns), *columns]
            values += numbers
    return np.array(codes, dtype=np.int64), np.array(values, dtype=np.float64)


def _merged(factors: Sequence[Factor]) -> list[Factor]:
    """RBFs that follow each other as one, over the columns of both: exp(a) exp(b) = exp(a + b)."""
    merged: list[Factor] = []
    for kind, columns, numbers in factors:
        if kind == RBF and merged and merged[-1][0] == RBF:
            _, before, had = merged.pop()
            columns, numbers = before + columns, had + numbers
        merged.append((kind, columns, numbers))
    return merged


def numbers_read(codes: np.ndarray, columns: int) -> int:
    """How many values go with these codes; ValueError where they are no table over so many columns."""
    if codes.ndim != 1 or codes.dtype != np.int64:
        raise ValueError(f"codes are {codes.dtype} of shape {codes.shape}; expected whole numbers in a row")
    reader, total = iter(codes.tolist()), 1
    try:
        for _ in range(next(reader)):
            total += 1
            for _ in range(next(reader)):
                kind, count = next(reader), next(reader)
                if kind not in (RBF, MATERN32, MATERN52, DELTA) or not 1 <= count <= columns:
                    raise ValueError(f"codes hold a factor of kind {kind} over {count} columns")
                if not all(0 <= next(reader) < columns for _ in range(count)):
                    raise ValueError(f"codes name a column that inputs of {columns} columns do not have")
                total += 1 if kind == DELTA else count
    except (StopIteration, RuntimeError):
        raise ValueError("codes end before their table does") from None
    if next(reader, None) is not None:
        raise ValueError("codes go on after their table")
    return total


@intrinsic
def _bits(typing_context, number):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _from_bits(typing_context, bits):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


SHIFT = 1.5 * 2.0**52  # added to a small number, it leaves the nearest integer in the low bits


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"}, forceinline=True)
def exp(x):
    """exp(x) for x ≤ 0 within 2 ulp, in arithmetic that the compiler can vectorise.

    exp(x) = 2ⁿ exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2, with a degree-11 polynomial for exp(r)
    (relative error 2e-17). Below −708 the result stays at exp(−708) ≈ 3e-308.
    """
    x = max(x, -708.0)
    shifted = x * 1.4426950408889634 + SHIFT
    n = shifted - SHIFT
    r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10
    r2 = r * r
    r4 = r2 * r2
    # (exp(r) − 1 − r)/r², pairs of terms first: a shorter chain of dependent operations
    low = (0.5000000000000001 + r * 0.16666666666666669) + r2 * (
        0.04166666666662413 + r * 0.008333333333330062
    )
    middle = (0.0013888888917213717 + r * 0.00019841269863053618) + r2 * (
        2.4801521295954376e-05 + r * 2.7557268459997064e-06
    )
    high = 2.7620088445409746e-07 + r * 2.510038549551032e-08
    p = 1.0 + (r + r2 * (low + r4 * (middle + r4 * high)))
    return _from_bits(_bits(p) + (_bits(shifted) << 52))


@compiled
def squared_distances(codes, values, c, v, n_columns, Zt, n, X, t, out):
    """out[j] = Σ over columns of ((z_j − X[t]) / lengthscale)², two columns a pass"""
    first = n_columns % 2
    if first:
        column, inverse = codes[c], values[v]
        x = X[t, column]
        for j in range(n):
            u = (Zt[column, j] - x) * inverse
            out[j] = u * u
    for i in range(first, n_columns, 2):
        column, inverse = codes[c + i], values[v + i]
        column1, inverse1 = codes[c + i + 1], values[v + i + 1]
        x, x1 = X[t, column], X[t, column1]
        if i == 0:
            for j in range(n):
                u, u1 = (Zt[column, j] - x) * inverse, (Zt[column1, j] - x1) * inverse1
                out[j] = u * u + u1 * u1
        else:
            for j in range(n):
                u, u1 = (Zt[column, j] - x) * inverse, (Zt[column1, j] - x1) * inverse1
                out[j] += u * u + u1 * u1


@compiled
def _factor(kind, codes, values, c, v, n_columns, Zt, n, X, t, scale, out):
    """out[j] = scale · base kernel of z_j and X[t]"""
    if kind == DELTA:
        for j in range(n):
            out[j] = scale
        different = scale * values[v]
        for i in range(n_columns):
            column = codes[c + i]
            x = X[t, column]
            for j in range(n):
                out[j] = out[j] if Zt[column, j] == x else different
        return
    squared_distances(codes, values, c, v, n_columns, Zt, n, X, t, out)
    if kind == RBF:
        for j in range(n):
            out[j] = scale * exp(-0.5 * out[j])
    elif kind == MATERN32:
        for j in range(n):
            s = min(math.sqrt(3.0 * out[j]), 708.0)
            out[j] = scale * (1.0 + s) * exp(-s)
    else:
        for j in range(n):
            s = min(math.sqrt(5.0 * out[j]), 708.0)
            out[j] = scale * (1.0 + s + s * s / 3.0) * exp(-s)


@compiled
def kernel_row(codes, values, Zt, n, X, t, out, term, factor):
    """out[j] = k(z_j, X[t]) for the first n columns of Zt (one input a column).

    `term` and `factor` are scratch vectors of at least n entries.
    """
    c, v = 1, 1
    for i in range(codes[0]):
        n_factors, scale = codes[c], values[v]
        c += 1
        v += 1
        for f in range(n_factors):
            kind, n_columns = codes[c], codes[c + 1]
            c += 2
            if f > 0:
                target = factor
            elif i == 0 and n_factors == 1:
                target = out
            else:
                target = term
            _factor(kind, codes, values, c, v, n_columns, Zt, n, X, t, scale, target)
            scale = 1.0
            if f > 0:
                for j in range(n):
                    term[j] *= factor[j]
            c += n_columns
            v += 1 if kind == DELTA else n_columns
        if i > 0:
            for j in range(n):
                out[j] += term[j]
        elif n_factors > 1:
            for j in range(n):
                out[j] = term[j]


@compiled
def kernel_matrix(codes, values, At, n, B, out):
    """out[i, j] = k(B_i, A_j) for the first n columns of At (one input a column)."""
    term, factor = np.empty(n), np.empty(n)
    for i in range(B.shape[0]):
        kernel_row(codes, values, At, n, B, i, out[i], term, factor)
