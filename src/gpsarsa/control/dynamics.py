"""What an environment does, learnt from the transitions it showed.

    s′ = s + f(s, a)                     one regression for each column of the observation
    s′ = one of two values               where a column has no others (a contact, say): a flag, by a
                                         regression on its changes, −1, 0 or 1; by chance where it is not
                                         sure. What else happens depends on the flags as they are after
                                         the step, and on whether they have just changed: where they are
                                         not all as usual, f and g are others, learnt apart
    r  = V(s) − V(s′) + g(s, a)          while the episode goes on; V = 0 unless it leaves less of rewards
                                         it was not learnt from than g alone of those that it was
    r  = g(s, a)                         another one, for the last reward
    the episode ends                     beyond every value of a column at which one ever went on, where
                                         some ended; elsewhere where h(s′) > ½, a regression on 0 (it
                                         went on) and 1 (it ended). Where most ends come while flags are
                                         not as usual (crashes), which throws s′ anywhere: by chance,
                                         h(s, a), as soon as it is foreseen, with all rewards to come

Each is a sparse Gaussian process (SparseGPSarsa with γ = 0; for V, γ = 1) whose hyperparameters are learnt by
the evidence. Physics is smooth but for walls and contacts, whose few rows would blur everything else: rows
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
from gpsarsa.kernels import RBF, Delta, Kernel, Matern32, Product, Sum
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
POTENTIAL, NOVEL = 300, 1e-7  # pseudo-inputs of V; they leave none of which less than this is new
UNEXPLAINED = 0.5  # of the rewards' standard deviation may be left by V while it is used
FORESEEN = 10  # unusual steps before an end that are part of it
NEAR = 200  # rows next to the ended ones, and as many others, by which ends are learnt


class World(NamedTuple):
    """All regressions as the compiled loop reads them: those of the observation's columns, of the end, of
    the reward while the episode goes on, of the last one, and V; where there are flags, again those of the
    columns and of the reward, for what is unusual. All kernels but the end's and V's share their form."""

    codes: NDArray[np.int64]
    end_codes: NDArray[np.int64]
    potential_codes: NDArray[np.int64]
    values: Array  # a row for each regression
    Zt: Array
    sizes: NDArray[np.int64]
    weights: Array
    offset: Array
    scale: Array
    walls: Array  # two rows: the least and largest value of each column where there is a wall, else ∓∞
    known: Array  # two rows: observations never left this range by much
    brinks: Array  # two rows: beyond them every episode ended, else ∓∞
    flags: Array  # two rows: the only values of a column that has two, the usual one first, else NaN
    crashes: NDArray[np.bool_]  # one: whether an end depends on where it came from, not on where it led

    @classmethod
    def restored(cls, arrays: Mapping[str, Any], split: int, columns: int) -> World:
        """A world out of a file, for observations of `split` and inputs of `columns` numbers; ValueError
        where the compiled loop, which trusts it, would read beyond an array."""
        world = cls(**{name: np.array(arrays[name]) for name in cls._fields})
        most, numbers = world.Zt.shape[-1], world.values.shape[-1]
        count = split + 4 if np.isnan(world.flags).all() else 2 * split + 5
        ranges = dict.fromkeys(("walls", "known", "brinks", "flags"), (2, split))
        shapes = {
            "values": (count, numbers), "Zt": (count, columns, most), "sizes": (count,),
            "weights": (count, most), "offset": (count,), "scale": (count,), "crashes": (1,), **ranges,
        }  # fmt: skip
        kinds = {"sizes": np.int64, "crashes": np.bool_}
        for name, shape in shapes.items():
            array = getattr(world, name)
            if array.shape != shape or array.dtype != kinds.get(name, np.float64):
                raise ValueError(f"the world's {name} is {array.dtype} of shape {array.shape}")
        if world.sizes.min() < 0 or world.sizes.max() > most:
            raise ValueError(f"the world's sizes are {world.sizes}; expected at most {most}")
        forms = world.codes, world.end_codes, world.potential_codes
        if max(numbers_read(codes, columns) for codes in forms) > numbers:
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
    codes, end_codes, potential_codes, values, Zt, sizes, weights, offset, scale, walls, known, brinks, flags,
    crashes, X, ahead, rewards, fate,
):  # fmt: skip
    columns = walls.shape[1]  # of the observation
    work, pair = np.zeros((3, Zt.shape[2] + 1)), np.zeros((3, X.shape[1]))
    flagged = ~np.isnan(flags[0])
    for t in range(X.shape[0]):
        lost = over = unusual = False
        for c in range(X.shape[1]):
            pair[0, c] = pair[2, c] = X[t, c]
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
                unusual = unusual or pair[0, j] != flags[0, j]
        for j in range(columns + 3):
            if j == columns + (1 if fate[t] == ENDED else 2):  # the other reward (fate is known by then)
                continue
            if j < columns and flagged[j]:
                continue
            form, which = (end_codes, 1) if j == columns and not crashes[0] else (codes, 0)
            i = j
            if unusual and (j < columns or j == columns + 1):
                i = columns + 4 + min(j, columns)
            total = _predicted(
                form, values[i], Zt[i], sizes[i], weights[i], offset[i], scale[i], pair, which, work
            )
            if j < columns:
                value = min(max(X[t, j] + total, walls[0, j]), walls[1, j])
                ahead[t, j] = pair[1, j] = value
                lost = lost or value < known[0, j] or value > known[1, j]
                over = over or value < brinks[0, j] or value > brinks[1, j]
            elif j == columns:
                limit = SURE + (1.0 - 2.0 * SURE) * _chance(pair[0], j) if crashes[0] else 0.5
                fate[t] = ENDED if over or total > limit else LOST if lost else 0
            else:
                rewards[t] = total
        v = columns + 3
        if fate[t] != ENDED and sizes[v] > 0:
            for sign, which in ((1.0, 2), (-1.0, 1)):
                rewards[t] += sign * _predicted(
                    potential_codes, values[v], Zt[v], sizes[v], weights[v], 0.0, scale[v], pair, which, work
                )


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

    def search(
        self,
        X: Array,
        y: Array,
        bounds: dict[str, Any],
        rng: np.random.Generator,
        ahead: Array | None = None,
    ) -> None:
        """Hyperparameters by the evidence of some rows, where there are enough; with `ahead`, outcomes are
        differences f(x) − f(ahead)."""
        if len(X) <= sum(np.size(pair[0]) for pair in bounds.values()):
            return
        rows = _some(np.arange(len(X)), LEARN_FROM, rng)
        X, y, ahead = X[rows], y[rows], None if ahead is None else ahead[rows]
        kernel = clipped(self.kernel, bounds)
        noise = float(np.clip(self.noise, *bounds["noise_variance"]))
        model = SparseGPSarsa(kernel, noise, X[pivots(kernel, X, LEARN_WITH, 1e-6)], growth="streaming")
        search = Search(
            pseudo_inputs=False, hyperparameters=list(bounds), bounds=bounds, max_iterations=STEPS, quiet=True
        )
        found, report = model._search(_regression(X, y, ahead), search)
        if report.interrupted:
            raise KeyboardInterrupt
        self.kernel, self.noise = found.kernel, found.noise_variance

    def fit(
        self,
        X: Array,
        y: Array,
        rng: np.random.Generator,
        most: int = PSEUDO_INPUTS,
        enough: float = 1.0,
        ahead: Array | None = None,
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
        model.fit(_regression(X[rows], y[rows], None if ahead is None else ahead[rows]))
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
        self.crashes = False  # whether most ends throw the observation off
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
        self.flags = self._flags(flag, ends, X)
        for j in np.flatnonzero(flag):
            change = (following[:, j] - X[:, j]) / (self.flags[1, j] - self.flags[0, j])
            self._learn_flag(self.regressions[j], X, change, width, rng, search)
        X = np.ascontiguousarray(X)
        changes, unusual = following - X[:, :split], np.zeros(len(X), dtype=np.bool_)
        if flag.any():  # what else happens depends on them as they are by then, and on whether they changed
            X = np.hstack([np.where(flag, following + TURN * changes, X[:, :split]), X[:, split:]])
            unusual = (X[:, :split] != self.flags[0])[:, flag].any(axis=1)
        bounds = self._kernel(width)[1]
        banks = [(~unusual, 0), (unusual, split + 4)] if flag.any() else [(~unusual, 0)]
        for rows, first in banks:
            for j in np.flatnonzero(~flag):
                some = free & rows
                self.regressions[first + j].learn(X[some], changes[some, j], bounds, rng, search)
        self.brinks, explained = _brinks(following, ended, unusual[:, None] & ~flag)
        happened = ended & ~explained
        self.crashes = bool(happened.any() and np.mean(unusual[happened]) > 0.5)
        if self.crashes:
            ended, rewards = _doomed(experience.inputs[:, :split], following, ended, rewards, unusual)
            self._learn_ends(X, ended & ~explained, width, rng, search)
        elif happened.any():
            self._learn_ends(following[~explained], happened[~explained], width, rng, search)
        elif ended.any():
            self.regressions[split].forget()
        if ended.any():
            self.regressions[split + 2].learn(X[ended], rewards[ended], bounds, rng, search)
        going, left = [rows & ~ended for rows, _ in banks], 0.0
        used = self.regressions[split + 3].known
        if not used:
            left = self._learn_rewards(X, rewards, going, bounds, rng, search)
        differences = self._learn_potential(experience, following, width, search, left)
        if differences is not None or used:
            rewards = rewards if differences is None else rewards - differences
            self._learn_rewards(X, rewards, going, bounds, rng, search)
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
        others = [False] * (self.split + 5)
        flags, were = [*flag, *others], [*~np.isnan(self.flags[0]), *others]
        count = self.split + 4 if not flag.any() else 2 * self.split + 5
        del self.regressions[count:]
        for j in range(count):
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

    def _potential_kernel(self, width: Array) -> tuple[Kernel, dict[str, Any]]:
        """V of observations: it may have kinks, as a distance has."""
        bounds = {
            "lengthscales": (LEAST_LENGTHSCALE * width, MOST_LENGTHSCALE * width),
            "variance": (1.0, MOST_VARIANCE**2),
            "noise_variance": (LEAST_NOISE, MOST_NOISE),
        }
        return Matern32(LENGTHSCALE * width, 100.0, list(range(self.split))), bounds

    def _learn_rewards(
        self,
        X: Array,
        rewards: Array,
        banks: list[NDArray[np.bool_]],
        bounds: dict[str, Any],
        rng: np.random.Generator,
        search: bool,
    ) -> float:
        """While episodes go on, from the rows of each bank; the standard deviation of what is left."""
        left = [np.zeros(1)]
        for rows, at in zip(banks, (self.split + 1, 2 * self.split + 4), strict=False):
            if rows.any():
                self.regressions[at].learn(X[rows], rewards[rows], bounds, rng, search)
                left.append(rewards[rows] - self.regressions[at](X[rows]))
        return float(np.sqrt(np.mean(np.square(np.concatenate(left)))))

    def _learn_potential(
        self, experience: Experience, following: Array, width: Array, search: bool, otherwise: float
    ) -> Array | None:
        """V(s) − V(s′) for all rows, learnt from some where episodes go on; None where it leaves more of the
        others than what is left `otherwise`, or where it was used before, than half of all."""
        potential = self.regressions[self.split + 3]
        going = experience.discounts > 0.0
        rewards = experience.rewards[going]
        deviation = float(rewards.std()) if len(rewards) else 0.0
        if not deviation > 1e-12 * float(np.abs(rewards).max(initial=0.0)):  # constant
            return potential.forget()
        X, ahead = np.zeros((2, len(experience), self.columns))  # it does not depend on an action
        X[:, : self.split], ahead[:, : self.split] = experience.inputs[:, : self.split], following
        one, two, y = X[going], ahead[going], (rewards - float(rewards.mean())) / deviation
        learnt, rng = np.arange(len(y)) % 4 > 0, np.random.default_rng(len(y))  # if unused, nothing changes
        if search or not potential.known:
            bounds = self._potential_kernel(width)[1]
            potential.search(one[learnt], y[learnt], bounds, rng, two[learnt])
        potential.fit(one[learnt], y[learnt], rng, POTENTIAL, NOVEL, two[learnt])
        potential.scale = deviation
        differences: Array = potential(X) - potential(ahead)
        left = float((deviation * y - differences[going])[~learnt].std())
        if left > (UNEXPLAINED * deviation if potential.known else otherwise):
            return potential.forget()
        potential.known = True
        return differences

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
        rows = _around(X[:, : self.split] / spread, changed, rng, FIT_FROM - NEAR)
        flag.fit(np.ascontiguousarray(X[rows]), change[rows], rng, enough=SURE**2)

    def _learn_ends(
        self, X: Array, ended: NDArray[np.bool_], width: Array, rng: np.random.Generator, search: bool
    ) -> None:
        """From inputs where they are crashes, else from the observations that followed."""
        end = self.regressions[self.split]
        if self.crashes != isinstance(end.kernel, Product):
            kernel = (self._kernel if self.crashes else self._end_kernel)(width)[0]
            end = Regression(kernel, self.columns, NOISE if self.crashes else MOST_END_NOISE)
            self.regressions[self.split] = end
        if self.crashes:
            self._learn_flag(end, X, ended.astype(float), width, rng, search)
        else:
            self._learn_event(end, X, ended, width, rng, search)

    def _learn_event(
        self,
        event: Regression,
        states: Array,
        happened: NDArray[np.bool_],
        width: Array,
        rng: np.random.Generator,
        search: bool,
    ) -> None:
        """From the observations where it happened, those next to them, and some others."""
        rows = _around(states / width, happened, rng)
        inputs = np.zeros((len(rows), self.columns))  # they do not depend on an action
        inputs[:, : self.split] = states[rows]
        target = happened[rows].astype(float)
        if event.known and ((event(inputs) > 0.5) == (target > 0.5)).all():
            return
        search, event.known = search or not event.known, True
        if search and np.count_nonzero(happened) >= 3:
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
                tables[0][0], tables[self.split][0], tables[self.split + 3][0], values, Zt,
                np.array([len(r.weights) for r in regressions], dtype=np.int64), weights,
                np.array([r.offset for r in regressions]), np.array([r.scale for r in regressions]),
                self.walls, self.known, self.brinks, self.flags, np.array([self.crashes]),
            )  # fmt: skip
        return self._world

    def new(self, states: Array) -> NDArray[np.bool_]:
        """Which rows lie outside of what was seen."""
        low, high = self.seen
        return ((states < low) | (states > high)).any(axis=1)

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], list[Any]]:
        arrays = {name: getattr(self, name) for name in RANGES} | {"crashes": np.array([self.crashes])}
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
        self.crashes = bool(np.all(arrays["crashes"]))
        self.regressions = [
            Regression.restored({name: arrays[f"{i}.{name}"] for name in ("Z", "weights")}, described)
            for i, described in enumerate(content)
        ]
        self._world = None


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


def _doomed(
    states: Array,
    following: Array,
    ended: NDArray[np.bool_],
    rewards: Array,
    unusual: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], Array]:
    """Which rows lead to an end by a few unusual steps, and the rewards that are still to come from there."""
    doomed, rewards = ended.copy(), rewards.copy()
    follows = unusual[:-1] & ~ended[:-1] & (following[:-1] == states[1:]).all(axis=1)
    for _ in range(FORESEEN):
        rows = np.flatnonzero(follows & doomed[1:] & ~doomed[:-1])
        rewards[rows] += rewards[rows + 1]
        doomed[rows] = True
    return doomed, rewards


def _far(distance: Array) -> NDArray[np.bool_]:
    """Which distances, in standard deviations of the outcome, are outliers; none where they are too many
    to be."""
    far = distance > max(OUTLIER * float(np.median(distance)), FAR)
    return far if np.mean(far) <= MOST_OUTLIERS else np.zeros(len(far), dtype=np.bool_)


def _around(
    scaled: Array, decisive: NDArray[np.bool_], rng: np.random.Generator, least: int = NEAR
) -> NDArray[np.intp]:
    """The decisive rows, at least so many next to them, and some others."""
    first, others = np.flatnonzero(decisive), np.flatnonzero(~decisive)
    nearness = np.array([np.square(scaled[first] - row).sum(axis=1).min() for row in scaled[others]])
    near = np.argsort(nearness, kind="stable")[: max(least, 3 * len(first))]
    rows = np.union1d(near, _some(np.arange(len(others)), NEAR, rng))
    return np.concatenate([first, others[rows]])


def _some(rows: NDArray[np.intp], count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return rows if len(rows) <= count else np.sort(rng.choice(rows, count, replace=False))


def _regression(X: Array, y: Array, ahead: Array | None = None) -> Transitions:
    if ahead is None:
        return Transitions._trusted(X, y, X, np.zeros(len(y)), np.ones(len(y), dtype=np.bool_))
    return Transitions._trusted(X, y, ahead, np.ones(len(y)), np.ones(len(y), dtype=np.bool_))
