"""The search vector of an optimisation: which parameters it holds, in which units, inside which bounds.

Positive parameters are searched as logarithms, the others in units of their range.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.evidence import Gradient, require_gradient
from gpsarsa.kernels import Kernel
from gpsarsa.transitions import Transitions

__all__ = ["Bounds", "Parameters", "Space", "check_search"]

PSEUDO_INPUTS, NOISE, MEAN = "pseudo_inputs", "noise_variance", "prior_mean"

MARGIN = 0.05  # by how much of its width the data's bounding box is enlarged, on each side

Bounds = Mapping[str, tuple[Any, Any]]

Checked = Mapping[str, tuple[Array, Array]]


@dataclass(frozen=True)
class Parameters:
    """What can be learnt."""

    kernel: Kernel
    noise_variance: float
    prior_mean: float
    pseudo_inputs: Array


@dataclass(frozen=True)
class Slot:
    """Some entries of the search vector: one parameter, its bounds and its scale."""

    name: str
    shape: tuple[int, ...]
    low: Array
    high: Array
    unit: Array | None  # None: searched as a logarithm

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def pack(self, value: Any) -> Array:
        flat = np.asarray(value, dtype=np.float64).ravel()
        return np.log(flat) if self.unit is None else flat / self.unit

    def unpack(self, x: Array) -> Array:
        flat = np.exp(x) if self.unit is None else x * self.unit
        return np.clip(flat, self.low, self.high).reshape(self.shape)

    def pull(self, value: Any, bar: Any) -> Array:
        """∂F by these entries, from the parameter's value and ∂F by the parameter."""
        flat = np.asarray(bar, dtype=np.float64).ravel()
        return flat * (np.ravel(value) if self.unit is None else self.unit)


class Space:
    """The search vector around a start."""

    def __init__(
        self,
        start: Parameters,
        t: Transitions,
        *,
        pseudo_inputs: bool,
        hyperparameters: bool | Iterable[str],
        prior_mean: bool,
        bounds: Bounds | None,
    ) -> None:
        kernel = require_gradient(start.kernel)
        if len(t) == 0:
            raise ValueError("there are no transitions to learn from; pass at least one")
        self._start = start
        discrete = kernel.discrete_columns(t.columns)
        self._free = np.array([c for c in range(t.columns) if c not in discrete], dtype=np.int64)
        given = self._given = _checked_bounds(bounds, start)
        self.slots = [self._hyperparameter(name, given, t) for name in _chosen(kernel, hyperparameters)]
        if prior_mean:
            self.slots.append(self._mean(given, t))
        numbers = self.size
        if pseudo_inputs and len(start.pseudo_inputs) and len(self._free):
            self.slots.append(self._pseudo_inputs(given, t))
        self._refuse_idle(given)
        if len(t) < numbers:
            warnings.warn(
                f"{numbers} hyperparameters are learnt from {len(t)} transitions: too few to determine them",
                stacklevel=6,
            )
        self.low = np.concatenate([np.zeros(0), *(slot.pack(slot.low) for slot in self.slots)])
        self.high = np.concatenate([np.zeros(0), *(slot.pack(slot.high) for slot in self.slots)])

    @property
    def size(self) -> int:
        return sum(slot.size for slot in self.slots)

    def _hyperparameter(self, name: str, given: Checked, t: Transitions) -> Slot:
        value = np.asarray(self._entry(self._start, name), dtype=np.float64)
        if name.endswith("share"):
            low, high = given.get(name, (np.zeros(1), np.ones(1)))
            return Slot(name, (), low, high, np.ones(1))
        low, high = given.get(name) or _default_bounds(name, value, t)
        size = max(value.size, 1)
        return Slot(name, value.shape, np.broadcast_to(low, size), np.broadcast_to(high, size), None)

    def _mean(self, given: Checked, t: Transitions) -> Slot:
        scale = float(np.sqrt(self._start.kernel.diag(t.inputs[:1])[0]))
        unit = max(scale, abs(self._start.prior_mean))
        low, high = given.get(MEAN, (np.full(1, -np.inf), np.full(1, np.inf)))
        return Slot(MEAN, (), low, high, np.full(1, unit))

    def _pseudo_inputs(self, given: Checked, t: Transitions) -> Slot:
        M, free = len(self._start.pseudo_inputs), self._free
        low, high = _box(t)
        width = high - low
        lo, hi = given.get(PSEUDO_INPUTS, (low - MARGIN * width, high + MARGIN * width))
        unit = np.where(width > 0.0, width, 1.0)
        lo, hi, unit = (np.tile(side[free], M) for side in (lo, hi, unit))
        return Slot(PSEUDO_INPUTS, (M, len(free)), lo, hi, unit)

    def _refuse_idle(self, given: Checked) -> None:
        learnt = [slot.name for slot in self.slots]
        for name in given:
            if name not in learnt:
                raise ValueError(
                    f"bounds names {name!r}, which is not being learnt; those are: {', '.join(learnt)}"
                )

    def _entry(self, source: Parameters | Gradient, name: str) -> Any:
        if name == PSEUDO_INPUTS:
            return source.pseudo_inputs[:, self._free]
        if name in (NOISE, MEAN):
            return getattr(source, name)
        return (source.kernel.parameters if isinstance(source, Parameters) else source.kernel)[name]

    @property
    def learns_scale(self) -> bool:
        """Whether every kernel variance and σ² are learnt, without bounds of the user's."""
        names = [name for name in self._start.kernel.parameters if name.endswith("variance")]
        free = [slot.name for slot in self.slots if slot.name not in self._given]
        return all(name in free for name in (*names, NOISE))

    def excluded_by_the_user(self) -> bool:
        """Whether the start lies outside bounds that were given, not chosen here."""
        for slot in self.slots:
            value = np.ravel(self._entry(self._start, slot.name))
            if slot.name in self._given and ((value < slot.low) | (value > slot.high)).any():
                return True
        return False

    def pack(self, parameters: Parameters) -> Array:
        """The search vector of these parameters."""
        parts = [slot.pack(self._entry(parameters, slot.name)) for slot in self.slots]
        return np.concatenate([np.zeros(0), *parts])

    def unpack(self, x: Array) -> Parameters:
        """The parameters of a search vector; the others as at the start."""
        kernel: dict[str, Any] = {}
        changes: dict[str, Any] = {}
        for slot, own in self._split(x):
            value = slot.unpack(own)
            if slot.name == PSEUDO_INPUTS:
                Z = self._start.pseudo_inputs.copy()
                Z[:, self._free] = value
                changes[slot.name] = Z
            else:
                target = changes if slot.name in (NOISE, MEAN) else kernel
                target[slot.name] = value if value.ndim else float(value)
        return replace(self._start, kernel=self._start.kernel.with_parameters(kernel), **changes)

    def pull(self, parameters: Parameters, gradient: Gradient) -> Array:
        """∂F by the search vector."""
        parts = [
            slot.pull(self._entry(parameters, slot.name), self._entry(gradient, slot.name))
            for slot in self.slots
        ]
        return np.concatenate([np.zeros(0), *parts])

    def _split(self, x: Array) -> list[tuple[Slot, Array]]:
        ends = np.cumsum([slot.size for slot in self.slots])
        return [(slot, x[end - slot.size : end]) for slot, end in zip(self.slots, ends, strict=True)]

    def perturbation(self, rng: np.random.Generator) -> Array:
        """A random step: a factor of about 2 in positive parameters, a tenth of the range in others."""
        parts = [rng.normal(0.0, 0.7 if slot.unit is None else 0.1, slot.size) for slot in self.slots]
        return np.concatenate([np.zeros(0), *parts])

    def warn_at_bounds(self, x: Array) -> None:
        """Say which hyperparameters the data did not determine."""
        for slot, own in self._split(x):
            if slot.unit is not None:
                continue
            value = slot.unpack(own).ravel()
            edges = (value <= slot.low * (1 + 1e-6)) | (value >= slot.high * (1 - 1e-6))
            edges &= slot.low < slot.high
            irrelevant = slot.name.endswith("lengthscales") & (value >= slot.high * (1 - 1e-6))
            if irrelevant.any() and not irrelevant.all():
                edges &= ~irrelevant  # a column without influence, found out by its lengthscale
            if edges.any():
                i = int(np.argmax(edges))
                warnings.warn(
                    f"{slot.name} ended at its bound: {value[i]:.4g} in [{slot.low[i]:.4g}, "
                    f"{slot.high[i]:.4g}]; the transitions do not determine it (are the rewards or a "
                    "column constant?), or bounds are too narrow",
                    stacklevel=5,
                )


def check_search(start: Parameters, hyperparameters: bool | Iterable[str], bounds: Bounds | None) -> None:
    """Refuse names and bounds that no search could use, before there is any data."""
    _chosen(require_gradient(start.kernel), hyperparameters)
    _checked_bounds(bounds, start)


def _chosen(kernel: Kernel, hyperparameters: bool | Iterable[str]) -> list[str]:
    """The names of the hyperparameters to learn."""
    known = [*kernel.parameters, NOISE]
    if isinstance(hyperparameters, bool | np.bool_ | int):
        return known if check.flag(hyperparameters, "hyperparameters") else []
    expected = "True, False or a list of names"
    single = isinstance(hyperparameters, str)
    names = [hyperparameters] if single else check.listed(hyperparameters, "hyperparameters", expected)
    for name in names:
        if not isinstance(name, str) or name not in known:
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
    else:
        with np.errstate(over="ignore"):
            power = float(np.mean(np.square(t.rewards))) or float(value)
        lo, hi = (1e-8 * power, 1e4 * power) if name == NOISE else (1e-6 * power, 1e6 * power)
        if name != NOISE:
            lo, hi = min(lo, 1e-6 * float(value)), max(hi, 1e6 * float(value))
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
