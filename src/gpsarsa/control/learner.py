"""What an agent learns, and when: each transition at once, the rest as data grows.

On every transition the posterior over Q is updated. When data has grown by a share, next actions of stored
transitions are chosen anew and the posterior is solved again (`improvement`); when it has grown by more,
hyperparameters are learnt, pseudo-inputs placed (`critic`), and policies judged and dreamt in a world that
is learnt (`foresight`). With method="sarsa" there is only the first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from gpsarsa._estimator import saved_kernel
from gpsarsa._validation import Array
from gpsarsa.control.foresight import Foresight
from gpsarsa.control.improvement import Improvement
from gpsarsa.placement import Novelty
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.timescales import Timescales

__all__ = ["Learner"]

GROWTH = 1.25  # hyperparameters and pseudo-inputs are chosen anew when the data has grown so much
EVERY, AT_LEAST = 0.08, 20  # the policy is improved when the data has grown by that share, and so many steps
ROUNDS = 3  # of policy iteration, each time
IDLE = 4.0  # and so much longer while nothing can be gained
LATE = 4.0  # that waits for an episode's end, unless it is late by this factor
SURPRISING = 0.01  # an input that leaves more of its variance unexplained becomes a pseudo-input at once
ROOM = 1.25  # for those, beyond the budget, until pseudo-inputs are placed anew


class Learner:
    """The newest posterior, and the steps by which it is made better."""

    def __init__(
        self,
        foresight: Foresight,
        improvement: Improvement,
        rng: np.random.Generator,
        *,
        on_policy: bool,
        budget: int,
        warmup: int,
    ) -> None:
        self.foresight, self.improvement, self.rng = foresight, improvement, rng
        self.critic, self.experience = foresight.critic, foresight.experience
        self.on_policy, self.budget = on_policy, budget
        self.updated: SparseGPSarsa | Timescales | None = None  # on every transition
        self.own_kernel = False
        self.log_evidence = float("nan")
        self.failures = 0
        self.next_structure, self.last_improvement = warmup, 0

    @property
    def model(self) -> SparseGPSarsa | None:
        return self.updated.model if isinstance(self.updated, Timescales) else self.updated

    def adopt(self, model: Any) -> None:
        """Start from a model of the user's."""
        driven = model.model if isinstance(model, Timescales) else model
        if not isinstance(driven, SparseGPSarsa):
            raise TypeError(f"model is a {type(model).__name__}; expected a SparseGPSarsa or a Timescales")
        columns, split = self.experience.columns, self.experience.split
        if driven.n_features_in_ != columns:
            raise ValueError(
                f"the model has {driven.n_features_in_} input columns; expected {columns}: "
                f"{split} of the observation, {columns - split} of the action"
            )
        if not self.on_policy:
            options = driven.noise, driven.weights, driven.forgetting
            if model is not driven or driven.n_transitions or options != ("iid", "fitc", 1.0):
                warnings.warn(
                    "with method='improving' the agent takes kernel, noise variance and prior mean from the "
                    "model and does the rest itself; method='sarsa' uses the model as it is",
                    stacklevel=3,
                )
            model = self._driven(self.critic.empty(driven.kernel, driven.noise_variance, driven.prior_mean))
        self.updated, self.own_kernel = model, True

    def observe(self, x: Array, reward: float, x_next: Array, discount: float, start: bool) -> None:
        """One transition. Where transitions are stochastic the posterior waits for the next solution: an
        update is by the residual, which is biased there."""
        if self.improvement.stochastic:
            return
        if isinstance(self.updated, Timescales):
            self.updated._take(x, reward, x_next, discount, start)
        elif self.updated is not None:
            self.updated.observe(x, reward, x_next, discount, start)

    def slow_steps(self, seen: int, at_end: bool) -> None:
        """Do what the amount of data makes due, after so many steps, at the end of an episode or within."""
        patience = 1.0 if at_end else LATE
        if self.on_policy:
            if self.updated is None and seen >= self.next_structure:
                self._begin_on_policy()
            return
        since, wait = seen - self.last_improvement, 1.0 if at_end else GROWTH
        if self.foresight.unbeatable():
            patience, wait = IDLE * patience, IDLE * wait
        if seen >= self.next_structure * wait:
            self._attempt(lambda: self._restructure(seen))
            self.next_structure = int(seen * GROWTH)
        elif self.foresight.due(since, seen):
            self._attempt(lambda: self.foresight.follow(seen, self.rng))
        elif self.updated is not None and since >= patience * max(EVERY * seen, AT_LEAST):
            self._attempt(lambda: self._improve(seen))
        else:
            return
        self.last_improvement = seen

    def _attempt(self, step: Callable[[], None]) -> None:
        """A slow step that numerical trouble cannot spoil: the posterior stays as it was.

        On one thread: its matrices are small, the threads of a busy machine take far longer to meet than
        to compute, and the result is the same on any number of cores.
        """
        try:
            with controller().limit(limits=1, user_api="blas"):
                step()
        except (ArithmeticError, np.linalg.LinAlgError):
            self.failures += 1
            self.improvement.forget()

    def _begin_on_policy(self) -> None:
        """On-policy SARSA without a model of the user's: one made to measure, nothing slow."""
        model = self.critic.first(self.experience)
        self.updated = Timescales(
            model, placement=Novelty(), budget=self.budget, seed=self._new_seed()
        ).update(self.experience.transitions())

    def _improve(self, seen: int) -> None:
        assert self.model is not None
        model = self.model.copy()
        if self.foresight.ruled():  # who acts by rules learns from the world alone
            self.foresight.imagine(model, seen, self.rng, self.own_kernel, search=False)
            return
        self.improvement.rebase(self.model, model)
        self.improvement.improve(model, ROUNDS, self.rng)
        self.updated = self._driven(model)

    def _restructure(self, seen: int) -> None:
        """Hyperparameters by the evidence, pseudo-inputs by placement, then the improved posterior; and
        what can be imagined."""
        critic, improvement, experience = self.critic, self.improvement, self.experience
        improvement.stochastic = critic.stochastic(experience, self.rng)
        model = self.model
        if model is None or model._basis.size == 0:
            model = critic.first(experience) if model is None else model
            model = critic.placed(model, experience, self.rng)
            improvement.forget()
            improvement.improve(model, ROUNDS, self.rng)
        found, log_evidence = critic.learn(
            model, experience, self.rng, stochastic=improvement.stochastic, own_kernel=self.own_kernel
        )
        improvement.forget()
        improvement.improve(found, ROUNDS, self.rng)
        self.updated, self.log_evidence = self._driven(found), log_evidence
        self.foresight.imagine(found.copy(), seen, self.rng, self.own_kernel)

    def _driven(self, model: SparseGPSarsa) -> Timescales:
        room = int(ROOM * self.budget)
        return Timescales(model, placement=Novelty(SURPRISING), budget=room, drop=None, seed=self._new_seed())

    def _new_seed(self) -> int:
        return int(self.rng.integers(2**63))

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        content: dict[str, Any] = {
            "own_kernel": self.own_kernel,
            "log_evidence": None if np.isnan(self.log_evidence) else self.log_evidence,
            "failures": self.failures,
            "stochastic": self.improvement.stochastic,
            "schedule": [self.next_structure, self.last_improvement],
        }
        own: dict[str, Any] = {}
        if isinstance(self.updated, Timescales):
            own, content["learner"] = self.updated.state()
        elif self.updated is not None:
            own, model = self.updated._state()
            content["learner"] = {"model": model, "kernel": self.updated._described_kernel()}
        arrays = {f"learner.{name}": array for name, array in own.items()}
        if self.model is not None:
            arrays |= {f"sums.{name}": array for name, array in self.improvement.state(self.model).items()}
        return arrays, content

    def restore(
        self, parts: Mapping[str, dict[str, Any]], content: Mapping[str, Any], kernel: Any, placement: Any
    ) -> None:
        """From the arrays `learner` and `sums`; a kernel or a placement of the user's is given."""
        self.own_kernel = bool(content["own_kernel"])
        log_evidence = content["log_evidence"]
        self.log_evidence = float("nan") if log_evidence is None else float(log_evidence)
        self.failures = int(content["failures"])
        self.improvement.stochastic = bool(content["stochastic"])
        self.next_structure, self.last_improvement = (int(n) for n in content["schedule"])
        learner = content.get("learner")
        if learner is not None and "timescales" in learner:
            self.updated = Timescales.restored(parts["learner"], learner, kernel=kernel, placement=placement)
        elif learner is not None:
            own_kernel = saved_kernel(learner["kernel"], kernel)
            self.updated = SparseGPSarsa._from_state(own_kernel, parts["learner"], learner["model"])
        if self.model is not None:
            self.improvement.restore(parts["sums"], self.model)


@cache
def controller() -> ThreadpoolController:
    """Of the threads of BLAS. It looks for libraries when it is first made."""
    return ThreadpoolController()
