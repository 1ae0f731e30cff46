"""Ways to damage a file: bytes, JSON documents, checkpoints whose checksum fits, command lines.

Each takes a source of chance, a `random.Random`, and returns something new.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import numpy as np

NUMBERS = [0, 1, -1, 2, 3, 7, 2**31, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.5, 1e308, 5e-324, 1e-300]
VALUES = [
    *NUMBERS,
    None,
    True,
    False,
    "",
    "a",
    "nan",
    "0",
    "\0",
    "é",
    [],
    {},
    [0],
    [[]],
    {"a": 1},
    [None] * 3,
]
BYTES = [
    b"",
    b"\0",
    b"\xff" * 8,
    b"{}",
    b"[]",
    b"null",
    b"\n",
    b",",
    b'"',
    b"PAR1",
    b"1e999",
    b"NaN",
    b"\xc3\x28",
]


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bits flipped, parts cut out, doubled, swapped, overwritten or put in."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        size = len(changed)
        at, other = rng.randrange(size + 1), rng.randrange(size + 1)
        low, high = min(at, other), max(at, other)
        how = rng.randrange(8)
        if how == 0 and at < size:
            changed[at] ^= 1 << rng.randrange(8)
        elif how == 1 and at < size:
            changed[at] = rng.randrange(256)
        elif how == 2:
            del changed[at:]
        elif how == 3:
            del changed[low : min(high, low + rng.randrange(1, 64))]
        elif how == 4:
            changed[at:at] = rng.choice(BYTES)
        elif how == 5:
            changed[at:at] = changed[low : min(high, low + 64)]
        elif how == 6:
            changed[low : low + 8] = rng.randbytes(min(8, size - low))
        else:  # a length in front, as safetensors and Parquet have it
            changed[:8] = rng.choice((0, 1, 7, size, size + 8, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little")
    return bytes(changed)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the parts of a JSON document are."""
    found = [path]
    if isinstance(value, dict):
        for key in value:
            found += places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(min(len(value), 8)):
            found += places(value[i], (*path, i))
    return found


def damaged_json(document: Any, rng: random.Random) -> Any:
    """The document with some of its parts gone, doubled, renamed or something else."""
    changed = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2, 4))):
        *path, last = rng.choice(places(changed)[1:] or [(0,)])
        owner = changed
        for key in path:
            owner = owner[key]
        if not isinstance(owner, dict | list) or len(owner) == 0:
            continue
        how = rng.randrange(6)
        if how == 0:
            del owner[last]
        elif how == 1 and isinstance(owner, dict):
            owner[rng.choice(("kind", "", "a", "é", "surprise"))] = owner.pop(last)
        elif how == 2 and isinstance(owner, list):
            owner.append(copy.deepcopy(owner[last]))
        elif how == 3 and isinstance(owner[last], int | float) and not isinstance(owner[last], bool):
            owner[last] = rng.choice((-owner[last], owner[last] + 1, owner[last] * 1e6, owner[last] / 3))
        else:
            owner[last] = copy.deepcopy(rng.choice(VALUES))
    return changed


def damaged_array(array: Any, rng: random.Random) -> Any:
    """Another shape, type or content."""
    how = rng.randrange(9)
    if how == 0:
        return array[: len(array) // 2] if array.ndim else array
    if how == 1:
        return array.reshape(-1)
    if how == 2:
        return array[None]
    if how == 3:
        return array.astype(rng.choice(("float32", "int64", "uint8", "bool", "float16")))
    if how == 4:
        return np.zeros((0, *array.shape[1:]), array.dtype)
    if how == 5:
        return np.concatenate([array, array]) if array.ndim else array
    changed = np.array(array)
    if changed.size and changed.dtype.kind == "f":
        value = rng.choice((0.0, -1.0, np.nan, np.inf, 1e308, 1e-320, 0.5, 1e9))
        changed.flat[rng.randrange(changed.size)] = value
    return changed


def damaged_content(arrays: dict[str, Any], content: Any, rng: random.Random) -> tuple[dict[str, Any], Any]:
    """The arrays and the document of a checkpoint, either or both of them changed."""
    arrays, which = dict(arrays), rng.randrange(3)
    if which != 0 and arrays:
        for _ in range(rng.choice((1, 1, 2))):
            name = rng.choice(sorted(arrays)) if arrays else None
            if name is None:
                break
            if rng.random() < 0.2:
                value = arrays.pop(name)
                if rng.random() < 0.5:
                    arrays[rng.choice(("surprise", "model.Z", "x.y", "."))] = value
            else:
                with np.errstate(all="ignore"):
                    arrays[name] = damaged_array(arrays[name], rng)
    return arrays, damaged_json(content, rng) if which != 1 else content


def damaged_text(data: bytes, rng: random.Random) -> bytes:
    """JSON that is still JSON, or CSV that is still lines, or any bytes."""
    if rng.random() < 0.4:
        return damaged_bytes(data, rng)
    try:
        return json.dumps(damaged_json(json.loads(data), rng)).encode()
    except ValueError:
        lines = data.split(b"\n")
        for _ in range(rng.choice((1, 2))):
            at = rng.randrange(len(lines))
            words = lines[at].split(b",")
            words[rng.randrange(len(words))] = rng.choice(
                (b"", b"-1", b"1e400", b"nan", b"x", b"1.5", b"\xff")
            )
            lines[at] = b",".join(words)
        return b"\n".join(lines)


# -- the command line -----------------------------------------------------------------------------

WORDS = [
    "", "-", "--", "-1", "0", "1", "2", "3", "1.5", "0.9", "1e3", "nan", "inf", "-inf", "1_0", "0x10", "٣",
    "a", "é", " ", "\n", "x" * 300, "=", "a=1", "a=[", "render_mode=human", "=1", "a=", "null", "\udc80", "*",
    "[", "~", "~nobody/x", "minari:", "minari:a/b-v0", "/", ".", "..", "/dev/null", "/proc/self/mem", "a\0b",
    "%s", "{}",
]  # fmt: skip
OPTIONS = {
    "train": ["--steps", "--seed", "--out", "--gamma", "--env-argument", "--checkpoint-every", "--method",
              "--evaluate-episodes", "--budget", "--resume", "--no-report", "--quiet"],
    "play": ["--episodes", "--seed", "--video"],
    "report": ["--out"],
    "evaluate": ["--gamma", "--pseudo-inputs", "--noise", "--target-policy", "--prior-mean", "--seed",
                 "--engine", "--address", "--workers", "--out", "--resume", "--no-report", "--quiet"],
    "compare": [],
}  # fmt: skip
SENSIBLE = {
    "--method": ["improving", "sarsa"], "--noise": ["auto", "iid", "correlated"], "--engine": ["local"],
    "--gamma": ["0.9", "0", "1"],
}  # fmt: skip


def command_line(files: list[str], rng: random.Random) -> list[str]:
    """Arguments that may even make sense; `files` are names of files and folders that are there."""
    command = rng.choice([*OPTIONS, *OPTIONS, "fly", "", "--help", "--version", "-x"])
    line = [command]
    if command == "train":
        line.append(rng.choice(["CartPole-v1", "CartPole", "third_party:Probe-v0", *WORDS]))
    line += rng.choices([*files, *files, *WORDS], k=rng.choice((0, 1, 1, 1, 2, 3)))
    if command == "evaluate" and rng.random() < 0.8:
        line += ["--gamma", "0.9", "--pseudo-inputs", "3"]
    for _ in range(rng.choice((0, 1, 2, 3, 5))):
        option = rng.choice(OPTIONS.get(command) or ["--x", "--out", "-o"])
        line.append(option if rng.random() < 0.9 else option[: rng.randrange(2, len(option) + 1)])
        if rng.random() < 0.85:
            line.append(rng.choice([*SENSIBLE.get(option, []), *files, *WORDS]))
    if rng.random() < 0.1:
        rng.shuffle(line)
    return line
