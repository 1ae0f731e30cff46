"""One number learnt from inputs: a sparse Gaussian process by the evidence, without its outliers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._linalg import product
from gpsarsa._table import kernel_matrix
from gpsarsa._validation import Array
from gpsarsa.basis import pivots
from gpsarsa.control.critic import clipped
from gpsarsa.kernels import Kernel
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["FINE", "FIT_FROM", "LEAST_NOISE", "NOISE", "Regression", "as_rows", "far", "sampled"]

PSEUDO_INPUTS, LEARN_WITH = 200, 80  # at most; of an evidence
FIT_FROM, PLACE_FROM, LEARN_FROM = 3_000, 1_000, 400  # rows: of the posterior, of placement, of the evidence
STEPS, PASSES = 15, 3  # iterations of the evidence; fits, each without the last one's outliers
NOISE, LEAST_NOISE = 1e-3, 1e-8  # variance of the noise at first, and at least; outcomes have variance 1
OUTLIER, FAR = 10.0, 3.0  # an outlier's distance from the fit: times the usual, and standard deviations
MOST_OUTLIERS = 0.1  # of the rows
SURELY = 1e-3  # of the variance is left unexplained where every outcome counts
FINE = 1e-3  # a distance, in standard deviations of the outcome, that does not matter


class Regression:
    """y ≈ offset + scale · Σ_j w_j k(z_j, x), the posterior mean of a sparse Gaussian process."""

    def __init__(self, kernel: Kernel, columns: int, noise: float = NOISE) -> None:
        self.kernel, self.noise = kernel, noise
        self.offset, self.scale = 0.0, 1.0
        self.Z, self.weights = np.empty((0, columns)), np.empty(0)
        self.outliers = 0.0  # their share of the rows
        self.known = False

    def __call__(self, X: Array) -> Array:
        return self.offset + self.scale * self._standard(X)

    def _standard(self, X: Array) -> Array:
        if len(self.weights) == 0:
            return np.zeros(len(X))
        rows = np.empty((len(X), len(self.weights)))
        Zt = np.ascontiguousarray(self.Z.T)
        kernel_matrix(*self.kernel.table(X.shape[1]), Zt, len(self.weights), np.ascontiguousarray(X), rows)
        return product(rows, self.weights)

    def learn(
        self,
        X: Array,
        y: Array,
        bounds: dict[str, Any],
        rng: np.random.Generator,
        search: bool = True,
        outliers: bool = True,
    ) -> None:
        """From inputs and their outcomes, less `outliers` if there may be any; nothing is done where they are
        predicted well already. Without `search` the hyperparameters stay, once there are some."""
        if len(y) == 0:
            return
        distance = np.abs(y - self(X)) / self.scale
        if self.known and np.mean(distance > FINE) <= self.outliers + 0.01:
            return
        keep = ~far(distance) if self.known and outliers else np.ones(len(y), dtype=np.bool_)
        search, self.known = search or not self.known, True
        for _ in range(PASSES):
            self.offset, self.scale = float(np.mean(y[keep])), float(np.std(y[keep]))
            if not self.scale > 1e-12 * abs(self.offset):  # constant
                self.scale, self.Z, self.weights = 1.0, self.Z[:0], self.weights[:0]
                return
            standard = (y - self.offset) / self.scale
            if search:
                self.search(X[keep], standard[keep], bounds, rng)
            self.fit(X[keep], standard[keep], rng, enough=1.0 if outliers else SURELY)
            again = ~far(np.abs(standard - self._standard(X)))
            if not outliers or (again == keep).all():
                break
            keep = again
        self.outliers = 1.0 - float(np.mean(keep))

    def search(
        self,
        X: Array,
        y: Array,
        bounds: dict[str, Any],
        rng: np.random.Generator,
        ahead: Array | None = None,
        effort: int = 1,
    ) -> None:
        """Hyperparameters by the evidence of some rows, where there are enough; with `ahead`, outcomes are
        differences f(x) − f(ahead). More `effort` is as many times the rows and pseudo-inputs."""
        if len(X) <= sum(np.size(pair[0]) for pair in bounds.values()):
            return
        rows = sampled(np.arange(len(X)), effort * LEARN_FROM, rng)
        X, y, ahead = X[rows], y[rows], None if ahead is None else ahead[rows]
        kernel = clipped(self.kernel, bounds)
        noise = float(np.clip(self.noise, *bounds["noise_variance"]))
        model = SparseGPSarsa(
            kernel, noise, X[pivots(kernel, X, effort * LEARN_WITH, 1e-6)], growth="streaming"
        )
        found, _ = model._tuned(as_rows(X, y, ahead), list(bounds), bounds, STEPS)
        self.kernel, self.noise = found.kernel, found.noise_variance

    def fit(
        self,
        X: Array,
        y: Array,
        rng: np.random.Generator,
        most: int = PSEUDO_INPUTS,
        enough: float = 1.0,
        ahead: Array | None = None,
        among: int = FIT_FROM,
    ) -> None:
        """At most so many pseudo-inputs, which leave `enough` of the variance unexplained or as much as the
        noise, and the posterior mean; from no more than `among` rows."""
        rows = sampled(np.arange(len(X)), among, rng)
        places = X[sampled(rows, PLACE_FROM, rng)]
        noise = max(self.noise, LEAST_NOISE) / float(self.kernel.diag(places[:1])[0])
        enough = min(noise, enough)
        Z = places[pivots(self.kernel, places, most, enough)]
        model = SparseGPSarsa(self.kernel, self.noise, Z[:0], growth="streaming")
        model.add_pseudo_inputs(Z)
        model.fit(as_rows(X[rows], y[rows], None if ahead is None else ahead[rows]))
        self.Z, self.weights = model._basis.Z.copy(), model._basis.unwhiten(model._belief.mean)

    def forget(self) -> None:
        self.Z, self.weights, self.known = self.Z[:0], self.weights[:0], False

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        numbers = [self.noise, self.offset, self.scale, self.outliers]
        return (
            {"Z": self.Z, "weights": self.weights},
            {"kernel": self.kernel.to_config(), "numbers": numbers, "known": self.known},
        )

    @classmethod
    def restored(cls, arrays: Mapping[str, Array], content: Mapping[str, Any]) -> Regression:
        Z = check.rows(arrays["Z"], "Z").copy()
        self = cls(Kernel.from_config(content["kernel"]), Z.shape[1])
        self.Z, self.weights = Z, check.vector(arrays["weights"], "weights", len(Z)).copy()
        self.noise, self.offset, self.scale, self.outliers = (float(x) for x in content["numbers"])
        self.known = bool(content["known"])
        return self


def far(distance: Array) -> NDArray[np.bool_]:
    """Which distances, in standard deviations of the outcome, are outliers; none where they are too many
    to be."""
    outside = distance > max(OUTLIER * float(np.median(distance)), FAR)
    return outside if np.mean(outside) <= MOST_OUTLIERS else np.zeros(len(outside), dtype=np.bool_)


def sampled(rows: NDArray[np.intp], count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """At most so many of the rows, in their order."""
    return rows if len(rows) <= count else np.sort(rng.choice(rows, count, replace=False))


def as_rows(X: Array, y: Array, ahead: Array | None = None) -> Transitions:
    """Outcomes f(x), or differences f(x) − f(ahead), as transitions."""
    if ahead is None:
        return Transitions._outcomes(X, y)
    return Transitions._trusted(X, y, ahead, np.ones(len(y)), np.ones(len(y), dtype=np.bool_))
