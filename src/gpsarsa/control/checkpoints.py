"""Checkpoints in two files, the newest and the one before, so that a good one is there at any moment.

    checkpoints = Checkpoints("runs/cartpole")
    checkpoints.save(agent)                        # agent.safetensors, agent.previous.safetensors
    agent = checkpoints.load(SarsaAgent.load)      # None where nothing was saved

A new file is complete and on the disk before it takes the place of the newest, which becomes the one
before. A file that turns out to be damaged is never kept as the one before in place of a good one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from gpsarsa import _validation as check
from gpsarsa import checkpoint
from gpsarsa._progress import say
from gpsarsa.checkpoint import CheckpointError

__all__ = ["Checkpoints"]

Agent = TypeVar("Agent")
SUFFIX = ".safetensors"


class Checkpoints:
    """The two files of an agent in a folder.

    Parameters
    ----------
    folder : path
        Where they are; made when first needed.
    name : str
        How the files' names begin.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str = "agent") -> None:
        self.folder = check.path(folder, "folder")
        check.path(name, "name")
        self.newest = self.folder / f"{name}{SUFFIX}"
        self.before = self.folder / f"{name}.previous{SUFFIX}"
        self._next = self.folder / f"{name}.next{SUFFIX}"
        self._good = True  # the newest, where there is one, deserves to be kept as the one before

    @property
    def latest(self) -> Path | None:
        """The file to go on from; None where there is none."""
        paths = (self.newest, self.before) if self._good else (self.before,)
        return next((path for path in paths if os.path.exists(path)), None)

    def save(self, agent: Any) -> None:
        """Save the agent; the newest file so far becomes the one before."""
        if not callable(getattr(agent, "save", None)):
            raise TypeError(f"agent is a {type(agent).__name__}; expected something with a save method")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            agent.save(self._next)
            if self._good and self.newest.exists():
                os.replace(self.newest, self.before)
            os.replace(self._next, self.newest)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._next.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror or str(error), str(self.newest)) from error
        checkpoint.sync_folder(self.folder)
        self._good = True

    def load(self, read: Callable[[Path], Agent], say: Callable[[str], None] = say) -> Agent | None:
        """The newest agent that is intact; None where none was saved.

        Where the newest file is damaged, `say` is told so and the one before is used. CheckpointError where
        no file is left, or where a file is intact but of another release of the format.
        """
        _require_callable(read)
        faults: list[str] = []
        for path in (self.newest, self.before):
            if not path.exists():
                continue
            try:
                agent = read(path)
            except CheckpointError as error:
                if _of_another_release(path):
                    raise
                faults.append(str(error))
                continue
            if faults:
                say(f"{faults[0]}; the checkpoint before is used: {path}")
            self._good = path == self.newest
            return agent
        if faults:
            raise CheckpointError("; ".join(faults))
        return None

    def load_before(self, read: Callable[[Path], Agent]) -> Agent | None:
        """The agent of the file before, to go on from it as if there were no newer; None without one."""
        _require_callable(read)
        try:
            agent = read(self.before)
        except (CheckpointError, OSError):
            return None
        self._good = False
        return agent

    def sweep(self) -> None:
        """Remove what a killed process left half written."""
        self._next.unlink(missing_ok=True)
        checkpoint.sweep(self.folder, [self._next.name])


def _require_callable(read: Any) -> None:
    if not callable(read):
        raise TypeError(f"read = {read!r}; expected a function from a path to an agent")


def _of_another_release(path: Path) -> bool:
    """Whether a file's header is fine and says that it has another version of the format."""
    try:
        version = checkpoint.read_header(path.read_bytes()).get("version")
    except (ValueError, OSError, RecursionError):
        return False
    return version is not None and version != str(checkpoint.VERSION)
