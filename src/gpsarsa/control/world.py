"""A world that was learnt, in the form in which steps are imagined: fast, and without chance.

All its regressions, walls, brinks and flags are arrays, read by one compiled loop. What happens by chance
in the environment is decided here by a number from 0 to 1 that an imagined episode keeps to its end: where
half of those who came there touched the ground, so do the episodes whose number is below one half. Ground
that is there stays there, and imagined episodes can be repeated and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsarsa._linalg import compiled, product
from gpsarsa._table import kernel_matrix, kernel_row, numbers_read
from gpsarsa._validation import Array

__all__ = ["ENDED", "LOST", "SURE", "TURN", "World", "chances", "check_partners", "strange"]

SURE = 0.1  # a flag changes by chance, but not where that is so improbable, and always where so probable
TURN = 0.5  # a flag that has just changed counts as so much beyond what it is now
ENDED, LOST = 1, 2  # what became of an imagined episode


class World(NamedTuple):
    """All regressions as the compiled loop reads them: those of the observation's columns, of the end, of
    the reward while the episode goes on, of the last one, and V. All kernels but the end's, the last reward's
    and V's share their form."""

    codes: NDArray[np.int64]
    end_codes: NDArray[np.int64]
    last_codes: NDArray[np.int64]
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
    partners: NDArray[np.int64]  # of each column: the other one of a circle, else −1
    rest: Array  # the action that is taken where a flag is not as usual, if any is
    worth: Array  # one: how much more touches earn by it than otherwise
    touching: NDArray[np.bool_]  # one: whether episodes are over where a flag is not as usual

    @classmethod
    def restored(cls, arrays: Mapping[str, Any], split: int, columns: int) -> World:
        """A world out of a file, for observations of `split` and inputs of `columns` numbers; ValueError
        where the compiled loop, which trusts it, would read beyond an array."""
        world = cls(**{name: np.array(arrays[name]) for name in cls._fields})
        most, numbers = world.Zt.shape[-1], world.values.shape[-1]
        count = split + 4
        ranges = dict.fromkeys(("walls", "known", "brinks", "flags"), (2, split))
        shapes = {
            "values": (count, numbers), "Zt": (count, columns, most), "sizes": (count,),
            "weights": (count, most), "offset": (count,), "scale": (count,), "partners": (split,),
            "rest": (columns - split,), "worth": (1,), "touching": (1,), **ranges,
        }  # fmt: skip
        kinds = {"sizes": np.int64, "partners": np.int64, "touching": np.bool_}
        for name, shape in shapes.items():
            array = getattr(world, name)
            if array.shape != shape or array.dtype != kinds.get(name, np.float64):
                raise ValueError(f"the world's {name} is {array.dtype} of shape {array.shape}")
        if world.sizes.min() < 0 or world.sizes.max() > most:
            raise ValueError(f"the world's sizes are {world.sizes}; expected at most {most}")
        check_partners(world.partners, split)
        forms = world.codes, world.end_codes, world.last_codes, world.potential_codes
        if max(numbers_read(codes, columns) for codes in forms) > numbers:
            raise ValueError("the world's values are fewer than its codes need")
        return world

    def outcomes(self, X: Array, chance: Array | None = None) -> tuple[Array, Array, NDArray[np.int8]]:
        """After each input: the next observation (the action's columns are 0), the reward, and whether the
        episode goes on (0), ends (ENDED), or leaves what is known (LOST); by `chance`, one half if None."""
        ahead, rewards, fate = np.zeros_like(X), np.empty(len(X)), np.empty(len(X), dtype=np.int8)
        chance = np.full(len(X), 0.5) if chance is None else chance
        _outcomes(*self, X, SURE + (1.0 - 2.0 * SURE) * chance, ahead, rewards, fate)
        return ahead, rewards, fate

    def potential(self, states: Array) -> Array:
        """V of observations."""
        n, X = self.sizes[-1], np.zeros((len(states), self.Zt.shape[1]))
        X[:, : states.shape[1]] = states
        K = np.empty((len(X), n))
        kernel_matrix(self.potential_codes, self.values[-1], self.Zt[-1], n, X, K)
        return self.scale[-1] * product(K, self.weights[-1, :n])

    def level(self) -> World:
        """The world in which V earns nothing."""
        return self._replace(sizes=np.append(self.sizes[:-1], 0))


def chances(numbers: NDArray[np.intp]) -> Array:
    """A number from 0 to 1 for each of the numbered episodes, spread evenly however many there are."""
    golden: Array = (0.5 + numbers * (np.sqrt(5.0) - 1.0) / 2.0) % 1.0
    return golden


def strange(states: Array, usual: Array) -> NDArray[np.bool_]:
    """Which observations have a flag that is not as usual; columns whose usual value is NaN are none."""
    return ((states[:, : len(usual)] != usual) & ~np.isnan(usual)).any(axis=1)


def check_partners(partners: NDArray[Any], split: int) -> None:
    """ValueError where they are not columns, or −1."""
    if partners.shape != (split,) or not ((partners >= -1) & (partners < split)).all():
        raise ValueError(f"the world's partners are {partners}; expected {split} columns, or -1")


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
def _round(partners, before, after, copy):
    """Columns of a circle stay as far from its middle as they were."""
    for i in range(len(partners)):
        j = partners[i]
        if j > i:
            far = np.hypot(after[i], after[j])
            if far > 0.0:
                factor = np.hypot(before[i], before[j]) / far
                after[i] *= factor
                after[j] *= factor
                copy[i], copy[j] = after[i], after[j]


@compiled
def _outcomes(
    codes, end_codes, last_codes, potential_codes, values, Zt, sizes, weights, offset, scale, walls, known,
    brinks, flags, partners, rest, worth, touching, X, chance, ahead, rewards, fate,
):  # fmt: skip
    """For each input: the flags (pair[0] becomes the input as regressions read it, with the flags as they are
    after the step), the other columns (pair[1]), circles, whether the episode is over, and its reward, to
    which V adds what a step from pair[2] to pair[1] earns. `rest` is not read: who acts knows it."""
    columns = walls.shape[1]  # of the observation
    work, pair = np.zeros((3, Zt.shape[2] + 1)), np.zeros((3, X.shape[1]))
    flagged = ~np.isnan(flags[0])
    for t in range(X.shape[0]):
        lost = over = False
        for c in range(X.shape[1]):
            pair[0, c] = pair[2, c] = X[t, c]
        for j in range(columns):
            if not flagged[j]:
                continue
            value = X[t, j]
            if touching[0]:
                over = over or value != flags[0, j]
            else:
                total = _predicted(
                    codes, values[j], Zt[j], sizes[j], weights[j], offset[j], scale[j], pair, 0, work
                )
                value = flags[int((value == flags[1, j]) + total > chance[t]), j]
            ahead[t, j] = pair[1, j] = value
            over = over or value < brinks[0, j] or value > brinks[1, j]
        for j in range(columns):
            if flagged[j]:
                pair[0, j] = ahead[t, j] + TURN * (ahead[t, j] - X[t, j])
        for j in range(columns):
            if not flagged[j]:
                total = _predicted(
                    codes, values[j], Zt[j], sizes[j], weights[j], offset[j], scale[j], pair, 0, work
                )
                ahead[t, j] = pair[1, j] = min(max(X[t, j] + total, walls[0, j]), walls[1, j])
        _round(partners, X[t], ahead[t], pair[1])
        for j in range(columns):
            if not flagged[j]:
                value = ahead[t, j]
                lost = lost or value < known[0, j] or value > known[1, j]
                over = over or value < brinks[0, j] or value > brinks[1, j]
        j = columns
        total = _predicted(
            end_codes, values[j], Zt[j], sizes[j], weights[j], offset[j], scale[j], pair, 1, work
        )
        limit = chance[t] if touching[0] else 0.5
        fate[t] = ENDED if over or total > limit else LOST if lost else 0
        touched = touching[0] and fate[t] == ENDED
        j = columns + (2 if fate[t] == ENDED else 1)
        rewards[t] = _predicted(
            last_codes if fate[t] == ENDED else codes, values[j], Zt[j], sizes[j], weights[j], offset[j],
            scale[j], pair, int(touched), work,
        )  # fmt: skip
        if touched:
            rewards[t] += worth[0]
        v = columns + 3
        if fate[t] != ENDED and sizes[v] > 0:
            for sign, which in ((1.0, 2), (-1.0, 1)):
                rewards[t] += sign * _predicted(
                    potential_codes, values[v], Zt[v], sizes[v], weights[v], 0.0, scale[v], pair, which, work
                )
