"""Kill a training run at random moments, resume it, and compare its agent with an uninterrupted one's.

    python tests/survival.py --kills 20

Every process is `gpsarsa train … --resume` in an interpreter of its own, killed by SIGKILL. A run that has
got to its end is compared and the next one begun, until there were enough kills.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpsarsa.checkpoint import CheckpointError
from gpsarsa.control.agent import SarsaAgent

EVERY = 100  # ten times that is longer than an episode can be: every checkpoint is at an episode's end
COMMAND = [
    "CartPole-v1",
    "--seed",
    "3",
    "--budget",
    "40",
    "--checkpoint-every",
    str(EVERY),
    "--evaluate-episodes",
    "1",
]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Runs:
    """Training runs of one command."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        began = time.monotonic()
        process = self.start("uninterrupted")
        while not (folder / "uninterrupted" / "progress.csv").exists() and process.poll() is None:
            time.sleep(0.005)
        self.earliest = time.monotonic() - began
        self.finish(process)
        self.latest = time.monotonic() - began
        self.expected = self.digest("uninterrupted")

    def start(self, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpsarsa", "train", *COMMAND, "--steps", str(self.steps)]
        return subprocess.Popen(
            [*command, "--out", str(self.folder / name), "--resume", "--no-report", "--quiet"],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str]) -> None:
        _, messages = process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"training ended with exit code {process.returncode}: {messages}")

    def digest(self, name: str) -> str:
        return digest(self.folder / name / "agent.safetensors")

    def left(self, name: str) -> str:
        """What a killed process left: the steps of the checkpoints, the newest first."""
        found = []
        for file in ("agent.safetensors", "agent.previous.safetensors"):
            try:
                found.append(str(SarsaAgent.load(self.folder / name / file).num_timesteps))
            except FileNotFoundError:
                found.append("none")
            except CheckpointError as error:
                found.append(f"DAMAGED ({error})")
        return ", before it ".join(found)


def survive(kills: int, steps: int, seed: int, folder: Path) -> bool:
    """Whether every run ended with the expected agent; a line for each kill, and a summary."""
    runs, rng = Runs(folder, steps), random.Random(seed)
    print(f"uninterrupted: {steps} steps, {runs.latest:.1f} s, sha256 {runs.expected[:16]}…", flush=True)
    done, number, same = 0, 1, []
    while done < kills or not same or (folder / f"run-{number}").exists():
        name = f"run-{number}"
        process = runs.start(name)
        try:
            process.wait(rng.uniform(runs.earliest, runs.latest) if done < kills else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            done += 1
            print(f"kill {done}: {name}, checkpoint at step {runs.left(name)}", flush=True)
            continue
        runs.finish(process)
        same.append(runs.digest(name) == runs.expected)
        print(f"{name} finished: {'the same agent' if same[-1] else 'ANOTHER AGENT'}", flush=True)
        number += 1
    print(f"{done} kills, {len(same)} runs: {sum(same)} of {len(same)} agents identical to the uninterrupted")
    return all(same)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survival", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        survived = survive(arguments.kills, arguments.steps, arguments.seed, Path(folder))
    sys.exit(0 if survived else 1)


if __name__ == "__main__":
    main()
