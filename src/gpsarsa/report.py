"""One self-contained HTML page about a run, or about several seeds of one experiment.

write_report(["runs/cartpole"])       # runs/cartpole/report.html
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from gpsarsa import _validation as check
from gpsarsa import plots
from gpsarsa._page import (
    absent,
    card,
    cards,
    facts,
    figure,
    number,
    page,
    pair,
    plain,
    plus_minus_of,
    section,
    table,
    written,
)
from gpsarsa._words import duration
from gpsarsa.runs import Run, RunError, paths, read_all

__all__ = ["write_report"]

PathLike = str | os.PathLike[str]
FEW = 2000  # most points in a picture that is drawn by lines rather than pixels
LAST = 20  # episodes in a table


def write_report(
    folders: PathLike | Sequence[PathLike], path: PathLike | None = None, agent: Any = None
) -> Path:
    """Write the report of some runs and return where it is.

    Parameters
    ----------
    folders : path or list of paths
        Run folders, or folders whose sub-folders are runs: seeds of one experiment.
    path : path, optional
        The page; by default `report.html` in the folder, where only one is given.
    agent : agent, optional
        The agent of a run, for the pictures of its values.
    """
    given = paths(folders, "folders")
    if agent is not None and not hasattr(agent, "model"):
        raise TypeError(f"agent is a {type(agent).__name__}; expected the agent of a run, or None")
    runs = read_all(given)
    _same_environment(runs)
    if path is None and len(given) > 1:
        raise RunError(f"{len(given)} folders have no place for one report; say which file to write (path)")
    target = given[0] / "report.html" if path is None else check.path(path, "path")
    return written(target, lambda: _page(runs, agent))


def _same_environment(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if run.config["environment"] != first.config["environment"]:
            ids = [one.config["environment"]["id"] for one in (first, run)]
            more = " with other arguments" if ids[0] == ids[1] else ""
            raise RunError(
                f"{first.folder} ran {ids[0]}, {run.folder} ran {ids[1]}{more}; "
                "report one environment at a time"
            )


def _page(runs: Sequence[Run], agent: Any) -> str:
    title = f"{runs[0].config['environment']['id']} – gpsarsa report"
    sections = [
        section("Training", cards(_training(runs))),
        section("What was learnt", _surfaces(runs, agent)),
        section("Runs" if len(runs) > 1 else "Run", _runs_table(runs)),
        section("Settings", _settings(runs)),
        section(f"The last {LAST} episodes" + (" of each run" if len(runs) > 1 else ""), _episodes(runs)),
    ]
    return page(title, _header(runs), sections)


# -- the header -----------------------------------------------------------------------------------


def _header(runs: Sequence[Run]) -> str:
    """Environment, steps and seeds, and the result in a big figure."""
    environment = runs[0].config["environment"]
    steps = sorted({run.config["steps"] for run in runs})
    planned = " to ".join(number(n) for n in (steps if len(steps) == 1 else (steps[0], steps[-1])))
    numbers = [
        ("Environment steps" + (" a seed" if len(runs) > 1 else ""), planned),
        ("Seeds" if len(runs) > 1 else "Seed", _seeds(runs)),
        ("Episodes", number(sum(len(run.progress["step"]) for run in runs))),
        ("Training time" + (" in total" if len(runs) > 1 else ""), duration(sum(map(_seconds, runs)))),
    ]
    arguments = _inline(environment["arguments"])
    below = f'<p class="arguments">{escape(arguments)}</p>' if arguments else ""
    return f"{facts('gpsarsa report', environment['id'], below, numbers)}\n{_result(runs)}"


def _result(runs: Sequence[Run]) -> str:
    """The evaluation at the end, against the threshold; or how training stands where there is none."""
    found = [e for run in runs if (e := _evaluation(run)) is not None]
    if not found:
        return _unevaluated(runs)
    means = np.array([e["mean"] for e in found])
    if len(found) == 1:
        error, of = found[0]["standard_error"], f"{found[0]['episodes']} greedy episodes"
    else:
        error = float(means.std(ddof=1) / np.sqrt(len(means)))
        of = f"{len(found)} seeds of {found[0]['episodes']} greedy episodes each"
    kind, verdict = _verdict(found, runs)
    return (
        f'<div class="result {kind}"><p class="label">Mean return after training</p>'
        f'<p class="figure">{figure(float(means.mean()), error)}</p>'
        f"<p>{escape(of)}; ± is the standard error</p>"
        f'<p class="verdict">{escape(verdict)}</p></div>'
    )


def _verdict(found: Sequence[dict[str, Any]], runs: Sequence[Run]) -> tuple[str, str]:
    """How the evaluations compare with the threshold: a style class and words."""
    judged = [e for e in found if e["threshold"] is not None]
    missing = f"; {len(runs) - len(found)} not evaluated" if len(found) < len(runs) else ""
    if not judged:
        return "open", f"No threshold of success is set{missing}"
    passed = sum(e["mean"] >= e["threshold"] for e in judged)
    threshold = number(judged[0]["threshold"])
    if len(runs) == 1:
        return ("good", f"✓ Threshold {threshold} reached") if passed else (
            "bad", f"✗ Threshold {threshold} not reached")  # fmt: skip
    kind = "good" if passed == len(runs) else "bad" if passed == 0 else "open"
    return kind, f"{passed} of {len(judged)} seeds reach the threshold {threshold}{missing}"


def _unevaluated(runs: Sequence[Run]) -> str:
    last = [run.progress["return"][-LAST:] for run in runs if len(run.progress["return"])]
    mean = number(float(np.mean([returns.mean() for returns in last]))) if last else "–"
    longest = max(map(len, last), default=0)
    what = f"Mean return of the last {longest} training episodes" if last else "No episode has finished yet"
    done, planned = sum(map(_steps_done, runs)), sum(run.config["steps"] for run in runs)
    return (
        f'<div class="result open"><p class="label">{what}</p><p class="figure">{mean}</p>'
        f'<p class="verdict">Not evaluated; {number(done)} of {number(planned)} steps done</p></div>'
    )


# -- pictures -------------------------------------------------------------------------------------


def _training(runs: Sequence[Run]) -> list[str]:
    """The pictures of the course of training."""
    many = sum(len(run.progress["step"]) for run in runs) > FEW and len(runs) == 1
    several = len(runs) > 1
    curve = (
        "Thin lines are seeds, averaged over neighbouring episodes; the thick line is their mean and the "
        "band its 95 % interval (Student’s t), drawn as far as every seed has come."
        if several
        else "A point is an episode, coloured by the policy that acted. The line is the running median, "
        "the band the running quartiles."
    )
    return [
        card(
            plots.learning_curve(runs),
            f"{curve} The diamond is the evaluation after training, without exploration; the dashed line "
            "is the return that counts as success.",
            "Learning curve: return per episode against environment steps",
            pixels=many,
        ),
        card(
            plots.calibration(runs),
            "Before each episode the model predicts its discounted return. On the diagonal it was right; "
            "bars are 90 % intervals. The intervals are for the expected return of the policy, and one "
            "episode scatters around its expectation, so fewer than 90 % of realised returns inside is "
            "no error by itself. Truncated episodes count only where the missing rest weighs below 5 %.",
            "Calibration: returns predicted at the first step against realised discounted returns",
        ),
        card(
            plots.growth(runs),
            "The model grows where transitions tell it something new, up to a quarter more than its budget, "
            "and falls back when pseudo-inputs are placed anew.",
            "Growth: number of pseudo-inputs against environment steps",
        ),
        card(
            plots.evidence(runs),
            "Higher evidence (in nats) means that the model gives the rewards it saw a higher density. "
            "The noise variance is what it leaves unexplained. Both change at slow steps, when "
            "hyperparameters are learnt; a fall follows data of a new kind.",
            "Log evidence per transition and noise variance against environment steps",
        ),
    ]


def _surfaces(runs: Sequence[Run], agent: Any) -> str:
    """The agent's value and its uncertainty, or why they are missing."""
    if agent is None:
        return absent("These pictures need the agent, which was not given to this report.")
    if agent.model is None or len(agent.visited) == 0:
        return absent("The agent has no model yet: it was stopped before it had seen enough transitions.")
    which = " The agent is that of one of the runs." if len(runs) > 1 else ""
    names = agent.observations.names
    if len(names) == 1:
        caption = (
            f"What the agent expects of its greedy action, for each {names[0]} it has met. Intervals hold "
            f"90 % of the posterior; where they are wide it has seen little.{which}"
        )
        return cards([card(plots.value_surface(agent), caption, "Value of the greedy action")])
    rest = (
        " Other columns stand at their median (unordered ones at their most frequent value)."
        if len(names) > 2
        else ""
    )
    value = (
        "What the agent expects of its greedy action, over the two observation columns that matter most "
        f"(visited range over lengthscale).{rest} Diamonds are pseudo-inputs, seen from above.{which}"
    )
    uncertainty = (
        "How sure it is of that value. Dark is well known; bright regions were seldom visited, and there "
        "the value is mostly prior."
    )
    return cards(
        [
            card(plots.value_surface(agent, "value"), value, "Map of the value", pixels=True),
            card(
                plots.value_surface(agent, "uncertainty"), uncertainty, "Map of the uncertainty", pixels=True
            ),
        ]
    )


# -- tables ---------------------------------------------------------------------------------------


def _runs_table(runs: Sequence[Run]) -> str:
    head = ("Folder", "Seed", "Steps", "Episodes", "Evaluation", "State", "Time")
    return table(head, [_run_row(run) for run in runs], "Runs")


def _run_row(run: Run) -> list[str]:
    steps, evaluation = run.progress["step"], _evaluation(run)
    done = _steps_done(run)
    finished = run.summary is not None and run.summary["finished"]
    score = "–"
    if evaluation is not None:
        score = plus_minus_of(evaluation["mean"], evaluation["standard_error"])
    return [
        run.folder.resolve().name, str(run.config["seed"]),
        f"{number(done)} of {number(run.config['steps'])}", number(len(steps)), score,
        "finished" if finished else "unfinished", duration(_seconds(run)),
    ]  # fmt: skip


def _settings(runs: Sequence[Run]) -> str:
    """The agent's settings and the versions; where runs differ, each value."""
    agent = [("gamma", _common(runs, lambda c: c["gamma"]))]
    agent += [(name, _common(runs, lambda c, n=name: c["agent"].get(n))) for name in _keys(runs, "agent")]
    versions = [(n, _common(runs, lambda c, n=n: c["versions"].get(n))) for n in _keys(runs, "versions")]
    left = table(("Setting", "Value"), agent, "Settings of the agent")
    right = table(("Software", "Version"), versions, "Versions")
    return pair(left, right)


def _keys(runs: Sequence[Run], part: str) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.config[part]))


def _common(runs: Sequence[Run], get: Any) -> str:
    return " | ".join(dict.fromkeys(plain(get(run.config)) for run in runs))


def _episodes(runs: Sequence[Run]) -> str:
    """The last episodes of each run; those of several runs fold away."""
    tables = [_episode_table(run) for run in runs]
    if len(runs) == 1:
        return tables[0]
    names = [f"{run.folder.resolve().name} (seed {run.config['seed']})" for run in runs]
    return "\n".join(
        f"<details><summary>{escape(name)}</summary>{table}</details>"
        for name, table in zip(names, tables, strict=True)
    )


def _episode_table(run: Run) -> str:
    if len(run.progress["step"]) == 0:
        return absent("No episode has finished yet.")
    head = ("Episode", "Step", "Return", "Length", "End", "Policy", "Predicted", "Realised (discounted)", "M")
    last = range(len(run.progress["step"]))[-LAST:]
    return table(head, [_episode_row(run.progress, i) for i in reversed(last)], "Last episodes")


def _episode_row(progress: dict[str, Any], i: int) -> list[str]:
    predicted, std = progress["predicted"][i], progress["predicted_std"][i]
    expected = plus_minus_of(predicted, std) if np.isfinite(predicted) else "–"
    return [
        *(number(progress[name][i]) for name in ("episode", "step", "return", "length")),
        "terminated" if progress["terminated"][i] else "truncated",
        str(progress["role"][i]), expected,
        *(number(progress[name][i]) for name in ("discounted", "pseudo_inputs")),
    ]  # fmt: skip


# -- words ----------------------------------------------------------------------------------------


def _evaluation(run: Run) -> dict[str, Any] | None:
    return None if run.summary is None else run.summary["evaluation"]


def _steps_done(run: Run) -> int:
    """By the later of summary and progress: a run that was resumed may have an old summary."""
    steps = run.progress["step"]
    return max(run.summary["steps"] if run.summary else 0, int(steps[-1]) if len(steps) else 0)


def _seconds(run: Run) -> float:
    seconds = run.progress["seconds"]
    return max(run.summary["seconds"] if run.summary else 0.0, float(seconds[-1]) if len(seconds) else 0.0)


def _seeds(runs: Sequence[Run]) -> str:
    """0 to 4 where they are consecutive, else each."""
    seeds = sorted(run.config["seed"] for run in runs)
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _inline(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {plain(value)}" for name, value in arguments.items())
