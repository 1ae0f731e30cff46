"""What real episodes were like, what imagined ones returned, and what whoever imagines them can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpsarsa._validation import Array
from gpsarsa.control.experience import Experience
from gpsarsa.control.rules import Rule
from gpsarsa.control.values import Values
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["Episodes", "Judged", "Tuning"]

KEPT = 200  # start states
REACH, LONGER = 10.0, 1.5  # length of imagined episodes before one was cut off: over 1 − γ, and the longest

Tuning = Callable[[Transitions, float], SparseGPSarsa]  # a model, without pseudo-inputs, for a discount


@dataclass
class Judged:
    """A policy, its imagined returns from some start states, and the observations on the way."""

    values: Values | Rule
    returns: Array
    visited: Array
    lost: bool  # whether it goes, from a state where real episodes began, where nobody has been
    starts: int  # how many of the start states, the first ones, are such
    model: SparseGPSarsa | None = None

    @property
    def mean(self) -> float:
        return float(self.returns.mean())


class Episodes(ABC):
    """Who imagines episodes, of numbers (`Imagination`) or of categories (`Tables`), and knows what real ones
    were like: where they began, how long they were, what they earned at least."""

    at_once = False  # whether what is new can be learnt as soon as it is seen: it takes milliseconds
    growth: float  # of what is known, when it was last learnt
    outgrown: bool  # whether more was seen since than is known
    explorer: Any  # by which to leave what is known, if there is a way

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.starts: deque[Array] = deque(maxlen=KEPT)
        self.longest = self.limit = 0  # steps of an episode, and of one that was cut off
        self.least = self.last = 0.0  # of the rewards while an episode goes on, and of its last one

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether the world was learnt."""

    @abstractmethod
    def learn(self, experience: Experience, rng: np.random.Generator, search: bool = True) -> None:
        """What the world does; without `search` with the hyperparameters there are."""

    @abstractmethod
    def values_of(self, model: SparseGPSarsa) -> Values | None:
        """By which a posterior acts; None where its kernel does not allow it."""

    @abstractmethod
    def plan(self, values: Any, row: Array) -> Array:
        """The best action row for an observation row."""

    @abstractmethod
    def some_starts(self, experience: Experience, rng: np.random.Generator) -> Array:
        """Where imagined episodes begin."""

    @abstractmethod
    def judge(self, values: Any, starts: Array, model: SparseGPSarsa | None = None) -> Judged:
        """Who acts by some values, by imagined returns."""

    @abstractmethod
    def better(
        self,
        known: list[Judged],
        starts: Array,
        experience: Experience,
        tune: Tuning,
        rng: Any,
        doubted: bool = False,
    ) -> Judged:
        """The best of those known and of some that are found in imagination."""

    @abstractmethod
    def seen(self, x: Array, row: Array) -> None:
        """An observation row followed an input."""

    @abstractmethod
    def explore(self, prior: SparseGPSarsa, experience: Experience, tune: Tuning, rng: Any) -> None:
        """Find how to leave what is known."""

    def finished(self, length: int, truncated: bool) -> None:
        """A real episode had so many steps."""
        self.longest = max(self.longest, length)
        if truncated:
            self.limit = max(self.limit, length)

    @property
    def steps(self) -> int:
        """Of an imagined episode: as many as one was cut off after; before that, more than any had, and no
        fewer than a discount reaches."""
        if self.limit >= self.longest > 0:
            return self.limit
        return max(int(LONGER * self.longest), int(REACH / max(1.0 - self.gamma, 1e-2)))

    def earned(self, experience: Experience, usual: bool = False) -> None:
        """All rewards there were; `usual`: where nothing is known, a step earns what it mostly does."""
        ended = experience.discounts == 0.0
        going = np.append(experience.rewards[~ended], 0.0)
        self.least = min(float(np.median(going)), 0.0) if usual else float(going.min())
        self.last = float(experience.rewards[ended].min(initial=0.0))

    def worst(self, steps: float) -> float:
        """What so many steps are worth at worst where nothing is known: the episode may end, or go on with
        the smallest reward."""
        return min(0.0, self.last, self.least * steps)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        starts = {"starts": np.array(self.starts)} if self.starts else {}
        return starts, {"lengths": [self.longest, self.limit], "least": [self.least, self.last]}

    def restore(self, arrays: Mapping[str, Array], content: Mapping[str, Any]) -> None:
        self.starts = deque((row.copy() for row in arrays.get("starts", ())), maxlen=KEPT)
        self.longest, self.limit = (int(n) for n in content["lengths"])
        self.least, self.last = (float(x) for x in content["least"])
