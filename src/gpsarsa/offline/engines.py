"""Where a pass over a table runs: on the threads of this machine, or on a Ray cluster.

An engine is given a task (`sums.First`, `Second` or `Resampling`), the partitions of a table and a way to
read one, and returns the sum over all partitions. Partitions are independent and their sums pure functions
of them, so it does not matter who computes one, in which order, or how often. With a `work` folder each
partition's sum is kept in a file there, and an interrupted pass does not read that partition again.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from gpsarsa import _validation as check
from gpsarsa import checkpoint
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.offline.datasets import DatasetError
from gpsarsa.offline.sums import Block

__all__ = ["Engine", "EngineError", "Local", "Progressed", "Ray", "Work", "engine"]

Read = Callable[[Any], Iterable[Block]]  # from a partition to its blocks
Progressed = Callable[[int, bool], None]  # told how many were done before, and whether this one was kept

SUM_AT_ONCE = 8  # sums that one task of the tree adds up
TRIES = 3  # of a task whose worker is lost, after the first
PATIENCE = 5.0  # seconds that a cluster may take to answer
MAX_PORT = 2**16 - 1  # a greater one would be taken modulo 2¹⁶: another port


class EngineError(RuntimeError):
    """An engine that cannot run; says why, and the cure."""


class Engine(Protocol):
    """Runs a task over partitions."""

    def run(
        self, task: Any, partitions: Sequence[Any], read: Read, *, work: Work, done: Progressed
    ) -> Any: ...


class Work:
    """Sums of partitions kept in a folder; nothing is kept where there is none."""

    def __init__(self, folder: str | os.PathLike[str] | None, description: dict[str, Any]) -> None:
        self.folder = None if folder is None else Path(folder)
        text = json.dumps(description, sort_keys=True, default=str)
        self.key = hashlib.sha256(text.encode()).hexdigest()[:16]
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, partition: Any) -> Path | None:
        if self.folder is None:
            return None
        name = hashlib.sha256(f"{self.key} {partition.key}".encode()).hexdigest()[:24]
        return self.folder / f"{name}.safetensors"


def kept(task: Any, path: Path | None) -> Any:
    """The sum in a file, or None where it is not there or not intact."""
    if path is None or not path.exists():
        return None
    try:
        return task.restored(checkpoint.read(path)[0])
    except (CheckpointError, KeyError, ValueError):
        return None


def over(task: Any, partition: Any, read: Read, path: Path | None) -> tuple[Any, bool]:
    """The sum of one partition, and whether it was kept in its file; computed and kept there otherwise."""
    found = kept(task, path)
    if found is not None:
        return found, True
    try:
        found = task.over(read(partition))
    except (ValueError, ArithmeticError) as error:
        if type(error) not in (ValueError, ArithmeticError):
            raise
        raise DatasetError(f"{partition.file}: {error}") from error
    if path is not None:
        checkpoint.write(path, found.state(), {})
    return found, False


class Local:
    """Threads, one partition each at a time, with constant memory."""

    def __init__(self, workers: int | None = None) -> None:
        chosen = None if workers is None else check.at_least_one(workers, "workers")
        self.workers = chosen or os.cpu_count() or 1

    def run(self, task: Any, partitions: Sequence[Any], read: Read, *, work: Work, done: Progressed) -> Any:
        total = task.empty()
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self.workers) as pool:
            try:
                for found in self._in_order(pool, task, partitions, read, work, done):
                    total = total + found
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return total

    def _in_order(
        self,
        pool: ThreadPoolExecutor,
        task: Any,
        partitions: Sequence[Any],
        read: Read,
        work: Work,
        done: Progressed,
    ) -> Iterator[Any]:
        """Sums in the partitions' order, so that the result does not depend on who was faster; never
        more of them under way or waiting than twice the threads."""
        waiting: dict[int, Future[Any]] = {}
        submitted = 0
        for i in range(len(partitions)):
            while submitted < min(i + 2 * self.workers, len(partitions)):
                partition = partitions[submitted]
                waiting[submitted] = pool.submit(over, task, partition, read, work.path(partition))
                submitted += 1
            found, known = waiting.pop(i).result()
            yield found
            done(i, known)


class Ray:
    """Pure tasks on a Ray cluster, summed in a tree, tried again where a worker is lost.

    `address` is that of a cluster; None starts Ray on this machine, or joins the one of RAY_ADDRESS. The
    files and the `work` folder must be found under the same names on all machines.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self.address, self.workers = address, workers

    def run(self, task: Any, partitions: Sequence[Any], read: Read, *, work: Work, done: Progressed) -> Any:
        ray = self._started()
        try:
            return self._sum(ray, task, partitions, read, work, done)
        except ray.exceptions.RayTaskError as error:
            reason = str(error.cause or error).split("\n")[0]
            raise EngineError(
                f"a Ray worker could not begin: {reason}; what kernel and policy are made of must be "
                "installed on all machines"
            ) from error
        except ray.exceptions.RayError as error:
            raise EngineError(
                f"Ray gave up after {TRIES} tries ({type(error).__name__}: {error}); look at the cluster's "
                "memory and logs, or use engine='local'"
            ) from error

    def _sum(
        self, ray: Any, task: Any, partitions: Sequence[Any], read: Read, work: Work, done: Progressed
    ) -> Any:
        """The driver sees a word from each partition, so that the first error ends the pass; the sums
        themselves stay with the workers."""
        one = ray.remote(max_retries=TRIES, num_cpus=1, num_returns=2)(_over_alone)
        shared = ray.put((task, read))
        tree = _Tree(ray.remote(max_retries=TRIES, num_cpus=1)(_added), shared)
        limit, pending, finished = self._at_once(ray), list[Any](), 0
        for submitted, partition in enumerate(partitions, start=1):
            path = work.path(partition)
            word, state = one.remote(shared, partition, None if path is None else str(path.resolve()))
            tree.add(state)
            del state  # a sum is let go once it is part of a larger one
            pending.append(word)
            while len(pending) >= limit or (pending and submitted == len(partitions)):
                ready, pending = ray.wait(pending, num_returns=1)
                if isinstance(word := ray.get(ready[0]), Exception):
                    raise word
                done(finished, word)
                finished += 1
        root = tree.root()
        return task.empty() if root is None else task.restored(ray.get(root))

    def _at_once(self, ray: Any) -> int:
        """Tasks under way at a time: enough to keep every core busy, or as many as were asked for."""
        cores = max(int(ray.cluster_resources().get("CPU", 1)), 1)
        return self.workers if self.workers is not None and self.workers < cores else 4 * cores

    def _started(self) -> Any:
        try:
            import ray
        except ImportError as error:
            raise EngineError(
                f"Ray is not installed ({error}); pip install 'gpsarsa[ray]', or use engine='local'"
            ) from error
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
            address = self.address or os.environ.get("RAY_ADDRESS")
            if address is None:
                options |= {"num_cpus": self.workers, "include_dashboard": False}
            else:
                _knock(address)
            try:
                ray.init(self.address, **options)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
                raise _unreachable(address or "this machine", str(error)) from error
        return ray


class _Tree:
    """References to sums, `SUM_AT_ONCE` of which become one as soon as they are there.

    Who is added to whom depends on the partitions' order alone.
    """

    def __init__(self, several: Any, shared: Any) -> None:
        self._several, self._shared = several, shared
        self._levels: list[list[Any]] = []

    def add(self, reference: Any, level: int = 0) -> None:
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(reference)
        if len(self._levels[level]) == SUM_AT_ONCE:
            together, self._levels[level] = self._levels[level], []
            self.add(self._several.remote(self._shared, *together), level + 1)

    def root(self) -> Any:
        """The sum of all; None where there were none."""
        left = [reference for level in self._levels for reference in level]
        return self._several.remote(self._shared, *left) if len(left) > 1 else (left or [None])[0]


def _knock(address: str) -> None:
    """EngineError where nobody listens: Ray itself would try for a minute, and may end the process."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal() or int(port) > MAX_PORT:
        if address in ("auto", "local"):
            return
        raise EngineError(
            f"Ray's address {address!r} makes no sense; expected HOST:PORT, ray://HOST:PORT or auto"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE):
            return
    except OSError as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(where: str, why: str) -> EngineError:
    return EngineError(f"Ray cannot be reached at {where}: {why}; check the address, or use engine='local'")


def _over_alone(shared: Any, partition: Any, path: str | None) -> tuple[Exception | bool, dict[str, Any]]:
    """In a worker: what went wrong, for the driver to raise, or whether it was kept; and the state of one
    partition's sum."""
    task, read = shared
    try:
        with threadpool_limits(1, user_api="blas"):
            found, known = over(task, partition, read, None if path is None else Path(path))
            return known, found.state()
    except Exception as error:
        return error, {}


def _added(shared: Any, *states: dict[str, Any]) -> dict[str, Any]:
    """In a worker: the state of a sum of sums."""
    task, _ = shared
    if not all(states):
        return {}  # the driver knows already
    total = task.restored(states[0])
    for state in states[1:]:
        total = total + task.restored(state)
    result: dict[str, Any] = total.state()
    return result


def engine(name: Any, *, address: str | None = None, workers: int | None = None) -> Engine:
    """The engine of that name; an object with `run` is one already."""
    if workers is not None and check.count(workers, "workers") == 0:
        raise ValueError("workers = 0; expected 1 or more, or None for as many as there are cores")
    if address is not None and not (isinstance(name, str) and name == "ray"):
        raise ValueError(f"address = {address!r} is for engine='ray'; leave it out, or set the engine")
    if isinstance(name, str):
        chosen = check.one_of(name, "engine", ("local", "ray"))
        return Local(workers) if chosen == "local" else Ray(address, workers)
    if hasattr(name, "run"):
        return name
    raise ValueError(f"engine = {name!r}; expected 'local', 'ray' or an object with run")
