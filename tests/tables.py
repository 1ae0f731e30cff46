"""Logged episodes for the tests: as the columns of a table and as transitions."""

from __future__ import annotations

import numpy as np

from gpsarsa import Transitions, kernels

GAMMA = 0.9
KERNEL = kernels.Matern52([1.0, 1.3], 2.0, [0, 1]) * kernels.Delta(2, share=0.4)
NOISE = 0.3


def columns(lengths, seed=0, *, chains=True):
    """Two observation columns that wander, an action out of three; every other episode is truncated."""
    rng = np.random.default_rng(seed)
    parts = []
    for episode, length in enumerate(lengths):
        x = np.cumsum(0.5 * rng.standard_normal((length + 1, 2)), axis=0)
        a = rng.integers(3, size=length + 1)
        last = np.arange(length) == length - 1
        parts.append(
            {
                "observation": x[:-1],
                "action": a[:-1],
                "reward": np.sin(x[:-1, 0]) + 0.2 * a[:-1] + 0.3 * rng.standard_normal(length),
                "next_observation": x[1:],
                "next_action": a[1:],
                "terminated": last & (episode % 2 == 0),
                "truncated": last & (episode % 2 == 1),
                "episode": np.full(length, episode),
                "step": np.arange(length),
            }
        )
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return found if chains else {n: c for n, c in found.items() if n not in ("episode", "step")}


def transitions(table, gamma=GAMMA):
    """The same rows in memory."""
    x = np.column_stack([table["observation"], table["action"]])
    following = np.column_stack([table["next_observation"], table["next_action"]])
    discounts = np.where(table["terminated"], 0.0, gamma)
    starts = table["step"] == 0 if "step" in table else np.ones(len(x), dtype=np.bool_)
    return Transitions(x, table["reward"], following, discounts, starts)


def pseudo_inputs(count=12, seed=1):
    rng = np.random.default_rng(seed)
    return np.column_stack([1.5 * rng.standard_normal((count, 2)), rng.integers(3, size=count)])


class Always:
    """A policy that knows one action."""

    def __init__(self, action):
        self.action = action

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.full(len(observation), self.action), None
