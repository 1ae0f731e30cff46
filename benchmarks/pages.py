"""Measured text in its place on a page, between two comments."""

from __future__ import annotations

from pathlib import Path

from gpsarsa.runs import write_text

__all__ = ["put"]


def put(text: str, page: Path, begin: str, end: str) -> None:
    """Replace what stands between `begin` and `end`."""
    head, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"{page} has no place for what was measured: {begin} … {end}")
    write_text(page, f"{head}{begin}\n\n{text}\n\n{end}{tail}")
