"""Whether the rows of a table follow one another as its columns `episode` and `step` say."""

from __future__ import annotations

import numpy as np

from gpsarsa.offline._records import DatasetError, Flags, Rows

NONE = np.iinfo(np.int64).min  # the episode before the first row


class Chain:
    """The rows of one file, checked in order."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._last = (NONE, 0, True)

    def check(self, rows: Rows, jumps: Flags | None = None) -> None:
        """Check rows that come after those of the call before; `jumps` are where a sample leaves some out."""
        columns = rows.episodes, rows.steps, rows.terminated | rows.truncated
        before = [np.append(last, column[:-1]) for last, column in zip(self._last, columns, strict=True)]
        episode, step, ended = before
        good = (rows.steps == step + 1) & (rows.episodes == episode) & ~ended
        good |= rows.steps == 0
        if jumps is not None:
            good |= jumps
        if not good.all():
            i = int(np.argmin(good))
            where = f"{self._file}, row {rows.numbers[i]}: episode {rows.episodes[i]}"
            problem = _problem(int(rows.steps[i]), int(step[i]), same=bool(rows.episodes[i] == episode[i]))
            raise DatasetError(f"{where} {problem}")
        self._last = int(rows.episodes[-1]), int(rows.steps[-1]), bool(columns[-1][-1])


def _problem(step: int, before: int, *, same: bool) -> str:
    """What is wrong with a step after that of the row before, of the same episode or not."""
    if not same:
        return (
            f"begins with step = {step}; expected 0. The rows of an episode stand one after another in one "
            "file, and their steps count from 0: sort the table by episode and step"
        )
    if step != before + 1:
        return (
            f"has step = {step} after step {before}; expected {before + 1}. Log every step, or drop the "
            "columns episode and step"
        )
    return (
        f"goes on with step = {step} after a row that is terminated or truncated; expected another episode. "
        "Give each episode its own number, and count its steps from 0"
    )
