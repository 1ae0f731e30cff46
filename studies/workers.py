"""Measuring in two processes, or one thing after the other, with a line of progress."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

Rows = list[dict[str, Any]]


def in_two_processes(measure: Callable[[Any], Rows], tasks: list[Any], what: str) -> Rows:
    rows: Rows = []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=_quiet) as pool:
        pending = [pool.submit(measure, task) for task in tasks]
        try:
            for done, future in enumerate(as_completed(pending), start=1):
                rows += future.result()
                _progress(f"{what}: {done} of {len(tasks)}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    _progress("")
    return rows


def one_by_one(parts: Iterable[Rows], count: int, what: str) -> Rows:
    rows: Rows = []
    for done, part in enumerate(parts, start=1):
        rows += part
        _progress(f"{what}: {done} of {count}")
    _progress("")
    return rows


def _quiet() -> None:
    warnings.simplefilter("ignore")  # hyperparameters at their bounds: the tables show what comes of it


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="\r" if not text else "", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)
