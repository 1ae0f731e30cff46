"""Touching what is not observed, as a lander does the ground: where it happens, and what it is worth.

What happens there is rare, violent and not worth foreseeing: imagined episodes are over as soon as a flag is
not as usual. Whether a step touches is a regression on 0 and 1 at where it leads through the air,

    0    where real episodes went on
    1    where they first touched; where they would have gone on to had there been nothing to touch; and where
         they were then

and in between the share of those who touched. An episode that stays near the ground for long would outvote
all others: of each one only some steps are learnt from. What a touch earns is all that a real episode still
earned from its first one: a regression by where it would have led, and a number for the action that was taken
most often since. That whose touches earned most beside what was to be expected is the one to take there
(`rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.control import shapes
from gpsarsa.control.lessons import NEAR, Lesson, around, spread, thinned
from gpsarsa.control.regression import FIT_FROM, NOISE, Regression, sampled
from gpsarsa.control.world import strange

__all__ = ["Contact"]

EFFORT, FINE = 3, 1e-3  # ground has edges: by more rows, and leaving less of the variance unexplained
AROUND = 10  # times as many rows next to touches as there are touches, by which contact is learnt
FROM_EPISODE = 20  # steps of each that went on: who hovers for a thousand says it once
THROUGH, DEEPER = 20, 4  # steps to go on beyond a touch, and every how many of them are learnt
WORST = 0.25  # touches that earned less than the others count as no worse than the best of this share
HOPE = 3.0  # standard deviations by which what an action earns since may be underestimated
SHRINK = 1.0  # touches that an action is taken to have had that earned no more than others

Flight = Callable[[Array], Array]  # where inputs lead through the air


class Contact:
    """Of observations of `split` columns, with `choices` among the actions to take since."""

    def __init__(self, split: int, choices: Array) -> None:
        self.split, self.choices = split, choices
        self.touching = False  # whether imagined episodes are over where a flag is not as usual
        self.rest = np.full(choices.shape[1], np.nan)  # the action to take there
        self.rests = np.zeros((2, len(choices)))  # what is known of each of the choices
        self.fair = -np.inf  # what the best quarter of touches earned at least

    def where(self, width: Array, usual: Array) -> Regression:
        """That of contact, before it is learnt."""
        kernel = shapes.contact(width, np.flatnonzero(np.isnan(usual)))[0]
        return Regression(kernel, self.split + self.choices.shape[1], NOISE)

    def what(self, width: Array, usual: Array) -> Regression:
        """That of what touches earn, before it is learnt."""
        kernel = shapes.touch(width, np.flatnonzero(np.isnan(usual)))[0]
        return Regression(kernel, self.split + self.choices.shape[1])

    def learn_where(
        self, where: Regression, lesson: Lesson, touching: NDArray[np.bool_], flight: Flight, usual: Array
    ) -> None:
        """Whether steps touch, from the rows that are first touches and those that went on."""
        assert lesson.episode is not None
        split, rng = self.split, lesson.rng
        on = sampled(np.flatnonzero(strange(lesson.states, usual)), NEAR // 2, rng)
        through, inside = lesson.inputs[sampled(np.flatnonzero(touching), NEAR, rng)], list[Array]()
        for _ in range(THROUGH):
            through[:, :split] = flight(through)[:, :split]
            inside.append(through[:, :split].copy())
        touched, deeper = inside[0], np.concatenate([*inside[DEEPER::DEEPER], lesson.inputs[on, :split]])
        going = thinned(np.flatnonzero(~lesson.ended), lesson.episode, FROM_EPISODE, rng)
        outside = flight(lesson.inputs[going])[:, :split]
        width, states = spread(lesson, touched), np.concatenate([touched, outside])

        def rows(near: int) -> tuple[Array, Array]:
            chosen = around(states / width, np.arange(len(states)) < len(touched), rng, near)
            inputs = np.zeros((len(chosen) + len(deeper), lesson.inputs.shape[1]))
            inputs[:, :split] = np.concatenate([states[chosen], deeper])
            target = np.ones(len(inputs))
            target[len(touched) : len(chosen)] = 0.0
            return inputs, target

        if lesson.search or not where.known:
            where.kernel, bounds = shapes.contact(width, np.flatnonzero(np.isnan(usual)))
            where.noise = NOISE  # anew: what was found from less may be far off
            where.search(*rows(AROUND * len(touched)), bounds, rng, effort=EFFORT)
        where.known = True
        inputs, target = rows(FIT_FROM)  # in true shares
        where.fit(inputs, target, rng, enough=FINE, among=len(inputs))

    def learn_what(
        self, what: Regression, lesson: Lesson, ended: NDArray[np.bool_], flight: Flight, usual: Array
    ) -> None:
        """What touches earned; among the worst it is not told which is worse."""
        assert lesson.since is not None
        since, X, earned = lesson.since[ended], flight(lesson.inputs[ended]), lesson.rewards[ended]
        worst, self.fair = np.quantile(earned, [WORST, 1.0 - WORST])
        earned, by_rest = np.maximum(earned, worst), np.zeros(len(earned))
        bounds = shapes.touch(spread(lesson, X), np.flatnonzero(np.isnan(usual)))[1]
        for _ in range(2):
            what.learn(X, earned - by_rest, bounds, lesson.rng, lesson.search, outliers=False)
            likely = what(X)
            self.rests = self.compare(np.where(likely >= np.median(likely), since, -1), earned - likely)
            by_rest = np.where(since < 0, 0.0, self.rests[0, since])
        self.rest = self.choices[int(self.rests[0].argmax())].copy()

    def compare(self, since: NDArray[np.intp], more: Array) -> Array:
        """How much `more` than expected touches earned by each action that may be taken since: means (a row),
        of which one that few took is believed little, and standard deviations. Who touches hard is lost
        whatever follows: only the better half tells, of the others `since` is −1."""
        taken = [more[since == i] for i in range(len(self.choices))]
        counts = np.array([len(own) + SHRINK for own in taken])
        return np.array([[own.sum() for own in taken] / counts, more.std() / np.sqrt(counts)])

    def worth(self, rest: Array) -> float:
        """How much more than expected touches earn by an action taken since."""
        same = (self.choices == rest).all(axis=1)
        return float(self.rests[0, same].sum())

    @property
    def hopeful_rest(self) -> Array:
        """An action for where a flag is not as usual that may be the best, as far as is known."""
        means, deviations = self.rests
        return self.choices[int(np.argmax(means + HOPE * deviations))]

    # -- files --------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        return {"rest": self.rest, "rests": self.rests, "touching": np.array([self.touching])}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self.touching = bool(np.all(arrays["touching"]))
        self.rest = check.rows(arrays["rest"][None], "rest", len(self.rest), finite=False)[0].copy()
        self.rests = check.rows(arrays["rests"], "rests", len(self.choices)).copy()
        if len(self.rests) != 2:
            raise ValueError(f"rests has {len(self.rests)} rows; expected 2")
