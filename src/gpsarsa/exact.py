"""GP-SARSA: the exact posterior over Q, supported by every transition."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dpotrf, dtrtri

from gpsarsa import _validation as check
from gpsarsa._estimator import Estimator, Function, check_transitions
from gpsarsa._linalg import EPS, append_inverse_row, enlarged, square
from gpsarsa._validation import Array
from gpsarsa.draws import per_function, prior_draw
from gpsarsa.evidence import CURE, Gradient, exact_evidence, noise_covariance, require_definite
from gpsarsa.kernels import KernelLike, diagonal, matrix
from gpsarsa.optimization import Bounds, Optimization, Parameters, Search, maximise
from gpsarsa.statistics import Likelihood
from gpsarsa.transitions import History, Transitions

__all__ = ["GPSarsa"]


class GPSarsa(Estimator):
    """Exact Gaussian-process SARSA.

    The rewards r = H q + ε are jointly Gaussian with the values, and the posterior is the paper's

        v(x) = k_r(x)ᵀ (K_rr + Σ)⁻¹ r,    s(x) = k(x, x) − k_r(x)ᵀ (K_rr + Σ)⁻¹ k_r(x),

    K_rr = H K Hᵀ, k_r(x) = H k(x). The inverse factor W of K_rr + Σ = (WᵀW)⁻¹ grows by a row a
    transition, O(N²) each, and is never computed anew.

    Parameters
    ----------
    kernel : Kernel or KernelLike
        How alike two state-action pairs are: one of `gpsarsa.kernels`, or any object with
        `__call__(A, B)` and `diag(A)`.
    noise_variance : float
        σ² of the reward noise.
    noise : {"iid", "correlated"}
        "iid", Σ = σ²I, is right for deterministic transitions; "correlated", Σ = σ²HHᵀ, for
        stochastic ones.
    prior_mean : float
        Q's mean before any data.
    """

    _parameters = ("kernel", "noise_variance", "noise", "prior_mean")

    def __init__(
        self, kernel: KernelLike, noise_variance: float, *, noise: str = "iid", prior_mean: float = 0.0
    ) -> None:
        super().__init__(kernel, noise_variance, noise, prior_mean)
        self._start_over()

    def _start_over(self) -> None:
        self._columns: int | None = None
        self._history = History(1)
        self._W = square(0)
        self._y = np.zeros(0)  # W (r − μ₀(1 − γ))

    # -- learning -----------------------------------------------------------------------------

    def fit(self, transitions: Transitions) -> Self:
        """Start over from the prior and take in all transitions at once; row 0 is a start."""
        t = check_transitions(transitions, None)
        n = len(t)
        K = self._covariances(t, t) + noise_covariance(t, self.noise_variance, self.noise == "correlated")
        factor, info = dpotrf(K, lower=1, clean=1) if n else (K, 0)
        if n:
            require_definite(factor, info)
        W = dtrtri(factor, lower=1)[0] if n else factor
        with np.errstate(over="ignore", invalid="ignore"):
            y = W @ self._centred(t)
        self._check_finite(y, t)
        self._start_over()
        self._W = square(n)
        self._W[:n, :n] = W
        self._keep(t, y)
        return self

    def update(self, transitions: Transitions) -> Self:
        """Take in more transitions, each by one more row of the factor; all of them or none.

        A first row with `starts` False continues the transition before it.
        """
        t = check_transitions(transitions, self._columns)
        n, r, y = self.n_transitions, self._centred(t), np.empty(len(t))
        if len(t) == 0:
            return self
        past = self._history.transitions if n else t[:0]
        past_rewards = self._centred(past)
        everything = Transitions.concatenate([past, t])
        K = self._covariances(everything, t)
        noise = noise_covariance(everything, self.noise_variance, self.noise == "correlated", first=n)
        self._W = enlarged(self._W, n + len(t))
        try:
            for i in range(len(t)):
                k = np.zeros(len(self._W))
                k[: n + i] = K[: n + i, i] + noise[: n + i, i]
                variance = K[n + i, i] + noise[n + i, i]
                if not append_inverse_row(self._W, k, variance, n + i, 4.0 * EPS * variance, 0.0):
                    raise ArithmeticError(
                        f"the rewards' covariance is not positive definite at row {i}: {CURE}"
                    )
                row = self._W[n + i]
                with np.errstate(over="ignore", invalid="ignore"):
                    y[i] = row[:n] @ past_rewards + row[n : n + i + 1] @ r[: i + 1]
            self._check_finite(y, t)
        except BaseException:
            self._W[n:] = 0.0
            raise
        self._keep(t, np.concatenate([self._y, y]))
        return self

    def _keep(self, t: Transitions, y: Array) -> None:
        if self._columns is None:
            self._columns = t.columns
            self._history = History(t.columns)
        self._history.append(t, np.zeros(len(t)))
        self._y = y

    def _centred(self, t: Transitions) -> Array:
        return t.rewards - self.prior_mean * (1.0 - t.discounts)

    def _check_finite(self, y: Array, t: Transitions) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            square = float(y @ y)
        if not math.isfinite(square):
            row = int(np.argmax(np.abs(t.rewards)))
            raise ValueError(
                f"rewards[{row}] = {t.rewards[row]} overflows the posterior; rescale the rewards"
            )

    def _covariances(self, a: Transitions, b: Transitions) -> Array:
        """Prior covariances of the noiseless rewards: (H_a K H_bᵀ)."""
        left, right = self._cross(a, b._inputs), self._cross(a, b._next_inputs)
        return left - right * b.discounts

    def _cross(self, t: Transitions, X: Array) -> Array:
        """k_r(X): prior covariances of the noiseless rewards with Q at the rows of X."""
        ahead = matrix(self.kernel, t._next_inputs, X)
        return matrix(self.kernel, t._inputs, X) - t.discounts[:, None] * ahead

    def optimize(
        self,
        transitions: Transitions | None = None,
        hyperparameters: bool | Iterable[str] = True,
        prior_mean: bool = False,
        *,
        bounds: Bounds | None = None,
        max_iterations: int = 100,
        restarts: int = 0,
        seed: Any = None,
        progress_bar: bool = False,
        refit_on: Transitions | None = None,
    ) -> Optimization:
        """Learn the hyperparameters by maximising the log evidence, then `fit`.

        `transitions` are those to learn from, by default the ones taken in before; `refit_on` those
        to fit afterwards, by default the same. The other arguments are those of
        `SparseGPSarsa.optimize`.
        """
        search = Search(
            False, hyperparameters, prior_mean, "evidence", bounds, max_iterations, restarts, seed,
            progress_bar,
        )  # fmt: skip
        return self._optimize(transitions, search, refit_on)

    def _search(self, t: Transitions, search: Search) -> tuple[Parameters, Optimization]:
        correlated = self.noise == "correlated"

        def evaluate(p: Parameters) -> tuple[float, Gradient]:
            return exact_evidence(p.kernel, t, Likelihood(p.noise_variance, True, correlated, p.prior_mean))

        return maximise(evaluate, self._start(np.empty((0, t.columns))), t, search)

    def _become(self, found: Parameters, rows: Transitions) -> None:
        other = GPSarsa(found.kernel, found.noise_variance, noise=self.noise, prior_mean=found.prior_mean)
        self.__dict__.update(other.fit(rows).__dict__)

    # -- the posterior ------------------------------------------------------------------------

    def _features(self, X: Array) -> Array:
        """W k_r(X), one column a row of X."""
        if self.n_transitions == 0:
            return np.zeros((0, len(X)))
        cross = np.asfortranarray(self._cross(self._history.transitions, X))
        return np.asarray(dtrmm(1.0, self._W.T, cross, trans_a=1, overwrite_b=1))

    def _moments(self, X: Array, with_variance: bool) -> tuple[Array, Array]:
        mean, variance = np.empty(len(X)), np.empty(len(X))
        step = max(256, 2**21 // max(self.n_transitions, 1))
        for lo in range(0, len(X), step):
            block = slice(lo, lo + step)
            V = self._features(X[block])
            mean[block] = self._y @ V
            if with_variance:
                variance[block] = self._left(X[block], V)
        return mean, variance

    def _left(self, X: Array, V: Array) -> Array:
        prior = diagonal(self.kernel, X)
        left = prior - np.einsum("ij,ij->j", V, V)
        if (left < -1e-6 * prior).any():
            raise ArithmeticError(f"a posterior variance is negative beyond rounding: {CURE}")
        return np.maximum(left, 0.0)

    def _covariance(self, X: Array) -> tuple[Array, Array]:
        V = self._features(X)
        covariance = matrix(self.kernel, X, X) - V.T @ V
        np.fill_diagonal(covariance, self._left(X, V))
        return self._y @ V, 0.5 * (covariance + covariance.T)

    def log_evidence(self) -> float:
        """log p(rewards) under the model."""
        n = self.n_transitions
        half_log_det = float(np.log(self._W.diagonal()[:n]).sum())
        return half_log_det - 0.5 * (n * math.log(2 * math.pi) + float(self._y @ self._y))

    def sample(self, n: int, rng: Any = None) -> list[Function]:
        """n whole functions X → values drawn from the posterior over Q, each the same at every call.

        f(x) = f̃(x) + k_r(x)ᵀ (K_rr + Σ)⁻¹ (r − H f̃ − ε) with f̃ drawn from the prior and ε from the
        noise. `rng` is a seed or a numpy Generator.
        """
        count = check.count(n, "n")
        if self._columns is None:
            raise RuntimeError("sample needs the number of input columns: call fit or update first")
        return [self._draw(own) for own in per_function(count, check.generator(rng, "rng"))]

    def _draw(self, rng: np.random.Generator) -> Function:
        assert self._columns is not None
        t = self._history.transitions
        prior = prior_draw(self.kernel, self._columns, rng)
        rewards = prior(t._inputs) - t.discounts * prior(t._next_inputs) + self._drawn_noise(t, rng)
        W = self._W[: len(t), : len(t)]
        weights = W.T @ (self._y - W @ rewards)
        return self._function(lambda X: prior(X) + weights @ self._cross(t, X))

    def _drawn_noise(self, t: Transitions, rng: np.random.Generator) -> Array:
        sigma = math.sqrt(self.noise_variance)
        e = sigma * rng.standard_normal(len(t))
        if self.noise == "iid":
            return e
        following = sigma * rng.standard_normal(len(t))
        linked = np.flatnonzero(~t.starts[1:]) + 1
        following[linked - 1] = e[linked]
        return e - t.discounts * following

    # -- files --------------------------------------------------------------------------------

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        n = self.n_transitions
        arrays: dict[str, NDArray[Any]] = {
            "W": self._W[:n, :n],
            "y": self._y,
            "history": self._history.kept,
            "newest": self._history.newest,
        }
        content = {
            "noise_variance": self.noise_variance,
            "options": {"noise": self.noise, "prior_mean": self.prior_mean},
            "columns": self._columns,
        }
        return arrays, content

    @classmethod
    def _from_state(
        cls, kernel: KernelLike, arrays: dict[str, NDArray[Any]], content: dict[str, Any]
    ) -> Self:
        self = cls(kernel, content["noise_variance"], **content["options"])
        if content["columns"] is not None:
            self._columns = check.count(content["columns"], "columns")
            self._history = History.restored(self._columns, arrays["newest"], arrays["history"])
            n = len(self._history)
            self._y = check.vector(arrays["y"], "y", n).copy()
            self._W = square(n)
            self._W[:n, :n] = check.rows(arrays["W"].reshape(n, n or 1), "W")[:, :n]
        return self
