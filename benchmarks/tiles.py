"""SARSA(λ) with tile coding, the textbook's agent, as a peer for `benchmarks.control`.

Sutton and Barto, Reinforcement Learning (2nd edition), sections 9.5.4 and 12.7: 8 tilings of 8 tiles a
dimension, displaced by the odd numbers 1, 3, 5, … of eighths of a tile, binary features with replacing
traces, λ = 0.9, α = 0.5/8, weights 0 at first. On Mountain Car γ = 1 and ε = 0 as in the book. Elsewhere
γ = 0.99; ε = 0 where no reward is positive, so that 0 is optimistic as in the book, else 0.1. A Discrete
observation is its own only feature. Of a continuous action five values a dimension are taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numba
import numpy as np

TILINGS, TILES = 8, 8
ALPHA, LAMBDA = 0.5 / 8, 0.9
ROWS = 2**17  # of the table; tiles beyond share rows
LEAST = 1e-3  # a trace that is smaller is dropped
VALUES = 5  # of a continuous action

GAMMA = {"MountainCar-v0": 1.0}
EPSILON = dict.fromkeys(("MountainCar-v0", "Acrobot-v1", "Pendulum-v1", "CliffWalking-v1", "Reacher-v5"), 0.0)
HALF_WIDTHS = {  # of what is tiled, where the space's bounds are infinite or far beyond what is visited
    "CartPole-v1": [2.4, 3.0, 0.21, 3.0],
    "LunarLander-v3": [1.0, 1.5, 2.0, 2.0, 1.0, 2.0, 1.0, 1.0],
    "InvertedPendulum-v5": [1.0, 0.2, 3.0, 3.0],
    "Reacher-v5": [1.0, 1.0, 1.0, 1.0, 0.2, 0.2, 10.0, 10.0, 0.4, 0.4],
}


class TileCoder:
    """The row of each tile that an observation is in, one a tiling; rows are given out as tiles are met."""

    def __init__(self, low: Any, high: Any, rows: int = ROWS) -> None:
        self.low, self.high, self.rows = np.asarray(low, float), np.asarray(high, float), rows
        odd = 2 * np.arange(len(self.low)) + 1
        self.shifts = np.arange(TILINGS)[:, None] * odd / TILINGS % 1.0
        self.known: dict[tuple[int, bytes], int] = {}

    def __call__(self, observation: Any) -> np.ndarray:
        share = (np.clip(observation, self.low, self.high) - self.low) / (self.high - self.low)
        tiles = np.floor(TILES * share + self.shifts).astype(np.int8)
        return np.array([self._row((tiling, tile.tobytes())) for tiling, tile in enumerate(tiles)])

    def _row(self, tile: tuple[int, bytes]) -> int:
        row = self.known.get(tile)
        if row is None:
            if len(self.known) >= self.rows:
                return hash((tile[0], *tile[1])) % self.rows
            row = self.known[tile] = len(self.known)
        return row


class OneHot:
    """A Discrete observation's only row."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __call__(self, observation: Any) -> np.ndarray:
        return np.array([int(observation)])


@numba.njit
def _learn(weights, traces, active, count, rows, action, error, step, decay, least):
    """w ← w + α δ z with z = 1 at the features just left; z ← γ λ z. How many traces stay active."""
    for row in rows:
        if traces[row, action] == 0.0:
            active[count, 0], active[count, 1] = row, action
            count += 1
        traces[row, action] = 1.0
    kept = 0
    for i in range(count):
        row, column = active[i]
        weights[row, column] += step * error * traces[row, column]
        traces[row, column] *= decay
        if traces[row, column] < least:
            traces[row, column] = 0.0
        else:
            active[kept] = active[i]
            kept += 1
    return kept


class TileSarsa:
    """Learns in one environment, step by step."""

    def __init__(self, env: gym.Env, name: str, seed: int) -> None:
        self.env, self.seed = env, seed
        self.gamma, self.epsilon = GAMMA.get(name, 0.99), EPSILON.get(name, 0.1)
        self.rng = np.random.default_rng(seed)
        self.coder = _coder(env.observation_space, HALF_WIDTHS.get(name))
        self.actions = _actions(env.action_space)
        shape = self.coder.rows, len(self.actions)
        self.weights, self.traces = np.zeros(shape), np.zeros(shape)
        self.active, self.count = np.zeros((4_096, 2), np.int64), 0
        self.num_timesteps = 0

    def learn(self, steps: int, watch: Callable[[TileSarsa], None]) -> None:
        """Take so many steps; `watch` is called after each."""
        fresh, ended = {"seed": self.seed}, True
        for _ in range(steps):
            if ended:
                observation, _ = self.env.reset(**fresh)
                fresh = {}
                self._forget()
                rows = self.coder(observation)
                action = self._choose(rows)
            observation, reward, terminated, truncated, _ = self.env.step(self.actions[action])
            error = float(reward) - self.weights[rows, action].sum()
            following = self.coder(observation)
            chosen = self._choose(following)
            if not terminated:
                error += self.gamma * self.weights[following, chosen].sum()
            self.count = _learn(
                self.weights, self.traces, self.active, self.count, rows, action, error, ALPHA,
                self.gamma * LAMBDA, LEAST,
            )  # fmt: skip
            rows, action, ended = following, chosen, terminated or truncated
            self.num_timesteps += 1
            watch(self)

    def predict(self, observation: Any) -> Any:
        """The greedy action; the first of equals."""
        return self.actions[int(np.argmax(self.weights[self.coder(observation)].sum(axis=0)))]

    def _choose(self, rows: np.ndarray) -> int:
        values = self.weights[rows].sum(axis=0)
        if self.rng.random() < self.epsilon:
            return int(self.rng.integers(len(values)))
        best = np.flatnonzero(values == values.max())
        return int(best[self.rng.integers(len(best))]) if len(best) > 1 else int(best[0])

    def _forget(self) -> None:
        active = self.active[: self.count]
        self.traces[active[:, 0], active[:, 1]] = 0.0
        self.count = 0


def _coder(space: gym.Space, half_widths: list[float] | None) -> TileCoder | OneHot:
    if isinstance(space, gym.spaces.Discrete):
        return OneHot(int(space.n))
    if half_widths is None:
        return TileCoder(space.low, space.high)
    return TileCoder(-np.array(half_widths), half_widths)


def _actions(space: gym.Space) -> list[Any]:
    """The actions to choose from."""
    if isinstance(space, gym.spaces.Discrete):
        return list(range(int(space.n)))
    grids = [np.linspace(low, high, VALUES) for low, high in zip(space.low, space.high, strict=True)]
    return [np.array(values, space.dtype) for values in itertools.product(*grids)]
