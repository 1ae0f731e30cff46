"""The tables of the study, as Markdown: medians over seeds, quartiles in brackets."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies import growth, placement, timescales
from studies.plots import quartiles, select
from studies.problems import PROBLEMS

Rows = list[dict[str, Any]]


def table(head: list[str], body: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in body])


def spread(rows: Rows, name: str, scale: float = 1.0) -> str:
    if not rows:
        return "–"
    low, middle, high = (
        f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}" for value in quartiles(rows, name, scale)
    )
    return f"{middle} ({low}–{high})"


def placement_tables(rows: Rows) -> str:
    """One table of errors at 5 %, one a problem of everything."""
    head = ["strategy", *(f"{name}" for name in PROBLEMS)]
    five = [
        [
            label,
            *(
                spread(select(rows, strategy=key, share=0.05, problem=name), "error", 100)
                for name in PROBLEMS
            ),
        ]
        for key, label in placement.LABELS.items()
    ]
    parts = [f"\nError of the means in % with M = 5 % of N = {placement.N}\n", table(head, five)]
    for name in PROBLEMS:
        own = select(rows, problem=name)
        parts.append(f"\n{name}: exact model against the truth {spread(own, 'exact error', 100)} %\n")
        head = [
            "strategy",
            *(f"{100 * share:g} %" for share in placement.SHARES),
            "KL at 5 %",
            "gap",
            "CPU s",
        ]
        body = []
        for key, label in placement.LABELS.items():
            cells = [select(own, strategy=key, share=share) for share in placement.SHARES]
            at5 = select(own, strategy=key, share=0.05)
            more = [spread(at5, "KL"), spread(at5, "gap"), f"{quartiles(at5, 'seconds')[1]:.2f}"]
            body.append([label, *(spread(cell, "error", 100) for cell in cells), *more])
        parts.append(table(head, body))
    return "\n".join(parts)


def growth_table(rows: Rows) -> str:
    checks = np.array(growth.CHECKS, dtype=float)
    refit = np.array([quartiles(select(rows, N=check), "refit")[1] for check in growth.CHECKS])
    totals = growth.refitting(checks, refit, checks)
    body = []
    for name in growth.GROWTHS:
        for check in growth.CHECKS:
            own = select(rows, growth=name, N=check)
            cells = [
                name,
                f"{check:,}",
                f"{quartiles(own, 'M')[1]:.0f}",
                spread(own, "us"),
                spread(own, "total"),
            ]
            cells += [spread(own, "bytes", 1e-6), spread(own, "error", 100), spread(own, "std error", 100)]
            body.append([*cells, spread(own, "KL"), spread(own, "true error", 100)])
    head = ["growth", "N", "M", "µs a transition", "total s", "MB", "means %", "std %", "KL", "true error %"]
    parts = ["\nGrowing with the stream\n", table(head, body), "\nRefitting\n"]
    single = [
        [f"{check:,}", f"{1e3 * seconds:.3g}", f"{total:,.0f}"]
        for check, seconds, total in zip(growth.CHECKS, refit, totals, strict=True)
    ]
    return "\n".join([*parts, table(["N", "one refit, ms", "at every step so far, s"], single)])


def timescale_tables(rows: Rows) -> str:
    parts = []
    for title, variants in (
        (f"Schedules, {timescales.SCHEDULES[0].budget} pseudo-inputs", timescales.SCHEDULES),
        ("Drop rules at a tight budget", timescales.DROPS),
        ("Novelty thresholds without a budget", timescales.THRESHOLDS),
    ):
        for name in timescales.NAMES:
            parts.append(f"\n{title}: {name}, N = {timescales.N}\n")
            body = []
            for variant in variants:
                own = select(rows, problem=name, variant=variant.name)
                early, late = select(own, N=1_000), select(own, N=timescales.N)
                cells = [variant.name, spread(early, "error", 100), spread(late, "error", 100)]
                cells += [spread(late, "coverage", 100), f"{quartiles(late, 'M')[1]:.0f}"]
                cells += [f"{quartiles(late, 'swaps')[1]:.0f}", f"{quartiles(late, 'seconds')[1]:.1f}"]
                body.append(cells)
            head = ["variant", "error % at 1000", "error % at end", "coverage %", "M", "swaps", "CPU s"]
            parts.append(table(head, body))
    return "\n".join(parts)
