"""Tables, and measured text in its place on a page, between two comments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpsarsa.runs import write_text

__all__ = ["put", "table"]


def table(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, whose first line is its head."""
    head, *body = ("| " + " | ".join(cells) + " |" for cells in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *body])


def put(text: str, page: Path, begin: str, end: str) -> None:
    """Replace what stands between `begin` and `end`."""
    head, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"{page} has no place for what was measured: {begin} … {end}")
    write_text(page, f"{head}{begin}\n\n{text}\n\n{end}{tail}")
