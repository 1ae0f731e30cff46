"""Learning pseudo-inputs and hyperparameters by the evidence, with L-BFGS-B.

Positive parameters are searched as logarithms, the others in units of their range. Everything stays
inside bounds, and the result is never worse than the start.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpsarsa import _validation as check
from gpsarsa._progress import Progress
from gpsarsa._validation import Array
from gpsarsa.evidence import Gradient, require_gradient
from gpsarsa.kernels import Kernel
from gpsarsa.transitions import Transitions

__all__ = ["Bounds", "Objective", "Optimization", "Parameters", "Search", "maximise"]

PSEUDO_INPUTS, NOISE, MEAN = "pseudo_inputs", "noise_variance", "prior_mean"

MARGIN = 0.05  # by how much of its width the data's bounding box is enlarged, on each side

Bounds = Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Parameters:
    """What can be learnt."""

    kernel: Kernel
    noise_variance: float
    prior_mean: float
    pseudo_inputs: Array


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


Objective = Callable[[Parameters], tuple[float, Gradient]]


def maximise(
    evaluate: Objective, start: Parameters, t: Transitions, search: Search
) -> tuple[Parameters, Optimization]:
    """Parameters at which `evaluate` is larger than at the start, and what was done to find them.

    An interruption (Ctrl-C) ends the search at the last accepted step; the report says so.
    """
    max_iterations = check.count(search.max_iterations, "max_iterations")
    restarts = check.count(search.restarts, "restarts")
    rng = np.random.default_rng(search.seed)
    space = _Space(start, t, search)
    value = evaluate(start)[0]  # errors in the data come out here, with nothing done yet
    if not np.isfinite(value):
        raise ValueError("the rewards overflow the evidence; rescale them")
    if space.size == 0 or max_iterations == 0:
        reason = "nothing to learn" if space.size == 0 else "max_iterations = 0"
        return start, Optimization(value, value, 0, 0, reason, space.size == 0, search.objective)
    run = _Run(evaluate, space, value, check.flag(search.progress_bar, "progress_bar"), max_iterations)
    origin = space.pack(start)
    inside = bool((origin >= space.low).all() and (origin <= space.high).all())
    run.climb(np.clip(origin, space.low, space.high))
    for _ in range(restarts):
        if run.interrupted:
            break
        run.climb(np.clip(origin + space.perturbation(rng), space.low, space.high))
    best = run.best
    if best is None or (best.value < value and (inside or not space.bounded)):
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
        self, evaluate: Objective, space: _Space, start: float, shown: bool, max_iterations: int
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
                own.reason = {0: "converged", 1: limit}.get(result.status, str(result.message))
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


@dataclass(frozen=True)
class _Slot:
    """Some entries of the search vector: one parameter, its bounds and its scale."""

    name: str
    shape: tuple[int, ...]
    low: Array
    high: Array
    unit: Array | None  # None: searched as a logarithm

    def pack(self, value: Any) -> Array:
        flat = np.broadcast_to(np.asarray(value, dtype=np.float64), self.shape).ravel()
        return np.log(flat) if self.unit is None else flat / self.unit

    def unpack(self, x: Array) -> Array:
        flat = np.exp(x) if self.unit is None else x * self.unit
        return np.clip(flat, self.low, self.high).reshape(self.shape)

    def pull(self, value: Any, bar: Any) -> Array:
        flat = np.asarray(bar, dtype=np.float64).ravel()
        return flat * (np.asarray(value).ravel() if self.unit is None else self.unit)


class _Space:
    """The search vector: which parameters it holds, in which units and bounds."""

    def __init__(self, start: Parameters, t: Transitions, search: Search) -> None:
        kernel = require_gradient(start.kernel)
        if len(t) == 0:
            raise ValueError("there are no transitions to learn from; pass at least one")
        self._start, self._names = start, _chosen(kernel, search.hyperparameters)
        self.bounded = bool(search.bounds)
        given = _checked_bounds(search.bounds, start)
        low, high = _box(t)
        width = np.where(high > low, high - low, 1.0)
        slots = [self._positive_or_share(name, given, t) for name in self._names]
        if search.prior_mean:
            scale = max(float(np.sqrt(kernel.diag(t.inputs[:1])[0])), abs(start.prior_mean), 1e-300)
            lo, hi = given.get(MEAN, (-np.inf, np.inf))
            slots.append(_Slot(MEAN, (), np.ravel(lo), np.ravel(hi), np.full(1, scale)))
        discrete = kernel.discrete_columns(t.columns)
        self._free = np.array([c for c in range(t.columns) if c not in discrete], dtype=np.int64)
        M = len(start.pseudo_inputs)
        if search.pseudo_inputs and M and len(self._free):
            lo, hi = given.get(PSEUDO_INPUTS, (low - MARGIN * width, high + MARGIN * width))
            slots.append(
                _Slot(
                    PSEUDO_INPUTS,
                    (M, len(self._free)),
                    *(np.tile(np.broadcast_to(side, t.columns)[self._free], M) for side in (lo, hi, width)),
                )
            )
        self._slots = slots
        self.size = sum(int(np.prod(slot.shape)) for slot in slots)
        unknown = [name for name in given if name not in [slot.name for slot in slots]]
        if unknown:
            names = ", ".join(slot.name for slot in slots)
            raise ValueError(f"bounds names {unknown[0]!r}, which is not being learnt; those are: {names}")
        numbers = self.size - (M * len(self._free) if slots and slots[-1].name == PSEUDO_INPUTS else 0)
        if len(t) < numbers:
            warnings.warn(
                f"{numbers} hyperparameters are learnt from {len(t)} transitions: too few to determine them",
                stacklevel=5,
            )
        ends = [
            (slot.pack(slot.low.reshape(slot.shape)), slot.pack(slot.high.reshape(slot.shape)))
            for slot in slots
        ]
        self.low = np.concatenate([np.zeros(0), *(low for low, _ in ends)])
        self.high = np.concatenate([np.zeros(0), *(high for _, high in ends)])

    def _positive_or_share(
        self, name: str, given: Mapping[str, tuple[Array, Array]], t: Transitions
    ) -> _Slot:
        value = np.asarray(self._value(self._start, name), dtype=np.float64)
        if name.endswith("share"):
            lo, hi = given.get(name, (np.zeros(1), np.ones(1)))
            return _Slot(name, value.shape, np.ravel(lo), np.ravel(hi), np.ones(1))
        lo, hi = given.get(name) or _default_bounds(name, value, t)
        size = max(value.size, 1)
        return _Slot(name, value.shape, np.broadcast_to(lo, size), np.broadcast_to(hi, size), None)

    def _value(self, parameters: Parameters, name: str) -> Any:
        if name == PSEUDO_INPUTS:
            return parameters.pseudo_inputs[:, self._free]
        if name in (NOISE, MEAN):
            return getattr(parameters, name)
        return parameters.kernel.parameters[name]

    def pack(self, parameters: Parameters) -> Array:
        parts = [slot.pack(self._value(parameters, slot.name)) for slot in self._slots]
        return np.concatenate([np.zeros(0), *parts])

    def unpack(self, x: Array) -> Parameters:
        kernel: dict[str, Any] = {}
        changes: dict[str, Any] = {}
        for slot, own in self._split(x):
            value = slot.unpack(own)
            if slot.name == PSEUDO_INPUTS:
                Z = self._start.pseudo_inputs.copy()
                Z[:, self._free] = value
                changes[slot.name] = Z
            elif slot.name in (NOISE, MEAN):
                changes[slot.name] = float(value)
            else:
                kernel[slot.name] = value if value.ndim else float(value)
        return replace(self._start, kernel=self._start.kernel.with_parameters(kernel), **changes)

    def pull(self, parameters: Parameters, gradient: Gradient) -> Array:
        """∂F by the search vector."""
        parts = [np.zeros(0)]
        for slot in self._slots:
            if slot.name == PSEUDO_INPUTS:
                bar: Any = gradient.pseudo_inputs[:, self._free]
            elif slot.name in (NOISE, MEAN):
                bar = getattr(gradient, slot.name)
            else:
                bar = gradient.kernel[slot.name]
            parts.append(slot.pull(self._value(parameters, slot.name), bar))
        return np.concatenate(parts)

    def _split(self, x: Array) -> list[tuple[_Slot, Array]]:
        pieces, at = [], 0
        for slot in self._slots:
            size = int(np.prod(slot.shape))
            pieces.append((slot, x[at : at + size]))
            at += size
        return pieces

    def perturbation(self, rng: np.random.Generator) -> Array:
        """A random step: a factor of about 2 in positive parameters, a tenth of the range in others."""
        parts = [np.zeros(0)]
        for slot in self._slots:
            size = int(np.prod(slot.shape))
            parts.append(rng.normal(0.0, 0.7 if slot.unit is None else 0.1, size))
        return np.concatenate(parts)

    def warn_at_bounds(self, x: Array) -> None:
        """Say which hyperparameters the data did not determine."""
        for slot, own in self._split(x):
            if slot.unit is None:
                value = np.ravel(slot.unpack(own))
                edges = (value <= slot.low * (1 + 1e-6)) | (value >= slot.high * (1 - 1e-6))
                if (edges & (slot.low < slot.high)).any():
                    i = int(np.argmax(edges))
                    warnings.warn(
                        f"{slot.name} ended at its bound: {value[i]:.4g} in [{slot.low[i]:.4g}, "
                        f"{slot.high[i]:.4g}]; the transitions do not determine it (are the rewards or a "
                        "column constant?), or bounds are too narrow",
                        stacklevel=5,
                    )


def _chosen(kernel: Kernel, hyperparameters: bool | Iterable[str]) -> list[str]:
    """The names of the hyperparameters to learn."""
    known = [*kernel.parameters, NOISE]
    if isinstance(hyperparameters, bool | np.bool_ | int):
        return known if check.flag(hyperparameters, "hyperparameters") else []
    names = [hyperparameters] if isinstance(hyperparameters, str) else list(hyperparameters)
    for name in names:
        if name not in known:
            raise ValueError(f"hyperparameters names {name!r}; this model has {', '.join(known)}")
    return [name for name in known if name in names]


def _box(t: Transitions) -> tuple[Array, Array]:
    """The bounding box of everything visited."""
    both = np.concatenate([t.inputs, t.next_inputs])
    return both.min(axis=0), both.max(axis=0)


def _default_bounds(name: str, value: Array, t: Transitions) -> tuple[Array, Array]:
    """Wide bounds in the data's own scale, the start always inside."""
    if name.endswith("lengthscales"):
        low, high = _box(t)
        widths = (high - low)[high > low]
        least, most = (widths.min(), widths.max()) if len(widths) else (value.min(), value.max())
        lo, hi = 1e-3 * least, 1e2 * most
    elif name == NOISE:
        power = float(np.mean(np.square(t.rewards))) or float(value)
        lo, hi = 1e-8 * power, 1e4 * power
    else:
        lo, hi = 1e-6 * value.min(), 1e6 * value.max()
    least, most = np.finfo(np.float64).tiny * 1e8, 1e150
    lo, hi = np.clip([lo, hi], least, most)
    return np.ravel(np.minimum(lo, value)), np.ravel(np.maximum(hi, value))


def _checked_bounds(bounds: Bounds | None, start: Parameters) -> dict[str, tuple[Array, Array]]:
    """The user's bounds as arrays."""
    if bounds is None:
        return {}
    if not isinstance(bounds, Mapping):
        raise TypeError(f"bounds = {bounds!r}; expected a dict such as {{'noise_variance': (1e-4, 1.0)}}")
    sizes = {name: max(np.size(value), 1) for name, value in start.kernel.parameters.items()}
    sizes |= {NOISE: 1, MEAN: 1, PSEUDO_INPUTS: start.pseudo_inputs.shape[1]}
    checked = {}
    for name, pair in bounds.items():
        if name not in sizes:
            raise ValueError(f"bounds names {name!r}; this model has {', '.join(sizes)}")
        try:
            low, high = pair
        except (TypeError, ValueError):
            raise TypeError(f"bounds[{name!r}] = {pair!r}; expected a pair (low, high)") from None
        lo, hi = (_side(side, f"bounds[{name!r}]", sizes[name]) for side in (low, high))
        if (lo > hi).any():
            i = int(np.argmax(lo > hi))
            raise ValueError(f"bounds[{name!r}] cannot be met: low = {lo[i]} is above high = {hi[i]}")
        if name not in (MEAN, PSEUDO_INPUTS):
            share = name.endswith("share")
            if (lo < 0.0).any() or (not share and (lo <= 0.0).any()) or (share and (hi > 1.0).any()):
                allowed = "in [0, 1]" if share else "above 0"
                raise ValueError(f"bounds[{name!r}] = ({low}, {high}); expected numbers {allowed}")
        checked[name] = lo, hi
    return checked


def _side(value: Any, name: str, size: int) -> Array:
    flat = check.vector(np.ravel(value), name)
    if len(flat) not in (1, size):
        raise ValueError(f"{name} has {len(flat)} numbers; expected one or {size}")
    return np.broadcast_to(flat, size)
