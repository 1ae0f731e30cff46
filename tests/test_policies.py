"""How an agent acts: every policy against the posterior that it asks, and what it refuses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from gymnasium import spaces
from test_environments import Corridor, Target, model_for
from test_sparse import Cosine

from gpsarsa import SparseGPSarsa, Transitions
from gpsarsa.control import policies
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.callbacks import BaseCallback
from gpsarsa.control.policies import Decision, EpsilonGreedy, Greedy, PosteriorSampling, UpperConfidence
from gpsarsa.control.spaces import Actions
from gpsarsa.kernels import RBF, Delta, Matern52

DISCRETE = spaces.Discrete(4, start=-1)
BOX = spaces.Box(-2.0, 1.0, (1,), np.float64)
SQUARE = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 3.0]), dtype=np.float64)
BUILT_IN = {
    "greedy": Greedy(),
    "epsilon": EpsilonGreedy(0.3),
    "decaying": EpsilonGreedy(1.0, 0.05, 100),
    "confidence": UpperConfidence(1.5),
    "pessimistic": UpperConfidence(-1.5),
    "sampling": PosteriorSampling(),
}


def learnt(space, rng, kernel=None, rows=60):
    """A model over two observation columns and the actions, fitted to something with structure."""
    actions = Actions(space)
    own = list(range(2, 2 + actions.columns))
    if kernel is None:
        action = Matern52(0.7, 1.0, own) if actions.continuous else Delta(own[0], share=0.3)
        for column in own[1:] if not actions.continuous else []:
            action = action * Delta(column, share=0.3)
        kernel = Matern52([0.8, 1.1], 2.0, [0, 1]) * action
    X = np.hstack([rng.standard_normal((rows, 2)), actions.random(rows, rng)])
    rewards = np.sin(2.0 * X[:, 0]) * np.cos(1.5 * X[:, 2:].sum(axis=1)) + 0.3 * X[:, 1]
    t = Transitions(X, rewards, X, np.zeros(rows))
    model = SparseGPSarsa(kernel, 0.01, X[:0], growth="streaming", prior_mean=0.5)
    model.add_pseudo_inputs(X[::2])
    return model.fit(t), actions


def decision(model, actions, row, seed=0, step=0, draw=None):
    rng = np.random.default_rng(seed)
    return Decision(row.copy(), row, step, rng, model, actions, draw or (lambda: model.sample(1, rng)[0]))


def inputs(row, actions):
    return np.array([[*row, *action] for action in actions])


def score(model, row, actions, bonus):
    mean, std = model.predict(inputs(row, actions), return_std=True)
    return mean + bonus * std


# ── the best action ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bonus", [0.0, 1.5, -1.5])
@pytest.mark.parametrize("space", [DISCRETE, spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3)], ids=str)
def test_the_maximiser_is_the_best_of_all_discrete_actions(space, bonus, rng):
    model, actions = learnt(space, rng)
    found = set()
    for row in rng.standard_normal((40, 2)):
        scores = score(model, row, actions.candidates, bonus)
        expected = actions.candidates[np.argmax(scores)]
        for generator in (None, np.random.default_rng(1)):
            best = policies.maximiser(model, actions, row, generator, bonus)
            np.testing.assert_array_equal(best, expected)
        found.add(tuple(best))
    assert len(found) > 2


@pytest.mark.parametrize(
    ("space", "bonus"), [(BOX, 0.0), (BOX, 1.5), (BOX, -1.5), (SQUARE, 0.0), (SQUARE, 1.5)]
)
def test_the_maximiser_is_the_best_of_a_fine_grid(space, bonus, rng):
    model, actions = learnt(space, rng)
    axes = [np.linspace(lo, hi, 61) for lo, hi in zip(actions.low, actions.high, strict=True)]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, actions.columns)
    found = []
    for row in rng.standard_normal((15, 2)):
        best = policies.maximiser(model, actions, row, None, bonus)
        assert (best >= actions.low).all()
        assert (best <= actions.high).all()
        reached = score(model, row, best[None], bonus)[0]
        assert reached > score(model, row, grid, bonus).max() - 1e-3
        np.testing.assert_array_equal(policies.maximiser(model, actions, row, None, bonus), best)
        found.append(best)
    assert np.ptp(found, axis=0).max() > 0.5


def test_a_kernel_without_slopes_is_searched_by_differences(rng):
    model, actions = learnt(BOX, rng, kernel=Cosine(), rows=12)
    grid = np.linspace(-2.0, 1.0, 301)[:, None]
    for row in rng.standard_normal((5, 2)):
        best = policies.maximiser(model, actions, row, None)
        assert score(model, row, best[None], 0.0)[0] > score(model, row, grid, 0.0).max() - 1e-6


def test_many_discrete_actions_are_searched(rng):
    model, actions = learnt(spaces.MultiDiscrete([12, 12, 12]), rng)
    assert actions.candidates is None
    for row in rng.standard_normal((5, 2)):
        best = policies.maximiser(model, actions, row, None)
        around = np.array([best + d * np.eye(3)[c] for c in range(3) for d in range(-11, 12)])
        around = around[((around >= 0) & (around <= 11)).all(axis=1)]
        assert score(model, row, best[None], 0.0)[0] >= score(model, row, around, 0.0).max() - 1e-12


def test_among_equals_one_is_drawn_or_the_first_taken(rng):
    actions = Actions(DISCRETE)
    flat = SparseGPSarsa(RBF(1.0, 1.0, [0, 1]), 0.1, np.zeros((1, 3)))  # does not look at the action
    row = np.zeros(2)
    drawn = Counter(float(policies.maximiser(flat, actions, row, rng)[0]) for _ in range(800))
    assert set(drawn) == {-1.0, 0.0, 1.0, 2.0}
    assert min(drawn.values()) > 140  # 200 are expected of each
    assert {float(policies.maximiser(flat, actions, row, None)[0]) for _ in range(20)} == {-1.0}
    model, _ = learnt(DISCRETE, rng)
    model.remove_pseudo_inputs([i for i, z in enumerate(model.pseudo_inputs) if z[2] < 1.0])
    tied = Counter(float(policies.maximiser(model, actions, row, rng)[0]) for _ in range(50))
    scores = score(model, row, actions.candidates, 0.0)
    assert scores[0] == scores[1]  # both unknown
    best = set(actions.candidates[scores == scores.max(), 0])
    assert set(tied) == best


# ── policies ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_greedy_and_upper_confidence_ask_mean_and_deviation(space, rng):
    model, actions = learnt(space, rng)
    grid = actions.candidates if actions.candidates is not None else np.linspace(-2.0, 1.0, 601)[:, None]
    differs = 0
    for row in rng.standard_normal((20, 2)):
        chosen = {
            bonus: policy.row(decision(model, actions, row))
            for bonus, policy in [(0.0, Greedy()), (2.0, UpperConfidence(2.0)), (-2.0, UpperConfidence(-2.0))]
        }
        for bonus, action in chosen.items():
            tolerance = 0.0 if actions.candidates is not None else 1e-3
            best = score(model, row, grid, bonus).max()
            assert score(model, row, action[None], bonus)[0] >= best - tolerance
        differs += not np.allclose(chosen[0.0], chosen[2.0])
    assert differs > 2


def test_a_decision_offers_actions_of_the_environment(rng):
    model, actions = learnt(DISCRETE, rng)
    row = rng.standard_normal(2)
    asked = decision(model, actions, row)
    best = actions.candidates[np.argmax(score(model, row, actions.candidates, 0.0)), 0]
    assert asked.greedy == best
    assert DISCRETE.contains(asked.greedy)
    assert {int(asked.random) for _ in range(100)} == {-1, 0, 1, 2}
    model, actions = learnt(BOX, rng)
    asked = decision(model, actions, row)
    assert BOX.contains(asked.greedy)
    assert BOX.contains(asked.random)


def test_before_there_is_a_model_every_policy_is_random(rng):
    actions = Actions(DISCRETE)
    for policy in BUILT_IN.values():
        asked = decision(None, actions, np.zeros(2), seed=3)
        assert {float(policy.row(asked)[0]) for _ in range(100)} == {-1.0, 0.0, 1.0, 2.0}


def test_the_schedule_of_epsilon():
    constant, falling = EpsilonGreedy(0.2), EpsilonGreedy(0.8, 0.3, 200)
    assert [constant.at(step) for step in (0, 5, 10**9)] == [0.2] * 3
    np.testing.assert_allclose(
        [falling.at(s) for s in (0, 50, 100, 200, 201, 10**9)], [0.8, 0.675, 0.55] + [0.3] * 3
    )
    assert EpsilonGreedy(0.1, 0.9, 10).at(5) == pytest.approx(0.5)  # it may rise too
    assert EpsilonGreedy(0.1, 0.9, 0).at(0) == 0.9


@pytest.mark.parametrize("step", [0, 60, 500])
def test_epsilon_is_the_share_of_random_actions(step, rng):
    policy = EpsilonGreedy(0.9, 0.1, 100)
    model, actions = learnt(DISCRETE, rng)
    row = rng.standard_normal(2)
    asked = decision(model, actions, row, step=step)
    best = actions.candidates[np.argmax(score(model, row, actions.candidates, 0.0))]
    other = np.mean([policy.row(asked)[0] != best[0] for _ in range(3000)])
    assert abs(other - 0.75 * policy.at(step)) < 0.03  # a random action is the best one in a quarter
    for epsilon, expected in ((0.0, {float(best[0])}), (1.0, {-1.0, 0.0, 1.0, 2.0})):
        assert {float(EpsilonGreedy(epsilon).row(asked)[0]) for _ in range(100)} == expected


@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_posterior_sampling_is_greedy_in_the_function_drawn(space, rng):
    model, actions = learnt(space, rng)
    grid = actions.candidates if actions.candidates is not None else np.linspace(-2.0, 1.0, 301)[:, None]
    for seed in range(8):
        function, row = model.sample(1, seed)[0], rng.standard_normal(2)
        action = PosteriorSampling().row(decision(model, actions, row, draw=lambda: function))  # noqa: B023
        reached, best = function(inputs(row, action[None]))[0], function(inputs(row, grid)).max()
        assert reached >= best - (1e-12 if actions.candidates is not None else 0.02)


@pytest.mark.parametrize("method", ["sarsa", "improving"])
def test_posterior_sampling_draws_one_function_an_episode(method, monkeypatch):
    draws, sample = [], SparseGPSarsa.sample

    def counted(self, n, rng=None):
        draws.append(n)
        return sample(self, n, rng)

    monkeypatch.setattr(SparseGPSarsa, "sample", counted)
    roles = []

    class Roles(BaseCallback):
        def on_episode_end(self, episode):
            roles.append(episode["role"])
            return True

    env = Corridor(limit=10, pace=0.0)  # every episode takes ten steps
    agent = SarsaAgent(
        env, seed=0, method=method, model=model_for(env), policy=PosteriorSampling(), warmup=40, budget=20
    ).learn(200, callback=Roles())  # fmt: skip
    assert agent.episodes == len(roles) == 20
    assert draws == [1] * roles.count("explore")
    assert roles.count("explore") >= 3


def test_the_function_of_an_episode_stays_the_same():
    env, seen = Corridor(limit=10, pace=0.0), []

    def policy(decision):
        seen.append((decision.step, decision.draw()))
        return decision.random

    SarsaAgent(env, seed=0, method="sarsa", model=model_for(env), policy=policy).learn(30)
    # an episode of ten steps asks eleven times: the last is for the next action of a truncated episode
    episodes = [[function for _, function in seen[lo : lo + 11]] for lo in range(0, len(seen), 11)]
    assert [len(episode) for episode in episodes] == [11, 11, 11]
    for episode in episodes:
        assert all(function is episode[0] for function in episode)
    X = inputs([0.3], [[0.0], [1.0], [2.0]])
    values = [tuple(episode[0](X)) for episode in episodes]
    assert len(set(values)) == 3


@pytest.mark.parametrize("method", ["sarsa", "improving"])
@pytest.mark.parametrize("world", [Corridor, Target], ids=lambda world: world.__name__)
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_policy_runs(name, world, method):
    env = world()
    agent = SarsaAgent(env, seed=1, policy=BUILT_IN[name], method=method, warmup=50, budget=20).learn(150)
    assert agent.num_timesteps == 150
    assert agent.model is not None
    observation, _ = env.reset(seed=0)
    for deterministic in (True, False):
        assert env.action_space.contains(agent.predict(observation, deterministic=deterministic)[0])


# ── making, describing and refusing ──────────────────────────────────────────────────────────────────


def test_described_policies_are_restored():
    for policy in BUILT_IN.values():
        assert policies.restored(policies.described(policy)) == policy
    assert policies.described(lambda decision: 0) is None


def test_a_callable_becomes_a_choice_and_its_action_is_checked():
    actions = Actions(DISCRETE)
    asked = decision(None, actions, np.zeros(2))
    np.testing.assert_array_equal(policies.as_choice(lambda d: 2, actions)(asked), [2.0])
    for bad, message in (
        (3, "action = 3; expected a whole number from -1 to 2"),
        ("left", "action = 'left'"),
    ):
        with pytest.raises(ValueError, match=message):
            policies.as_choice(lambda d: bad, actions)(asked)  # noqa: B023


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: EpsilonGreedy(1.5), ValueError, "epsilon = 1.5"),
        (lambda: EpsilonGreedy(-0.1), ValueError, "epsilon = -0.1"),
        (lambda: EpsilonGreedy("a"), TypeError, "epsilon = 'a'"),
        (lambda: EpsilonGreedy(0.1, 2.0), ValueError, "final = 2.0"),
        (lambda: EpsilonGreedy(0.1, 0.0, -5), ValueError, "steps = -5"),
        (lambda: EpsilonGreedy(0.1, 0.0, 2.5), TypeError, "steps = 2.5"),
        (lambda: UpperConfidence(np.nan), ValueError, "bonus = nan"),
        (lambda: UpperConfidence(None), TypeError, "bonus = None"),
        (lambda: SarsaAgent(Corridor(), policy=3), TypeError, "policy = 3; expected one of gpsarsa.control"),
        (lambda: SarsaAgent(Corridor(), policy="greedy"), TypeError, "policy = 'greedy'"),
        (lambda: SarsaAgent(Corridor(), policy=Greedy), TypeError, "policy = .*Greedy.*; expected"),
    ],
)
def test_what_is_no_policy(make, error, message):
    with pytest.raises(error, match=message):
        make()
