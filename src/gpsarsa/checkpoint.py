"""Arrays and JSON in one atomic, checksummed, pickle-free file; knows no model.

The file is a safetensors file. Its header holds, besides the arrays' places, four strings: `format`
and `version` say what wrote it, `content` is a JSON document and `checksum` a SHA-256 over the
document and all arrays. A file is written under a temporary name, synced and renamed, so a reader
sees the old one or the new one and never half of either.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gpsarsa import _validation as check

__all__ = ["CheckpointError", "atomic", "checksum", "read", "read_header", "sweep", "sync_folder", "write"]

FORMAT = "gpsarsa"
VERSION = 1

Arrays = Mapping[str, NDArray[Any]]


class CheckpointError(ValueError):
    """A file that cannot be read as a checkpoint, with the reason."""


def write(path: str | os.PathLike[str], arrays: Arrays, content: Mapping[str, Any]) -> None:
    """Write arrays and a JSON document to one file, atomically."""
    tensors = {name: _native(a) for name, a in check.mapping(arrays, "arrays").items()}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or tensor.dtype.kind not in "fiub" or tensor.dtype.itemsize > 8:
            raise TypeError(f"arrays[{name!r}] has dtype {tensor.dtype}; expected numbers of up to 64 bits")
    document = _document(content)
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "content": document,
        "checksum": _checksum(tensors, document),
    }
    data = _in_order(save(tensors, metadata=header))
    with atomic(path) as file:
        file.write(data)


def _native(array: Any) -> NDArray[Any]:
    """In the byte order and layout that the file has."""
    array = np.asarray(array)
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _document(content: Any) -> str:
    try:
        return json.dumps(check.mapping(content, "content"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"content is nothing that JSON can hold: {error}") from None


@contextlib.contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file that takes its name once it is whole and on the disk; an error leaves what was there."""
    target = Path(os.path.realpath(check.path(path, "path")))  # a link stays a link
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)) and error.errno:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # the name that was given
        raise
    sync_folder(target.parent)


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove what killed processes left of files of these names, half written."""
    for name in names:
        for path in folder.glob(f".{name}.*.part"):
            path.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the JSON document of a checkpoint; CheckpointError where it is not intact."""
    data = check.path(path, "path").read_bytes()
    try:
        header = read_header(data)
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged or not a checkpoint: {error}") from None
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{path} was not written by gpsarsa")
    if header.get("version") != str(VERSION):
        raise CheckpointError(
            f"{path} has format version {header.get('version')}; this release reads version {VERSION}"
        )
    document = header.get("content", "")
    if header.get("checksum") != _checksum(tensors, document):
        raise CheckpointError(f"{path} is damaged: its checksum does not match its content")
    try:
        content = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is damaged: its document is not an object")
    return tensors, content


def _in_order(data: bytes) -> bytes:
    """The same file with its header's keys sorted: equal content makes equal bytes."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[end:]


def read_header(data: bytes) -> dict[str, str]:
    """The strings that safetensors keeps beside the arrays' places."""
    if not isinstance(data, bytes | bytearray):
        raise TypeError(f"data is a {type(data).__name__}; expected the bytes of a file")
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("the file ends before its header does")
    header = json.loads(data[8 : 8 + length])
    strings = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(strings, dict) or not all(isinstance(v, str) for v in strings.values()):
        raise ValueError("its header is not that of a safetensors file")
    return strings


def checksum(arrays: Arrays, content: Mapping[str, Any]) -> str:
    """The same for what would be written alike."""
    return _checksum({name: _native(array) for name, array in arrays.items()}, _document(content))


def _checksum(arrays: Arrays, document: str) -> str:
    digest = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
