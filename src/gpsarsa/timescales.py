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
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa import checkpoint
from gpsarsa._estimator import check_transitions, saved_kernel
from gpsarsa._space import check_search
from gpsarsa._validation import Array
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.kernels import KernelLike
from gpsarsa.optimization import Bounds, Optimization, Search
from gpsarsa.placement import (
    DROP_RULES,
    STRATEGIES,
    EvidenceGain,
    Greedy,
    Novelty,
    Placement,
    Situation,
    determined,
    would_go_at_once,
)
from gpsarsa.reservoir import Reservoir
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["Slow", "Timescales"]

DETERMINISTIC = (Novelty, Greedy, EvidenceGain, type(None))  # strategies that draw nothing

NAMES = "True, False or a list of names"

STRETCH = 16  # how many transitions in a row a reservoir keeps together under correlated noise


@dataclass(frozen=True)
class Slow:
    """A slow timescale: what is learnt by the evidence, and how often.

    Parameters
    ----------
    every : int
        How many transitions or episodes lie between two steps.
    unit : {"transitions", "episodes"}
        What `every` counts.
    pseudo_inputs : bool
        Whether Z moves. This and what follows is as `SparseGPSarsa.optimize` takes it.
    hyperparameters : bool or names
        Whether the kernel's parameters and the noise variance are learnt, or which of them.
    prior_mean : bool
        Whether μ₀ is learnt.
    objective : {"evidence", "variational"}, optional
        By default the variational bound where nothing but pseudo-inputs moves, so that they keep
        covering the data, and the evidence otherwise.
    bounds : dict of (low, high), optional
        By name.
    max_iterations : int
        Of each step.
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
        check.at_least_one(self.every, "every")
        check.one_of(self.unit, "unit", ("transitions", "episodes"))
        names = self.hyperparameters
        plain: dict[str, Any] = {  # as files can hold them
            "every": int(self.every),
            "pseudo_inputs": check.flag(self.pseudo_inputs, "pseudo_inputs"),
            "prior_mean": check.flag(self.prior_mean, "prior_mean"),
            "max_iterations": check.count(self.max_iterations, "max_iterations"),
            "hyperparameters": bool(names) if isinstance(names, bool | np.bool_) else _listed(names),
            "objective": self.objective,
        }
        if self.objective is None:
            moves_only = not (plain["hyperparameters"] or plain["prior_mean"])
            plain["objective"] = "variational" if moves_only else "evidence"
        check.one_of(plain["objective"], "objective", ("evidence", "variational"))
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def search(self) -> Search:
        """The step as `optimize` takes it."""
        return Search(
            self.pseudo_inputs, self.hyperparameters, self.prior_mean, str(self.objective), self.bounds,
            self.max_iterations,
        )  # fmt: skip

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
        The largest number of pseudo-inputs, which is never exceeded between calls. A model that has
        more loses the least useful ones at once.
    drop : {"information", "variance", "oldest"} or None
        Which pseudo-input makes way at the budget. "variance" is cheaper and less accurate. None: at the
        budget nothing more is added.
    slow : sequence of Slow
        The slower timescales, in the order in which they run when several are due.
    reservoir : int or None
        How many transitions, a uniform sample of all, the slow steps learn from. None: all that the
        model keeps. A model that keeps none ("streaming" growth) is refitted on the reservoir when
        hyperparameters change; when only pseudo-inputs move, it keeps what it knows.
    seed : int or Generator
        For strategies that draw, and the reservoir.

    `counts` says how many transitions and episodes came, and how many pseudo-inputs were added and
    dropped and slow steps taken; `reports` holds the newest 100 `Optimization`s.
    """

    def __init__(
        self,
        model: SparseGPSarsa,
        *,
        placement: Placement | None = Novelty(),  # noqa: B008  (immutable)
        budget: int | None = 100,
        drop: str | None = "information",
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
        if self.budget == 0:
            raise ValueError("budget = 0; expected 1 or more, or None for no limit")
        self.drop = None if drop is None else check.one_of(drop, "drop", tuple(DROP_RULES))
        steps = [slow] if isinstance(slow, Slow) else check.listed(slow, "slow", "a sequence of Slow")
        self.slow = tuple(steps)
        for i, step in enumerate(self.slow):
            if not isinstance(step, Slow):
                raise TypeError(f"slow[{i}] is a {type(step).__name__}; expected a Slow")
            check_search(model._start(model.pseudo_inputs), step.hyperparameters, step.bounds)
        if self.slow and reservoir is None and model.growth == "streaming":
            raise ValueError(
                "reservoir is None, but growth='streaming' keeps no transitions for the slow steps to learn "
                "from; give the reservoir a size"
            )
        self.reservoir: Reservoir | None = None
        if self.slow and reservoir is not None:
            stretch = STRETCH if model.noise == "correlated" else 1
            if check.count(reservoir, "reservoir") < 2 * stretch:
                raise ValueError(f"reservoir = {reservoir}; expected {2 * stretch} or more, or None")
            self.reservoir = Reservoir(model._columns, reservoir, stretch=stretch)
        self.rng = check.generator(seed)
        self.counts = {"transitions": 0, "episodes": 0, "added": 0, "dropped": 0, "optimized": 0}
        self.reports: deque[Optimization] = deque(maxlen=100)
        self._keep_to_the_budget()

    # -- the fast timescale -------------------------------------------------------------------

    def observe(self, x: Any, reward: float, x_next: Any, discount: float, start: bool | None = None) -> Self:
        """Take in one transition, as `SparseGPSarsa.observe`, and do what else is due."""
        return self._take(*self.model._checked_row(x, reward, x_next, discount, start))

    def _take(self, x: Array, reward: float, ahead: Array, discount: float, begins: bool) -> Self:
        """`observe` for arguments that are known to be good."""
        model = self.model
        self._keep_to_the_budget()  # an interruption may have come between adding and dropping
        count, before = model.n_transitions, (model._basis, model._belief)
        randomness = None if type(self.placement) in DETERMINISTIC else self.rng.bit_generator.state
        try:
            added = self._wants(x.copy(), ahead.copy(), discount)
            if added:
                before = model._basis.copy(), model._belief.copy()
                added = bool(model.add_pseudo_inputs(x[None])[0])
            model.observe(x, reward, ahead, discount, begins)
        except BaseException:
            if model.n_transitions == count:  # not taken in: as if it had never come
                model.__dict__.update(_basis=before[0], _belief=before[1], _hot=None)
                if randomness is not None:
                    self.rng.bit_generator.state = randomness
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
        model = self.model
        basis = model._basis
        full = self.budget is not None and basis.size >= self.budget
        if self.placement is None or (full and self.drop is None):
            return False
        situation = Situation(basis, model.noise_variance, x, ahead, discount, self.rng)
        if not self.placement.admits(situation):
            return False
        if not full or self.drop != "variance":
            return True
        return not would_go_at_once(situation)

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
        if added:
            self._prune()
        self._keep_to_the_budget()
        if self.reservoir is not None:
            self.reservoir.add(x, reward, ahead, discount, begins, self.rng)
        for step in self.slow:
            counted = counts["transitions"] if step.unit == "transitions" else counts["episodes"] - 1
            if counted and counted % step.every == 0 and (step.unit == "transitions" or begins):
                self.step(step)

    def _keep_to_the_budget(self) -> None:
        while self.budget is not None and self.model._basis.size > self.budget:
            rule = DROP_RULES[self.drop or "information"]
            self._remove([rule(self.model._basis, self.model._belief)])

    def _prune(self) -> None:
        """Remove the pseudo-inputs that others have come to determine."""
        if determined(self.model._basis) is None:
            return
        basis, places = self.model._basis.copy(), list(range(self.model._basis.size))
        gone: list[int] = []
        while (least := determined(basis)) is not None:
            basis.remove(least)
            gone.append(places.pop(least))
        self._remove(gone)

    def _remove(self, indices: list[int]) -> None:
        self.model.remove_pseudo_inputs(indices)
        self.counts["dropped"] += len(indices)

    # -- the slow timescales ------------------------------------------------------------------

    def step(self, step: Slow) -> Optimization:
        """Take one slow step now; what it did is also the newest of `reports`.

        Where nothing better is found, the model stays as it is.
        """
        if not isinstance(step, Slow):
            raise TypeError(f"step is a {type(step).__name__}; expected a Slow")
        model = self.model
        kept = model._history.transitions if model._history else None
        data = self.reservoir.transitions if self.reservoir is not None else kept
        if data is None:
            raise ValueError("there are no transitions to learn from yet")
        found, report = model._search(data, step.search())
        self.counts["optimized"] += 1
        self.reports.append(report)
        if report.end > report.start:
            try:
                if model.growth == "streaming" and step.moves_only:
                    # the posterior of everything seen moves over to the new pseudo-inputs
                    model.move_pseudo_inputs(found.pseudo_inputs)
                else:
                    model._adopt(found, report, data if kept is None else kept)
            finally:
                self._prune()
        if report.interrupted:
            raise KeyboardInterrupt
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
        if not isinstance(self.rng.bit_generator, np.random.PCG64):
            raise TypeError(
                f"a run with a {type(self.rng.bit_generator).__name__} generator cannot be saved; give its "
                "seed as a number, or np.random.default_rng(seed)"
            )
        return arrays, {
            "timescales": {
                "model": content,
                "kernel": self.model._described_kernel(),
                "placement": [type(placement).__name__, asdict(placement)] if known else None,  # type: ignore[call-overload]
                "own_placement": not known and placement is not None,
                "budget": self.budget,
                "drop": self.drop,
                "slow": [_described(step) for step in self.slow],
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
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
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
        kernel = saved_kernel(kept["kernel"], kernel)
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


def _listed(names: Any) -> list[str]:
    """Names of hyperparameters as a list."""
    found = [names] if isinstance(names, str) else check.listed(names, "hyperparameters", NAMES)
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"hyperparameters = {names!r}; expected {NAMES}")
    return sorted(found)


def _described(step: Slow) -> dict[str, Any]:
    """A slow step as JSON can hold it."""
    plain = {field.name: getattr(step, field.name) for field in fields(step)}
    if step.bounds is not None:
        plain["bounds"] = {
            name: [np.asarray(side, dtype=float).tolist() for side in pair]
            for name, pair in step.bounds.items()
        }
    return plain
