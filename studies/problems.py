"""Four problems with known values: deterministic dynamics, a fixed policy, noisy rewards.

Every episode starts in a random state, in three of the problems with a random first action, and then
follows the policy. The dynamics are deterministic, so iid noise is right, and the true value of an
input is the discounted sum of the noise-free rewards along a rollout.

Kernel parameters, noise variance and prior mean are those that `tuned` finds by the exact model's
evidence on seed 100, rounded; no seed of the study's results was used for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpsarsa import GPSarsa, Transitions, kernels

Array = np.ndarray
TUNING_SEED, TEST_SEED = 100, 10_000
HORIZON = 400  # 0.95^400 ≈ 1e-9


@dataclass(frozen=True)
class Problem:
    name: str
    smooth: bool  # whether value and kernel are smooth, so that few pseudo-inputs should do
    kernel: kernels.Kernel
    noise_variance: float
    prior_mean: float
    reward_noise: float  # standard deviation of what is added to every reward
    length: int  # of an episode, in transitions
    starts: Callable[[np.random.Generator, int], tuple[Array, Array]]  # random states and first actions
    policy: Callable[[Array], Array]
    step: Callable[[Array, Array], tuple[Array, Array, Array]]  # next states, rewards, whether it ended
    inputs: Callable[[Array, Array], Array]
    gamma: float = 0.95

    @property
    def columns(self) -> int:
        return self.test[0].shape[1]

    def transitions(self, seed: int, n: int, begin: tuple[Array, Array] | None = None) -> Transitions:
        """n transitions of as many episodes as it takes; `begin` may prescribe where those start."""
        rng = np.random.default_rng([seed, 1])
        states, actions = begin or self.starts(rng, 2 + 2 * n // self.length)
        path, alive = [], np.ones(len(states), dtype=bool)
        for _ in range(self.length):
            following, rewards, ended = self.step(states, actions)
            after = self.policy(following)
            gamma = np.where(ended, 0.0, self.gamma)
            ahead = self.inputs(following, after)
            path.append((self.inputs(states, actions), rewards, ahead, gamma, alive))
            states, actions, alive = following, after, alive & ~ended
        x, r, ahead, gamma, alive = (np.stack(column, axis=1) for column in zip(*path, strict=True))
        x, r, ahead, gamma = x[alive][:n], r[alive][:n], ahead[alive][:n], gamma[alive][:n]
        assert len(r) == n, f"{self.name}: {len(r)} transitions, {n} wanted"
        return Transitions(x, r + rng.normal(0.0, self.reward_noise, n), ahead, gamma)

    def values(self, states: Array, actions: Array) -> Array:
        """The true values, by rollouts without noise."""
        value, weight = np.zeros(len(states)), np.ones(len(states))
        for _ in range(HORIZON):
            states, rewards, ended = self.step(states, actions)
            value += weight * rewards
            weight = np.where(ended, 0.0, self.gamma * weight)
            actions = self.policy(states)
        return value

    @cached_property
    def test(self) -> tuple[Array, Array]:
        """500 inputs of runs of their own, which are distributed as those visited, and true values."""
        rng = np.random.default_rng(TEST_SEED)
        states, actions = self.starts(rng, 500)
        for moves in rng.integers(self.length, size=500) > np.arange(self.length - 1)[:, None]:
            following, _, ended = self.step(states, actions)
            moves = (moves & ~ended)[:, None]
            states = np.where(moves, following, states)
            actions = np.where(moves, self.policy(following), actions)
        return self.inputs(states, actions), self.values(states, actions)


def tuned(problem: Problem, n: int = 1_000) -> GPSarsa:
    """Where the constants below come from: the exact evidence's maximum on the tuning seed.

    Q's prior standard deviation stays below 10: all values lie within 25 of each other.
    """
    model = GPSarsa(problem.kernel, problem.noise_variance, prior_mean=problem.prior_mean)
    bounds = {name: (1.0, 100.0) for name in problem.kernel.parameters if name.endswith("variance")}
    model.optimize(problem.transitions(TUNING_SEED, n), bounds=bounds, max_iterations=200)
    return model


# -- a boat in a tidal stream: 2 columns ------------------------------------------------------

BERTH = np.array([5.0, 4.0])  # m east, m north; the harbour is 20 m by 16 m


def _autopilot(states: Array) -> Array:
    """Velocity through the water in m/s: towards the berth, slower when close."""
    course = BERTH - states
    return 0.8 * course / np.hypot(np.linalg.norm(course, axis=1, keepdims=True), 2.0)


def _sail(states: Array, actions: Array) -> tuple[Array, Array, Array]:
    """One second under way costs 1, falling to 0 at the berth; the stream sets eastward."""
    rewards = np.expm1(-0.125 * np.sum((states - BERTH) ** 2, axis=1))
    stream = 0.5 * np.exp(-0.5 * ((states[:, 1:] - 10.0) / 3.0) ** 2) * [1.0, 0.0]
    following = states + actions + stream
    return following, rewards, np.linalg.norm(following - BERTH, axis=1) < 0.3


def _harbour_starts(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    states = rng.uniform([0.0, 0.0], [20.0, 16.0], (n, 2))
    return states, _autopilot(states)


HARBOUR = Problem(
    "harbour", True, kernels.RBF([4.92, 6.04], variance=8.31), 0.00256, -10.0, 0.05, 30,
    _harbour_starts, _autopilot, _sail, lambda states, actions: states,
)  # fmt: skip


# -- mountain car: 2 columns and a discrete action --------------------------------------------


def _with_the_motion(states: Array) -> Array:
    return np.where(states[:, 1:] >= 0.0, 1.0, -1.0)


def _drive(states: Array, actions: Array) -> tuple[Array, Array, Array]:
    """Four steps of the classic car under one action; the reward is how far below the summit it is."""
    x, v = states[:, 0], states[:, 1]
    rewards = 0.5 * (np.sin(3.0 * x) - 1.0)
    for _ in range(4):
        v = np.clip(v + 0.001 * actions[:, 0] - 0.0025 * np.cos(3.0 * x), -0.07, 0.07)
        x = x + v
        x, v = np.maximum(x, -1.2), np.where(x < -1.2, 0.0, v)
    return np.column_stack([x, v]), rewards, x >= 0.5


def _car_starts(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    states = rng.uniform([-1.2, -0.07], [0.45, 0.07], (n, 2))
    return states, rng.integers(-1, 2, (n, 1)).astype(float)


MOUNTAIN_CAR = Problem(
    "mountain car", False,
    kernels.Matern52([0.606, 0.0368], variance=4.83, columns=[0, 1]) * kernels.Delta(2, share=0.892),
    0.0107, -5.0, 0.05, 10, _car_starts, _with_the_motion, _drive, lambda s, a: np.hstack([s, a]),
)  # fmt: skip


# -- a pendulum under continuous torque: 4 columns --------------------------------------------


def _hold_up(states: Array) -> Array:
    """Torque in N m; θ = 0 is upright."""
    return 15.0 * np.tanh(-(20.0 * np.sin(states[:, :1]) + 4.0 * states[:, 1:]) / 15.0)


def _swing(states: Array, actions: Array) -> tuple[Array, Array, Array]:
    """A twentieth of a second of a damped pendulum of 1 kg and 1 m."""
    angle, speed = states[:, 0], states[:, 1]
    rewards = -0.5 * (1.0 - np.cos(angle)) - 0.01 * speed**2 - 0.002 * actions[:, 0] ** 2
    speed = speed + 0.05 * (9.81 * np.sin(angle) + actions[:, 0] - 0.5 * speed)
    following = np.column_stack([angle + 0.05 * speed, speed])
    return following, rewards, np.zeros(len(states), dtype=bool)


def _pendulum_starts(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    states = rng.uniform([-np.pi, -4.0], [np.pi, 4.0], (n, 2))
    return states, rng.uniform(-15.0, 15.0, (n, 1))


def _pendulum_inputs(states: Array, actions: Array) -> Array:
    angle = states[:, :1]
    return np.hstack([np.cos(angle), np.sin(angle), states[:, 1:], actions])


PENDULUM = Problem(
    "pendulum", True, kernels.RBF([1.40, 0.527, 3.51, 48.7], variance=40.1), 0.00324, -5.0, 0.05, 20,
    _pendulum_starts, _hold_up, _swing, _pendulum_inputs,
)  # fmt: skip


# -- three coupled masses under linear control: 7 columns -------------------------------------

SPRINGS = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
GAINS = np.array([[0.4, 0.3, 0.2, 0.9, 0.6, 0.4]])  # of the one force, which acts on the first mass


def _steady(states: Array) -> Array:
    return -states @ GAINS.T


def _oscillate(states: Array, actions: Array) -> tuple[Array, Array, Array]:
    """A fifth of a second of masses in a row, the first tied to a wall; quadratic cost."""
    places, speeds = states[:, :3], states[:, 3:]
    rewards = -0.1 * (np.sum(states**2, axis=1) + 0.5 * actions[:, 0] ** 2)
    speeds = speeds + 0.2 * (actions * [1.0, 0.0, 0.0] - places @ SPRINGS - 0.1 * speeds)
    return np.hstack([places + 0.2 * speeds, speeds]), rewards, np.zeros(len(states), dtype=bool)


def _masses_starts(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rng.uniform(-1.0, 1.0, (n, 6)), rng.uniform(-2.0, 2.0, (n, 1))


MASSES = Problem(
    "three masses", True,
    kernels.RBF([3.44, 3.34, 4.05, 5.48, 4.28, 3.82, 13.6], variance=100.0), 0.00242, -3.0, 0.05, 30,
    _masses_starts, _steady, _oscillate, lambda s, a: np.hstack([s, a]),
)  # fmt: skip

PROBLEMS = {p.name: p for p in (HARBOUR, MOUNTAIN_CAR, PENDULUM, MASSES)}
