"""Which rows a sample takes: about so many, from stretches of a table that are drawn at given rates."""

from __future__ import annotations

import numpy as np

from gpsarsa._validation import Array
from gpsarsa.offline._records import Integers

LONGEST = 4  # no part of an episode is more than a quarter of a sample


def stretches(edges: Integers, rates: Array, count: int, rng: np.random.Generator) -> Integers:
    """About `count` rows of episodes between these edges, drawn at these rates; long episodes in parts."""
    if edges[-1] <= count:
        return np.arange(edges[-1])
    lengths = np.diff(edges)
    parts = -(-lengths // max(count // LONGEST, 1))
    which = np.repeat(np.arange(len(lengths)), parts)
    nth = _ranges(np.zeros_like(parts), parts)
    begins = edges[which] + nth * lengths[which] // parts[which]
    sizes = np.diff(begins, append=edges[-1])
    order = np.argsort(rng.exponential(size=len(begins)) / rates[which])
    enough = int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1
    chosen = np.sort(order[:enough])
    return _ranges(begins[chosen], sizes[chosen])


def _ranges(begins: Integers, lengths: Integers) -> Integers:
    """The ranges begin … begin + length − 1, one after another."""
    return np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def singles(edges: Integers, rates: Array, count: int, rng: np.random.Generator) -> Integers:
    """About `count` single rows between these edges, drawn at these rates."""
    if edges[-1] <= count:
        return np.arange(edges[-1])
    if (rates == rates[0]).all():
        return np.sort(rng.choice(edges[-1], count, replace=False, shuffle=False))
    sizes = np.diff(edges)
    shares = np.minimum(rng.multinomial(count, rates * sizes / np.sum(rates * sizes)), sizes)
    drawn = [
        begin + rng.choice(size, share, replace=False, shuffle=False)
        for begin, size, share in zip(edges[:-1], sizes, shares, strict=True)
    ]
    return np.sort(np.concatenate(drawn))


def merged(sizes: Integers, least: int) -> Integers:
    """Numbers for row groups, the same for neighbours that only together have `least` rows."""
    numbers, number, rows = np.zeros_like(sizes), 0, 0
    for i, size in enumerate(sizes):
        if rows >= least:
            number, rows = number + 1, 0
        numbers[i] = number
        rows += int(size)
    return numbers
