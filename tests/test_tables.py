"""A world of categories: counted, judged exactly, planned in."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gpsarsa import SarsaAgent, SparseGPSarsa
from gpsarsa.control.experience import Experience
from gpsarsa.control.spaces import Actions, Observations
from gpsarsa.control.tables import Tables
from gpsarsa.control.values import values_of
from gpsarsa.kernels import RBF, Delta
from gpsarsa.transitions import Transitions

S, A, GAMMA = 5, 2, 0.9
NAMES = np.array([3.0, 1.0, 7.0, 4.0, 0.0])  # of the states, in no order


def chain(rng, s, a):
    """Action 1 goes right and slips back with probability 0.3, action 0 goes left; the last state ends."""
    ahead = max(s - 1, 0) if a == 0 or rng.random() < 0.3 else s + 1
    return ahead, 1.0 if ahead == S - 1 else -0.1, ahead == S - 1


def walked(count=600, seed=0, allowed=lambda s, a: True):
    rng, experience, s = np.random.default_rng(seed), Experience(1, 1, 10_000), 0
    while len(experience) < count:
        a = int(rng.integers(A))
        if not allowed(s, a):
            continue
        ahead, reward, ended = chain(rng, s, a)
        x, following = np.array([NAMES[s], a]), np.array([NAMES[ahead], 0.0])
        experience.add(x, reward, following, 0.0 if ended else GAMMA)
        s = 0 if ended else ahead
    return experience


def tables(experience, starts=(0, 2), limit=30):
    found = Tables(Observations(spaces.Discrete(10)), Actions(spaces.Discrete(A)), GAMMA, 60)
    found.learn(experience, np.random.default_rng(0))
    found.starts.extend(np.array([[NAMES[s]] for s in starts]))
    found.finished(limit, truncated=True)
    return found


def posterior(Q):
    """A posterior with these values, a row for each state."""
    X = np.array([[NAMES[s], a] for s in range(S - 1) for a in range(A)])
    kernel = RBF(1e6, 4.0, [0]) * Delta(0) * Delta(1)
    model = SparseGPSarsa(kernel, 1e-8, X)
    rewards, nothing = np.asarray(Q, dtype=float)[: S - 1].ravel(), np.zeros(len(X))
    return model.fit(Transitions(X, rewards, X, nothing, np.ones(len(X), dtype=bool)))


def dense(experience):
    """P̂ and r̂ by counting, row after row; an end leads nowhere."""
    place = {name: s for s, name in enumerate(NAMES)}
    P, r, n = np.zeros((S, A, S)), np.zeros((S, A)), np.zeros((S, A))
    for x, reward, ahead, discount in zip(
        experience.inputs, experience.rewards, experience.following, experience.discounts, strict=True
    ):
        s, a = place[x[0]], int(x[1])
        n[s, a] += 1
        r[s, a] += reward
        if discount > 0.0:
            P[s, a, place[ahead[0]]] += 1
    many = np.maximum(n, 1)
    return P / many[:, :, None], r / many, n


@pytest.mark.parametrize("seed", range(4))
def test_judging_is_dynamic_programming(seed):
    experience = walked(seed=seed)
    world, (P, r, _) = tables(experience), dense(experience)
    Q = np.random.default_rng(seed).normal(size=(S, A))
    model = posterior(Q)
    judged = world.judge(world.values_of(model), np.array(world.starts), model)
    chosen, V = Q.argmax(axis=1), np.zeros(S)
    for _ in range(30):
        V = np.array([r[s, chosen[s]] + P[s, chosen[s]] @ V for s in range(S)])
    np.testing.assert_allclose(judged.returns, V[[0, 2]], atol=1e-12)
    assert not judged.lost
    assert judged.starts == 2


def test_what_was_never_tried_is_the_worst():
    experience = walked(allowed=lambda s, a: (s, a) != (2, 1))
    world, model = tables(experience), posterior([[0, 1]] * S)  # always to the right
    judged = world.judge(world.values_of(model), np.array(world.starts), model)
    assert judged.lost
    assert judged.returns[1] == pytest.approx(-0.1 * 30)
    assert judged.returns[0] < -0.1 * 2


def test_plans_are_value_iteration():
    experience = walked()
    world, (P, r, _) = tables(experience), dense(experience)
    Q = np.zeros((S, A))
    for _ in range(2_000):
        Q = r + GAMMA * P @ Q.max(axis=1)
    rows = world._planned(GAMMA)
    place = {name: s for s, name in enumerate(NAMES)}
    wanted = [Q[place[x[0]], int(x[1])] for x in rows.inputs]
    np.testing.assert_allclose(rows.rewards, wanted, atol=1e-9)
    assert (rows.discounts == 0.0).all()


def test_the_best_is_found():
    """From a posterior that goes the wrong way."""
    world, bad = tables(walked()), posterior([[1, 0]] * S)
    starts = np.array(world.starts)
    judged = world.judge(world.values_of(bad), starts, bad)

    def tune(rows, gamma):
        return SparseGPSarsa(bad.kernel, 1e-6, np.empty((0, 2)), growth="streaming")

    best = world.better([judged], starts, None, tune, None)
    assert best.mean > judged.mean + 1.0
    for s in range(S - 1):
        assert world.plan(best.values, np.array([NAMES[s]]))[0] == 1.0
    assert world.better([best], starts, None, tune, None).mean == pytest.approx(best.mean)


def test_the_way_to_what_was_never_tried():
    experience = walked(allowed=lambda s, a: (s, a) != (3, 1))
    world = tables(experience)
    world.explore(None, experience, None, None)
    assert [world.plan(world.explorer, np.array([NAMES[s]]))[0] for s in range(4)] == [1.0] * 4
    world.learn(walked(), np.random.default_rng(0))
    assert world.growth == 1.0
    world.learn(walked(), np.random.default_rng(0))
    assert world.growth == 0.0


def test_exploring_is_value_iteration_with_a_bonus():
    experience = walked()
    world, (P, r, n) = tables(experience), dense(experience)
    world.explore(None, experience, None, None)
    gamma, Q = 1.0 - (1.0 - GAMMA) / 3.0, np.zeros((S, A))
    r[: S - 1] += 0.1 * np.ptp(experience.rewards) / np.sqrt(n[: S - 1])
    for _ in range(2_000):
        Q = r + gamma * P @ Q.max(axis=1)
    for s in range(S - 1):
        at = world.explorer.states[(NAMES[s],)]
        np.testing.assert_allclose(world.explorer.Q[at], Q[s], atol=1e-6)


def test_an_observation_of_which_nothing_is_known():
    experience = walked(allowed=lambda s, a: (s, a) != (3, 1))
    world = tables(experience)
    world.explore(None, experience, None, None)
    world.seen(np.array([NAMES[1], 0.0]), np.array([9.0]))
    assert not world.outgrown  # until something is done there
    world.seen(np.array([NAMES[3], 1.0]), np.array([NAMES[4]]))
    assert world.outgrown
    world.learn(experience, np.random.default_rng(0))
    assert not world.outgrown
    world.seen(np.array([9.0, 0.0]), np.array([NAMES[1]]))
    assert world.outgrown
    assert world.plan(world.explorer, np.array([9.0]))[0] in (0.0, 1.0)


class Corridor(gymnasium.Env):
    """Twelve rooms in a row, four doors each, of which one leads on and the others back to the first."""

    observation_space, action_space = spaces.Discrete(12), spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room = self.steps = 0
        return 0, {}

    def step(self, action):
        self.room, self.steps = self.room + 1 if action == self.room % 4 else 0, self.steps + 1
        return min(self.room, 11), float(self.room == 12), self.room == 12, self.steps == 60, {}


@pytest.mark.parametrize("seed", range(3))
def test_each_door_is_tried_once_and_then_another(seed):
    """A wish that stays once it is fulfilled would use the same door to the end of the episode."""
    agent = SarsaAgent(Corridor(), seed=seed, warmup=60).learn(900)
    assert (agent.experience.rewards > 0.0).any()


def test_starts_of_which_nothing_is_known_are_left_out():
    """A copy of the environment began an episode, and has not stepped yet."""
    experience = walked()
    world = tables(experience)
    world.starts.append(np.array([9.0]))
    starts = world.some_starts(experience, None)
    assert starts.ravel().tolist() == [NAMES[0], NAMES[2]]
    world.starts.clear()
    world.starts.append(np.array([9.0]))
    assert set(world.some_starts(experience, None).ravel()) == set(NAMES[: S - 1])


def test_a_start_that_was_never_counted_is_worth_the_worst():
    found = tables(walked())
    values = found.values_of(posterior(np.eye(S)[:, :A]))
    judged = found.judge(values, np.array([[NAMES[0]], [9.0], [NAMES[2]]]))
    known = found.judge(values, np.array([[NAMES[0]], [NAMES[2]]]))
    np.testing.assert_array_equal(judged.returns[[0, 2]], known.returns)
    assert judged.returns[1] == found.worst(found.steps) < known.returns.min()
    assert judged.lost


def test_tables_are_saved_whole():
    experience = walked(allowed=lambda s, a: (s, a) != (3, 1))
    world = tables(experience)
    world.explore(None, experience, None, None)
    other = Tables(Observations(spaces.Discrete(10)), Actions(spaces.Discrete(A)), GAMMA, 60)
    other.restore(*world.state())
    values = values_of(posterior(np.arange(10).reshape(5, 2)), world.candidates, 1, GAMMA)
    starts = np.array(world.starts)
    assert np.array_equal(world.judge(values, starts).returns, other.judge(values, starts).returns)
    assert world.explorer.states == other.explorer.states
    assert np.array_equal(world.explorer.Q, other.explorer.Q)
    assert np.array_equal(world.explorer.tried, other.explorer.tried)
    arrays, content = world.state()
    for name in ("wish", "wish.tried"):
        with pytest.raises(ValueError, match="the wish has shapes"):
            other.restore({**arrays, name: arrays[name][1:]}, content)
    assert (world.steps, world.least, world.growth) == (other.steps, other.least, other.growth)


def test_an_agent_on_ice():
    """FrozenLake, slippery: the best policy there is reaches the goal in 74 of 100 episodes."""
    env = gymnasium.make("FrozenLake-v1")
    agent = SarsaAgent(env, seed=5).learn(4_000)
    assert isinstance(agent.imagination, Tables)
    assert agent.failures == 0
    P = env.unwrapped.P
    chosen = [int(agent.predict(s)[0]) for s in range(16)]
    V = np.zeros(16)
    for _ in range(100):
        V = np.array([sum(p * (r + (not end) * V[t]) for p, t, r, end in P[s][chosen[s]]) for s in range(16)])
    assert V[0] > 0.6


def test_without_a_discount():
    """What was never tried is worth much, not infinitely much."""
    agent = SarsaAgent(gymnasium.make("FrozenLake-v1"), gamma=1.0, seed=0).learn(300)
    assert np.isfinite(agent.imagination.explorer.Q).all()
