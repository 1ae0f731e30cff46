"""What does the recursion gain? Growing with the stream against refitting from scratch at every step.

A pendulum is let go ever further from upright, so that novel inputs keep coming: pseudo-inputs are
added online by novelty while 100 000 transitions stream in. Refitting at each of them would take hours:
single refits are timed at a few lengths and integrated over the stream. Times are CPU seconds of one
thread, and nothing else of the study runs meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpsarsa import SparseGPSarsa, Timescales, Transitions
from gpsarsa.placement import Novelty
from studies.placement import compare
from studies.problems import PENDULUM, Array

N = 100_000
CHECKS = (1_000, 3_000, 10_000, 30_000, 100_000)  # where models are compared with a refit
MARKS = (*(digit * 10**power for power in (2, 3, 4) for digit in (1, 2, 3, 5, 7)), N)  # of the clock
THRESHOLD = 0.01
SEEDS = range(3)
GROWTHS = ("exact", "frozen", "streaming")

Row = dict[str, Any]


def stream(seed: int) -> Transitions:
    """Starts whose distance from upright and speed grow with the square root of the stream's length."""
    rng = np.random.default_rng([seed, 2])
    episodes = N // PENDULUM.length
    states, actions = PENDULUM.starts(rng, episodes)
    reach = np.sqrt(np.linspace(0.0, 1.0, episodes))[:, None]
    return PENDULUM.transitions(seed, N, (reach * states, reach * actions))


def empty(growth: str) -> SparseGPSarsa:
    none = np.empty((0, PENDULUM.columns))
    mean = PENDULUM.prior_mean
    return SparseGPSarsa(PENDULUM.kernel, PENDULUM.noise_variance, none, prior_mean=mean, growth=growth)


def measure() -> Iterator[list[Row]]:
    """The rows of one growth and one seed after the other."""
    for growth in GROWTHS:
        _run(growth, 0, stream(0)[:1_000])  # compiles what will be timed
    for seed in SEEDS:
        t = stream(seed)
        for growth in GROWTHS:
            yield _run(growth, seed, t)


def _run(growth: str, seed: int, t: Transitions) -> list[Row]:
    driver = Timescales(empty(growth), placement=Novelty(THRESHOLD), budget=None)
    rows: list[Row] = []
    total, done = 0.0, 0
    for mark in (mark for mark in MARKS if mark <= len(t)):
        begun = time.process_time()
        driver.update(t[done:mark])
        spent = time.process_time() - begun
        total += spent
        own: Row = {"growth": growth, "seed": seed, "N": mark, "M": len(driver.model.pseudo_inputs)}
        own |= {"us": 1e6 * spent / (mark - done), "total": total, "bytes": held(driver.model)}
        rows.append(own | (_against_refit(driver.model, t[:mark], seed) if mark in CHECKS else {}))
        done = mark
    return rows


def _against_refit(model: SparseGPSarsa, t: Transitions, seed: int) -> dict[str, float]:
    """How far the model is from a refit through the same pseudo-inputs, and what that refit takes."""
    refit = SparseGPSarsa(**model.get_params())
    seconds = []
    for _ in range(3):
        begun = time.process_time()
        refit.fit(t)
        seconds.append(time.process_time() - begun)
    X = t.inputs[np.random.default_rng(seed).choice(len(t), 500, replace=False)]
    here, there = model.predict(X, return_std=True), refit.predict(X, return_std=True)
    figures = compare(here, there) | {"std error": float(np.sqrt(np.mean((here[1] / there[1] - 1.0) ** 2)))}
    inputs, true = PENDULUM.test
    for name, one in (("true error", model), ("refit's true error", refit)):
        figures[name] = float(np.sqrt(np.mean((one.predict(inputs) - true) ** 2)) / true.std())
    return figures | {"refit": float(np.median(seconds))}


def refitting(N: Array, seconds: Array, until: Array) -> Array:
    """Total seconds of a refit at every step up to each of `until`: ∫ of the log-log interpolation."""
    grid = np.geomspace(100.0, float(max(until)), 2_000)
    slope = np.polyfit(np.log(N[:2]), np.log(seconds[:2]), 1)  # below the first length
    single = np.where(
        grid < N[0],
        np.exp(np.polyval(slope, np.log(grid))),
        np.exp(np.interp(np.log(grid), np.log(N), np.log(seconds))),
    )
    pieces = 0.5 * (single[1:] + single[:-1]) * np.diff(grid)
    return np.interp(until, grid, np.concatenate([[0.0], np.cumsum(pieces)]))


def held(model: SparseGPSarsa) -> int:
    """Bytes of all arrays that the model holds."""
    arrays: dict[int, int] = {}
    pending: list[Any] = [model.__dict__]
    seen = set[int]()
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            base = thing.base if isinstance(thing.base, np.ndarray) else thing
            arrays[id(base)] = base.nbytes
        elif isinstance(thing, dict):
            pending.extend(thing.values())
        elif isinstance(thing, list | tuple):
            pending.extend(thing)
        elif hasattr(thing, "__dict__") and type(thing).__module__.startswith("gpsarsa"):
            pending.append(thing.__dict__)
    return sum(arrays.values())
