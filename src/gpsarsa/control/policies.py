"""How an agent acts while it learns: small objects that turn a `Decision` into an action.

A policy is any callable that takes a `Decision` and returns an action of the environment:

    SarsaAgent(env, policy=lambda decision: int(decision.observation[2] > 0))

Those of this module ask the posterior over Q: `Greedy` its mean, `UpperConfidence` mean plus standard
deviations, `Curious` the same unless a way is known to what is not known, `PosteriorSampling` one function
drawn from it for the whole episode, `EpsilonGreedy` the mean, except now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.control.spaces import Actions
from gpsarsa.sparse import SparseGPSarsa

__all__ = ["Choice", "Curious", "Decision", "EpsilonGreedy", "Greedy", "PosteriorSampling", "UpperConfidence"]
__all__ += ["as_choice", "described", "maximiser", "restored"]

Function = Callable[[Array], Array]
Choice = Callable[["Decision"], Array]  # the chosen action as a row


@dataclass
class Decision:
    """What a policy decides from.

    Parameters
    ----------
    observation : Any
        The environment's own.
    row : array
        The same as numbers.
    step : int
        The environment's steps so far.
    rng : Generator
        The agent's.
    model : SparseGPSarsa or None
        The posterior over Q, whose inputs are rows of an observation followed by an action; None before
        there is one.
    actions : Actions
        The action space.
    draw : callable
        This episode's function, drawn when it is first asked for.
    curious : callable or None
        The action row that leads to what is not known; None where none is known.
    """

    observation: Any
    row: Array
    step: int
    rng: np.random.Generator
    model: SparseGPSarsa | None
    actions: Actions
    draw: Callable[[], Function]
    curious: Callable[[], Array] | None = None

    @property
    def greedy(self) -> Any:
        """The action of the largest posterior mean."""
        return self.actions.action(self.best())

    @property
    def random(self) -> Any:
        """An action drawn uniformly."""
        return self.actions.action(self.any())

    def any(self) -> Array:
        """An action row drawn uniformly."""
        return self.actions.random(1, self.rng)[0]

    def best(self, bonus: float = 0.0) -> Array:
        """The action row of the largest mean + bonus · standard deviation; equals are drawn among."""
        if self.model is None:
            return self.any()
        return maximiser(self.model, self.actions, self.row, self.rng, bonus)

    def best_of_draw(self) -> Array:
        """The action row at which this episode's function is largest."""
        function, row = self.draw(), self.row
        return self.actions.best(lambda rows: function(inputs(row, rows)), self.rng)


def inputs(row: Array, actions: Array) -> Array:
    """Input rows: one observation with each of the actions."""
    X = np.empty((len(actions), len(row) + actions.shape[1]))
    X[:, : len(row)], X[:, len(row) :] = row, actions
    return X


def maximiser(
    model: SparseGPSarsa, actions: Actions, row: Array, rng: np.random.Generator | None, bonus: float = 0.0
) -> Array:
    """The action row that maximises mean + bonus · standard deviation of Q at an observation.

    Among equals one is drawn, or the first taken where there is no `rng`.
    """

    def score_of(rows: Array) -> Array:
        mean, variance = model._moments(inputs(row, rows), bonus != 0.0)
        return mean + bonus * np.sqrt(variance) if bonus else mean

    if actions.candidates is not None:
        score = score_of(actions.candidates)
        at = int(score.argmax())
        if rng is not None and np.count_nonzero(score == score[at]) > 1:
            at = int(rng.choice(np.flatnonzero(score == score[at])))
        return actions.candidates[at]

    def slope_of(rows: Array) -> Array:
        return model._slopes(inputs(row, rows), bonus)[:, len(row) :]

    smooth = actions.continuous and model._basis.table is not None
    generator = np.random.default_rng(0) if rng is None else rng
    return actions.best(score_of, generator, slope=slope_of if smooth else None)


@dataclass(frozen=True)
class Greedy:
    """The action of the largest posterior mean."""

    def row(self, decision: Decision) -> Array:
        return decision.best()


@dataclass(frozen=True)
class EpsilonGreedy:
    """A random action with probability ε, else the greedy one.

    ε goes linearly from `epsilon` to `final` over the first `steps` steps; constant where no `final` is
    given.
    """

    epsilon: float = 0.1
    final: float | None = None
    steps: int = 10_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check.fraction(self.epsilon, "epsilon"))
        object.__setattr__(self, "steps", check.count(self.steps, "steps"))
        if self.final is not None:
            object.__setattr__(self, "final", check.fraction(self.final, "final"))

    def at(self, step: int) -> float:
        """ε after so many steps."""
        check.count(step, "step")
        if self.final is None:
            return self.epsilon
        done = min(step, self.steps) / self.steps if self.steps else 1.0
        return self.epsilon + done * (self.final - self.epsilon)

    def row(self, decision: Decision) -> Array:
        return decision.any() if decision.rng.random() < self.at(decision.step) else decision.best()


@dataclass(frozen=True)
class UpperConfidence:
    """The action of the largest mean + bonus · standard deviation."""

    bonus: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bonus", check.number(self.bonus, "bonus"))

    def row(self, decision: Decision) -> Array:
        return decision.best(self.bonus)


@dataclass(frozen=True)
class Curious(UpperConfidence):
    """Towards what is not known yet, while that finds something; else as `UpperConfidence`. Where rules are
    searched for, the agent explores by these instead."""

    def row(self, decision: Decision) -> Array:
        return super().row(decision) if decision.curious is None else decision.curious()


@dataclass(frozen=True)
class PosteriorSampling:
    """The greedy action of one function drawn from the posterior for the whole episode."""

    def row(self, decision: Decision) -> Array:
        return decision.any() if decision.model is None else decision.best_of_draw()


_KNOWN = {
    kind.__name__: kind for kind in (Greedy, EpsilonGreedy, UpperConfidence, Curious, PosteriorSampling)
}


def as_choice(policy: Any, actions: Actions) -> Choice:
    """What the agent calls: from a decision to an action row."""
    if type(policy) in _KNOWN.values():
        return policy.row
    if isinstance(policy, type) or not callable(policy):
        raise TypeError(
            f"policy = {policy!r}; expected one of gpsarsa.control.policies, or a callable that takes a "
            "Decision and returns an action"
        )
    return lambda decision: actions.row(policy(decision))


def described(policy: Any) -> list[Any] | None:
    """A policy of this module as JSON can hold it; None for one of the user's own."""
    return [type(policy).__name__, asdict(policy)] if type(policy) in _KNOWN.values() else None


def restored(config: list[Any]) -> Any:
    """The policy that `described` described."""
    try:
        name, options = config
        return _KNOWN[name](**options)
    except (TypeError, LookupError, ValueError) as error:
        raise ValueError(f"{config!r} describes no policy: {error}") from None
