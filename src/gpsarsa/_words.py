"""Numbers with the digits they deserve, for the command line and for reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

__all__ = ["duration", "ends", "plus_minus"]

MOST_DIGITS = 7  # after the point: beyond them an error is only rounding

Number = Callable[[float], str]


def _plain(value: float) -> str:
    return f"{value:.6g}"


def plus_minus(mean: float, error: float | None, number: Number = _plain, group: str = "") -> str:
    """Mean ± error, both to the error's second digit.

    `number` writes one that stands alone; with a comma as `group`, thousands are set apart.
    """
    if error is None:
        return number(mean)
    if 0.0 < error < math.inf:
        digits = max(0, 1 - math.floor(math.log10(error)))
        if digits < MOST_DIGITS:
            return f"{mean:{group}.{digits}f} ± {error:{group}.{digits}f}"
    return f"{number(mean)} ± {number(error)}"


def ends(interval: Sequence[float | None], number: Number = _plain, group: str = "") -> str:
    """Both ends of an interval, to the third digit of its width."""
    low, high = interval
    if low is None or high is None:
        return "unknown"
    if not high > low:
        return f"{number(low)} to {number(high)}"
    digits = max(0, 2 - math.floor(math.log10(high - low)))
    return f"{low:{group}.{digits}f} to {high:{group}.{digits}f}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
