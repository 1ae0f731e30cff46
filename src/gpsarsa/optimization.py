"""Learning pseudo-inputs and hyperparameters by the evidence, with L-BFGS-B.

Everything stays inside bounds, and the result is never worse than the start.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
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
    """What an optimisation did."""

    start: float  # the objective before,
    end: float  # and after it
    iterations: int
    evaluations: int
    reason: str  # why it stopped
    converged: bool
    objective: str = "evidence"
    trace: list[float] = field(default_factory=list, repr=False)  # after each accepted step of the best run
    interrupted: bool = False

    def __str__(self) -> str:
        name = "log evidence" if self.objective == "evidence" else "variational bound"
        return (
            f"{name} {self.start:.6g} → {self.end:.6g} in {self.iterations} iterations "
            f"({self.evaluations} evaluations): {self.reason}"
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

    def __post_init__(self) -> None:
        for name in ("pseudo_inputs", "prior_mean", "progress_bar"):
            check.flag(getattr(self, name), name)
        for name in ("max_iterations", "restarts"):
            check.count(getattr(self, name), name)
        check.one_of(self.objective, "objective", ("evidence", "variational"))


NO_FURTHER = "no better point was found along the last search direction"

Objective = Callable[[Parameters], tuple[float, Gradient]]


def maximise(
    evaluate: Objective, start: Parameters, t: Transitions, search: Search
) -> tuple[Parameters, Optimization]:
    """Parameters at which `evaluate` is larger than at the start, and what was done to find them.

    An interruption (Ctrl-C) ends the search at the last accepted step; the report says so.
    """
    rng = np.random.default_rng(search.seed)
    space = Space(
        start, t, pseudo_inputs=search.pseudo_inputs, hyperparameters=search.hyperparameters,
        prior_mean=search.prior_mean, bounds=search.bounds,
    )  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        value = evaluate(start)[0]  # errors in the data come out here, with nothing done yet
    if not np.isfinite(value):
        raise ValueError("the rewards overflow the evidence; rescale them")
    if space.size == 0 or search.max_iterations == 0:
        reason = "nothing to learn" if space.size == 0 else "max_iterations = 0"
        return start, Optimization(value, value, 0, 0, reason, space.size == 0, search.objective)
    run = _Run(evaluate, space, value, search.progress_bar, search.max_iterations)
    origin = space.pack(start)
    run.climb(np.clip(origin, space.low, space.high))
    for _ in range(search.restarts):
        if run.interrupted:
            break
        run.climb(np.clip(origin + space.perturbation(rng), space.low, space.high))
    best = run.best
    if best is None or (best.value < value and not space.excluded_by_the_user()):
        return start, replace(run.report(value, value, search.objective), trace=[])
    if best.value < value:
        warnings.warn(
            f"the bounds exclude the start, and inside them the objective is lower: {value:.6g} before, "
            f"{best.value:.6g} after",
            stacklevel=4,
        )
    space.warn_at_bounds(best.x)
    return space.unpack(best.x), run.report(value, best.value, search.objective)


@dataclass
class _Best:
    x: Array
    value: float
    trace: list[float]
    reason: str = ""
    converged: bool = False


class _Run:
    """One or more climbs over the same space, and the best point any of them accepted."""

    def __init__(
        self, evaluate: Objective, space: Space, start: float, shown: bool, max_iterations: int
    ) -> None:
        self.evaluate, self.space, self.shown, self.max_iterations = evaluate, space, shown, max_iterations
        self.iterations = self.evaluations = 0
        self.best: _Best | None = None
        self.interrupted = False
        self._poor = start - 1e3 * (1.0 + abs(start))  # stands for points that cannot be evaluated

    def climb(self, origin: Array) -> None:
        """L-BFGS-B from `origin`; every accepted step is a candidate for `best`."""
        from scipy.optimize import minimize  # half a second of import that few sessions need

        own = _Best(origin, -np.inf, [])
        if (self.space.low == self.space.high).all():
            self.best = replace(
                own, value=-self._cost(origin)[0], reason="bounds leave one point", converged=True
            )
            return
        with Progress("optimize: iteration", self.max_iterations, shown=self.shown) as progress:

            def accept(intermediate_result: Any) -> None:
                own.x, own.value = intermediate_result.x.copy(), -float(intermediate_result.fun)
                own.trace.append(own.value)
                self.iterations += 1
                progress(len(own.trace), f"{own.value:.6g}")

            options = {"maxiter": self.max_iterations, "maxcor": 20, "maxfun": 20 * self.max_iterations + 20}
            box = list(zip(self.space.low, self.space.high, strict=True))
            try:
                result = minimize(
                    self._cost,
                    origin,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=box,
                    callback=accept,
                    options=options,
                )
                own.converged = result.status == 0
                limit = f"stopped at max_iterations = {self.max_iterations}"
                own.reason = {0: "converged", 1: limit}.get(result.status, NO_FURTHER)
            except KeyboardInterrupt:
                self.interrupted, own.reason = True, "interrupted"
        if own.trace and (self.best is None or own.value > self.best.value):
            self.best = own
        elif self.best is None and own.converged:  # the first point was the last
            self.best = replace(own, value=-self._cost(origin)[0])

    def _cost(self, x: Array) -> tuple[float, Array]:
        self.evaluations += 1
        parameters = self.space.unpack(x)
        try:
            with np.errstate(all="ignore"):
                value, gradient = self.evaluate(parameters)
                slope = self.space.pull(parameters, gradient)
        except (ArithmeticError, ValueError):
            return -self._poor, np.zeros(len(x))
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return -self._poor, np.zeros(len(x))
        return -value, -slope

    def report(self, start: float, end: float, objective: str) -> Optimization:
        best = self.best or _Best(
            np.empty(0), end, [], "interrupted" if self.interrupted else "no better point"
        )
        return Optimization(
            start, end, self.iterations, self.evaluations, best.reason or "interrupted", best.converged,
            objective, best.trace, self.interrupted,
        )  # fmt: skip
