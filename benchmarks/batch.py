"""(b) `fit` of 20 000 transitions against bare dtrmm + dsyrk of that size."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
from scipy.linalg.blas import dsyrk, dtrmm
from threadpoolctl import threadpool_limits

from benchmarks.timing import interleaved, random_walk, ratio
from gpsarsa import SparseGPSarsa, Transitions, kernels

N = 20_000


def measure(repeats: int = 15) -> list[dict[str, float]]:
    rng = np.random.default_rng(0)
    path, loose = random_walk(rng, N + 1), random_walk(rng, N)
    rewards, gamma = rng.standard_normal(N), np.full(N, 0.95)
    chained = Transitions(path[:-1], rewards, path[1:], gamma)  # x′ is the next row's x, as in episodes
    unchained = Transitions(path[:-1], rewards, loose, gamma)  # every x′ is new, as after relabelling
    results = []
    for threads in (1, 0):
        for M in (100, 256):
            Z = random_walk(rng, 50 * M)[::50] + 0.2 * rng.standard_normal((M, 6))
            model = SparseGPSarsa(kernels.RBF(np.ones(6)), 0.1, Z, growth="streaming")
            W, Delta = np.asfortranarray(model._basis.factor), np.full((M, N), 1e-3, order="F")
            S = np.zeros((M, M), order="F")

            def blas(W=W, Delta=Delta, S=S):
                Psi = dtrmm(1.0, W, Delta, lower=1, overwrite_b=1)
                Psi[:, ::500] = 1e-3  # keeps the numbers in range over many repeats
                dsyrk(1.0, Psi, c=S, lower=1, overwrite_c=1)

            calls = {
                "blas": blas,
                "episodes": lambda model=model: model.fit(chained),
                "loose rows": lambda model=model: model.fit(unchained),
            }
            with threadpool_limits(1) if threads else nullcontext():
                seconds = interleaved(calls, repeats)
            results.append(
                {
                    "BLAS threads": float(threads),
                    "M": float(M),
                    "blas ms": 1e3 * float(np.median(seconds["blas"])),
                    "fit ms": 1e3 * float(np.median(seconds["episodes"])),
                    "fit episodes / blas": ratio(seconds, "episodes", "blas"),
                    "fit loose rows / blas": ratio(seconds, "loose rows", "blas"),
                }
            )
    return results
