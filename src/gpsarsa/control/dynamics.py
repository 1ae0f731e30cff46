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
ground, imagined episodes are over there: see `contact`.

Each is a sparse Gaussian process (SparseGPSarsa with γ = 0; for V, γ = 1) whose hyperparameters are learnt by
the evidence. Physics is smooth but for walls and contacts, whose few rows would blur everything else: rows
that lie far from the fit are left out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.control import potential, shapes
from gpsarsa.control.contact import Contact, Flight
from gpsarsa.control.experience import Experience
from gpsarsa.control.lessons import NEAR, Lesson, around, spread, touched, unusual
from gpsarsa.control.regression import FIT_FROM, Regression, sampled
from gpsarsa.control.spaces import Actions, Observations, Scaling
from gpsarsa.control.world import POINTS, SURE, TURN, World, check_partners, strange, tabulated

__all__ = ["Dynamics"]

END_PSEUDO_INPUTS, PASSES = 200, 3  # of ends; fits, each with what the last one mistook
TOUCHED, MOST_TOUCHED = 3, 0.3  # different inputs, and share of all, that led to a column's extreme: a wall
FELL = 3  # episodes that ended beyond where any went on: a brink
NEW, BEYOND = 0.02, 0.1  # so far outside, of a column's range, begins what is new; of its reach, what is lost
ROUND = 1e-3  # columns lie on a circle where the sum of their squares varies by so much less than these
FEW = 7  # continuous actions that are told apart where a flag is not as usual
RANGES = "walls", "known", "seen", "brinks", "flags"


class Dynamics:
    """The regressions of one environment, whose observations are numbers."""

    def __init__(self, observations: Observations, actions: Actions) -> None:
        self.split, self.columns = observations.columns, observations.columns + actions.columns
        self.actions, self.contact = actions, Contact(self.split, actions.some(FEW, FEW))
        self.bounds = np.array([observations.low, observations.high])
        self.regressions: list[Regression] = []  # in the order of `World`
        self.walls = self.known = self.seen = self.brinks = np.zeros((2, self.split))
        self.flags = np.full((2, self.split), np.nan)
        self.partners = np.full(self.split, -1, dtype=np.int64)  # of columns on a circle: the other one
        self.growth = 1.0  # of what is known, when it was last learnt: the largest share of a column's range
        self._world: World | None = None

    def copy(self) -> Dynamics:
        """One that can learn on without a change to this one."""
        other = copy(self)
        other.contact, other.regressions = copy(self.contact), [copy(own) for own in self.regressions]
        return other

    def learn(self, experience: Experience, rng: np.random.Generator, search: bool = True) -> None:
        """From all that is stored; without `search` with the hyperparameters there are."""
        rows = experience.by_age
        X, following = experience.inputs[rows], experience.following[rows, : self.split]
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
            X[:, : self.split], X, following, experience.rewards[rows], experience.discounts[rows] == 0.0,
            flag, width, rng, search,
        )  # fmt: skip
        explained = self._find_brinks(lesson)
        if self.contact.touching:
            lesson = touched(lesson, self.flags[0], self.contact.choices)
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
        fresh = np.append(flag == np.isnan(self.flags[0]), [False] * 4)
        for j in range(self.split + 4):
            if j < len(self.regressions) and not fresh[j]:
                continue
            V = Regression(shapes.potential(width)[0], self.columns)
            own = {self.split: self._end(width), self.split + 3: V}
            self.regressions[j : j + 1] = [own.get(j, self._outcome(width))]

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
        return np.min([shapes.MOST_LENGTHSCALE * width, *lengthscales], axis=0)

    def _find_brinks(self, lesson: Lesson) -> NDArray[np.bool_]:
        """Which ends a brink explains; and whether most others come while flags are not as usual."""
        odd = unusual(lesson, self.flags[0])
        self.brinks, explained = _brinks(lesson.following, lesson.ended, odd[:, None] & ~lesson.flag)
        happened = lesson.ended & ~explained
        first = odd & ~explained & ~strange(lesson.states, self.flags[0])
        tell = first.any() and not lesson.flag.all()  # there are touches, and numbers to tell them by
        self.contact.touching = bool(tell and happened.any() and np.mean(odd[happened]) > 0.5)
        return explained

    def _learn_columns(self, lesson: Lesson, free: NDArray[np.bool_]) -> Lesson:
        """Flags first: what else happens depends on them as they are by then, and on whether they have just
        changed. The lesson with such inputs."""
        X, split, flag = lesson.inputs, self.split, lesson.flag
        changes = lesson.following - X[:, :split]
        if flag.any() and not self.contact.touching:
            for j in np.flatnonzero(flag):
                self._learn_flag(self.regressions[j], lesson, changes[:, j] / np.diff(self.flags[:, j]))
            X = np.hstack([np.where(flag, lesson.following + TURN * changes, X[:, :split]), X[:, split:]])
        lesson = lesson._replace(inputs=np.ascontiguousarray(X))
        rows = free & ~lesson.ended if self.contact.touching else free
        for j in np.flatnonzero(~flag):
            self.regressions[j].learn(*lesson.about(rows, changes[:, j], self._bounds(lesson)))
        return lesson

    def _bounds(self, lesson: Lesson) -> dict[str, Any]:
        return shapes.outcome(self.actions, lesson.width)[1]

    def _learn_rewards(self, lesson: Lesson) -> None:
        """The last ones, and those while episodes go on: as they are, or as V and what actions cost."""
        V, left, ended = self.regressions[self.split + 3], 0.0, lesson.ended & self._before(lesson)
        if self.contact.touching:
            last = self._formed(self.split + 2, self.contact.what(lesson.width, self.flags[0]))
            if ended.any():
                self.contact.learn_what(last, lesson, ended, self._flight(), self.flags[0])
        else:
            last = self._formed(self.split + 2, self._outcome(lesson.width))
            last.learn(*lesson.about(ended, lesson.rewards, self._bounds(lesson)))
        used = V.known
        if not used:
            left = self._learn_going(lesson, lesson.rewards)
        costs = self._learn_potential(lesson, left)
        if costs is not None:
            self._learn_going(lesson, costs)
        elif used:
            self._learn_going(lesson, lesson.rewards)

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
        bounds = shapes.potential(lesson.width)[1]
        costs = potential.learn(self.regressions[self.split + 3], steps, bounds, lesson.search, otherwise)
        return None if costs is None else features @ costs

    def _learn_ends(self, lesson: Lesson, explained: NDArray[np.bool_]) -> None:
        """Those that no brink explains."""
        happened = lesson.ended & ~explained
        if self.contact.touching:
            end = self._formed(self.split, self.contact.where(lesson.width, self.flags[0]))
            first = happened & self._before(lesson)
            self.contact.learn_where(end, lesson, first, self._flight(), self.flags[0])
            return
        end = self._formed(self.split, self._end(lesson.width))
        if happened.any():
            self._learn_event(end, lesson, ~explained)
        elif lesson.ended.any():
            end.forget()

    def _end(self, width: Array) -> Regression:
        """That of ends, before it is learnt."""
        return Regression(shapes.end(width)[0], self.columns, shapes.MOST_END_NOISE)

    def _outcome(self, width: Array) -> Regression:
        """That of anything that follows observations with actions, before it is learnt."""
        return Regression(shapes.outcome(self.actions, width)[0], self.columns)

    def _formed(self, j: int, wanted: Regression) -> Regression:
        """A regression as it was learnt, or the one that is wanted where its kernel has another form."""
        was, form = (own.kernel.table(self.columns)[0] for own in (self.regressions[j], wanted))
        if not np.array_equal(was, form):
            self.regressions[j] = wanted
        return self.regressions[j]

    def _flight(self) -> Flight:
        """Where inputs lead as far as columns are learnt, touching or not; actions become 0."""
        self._world = None
        world = self.world
        return lambda inputs: world.outcomes(inputs)[0]

    def _before(self, lesson: Lesson) -> NDArray[np.bool_]:
        """Rows that are not after the end of an imagined episode."""
        if lesson.later is None:
            return np.ones(len(lesson.states), dtype=np.bool_)
        return ~(lesson.later | strange(lesson.states, self.flags[0]))

    def _learn_flag(self, flag: Regression, lesson: Lesson, value: Array) -> None:
        """From inputs where it is decided (where it is not 0), those next to them, and some others.
        Lengthscales are measured by how widely the first are spread."""
        X, rng = lesson.inputs, lesson.rng
        changed = np.zeros(len(X), dtype=np.bool_)
        rows = np.flatnonzero(value)
        changed[sampled(rows if len(rows) else np.arange(len(X)), NEAR, rng)] = True
        width = spread(lesson, X[changed])
        rows = around(X[:, : self.split] / width, changed, rng)
        inputs, target = np.ascontiguousarray(X[rows]), value[rows]
        if flag.known and (np.abs(flag(inputs) - target) < 0.5).all():
            return
        search, flag.known = lesson.search or not flag.known, True
        if search and np.count_nonzero(target) >= 3:
            flag.search(inputs, target, shapes.outcome(self.actions, width)[1], rng)
        rows = around(X[:, : self.split] / width, changed, rng, FIT_FROM - NEAR)  # in true shares
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
        rows, target = around(states / width, happened, rng), happened.astype(float)
        search, event.known = lesson.search or not event.known, True
        if search and np.count_nonzero(happened) >= 3:
            event.search(inputs[rows], target[rows], shapes.end(width)[1], rng)
        for _ in range(PASSES):
            event.fit(inputs[rows], target[rows], rng, END_PSEUDO_INPUTS)
            wrong = (event(inputs) > 0.5) != happened
            if not wrong.any():
                break
            rows = np.union1d(rows, sampled(np.flatnonzero(wrong), NEAR, rng))

    @property
    def world(self) -> World:
        """What the compiled loop reads."""
        if self._world is None:
            d, regressions, contact = self.columns, self.regressions, self.contact
            terms, grid = self._terms()
            tables = [r.kernel.table(d) for r in regressions]
            tables[self.split] = regressions[self.split].kernel.parts[-1].table(d)
            self._world = World(
                _stacked([codes for codes, _ in tables], -1), _stacked([values for _, values in tables], 0.0),
                _stacked([r.Z.T for r in regressions], 0.0),
                np.array([len(r.weights) for r in regressions], dtype=np.int64),
                _stacked([r.weights for r in regressions], 0.0),
                np.array([r.offset for r in regressions]), np.array([r.scale for r in regressions]),
                terms, grid, self.walls, self.known, self.brinks, self.flags, self.partners,
                contact.rest, np.array([contact.worth(contact.rest)]), np.array([contact.touching]),
            )  # fmt: skip
        return self._world

    def _terms(self) -> tuple[Array, Array]:
        """The parts that single columns have in the end, tabulated."""
        end = self.regressions[self.split]
        terms, grid = np.zeros((self.split, POINTS)), np.zeros((2, self.split))
        for part in end.kernel.parts[:-1] if len(end.weights) else ():
            column = int(part.columns[0])
            terms[column], *grid[:, column] = tabulated(part, column, self.columns, end.Z, end.weights)
        return terms, grid

    @property
    def usual(self) -> Array:
        """The flags as they are while all can be foreseen; NaN for columns, or worlds, that have none."""
        return self.flags[0] if self.contact.touching else np.full(self.split, np.nan)

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
        arrays |= {"partners": self.partners, **self.contact.state()}
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
        self.contact.restore(arrays)
        self.partners = np.array(arrays["partners"], dtype=np.int64)
        check_partners(self.partners, self.split)
        self.regressions = [
            Regression.restored({name: arrays[f"{i}.{name}"] for name in ("Z", "weights")}, described)
            for i, described in enumerate(content)
        ]
        self._world = None


def _stacked(arrays: list[Any], beyond: Any) -> Any:
    """One above the other, those that are shorter filled up."""
    most = max(1, *(array.shape[-1] for array in arrays))
    stacked = np.full((len(arrays), *arrays[0].shape[:-1], most), beyond, dtype=arrays[0].dtype)
    for own, array in zip(stacked, arrays, strict=True):
        own[..., : array.shape[-1]] = array
    return stacked


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
