"""What happens when: a sparse model driven on two or more timescales.

    every transition     the recursive update, O(M²)
    when x is novel      x becomes a pseudo-input (`placement`)
    at the budget        the least useful pseudo-input makes way (`drop`)
    now and then         each `Slow` step in turn: pseudo-inputs, hyperparameters or both are learnt
                         by the evidence, from the transitions kept or a bounded reservoir of them

After a slow step the recursion goes on exactly from the new posterior.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa import checkpoint
from gpsarsa._estimator import NEEDS_NEXT, check_transitions
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.kernels import Kernel, KernelLike, is_built_in
from gpsarsa.optimization import Bounds, Optimization
from gpsarsa.placement import DROP_RULES, STRATEGIES, Novelty, Placement, Situation
from gpsarsa.reservoir import Reservoir
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["Slow", "Timescales"]

STRETCH = 16  # how many transitions in a row a reservoir keeps together under correlated noise


@dataclass(frozen=True)
class Slow:
    """A slow timescale: what is learnt by the evidence, and how often.

    `every` counts "transitions" or "episodes"; the other fields are arguments of
    `SparseGPSarsa.optimize`. By default the objective is the variational bound where pseudo-inputs
    move, so that they keep covering the data, and the evidence where they stay.
    """

    every: int
    unit: str = "transitions"
    pseudo_inputs: bool = True
    hyperparameters: bool | Sequence[str] = False
    prior_mean: bool = False
    objective: str | None = None
    bounds: Bounds | None = None
    max_iterations: int = 20

    def __post_init__(self) -> None:
        if check.count(self.every, "every") == 0:
            raise ValueError("every = 0; expected 1 or more")
        check.one_of(self.unit, "unit", ("transitions", "episodes"))
        if self.objective is None:
            object.__setattr__(self, "objective", "variational" if self.pseudo_inputs else "evidence")
        check.one_of(self.objective, "objective", ("evidence", "variational"))
        check.count(self.max_iterations, "max_iterations")

    @property
    def moves_only(self) -> bool:
        """Whether nothing but the pseudo-inputs changes."""
        return not (self.hyperparameters or self.prior_mean)


class Timescales:
    """Drives a `SparseGPSarsa`: one call a transition, and everything slower when it is due.

    Parameters
    ----------
    model : SparseGPSarsa
        Is changed in place. It may start without any pseudo-inputs.
    placement : Placement or None
        When a visited input becomes a pseudo-input; None: never.
    budget : int or None
        The largest number of pseudo-inputs, which is never exceeded between calls.
    drop : {"variance", "information", "oldest"}
        Which pseudo-input makes way at the budget.
    slow : sequence of Slow
        The slower timescales, in the order in which they run when several are due.
    reservoir : int or None
        How many transitions, a uniform sample of all, the slow steps learn from. None: all that the
        model keeps. A model that keeps none ("streaming" growth) is refitted on the reservoir when
        hyperparameters change; when only pseudo-inputs move, it keeps what it knows.
    seed : int or Generator
    """

    def __init__(
        self,
        model: SparseGPSarsa,
        *,
        placement: Placement | None = Novelty(),  # noqa: B008  (immutable)
        budget: int | None = 100,
        drop: str = "variance",
        slow: Iterable[Slow] = (),
        reservoir: int | None = 2_000,
        seed: Any = None,
    ) -> None:
        if not isinstance(model, SparseGPSarsa):
            raise TypeError(f"model is a {type(model).__name__}; expected a SparseGPSarsa")
        if placement is not None and (isinstance(placement, type) or not isinstance(placement, Placement)):
            raise TypeError(f"placement = {placement!r}; expected an object with choose and admits, or None")
        self.model, self.placement = model, placement
        self.budget = None if budget is None else check.count(budget, "budget")
        if self.budget is not None and self.budget < max(len(model.pseudo_inputs), 1):
            raise ValueError(
                f"budget = {budget}, but the model has {len(model.pseudo_inputs)} pseudo-inputs; expected as "
                "many or more, at least 1"
            )
        self.drop = check.one_of(drop, "drop", tuple(DROP_RULES))
        self.slow = tuple([slow] if isinstance(slow, Slow) else slow)
        for i, step in enumerate(self.slow):
            if not isinstance(step, Slow):
                raise TypeError(f"slow[{i}] is a {type(step).__name__}; expected a Slow")
        if self.slow and reservoir is None and model.growth == "streaming":
            raise ValueError(
                "reservoir is None, but growth='streaming' keeps no transitions for the slow steps to learn "
                "from; give the reservoir a size"
            )
        self.reservoir: Reservoir | None = None
        if self.slow and reservoir is not None:
            stretch = STRETCH if model.noise == "correlated" else 1
            self.reservoir = Reservoir(model._columns, reservoir, stretch=stretch)
        self.rng = np.random.default_rng(seed)
        self.counts = {"transitions": 0, "episodes": 0, "added": 0, "dropped": 0, "optimized": 0}
        self.reports: list[Optimization] = []

    # -- the fast timescale -------------------------------------------------------------------

    def observe(self, x: Any, reward: float, x_next: Any, discount: float, start: bool | None = None) -> Self:
        """Take in one transition, as `SparseGPSarsa.observe`, and do what else is due."""
        model, columns = self.model, self.model._columns
        x = check.vector(x, "x", columns)
        reward, discount = check.number(reward, "reward"), check.discount(discount, "discount")
        if discount > 0.0 and x_next is None:
            raise ValueError(NEEDS_NEXT.format(discount))
        ahead = check.vector(x_next, "x_next", columns) if discount > 0.0 else x
        last, last_discount = model._history.end
        if start is None:
            begins = last_discount == 0.0 or not np.array_equal(x, last)
        else:
            begins = check.flag(start, "start")
        added = self._wants(x, ahead, discount)
        before = (model._basis.copy(), model._belief.copy()) if added else None
        try:
            added = added and bool(model.add_pseudo_inputs(x[None])[0])
            model.observe(x, reward, ahead, discount, begins)
        except BaseException:
            if before is not None:
                model._basis, model._belief = before
                model._hot = None
            raise
        self._after(x, reward, ahead, discount, begins, added)
        return self

    def update(self, transitions: Transitions) -> Self:
        """Take in transitions one after another; those before one that is refused stay."""
        t = check_transitions(transitions, self.model._columns)
        for x, r, following, gamma, start in zip(*t._arrays, strict=True):
            self.observe(x, float(r), following, float(gamma), bool(start))
        return self

    def _wants(self, x: NDArray[np.float64], ahead: NDArray[np.float64], discount: float) -> bool:
        if self.placement is None:
            return False
        model = self.model
        basis = model._basis
        situation = Situation(basis, model.noise_variance, x, ahead, discount, self.rng)
        if not self.placement.admits(situation):
            return False
        if self.budget is None or basis.size < self.budget or self.drop != "variance":
            return True
        return not _would_go_at_once(situation)

    def _after(
        self,
        x: NDArray[np.float64],
        reward: float,
        ahead: NDArray[np.float64],
        discount: float,
        begins: bool,
        added: bool,
    ) -> None:
        counts = self.counts
        counts["transitions"] += 1
        counts["episodes"] += begins
        counts["added"] += added
        if self.budget is not None and self.model._basis.size > self.budget:
            victim = DROP_RULES[self.drop](self.model._basis, self.model._belief)
            self.model.remove_pseudo_inputs([victim])
            counts["dropped"] += 1
        if self.reservoir is not None:
            self.reservoir.add(x, reward, ahead, discount, begins, self.rng)
        for step in self.slow:
            counted = counts["transitions"] if step.unit == "transitions" else counts["episodes"] - 1
            if counted and counted % step.every == 0 and (step.unit == "transitions" or begins):
                self.step(step)

    # -- the slow timescales ------------------------------------------------------------------

    def step(self, step: Slow) -> Optimization:
        """Take one slow step now; what it did is also the newest of `reports`."""
        model = self.model
        data = self.reservoir.transitions if self.reservoir is not None else None
        options: dict[str, Any] = asdict(step) | {"bounds": step.bounds}
        del options["every"], options["unit"]
        if model.growth == "streaming" and step.moves_only:
            # the posterior of everything seen moves over to the new pseudo-inputs
            trial = SparseGPSarsa(**model.get_params())
            report = trial.optimize(data, **options)
            if report.end > report.start:
                model.move_pseudo_inputs(trial.pseudo_inputs)
        else:
            kept = model._history.transitions if model._history else None
            report = model.optimize(data, refit_on=kept, **options)
        self.counts["optimized"] += 1
        self.reports.append(report)
        return report

    # -- files --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write model, schedule, reservoir, counters and random state to one file, atomically."""
        arrays, content = self.state()
        checkpoint.write(path, arrays, content)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and a JSON-ready description from which `restored` goes on bit for bit."""
        arrays, content = self.model._state()
        arrays = {f"model.{name}": array for name, array in arrays.items()}
        if self.reservoir is not None:
            arrays |= {f"reservoir.{name}": array for name, array in self.reservoir.state().items()}
        placement = self.placement
        known = type(placement) in STRATEGIES.values()
        return arrays, {
            "timescales": {
                "model": content,
                "kernel": self.model.kernel.to_config() if is_built_in(self.model.kernel) else None,  # type: ignore[attr-defined]
                "placement": [type(placement).__name__, asdict(placement)] if known else None,  # type: ignore[call-overload]
                "own_placement": not known and placement is not None,
                "budget": self.budget,
                "drop": self.drop,
                "slow": [asdict(step) | {"bounds": _plain(step.bounds)} for step in self.slow],
                "counts": self.counts,
                "rng": self.rng.bit_generator.state,
            }
        }

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        kernel: KernelLike | None = None,
        placement: Placement | None = None,
    ) -> Self:
        """Read what `save` wrote. A kernel or a strategy of the user's own must be given again."""
        arrays, content = checkpoint.read(path)
        try:
            return cls.restored(arrays, content, kernel=kernel, placement=placement)
        except CheckpointError as error:
            raise CheckpointError(f"{path} {error}") from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CheckpointError(f"{path} does not describe a Timescales: {error}") from error

    @classmethod
    def restored(
        cls,
        arrays: dict[str, NDArray[Any]],
        content: dict[str, Any],
        *,
        kernel: KernelLike | None = None,
        placement: Placement | None = None,
    ) -> Self:
        """The object whose `state` this was."""
        if "timescales" not in content:
            raise CheckpointError("does not hold a Timescales")
        kept = content["timescales"]
        if kernel is None:
            if kept["kernel"] is None:
                raise CheckpointError("was saved with a kernel of your own: pass it as kernel=…")
            kernel = Kernel.from_config(kept["kernel"])
        if placement is None:
            if kept["own_placement"]:
                raise CheckpointError("was saved with a strategy of your own: pass it as placement=…")
            if kept["placement"] is not None:
                name, options = kept["placement"]
                placement = STRATEGIES[name](**options)
        parts: dict[str, dict[str, NDArray[Any]]] = {"model": {}, "reservoir": {}}
        for name, array in arrays.items():
            part, own = name.split(".", 1)
            parts[part][own] = array
        model = SparseGPSarsa._from_state(kernel, parts["model"], kept["model"])
        self = cls(
            model, placement=placement, budget=kept["budget"], drop=kept["drop"],
            slow=[Slow(**step) for step in kept["slow"]], reservoir=2 * STRETCH,
        )  # fmt: skip
        self.reservoir = Reservoir.restored(parts["reservoir"]) if parts["reservoir"] else None
        self.counts |= {name: check.count(kept["counts"][name], name) for name in self.counts}
        self.rng.bit_generator.state = kept["rng"]
        return self


def _would_go_at_once(situation: Situation) -> bool:
    """Whether x, once a pseudo-input, would be the one with the least conditional variance.

    With g = K⁻¹k(Z, x) and ρ the conditional variance of x, adding x makes 1/A_ii of the others
    1/(A_ii + g_i²/ρ) and is itself left with ρ.
    """
    basis = situation.basis
    ell, rho, prior = situation.conditional
    if rho <= 0.0:
        return True
    g = basis.unwhiten(ell)
    return bool(prior / rho >= float((basis.redundancy + g * g / rho * basis.variances).max()))


def _plain(bounds: Bounds | None) -> Any:
    """Bounds as JSON can hold them."""
    if bounds is None:
        return None
    return {name: [np.asarray(side, dtype=float).tolist() for side in pair] for name, pair in bounds.items()}
