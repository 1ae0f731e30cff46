"""Run the study, print its tables, save its plots: `python -m studies [placement] [growth] [timescales]`."""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy comes; the two processes inherit it

import argparse
import time
from pathlib import Path

from studies import growth, placement, plots, tables, timescales
from studies.workers import in_two_processes, one_by_one


def run_placement(folder: Path) -> None:
    rows = in_two_processes(placement.measure, placement.tasks(), "placement")
    print(tables.placement_tables(rows))
    plots.draw_placement(rows, str(folder / "study_placement.png"))


def run_growth(folder: Path) -> None:
    parts = len(growth.SEEDS) * len(growth.GROWTHS)
    rows = one_by_one(growth.measure(), parts, "growth")
    print(tables.growth_table(rows))
    plots.draw_growth(rows, str(folder / "study_growth.png"))


def run_timescales(folder: Path) -> None:
    rows = in_two_processes(timescales.measure, timescales.tasks(), "timescales")
    print(tables.timescale_tables(rows))
    plots.draw_schedules(rows, str(folder / "study_timescales.png"))
    plots.draw_drops(rows, str(folder / "study_drops.png"))


PARTS = {"placement": run_placement, "growth": run_growth, "timescales": run_timescales}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"some of: {', '.join(PARTS)} (default: all)"
    )
    parser.add_argument("--plots", type=Path, default=Path("docs"), help="the folder where the plots go")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}; expected some of {', '.join(PARTS)}")
    for name in arguments.parts or PARTS:
        begun = time.perf_counter()
        PARTS[name](arguments.plots)
        print(f"{name}: {time.perf_counter() - begun:.0f} s\n", flush=True)
    print(f"Plots: {arguments.plots}/study_*.png")


if __name__ == "__main__":
    main()
