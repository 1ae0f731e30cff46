"""Policy evaluation from tables of 10⁶ and 10⁷ rows: throughput, memory, Ray.

    python -m benchmarks.offline [--rows N] [--only throughput memory ray]

Tables of five observation columns and a discrete action are made in a temporary folder and removed at the
end. Z and the hyperparameters are given, M = 256, so that what is measured is the two passes over the table:
the first gives the posterior, the second its standard errors.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy.linalg.blas import dgemm, dsyrk, dtrmm
from threadpoolctl import threadpool_limits

from benchmarks.__main__ import show
from benchmarks.timing import interleaved, ratio
from gpsarsa import kernels
from gpsarsa.offline.datasets import open_dataset
from gpsarsa.offline.engines import Local, Ray, Work
from gpsarsa.offline.evaluation import Reader
from gpsarsa.offline.recording import write_table
from gpsarsa.offline.sums import First, Second
from gpsarsa.statistics import Likelihood

M, COLUMNS, GAMMA, LENGTH = 256, 5, 0.99, 200
FILE = 1_000_000  # rows of a file
BLOCK = 16_384  # rows that are read at a time
TARGETS = "targets: throughput ≥ 0.6 of BLAS, memory ≤ 1.1 ×, Ray's second worker ≥ 1.6 ×"


# -- tables ---------------------------------------------------------------------------------------


def make_table(path: Path, rows: int, seed: int) -> None:
    """Episodes of 200 rows: five bounded walks, an action out of four, a smooth reward with noise."""
    rng = np.random.default_rng(seed)
    episodes = rows // LENGTH
    walk = np.cumsum(0.1 * rng.standard_normal((episodes, LENGTH + 1, COLUMNS)), axis=1)
    x = 2 * np.sin(walk + rng.uniform(-3, 3, (episodes, 1, COLUMNS)))
    a = rng.integers(4, size=(episodes, LENGTH + 1))
    reward = np.sin(x[:, :-1]).sum(axis=2) + 0.3 * a[:, :-1] + 0.1 * rng.standard_normal((episodes, LENGTH))
    last = np.broadcast_to(np.arange(LENGTH) == LENGTH - 1, (episodes, LENGTH))
    write_table(
        path,
        observation=x[:, :-1].reshape(-1, COLUMNS),
        action=a[:, :-1].ravel(),
        reward=reward.ravel(),
        next_observation=x[:, 1:].reshape(-1, COLUMNS),
        next_action=a[:, 1:].ravel(),
        terminated=last.ravel(),
        episode=np.repeat(np.arange(episodes), LENGTH),
        step=np.tile(np.arange(LENGTH), episodes),
    )


def make_tables(folder: Path, rows: int) -> Path:
    folder.mkdir()
    for number in range(-(-rows // FILE)):
        make_table(folder / f"{number:03}.parquet", min(FILE, rows - number * FILE), number)
    return folder


def given() -> dict[str, object]:
    """Kernel, noise and pseudo-inputs, as an evaluation would learn them."""
    rng = np.random.default_rng(1)
    Z = np.column_stack([2 * np.sin(rng.uniform(-3, 3, (M, COLUMNS))), rng.integers(4, size=M)])
    kernel = kernels.Matern52(np.full(COLUMNS, 2.0), 25.0, list(range(COLUMNS)))
    return {
        "kernel": kernel * kernels.Delta(COLUMNS, share=0.5),
        "noise_variance": 1.0,
        "pseudo_inputs": Z.astype(np.float64),
    }


def passes(method: str = "fixed point") -> tuple[First, Second]:
    """Both passes of the default, the projected fixed point, or of "correlated noise"."""
    model, fixed_point = given(), method == "fixed point"
    likelihood = Likelihood(model["noise_variance"], fixed_point, not fixed_point, 0.0)
    first = First(model["kernel"], model["pseudo_inputs"], likelihood, fixed_point)
    size = first.basis.size
    return first, Second(first, np.full(size, 0.1), np.full(size, 1e-3), 0.0, 1.0)


def run(engine, task, data, most: int | None = None) -> None:
    partitions = data.partitions[:most]
    engine.run(
        task, partitions, Reader(data, GAMMA, None), work=Work(None, {}), done=lambda number, kept: None
    )


# -- throughput -----------------------------------------------------------------------------------


def bare(rows: int, threads: int, fixed_point: bool) -> None:
    """What a posterior needs at least, over as many rows, block by block, each thread with blocks of its own:
    dtrmm + dsyrk, and for the fixed point, which has features of x and of x′ and a matrix that is not
    symmetric, 2 dtrmm + dsyrk + dgemm."""
    rng = np.random.default_rng(0)
    W = np.asfortranarray(np.tril(rng.standard_normal((M, M))) / M)

    def one(count: int) -> None:
        block, S = np.full((M, BLOCK), 1e-3, order="F"), np.zeros((M, M), order="F")
        for _ in range(count):
            Psi = dtrmm(1.0, W, block, lower=1, overwrite_b=1)
            Psi[:, ::64] = 1e-3  # keeps the numbers in range
            dsyrk(1.0, Psi, c=S, lower=1, overwrite_c=1)
            if fixed_point:
                Psi = dtrmm(1.0, W, block, lower=1, overwrite_b=1)
                dgemm(1.0, Psi, Psi, c=S, trans_b=1, overwrite_c=1)

    blocks = -(-rows // BLOCK)
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, [blocks // threads] * threads))


def throughput(folder: Path, repeats: int, method: str) -> list[dict[str, float]]:
    """Rows a second of either pass and of bare BLAS, on all cores, in turn."""
    data, cores = open_dataset(folder), os.cpu_count() or 1
    first, second = passes(method)
    calls = {
        "blas": lambda: bare(data.rows, cores, first.fixed_point),
        "read": lambda: read_only(data, cores),
        "posterior": lambda: run(Local(), first, data),
        "errors": lambda: run(Local(), second, data),
    }
    seconds = interleaved(calls, repeats)
    alone = {name: processor_seconds(calls[name]) for name in ("posterior", "errors")}
    return [
        {
            "rows": float(data.rows),
            "cores": float(cores),
            **{f"{name} rows/s": data.rows / float(np.median(seconds[name])) for name in calls},
            "posterior / blas": 1 / ratio(seconds, "posterior", "blas"),
            "errors / blas": 1 / ratio(seconds, "errors", "blas"),
            **{f"{name} µs/row": 1e6 * alone[name] / data.rows for name in alone},
        }
    ]


def processor_seconds(call) -> float:
    """Of all threads together: what a call costs, whoever else is on the machine."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def read_only(data, threads: int) -> None:
    """Read all partitions and do nothing with them."""

    def one(partition) -> int:
        return sum(len(block.transitions) for block in data.blocks(partition, gamma=GAMMA))

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(one, data.partitions)) == data.rows


# -- memory ---------------------------------------------------------------------------------------

MEASURED = """
import resource, sys, time
from benchmarks.offline import given, GAMMA
from gpsarsa.offline import evaluate
begun = time.perf_counter()
found = evaluate(sys.argv[1], gamma=GAMMA, **given())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(found.summary.transitions, time.perf_counter() - begun, peak)
"""


def memory(folders: list[Path]) -> list[dict[str, float]]:
    """An evaluation in a process of its own: seconds and peak resident memory."""
    results: list[dict[str, float]] = []
    for folder in folders:
        answer = subprocess.run(
            [sys.executable, "-c", MEASURED, str(folder)], check=True, capture_output=True, text=True
        ).stdout.split()
        rows, seconds, peak = map(float, answer)
        smallest = results[0]["peak MB"] if results else peak / 1e6
        results.append(
            {"rows": rows, "seconds": seconds, "peak MB": peak / 1e6, "ratio": peak / 1e6 / smallest}
        )
    return results


# -- Ray ------------------------------------------------------------------------------------------


def with_ray(folder: Path, repeats: int, counts: tuple[int, ...] = (1, 2)) -> list[dict[str, float]]:
    """Both passes with one worker and with two, in turn."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's workers step back behind all others by default
    import ray

    ray.init(num_cpus=max(counts), include_dashboard=False, log_to_driver=False)
    data, tasks = open_dataset(folder), passes()
    for task in tasks:
        run(Ray(), task, data, most=max(counts))  # starts the workers
    seconds = {(workers, number): list[float]() for number in range(2) for workers in counts}
    for _ in range(repeats):
        for (workers, number), taken in seconds.items():
            begun = time.perf_counter()
            run(Ray(workers=workers), tasks[number], data)
            taken.append(time.perf_counter() - begun)
    ray.shutdown()
    results = []
    for workers in counts:
        times = [np.array(seconds[workers, number]) for number in range(2)]
        first = [np.array(seconds[counts[0], number]) for number in range(2)]
        results.append(
            {
                "workers": float(workers),
                "rows": float(data.rows),
                "posterior s": float(np.median(times[0])),
                "errors s": float(np.median(times[1])),
                "speed-up": float(np.median(sum(first) / sum(times))),
            }
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the large table (default 10⁷)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["throughput", "memory", "ray"])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        begun = time.perf_counter()
        small = make_tables(Path(temporary) / "small", 1_000_000)
        size = sum(file.stat().st_size for file in small.iterdir())
        large = small
        if {"memory", "ray"} & set(chosen.only):
            large = make_tables(Path(temporary) / "large", chosen.rows)
        print(f"tables: {time.perf_counter() - begun:.0f} s, {size / 1e6:.0f} bytes a row; {TARGETS}")
        if "throughput" in chosen.only:
            for method in ("fixed point", "correlated noise"):
                title = f"{method.capitalize()}: a pass at M = {M} against the BLAS calls it needs at least"
                show(title, throughput(small, chosen.repeats, method))
        if "memory" in chosen.only:
            show("An evaluation, both passes", memory([small, large]))
        if "ray" in chosen.only:
            show("Ray on this machine", with_ray(large, min(chosen.repeats, 3)))


if __name__ == "__main__":
    main()
