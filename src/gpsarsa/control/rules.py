"""Policies without a value function: rules that are linear in the observation, and how they are found.

    π(s) = argmax_a  w_a · (z, 1),      z = (s − centre) / width        among candidate actions
    π(s) = middle + half · clip(W (z, 1), −1, 1)                        where actions are continuous

Where a flag is not as usual, as on the ground, what happens is not foreseen (`dynamics`), and no rule can be
searched for: there all take one action, `rest`.

A value function of many columns needs more pseudo-inputs than there are transitions. A rule has few numbers,
and where episodes can be imagined it is found without one: many rules are drawn from a Gaussian, and the best
of them by their imagined returns make the next Gaussian (the cross-entropy method, Rubinstein 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.control.world import strange

__all__ = ["LEARNT", "Rule", "search"]

DRAWN, ELITE, GENERATIONS = 40, 8, 30  # rules of a generation; the best, of which the next is made
SPREAD, SPREAD_AGAIN = 1.0, 0.5  # of the weights at first: around 0, and around a rule there is
WIDER = 0.15  # the elite's spread is widened by so much at first, less and less
LEARNT = "centre", "width", "weights", "spread", "usual", "rest"
FAR = 5.0  # widths from the centre: what lies farther counts as that far


class Rule(NamedTuple):
    """A linear rule; where it acts it stands in the place of a posterior's `Values`."""

    centre: Array
    width: Array
    weights: Array  # a row for each candidate, or for each column of a continuous action
    spread: Array  # of the weights, among rules that are about as good
    candidates: Array  # rows; of continuous actions the smallest and the largest
    continuous: bool
    usual: Array  # the flags as they are where it acts; NaN for other columns
    rest: Array  # the action row for where they are not
    curious: bool = False

    @classmethod
    def blank(cls, states: Array, candidates: Array, continuous: bool) -> Self:
        """All weights 0, for observations like these."""
        width = states.std(axis=0)
        shape = candidates.shape[1] if continuous else len(candidates), states.shape[1] + 1
        return cls(
            np.median(states, axis=0), np.where(width > 0.0, width, 1.0), np.zeros(shape),
            np.full(shape, SPREAD), candidates, continuous, np.full(states.shape[1], np.nan),
            np.full(candidates.shape[1], np.nan),
        )  # fmt: skip

    def drawn(self, rng: np.random.Generator) -> Self:
        """One of the rules that are about as good."""
        return self._replace(weights=self.weights + self.spread * rng.standard_normal(self.weights.shape))

    def greedy(self, X: Array) -> Array:
        """The action row for each row's observation."""
        rows = self.chosen(self.weights, X)
        rows[strange(X, self.usual)] = self.rest
        return rows

    def chosen(self, weights: Array, X: Array) -> Array:
        """Action rows for each row's observation by other weights than its own: (outputs, columns + 1), or a
        matrix of these for each row."""
        z = np.ones((len(X), len(self.centre) + 1))
        z[:, :-1] = np.clip((X[:, : len(self.centre)] - self.centre) / self.width, -FAR, FAR)
        scores = np.einsum("...of,...f->...o", weights, z)
        if not self.continuous:
            return self.candidates[scores.argmax(axis=1)]
        low, high = self.candidates
        return 0.5 * (low + high) + 0.5 * (high - low) * np.clip(scores, -1.0, 1.0)

    # -- files --------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in LEARNT}

    def restored(self, arrays: Mapping[str, Any]) -> Self:
        """A rule out of a file, for the observations and actions of this one."""
        centre, width = (check.vector(arrays[name], name, len(self.centre)) for name in ("centre", "width"))
        weights, spread = (check.rows(arrays[name], name, len(centre) + 1) for name in ("weights", "spread"))
        if not len(weights) == len(spread) == len(self.weights):
            raise ValueError(f"weights has {len(weights)} rows; expected {len(self.weights)}")
        if not width.min() > 0.0:
            raise ValueError(f"width holds {width.min()}; expected numbers above 0")
        usual = check.rows(arrays["usual"][None], "usual", len(centre), finite=False)[0]
        rest = check.rows(arrays["rest"][None], "rest", len(self.rest), finite=False)[0]
        if np.isnan(rest).any() and not np.isnan(usual).all():
            raise ValueError(f"rest is {rest}; expected an action")
        learnt = centre, width, weights, spread, usual, rest
        return self._replace(**{name: array.copy() for name, array in zip(LEARNT, learnt, strict=True)})


def search(start: Rule, returns: Callable[[Array], Array], rng: np.random.Generator) -> Rule:
    """The mean of the last generation; `returns` judges weights, stacked. Among candidate actions only
    differences of weights tell: those of the first one are 0."""
    mean, free = start.weights.copy(), np.ones(start.weights.shape)
    if not start.continuous:
        mean -= mean[0].copy()
        free[0] = 0.0
    spread = free * np.maximum(start.spread, SPREAD_AGAIN)
    for generation in range(GENERATIONS):
        drawn = mean + spread * rng.standard_normal((DRAWN, *mean.shape))
        drawn[0] = mean
        elite = drawn[np.argsort(-returns(drawn), kind="stable")[:ELITE]]
        mean = elite.mean(axis=0)
        spread = elite.std(axis=0) + free * WIDER * (1.0 - generation / GENERATIONS)
    return start._replace(weights=mean, spread=spread)
