"""Q of a posterior with every candidate action, in the form that acting and imagining need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsarsa._linalg import product
from gpsarsa._table import kernel_matrix, numbers_read
from gpsarsa._validation import Array
from gpsarsa.control.improvement import by_action
from gpsarsa.sparse import SparseGPSarsa

__all__ = ["Values", "check_values", "values_of"]


class Values(NamedTuple):
    """Q of a posterior with every candidate action, as the compiled loops read it:
    Q(s, a) = prior mean + Σ_j k_s(s, z_j) weights[a, j]."""

    codes: NDArray[np.int64]
    values: Array
    Zt: Array
    weights: Array
    candidates: Array
    prior_mean: float
    gamma: float
    curious: bool = False  # rewarded not by the environment, but for leaving what is known

    def __call__(self, X: Array) -> Array:
        """Q of each row's observation (a row) with each candidate (a column)."""
        rows = np.empty((len(X), self.Zt.shape[1]))
        kernel_matrix(self.codes, self.values, self.Zt, rows.shape[1], X, rows)
        return product(rows, self.weights.T) + self.prior_mean

    def greedy(self, X: Array) -> Array:
        """The candidate with the largest Q, for each row's observation."""
        return self.candidates[self(X).argmax(axis=1)]


def values_of(
    model: SparseGPSarsa, candidates: Array, split: int, gamma: float, curious: bool = False
) -> Values | None:
    """None where the kernel is not a product of one over observations and one over actions."""
    basis, d = model._basis, split + candidates.shape[1]
    parts = by_action(model, candidates, split)
    if parts is None:
        return None
    state, weights = parts
    Zt = np.ascontiguousarray(basis.Z.T)
    return Values(*state.table(d), Zt, weights, candidates, float(model.prior_mean), gamma, curious)


def check_values(arrays: Mapping[str, NDArray[Any]], candidates: int, columns: int) -> None:
    """ValueError where compiled loops, which trust the arrays of some `Values`, would read beyond one."""
    M = arrays["Zt"].shape[-1]
    expected: dict[str, tuple[int, ...]] = {"Zt": (columns, M), "weights": (candidates, M)}
    expected["values"] = (numbers_read(arrays["codes"], columns),)
    for name, shape in expected.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != np.float64:
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}; expected numbers of {shape}")
