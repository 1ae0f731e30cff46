"""Where should pseudo-inputs be? The sparse posterior against the exact one as their number grows.

Every strategy of `gpsarsa.placement` chooses M of the inputs visited, and the evidence moves those of
the best cheap strategy to better places. Hyperparameters are the same for all and for the exact model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions
from gpsarsa.placement import EvidenceGain, Greedy, KMeansPlusPlus, Novelty, Random
from studies.problems import PROBLEMS, Array, Problem

N = 2_000
SHARES = (0.01, 0.02, 0.03, 0.05, 0.1)  # M / N
SEEDS = range(8)
LABELS = {
    "Random": "Random",
    "KMeansPlusPlus": "KMeansPlusPlus",
    "Novelty": "Novelty (threshold found for M)",
    "Greedy": "Greedy",
    "EvidenceGain": "EvidenceGain",
    "optimised": "Greedy, moved by the evidence",
    "optimised, bound": "Greedy, moved by the bound",
}
STRATEGIES = tuple(LABELS)
OBJECTIVES = {"optimised": "evidence", "optimised, bound": "variational"}
MAX_ITERATIONS = 100

Row = dict[str, Any]


def tasks() -> list[tuple[str, int]]:
    return [(name, seed) for seed in SEEDS for name in PROBLEMS]


def measure(task: tuple[str, int]) -> list[Row]:
    """All strategies and numbers of pseudo-inputs on one problem and seed."""
    name, seed = task
    problem = PROBLEMS[name]
    t = problem.transitions(seed, N)
    exact = GPSarsa(problem.kernel, problem.noise_variance, prior_mean=problem.prior_mean).fit(t)
    X, true = problem.test
    truth = exact.predict(X, return_std=True)
    error = float(np.sqrt(np.mean((truth[0] - true) ** 2)) / true.std())
    rows: list[Row] = []
    for share in SHARES:
        for strategy, model, seconds in _models(problem, t, round(share * N), seed):
            figures = compare(model.predict(X, return_std=True), truth)
            gap = exact.log_evidence() - model.log_evidence()
            own: Row = {"problem": name, "seed": seed, "share": share, "strategy": strategy}
            kept = len(model.pseudo_inputs)
            rows.append(own | figures | {"gap": gap, "seconds": seconds, "M": kept, "exact error": error})
    return rows


def compare(sparse: tuple[Array, Array], exact: tuple[Array, Array]) -> dict[str, float]:
    """Relative error of the means and mean KL(sparse ‖ exact) of the marginals."""
    (m, s), (m0, s0) = sparse, exact
    divergence = np.log(s0 / s) + (s**2 + (m - m0) ** 2) / (2.0 * s0**2) - 0.5
    return {
        "error": float(np.sqrt(np.mean((m - m0) ** 2)) / m0.std()),
        "KL": float(divergence.mean()),
        "std ratio": float(np.median(s / s0)),
    }


def _models(
    problem: Problem, t: Transitions, M: int, seed: int
) -> Iterator[tuple[str, SparseGPSarsa, float]]:
    """(strategy, the model fitted through its pseudo-inputs, CPU seconds spent on placing them)."""
    kernel, sigma2 = problem.kernel, problem.noise_variance
    placed: dict[str, Array] = {}
    for strategy in (Random(), KMeansPlusPlus(), Greedy(), EvidenceGain()):
        begun = time.process_time()
        Z = strategy.choose(t, M, kernel, sigma2, rng=seed)
        placed[type(strategy).__name__] = Z
        yield type(strategy).__name__, _fitted(problem, Z, t), time.process_time() - begun
    begun = time.process_time()
    Z = novelty_of_size(problem, t, M)
    yield "Novelty", _fitted(problem, Z, t), time.process_time() - begun
    for name, objective in OBJECTIVES.items():
        if objective == "evidence" and M > 0.05 * N:
            continue  # no better than with half as many, and dear
        begun = time.process_time()
        model = _fitted(problem, placed["Greedy"], t)
        model.optimize(t, hyperparameters=False, objective=objective, max_iterations=MAX_ITERATIONS)
        yield name, model, time.process_time() - begun


def _fitted(problem: Problem, Z: Array, t: Transitions) -> SparseGPSarsa:
    none = np.empty((0, t.columns))
    model = SparseGPSarsa(problem.kernel, problem.noise_variance, none, prior_mean=problem.prior_mean)
    model.add_pseudo_inputs(independent(problem, Z))
    return model.fit(t)


def independent(problem: Problem, Z: Array) -> Array:
    """Z in the order of a pivoted Cholesky factor, without those that the others determine.

    The order has no part in the posterior, but taken as they come, inputs close together along a path
    may leave K_zz too ill-conditioned to work with.
    """
    alone = Transitions(Z, np.zeros(len(Z)), Z, np.zeros(len(Z)))
    return Greedy().choose(alone, len(Z), problem.kernel, problem.noise_variance)


def novelty_of_size(problem: Problem, t: Transitions, M: int) -> Array:
    """The pseudo-inputs of the threshold, found by bisection, that admits at most M and nearly so many.

    A fixed threshold with a count would take the first M novel inputs and never see the rest.
    """
    low, high, best = math.log(1e-6), 0.0, np.empty((0, t.columns))
    for _ in range(12):
        middle = 0.5 * (low + high)
        strategy = Novelty(threshold=math.exp(middle))
        Z = strategy.choose(t, M + 1, problem.kernel, problem.noise_variance)
        if len(Z) > M:
            low = middle
            continue
        high = middle
        if len(Z) >= len(best):
            best = Z
        if len(Z) >= 0.98 * M:
            break
    return best
