"""What each part of the agent is worth: `python -m benchmarks.control_ablation [--report]`.

The default agent, and the same with one part taken away, on seeds that are not those of `benchmarks.control`,
on tasks that can be learnt in 3 000 steps. Each finished run is one line of `control_ablation.jsonl`; an
interrupted benchmark goes on where it was. The table goes into docs/control.md: of the evaluations every 500
steps, five episodes each, how many reach the threshold.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.control import Results, Run, carry_out
from benchmarks.control_ours import gpsarsa
from benchmarks.control_tasks import TASKS
from benchmarks.pages import put
from gpsarsa.control import agent, dynamics, imagination
from gpsarsa.control.foresight import Foresight
from gpsarsa.control.imagination import Imagination
from gpsarsa.control.incumbent import Contender, Incumbent

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_name("control_ablation.jsonl")
PAGE = ROOT / "docs" / "control.md"
BEGIN, END = "<!-- ablation: written by benchmarks.control_ablation -->", "<!-- end of ablation -->"
NAMES = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0")
SEEDS, STEPS, EPISODES = range(200, 206), 3_000, 5


def constant(module: Any, name: str, value: Any) -> Callable[[], None]:
    assert hasattr(module, name)
    return lambda: setattr(module, name, value)


def only_sight(number: int) -> Callable[[], None]:
    def take() -> None:
        prepared = Imagination.__init__

        def prepare(self: Any, *args: Any) -> None:
            prepared(self, *args)
            self.sights = (self.sights[number],) * 2

        Imagination.__init__ = prepare

    return take


def no_looking_ahead() -> None:
    def look(self: Imagination, values: Any, states: Any) -> Any:
        X = self._pairs(states, values.candidates)
        padded = np.zeros((len(states), self.columns))
        padded[:, : self.split] = states
        return values(padded), *self._outcomes(values, X, self.world)

    Imagination._look_ahead = look


def newest_world() -> None:
    made = Imagination.values_of

    def values_of(self: Imagination, *args: Any, **options: Any) -> Any:
        values = made(self, *args, **options)
        return None if values is None else values._replace(world=None)

    Imagination.values_of = values_of


def no_walls() -> None:
    dynamics.TOUCHED = 10**9
    prepared = dynamics.Dynamics.__init__

    def prepare(self: Any, *args: Any) -> None:
        prepared(self, *args)
        self.bounds = np.tile([[-np.inf], [np.inf]], self.split)

    dynamics.Dynamics.__init__ = prepare


def no_incumbent() -> None:
    def imagined(self: Incumbent, judged: Any, holder: Any, shown: Any = None) -> None:
        values = judged.values
        self.imagining = True
        self.holder = Contender(judged.model, values=values, world=values.world)

    Incumbent.imagined = imagined


def lost_is_the_worst() -> None:
    judged = Imagination.judge

    def judge(self: Imagination, *args: Any) -> Any:
        self._lost = lambda gamma: -np.inf
        try:
            return judged(self, *args)
        finally:
            del self._lost

    Imagination.judge = judge


PARTS: dict[str, Callable[[], None]] = {
    "everything": lambda: None,
    "no imagination": lambda: setattr(agent, "imagination_of", lambda *given: None),
    "no dreams": constant(imagination, "DREAMS", 0),
    "no dreams of ten steps": only_sight(0),
    "only dreams of ten steps": only_sight(1),
    "no real transitions in dreams": constant(imagination, "REAL", 0),
    "not looking ahead": no_looking_ahead,
    "one step ahead, always": constant(imagination, "LEAVES", 1),
    "no curiosity": lambda: setattr(Foresight, "_explore", lambda self, seen, rng: None),
    "no walls": no_walls,
    "no brinks": constant(dynamics, "FELL", 10**9),
    "no circles": constant(dynamics, "ROUND", -1.0),
    "judged from ten starts": constant(imagination, "STARTS", 10),
    "lost is the worst to the end": lost_is_the_worst,
    "the newest dream acts": no_incumbent,
    "imagination is never doubted": lambda: setattr(Incumbent, "_mistaken", lambda self, shown: (0.0, 0.0)),
    "the incumbent in the newest world": newest_world,
    "dreams at +40 % of data": constant(agent, "GROWTH", 1.4),
}


def execute(run: Run, python: str) -> dict[str, Any]:
    given = [run.contender, run.task, str(run.seed), str(run.steps)]
    process = subprocess.run(
        [python, "-m", "benchmarks.control_ablation", *given], capture_output=True, text=True, check=True,
        cwd=ROOT, env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return {**asdict(run), **json.loads(process.stdout.splitlines()[-1]), "seconds": 0.0}


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Markdown: for each part the share of evaluations that pass, and by how many seeds the last is."""
    found: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        found.setdefault((row["contender"], row["task"]), []).append(row["evaluations"])
    heads = (f"{name} ({TASKS[name].threshold:g})".replace("(-", "(−") for name in NAMES)
    lines = ["| | " + " | ".join(heads) + " |"]
    lines.append("|---" * (len(NAMES) + 1) + "|")
    removed = dict.fromkeys(part for part, _ in found if part not in PARTS)
    for part in (*PARTS, *removed):
        cells = [f"{part} (part since removed)" if part in removed else part]
        for name in NAMES:
            curves = found.get((part, name), [])
            passes = [[value >= TASKS[name].threshold for _, value in curve] for curve in curves]
            share = f"{np.mean(np.concatenate(passes)):.0%}, " if passes else ""
            cells.append(share + (f"{sum(p[-1] for p in passes)} of {len(passes)}" if passes else ""))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "run", nargs="*", help="PART TASK SEED STEPS: one run alone, printed as a line of JSON"
    )
    parser.add_argument("--report", action="store_true", help="run nothing, write the table")
    options = parser.parse_args()
    if options.run:
        if len(options.run) != 4 or options.run[0] not in PARTS:
            parser.error(f"expected PART TASK SEED STEPS with a part among {', '.join(PARTS)}")
        part, name, seed, steps = options.run
        PARTS[part]()
        task = replace(TASKS[name], episodes=EPISODES)
        print(json.dumps(gpsarsa(task, int(seed), int(steps))))
        return
    results = Results(RESULTS)
    if not options.report:
        runs = [Run(part, name, seed, STEPS) for seed in SEEDS for part in PARTS for name in NAMES]
        carry_out(runs, results, sys.executable, execute=execute)
    put(table(results.rows), PAGE, BEGIN, END)


if __name__ == "__main__":
    main()
