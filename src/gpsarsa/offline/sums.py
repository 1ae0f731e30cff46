"""What a pass over a table adds up: sums over blocks of transitions, in any order and on any machine.

The first pass gives the posterior: `Totals` holds the statistics S and v of the model (or the pair of the
projected fixed point) and Σψ(x₀) over the initial states. The second says how far to trust it: `Spread`
holds, at that posterior's mean m, the outer products of each episode's score

    g_e = Σ ψ̃ (r̃ − ψ̃ᵀm),     Cov(m) ≈ G (Σ g_e g_eᵀ) Gᵀ,

the sandwich clustered by episode, with G = R or, for the fixed point, (I + Σ bφψᵀ)⁻¹; and the sum of
squares of each episode's influence on the mean value v̄ of the E initial states,

    (Gᵀψ̄)ᵀ g_e + (ψ(x₀)ᵀm − v̄)/E,

whose root is v̄'s standard error: it counts that other episodes would have had other rewards and
transitions, and would have begun elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa._linalg import product, transposed_product
from gpsarsa._step import explain
from gpsarsa._validation import Array
from gpsarsa.basis import Basis
from gpsarsa.kernels import KernelLike
from gpsarsa.statistics import FixedPoint, Likelihood, Refused, Statistics
from gpsarsa.transitions import Transitions

__all__ = ["Block", "First", "Second", "Sums", "Spread", "Totals"]

Arrays = Mapping[str, NDArray[Any]]


class Block(Protocol):
    """A stretch of a table; see `datasets`."""

    @property
    def transitions(self) -> Transitions: ...
    @property
    def first(self) -> NDArray[np.bool_]: ...
    @property
    def episodes(self) -> NDArray[np.int64]: ...
    @property
    def target_first(self) -> Array | None: ...
    @property
    def first_row(self) -> int: ...
    @property
    def left_out(self) -> int: ...


class Sums(Protocol):
    """What can be added up."""

    def __add__(self, other: Any) -> Any: ...

    def state(self) -> dict[str, NDArray[Any]]: ...


def initial_inputs(block: Block) -> tuple[Array, NDArray[np.intp]]:
    """The inputs at which episodes begin, and their rows; all rows where episodes are unknown."""
    unknown = len(block.episodes) > 0 and block.episodes[0] < 0
    rows = np.arange(len(block.transitions)) if unknown else np.flatnonzero(block.first)
    if block.target_first is not None and not unknown:
        return block.target_first, rows
    return np.ascontiguousarray(block.transitions._arrays[0][rows]), rows


@contextlib.contextmanager
def explained(block: Block, first: int = 0) -> Iterator[None]:
    """Says which row of the table was refused, and why; `first` is the first row in hand."""
    try:
        yield
    except Refused as refused:
        row, t = first + refused.row, block.transitions
        explain(refused.answer, f"[{block.first_row + row}]", {"reward": t.rewards[row]})


@dataclass(frozen=True)
class First:
    """The first pass: what every worker needs to know, small and picklable."""

    kernel: KernelLike
    pseudo_inputs: Array
    likelihood: Likelihood
    fixed_point: bool

    @cached_property
    def basis(self) -> Basis:
        return Basis.spanned_by(self.kernel, np.array(self.pseudo_inputs))[0]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "basis"}

    def empty(self) -> Totals:
        kind = FixedPoint if self.fixed_point else Statistics
        return Totals(kind(self.basis.size), self.pseudo_inputs.shape[1])

    def over(self, blocks: Iterable[Block]) -> Totals:
        """The totals of a partition, whose blocks come one after another."""
        totals = self.empty()
        for block in blocks:
            totals.add(self, block)
        return totals

    def restored(self, arrays: Arrays) -> Totals:
        return Totals.restored(arrays, FixedPoint if self.fixed_point else Statistics)


class Totals:
    """The sums of the first pass."""

    def __init__(self, statistics: Statistics | FixedPoint, columns: int) -> None:
        self.statistics = statistics
        self.initial = np.zeros(len(statistics.moment))  # Σ ψ(x₀)
        self.counts = np.zeros(3)  # transitions, initial states, rows left out
        self.low, self.high = np.full(columns, np.inf), np.full(columns, -np.inf)

    def add(self, task: First, block: Block) -> None:
        basis, t = task.basis, block.transitions
        with explained(block):
            self.statistics.accumulate(basis, t, task.likelihood)
        X, rows = initial_inputs(block)
        if len(rows):
            self.initial += basis.whiten(basis.kernel_rows(X)).sum(axis=0)
        self.counts += len(t), len(rows), block.left_out
        if len(t):
            inputs = t._arrays[0]
            self.low = np.minimum(self.low, inputs.min(axis=0))
            self.high = np.maximum(self.high, inputs.max(axis=0))

    def __add__(self, other: Totals) -> Totals:
        total = Totals(self.statistics + other.statistics, len(self.low))  # type: ignore[operator]
        total.initial = self.initial + other.initial
        total.counts = self.counts + other.counts
        total.low, total.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return total

    def state(self) -> dict[str, NDArray[Any]]:
        own = {f"statistics.{name}": array for name, array in self.statistics.state().items()}
        return own | {"initial": self.initial, "counts": self.counts, "low": self.low, "high": self.high}

    @classmethod
    def restored(cls, arrays: Arrays, kind: type[Statistics] | type[FixedPoint]) -> Self:
        prefix = "statistics."
        own = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        self = cls(kind.restored(own), len(arrays["low"]))
        for name in ("initial", "counts", "low", "high"):
            setattr(self, name, np.array(arrays[name]))
        return self


@dataclass(frozen=True)
class Second:
    """The second pass, at the posterior of the first."""

    first: First
    mean: Array  # m
    direction: Array  # Gᵀψ̄
    value: float  # v̄, without the prior mean
    episodes: float  # E

    def empty(self) -> Spread:
        return Spread(len(self.mean))

    def over(self, blocks: Iterable[Block]) -> Spread:
        """The spread of a partition, whose blocks come one after another."""
        task = self.first
        basis, spread = task.basis, self.empty()
        running = FixedPoint(basis.size) if task.fixed_point else Statistics(basis.size)
        clusters = _Clusters(self, spread)
        for block in blocks:
            t = block.transitions
            begin = self._begin(block)
            for rows in basis.blocks(len(t)):  # so that scores stay in the cache
                with explained(block, rows.start):
                    scores = running.scores(basis, t[rows], task.likelihood, self.mean)
                clusters.add(scores, begin[rows], block.episodes[rows])
        clusters.close()
        return spread

    def _begin(self, block: Block) -> Array:
        """ψ(x₀)ᵀm − v̄ where an episode begins, else 0."""
        basis, begin = self.first.basis, np.zeros(len(block.transitions))
        X, rows = initial_inputs(block)
        if len(rows):
            begin[rows] = product(basis.whiten(basis.kernel_rows(X)), self.mean) - self.value
        return begin

    def restored(self, arrays: Arrays) -> Spread:
        return Spread.restored(arrays)


class Spread:
    """The sums of the second pass."""

    def __init__(self, size: int) -> None:
        self.meat = np.zeros((size, size))  # Σ g gᵀ
        self.numbers = np.zeros(2)  # Σ influence², number of clusters

    def __add__(self, other: Spread) -> Spread:
        total = Spread(len(self.meat))
        total.meat, total.numbers = self.meat + other.meat, self.numbers + other.numbers
        return total

    def state(self) -> dict[str, NDArray[Any]]:
        return {"meat": self.meat, "numbers": self.numbers}

    @classmethod
    def restored(cls, arrays: Arrays) -> Self:
        self = cls(len(arrays["meat"]))
        self.meat, self.numbers = np.array(arrays["meat"]), np.array(arrays["numbers"])
        return self


class _Clusters:
    """Scores summed over episodes, which may go on from block to block; rows without one stand alone."""

    def __init__(self, task: Second, spread: Spread) -> None:
        self._task, self._spread = task, spread
        self._open: tuple[int, Array, float] | None = None  # episode, its score and beginning so far

    def add(self, scores: Array, begin: Array, episodes: NDArray[np.int64]) -> None:
        new = np.ones(len(scores), dtype=np.bool_)
        new[1:] = (episodes[1:] != episodes[:-1]) | (episodes[1:] < 0)
        at = np.flatnonzero(new)
        sums, begun = np.add.reduceat(scores, at, axis=0), np.add.reduceat(begin, at)
        if self._open is not None:
            episode, score, start = self._open
            if episode >= 0 and episode == episodes[0]:
                sums[0] += score
                begun[0] += start
            else:
                sums, begun = np.vstack([score[None], sums]), np.append(start, begun)
        self._open = int(episodes[-1]), sums[-1].copy(), float(begun[-1])
        self._take(sums[:-1], begun[:-1])

    def close(self) -> None:
        if self._open is not None:
            _, score, start = self._open
            self._take(score[None], np.array([start]))
            self._open = None

    def _take(self, sums: Array, begun: Array) -> None:
        if len(sums) == 0:
            return
        influence = product(np.ascontiguousarray(sums), self._task.direction) + begun / self._task.episodes
        self._spread.meat += transposed_product(np.ascontiguousarray(sums), np.ascontiguousarray(sums))
        self._spread.numbers += float(influence @ influence), len(sums)
