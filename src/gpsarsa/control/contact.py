"""Touching what is not observed, as a lander does the ground: where it happens, and what it is worth.

What happens there is rare, violent and not worth foreseeing: imagined episodes are over as soon as a flag is
not as usual. Whether a step touches is a regression on 0 and 1 at where it leads through the air,

    0    where real episodes went on
    1    where they first touched; where they would have gone on to had there been nothing to touch; and where
         they were then

and in between the share of those who touched. An episode that stays near the ground for long would outvote
all others: of each one only some steps are learnt from. What a touch earns is all that a real episode still
earned from its first one: a regression by where it would have led, and a number for the action that was taken
most often since. That by which touches like the newest earn most is the one to take there (`rest`): who
touches hard is lost whatever follows, so that each action is known only where it was taken after touches like
these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.control import shapes
from gpsarsa.control.lessons import NEAR, Lesson, Rests, around, spread, thinned
from gpsarsa.control.regression import FIT_FROM, NOISE, Regression, as_rows, sampled
from gpsarsa.control.world import strange
from gpsarsa.exact import GPSarsa
from gpsarsa.kernels import RBF, Delta

__all__ = ["Contact"]

EFFORT, FINE = 3, 1e-3  # ground has edges: by more rows, and leaving less of the variance unexplained
AROUND = 10  # times as many rows next to touches as there are touches, by which contact is learnt
FROM_EPISODE = 20  # steps of each that went on: who hovers for a thousand says it once
THROUGH, DEEPER = 20, 4  # steps to go on beyond a touch, and every how many of them are learnt
WORST = 0.25  # touches that earned less than the others count as no worse than the best of this share
FAIR = 0.1  # of touches earn more than `fair`
NEWEST, TOLD_BY = 20, 300  # touches by which actions since are compared, and from which that is learnt
MIDDLE = 0.1  # of where touches were lies beyond, on each side, what one of them says of others
ALIKE, CHANCE = 0.5, 0.3  # what actions since have in common; variance of what touches earn by chance, of 1
CAUTION, HOPE = 1.0, 2.0  # standard deviations by which what an action earns since may be over-, underrated

Flight = Callable[[Array], Array]  # where inputs lead through the air


class Contact:
    """Of observations of `split` columns, with `choices` among the actions to take since."""

    def __init__(self, split: int, choices: Array) -> None:
        self.split, self.choices = split, choices
        self.touching = False  # whether imagined episodes are over where a flag is not as usual
        self.rest = np.full(choices.shape[1], np.nan)  # the action to take there
        self.rests = np.zeros((2, len(choices)))  # what is known of each of the choices
        self.fair = -np.inf  # what the best tenth of touches earned at least

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
        assert lesson.rests is not None
        since, X, earned = lesson.since[ended], flight(lesson.inputs[ended]), lesson.rewards[ended]
        worst, self.fair = np.quantile(earned, [WORST, 1.0 - FAIR])
        earned, width, columns = np.maximum(earned, worst), spread(lesson, X), np.flatnonzero(np.isnan(usual))
        self.rests = self.compare(lesson.states[:, columns], lesson.rests, worst)
        self.rest = self.ranked(-CAUTION)[0].copy()
        by_rest = np.where(since < 0, 0.0, self.rests[0, since])
        bounds = shapes.touch(width, columns)[1]
        what.learn(X, earned - by_rest, bounds, lesson.rng, lesson.search, outliers=False)

    def compare(self, states: Array, rests: Rests, worst: float) -> Array:
        """What each action earns where it is taken after touches like the newest, beside what those did that
        were taken, and the standard deviations of that: a regression on where it began and which it was."""
        rows, choices = rests.rows[-TOLD_BY:], rests.choices[-TOLD_BY:]
        earned = np.maximum(rests.earned[-TOLD_BY:], worst)
        scale = float(np.std(earned)) if len(rows) else 0.0
        if not scale > 0.0:
            return np.zeros((2, len(self.choices)))
        low, high = np.quantile(states[rows], [MIDDLE, 1.0 - MIDDLE], axis=0)
        where = np.where(high > low, high - low, 1.0)
        inputs = np.column_stack([states[rows], choices])
        d = len(where)
        model = GPSarsa(RBF(where, 1.0, range(d)) * Delta(d, share=ALIKE), CHANCE)
        model.fit(as_rows(inputs, (earned - earned.mean()) / scale))
        newest = inputs[-NEWEST:]
        found = []
        for action in range(len(self.choices)):
            asked = newest.copy()
            asked[:, d] = action
            mean, covariance = model.predict(asked, return_cov=True)
            found.append([mean.mean(), np.sqrt(covariance.mean())])
        means, deviations = np.transpose(found)
        return scale * np.array([means - model.predict(newest).mean(), deviations])

    def worth(self, rest: Array) -> float:
        """How much more than expected touches earn by an action taken since."""
        same = (self.choices == rest).all(axis=1)
        return float(self.rests[0, same].sum())

    @property
    def hopeful_rests(self) -> Array:
        """The actions to take since, first the one that may be the best."""
        return self.ranked(HOPE)

    def drawn_rest(self, rng: np.random.Generator) -> Array:
        """One of the actions to take since, as often as it may be the best."""
        means, deviations = self.rests
        drawn = means + deviations * rng.standard_normal(len(means))
        return self.choices[int(drawn.argmax())].copy()

    def ranked(self, bonus: float) -> Array:
        """The actions to take since, by what they earn and so many standard deviations more."""
        means, deviations = self.rests
        return self.choices[np.argsort(-(means + bonus * deviations), kind="stable")]

    # -- files --------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        return {"rest": self.rest, "rests": self.rests, "touching": np.array([self.touching])}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self.touching = bool(np.all(arrays["touching"]))
        self.rest = check.rows(arrays["rest"][None], "rest", len(self.rest), finite=False)[0].copy()
        self.rests = check.rows(arrays["rests"], "rests", len(self.choices)).copy()
        if len(self.rests) != 2:
            raise ValueError(f"rests has {len(self.rests)} rows; expected 2")
