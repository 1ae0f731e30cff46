"""Comparing durations on a machine that is shared and noisy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

Seconds = dict[str, np.ndarray]


def interleaved(calls: Mapping[str, Callable[[], object]], repeats: int) -> Seconds:
    """Time every call in turn, `repeats` times over, after one run of each that does not count."""
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begun)
    return {name: np.array(values) for name, values in seconds.items()}


def ratio(seconds: Seconds, name: str, reference: str) -> float:
    """The median over repeats of the ratio within a repeat."""
    return float(np.median(seconds[name] / seconds[reference]))


def resident_bytes() -> int:
    """Memory that the process holds now (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def random_walk(rng: np.random.Generator, n: int, columns: int = 6) -> np.ndarray:
    """n inputs along a bounded path."""
    return 2 * np.sin(np.cumsum(0.3 * rng.standard_normal((n, columns)), axis=0))
