"""What an environment does, learnt from the transitions it showed.

    s′ = s + f(s, a)                     one regression for each column of the observation
    s′ = one of two values               where a column has no others (a contact, say): a flag, by a
                                         regression on its changes, −1, 0 or 1; by chance where it is not
                                         sure. What else happens depends on the flags as they are after
                                         the step, and on whether they have just changed
    r  = g(s, a)                         while the episode goes on
    r  = V(s) − V(s′) + c(a)             instead, where it leaves little of rewards it was not learnt from
                                         beside what g leaves: see `potential`
    r  = g(s, a)                         another one, for the last reward
    the episode ends                     beyond every value of a column at which one ever went on, where
                                         some ended; elsewhere where h(s′) > ½, a regression on 0 (it
                                         went on) and 1 (it ended)

Two columns whose squares always have the same sum, as an angle's cosine and sine, lie on a circle, and what
is imagined stays there: errors too small to matter in one step would lead away from it in a hundred.

Where most ends that no column explains come while flags are not as usual, as after a lander touched the
ground, what happens there is rare, violent and not worth foreseeing: imagined episodes are over as soon as a
flag is not as usual, by chance, h(s, a). The last reward is all that real ones still earned from there, by
where the step would have led and the action that they took most often since; that whose touches earned most,
beside what others did who came in the same way, is the one to take there (`rest`).

Each is a sparse Gaussian process (SparseGPSarsa with γ = 0; for V, γ = 1) whose hyperparameters are learnt by
the evidence. Physics is smooth but for walls and contacts, whose few rows would blur everything else: rows
that lie far from the fit are left out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.control import potential
from gpsarsa.control.experience import Experience
from gpsarsa.control.lessons import Lesson, touched, unusual
from gpsarsa.control.regression import FINE, FIT_FROM, LEAST_NOISE, NOISE, Regression, some
from gpsarsa.control.spaces import Actions, Observations, Scaling
from gpsarsa.control.world import SURE, TURN, World, check_partners, strange
from gpsarsa.kernels import RBF, Delta, Kernel, Matern32, Product, Sum

__all__ = ["Dynamics"]

END_PSEUDO_INPUTS, PASSES = 200, 3  # of ends; fits, each with what the last one mistook
LENGTHSCALE, LEAST_LENGTHSCALE, MOST_LENGTHSCALE = 0.5, 0.05, 10.0  # of a column's visited range
LEAST_SHARE, MOST_SHARE = 0.01, 0.9999  # between discrete actions
LEAST_VARIANCE, MOST_VARIANCE, MOST_NOISE = 0.01, 1e3, 1.0  # outcomes have variance 1
WIDTHS = 3.5  # standard deviations that are a column's width where a flag changes
MOST_END_NOISE = 1e-4
LEAST_TOUCH, LEAST_TOUCH_NOISE = 0.15, 0.1  # what touches earn: few know it, and there is chance in it
TOUCH_VARIANCE, LEAST_TOUCH_VARIANCE, MOST_TOUCH_VARIANCE = 0.1, 1e-3, 10.0  # of each column's part in that
WORST = 0.25  # touches that earned less than the others count as no worse than the best of this share
HOPE = 2.0  # standard deviations by which what an action earns since may be underestimated
SHRINK = 3.0  # touches that an action is taken to have had that earned no more than others
LEAST_END_VARIANCE, MOST_END_VARIANCE = 1e-4, 10.0
TOUCHED, MOST_TOUCHED = 3, 0.3  # different inputs, and share of all, that led to a column's extreme: a wall
FELL = 3  # episodes that ended beyond where any went on: a brink
NEW, BEYOND = 0.02, 0.1  # so far outside, of a column's range, begins what is new; of its reach, what is lost
ROUND = 1e-3  # columns lie on a circle where the sum of their squares varies by so much less than these
FEW = 7  # continuous actions that are told apart where a flag is not as usual
RANGES = "walls", "known", "seen", "brinks", "flags"
LEAST_POTENTIAL_NOISE = 1e-3  # variance of V's noise
NEAR = 200  # rows next to the ended ones, and as many others, by which ends are learnt
AROUND = 6  # times as many rows next to touches as there are touches, by which contact is learnt
THROUGH, DEEPER = 20, 4  # steps to go on beyond a touch, and every how many of them are learnt


class Dynamics:
    """The regressions of one environment, whose observations are numbers."""

    def __init__(self, observations: Observations, actions: Actions) -> None:
        self.split, self.columns = observations.columns, observations.columns + actions.columns
        self.actions, self.choices = actions, actions.some(FEW, FEW)
        self.bounds = np.array([observations.low, observations.high])
        self.regressions: list[Regression] = []  # in the order of `World`
        self.walls = self.known = self.seen = self.brinks = np.zeros((2, self.split))
        self.flags = np.full((2, self.split), np.nan)
        self.partners = np.full(self.split, -1, dtype=np.int64)  # of columns on a circle: the other one
        self.rest = np.full(actions.columns, np.nan)  # the action to take where a flag is not as usual
        self.rests = np.zeros((2, len(self.choices)))  # what is known of each of the choices there
        self.fair = -np.inf  # what the best quarter of touches earned at least
        self.touching = False  # whether imagined episodes are over where a flag is not as usual
        self.growth = 1.0  # of what is known, when it was last learnt: the largest share of a column's range
        self._world: World | None = None

    def learn(self, experience: Experience, rng: np.random.Generator, search: bool = True) -> None:
        """From all that is stored; without `search` with the hyperparameters there are."""
        X, following = experience.inputs, experience.following[:, : self.split]
        seen = np.concatenate([X[:, : self.split], following])
        ends = np.array([seen.min(axis=0), seen.max(axis=0)])
        width = Scaling.of(seen, *ends).width
        flag = ((seen == ends[0]) | (seen == ends[1])).all(axis=0) & (ends[0] < ends[1])
        self.partners = _partners(seen)
        free = self._walls(X, following, ends, flag)
        before, self.seen = self.seen, ends + [[-NEW], [NEW]] * width
        self.growth = float(np.max(1.0 - np.ptp(before, axis=0) / np.ptp(self.seen, axis=0)))
        self._shapes(flag, width)
        self.flags = self._flags(flag, ends, X)
        lesson = Lesson(
            X[:, : self.split], X, following, experience.rewards, experience.discounts == 0.0, flag, width,
            rng, search,
        )  # fmt: skip
        explained = self._find_brinks(lesson)
        if self.touching:
            lesson = touched(lesson, self.flags[0], self.choices)
        lesson = self._learn_columns(lesson, free)
        self._learn_ends(lesson, explained)
        self._learn_rewards(lesson)
        self.known = ends + [[-BEYOND], [BEYOND]] * self._reach(width)
        self._world = None

    def _walls(self, X: Array, following: Array, ends: Array, flag: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Find the walls; which transitions did not run into one."""
        touching = np.array([following == end for end in ends]) & ~flag
        times = np.array([[len(np.unique(X[rows], axis=0)) for rows in side.T] for side in touching])
        walls = (times >= TOUCHED) & (times <= MOST_TOUCHED * len(X))
        self.walls = np.where(walls, ends, self.bounds)
        stopped = (touching & walls[:, None]) | ((following == self.bounds[:, None]) & ~flag)
        free: NDArray[np.bool_] = ~stopped.any(axis=(0, 2))  # what a wall stopped says nothing of the rest
        return free if np.mean(free) >= 0.5 else np.ones(len(X), dtype=np.bool_)  # few values at all

    def _shapes(self, flag: NDArray[np.bool_], width: Array) -> None:
        """A regression for everything that is to be learnt, anew for a column that became a flag or ceased
        to be one."""
        others = [False] * 4
        flags, were = [*flag, *others], [*~np.isnan(self.flags[0]), *others]
        for j in range(self.split + 4):
            if j < len(self.regressions) and were[j] == flags[j]:
                continue
            own = {self.split: self._end_kernel, self.split + 3: self._potential_kernel}
            kernel = own.get(j, self._kernel)(width)[0]
            self.regressions[j : j + 1] = [
                Regression(kernel, self.columns, MOST_END_NOISE if j == self.split else NOISE)
            ]

    def _flags(self, flag: NDArray[np.bool_], ends: Array, X: Array) -> Array:
        """The values of flags, the usual one first; which that is stays as it was."""
        usual = np.median(X[:, : self.split], axis=0) == ends[1]
        values = np.where(flag, np.where(usual, ends[::-1], ends), np.nan)
        return np.where(np.isnan(self.flags) | np.isnan(values), values, self.flags)

    def _reach(self, width: Array) -> Array:
        """How much of each column matters: its least lengthscale."""
        numbers = np.append(np.flatnonzero(np.isnan(self.flags[0])), self.split + 1)
        used = [self.regressions[j] for j in numbers if len(self.regressions[j].weights)]
        lengthscales = [r.kernel.parameters["0.lengthscales"] for r in used]
        return np.min([MOST_LENGTHSCALE * width, *lengthscales], axis=0)

    def _kernel(self, width: Array) -> tuple[Kernel, dict[str, Any]]:
        """The kernel of an outcome at first, and the bounds of its hyperparameters."""
        bounds: dict[str, Any] = {
            "0.lengthscales": (LEAST_LENGTHSCALE * width, MOST_LENGTHSCALE * width),
            "0.variance": (LEAST_VARIANCE, MOST_VARIANCE),
            "noise_variance": (LEAST_NOISE, MOST_NOISE),
        }
        columns, own = list(range(self.split)), list(range(self.split, self.columns))
        parts: list[Kernel] = [RBF(LENGTHSCALE * width, 1.0, columns)]
        if self.actions.continuous:
            reach = self.actions.high - self.actions.low
            reach = np.where(reach > 0.0, reach, 1.0)
            parts.append(RBF(LENGTHSCALE * reach, 1.0, own))
            bounds["1.lengthscales"] = LEAST_LENGTHSCALE * reach, MOST_LENGTHSCALE * reach
        else:
            parts += [Delta(column, share=0.5) for column in own]
            bounds |= {f"{i}.share": (LEAST_SHARE, MOST_SHARE) for i in range(1, len(parts))}
        return Product(*parts), bounds

    def _end_kernel(self, width: Array) -> tuple[Kernel, dict[str, Any]]:
        """Ends are often a matter of one column, at whatever value of the others: a term for each, and one
        for all of them together."""
        terms: list[Kernel] = [RBF(LENGTHSCALE * w, 0.1, [c]) for c, w in enumerate(width)]
        terms.append(RBF(LENGTHSCALE * width, 0.1, list(range(self.split))))
        bounds: dict[str, Any] = {"noise_variance": (LEAST_NOISE, MOST_END_NOISE)}  # an end is no accident
        for i, reach in enumerate([*width, width]):
            bounds[f"{i}.lengthscales"] = LEAST_LENGTHSCALE * reach, MOST_LENGTHSCALE * reach
            bounds[f"{i}.variance"] = LEAST_END_VARIANCE, MOST_END_VARIANCE
        return Sum(*terms), bounds

    def _find_brinks(self, lesson: Lesson) -> NDArray[np.bool_]:
        """Which ends a brink explains; and whether most others come while flags are not as usual."""
        odd = unusual(lesson, self.flags[0])
        self.brinks, explained = _brinks(lesson.following, lesson.ended, odd[:, None] & ~lesson.flag)
        happened = lesson.ended & ~explained
        self.touching = bool(happened.any() and np.mean(odd[happened]) > 0.5)
        return explained

    def _learn_columns(self, lesson: Lesson, free: NDArray[np.bool_]) -> Lesson:
        """Flags first: what else happens depends on them as they are by then, and on whether they have just
        changed. The lesson with such inputs."""
        X, split, flag = lesson.inputs, self.split, lesson.flag
        changes = lesson.following - X[:, :split]
        if flag.any() and not self.touching:
            for j in np.flatnonzero(flag):
                self._learn_flag(self.regressions[j], lesson, changes[:, j] / np.diff(self.flags[:, j]))
            X = np.hstack([np.where(flag, lesson.following + TURN * changes, X[:, :split]), X[:, split:]])
        lesson = lesson._replace(inputs=np.ascontiguousarray(X))
        rows = free & ~lesson.ended if self.touching else free
        for j in np.flatnonzero(~flag):
            self.regressions[j].learn(*lesson.about(rows, changes[:, j], self._bounds(lesson)))
        return lesson

    def _bounds(self, lesson: Lesson) -> dict[str, Any]:
        return self._kernel(lesson.width)[1]

    def _potential_kernel(self, width: Array) -> tuple[Kernel, dict[str, Any]]:
        """V of observations: it may have kinks, as a distance has."""
        bounds = {
            "lengthscales": (LEAST_LENGTHSCALE * width, MOST_LENGTHSCALE * width),
            "variance": (1.0, MOST_VARIANCE**2),
            "noise_variance": (LEAST_POTENTIAL_NOISE, MOST_NOISE),
        }
        return Matern32(LENGTHSCALE * width, 100.0, list(range(self.split))), bounds

    def _learn_rewards(self, lesson: Lesson) -> None:
        """The last ones, and those while episodes go on: as they are, or as V and what actions cost."""
        last, V, left = self.regressions[self.split + 2], self.regressions[self.split + 3], 0.0
        ended = lesson.ended & self._before(lesson)
        self.rest = np.full(self.actions.columns, np.nan)
        if self.touching != isinstance(last.kernel, Sum):
            kernel = (self._touch_kernel if self.touching else self._kernel)(lesson.width)[0]
            self.regressions[self.split + 2] = last = Regression(kernel, self.columns)
        if ended.any() and self.touching:
            self._learn_touches(last, lesson, ended)
        elif ended.any():
            last.learn(*lesson.about(ended, lesson.rewards, self._bounds(lesson)))
        used = V.known
        if not used:
            left = self._learn_going(lesson, lesson.rewards)
        costs = self._learn_potential(lesson, left)
        if costs is not None:
            self._learn_going(lesson, costs)
        elif used:
            self._learn_going(lesson, lesson.rewards)

    def _learn_touches(self, last: Regression, lesson: Lesson, ended: NDArray[np.bool_]) -> None:
        """What touches earned, by where they would have led without one, and by the action taken most often
        since. Among the worst it is not told which is worse."""
        assert lesson.since is not None
        self._world, since = None, lesson.since[ended]
        X, earned = self.world.outcomes(lesson.inputs[ended])[0], lesson.rewards[ended]
        worst, self.fair = np.quantile(earned, [WORST, 1.0 - WORST])
        earned = np.maximum(earned, worst)
        bounds, by_rest = self._touch_kernel(self._spread(lesson, X))[1], np.zeros(len(earned))
        for _ in range(2):
            last.learn(X, earned - by_rest, bounds, lesson.rng, lesson.search, outliers=False)
            likely = last(X)
            self.rests = self._rests(np.where(likely >= np.median(likely), since, -1), earned - likely)
            by_rest = np.where(since < 0, 0.0, self.rests[0, since])
        self.rest = self.choices[int(self.rests[0].argmax())].copy()

    def _touch_kernel(self, width: Array) -> tuple[Kernel, dict[str, Any]]:
        """Few touches are known, and how fast, how upright and where one touches each have their own part in
        what that earns: a term for each column."""
        columns = np.flatnonzero(np.isnan(self.flags[0]))
        terms: list[Kernel] = [RBF(LENGTHSCALE * width[c], TOUCH_VARIANCE, [int(c)]) for c in columns]
        bounds: dict[str, Any] = {"noise_variance": (LEAST_TOUCH_NOISE, MOST_NOISE)}
        for i, reach in enumerate(width[columns]):
            bounds[f"{i}.lengthscales"] = LEAST_TOUCH * reach, MOST_LENGTHSCALE * reach
            bounds[f"{i}.variance"] = LEAST_TOUCH_VARIANCE, MOST_TOUCH_VARIANCE
        return Sum(*terms), bounds

    def _rests(self, since: NDArray[np.intp], more: Array) -> Array:
        """How much `more` than expected touches earned by each action that may be taken since: means (a row),
        of which one that few took is believed little, and standard deviations. Who touches hard is lost
        whatever follows: only the better half tells."""
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

    def _learn_going(self, lesson: Lesson, rewards: Array) -> float:
        """Rewards while episodes go on; the standard deviation of what is left of them."""
        going, regression = ~lesson.ended, self.regressions[self.split + 1]
        if not going.any():
            return 0.0
        regression.learn(*lesson.about(going, rewards, self._bounds(lesson)))
        left = rewards[going] - regression(lesson.inputs[going])
        return float(np.sqrt(np.mean(np.square(left))))

    def _learn_potential(self, lesson: Lesson, otherwise: float) -> Array | None:
        """V, and what each row's action costs; None where rewards are no potential, see `potential`."""
        going = ~lesson.ended
        X, ahead = np.zeros((2, len(going), self.columns))
        X[:, : self.split], ahead[:, : self.split] = lesson.states, lesson.following
        features = potential.features(self.actions, lesson.inputs[:, self.split :])
        steps = potential.Steps(X[going], ahead[going], lesson.rewards[going], features[going])
        bounds = self._potential_kernel(lesson.width)[1]
        costs = potential.learn(self.regressions[self.split + 3], steps, bounds, lesson.search, otherwise)
        return None if costs is None else features @ costs

    def _learn_ends(self, lesson: Lesson, explained: NDArray[np.bool_]) -> None:
        """Those that no brink explains."""
        if self.touching != isinstance(self.regressions[self.split].kernel, RBF):
            kernel = (self._contact_kernel if self.touching else self._end_kernel)(lesson.width)[0]
            noise = NOISE if self.touching else MOST_END_NOISE
            self.regressions[self.split] = Regression(kernel, self.columns, noise)
        end, happened = self.regressions[self.split], lesson.ended & ~explained
        if self.touching:
            self._learn_contact(end, lesson, happened & self._before(lesson))
        elif happened.any():
            self._learn_event(end, lesson, ~explained)
        elif lesson.ended.any():
            end.forget()

    def _before(self, lesson: Lesson) -> NDArray[np.bool_]:
        """Rows that are not after the end of an imagined episode."""
        if lesson.later is None:
            return np.ones(len(lesson.states), dtype=np.bool_)
        return ~(lesson.later | strange(lesson.states, self.flags[0]))

    def _spread(self, lesson: Lesson, rows: Array) -> Array:
        """How widely some rows lie: what matters there may be a small part of a column's range."""
        width, spread = lesson.width, WIDTHS * rows[:, : self.split].std(axis=0)
        return np.where(spread > LEAST_LENGTHSCALE * FINE * width, np.minimum(spread, width), width)

    def _contact_kernel(self, width: Array) -> tuple[Kernel, dict[str, Any]]:
        """Contact is a matter of where one is, and of ground that is not observed."""
        bounds = {
            "lengthscales": (LEAST_LENGTHSCALE * width, MOST_LENGTHSCALE * width),
            "variance": (LEAST_VARIANCE, MOST_VARIANCE),
            "noise_variance": (LEAST_NOISE, MOST_NOISE),
        }
        return RBF(LENGTHSCALE * width, 1.0, list(range(self.split))), bounds

    def _learn_contact(self, contact: Regression, lesson: Lesson, touching: NDArray[np.bool_]) -> None:
        """From where steps led: 0 where episodes went on; 1 where they first touched, where they would have
        gone on to had there been nothing to touch, and where they were then."""
        self._world, rng, split = None, lesson.rng, self.split
        on = some(np.flatnonzero(strange(lesson.states, self.flags[0])), NEAR // 2, rng)
        through, inside = lesson.inputs[some(np.flatnonzero(touching), NEAR, rng)], list[Array]()
        for _ in range(THROUGH):
            through[:, :split] = self.world.outcomes(through)[0][:, :split]
            inside.append(through[:, :split].copy())
        touched, deeper = inside[0], np.concatenate([*inside[DEEPER::DEEPER], lesson.inputs[on, :split]])
        outside = self.world.outcomes(lesson.inputs[~lesson.ended])[0][:, :split]
        spread, states = self._spread(lesson, touched), np.concatenate([touched, outside])

        def rows(near: int) -> tuple[Array, Array]:
            around = _around(states / spread, np.arange(len(states)) < len(touched), rng, near)
            inputs = np.zeros((len(around) + len(deeper), self.columns))
            inputs[:, :split] = np.concatenate([states[around], deeper])
            target = np.ones(len(inputs))
            target[len(touched) : len(around)] = 0.0
            return inputs, target

        if lesson.search or not contact.known:
            contact.search(*rows(AROUND * len(touched)), self._contact_kernel(spread)[1], rng)
        contact.known = True
        inputs, target = rows(FIT_FROM)  # in true shares
        contact.fit(inputs, target, rng, enough=SURE**2, among=len(inputs))

    def _learn_flag(self, flag: Regression, lesson: Lesson, value: Array) -> None:
        """From inputs where it is decided (where it is not 0), those next to them, and some others.
        Lengthscales are measured by how widely the first are spread."""
        X, rng = lesson.inputs, lesson.rng
        changed = np.zeros(len(X), dtype=np.bool_)
        rows = np.flatnonzero(value)
        changed[some(rows if len(rows) else np.arange(len(X)), NEAR, rng)] = True
        spread = self._spread(lesson, X[changed])
        rows = _around(X[:, : self.split] / spread, changed, rng)
        inputs, target = np.ascontiguousarray(X[rows]), value[rows]
        if flag.known and (np.abs(flag(inputs) - target) < 0.5).all():
            return
        search, flag.known = lesson.search or not flag.known, True
        if search and np.count_nonzero(target) >= 3:
            flag.search(inputs, target, self._kernel(spread)[1], rng)
        rows = _around(X[:, : self.split] / spread, changed, rng, FIT_FROM - NEAR)  # in true shares
        flag.fit(np.ascontiguousarray(X[rows]), value[rows], rng, enough=SURE**2)

    def _learn_event(self, event: Regression, lesson: Lesson, among: NDArray[np.bool_]) -> None:
        """An end, from the observations that led to it, those next to them, some others, and those that
        would be mistaken for one."""
        states, happened, width, rng = lesson.following[among], lesson.ended[among], lesson.width, lesson.rng
        inputs = np.zeros((len(states), self.columns))  # they do not depend on an action
        inputs[:, : self.split] = states
        wrong = (event(inputs) > 0.5) != happened
        if event.known and not wrong.any():
            return
        rows, target = _around(states / width, happened, rng), happened.astype(float)
        search, event.known = lesson.search or not event.known, True
        if search and np.count_nonzero(happened) >= 3:
            event.search(inputs[rows], target[rows], self._end_kernel(width)[1], rng)
        for _ in range(PASSES):
            event.fit(inputs[rows], target[rows], rng, END_PSEUDO_INPUTS)
            wrong = (event(inputs) > 0.5) != happened
            if not wrong.any():
                break
            rows = np.union1d(rows, some(np.flatnonzero(wrong), NEAR, rng))

    @property
    def world(self) -> World:
        """What the compiled loop reads."""
        if self._world is None:
            d, regressions = self.columns, self.regressions
            most = max(1, *(len(r.weights) for r in regressions))
            tables = [r.kernel.table(d) for r in regressions]
            values = np.zeros((len(regressions), max(len(own) for _, own in tables)))
            Zt, weights = np.zeros((len(regressions), d, most)), np.zeros((len(regressions), most))
            for j, r in enumerate(regressions):
                Zt[j, :, : len(r.Z)], weights[j, : len(r.Z)] = r.Z.T, r.weights
                values[j, : len(tables[j][1])] = tables[j][1]
            self._world = World(
                tables[0][0], tables[self.split][0], tables[self.split + 2][0], tables[self.split + 3][0],
                values, Zt,
                np.array([len(r.weights) for r in regressions], dtype=np.int64), weights,
                np.array([r.offset for r in regressions]), np.array([r.scale for r in regressions]),
                self.walls, self.known, self.brinks, self.flags, self.partners,
                self.rest, np.array([self.worth(self.rest)]), np.array([self.touching]),
            )  # fmt: skip
        return self._world

    @property
    def usual(self) -> Array:
        """The flags as they are while all can be foreseen; NaN for columns, or worlds, that have none."""
        return self.flags[0] if self.touching else np.full(self.split, np.nan)

    @property
    def chancy(self) -> bool:
        """Whether anything happens by chance."""
        return bool((~np.isnan(self.flags[0])).any())

    def new(self, states: Array) -> NDArray[np.bool_]:
        """Which rows lie outside of what was seen."""
        low, high = self.seen
        return ((states < low) | (states > high)).any(axis=1)

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], list[Any]]:
        arrays = {name: getattr(self, name) for name in RANGES}
        arrays |= {"partners": self.partners, "rest": self.rest, "touching": np.array([self.touching])}
        arrays["rests"] = self.rests
        content = list[Any]()
        for i, regression in enumerate(self.regressions):
            own, described = regression.state()
            arrays |= {f"{i}.{name}": array for name, array in own.items()}
            content.append(described)
        return arrays, content

    def restore(self, arrays: Mapping[str, Array], content: list[Any]) -> None:
        for name in RANGES:
            setattr(self, name, check.rows(arrays[name], name, self.split, finite=False).copy())
            if len(getattr(self, name)) != 2:
                raise ValueError(f"{name} has {len(arrays[name])} rows; expected 2")
        count = self.split + 4
        if content and len(content) != count:
            raise ValueError(f"{len(content)} regressions are kept; expected {count}")
        self.touching = bool(np.all(arrays["touching"]))
        self.partners = np.array(arrays["partners"], dtype=np.int64)
        check_partners(self.partners, self.split)
        self.rest = check.rows(arrays["rest"][None], "rest", self.actions.columns, finite=False)[0].copy()
        self.rests = check.rows(arrays["rests"], "rests", len(self.choices)).copy()
        if len(self.rests) != 2:
            raise ValueError(f"rests has {len(self.rests)} rows; expected 2")
        self.regressions = [
            Regression.restored({name: arrays[f"{i}.{name}"] for name in ("Z", "weights")}, described)
            for i, described in enumerate(content)
        ]
        self._world = None


def _partners(seen: Array) -> NDArray[np.int64]:
    """Of each column the other one with which it lies on a circle around 0, or −1."""
    squares = np.square(seen)
    partners, varies = np.full(seen.shape[1], -1, dtype=np.int64), np.ptp(squares, axis=0)
    for i, j in combinations(range(seen.shape[1]), 2):
        least = min(varies[i], varies[j])
        if max(partners[i], partners[j]) < 0 and np.ptp(squares[:, i] + squares[:, j]) < ROUND * least:
            partners[i], partners[j] = j, i
    return partners


def _brinks(
    following: Array, ended: NDArray[np.bool_], thrown: NDArray[np.bool_]
) -> tuple[Array, NDArray[np.bool_]]:
    """The range of each column in which episodes went on, where enough ended beyond it that no other column
    explains and that may have been thrown there, else ∓∞; and which rows lie beyond."""
    brinks = np.tile([[-np.inf], [np.inf]], following.shape[1])
    explained = np.zeros(len(ended), dtype=np.bool_)
    if not ended.any() or ended.all():
        return brinks, explained
    going = following[~ended]
    limits = np.array([going.min(axis=0), going.max(axis=0)])
    over = np.array([following < limits[0], following > limits[1]]) & ~thrown
    while True:
        count = over[:, ~explained].sum(axis=1)
        side, column = np.unravel_index(count.argmax(), count.shape)
        if count[side, column] < FELL:
            return brinks, explained
        brinks[side, column] = limits[side, column]
        explained |= over[side, :, column]


def _around(
    scaled: Array, decisive: NDArray[np.bool_], rng: np.random.Generator, least: int = NEAR
) -> NDArray[np.intp]:
    """The decisive rows, at least so many next to them, and some others."""
    first, others = np.flatnonzero(decisive), np.flatnonzero(~decisive)
    nearness = np.array([np.square(scaled[first] - row).sum(axis=1).min() for row in scaled[others]])
    near = np.argsort(nearness, kind="stable")[: max(least, 3 * len(first))]
    rows = np.union1d(near, some(np.arange(len(others)), NEAR, rng))
    return np.concatenate([first, others[rows]])
