"""Learning pseudo-inputs and hyperparameters by the evidence, with L-BFGS-B.

Everything stays inside bounds, and the result is never worse than the start.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpsarsa import _validation as check
from gpsarsa._progress import Progress
from gpsarsa._space import Bounds, Parameters, Space
from gpsarsa._validation import Array
from gpsarsa.evidence import Gradient
from gpsarsa.transitions import Transitions

__all__ = ["Bounds", "Objective", "Optimization", "Parameters", "Search", "maximise"]


@dataclass(frozen=True)
class Optimization:
    """What an optimisation did.

    Parameters
    ----------
    start : float
        The objective before,
    end : float
        and after it.
    iterations : int
        Of all climbs together.
    evaluations : int
        Of the objective, likewise.
    reason : str
        Why it stopped.
    converged : bool
        Whether it stopped because nothing more was to be gained.
    objective : {"evidence", "variational"}
        What was climbed.
    trace : list of float
        The objective after each accepted step of the best climb.
    merged : int
        Pseudo-inputs that became determined by others, and left.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    start: float
    end: float
    iterations: int
    evaluations: int
    reason: str
    converged: bool
    objective: str = "evidence"
    trace: list[float] = field(default_factory=list, repr=False)
    merged: int = 0
    interrupted: bool = False

    def __str__(self) -> str:
        name = "log evidence" if self.objective == "evidence" else "variational bound"
        return (
            f"{name} {self.start:.6g} → {self.end:.6g} in {self.iterations} iterations "
            f"({self.evaluations} evaluations): {self.reason}"
            + (f"; {self.merged} pseudo-inputs merged with others" if self.merged else "")
        )


@dataclass(frozen=True)
class Search:
    """How to look for better parameters; the arguments of `optimize` that both estimators share."""

    pseudo_inputs: bool = True
    hyperparameters: bool | Iterable[str] = True
    prior_mean: bool = False
    objective: str = "evidence"
    bounds: Bounds | None = None
    max_iterations: int = 100
    restarts: int = 0
    seed: Any = None
    progress_bar: bool = False
    quiet: bool = False  # no word about bounds that were reached

    def __post_init__(self) -> None:
        for name in ("pseudo_inputs", "prior_mean", "progress_bar"):
            check.flag(getattr(self, name), name)
        for name in ("max_iterations", "restarts"):
            check.count(getattr(self, name), name)
        check.one_of(self.objective, "objective", ("evidence", "variational"))
        if isinstance(self.hyperparameters, Iterator):  # asked for more than once
            object.__setattr__(self, "hyperparameters", list(self.hyperparameters))


NO_FURTHER = "no better point was found along the last search direction"

Objective = Callable[[Parameters], tuple[float, Gradient]]


def maximise(
    evaluate: Objective, start: Parameters, t: Transitions, search: Search
) -> tuple[Parameters, Optimization]:
    """Parameters at which `evaluate` is larger than at the start, and what was done to find them.

    An interruption (Ctrl-C) ends the search at the last accepted step; the report says so.
    """
    rng = check.generator(search.seed)
    with np.errstate(all="ignore"):
        space = _space(start, t, search)
        value, gradient = evaluate(start)  # errors in the data come out here, with nothing done yet
    if not np.isfinite(value):
        raise ValueError("the rewards overflow the evidence; rescale them")
    if space.size == 0 or search.max_iterations == 0:
        reason = "nothing to learn" if space.size == 0 else "max_iterations = 0"
        return start, Optimization(value, value, 0, 0, reason, space.size == 0, search.objective)
    run = _Run(evaluate, value, search)
    try:
        scaled = _rescaled(start, gradient, len(t)) if space.learns_scale else start
        if scaled is not start:
            with np.errstate(all="ignore"):
                space = _space(scaled, t, search)
        origin = space.pack(scaled)
        run.climb(space, np.clip(origin, space.low, space.high))
        for _ in range(search.restarts):
            run.climb(space, np.clip(origin + space.perturbation(rng), space.low, space.high))
    except KeyboardInterrupt:
        run.interrupted = True
    best = run.best
    if best is None or (best.value < value and not space.excluded_by_the_user()):
        return start, run.report(value, value)
    if search.quiet:
        return space.unpack(best.x), run.report(value, best.value)
    if best.value < value:
        warnings.warn(
            f"the bounds exclude the start, and inside them the objective is lower: {value:.6g} before, "
            f"{best.value:.6g} after",
            stacklevel=4,
        )
    space.warn_at_bounds(best.x)
    return space.unpack(best.x), run.report(value, best.value)


def _space(start: Parameters, t: Transitions, search: Search) -> Space:
    return Space(
        start, t, pseudo_inputs=search.pseudo_inputs, hyperparameters=search.hyperparameters,
        prior_mean=search.prior_mean, bounds=search.bounds,
    )  # fmt: skip


def _rescaled(start: Parameters, gradient: Gradient, n: int) -> Parameters:
    """The start with kernel and noise multiplied by the c that fits the rewards' scale.

    F(c) = −½ (n log c + A + B/c) is largest at c = B/n = 1 + (2/n) ∂F/∂log c. Far from that scale a
    climb may end where everything is noise. Near it, the start stays as it is.
    """
    doubled = start.kernel.scaled(2.0)
    if doubled is None:
        return start
    before, after = start.kernel.parameters, doubled.parameters
    scales = [name for name in before if name.endswith("variance") and after[name] != before[name]]
    slope = sum(before[name] * gradient.kernel[name] for name in scales)
    c = 1.0 + 2.0 / n * (slope + start.noise_variance * gradient.noise_variance)
    kernel = start.kernel.scaled(c) if math.isfinite(c) and c > 0.0 and not 0.1 < c < 10.0 else None
    return start if kernel is None else replace(start, kernel=kernel, noise_variance=c * start.noise_variance)


@dataclass
class _Best:
    x: Array
    value: float
    trace: list[float]
    reason: str = ""
    converged: bool = False


class _Run:
    """One or more climbs, and the best point any of them accepted."""

    def __init__(self, evaluate: Objective, start: float, search: Search) -> None:
        self.evaluate, self.search = evaluate, search
        self.iterations = self.evaluations = 0
        self.best: _Best | None = None
        self.interrupted = False
        self._lowest = start - 1e3 * (1.0 + abs(start))  # stands for points that cannot be evaluated

    def climb(self, space: Space, origin: Array) -> None:
        """L-BFGS-B from `origin`; every accepted step is a candidate for `best`."""
        from scipy.optimize import minimize  # half a second of import that few programs need

        own = _Best(origin, -np.inf, [])
        most = self.search.max_iterations

        def cost(x: Array) -> tuple[float, Array]:
            return self._cost(space, x)

        if (space.low == space.high).all():
            reason = "the bounds leave a single point"
            self._offer(_Best(origin, -cost(origin)[0], [], reason, converged=True))
            return
        with Progress("optimize: iteration", most, shown=self.search.progress_bar) as progress:

            def accept(intermediate_result: Any) -> None:
                own.x, own.value = intermediate_result.x.copy(), -float(intermediate_result.fun)
                own.trace.append(own.value)
                self.iterations += 1
                progress(len(own.trace), f"{own.value:.6g}")

            options = {"maxiter": most, "maxcor": 20, "maxfun": 10**9}
            box = list(zip(space.low, space.high, strict=True))
            try:
                result = minimize(
                    cost, origin, jac=True, method="L-BFGS-B", bounds=box, callback=accept, options=options
                )
            except KeyboardInterrupt:
                own.reason = "interrupted"
                if own.trace:
                    self._offer(own)
                raise
        own.converged = result.status == 0
        limit = f"stopped at max_iterations = {most}"
        own.reason = {0: "converged", 1: limit}.get(result.status, NO_FURTHER)
        if not own.trace:  # the first point was the last
            own.value = -float(result.fun)
        self._offer(own)

    def _offer(self, own: _Best) -> None:
        if self.best is None or own.value > self.best.value:
            self.best = own

    def _cost(self, space: Space, x: Array) -> tuple[float, Array]:
        self.evaluations += 1
        try:
            with np.errstate(all="ignore"):
                parameters = space.unpack(x)
                value, gradient = self.evaluate(parameters)
                slope = space.pull(parameters, gradient)
        except (ArithmeticError, ValueError):
            return -self._lowest, np.zeros(len(x))
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return -self._lowest, np.zeros(len(x))
        return -value, -slope

    def report(self, start: float, end: float) -> Optimization:
        best = self.best or _Best(np.empty(0), end, [], "interrupted" if self.interrupted else NO_FURTHER)
        return Optimization(
            start, end, self.iterations, self.evaluations, best.reason, best.converged, self.search.objective,
            best.trace, interrupted=self.interrupted,
        )  # fmt: skip
