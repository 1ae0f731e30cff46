"""(a) One transition, kernel included, against three bare BLAS calls in place, on one thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg.blas import dsymv, dsyr, dtrmv
from threadpoolctl import threadpool_limits

from benchmarks.timing import interleaved, random_walk, ratio
from gpsarsa import SparseGPSarsa, Transitions, kernels

SIZES = (32, 64, 100, 128, 256, 512)


def measure(repeats: int = 15, sizes: Sequence[int] = SIZES) -> list[dict[str, float]]:
    rng = np.random.default_rng(0)
    results = []
    with threadpool_limits(1):
        for M in sizes:
            N = max(500, min(4000, 400_000 // M))
            path = random_walk(rng, N + 1)
            t = Transitions(path[:-1], rng.standard_normal(N), path[1:], np.full(N, 0.95))
            Z = random_walk(rng, 50 * M)[::50] + 0.2 * rng.standard_normal((M, 6))
            model = SparseGPSarsa(kernels.RBF(np.ones(6)), 0.1, Z, growth="streaming")
            keeping = SparseGPSarsa(kernels.RBF(np.ones(6)), 0.1, Z, growth="exact")
            rows = [
                (x.copy(), float(r), y.copy(), 0.95)
                for x, r, y in zip(t.inputs, t.rewards, t.next_inputs, strict=True)
            ]
            W, R = np.asfortranarray(model._basis.factor), np.asfortranarray(np.eye(M))
            x, y = np.empty(M), np.zeros(M)

            def blas(N=N, W=W, R=R, x=x, y=y):
                x[:] = 1e-3
                for _ in range(N):
                    dtrmv(W, x, lower=1, overwrite_x=1)
                    q = dsymv(1.0, R, x, y=y, overwrite_y=1, lower=1)
                    dsyr(-1e-12, q, a=R, overwrite_a=1, lower=1)

            def observe(observe=model.observe, rows=rows):
                for row in rows:
                    observe(*row)

            def observe_keeping(observe=keeping.observe, rows=rows):
                for row in rows:
                    observe(*row)

            def update(model=model, t=t):
                model.update(t)

            calls = {
                "blas": blas,
                "update": update,
                "observe": observe,
                "observe, exact growth": observe_keeping,
            }
            seconds = interleaved(calls, repeats)
            result = {"M": float(M)}
            for name, values in seconds.items():
                result[f"{name} µs"] = 1e6 * float(np.median(values)) / N
                if name != "blas":
                    result[f"{name} / blas"] = ratio(seconds, name, "blas")
            results.append(result)
    return results
