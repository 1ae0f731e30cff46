"""Tables and pictures of `benchmarks.control`, for docs/results.md and, in short, two more pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.control_tasks import PLAIN, RESCALED, UNTUNED, Task
from benchmarks.pages import put, table

Row = dict[str, Any]
Curve = Sequence[tuple[int, float]]

NAMES = {
    "gpsarsa": "gpsarsa",
    "tiles": "tile coding",
    "dqn": "DQN",
    "ppo": "PPO",
    "sac": "SAC",
}
COLOURS = {
    "gpsarsa": "#0072B2",
    "tiles": "#E69F00",
    "dqn": "#009E73",
    "ppo": "#CC79A7",
    "sac": "#56B4E9",
}
BEGIN, END = "<!-- results: written by make bench-control -->", "<!-- end of results -->"
SHORT_BEGIN, SHORT_END = (
    "<!-- results in short: written by make bench-control -->", "<!-- end of results in short -->"
)  # fmt: skip
HEADER = (
    "task", "threshold", "contender", "seeds", "steps", "first pass (quartiles)", "pass at all",
    "pass by the aim", "held since: median seed", "held since: pooled", "return at last", "µs a step",
)  # fmt: skip
SHORT = 0, 1, 3, 5, 7, 9  # columns of these
SHORT_PAGES = "control.md", "algorithms/agent.md"


# -- arithmetic -----------------------------------------------------------------------------------


def first_pass(curve: Curve, threshold: float) -> float:
    """The step of the first evaluation that passes; infinite where none does."""
    return next((step for step, value in curve if value >= threshold), math.inf)


def held(curve: Curve, threshold: float) -> tuple[int, int]:
    """Of the evaluations from the first pass on: how many pass, how many there are."""
    since = [value for step, value in curve if step >= first_pass(curve, threshold)]
    return sum(value >= threshold for value in since), len(since)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Each is one of the values, so that infinite ones may be among them."""
    return tuple(float(value) for value in np.quantile(values, (0.25, 0.5, 0.75), method="inverted_cdf"))


# -- tables ---------------------------------------------------------------------------------------


def tables(rows: Iterable[Row]) -> str:
    """Markdown."""
    rows = list(rows)
    parts = []
    for title, tasks in (
        ("Tasks", PLAIN),
        ("Tasks on which nothing was tuned", UNTUNED),
        ("Observations and rewards times 1000", RESCALED),
    ):
        lines = [
            _line(task, name, found) for task in tasks for name in NAMES if (found := _of(rows, task, name))
        ]
        if lines:
            parts.append(f"### {title}\n\n{table([HEADER, *lines])}")
    return "\n\n".join(parts) if parts else "No runs yet."


def short_table(rows: Iterable[Row]) -> str:
    """Markdown: ours alone."""
    rows = list(rows)
    lines = [
        _line(task, "gpsarsa", found)
        for task in PLAIN + UNTUNED + RESCALED
        if (found := _of(rows, task, "gpsarsa"))
    ]
    return table([[line[i] for i in SHORT] for line in (HEADER, *lines)])


def _of(rows: Iterable[Row], task: Task, contender: str) -> list[Row]:
    newest = {row["seed"]: row for row in rows if row["task"] == task.name and row["contender"] == contender}
    return [row for row in newest.values() if row["evaluations"]]


def _line(task: Task, contender: str, rows: list[Row]) -> Sequence[str]:
    curves = [row["evaluations"] for row in rows]
    passes = [first_pass(curve, task.threshold) for curve in curves]
    passing = [
        held(curve, task.threshold) for curve in curves if first_pass(curve, task.threshold) < math.inf
    ]
    low, middle, high = quartiles(passes)
    shares = [good / count for good, count in passing]
    pooled = sum(good for good, _ in passing), sum(count for _, count in passing)
    aim = "" if task.aim is None or contender != "gpsarsa" else (
        f"{sum(step <= task.aim for step in passes)} of {len(rows)} by {spaced(task.aim)}"
    )  # fmt: skip
    return (
        task.name, _number(task.threshold), NAMES[contender], f"{len(rows)}",
        spaced(max(row["steps"] for row in rows)),
        "—" if middle == math.inf else f"{spaced(middle)} ({spaced(low)} – {spaced(high)})",
        f"{len(passing)} of {len(rows)}", aim,
        f"{np.median(shares):.0%}" if shares else "—",
        f"{pooled[0] / pooled[1]:.0%} of {pooled[1]}" if shares else "—",
        _number(float(np.median([curve[-1][1] for curve in curves]))),
        spaced(round(float(np.median([row["microseconds"] for row in rows])))),
    )  # fmt: skip


def spaced(value: float) -> str:
    """A whole number as it is printed: 10 000."""
    return "∞" if value == math.inf else f"{value:,.0f}".replace(",", " ")


def _number(value: float) -> str:
    digits = 0 if abs(value) >= 100 or value == round(value) else 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f}".replace("-", "−")


# -- pictures -------------------------------------------------------------------------------------


def draw(rows: list[Row], path: Path) -> None:
    """Return against steps on the tasks of the first table."""
    figure = Figure(figsize=(15, 7), layout="constrained")
    panels = figure.subplots(2, 4).flat
    for axes, task in zip(panels, PLAIN, strict=False):
        _panel(axes, task, {name: _of(rows, task, name) for name in NAMES})
    _legend(panels[len(PLAIN)], NAMES)
    figure.savefig(path, dpi=110)


def draw_others(rows: list[Row], path: Path) -> None:
    """The tasks on which nothing was tuned, and ours in other units."""
    figure = Figure(figsize=(15, 7), layout="constrained")
    panels = figure.subplots(2, 4)
    for axes, task in zip(panels[0], UNTUNED, strict=False):
        _panel(axes, task, {name: _of(rows, task, name) for name in NAMES})
    _legend(panels[0, -1], [name for name in NAMES if any(_of(rows, task, name) for task in UNTUNED)])
    plain = {task.id: task for task in PLAIN}
    for axes, task in zip(panels[1], RESCALED, strict=True):
        _panel(axes, task, {"gpsarsa": _of(rows, task, "gpsarsa")})
        before = _curves(_of(rows, plain[task.id], "gpsarsa"))
        if before is not None:
            axes.plot(before[0], before[1][1], color="black", linewidth=1, linestyle=":", label="as it is")
            axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=110)


def _curves(rows: list[Row]) -> tuple[list[int], np.ndarray] | None:
    """Steps that all runs were evaluated at, and the quartiles over runs."""
    if not rows:
        return None
    found = [dict(map(tuple, row["evaluations"])) for row in rows]
    steps = sorted(set(found[0]).intersection(*found[1:]))
    returns = np.array([[one[step] for step in steps] for one in found])
    return steps, np.quantile(returns, (0.25, 0.5, 0.75), axis=0)


def _panel(axes: Axes, task: Task, contenders: dict[str, list[Row]]) -> None:
    for name, rows in reversed(contenders.items()):
        curves = _curves(rows)
        if curves is not None:
            steps, (low, middle, high) = curves
            axes.fill_between(steps, low, high, color=COLOURS[name], alpha=0.18, linewidth=0)
            axes.plot(steps, middle, color=COLOURS[name], linewidth=_width(name))
    axes.axhline(task.threshold, color="0.35", linestyle="--", linewidth=1)
    axes.set(title=task.name, xscale="log", xlabel="environment steps", ylabel="return")
    axes.set_ylim(task.floor, task.threshold + 0.22 * (task.threshold - task.floor))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _width(name: str) -> float:
    return 3.0 if name == "gpsarsa" else 1.5


def _legend(axes: Axes, names: Iterable[str]) -> None:
    for name in names:
        axes.plot([], [], color=COLOURS[name], linewidth=_width(name), label=NAMES[name])
    axes.plot([], [], color="0.35", linestyle="--", linewidth=1, label="threshold")
    axes.legend(frameon=False, loc="center", title="median and quartiles over seeds", fontsize=12)
    axes.set_axis_off()


# -- the page -------------------------------------------------------------------------------------


def write(rows: list[Row], folder: Path) -> str:
    """Draw the pictures and put the tables into results.md, and short ones into others; the former."""
    page = folder / "results.md"
    text = tables(rows)
    if rows:
        draw(rows, folder / "results.png")
        draw_others(rows, folder / "results_others.png")
        text = "\n\n".join([
            "![Return against steps, one panel a task, ours and the peers](results.png)",
            "![Return against steps on the untuned tasks, and in other units](results_others.png)",
            text, f"Measured with {_versions(rows)}.",
        ])  # fmt: skip
    put(text, page, BEGIN, END)
    for name in SHORT_PAGES:
        put(short_table(rows), folder / name, SHORT_BEGIN, SHORT_END)
    return text


def _versions(rows: Iterable[Row]) -> str:
    found = {
        f"{row['version']} ({row['revision']})" if row["revision"] else row["version"]
        for row in rows
        if row["contender"] != "tiles"
    }
    return ", ".join(sorted(found))
