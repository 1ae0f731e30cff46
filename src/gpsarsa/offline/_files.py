"""Parquet files: where their row groups begin, and their rows as a stream of record batches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpsarsa.offline._records import DatasetError, needed

BUFFER = 1 << 20  # bytes of a column that are read at a time


@dataclass(frozen=True)
class File:
    """A Parquet file and the rows at which its row groups begin, the last entry being its end."""

    path: str
    size: int
    mtime_ns: int
    edges: tuple[int, ...]

    @property
    def groups(self) -> int:
        return len(self.edges) - 1


def arrow() -> Any:
    return needed("pyarrow", "offline")


def _parquet() -> Any:
    return needed("pyarrow.parquet", "offline")


def metadata(path: str | os.PathLike[str]) -> tuple[File, Any, Any]:
    """A file, its Parquet metadata and its Arrow schema."""
    whole = os.path.abspath(path)
    with _readable(path):
        stat = os.stat(whole)
        with _parquet().ParquetFile(whole) as parquet:
            about, schema = parquet.metadata, parquet.schema_arrow
    sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    edges = (0, *(int(edge) for edge in np.cumsum(sizes)))
    return File(whole, stat.st_size, stat.st_mtime_ns, edges), about, schema


def batches(file: File, groups: Sequence[int], columns: Sequence[str], count: int) -> Iterator[Any]:
    """Record batches of some row groups, decoded as they are asked for, on the caller's thread."""
    with _readable(file.path):
        stat = os.stat(file.path)
        if (stat.st_size, stat.st_mtime_ns) != (file.size, file.mtime_ns):
            raise DatasetError(f"{file.path} has changed since it was opened; open the dataset again")
        with _parquet().ParquetFile(file.path, buffer_size=BUFFER, pre_buffer=False) as parquet:
            decoded = parquet.iter_batches(
                batch_size=count, row_groups=list(groups), columns=list(columns), use_threads=False
            )
            yield from (batch for batch in decoded if len(batch))


@contextlib.contextmanager
def _readable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong in reading a file, said with its name."""
    pa = arrow()
    try:
        yield
    except MemoryError:  # Arrow's is also an ArrowException
        raise
    except PermissionError as error:
        raise DatasetError(f"{path} cannot be opened: no permission to read it (chmod u+r)") from error
    except FileNotFoundError as error:
        raise DatasetError(f"{path} does not exist") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{path} is damaged, incomplete or no Parquet file: {str(error).strip()}. Write or copy it again"
        ) from error
