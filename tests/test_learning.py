"""It learns: with its shipped defaults, and as in the paper."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from test_environments import Corridor, Target

from gpsarsa import SparseGPSarsa
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.policies import EpsilonGreedy
from gpsarsa.kernels import RBF, Matern52


def mean_return(env, act, episodes=30):
    totals = []
    for seed in range(episodes):
        observation, _ = env.reset(seed=10_000 + seed)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total, over = total + reward, terminated or truncated
        totals.append(total)
    return np.mean(totals)


class Swing(gymnasium.Env):
    """A car in a valley whose engine is too weak for the slope: it must first go back."""

    observation_space = spaces.Box(np.array([-1.2, -0.2]), np.array([0.6, 0.2]), dtype=np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed, self.steps = float(self.np_random.uniform(-0.6, -0.4)), 0.0, 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.place, self.speed])

    def step(self, action):
        for _ in range(4):
            push = 0.0013 * (int(action) - 1) - 0.0025 * np.cos(3.0 * self.place)
            self.speed = float(np.clip(self.speed + push, -0.07, 0.07))
            self.place = float(np.clip(self.place + self.speed, -1.2, 0.6))
            self.speed = 0.0 if self.place == -1.2 else self.speed
        self.steps += 1
        return self.seen(), -1.0, self.place >= 0.5, self.steps == 60, {}


@pytest.mark.parametrize(
    ("world", "steps", "poor", "good"),
    [
        (lambda: Corridor(limit=40), 1000, -30.0, -9.0),
        (Swing, 1500, -55.0, -35.0),
        (lambda: Target(axes=2), 600, -4.0, -1.0),
    ],
    ids=["corridor", "swing", "target"],
)
def test_it_learns(world, steps, poor, good):
    env = world()
    env.action_space.seed(0)
    assert mean_return(env, lambda observation: env.action_space.sample()) < poor
    agent = SarsaAgent(world(), seed=0, warmup=100, budget=60).learn(steps)
    assert mean_return(env, lambda observation: agent.predict(observation)[0]) > good
    assert agent.failures == 0


def test_the_papers_sarsa_learns_too():
    env = Corridor(limit=40)
    kernel = Matern52(0.3, 100.0, [0]) * RBF(0.8, 1.0, [1])
    model = SparseGPSarsa(
        kernel, 0.01, np.array([[s, a] for s in np.linspace(0, 1, 9) for a in (0.0, 1.0, 2.0)])
    )
    agent = SarsaAgent(
        env, gamma=0.95, seed=0, method="sarsa", model=model, policy=EpsilonGreedy(0.5, 0.0, 600)
    )
    agent.learn(1000)
    assert mean_return(env, lambda observation: agent.predict(observation)[0]) > -8.0
