"""Minari's datasets as logs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from gpsarsa.control.spaces import Observations, SpaceError
from gpsarsa.offline._blocks import Logs
from gpsarsa.offline._records import DatasetError, Integers, Partition, Rows, needed
from gpsarsa.offline._sampling import stretches

EPISODES = 64  # that Minari is asked for at a time


class Minari(Logs):
    """The episodes of a Minari dataset; partitions are ranges of them."""

    has_episodes = True

    def __init__(self, dataset: Any, rows_per_partition: int) -> None:
        self._path = str(Path(dataset.storage.data_path).resolve())
        self._chosen = np.asarray(dataset.episode_indices, dtype=np.int64)
        self.rows = int(dataset.total_steps)
        if self.rows == 0:
            raise DatasetError(f"{self._path} has no episodes with a step; expected at least one transition")
        action = dataset.action_space
        try:
            self._observations = Observations(dataset.observation_space)
            if isinstance(action, spaces.Dict | spaces.Tuple):
                raise SpaceError(f"action is a {type(action).__name__}; expected Box, Discrete or alike")
            self._actions = Observations(action, "action")
        except SpaceError as error:
            raise DatasetError(f"{self._path}: {error}") from error
        self.observation_columns, self.action_columns = self._observations.columns, self._actions.columns
        self.discrete_action = not isinstance(action, spaces.Box)
        self.names = (*self._observations.names, *self._actions.names)
        self.partitions = list(self._ranges(rows_per_partition))

    def _ranges(self, rows: int) -> Iterator[Partition]:
        """As many episodes to a partition as have `rows` rows on average."""
        stat = os.stat(Path(self._path) / "metadata.json")
        many = max(1, round(rows * len(self._chosen) / self.rows))
        for index, first in enumerate(range(0, len(self._chosen), many)):
            chosen = self._chosen[first : first + many]
            last = first + len(chosen) - 1
            mark = hashlib.sha256(chosen.tobytes()).hexdigest()[:16]
            yield Partition(self._path, first, last, index, stat.st_size, stat.st_mtime_ns, mark)

    def read(self, partition: Partition, count: int) -> Iterator[Rows]:
        if partition.file != self._path or partition.last >= len(self._chosen):
            raise DatasetError(f"{partition.file}: the partition is not one of this dataset")
        return _gathered(self._episodes(self._chosen[partition.first : partition.last + 1]), count)

    def _draw(self, count: int, rng: np.random.Generator) -> Iterator[tuple[str, Rows]]:
        everything = count >= self.rows
        parts, read = [], 0
        for part in self._episodes(self._chosen if everything else rng.permutation(self._chosen)):
            parts.append(part)
            read += len(part)
            if read >= 2 * count and not everything:
                break
        rows = Rows.concatenate(parts)
        edges = np.append(np.flatnonzero(rows.starts), len(rows))
        yield self._path, rows[stretches(edges, np.ones(len(edges) - 1), count, rng)]

    def _place(self, file: str, rows: Rows, i: int) -> str:
        return f"{file}, episode {rows.episodes[i]}, step {rows.steps[i]}"

    def _episodes_of(self, rows: Rows) -> Integers:
        return rows.episodes

    def _episodes(self, chosen: Integers) -> Iterator[Rows]:
        """The rows of some episodes, episode by episode."""
        number = 0
        with _readable(self._path):
            dataset = open_folder(Path(self._path))
            for at in range(0, len(chosen), EPISODES):
                some = chosen[at : at + EPISODES]
                notes = dataset.storage.get_episode_metadata(some)
                for note, episode in zip(notes, dataset.iterate_episodes(some), strict=True):
                    rows = self._episode(episode, note, number)
                    if len(rows):
                        yield rows
                    number += len(rows)

    def _episode(self, episode: Any, note: Mapping[str, Any], number: int) -> Rows:
        """One episode, whose first row has this number; its last row is terminated or truncated."""
        steps = len(episode.rewards)
        where = f"{self._path}, episode {episode.id}"
        if int(note.get("total_steps", steps)) != steps:
            raise DatasetError(
                f"{where} has {note['total_steps']} steps, of which Minari gives {steps}; store long "
                "episodes in the format hdf5"
            )
        try:
            observations = self._observations.rows(episode.observations)
            actions = self._actions.rows(episode.actions)
        except SpaceError as error:
            raise DatasetError(f"{where}: {error}") from error
        if len(observations) != steps + 1 or len(actions) != steps:
            raise DatasetError(
                f"{where} has {len(observations)} observations and {len(actions)} actions for {steps} "
                f"rewards; expected {steps + 1} and {steps}"
            )
        count = np.arange(steps)
        last = count == steps - 1
        terminated = np.array(episode.terminations, dtype=np.bool_)
        truncated = np.array(episode.truncations, dtype=np.bool_) | (last & ~terminated)
        if ((terminated | truncated) & ~last).any():
            i = int(np.argmax(terminated | truncated))
            raise DatasetError(f"{where} goes on after step {i}, which is terminated or truncated")
        return Rows(
            observations=observations[:-1],
            actions=actions,
            rewards=np.array(episode.rewards, dtype=np.float64),
            next_observations=observations[1:],
            next_actions=np.concatenate([actions[1:], np.full((1, actions.shape[1]), np.nan)])[:steps],
            terminated=terminated,
            truncated=truncated,
            episodes=np.full(steps, int(episode.id)),
            steps=count,
            starts=count == 0,
            numbers=number + count,
            no_action=last,
        )


def _gathered(parts: Iterable[Rows], count: int) -> Iterator[Rows]:
    """The same rows, `count` at a time."""
    waiting: list[Rows] = []
    many = 0
    for part in parts:
        waiting.append(part)
        many += len(part)
        if many >= count:
            rows = Rows.concatenate(waiting)
            while len(rows) >= count:
                yield rows[:count]
                rows = rows[count:]
            waiting, many = [rows] if len(rows) else [], len(rows)
    if waiting:
        yield Rows.concatenate(waiting)


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    """Whatever goes wrong in reading, said with its name; Minari imports h5py and others only then."""
    try:
        yield
    except ImportError as error:
        raise DatasetError(f"{path} cannot be read: {error}. pip install 'gpsarsa[minari]'") from error
    except OSError as error:
        raise DatasetError(f"{path} is damaged or incomplete: {error}. Download or write it again") from error


def load(name: str) -> Any:
    """A local Minari dataset by its id."""
    minari = needed("minari", "minari")
    with _readable(name):
        try:
            return minari.load_dataset(name)
        except (FileNotFoundError, ValueError, TypeError) as error:
            local = ", ".join(minari.list_local_datasets()) or "none"
            raise DatasetError(
                f"the Minari dataset {name} is not here: {error} Found: {local}. Download it with "
                f"`minari download {name}`, or set MINARI_DATASETS_PATH"
            ) from error


def open_folder(folder: Path) -> Any:
    """The Minari dataset whose data a folder holds."""
    minari = needed("minari", "minari")
    with _readable(str(folder)):
        return minari.MinariDataset(str(folder))


def data_folder(path: Path) -> Path | None:
    """Where a folder holds a Minari dataset's data; None if it holds none."""
    for folder in (path, path / "data"):
        with contextlib.suppress(OSError, ValueError):
            if "minari_version" in json.loads((folder / "metadata.json").read_text()):
                return folder
    return None
