"""Where a pass over a table runs: on the threads of this machine, or on a Ray cluster.

An engine is given a task (`sums.First` or `sums.Second`), the partitions of a table and a way to read one,
and returns the sum over all partitions. Partitions are independent and their sums pure functions of them, so
it does not matter who computes one, in which order, or how often. With a `work` folder each partition's sum
is kept in a file there, and an interrupted pass does not read that partition again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from gpsarsa import checkpoint
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.offline.sums import Block

__all__ = ["Engine", "EngineError", "Local", "Progressed", "Ray", "Work", "engine"]

Read = Callable[[Any], Iterable[Block]]  # from a partition to its blocks
Progressed = Callable[[int], None]  # is told of every partition done, by its number

SUM_AT_ONCE = 8  # sums that one task of the tree adds up


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


def over(task: Any, partition: Any, read: Read, path: Path | None) -> Any:
    """The sum of one partition, from its file or computed and kept there."""
    found = kept(task, path)
    if found is None:
        found = task.over(read(partition))
        if path is not None:
            checkpoint.write(path, found.state(), {})
    return found


class Local:
    """Threads, one partition each at a time, with constant memory."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1

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
            yield waiting.pop(i).result()
            done(i)


class Ray:
    """Pure tasks on a Ray cluster, summed in a tree, tried again where a worker is lost.

    `address` is that of a cluster; None starts Ray on this machine, or joins the one of RAY_ADDRESS.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self.address, self.workers = address, workers

    def run(self, task: Any, partitions: Sequence[Any], read: Read, *, work: Work, done: Progressed) -> Any:
        ray = self._started()
        one = ray.remote(max_retries=3, num_cpus=1)(_over_alone)
        several = ray.remote(max_retries=3, num_cpus=1)(_added)
        shared = ray.put((task, read))
        limit = 4 * int(ray.cluster_resources().get("CPU", 1))
        leaves: list[Any] = []
        pending: list[Any] = []
        finished = 0
        try:
            for partition in partitions:
                path = work.path(partition)
                reference = one.remote(shared, partition, None if path is None else str(path.resolve()))
                leaves.append(reference)
                pending.append(reference)
                if len(pending) >= limit:
                    ready, pending = ray.wait(pending, num_returns=1, fetch_local=False)
                    finished += len(ready)
                    done(finished - 1)
            while pending:
                ready, pending = ray.wait(pending, num_returns=1, fetch_local=False)
                finished += len(ready)
                done(finished - 1)
            while len(leaves) > 1:
                leaves = [
                    several.remote(shared, *leaves[lo : lo + SUM_AT_ONCE])
                    for lo in range(0, len(leaves), SUM_AT_ONCE)
                ]
            arrays = ray.get(leaves[0]) if leaves else task.empty().state()
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        return task.restored(arrays)

    def _started(self) -> Any:
        try:
            import ray
        except ImportError as error:
            raise EngineError(
                f"Ray is not installed ({error}); pip install 'gpsarsa[ray]', or use engine='local'"
            ) from error
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
            if self.address is None and "RAY_ADDRESS" not in os.environ:
                options |= {"num_cpus": self.workers, "include_dashboard": False}
            try:
                ray.init(self.address, **options)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
                raise EngineError(
                    f"Ray cannot be reached at {self.address or 'this machine'}: {error}; check the address, "
                    "or use engine='local'"
                ) from error
        return ray


def _over_alone(shared: Any, partition: Any, path: str | None) -> dict[str, Any]:
    """In a worker: the state of one partition's sum."""
    task, read = shared
    with threadpool_limits(1, user_api="blas"):
        state: dict[str, Any] = over(task, partition, read, None if path is None else Path(path)).state()
    return state


def _added(shared: Any, *states: dict[str, Any]) -> dict[str, Any]:
    """In a worker: the state of a sum of sums."""
    task, _ = shared
    total = task.restored(states[0])
    for state in states[1:]:
        total = total + task.restored(state)
    result: dict[str, Any] = total.state()
    return result


def engine(name: Any, *, address: str | None = None, workers: int | None = None) -> Engine:
    """The engine of that name; an object with `run` is one already."""
    if name == "local":
        return Local(workers)
    if name == "ray":
        return Ray(address, workers)
    if hasattr(name, "run"):
        return name
    raise ValueError(f"engine = {name!r}; expected 'local' or 'ray'")
