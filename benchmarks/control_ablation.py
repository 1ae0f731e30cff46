"""What each part of the agent is worth: `python -m benchmarks.control_ablation [--report]`.

The default agent, and the same with one part taken away, on seeds that are not those of `benchmarks.control`,
on tasks that can be learnt in 3 000 steps; parts that are there for more than six columns on LunarLander,
over 10 000, the newest over 20 000, and those that act late over 40 000. Each finished run is one line of
`control_ablation.jsonl`; an interrupted benchmark goes on where it was. The tables go into docs/control.md:
of the evaluations every 500 steps, five episodes each (500 on FrozenLake), how many reach the threshold, and
how many more or less without the part, seed by seed; and LunarLander's returns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.control import Results, Run, carry_out, execute
from benchmarks.control_ours import gpsarsa
from benchmarks.control_report import first_pass, held, spaced
from benchmarks.control_tasks import TASKS
from benchmarks.pages import put, table
from gpsarsa.control import (
    agent,
    contact,
    critic,
    dynamics,
    foresight,
    imagination,
    incumbent,
    learner,
    potential,
    tables,
)
from gpsarsa.control.critic import Critic
from gpsarsa.control.foresight import Foresight
from gpsarsa.control.imagination import Imagination
from gpsarsa.control.incumbent import Contender, Incumbent
from gpsarsa.control.policies import Greedy, UpperConfidence
from gpsarsa.control.rules import Rule
from gpsarsa.control.tables import Tables

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_name("control_ablation.jsonl")
PAGE = ROOT / "docs" / "control.md"
BEGIN, END = "<!-- ablation: written by benchmarks.control_ablation -->", "<!-- end of ablation -->"
WIDE_BEGIN, WIDE_END = BEGIN.replace("ablation:", "ablation of rules:"), END.replace("tion", "tion of rules")
NUMBERS = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0")
CATEGORIES = ("FrozenLake-v1",)
NAMES = NUMBERS + CATEGORIES
STEPS, EPISODES = 3_000, 5
WIDE, WIDE_SEEDS, WIDE_STEPS = "LunarLander-v3", (203, 204, 215, 216), 10_000
NEWEST_WIDE_SEEDS, NEWEST_WIDE_STEPS = range(217, 221), 20_000  # of today's agent
LATE_SEEDS, LATE_STEPS = range(9_300, 9_306), 40_000  # fresh seeds once, until these parts were taken away


def constant(module: Any, name: str, value: Any) -> Callable[[], None]:
    assert hasattr(module, name)
    return lambda: setattr(module, name, value)


def no_looking_ahead() -> None:
    def look(self: Imagination, values: Any, states: Any) -> Any:
        X = self._pairs(states, values.candidates)
        padded = np.zeros((len(states), self.columns))
        padded[:, : self.split] = states
        return values(padded), *self._outcomes(values, X, self.world)

    Imagination._look_ahead = look


def no_dreams() -> None:
    imagination.DREAMS = 0
    Tables.better = lambda self, known, *given: max(known, key=lambda judged: judged.mean)


def nothing_is_stochastic() -> None:
    found = Critic.stochastic

    def asked(self: Critic, *given: Any) -> bool:
        found(self, *given)  # which draws numbers
        return False

    Critic.stochastic = asked


def no_walls() -> None:
    dynamics.TOUCHED = 10**9
    prepared = dynamics.Dynamics.__init__

    def prepare(self: Any, *args: Any) -> None:
        prepared(self, *args)
        self.bounds = np.tile([[-np.inf], [np.inf]], self.split)

    dynamics.Dynamics.__init__ = prepare


def no_evidence() -> None:
    def first(self: Critic, model: Any, t: Any, bounds: Any) -> Any:
        noise = float(np.clip(model.noise_variance, *bounds["noise_variance"]))
        return self.empty(critic.clipped(model.kernel, bounds), noise), float("nan")

    Critic._by_evidence = first


def no_incumbent() -> None:
    def imagined(self: Incumbent, judged: Any, holder: Any, shown: Any = None) -> None:
        values = judged.values
        self.imagining = True
        self.holder = Contender(judged.model, values=values)

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


def no_contact() -> None:
    contact.Contact.touching = property(lambda self: False, lambda self, value: None)


def no_hope() -> None:
    searched = Imagination._by_rule

    def by_rule(self: Imagination, *args: Any) -> Any:
        best = searched(self, *args)
        self.hope = None
        return best

    Imagination._by_rule = by_rule


def no_newest_rest() -> None:
    newest = Foresight.values

    def values(self: Foresight, contender: Contender) -> Any:
        found = newest(self, contender)
        return contender.values if isinstance(contender.values, Rule) else found

    Foresight.values = values


def no_explorer_challenges() -> None:
    finished = Incumbent.finished

    def told(self: Incumbent, *args: Any) -> None:
        role, rule = args[0], args[-1]
        finished(self, *args[:-1], None if role == "explore" else rule)

    Incumbent.finished = told


PARTS: dict[str, Callable[[], None]] = {
    "everything": lambda: None,
    "no policy iteration": constant(learner, "ROUNDS", 0),
    "no imagination": lambda: setattr(agent, "imagination_of", lambda *given: None),
    "no dreams": no_dreams,
    "dreams of one step": constant(imagination, "FAR", 1),
    "no real transitions in dreams": constant(imagination, "REAL", 0),
    "not looking ahead": no_looking_ahead,
    "one step ahead, always": constant(imagination, "LEAVES", 1),
    "no curiosity": lambda: setattr(Foresight, "_explore", lambda self, seen, rng: None),
    "exploring by the mean alone": lambda: setattr(UpperConfidence, "row", Greedy.row),
    "hyperparameters as at first": no_evidence,
    "no walls": no_walls,
    "no brinks": constant(dynamics, "FELL", 10**9),
    "no circles": constant(dynamics, "ROUND", -1.0),
    "lost is the worst to the end": lost_is_the_worst,
    "the newest dream acts": no_incumbent,
    "nothing is stochastic": nothing_is_stochastic,
    "no plan with more patience": constant(tables, "LONG", 1.0),
}
# Where a part does something at all; elsewhere runs without it are the same to the bit.
ACTS: dict[str, tuple[str, ...]] = {
    "dreams of one step": NUMBERS,
    "no real transitions in dreams": NUMBERS,
    "not looking ahead": NUMBERS,
    "one step ahead, always": ("CartPole-v1",),  # three actions or more look one step ahead anyway
    "no walls": ("MountainCar-v0", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"),
    "no brinks": ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "MountainCarContinuous-v0"),
    "no circles": ("Acrobot-v1", "Pendulum-v1"),
    "lost is the worst to the end": NUMBERS,
    "nothing is stochastic": CATEGORIES,
    "no plan with more patience": CATEGORIES,
}
# Three seeds of every part; four or more where these did not say whether it helps; what was still open.
PLAN: tuple[tuple[range, dict[str, tuple[str, ...]]], ...] = (
    (range(200, 203), {part: ACTS.get(part, NAMES) for part in PARTS}),
    (range(205, 209), {part: ACTS.get(part, NUMBERS) for part in (
        "everything", "lost is the worst to the end", "no real transitions in dreams",
        "one step ahead, always", "no circles", "no walls", "not looking ahead", "dreams of one step",
        "exploring by the mean alone", "hyperparameters as at first", "no brinks",
    )}),
    (range(209, 215), {
        "everything": NUMBERS,
        "no real transitions in dreams": ("MountainCar-v0", "MountainCarContinuous-v0"),
        "no circles": ("Acrobot-v1", "Pendulum-v1"),
        "lost is the worst to the end": ("Acrobot-v1",),
        "one step ahead, always": ("CartPole-v1",),
    }),
    (range(205, 209), {part: CATEGORIES for part in PARTS if ACTS.get(part, NAMES)[-1:] == CATEGORIES}),
    (range(209, 221), dict.fromkeys(
        ("everything", "nothing is stochastic", "no plan with more patience"), CATEGORIES,
    )),
)  # fmt: skip
WIDE_PARTS: dict[str, Callable[[], None]] = {
    "everything": lambda: None,
    "no rules": constant(imagination, "MANY", 10**9),
    "a touch is a step like others": no_contact,
    "contact learnt from every step": constant(contact, "FROM_EPISODE", 10**9),
    "rewards are no potential": lambda: setattr(potential, "learn", lambda *given: None),
    "who lies goes on lying": constant(foresight, "LIES", 1e9),
    "a rule rests as when it was found": no_newest_rest,
    "who explores rests by two deviations more": lambda: setattr(
        contact.Contact, "drawn_rest", lambda self, rng: self.hopeful_rests[0]
    ),
    "no hope": no_hope,
    "who explores is no challenger": no_explorer_challenges,
    "nobody explores during trials": constant(incumbent, "MEANWHILE", 10**9),
    "what was found acts by draws alone": lambda: setattr(
        Foresight, "unseen", property(lambda self: False, lambda self, value: None)
    ),
    "trials are never cheap": lambda: setattr(Incumbent, "_cheap", False),
    "lost is the worst to the end": lost_is_the_worst,
    "no real transitions in dreams": constant(imagination, "REAL", 0),
    "imagination is believed": lambda: setattr(Incumbent, "_surplus", lambda self, shown: (0.0, 0.0)),
}

EXPLORING = (
    "who explores is no challenger", "nobody explores during trials", "what was found acts by draws alone",
)  # fmt: skip


def none_of_the_three() -> None:
    for part in EXPLORING:
        WIDE_PARTS[part]()


LATE_PARTS: dict[str, Callable[[], None]] = {
    "everything": WIDE_PARTS["everything"],
    "none of the three ways to explore": none_of_the_three,
    "imagination is believed": WIDE_PARTS["imagination is believed"],
}
RESTING = "a rule rests as when it was found", "who explores rests by two deviations more"
NEWEST = ("everything", *RESTING, "none of the three ways to explore")
WIDE_PLAN: tuple[tuple[Sequence[int], Iterable[str], int], ...] = (
    (WIDE_SEEDS, [part for part in WIDE_PARTS if part not in RESTING], WIDE_STEPS),
    (NEWEST_WIDE_SEEDS, NEWEST, NEWEST_WIDE_STEPS),
    (LATE_SEEDS, LATE_PARTS, LATE_STEPS),
)


def narrow_table(rows: Iterable[dict[str, Any]]) -> str:
    """Markdown: for each part the share of evaluations that pass, by how many seeds the last is, and how much
    larger that share is than with everything: the mean over tasks and seeds, and its standard error."""
    found: dict[str, dict[str, dict[int, list[bool]]]] = {}
    for row in rows:
        passes = [value >= TASKS[row["task"]].threshold for _, value in row["evaluations"]]
        found.setdefault(row["contender"], {}).setdefault(row["task"], {})[row["seed"]] = passes
    heads = (f"{name} ({TASKS[name].threshold:g})".replace("(-", "(−") for name in NAMES)
    lines = [["", *heads, "percentage points more"]]
    for part in PARTS:
        own = found.get(part, {})
        cells = [_passes(own.get(name, {})) if name in ACTS.get(part, NAMES) else "=" for name in NAMES]
        acts = {name: own[name] for name in ACTS.get(part, NAMES) if name in own}
        lines.append([part, *cells, "" if part == "everything" else _gain(acts, found.get("everything", {}))])
    return table(lines)


def _passes(seeds: dict[int, list[bool]]) -> str:
    if not seeds:
        return ""
    share = np.mean(np.concatenate([*seeds.values()]))
    return f"{share:.0%}, {sum(passes[-1] for passes in seeds.values())} of {len(seeds)}"


def _gain(own: dict[str, dict[int, list[bool]]], whole: dict[str, dict[int, list[bool]]]) -> str:
    return _difference(
        [
            100.0 * (np.mean(passes) - np.mean(whole[name][seed]))
            for name, seeds in own.items()
            for seed, passes in seeds.items()
            if seed in whole.get(name, {})
        ]
    )


def _difference(gains: list[Any]) -> str:
    """Their mean and its standard error, of two or more."""
    if len(gains) < 2:
        return ""
    error = np.std(gains, ddof=1) / np.sqrt(len(gains))
    return f"{np.mean(gains):+.0f} ± {error:.0f} ({len(gains)} runs)".replace("-", "−")


def wide_tables(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One for each group of seeds: who is compared ran the same agent."""
    groups = [
        ([row for row in rows if row["task"] == WIDE and row["seed"] in seeds], steps)
        for seeds, _, steps in WIDE_PLAN
    ]
    return [wide_table(group, steps) for group, steps in groups if group]


def wide_table(rows: Iterable[dict[str, Any]], steps: int) -> str:
    """Markdown: for each part, of runs of so many steps, when each seed passed first and how many evaluations
    since then pass; over the second half of all evaluations the mean return of each seed, and how much more
    that is than with everything."""
    threshold, half = TASKS[WIDE].threshold, steps // 2
    of_late = f"mean return since {spaced(half)}, each seed", "of these evaluations pass", "return more"
    lines = [["", f"first passed {threshold:g}", "of evaluations since then pass", *of_late]]
    found: dict[str, dict[int, list[Any]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        if row["task"] == WIDE and row["steps"] == steps:
            found.setdefault(row["contender"], {})[row["seed"]] = row["evaluations"]
    late = {
        part: {seed: [value for step, value in curve if step > half] for seed, curve in curves.items()}
        for part, curves in found.items()
    }
    whole = late.get("everything", {})
    for part in WIDE_PARTS | LATE_PARTS:
        own = late.get(part, {})
        if own:
            first = (first_pass(curve, threshold) for curve in found[part].values())
            means = {seed: float(np.mean(values)) for seed, values in own.items()}
            gains = [means[seed] - np.mean(whole[seed]) for seed in own if seed in whole]
            kept = np.sum([held(curve, threshold) for curve in found[part].values()], axis=0)
            cells = [
                part,
                ", ".join(map(spaced, first)),
                f"{kept[0] / kept[1]:.0%} of {kept[1]}" if kept[1] else "—",
            ]
            cells.append(", ".join(f"{mean:.0f}".replace("-", "−") for mean in means.values()))
            cells.append(f"{np.mean(np.concatenate([*own.values()]) >= threshold):.0%}")
            lines.append([*cells, "" if part == "everything" else _difference(gains)])
    return table(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "run", nargs="*", help="PART TASK SEED STEPS: one run alone, printed as a line of JSON"
    )
    parser.add_argument("--tasks", type=lambda text: text.split(","), help="these tasks alone, A,B")
    parser.add_argument("--at-once", type=int, default=2, help="how many runs share the machine")
    parser.add_argument("--report", action="store_true", help="run nothing, write the table")
    options = parser.parse_args()
    if options.run:
        parts = WIDE_PARTS | LATE_PARTS if WIDE in options.run else PARTS
        if len(options.run) != 4 or options.run[0] not in parts:
            parser.error(f"expected PART TASK SEED STEPS with a part among {', '.join(parts)}")
        part, name, seed, steps = options.run
        parts[part]()
        task = replace(TASKS[name], episodes=EPISODES) if name in NUMBERS else TASKS[name]
        print(json.dumps(gpsarsa(task, int(seed), int(steps))))
        return
    results = Results(RESULTS)
    if not options.report:
        runs = [
            Run(part, name, seed, STEPS)
            for seeds, parts in PLAN for seed in seeds for part, names in parts.items() for name in names
        ]  # fmt: skip
        for seeds, parts, steps in WIDE_PLAN:
            runs += [Run(part, WIDE, seed, steps) for seed in seeds for part in parts]
        wanted = [run for run in runs if run.task in (options.tasks or (*NAMES, WIDE))]
        carry_out(wanted, results, "", options.at_once, partial(execute, module="control_ablation"))
    put(narrow_table(row for row in results.rows if row["task"] != WIDE), PAGE, BEGIN, END)
    put("\n\n".join(wide_tables(results.rows)), PAGE, WIDE_BEGIN, WIDE_END)


if __name__ == "__main__":
    main()
