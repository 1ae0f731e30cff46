"""Spaces as rows: every kind there and back, batches, descriptions, refusals, and the best action."""

from __future__ import annotations

import inspect
import itertools
import json
import pickle
import re
from collections import OrderedDict

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given
from hypothesis import strategies as st

from gpsarsa.control import spaces as module
from gpsarsa.control.spaces import Actions, Observations, Scaling, SpaceError

CARTPOLE = gymnasium.make("CartPole-v1").observation_space
PAIR = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 9, ())])
NESTED = spaces.Dict(
    {
        "position": spaces.Box(-1, 1, (2,), np.float32),
        "goal": spaces.Discrete(5, start=-2),
        "inner": spaces.Dict({"switch": spaces.MultiBinary(2), "pair": PAIR}),
    }
)
OBSERVATIONS = {
    "box": spaces.Box(-3.0, 2.0, (4,), np.float32),
    "cartpole": CARTPOLE,
    "image": spaces.Box(0, 255, (4, 3, 2), np.uint8),
    "scalar box": spaces.Box(-1.0, 1.0, (), np.float64),
    "flags": spaces.Box(0, 1, (3,), np.bool_),
    "half-open": spaces.Box(np.array([-np.inf, 0.0]), np.array([1.0, np.inf]), dtype=np.float64),
    "integers": spaces.Box(-5, 5, (2,), np.int64),
    "discrete": spaces.Discrete(7),
    "discrete from": spaces.Discrete(3, start=-1),
    "multidiscrete": spaces.MultiDiscrete([3, 5], start=[0, -2]),
    "multidiscrete 2d": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multibinary": spaces.MultiBinary(3),
    "multibinary 2d": spaces.MultiBinary([2, 2]),
    "dict": spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(-1, 1, (2, 2))}),
    "unsorted dict": spaces.Dict(OrderedDict(b=spaces.Discrete(2), a=spaces.Box(-1, 1, (2,)))),
    "tuple": spaces.Tuple([spaces.Discrete(4), spaces.Box(-1, 1, (3,))]),
    "numbered dict": spaces.Dict({1: spaces.Discrete(2), 0: spaces.Discrete(3)}),
    "nested": NESTED,
}
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "discrete from": spaces.Discrete(3, start=5),
    "many": spaces.Discrete(2000),
    "multidiscrete": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "multidiscrete 2d": spaces.MultiDiscrete([[2, 3], [2, 2]]),
    "multibinary": spaces.MultiBinary(3),
    "multibinary 2d": spaces.MultiBinary([2, 2]),
    "box": spaces.Box(-2.0, 2.0, (1,), np.float32),
    "scalar box": spaces.Box(0.0, 0.1, (), np.float32),
    "box 2d": spaces.Box(np.array([[-1, 0], [2, 3]]), np.array([[1, 4], [2, 5]]), dtype=np.float64),
}
if "dtype" in inspect.signature(spaces.Discrete).parameters:  # not in the oldest Gymnasium
    ACTIONS["short discrete"] = spaces.Discrete(3, dtype=np.int32)
each_observation = pytest.mark.parametrize("space", OBSERVATIONS.values(), ids=OBSERVATIONS.keys())
each_action = pytest.mark.parametrize("space", ACTIONS.values(), ids=ACTIONS.keys())


def samples(space, count, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def flattened(value):
    """The numbers of a value, by recursion."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return [number for part in value for number in flattened(part)]
    return np.asarray(value, dtype=np.float64).ravel().tolist()


def stacked(space, values):
    """A batch as Stable-Baselines3's VecEnv stacks it."""
    if isinstance(space, spaces.Dict):
        return OrderedDict((k, stacked(s, [v[k] for v in values])) for k, s in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(s, [v[i] for v in values]) for i, s in enumerate(space.spaces))
    return np.stack(values)


def through_json(thing):
    return type(thing).described(json.loads(json.dumps(thing.describe(), allow_nan=False)))


# ── observations ─────────────────────────────────────────────────────────────────────────────────────


@each_observation
def test_a_row_holds_the_numbers_of_the_observation(space):
    observations = Observations(space)
    for sample in samples(space, 20):
        row = observations.row(sample)
        assert row.tolist() == flattened(sample)
        assert row.shape == (observations.columns,) == observations.low.shape == observations.high.shape
        assert row.dtype == np.float64
        assert row.flags.c_contiguous
        assert row.flags.writeable
        assert (observations.low <= row).all()
        assert (row <= observations.high).all()
    assert len(observations.names) == len(set(observations.names)) == observations.columns
    assert len(observations.categories) == observations.columns


@each_observation
def test_batches_are_rows(space):
    observations = Observations(space)
    values = samples(space, 5)
    expected = np.stack([observations.row(value) for value in values])
    vectorised = concatenate(space, values, create_empty_array(space, n=5))
    assert batch_space(space, 5).contains(vectorised)
    for batch in (vectorised, stacked(space, values)):
        assert observations.batch(batch) == 5
        rows = observations.rows(batch)
        np.testing.assert_array_equal(rows, expected)
        assert rows.flags.c_contiguous
        assert rows.dtype == np.float64
    assert observations.batch(values[0]) is None
    one = stacked(space, values[:1])
    assert observations.batch(one) == 1
    np.testing.assert_array_equal(observations.rows(one), expected[:1])
    with pytest.raises(SpaceError, match=r"observation.* is a single one; expected a batch"):
        observations.rows(values[0])


@each_observation
def test_observations_survive_json(space):
    observations = Observations(space)
    again = through_json(observations)
    assert again.describe() == observations.describe()
    assert again.names == observations.names
    assert again.categories == observations.categories
    np.testing.assert_array_equal(again.low, observations.low)
    np.testing.assert_array_equal(again.high, observations.high)
    sample = samples(space, 1)[0]
    np.testing.assert_array_equal(again.row(sample), observations.row(sample))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).row(sample), again.row(sample))


def test_descriptions_are_equal_for_equal_spaces_only():
    described = [json.dumps(Observations(space).describe()) for space in OBSERVATIONS.values()]
    assert len(set(described)) == len(described)
    box = Observations(spaces.Box(-1, 1, (2,))).describe()
    assert box == Observations(spaces.Box(np.array([-1, -1]), np.array([1, 1]), dtype=np.float32)).describe()
    for other in (
        spaces.Box(-1, 1, (3,)),
        spaces.Box(-1, 1, (2, 1)),
        spaces.Box(-1, 1, (2,), np.float64),
        spaces.Box(-1, 2, (2,)),
        spaces.Box(np.array([-1, -2]), np.array([1, 1]), dtype=np.float32),
        spaces.Box(-np.inf, 1, (2,)),
        spaces.MultiDiscrete([2, 2]),
        spaces.Tuple([spaces.Box(-1, 1, (2,))]),
    ):
        assert Observations(other).describe() != box


def test_a_description_is_a_copy():
    observations = Observations(CARTPOLE)
    observations.describe()["space"]["shape"].append(9)
    assert observations.describe() == Observations(CARTPOLE).describe()


def test_names():
    assert Observations(CARTPOLE).names == (
        "observation[0]",
        "observation[1]",
        "observation[2]",
        "observation[3]",
    )
    assert Observations(CARTPOLE, "state").names[1] == "state[1]"
    assert Observations(spaces.Discrete(3)).names == ("observation",)
    assert Observations(spaces.Box(0, 1, ())).names == ("observation",)
    assert Observations(spaces.Box(0, 1, (1, 2))).names == ("observation[0, 0]", "observation[0, 1]")
    assert Observations(OBSERVATIONS["tuple"]).names == (
        "observation[0]",
        "observation[1][0]",
        "observation[1][1]",
        "observation[1][2]",
    )
    assert Observations(NESTED).names == (
        "goal",
        "inner.pair[0]",
        "inner.pair[1]",
        "inner.switch[0]",
        "inner.switch[1]",
        "position[0]",
        "position[1]",
    )
    assert Observations(OBSERVATIONS["unsorted dict"]).names == ("b", "a[0]", "a[1]")
    assert Actions(spaces.Discrete(2)).names == ("action",)
    assert Actions(spaces.Box(0, 1, (2,))).names == ("action[0]", "action[1]")


def test_categories_are_the_discrete_columns():
    assert Observations(NESTED).categories == (True, True, False, False, False, False, False)
    assert Observations(spaces.MultiDiscrete([2, 3])).categories == (False, False)
    assert Actions(spaces.MultiDiscrete([2, 3])).categories == (True, True)
    assert Actions(spaces.MultiBinary(2)).categories == (True, True)
    assert Actions(spaces.Discrete(2)).categories == (True,)
    assert Actions(spaces.Box(0, 1, (2,))).categories == (False, False)


def test_bounds():
    cartpole = Observations(CARTPOLE)
    np.testing.assert_array_equal(np.isinf(cartpole.high), [False, True, False, True])
    np.testing.assert_array_equal(cartpole.low, -cartpole.high)
    assert cartpole.high[0] == np.float32(4.8)
    huge = Observations(spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (1,)))
    assert (huge.low[0], huge.high[0]) == (-np.inf, np.inf)
    whole = Observations(spaces.Box(-np.inf, np.inf, (1,), np.int64))
    assert (whole.low[0], whole.high[0]) == (-np.inf, np.inf)
    nested = Observations(NESTED)
    np.testing.assert_array_equal(nested.low, [-2, 0, 0, 0, 0, -1, -1])
    np.testing.assert_array_equal(nested.high, [2, 2, 9, 1, 1, 1, 1])


def test_what_a_row_accepts():
    box = Observations(spaces.Box(-1, 1, (2,)))
    np.testing.assert_array_equal(box.row([3, -7.5]), [3.0, -7.5])  # outside of the bounds, not an array
    np.testing.assert_array_equal(box.row(np.array([1e300, -1e300])), [1e300, -1e300])
    given = np.array([0.5, 0.25])
    row = box.row(given)
    row[0] = 9.0
    assert given[0] == 0.5
    frozen = np.array([[1, 2], [3, 4]], dtype=np.float32).T
    frozen.flags.writeable = False
    row = Observations(spaces.Box(-9, 9, (2, 2))).row(frozen)
    np.testing.assert_array_equal(row, [1, 3, 2, 4])
    row[0] = 0.0
    discrete = Observations(spaces.Discrete(3))
    for value in (2, 2.0, np.int8(2), np.array(2)):
        np.testing.assert_array_equal(discrete.row(value), [2.0])
    assert Observations(spaces.Tuple([spaces.Discrete(2)])).row([1]) == [1.0]


NAN = float("nan")


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (CARTPOLE, [0, 0, NAN, 0], "observation[2] = nan; expected a finite number"),
        (CARTPOLE, [0, 0, np.inf, -np.inf], "observation[2] = inf; expected a finite number"),
        (CARTPOLE, [0, 0, 0], "observation has shape (3,); expected (4,)"),
        (CARTPOLE, np.zeros((1, 4)), "observation has shape (1, 4); expected (4,)"),
        (CARTPOLE, "abcd", "observation = 'abcd'; expected real numbers of shape (4,)"),
        (CARTPOLE, None, "observation = None; expected real numbers"),
        (CARTPOLE, [1j, 0, 0, 0], "expected real numbers"),
        (CARTPOLE, [[1], [2, 3]], "observation is not a rectangular array"),
        (spaces.Discrete(3), 3, "observation = 3; expected a whole number from 0 to 2"),
        (spaces.Discrete(3), -1, "observation = -1; expected a whole number from 0 to 2"),
        (spaces.Discrete(3, start=1), 1.5, "observation = 1.5; expected a whole number from 1 to 3"),
        (spaces.Discrete(3), NAN, "observation = nan; expected a finite number"),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": 1}, "observation has the keys ['b']; expected ['a']"),
        (spaces.Dict(a=spaces.Discrete(2)), 1, "observation = 1; expected a dict with the keys ['a']"),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": 4}, "a = 4; expected a whole number from 0 to 1"),
        (spaces.Dict(a=CARTPOLE), {"a": [0]}, 'observation["a"] has shape (1,); expected (4,)'),
        (spaces.Tuple([CARTPOLE]), 1, "observation = 1; expected a tuple of 1"),
        (spaces.Tuple([CARTPOLE]), (1, 2), "observation has 2 parts; expected a tuple of 1"),
        (spaces.Tuple([CARTPOLE]), ([0, NAN, 0, 0],), "observation[0][1] = nan; expected a finite number"),
    ],
)
def test_rows_that_are_refused(space, value, message):
    with pytest.raises(SpaceError, match=re.escape(message)):
        Observations(space).row(value)


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (CARTPOLE, np.zeros((2, 3)), "observation has shape (2, 3); expected (4,), or (n, 4) for a batch"),
        (spaces.Discrete(3), [[1, 2]], "observation has shape (1, 2); expected (), or (n,) for a batch"),
        (
            spaces.Box(0, 1, (2, 2)),
            1.0,
            "observation has shape (); expected (2, 2), or (n, 2, 2) for a batch",
        ),
        (
            spaces.Dict(a=CARTPOLE, b=spaces.Discrete(2)),
            {"a": np.zeros((3, 4)), "b": 1},
            'observation["a"] is a batch of 3, observation["b"] a single one; expected as many of each',
        ),
        (
            spaces.Tuple([CARTPOLE, spaces.Discrete(2)]),
            (np.zeros((3, 4)), [1, 0]),
            "observation[0] is a batch of 3, observation[1] a batch of 2; expected as many of each",
        ),
        (spaces.Discrete(3), [1, 2, 3], "observation = 3 in row 2; expected a whole number from 0 to 2"),
        (CARTPOLE, [[0, 0, 0, 0], [0, NAN, 0, 0]], "observation[1] = nan in row 1; expected a finite number"),
    ],
)
def test_batches_that_are_refused(space, value, message):
    with pytest.raises(SpaceError, match=re.escape(message)):
        Observations(space).rows(value)


def test_an_empty_batch():
    observations = Observations(CARTPOLE)
    assert observations.batch(np.zeros((0, 4))) == 0
    assert observations.rows(np.zeros((0, 4))).shape == (0, 4)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(5), "observation is a Text("),
        (spaces.Sequence(CARTPOLE), "observation is a Sequence("),
        (spaces.Graph(CARTPOLE, None), "observation is a Graph("),
        (spaces.OneOf([CARTPOLE]), "observation is a OneOf("),
        (spaces.Dict(a=spaces.Tuple([CARTPOLE, spaces.Text(3)])), 'observation["a"][1] is a Text('),
        (spaces.Text(5), "gymnasium.wrappers.TransformObservation"),
        (spaces.Dict(), "observation is an empty Dict"),
        (spaces.Tuple([spaces.Tuple([])]), "observation[0] is an empty Tuple"),
        (spaces.Dict({(1, 2): CARTPOLE}), "observation has the key (1, 2); expected text or whole numbers"),
        (spaces.Box(0, 1, (0,)), "observation has shape (0,); expected at least one number"),
        (spaces.Discrete(2, start=2**53), "expected whole numbers that a double holds"),
        (None, "observation space = None; expected a space of gymnasium.spaces"),
        (4, "observation space = 4; expected a space of gymnasium.spaces"),
    ],
)
def test_observation_spaces_that_are_refused(space, message):
    with pytest.raises(SpaceError, match=re.escape(message)):
        Observations(space)


def test_an_empty_box_among_others_adds_no_column():
    space = spaces.Dict(a=spaces.Box(0, 1, (0,)), b=spaces.Discrete(2))
    observations = through_json(Observations(space))
    assert observations.row({"a": np.zeros(0), "b": 1}) == [1.0]
    assert observations.names == ("b",)


SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
LEAVES = st.one_of(
    st.builds(lambda shape: spaces.Box(-1, 1, shape), SHAPES),
    st.builds(lambda shape: spaces.Box(-np.inf, 7, shape, np.float64), SHAPES),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-4, 4)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 5), min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.integers(1, 3)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(spaces.Tuple, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            spaces.Dict,
            st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=6,
)


@given(space=TREES, seed=st.integers(0, 99))
def test_any_nesting(space, seed):
    observations = through_json(Observations(space))
    values = samples(space, 3, seed)
    rows = np.stack([observations.row(value) for value in values])
    assert rows.tolist() == [flattened(value) for value in values]
    np.testing.assert_array_equal(observations.rows(stacked(space, values)), rows)
    assert observations.describe() == Observations(space).describe()


# ── actions ──────────────────────────────────────────────────────────────────────────────────────────


@each_action
def test_actions_there_and_back(space, rng):
    actions = through_json(Actions(space))
    rows = []
    for sample in samples(space, 20):
        row = actions.row(sample)
        assert row.tolist() == flattened(sample)
        back = actions.action(row)
        assert space.contains(back)
        np.testing.assert_array_equal(back, sample)
        np.testing.assert_array_equal(actions.row(back), row)
        rows.append(row)
    batch = actions.actions(np.stack(rows))
    assert batch.shape == (20, *space.shape)
    assert batch.dtype == space.dtype
    np.testing.assert_array_equal(batch, samples(space, 20))
    for row in actions.random(20, rng):
        assert space.contains(actions.action(row))
    assert actions.describe() == Actions(space).describe()


def test_what_step_takes():
    assert type(Actions(spaces.Discrete(3)).action(np.array([2.0]))) is np.int64
    for name in ("multidiscrete 2d", "multibinary 2d", "box", "scalar box", "box 2d"):
        actions = Actions(ACTIONS[name])
        action = actions.action(actions.low)
        assert type(action) is np.ndarray
        assert (action.shape, action.dtype) == (ACTIONS[name].shape, ACTIONS[name].dtype)


def test_a_box_is_kept():
    actions = Actions(spaces.Box(0.0, 0.1, (2,), np.float32))
    action = actions.action(np.array([-1.0, 7.0]))
    np.testing.assert_array_equal(action, np.array([0.0, 0.1], dtype=np.float32))
    assert ACTIONS["box"].contains(Actions(ACTIONS["box"]).action(np.array([2.0 + 1e-7])))
    actions.row([0.0, 0.1])  # a little above float32(0.1) or below


def test_candidates_are_every_action():
    actions = Actions(ACTIONS["multidiscrete"])
    expected = list(itertools.product([1, 2], [-1, 0, 1]))
    np.testing.assert_array_equal(actions.candidates, expected)
    np.testing.assert_array_equal(Actions(spaces.Discrete(3, start=5)).candidates, [[5], [6], [7]])
    assert Actions(spaces.MultiBinary(10)).candidates.shape == (1024, 10)
    assert len(np.unique(Actions(spaces.MultiBinary(10)).candidates, axis=0)) == 1024
    assert Actions(spaces.MultiBinary(11)).candidates is None
    assert Actions(spaces.MultiDiscrete([1000] * 30)).candidates is None
    assert Actions(ACTIONS["box"]).candidates is None
    assert Actions(ACTIONS["box"]).continuous
    assert not Actions(spaces.Discrete(2)).continuous


def test_random_actions_are_uniform(rng):
    rows = Actions(spaces.MultiDiscrete([2, 3], start=[1, -1])).random(6000, rng)
    values, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(values) == 6
    assert (np.abs(counts - 1000) < 150).all()
    rows = Actions(spaces.Box(np.array([0.0, -3.0]), np.array([1.0, 5.0]), dtype=np.float64)).random(
        4000, rng
    )
    np.testing.assert_allclose(rows.mean(axis=0), [0.5, 1.0], atol=0.2)
    np.testing.assert_allclose(rows.min(axis=0), [0.0, -3.0], atol=0.05)
    np.testing.assert_allclose(rows.max(axis=0), [1.0, 5.0], atol=0.05)
    a, b = (Actions(spaces.Discrete(50)).random(9, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (spaces.Discrete(3), 3, "action = 3; expected a whole number from 0 to 2"),
        (spaces.Discrete(3), [1], "action has shape (1,); expected ()"),
        (spaces.MultiDiscrete([2, 3]), [1, 3], "action[1] = 3; expected a whole number from 0 to 2"),
        (spaces.MultiBinary(2), [0.5, 1], "action[0] = 0.5; expected a whole number from 0 to 1"),
        (spaces.Box(-2, 2, (2,)), [0, 2.5], "action[1] = 2.5; expected a number from -2 to 2"),
        (spaces.Box(-2, 2, (2,)), [0, NAN], "action[1] = nan; expected a finite number"),
        (spaces.Box(-2, 2, (2,)), [0], "action has shape (1,); expected (2,)"),
        (spaces.Box(-2, 2, (2,)), "up", "action = 'up'; expected real numbers of shape (2,)"),
    ],
)
def test_actions_that_are_refused(space, value, message):
    with pytest.raises(SpaceError, match=re.escape(message)):
        Actions(space).row(value)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-np.inf, 1, (2,)), "action[0] lies between -inf and 1.0; expected bounds on both sides"),
        (spaces.Box(-np.inf, np.inf, (2,)), "gymnasium.wrappers.TransformAction"),
        (spaces.Box(0, 9, (2,), np.int64), "action is a Box of int64; expected floats"),
        (spaces.Dict(a=CARTPOLE), "action is a Dict("),
        (spaces.Tuple([CARTPOLE]), "expected Box, Discrete, MultiDiscrete or MultiBinary"),
        (spaces.Text(5), "action is a Text("),
        (spaces.Box(0, 1, (0,)), "action has shape (0,); expected at least one number"),
        (None, "action space = None; expected a space of gymnasium.spaces"),
    ],
)
def test_action_spaces_that_are_refused(space, message):
    with pytest.raises(SpaceError, match=re.escape(message)):
        Actions(space)


def test_the_cure_for_an_unbounded_box_works():
    class Endless(gymnasium.Env):
        observation_space, action_space = CARTPOLE, spaces.Box(-np.inf, np.inf, (1,))

    bounded = spaces.Box(-1, 1, (1,))
    env = gymnasium.wrappers.TransformAction(Endless(), lambda action: action, bounded)
    assert Actions(env.action_space).describe() == Actions(bounded).describe()


# ── the best action ──────────────────────────────────────────────────────────────────────────────────


class Watched:
    """A score that remembers all it was asked."""

    def __init__(self, function):
        self.function, self.rows = function, []

    def __call__(self, rows):
        self.rows.append(rows.copy())
        return self.function(rows)


def bumps(rng, columns, count=4, scale=0.22):
    """A sum of bell curves over the unit box, and its slope: the shape of a Gaussian process' mean."""
    centres, heights = rng.uniform(-0.1, 1.1, (count, columns)), rng.uniform(0.3, 1.0, count)

    def score(rows):
        squares = ((rows[:, None] - centres) ** 2).sum(axis=2)
        return np.exp(-squares / (2 * scale**2)) @ heights

    def slope(rows):
        apart = rows[:, None] - centres
        weights = np.exp(-(apart**2).sum(axis=2) / (2 * scale**2)) * heights
        return -(weights[..., None] * apart).sum(axis=1) / scale**2

    return score, slope


def stretched(score, slope, low, width):
    """The same over the box from low to low + width."""
    return lambda rows: score((rows - low) / width), lambda rows: slope((rows - low) / width) / width


@pytest.mark.parametrize("with_slope", [True, False])
@pytest.mark.parametrize("columns", [1, 2])
def test_the_best_action_in_a_box_is_the_highest_of_a_fine_grid(columns, with_slope):
    low, width = np.array([-3.0, 100.0])[:columns], np.array([5.0, 0.02])[:columns]
    actions = Actions(spaces.Box(low, low + width, dtype=np.float64))
    axes = [np.linspace(0, 1, 2001 if columns == 1 else 201)] * columns
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, columns)
    missed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        unit = bumps(rng, columns)
        score, slope = stretched(*unit, low, width)
        best = actions.best(score, rng, slope=slope if with_slope else None)
        assert (actions.low <= best).all()
        assert (best <= actions.high).all()
        missed += score(best[None])[0] < unit[0](grid).max() - 1e-5
    assert missed <= (0 if columns == 1 else 2)  # a second hill of nearly the same height


@pytest.mark.parametrize("with_slope", [True, False])
@given(seed=st.integers(0, 10**6), columns=st.integers(1, 6))
def test_the_best_is_no_worse_than_anything_tried(with_slope, seed, columns):
    rng = np.random.default_rng(seed)
    function, slope = bumps(rng, columns)
    actions = Actions(spaces.Box(0.0, 1.0, (columns,), np.float64))
    score = Watched(function)
    start = rng.uniform(-0.5, 1.5, (2, columns))
    best = actions.best(score, rng, slope=slope if with_slope else None, start=start)
    tried = np.concatenate(score.rows)
    assert ((tried >= 0) & (tried <= 1)).all()
    assert ((best >= 0) & (best <= 1)).all()
    spread = score.rows[0]
    assert len(spread) == 2 + (17 if columns == 1 else 32)
    np.testing.assert_array_equal(spread[:2], np.clip(start, 0, 1))
    assert function(best[None])[0] >= function(spread).max() - 1e-15
    assert len(score.rows) <= 1 + 20 + (0 if with_slope else 21)


def test_an_inner_maximum_is_met_closely(rng):
    for columns in (1, 2, 3, 5):
        actions = Actions(spaces.Box(-1.0, 1.0, (columns,), np.float64))
        peak = rng.uniform(-0.8, 0.8, columns)
        bend = np.linspace(1.0, 3.0, columns)
        best = actions.best(
            lambda rows, peak=peak, bend=bend: -(bend * (rows - peak) ** 2).sum(axis=1),
            rng,
            slope=lambda rows, peak=peak, bend=bend: -2 * bend * (rows - peak),
        )
        np.testing.assert_allclose(best, peak, atol=1e-4)


def test_maxima_at_the_boundary(rng):
    direction = np.array([1.0, -2.0, 0.5, -0.1, 3.0, 1.0])
    for columns in range(1, 7):
        actions = Actions(spaces.Box(-2.0, 3.0, (columns,), np.float64))
        d = direction[:columns]
        for slope in (None, lambda rows, d=d: np.broadcast_to(d, rows.shape)):
            best = actions.best(lambda rows, d=d: rows @ d, rng, slope=slope)
            np.testing.assert_array_equal(best, np.where(d > 0, 3.0, -2.0))
    # along one edge: the first column at its bound, the second inside
    edge = Actions(spaces.Box(0.0, 1.0, (2,), np.float64))
    best = edge.best(lambda rows: rows[:, 0] - (rows[:, 1] - 0.37) ** 2, rng)
    np.testing.assert_allclose(best, [1.0, 0.37], atol=1e-5)


def test_the_start_is_used(rng):
    actions = Actions(spaces.Box(0.0, 1.0, (1,), np.float64))
    needle = 0.2871

    def score(rows):
        return np.exp(-0.5 * ((rows[:, 0] - needle) / 1e-3) ** 2)

    best = actions.best(score, rng, start=np.array([needle + 5e-4]))
    np.testing.assert_allclose(best, needle, atol=1e-6)


def test_scores_without_a_slope_to_follow(rng):
    flat = Actions(spaces.Box(-1.0, 1.0, (3,), np.float64))
    assert flat.best(lambda rows: np.zeros(len(rows)), rng).shape == (3,)
    faint = flat.best(lambda rows: 1e-310 * rows[:, 0], rng)  # slopes whose inverse overflows
    assert faint[0] == 1.0
    point = Actions(spaces.Box(np.array([0.0, 2.0]), np.array([1.0, 2.0]), dtype=np.float64))
    np.testing.assert_allclose(
        point.best(lambda rows: -((rows[:, 0] - 0.3) ** 2), rng), [0.3, 2.0], atol=1e-6
    )


def test_few_discrete_actions_are_all_tried(rng):
    actions = Actions(spaces.MultiDiscrete([4, 5], start=[0, -2]))
    values = rng.standard_normal(20)
    best = actions.best(lambda rows: values, rng)
    np.testing.assert_array_equal(best, actions.candidates[np.argmax(values)])
    best[0] = 99.0
    assert actions.candidates.max() < 99
    np.testing.assert_array_equal(actions.best(lambda rows: np.zeros(20), rng), [0.0, -2.0])


def test_many_discrete_actions_are_searched_by_column(rng):
    actions = Actions(spaces.MultiDiscrete([10] * 8, start=[-3] * 8))
    target = rng.integers(-3, 7, 8)
    best = actions.best(lambda rows: -np.abs(rows - target).sum(axis=1), rng)
    np.testing.assert_array_equal(best, target)

    weights = rng.standard_normal((8, 8))  # columns that depend on each other: no single change improves

    def score(rows):
        return np.sin(rows @ weights).sum(axis=1)

    best = actions.best(score, rng)
    top = score(best[None])[0]
    for column, value in itertools.product(range(8), range(-3, 7)):
        other = best.copy()
        other[column] = value
        assert score(other[None])[0] <= top + 1e-12

    start = np.full(8, 4.0)
    best = actions.best(lambda rows: np.all(rows == start, axis=1).astype(float), rng, start=start)
    np.testing.assert_array_equal(best, start)


def test_a_column_of_very_many_values(rng):
    score = Watched(lambda rows: -np.abs(rows[:, 0] - 123456.0))
    best = Actions(spaces.Discrete(10**6)).best(score, rng)
    assert abs(best[0] - 123456) < 10**4
    assert max(map(len, score.rows)) <= module.LIMIT


# ── scaling ──────────────────────────────────────────────────────────────────────────────────────────


def test_scaling_spans_the_rows():
    rows = np.array([[0.0, 5.0, 7.0, 1e20, 9.0], [2.0, 5.0, 7.0, 1e20, 9.0], [-1.0, 5.0, 7.0, 1e20, 9.0]])
    scaling = Scaling.of(rows, [-9, 0, 0, -np.inf, 0], [9, 10, np.inf, np.inf, 4])
    np.testing.assert_array_equal(scaling.low[:3], [-1, 0, 6.5])
    np.testing.assert_array_equal(scaling.high[:3], [2, 10, 7.5])
    assert (scaling.low[4], scaling.high[4]) == (0, 9)  # bounds that the value itself exceeds
    assert (scaling.width > 0).all()
    np.testing.assert_array_equal(scaling.width[:3], [3, 10, 1])
    assert Scaling.of([[3.0]], 3.0, 3.0).width == [1.0]  # a space of a single value


def test_scalings_that_are_refused():
    with pytest.raises(ValueError, match=r"low\[1\] = 2.0, high\[1\] = 2.0; expected low below high"):
        Scaling(np.array([0.0, 2.0]), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="rows holds no row"):
        Scaling.of(np.empty((0, 2)), -np.inf, np.inf)
    with pytest.raises(ValueError, match="expected finite numbers"):
        Scaling.of([[NAN]], 0, 1)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_scaling_contains_what_it_saw(values):
    rows = np.array(values)[:, None]
    scaling = Scaling.of(rows, -np.inf, 10.0)
    assert (scaling.width > 0).all()
    assert scaling.low[0] <= rows.min()
    assert rows.max() <= scaling.high[0]
