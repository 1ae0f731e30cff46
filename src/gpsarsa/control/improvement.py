"""Policy improvement on stored transitions: the slow step that makes the most of each of them.

Every stored transition is given the next action that the present posterior prefers, and the posterior is
solved again, some rounds of policy iteration. The sums over transitions from which it follows are kept:
only rows whose next action changed are taken out and put in again, so that a round costs little more
than looking at all next states,

    Q(x′) = Σ_j k_s(s′, z_j) k_a(a′, z_j) α_j,

a matrix product over kernel rows k_s that are computed once. Where transitions are deterministic the sums
are those of the residual r − Q(x) + γQ(x′); where they are stochastic, of the projected fixed point.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsarsa._linalg import product
from gpsarsa._table import kernel_matrix
from gpsarsa._validation import Array
from gpsarsa.control.experience import Experience
from gpsarsa.control.spaces import GRID, SPREAD, Actions
from gpsarsa.kernels import Kernel, Product, is_built_in
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.statistics import FixedPoint, Statistics

__all__ = ["Improvement", "by_action"]

SETTLED = 0.005  # a round that changes a smaller share of the next actions is the last
BLOCK = 2048  # next states looked at together where the kernel does not factorise

Sums = Statistics | FixedPoint


class Improvement:
    """Policy iteration for one model on one store of experience."""

    def __init__(self, experience: Experience, actions: Actions) -> None:
        self.experience, self.actions = experience, actions
        self.stochastic = False
        self._sums: Sums | None = None
        self._basis: tuple[Any, int] | None = None  # for which the sums and the kernel rows hold
        self._lookahead = np.zeros((0, 0))  # k_s(s′, Z) of the first rows
        self._replaced = np.zeros(0, dtype=np.intp)  # those of them that are other rows now

    def forget(self) -> None:
        """Start the sums over at the next round: kernel, noise or prior mean are others now."""
        self._sums, self._basis = None, None
        self._lookahead, self._replaced = np.zeros((0, 0)), np.zeros(0, dtype=np.intp)

    def rebase(self, old: SparseGPSarsa, copy: SparseGPSarsa) -> None:
        """What holds for a model holds for its copy."""
        if self._basis == (old._basis, old._basis.size):
            self._basis = copy._basis, copy._basis.size

    def improve(self, model: SparseGPSarsa, rounds: int, rng: np.random.Generator) -> int:
        """Solve for the model's posterior under the policy that is greedy in it, `rounds` times or until
        it settles. Returns the number of rounds."""
        self._include_new(model)
        candidates = self.actions.some(GRID, SPREAD, rng)
        for done in range(rounds):
            changed = self._relabel(model, candidates)
            if changed <= SETTLED * len(self.experience):
                return done + 1
        return rounds

    def _include_new(self, model: SparseGPSarsa) -> None:
        experience, new = self.experience, self.experience.uncounted()
        stale = self._sums is None or self._basis != (model._basis, model._basis.size)
        if stale:
            self.forget()
            self._sums = self._sum(model, slice(None))
            self._basis = model._basis, model._basis.size
        elif len(new) or len(experience._gone):
            assert self._sums is not None
            self._replaced = np.union1d(self._replaced, new[new < len(self._lookahead)])
            self._sums = self._sums + self._sum(model, new) - self._of(model, experience.gone())  # type: ignore[operator]
        experience.all_counted()
        self._install(model)

    def _sum(self, model: SparseGPSarsa, rows: NDArray[np.intp] | slice) -> Sums:
        return self._of(model, self.experience.transitions(rows))

    def _of(self, model: SparseGPSarsa, transitions: Any) -> Sums:
        kind = FixedPoint if self.stochastic else Statistics
        return kind.from_block(model._basis, transitions, model._likelihood)

    def _install(self, model: SparseGPSarsa) -> None:
        assert self._sums is not None
        try:
            belief = self._sums.posterior(model._likelihood)
        except ArithmeticError:  # what was taken away has left its rounding errors behind
            self._sums = self._sum(model, slice(None))
            belief = self._sums.posterior(model._likelihood)
        model.__dict__.update(_belief=belief, _hot=None)

    def _relabel(self, model: SparseGPSarsa, candidates: Array) -> int:
        """One round; returns how many next actions changed."""
        experience = self.experience
        values = self._values(model, candidates)
        best = candidates[values.argmax(axis=1)]
        differs = (best != experience.following[:, experience.split :]).any(axis=1)
        if self.actions.candidates is None:  # others than these are possible: the present one may be better
            differs &= values.max(axis=1) > self._present_values(model)
        rows = np.flatnonzero(differs & (experience.discounts > 0.0))
        if len(rows):
            before = self._sum(model, rows)
            experience.relabel(rows, best[rows])
            self._sums = self._sums + self._sum(model, rows) - before  # type: ignore[operator]
            self._install(model)
        return len(rows)

    # -- all next states at once --------------------------------------------------------------

    def _values(self, model: SparseGPSarsa, candidates: Array) -> Array:
        """Q of every next state (a row) with every candidate (a column), without the prior mean."""
        parts = by_action(model, candidates, self.experience.split)
        if parts is None:
            return self._values_one_by_one(model, candidates)
        state, weights = parts
        self._extend_lookahead(model, state)
        return product(self._lookahead, np.ascontiguousarray(weights.T))

    def _present_values(self, model: SparseGPSarsa) -> Array:
        """Q of every next state with its present next action, without the prior mean."""
        following = np.ascontiguousarray(self.experience.following)
        values = np.empty(len(following))
        for lo in range(0, len(values), BLOCK):
            rows = following[lo : lo + BLOCK]
            values[lo : lo + BLOCK] = product(
                model._basis.kernel_rows(rows), model._basis.unwhiten(model._belief.mean)
            )
        return values

    def _extend_lookahead(self, model: SparseGPSarsa, state: Kernel) -> None:
        basis, done = model._basis, len(self._lookahead)
        missing = np.concatenate([self._replaced, np.arange(done, len(self.experience))])
        if len(missing) == 0:
            return
        rows = np.empty((len(missing), basis.size))
        following = self.experience.following[missing]
        kernel_matrix(*state.table(self.experience.columns), basis.Zt, basis.size, following, rows)
        replaced, self._replaced = len(self._replaced), self._replaced[:0]
        if done == 0:
            self._lookahead = rows
            return
        self._lookahead[missing[:replaced]] = rows[:replaced]
        if len(missing) > replaced:
            self._lookahead = np.concatenate([self._lookahead, rows[replaced:]])

    def _values_one_by_one(self, model: SparseGPSarsa, candidates: Array) -> Array:
        split, C = self.experience.split, len(candidates)
        values = np.empty((len(self.experience), C))
        for lo in range(0, len(values), BLOCK):
            states = self.experience.following[lo : lo + BLOCK, :split]
            X = np.hstack([np.repeat(states, C, axis=0), np.tile(candidates, (len(states), 1))])
            values[lo : lo + BLOCK] = model._moments(X, False)[0].reshape(-1, C)
        return values

    # -- files --------------------------------------------------------------------------------

    def state(self, model: SparseGPSarsa) -> dict[str, Array]:
        """The sums, which adding and subtracting has rounded its own way; nothing where they are stale."""
        if self._sums is None or self._basis != (model._basis, model._basis.size):
            return {}
        return self._sums.state()

    def restore(self, arrays: Mapping[str, Array], model: SparseGPSarsa) -> None:
        self.forget()
        if arrays:
            self._sums = (FixedPoint if self.stochastic else Statistics).restored(arrays)
            self._basis = model._basis, model._basis.size


def by_action(model: SparseGPSarsa, candidates: Array, split: int) -> tuple[Kernel, Array] | None:
    """Q(s, a) less the prior mean as Σ_j k_s(s, z_j) weights[a, j]: the kernel over observations and the
    weights of each candidate (a row); None where the kernel is no such product."""
    basis, d = model._basis, split + candidates.shape[1]
    parts = factors(basis.kernel, d, split)
    if parts is None:
        return None
    state, action = parts
    weights = np.ones((len(candidates), basis.size))
    if action is not None:
        full = np.zeros((len(candidates), d))
        full[:, split:] = candidates
        kernel_matrix(*action.table(d), basis.Zt, basis.size, full, weights)
    return state, weights * basis.unwhiten(model._belief.mean)


def factors(kernel: Any, columns: int, split: int) -> tuple[Kernel, Kernel | None] | None:
    """The kernel as a product of one over observations and one over actions; None if it is not."""
    if not is_built_in(kernel):
        return None
    parts = kernel.parts if isinstance(kernel, Product) else (kernel,)
    state: list[Kernel] = []
    action: list[Kernel] = []
    for part in parts:
        read = {index for _, product_ in part._terms(columns) for _, own, _ in product_ for index in own}
        if max(read) < split:
            state.append(part)
        elif min(read) >= split:
            action.append(part)
        else:
            return None
    if not state:
        return None
    return _joined(state), _joined(action) if action else None


def _joined(parts: list[Kernel]) -> Kernel:
    return parts[0] if len(parts) == 1 else Product(*parts)
