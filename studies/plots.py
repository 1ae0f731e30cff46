"""The plots of the study. Lines are medians over seeds, bands and bars the quartiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from studies import growth, placement, timescales
from studies.problems import PROBLEMS

Rows = list[dict[str, Any]]

PERCENT = FuncFormatter(lambda value, _: f"{value:g} %")
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
GROWTH_COLOURS = {"exact": "C0", "frozen": "C1", "streaming": "C2"}


def select(rows: Iterable[dict[str, Any]], **wanted: Any) -> Rows:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def quartiles(rows: Rows, name: str, scale: float = 1.0) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile over seeds."""
    low, middle, high = np.quantile([row[name] for row in rows], [0.25, 0.5, 0.75]) * scale
    return float(low), float(middle), float(high)


def _band(axis: Any, x: Sequence[float], cells: list[Rows], name: str, scale: float, **style: Any) -> None:
    low, middle, high = np.array([quartiles(cell, name, scale) for cell in cells]).T
    axis.plot(x, middle, **style)
    axis.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _ticks(axis: Any, form: FuncFormatter) -> None:
    """1, 2, 5, 10, … written out along one logarithmic axis."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(form)
    axis.set_minor_locator(LogLocator(subs=()))


def _finish(figure: Figure, path: str, handles: Any = None, columns: int = 4) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    if handles is not None:
        figure.legend(*handles, loc="outside lower center", ncols=columns, frameon=False)
    figure.savefig(path, dpi=110)


def draw_placement(rows: Rows, path: str) -> None:
    """Above the error of the means, below the divergence; one column a problem, one colour a strategy."""
    figure = Figure(figsize=(15, 7.6), layout="constrained")
    panels = figure.subplots(2, len(PROBLEMS), sharex=True, sharey="row")
    for column, problem in enumerate(PROBLEMS.values()):
        own = select(rows, problem=problem.name)
        for i, strategy in enumerate(placement.STRATEGIES):
            found = select(own, strategy=strategy)
            shares = sorted({row["share"] for row in found})
            x, cells = [100 * share for share in shares], [select(found, share=share) for share in shares]
            label = placement.LABELS[strategy]
            style = {"color": f"C{i}", "marker": "o^svDPX"[i], "markersize": 5, "label": label}
            style["linestyle"] = "--" if strategy in placement.OBJECTIVES else "-"
            _band(panels[0, column], x, cells, "error", 100.0, **style)
            _band(panels[1, column], x, cells, "KL", 1.0, **style)
        top, bottom = panels[:, column]
        top.axhline(1.0, color="0.4", linewidth=0.9, linestyle=":")
        kind = "smooth" if problem.smooth else "not smooth"
        top.set(title=f"{problem.name} ({kind})", xscale="log", yscale="log", ylim=(1e-5, 200))
        bottom.set(xscale="log", yscale="log", ylim=(1e-8, 3e3), xlabel="pseudo-inputs (% of transitions)")
        every = [100 * share for share in placement.SHARES]
        bottom.set_xticks(every, [f"{share:g}" for share in every])
        bottom.minorticks_off()
        top.yaxis.set_major_formatter(PERCENT)
    panels[0, 0].set_ylabel("error of the means\n(RMSE / spread of the exact mean)")
    panels[1, 0].set_ylabel("mean KL(sparse ‖ exact) of marginals (nats)")
    _finish(figure, path, panels[0, 0].get_legend_handles_labels(), columns=7)


def draw_growth(rows: Rows, path: str) -> None:
    """Time a transition, total time, memory, and the distance from a refit."""
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    panels = figure.subplots(1, 4)
    marks = sorted({row["N"] for row in rows})
    for name, colour in GROWTH_COLOURS.items():
        own = select(rows, growth=name)
        cells = [select(own, N=mark) for mark in marks]
        style: dict[str, Any] = {"color": colour, "label": name}
        style["linestyle"] = ":" if name == "frozen" else "-"  # it holds as much as "exact"
        _band(panels[0], marks, cells, "us", 1e-6, **style)
        _band(panels[1], marks, cells, "total", 1.0, **style)
        _band(panels[2], marks, cells, "bytes", 1e-6, **style)
        cells = [select(own, N=check) for check in growth.CHECKS]
        if name != "exact":
            means = {"color": colour, "label": f"{name}: means", "marker": "o"}
            std = {"color": colour, "label": f"{name}: standard deviations", "linestyle": "--", "marker": "s"}
            _band(panels[3], growth.CHECKS, cells, "error", 100.0, **means)
            _band(panels[3], growth.CHECKS, cells, "std error", 100.0, **std)
    checks = np.array(growth.CHECKS, dtype=float)
    refit = np.array([quartiles(select(rows, N=check), "refit")[1] for check in growth.CHECKS])
    until = np.array([mark for mark in marks if mark >= growth.CHECKS[0]], dtype=float)
    totals = growth.refitting(checks, refit, until)
    panels[0].plot(checks, refit, "k^-", label="refit at every step")
    panels[1].plot(until, totals, "k-", label="refit at every step (integrated)")
    titles = ("Time a transition", "Total time", "Memory held by the model", "Distance from a refit")
    labels = ("CPU seconds", "CPU seconds", "MB", "root mean square difference")
    for axis, title, label in zip(panels, titles, labels, strict=True):
        axis.set(title=title, ylabel=label, xlabel="transitions seen", xscale="log", yscale="log")
        axis.legend(frameon=False, fontsize=8)
    _ticks(panels[3].yaxis, PERCENT)
    _finish(figure, path)


def draw_schedules(rows: Rows, path: str) -> None:
    """Above the error against true values, below the coverage, along the stream."""
    figure = Figure(figsize=(15, 7.6), layout="constrained")
    panels = figure.subplots(2, len(timescales.NAMES), sharex=True, sharey="row")
    for column, problem in enumerate(timescales.NAMES):
        for i, variant in enumerate(timescales.SCHEDULES):
            cells = [
                select(rows, problem=problem, variant=variant.name, N=check) for check in timescales.CHECKS
            ]
            tuned = not variant.crude
            style: dict[str, Any] = {"color": "0.3" if tuned else f"C{i}", "label": variant.name}
            style |= {"linestyle": ":" if tuned else "-", "marker": None if tuned else "o^svDPX*"[i]}
            _band(panels[0, column], timescales.CHECKS, cells, "error", 100.0, markersize=5, **style)
            _band(panels[1, column], timescales.CHECKS, cells, "coverage", 100.0, markersize=5, **style)
        panels[0, column].set(title=problem, xscale="log", yscale="log")
        _ticks(panels[0, column].yaxis, PERCENT)
        panels[1, column].axhline(95.0, color="k", linewidth=0.8)
        panels[1, column].set(xlabel="transitions seen", ylim=(0, 103))
        panels[1, column].yaxis.set_major_formatter(PERCENT)
        panels[1, column].set_xticks(timescales.CHECKS, [str(check) for check in timescales.CHECKS])
        panels[1, column].tick_params(axis="x", rotation=45)
        panels[1, column].minorticks_off()
    panels[0, 0].set_ylabel("error (RMSE / spread of the true values)")
    panels[1, 0].set_ylabel("true values inside 95 % intervals")
    _finish(figure, path, panels[0, 0].get_legend_handles_labels(), columns=3)


def draw_drops(rows: Rows, path: str) -> None:
    """Drop rules and growths at a tight budget; below, novelty thresholds without a budget."""
    figure = Figure(figsize=(15, 7.6), layout="constrained")
    panels = figure.subplots(2, len(timescales.NAMES))
    for column, problem in enumerate(timescales.NAMES):
        top, bottom = panels[:, column]
        for i, variant in enumerate(timescales.DROPS):
            own = select(rows, problem=problem, variant=variant.name)
            cells = [select(own, N=check) for check in timescales.CHECKS]
            style = {"color": f"C{i % 3}", "linestyle": "-" if variant.growth == "exact" else "--"}
            _band(top, timescales.CHECKS, cells, "error", 100.0, label=variant.name, marker="o", **style)
        title = f"{problem}: at most {timescales.TIGHT[problem]} pseudo-inputs"
        top.set(title=title, xscale="log", yscale="log", xlabel="transitions seen")
        _thresholds(bottom, select(rows, problem=problem, N=timescales.N))
        top.set_xticks(timescales.CHECKS, [str(check) for check in timescales.CHECKS])
        top.minorticks_off()
        for axis in (top.yaxis, bottom.yaxis):
            _ticks(axis, PERCENT)
        _ticks(bottom.xaxis, PLAIN)
    for axis in panels[:, 0]:
        axis.set_ylabel("error (RMSE / spread of the true values)")
    _finish(figure, path, panels[0, 0].get_legend_handles_labels(), columns=6)


def _thresholds(axis: Any, rows: Rows) -> None:
    """Error after the whole stream against the number of pseudo-inputs that a threshold leads to."""
    cells = [select(rows, variant=variant.name) for variant in timescales.THRESHOLDS]
    x = [quartiles(cell, "M")[1] for cell in cells]
    _band(axis, x, cells, "error", 100.0, color="C4", marker="o")
    for variant, M, cell in zip(timescales.THRESHOLDS, x, cells, strict=True):
        place = (M, quartiles(cell, "error", 100.0)[1])
        axis.annotate(f"{variant.threshold:g}", place, xytext=(4, 6), textcoords="offset points", fontsize=9)
    axis.set(xscale="log", yscale="log", xlabel="pseudo-inputs that the novelty threshold (label) leads to")
    axis.margins(x=0.12, y=0.15)
