"""Environments of all kinds: what an agent stores is what happened, and faults are named where they occur."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gpsarsa import SparseGPSarsa, checkpoint
from gpsarsa.control import environments
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.environments import EnvironmentFault
from gpsarsa.control.evaluation import evaluate_policy
from gpsarsa.control.policies import EpsilonGreedy
from gpsarsa.control.spaces import Actions, Observations, SpaceError
from gpsarsa.kernels import RBF, Delta, Matern52

GAMMA = 0.9

# ── small worlds ─────────────────────────────────────────────────────────────────────────────────────


class Corridor(gymnasium.Env):
    """A walk from a random place towards the right end, left, not at all, or right; −1 a step."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, limit=25, pace=0.09):
        self.limit, self.pace = limit, pace

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(0.0, 0.9)), 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.place])

    def step(self, action):
        assert self.action_space.contains(action)
        self.place = float(np.clip(self.place + self.pace * (int(action) - 1), 0.0, 1.0))
        self.steps += 1
        return self.seen(), -1.0, self.place == 1.0, self.steps == self.limit, {}


class Signposted(Corridor):
    """The same corridor, seen as a Dict."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(0.0, 1.0, (1,), np.float64),
            "near": spaces.Discrete(2),
            "steps": spaces.Discrete(99),
        }
    )

    def seen(self):
        return {"place": np.array([self.place]), "near": int(self.place > 0.8), "steps": self.steps}


class Target(gymnasium.Env):
    """Push a point to 0 with bounded pushes, along two axes; it costs the squared distance."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)

    def __init__(self, limit=15, axes=1, dtype=np.float64):
        self.limit, self.axes = limit, axes
        self.action_space = spaces.Box(-1.0, 1.0, (axes,), dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1.0, 1.0, 2), 0
        return self.place.copy(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        push = np.resize(action, 2) if self.axes == 2 else np.array([action[0], 0.0])
        self.place = np.clip(0.9 * self.place + 0.25 * push, -1.0, 1.0)
        self.steps += 1
        return self.place.copy(), -float(self.place @ self.place), False, self.steps == self.limit, {}


class Recorder(gymnasium.Wrapper):
    """Writes down what happens: (s, a, r, s′, terminated, truncated), and every reset's seed."""

    def __init__(self, env):
        super().__init__(env)
        self.episodes, self.seeds = [], []

    def reset(self, **options):
        observation, info = super().reset(**options)
        self.episodes.append([])
        self.seeds.append(options.get("seed"))
        self.last = self.row(observation)
        return observation, info

    def row(self, observation):
        return tuple(Observations(self.observation_space).row(observation).tolist())

    def step(self, action):
        answer = super().step(action)
        reached = self.row(answer[0])
        chosen = tuple(np.atleast_1d(action).astype(float).tolist())
        self.episodes[-1].append((self.last, chosen, answer[1], reached, answer[2], answer[3]))
        self.last = reached
        return answer

    @property
    def steps(self):
        return [step for episode in self.episodes for step in episode]


def contents(path):
    """All that a file holds, to the bit."""
    arrays, content = checkpoint.read(path)
    return {name: (a.shape, a.dtype.str, a.tobytes()) for name, a in arrays.items()}, json.dumps(content)


def model_for(env, **options):
    """A small model over the environment's inputs."""
    observations, actions = Observations(env.observation_space), Actions(env.action_space)
    rng = np.random.default_rng(0)
    columns = list(range(observations.columns))
    own = list(range(len(columns), len(columns) + actions.columns))
    kernel = Matern52(0.4, 50.0, columns) * (
        RBF(0.7, 1.0, own) if actions.continuous else Delta(own[0], share=0.5)
    )
    Z = np.hstack([rng.uniform(0.0, 1.0, (12, len(columns))), actions.random(12, rng)])
    return SparseGPSarsa(kernel, 0.01, Z, **({"growth": "streaming"} | options))


# ── one environment ──────────────────────────────────────────────────────────────────────────────────


def stored(agent):
    """The store as tuples (s, a, r, s′, ended); a row that ended has no s′."""
    split, e = agent.observations.columns, agent.experience
    return Counter(
        (
            tuple(x[:split]), tuple(x[split:]), float(r), tuple(following[:split]) if gamma else None,
            gamma == 0.0,
        )
        for x, r, following, gamma in zip(e.inputs, e.rewards, e.following, e.discounts, strict=True)
    )  # fmt: skip


def happened(recorders):
    """What recorders saw, in the same form."""
    return Counter(
        (s, a, r, None if terminated else reached, terminated)
        for recorder in recorders
        for s, a, r, reached, terminated, _ in recorder.steps
    )


@pytest.mark.parametrize("method", ["improving", "sarsa"])
@pytest.mark.parametrize("world", [Corridor, Signposted, Target], ids=lambda world: world.__name__)
def test_the_store_holds_what_happened(world, method):
    env = Recorder(world())
    agent = SarsaAgent(env, gamma=GAMMA, seed=0, method=method, warmup=60, budget=20).learn(200)
    assert stored(agent) == happened([env])
    assert set(agent.experience.discounts) <= {0.0, GAMMA}
    assert any(step[5] and not step[4] for step in env.steps)  # truncated, not terminated
    assert world is Target or any(step[4] for step in env.steps)


def test_actions_are_stored_as_the_environment_took_them():
    """An environment that takes float32 is given, and the store holds, what float32 can say."""
    env = Recorder(Target(dtype=np.float32))
    agent = SarsaAgent(env, gamma=GAMMA, seed=0, warmup=60, budget=20).learn(100)
    np.testing.assert_array_equal(agent.experience.inputs[:, 2], [step[1][0] for step in env.steps])


def test_truncation_is_not_termination():
    """The last row bootstraps from the state that was reached, not from the next episode's first."""
    env = Recorder(Corridor(limit=5, pace=0.01))
    agent = SarsaAgent(env, gamma=GAMMA, seed=0, method="sarsa", model=model_for(env)).learn(25)
    assert not any(step[4] for step in env.steps)
    last = [episode[-1] for episode in env.episodes]
    assert len(last) == 5
    for i, step in enumerate(last):
        row = 5 * i + 4
        assert agent.experience.discounts[row] == GAMMA
        assert agent.experience.following[row, 0] == step[3][0]
        assert step[3] != env.episodes[(i + 1) % 5][0][0]


def test_every_episode_has_a_seed_of_its_own():
    seeds = []
    for seed in (1, 1, 2):
        env = Recorder(Corridor())
        SarsaAgent(env, seed=seed, warmup=1000).learn(150)
        seeds.append(env.seeds)
    assert seeds[0] == seeds[1] != seeds[2]
    assert len(set(seeds[0])) == len(seeds[0]) > 5
    assert not set(seeds[0]) & set(seeds[2])


# ── vector environments ──────────────────────────────────────────────────────────────────────────────


def several(world, mode, count=3, **options):
    """A vector environment and the recorders inside of it."""
    recorders = [Recorder(world(limit=7 + 4 * i)) for i in range(count)]
    env = SyncVectorEnv([lambda r=r: r for r in recorders], autoreset_mode=mode, **options)
    return env, recorders


@pytest.mark.parametrize("copy", [True, False], ids=["copied", "shared"])
@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("world", [Corridor, Signposted, Target], ids=lambda world: world.__name__)
def test_vector_environments_give_the_true_transitions(world, mode, copy):
    env, recorders = several(world, mode, copy=copy)
    agent = SarsaAgent(
        env, gamma=GAMMA, seed=0, method="sarsa", model=model_for(recorders[0]), policy=EpsilonGreedy(0.5)
    ).learn(240)  # fmt: skip
    assert stored(agent) == happened(recorders)
    assert agent.num_timesteps == len(agent.experience) == sum(len(r.steps) for r in recorders)
    assert 240 <= agent.num_timesteps < 243
    assert agent.model.n_transitions == agent.num_timesteps
    ends = [step for r in recorders for step in r.steps if step[4] or step[5]]
    assert agent.episodes == len(ends) > 15
    assert any(not step[4] for step in ends)
    assert world is Target or any(step[4] for step in ends)
    for recorder in recorders:  # no step of an episode after its end, none that is lost
        assert all(not (step[4] or step[5]) for episode in recorder.episodes for step in episode[:-1])


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_next_actions_in_a_vector_environment_are_those_taken_next(mode):
    env, recorders = several(Corridor, mode)
    agent = SarsaAgent(
        env, gamma=GAMMA, seed=0, method="sarsa", model=model_for(recorders[0])
    ).learn(240)  # fmt: skip
    e = agent.experience
    rows = Counter(
        (*x, *following)
        for x, following, gamma in zip(e.inputs, e.following, e.discounts, strict=True)
        if gamma
    )
    expected = Counter(
        (*one[0], *one[1], *other[0], *other[1])
        for recorder in recorders
        for episode in recorder.episodes
        for one, other in itertools.pairwise(episode)
    )
    assert expected <= rows
    assert expected.total() > 150


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_a_vector_environment_learns_and_repeats_itself(mode, tmp_path):
    files = []
    for seed in (5, 5, 6) if mode is AutoresetMode.NEXT_STEP else (5, 5):
        env, recorders = several(Corridor, mode)
        agent = SarsaAgent(env, gamma=GAMMA, seed=seed, warmup=60, budget=30).learn(150)
        assert stored(agent) == happened(recorders)
        agent.learn(90)  # starts all copies over
        assert stored(agent) == happened(recorders)
        agent.save(tmp_path / "agent")
        files.append(contents(tmp_path / "agent"))
    assert files[0] == files[1]
    assert files[0] not in files[2:]
    observation = np.array([[0.1], [0.5], [0.85], [0.2]])
    actions, _ = agent.predict(observation)
    assert actions.shape == (4,)
    assert all(agent.predict(row)[0] == action for row, action in zip(observation, actions, strict=True))


def test_a_vector_environment_of_one_copy_is_the_environment_itself(tmp_path):
    """Under iid noise, with the same resets: the same store."""
    rows = []
    for vector in (True, False):
        inner = Recorder(Corridor(limit=1000, pace=0.0))  # one endless episode
        env = SyncVectorEnv([lambda: inner]) if vector else inner  # noqa: B023
        agent = SarsaAgent(env, seed=1, method="sarsa", model=model_for(inner)).learn(60)
        rows.append((agent.experience.inputs.tobytes(), agent.experience.following.tobytes(), inner.seeds))
    assert rows[0] == rows[1]


# ── faults ───────────────────────────────────────────────────────────────────────────────────────────


class Broken(Corridor):
    """Answers as `change` says from the sixth step, or at a reset after that."""

    def __init__(self, step=None, reset=None):
        super().__init__(limit=9, pace=0.0)
        self.change_step, self.change_reset, self.taken = step, reset, 0

    def reset(self, **options):
        answer = super().reset(**options)
        return self.change_reset(answer) if self.change_reset and self.taken >= 6 else answer

    def step(self, action):
        answer = super().step(action)
        self.taken += 1
        return self.change_step(answer) if self.change_step and self.taken >= 6 else answer


def replaced(place, value):
    return lambda answer: (*answer[:place], value, *answer[place + 1 :])


def failing(answer):
    raise RuntimeError("the motor is hot")


STEP_FAULTS = {
    "four values": (lambda a: a[:4], "env.step returned a tuple of 4; expected the five values"),
    "six values": (lambda a: (*a, {}), "env.step returned a tuple of 6"),
    "a list": (list, "env.step returned a list"),
    "None": (lambda a: None, "env.step returned None"),
    "NaN": (replaced(0, np.array([np.nan])), r"observation\[0\] = nan; expected a finite number"),
    "infinite": (replaced(0, np.array([np.inf])), r"observation\[0\] = inf"),
    "shape": (replaced(0, np.zeros(2)), r"observation has shape \(2,\); expected \(1,\)"),
    "scalar": (replaced(0, 0.5), r"observation has shape \(\); expected \(1,\)"),
    "text": (replaced(0, "here"), "observation = 'here'"),
    "no observation": (replaced(0, None), "observation = None"),
    "ragged": (replaced(0, [[1.0], [1.0, 2.0]]), "observation is not a rectangular array"),
    "infinite reward": (replaced(1, np.inf), "the reward is inf; expected a finite number"),
    "NaN reward": (replaced(1, float("nan")), "the reward is nan"),
    "float32 NaN reward": (replaced(1, np.float32("nan")), "the reward is nan"),
    "two rewards": (replaced(1, np.zeros(2)), "the reward is a ndarray; expected a number"),
    "no reward": (replaced(1, None), "the reward is (None|nan); expected a"),
    "text reward": (replaced(1, "much"), "the reward is 'much'; expected a number"),
    "terminated 1": (replaced(2, 1), "terminated is 1; expected True or False"),
    "terminated None": (replaced(2, None), "terminated is None"),
    "truncated text": (replaced(3, "no"), "truncated is 'no'; expected True or False"),
    "info for truncated": (replaced(3, {}), "truncated is {}"),
}
RESET_FAULTS = {
    "no info": (lambda a: a[0], "env.reset returned a ndarray; expected the pair observation, info"),
    "info None": (lambda a: (a[0], None), "env.reset returned a tuple of 2; expected the pair"),
    "three values": (lambda a: (*a, 1), "env.reset returned a tuple of 3"),
    "None": (lambda a: None, "env.reset returned None"),
    "NaN": (replaced(0, np.array([np.nan])), r"observation\[0\] = nan"),
    "shape": (replaced(0, np.zeros((1, 1))), r"observation has shape \(1, 1\); expected \(1,\)"),
    "raises": (failing, r"env.reset raised RuntimeError: the motor is hot"),
}


def fault(env, message, steps):
    """The agent refuses to go on, says why and when, keeps what was good, and can go on elsewhere."""
    agent = SarsaAgent(env, seed=0, method="sarsa", model=model_for(Corridor()))
    with pytest.raises(EnvironmentFault, match=f"after {steps} steps of the environment: .*{message}"):
        agent.learn(50)
    good = 5 if env.change_step else steps
    assert agent.num_timesteps == len(agent.experience) == agent.model.n_transitions == good
    agent.set_env(Corridor())
    assert agent.learn(20).num_timesteps == good + 20


@pytest.mark.parametrize("name", STEP_FAULTS)
def test_a_fault_in_a_step_names_the_step(name):
    change, message = STEP_FAULTS[name]
    fault(Broken(step=change), message, 6)


def test_an_exception_in_a_step_names_the_step():
    fault(Broken(step=failing), "env.step raised RuntimeError: the motor is hot", 5)


@pytest.mark.parametrize("name", RESET_FAULTS)
def test_a_fault_in_a_reset_names_the_step(name):
    change, message = RESET_FAULTS[name]
    fault(Broken(reset=change), message, 9)
    agent = SarsaAgent(Broken(reset=lambda answer: answer), seed=0, warmup=100).learn(12)
    agent.env.change_reset = change
    with pytest.raises(EnvironmentFault, match="after 12 steps of the environment"):  # counted through calls
        agent.learn(50)


def test_the_cause_is_kept():
    with pytest.raises(EnvironmentFault) as caught:
        SarsaAgent(Broken(step=failing), seed=0).learn(50)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_interruption_is_no_fault():
    def interrupted(answer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SarsaAgent(Broken(step=interrupted), seed=0).learn(50)


@pytest.mark.parametrize("reward", [1, np.float32(0.5), np.array(0.25), np.array([0.25]), np.int8(3), True])
def test_rewards_of_any_number_type(reward):
    agent = SarsaAgent(Broken(step=replaced(1, reward)), seed=0, warmup=100).learn(8)
    np.testing.assert_array_equal(agent.experience.rewards[5:], [float(np.squeeze(reward))] * 3)


@pytest.mark.parametrize("flag", [np.bool_(False), False])
def test_flags_of_numpy(flag):
    agent = SarsaAgent(Broken(step=replaced(2, flag)), seed=0, warmup=100).learn(8)
    assert agent.num_timesteps == 8


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced(0, np.array([np.nan])), "nan"),
        (replaced(1, np.nan), "the reward is nan"),
        (failing, "env.step raised RuntimeError: the motor is hot"),
    ],
    ids=["observation", "reward", "exception"],
)
def test_faults_inside_a_vector_environment(mode, change, message):
    copies = [Corridor(limit=1000), Broken(step=change)]
    env = SyncVectorEnv([lambda copy=copy: copy for copy in copies], autoreset_mode=mode)
    with pytest.raises(EnvironmentFault, match=rf"after 1[02] steps of the environment: .*{message}"):
        SarsaAgent(env, seed=0, warmup=100).learn(60)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda answer: (*answer[:4], {}), "copy 0 ended and info has no final_obs"),
        (lambda answer: (answer[0], [None, None], *answer[2:]), "the reward is None; expected a number"),
        (lambda answer: answer[:4], "env.step returned a tuple of 4; expected the five values"),
        (lambda answer: (answer[0][:1], *answer[1:]), "no observation of copy 1 in .*each of 2 copies"),
        (lambda answer: (None, *answer[1:]), "no observation of copy 0 in None"),
        (lambda answer: (answer[0], [1.0], *answer[2:]), "no reward of copy 1"),
        (lambda answer: (*answer[:2], False, *answer[3:]), "no terminated of copy 0"),
        (lambda answer: (*answer[:3], [0, 1], answer[4]), "truncated is 0; expected True or False"),
    ],
    ids=[
        "no final observation",
        "no reward",
        "four values",
        "one observation",
        "no observation",
        "one reward",
        "one flag",
        "numbers as flags",
    ],
)
def test_faults_of_a_vector_environment_itself(change, message, monkeypatch):
    env = SyncVectorEnv([lambda: Corridor(limit=4)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    step = env.step
    monkeypatch.setattr(env, "step", lambda actions: change(step(actions)))
    with pytest.raises(EnvironmentFault, match=message):
        SarsaAgent(env, seed=0, warmup=100).learn(60)


def test_rewards_and_flags_of_copies_may_be_tuples(monkeypatch):
    env = SyncVectorEnv([lambda: Corridor(limit=4)] * 2)
    step = env.step

    def stepped(actions):
        observations, *numbers, info = step(actions)
        return observations, *map(tuple, numbers), info

    monkeypatch.setattr(env, "step", stepped)
    assert SarsaAgent(env, seed=0, warmup=100).learn(60).episodes > 0


def test_a_vector_environment_that_begins_anew_in_an_unknown_way():
    env = SyncVectorEnv([lambda: Corridor(limit=4)] * 2)
    env.metadata = {**env.metadata, "autoreset_mode": "sometimes"}
    with pytest.raises(EnvironmentFault, match="autoreset_mode is 'sometimes'; expected one of"):
        SarsaAgent(env, seed=0).learn(10)


@pytest.mark.parametrize("reward", [None, "much", np.zeros(2)])
def test_an_evaluation_names_a_reward_that_is_no_number(reward):
    agent, env = SarsaAgent(Corridor(), seed=0), Broken(step=replaced(1, reward))
    with pytest.raises(EnvironmentFault, match=r"step \d+.*the reward is .*; expected a number"):
        evaluate_policy(agent, env, 1)


def test_an_environment_of_the_old_kind_is_not_evaluated():
    env = Corridor()
    reset = env.reset
    env.reset = lambda **options: reset(**options)[0]
    agent = SarsaAgent(Corridor(), seed=0)
    with pytest.raises(EnvironmentFault, match="returned a ndarray; expected 2 values"):
        evaluate_policy(agent, env, 1)


# ── what is no environment ───────────────────────────────────────────────────────────────────────────


class Nowhere(Corridor):
    observation_space = None


class Unbounded(Corridor):
    action_space = spaces.Box(-np.inf, np.inf, (1,))


class Worded(Corridor):
    observation_space = spaces.Text(5)


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        ("CartPole-v1", EnvironmentFault, "env is a str; expected a gymnasium.Env or a vector environment"),
        (None, EnvironmentFault, "env is a NoneType"),
        (Corridor, EnvironmentFault, "env is a type"),
        (Nowhere(), EnvironmentFault, "the environment has no observation_space"),
        (gymnasium.Env(), EnvironmentFault, "the environment has no observation_space"),
        (Unbounded(), SpaceError, r"action\[0\] lies between -inf and inf"),
        (Worded(), SpaceError, "observation is a Text"),
    ],
    ids=["name", "None", "class", "no space", "bare", "unbounded action", "text"],
)
def test_what_is_no_environment_for_an_agent(env, error, message):
    with pytest.raises(error, match=message):
        SarsaAgent(env)


def test_a_course_has_a_lane_for_each_copy():
    env, _ = several(Corridor, AutoresetMode.SAME_STEP)
    observations, actions = Observations(env.single_observation_space), Actions(env.single_action_space)
    assert environments.course(env, observations, actions).lanes == 3
    assert environments.course(Corridor(), observations, actions).lanes == 1
