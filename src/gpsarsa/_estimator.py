"""What the two estimators have in common: predicting, describing themselves, and files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa import checkpoint
from gpsarsa._validation import Array
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.evidence import require_gradient
from gpsarsa.kernels import Kernel, KernelLike, checked_kernel, is_built_in
from gpsarsa.optimization import Optimization, Parameters, Search
from gpsarsa.transitions import History, Transitions

__all__ = ["NEEDS_NEXT", "Estimator", "Function", "check_transitions", "saved_kernel"]

Function = Callable[[Any], Array]

NEEDS_NEXT = "x_next is None but discount = {}; only a terminated transition (discount 0) has no next input"


class Estimator:
    """A Gaussian posterior over Q that can be asked, saved and loaded."""

    _parameters: ClassVar[tuple[str, ...]]
    _columns: int | None
    _history: History

    def __init__(self, kernel: KernelLike, noise_variance: float, noise: str, prior_mean: float) -> None:
        self._kernel = checked_kernel(kernel)
        self._noise_variance = check.noise_variance(noise_variance)
        self._noise = check.one_of(noise, "noise", ("iid", "correlated"))
        self._prior_mean = check.number(prior_mean, "prior_mean")

    @property
    def kernel(self) -> KernelLike:
        """The kernel in use; `optimize` puts another in its place."""
        return self._kernel

    @property
    def noise_variance(self) -> float:
        """σ² in use; `optimize` may change it."""
        return self._noise_variance

    @property
    def noise(self) -> str:
        """The noise model: "iid" or "correlated"."""
        return self._noise

    @property
    def prior_mean(self) -> float:
        """μ₀ in use; `optimize(prior_mean=True)` changes it."""
        return self._prior_mean

    @property
    def n_features_in_(self) -> int | None:
        """d, the number of input columns; None before it is known."""
        return self._columns

    @property
    def n_transitions(self) -> int:
        """How many transitions the posterior has taken in."""
        return self._history.count

    # -- what an estimator supplies -----------------------------------------------------------

    def _moments(self, X: Array, with_variance: bool) -> tuple[Array, Array]:
        raise NotImplementedError

    def _covariance(self, X: Array) -> tuple[Array, Array]:
        raise NotImplementedError

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        raise NotImplementedError

    @classmethod
    def _from_state(
        cls, kernel: KernelLike, arrays: dict[str, NDArray[Any]], content: dict[str, Any]
    ) -> Self:
        raise NotImplementedError

    def update(self, transitions: Transitions) -> Self:
        raise NotImplementedError

    # -- learning -----------------------------------------------------------------------------

    def observe(self, x: Any, reward: float, x_next: Any, discount: float, start: bool | None = None) -> Self:
        """Take in one transition.

        `discount` is 0 where the episode terminated; `x_next` is then ignored and may be None.
        `start` says whether an episode begins; by default it does unless `x` is the last `x_next`.
        """
        x, reward, x_next, discount, begins = self._checked_row(x, reward, x_next, discount, start)
        return self.update(Transitions(x[None], [reward], x_next[None], [discount], [begins]))

    def _checked_row(
        self, x: Any, reward: float, x_next: Any, discount: float, start: bool | None
    ) -> tuple[Array, float, Array, float, bool]:
        """The arguments of `observe`, checked; x_next is x where the discount is 0, start is resolved."""
        x = check.vector(x, "x", self._columns)
        reward, discount = check.number(reward, "reward"), check.discount(discount, "discount")
        if discount > 0.0 and x_next is None:
            raise ValueError(NEEDS_NEXT.format(discount))
        x_next = check.vector(x_next, "x_next", len(x)) if discount > 0.0 else x
        if start is not None:
            return x, reward, x_next, discount, check.flag(start, "start")
        last, last_discount = self._history.end
        return x, reward, x_next, discount, last_discount == 0.0 or not np.array_equal(x, last)

    def _to_learn_from(self, transitions: Transitions | None, columns: int | None) -> Transitions:
        """The transitions given, or those kept."""
        if transitions is not None:
            return check_transitions(transitions, columns)
        if not self._history:
            raise ValueError("there are no transitions kept to learn from; pass them to optimize")
        return self._history.transitions

    def _start(self, Z: Array) -> Parameters:
        """Where a search begins."""
        return Parameters(require_gradient(self._kernel), self._noise_variance, self._prior_mean, Z)

    def _search(self, t: Transitions, search: Search) -> tuple[Parameters, Optimization]:
        """Better parameters than the present ones."""
        raise NotImplementedError

    def _optimize(
        self, transitions: Transitions | None, search: Search, refit_on: Transitions | None
    ) -> Optimization:
        t = self._to_learn_from(transitions, self._columns)
        rows = t if refit_on is None else check_transitions(refit_on, t.columns, "refit_on")
        found, report = self._search(t, search)
        self._adopt(found, report, rows)
        return report

    def _adopt(self, found: Parameters, report: Optimization, rows: Transitions) -> None:
        """Become the model with these parameters, fitted to these rows, whole or not at all.

        After an interrupted search the interruption goes on from here, once what was found is kept.
        """
        if report.iterations or not report.interrupted:
            try:
                self._become(found, rows)
            except KeyboardInterrupt:
                self._become(found, rows)
                raise
        if report.interrupted:
            raise KeyboardInterrupt

    def _become(self, found: Parameters, rows: Transitions) -> None:
        raise NotImplementedError

    # -- asking -------------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The posterior of the latent Q at the rows of X.

        Returns the mean; with `return_std` (mean, standard deviation); with `return_cov` (mean,
        covariance matrix).
        """
        return_std, return_cov = check.flag(return_std, "return_std"), check.flag(return_cov, "return_cov")
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True; ask for one of them")
        X = check.rows(X, "X", self._columns)
        if return_cov:
            mean, covariance = self._covariance(X)
            return mean + self.prior_mean, covariance
        mean, variance = self._moments(X, return_std)
        mean = mean + self.prior_mean
        return (mean, np.sqrt(variance)) if return_std else mean

    def _function(self, centred: Callable[[Array], Array]) -> Function:
        """A drawn function as the user sees it: checked inputs, block by block, prior mean added."""
        columns, prior_mean = self._columns, self._prior_mean

        def function(X: Any) -> Array:
            X = check.rows(X, "X", columns)
            with np.errstate(over="ignore", invalid="ignore"):
                values = [centred(X[lo : lo + 512]) for lo in range(0, len(X), 512)]
            drawn = np.concatenate([np.zeros(0), *values]) + prior_mean
            if not np.isfinite(drawn).all():
                row = int(np.argmin(np.isfinite(drawn)))
                raise ValueError(f"X[{row}] = {X[row]} lies too many lengthscales away for a drawn function")
            return drawn

        return function

    # -- describing ---------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, with their current values."""
        return {name: getattr(self, name) for name in self._parameters}

    def __repr__(self) -> str:
        shown = {
            name: value for name, value in self.get_params().items() if not isinstance(value, np.ndarray)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    # -- files --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one safetensors file, atomically; `load` goes on bit for bit."""
        arrays, content = self._state()
        content |= {"estimator": type(self).__name__, "kernel": self._described_kernel()}
        checkpoint.write(path, arrays, content)

    def _described_kernel(self) -> dict[str, Any] | None:
        """The kernel as JSON can hold it; None for one of the user's own."""
        return self.kernel.to_config() if is_built_in(self.kernel) else None  # type: ignore[attr-defined]

    @classmethod
    def load(cls, path: str | os.PathLike[str], kernel: KernelLike | None = None) -> Self:
        """Read a model back. A model with a kernel of the user's own needs that `kernel` again."""
        if kernel is not None:
            checked_kernel(kernel)
        arrays, content = checkpoint.read(path)
        if content.get("estimator") != cls.__name__:
            raise CheckpointError(f"{path} holds a {content.get('estimator')}, not a {cls.__name__}")
        try:
            return cls._from_state(saved_kernel(content["kernel"], kernel), arrays, content)
        except CheckpointError as error:
            raise CheckpointError(f"{path} {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise CheckpointError(f"{path} does not describe a {cls.__name__}: {error}") from error


def saved_kernel(described: Any, given: KernelLike | None) -> KernelLike:
    """The kernel that a file describes or, where it was the user's own, the one given again."""
    if described is None:
        if given is None:
            raise CheckpointError("was saved with a kernel of your own: pass it as kernel=…")
        return given
    if given is not None:
        raise CheckpointError("holds its own kernel: load it without kernel=…")
    return Kernel.from_config(described)


def check_transitions(value: Any, columns: int | None, name: str = "transitions") -> Transitions:
    if not isinstance(value, Transitions):
        raise TypeError(f"{name} is a {type(value).__name__}; expected Transitions")
    if columns is not None and value.columns != columns:
        raise ValueError(f"the {name} have {value.columns} columns; the model has {columns}")
    return value
