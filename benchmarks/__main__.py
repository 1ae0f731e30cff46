"""Run every benchmark, print the tables, save a picture."""

from __future__ import annotations

import argparse
import sys

from benchmarks import batch, budget, growth, steps, stream
from benchmarks.picture import draw

TABLES = {
    "steps": (steps, "One transition, kernel included, against bare dtrmv + dsymv + dsyr (one thread)"),
    "batch": (
        batch,
        "fit of 20 000 transitions against bare dtrmm + dsyrk (0 threads: as many as BLAS likes)",
    ),
    "stream": (stream, "Streaming mode over a million updates, M = 64"),
    "budget": (
        budget,
        "A stream of 100 000 transitions through a budget of 60 pseudo-inputs, slow steps included",
    ),
    "growth": (growth, "One pseudo-input more or less, M = 64, against the length of the history"),
}


def show(title: str, rows: list[dict[str, float]]) -> None:
    names = list(rows[0])
    print(f"\n{title}\n")
    print("  ".join(f"{name:>12}" for name in names))
    for row in rows:
        cells = (
            f"{row[name]:,.0f}" if row[name] >= 1000 or name == "M" else f"{row[name]:.3g}" for name in names
        )
        print("  ".join(f"{cell:>{max(12, len(name))}}" for cell, name in zip(cells, names, strict=True)))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help=f"some of: {', '.join(TABLES)} (default: all)"
    )
    parser.add_argument("--picture", default="bench.png", help="where the picture goes")
    arguments = parser.parse_args()
    unknown = set(arguments.tables) - set(TABLES)
    if unknown:
        parser.error(f"unknown table {sorted(unknown)[0]!r}; expected some of {', '.join(TABLES)}")
    results = {}
    for name in arguments.tables or TABLES:
        module, title = TABLES[name]
        results[name] = module.measure()
        show(title, results[name])
    if len(results) == len(TABLES):
        draw(results, arguments.picture)
        print(f"\nPicture: {arguments.picture}")


if __name__ == "__main__":
    main()
