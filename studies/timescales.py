"""One, two or three timescales from a crude start, and which pseudo-input to drop at a tight budget.

Crude: lengthscales a third of the tuned ones, ten times their noise variance, no pseudo-inputs. Along the
stream the posterior is compared with true values at inputs of runs of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpsarsa import Slow, SparseGPSarsa, Timescales
from gpsarsa.placement import Novelty
from studies.problems import PROBLEMS, Problem

N = 2_000
CHECKS = (125, 250, 500, 1_000, 1_500, 2_000)
SEEDS = range(8)
NAMES = ("harbour", "pendulum", "three masses")
EVIDENCE, BOUND = "evidence", "variational"
TIGHT = {"harbour": 15, "pendulum": 40, "three masses": 40}

Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    name: str
    slow: tuple[Slow, ...] = ()
    crude: bool = True
    budget: int | None = 80
    drop: str = "variance"
    growth: str = "exact"
    threshold: float = 1e-3


def places(objective: str) -> Slow:
    return Slow(500, objective=objective)


def hyperparameters(objective: str) -> Slow:
    return Slow(500, pseudo_inputs=False, hyperparameters=True, objective=objective)


def both(objective: str) -> Slow:
    return Slow(500, hyperparameters=True, objective=objective)


SCHEDULES = (
    Variant("fast only"),
    Variant("two: places (bound)", (places(BOUND),)),
    Variant("two: hyperparameters (evidence)", (hyperparameters(EVIDENCE),)),
    Variant("two: hyperparameters (bound)", (hyperparameters(BOUND),)),
    Variant("two: both at once (evidence)", (both(EVIDENCE),)),
    Variant("two: both at once (bound)", (both(BOUND),)),
    Variant("three: places (bound), hyperparameters (evidence)", (places(BOUND), hyperparameters(EVIDENCE))),
    Variant("three: places (bound), hyperparameters (bound)", (places(BOUND), hyperparameters(BOUND))),
    Variant("fast only, tuned hyperparameters", crude=False),
)
DROPS = tuple(
    Variant(f"{drop}, {growth}", crude=False, drop=drop, growth=growth)
    for growth in ("exact", "streaming")
    for drop in ("variance", "information", "oldest")
)
NOVELTIES = (0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4)
THRESHOLDS = tuple(Variant(f"Novelty({x:g})", crude=False, budget=None, threshold=x) for x in NOVELTIES)


def tasks() -> list[tuple[str, int, Variant]]:
    tight = [(name, replace(variant, budget=TIGHT[name])) for name in NAMES for variant in DROPS]
    ample = [(name, variant) for name in NAMES for variant in (*SCHEDULES, *THRESHOLDS)]
    return [(name, seed, variant) for seed in SEEDS for name, variant in [*ample, *tight]]


def measure(task: tuple[str, int, Variant]) -> list[Row]:
    """One variant on one stream: a row at each of CHECKS."""
    name, seed, variant = task
    problem = PROBLEMS[name]
    t = problem.transitions(seed, N)
    driver = Timescales(
        _start(problem, variant), placement=Novelty(variant.threshold), budget=variant.budget,
        drop=variant.drop, slow=variant.slow, seed=seed,
    )  # fmt: skip
    rows: list[Row] = []
    seconds, done = 0.0, 0
    for check in CHECKS:
        begun = time.process_time()
        driver.update(t[done:check])
        seconds += time.process_time() - begun
        done = check
        own: Row = {"problem": name, "seed": seed, "variant": variant.name, "N": check, "seconds": seconds}
        own |= {"M": len(driver.model.pseudo_inputs), "noise": driver.model.noise_variance}
        own |= {"swaps": driver.counts["dropped"]}
        rows.append(own | _against_truth(driver.model, problem))
    return rows


def _start(problem: Problem, variant: Variant) -> SparseGPSarsa:
    kernel, sigma2 = problem.kernel, problem.noise_variance
    if variant.crude:
        parameters = kernel.parameters
        scales = {k: np.asarray(v) / 3.0 for k, v in parameters.items() if k.endswith("lengthscales")}
        kernel, sigma2 = kernel.with_parameters(parameters | scales), 10.0 * sigma2
    none = np.empty((0, problem.columns))
    return SparseGPSarsa(kernel, sigma2, none, growth=variant.growth, prior_mean=problem.prior_mean)


def _against_truth(model: SparseGPSarsa, problem: Problem) -> dict[str, float]:
    X, true = problem.test
    mean, std = model.predict(X, return_std=True)
    return {
        "error": float(np.sqrt(np.mean((mean - true) ** 2)) / true.std()),
        "coverage": float(np.mean(np.abs(mean - true) <= 1.96 * std)),
        "std": float(np.median(std) / true.std()),
    }
