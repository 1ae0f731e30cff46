"""The columns of a record batch as arrays, with the checks that need their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpsarsa._validation import Array
from gpsarsa.offline._files import arrow
from gpsarsa.offline._records import DatasetError, Flags, Integers
from gpsarsa.offline._schema import inner

EXACT = 2.0**53  # whole numbers below are exact in float64


class Columns:
    """A record batch; `numbers` are its rows' numbers in the file. Nothing is done row by row."""

    def __init__(self, file: str, batch: Any, numbers: Integers) -> None:
        self.file, self._batch, self.numbers = file, batch, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def between(self, begin: int, stop: int) -> Columns:
        """The rows begin … stop − 1 of these."""
        return Columns(self.file, self._batch.slice(begin, stop - begin), self.numbers[begin:stop])

    def take(self, rows: Integers) -> Columns:
        """Some of these rows."""
        return Columns(self.file, self._batch.take(arrow().array(rows)), self.numbers[rows])

    def rows(
        self, name: str, length: int | None, *, nulls: bool = False, whole: bool = False
    ) -> tuple[Array, Flags | None]:
        """A column as (rows, numbers), NaN where it is null, and the rows that are, if there are any."""
        if nulls:
            column = self._batch.column(name)
        else:
            column = self._without_nulls(name, "a value", "Leave out the episode")
        missing = _nulls(column) if column.null_count else None
        if missing is not None and missing.all():
            return np.full((len(column), length or 1), np.nan), missing
        values = self._lists(name, column, length, missing) if length else _float64(column)[:, None]
        if whole:
            missing = self._check_whole(name, column, values, missing)
        return values, missing

    def whole(self, name: str) -> Integers:
        """A column of whole numbers without nulls."""
        column = self._without_nulls(name, "a whole number", "Number all episodes and their steps")
        return column.to_numpy(zero_copy_only=False).astype(np.int64)

    def flags(self, name: str) -> Flags:
        """A column of booleans without nulls."""
        column = self._without_nulls(name, "true or false", "Write false where it is not so")
        return column.to_numpy(zero_copy_only=False)

    def _without_nulls(self, name: str, expected: str, cure: str) -> Any:
        column = self._batch.column(name)
        if column.null_count:
            raise self._error(name, int(np.argmax(_nulls(column))), "null", expected, cure)
        return column

    def _lists(self, name: str, column: Any, length: int, missing: Flags | None) -> Array:
        self._check_lengths(name, column, length, missing)
        flat = column.flatten()
        rows = np.arange(len(column)) if missing is None else np.flatnonzero(~missing)
        if flat.null_count:
            i = int(rows[int(np.argmax(_nulls(flat))) // length])
            raise self._error(name, i, "a list with a null", "numbers", "Leave out the episode")
        values = _float64(flat).reshape(-1, length)
        if missing is None:
            return values
        filled = np.full((len(column), length), np.nan)
        filled[rows] = values
        return filled

    def _check_lengths(self, name: str, column: Any, length: int, missing: Flags | None) -> None:
        if arrow().types.is_fixed_size_list(column.type):
            return
        lengths = np.diff(column.offsets.to_numpy())
        bad = lengths != length
        if missing is not None:
            bad &= ~missing
        if bad.any():
            i = int(np.argmax(bad))
            raise self._error(
                name, i, f"a list of {lengths[i]}", f"a list of {length}", "All rows need as many numbers"
            )

    def _check_whole(self, name: str, column: Any, values: Array, missing: Flags | None) -> Flags | None:
        """Refuse what is no category. NaN among whole numbers can only mean that there is none."""
        types, kind = arrow().types, inner(column.type)
        if types.is_integer(kind) and kind.bit_width == 64:
            bad = np.abs(values) >= EXACT
            expected = "a whole number below 2**53"
        elif types.is_floating(kind) or types.is_decimal(kind):
            absent = np.asarray(np.isnan(values).all(axis=1))  # rows that are null are NaN here
            missing = absent if absent.any() else None
            bad = (values != np.rint(values)) & ~absent[:, None]
            expected = "a whole number, as in the column action"
        else:
            return missing
        if bad.any():
            i, j = divmod(int(np.argmax(bad)), values.shape[1])
            raise self._error(name, i, str(values[i, j]), expected, "Number the discrete actions from 0")
        return missing

    def _error(self, name: str, i: int, found: str, expected: str, cure: str) -> DatasetError:
        return DatasetError(
            f"{self.file}, row {self.numbers[i]}: {name} is {found}; expected {expected}. {cure}"
        )


def _nulls(column: Any) -> Flags:
    return column.is_null().to_numpy(zero_copy_only=False)


def _float64(column: Any) -> Array:
    """Numbers of any type as doubles, NaN where null; a view if they are doubles."""
    pa = arrow()
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.float64())
    return column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
