"""Rewards as what a potential loses on the way, and what actions cost.

    r = V(s) − V(s′) + c(a)

V is a sparse Gaussian process, learnt from its differences as a value function is (γ = 1); c is linear in
some features of actions. Around any loop V earns nothing, so that no error of it can be earned again and
again. What V can make of a feature is taken from it before the costs are told: an action that is mostly taken
where V rises must not be charged for that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsarsa._linalg import least_squares
from gpsarsa._validation import Array
from gpsarsa.control.critic import NOVEL
from gpsarsa.control.regression import Regression, far
from gpsarsa.control.spaces import Actions

__all__ = ["Steps", "features", "learn"]

PSEUDO_INPUTS = 300  # of V
MOST_FEATURES = 20  # of actions, by which their costs are learnt
FIT_FROM = 8_000  # rows of V
HELD = 4  # every fourth row is held out
FAIR = 2.0  # times what is left of rows that were learnt from may be left of others
EXPLAINED, UNEXPLAINED = 0.05, 0.5  # so little of the rewards' spread is left: no V; or by V: it is dropped


class Steps(NamedTuple):
    """Steps after which episodes went on."""

    inputs: Array  # observations; as V does not depend on an action, its columns are 0
    ahead: Array  # the next ones
    rewards: Array
    features: Array  # of the actions

    def learnt(self) -> NDArray[np.bool_]:
        """Which are not held out."""
        rows: NDArray[np.bool_] = np.arange(len(self.rewards)) % HELD > 0
        return rows


def features(actions: Actions, rows: Array) -> Array:
    """In which what an action costs is linear: one for each value of a column, or its first powers; where
    these are too many, all actions cost the same."""
    one = np.ones((len(rows), 1))
    if actions.continuous:
        low, high = actions.low, actions.high
        z = (2.0 * rows - low - high) / np.where(high > low, high - low, 1.0)
        found = np.hstack([one, z, z * z])
    else:
        found = np.hstack([column[:, None] == np.unique(column) for column in rows.T]).astype(float)
    return found if found.shape[1] <= MOST_FEATURES else one


def learn(
    potential: Regression, steps: Steps, bounds: dict[str, Any], search: bool, otherwise: float
) -> Array | None:
    """V from most of the steps, and what each feature costs; None where they leave much more of the others
    than what is left `otherwise`, or where V was used before, than half of all."""
    deviation = float(steps.rewards.std()) if len(steps.rewards) else 0.0
    if not deviation > 1e-12 * float(np.abs(steps.rewards).max(initial=0.0)):  # constant
        potential.forget()
        return None
    if not potential.known and otherwise < EXPLAINED * deviation:
        return None
    steps = steps._replace(rewards=steps.rewards / deviation)
    costs = _costs(potential, steps, bounds, search or not potential.known)
    rest = _left(potential, steps, steps.rewards - steps.features @ costs)
    left = float(rest[~steps.learnt()].std()) * deviation
    potential.scale = deviation
    most = UNEXPLAINED * deviation if potential.known else FAIR * otherwise
    if left > most:
        potential.forget()
        return None
    potential.known = True
    return deviation * costs


def _costs(potential: Regression, steps: Steps, bounds: dict[str, Any], search: bool) -> Array:
    """What each feature costs, by least squares on what V leaves of the rewards and of the features."""
    F, y, learnt = steps.features, steps.rewards, steps.learnt()
    costs = least_squares(F[learnt], y[learnt])
    for again in range(2):
        if search:
            rng = np.random.default_rng([len(y), again])
            X, ahead = steps.inputs[learnt], steps.ahead[learnt]
            potential.search(X, (y - F @ costs)[learnt], bounds, rng, ahead)
        rest = _left(potential, steps, y)
        of_features = np.array([_left(potential, steps, column) for column in F.T]).T
        rows = learnt & ~far(np.abs(rest - of_features @ costs))
        costs = least_squares(of_features[rows], rest[rows])
    return costs


def _left(potential: Regression, steps: Steps, outcomes: Array) -> Array:
    """Of outcomes by V, which is fitted to those learnt from. Its seeds are its own: where V is not used,
    nothing else changes."""
    learnt, rng = steps.learnt(), np.random.default_rng(len(outcomes))
    potential.scale = 1.0
    potential.fit(
        steps.inputs[learnt], outcomes[learnt], rng, PSEUDO_INPUTS, NOVEL, steps.ahead[learnt], FIT_FROM
    )
    return outcomes - (potential(steps.inputs) - potential(steps.ahead))
