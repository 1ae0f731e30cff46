"""Writing transition tables.

    record("CartPole-v1", agent, "cartpole.parquet", episodes=1000, seed=0)
    convert("D4RL/door/human-v2", "door.parquet")

A table is written row group by row group under a temporary name, and takes its own once it is complete and
on the disk: whatever goes wrong, no half of a table is found under that name.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._progress import Progress
from gpsarsa._validation import Array
from gpsarsa.checkpoint import atomic
from gpsarsa.control import environments
from gpsarsa.control.spaces import Actions, Observations, SpaceError
from gpsarsa.offline._minari import Minari
from gpsarsa.offline.datasets import PREFIX, DatasetError, Rows, needed, open_dataset

__all__ = ["convert", "record", "write_table"]

ROWS_PER_GROUP = 65_536
APART = 0x6C6F6773  # sets these seeds apart from those of training and evaluation
REPEATED = ["action", "next_action", "episode"]  # columns of few different numbers

Path = str | os.PathLike[str]


# ── tables from arrays ───────────────────────────────────────────────────────────────────────────────


def write_table(
    path: Path,
    *,
    observation: Any,
    action: Any,
    reward: Any,
    next_observation: Any,
    next_action: Any,
    terminated: Any,
    truncated: Any = None,
    episode: Any = None,
    step: Any = None,
    rows_per_group: int = ROWS_PER_GROUP,
) -> int:
    """Write arrays with one row per transition as a table; returns the number of rows.

    Observations are (n,) or (n, columns). Discrete actions are whole numbers, (n,) or (n, columns);
    continuous ones are floats, (n, columns). Rows of `next_observation` and `next_action` that are masked,
    in an array of `numpy.ma`, are written as null. `episode` and `step` go together.
    """
    layout = _Layout.of(observation, action, episodes=episode is not None)
    if (episode is None) != (step is None):
        raise ValueError("episode and step go together; expected both or neither")
    x, a = check.rows(_upright(observation), "observation"), check.rows(_upright(action), "action")
    n = len(x)
    if len(a) != n:
        raise ValueError(f"action has {len(a)} rows; expected {n}, as many as observation")
    next_x, no_observation = _masked(next_observation, "next_observation", x.shape)
    next_a, no_action = _masked(next_action, "next_action", a.shape)
    rows = Rows(
        observations=x,
        actions=a,
        rewards=check.vector(reward, "reward", n),
        next_observations=next_x,
        next_actions=next_a,
        terminated=check.flags(terminated, "terminated", n),
        truncated=check.flags(np.zeros(n, np.bool_) if truncated is None else truncated, "truncated", n),
        episodes=_whole(episode, "episode", n),
        steps=_whole(step, "step", n),
        starts=np.zeros(n, dtype=np.bool_),
        numbers=np.arange(n),
        no_observation=no_observation,
        no_action=no_action,
    )
    if layout.discrete:
        rows = replace(rows, next_actions=_whole_actions(rows))
    size = check.at_least_one(rows_per_group, "rows_per_group")
    with _table(path, layout) as write:
        for begin in range(0, n, size):
            write(rows[begin : begin + size])
    return n


def _upright(values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    return array[:, None] if array.ndim == 1 else array


def _masked(values: Any, name: str, shape: tuple[int, ...]) -> tuple[Array, NDArray[np.bool_] | None]:
    """Rows, and which of them are masked, if any is."""
    check.raw_array(values, name)
    array = check.rows(_upright(np.ma.getdata(values)), name, shape[1], finite=False)
    if len(array) != shape[0]:
        raise ValueError(f"{name} has {len(array)} rows; expected {shape[0]}, as many as observation")
    if np.ma.getmask(values) is np.ma.nomask:
        return array, None
    return array, np.asarray(_upright(np.ma.getmaskarray(values)).any(axis=1))


def _whole_actions(rows: Rows) -> Array:
    """Next actions that are whole numbers, 0 where none is looked at."""
    actions = rows.next_actions
    broken = ~(np.isfinite(actions) & (actions == np.floor(actions))).all(axis=1)
    unseen = rows.terminated if rows.no_action is None else rows.terminated | rows.no_action
    if (broken & ~unseen).any():
        row = int(np.argmax(broken & ~unseen))
        raise ValueError(f"next_action[{row}] = {actions[row]}; expected whole numbers, as in action")
    return np.where(broken[:, None], 0.0, actions)


def _whole(values: Any, name: str, n: int) -> NDArray[np.int64]:
    array = np.arange(n) if values is None else check.raw_array(values, name)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise TypeError(f"{name} is {array.dtype} of shape {array.shape}; expected whole numbers, ({n},)")
    return array.astype(np.int64)


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Layout:
    """How the columns of a table are stored."""

    single_observation: bool
    """As a number, not as a list of one."""
    single_action: bool
    discrete: bool
    episodes: bool

    @classmethod
    def of(cls, observation: Any, action: Any, *, episodes: bool) -> _Layout:
        action = check.raw_array(action, "action")
        if action.ndim == 1 and action.dtype.kind == "f":
            raise TypeError(
                "action holds floats of shape (n,); expected whole numbers for a discrete action, or shape "
                "(n, 1) for a continuous one"
            )
        single = check.raw_array(observation, "observation").ndim == 1
        return cls(single, action.ndim == 1, action.dtype.kind in "iub", episodes)

    def batch(self, rows: Rows) -> Any:
        """The rows as a record batch."""
        pa = needed("pyarrow", "offline")
        kind = np.dtype(np.int64 if self.discrete else np.float64)
        double, single = np.dtype(np.float64), (self.single_observation, self.single_action)
        columns = {
            "observation": _column(rows.observations, double, single[0]),
            "action": _column(rows.actions, kind, single[1]),
            "reward": pa.array(rows.rewards),
            "next_observation": _column(rows.next_observations, double, single[0], rows.no_observation),
            "next_action": _column(rows.next_actions, kind, single[1], rows.no_action),
            "terminated": pa.array(rows.terminated),
            "truncated": pa.array(rows.truncated),
        }
        if self.episodes:
            columns |= {"episode": pa.array(rows.episodes), "step": pa.array(rows.steps)}
        named = [
            pa.field(name, column.type, nullable=name.startswith("next_")) for name, column in columns.items()
        ]
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(named))


def _column(
    values: Array, kind: np.dtype[Any], single: bool, missing: NDArray[np.bool_] | None = None
) -> Any:
    """Rows as a column of numbers or of lists of one length, null where missing."""
    pa = needed("pyarrow", "offline")
    if missing is not None:
        values = np.where(missing[:, None], 0.0, values)
    flat = np.ascontiguousarray(values).reshape(-1).astype(kind)
    if single:
        return pa.array(flat, mask=missing)
    inside = pa.field("element", pa.from_numpy_dtype(kind), nullable=False)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(flat),
        type=pa.list_(inside, values.shape[1]),
        mask=None if missing is None else pa.array(missing),
    )


@contextlib.contextmanager
def _table(path: Path, layout: _Layout) -> Iterator[Callable[[Rows], None]]:
    """A table to which row groups are written, one for each call."""
    parquet = needed("pyarrow.parquet", "offline")
    folder = os.path.dirname(os.path.realpath(check.path(path, "path")))
    if not os.path.isdir(folder):
        raise DatasetError(f"{path} cannot be written: there is no folder {folder}")
    writer: Any = None
    with atomic(path) as file:

        def write(rows: Rows) -> None:
            nonlocal writer
            batch = layout.batch(rows)
            if writer is None:
                writer = parquet.ParquetWriter(
                    file, batch.schema, compression="lz4", use_dictionary=REPEATED, write_page_checksum=True
                )
            writer.write_batch(batch, row_group_size=max(len(rows), 1))

        try:
            yield write
            if writer is None:
                raise DatasetError(f"{path} would have no rows; nothing was written")
        except BaseException:
            with contextlib.suppress(Exception):  # the cause is under way already
                if writer is not None:
                    writer.close()
            raise
        writer.close()


# ── tables from Minari ───────────────────────────────────────────────────────────────────────────────


def convert(dataset: Any, path: Path, *, rows_per_group: int = ROWS_PER_GROUP) -> int:
    """Write a Minari dataset, given by its id or itself, as a table; returns the number of rows."""
    logs = open_dataset(PREFIX + dataset if isinstance(dataset, str) else dataset)
    if not isinstance(logs, Minari):
        raise TypeError(f"dataset is a {type(dataset).__name__}; expected a Minari dataset or its id")
    size = check.at_least_one(rows_per_group, "rows_per_group")
    layout = _Layout(
        single_observation=False,
        single_action=logs.names[-1] == "action" and logs.discrete_action,
        discrete=logs.discrete_action,
        episodes=True,
    )
    written = 0
    with _table(path, layout) as write:
        for partition in logs.partitions:
            for rows in logs.read(partition, size):
                write(rows)
                written += len(rows)
    return written


# ── tables from an environment ───────────────────────────────────────────────────────────────────────


def record(
    env: Any,
    policy: Any,
    path: Path,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    deterministic: bool = True,
    rows_per_group: int = ROWS_PER_GROUP,
    progress_bar: bool = False,
) -> int:
    """Play episodes in an environment and write every transition; returns the number of rows.

    Parameters
    ----------
    env : gymnasium.Env or str
        A single environment, or the id of one.
    policy : object with predict, callable, or None
        Stable-Baselines3's `predict`, asked with `deterministic`; or a function from an observation to an
        action; or None for actions at random. It is asked once in every state, and its answer is both the
        row's next action and the next row's action.
    path : path
        The table to write.
    episodes : int, optional
        How many to play. One of this and `steps` must be given; it ends at whichever comes first.
    steps : int, optional
        How many to take; the episode that this cuts short is marked as truncated.
    seed : int, optional
        Settles all episodes' beginnings, and the actions at random.
    deterministic : bool
        What `predict` is asked with.
    rows_per_group : int
        Rows in a row group of the file.
    progress_bar : bool
        Whether to show progress on standard error.
    """
    if episodes is None and steps is None:
        raise ValueError("neither episodes nor steps is given; expected at least one, to know when to stop")
    most = None if steps is None else check.count(steps, "steps")
    many = None if episodes is None else check.count(episodes, "episodes")
    size = check.at_least_one(rows_per_group, "rows_per_group")
    entropy = np.random.SeedSequence().entropy if seed is None else check.count(seed, "seed")
    with (
        _made(env) as made,
        Progress("record", many if most is None else most, shown=progress_bar) as progress,
    ):
        player = _Player(made, policy, entropy, deterministic)
        written = 0
        with _table(path, player.layout) as write:
            for rows in player.play(many, most, size, progress):
                write(rows)
                written += len(rows)
    return written


@contextlib.contextmanager
def _made(env: Any) -> Iterator[Any]:
    """The environment; one that is made here is closed again."""
    if not isinstance(env, str):
        yield env
        return
    try:
        made = gymnasium.make(env)
    except Exception as error:
        raise DatasetError(f"env = {env!r} cannot be made: {error}") from error
    try:
        yield made
    finally:
        made.close()


class _Player:
    """An environment and who plays in it."""

    def __init__(self, env: Any, policy: Any, entropy: Any, deterministic: bool) -> None:
        if isinstance(env, VectorEnv):
            raise TypeError(
                f"env is a {type(env).__name__}; expected a single environment: gymnasium.make(id)"
            )
        observation, action = environments.check(env)
        self._observations, self._actions = Observations(observation), Actions(action)
        self._course = environments.course(env, self._observations, self._actions)
        self._entropy, self._deterministic = entropy, deterministic
        self._rng = np.random.default_rng(np.random.SeedSequence([entropy, APART]))
        self._choose = self._choice(policy)
        self.layout = _Layout(
            single_observation=False,
            single_action=self._actions.names == ("action",) and not self._actions.continuous,
            discrete=not self._actions.continuous,
            episodes=True,
        )

    def _choice(self, policy: Any) -> Callable[[Any], Any]:
        """From an observation to an action, None for one at random."""
        if policy is None:
            return lambda observation: None
        if callable(getattr(policy, "predict", None)):
            return lambda observation: policy.predict(observation, deterministic=self._deterministic)[0]
        if callable(policy):
            return lambda observation: policy(observation)
        raise TypeError(
            f"policy is a {type(policy).__name__}; expected something with predict, a function, or None"
        )

    def _action(self, observation: Any) -> Array:
        chosen = self._choose(observation)
        if chosen is None:
            return self._actions.random(1, self._rng)[0]
        try:
            return self._actions.row(chosen)
        except SpaceError as error:
            raise SpaceError(f"the policy's {error}") from error

    def play(self, episodes: int | None, steps: int | None, size: int, progress: Progress) -> Iterator[Rows]:
        """Rows, `size` at a time."""
        waiting: list[tuple[Any, ...]] = []
        played = 0
        for episode in itertools.count() if episodes is None else range(episodes):
            if steps is not None and played >= steps:
                break
            for row in self._episode(episode, None if steps is None else steps - played):
                waiting.append(row)
                played += 1
                if len(waiting) == size:
                    yield _rows(waiting)
                    waiting = []
            done = episode + 1
            progress(done if steps is None else played, f"{played} rows, {done} episodes")
        if waiting:
            yield _rows(waiting)

    def _episode(self, episode: int, most: int | None) -> Iterator[tuple[Any, ...]]:
        """The rows of an episode, cut off after `most`."""
        seed = np.random.SeedSequence([self._entropy, APART, episode]).generate_state(1)[0]
        begun = self._course.begin(0, int(seed))
        assert begun is not None
        observation, x = begun
        a = self._action(observation)
        for step in itertools.count():
            [happening] = self._course.step([a])
            assert happening is not None
            cut = happening.truncated or (step + 1 == most and not happening.terminated)
            next_a = a if happening.terminated else self._action(happening.observation)
            yield (
                x, a, happening.reward, happening.row, next_a,
                happening.terminated, cut, episode, step,
            )  # fmt: skip
            if happening.terminated or cut:
                return
            x, a = happening.row, next_a


def _rows(records: list[tuple[Any, ...]]) -> Rows:
    """Rows of a table from its records; a terminated row's next action is null."""
    x, a, rewards, next_x, next_a, terminated, truncated, episodes, steps = zip(*records, strict=True)
    over = np.array(terminated, dtype=np.bool_)
    return Rows(
        observations=np.array(x),
        actions=np.array(a),
        rewards=np.array(rewards, dtype=np.float64),
        next_observations=np.array(next_x),
        next_actions=np.array(next_a),
        terminated=over,
        truncated=np.array(truncated, dtype=np.bool_),
        episodes=np.array(episodes, dtype=np.int64),
        steps=np.array(steps, dtype=np.int64),
        starts=np.array(steps) == 0,
        numbers=np.arange(len(records)),
        no_action=over,
    )
