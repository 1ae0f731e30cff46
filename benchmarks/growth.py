"""(d) What adding or removing one pseudo-input costs in each growth, as the history grows."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.timing import random_walk
from gpsarsa import SparseGPSarsa, Transitions, kernels

LENGTHS = (1_000, 3_000, 10_000, 30_000, 100_000)
GROWTHS = ("exact", "frozen", "streaming")


def measure(M: int = 64, repeats: int = 7) -> list[dict[str, float]]:
    """Medians; at each length the three growths take turns."""
    rng = np.random.default_rng(0)
    path = random_walk(rng, LENGTHS[-1] + 1)
    rewards = rng.standard_normal(LENGTHS[-1])
    t = Transitions(path[:-1], rewards, path[1:], np.full(LENGTHS[-1], 0.95))
    Z, extra = random_walk(rng, 50 * M)[::50], 3.0 + rng.standard_normal((repeats, 6))
    results = []
    for n in LENGTHS:
        models = {
            growth: SparseGPSarsa(kernels.RBF(np.ones(6)), 0.1, Z, growth=growth).fit(t[:n])
            for growth in GROWTHS
        }
        seconds: dict[str, list[float]] = {
            f"{act} {growth}": [] for act in ("add", "remove") for growth in GROWTHS
        }
        for z in extra:
            for growth, model in models.items():
                begun = time.perf_counter()
                model.add_pseudo_inputs(z[None])
                added = time.perf_counter()
                model.remove_pseudo_inputs(0)
                seconds[f"add {growth}"].append(added - begun)
                seconds[f"remove {growth}"].append(time.perf_counter() - added)
        row = {f"{name} ms": 1e3 * float(np.median(values)) for name, values in seconds.items()}
        results.append({"N": float(n), **row})
    return results
