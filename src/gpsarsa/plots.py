"""Pictures of training runs and of what an agent has learnt. One call, one picture.

    from gpsarsa import plots, runs

    plots.learning_curve(runs.read_all(["runs/cartpole"])).savefig("curve.svg")

Each function returns a matplotlib Figure of its own and leaves matplotlib's global state alone.
Matplotlib comes with `pip install 'gpsarsa[plot]'`. Where several runs are given they are taken for
seeds of one experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from gpsarsa import _validation as check
from gpsarsa import kernels
from gpsarsa._validation import Array
from gpsarsa.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Style = dict[str, Any]  # keyword arguments of an artist

__all__ = ["calibration", "evidence", "growth", "initial_values", "learning_curve", "value_surface"]

SIZE = (5.0, 3.6)  # inches; two of them stand side by side on the report's page
INK, MUTED, FAINT = "#1f2933", "#5b6773", "#d9dee3"
BLUE, ORANGE, GREEN, SKY, GREY = "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#9aa5b1"  # Okabe and Ito's
ROLES = {
    "random": ("random actions", GREY),
    "explore": ("exploring", SKY),
    "trial": ("candidate on trial", ORANGE),
    "incumbent": ("incumbent", GREEN),
}
FEWEST = 5  # episodes of which a line is drawn
SURFACES = {
    "value": ("Value of {of}", "expected discounted return", "viridis"),
    "uncertainty": ("Uncertainty of that value", "posterior standard deviation", "magma"),
}
INTERVAL = 1.645  # standard deviations on either side of the mean that hold 90 % of a Gaussian
POINTS = 200  # along a curve
DRAWN = 400  # most episodes in a calibration plot
CELLS = 80  # of a surface, along each axis
TAIL = 0.05  # largest share of a return that a truncated episode may leave out


# -- training -------------------------------------------------------------------------------------


def learning_curve(runs: Run | Sequence[Run]) -> Figure:
    """Return against environment steps.

    One run: a point per episode, coloured by the policy that acted, with the running median and
    quartiles. Several: a line per run, and their mean with a 95 % t-interval over the seeds. The
    evaluation at the end and the threshold of success are drawn where the summaries tell them.
    """
    runs = _listed(runs)
    figure, axes = _axes("Return per episode while training", "return")
    drawn = [run for run in runs if len(run.progress["step"])]
    if not drawn:
        _say(axes, "no episode has finished yet")
    elif len(runs) == 1:
        _episodes(axes, drawn[0])
    else:
        _mean_over_seeds(axes, drawn)
    _threshold(axes, runs)
    _final_evaluation(axes, runs)
    _legend(figure, axes)
    return figure


def growth(runs: Run | Sequence[Run]) -> Figure:
    """How many pseudo-inputs the model holds, against environment steps."""
    runs = _listed(runs)
    figure, axes = _axes("Pseudo-inputs the model holds", "pseudo-inputs M")
    if all((run.progress["pseudo_inputs"] == 0).all() for run in runs):
        _say(axes, "no model yet")
    else:
        _histories(axes, runs, "pseudo_inputs")
        axes.set(xlim=(0, None), ylim=(0, None))
    _legend(figure, axes)
    return figure


def evidence(runs: Run | Sequence[Run]) -> Figure:
    """Log evidence per transition, and below it the noise variance, against environment steps."""
    runs = _listed(runs)
    figure = _figure()
    upper, lower = figure.subplots(2, 1, sharex=True)
    _style(upper, "How well the model explains the rewards", "log evidence\nper transition")
    _style(lower, "", "noise variance\n(reward²)")
    _histories(upper, runs, "log_evidence")
    _histories(lower, runs, "noise_variance")
    _logarithmic(lower)
    figure.align_ylabels()
    _steps(lower)
    _legend(figure, upper)
    return figure


def calibration(runs: Run | Sequence[Run]) -> Figure:
    """Predicted against realised discounted returns, with the 90 % intervals of the predictions.

    Only episodes whose realised return is whole: those that terminated, or ran so long that what
    truncation cut off weighs less than 5 %.
    """
    runs = _listed(runs)
    figure, axes = _axes("Predicted and realised returns", "predicted at the first step")
    axes.set_xlabel("realised discounted return", color=INK)
    predicted, std, realised = np.hstack([_comparable(run) for run in runs])
    if len(realised) == 0:
        _say(axes, "no finished episode with a prediction yet")
        return figure
    inside = np.abs(realised - predicted) <= INTERVAL * std
    shown = _spread_out(len(realised), DRAWN)
    for hits, colour, label in (
        (True, BLUE, "interval contains the return"),
        (False, ORANGE, "interval misses it"),
    ):
        own = shown[inside[shown] == hits]
        _intervals(axes, realised[own], predicted[own], std[own], colour, label)
    low, high = _span(np.concatenate([predicted, realised]))
    axes.plot([low, high], [low, high], color=INK, linewidth=1, label="predicted = realised")
    axes.set(xlim=(low, high), ylim=(low, high))
    thinned = f" ({len(shown)} drawn)" if len(shown) < len(realised) else ""
    _note(
        axes,
        f"{100 * inside.mean():.0f} % of {_thousands(len(realised))} returns inside 90 % intervals{thinned}",
    )
    _legend(figure, axes)
    return figure


def _listed(runs: Run | Sequence[Run]) -> list[Run]:
    listed = [runs] if isinstance(runs, Run) else list(runs)
    if not listed:
        raise ValueError("runs is empty; expected at least one run")
    return listed


def _episodes(axes: Axes, run: Run) -> None:
    """A point per episode, and the running median with its quartiles of those that tell what was learnt."""
    steps, returns = run.progress["step"], run.progress["return"]
    for role, (label, colour) in ROLES.items():
        own = run.progress["role"] == role
        if own.any():
            style: Style = {"color": colour, "alpha": 0.55, "linewidths": 0, "label": label}
            axes.scatter(steps[own], returns[own], s=18, **style)
    if len(returns) < FEWEST:
        return
    (steps, returns), whose = _telling([run])[0], _whose([run])
    width = _width([steps])
    low, middle, high = _running(returns, width, lambda window: np.quantile(window, [0.25, 0.5, 0.75])).T
    x = steps[_spread_out(len(steps), POINTS)]
    axes.fill_between(x, low, high, color=INK, alpha=0.13, linewidth=0)
    axes.plot(x, middle, color=INK, linewidth=1.8, label=f"median of {width} {whose}episodes")


def _mean_over_seeds(axes: Axes, runs: list[Run]) -> None:
    """A thin line per run and their mean with its interval, where all runs have come."""
    told = _telling(runs)
    width = _width([steps for steps, _ in told])
    x = [steps[_spread_out(len(steps), POINTS)] for steps, _ in told]
    y = [_running(returns, width, np.mean) for _, returns in told]
    for own_x, own_y in zip(x, y, strict=True):
        axes.plot(own_x, own_y, color=BLUE, alpha=0.3, linewidth=0.8)
    axes.get_lines()[0].set_label(f"each seed ({width} {_whose(runs)}episodes)")
    grid = np.linspace(max(own[0] for own in x), min(own[-1] for own in x), POINTS)
    if len(runs) < 2 or grid[0] >= grid[-1]:
        return
    curves = np.array([np.interp(grid, own_x, own_y) for own_x, own_y in zip(x, y, strict=True)])
    mean, half = _t_interval(curves)
    axes.fill_between(grid, mean - half, mean + half, color=BLUE, alpha=0.18, linewidth=0)
    axes.plot(grid, mean, color=BLUE, linewidth=2, label=f"mean of {len(runs)} seeds")


def _t_interval(samples: Array) -> tuple[Array, Array]:
    """Mean over the rows, and half the width of its 95 % interval."""
    n = len(samples)
    half = stdtrit(n - 1, 0.975) * samples.std(axis=0, ddof=1) / np.sqrt(n)
    return samples.mean(axis=0), half


def _threshold(axes: Axes, runs: list[Run]) -> None:
    levels = {evaluation["threshold"] for _, evaluation in _evaluations(runs)} - {None}
    for level in sorted(levels):
        axes.axhline(
            level, color=MUTED, linestyle=(0, (5, 3)), linewidth=1.2, label=f"threshold {_thousands(level)}"
        )


def _final_evaluation(axes: Axes, runs: list[Run]) -> None:
    """Mean and standard error, over the episodes of one run or over the seeds of several."""
    found = _evaluations(runs)
    if not found:
        return
    means = np.array([evaluation["mean"] for _, evaluation in found])
    error = found[0][1]["standard_error"] or 0.0
    if len(means) > 1:
        error = means.std(ddof=1) / np.sqrt(len(means))
    style: Style = {"color": INK, "markersize": 7, "markeredgecolor": "white"}
    x = max(steps for steps, _ in found)
    axes.errorbar(x, means.mean(), error, fmt="D", zorder=5, label="final evaluation", **style)


def _evaluations(runs: list[Run]) -> list[tuple[int, dict[str, Any]]]:
    """Steps and evaluation of the runs that were evaluated."""
    summaries = [run.summary for run in runs if run.summary is not None]
    return [(s["steps"], s["evaluation"]) for s in summaries if s["evaluation"] is not None]


def _histories(axes: Axes, runs: list[Run], column: str) -> None:
    """A column of `progress` as it changed; with several runs, thin lines and their median."""
    known = [np.isfinite(run.progress[column]) for run in runs]
    pairs = zip(runs, known, strict=True)
    drawn = [(run.progress["step"][k], run.progress[column][k]) for run, k in pairs if k.any()]
    if not drawn:
        _say(axes, "not known yet")
        return
    alone = len(drawn) == 1
    for x, y in drawn:
        style: Style = {"alpha": 1.0 if alone else 0.35, "linewidth": 1.8 if alone else 0.8}
        axes.plot(x, y, color=BLUE, drawstyle="steps-post", **style)
    grid = np.linspace(max(x[0] for x, _ in drawn), min(x[-1] for x, _ in drawn), POINTS)
    if alone or grid[0] >= grid[-1]:
        return
    axes.get_lines()[0].set_label("each seed")
    held = np.array([y[np.searchsorted(x, grid, side="right") - 1] for x, y in drawn])
    axes.plot(grid, np.median(held, axis=0), color=BLUE, linewidth=2, label=f"median of {len(drawn)} seeds")


def _comparable(run: Run) -> Array:
    """Prediction, its standard deviation and the realised return, of the episodes seen to their end."""
    progress = run.progress
    whole = (progress["terminated"] == 1) | (run.config["gamma"] ** progress["length"] < TAIL)
    own = whole & np.isfinite(progress["predicted"]) & np.isfinite(progress["predicted_std"])
    return np.array([progress[name][own] for name in ("predicted", "predicted_std", "discounted")])


def _intervals(axes: Axes, x: Array, y: Array, std: Array, colour: str, label: str) -> None:
    if len(x) == 0:
        return
    bars = axes.errorbar(x, y, INTERVAL * std, fmt="o", color=colour, markersize=3.5, elinewidth=1)
    bars.lines[0].set(alpha=0.8, markeredgewidth=0, label=label)
    bars.lines[2][0].set_alpha(0.25)


def initial_values(
    mean: Array, low: Array, high: Array, value: float, interval: tuple[float, float]
) -> Figure:
    """Q at some initial states from the worst to the best, with their intervals, and the mean of all."""
    figure, axes = _axes("Value of initial states", "expected discounted return")
    order = np.argsort(mean, kind="stable")
    place = np.arange(len(order))
    ends = np.array([(mean - low)[order], (high - mean)[order]])
    bars = axes.errorbar(place, mean[order], ends, fmt="o", color=BLUE, markersize=3.5, elinewidth=1)
    bars.lines[0].set(markeredgewidth=0, label="an initial state")
    bars.lines[2][0].set_alpha(0.35)
    axes.axhspan(*interval, color=ORANGE, alpha=0.25, linewidth=0, label="interval of the policy's value")
    axes.axhline(value, color=ORANGE, linewidth=1.5)
    axes.set_xlabel("initial states, sorted", color=INK)
    _legend(figure, axes)
    return figure


# -- what was learnt ------------------------------------------------------------------------------


def value_surface(agent: Any, what: str = "value", of: str = "the greedy action") -> Figure:
    """What the agent expects of its greedy action, over the observations it has visited.

    `what` is "value", the posterior mean, or "uncertainty", the posterior standard deviation. The two
    observation columns that matter most span the plane; the others stand at their median. A single
    column gives a line, or bars where its values have no order; both show value and uncertainty. `of` says
    in the title whose value it is that `agent.values` gives.
    """
    check.one_of(what, "what", tuple(SURFACES))
    if _model(agent) is None or len(agent.visited) == 0:
        raise ValueError("agent has no model yet; train it before drawing its values")
    visited = np.asarray(agent.visited, dtype=np.float64)
    if visited.shape[1] > 1:
        return _surface(agent, visited, what, of)
    return _bars(agent, visited, of) if _unordered(agent)[0] else _line(agent, visited, of)


def _model(agent: Any) -> Any:
    """The posterior that `agent.values` asks."""
    return getattr(agent, "acting_model", agent.model)


def _line(agent: Any, visited: Array, of: str) -> Figure:
    """Value along the only observation column."""
    figure, axes = _axes(f"Value of {of}", "expected discounted return")
    x = np.linspace(*_range(visited[:, 0]), 4 * CELLS)
    mean, std = agent.values(x[:, None])
    band: Style = {"color": BLUE, "alpha": 0.18, "linewidth": 0, "label": "90 % interval"}
    axes.fill_between(x, mean - INTERVAL * std, mean + INTERVAL * std, **band)
    axes.plot(x, mean, color=BLUE, linewidth=2, label="posterior mean")
    inputs = _model(agent).pseudo_inputs[:, 0]
    place = axes.get_xaxis_transform()
    axes.plot(inputs, np.full(len(inputs), 0.02), "d", color=INK, transform=place, label="pseudo-inputs")
    axes.set_xlim(x[0], x[-1])
    _name(axes.set_xlabel, agent.observations.names[0])
    _legend(figure, axes)
    return figure


def _bars(agent: Any, visited: Array, of: str) -> Figure:
    """Value of each value that the only, unordered, observation column has taken."""
    figure, axes = _axes(f"Value of {of}", "expected discounted return")
    values = np.unique(visited[:, 0])
    mean, std = agent.values(values[:, None])
    place = np.arange(len(values))
    axes.bar(place, mean, color=BLUE, alpha=0.75, width=0.8, label="posterior mean")
    error = axes.errorbar(place, mean, INTERVAL * std, fmt="none", ecolor=INK, elinewidth=1.2)
    error.set_label("90 % interval")
    axes.grid(visible=False, axis="x")
    axes.axhline(0, color=INK, linewidth=0.8)
    _category_ticks(axes.xaxis, values)
    _name(axes.set_xlabel, agent.observations.names[0])
    _legend(figure, axes)
    return figure


def _surface(agent: Any, visited: Array, what: str, of: str) -> Figure:
    """Value or uncertainty over the two columns that matter most."""
    title, unit, colours = SURFACES[what]
    figure, axes = _axes(title.format(of=of), "")
    across, up = _sides(agent, visited)
    mean, std = agent.values(_plane(agent, visited, across, up))
    heights = np.reshape(mean if what == "value" else std, (len(up.values), len(across.values)))
    mesh = axes.pcolormesh(across.places, up.places, heights, cmap=colours, shading="nearest")
    if not (across.unordered or up.unordered) and np.ptp(heights) > 0:
        style: Style = {"colors": "white", "linewidths": 0.6, "linestyles": "solid", "alpha": 0.45}
        axes.contour(across.places, up.places, heights, levels=7, **style)
    _pseudo_inputs(axes, _model(agent).pseudo_inputs, across, up)
    for side, axis, set_label in ((across, axes.xaxis, axes.set_xlabel), (up, axes.yaxis, axes.set_ylabel)):
        _name(set_label, side.name)
        if side.unordered:
            _category_ticks(axis, side.values)
    axes.grid(visible=False)
    bar = figure.colorbar(mesh, ax=axes, pad=0.02, aspect=24)
    bar.set_label(unit, color=INK, fontsize=9)
    bar.ax.tick_params(labelsize=8, color=FAINT, labelcolor=MUTED)
    bar.outline.set_visible(False)
    _legend(figure, axes)
    return figure


@dataclass(frozen=True)
class _Side:
    """One side of a surface: an observation column and the values at which it is asked."""

    column: int
    name: str
    values: Array
    unordered: bool

    @property
    def places(self) -> Array:
        """Where the values are drawn: unordered ones side by side."""
        return np.arange(len(self.values), dtype=np.float64) if self.unordered else self.values

    def locate(self, values: Array) -> Array:
        """Where values of this column are drawn; nan for those outside."""
        if self.unordered:
            index = np.searchsorted(self.values, values)
            return np.where(np.isin(values, self.values), index, np.nan)
        return np.where((values >= self.values[0]) & (values <= self.values[-1]), values, np.nan)


def _sides(agent: Any, visited: Array) -> tuple[_Side, _Side]:
    """The two columns that matter most, in the order of the observation."""
    unordered = _unordered(agent)
    first, second = (
        _Side(
            int(c),
            str(agent.observations.names[c]),
            np.unique(visited[:, c]) if unordered[c] else np.linspace(*_range(visited[:, c]), CELLS),
            bool(unordered[c]),
        )
        for c in sorted(_importance(agent, visited)[:2])
    )
    return first, second


def _plane(agent: Any, visited: Array, across: _Side, up: _Side) -> Array:
    """Observations over the two sides; the other columns are as they typically are.

    Typical is the median, or the most frequent value where values have no order.
    """
    typical = np.median(visited, axis=0)
    for column in np.flatnonzero(_unordered(agent)):
        values, counts = np.unique(visited[:, column], return_counts=True)
        typical[column] = values[np.argmax(counts)]
    rows = np.tile(typical, (len(across.values) * len(up.values), 1))
    rows[:, across.column] = np.tile(across.values, len(up.values))
    rows[:, up.column] = np.repeat(up.values, len(across.values))
    return rows


def _pseudo_inputs(axes: Axes, inputs: Array, across: _Side, up: _Side) -> None:
    """Diamonds at the pseudo-inputs that lie inside the plane."""
    x, y = across.locate(inputs[:, across.column]), up.locate(inputs[:, up.column])
    inside = np.isfinite(x) & np.isfinite(y)
    style: Style = {"color": "white", "markeredgecolor": INK, "markeredgewidth": 0.6, "markersize": 3.5}
    axes.plot(x[inside], y[inside], "D", label="pseudo-inputs", **style)


def _unordered(agent: Any) -> NDArray[np.bool_]:
    """Which observation columns hold values without order: categories, and what a Delta compares."""
    unordered = np.array(agent.observations.categories, dtype=np.bool_)
    if isinstance(_model(agent).kernel, kernels.Kernel):
        for column in _model(agent).kernel.discrete_columns(_model(agent).pseudo_inputs.shape[1]):
            unordered[column : column + 1] = True  # beyond the observation stand the actions
    return unordered


def _importance(agent: Any, visited: Array) -> NDArray[np.intp]:
    """The observation columns, those first over whose visited range the values can vary most.

    A column counts by its range from the 5 % to the 95 % quantile over its smallest lengthscale;
    unordered columns come last.
    """
    columns = visited.shape[1]
    total = _model(agent).pseudo_inputs.shape[1]
    weight = np.zeros(columns)
    low, high = np.quantile(visited, [0.05, 0.95], axis=0)
    for column, lengthscale in _lengthscales(_model(agent).kernel, total):
        if column < columns:
            weight[column] = max(weight[column], (high[column] - low[column]) / lengthscale)
    weight[_unordered(agent)] = -1.0
    return np.argsort(-weight, kind="stable")


def _lengthscales(kernel: Any, columns: int) -> Iterator[tuple[int, float]]:
    """Column and lengthscale of all stationary parts of a kernel; none of a kernel of the user's own."""
    if isinstance(kernel, kernels.Sum | kernels.Product):
        for part in kernel.parts:
            yield from _lengthscales(part, columns)
    elif isinstance(kernel, kernels.RBF | kernels.Matern32 | kernels.Matern52):
        own = range(columns) if kernel.columns is None else [c % columns for c in kernel.columns]
        yield from zip(own, np.broadcast_to(kernel.lengthscales, len(own)).tolist(), strict=True)


def _range(values: Array) -> tuple[float, float]:
    """Where nearly all visited values lie; not a point."""
    low, high = np.quantile(values, [0.005, 0.995])
    return (float(low), float(high)) if high > low else (float(low) - 0.5, float(high) + 0.5)


# -- curves ---------------------------------------------------------------------------------------


def _spread_out(n: int, most: int) -> NDArray[np.intp]:
    """At most so many of the indices 0 … n − 1, evenly spread and with both ends."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def _telling(runs: Sequence[Run]) -> list[tuple[Array, Array]]:
    """Steps and returns of the episodes that tell what was learnt: the incumbent's where every run has enough
    of them, because who explores fails on purpose; else all."""
    shown = [run.progress["role"] == "incumbent" for run in runs]
    if not _whose(runs):
        shown = [np.ones_like(own) for own in shown]
    return [
        (run.progress["step"][own], run.progress["return"][own]) for run, own in zip(runs, shown, strict=True)
    ]


def _whose(runs: Sequence[Run]) -> str:
    enough = all((run.progress["role"] == "incumbent").sum() >= FEWEST for run in runs)
    return "incumbent's " if enough else ""


def _width(steps: Iterable[Array]) -> int:
    """How many episodes a running statistic spans: about a fifteenth of a run, an odd number."""
    return max(9, int(np.median([len(own) for own in steps]) // 30) * 2 + 1)


def _running(values: Array, width: int, statistic: Callable[[Array], Any]) -> Array:
    """A statistic of the values around each of up to `POINTS` episodes."""
    half = width // 2
    centres = _spread_out(len(values), POINTS)
    return np.array([statistic(values[max(0, i - half) : i + half + 1]) for i in centres])


def _span(values: Array) -> tuple[float, float]:
    """Limits of an axis with some air on either side."""
    low, high = float(values.min()), float(values.max())
    air = 0.08 * (high - low) or 0.5
    return low - air, high + air


# -- style ----------------------------------------------------------------------------------------


def _figure() -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need matplotlib; install it by: pip install 'gpsarsa[plot]'") from None
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)  # inches
    return Figure(figsize=SIZE, layout=layout, facecolor="white")


def _axes(title: str, ylabel: str) -> tuple[Figure, Axes]:
    """A figure of one panel over environment steps."""
    figure = _figure()
    axes = figure.subplots()
    _style(axes, title, ylabel)
    _steps(axes)
    return figure, axes


def _style(axes: Axes, title: str, ylabel: str) -> None:
    axes.set_facecolor("white")
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_ylabel(ylabel, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=8, color=FAINT, labelcolor=MUTED)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    axes.grid(visible=True, color=FAINT, linewidth=0.6, alpha=0.7)
    axes.set_axisbelow(True)


def _steps(axes: Axes) -> None:
    axes.set_xlabel("environment steps", color=INK)
    axes.xaxis.set_major_formatter(lambda value, _: _thousands(value))


def _logarithmic(axes: Axes) -> None:
    """A logarithmic y axis with a few round numbers, where the values are positive and far apart."""
    drawn = np.concatenate([[], *(np.asarray(line.get_ydata()) for line in axes.get_lines())])
    if len(drawn) == 0 or drawn.min() <= 0 or drawn.max() <= 5 * drawn.min():
        return
    axes.set_yscale("log")
    ticks = _round_numbers(float(drawn.min()), float(drawn.max()))
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _round_numbers(low: float, high: float, most: int = 5) -> list[float]:
    """Numbers such as 1, 2, 5, 10, … between two that are a factor of five or more apart."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    for digits in ((1, 2, 5), (1,)):
        numbers = [float(f"{d}e{e}") for e in decades for d in digits if low <= float(f"{d}e{e}") <= high]
        if len(numbers) <= most:
            return numbers
    return numbers[:: -(-len(numbers) // most)]


def _thousands(value: float) -> str:
    """12 345 with a thin space and a proper minus, and no more digits than needed."""
    text = f"{value:,.0f}" if value == round(value) else f"{value:g}"
    return text.replace(",", "\N{THIN SPACE}").replace("-", "\N{MINUS SIGN}")


def _name(set_label: Callable[..., Any], name: str) -> None:
    """A label from elsewhere, which is not taken for mathematics."""
    set_label(str(name), color=INK, parse_math=False)


def _category_ticks(axis: Any, values: Array) -> None:
    """Values that have no order, side by side; at most twenty of them named."""
    every = _spread_out(len(values), 20)
    axis.set_ticks(every, [f"{value:g}" for value in values[every]])


def _say(axes: Axes, text: str) -> None:
    """Why a panel is empty."""
    axes.tick_params(bottom=False, left=False, labelbottom=False, labelleft=False)
    axes.grid(visible=False)
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)


def _note(axes: Axes, text: str) -> None:
    """A remark in the upper left corner."""
    box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "boxstyle": "round,pad=0.3"}
    place: Style = {"transform": axes.transAxes, "ha": "left", "va": "top"}
    axes.text(0.02, 0.98, text, fontsize=9, color=INK, bbox=box, zorder=6, **place)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        style: Style = {"frameon": False, "fontsize": 8, "labelcolor": INK, "ncols": 3}
        style |= {"handlelength": 1.5, "columnspacing": 1.5, "handletextpad": 0.6}
        figure.legend(handles, labels, loc="outside lower center", **style)
