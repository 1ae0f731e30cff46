"""Steps until a task is solved, ours and peers', over fresh seeds: `python -m benchmarks.control`.

    python -m benchmarks.control [PEERS_PYTHON] [--only NAME] [--tasks A,B] [--seeds N] [--short] [--report]

Protocol and tasks: `control_tasks`. Each run is a process of its own, two at a time, and when it is finished
one line of `control.jsonl`; whatever is in that file is not run again, so an interrupted benchmark goes on
where it was. Then the report is written (`control_report`), or without any run with --report. --short takes
a few minutes, ours and tile coding alone, and leaves the results and the report as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import control_report
from benchmarks.control_tasks import PLAIN, RESCALED, TASKS, UNTUNED

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_name("control.jsonl")
SEEDS = range(7_600, 7_610)
OTHER_SEEDS = dict.fromkeys((task.name for task in UNTUNED + RESCALED), range(7_300, 7_310))
OTHER_SEEDS |= dict.fromkeys(("InvertedPendulum-v5", "CartPole-v1 ×1000"), range(7_700, 7_710))
OTHER_SEEDS["LunarLander-v3"] = range(9_500, 9_510)
PEER_SEEDS = range(3_000, 3_005)
OURS = ("gpsarsa", "tiles")  # run in this environment, the others in the peers'
PEERS = ("tiles", "dqn", "ppo", "sac")
SAC_STEPS = dict.fromkeys(("Pendulum-v1", "InvertedPendulum-v5", "Reacher-v5"), 20_000)
SHORT = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1")
SHORT_STEPS, SHORT_SEEDS = 3_000, 2

BOX_DISCRETE = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "LunarLander-v3")
CONTINUOUS = ("Pendulum-v1", "MountainCarContinuous-v0", "InvertedPendulum-v5", "Reacher-v5")
ENTRIES = {  # who runs where
    "gpsarsa": tuple(TASKS),
    "tiles": tuple(task.name for task in PLAIN + UNTUNED),
    "dqn": BOX_DISCRETE,
    "ppo": BOX_DISCRETE + CONTINUOUS,
    "sac": CONTINUOUS,
}


@dataclass(frozen=True)
class Run:
    contender: str
    task: str
    seed: int
    steps: int

    def command(self, python: str, module: str | None = None) -> list[str]:
        """That of a module of `benchmarks`, by default the one for who contends."""
        if module is None:
            module = "control_ours" if self.contender in OURS else "control_sb3"
        executable = python if module == "control_sb3" else sys.executable
        given = [self.contender, self.task, str(self.seed), str(self.steps)]
        return [executable, "-m", f"benchmarks.{module}", *given]

    def __str__(self) -> str:
        return f"{self.contender} on {self.task}, seed {self.seed}, {self.steps} steps"


class Results:
    """Finished runs, one JSON line each. A line that was not written to its end is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.truncate(path, len(whole))
        self.rows = [json.loads(line) for line in whole.splitlines()]

    def __contains__(self, run: Run) -> bool:
        return any(all(row[name] == value for name, value in asdict(run).items()) for row in self.rows)

    def append(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(row)


def seeds_of(contender: str, task: str) -> range:
    return OTHER_SEEDS.get(task, SEEDS) if contender == "gpsarsa" else PEER_SEEDS


def plan(contenders: Iterable[str], tasks: Iterable[str], seeds: int | None, short: bool) -> list[Run]:
    """Ours first, then the peers; each one's first seed on all tasks before the next seed."""
    wanted = [name for name in TASKS if name in set(tasks)]
    ours = [name for name in contenders if name == "gpsarsa"]
    peers = [name for name in contenders if name in PEERS]
    runs = []
    for group, count in ((ours, len(SEEDS)), (peers, len(PEER_SEEDS))):
        for place in range(count)[:seeds]:
            for contender in group:
                for name in wanted:
                    if name in ENTRIES[contender]:
                        steps = SHORT_STEPS if short else steps_of(contender, name)
                        runs.append(Run(contender, name, seeds_of(contender, name)[place], steps))
    return runs


def steps_of(contender: str, name: str) -> int:
    task = TASKS[name]
    if contender == "gpsarsa":
        return task.steps
    return SAC_STEPS.get(name, task.peer_steps) if contender == "sac" else task.peer_steps


def execute(run: Run, python: str, module: str | None = None) -> dict[str, Any]:
    """Run it in a process of its own; its line of the results."""
    _say(f"started: {run}")
    begun = time.monotonic()
    process = subprocess.run(
        run.command(python, module), capture_output=True, text=True, check=True, cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found = json.loads(process.stdout.splitlines()[-1])
    revision = "" if run.contender in PEERS else _revision()
    return {**asdict(run), **found, "revision": revision, "seconds": time.monotonic() - begun}


def carry_out(
    runs: Sequence[Run],
    results: Results,
    python: str,
    at_once: int = 2,
    execute: Callable[[Run, str], dict[str, Any]] = execute,
) -> int:
    """Do what is not done yet, some at a time; how many runs failed."""
    left = [run for run in runs if run not in results]
    _say(f"{len(runs) - len(left)} of {len(runs)} runs are done already")
    failures = 0
    with ThreadPoolExecutor(at_once) as pool:
        jobs = {pool.submit(execute, run, python): run for run in left}
        try:
            for done, job in enumerate(as_completed(jobs), 1):
                try:
                    row = job.result()
                except subprocess.CalledProcessError as error:
                    failures += 1
                    _say(f"[{done}/{len(left)}] FAILED: {jobs[job]}\n{error.stderr[-2_000:]}")
                    continue
                results.append(row)
                last = row["evaluations"][-1][1] if row["evaluations"] else float("nan")
                _say(f"[{done}/{len(left)}] {jobs[job]}: {last:.4g} at last, {row['seconds']:.0f} s")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failures


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@cache
def _revision() -> str:
    """Of the package that is measured, with a + where it is changed; empty where git does not know."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments, "--", "src"]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()

    try:
        return git("log", "-1", "--format=%h") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("python", nargs="?", help="a Python with Stable-Baselines3; without, it does not run")
    parser.add_argument("--only", choices=ENTRIES, help="this contender alone")
    parser.add_argument("--tasks", type=lambda text: text.split(","), help="these tasks alone, A,B")
    parser.add_argument("--seeds", type=int, help="at most so many seeds")
    parser.add_argument("--at-once", type=int, default=2, help="how many runs share the machine")
    parser.add_argument("--short", action="store_true", help="three tasks, 3 000 steps, two seeds")
    parser.add_argument("--report", action="store_true", help="run nothing, write the report")
    options = parser.parse_args()
    for name in options.tasks or ():
        if name not in TASKS:
            parser.error(f"no task {name!r}; there are {', '.join(TASKS)}")
    if options.short:
        with tempfile.TemporaryDirectory() as folder:
            results = Results(Path(folder) / "short.jsonl")
            runs = plan([options.only] if options.only else OURS, options.tasks or SHORT,
                        options.seeds or SHORT_SEEDS, short=True)  # fmt: skip
            failures = carry_out(runs, results, options.python or "", options.at_once)
            print(control_report.tables(results.rows))
            return int(failures > 0)
    results, failures = Results(RESULTS), 0
    if not options.report:
        contenders = ENTRIES if options.python else OURS
        runs = plan([options.only] if options.only else contenders, options.tasks or TASKS,
                    options.seeds, short=False)  # fmt: skip
        failures = carry_out(runs, results, os.path.abspath(options.python or ""), options.at_once)
    planned = [row for row in results.rows if row["seed"] in seeds_of(row["contender"], row["task"])]
    print(control_report.write(planned, ROOT / "docs"))
    return int(failures > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")
