"""What the reports share: one self-contained HTML page, its cards, tables and numbers.

A page holds its pictures and its style, loads nothing and runs nothing. Every text that comes from a file is
escaped where it enters the page.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpsarsa._version import __version__
from gpsarsa._words import ends, plus_minus
from gpsarsa.runs import RunError, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["absent", "card", "cards", "facts", "figure", "interval", "number", "page", "pair", "plain"]
__all__ += ["plus_minus_of", "section", "table", "written"]

WORDS = {"Folder", "State", "Setting", "Value", "Software", "Version", "End", "Policy"}  # not numbers
TYPESET = str.maketrans({",": "\N{NARROW NO-BREAK SPACE}", "-": "\N{MINUS SIGN}"})  # of numbers


def written(target: Path, made: Callable[[], str]) -> Path:
    """Where the page that is made now was written to."""
    try:
        text = made()
    except ImportError as error:
        raise RunError(f"{target} was not written: {error}") from None
    try:
        write_text(target, text.encode(errors="replace").decode())  # JSON may hold half a character
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error.strerror}") from None
    return target


def page(title: str, header: str, sections: Iterable[str]) -> str:
    """All of it; `header` and `sections` are HTML, the title is text."""
    return PAGE.format(
        title=escape(title), style=STYLE, header=header, sections="\n".join(sections),
        version=escape(__version__),
    )  # fmt: skip


def section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def facts(kicker: str, title: str, below: str, listed: Iterable[tuple[str, str]]) -> str:
    """The left side of a header: what it is about, and some numbers in words."""
    items = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in listed)
    return (
        f'<div class="what"><p class="kicker">{escape(kicker)}</p><h1>{escape(title)}</h1>{below}'
        f"<dl>{items}</dl></div>"
    )


def figure(mean: float, error: float | None) -> str:
    """A big number, and in small its error."""
    told, _, more = plus_minus_of(mean, error).partition(" ± ")
    return escape(told) + (f"<small> ± {escape(more)}</small>" if more else "")


# -- pictures -------------------------------------------------------------------------------------


def absent(why: str) -> str:
    return f'<p class="absent">{escape(why)}</p>'


def cards(each: Iterable[str]) -> str:
    return '<div class="cards">\n' + "\n".join(each) + "\n</div>"


def card(drawing: Figure, caption: str, alt: str, *, pixels: bool = False) -> str:
    width, height = (round(96 * inches) for inches in drawing.get_size_inches())
    words = escape(caption.replace(" %", "\N{NO-BREAK SPACE}%"))
    return (
        f'<figure><img src="{_data_uri(drawing, pixels)}" alt="{escape(alt)}" '
        f'width="{width}" height="{height}"><figcaption>{words}</figcaption></figure>'
    )


def _data_uri(drawing: Figure, pixels: bool) -> str:
    """The picture itself, as an address that an image can have."""
    import matplotlib

    file = io.BytesIO()
    if pixels:
        drawing.savefig(file, format="png", dpi=200)
    else:
        with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "gpsarsa"}):
            drawing.savefig(file, format="svg", metadata={"Date": None})
    kind = "png" if pixels else "svg+xml"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


# -- tables ---------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table whose cells are escaped here; it scrolls sideways where the page is narrow."""
    side = ["" if name in WORDS else ' class="number"' for name in head]
    top = "".join(f'<th scope="col"{s}>{escape(name)}</th>' for s, name in zip(side, head, strict=True))
    cells = ("".join(f"<td{s}>{escape(c)}</td>" for s, c in zip(side, row, strict=True)) for row in rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def pair(left: str, right: str) -> str:
    return f'<div class="pair"><div>{left}</div><div>{right}</div></div>'


# -- words ----------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Four digits or all of a whole number, thousands apart, with a proper minus."""
    whole = float(value).is_integer() and abs(value) < 1e15
    text = f"{value:,.0f}" if whole else f"{value:,.1f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return text.translate(TYPESET)


def plus_minus_of(mean: float, error: float | None) -> str:
    told = error is not None and 0.0 < error < np.inf
    return plus_minus(mean, error if told else None, number, ",").translate(TYPESET)


def interval(pair: Sequence[float | None]) -> str:
    return ends(pair, number, ",").translate(TYPESET)


def plain(value: Any) -> str:
    """A setting in words."""
    if isinstance(value, str):
        return value
    if value is None:
        return "–"
    return json.dumps(value, ensure_ascii=False)


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
