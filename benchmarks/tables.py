"""The README's tables, measured on this machine: `make tables`.

    python -m benchmarks.tables PEERS_PYTHON [--steps FILE]

Steps until four tasks are first passed, over the first three seeds of `benchmarks.control` and by its
protocol: each finished run is a line of runs/tables.jsonl, so that an interrupted measurement goes on where
it was. Then what an evaluation of the evidence, an update and a step of the agent take, beside others in the
same run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import agent, control, evidence, steps
from benchmarks.control_report import NAMES, first_pass, quartiles, spaced
from benchmarks.control_tasks import TASKS
from benchmarks.pages import put, table

ROOT = Path(__file__).parent.parent
README, RESULTS = ROOT / "README.md", ROOT / "runs" / "tables.jsonl"
BEGIN, END = "<!-- tables: written by make tables -->", "<!-- end of tables -->"
TASK_NAMES = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1")
SEEDS, SIZE = 3, 64

Cells = list[str]


def sample_efficiency(rows: Iterable[dict[str, Any]]) -> list[Cells]:
    """For each task and contender the step of the first pass: the median over seeds, and how many passed."""
    curves: dict[tuple[str, str], dict[int, Any]] = {}
    for row in rows:
        curves.setdefault((row["task"], row["contender"]), {})[row["seed"]] = row["evaluations"]
    lines = [["steps until first passed", *NAMES.values()]]
    for name in TASK_NAMES:
        threshold = TASKS[name].threshold
        cells = [f"{name} ({threshold:g})".replace("-", "−").replace("−v", "-v")]
        for contender in NAMES:
            seeds = curves.get((name, contender), {})
            wanted = [seeds[seed] for seed in control.seeds_of(contender, name)[:SEEDS] if seed in seeds]
            cells.append(_passed([first_pass(curve, threshold) for curve in wanted], contender, name))
        lines.append(cells)
    return lines


def _passed(found: list[float], contender: str, name: str) -> str:
    if not found:
        return "not measured" if name in control.ENTRIES[contender] else "–"
    middle, most = quartiles(found)[1], control.steps_of(contender, name)
    passing = sum(step < math.inf for step in found)
    steps = f"more than {spaced(most)}" if middle == math.inf else spaced(middle)
    if passing < len(found):
        return f"{steps} ({passing} of {len(found)} passed)"
    return steps if len(found) == SEEDS else f"{steps} (seeds: {len(found)})"


def speed(python: str) -> list[Cells]:
    """What is compared takes turns; ratios are medians within a turn."""
    lines = [["time", "gpsarsa", "beside", "takes", "times as long"]]
    for row in evidence.measure(python, counts=(1,)):
        what = f"{row['objective']} and its gradient, N = {spaced(evidence.N)}, M = {evidence.M}"
        ours, theirs = f"{row['ours ms']:.0f} ms", f"{row['peer ms']:.0f} ms"
        lines.append([what, ours, str(row["peer"]), theirs, f"{row['peer/ours']:.1f}"])
    (one,) = steps.measure(sizes=(SIZE,))
    lines.append([
        f"one transition learnt, kernel included, M = {SIZE}", f"{one['update µs']:.1f} µs",
        "bare dtrmv + dsymv + dsyr", f"{one['blas µs']:.1f} µs", f"{1.0 / one['update / blas']:.1f}",
    ])  # fmt: skip
    found = agent.measure(python)
    ours, theirs = (np.array(found[name]) for name in ("agent", agent.PPO))
    lines.append([
        "one step of the agent on CartPole, everything included", f"{1e6 * np.median(ours):.0f} µs",
        agent.PPO, f"{1e6 * np.median(theirs):.0f} µs", f"{np.median(theirs / ours):.2f}",
    ])  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("python", help="a Python with GPyTorch, GPy and Stable-Baselines3")
    parser.add_argument("--steps", type=Path, help="read the runs from this file, run none")
    options = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    results = control.Results(options.steps or RESULTS)
    if options.steps is None:
        runs = control.plan(control.ENTRIES, TASK_NAMES, SEEDS, short=False)
        control.carry_out(runs, results, options.python)
    tables = [sample_efficiency(results.rows), speed(options.python)]
    text = "\n\n".join(table(lines) for lines in tables)
    put(text, README, BEGIN, END)
    print(text)


if __name__ == "__main__":
    main()
