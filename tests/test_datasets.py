"""Logged transitions: round trips, partitions and chains, truncation, target policies, Minari, refusals."""

from __future__ import annotations

import os
import pickle
import re
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsarsa import Transitions
from gpsarsa.control import EnvironmentFault, SarsaAgent
from gpsarsa.offline import _parquet, _records, _schema, recording
from gpsarsa.offline.datasets import Block, DatasetError, open_dataset
from gpsarsa.offline.recording import convert, record, write_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

GAMMA = 0.9
TERMINATED, TRUNCATED, CUT = "terminated", "truncated", "truncated with a next action"


# ── logs made by hand ────────────────────────────────────────────────────────────────────────────────


def logs(episodes, *, observation=2, action=None, seed=0):
    """The columns of a table, from (length, ending) of each episode; action columns None for a number."""
    rng = np.random.default_rng(seed)
    parts = []
    for number, (length, ending) in enumerate(episodes):
        x = rng.standard_normal((length + 1, observation))
        a = rng.integers(4, size=length + 1) if action is None else rng.random((length + 1, action))
        last = np.arange(length) == length - 1
        parts.append(
            {
                "observation": x[:-1],
                "action": a[:-1],
                "reward": rng.standard_normal(length),
                "next_observation": x[1:],
                "next_action": a[1:],
                "terminated": last & (ending == TERMINATED),
                "truncated": last & (ending != TERMINATED),
                "episode": np.full(length, number),
                "step": np.arange(length),
                "gone": last & (ending != CUT),
            }
        )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    gone = columns.pop("gone")
    mask = gone if action is None else np.repeat(gone[:, None], action, axis=1)
    columns["next_action"] = np.ma.masked_array(columns["next_action"], mask)
    return columns


def expected(columns, gamma=GAMMA, *, chains=True):
    """The transitions of the columns, row by row; and which rows begin an episode."""
    rows, first = [], []
    for i in range(len(columns["reward"])):
        over = columns["terminated"][i]
        if np.ma.getmaskarray(columns["next_action"])[i].any() and not over:
            continue
        x = [*np.atleast_1d(columns["observation"][i]), *np.atleast_1d(columns["action"][i])]
        following = [*np.atleast_1d(columns["next_observation"][i])]
        following += [*np.atleast_1d(columns["next_action"].data[i])]
        start = columns["step"][i] == 0
        rows.append((x, columns["reward"][i], x if over else following, 0.0 if over else gamma, start))
        first.append(start and chains)
    x, r, following, discounts, starts = zip(*rows, strict=True)
    return Transitions(x, r, following, discounts, np.array(starts) | (not chains)), np.array(first)


def everything(data, **how):
    """All blocks of all partitions as one; the first row of each partition must be a start."""
    blocks = []
    for partition in data.partitions:
        mine = list(data.blocks(partition, **{"gamma": GAMMA, **how}))
        used = [block for block in mine if len(block.transitions)]
        assert not used or used[0].transitions.starts[0]
        blocks += mine
    for block in blocks:
        check_block(block)
    return Block.concatenate(blocks)


def check_block(block):
    """What the compiled loops rely on."""
    t, n = block.transitions, len(block.transitions)
    for array in t._arrays:
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert len(array) == n
    assert [array.dtype.kind for array in t._arrays] == list("ffffb")
    assert len(block.first) == len(block.episodes) == n
    assert block.episodes.dtype == np.int64
    ended = t.discounts == 0
    assert np.array_equal(t.next_inputs[ended], t.inputs[ended])


def same(a, b):
    assert len(a) == len(b)
    assert a == b


EPISODES = [(5, TERMINATED), (3, TRUNCATED), (1, TERMINATED), (1, TRUNCATED), (7, CUT), (4, TERMINATED)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "logs.parquet"
    write_table(path, **logs(EPISODES))
    return path


def arrow(columns, **types):
    """The columns as an Arrow table of plain lists, `types` giving some of them another type."""
    arrays = {}
    for name, values in columns.items():
        plain = [None if np.ma.is_masked(value) else np.asarray(value).tolist() for value in values]
        arrays[name] = pa.array(plain, type=types.get(name))
    return pa.table(arrays)


# ── round trips ──────────────────────────────────────────────────────────────────────────────────────


def test_a_table_comes_back(file):
    data = open_dataset(file)
    block = everything(data)
    transitions, first = expected(logs(EPISODES))
    same(block.transitions, transitions)
    assert np.array_equal(block.first, first)
    assert (data.rows, len(data.partitions), block.left_out, block.file) == (21, 1, 2, 0)
    assert (data.observation_columns, data.action_columns, data.discrete_action) == (2, 1, True)
    assert data.has_episodes
    assert data.names == ("observation[0]", "observation[1]", "action")
    assert block.target_first is None
    begun = np.flatnonzero(logs(EPISODES)["step"] == 0)  # an episode is known by its first row
    assert np.array_equal(np.unique(block.episodes), np.delete(begun, 3))  # 3 was its only row, left out
    assert len(block.numbers) == 19
    assert np.array_equal(block.numbers[block.first], np.unique(block.episodes))


NUMBERS = [pa.float64(), pa.float32(), pa.float16(), pa.int32(), pa.uint8(), pa.decimal128(12, 4), pa.bool_()]
LISTS = [pa.list_, pa.large_list, lambda inner: pa.list_(inner, 2)]


@pytest.mark.parametrize("inner", NUMBERS, ids=str)
@pytest.mark.parametrize("listed", LISTS, ids=["list", "large", "fixed"])
def test_any_list_of_any_numbers(tmp_path, inner, listed):
    """Whole numbers survive every type; the last next observation and action are null."""
    columns = logs([(4, TERMINATED), (3, CUT)])
    for name in ("observation", "next_observation"):
        columns[name] = (columns[name] > 0).astype(int)
    types = {name: listed(inner) for name in ("observation", "next_observation")}
    values = {name: column.tolist() for name, column in columns.items()}
    if inner == pa.bool_():
        for name in types:
            values[name] = [[bool(v) for v in row] for row in values[name]]
    values["next_observation"][3] = None
    table = pa.table({name: pa.array(column, type=types.get(name)) for name, column in values.items()})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    same(everything(open_dataset(tmp_path / "t.parquet", rows_per_partition=1)).transitions,
         expected(columns)[0])  # fmt: skip


@pytest.mark.parametrize("action", [None, 1, 3])
@pytest.mark.parametrize("observation", [1, 4])
@pytest.mark.parametrize("plain", [True, False])
def test_actions_and_observations_of_every_width(tmp_path, action, observation, plain):
    columns = logs(EPISODES, observation=observation, action=action)
    if plain:
        pq.write_table(arrow(columns), tmp_path / "t.parquet")
    else:
        write_table(tmp_path / "t.parquet", **columns)
    data = open_dataset(tmp_path / "t.parquet")
    same(everything(data).transitions, expected(columns)[0])
    assert data.discrete_action == (action is None)
    assert data.names[observation:] == (
        ("action",) if action is None else tuple(f"action[{i}]" for i in range(action))
    )


def test_multi_discrete_actions_and_single_observations(tmp_path):
    columns = logs(EPISODES, action=2)
    columns["action"] = (columns["action"] * 9).astype(int)
    columns["next_action"] = (columns["next_action"] * 9).astype(int)
    for name in ("observation", "next_observation"):
        columns[name] = columns[name][:, 0]
    write_table(tmp_path / "t.parquet", **columns)
    data = open_dataset(tmp_path / "t.parquet")
    same(everything(data).transitions, expected(columns)[0])
    assert data.discrete_action
    assert data.names == ("observation", "action[0]", "action[1]")


@pytest.mark.parametrize("missing", [None, np.nan])
def test_next_actions_that_pandas_made_floats(tmp_path, missing):
    """A column of whole numbers with gaps becomes one of floats there."""
    columns = logs(EPISODES)
    table = arrow(columns)
    gone = np.ma.getmaskarray(columns["next_action"])
    floats = [missing if g else float(a) for g, a in zip(gone, columns["next_action"].data, strict=True)]
    table = table.set_column(4, "next_action", pa.array(floats, type=pa.float64()))
    pq.write_table(table, tmp_path / "t.parquet")
    block = everything(open_dataset(tmp_path / "t.parquet"))
    same(block.transitions, expected(columns)[0])
    assert block.left_out == 2


def test_rows_without_episodes_stand_alone(tmp_path):
    columns = logs(EPISODES)
    alone = {name: column for name, column in columns.items() if name not in ("episode", "step")}
    write_table(tmp_path / "t.parquet", **alone, rows_per_group=4)
    data = open_dataset(tmp_path / "t.parquet", rows_per_partition=4)
    block = everything(data, rows=3)
    assert (len(data.partitions), data.has_episodes) == (6, False)
    assert block.transitions.starts.all()
    assert not block.first.any()
    assert set(block.episodes) == {-1}
    same(block.transitions, expected(columns, chains=False)[0])


def test_discount_zero_and_both_endings_at_once(tmp_path):
    columns = logs(EPISODES)
    columns["truncated"] |= columns["terminated"]
    write_table(tmp_path / "t.parquet", **columns)
    same(everything(open_dataset(tmp_path / "t.parquet"), gamma=0.0).transitions, expected(columns, 0.0)[0])


# ── partitions ───────────────────────────────────────────────────────────────────────────────────────

endings = st.sampled_from([TERMINATED, TRUNCATED, CUT])
episodes = st.tuples(st.integers(1, 9), endings)
sizes = st.integers(1, 40)


@settings(max_examples=50)
@given(
    files=st.lists(st.lists(episodes, min_size=1, max_size=6), min_size=1, max_size=3),
    group=sizes, partition=sizes, block=sizes, fixed=st.booleans(),
)  # fmt: skip
def test_any_cut_gives_the_same_chains(files, group, partition, block, fixed):
    with tempfile.TemporaryDirectory() as folder:
        wanted, first = [], []
        for i, episodes in enumerate(files):
            columns = logs(episodes, seed=i)
            path = Path(folder) / f"{i}.parquet"
            if fixed:
                write_table(path, **columns, rows_per_group=group)
            else:
                pq.write_table(arrow(columns), path, row_group_size=group)
            if (columns["terminated"] | ~np.ma.getmaskarray(columns["next_action"])).any():
                transitions, begins = expected(columns)
                wanted.append(transitions)
                first.append(begins)
        data = open_dataset(folder, rows_per_partition=partition)
        found = everything(data, rows=block)
        assert len({p.key for p in data.partitions}) == len(data.partitions)
        assert [p.index for p in data.partitions] == list(range(len(data.partitions)))
        assert found.left_out == sum(ending == TRUNCATED for episodes in files for _, ending in episodes)
        if wanted:
            same(found.transitions, Transitions.concatenate(wanted))
            assert np.array_equal(found.first, np.concatenate(first))
        else:
            assert len(found.transitions) == 0


def test_an_episode_longer_than_many_partitions(tmp_path):
    columns = logs([(100, TERMINATED), (2, TERMINATED)])
    write_table(tmp_path / "t.parquet", **columns, rows_per_group=10)
    data = open_dataset(tmp_path / "t.parquet", rows_per_partition=10)
    lengths = [sum(len(b.transitions) for b in data.blocks(p, gamma=GAMMA, rows=7)) for p in data.partitions]
    assert lengths == [100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    same(everything(data, rows=7).transitions, expected(columns)[0])


def test_partitions_are_near_the_size_asked_for(tmp_path):
    write_table(tmp_path / "t.parquet", **logs([(10, TERMINATED)] * 100), rows_per_group=30)
    sizes = {
        size: [p.last - p.first + 1 for p in open_dataset(tmp_path, rows_per_partition=size).partitions]
        for size in (1, 30, 60, 80, 10**6)
    }
    assert sizes[1] == sizes[30] == [1] * 34
    assert sizes[60][:-1] == [2] * (len(sizes[60]) - 1)
    assert sizes[80][:-1] == [3] * (len(sizes[80]) - 1)
    assert sizes[10**6] == [34]


def test_datasets_and_partitions_travel(file):
    data = open_dataset(file, rows_per_partition=1)
    there = pickle.loads(pickle.dumps(data))
    assert there.partitions == data.partitions
    assert len(pickle.dumps(data.partitions[0])) < 500
    assert {data.partitions[0]: 1}[there.partitions[0]] == 1
    same(everything(there).transitions, everything(data).transitions)


def test_keys_know_an_unchanged_file(file):
    keys = [p.key for p in open_dataset(file).partitions]
    assert [p.key for p in open_dataset(str(file)).partitions] == keys
    data = open_dataset(file)
    write_table(file, **logs(EPISODES, seed=1))
    assert [p.key for p in open_dataset(file).partitions] != keys
    with pytest.raises(
        DatasetError, match=r"logs\.parquet has changed since it was opened; open the dataset"
    ):
        list(data.blocks(data.partitions[0], gamma=GAMMA))


def test_a_partition_of_another_dataset(file, tmp_path):
    write_table(tmp_path / "other.parquet", **logs(EPISODES))
    [other] = open_dataset(tmp_path / "other.parquet").partitions
    for stranger in (other, replace(open_dataset(file).partitions[0], last=9)):
        with pytest.raises(DatasetError, match="not one of this dataset"):
            list(open_dataset(file).blocks(stranger, gamma=GAMMA))


def test_only_the_columns_that_are_needed(file):
    """Others may hold anything."""
    table = pq.read_table(file).append_column("info", pa.array([{"a": "b"}] * 21))
    pq.write_table(table, file)
    same(everything(open_dataset(file)).transitions, expected(logs(EPISODES))[0])


def test_sources_are_files_folders_patterns_and_lists(tmp_path):
    for name in ("b/2.parquet", "b/1.parquet", "a.parquet", "_temporary/3.parquet", ".hidden.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_table(tmp_path / name, **logs([(2, TERMINATED)]))

    def found(source):
        return [os.path.relpath(p.file, tmp_path) for p in open_dataset(source).partitions]

    assert found(tmp_path) == ["a.parquet", "b/1.parquet", "b/2.parquet"]
    assert found(str(tmp_path / "b" / "*.parquet")) == ["b/1.parquet", "b/2.parquet"]
    assert found(tmp_path / "[ab]*") == ["a.parquet", "b/1.parquet", "b/2.parquet"]
    assert found(tmp_path / "b/**") == ["b/1.parquet", "b/2.parquet"]
    assert found([tmp_path / "b/2.parquet", str(tmp_path / "b")]) == ["b/2.parquet", "b/1.parquet"]


def test_the_whole_disk_is_not_searched(tmp_path):
    (tmp_path / "root").symlink_to("/")
    for source in ("/", "//", tmp_path / "root", ["/."]):
        with pytest.raises(DatasetError, match="is the whole disk; name the folder that holds the tables"):
            open_dataset(source)


def test_files_without_rows_are_passed_over(file, tmp_path):
    pq.write_table(pq.read_table(file)[:0], tmp_path / "empty.parquet")
    assert open_dataset(tmp_path).rows == 21


# ── target policies ──────────────────────────────────────────────────────────────────────────────────


class Sign:
    """Says 1 where the first number of an observation is above 0; remembers what it was given."""

    def __init__(self, space=None, width=1):
        self.given, self.width = [], width
        if space is not None:
            self.observation_space = space

    def predict(self, observation, deterministic=False):
        assert deterministic
        self.given.append(observation)
        flat = observation["a"] if isinstance(observation, dict) else observation
        chosen = (np.asarray(flat).reshape(len(flat), -1)[:, 0] > 0).astype(int)
        return (chosen if self.width == 1 else np.repeat(chosen[:, None], self.width, axis=1)), None


@pytest.mark.parametrize("action", [None, 2])
@pytest.mark.parametrize("rows", [3, 1000])
def test_the_target_says_what_comes_next(tmp_path, action, rows):
    columns = logs(EPISODES, action=action)
    write_table(tmp_path / "t.parquet", **columns, rows_per_group=5)
    policy = Sign(width=action or 1)
    data = open_dataset(tmp_path / "t.parquet", rows_per_partition=5)
    block = everything(data, target_policy=policy, rows=rows)
    t = block.transitions
    assert (len(t), block.left_out) == (21, 0)
    over = columns["terminated"]
    asked = (columns["next_observation"][:, :1] > 0).astype(float)
    assert np.array_equal(t.next_inputs[~over, :2], columns["next_observation"][~over])
    assert np.array_equal(t.next_inputs[~over, 2:], np.repeat(asked, action or 1, axis=1)[~over])
    assert np.array_equal(t.discounts, np.where(over, 0, GAMMA))
    begins = columns["step"] == 0
    assert np.array_equal(block.first, begins)
    now = (columns["observation"][begins][:, :1] > 0).astype(float)
    assert np.array_equal(block.target_first[:, :2], columns["observation"][begins])
    assert np.array_equal(block.target_first[:, 2:], np.repeat(now, action or 1, axis=1))
    assert sum(len(given) for given in policy.given) == (~over).sum() + begins.sum()
    continues = np.zeros(21, dtype=bool)
    continues[1:] = ~begins[1:] & (t.inputs[1:] == t.next_inputs[:-1]).all(axis=1)
    assert np.array_equal(t.starts, ~continues)


def test_a_target_that_does_what_was_done_keeps_the_chains(tmp_path):
    columns = logs([(6, TERMINATED), (4, CUT)])
    columns["action"] = (columns["observation"][:, 0] > 0).astype(int)
    columns["next_action"] = np.ma.masked_array(
        (columns["next_observation"][:, 0] > 0).astype(int), columns["next_action"].mask
    )
    write_table(tmp_path / "t.parquet", **columns)
    data = open_dataset(tmp_path / "t.parquet")
    same(everything(data, target_policy=Sign(), rows=3).transitions, everything(data).transitions)


SPACES = {
    "float32": (spaces.Box(-9, 9, (2,), np.float32), lambda given: given.dtype == np.float32),
    "matrix": (spaces.Box(-9, 9, (2, 1)), lambda given: given.shape[1:] == (2, 1)),
    "whole": (spaces.MultiDiscrete([9, 9]), lambda given: given.dtype.kind == "i"),
    "dict": (
        spaces.Dict({"a": spaces.Box(-9, 9, ()), "b": spaces.Discrete(9)}),
        lambda given: given["a"].ndim == given["b"].ndim == 1 and given["b"].dtype.kind == "i",
    ),
}


@pytest.mark.parametrize("kind", SPACES)
def test_a_target_is_given_what_its_space_says(file, kind):
    space, right = SPACES[kind]
    policy = Sign(space)
    everything(open_dataset(file), target_policy=policy)
    assert policy.given
    assert all(right(given) for given in policy.given)


def test_an_agent_as_the_target(tmp_path):
    agent = SarsaAgent(gymnasium.make("CartPole-v1"), seed=0)
    agent.learn(300)
    assert agent.acting_model is not None
    record("CartPole-v1", None, tmp_path / "t.parquet", steps=30, seed=0)
    data = open_dataset(tmp_path / "t.parquet")
    t = everything(data, target_policy=agent).transitions
    going = t.discounts > 0
    actions, _ = agent.predict(t.next_inputs[going, :4].astype(np.float32))
    assert np.array_equal(t.next_inputs[going, 4], actions)


def test_an_agent_that_observes_a_category(tmp_path):
    class Corridor(gymnasium.Env):
        observation_space, action_space = spaces.Discrete(5), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.at = 0
            return self.at, {}

        def step(self, action):
            self.at = max(0, self.at + 2 * int(action) - 1)
            return self.at, float(self.at == 4), self.at == 4, False, {}

    agent = SarsaAgent(Corridor(), seed=0)
    record(Corridor(), None, tmp_path / "t.parquet", episodes=3, seed=0)
    with pytest.raises(DatasetError, match="an agent that has learnt nothing yet and acts at random"):
        everything(open_dataset(tmp_path / "t.parquet"), target_policy=agent)
    agent.learn(400)
    block = everything(open_dataset(tmp_path / "t.parquet"), target_policy=agent)
    assert len(block.target_first) == 3


class Answers:
    def __init__(self, answer):
        self.answer = answer

    def predict(self, observation, deterministic):
        return self.answer(len(observation)), None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.zeros((n, 2)), r"gave float64 of shape \(18, 2\) for 18 .* an action of 1 number"),
        (lambda n: 0, r"gave int64 of shape \(\) for"),
        (lambda n: np.array(["left"] * n), "gave <U4"),
        (lambda n: np.full(n, 0.5), r"gave the action \[0\.5\]; the table's actions are whole"),
        (lambda n: np.full(n, np.nan), "not finite"),
    ],
)
def test_targets_that_answer_wrongly(file, answer, message):
    with pytest.raises(DatasetError, match=message):
        everything(open_dataset(file), target_policy=Answers(answer))


def test_targets_that_are_none(file):
    data = open_dataset(file)
    with pytest.raises(TypeError, match="target_policy is a int; expected something with predict"):
        data.blocks(data.partitions[0], gamma=GAMMA, target_policy=3)
    with pytest.raises(DatasetError, match="takes observations of 3 numbers; the table's have 2"):
        data.sample(1, np.random.default_rng(), gamma=GAMMA, target_policy=Sign(spaces.Box(0, 1, (3,))))


def test_a_column_of_nulls_will_do_for_a_target(file):
    table = pq.read_table(file)
    pq.write_table(table.set_column(4, "next_action", pa.nulls(21)), file)
    data = open_dataset(file)
    assert len(everything(data, target_policy=Sign()).transitions) == 21
    with pytest.raises(DatasetError, match="row 0: next_action is null"):
        everything(data)


def test_truncated_without_a_next_observation_is_left_out(file):
    table = pq.read_table(file)
    column = table.column("next_observation").to_pylist()
    column[7] = None  # where episode 1 was truncated
    pq.write_table(table.set_column(3, "next_observation", pa.array(column)), file)
    data = open_dataset(file)
    assert everything(data).left_out == 2
    assert everything(data, target_policy=Sign()).left_out == 1


# ── samples ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def many(tmp_path):
    """Two files of 400 episodes each, whose rewards number their rows."""
    for i in range(2):
        columns = logs([(5 + k % 7, TERMINATED) for k in range(400)], seed=i)
        columns["reward"] = 10_000.0 * i + np.arange(len(columns["reward"]))
        write_table(tmp_path / f"{i}.parquet", **columns, rows_per_group=100)
    return tmp_path


def test_a_sample_is_whole_episodes_from_all_over(many):
    data = open_dataset(many)
    block = data.sample(1000, np.random.default_rng(0), gamma=GAMMA)
    t = block.transitions
    assert 1000 <= len(t) < 1011
    check_block(block)
    numbers = t.rewards
    assert len(np.unique(numbers)) == len(t)
    assert np.array_equal(t.starts[1:], (np.diff(numbers) != 1) | block.first[1:])
    pieces = t.starts.sum()
    assert block.first.sum() > 0.85 * pieces  # the others were under way where a row group begins
    assert 0.3 < (numbers >= 10_000).mean() < 0.7


def test_samples_follow_the_generator(many):
    data = open_dataset(many)
    a, b, c = (data.sample(500, np.random.default_rng(seed), gamma=GAMMA) for seed in (0, 0, 1))
    same(a.transitions, b.transitions)
    assert a.transitions != c.transitions


@pytest.mark.parametrize("chains", [True, False])
def test_every_row_is_about_as_likely_to_be_drawn(tmp_path, chains):
    """Whatever the length of its episode and the size of its row group."""
    made = {
        "a": ([(1500, TERMINATED)] * 2, 700),
        "b": ([(8, TERMINATED)] * 375, 50),
        "c": ([(20, CUT)] * 150, 3000),
    }
    for i, (name, (episodes, group)) in enumerate(made.items()):
        columns = logs(episodes)
        columns["reward"] = 3000.0 * i + np.arange(3000)
        if not chains:
            del columns["episode"], columns["step"]
        write_table(tmp_path / f"{name}.parquet", **columns, rows_per_group=group)
    data, rng, counts = open_dataset(tmp_path), np.random.default_rng(0), np.zeros(9000)
    for _ in range(50):
        block = data.sample(600, rng, gamma=GAMMA)
        assert 550 <= len(block.transitions) < 750
        np.add.at(counts, block.transitions.rewards.astype(int), 1)
    rates = counts.reshape(3, -1).mean(axis=1) / counts.mean()
    assert np.abs(rates - 1).max() < 0.2
    assert (counts == 0).mean() < 0.1  # (1 - 1/15)^50 = 0.03 if they were drawn one by one


def test_a_sample_reads_only_a_part(many, monkeypatch):
    data = open_dataset(many)
    read, batches = [], _parquet.batches

    def counted(file, groups, columns, count):
        for batch in batches(file, groups, columns, count):
            read.append(len(batch) if len(columns) > 1 else 0)
            yield batch

    monkeypatch.setattr(_parquet, "batches", counted)
    data.sample(100, np.random.default_rng(0), gamma=GAMMA)
    assert sum(read) <= 1600


def test_a_sample_of_all_rows_is_all_rows(many):
    data = open_dataset(many)
    block = data.sample(10**6, np.random.default_rng(0), gamma=GAMMA)
    whole = everything(data)
    same(block.transitions, whole.transitions)
    assert np.array_equal(block.first, whole.first)


def test_long_episodes_give_stretches(tmp_path):
    columns = logs([(1000, TERMINATED)] * 3)
    columns["reward"] = np.arange(3000.0)
    write_table(tmp_path / "t.parquet", **columns, rows_per_group=700)
    t = open_dataset(tmp_path).sample(200, np.random.default_rng(0), gamma=GAMMA).transitions
    assert len(t) == 200
    assert 1 < t.starts.sum() <= 4  # parts of 50 rows, of which neighbours go on
    assert np.array_equal(t.starts[1:], np.diff(t.rewards) != 1)


@pytest.mark.parametrize("count", [1, 50, 5000])
def test_samples_of_rows_without_episodes(tmp_path, count):
    columns = {k: v for k, v in logs([(7, TERMINATED)] * 50).items() if k not in ("episode", "step")}
    write_table(tmp_path / "t.parquet", **columns, rows_per_group=30)
    block = open_dataset(tmp_path).sample(count, np.random.default_rng(0), gamma=GAMMA)
    assert len(block.transitions) == min(count, 350)
    assert len(np.unique(block.transitions.rewards)) == min(count, 350)


def test_a_sample_with_a_target(many):
    block = open_dataset(many).sample(100, np.random.default_rng(0), gamma=GAMMA, target_policy=Sign())
    assert len(block.target_first) == block.first.sum() > 0


# ── transitions in memory ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 7, 10, 1000])
def test_transitions_in_memory(size):
    transitions, _ = expected(logs(EPISODES))
    data = open_dataset(transitions, rows_per_partition=size)
    block = everything(data, rows=4)
    same(block.transitions, transitions)
    assert data.has_episodes
    assert np.array_equal(block.first, transitions.starts)
    assert (data.rows, data.action_columns, data.names[0]) == (19, 0, "input[0]")
    assert pickle.loads(pickle.dumps(data)).partitions == data.partitions
    assert data.partitions[0].key != open_dataset(transitions[1:], rows_per_partition=size).partitions[0].key
    if size == 1:
        assert len(data.partitions) == transitions.starts.sum()


def test_samples_of_transitions():
    transitions, _ = expected(logs([(5, TERMINATED)] * 40))
    data = open_dataset(transitions)
    block = data.sample(50, np.random.default_rng(0), gamma=GAMMA)
    assert len(block.transitions) == 50
    assert block.transitions.starts.sum() == block.first.sum() == 10
    same(data.sample(999, np.random.default_rng(0), gamma=GAMMA).transitions, transitions)


def test_transitions_that_stand_alone():
    transitions, _ = expected(logs(EPISODES), chains=False)
    data = open_dataset(transitions, rows_per_partition=8)
    assert not data.has_episodes
    assert [p.last - p.first + 1 for p in data.partitions] == [8, 8, 3]
    assert not everything(data).first.any()


def test_transitions_without_rows_or_with_a_target():
    with pytest.raises(DatasetError, match="hold no rows"):
        open_dataset(Transitions(np.empty((0, 1)), [], np.empty((0, 1)), []))
    data = open_dataset(expected(logs(EPISODES))[0])
    with pytest.raises(DatasetError, match=r"which columns are the action's.*write_table"):
        data.blocks(data.partitions[0], gamma=GAMMA, target_policy=Sign())


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────


def refused(tmp_path, columns, message, **types):
    """The table is refused, by a message that names its file."""
    path = tmp_path / "bad.parquet"
    table = columns if isinstance(columns, pa.Table) else arrow(columns, **types)
    pq.write_table(table, path, row_group_size=4)
    with pytest.raises(DatasetError, match=re.escape(str(path)) + ".*" + message):
        everything(open_dataset(path), rows=3)


def changed(name, row, value, **how):
    """The usual columns as lists, but for one value."""
    columns = {
        name: [None if np.ma.is_masked(v) else v.tolist() for v in column]
        for name, column in logs(EPISODES, **how).items()
    }
    columns[name][row] = value
    return pa.table(columns)


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        ("reward", 10, np.nan, r"row 10: reward = nan; expected a finite number\. Leave out"),
        ("reward", 10, None, r"row 10: reward is null; expected a value"),
        ("observation", 12, [0.0, np.inf], r"row 12: observation\[1\] = inf; expected a finite"),
        ("observation", 12, None, r"row 12: observation is null"),
        ("observation", 12, [0.0, None], r"row 12: observation is a list with a null; expected numbers"),
        ("observation", 12, [0.0], r"row 12: observation is a list of 1; expected a list of 2"),
        ("observation", 12, [], r"row 12: observation is a list of 0; expected a list of 2"),
        ("observation", 0, [0.0, 1.0, 2.0], r"row 1: observation is a list of 2; expected a list of 3"),
        ("next_observation", 11, [1.0, -np.inf], r"row 11: next_observation\[1\] = -inf; expected a finite"),
        ("next_observation", 11, [1.0] * 3, r"row 11: next_observation is a list of 3; expected a list of 2"),
        ("next_observation", 11, [1.0, None], r"row 11: next_observation is a list with a null"),
        ("next_observation", 11, None, r"row 11: next_observation is null, but .* neither terminated nor"),
        ("next_action", 11, None, r"row 11: next_action is null, but .* Mark the end of an episode"),
        ("action", 11, None, r"row 11: action is null"),
        ("action", 11, 2**60, r"row 11: action is .* expected a whole number below 2\*\*53"),
        ("next_action", 0, 0.5, r"row 0: next_action is 0\.5; expected a whole number, as in"),
        ("terminated", 3, None, r"row 3: terminated is null; expected true or false"),
        ("truncated", 3, None, r"row 3: truncated is null"),
        ("episode", 3, None, r"row 3: episode is null; expected a whole number"),
        ("step", 3, None, r"row 3: step is null"),
        ("step", 13, 4, r"row 13: episode 4 has step = 4 after step 2; expected 3\. Log every step"),
        ("step", 0, 1, r"row 0: episode 0 begins with step = 1; expected 0\. The rows of an episode stand"),
        ("step", 2, -1, r"row 2: episode 0 has step = -1 after step 1; expected 2"),
        ("episode", 13, 9, r"row 13: episode 9 begins with step = 3; expected 0.*sort the table"),
        ("terminated", 12, True, r"row 13: episode 4 goes on with step = 3 after a row that is terminated"),
        ("truncated", 12, True, r"row 13: episode 4 goes on with step = 3"),
    ],
)  # fmt: skip
def test_rows_that_are_refused(tmp_path, name, row, value, message):
    refused(tmp_path, changed(name, row, value), message)


def test_refusals_in_samples_name_the_row(tmp_path):
    for name, row, value, message in [
        ("reward", 10, np.nan, r"row 10: reward = nan"),
        ("observation", 12, [0.0], r"row 12: observation is a list of 1"),
        ("step", 13, 4, r"row 13: episode 4 has step = 4 after step 2"),
    ]:
        pq.write_table(changed(name, row, value), tmp_path / "t.parquet", row_group_size=6)
        with pytest.raises(DatasetError, match=message):
            open_dataset(tmp_path).sample(100, np.random.default_rng(0), gamma=GAMMA)


def test_what_is_never_looked_at_may_be_anything(tmp_path):
    """The next observation and action of a terminated row; a sum that overflows is not infinite."""
    columns = logs(EPISODES, action=1)
    columns["next_observation"][4] = np.nan
    columns["observation"][10:13] = 1.7e308
    pq.write_table(arrow(columns), tmp_path / "t.parquet")
    same(everything(open_dataset(tmp_path)).transitions, expected(columns)[0])


def test_continuous_actions_must_be_finite(tmp_path):
    refused(tmp_path, changed("action", 2, [0.0, np.nan], action=2), r"row 2: action\[1\] = nan")
    refused(tmp_path, changed("next_action", 2, [0.0, np.nan], action=2), r"row 2: next_action\[1\] = nan")
    refused(tmp_path, changed("next_action", 2, [0.0], action=2), r"row 2: next_action is a list of 1")


COLUMNS = {
    "observation": (["a"] * 21, r"column observation holds string; expected numbers, or lists"),
    "action": (
        [0.5] * 21,
        r"column action holds double; expected whole numbers for a discrete action, or lists",
    ),
    "reward": ([[1.0]] * 21, r"column reward holds list<.*>; expected numbers"),
    "next_observation": (
        [1.0] * 21,
        r"column next_observation holds double; expected list<.*>, as observation",
    ),
    "next_action": ([[1]] * 21, r"column next_action holds list<.*>; expected int64, as action"),
    "terminated": ([0] * 21, r"column terminated holds int64; expected bool\. Write a comparison"),
    "truncated": ([0.0] * 21, r"column truncated holds double; expected bool"),
    "episode": (["a"] * 21, r"column episode holds string; expected whole numbers\. Number the episodes"),
    "step": ([0.0] * 21, r"column step holds double; expected whole numbers"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_types_that_are_refused(tmp_path, name):
    values, message = COLUMNS[name]
    table = arrow(logs(EPISODES))
    refused(tmp_path, table.set_column(table.column_names.index(name), name, pa.array(values)), message)


def test_more_types_that_are_refused(tmp_path):
    nested = {**logs(EPISODES), "observation": np.zeros((21, 2, 2))}
    refused(tmp_path, nested, "column observation holds list<.*list<.*; expected .*Flatten arrays")
    words = {**logs(EPISODES), "action": np.array(["left"] * 21)}
    refused(tmp_path, words, "column action holds string; expected numbers")
    refused(
        tmp_path,
        {**logs(EPISODES), "observation": np.zeros((21, 0))},
        "holds empty lists",
        observation=pa.list_(pa.float64(), 0),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("observation", "observations", r"has no column observation\. Rename the column observations"),
        ("next_action", "nextaction", r"has no column next_action\. Rename the column nextaction"),
        (
            "next_action",
            "b",
            r"has no column next_action\. It has observation, .*\. A column of nulls will do",
        ),
        ("terminated", "done", r"has no column terminated\. It has .*done"),
        (
            "episode",
            "episodes",
            r"has a column episodes, which is not read; rename it to episode, or drop it",
        ),
        ("step", "steps", "rename it to step"),
    ],
)
def test_columns_that_are_missing(tmp_path, old, new, message):
    table = arrow(logs(EPISODES))
    refused(tmp_path, table.rename_columns([new if n == old else n for n in table.column_names]), message)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (logs(EPISODES, observation=3), "2.parquet: column observation holds lists of 3, in .* lists of 2"),
        (logs(EPISODES, action=2), "column action holds lists of 2, in .* one number"),
        ({k: v for k, v in logs(EPISODES).items() if k != "step"}, "2.parquet has no column episode"),
        ({k: v for k, v in logs(EPISODES).items() if k != "truncated"}, "2.parquet has no column truncated"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fixed", [True, False])
def test_files_that_disagree(tmp_path, other, message, fixed):
    kinds = {"observation": pa.list_(pa.float64(), other["observation"].shape[1])} if fixed else {}
    pq.write_table(arrow(logs(EPISODES)), tmp_path / "1.parquet")
    pq.write_table(arrow(other, **kinds), tmp_path / "2.parquet")
    with pytest.raises(DatasetError, match=message):
        open_dataset(tmp_path)


def test_files_whose_actions_differ_in_kind(tmp_path):
    pq.write_table(arrow(logs(EPISODES, action=2)), tmp_path / "1.parquet")
    whole = {**logs(EPISODES), "action": np.zeros((21, 2), int), "next_action": np.zeros((21, 2), int)}
    pq.write_table(arrow(whole), tmp_path / "2.parquet")
    with pytest.raises(DatasetError, match=r"column action holds whole numbers, in .*1.parquet floats"):
        open_dataset(tmp_path)


def test_files_may_differ_in_precision(tmp_path):
    columns = logs(EPISODES)
    columns["observation"] = columns["observation"].astype(np.float32).astype(float)
    pq.write_table(arrow(columns), tmp_path / "1.parquet")
    pq.write_table(arrow(columns, observation=pa.list_(pa.float32(), 2)), tmp_path / "2.parquet")
    both = everything(open_dataset(tmp_path)).transitions
    same(both, Transitions.concatenate([expected(columns)[0]] * 2))


def test_sources_that_are_not_there(tmp_path, file):
    for source, message in [
        (tmp_path / "nowhere", "nowhere does not exist"),
        (tmp_path / "log.parquet", r"log\.parquet does not exist; did you mean logs\.parquet\?"),
        (tmp_path / "*.csv", r"no file matches .*\*\.csv"),
        ([], "source is an empty list"),
        (3, "source is a int; expected a path, a list of paths"),
        ([3], "source is a list; expected a path"),
    ]:
        with pytest.raises(DatasetError, match=message):
            open_dataset(source)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"empty holds no \*\.parquet file"):
        open_dataset(tmp_path / "empty")


def test_files_that_cannot_be_read(tmp_path, file, monkeypatch):
    whole = file.read_bytes()
    bad = tmp_path / "bad.parquet"
    for content in (b"", b"a,b\n1,2\n", whole[: len(whole) // 2], whole[:-1]):
        bad.write_bytes(content)
        with pytest.raises(
            DatasetError, match=r"bad\.parquet is damaged, incomplete or no Parquet file: .* again"
        ):
            open_dataset(bad)
    pq.write_table(pq.read_table(file)[:0], bad)
    with pytest.raises(DatasetError, match=r"bad\.parquet has no rows"):
        open_dataset(bad)
    file.unlink()
    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(DatasetError, match=r"bad\.parquet cannot be opened: no permission to read it"):
        _schema.inspected(bad)


def denied(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_a_file_whose_pages_are_damaged(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(path, **logs([(50, TERMINATED)] * 40))
    data = bytearray(path.read_bytes())
    data[4:2000] = b"\xff" * 1996
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"t\.parquet is damaged"):
        everything(open_dataset(path))


def test_a_file_that_vanished(file):
    data = open_dataset(file)
    file.unlink()
    with pytest.raises(DatasetError, match=r"logs\.parquet does not exist"):
        everything(data)


def test_arguments_that_are_refused(file):
    data = open_dataset(file)
    rng = np.random.default_rng(0)
    for call, message in [
        (lambda: open_dataset(file, rows_per_partition=0), "rows_per_partition = 0; expected 1 or more"),
        (lambda: data.blocks(data.partitions[0], gamma=1.1), r"gamma = 1\.1"),
        (lambda: data.blocks(data.partitions[0], gamma=GAMMA, rows=0), "rows = 0"),
        (lambda: data.sample(0, rng, gamma=GAMMA), "count = 0"),
        (lambda: data.sample(9, rng, gamma=-1), "gamma = -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(("module", "extra"), [("pyarrow", "offline"), ("minari", "minari")])
def test_what_is_not_installed(file, monkeypatch, module, extra):
    def missing(name):
        if name.split(".")[0] == module:
            raise ImportError(name)
        return __import__(name)

    monkeypatch.setattr(_records.importlib, "import_module", missing)
    with pytest.raises(DatasetError, match=rf"{module} is not installed: pip install 'gpsarsa\[{extra}\]'"):
        open_dataset(file if module == "pyarrow" else "minari:some/thing-v0")


# ── Minari ───────────────────────────────────────────────────────────────────────────────────────────

NESTED = spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(-1, 1, (2,))})
MINARI = {
    "box": (spaces.Box(-5, 5, (3,), np.float32), spaces.Discrete(4)),
    "discrete": (spaces.Discrete(6), spaces.MultiDiscrete([3, 2])),
    "dict": (NESTED, spaces.Box(-1, 1, (2,), np.float32)),
    "tuple": (spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (1,))]), spaces.Discrete(2)),
}


def stacked(space, values):
    """Values of a space as Minari keeps those of an episode."""
    if isinstance(space, spaces.Dict):
        return {key: stacked(part, [value[key] for value in values]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(part, [v[i] for v in values]) for i, part in enumerate(space.spaces))
    return np.array(values)


def flat(space, value):
    """A value as numbers, in the order of the space."""
    if isinstance(space, spaces.Dict):
        return [x for key, part in space.spaces.items() for x in flat(part, value[key])]
    if isinstance(space, spaces.Tuple):
        return [x for part, v in zip(space.spaces, value, strict=True) for x in flat(part, v)]
    return np.ravel(value).tolist()


def make_minari(name, kind, storage, episodes=EPISODES):
    """A Minari dataset, and its transitions row by row."""
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    if storage == "hdf5":
        pytest.importorskip("h5py")
    observation_space, action_space = MINARI[kind]
    observation_space.seed(0)
    action_space.seed(0)
    buffers, rows = [], []
    for number, (length, ending) in enumerate(episodes):
        x = [observation_space.sample() for _ in range(length + 1)]
        a = [action_space.sample() for _ in range(length)]
        r = np.arange(length) + 100.0 * number
        over = [i == length - 1 and ending == TERMINATED for i in range(length)]
        cut = [i == length - 1 and ending == TRUNCATED for i in range(length)]
        buffers.append(
            EpisodeBuffer(
                observations=stacked(observation_space, x), actions=stacked(action_space, a),
                rewards=r, terminations=np.array(over), truncations=np.array(cut),
            )
        )  # fmt: skip
        for i in range(length if ending == TERMINATED else length - 1):
            now = flat(observation_space, x[i]) + flat(action_space, a[i])
            following = now if over[i] else flat(observation_space, x[i + 1]) + flat(action_space, a[i + 1])
            rows.append((now, r[i], following, 0.0 if over[i] else GAMMA, i == 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            name, buffers, observation_space=observation_space, action_space=action_space, data_format=storage
        )
    return Transitions(*(np.array(column) for column in zip(*rows, strict=True)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


@pytest.mark.parametrize("storage", ["hdf5", "parquet", "arrow"])
@pytest.mark.parametrize("kind", MINARI)
def test_minari_datasets(folder, kind, storage):
    wanted = make_minari(f"made/{kind}-v0", kind, storage)
    data = open_dataset(f"minari:made/{kind}-v0", rows_per_partition=6)
    block = everything(data, rows=4)
    same(block.transitions, wanted)
    assert np.array_equal(block.first, wanted.starts)
    assert (data.rows, data.has_episodes, block.left_out) == (21, True, 3)
    assert len(data.partitions) > 1
    observation_space, action_space = MINARI[kind]
    assert data.action_columns == len(flat(action_space, action_space.sample()))
    assert data.observation_columns == len(flat(observation_space, observation_space.sample()))
    assert data.discrete_action == (kind != "dict")
    assert len(data.names) == wanted.columns
    there = pickle.loads(pickle.dumps(data))
    same(everything(there).transitions, wanted)
    written = convert(f"made/{kind}-v0", folder / "t.parquet", rows_per_group=5)
    table = open_dataset(folder / "t.parquet")
    assert written == table.rows == 21
    same(everything(table).transitions, wanted)
    assert table.discrete_action == data.discrete_action


def test_minari_samples_objects_and_folders(folder):
    minari = pytest.importorskip("minari")
    wanted = make_minari("made-v0", "box", "hdf5", [(5, TERMINATED)] * 40)
    data = open_dataset(minari.load_dataset("made-v0"))
    same(everything(data).transitions, wanted)
    for path in ("minari/made-v0", "minari/made-v0/data"):
        same(everything(open_dataset(folder / path)).transitions, wanted)
    block = data.sample(50, np.random.default_rng(0), gamma=GAMMA)
    assert len(block.transitions) == 50
    assert block.first.sum() == block.transitions.starts.sum() == 10
    assert 12 <= len(data.sample(12, np.random.default_rng(0), gamma=GAMMA).transitions) < 15
    same(data.sample(999, np.random.default_rng(0), gamma=GAMMA).transitions, wanted)


def test_minari_episodes_that_were_chosen(folder):
    minari = pytest.importorskip("minari")
    make_minari("made-v0", "box", "hdf5")
    full = minari.load_dataset("made-v0")
    some = full.filter_episodes(lambda episode: len(episode) > 3)
    data = open_dataset(some)
    assert data.rows == 16
    assert set(everything(data).episodes) == {0, 4, 5}
    assert data.partitions[0].key != open_dataset(full).partitions[0].key


def test_minari_with_a_target(folder):
    make_minari("made-v0", "box", "hdf5")
    block = everything(open_dataset("minari:made-v0"), target_policy=Sign())
    assert (len(block.transitions), block.left_out, len(block.target_first)) == (21, 0, 6)


def test_minari_datasets_that_are_refused(folder, monkeypatch):
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    make_minari("made-v0", "box", "hdf5")
    for name in ("mode-v0", "what is this"):
        with pytest.raises(DatasetError, match=f"{name} is not here.*Found: made-v0.*minari download {name}"):
            open_dataset(f"minari:{name}")

    def make(name, x, a, over, action_space=MINARI["box"][1]):
        one = EpisodeBuffer(
            observations=x, actions=a, rewards=np.zeros(3), terminations=over, truncations=np.zeros(3, bool)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            minari.create_dataset_from_buffers(
                name, [one], observation_space=MINARI["box"][0], action_space=action_space
            )

    x, a, never = np.zeros((4, 3), np.float32), np.zeros(3, int), np.zeros(3, bool)
    make("nan-v0", np.where(np.arange(4)[:, None] == 2, np.nan, x), a, never)
    make("short-v0", x[:3], a, never)
    make("goes-on-v0", x, a, np.array([False, True, False]))
    make("two-v0", x, (a, a), never, spaces.Tuple([spaces.Discrete(2)] * 2))
    for name, message in [
        ("nan", r"episode 0: observation\[0\] = nan in row 2"),
        ("short", "episode 0 has 3 observations and 3 actions for 3 rewards; expected 4 and 3"),
        ("goes-on", "episode 0 goes on after step 1"),
        ("two", "action is a Tuple; expected Box"),
    ]:
        with pytest.raises(DatasetError, match=message):
            everything(open_dataset(f"minari:{name}-v0"))
    data = open_dataset("minari:made-v0")
    with pytest.raises(DatasetError, match="not one of this dataset"):
        data.blocks(replace(data.partitions[0], last=99), gamma=GAMMA).__next__()
    monkeypatch.setattr(minari, "MinariDataset", needs_h5py)
    with pytest.raises(DatasetError, match=r"h5py is not installed.*pip install 'gpsarsa\[minari\]'"):
        everything(data)


def needs_h5py(*_):
    raise ImportError("h5py is not installed")


# ── recording ────────────────────────────────────────────────────────────────────────────────────────


class Counting(gymnasium.Env):
    """Counts its steps: ends at 5 if `ends`, else is cut off there; may fail at some step."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, ends=True, action_space=spaces.Discrete(3), fails=None):  # noqa: B008
        self.action_space, self.ends, self.fails, self.seeds, self.steps = action_space, ends, fails, [], 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.at = 0
        return np.array([0.0, self.np_random.random()]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.at, self.steps = self.at + 1, self.steps + 1
        if self.steps == self.fails:
            raise RuntimeError("the motor is on fire")
        done = self.at == 5
        return np.array([self.at, 0.0]), float(np.sum(action)), done and self.ends, done and not self.ends, {}


@pytest.mark.parametrize("ends", [True, False])
def test_recording_asks_the_policy_once_in_every_state(tmp_path, ends):
    asked = []

    def policy(observation):
        asked.append(observation)
        return len(asked) % 3

    assert record(Counting(ends), policy, tmp_path / "t.parquet", episodes=3, seed=1, rows_per_group=4) == 15
    data = open_dataset(tmp_path / "t.parquet")
    block = everything(data)
    t = block.transitions
    assert (len(t), block.left_out, block.first.sum()) == (15, 0, 3)
    assert np.array_equal(t.discounts, np.tile([GAMMA] * 4 + [0 if ends else GAMMA], 3))
    continues = np.flatnonzero(~t.starts)
    assert np.array_equal(t.inputs[continues], t.next_inputs[continues - 1])
    assert np.array_equal(t.rewards, t.inputs[:, 2])
    assert len(asked) == (15 if ends else 18)
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 4


def test_recording_stops_after_some_steps(tmp_path):
    assert record(Counting(), lambda observation: 1, tmp_path / "t.parquet", steps=7) == 7
    table = pq.read_table(tmp_path / "t.parquet")
    assert table["terminated"].to_pylist() == [False] * 4 + [True] + [False] * 2
    assert table["truncated"].to_pylist() == [False] * 6 + [True]
    assert table["next_action"].to_pylist() == [1, 1, 1, 1, None, 1, 1]
    assert record(Counting(), None, tmp_path / "t.parquet", steps=7, episodes=1) == 5


ACTIONS = {
    "discrete": (spaces.Discrete(3, start=2), pa.int64()),
    "multi": (spaces.MultiDiscrete([2, 3]), pa.int64()),
    "binary": (spaces.MultiBinary(2), pa.int64()),
    "box": (spaces.Box(-1, 2, (2,)), pa.float64()),
    "one": (spaces.Box(-1, 2, (1,)), pa.float64()),
    "scalar": (spaces.Box(-1, 2, ()), pa.float64()),
}


@pytest.mark.parametrize("kind", ACTIONS)
def test_recording_random_actions_of_every_kind(tmp_path, kind):
    space, numbers = ACTIONS[kind]
    env = Counting(action_space=space)
    for name in ("a", "b"):
        record(env, None, tmp_path / name, episodes=3, seed=1)
    assert env.seeds[:3] == env.seeds[3:]
    a, b = (everything(open_dataset(tmp_path / name)).transitions for name in ("a", "b"))
    same(a, b)
    data = open_dataset(tmp_path / "a")
    assert data.discrete_action == (kind in ("discrete", "multi", "binary"))
    stored = pq.read_schema(tmp_path / "a").field("action").type
    assert (stored if kind == "discrete" else stored.value_type) == numbers
    record(env, None, tmp_path / "c", episodes=3)
    assert everything(open_dataset(tmp_path / "c")).transitions != a


def test_recording_an_agent_shows_how_far_it_is(tmp_path, capsys):
    agent = SarsaAgent(gymnasium.make("CartPole-v1"), seed=0)
    agent.learn(300)
    count = record("CartPole-v1", agent, tmp_path / "t.parquet", episodes=2, seed=3, progress_bar=True)
    assert f"record 2/2 [0 s] {count} rows, 2 episodes" in capsys.readouterr().err
    t = everything(open_dataset(tmp_path / "t.parquet")).transitions
    assert np.array_equal(agent.predict(t.inputs[:, :4].astype(np.float32))[0], t.inputs[:, 4])


@pytest.mark.parametrize("fails", [1, 3, 8])
def test_a_failing_environment_leaves_no_file(tmp_path, fails):
    with pytest.raises(EnvironmentFault, match="the motor is on fire"):
        record(Counting(fails=fails), None, tmp_path / "t.parquet", episodes=3, rows_per_group=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bytes_left", [0, 500, 3000])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, bytes_left):
    path = tmp_path / "t.parquet"
    write_table(path, **logs(EPISODES))
    before = path.read_bytes()

    class Full:
        def __init__(self, file):
            self.file, self.left = file, bytes_left

        def write(self, data):
            self.left -= len(data)
            if self.left < 0:
                raise OSError(28, "No space left on device")
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    atomic = recording.atomic

    @recording.contextlib.contextmanager
    def nearly_full(path):
        with atomic(path) as file:
            yield Full(file)

    monkeypatch.setattr(recording, "atomic", nearly_full)
    with pytest.raises(OSError, match="No space left"):
        record(Counting(), None, path, episodes=20, rows_per_group=10)
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]
    assert path.read_bytes() == before


def test_recordings_that_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    for call, error, message in [
        (lambda: record(Counting(), None, path), ValueError, "neither episodes nor steps"),
        (lambda: record(Counting(), None, path, episodes=0), DatasetError, "would have no rows"),
        (lambda: record(Counting(), 3, path, steps=1), TypeError, "policy is a int; expected something with"),
        (lambda: record(3, None, path, steps=1), EnvironmentFault, "env is a int"),
        (
            lambda: record(Counting(), lambda o: 7, path, steps=1),
            ValueError,
            "the policy's action = 7; expected",
        ),
        (lambda: record(Counting(), None, tmp_path / "no/t", steps=1), DatasetError, "there is no folder"),
        (lambda: record(Counting(), None, path, steps=1, seed=-1), ValueError, "seed = -1"),
        (lambda: convert(expected(logs(EPISODES))[0], path), TypeError, "expected a Minari dataset"),
        (lambda: record(Counting(), None, path, steps=1, rows_per_group=0), ValueError, "rows_per_group = 0"),
    ]:
        with pytest.raises(error, match=message):
            call()
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(TypeError, match="expected a single environment"):
        record(envs, None, path, steps=1)
    envs.close()
    assert list(tmp_path.iterdir()) == []
    record(Counting(), None, path, steps=20)
    with pytest.raises(TypeError, match="expected a Minari dataset"):
        convert(path, tmp_path / "other.parquet")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": np.zeros(21)}, r"floats of shape \(n,\); expected whole numbers .* shape \(n, 1\)"),
        ({"action": np.zeros(20, int)}, "action has 20 rows; expected 21"),
        ({"next_observation": np.zeros((20, 2))}, "next_observation has 20 rows"),
        ({"next_action": np.zeros((21, 2))}, "next_action has 2 columns; expected 1"),
        ({"reward": np.full(21, np.nan)}, r"reward\[0\] = nan"),
        ({"step": None}, "episode and step go together"),
        ({"step": np.zeros(21)}, "step is float64"),
        ({"terminated": np.zeros(21)}, "terminated has dtype float64; expected booleans"),
    ],
)
def test_arrays_that_are_refused(tmp_path, change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        write_table(tmp_path / "t.parquet", **{**logs(EPISODES), **change})
    assert list(tmp_path.iterdir()) == []
