"""What dynamics are learnt from: the rows, and where episodes are over for what is imagined."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsarsa._validation import Array
from gpsarsa.control.regression import FINE, sampled
from gpsarsa.control.shapes import LEAST_LENGTHSCALE
from gpsarsa.control.world import strange

__all__ = ["NEAR", "Lesson", "Rests", "around", "spread", "thinned", "touched", "unusual"]

NEAR = 200  # rows next to those where something is decided, and as many others, by which it is learnt
WIDTHS = 3.5  # standard deviations that are a column's width there
LONG = 10  # steps of one action that say what it does, unless the episode was over


class Rests(NamedTuple):
    """Stretches after touches in which one action was taken wherever a flag was not as usual."""

    rows: NDArray[np.intp]  # where each begins
    choices: NDArray[np.intp]  # the action's number
    earned: Array  # until the next one begins


class Lesson(NamedTuple):
    """What is learnt from, and how."""

    states: Array
    inputs: Array  # states and actions; with flags as they are after the step, once these are learnt
    following: Array  # the next observations
    rewards: Array
    ended: NDArray[np.bool_]
    flag: NDArray[np.bool_]  # which columns are flags
    width: Array  # of the columns
    rng: np.random.Generator
    search: bool  # for hyperparameters
    since: NDArray[np.intp] | None = None  # after a touch the action that was taken most often, or −1
    later: NDArray[np.bool_] | None = None  # which steps came after the first touch of an episode
    episode: NDArray[np.intp] | None = None  # the number of each step's episode
    rests: Rests | None = None  # what was done after touches

    def about(self, rows: NDArray[np.bool_], outcomes: Array, bounds: dict[str, Any]) -> tuple[Any, ...]:
        """What a regression learns from some of the rows."""
        return self.inputs[rows], outcomes[rows], bounds, self.rng, self.search


def spread(lesson: Lesson, rows: Array) -> Array:
    """How widely some rows lie: what matters there may be a small part of a column's range."""
    width = lesson.width
    own = WIDTHS * rows[:, : len(width)].std(axis=0)
    return np.where(own > LEAST_LENGTHSCALE * FINE * width, np.minimum(own, width), width)


def around(
    scaled: Array, decisive: NDArray[np.bool_], rng: np.random.Generator, least: int = NEAR
) -> NDArray[np.intp]:
    """The decisive rows, at least so many next to them, and some others."""
    first, others = np.flatnonzero(decisive), np.flatnonzero(~decisive)
    nearness = np.array([np.square(scaled[first] - row).sum(axis=1).min() for row in scaled[others]])
    near = np.argsort(nearness, kind="stable")[: max(least, 3 * len(first))]
    rows = np.union1d(near, sampled(np.arange(len(others)), NEAR, rng))
    return np.concatenate([first, others[rows]])


def unusual(lesson: Lesson, usual: Array) -> NDArray[np.bool_]:
    """Which steps begin or end with such an observation."""
    before, after = (strange(states, usual) for states in (lesson.states, lesson.following))
    return before | after


def touched(lesson: Lesson, usual: Array, choices: Array) -> Lesson:
    """Where a flag is not as usual, episodes are over, with all rewards that they still had; `since` says
    which of the choices was taken most often until their real end, and `later` what came after the first
    touch: who bounces a hundred times has touched once. Inputs do not tell flags."""
    over, split = unusual(lesson, usual), lesson.states.shape[1]
    rewards, since, later = lesson.rewards.copy(), np.full(len(over), -1), np.zeros(len(over), np.bool_)
    follows, taken = _follows(lesson), _nearest(lesson.inputs[:, split:], choices)
    down, stretches = strange(lesson.states, usual), list[tuple[int, int, float]]()
    for i in np.flatnonzero(over & ~down):
        if later[i]:
            continue
        way, at = dict[int, None](), int(follows[i])
        while at >= 0 and at not in way:
            way[at] = None
            at = int(follows[at])
        if way:
            rows = list(way)
            rewards[i] += lesson.rewards[rows].sum()
            since[i] = np.bincount(taken[rows]).argmax()
            later[rows] = True
            stretches += _stretches(rows, taken, down, lesson.rewards)
    inputs, flag = lesson.inputs.copy(), np.flatnonzero(lesson.flag)
    inputs[:, flag] = usual[flag]
    ended = lesson.ended | over
    numbers = np.array(stretches).reshape(-1, 3)
    rests = Rests(numbers[:, 0].astype(np.intp), numbers[:, 1].astype(np.intp), numbers[:, 2])
    return lesson._replace(
        inputs=inputs, rewards=rewards, ended=ended, since=since, later=later, episode=_episodes(follows),
        rests=rests,
    )  # fmt: skip


def _stretches(
    way: list[int], taken: NDArray[np.intp], down: NDArray[np.bool_], rewards: Array
) -> list[tuple[int, int, float]]:
    """Of the rows after a touch, in their order: where each stretch of one action begins, which one, and what
    it earned. A few steps say nothing unless they are the last."""
    at = [place for place, row in enumerate(way) if down[row]]
    begins = [k for k, place in enumerate(at) if k == 0 or taken[way[place]] != taken[way[at[k - 1]]]]
    found = []
    for k, after in zip(begins, [*begins[1:], len(at)], strict=True):
        last = after == len(at)
        if last or after - k >= LONG:
            stretch = way[at[k] : None if last else at[after]]
            found.append((way[at[k]], int(taken[way[at[k]]]), float(rewards[stretch].sum())))
    return found


def _episodes(follows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The number of each row's episode, from the row that goes on where it leads."""
    numbers, count = np.full(len(follows), -1), 0
    for i, following in enumerate(follows):
        if numbers[i] < 0:
            numbers[i], count = count, count + 1
        if following >= 0:
            numbers[following] = numbers[i]
    return numbers


def thinned(
    rows: NDArray[np.intp], episode: NDArray[np.intp], most: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """At most so many rows of each episode, at random."""
    rows = rng.permutation(rows)
    rows = rows[np.argsort(episode[rows], kind="stable")]
    _, first, count = np.unique(episode[rows], return_index=True, return_counts=True)
    return np.sort(rows[np.arange(len(rows)) - np.repeat(first, count) < most])


def _follows(lesson: Lesson) -> NDArray[np.intp]:
    """The row that goes on where each one leads, −1 where there is none: the next one, or where episodes
    are interleaved any other."""
    at = {state.tobytes(): i for i, state in enumerate(lesson.states)}
    follows = np.array([at.get(state.tobytes(), -1) for state in lesson.following], dtype=np.intp)
    direct = np.flatnonzero((lesson.following[:-1] == lesson.states[1:]).all(axis=1))
    follows[direct] = direct + 1
    follows[lesson.ended] = -1
    return follows


def _nearest(actions: Array, choices: Array) -> NDArray[np.intp]:
    distance = np.stack([np.square(actions - choice).sum(axis=1) for choice in choices])
    return distance.argmin(axis=0)
