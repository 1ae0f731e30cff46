"""Rules: what they choose, how they are searched for, and that an agent with many columns lives by them."""

import gymnasium as gym
import numpy as np
import pytest

from gpsarsa import SarsaAgent
from gpsarsa.control import rules
from gpsarsa.control.rehearsal import _act, rehearse
from gpsarsa.control.rules import Rule, search
from gpsarsa.control.world import ENDED, LOST, chances

CANDIDATES = np.array([[0.0], [1.0], [2.0]])
STATES = np.random.default_rng(0).normal([1.0, -2.0], [0.5, 3.0], (200, 2))


def test_a_rule_chooses_the_highest_score():
    rule = Rule.blank(STATES, CANDIDATES, False)
    rng = np.random.default_rng(1)
    rule = rule._replace(weights=rng.standard_normal((3, 3)))
    z = np.clip((STATES - np.median(STATES, axis=0)) / STATES.std(axis=0), -rules.FAR, rules.FAR)
    expected = [int(np.argmax([w[:2] @ row + w[2] for w in rule.weights])) for row in z]
    assert (rule.greedy(STATES)[:, 0] == expected).all()
    assert len(set(expected)) == 3
    padded = np.hstack([STATES, np.full((len(STATES), 1), np.nan)])  # an action's column is not read
    assert (rule.greedy(padded)[:, 0] == expected).all()


def test_a_rule_of_continuous_actions_stays_in_their_range():
    bounds = np.array([[-1.0, 2.0], [3.0, 4.0]])
    rule = Rule.blank(STATES, bounds, True)
    np.testing.assert_array_equal(rule.greedy(STATES[:1]), [[1.0, 3.0]])  # the middle, with no weights
    rule = rule._replace(weights=np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.5]]))
    actions = rule.greedy(STATES)
    z = (STATES[:, 0] - rule.centre[0]) / rule.width[0]
    np.testing.assert_allclose(actions[:, 0], 1.0 + 2.0 * np.clip(z, -1.0, 1.0), rtol=1e-12)
    np.testing.assert_allclose(actions[:, 1], 3.5)


def test_weights_may_differ_from_row_to_row():
    rule = Rule.blank(STATES, CANDIDATES, False)
    many = np.random.default_rng(2).standard_normal((len(STATES), 3, 3))
    together = rule.chosen(many, STATES)
    alone = [rule._replace(weights=w).greedy(row[None])[0] for w, row in zip(many, STATES, strict=True)]
    assert (together == alone).all()


def test_a_column_that_stands_still_has_width_one():
    rule = Rule.blank(np.ones((5, 2)), CANDIDATES, False)
    np.testing.assert_array_equal(rule.width, [1.0, 1.0])


@pytest.mark.parametrize("continuous", [False, True])
def test_search_finds_the_best_weights(continuous):
    start = Rule.blank(STATES, np.array([[-1.0] * 3, [1.0] * 3]) if continuous else CANDIDATES, continuous)
    target = np.random.default_rng(3).standard_normal((3, 3))
    if not continuous:
        target[0] = 0.0

    def returns(weights):
        return -np.square(weights - target).sum(axis=(1, 2))

    found = search(start, returns, np.random.default_rng(4))
    begun = np.square(target).sum()
    assert np.square(found.weights - target).sum() < 0.02 * begun
    again = search(found, returns, np.random.default_rng(5))
    assert np.square(again.weights - target).sum() < 0.02 * begun
    assert (found.spread < 0.5).all()


def test_among_candidates_only_differences_of_weights_are_searched():
    """A search begins with what the rule does, whatever is added to all of its weights."""
    start = Rule.blank(STATES, CANDIDATES, False)._replace(weights=np.arange(9.0).reshape(3, 3) ** 2)
    seen = []

    def returns(weights):
        seen.append(weights.copy())
        return np.arange(len(weights), 0.0, -1.0)

    found = search(start, returns, np.random.default_rng(0))
    assert (np.array(seen)[:, :, 0] == 0.0).all()
    np.testing.assert_array_equal(seen[0][0], start.weights - start.weights[0])
    np.testing.assert_array_equal(start._replace(weights=seen[0][0]).greedy(STATES), start.greedy(STATES))
    assert (found.drawn(np.random.default_rng(1)).weights[0] == 0.0).all()


def test_drawn_rules_are_spread_around_the_rule():
    rule = Rule.blank(STATES, CANDIDATES, False)._replace(
        weights=np.arange(9.0).reshape(3, 3), spread=np.linspace(0.1, 0.9, 9).reshape(3, 3)
    )
    rng = np.random.default_rng(6)
    drawn = np.array([rule.drawn(rng).weights for _ in range(4_000)])
    np.testing.assert_allclose(drawn.mean(axis=0), rule.weights, atol=0.06)
    np.testing.assert_allclose(drawn.std(axis=0), rule.spread, rtol=0.1)


def test_where_a_flag_is_not_as_usual_all_take_one_action():
    rule = Rule.blank(STATES, CANDIDATES, False)._replace(
        weights=np.array([[0.0] * 3, [0.0] * 3, [0.0, 0.0, 1.0]])
    )
    X = np.array([[1.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    np.testing.assert_array_equal(rule.greedy(X), [[2.0], [2.0], [2.0]])
    resting = rule._replace(usual=np.array([np.nan, 0.0]), rest=np.array([1.0]))
    np.testing.assert_array_equal(resting.greedy(X), [[2.0], [1.0], [2.0]])
    drawn = resting.drawn(np.random.default_rng(0))
    np.testing.assert_array_equal(drawn.greedy(X)[1], [1.0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("usual", [0.0]),
        ("rest", [1.0, 2.0]),
        ("width", [1.0, 0.0]),
        ("weights", np.zeros((2, 3))),
        ("spread", np.zeros((3, 2))),
        ("centre", [np.nan, 0.0]),
    ],
)
def test_a_damaged_rule_is_refused(name, value):
    rule = Rule.blank(STATES, CANDIDATES, False)
    kept = rule.state()
    assert (rule.restored(kept).weights == rule.weights).all()
    with pytest.raises(ValueError, match=name):
        rule.restored({**kept, name: np.array(value)})
    with pytest.raises(ValueError, match="expected an action"):
        rule.restored({**kept, "usual": np.array([np.nan, 0.0])})


class Wide(gym.Env):
    """Seven columns that drift at random; the first two are a point that actions push: keep it near 0."""

    def __init__(self, continuous=False):
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (7,))
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,)) if continuous else gym.spaces.Discrete(4)
        self.pushes = 0.2 * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.uniform(-1.0, 1.0, 7), 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        push = self.pushes[action] if np.ndim(action) == 0 else 0.2 * np.asarray(action)
        self.state[:2] = np.clip(self.state[:2] + push, -5.0, 5.0)
        self.state[2:] = 0.9 * self.state[2:] + 0.1 * np.sin(self.state[1:6])
        self.steps += 1
        reward = -float(np.square(self.state[:2]).sum())
        return self.state.astype(np.float32), reward, False, self.steps >= 30, {}


def play(agent, env, episodes=10):
    totals = []
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        totals.append(0.0)
        for _ in range(30):
            observation, reward, *_ = env.step(agent.predict(observation)[0])
            totals[-1] += reward
    return np.mean(totals)


@pytest.fixture(scope="module")
def wide():
    return SarsaAgent(Wide(), seed=0, budget=60).learn(350)


def test_an_agent_with_many_columns_lives_by_a_rule(wide):
    assert isinstance(wide.incumbent.holder.values, Rule)
    assert wide.imagination.hope is not None
    assert play(wide, Wide()) > -6.0  # at random about −60; pushing straight to the middle −3


def test_it_is_saved_with_its_rules_and_goes_on_bit_for_bit(wide, tmp_path):
    wide.save(tmp_path / "a.safetensors")
    other = SarsaAgent.load(tmp_path / "a.safetensors", Wide())
    assert isinstance(other.incumbent.holder.values, Rule)
    row = np.linspace(-1.0, 1.0, 7, dtype=np.float32)
    assert wide.predict(row)[0] == other.predict(row)[0]
    again = SarsaAgent.load(tmp_path / "a.safetensors", Wide())
    other.learn(90).save(tmp_path / "b.safetensors")
    again.learn(90).save(tmp_path / "c.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "c.safetensors").read_bytes()


def test_what_was_found_acts_once_as_it_is(wide, tmp_path):
    """Unless one hopes; then rules are drawn around it."""
    wide.save(tmp_path / "a.safetensors")
    foresight, rng = SarsaAgent.load(tmp_path / "a.safetensors").foresight, np.random.default_rng(0)
    assert foresight.unseen == wide.foresight.unseen
    imagination, foresight.unseen = foresight.imagination, True
    assert imagination.hope is not None
    assert foresight.variant(rng) is not imagination.found
    assert foresight.unseen
    imagination.hope = None
    assert foresight.variant(rng) is imagination.found
    assert not foresight.unseen
    assert (foresight.variant(rng).weights != imagination.found.weights).any()


def test_another_rest_that_may_be_better_is_explored_with_what_was_found(wide, tmp_path):
    wide.save(tmp_path / "a.safetensors")
    foresight, rng = SarsaAgent.load(tmp_path / "a.safetensors").foresight, np.random.default_rng(0)
    imagination, foresight.unseen = foresight.imagination, False
    contact, found = imagination.dynamics.contact, imagination.found._replace(rest=np.array([0.0]))
    contact.touching, imagination.found = True, found
    contact.rests = np.array([[0.0, 9.0, 0.0], [0.1, 1.0, 0.1]])
    for foresight.explored in (1, 3):  # in between one hopes
        tried = foresight.variant(rng)
        np.testing.assert_array_equal(tried.weights, found.weights)
        np.testing.assert_array_equal(tried.rest, [1.0])
    imagination.hope = None
    changed = []
    for foresight.explored in range(4):
        tried = foresight.variant(rng)
        changed.append((tried.weights != found.weights).any())
        np.testing.assert_array_equal(tried.rest, [1.0])
    assert changed == [False, True] * 2
    contact.rests[0] = 9.0, 0.0, 0.0  # it rests as is best: rules are drawn
    assert all((foresight.variant(rng).weights != found.weights).any() for foresight.explored in range(4))


def test_exploring_rests_as_often_as_an_action_may_be_the_best(wide, tmp_path, rng):
    wide.save(tmp_path / "a.safetensors")
    foresight = SarsaAgent.load(tmp_path / "a.safetensors").foresight
    contact = foresight.imagination.dynamics.contact
    contact.rests, drawn = np.array([[1.0, 0.0, -9.0], [1.0, 1.0, 0.1]]), []
    contact.touching = True
    for foresight.explored in range(2_000):
        drawn.append(foresight.variant(rng).rest[0])
    shares = np.bincount(np.array(drawn, dtype=int), minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, [0.76, 0.24, 0.0], atol=0.04)  # Φ(1/√2)
    contact.touching, state = False, rng.bit_generator.state
    foresight.unseen, foresight.imagination.hope = True, None
    assert foresight.variant(rng) is foresight.imagination.found
    assert rng.bit_generator.state == state  # nothing is drawn where nothing touches


def test_a_rule_rests_as_is_best_by_now(wide, tmp_path):
    """Whatever was thought best when it was found: the rest is known of the world, not of the rule."""
    wide.save(tmp_path / "a.safetensors")
    agent = SarsaAgent.load(tmp_path / "a.safetensors")
    holder, dynamics = agent.incumbent.holder, agent.foresight.imagination.dynamics
    dynamics.flags[0], dynamics.contact.touching = np.append(np.full(6, np.nan), 0.0), True
    down = np.append(np.zeros(6), 1.0)[None]
    for rest in (0.0, 1.0, 2.0):
        dynamics.contact.rest = np.array([rest])
        acting = agent.foresight.values(holder)
        assert acting.greedy(down)[0, 0] == rest
        np.testing.assert_array_equal(acting.weights, holder.values.weights)


def test_who_lies_for_long_tries_one_action_after_the_other(wide, tmp_path):
    wide.save(tmp_path / "a.safetensors")
    foresight = SarsaAgent.load(tmp_path / "a.safetensors").foresight
    contact, own, lies = foresight.imagination.dynamics.contact, np.array([2.0]), int(5 / 0.03)
    contact.rests = np.array([[0.0, 1.0, 5.0], [0.1, 0.1, 0.1]])
    taken = [foresight.restless(own, steps)[0] for steps in range(1, 4 * lies)]
    changes = np.flatnonzero(np.diff(taken))
    np.testing.assert_array_equal(np.array(taken)[np.append(changes, -1)], [2.0, 1.0, 0.0, 2.0])
    np.testing.assert_allclose(np.diff([-1, *changes]), lies, atol=1)
    foresight.curious = False
    assert foresight.restless(own, 2 * lies) is own


def test_continuous_actions_of_several_columns_are_chosen_by_a_rule():
    agent = SarsaAgent(Wide(continuous=True), seed=0, budget=60).learn(350)
    assert isinstance(agent.incumbent.holder.values, Rule)
    assert play(agent, Wide(continuous=True)) > -8.0


def test_what_a_potential_earns_is_counted_where_an_episode_begins_and_ends(wide):
    """V(s₀) − V(s₁) + V(s₁) − … summed step by step, beside V asked only twice."""
    imagination = wide.imagination
    world, rng = imagination.world, np.random.default_rng(3)
    starts = rng.uniform(-1.0, 1.0, (40, 7))
    n, v = 5, len(world.sizes) - 1
    sizes, scale, weights, Zt = (
        array.copy() for array in (world.sizes, world.scale, world.weights, world.Zt)
    )
    sizes[v], scale[v] = n, 2.0
    weights[v, :n], Zt[v, :7, :n] = rng.standard_normal(n), rng.uniform(-1.0, 1.0, (7, n))
    brinks = world.brinks.copy()
    brinks[:, 0] = -0.5, 0.5  # so that some episodes end on the way
    known = world.known.copy()
    known[:, 1] = -0.5, 0.5  # and some are lost
    hilly = world._replace(sizes=sizes, scale=scale, weights=weights, Zt=Zt, brinks=brinks, known=known)
    weights = np.array([imagination.found.drawn(rng).weights for _ in range(3)])
    lost, beyond, half = -np.arange(21.0), 9, 11

    def played(world, weights, hope):
        """One episode after the other, and V at every step."""
        totals, fates = [], set()
        for start, chance in zip(starts, chances(np.arange(len(starts))), strict=True):
            s, total, late, fate = start, 0.0, 0.0, 0
            for step in range(len(lost)):
                X = np.hstack([s[None], imagination.found.chosen(weights, s[None])])
                ahead, (reward,), (fate,) = world.outcomes(X, np.array([chance]))
                s = ahead[0, :7]
                if fate and hope is not None:
                    reward, fate = max(reward, hope), ENDED
                total += reward + (lost[step] if fate == LOST else 0.0)
                late += reward * (step >= half)
                fates.add(int(fate))
                if fate:
                    break
            totals.append(total + (beyond / (len(lost) - half) * late if fate == 0 else 0.0))
        return np.mean(totals), fates

    for hope in (None, -0.1):
        returns = rehearse(hilly, imagination.found, weights, starts, lost, beyond, hope)
        for own, one in zip(returns, weights, strict=True):
            total, fates = played(hilly, one, hope)
            assert fates == ({0, ENDED, LOST} if hope is None else {0, ENDED})
            if hope is None:
                assert own == pytest.approx(total, rel=1e-9)
        level = rehearse(hilly.level(), imagination.found, weights, starts, lost, beyond, hope)
        assert np.abs(returns - level).max() > 0.01
        flat = [played(hilly.level(), one, hope)[0] for one in weights]
        np.testing.assert_allclose(level, flat, rtol=1e-9)


def test_a_rehearsal_acts_as_the_rule_does():
    """Continuous actions, and whatever is added to all weights."""
    rng = np.random.default_rng(0)
    for continuous in (False, True):
        candidates = np.array([[-2.0, 0.0], [1.0, 3.0], [0.5, 0.5]])[: 2 if continuous else 3]
        rule = Rule.blank(STATES, candidates, continuous)
        weights = rng.standard_normal(rule.weights.shape)
        for state in 3.0 * rng.standard_normal((40, 2)):
            x = np.append(state, [0.0, 0.0])
            args = rule.centre, rule.width, candidates, continuous, weights, x, 2, np.empty(len(weights))
            _act(*args)
            np.testing.assert_allclose(x[2:], rule.chosen(weights, state[None])[0], rtol=1e-12)
