"""(e) One log evidence with its full gradient, against other libraries: `make bench-evidence`.

They solve plain regression, so ours does too: discounts of 0, the same rows, Z, lengthscales, variance and
noise. A peer runs in a process of its own and takes turns with ours; the parameters change from round to
round, so that nothing can be kept from the one before, and in every round objective and gradient must agree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import random_walk
from gpsarsa import Transitions, kernels
from gpsarsa.evidence import log_evidence

N, M, COLUMNS = 20_000, 100, 4
WARM_UP, ROUNDS = 2, 21
PAUSE = 0.1  # seconds until waiting threads of the process before have stopped spinning
TOLERANCE = 1e-6

OBJECTIVES = {"GPyTorch SGPR": "variational", "GPy VarDTC": "variational", "GPy FITC": "evidence"}
TITLES = {"variational": "Titsias' bound", "evidence": "FITC evidence"}


class Evaluation(NamedTuple):
    seconds: float
    value: float
    gradient: np.ndarray  # by Z, lengthscales, variance, noise variance


Evaluate = Callable[[int], Evaluation]  # with all parameters scaled by 1 + k/1000


def problem(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A smooth function along a bounded path, Z beside the path."""
    X = random_walk(rng, N, COLUMNS)
    return {
        "X": X,
        "y": np.sin(X @ [1.0, 0.5, -0.7, 0.3]) + 0.3 * rng.standard_normal(N),
        "Z": X[:: N // M] + 0.1 * rng.standard_normal((M, COLUMNS)),
        "lengthscales": np.array([0.8, 1.0, 1.2, 1.5]),
        "variance": np.array(1.3),
        "noise": np.array(0.1),
    }


def ours(p: dict[str, np.ndarray], transitions: Transitions, objective: str) -> Evaluate:
    def evaluate(k: int) -> Evaluation:
        scale = 1 + k / 1000
        kernel = kernels.RBF(scale * p["lengthscales"], float(scale * p["variance"]))
        Z, noise = scale * p["Z"], float(scale * p["noise"])
        begun = time.perf_counter()
        value, slopes = log_evidence(kernel, noise, Z, transitions, objective=objective, gradient=True)
        seconds = time.perf_counter() - begun
        own = slopes.kernel["lengthscales"], slopes.kernel["variance"], slopes.noise_variance
        return Evaluation(seconds, value, np.hstack([slopes.pseudo_inputs.ravel(), *own]))

    return evaluate


@contextmanager
def peer(python: str, name: str, path: str, threads: int) -> Iterator[tuple[str, Evaluate]]:
    """The peer's name with its version, and how to ask it."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    command = [python, "-W", "ignore", str(Path(__file__).with_name("peers.py")), name, path, str(threads)]
    pipe, environment = subprocess.PIPE, {**os.environ, **limits}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def evaluate(k: int) -> Evaluation:
            print(k, file=questions, flush=True)
            seconds, value, gradient = json.loads(answers.readline())
            return Evaluation(seconds, value, np.array(gradient))

        yield json.loads(answers.readline()), evaluate


def compare(mine: Evaluate, theirs: Evaluate, sarsa: Evaluate) -> dict[str, float]:
    """Median times of all three, quartiles of theirs/mine, and how far objectives and gradients differ."""
    seconds, differences = [], []
    for k in range(-WARM_UP, ROUNDS):
        row = []
        for evaluate in (mine, theirs, sarsa):
            time.sleep(PAUSE)
            row.append(evaluate(k))
        seconds.append([evaluation.seconds for evaluation in row])
        a, b, _ = row
        largest = np.abs(a.gradient).max()
        differences.append([abs(b.value / a.value - 1), np.abs(b.gradient - a.gradient).max() / largest])
    times = np.array(seconds[WARM_UP:])
    lower, middle, upper = np.quantile(times[:, 1] / times[:, 0], [0.25, 0.5, 0.75])
    own, peer_time, sarsa_time = 1e3 * np.median(times, axis=0)
    value, gradient = np.max(differences, axis=0)
    if not max(value, gradient) < TOLERANCE:
        raise ArithmeticError(f"objectives differ by {value:.1e}, gradients by {gradient:.1e}")
    return {
        "ours ms": own,
        "peer ms": peer_time,
        "peer/ours": middle,
        "lower quartile": lower,
        "upper quartile": upper,
        "γ = 0.99 ms": sarsa_time,
        "values differ by": value,
        "gradients differ by": gradient,
    }


def measure(python: str, counts: Sequence[int] = (1, 2)) -> Iterator[dict[str, str | float]]:
    """Each peer in turn, with each count of threads."""
    p = problem(np.random.default_rng(0))
    plain = Transitions(p["X"], p["y"], p["X"], np.zeros(N))
    discounts = np.where(np.arange(N) % 200 == 199, 0.0, 0.99)  # episodes of 200 steps
    episodes = Transitions(p["X"], p["y"], np.roll(p["X"], -1, axis=0), discounts)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "problem.npz")
        np.savez(path, allow_pickle=False, **p)
        for threads in counts:
            for name, objective in OBJECTIVES.items():
                calls = ours(p, plain, objective), ours(p, episodes, objective)
                with threadpool_limits(threads), peer(python, name, path, threads) as (title, theirs):
                    result = compare(calls[0], theirs, calls[1])
                yield {"peer": title, "objective": TITLES[objective], "threads": threads, **result}


def main(python: str) -> None:
    print(f"One objective and its gradient by Z, kernel and noise: {N = }, {M = }, d = {COLUMNS}")
    print(f"(load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors)")
    rows: list[dict[str, str | float]] = []
    for row in measure(python):
        if not rows:
            print(f"\n| {' | '.join(row)} |\n|{'---|' * len(row)}")
        cells = (cell if isinstance(cell, str) else f"{cell:.3g}" for cell in row.values())
        print(f"| {' | '.join(cells)} |", flush=True)
        rows.append(row)
    print(f"\n{json.dumps(rows, ensure_ascii=False)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
