"""(f) A stream through a fixed budget: time, memory, and whether everything stays positive definite."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.timing import random_walk, resident_bytes
from gpsarsa import Slow, SparseGPSarsa, Timescales, Transitions, kernels

N, PARTS, BUDGET = 100_000, 5, 60


def measure(drop: str = "information") -> list[dict[str, float]]:
    """Rows after every fifth of the stream; `drop` is the rule at the budget."""
    rng = np.random.default_rng(0)
    path = random_walk(rng, N + 1, 3)
    rewards = np.sin(path[:-1, 0]) * path[:-1, 1] + 0.1 * rng.standard_normal(N)
    t = Transitions.from_trajectory(path, rewards, 0.9, terminated=False)
    model = SparseGPSarsa(kernels.RBF(np.ones(3)), 0.1, np.empty((0, 3)), growth="streaming")
    slow = [Slow(10_000), Slow(25_000, pseudo_inputs=False, hyperparameters=True)]
    run = Timescales(model, budget=BUDGET, drop=drop, slow=slow, seed=0)
    results, most = [], 0
    for part in range(PARTS):
        begun = time.perf_counter()
        for j in range(part * N // PARTS, (part + 1) * N // PARTS):
            run.observe(t.inputs[j], t.rewards[j], t.next_inputs[j], t.discounts[j])
            most = max(most, len(model.pseudo_inputs))
        seconds = time.perf_counter() - begun
        Z, W = model.pseudo_inputs, model._basis.factor
        results.append(
            {
                "N": float(run.counts["transitions"]),
                "µs a transition": 1e6 * seconds * PARTS / N,
                "most pseudo-inputs": float(most),
                "dropped": float(run.counts["dropped"]),
                "RSS MB": resident_bytes() / 2**20,
                "least eigenvalue of R": float(np.linalg.eigvalsh(model._belief.covariance)[0]),
                "|W K Wᵀ − I|": float(np.abs(W @ model.kernel(Z, Z) @ W.T - np.eye(len(Z))).max()),
            }
        )
    return results
