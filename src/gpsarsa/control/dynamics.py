"""What an environment does, learnt from the transitions it showed.

    s′ = s + f(s, a)                     one regression for each column of the observation
    s′ = one of two values               where a column has no others (a contact, say): a flag, by a
                                         regression on its changes, −1, 0 or 1; by chance where it is not
                                         sure. What else happens depends on the flags as they are after
                                         the step, and on whether they have just changed
    r  = g(s, a)                         one while the episode goes on, one for its last reward
    the episode ends                     beyond every value of a column at which one ever went on, where
                                         some ended; elsewhere where h(s′) > ½, a regression on 0 (it
                                         went on) and 1 (it ended)

Each is a sparse Gaussian process (SparseGPSarsa with γ = 0) whose hyperparameters are learnt by the
evidence. Physics is smooth but for walls and contacts, whose few rows would blur everything else: rows
that lie far from the fit are left out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._linalg import compiled, product
from gpsarsa._table import kernel_matrix, kernel_row, numbers_read
from gpsarsa._validation import Array
from gpsarsa.basis import pivots
from gpsarsa.control.critic import clipped
from gpsarsa.control.experience import Experience
from gpsarsa.control.spaces import Actions, Observations, Scaling
from gpsarsa.kernels import RBF, Delta, Kernel, Product, Sum
from gpsarsa.optimization import Search
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["ENDED", "LOST", "Dynamics", "Regression", "World"]

ENOUGH = 1.0  # of the noise variance: pseudo-inputs leave no more unexplained
PSEUDO_INPUTS, END_PSEUDO_INPUTS, LEARN_WITH = 200, 80, 80  # of each regression; of an evidence
FIT_FROM, PLACE_FROM, LEARN_FROM = 3_000, 1_000, 400  # rows: of the posterior, of placement, of the evidence
STEPS, PASSES = 15, 3  # iterations of the evidence; fits, each without the last one's outliers
LENGTHSCALE, LEAST_LENGTHSCALE, MOST_LENGTHSCALE = 0.5, 0.05, 10.0  # of a column's visited range
LEAST_SHARE, MOST_SHARE = 0.01, 0.9999  # between discrete actions
LEAST_VARIANCE, MOST_VARIANCE, LEAST_NOISE, MOST_NOISE = 0.01, 1e3, 1e-8, 1.0  # outcomes have variance 1
NOISE = 1e-3
WIDTHS = 3.5  # standard deviations that are a column's width where a flag changes
OUTLIER, FAR = 10.0, 3.0  # an outlier's distance from the fit: times the usual, and standard deviations
MOST_OUTLIERS = 0.1  # of the rows
FINE = 1e-3  # a distance, in standard deviations of the outcome, that does not matter
MOST_END_NOISE = 1e-4
SURE = 0.1  # a flag changes by chance, but not where that is so improbable
TURN = 0.5  # a flag that has just changed counts as so much beyond what it is now
LEAST_END_VARIANCE, MOST_END_VARIANCE = 1e-4, 10.0
TOUCHED, MOST_TOUCHED = 3, 0.3  # different inputs, and share of all, that led to a column's extreme: a wall
FELL = 3  # episodes that ended beyond where any went on: a brink
NEW, BEYOND = 0.02, 0.1  # so far outside, of a column's range, begins what is new; of its reach, what is lost
ENDED, LOST = 1, 2  # what became of an imagined episode
RANGES = "walls", "known", "seen", "brinks", "flags"
NEAR = 200  # rows next to the ended ones, and as many others, by which ends are learnt


class World(NamedTuple):
    """All regressions as the compiled loop reads them: those of the observation's columns, of the end, of
    the reward while the episode goes on, and of the last one. All kernels but the end's share their form."""

    codes: NDArray[np.int64]
    end_codes: NDArray[np.int64]
    values: Array  # a row for each regression
    Zt: Array
    sizes: NDArray[np.int64]
    weights: Array
    offset: Array
    scale: Array
    walls: Array  # two rows: the least and largest value of each column where there is a wall, else ∓∞
    known: Array  # two rows: observations never left this range by much
    brinks: Array  # two rows: beyond them every episode ended, else ∓∞
    flags: Array  # two rows: the only values of a column that has two, else NaN

    @classmethod
    def restored(cls, arrays: Mapping[str, Any], split: int, columns: int) -> World:
        """A world out of a file, for observations of `split` and inputs of `columns` numbers; ValueError
        where the compiled loop, which trusts it, would read beyond an array."""
        world = cls(**{name: np.array(arrays[name]) for name in cls._fields})
        count, most, numbers = split + 3, world.Zt.shape[-1], world.values.shape[-1]
        ranges = dict.fromkeys(("walls", "known", "brinks", "flags"), (2, split))
        shapes = {
            "values": (count, numbers), "Zt": (count, columns, most), "sizes": (count,),
            "weights": (count, most), "offset": (count,), "scale": (count,), **ranges,
        }  # fmt: skip
        for name, shape in shapes.items():
            array, kind = getattr(world, name), np.int64 if name == "sizes" else np.float64
            if array.shape != shape or array.dtype != kind:
                raise ValueError(f"the world's {name} is {array.dtype} of shape {array.shape}")
        if world.sizes.min() < 0 or world.sizes.max() > most:
            raise ValueError(f"the world's sizes are {world.sizes}; expected at most {most}")
        if max(numbers_read(codes, columns) for codes in (world.codes, world.end_codes)) > numbers:
            raise ValueError("the world's values are fewer than its codes need")
        return world

    def outcomes(self, X: Array) -> tuple[Array, Array, NDArray[np.int8]]:
        """After each input: the next observation (the action's columns are 0), the reward, and whether the
        episode goes on (0), ends (ENDED), or leaves what is known (LOST)."""
        ahead, rewards, fate = np.zeros_like(X), np.empty(len(X)), np.empty(len(X), dtype=np.int8)
        _outcomes(*self, X, ahead, rewards, fate)
        return ahead, rewards, fate


@compiled
def _predicted(form, values, Zt, n, weights, offset, scale, pair, which, work):
    """The mean of one regression for one of a pair of inputs."""
    total = 0.0
    if n > 0:
        row = work[0]
        kernel_row(form, values, Zt, n, pair, which, row, work[1], work[2])
        for i in range(n):
            total += weights[i] * row[i]
    return offset + scale * total


@compiled
def _chance(x, j):
    """A number from 0 to 1 that is the same for the same input, and any other one for any other."""
    total = float(j)
    for c in range(len(x)):
        total = 12.9898 * np.sin(total + 78.233 * x[c])
    total *= 43758.5453
    return total - np.floor(total)


@compiled
def _outcomes(
    codes, end_codes, values, Zt, sizes, weights, offset, scale, walls, known, brinks, flags,
    X, ahead, rewards, fate,
):  # fmt: skip
    columns = walls.shape[1]  # of the observation
    work, pair = np.zeros((3, Zt.shape[2] + 1)), np.zeros((2, X.shape[1]))
    flagged = ~np.isnan(flags[0])
    for t in range(X.shape[0]):
        lost = over = False
        for c in range(X.shape[1]):
            pair[0, c] = X[t, c]
        for j in range(columns):
            if flagged[j]:
                total = _predicted(
                    codes, values[j], Zt[j], sizes[j], weights[j], offset[j], scale[j], pair, 0, work
                )
                chance = SURE + (1.0 - 2.0 * SURE) * _chance(pair[0], j)
                value = flags[int((X[t, j] == flags[1, j]) + total > chance), j]
                ahead[t, j] = pair[1, j] = value
                over = over or value < brinks[0, j] or value > brinks[1, j]
        for j in range(columns):
            if flagged[j]:
                pair[0, j] = ahead[t, j] + TURN * (ahead[t, j] - X[t, j])
        for j in range(columns + 3):
            if j == columns + (1 if fate[t] == ENDED else 2):  # the other reward (fate is known by then)
                continue
            if j < columns and flagged[j]:
                continue
            form, which = (end_codes, 1) if j == columns else (codes, 0)
            total = _predicted(
                form, values[j], Zt[j], sizes[j], weights[j], offset[j], scale[j], pair, which, work
            )
            if j < columns:
                value = min(max(X[t, j] + total, walls[0, j]), walls[1, j])
                ahead[t, j] = pair[1, j] = value
                lost = lost or value < known[0, j] or value > known[1, j]
                over = over or value < brinks[0, j] or value > brinks[1, j]
            elif j == columns:
                fate[t] = ENDED if over or total > 0.5 else LOST if lost else 0
            else:
                rewards[t] = total


class Regression:
    """y ≈ offset + scale · Σ_j w_j k(z_j, x), the posterior mean of a sparse Gaussian process."""

    def __init__(self, kernel: Kernel, columns: int, noise: float = NOISE) -> None:
        self.kernel, self.noise = kernel, noise
        self.offset, self.scale = 0.0, 1.0
        self.Z, self.weights = np.empty((0, columns)), np.empty(0)
        self.outliers = 0.0  # their share of the rows
        self.known = False

    def __call__(self, X: Array) -> Array:
        return self.offset + self.scale * self._standard(X)

    def _standard(self, X: Array) -> Array:
        if len(self.weights) == 0:
            return np.zeros(len(X))
        rows = np.empty((len(X), len(self.weights)))
        Zt = np.ascontiguousarray(self.Z.T)
        kernel_matrix(*self.kernel.table(X.shape[1]), Zt, len(self.weights), np.ascontiguousarray(X), rows)
        return product(rows, self.weights)

    def learn(
        self, X: Array, y: Array, bounds: dict[str, Any], rng: np.random.Generator, search: bool = True
    ) -> None:
        """From inputs and their outcomes; nothing is done where these are predicted well already. Without
        `search` the hyperparameters stay, once there are some."""
        distance = np.abs(y - self(X)) / self.scale
        if self.known and np.mean(distance > FINE) <= self.outliers + 0.01:
            return
        keep = ~_far(distance) if self.known else np.ones(len(y), dtype=np.bool_)
        search, self.known = search or not self.known, True
        for _ in range(PASSES):
            self.offset, self.scale = float(np.mean(y[keep])), float(np.std(y[keep]))
            if not self.scale > 1e-12 * abs(self.offset):  # constant
                self.scale, self.Z, self.weights = 1.0, self.Z[:0], self.weights[:0]
                return
            standard = (y - self.offset) / self.scale
            if search:
                self.search(X[keep], standard[keep], bounds, rng)
            self.fit(X[keep], standard[keep], rng)
            again = ~_far(np.abs(standard - self._standard(X)))
            if (again == keep).all():
                break
            keep = again
        self.outliers = 1.0 - float(np.mean(keep))

    def search(self, X: Array, y: Array, bounds: dict[str, Any], rng: np.random.Generator) -> None:
        """Hyperparameters by the evidence of some rows, where there are enough."""
        if len(X) <= sum(np.size(pair[0]) for pair in bounds.values()):
            return
        rows = _some(np.arange(len(X)), LEARN_FROM, rng)
        X, y = X[rows], y[rows]
        kernel = clipped(self.kernel, bounds)
        noise = float(np.clip(self.noise, *bounds["noise_variance"]))
        model = SparseGPSarsa(kernel, noise, X[pivots(kernel, X, LEARN_WITH, 1e-6)], growth="streaming")
        search = Search(
            pseudo_inputs=False, hyperparameters=list(bounds), bounds=bounds, max_iterations=STEPS, quiet=True
        )
        found, report = model._search(_regression(X, y), search)
        if report.interrupted:
            raise KeyboardInterrupt
        self.kernel, self.noise = found.kernel, found.noise_variance

    def fit(
        self, X: Array, y: Array, rng: np.random.Generator, most: int = PSEUDO_INPUTS, enough: float = 1.0
    ) -> None:
        """At most so many pseudo-inputs among the rows, which leave `enough` of the variance unexplained or
        as much as the noise, and the posterior mean."""
        rows = _some(np.arange(len(X)), FIT_FROM, rng)
        places = X[_some(rows, PLACE_FROM, rng)]
        noise = max(ENOUGH * self.noise, LEAST_NOISE) / float(self.kernel.diag(places[:1])[0])
        enough = min(noise, enough)
        Z = places[pivots(self.kernel, places, most, enough)]
        model = SparseGPSarsa(self.kernel, self.noise, Z[:0], growth="streaming")
        model.add_pseudo_inputs(Z)
        model.fit(_regression(X[rows], y[rows]))
        self.Z, self.weights = model._basis.Z.copy(), model._basis.unwhiten(model._belief.mean)

    def forget(self) -> None:
        self.Z, self.weights, self.known = self.Z[:0], self.weights[:0], False

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        numbers = [self.noise, self.offset, self.scale, self.outliers]
        return (
            {"Z": self.Z, "weights": self.weights},
            {"kernel": self.kernel.to_config(), "numbers": numbers, "known": self.known},
        )

    @classmethod
    def restored(cls, arrays: Mapping[str, Array], content: Mapping[str, Any]) -> Regression:
        Z = check.rows(arrays["Z"], "Z").copy()
        self = cls(Kernel.from_config(content["kernel"]), Z.shape[1])
        self.Z, self.weights = Z, check.vector(arrays["weights"], "weights", len(Z)).copy()
        self.noise, self.offset, self.scale, self.outliers = (float(x) for x in content["numbers"])
        self.known = bool(content["known"])
        return self


class Dynamics:
    """The regressions of one environment, whose observations are numbers."""

    def __init__(self, observations: Observations, actions: Actions) -> None:
        self.split, self.columns = observations.columns, observations.columns + actions.columns
        self.actions = actions
        self.bounds = np.array([observations.low, observations.high])
        self.regressions: list[Regression] = []  # in the order of `World`
        self.walls = self.known = self.seen = self.brinks = np.zeros((2, self.split))
        self.flags = np.full((2, self.split), np.nan)
        self.growth = 1.0  # of what is known, when it was last learnt: the largest share of a column's range
        self._world: World | None = None

    def learn(self, experience: Experience, rng: np.random.Generator, search: bool = True) -> None:
        """From all that is stored; without `search` with the hyperparameters there are."""
        split, ended = self.split, experience.discounts == 0.0
        X, following, rewards = experience.inputs, experience.following[:, :split], experience.rewards
        seen = np.concatenate([X[:, :split], following])
        ends = np.array([seen.min(axis=0), seen.max(axis=0)])
        width = Scaling.of(seen, *ends).width
        flag = ((seen == ends[0]) | (seen == ends[1])).all(axis=0) & (ends[0] < ends[1])
        free = self._walls(X, following, ends, flag)
        before, self.seen = self.seen, ends + [[-NEW], [NEW]] * width
        self.growth = float(np.max(1.0 - np.ptp(before, axis=0) / np.ptp(self.seen, axis=0)))
        self._shapes(flag, width)
        self.flags = np.where(flag, ends, np.nan)
        for j in np.flatnonzero(flag):
            change = (following[:, j] - X[:, j]) / (ends[1, j] - ends[0, j])
            self._learn_flag(self.regressions[j], X, change, width, rng, search)
        X = np.ascontiguousarray(X)
        if flag.any():  # what else happens depends on them as they are by then, and on whether they changed
            turned = following + TURN * (following - X[:, :split])
            X = np.hstack([np.where(flag, turned, X[:, :split]), X[:, split:]])
        bounds = self._kernel(width)[1]
        for j in np.flatnonzero(~flag):
            self.regressions[j].learn(X[free], following[free, j] - X[free, j], bounds, rng, search)
        end, reward, last = self.regressions[split:]
        self.brinks, explained = _brinks(following, ended)
        if (ended & ~explained).any():
            happened = ended[~explained]
            self._learn_event(end, following[~explained], happened, happened, width, rng, search)
        elif ended.any():
            end.forget()
        if ended.any():
            last.learn(X[ended], rewards[ended], bounds, rng, search)
        if not ended.all():
            reward.learn(X[~ended], rewards[~ended], bounds, rng, search)
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
        flags, were = [*flag, False, False, False], [*~np.isnan(self.flags[0]), False, False, False]
        for j in range(self.split + 3):
            if j < len(self.regressions) and were[j] == flags[j]:
                continue
            kernel = (self._end_kernel if j == self.split else self._kernel)(width)[0]
            self.regressions[j : j + 1] = [
                Regression(kernel, self.columns, MOST_END_NOISE if j == self.split else NOISE)
            ]

    def _reach(self, width: Array) -> Array:
        """How much of each column matters: its least lengthscale."""
        numbers = np.append(np.flatnonzero(np.isnan(self.flags[0])), self.split + 1)
        used = [self.regressions[j] for j in numbers if len(self.regressions[j].weights)]
        lengthscales = [r.kernel.parameters["0.lengthscales"] for r in used]
        return np.min([MOST_LENGTHSCALE * width, *lengthscales], axis=0)

    def _kernel(self, width: Array) -> tuple[Kernel, dict[str, Any]]:
        """The kernel of an outcome at first, and the bounds of its hyperparameters."""
        columns, own = list(range(self.split)), list(range(self.split, self.columns))
        parts: list[Kernel] = [RBF(LENGTHSCALE * width, 1.0, columns)]
        bounds: dict[str, Any] = {
            "0.lengthscales": (LEAST_LENGTHSCALE * width, MOST_LENGTHSCALE * width),
            "0.variance": (LEAST_VARIANCE, MOST_VARIANCE),
            "noise_variance": (LEAST_NOISE, MOST_NOISE),
        }
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

    def _learn_flag(
        self, flag: Regression, X: Array, change: Array, width: Array, rng: np.random.Generator, search: bool
    ) -> None:
        """From inputs where it changed, those next to them, and some others. Lengthscales are measured by how
        widely the first are spread: what a contact depends on may be a small part of a column's range."""
        changed = np.zeros(len(X), dtype=np.bool_)
        rows = np.flatnonzero(change)
        changed[_some(rows if len(rows) else np.arange(len(X)), NEAR, rng)] = True
        spread = WIDTHS * X[changed, : self.split].std(axis=0)
        spread = np.where(spread > LEAST_LENGTHSCALE * FINE * width, np.minimum(spread, width), width)
        rows = _around(X[:, : self.split] / spread, changed, rng)
        inputs, target = np.ascontiguousarray(X[rows]), change[rows]
        if flag.known and (np.abs(flag(inputs) - target) < 0.5).all():
            return
        search, flag.known = search or not flag.known, True
        if search and np.count_nonzero(target) >= 3:
            flag.search(inputs, target, self._kernel(spread)[1], rng)
        flag.fit(inputs, target, rng, enough=SURE**2)

    def _learn_event(
        self,
        event: Regression,
        states: Array,
        happened: NDArray[np.bool_],
        decisive: NDArray[np.bool_],
        width: Array,
        rng: np.random.Generator,
        search: bool,
    ) -> None:
        """From the decisive observations, those next to them, and some others."""
        rows = _around(states / width, decisive, rng)
        inputs = np.zeros((len(rows), self.columns))  # they do not depend on an action
        inputs[:, : self.split] = states[rows]
        target = happened[rows].astype(float)
        if event.known and ((event(inputs) > 0.5) == (target > 0.5)).all():
            return
        search, event.known = search or not event.known, True
        if search and np.count_nonzero(decisive) >= 3:
            event.search(inputs, target, self._end_kernel(width)[1], rng)
        event.fit(inputs, target, rng, END_PSEUDO_INPUTS)

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
                tables[-1][0], tables[self.split][0], values, Zt,
                np.array([len(r.weights) for r in regressions], dtype=np.int64), weights,
                np.array([r.offset for r in regressions]), np.array([r.scale for r in regressions]),
                self.walls, self.known, self.brinks, self.flags,
            )  # fmt: skip
        return self._world

    def new(self, states: Array) -> NDArray[np.bool_]:
        """Which rows lie outside of what was seen."""
        low, high = self.seen
        return ((states < low) | (states > high)).any(axis=1)

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], list[Any]]:
        arrays = {name: getattr(self, name) for name in RANGES}
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
        self.regressions = [
            Regression.restored({name: arrays[f"{i}.{name}"] for name in ("Z", "weights")}, described)
            for i, described in enumerate(content)
        ]
        self._world = None


def _brinks(following: Array, ended: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """The range of each column in which episodes went on, where enough ended beyond it that no other column
    explains, else ∓∞; and which rows lie beyond."""
    brinks = np.tile([[-np.inf], [np.inf]], following.shape[1])
    explained = np.zeros(len(ended), dtype=np.bool_)
    if not ended.any() or ended.all():
        return brinks, explained
    going = following[~ended]
    limits = np.array([going.min(axis=0), going.max(axis=0)])
    over = np.array([following < limits[0], following > limits[1]])
    while True:
        count = over[:, ~explained].sum(axis=1)
        side, column = np.unravel_index(count.argmax(), count.shape)
        if count[side, column] < FELL:
            return brinks, explained
        brinks[side, column] = limits[side, column]
        explained |= over[side, :, column]


def _far(distance: Array) -> NDArray[np.bool_]:
    """Which distances, in standard deviations of the outcome, are outliers; none where they are too many
    to be."""
    far = distance > max(OUTLIER * float(np.median(distance)), FAR)
    return far if np.mean(far) <= MOST_OUTLIERS else np.zeros(len(far), dtype=np.bool_)


def _around(scaled: Array, decisive: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.intp]:
    """The decisive rows, those next to them, and some others."""
    first, others = np.flatnonzero(decisive), np.flatnonzero(~decisive)
    nearness = np.array([np.square(scaled[first] - row).sum(axis=1).min() for row in scaled[others]])
    near = np.argsort(nearness, kind="stable")[: max(NEAR, 3 * len(first))]
    rows = np.union1d(near, _some(np.arange(len(others)), NEAR, rng))
    return np.concatenate([first, others[rows]])


def _some(rows: NDArray[np.intp], count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return rows if len(rows) <= count else np.sort(rng.choice(rows, count, replace=False))


def _regression(X: Array, y: Array) -> Transitions:
    return Transitions._trusted(X, y, X, np.zeros(len(y)), np.ones(len(y), dtype=np.bool_))
