"""A critic made to measure: kernel, noise and pseudo-inputs chosen from an agent's own data.

Everything is relative to the data, so that it does not matter in which units an environment counts:
lengthscales are learnt within bounds given as shares of each column's visited range, variances within
bounds given in units of the rewards.

    k(x, x′) = variance · Matérn(observation) · Π Delta(category) · action part
    action part: Delta with a share for discrete actions, Matérn for continuous ones
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsarsa._validation import Array
from gpsarsa.basis import pivots
from gpsarsa.control.experience import Experience
from gpsarsa.control.spaces import Actions, Observations, Scaling
from gpsarsa.kernels import RBF, Delta, Kernel, Matern52, Product
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.stochasticity import ends_at_random, is_noise, looks_stochastic, noise_variance
from gpsarsa.transitions import Transitions

__all__ = ["Critic"]

UNIT = 0.25  # of a column's visited range: the unit of its lengthscale
LENGTHSCALE, LEAST_LENGTHSCALE, MOST_LENGTHSCALE = 2.0, 0.25, 8.0  # in that unit: at first, and bounds
ACTION_LENGTHSCALE, LEAST_ACTION, MOST_ACTION = 0.5, 0.1, 2.0  # of the action's range
SHARE, LEAST_SHARE, MOST_SHARE = 0.5, 0.05, 0.95  # between actions; between categories at first 0.1
NOISE, LEAST_NOISE, MOST_NOISE = 1e-4, 1e-6, 1e-3  # in squared units of the rewards
MOST_NOISE_STOCHASTIC = 1.0  # likewise, of the spread of r + γQ(x′)

LEARN_FROM, LEARN_WITH, LEARN_STEPS = 600, 80, 10  # rows, pseudo-inputs and iterations of the evidence
PLACE_FROM = 2_000  # visited inputs among which pseudo-inputs are chosen
NOVEL = 1e-7  # pseudo-inputs leave none of which less than this share of the variance is new

PAIRS_FROM, ENDS_FROM = 400, 2_000  # rows by which stochasticity is judged


@dataclass
class Critic:
    """How models are made for one environment."""

    observations: Observations
    actions: Actions
    gamma: float
    budget: int

    @property
    def _action_width(self) -> Array:
        width = self.actions.high - self.actions.low
        return np.where(width > 0.0, width, 1.0)

    def scaling(self, experience: Experience) -> Scaling:
        return Scaling.of(experience.inputs[:, : self.observations.columns], *self._bounds())

    def _bounds(self) -> tuple[Array, Array]:
        return self.observations.low, self.observations.high

    def first(self, experience: Experience) -> SparseGPSarsa:
        """A model without pseudo-inputs, before anything is learnt."""
        unit = reward_unit(experience.rewards)
        kernel = self.kernel(self.scaling(experience), (10.0 * unit) ** 2)
        return self.empty(kernel, NOISE * unit**2)

    def empty(self, kernel: Any, noise_variance: float, prior_mean: float = 0.0) -> SparseGPSarsa:
        """A model without pseudo-inputs."""
        empty = np.empty((0, self.observations.columns + self.actions.columns))
        return SparseGPSarsa(kernel, noise_variance, empty, growth="streaming", prior_mean=prior_mean)

    def kernel(self, scaling: Scaling, variance: float) -> Kernel:
        """The kernel before anything is learnt."""
        observations, actions = self.observations, self.actions
        numbers = [i for i, category in enumerate(observations.categories) if not category]
        parts: list[Kernel] = []
        if numbers:
            parts.append(Matern52(LENGTHSCALE * UNIT * scaling.width[numbers], variance, numbers))
        else:  # a constant, to have a variance
            parts.append(RBF(1e6 * max(1.0, scaling.width[0]), variance, [0]))
        alone = len(observations.categories) == 1
        parts += [
            Delta(i, share=0.0 if alone else 0.1)
            for i, category in enumerate(observations.categories)
            if category
        ]
        first = observations.columns
        own = list(range(first, first + actions.columns))
        if actions.continuous:
            parts.append(Matern52(ACTION_LENGTHSCALE * self._action_width, 1.0, own))
        else:
            parts += [Delta(column, share=SHARE) for column in own]
        return Product(*parts)

    def bounds(self, kernel: Any, scaling: Scaling, unit: float) -> dict[str, tuple[Any, Any]]:
        """What may be learnt of a kernel that `kernel` made, and within which bounds."""
        first = self.observations.columns
        found: dict[str, tuple[Any, Any]] = {}
        for i, part in enumerate(kernel.parts):
            if isinstance(part, Delta):
                if part.share > 0.0:
                    found[f"{i}.share"] = (LEAST_SHARE, MOST_SHARE)
            elif part.columns[0] >= first:
                width = self._action_width
                found[f"{i}.lengthscales"] = (LEAST_ACTION * width, MOST_ACTION * width)
            else:
                found[f"{i}.variance"] = (unit**2, (unit / max(1.0 - self.gamma, 1e-3)) ** 2)
                if isinstance(part, Matern52) and part.columns is not None:
                    width = UNIT * scaling.width[list(part.columns)]
                    found[f"{i}.lengthscales"] = (LEAST_LENGTHSCALE * width, MOST_LENGTHSCALE * width)
        return found

    def learn(
        self,
        model: SparseGPSarsa,
        experience: Experience,
        rng: np.random.Generator,
        *,
        stochastic: bool,
        own_kernel: bool,
    ) -> tuple[SparseGPSarsa, float]:
        """A model with hyperparameters by the evidence and pseudo-inputs by placement, not fitted yet;
        and the log evidence per transition. A kernel of the user's own keeps its hyperparameters."""
        if own_kernel:
            return self.placed(model, experience, rng), float("nan")
        rows = experience.sample(LEARN_FROM, rng)
        t = experience.transitions(rows)
        scaling, unit = self.scaling(experience), reward_unit(experience.rewards)
        bounds = self.bounds(model.kernel, scaling, unit)
        if stochastic:
            # the regression of which the fixed point is made: targets r + γQ(x′), no next input
            ahead = model._moments(t._arrays[2], False)[0] + model.prior_mean
            targets = t.rewards + t.discounts * ahead
            t = Transitions._outcomes(t.inputs, targets)
            spread = max(float(np.var(targets)), unit**2)
            noise = LEAST_NOISE * unit**2, MOST_NOISE_STOCHASTIC * spread
        else:
            noise = LEAST_NOISE * unit**2, max(MOST_NOISE * unit**2, 2.0 * self.reward_noise(experience, rng))
        bounds["noise_variance"] = noise
        found, log_evidence = self._by_evidence(model, t, bounds)
        return self.placed(found, experience, rng), log_evidence

    def tuned(
        self,
        model: SparseGPSarsa,
        t: Transitions,
        experience: Experience,
        rng: np.random.Generator,
        unit: float | None = None,
    ) -> SparseGPSarsa:
        """A model without pseudo-inputs, with hyperparameters by the evidence of imagined transitions."""
        unit = reward_unit(experience.rewards) if unit is None else unit
        bounds = self.bounds(model.kernel, self.scaling(experience), unit)
        bounds["noise_variance"] = LEAST_NOISE * unit**2, MOST_NOISE * unit**2
        rows = np.sort(rng.choice(len(t), min(len(t), LEARN_FROM), replace=False))
        return self._by_evidence(model, t[rows], bounds)[0]

    def _by_evidence(
        self, model: SparseGPSarsa, t: Transitions, bounds: dict[str, tuple[Any, Any]]
    ) -> tuple[SparseGPSarsa, float]:
        """A model without pseudo-inputs, whose hyperparameters are learnt, and the log evidence per row."""
        kernel = clipped(model.kernel, bounds)
        noise = float(np.clip(model.noise_variance, *bounds["noise_variance"]))
        if len(t) <= sum(np.size(low) for low, _ in bounds.values()):  # too few to tell
            return self.empty(kernel, noise), float("nan")
        learner = SparseGPSarsa(
            kernel, noise, t.inputs[pivots(kernel, t.inputs, LEARN_WITH)], growth="streaming"
        )
        parameters, report = learner._tuned(t, list(bounds), bounds, LEARN_STEPS)
        return self.empty(parameters.kernel, parameters.noise_variance), report.end / len(t)

    def placed(self, model: SparseGPSarsa, experience: Experience, rng: np.random.Generator) -> SparseGPSarsa:
        """The model with pseudo-inputs among the visited inputs, by pivoted Cholesky."""
        X = experience.inputs[experience.sample(PLACE_FROM, rng)]
        chosen = pivots(model.kernel, X, self.budget, NOVEL)
        found = self.empty(model.kernel, model.noise_variance, model.prior_mean)
        found.add_pseudo_inputs(X[chosen])
        return found

    def stochastic(self, experience: Experience, rng: np.random.Generator) -> bool:
        """Whether inputs leave the next observation undetermined, or episodes end at random."""
        rows, category = experience.sample(PAIRS_FROM, rng), self._category
        following = experience.following[rows, : experience.split]
        if looks_stochastic(experience.inputs[rows], following, category):
            return True
        rows = experience.sample(ENDS_FROM, rng)
        return ends_at_random(experience.inputs[rows], experience.discounts[rows] == 0.0, category)

    def reward_noise(self, experience: Experience, rng: np.random.Generator) -> float:
        """The variance of the reward that inputs leave undetermined; 0 where that is not noise."""
        rows = experience.sample(PAIRS_FROM, rng)
        rewards = experience.rewards[rows]
        found = noise_variance(experience.inputs[rows], rewards, self._category)
        return found if is_noise(found, rewards) else 0.0

    @property
    def _category(self) -> NDArray[np.bool_]:
        return np.array([*self.observations.categories, *self.actions.categories], dtype=np.bool_)


def reward_unit(rewards: Array) -> float:
    """The size of a reward that matters; 1 where all are 0."""
    return max(float(np.std(rewards)), float(np.abs(rewards).mean())) or 1.0


def clipped(kernel: Any, bounds: dict[str, tuple[Any, Any]]) -> Kernel:
    """The kernel with its parameters brought inside the bounds."""
    known = kernel.parameters
    return kernel.with_parameters(
        {name: np.clip(known[name], *pair)[()] for name, pair in bounds.items() if name in known}
    )
