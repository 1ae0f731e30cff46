"""Random problems for the tests: episodes with terminals, truncations and γ = 0 rows."""

from __future__ import annotations

import numpy as np

from gpsarsa import Transitions, kernels

KERNELS = {
    "rbf": kernels.RBF([0.8, 1.2, 1.0]),
    "matern32": kernels.Matern32(1.1, variance=2.0),
    "matern52": kernels.Matern52([0.9, 1.4, 1.1], variance=0.5),
    "action": kernels.RBF([0.8, 1.0], columns=[0, 1]) * kernels.Delta(2, share=0.4),
    "sum": kernels.RBF(0.9, columns=[0, 2], variance=0.7)
    + kernels.Matern32(1.2, columns=1) * kernels.Delta(2),
    "nested": (kernels.RBF(1.5, variance=0.3) + kernels.Delta(2, share=0.2))
    * (kernels.Matern52(1.0, columns=[0, 1]) + kernels.RBF(2.0, columns=1)),
}


def episode(rng, steps, terminated, gamma=0.9, columns=3):
    """A random walk; the last column is a discrete action."""
    path = np.cumsum(0.7 * rng.standard_normal((steps + 1, columns)), axis=0)
    path -= path.mean(axis=0)
    path[:, -1] = rng.integers(0, 3, steps + 1)
    rewards = np.sin(path[:-1, 0]) + 0.3 * rng.standard_normal(steps)
    return Transitions.from_trajectory(path, rewards, gamma, terminated=terminated)


def transitions(rng, n=40, gamma=0.9):
    """About n rows: terminated and truncated episodes, one of a single row, and loose rows."""
    parts = [
        episode(rng, n // 3, True, gamma),
        episode(rng, n // 4, False, gamma),
        episode(rng, 1, True, gamma),
        episode(rng, n // 4, True, gamma),
    ]
    loose = rng.standard_normal((2, 4, 3))
    parts.append(Transitions(loose[0], rng.standard_normal(4), loose[1], [0.5, 0.9, 0.0, 1.0]))
    return Transitions.concatenate(parts)


def pseudo_inputs(rng, count, columns=3):
    Z = 1.3 * rng.standard_normal((count, columns))
    Z[:, -1] = rng.integers(0, 3, count)
    return Z
