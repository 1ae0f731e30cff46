"""One self-contained HTML page about a run, or about several seeds of one experiment.

    write_report(["runs/cartpole"])       # runs/cartpole/report.html

The page holds its pictures and its style, loads nothing and runs nothing. Every text that comes from
a file is escaped where it enters the page.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpsarsa import _validation as check
from gpsarsa import plots
from gpsarsa._validation import Array
from gpsarsa._version import __version__
from gpsarsa._words import duration, ends, plus_minus
from gpsarsa.runs import Run, RunError, paths, read_all, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_evaluation_report", "write_report"]

PathLike = str | os.PathLike[str]
FEW = 2000  # most points in a picture that is drawn by lines rather than pixels
LAST = 20  # episodes in a table
WORDS = {"Folder", "State", "Setting", "Value", "Software", "Version", "End", "Policy"}  # not numbers
TYPESET = str.maketrans({",": "\N{NARROW NO-BREAK SPACE}", "-": "\N{MINUS SIGN}"})  # of numbers


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
    return _written(target, lambda: _page(runs, agent))


def _written(target: Path, page: Callable[[], str]) -> Path:
    try:
        text = page()
    except ImportError as error:
        raise RunError(f"{target} was not written: {error}") from None
    try:
        write_text(target, text.encode(errors="replace").decode())  # JSON may hold half a character
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error.strerror}") from None
    return target


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
        _section("Training", _cards(_training(runs))),
        _section("What was learnt", _surfaces(runs, agent)),
        _section("Runs" if len(runs) > 1 else "Run", _runs_table(runs)),
        _section("Settings", _settings(runs)),
        _section(f"The last {LAST} episodes" + (" of each run" if len(runs) > 1 else ""), _episodes(runs)),
    ]
    return PAGE.format(
        title=escape(title), style=STYLE, header=_header(runs), sections="\n".join(sections),
        version=escape(__version__),
    )  # fmt: skip


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


# -- the header -----------------------------------------------------------------------------------


def _header(runs: Sequence[Run]) -> str:
    """Environment, steps and seeds, and the result in a big figure."""
    environment = runs[0].config["environment"]
    steps = sorted({run.config["steps"] for run in runs})
    planned = " to ".join(_number(n) for n in (steps if len(steps) == 1 else (steps[0], steps[-1])))
    facts = [
        ("Environment steps" + (" a seed" if len(runs) > 1 else ""), planned),
        ("Seeds" if len(runs) > 1 else "Seed", _seeds(runs)),
        ("Episodes", _number(sum(len(run.progress["step"]) for run in runs))),
        ("Training time" + (" in total" if len(runs) > 1 else ""), duration(sum(map(_seconds, runs)))),
    ]
    listed = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
    arguments = _inline(environment["arguments"])
    below = f'<p class="arguments">{escape(arguments)}</p>' if arguments else ""
    return (
        f'<div class="what"><p class="kicker">gpsarsa report</p><h1>{escape(environment["id"])}</h1>{below}'
        f"<dl>{listed}</dl></div>\n{_result(runs)}"
    )


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
    mean, _, error = _plus_minus(float(means.mean()), error).partition(" ± ")
    figure = escape(mean) + (f"<small> ± {escape(error)}</small>" if error else "")
    kind, verdict = _verdict(found, runs)
    return (
        f'<div class="result {kind}"><p class="label">Mean return after training</p>'
        f'<p class="figure">{figure}</p><p>{escape(of)}; ± is the standard error</p>'
        f'<p class="verdict">{escape(verdict)}</p></div>'
    )


def _verdict(found: Sequence[dict[str, Any]], runs: Sequence[Run]) -> tuple[str, str]:
    """How the evaluations compare with the threshold: a style class and words."""
    judged = [e for e in found if e["threshold"] is not None]
    missing = f"; {len(runs) - len(found)} not evaluated" if len(found) < len(runs) else ""
    if not judged:
        return "open", f"No threshold of success is set{missing}"
    passed = sum(e["mean"] >= e["threshold"] for e in judged)
    threshold = _number(judged[0]["threshold"])
    if len(runs) == 1:
        return ("good", f"✓ Threshold {threshold} reached") if passed else (
            "bad", f"✗ Threshold {threshold} not reached")  # fmt: skip
    kind = "good" if passed == len(runs) else "bad" if passed == 0 else "open"
    return kind, f"{passed} of {len(judged)} seeds reach the threshold {threshold}{missing}"


def _unevaluated(runs: Sequence[Run]) -> str:
    last = [run.progress["return"][-LAST:] for run in runs if len(run.progress["return"])]
    figure = _number(float(np.mean([returns.mean() for returns in last]))) if last else "–"
    longest = max(map(len, last), default=0)
    what = f"Mean return of the last {longest} training episodes" if last else "No episode has finished yet"
    done, planned = sum(map(_steps_done, runs)), sum(run.config["steps"] for run in runs)
    return (
        f'<div class="result open"><p class="label">{what}</p><p class="figure">{figure}</p>'
        f'<p class="verdict">Not evaluated; {_number(done)} of {_number(planned)} steps done</p></div>'
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
        _card(
            plots.learning_curve(runs),
            f"{curve} The diamond is the evaluation after training, without exploration; the dashed line "
            "is the return that counts as success.",
            "Learning curve: return per episode against environment steps",
            pixels=many,
        ),
        _card(
            plots.calibration(runs),
            "Before each episode the model predicts its discounted return. On the diagonal it was right; "
            "bars are 90 % intervals. The intervals are for the expected return of the policy, and one "
            "episode scatters around its expectation, so fewer than 90 % of realised returns inside is "
            "no error by itself. Truncated episodes count only where the missing rest weighs below 5 %.",
            "Calibration: returns predicted at the first step against realised discounted returns",
        ),
        _card(
            plots.growth(runs),
            "The model grows where transitions tell it something new, up to a quarter more than its budget, "
            "and falls back when pseudo-inputs are placed anew.",
            "Growth: number of pseudo-inputs against environment steps",
        ),
        _card(
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
        return _absent("These pictures need the agent, which was not given to this report.")
    if agent.model is None or len(agent.visited) == 0:
        return _absent("The agent has no model yet: it was stopped before it had seen enough transitions.")
    which = " The agent is that of one of the runs." if len(runs) > 1 else ""
    names = agent.observations.names
    if len(names) == 1:
        caption = (
            f"What the agent expects of its greedy action, for each {names[0]} it has met. Intervals hold "
            f"90 % of the posterior; where they are wide it has seen little.{which}"
        )
        return _cards([_card(plots.value_surface(agent), caption, "Value of the greedy action")])
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
    return _cards(
        [
            _card(plots.value_surface(agent, "value"), value, "Map of the value", pixels=True),
            _card(
                plots.value_surface(agent, "uncertainty"), uncertainty, "Map of the uncertainty", pixels=True
            ),
        ]
    )


def _absent(why: str) -> str:
    return f'<p class="absent">{escape(why)}</p>'


def _cards(cards: Iterable[str]) -> str:
    return '<div class="cards">\n' + "\n".join(cards) + "\n</div>"


def _card(figure: Figure, caption: str, alt: str, *, pixels: bool = False) -> str:
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    words = escape(caption.replace(" %", "\N{NO-BREAK SPACE}%"))
    return (
        f'<figure><img src="{_data_uri(figure, pixels)}" alt="{escape(alt)}" '
        f'width="{width}" height="{height}"><figcaption>{words}</figcaption></figure>'
    )


def _data_uri(figure: Figure, pixels: bool) -> str:
    """The picture itself, as an address that an image can have."""
    import matplotlib

    file = io.BytesIO()
    if pixels:
        figure.savefig(file, format="png", dpi=200)
    else:
        with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "gpsarsa"}):
            figure.savefig(file, format="svg", metadata={"Date": None})
    kind = "png" if pixels else "svg+xml"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


# -- tables ---------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table whose cells are escaped here; it scrolls sideways where the page is narrow."""
    side = ["" if name in WORDS else ' class="number"' for name in head]
    top = "".join(f'<th scope="col"{s}>{escape(name)}</th>' for s, name in zip(side, head, strict=True))
    cells = ("".join(f"<td{s}>{escape(c)}</td>" for s, c in zip(side, row, strict=True)) for row in rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _runs_table(runs: Sequence[Run]) -> str:
    head = ("Folder", "Seed", "Steps", "Episodes", "Evaluation", "State", "Time")
    return _table(head, [_run_row(run) for run in runs], "Runs")


def _run_row(run: Run) -> list[str]:
    steps, evaluation = run.progress["step"], _evaluation(run)
    done = _steps_done(run)
    finished = run.summary is not None and run.summary["finished"]
    score = "–"
    if evaluation is not None:
        score = _plus_minus(evaluation["mean"], evaluation["standard_error"])
    return [
        run.folder.resolve().name, str(run.config["seed"]),
        f"{_number(done)} of {_number(run.config['steps'])}", _number(len(steps)), score,
        "finished" if finished else "unfinished", duration(_seconds(run)),
    ]  # fmt: skip


def _settings(runs: Sequence[Run]) -> str:
    """The agent's settings and the versions; where runs differ, each value."""
    agent = [("gamma", _common(runs, lambda c: c["gamma"]))]
    agent += [(name, _common(runs, lambda c, n=name: c["agent"].get(n))) for name in _keys(runs, "agent")]
    versions = [(n, _common(runs, lambda c, n=n: c["versions"].get(n))) for n in _keys(runs, "versions")]
    left = _table(("Setting", "Value"), agent, "Settings of the agent")
    right = _table(("Software", "Version"), versions, "Versions")
    return f'<div class="pair"><div>{left}</div><div>{right}</div></div>'


def _keys(runs: Sequence[Run], part: str) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.config[part]))


def _common(runs: Sequence[Run], get: Any) -> str:
    return " | ".join(dict.fromkeys(_plain(get(run.config)) for run in runs))


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
        return _absent("No episode has finished yet.")
    head = ("Episode", "Step", "Return", "Length", "End", "Policy", "Predicted", "Realised (discounted)", "M")
    last = range(len(run.progress["step"]))[-LAST:]
    return _table(head, [_episode_row(run.progress, i) for i in reversed(last)], "Last episodes")


def _episode_row(progress: dict[str, Any], i: int) -> list[str]:
    predicted, std = progress["predicted"][i], progress["predicted_std"][i]
    expected = _plus_minus(predicted, std) if np.isfinite(predicted) else "–"
    return [
        *(_number(progress[name][i]) for name in ("episode", "step", "return", "length")),
        "terminated" if progress["terminated"][i] else "truncated",
        str(progress["role"][i]), expected,
        *(_number(progress[name][i]) for name in ("discounted", "pseudo_inputs")),
    ]  # fmt: skip


# -- an evaluation --------------------------------------------------------------------------------


def write_evaluation_report(result: Any, policy: Any, initial: Array, level: float, path: Path) -> Path:
    """Write the report of an evaluation from logs and return where it is.

    Parameters
    ----------
    result : object with `folder`, `config`, `summary` and `model`
        As `gpsarsa.evaluating.read` gives it.
    policy : object with `model`, `observations`, `visited` and `values`
        What `plots.value_surface` asks.
    initial : (n, columns) array
        Some initial inputs, for the picture of their values.
    level : float
        Of the intervals.
    path : path
        The page.
    """
    return _written(path, lambda: _evaluation_page(result, policy, initial, level))


def _evaluation_page(result: Any, policy: Any, initial: Array, level: float) -> str:
    name = result.folder.resolve().name
    sections = [
        _section("Where it begins", _initial_values(result.model, initial, level)),
        _section("Value and uncertainty", _policy_surfaces(policy)),
        _section("Settings", _evaluation_settings(result)),
    ]
    return PAGE.format(
        title=escape(f"{name} – gpsarsa evaluation"), style=STYLE, header=_evaluation_header(result, name),
        sections="\n".join(sections), version=escape(__version__),
    )  # fmt: skip


def _evaluation_header(result: Any, name: str) -> str:
    """The table's size, and the policy's value in a big figure."""
    found = result.summary
    episodes = _number(found["clusters"]) if found["episodes_known"] else "unknown"
    facts = [
        ("Transitions", _number(found["transitions"])), ("Episodes", episodes),
        ("Rows left out", _number(found["left_out"])),
        ("Discount", _number(result.config["settings"]["gamma"])),
        ("Time", duration(found["seconds"])),
    ]  # fmt: skip
    listed = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
    percent = f"{100 * found['level']:g} %"
    mean, _, error = _plus_minus(found["mean"], found["standard_error"]).partition(" ± ")
    figure = escape(mean) + (f"<small> ± {escape(error)}</small>" if error else "")
    own = f"<p>The model’s own: {escape(_ends(found['posterior_interval']))}</p>"
    if found["bootstrap"]:
        ends = escape(_ends(found["bootstrap_interval"]))
        own += f"<p>Bootstrap over episodes, {_number(found['bootstrap'])} replicates: {ends}</p>"
    of, by = (
        ("initial states", "episode") if found["episodes_known"] else ("states: episodes are unknown", "row")
    )
    return (
        f'<div class="what"><p class="kicker">gpsarsa evaluation</p><h1>{escape(name)}</h1>'
        f'<dl>{listed}</dl></div>\n<div class="result open"><p class="label">Value of the policy</p>'
        f'<p class="figure">{figure}</p><p>Mean of the {escape(of)}; ± is the standard error, clustered by '
        f'{by}</p><p class="verdict">{percent} interval: {escape(_ends(found["interval"]))}</p>'
        f"{own}</div>"
    )


def _initial_values(model: Any, initial: Array, level: float) -> str:
    if len(initial) == 0:
        return _absent("No initial state was in the sample of the table.")
    low, high = model.interval_at(initial, level)
    if not np.isfinite(high).all():
        return _absent("One episode alone does not say how sure its values are.")
    caption = (
        f"{len(initial)} initial states of the log, with the action the policy takes there, from the worst "
        f"to the best. Bars are {100 * level:g} % intervals for their value, the line and its band the mean "
        "value of all initial states."
    )
    figure = plots.initial_values(model.predict(initial), low, high, model.value, model.interval(level))
    return _cards([_card(figure, caption, "Value of initial states")])


def _policy_surfaces(policy: Any) -> str:
    names = policy.observations.names
    where = "over the two observation columns that matter most" if len(names) > 1 else f"for each {names[0]}"
    rest = " Other columns stand at their median." if len(names) > 2 else ""
    value = (
        f"What the model expects of the policy, {where}, with the action that was logged nearest by, or the "
        f"target policy’s.{rest}"
    )
    whose = "what the policy does"
    cards = [_card(plots.value_surface(policy, of=whose), value, "Map of the value", pixels=True)]
    if len(names) > 1:
        caption = (
            "The posterior’s standard deviation. Dark is well known; bright regions were seldom visited."
        )
        uncertainty = plots.value_surface(policy, "uncertainty", of=whose)
        cards.append(_card(uncertainty, caption, "Map of the uncertainty", pixels=True))
    return _cards(cards)


def _evaluation_settings(result: Any) -> str:
    found = result.summary
    learnt = ("method", "noise_variance", "pseudo_inputs", "kernel")
    rows = [(name, _plain(value)) for name, value in result.config["settings"].items()]
    rows += [(f"{name} (used)", _plain(found[name])) for name in learnt]
    rows.append(
        ("table", ", ".join(result.config["table"][:5]) + (" …" if len(result.config["table"]) > 5 else ""))
    )
    versions = [(name, _plain(value)) for name, value in result.config["versions"].items()]
    left = _table(("Setting", "Value"), rows, "Settings of the evaluation")
    right = _table(("Software", "Version"), versions, "Versions")
    return f'<div class="pair"><div>{left}</div><div>{right}</div></div>'


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


def _number(value: float) -> str:
    """Four digits or all of a whole number, thousands apart, with a proper minus."""
    whole = float(value).is_integer() and abs(value) < 1e15
    text = f"{value:,.0f}" if whole else f"{value:,.1f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return text.translate(TYPESET)


def _plus_minus(mean: float, error: float | None) -> str:
    told = error is not None and 0.0 < error < np.inf
    return plus_minus(mean, error if told else None, _number, ",").translate(TYPESET)


def _ends(interval: Sequence[float | None]) -> str:
    return ends(interval, _number, ",").translate(TYPESET)


def _plain(value: Any) -> str:
    """A setting in words."""
    if isinstance(value, str):
        return value
    if value is None:
        return "–"
    return json.dumps(value, ensure_ascii=False)


def _inline(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {_plain(value)}" for name, value in arguments.items())


# -- the page -------------------------------------------------------------------------------------

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
{header}
</header>
<main>
{sections}
</main>
<footer>Made by gpsarsa {version}, Gaussian-process temporal-difference learning.</footer>
</body>
</html>
"""  # noqa: E501

STYLE = """
:root {
  --ground: #f4f6f8; --card: #ffffff; --ink: #1f2933; --muted: #5b6773; --line: #dfe4e9;
  --good: #00664b; --bad: #a34700; --accent: #0072b2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14191f; --card: #1d242c; --ink: #e6eaee; --muted: #a3afbb; --line: #323c47;
    --good: #4fd1a5; --bad: #ff9e57; --accent: #6cbcf0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.2rem clamp(1rem, 4vw, 2.5rem) 3rem; max-width: 76rem;
  background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
header { display: flex; flex-wrap: wrap; gap: 1.5rem 3rem; align-items: stretch; }
.what { flex: 3 1 24rem; min-width: 0; }
.kicker { margin: 0; color: var(--accent); font-weight: 600; letter-spacing: .04em; }
h1 { margin: .1rem 0 .3rem; font-size: clamp(1.7rem, 5vw, 2.6rem); line-height: 1.15;
  overflow-wrap: anywhere; }
.arguments { margin: 0; color: var(--muted); overflow-wrap: anywhere; }
dl { display: flex; flex-wrap: wrap; gap: .8rem 2.2rem; margin: 1.2rem 0 0; }
dt { color: var(--muted); font-size: .82rem; }
dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.result {
  flex: 1 1 19rem; padding: 1.1rem 1.4rem; background: var(--card); border: 1px solid var(--line);
  border-left: .35rem solid var(--muted); border-radius: .6rem;
}
.result p { margin: 0; color: var(--muted); font-size: .88rem; }
.result .figure { color: var(--ink); font-size: 2.7rem; font-weight: 700; line-height: 1.2; }
.result .figure small { font-size: 1.2rem; font-weight: 500; color: var(--muted); }
.result .verdict { margin-top: .5rem; font-size: 1rem; font-weight: 600; color: var(--ink); }
.good { border-left-color: var(--good); } .good .verdict { color: var(--good); }
.bad { border-left-color: var(--bad); } .bad .verdict { color: var(--bad); }
h2 { margin: 2.6rem 0 .9rem; font-size: 1.3rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1.2rem; }
figure {
  margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; overflow: hidden;
}
figure img { display: block; width: 100%; height: auto; padding: .6rem; background: #fff; }
figcaption { padding: .7rem 1.1rem 1rem; color: var(--muted); font-size: .88rem;
  border-top: 1px solid var(--line); }
.absent { padding: 1rem 1.2rem; border: 1px dashed var(--line); border-radius: .6rem; color: var(--muted); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1.2rem;
  align-items: start; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .42rem 1rem; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
.pair td:last-child { white-space: normal; overflow-wrap: anywhere; }
.number { text-align: right; }
th { color: var(--muted); font-weight: 600; }
tbody tr:last-child td { border-bottom: 0; }
details { margin-bottom: .6rem; }
summary { padding: .3rem 0; cursor: pointer; font-weight: 600; }
footer { margin-top: 3rem; color: var(--muted); font-size: .85rem; }
@media print {
  :root { --ground: #fff; --card: #fff; --ink: #000; --muted: #444; --line: #ccc;
    --good: #00664b; --bad: #a34700; }
  body { padding: 0; max-width: none; font-size: 11px; }
  .cards { grid-template-columns: 1fr 1fr; }
  figure, .result, tr { break-inside: avoid; }
  h2 { break-after: avoid; margin-top: 1.4rem; }
  .scroll { overflow: visible; }
}
"""
