"""What an agent learns from its memory: the store, policy improvement, the critic, and the incumbent."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from test_environments import Target
from test_errors import fingerprint
from test_fixed_point import fixed_point_posterior, same_posterior
from test_sparse import close

from gpsarsa import SparseGPSarsa, Transitions
from gpsarsa.belief import symmetrised
from gpsarsa.control import agent as agent_module
from gpsarsa.control import improvement as module
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.critic import Critic
from gpsarsa.control.experience import Experience
from gpsarsa.control.improvement import Improvement
from gpsarsa.control.incumbent import Incumbent
from gpsarsa.control.spaces import GRID, SPREAD, Actions, Observations
from gpsarsa.kernels import RBF, Delta, Matern32, Matern52

GAMMA = 0.9

# ── the store ────────────────────────────────────────────────────────────────────────────────────────


def row(experience, i):
    """A stored row as a tuple of numbers."""
    t = experience.inputs[i], experience.rewards[i], experience.following[i], experience.discounts[i]
    return (*t[0], t[1], *t[2], t[3])


def rows(experience):
    return sorted(row(experience, i) for i in range(len(experience)))


def numbered(i):
    """The i-th transition of a stream whose rows are all different."""
    return (
        np.array([i, -i, i % 3]),
        0.5 * i,
        np.array([i + 1, -i - 1, (i + 1) % 3]),
        0.0 if i % 5 == 4 else GAMMA,
    )


def as_row(i):
    x, reward, following, discount = numbered(i)
    return (*x, reward, *following, discount)


def filled(count, capacity):
    experience = Experience(2, 1, capacity)
    for i in range(count):
        experience.add(*numbered(i))
    return experience


@pytest.mark.parametrize("capacity", [1, 7, 255, 256, 257, 600])
def test_the_store_keeps_what_is_newest(capacity):
    experience = Experience(2, 1, capacity)
    for i in range(2 * capacity + 50):
        experience.add(*numbered(i))
        assert len(experience) == min(i + 1, capacity)
        aged = [row(experience, at) for at in experience.by_age[[0, -1]]]
        assert aged == [as_row(max(i + 1 - capacity, 0)), as_row(i)]
    assert [row(experience, at) for at in experience.by_age] == [
        as_row(i) for i in range(i + 1 - capacity, i + 1)
    ]


def test_rows_are_counted_until_they_are_replaced():
    experience = filled(20, 20)
    np.testing.assert_array_equal(experience.uncounted(), np.arange(20))
    assert len(experience.gone()) == 0
    experience.all_counted()
    assert len(experience.uncounted()) == 0
    before = rows(experience)
    for i in range(20, 33):
        experience.add(*numbered(i))
    assert len(experience.gone()) == len(experience.uncounted()) == 13
    for i in range(33, 50):  # 30 rows into 20 places: some are replaced twice
        experience.add(*numbered(i))
    gone, kept = experience.gone(), set(rows(experience))
    lost = [old for old in before if old not in kept]
    assert len(lost) == 20
    assert len(gone) == len(lost)  # those that were counted, and no row that came and went in between
    assert sorted(gone.rewards) == sorted(old[3] for old in lost)
    uncounted = {row(experience, i) for i in experience.uncounted()}
    assert uncounted == kept - set(before)
    experience.all_counted()
    assert len(experience.gone()) == len(experience.uncounted()) == 0


def test_rows_that_are_gone_keep_the_next_actions_they_were_counted_with():
    experience = filled(5, 5)
    experience.relabel(np.arange(5), np.full((5, 1), 7.0))
    experience.all_counted()
    for i in range(5, 40):
        experience.add(*numbered(i))
    gone = experience.gone()
    assert len(gone) == 5
    going_on = gone.discounts > 0
    assert (gone.next_inputs[going_on, 2] == 7.0).all()
    assert going_on.sum() == 4


def test_relabelling_changes_next_actions_alone():
    experience = filled(12, 12)
    inputs, rewards, discounts = (
        array.copy() for array in (experience.inputs, experience.rewards, experience.discounts)
    )
    following = experience.following.copy()
    experience.relabel(np.array([2, 5]), np.array([[8.0], [9.0]]))
    following[[2, 5], 2] = 8.0, 9.0
    np.testing.assert_array_equal(experience.following, following)
    np.testing.assert_array_equal(experience.inputs, inputs)
    np.testing.assert_array_equal(experience.rewards, rewards)
    np.testing.assert_array_equal(experience.discounts, discounts)
    t = experience.transitions(np.array([5, 2]))
    np.testing.assert_array_equal(t.next_inputs, following[[5, 2]])
    np.testing.assert_array_equal(t.inputs, inputs[[5, 2]])
    assert t.starts.all()


def test_a_sample_of_rows_has_no_row_twice():
    experience, rng = filled(40, 40), np.random.default_rng(0)
    np.testing.assert_array_equal(experience.sample(40, rng), np.arange(40))
    np.testing.assert_array_equal(experience.sample(99, rng), np.arange(40))
    seen = np.zeros(40)
    for _ in range(400):
        chosen = experience.sample(10, rng)
        assert len(chosen) == 10
        assert (np.diff(chosen) > 0).all()
        seen[chosen] += 1
    assert seen.min() > 50  # 100 are expected of each


@pytest.mark.parametrize(("count", "capacity"), [(0, 9), (5, 9), (40, 9), (700, 600), (300, 5000)])
def test_a_restored_store_goes_on_the_same(count, capacity):
    experience = filled(count, capacity)
    experience.all_counted()
    for i in range(count, count + 6):
        experience.add(*numbered(i))
    twin = Experience(2, 1, capacity).restore(
        {name: array.copy() for name, array in experience.state().items()}
    )
    assert rows(twin) == rows(experience)
    for i in range(1000, 1400):
        experience.add(*numbered(i))
        twin.add(*numbered(i))
    for name, array in experience.state().items():
        assert array.tobytes() == twin.state()[name].tobytes()
    np.testing.assert_array_equal(twin.uncounted(), experience.uncounted())


def test_a_store_does_not_restore_what_is_not_its_own():
    state = filled(20, 20).state()
    with pytest.raises(ValueError, match="20 transitions are kept; expected at most 10"):
        Experience(2, 1, 10).restore(state)
    with pytest.raises(ValueError, match="rows"):
        Experience(3, 1, 20).restore(state)
    with pytest.raises(ValueError, match="oldest is row 20; there are 20 of 20"):
        Experience(2, 1, 20).restore({**state, "oldest": np.array([20])})
    with pytest.raises(ValueError, match="oldest is row 1; there are 20 of 30"):
        Experience(2, 1, 30).restore({**state, "oldest": np.array([1])})


@pytest.mark.parametrize("count", [3, 40, 300])
def test_the_newest_rows_are_known(count):
    experience = filled(count, 90)
    expected = [numbered(i)[0] for i in range(max(count - 50, 0), count)]
    np.testing.assert_array_equal(experience.inputs[experience.newest], expected)


# ── policy improvement ───────────────────────────────────────────────────────────────────────────────


class Own:
    """A kernel of the user's, which the package can only call."""

    joint = Matern52([0.8, 1.0, 1.5], 2.0)

    def __call__(self, A, B):
        return self.joint(A, B)

    def diag(self, A):
        return self.joint.diag(A)


BOX1 = spaces.Box(-1.0, 1.0, (1,), np.float64)
BOX2 = spaces.Box(-1.0, 1.0, (2,), np.float64)
CASES = {
    "factorised": (spaces.Discrete(3), RBF([0.8, 1.0], 2.0, [0, 1]) * Delta(2, share=0.3)),
    "three factors": (
        spaces.Discrete(3),
        Matern52(1.0, 2.0, 0) * Delta(2, share=0.3) * Matern32(1.5, 1.0, 1),
    ),
    "factors of sums": (
        spaces.Discrete(3),
        (RBF(0.8, 1.0, [0, 1]) + Matern32(1.0, 0.5, 0)) * (Delta(2) + Delta(2, share=0.5)),
    ),
    "no action part": (spaces.Discrete(3), Matern52([0.8, 1.0], 2.0, [0, 1])),
    "joint": (spaces.Discrete(3), Matern52([0.8, 1.0, 1.5], 2.0)),
    "sum": (spaces.Discrete(3), RBF([0.8, 1.0], 1.0, [0, 1]) + Matern32(1.0, 1.0, [0, 2])),
    "own kernel": (spaces.Discrete(3), Own()),
    "two discrete": (spaces.MultiDiscrete([2, 3]), RBF(1.0, 2.0, [0, 1]) * Delta(2, 0.3) * Delta(3, 0.6)),
    "continuous": (BOX1, Matern52([0.8, 1.0], 2.0, [0, 1]) * Matern52(0.8, 1.0, 2)),
    "continuous joint": (BOX1, Matern52([0.8, 1.0, 0.9], 2.0)),
    "two continuous": (BOX2, RBF(1.0, 2.0, [0, 1]) * Matern52(0.8, 1.0, [2, 3])),
}
SETTLING = [name for name in CASES if name != "two continuous"]  # there other actions are tried each time


class World:
    """A smooth deterministic world of two numbers, and a store with a model and its improvement."""

    def __init__(self, name, capacity=10_000, stochastic=False, seed=0, size=14):
        space, kernel = CASES[name]
        self.rng, self.actions = np.random.default_rng(seed), Actions(space)
        self.experience = Experience(2, self.actions.columns, capacity)
        self.improvement = Improvement(self.experience, self.actions)
        self.improvement.stochastic = stochastic
        Z = np.hstack([1.5 * self.rng.standard_normal((size, 2)), self.actions.random(size, self.rng)])
        self.model = SparseGPSarsa(kernel, 0.05, Z, growth="streaming", prior_mean=0.4)

    def gather(self, count):
        for _ in range(count):
            state, action = self.rng.standard_normal(2), self.actions.random(1, self.rng)[0]
            push = np.pi * (action / self.actions.high).mean()
            reached = 0.7 * state + 0.7 * np.array([np.sin(push), np.cos(push)])
            reward = float(np.exp(-np.square(reached - 1.0).sum()))
            following = np.concatenate([reached, self.actions.random(1, self.rng)[0]])
            ended = self.rng.random() < 0.1
            x = np.concatenate([state, action])
            self.experience.add(x, reward, x if ended else following, 0.0 if ended else GAMMA)
        return self

    def improve(self, rounds):
        return self.improvement.improve(self.model, rounds, self.rng)

    def stored(self):
        e = self.experience
        starts = np.ones(len(e), bool)
        return Transitions(e.inputs, e.rewards, e.following, e.discounts, starts)

    def fitted(self):
        """A fresh model of the same kind, fitted to what is stored."""
        model = self.model
        return SparseGPSarsa(
            model.kernel, model.noise_variance, model.pseudo_inputs, growth="streaming", prior_mean=0.4
        ).fit(self.stored())

    def asked(self):
        return np.hstack([self.rng.standard_normal((40, 2)), self.actions.random(40, self.rng)])

    def check(self):
        """The model's posterior is that of the stored transitions with their present next actions."""
        X, model = self.asked(), self.model
        if self.improvement.stochastic:
            same_posterior(
                model,
                fixed_point_posterior(
                    model.kernel, model.noise_variance, model.pseudo_inputs, self.stored(), X, prior_mean=0.4
                ),
                X, 1e-8,
            )  # fmt: skip
            return
        mean, std = model.predict(X, return_std=True)
        expected_mean, expected_std = self.fitted().predict(X, return_std=True)
        close(mean, expected_mean, max(1.0, np.abs(expected_mean).max()), 1e-8)
        close(std**2, expected_std**2, np.abs(model.kernel.diag(X)).max(), 1e-8)

    def regret(self):
        """For each row that goes on, how much better the best candidate is than its next action."""
        candidates = self.actions.some(GRID, SPREAD, self.rng)
        going = self.experience.following[self.experience.discounts > 0]
        values = np.array(
            [
                self.model.predict(np.hstack([np.tile(state, (len(candidates), 1)), candidates]))
                for state in going[:, :2]
            ]
        )
        return values.max(axis=1) - self.model.predict(going)


class Finite(World):
    """Some states far from each other, all of their actions tried: a problem that its rows determine."""

    def __init__(self, name, stochastic):
        super().__init__(name)
        self.candidates = self.actions.some(GRID, SPREAD, self.rng)
        count = 75 // len(self.candidates)
        self.states = 6.0 * self.rng.standard_normal((count, 2))
        self.following = self.rng.integers(0, count, (count, len(self.candidates)))
        self.pairs = [(i, a) for i in range(count) for a in range(len(self.candidates))]
        self.experience = Experience(2, self.actions.columns, 2 * len(self.pairs))
        self.improvement = Improvement(self.experience, self.actions)
        self.improvement.stochastic = stochastic
        Z = np.array([[*self.states[i], *self.candidates[a]] for i, a in self.pairs])
        self.model = SparseGPSarsa(self.model.kernel, 1e-6, Z[:0], growth="streaming", prior_mean=0.4)
        self.model.add_pseudo_inputs(Z)

    def gather(self, pairs):
        for i, a in pairs:
            x = np.concatenate([self.states[i], self.candidates[a]])
            reached = self.following[i, 0 if self.actions.continuous else a]
            reward = (
                np.sin(3.0 * reached) - ((self.candidates[a] / self.actions.high).mean() - np.sin(i)) ** 2
            )
            any_action = self.candidates[self.rng.integers(len(self.candidates))]
            following = np.concatenate([self.states[reached], any_action])
            ended = reached == 0
            self.experience.add(x, reward, x if ended else following, 0.0 if ended else GAMMA)


@pytest.mark.parametrize("stochastic", [False, True], ids=["deterministic", "stochastic"])
@pytest.mark.parametrize("name", CASES)
def test_whatever_happens_the_posterior_is_that_of_the_stored_transitions(name, stochastic):
    """New rows, replaced rows, relabelled rows, recursive updates in between, new pseudo-inputs."""
    world = World(name, capacity=90, stochastic=stochastic)
    world.gather(30).improvement.improve(world.model, 0, world.rng)
    world.check()
    for step, count in enumerate((0, 7, 40, 1, 60, 200, 0, 5, 20)):
        world.gather(count)
        if step % 2:
            t = world.stored()[-3:]
            world.model.update(t)  # what the fast timescale does until then is no part of the sums
        if step == 4:
            X = np.hstack([1.5 * world.rng.standard_normal((3, 2)), world.actions.random(3, world.rng)])
            world.model.add_pseudo_inputs(X)
        if step == 5:
            world.model.remove_pseudo_inputs([0, 3])
        if step == 6:
            old, world.model = world.model, world.model.copy()
            world.improvement.rebase(old, world.model)
        (world.improve(1 + step % 3) if step % 3 else world.improvement.improve(world.model, 0, world.rng))
        world.check()
    assert len(world.experience) == 90


@pytest.mark.parametrize("stochastic", [False, True], ids=["deterministic", "stochastic"])
@pytest.mark.parametrize("name", SETTLING)
def test_when_it_has_settled_next_actions_are_greedy(name, stochastic):
    """Where the transitions determine Q, policy iteration ends, and with a greedy policy."""
    world = Finite(name, stochastic)
    assert world.experience.capacity < 1.0 / module.SETTLED  # a settled policy has no change left
    for pairs in (world.pairs, world.pairs, world.pairs[::20]):  # the store is full after the second time
        world.gather(pairs)
        labels = world.experience.following.copy()
        assert world.improve(60) < 60
        assert world.regret().max() < 1e-10
        if name != "no action part":  # there all actions are equally good
            changed = (labels != world.experience.following).any(axis=1)
            assert 0.2 * len(pairs) < changed.sum() < len(changed)
    assert world.improve(60) == 1  # settled: another call finds nothing to do


def test_rows_that_ended_keep_their_place():
    """A terminated row has no next action to choose."""
    world = World("factorised").gather(120)
    ended = world.experience.discounts == 0.0
    before = world.experience.following[ended].copy()
    world.improve(30)
    np.testing.assert_array_equal(world.experience.following[ended], before)
    assert ended.any()


@pytest.mark.parametrize("name", ["factorised", "joint", "continuous"])
@pytest.mark.parametrize("stochastic", [False, True], ids=["deterministic", "stochastic"])
def test_a_restored_improvement_goes_on_bit_for_bit(name, stochastic):
    world, twin = (World(name, capacity=80, stochastic=stochastic) for _ in range(2))
    for count in (60, 50):
        world.gather(count)
        world.improve(2)
    twin.gather(110)  # for the generator's state, which is the same from here on
    twin.rng.bit_generator.state = world.rng.bit_generator.state
    twin.model = world.model.copy()
    twin.experience.restore({n: array.copy() for n, array in world.experience.state().items()})
    sums = {n: array.copy() for n, array in world.improvement.state(world.model).items()}
    assert sums
    twin.improvement.restore(sums, twin.model)
    for count in (0, 15, 70, 3):
        for each in (world, twin):
            each.gather(count)
            each.improve(3)
        assert fingerprint(world.model) == fingerprint(twin.model)
        np.testing.assert_array_equal(world.experience.following, twin.experience.following)
    world.model.add_pseudo_inputs(world.asked()[:1])
    assert world.improvement.state(world.model) == {}  # of another basis: they no longer count


def test_forgetting_the_sums_changes_nothing_but_rounding():
    world = World("factorised", capacity=60).gather(150)
    world.improve(60)
    X, mean = world.asked(), None
    for _ in range(3):
        world.improvement.forget()
        world.improvement.improve(world.model, 0, world.rng)
        world.check()
        mean = world.model.predict(X) if mean is None else mean
        close(world.model.predict(X), mean, rtol=1e-9)


def test_rounding_errors_of_rows_that_were_taken_away_do_not_stay():
    """Of large sums small ones are left, and the matrix may have lost its sign: everything is summed anew."""
    world = World("factorised", capacity=60).gather(150)
    world.improve(2)
    sums = world.improvement._sums
    values, vectors = np.linalg.eigh(symmetrised(sums.gram, len(sums.moment)))
    sums.gram -= (values[0] + 2.0) * np.outer(vectors[:, 0], vectors[:, 0])  # as I + Σ bψψᵀ may not be
    world.improvement.improve(world.model, 0, world.rng)
    assert world.improvement._sums is not sums
    world.check()


# ── a small world solved by dynamic programming ──────────────────────────────────────────────────────

WALLS = {(1, 1), (1, 2), (1, 3), (3, 0), (3, 1), (3, 3)}
GOALS = {(4, 0): 10.0, (0, 4): 1.0}
MOVES = [(1, 0), (-1, 0), (0, 1), (0, -1)]
CELLS = [(i, j) for i in range(5) for j in range(5) if (i, j) not in WALLS and (i, j) not in GOALS]


def moved(cell, action):
    """Where a move leads, its reward, and whether it ends there."""
    i, j = cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]
    reached = cell if not (0 <= i < 5 and 0 <= j < 5) or (i, j) in WALLS else (i, j)
    return reached, GOALS.get(reached, -0.2), reached in GOALS


def optimal():
    """Q* by value iteration."""
    Q = {(cell, action): 0.0 for cell in CELLS for action in range(4)}
    for _ in range(300):
        for cell, action in Q:
            reached, reward, ended = moved(cell, action)
            Q[cell, action] = reward + (0.0 if ended else GAMMA * max(Q[reached, a] for a in range(4)))
    return Q


@pytest.mark.parametrize("stochastic", [False, True], ids=["residual", "fixed point"])
@pytest.mark.parametrize("seed", range(3))
def test_policy_improvement_solves_a_maze(stochastic, seed):
    """A small reward near by, a large one around the corner: every cell's action must be optimal."""
    rng, experience = np.random.default_rng(seed), Experience(2, 1, 1000)
    for cell in CELLS:
        for action in range(4):
            reached, reward, ended = moved(cell, action)
            x = np.array([*cell, action], dtype=float)
            following = np.array([*reached, rng.integers(4)], dtype=float)
            experience.add(x, reward, following, 0.0 if ended else GAMMA)
    kernel = Matern52(0.5, 25.0, [0, 1]) * Delta(2, share=0.1)
    model = SparseGPSarsa(kernel, 1e-6, experience.inputs.copy(), growth="streaming")
    improvement = Improvement(experience, Actions(spaces.Discrete(4)))
    improvement.stochastic = stochastic
    assert improvement.improve(model, 60, rng) < 60
    Q = optimal()
    learnt = dict(zip(Q, model.predict(np.array([[*cell, a] for cell, a in Q], dtype=float)), strict=True))
    for key in Q:
        assert abs(learnt[key] - Q[key]) < 1e-3
    for cell in CELLS:
        best = max(range(4), key=lambda a: learnt[cell, a])
        assert Q[cell, best] > max(Q[cell, a] for a in range(4)) - 1e-9
    assert len(set(Q.values())) > 10  # a problem with something to find out


# ── the critic ───────────────────────────────────────────────────────────────────────────────────────


class RandomPushes(gymnasium.ActionWrapper):
    """Now and then a random action instead of the one chosen."""

    def action(self, action):
        return self.action_space.sample() if self.np_random.random() < 0.2 else action

    def reset(self, **options):
        self.action_space.seed(options.get("seed"))
        return super().reset(**options)


def frozen_lake(slippery):
    return gymnasium.make("FrozenLake-v1", is_slippery=slippery)


ENVIRONMENTS = {
    "CartPole": (lambda: gymnasium.make("CartPole-v1"), False),
    "MountainCar": (lambda: gymnasium.make("MountainCar-v0"), False),
    "FrozenLake": (lambda: frozen_lake(False), False),
    "slippery FrozenLake": (lambda: frozen_lake(True), True),
    "pushed CartPole": (lambda: RandomPushes(gymnasium.make("CartPole-v1")), True),
}


def gathered(env, steps, seed=0):
    """An agent that has only gathered data, by random actions."""
    return SarsaAgent(env, seed=seed, warmup=10**9).learn(steps)


@pytest.mark.parametrize("steps", [200, 1200])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_whether_transitions_are_stochastic_is_seen(name, steps):
    make, noisy = ENVIRONMENTS[name]
    for seed in range(3):
        agent = gathered(make(), steps, seed)
        assert agent.critic.stochastic(agent.experience, np.random.default_rng(seed)) is noisy
        assert agent.critic.reward_noise(agent.experience, np.random.default_rng(seed)) == 0.0 or noisy


def test_a_store_of_mostly_the_same_input_is_judged_too(rng):
    """Most distances are 0, which says nothing about how outcomes change with the distance."""
    experience = Experience(1, 1, 1000)
    for i in range(200):
        x = np.array([0.0 if i % 4 else rng.uniform(), 1.0])
        experience.add(x, -1.0, np.array([0.9 * x[0], 1.0]), GAMMA)
    critic = Critic(Observations(spaces.Box(0.0, 1.0, (1,))), Actions(spaces.Discrete(2)), GAMMA, 10)
    assert critic.stochastic(experience, rng) is False


@pytest.mark.parametrize("name", ["CartPole", "Target", "slippery FrozenLake", "MountainCar"])
def test_what_the_critic_learns_stays_inside_its_bounds(name):
    agent = gathered(Target() if name == "Target" else ENVIRONMENTS[name][0](), 400)
    experience, rng = agent.experience, np.random.default_rng(0)
    critic = Critic(agent.observations, agent.actions, 0.97, budget=40)
    first = critic.placed(critic.first(experience), experience, rng)
    unit = max(np.std(experience.rewards), np.abs(experience.rewards).mean())
    visited = {tuple(x) for x in experience.inputs}
    for stochastic in (False, True):
        model, evidence = critic.learn(first, experience, rng, stochastic=stochastic, own_kernel=False)
        assert np.isfinite(evidence)
        bounds = critic.bounds(model.kernel, critic.scaling(experience), unit)
        learnt = model.kernel.parameters
        assert set(bounds) <= set(learnt)
        for key, (low, high) in bounds.items():
            value = np.asarray(learnt[key])
            assert (value >= low * (1 - 1e-9)).all(), key
            assert (value <= high * (1 + 1e-9)).all(), key
        assert 0.0 < model.noise_variance < 10 * max(unit**2, np.var(experience.rewards)) * 1e3
        assert 0 < len(model.pseudo_inputs) <= 40
        assert {tuple(z) for z in model.pseudo_inputs} <= visited
        assert model.n_transitions == 0  # not fitted yet
    kept, evidence = critic.learn(first, experience, rng, stochastic=False, own_kernel=True)
    assert kept.kernel == first.kernel
    assert kept.noise_variance == first.noise_variance
    assert np.isnan(evidence)


def test_pseudo_inputs_are_not_placed_where_they_would_determine_each_other(rng):
    """A store that holds the same few inputs many times over."""
    experience = Experience(1, 1, 1000)
    for i in range(400):
        x = np.array([i % 4, i % 2], dtype=float)
        experience.add(x, 1.0, x, 0.9)
    critic = Critic(Observations(spaces.Box(0.0, 3.0, (1,))), Actions(spaces.Discrete(2)), 0.9, budget=200)
    model = critic.placed(critic.first(experience), experience, rng)
    assert len(model.pseudo_inputs) == 4


class Scaled(gymnasium.Wrapper):
    """The same environment counted in other units."""

    def __init__(self, env, observation=1.0, reward=1.0):
        super().__init__(env)
        space, self.by, self.reward = env.observation_space, observation, reward
        self.observation_space = spaces.Box(
            space.low.astype(float) * observation, space.high.astype(float) * observation, dtype=np.float64
        )

    def reset(self, **options):
        observation, info = super().reset(**options)
        return observation.astype(float) * self.by, info

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation.astype(float) * self.by, float(reward) * self.reward, *rest


def returns(env, steps, scale=1.0, **options):
    found = []

    class Log(gymnasium.Wrapper):
        """The undiscounted return of every episode."""

        def reset(self, **options):
            self.total = 0.0
            return super().reset(**options)

        def step(self, action):
            answer = super().step(action)
            self.total += answer[1] / scale
            if answer[2] or answer[3]:
                found.append(self.total)
            return answer

    agent = SarsaAgent(Log(env), seed=3, **options).learn(steps)
    return found, agent


@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCar-v0", "Target"])
@pytest.mark.parametrize(
    "units", [{"observation": 1000.0}, {"reward": 1000.0}], ids=["observation", "reward"]
)
def test_units_do_not_matter(name, units, monkeypatch):
    """Continuous actions are equal to about the root of the rounding, discrete ones exactly.

    What is imagined is chosen among many policies that are nearly as good, by searches that end where
    rounding ends them: of that, see `test_imagination.test_units_do_not_matter`.
    """
    monkeypatch.setattr(agent_module, "imagination_of", lambda *given: None)
    found, agents = [], []
    for own in ({}, units):
        env, steps = (Target(), 240) if name == "Target" else (gymnasium.make(name), 600)
        totals, agent = returns(Scaled(env, **own), steps, own.get("reward", 1.0), warmup=100, budget=60)
        found.append(totals)
        agents.append(agent)
    assert len(found[0]) >= 3
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4 if name == "Target" else 1e-12)
    stochastic = [agent.learner.improvement.stochastic for agent in agents]
    assert stochastic[0] == stochastic[1]


# ── the incumbent ────────────────────────────────────────────────────────────────────────────────────


def a_model(number=0.0):
    return SparseGPSarsa(RBF([1.0, 1.0]), 0.1, [[number, 0.0]], growth="streaming")


class Competition:
    """Episodes in which policies with known mean returns act, as an agent lets them."""

    def __init__(self, seed=0):
        self.incumbent, self.rng, self.worth = Incumbent(), np.random.default_rng(seed), {}
        self.episode, self.roles = 0, []

    def run(self, episodes, worth, spread=1.0, first=None):
        """Every new posterior is worth so much; `first` replaces the return of its first showing."""
        incumbent = self.incumbent
        for _ in range(episodes):
            role = incumbent.role(self.episode)
            if role == "trial":
                model = incumbent.challenger.model
            elif role == "incumbent":
                model = incumbent.holder.model
            else:
                model = a_model(self.episode)
                self.worth[id(model)] = model, worth
            total = self.worth[id(model)][1] + spread * self.rng.standard_normal()
            if role == "explore" and first is not None:
                total = first
            self.episode += 1
            self.roles.append(role)
            incumbent.finished(role, model, total, 10, 10 * self.episode, np.array([float(self.episode)]))
        return self

    @property
    def held(self):
        """What the incumbent is worth."""
        return self.worth[id(self.incumbent.holder.model)][1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_better_policy_replaces_the_incumbent_and_a_worse_one_does_not(seed, spread):
    game = Competition(seed).run(12, 0.0, spread)
    assert game.held == 0.0
    assert game.run(40, 10.0, spread).held == 10.0
    assert game.run(60, 0.0, spread).held == 10.0
    assert game.run(60, 9.0, 0.0).held == 10.0  # a little worse, without noise


@pytest.mark.parametrize("seed", range(5))
def test_a_lucky_challenger_is_dropped(seed):
    """Its first showing is far above what the incumbent does, its trials are not."""
    game = Competition(seed).run(12, 5.0)
    holder = game.incumbent.holder
    for _ in range(10):
        game.run(8, 0.0, first=8.0)
    assert game.held == 5.0
    assert game.incumbent.holder is holder
    assert "trial" in game.roles


@pytest.mark.parametrize("seed", range(5))
def test_a_lucky_holder_is_found_out(seed):
    """It came by one return that it never has again; honest ones of half that take over."""
    game = Competition(seed).run(1, 0.0, first=100.0)
    assert game.incumbent.holder.mean == 100.0
    assert game.run(120, 50.0).held == 50.0
    assert "incumbent" in game.roles


def test_without_noise_trials_come_to_an_end():
    """All policies return the same: there is nothing to decide."""
    game = Competition().run(150, 7.0, 0.0)
    game.roles.clear()
    assert "trial" not in game.run(100, 7.0, 0.0).roles


def test_exploration_goes_on_whatever_the_returns_are():
    for spread in (1.0, 100.0):
        game = Competition(1).run(200, 3.0, spread)
        assert game.roles.count("explore") > 20
        assert game.roles.count("incumbent") > 5


def test_what_is_no_contenders_own_return_counts_for_nobody():
    incumbent = Incumbent()
    incumbent.finished("random", None, 50.0, 10, 10, np.zeros(2))
    assert incumbent.holder is incumbent.challenger is None
    holder = a_model()
    incumbent.finished("explore", holder, 1.0, 10, 20, np.zeros(2))
    incumbent.finished(
        "incumbent", a_model(1.0), 99.0, 10, 30, np.zeros(2)
    )  # another model than the incumbent's
    incumbent.finished("trial", a_model(1.0), 99.0, 10, 40, np.zeros(2))  # nobody is on trial
    assert incumbent.holder.model is holder
    assert list(incumbent.holder.returns) == [1.0]
    assert incumbent.challenger is None


@pytest.mark.parametrize("episodes", [0, 1, 13, 14, 15, 40])
def test_a_restored_incumbent_decides_the_same(episodes):
    game = Competition(4).run(episodes, 1.0)
    arrays, content = game.incumbent.state()
    twin = Competition(4)
    kernel = RBF([1.0, 1.0])

    def kernel_of(described):
        assert described == kernel.to_config()
        return kernel

    twin.incumbent.restore(arrays, content, kernel_of, None)
    twin.episode, twin.rng.bit_generator.state = game.episode, game.rng.bit_generator.state
    for name in ("holder", "challenger"):
        mine, theirs = (getattr(each.incumbent, name) for each in (game, twin))
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert fingerprint(mine.model) == fingerprint(theirs.model)
            np.testing.assert_array_equal(mine.starts, theirs.starts)
            twin.worth[id(theirs.model)] = theirs.model, game.worth[id(mine.model)][1]
    for _ in range(30):
        game.run(1, 1.5)
        twin.run(1, 1.5)
        assert game.roles[-1] == twin.roles[-1]
        assert repr(game.incumbent.state()[1]) == repr(twin.incumbent.state()[1])


class Counted(gymnasium.Wrapper):
    """Counts what is asked of the environment."""

    steps = resets = 0

    def reset(self, **options):
        self.resets += 1
        return super().reset(**options)

    def step(self, action):
        self.steps += 1
        return super().step(action)


def test_nothing_but_training_is_asked_of_the_environment():
    env = Counted(gymnasium.make("CartPole-v1"))
    agent = SarsaAgent(env, seed=0, warmup=100, budget=40).learn(600)
    assert agent.incumbent.holder is not None
    assert env.steps == agent.num_timesteps == 600
    assert env.resets in (agent.episodes, agent.episodes + 1)
