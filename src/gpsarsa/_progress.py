"""What is said on standard error: how far long work has come, and what whoever watches should know."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from gpsarsa._words import duration

__all__ = ["Progress", "say"]


def say(message: str) -> None:
    """Tell whoever watches."""
    print(f"gpsarsa: {message}", file=sys.stderr, flush=True)


class Progress:
    """A line that is rewritten in place on a terminal and repeated now and then elsewhere.

    with Progress("optimize", total=100, shown=True) as progress:
        progress(3, "log evidence -12.3")
    """

    def __init__(self, what: str, total: int | None, *, shown: bool) -> None:
        self._what, self._total, self._shown = what, total, bool(shown)
        self._began = time.monotonic()
        self._next = 0.0
        self._line = ""

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, message: str) -> None:
        now = time.monotonic()
        if not self._shown:
            return
        of = f"/{self._total}" if self._total else ""
        self._line = f"{self._what} {done}{of} [{now - self._began:.0f} s] {message}"
        if now >= self._next:
            terminal = sys.stderr.isatty()
            self._next = now + (0.1 if terminal else 10.0)
            sys.stderr.write(f"\r{self._line}\x1b[K" if terminal else f"{self._line}\n")
            sys.stderr.flush()

    def pace(self, done: int, unit: str, before: int = 0) -> str:
        """120,000 rows/s, 2 min left; `before` of those done took no time, for they were kept."""
        if done <= before:
            return f"{before} {unit} kept from before" if before else ""
        rate = (done - before) / max(time.monotonic() - self._began, 1e-9)
        text = f"{float(f'{rate:.3g}'):,.0f} {unit}/s"
        if not self._total:
            return text
        left = max(self._total - done, 0) / rate
        return f"{text}, {duration(left)} left"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and self._line:
            sys.stderr.write(f"\r{self._line}\x1b[K\n" if sys.stderr.isatty() else f"{self._line}\n")
            sys.stderr.flush()
