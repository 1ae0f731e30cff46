"""(c) Time per update and memory as the number of transitions grows, in streaming mode."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.timing import random_walk, resident_bytes
from gpsarsa import SparseGPSarsa, Transitions, kernels

CHECKPOINTS = (1_000, 10_000, 100_000, 1_000_000)
BLOCK = 1_000


def measure(M: int = 64) -> list[dict[str, float]]:
    rng = np.random.default_rng(0)
    path = random_walk(rng, BLOCK + 1)
    t = Transitions(path[:-1], rng.standard_normal(BLOCK), path[1:], np.full(BLOCK, 0.95))
    Z = random_walk(rng, 50 * M)[::50]
    model = SparseGPSarsa(kernels.RBF(np.ones(6)), 0.1, Z, growth="streaming").update(t).fit(t[:0])
    start = resident_bytes()
    results, block_seconds = [], []
    for n in range(BLOCK, CHECKPOINTS[-1] + 1, BLOCK):
        begun = time.perf_counter()
        model.update(t)
        block_seconds.append(time.perf_counter() - begun)
        if n in CHECKPOINTS:
            recent = np.array(block_seconds[-max(1, len(block_seconds) // 2) :])
            results.append(
                {
                    "N": float(n),
                    "µs per update": 1e6 * float(np.median(recent)) / BLOCK,
                    "µs, fastest block": 1e6 * float(recent.min()) / BLOCK,
                    "RSS MB": resident_bytes() / 2**20,
                    "RSS gained MB": (resident_bytes() - start) / 2**20,
                }
            )
    return results
