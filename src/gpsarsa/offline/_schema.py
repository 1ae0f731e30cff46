"""Which columns a table has and what they hold, read and checked from a file's metadata."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpsarsa.offline._files import File, arrow, batches, metadata
from gpsarsa.offline._records import DatasetError

REQUIRED = ("observation", "action", "reward", "next_observation", "next_action", "terminated")
OPTIONAL = ("truncated", "episode", "step")


@dataclass(frozen=True)
class Shape:
    """How a file stores its rows. A length of None is one number that is no list."""

    observation: int | None
    action: int | None
    discrete: bool
    episodes: bool
    truncated: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the file that are read."""
        truncated = ("truncated",) if self.truncated else ()
        return (*REQUIRED, *truncated, *(("episode", "step") if self.episodes else ()))

    @property
    def names(self) -> tuple[str, ...]:
        """The input columns' names."""
        return (*_names("observation", self.observation), *_names("action", self.action))


def _names(name: str, length: int | None) -> tuple[str, ...]:
    return (name,) if length is None else tuple(f"{name}[{i}]" for i in range(length))


def inspected(path: str | os.PathLike[str]) -> tuple[File, Shape | None]:
    """A file's row groups and shape, from its metadata; no shape where it has no rows."""
    file, about, schema = metadata(path)
    _check_columns(file.path, schema.names)
    _check_types(file.path, schema)
    if file.edges[-1] == 0:
        return file, None
    types, action = arrow().types, inner(schema.field("action").type)
    shape = Shape(
        observation=_length(file, about, schema, "observation"),
        action=_length(file, about, schema, "action"),
        discrete=types.is_integer(action) or types.is_boolean(action),
        episodes="episode" in schema.names and "step" in schema.names,
        truncated="truncated" in schema.names,
    )
    return file, shape


def _check_columns(file: str, names: Sequence[str]) -> None:
    others = [name for name in names if name not in (*REQUIRED, *OPTIONAL)]
    for name in REQUIRED:
        if name not in names:
            near = difflib.get_close_matches(name, others, n=1)
            cure = f"Rename the column {near[0]}" if near else f"It has {', '.join(names)}"
            if name == "next_action" and not near:
                cure += ". A column of nulls will do if a target policy is given"
            raise DatasetError(f"{file} has no column {name}. {cure}")
    for name in OPTIONAL:
        if name not in names and (near := difflib.get_close_matches(name, others, n=1, cutoff=0.85)):
            raise DatasetError(
                f"{file} has a column {near[0]}, which is not read; rename it to {name}, or drop it"
            )


def _check_types(file: str, schema: Any) -> None:
    types = arrow().types
    kinds = {name: schema.field(name).type for name in (*REQUIRED, *OPTIONAL) if name in schema.names}
    for name, kind in kinds.items():
        if name in ("terminated", "truncated"):
            good, expected = types.is_boolean(kind), "bool. Write a comparison, such as flag == 1"
        elif name in ("episode", "step"):
            good = types.is_integer(kind)
            expected = "whole numbers. Number the episodes, and the steps of each from 0"
        elif name == "reward":
            good, expected = _is_number(kind), "numbers"
        elif name.startswith("next_"):
            model = kinds[name.removeprefix("next_")]
            good = types.is_null(kind) or (is_list(kind) == is_list(model) and _is_number(inner(kind)))
            expected = f"{model}, as {name.removeprefix('next_')}"
        elif not _is_number(inner(kind)):
            good = False
            expected = "numbers, or lists of numbers. Flatten arrays; give columns of their own a list"
        else:
            good = name == "observation" or is_list(kind) or types.is_integer(kind)
            expected = (
                "whole numbers for a discrete action, or lists of floats for a continuous one (also for "
                "a single float)"
            )
        if not good:
            raise DatasetError(f"{file}: column {name} holds {kind}; expected {expected}")


def inner(kind: Any) -> Any:
    """The type of the numbers in a list, or of a number."""
    return kind.value_type if is_list(kind) else kind


def is_list(kind: Any) -> bool:
    types = arrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_number(kind: Any) -> bool:
    types = arrow().types
    return (
        types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    )


def _length(file: File, about: Any, schema: Any, name: str) -> int | None:
    """How many numbers the lists of a column have, None for no lists; of the first row if that differs."""
    kind = schema.field(name).type
    if not is_list(kind):
        return None
    if arrow().types.is_fixed_size_list(kind):
        length = kind.list_size
    else:
        leaves = [about.schema.column(i).path.split(".")[0] for i in range(about.num_columns)]
        leaf, groups = leaves.index(name), range(file.groups)
        values = sum(about.row_group(i).column(leaf).num_values for i in groups)
        length, rest = divmod(values, about.num_rows)
        if rest:
            first = next(batches(file, groups, [name], 1)).column(name)[0]
            length = len(first) if first.is_valid else 1
    if length == 0:
        raise DatasetError(f"{file.path}: column {name} holds empty lists; expected at least one number")
    return int(length)


def check_same(file: str, own: Shape, model: str, shape: Shape) -> None:
    """Files of a dataset store their rows in the same way."""
    kinds = ("floats", "whole numbers")
    for name, a, b in (
        ("observation", _amount(own.observation), _amount(shape.observation)),
        ("action", _amount(own.action), _amount(shape.action)),
        ("action", kinds[own.discrete], kinds[shape.discrete]),
    ):
        if a != b:
            raise DatasetError(
                f"{file}: column {name} holds {a}, in {model} {b}; expected the same in all files"
            )
    for what, mine, theirs in (
        ("episode and step", own.episodes, shape.episodes),
        ("truncated", own.truncated, shape.truncated),
    ):
        if mine != theirs:
            lacks = file if theirs else model
            raise DatasetError(
                f"{lacks} has no column {what}, another file has; expected it in all files or none"
            )


def _amount(length: int | None) -> str:
    return "one number" if length is None else f"lists of {length}"
