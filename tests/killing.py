"""Kill a process at random moments of what it does, let another go on, and compare what comes out.

    python killing.py improving 10 FOLDER

Every attempt is forked from this process, which has loaded and compiled everything, so that the moments fall
into the work itself. Prints a line for each kill, and how many results are those of an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import tables

from gpsarsa import checkpoint, training
from gpsarsa.offline import evaluate as evaluate_table
from gpsarsa.offline import open_dataset
from gpsarsa.offline.recording import write_table

RESULT = {"evaluate": "model.safetensors"}


def trained(folder: Path, steps: int, **options) -> None:
    training.train(
        "CartPole-v1", steps=steps, seed=3, out=folder, resume=True, checkpoint_every=30,
        evaluate_episodes=1, progress_bar=False, report=False, agent_options={"budget": 8, **options},
    )  # fmt: skip


def improving(folder: Path) -> None:
    trained(folder, 70, warmup=50)


def sarsa(folder: Path) -> None:
    trained(folder, 150, warmup=40, method="sarsa")


def evaluate(folder: Path) -> None:
    table = folder.parent / "table.parquet"
    if not table.exists():
        write_table(table, **tables.columns([20] * 100), rows_per_group=100)
    source = open_dataset(str(table), rows_per_partition=100)  # many small ones
    folder.mkdir(exist_ok=True)
    checkpoint.sweep(folder, ["model.safetensors"])  # `evaluate_into` does, but learns a kernel first
    evaluate_table(
        source, gamma=0.9, kernel=tables.KERNEL, noise_variance=tables.NOISE, pseudo_inputs=12, bootstrap=25,
        work=folder / "partial", workers=1,
    ).save(folder / "model.safetensors")  # fmt: skip


def attempt(work, folder: Path, seconds: float | None) -> bool:
    """Whether a child got to its end; it has so many seconds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work(folder)
            code = 0
        finally:
            os._exit(code)
    began = time.monotonic()
    while seconds is None or time.monotonic() - began < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, f"a process that went on in {folder} ended with {status}"
            return True
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def digest(folder: Path, what: str) -> str:
    return hashlib.sha256((folder / RESULT.get(what, "agent.safetensors")).read_bytes()).hexdigest()


def survive(what: str, kills: int, home: Path, seed: int = 0) -> bool:
    work, moments = {"improving": improving, "sarsa": sarsa, "evaluate": evaluate}[what], random.Random(seed)
    work(home / "warm")  # compiles
    expected, length = digest(home / "warm", what), float("inf")
    for name in ("whole", "again", "once more"):
        began = time.monotonic()
        assert attempt(work, home / name, None)
        length = min(length, time.monotonic() - began)
        assert digest(home / name, what) == expected
    done, number, same = 0, 0, []
    while done < kills or (home / f"run-{number}").exists():
        folder = home / f"run-{number}"
        if not attempt(work, folder, moments.uniform(0.0, length) if done < kills else None):
            done += 1
            left = sorted(path.name for path in folder.glob("*")) if folder.exists() else []
            print(f"kill {done} of run {number}: {' '.join(left) or 'nothing yet'}", flush=True)
            continue
        same.append(digest(folder, what) == expected)
        rest = [p.name for p in folder.glob(".*") if p.name.endswith(".part")] + [*folder.glob("*.next.*")]
        assert not rest, rest
        number += 1
    print(f"{done} kills, {len(same)} runs of {length:.2f} s, {sum(same)} identical", flush=True)
    return all(same) and len(same) > 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(0 if survive(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])) else 1)
