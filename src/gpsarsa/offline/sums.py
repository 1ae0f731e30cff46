"""What a pass over a table adds up: sums over blocks of transitions, in any order and on any machine.

A row adds λψᵀ to a matrix and λr to a right-hand side, of which the posterior mean m is the solution:

    (I + Σ λψᵀ) m = Σ λr,     G = (I + Σ λψᵀ)⁻¹,

with λ = ψ̃ for the posterior under a noise model (there G = R) and λ = bφ for the projected fixed point.
The first pass, `First`, gives `Totals`: those sums, and Σψ(x₀) over the E initial states.

The second, `Second`, says how far to trust m. From the score g_e = Σ λ (r − ψᵀm) of each episode, `Spread`
holds the middle of the sandwich clustered by episode, Σ g_e g_eᵀ, and the sum of squares of each episode's
influence on the mean value v̄ = ψ̄ᵀm of the initial states,

    (Gᵀψ̄)ᵀ g_e + (ψ(x₀)ᵀm − v̄)/E:

other episodes would have had other rewards and transitions, and would have begun elsewhere.

The third, `Resampling`, is the first with every episode counted as often as a Poisson variable of mean 1
says, a variable for each replicate of the bootstrap: `Replicates` holds the sums of each.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa._linalg import product, transposed_product
from gpsarsa._step import explain
from gpsarsa._validation import Array
from gpsarsa.basis import Basis
from gpsarsa.kernels import Kernel, KernelLike
from gpsarsa.statistics import FixedPoint, Likelihood, Refused, Statistics, solved
from gpsarsa.transitions import Transitions

__all__ = ["Block", "First", "Replicates", "Resampling", "Second", "Spread", "Totals"]

AT_ONCE = 16  # episodes whose matrices are weighted together

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
    def numbers(self) -> NDArray[np.int64]: ...
    @property
    def file(self) -> int: ...
    @property
    def left_out(self) -> int: ...


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
        explain(refused.answer, f"[{block.numbers[row]}]", {"reward": t.rewards[row]})


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

    @property
    def numbers(self) -> list[Any]:
        """All numbers on which the sums depend."""
        likelihood = [float(value) for value in asdict(self.likelihood).values()]
        table = self.kernel.table(self.pseudo_inputs.shape[1]) if isinstance(self.kernel, Kernel) else ()
        return [self.pseudo_inputs, likelihood, float(self.fixed_point), *table]

    def statistics(self) -> Statistics | FixedPoint:
        """Sums over no transitions yet."""
        return FixedPoint(self.basis.size) if self.fixed_point else Statistics(self.basis.size)

    def equations(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, slice, Array, Array, Array]]:
        """(block, rows of it, λ, ψ, r), in pieces that stay in the cache, of blocks that come one after
        another."""
        basis, running = self.basis, self.statistics()
        for block in blocks:
            for rows in basis.blocks(len(block.transitions)):
                with explained(block, rows.start):
                    for terms in running.equations(basis, block.transitions[rows], self.likelihood):
                        yield block, rows, *terms

    def features(self, X: Array) -> Array:
        """φ = W k(Z, x) of each row."""
        return self.basis.whiten(self.basis.kernel_rows(X))

    def empty(self) -> Totals:
        return Totals(self.statistics())

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

    def __init__(self, statistics: Statistics | FixedPoint) -> None:
        self.statistics = statistics
        self.initial = np.zeros(len(statistics.moment))  # Σ ψ(x₀)
        self.counts = np.zeros(3)  # transitions, initial states, rows left out

    def add(self, task: First, block: Block) -> None:
        basis, t = task.basis, block.transitions
        with explained(block):
            self.statistics.accumulate(basis, t, task.likelihood)
        X, rows = initial_inputs(block)
        if len(rows):
            self.initial += task.features(X).sum(axis=0)
        self.counts += len(t), len(rows), block.left_out

    def __add__(self, other: Totals) -> Totals:
        total = Totals(self.statistics + other.statistics)  # type: ignore[operator]
        total.initial = self.initial + other.initial
        total.counts = self.counts + other.counts
        return total

    def state(self) -> dict[str, NDArray[Any]]:
        own = {f"statistics.{name}": array for name, array in self.statistics.state().items()}
        return own | {"initial": self.initial, "counts": self.counts}

    @classmethod
    def restored(cls, arrays: Arrays, kind: type[Statistics] | type[FixedPoint]) -> Self:
        prefix = "statistics."
        own = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        self = cls(kind.restored(own))
        for name in ("initial", "counts"):
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

    @property
    def numbers(self) -> list[Any]:
        """All numbers on which the sums depend."""
        return [*self.first.numbers, self.mean, self.direction, self.value, self.episodes]

    @property
    def kernel(self) -> KernelLike:
        return self.first.kernel

    def over(self, blocks: Iterable[Block]) -> Spread:
        """The spread of a partition, whose blocks come one after another."""
        spread = self.empty()
        clusters, begin, of = _Clusters(self, spread), np.empty(0), None
        for block, rows, Lambda, Psi, r in self.first.equations(blocks):
            if block is not of:
                begin, of = self._begin(block), block
            scores = Lambda * (r - product(Psi, self.mean))[:, None]
            clusters.add(scores, begin[rows], block.episodes[rows])
        clusters.close()
        return spread

    def _begin(self, block: Block) -> Array:
        """ψ(x₀)ᵀm − v̄ where an episode begins, else 0."""
        begin = np.zeros(len(block.transitions))
        X, rows = initial_inputs(block)
        if len(rows):
            begin[rows] = product(self.first.features(X), self.mean) - self.value
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


@dataclass(frozen=True)
class Resampling:
    """The pass of the bootstrap's replicates `begin` to `end` − 1, an episode's weights being its own:
    they depend on seed, file and episode, not on who reads it."""

    first: First
    seed: int
    begin: int
    end: int

    @property
    def numbers(self) -> list[Any]:
        """All numbers on which the sums depend."""
        return [*self.first.numbers, np.array([self.seed, self.begin, self.end])]

    @property
    def kernel(self) -> KernelLike:
        return self.first.kernel

    def empty(self) -> Replicates:
        return Replicates(self.end - self.begin, self.first.basis.size)

    def over(self, blocks: Iterable[Block]) -> Replicates:
        """The replicates of a partition, whose blocks come one after another."""
        found, of, weights = self.empty(), None, _Weights(self)
        for block, rows, Lambda, Psi, r in self.first.equations(blocks):
            if block is not of:
                of = block
                self._begin(found, block, weights)
            edges, each = weights.of(block, np.arange(rows.start, rows.stop))
            found.moments += transposed_product(each, np.add.reduceat(Lambda * r[:, None], edges[:-1]))
            for at in range(0, len(each), AT_ONCE):
                pieces = [
                    transposed_product(Lambda[i:j], Psi[i:j]).ravel()
                    for i, j in itertools.pairwise(edges[at : at + AT_ONCE + 1])
                ]
                weighted = transposed_product(each[at : at + AT_ONCE], np.array(pieces))
                found.matrices += weighted.reshape(found.matrices.shape)
        return found

    def _begin(self, found: Replicates, block: Block, weights: _Weights) -> None:
        X, rows = initial_inputs(block)
        if len(rows):
            edges, each = weights.of(block, rows)
            found.initial += transposed_product(each, np.add.reduceat(self.first.features(X), edges[:-1]))
            found.counts += np.diff(edges) @ each

    def restored(self, arrays: Arrays) -> Replicates:
        return Replicates.restored(arrays)


class _Weights:
    """How often each replicate counts an episode, or a row that belongs to none."""

    def __init__(self, task: Resampling) -> None:
        self._task = task
        self._last: tuple[tuple[int, int], Array] | None = None  # an episode goes on from block to block

    def of(self, block: Block, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
        """Where among the rows a cluster begins, with their end, and the weights of each cluster."""
        clusters = np.where(block.episodes[rows] < 0, block.numbers[rows], block.episodes[rows])
        edges = np.flatnonzero(np.diff(clusters, prepend=clusters[0] - 1, append=clusters[-1] + 1))
        return edges, np.array([self._drawn(block.file, int(clusters[at])) for at in edges[:-1]])

    def _drawn(self, file: int, cluster: int) -> Array:
        if self._last is None or self._last[0] != (file, cluster):
            rng = np.random.default_rng([self._task.seed, file, cluster])
            drawn = rng.poisson(1.0, self._task.end)[self._task.begin :]
            self._last = (file, cluster), drawn.astype(np.float64)
        return self._last[1]


class Replicates:
    """The sums of some replicates of the bootstrap."""

    def __init__(self, count: int, size: int) -> None:
        self.matrices = np.zeros((count, size, size))  # Σ λψᵀ
        self.moments = np.zeros((count, size))  # Σ λr
        self.initial = np.zeros((count, size))  # Σ ψ(x₀)
        self.counts = np.zeros(count)  # of initial states

    def values(self) -> Array:
        """v̄ of each replicate, from its own (I + Σ λψᵀ) m = Σ λr; nan where it drew no initial state."""
        found = np.full(len(self.counts), np.nan)
        for i in np.flatnonzero(self.counts):
            found[i] = self.initial[i] @ solved(self.matrices[i], self.moments[i]) / self.counts[i]
        return found

    def __add__(self, other: Replicates) -> Replicates:
        total = Replicates(*self.moments.shape)
        for name, array in self.state().items():
            setattr(total, name, array + getattr(other, name))
        return total

    def state(self) -> dict[str, NDArray[Any]]:
        names = "matrices", "moments", "initial", "counts"
        return {name: getattr(self, name) for name in names}

    @classmethod
    def restored(cls, arrays: Arrays) -> Self:
        self = cls(*arrays["moments"].shape)
        for name in self.state():
            setattr(self, name, np.array(arrays[name]))
        return self
