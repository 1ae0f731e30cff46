"""A world of categories, written down: how often each input was followed by each observation.

Where every column of an observation is a category, what the environment does needs no regression, and
nothing is drawn at random to know what a policy is worth there: with n̂(s, a, s′) counted,

    V_t(s) = r̂(s, π(s)) + Σ_s′ P̂(s′ | s, π(s)) V_t+1(s′)

over as many steps as an episode has. In the same way the best policy is found for rewards with a bonus of
β/√n̂(s, a), which explores what was seldom tried where that matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsarsa._validation import Array
from gpsarsa.basis import pivots
from gpsarsa.control.critic import NOVEL
from gpsarsa.control.episodes import REACH, Episodes, Judged, Tuning
from gpsarsa.control.experience import Experience
from gpsarsa.control.imagination import PATIENCE
from gpsarsa.control.spaces import Actions, Observations
from gpsarsa.control.values import Values, values_of
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["Tables"]

SWEEPS = 500  # of value iteration
BONUS, ONCE = 0.1, 0.25  # of the range of rewards, over √tries; what never tried counts as
LONG = 10.0  # so much farther looks the more patient plan


def _distinct(rows: Array) -> tuple[Array, NDArray[np.intp]]:
    """Distinct rows in order, and which of them each row is; NumPy 2.0 gives that as a column."""
    states, number = np.unique(rows, axis=0, return_inverse=True)
    return states, number.reshape(-1)


class Counts(NamedTuple):
    """Observations and inputs seen, numbered, and what followed each input."""

    states: Array  # one a row, sorted
    visits: NDArray[np.int64]  # state, action: how often
    rewards: Array  # state, action: the mean
    at: NDArray[np.intp]  # of each different transition that did not end: state · actions + action
    following: NDArray[np.intp]  # the state it led to
    share: Array  # of all that followed the same input

    @property
    def tried(self) -> NDArray[np.bool_]:
        return self.visits > 0

    def after(self, V: Array) -> Array:
        """Σ_s′ P̂(s′ | s, a) V(s′), for every state and action."""
        flat: Any = np.bincount(self.at, self.share * V[self.following], self.visits.size)
        return flat.reshape(self.visits.shape)

    def number(self, rows: Array) -> NDArray[np.intp]:
        """Of observations; −1 where one was not seen."""
        both, at = _distinct(np.concatenate([self.states, rows]))
        place = np.full(len(both), -1, dtype=np.intp)
        place[at[: len(self.states)]] = np.arange(len(self.states))
        return place[at[len(self.states) :]]


class Wish(NamedTuple):
    """How to explore: Q with a bonus, as a table."""

    states: dict[tuple[float, ...], int]
    Q: Array
    tried: NDArray[np.bool_]  # the inputs that were, when this was wished
    candidates: Array


class Tables(Episodes):
    """Judges posteriors in a world of categories, as `Imagination` does in one of numbers."""

    at_once = True

    def __init__(self, observations: Observations, actions: Actions, gamma: float, budget: int) -> None:
        assert actions.candidates is not None
        super().__init__(gamma)
        self.split, self.budget, self.candidates = observations.columns, budget, actions.candidates
        self.growth, self.outgrown = 1.0, False
        self.explorer: Wish | None = None
        self._counts: Counts | None = None

    @property
    def ready(self) -> bool:
        return self._counts is not None

    def learn(self, experience: Experience, rng: np.random.Generator, search: bool = True) -> None:
        split, A = self.split, len(self.candidates)
        before = 0 if self._counts is None else int(self._counts.tried.sum())
        ended = experience.discounts == 0.0
        seen = np.concatenate([experience.inputs[:, :split], experience.following[~ended, :split]])
        states, number = _distinct(seen)
        n = len(experience.inputs)
        at = number[:n] * A + self._action(experience.inputs)
        visits = np.bincount(at, minlength=len(states) * A)
        rewards = np.bincount(at, experience.rewards, len(states) * A) / np.maximum(visits, 1)
        pairs, count = np.unique(at[~ended] * len(states) + number[n:], return_counts=True)
        at, following = np.divmod(pairs, len(states))
        shape = len(states), A
        self._counts = Counts(
            states,
            visits.reshape(shape),
            rewards.reshape(shape),
            at,
            following,
            count / visits[at],
        )
        self.growth = float(self._counts.tried.sum() > before)  # any input that was never tried is worth it
        self.outgrown = False
        self.earned(experience)

    def _action(self, X: Array) -> NDArray[np.intp]:
        """Which candidate each input has."""
        return (X[:, None, self.split :] == self.candidates).all(axis=2).argmax(axis=1)

    def values_of(self, model: SparseGPSarsa) -> Values | None:
        return values_of(model, self.candidates, self.split, self.gamma)

    def plan(self, values: Any, row: Array) -> Array:
        """The best action row."""
        if isinstance(values, Values):
            return values.greedy(row[None])[0]
        at = values.states.get(tuple(row))
        return values.candidates[0 if at is None else int(values.Q[at].argmax())]

    def some_starts(self, experience: Experience, rng: np.random.Generator) -> Array:
        """Where episodes began, as far as it is known what follows; else anywhere."""
        counts, starts = self._counts, np.array(self.starts)
        assert counts is not None
        known = starts[counts.number(starts) >= 0]
        return known if len(known) else counts.states

    def judge(self, values: Any, starts: Array, model: SparseGPSarsa | None = None) -> Judged:
        """Who acts by some values: exactly what it would return, if the world were as it has been."""
        counts = self._counts
        assert counts is not None
        S, A = counts.visits.shape
        X = np.zeros((S, self.split + self.candidates.shape[1]))
        X[:, : self.split] = counts.states
        chosen = np.arange(S) * A + values(X).argmax(axis=1)
        tried, rewards = counts.visits.ravel()[chosen] > 0, counts.rewards.ravel()[chosen]
        V, stray = np.zeros(S), np.zeros(S)
        for step in range(self.steps):
            known = rewards + counts.after(V).ravel()[chosen]
            V = np.where(tried, known, self.worst(step + 1))
            stray = np.where(tried, counts.after(stray).ravel()[chosen], 1.0)
        at = counts.number(starts)
        returns = np.where(at < 0, self.worst(self.steps), V[at])
        lost = bool(((at < 0) | (stray[at] > 0.0)).any())
        return Judged(values, returns, counts.states, lost, len(starts), model)

    def better(
        self,
        known: list[Judged],
        starts: Array,
        experience: Experience,
        tune: Tuning,
        rng: Any,
        doubted: bool = False,
    ) -> Judged:
        """The best of those known and of two that are planned, the second with more patience."""
        best = max(known, key=lambda judged: judged.mean)
        for gamma in (self.gamma, 1.0 - (1.0 - self.gamma) / LONG):
            rows = self._planned(gamma)
            model = tune(rows, gamma)
            model.add_pseudo_inputs(rows.inputs[pivots(model.kernel, rows.inputs, self.budget, NOVEL)])
            values = self.values_of(model.fit(rows))
            assert values is not None
            judged = self.judge(values, starts, model)
            best = judged if judged.mean > best.mean else best
        return best

    def _planned(self, gamma: float) -> Transitions:
        """Every input seen, and one never tried at worst, with what it is worth to who acts best."""
        counts = self._counts
        assert counts is not None
        untried = self.worst(int(REACH / max(1.0 - gamma, 1e-3)))
        Q = self._iterated(gamma, np.where(counts.tried, counts.rewards, untried), counts.tried)
        X = np.hstack(
            [np.repeat(counts.states, len(self.candidates), axis=0), np.tile(self.candidates, (len(Q), 1))]
        )
        return Transitions._outcomes(X, Q.ravel())

    def _iterated(self, gamma: float, rewards: Array, going: NDArray[np.bool_]) -> Array:
        """Q of the best policy, by value iteration; where it is not going on, a reward is the last."""
        counts, Q = self._counts, rewards
        assert counts is not None
        for _ in range(SWEEPS):
            Q = np.where(going, rewards + gamma * counts.after(Q.max(axis=1)), rewards)
        return Q

    def seen(self, x: Array, row: Array) -> None:
        """An input; `outgrown` says that it was never tried before, so that to explore is something else."""
        if self.explorer is None or self.outgrown:
            return
        at = self.explorer.states.get(tuple(x[: self.split]))
        self.outgrown = at is None or not self.explorer.tried[at, self._action(x[None])[0]]

    def explore(self, prior: SparseGPSarsa, experience: Experience, tune: Any, rng: Any) -> None:
        """How to act best if each reward were larger by a bonus that fades with the root of the tries."""
        counts = self._counts
        assert counts is not None
        gamma, scale = 1.0 - (1.0 - self.gamma) / PATIENCE, float(np.ptp(experience.rewards)) or 1.0
        bonus = BONUS * scale / np.sqrt(np.maximum(counts.visits, ONCE))
        rewards = np.where(counts.tried, counts.rewards + bonus, bonus / max(1.0 - gamma, 1e-3))
        states = {tuple(row): i for i, row in enumerate(counts.states.tolist())}
        self.explorer = Wish(
            states, self._iterated(gamma, rewards, counts.tried), counts.tried, self.candidates
        )

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, content = super().state()
        content |= {"growth": self.growth, "outgrown": self.outgrown}
        if self._counts is not None:
            arrays |= {f"counts.{name}": array for name, array in self._counts._asdict().items()}
        if self.explorer is not None:
            states = np.array(list(self.explorer.states))
            arrays |= {"wish": self.explorer.Q, "wish.states": states}
            arrays |= {"wish.tried": self.explorer.tried.astype(float)}
        return arrays, content

    def restore(self, arrays: Mapping[str, Any], content: Mapping[str, Any]) -> None:
        super().restore(arrays, content)
        self.growth, self.outgrown = float(content["growth"]), bool(content["outgrown"])
        if "counts.states" in arrays:
            self._counts = Counts(*(np.array(arrays[f"counts.{name}"]) for name in Counts._fields))
        if "wish" in arrays:
            states = {tuple(row): i for i, row in enumerate(arrays["wish.states"].tolist())}
            Q, tried = np.array(arrays["wish"]), np.array(arrays["wish.tried"], dtype=np.bool_)
            if not Q.shape == tried.shape == (len(states), len(self.candidates)):
                raise ValueError(f"the wish has shapes {Q.shape} and {tried.shape}")
            self.explorer = Wish(states, Q, tried, self.candidates)
