"""One self-contained HTML page about the evaluation of a policy from logs."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from gpsarsa import plots
from gpsarsa._page import (
    absent,
    card,
    cards,
    facts,
    figure,
    interval,
    number,
    page,
    pair,
    plain,
    section,
    table,
    written,
)
from gpsarsa._validation import Array
from gpsarsa._words import duration

__all__ = ["write_evaluation_report"]


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
    return written(path, lambda: _page(result, policy, initial, level))


def _page(result: Any, policy: Any, initial: Array, level: float) -> str:
    name = result.folder.resolve().name
    sections = [
        section("Where it begins", _initial_values(result.model, initial, level)),
        section("Value and uncertainty", _policy_surfaces(policy)),
        section("Settings", _settings(result)),
    ]
    return page(f"{name} – gpsarsa evaluation", _header(result, name), sections)


def _header(result: Any, name: str) -> str:
    """The table's size, and the policy's value in a big figure."""
    found = result.summary
    episodes = number(found["clusters"]) if found["episodes_known"] else "unknown"
    numbers = [
        ("Transitions", number(found["transitions"])), ("Episodes", episodes),
        ("Rows left out", number(found["left_out"])),
        ("Discount", number(result.config["settings"]["gamma"])),
        ("Time", duration(found["seconds"])),
    ]  # fmt: skip
    percent = f"{100 * found['level']:g} %"
    own = f"<p>The model’s own: {escape(interval(found['posterior_interval']))}</p>"
    if found["bootstrap"]:
        ends = escape(interval(found["bootstrap_interval"]))
        own += f"<p>Bootstrap over episodes, {number(found['bootstrap'])} replicates: {ends}</p>"
    of, by = (
        ("initial states", "episode") if found["episodes_known"] else ("states: episodes are unknown", "row")
    )
    return (
        f"{facts('gpsarsa evaluation', name, '', numbers)}\n"
        '<div class="result open"><p class="label">Value of the policy</p>'
        f'<p class="figure">{figure(found["mean"], found["standard_error"])}</p>'
        f"<p>Mean of the {escape(of)}; ± is the standard error, clustered by {by}</p>"
        f'<p class="verdict">{percent} interval: {escape(interval(found["interval"]))}</p>'
        f"{own}</div>"
    )


def _initial_values(model: Any, initial: Array, level: float) -> str:
    if len(initial) == 0:
        return absent("No initial state was in the sample of the table.")
    low, high = model.interval_at(initial, level)
    if not np.isfinite(high).all():
        return absent("One episode alone does not say how sure its values are.")
    caption = (
        f"{len(initial)} initial states of the log, with the action the policy takes there, from the worst "
        f"to the best. Bars are {100 * level:g} % intervals for their value, the line and its band the mean "
        "value of all initial states."
    )
    drawing = plots.initial_values(model.predict(initial), low, high, model.value, model.interval(level))
    return cards([card(drawing, caption, "Value of initial states")])


def _policy_surfaces(policy: Any) -> str:
    names = policy.observations.names
    where = "over the two observation columns that matter most" if len(names) > 1 else f"for each {names[0]}"
    rest = " Other columns stand at their median." if len(names) > 2 else ""
    value = (
        f"What the model expects of the policy, {where}, with the action that was logged nearest by, or the "
        f"target policy’s.{rest}"
    )
    whose = "what the policy does"
    drawn = [card(plots.value_surface(policy, of=whose), value, "Map of the value", pixels=True)]
    if len(names) > 1:
        caption = (
            "The posterior’s standard deviation. Dark is well known; bright regions were seldom visited."
        )
        uncertainty = plots.value_surface(policy, "uncertainty", of=whose)
        drawn.append(card(uncertainty, caption, "Map of the uncertainty", pixels=True))
    return cards(drawn)


def _settings(result: Any) -> str:
    found = result.summary
    learnt = ("method", "noise_variance", "pseudo_inputs", "kernel")
    rows = [(name, plain(value)) for name, value in result.config["settings"].items()]
    rows += [(f"{name} (used)", plain(found[name])) for name in learnt]
    rows.append(
        ("table", ", ".join(result.config["table"][:5]) + (" …" if len(result.config["table"]) > 5 else ""))
    )
    versions = [(name, plain(value)) for name, value in result.config["versions"].items()]
    left = table(("Setting", "Value"), rows, "Settings of the evaluation")
    right = table(("Software", "Version"), versions, "Versions")
    return pair(left, right)
