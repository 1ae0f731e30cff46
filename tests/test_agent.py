"""The agent: the paper's SARSA to the bit, files from which it goes on, every kind of space."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from test_environments import Corridor, Recorder, Signposted, Target, contents, model_for
from test_errors import fingerprint
from test_sparse import Cosine

from gpsarsa import CheckpointError, GPSarsa, SparseGPSarsa, Timescales, Transitions, checkpoint
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.callbacks import BaseCallback
from gpsarsa.control.policies import EpsilonGreedy, Greedy, PosteriorSampling, UpperConfidence
from gpsarsa.kernels import RBF
from gpsarsa.timescales import Slow

GAMMA = 0.9

# ── the paper's SARSA ────────────────────────────────────────────────────────────────────────────────


class Diary(BaseCallback):
    """Rebuilds every transition from what the environment and the policy said, and calls `on_row`.

    The policy is asked at an episode's start and after every step that did not terminate.
    """

    def __init__(self, env, on_row):
        self.env, self.on_row, self.asked, self.rows = env, on_row, [], []

    def policy(self, inner):
        def choose(decision):
            action = inner(decision)
            self.asked.append((decision.row.copy(), np.atleast_1d(action).astype(float)))
            return action

        return choose

    def on_step(self):
        s, a, r, reached, terminated, _ = self.env.steps[-1]
        x, start = np.array([*s, *a]), len(self.env.episodes[-1]) == 1
        if terminated:
            row = x, r, x, 0.0, start
        else:
            state, action = self.asked[-1]
            np.testing.assert_array_equal(state, reached)  # the policy saw the state that was reached
            row = x, r, np.array([*reached, *action]), GAMMA, start
        self.rows.append(row)
        self.on_row(self.agent, *row)
        return True

    def transitions(self):
        columns = [np.array(column) for column in zip(*self.rows, strict=True)]
        return Transitions(*columns)


def explore(decision):
    """Greedy but for a third of the steps."""
    return decision.random if decision.rng.random() < 0.33 else decision.greedy


def follow(env, model, on_row, steps=90):
    diary = Diary(env, on_row)
    agent = SarsaAgent(
        env, gamma=GAMMA, seed=4, method="sarsa", model=model, policy=diary.policy(explore)
    ).learn(steps, callback=diary)  # fmt: skip
    ends = [episode[-1][4:] for episode in env.episodes if episode]
    assert len(diary.rows) == agent.num_timesteps == steps
    return agent, diary, ends


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"growth": "exact"},
        {"growth": "frozen"},
        {"noise": "correlated"},
        {"growth": "exact", "noise": "correlated"},
        {"weights": "dtc", "prior_mean": -3.0},
        {"forgetting": 0.98},
    ],
    ids=str,
)
def test_sarsa_is_the_recursion_bit_for_bit(options):
    env = Recorder(Corridor(limit=12, pace=0.2))
    model, reference = model_for(env, **options), model_for(env, **options)

    def on_row(agent, *row):
        reference.observe(*row)
        assert fingerprint(agent.model) == fingerprint(reference)

    agent, diary, ends = follow(env, model, on_row)
    assert agent.model is model
    assert {(True, False), (False, True)} <= set(ends)  # episodes of both kinds
    together = model_for(env, **options).update(diary.transitions())
    X = np.array([[s, a] for s in np.linspace(0, 1, 9) for a in range(3)])
    for a, b in zip(agent.model.predict(X, True), together.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * 50)


def test_sarsa_with_continuous_actions_bit_for_bit():
    env = Recorder(Target(limit=9))
    reference = model_for(env, noise="correlated")

    def on_row(agent, *row):
        reference.observe(*row)
        assert fingerprint(agent.model) == fingerprint(reference)

    follow(env, model_for(env, noise="correlated"), on_row, 40)


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_sarsa_drives_timescales_bit_for_bit(noise):
    def driver():
        return Timescales(
            model_for(Corridor(), noise=noise),
            budget=15,
            slow=[Slow(40, max_iterations=3)],
            reservoir=200,
            seed=8,
        )

    env, reference = Recorder(Corridor(limit=12, pace=0.2)), driver()

    def on_row(agent, *row):
        reference.observe(*row)
        assert fingerprint(agent.model) == fingerprint(reference.model)

    mine = driver()
    agent, _, _ = follow(env, mine, on_row)
    assert agent.model is mine.model
    assert mine.counts == reference.counts
    assert mine.counts["optimized"] == 2
    assert mine.counts["added"] > 0
    assert mine.rng.bit_generator.state == reference.rng.bit_generator.state


@pytest.mark.parametrize(
    "policy", [Greedy(), EpsilonGreedy(0.4), UpperConfidence(1.0), PosteriorSampling()], ids=repr
)
def test_the_next_action_is_the_one_taken_next(policy):
    env = Recorder(Corridor(limit=12))
    agent = SarsaAgent(
        env, gamma=GAMMA, seed=0, method="sarsa", model=model_for(env), policy=policy
    ).learn(80)  # fmt: skip
    row = 0
    for episode in env.episodes:
        for following in [*episode[1:], None]:
            if following is not None:
                np.testing.assert_array_equal(agent.experience.following[row], [*following[0], *following[1]])
            row += 1
    assert row == 80
    assert agent.incumbent.holder is None  # nothing of the improving agent
    assert agent.acting_model is agent.model


def test_sarsa_without_a_model_makes_one_after_the_warmup():
    env = Recorder(Corridor())
    agent = SarsaAgent(env, seed=0, method="sarsa", warmup=50, budget=15)
    for _ in range(5):
        agent.learn(10)
    assert agent.num_timesteps == 50
    agent.learn(70)
    assert agent.model.n_transitions == 120  # those of the warmup too
    assert 1 <= len(agent.model.pseudo_inputs) <= 15


def test_predict_is_greedy_in_the_mean():
    env = Corridor()
    agent = SarsaAgent(env, gamma=GAMMA, seed=0, method="sarsa", model=model_for(env)).learn(60)
    for place in np.linspace(0, 1, 11):
        mean = agent.model.predict(np.array([[place, a] for a in range(3)], dtype=float))
        assert agent.predict(np.array([place]))[0] == np.argmax(mean)
        value, std = agent.values([[place]])
        assert value[0] == pytest.approx(mean.max(), abs=1e-12)
        assert std[0] > 0.0


# ── counting, stopping, seeds ────────────────────────────────────────────────────────────────────────


def test_learning_in_pieces_counts_on():
    env = Recorder(Corridor())
    agent = SarsaAgent(env, seed=0, warmup=50, budget=20)
    assert agent.learn(33) is agent
    assert (agent.num_timesteps, len(env.steps)) == (33, 33)
    assert agent.learn(0).num_timesteps == 33
    assert agent.learn(np.int64(40)).num_timesteps == 73 == len(env.steps) == len(agent.experience)


def test_callbacks_are_told_and_may_stop():
    env, told = Recorder(Corridor()), []

    class Watcher(BaseCallback):
        def on_training_start(self):
            told.append("start")

        def on_step(self):
            told.append(self.agent.num_timesteps)
            return True

        def on_episode_end(self, episode):
            told.append(episode)
            return len([line for line in told if isinstance(line, dict)]) < 5

        def on_training_end(self):
            told.append("end")

    agent = SarsaAgent(env, gamma=GAMMA, seed=0, warmup=30, budget=20)
    calls = []
    agent.learn(1000, callback=[Watcher(), calls.append])
    assert (told[0], told[-1]) == ("start", "end")
    assert [n for n in told if isinstance(n, int)] == list(range(1, agent.num_timesteps + 1))
    assert calls == [agent] * agent.num_timesteps
    lines = [line for line in told if isinstance(line, dict)]
    assert agent.episodes == len(lines) == 5
    for line, episode in zip(lines, env.episodes, strict=True):
        rewards = [step[2] for step in episode]
        assert line["return"] == sum(rewards)
        assert line["length"] == len(episode)
        assert line["discounted"] == pytest.approx(sum(GAMMA**i * r for i, r in enumerate(rewards)))
        assert line["terminated"] == int(episode[-1][4])
    assert [line["step"] for line in lines] == np.cumsum([len(e) for e in env.episodes]).tolist()
    before = agent.num_timesteps
    assert (
        agent.learn(1000, callback=lambda agent: agent.num_timesteps < before + 7).num_timesteps == before + 7
    )
    with pytest.raises(TypeError, match="callback = 3; expected a BaseCallback"):
        agent.learn(1, callback=3)


def test_a_progress_bar_is_drawn(capsys):
    SarsaAgent(Corridor(), seed=0).learn(60, progress_bar=True)
    assert "train" in capsys.readouterr().err


def short_pole():
    """Whose episodes end however well it is balanced."""
    return gymnasium.make("CartPole-v1", max_episode_steps=50)


WORLDS = {
    "CartPole": (short_pole, {}),
    "Target": (Target, {}),
    "FrozenLake": (lambda: gymnasium.make("FrozenLake-v1"), {}),
    "Dict": (Signposted, {}),
    "full store": (short_pole, {"memory": 90}),
    "full stochastic store": (lambda: gymnasium.make("FrozenLake-v1"), {"memory": 90}),
    "full continuous store": (Target, {"memory": 90}),
    "sarsa": (lambda: gymnasium.make("CartPole-v1"), {"method": "sarsa", "policy": PosteriorSampling()}),
    "epsilon": (Corridor, {"policy": EpsilonGreedy(0.5, 0.1, 200)}),
}


def made(name, seed=3):
    make, options = WORLDS[name]
    return SarsaAgent(make(), **({"seed": seed, "warmup": 100, "budget": 30} | options))


def saved(agent, path):
    agent.save(path)
    return contents(path)


@pytest.mark.parametrize("name", ["CartPole", "Target", "FrozenLake", "sarsa"])
def test_the_same_seed_gives_the_same_agent(name, tmp_path):
    one, other, third = (saved(made(name, seed).learn(200), tmp_path / "agent") for seed in (3, 3, 4))
    assert one == other
    assert one != third


def test_the_same_agent_gives_the_same_file(tmp_path):
    agent = made("CartPole").learn(130)
    files = []
    for _ in range(8):
        agent.save(tmp_path / "agent")
        files.append((tmp_path / "agent").read_bytes())
    assert len(set(files)) == 1


class SaveOnce(BaseCallback):
    """Saves the agent at the first end of an episode after some steps."""

    def __init__(self, path, after):
        self.path, self.after, self.at = path, after, None

    def on_episode_end(self, episode):
        if self.at is None and self.agent.num_timesteps >= self.after:
            self.agent.save(self.path)
            self.at = self.agent.num_timesteps
        return True


@pytest.mark.parametrize("after", [60, 170], ids=["warmup", "later"])
@pytest.mark.parametrize("name", WORLDS)
def test_a_loaded_agent_goes_on_as_if_nothing_had_happened(name, after, tmp_path):
    path, total = tmp_path / "early", 280
    once = SaveOnce(path, after)
    uninterrupted = made(name).learn(total, callback=once)
    assert once.at is not None
    assert (uninterrupted.experience.capacity == 90) == name.startswith("full")
    early = contents(path)
    loaded = SarsaAgent.load(path, WORLDS[name][0]())
    assert loaded.num_timesteps == once.at
    assert saved(loaded, tmp_path / "again") == early
    loaded.learn(total - once.at)
    assert saved(loaded, tmp_path / "end") == saved(uninterrupted, tmp_path / "straight")


@pytest.mark.parametrize("name", ["CartPole", "FrozenLake", "Target"])
def test_an_agent_without_an_environment_acts_the_same(name, tmp_path):
    agent = made(name).learn(260)
    agent.save(tmp_path / "agent")
    loaded = SarsaAgent.load(tmp_path / "agent")
    env = WORLDS[name][0]()
    env.observation_space.seed(0)
    observations = [env.reset(seed=seed)[0] for seed in range(20)]
    for observation in observations:
        np.testing.assert_array_equal(loaded.predict(observation)[0], agent.predict(observation)[0])
    with pytest.raises(ValueError, match="the agent has no environment; load it with env="):
        loaded.learn(10)
    loaded.set_env(env)
    assert loaded.learn(10).num_timesteps == 270


@pytest.mark.parametrize("learner", ["model", "timescales"])
def test_an_agent_with_a_model_of_the_users_is_saved_with_it(learner, tmp_path):
    def start():
        env = Recorder(Corridor(limit=10))
        model = model_for(env, noise="correlated")
        given = model if learner == "model" else Timescales(model, budget=14, seed=2)
        return SarsaAgent(env, seed=0, method="sarsa", model=given)

    once = SaveOnce(tmp_path / "early", 40)
    agent = start().learn(100, callback=once)
    loaded = SarsaAgent.load(tmp_path / "early", Corridor(limit=10))
    loaded.learn(100 - once.at)
    assert fingerprint(loaded.model) == fingerprint(agent.model)
    assert saved(loaded, tmp_path / "a")[0] == saved(agent, tmp_path / "b")[0]


def test_a_kernel_of_the_users_own(tmp_path):
    env = Corridor()
    for method in ("sarsa", "improving"):
        given = SparseGPSarsa(Cosine(), 0.1, np.array([[0.2, 0.0], [0.6, 1.0]]))
        agent = SarsaAgent(env, seed=0, method=method, model=given, warmup=50, budget=10).learn(120)
        assert isinstance(agent.model.kernel, Cosine)
        assert agent.model.noise_variance == 0.1
        agent.save(tmp_path / "agent")
        with pytest.raises(CheckpointError, match="kernel of your own: pass it as kernel="):
            SarsaAgent.load(tmp_path / "agent")
        loaded = SarsaAgent.load(tmp_path / "agent", env, kernel=Cosine())
        for place in np.linspace(0, 1, 7):
            assert loaded.predict(np.array([place]))[0] == agent.predict(np.array([place]))[0]
        loaded.learn(30)


def test_a_model_that_is_given_keeps_its_hyperparameters():
    env = Corridor()
    given = model_for(env, prior_mean=-2.0)
    agent = SarsaAgent(env, seed=0, model=given, warmup=50, budget=25).learn(300)
    assert agent.model.kernel == given.kernel
    assert agent.model.noise_variance == given.noise_variance
    assert agent.model.prior_mean == -2.0
    assert given.n_transitions == 0  # the agent has its own
    other = model_for(env, noise="correlated", growth="streaming")
    with pytest.warns(UserWarning, match="method='sarsa' uses the model as it is"):
        SarsaAgent(env, model=other)


# ── predicting ───────────────────────────────────────────────────────────────────────────────────────


def batches(name):
    """Observations one by one, and the same as a batch of a vector environment."""
    env = WORLDS[name][0]()
    single = [env.reset(seed=seed)[0] for seed in range(3)]
    single += [env.step(env.action_space.sample() * 0)[0] for _ in range(3)]
    if isinstance(single[0], dict):
        return single, {key: np.array([one[key] for one in single]) for key in single[0]}
    return single, np.array(single)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", ["CartPole", "FrozenLake", "Dict", "Target"])
def test_single_and_batched_observations_agree(name, deterministic):
    make, options = WORLDS[name]
    agent = SarsaAgent(make(), seed=3, warmup=100, budget=40, policy=UpperConfidence(0.5), **options).learn(
        200
    )
    single, batch = batches(name)
    actions, state = agent.predict(batch, deterministic=deterministic)
    assert state is None
    assert len(actions) == len(single) == 6
    assert actions.dtype == agent.env.action_space.dtype
    for one, action in zip(single, actions, strict=True):
        if deterministic or name != "Target":
            alone, nothing = agent.predict(one, None, None, deterministic)
            np.testing.assert_array_equal(alone, action)
            assert nothing is None
        assert agent.env.action_space.contains(action)


@pytest.mark.parametrize("name", ["CartPole", "Target", "epsilon", "sarsa"])
def test_predicting_changes_nothing(name, tmp_path):
    agent, twin = made(name).learn(150), made(name).learn(150)
    before = saved(agent, tmp_path / "agent")
    observation, _ = WORLDS[name][0]().reset(seed=0)
    for deterministic in (True, False):
        agent.predict(observation, deterministic=deterministic)
        agent.predict(np.array([observation] * 5), deterministic=deterministic)
    assert saved(agent, tmp_path / "agent") == before
    assert saved(agent.learn(40), tmp_path / "a") == saved(twin.learn(40), tmp_path / "b")


def test_predicting_before_learning_is_random_and_values_say_why():
    agent = SarsaAgent(Corridor(), seed=0)
    assert {int(agent.predict(np.array([0.5]))[0]) for _ in range(50)} == {0, 1, 2}
    with pytest.raises(
        ValueError, match="learnt nothing yet: 0 steps so far, the first 200 only gather data"
    ):
        agent.values([[0.5]])
    with pytest.raises(ValueError, match=r"observation has shape \(2,\); expected \(1,\), or \(n, 1\)"):
        agent.predict(np.zeros(2))


# ── a policy of the user's own ───────────────────────────────────────────────────────────────────────


def to_the_right(decision):
    return 2 if decision.observation[0] < 0.5 else decision.greedy


def test_a_policy_of_the_users_own(tmp_path):
    env = Recorder(Corridor())
    agent = SarsaAgent(env, seed=0, method="sarsa", model=model_for(env), policy=to_the_right).learn(60)
    taken = {(s[0] < 0.5, a[0]) for s, a, *_ in env.steps}
    assert {action for left, action in taken if left} == {2.0}
    agent.save(tmp_path / "agent")
    acting = SarsaAgent.load(tmp_path / "agent", Corridor())  # needs no policy
    assert acting.predict(np.array([0.2]))[0] == agent.predict(np.array([0.2]))[0]
    with pytest.raises(
        ValueError, match="saved with a policy of your own: to learn on, load it with policy="
    ):
        acting.learn(1)
    loaded = SarsaAgent.load(tmp_path / "agent", Corridor(), policy=to_the_right)
    loaded.learn(20)
    assert loaded.predict(np.array([0.2]), deterministic=False)[0] == 2
    other = SarsaAgent.load(tmp_path / "agent", policy=Greedy())  # another one may be given too
    assert other.policy == Greedy()


def test_an_action_that_is_none_is_refused():
    env = Corridor()
    agent = SarsaAgent(env, seed=0, method="sarsa", model=model_for(env), policy=lambda decision: 7)
    with pytest.raises(ValueError, match="action = 7; expected a whole number from 0 to 2"):
        agent.learn(5)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gamma": 1.5}, ValueError, r"gamma = 1.5; expected a number in \[0, 1\]"),
        ({"gamma": -0.1}, ValueError, "gamma = -0.1"),
        ({"gamma": "high"}, TypeError, "gamma = 'high'"),
        ({"gamma": np.nan}, ValueError, "gamma = nan"),
        ({"method": "q-learning"}, ValueError, "method = 'q-learning'; expected one of 'improving', 'sarsa'"),
        ({"budget": 0}, ValueError, "budget = 0; expected 1 or more"),
        ({"memory": 0}, ValueError, "memory = 0; expected 1 or more"),
        ({"warmup": 0}, ValueError, "warmup = 0; expected 1 or more"),
        ({"budget": 2.5}, TypeError, "budget = 2.5"),
        ({"seed": -1}, ValueError, "seed = -1"),
        ({"seed": "one"}, TypeError, "seed = 'one'"),
        ({"model": 3}, TypeError, "model is a int; expected a SparseGPSarsa or a Timescales"),
        ({"model": GPSarsa(RBF(1.0), 0.1)}, TypeError, "model is a GPSarsa"),
        (
            {"model": SparseGPSarsa(RBF(1.0), 0.1, np.zeros((1, 3)))},
            ValueError,
            "the model has 3 input columns; expected 2: 1 of the observation, 1 of the action",
        ),
        (
            {"model": Timescales(SparseGPSarsa(RBF(1.0), 0.1, np.zeros((1, 1)))), "method": "sarsa"},
            ValueError,
            "the model has 1 input columns; expected 2",
        ),
    ],
)
def test_the_constructor_names_what_is_wrong(options, error, message):
    with pytest.raises(error, match=message):
        SarsaAgent(Corridor(), **options)


@pytest.mark.parametrize("steps", [-1, 2.5, "many", None])
def test_learn_wants_a_number_of_steps(steps):
    with pytest.raises((TypeError, ValueError), match="total_timesteps = "):
        SarsaAgent(Corridor()).learn(steps)


class Wider(Corridor):
    observation_space = spaces.Box(0.0, 2.0, (1,), np.float64)


class Four(Corridor):
    action_space = spaces.Discrete(4)


@pytest.mark.parametrize(("world", "name"), [(Wider, "observation"), (Four, "action")])
def test_another_space_is_refused(world, name, tmp_path):
    agent = SarsaAgent(Corridor(), seed=0)
    kept = agent.env
    with pytest.raises(ValueError, match=f"the environment's {name} space is another than the agent's"):
        agent.set_env(world())
    assert agent.env is kept
    agent.save(tmp_path / "agent")
    with pytest.raises(
        CheckpointError, match=f"agent is from another environment: the environment's {name} space"
    ):
        SarsaAgent.load(tmp_path / "agent", world())
    with pytest.raises(ValueError, match="env is a int"):
        agent.set_env(3)


def test_files_that_hold_no_agent(tmp_path):
    path = tmp_path / "file"
    model_for(Corridor()).save(path)
    with pytest.raises(CheckpointError, match="file does not hold an agent"):
        SarsaAgent.load(path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match="file is damaged or not a checkpoint"):
        SarsaAgent.load(path)
    with pytest.raises(FileNotFoundError):
        SarsaAgent.load(tmp_path / "nowhere")
    made("CartPole").learn(150).save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(30):
        damaged = bytearray(whole)
        damaged[int(rng.integers(len(whole)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        with pytest.raises(CheckpointError, match="file"):
            SarsaAgent.load(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="file is damaged"):
        SarsaAgent.load(path)


@pytest.mark.parametrize("part", ["settings", "rng", "incumbent", "observations", "policy", "learner"])
def test_files_that_lack_something(part, tmp_path):
    path = tmp_path / "file"
    made("CartPole").learn(150).save(path)
    arrays, content = checkpoint.read(path)
    for broken in ({}, [1], "text"):
        checkpoint.write(path, arrays, {"agent": content["agent"] | {part: broken}})
        with pytest.raises(CheckpointError, match="file does not describe an agent"):
            SarsaAgent.load(path)
    if part != "learner":
        del content["agent"][part]
        checkpoint.write(path, arrays, content)
        with pytest.raises(CheckpointError, match="file does not describe an agent"):
            SarsaAgent.load(path)


@pytest.mark.parametrize("name", ["experience.rows", "learner.model.W", "sums.gram", "incumbent.holder.m"])
def test_files_that_lack_an_array(name, tmp_path):
    path = tmp_path / "file"
    agent = made("CartPole").learn(260)
    agent.learner.improvement.improve(
        agent.model, 0, agent.rng
    )  # whatever came since then, the sums are those of the store
    agent.save(path)
    arrays, content = checkpoint.read(path)
    del arrays[name]
    checkpoint.write(path, arrays, content)
    with pytest.raises(CheckpointError, match="file does not describe an agent"):
        SarsaAgent.load(path)


def test_an_interruption_ends_training_as_it_should():
    """What was begun is ended: files are closed, and the time is not forgotten."""
    ended = []

    class Impatient(BaseCallback):
        def on_step(self):
            if self.agent.num_timesteps == 20:
                raise KeyboardInterrupt
            return True

        def on_training_end(self):
            ended.append(self.agent.num_timesteps)

    agent = SarsaAgent(gymnasium.make("CartPole-v1"), seed=0)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(100, callback=Impatient())
    assert ended == [20]
    assert agent._spent > 0.0


def test_without_a_discount_nothing_follows():
    with pytest.raises(ValueError, match=r"gamma = 0.0 with method='improving'.*expected more than 0"):
        SarsaAgent(gymnasium.make("CartPole-v1"), gamma=0.0)
    SarsaAgent(gymnasium.make("CartPole-v1"), gamma=0.0, method="sarsa", seed=0).learn(250)


def test_a_few_steps_are_too_few_to_learn_hyperparameters_from(recwarn):
    agent = SarsaAgent(gymnasium.make("CartPole-v1"), seed=0, warmup=3).learn(40)
    assert agent.model is not None
    assert not [str(one.message) for one in recwarn]


# ── every kind of space, bounded memory ──────────────────────────────────────────────────────────────


class Bandit(gymnasium.Env):
    """Random observations of any space; one action of many pays."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), self.pay(action), False, self.steps == 10, {}

    def pay(self, action):
        values = np.atleast_1d(np.asarray(action, dtype=float)).ravel()
        return -float(np.abs(values - self.best()).sum())

    def best(self):
        space = self.action_space
        if isinstance(space, spaces.Box):
            return (space.low + 0.8 * (space.high - space.low)).ravel()
        if isinstance(space, spaces.Discrete):
            return np.array([float(space.start + space.n - 1)])
        return np.ones(space.shape).ravel()


PAIR = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,), np.float32)])
NESTED = spaces.Dict({"pair": PAIR, "flags": spaces.MultiBinary(2), "counts": spaces.MultiDiscrete([2, 5])})
UNIT = spaces.Box(-1.0, 1.0, (2,), np.float32)
KINDS = {
    "box, discrete": (UNIT, spaces.Discrete(3, start=-1)),
    "box, line": (UNIT, spaces.Box(-2.0, 2.0, (1,), np.float32)),
    "box, square": (UNIT, spaces.Box(np.array([0.0, -5.0]), np.array([1.0, 5.0]), dtype=np.float64)),
    "box, multidiscrete": (UNIT, spaces.MultiDiscrete([3, 4])),
    "box, multibinary": (UNIT, spaces.MultiBinary(3)),
    "box, many": (UNIT, spaces.MultiDiscrete([11, 11, 11])),
    "discrete, discrete": (spaces.Discrete(5, start=2), spaces.Discrete(4)),
    "discrete, line": (spaces.Discrete(4), spaces.Box(-2.0, 2.0, (1,), np.float32)),
    "multidiscrete, discrete": (spaces.MultiDiscrete([3, 2]), spaces.Discrete(3)),
    "multibinary, multibinary": (spaces.MultiBinary(4), spaces.MultiBinary([2, 2])),
    "tuple, discrete": (PAIR, spaces.Discrete(3)),
    "dict, multidiscrete": (NESTED, spaces.MultiDiscrete([3, 2])),
    "image, discrete": (spaces.Box(0, 255, (2, 2, 3), np.uint8), spaces.Discrete(2)),
    "dict, line": (NESTED, spaces.Box(-2.0, 2.0, (1,), np.float64)),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_space_runs(name, tmp_path):
    env = Bandit(*KINDS[name])
    agent = SarsaAgent(env, gamma=0.5, seed=0, warmup=60, budget=15).learn(250)
    assert agent.num_timesteps == 250
    env.observation_space.seed(1)
    observations = [env.observation_space.sample() for _ in range(25)]
    chosen = [agent.predict(observation)[0] for observation in observations]
    assert all(env.action_space.contains(action) for action in chosen)
    env.action_space.seed(1)
    random = np.mean([env.pay(env.action_space.sample()) for _ in range(200)])
    assert np.mean([env.pay(action) for action in chosen]) > 0.6 * random  # pay is negative
    agent.save(tmp_path / "agent")
    loaded = SarsaAgent.load(tmp_path / "agent", Bandit(*KINDS[name]))
    for observation, action in zip(observations, chosen, strict=True):
        np.testing.assert_array_equal(loaded.predict(observation)[0], action)


def test_memory_stays_bounded(tmp_path):
    agent = SarsaAgent(gymnasium.make("CartPole-v1"), seed=0, memory=120, budget=30, warmup=60)
    sizes = []
    for _ in range(5):
        agent.learn(200)
        assert len(agent.experience) == 120
        assert len(agent.experience.gone()) <= 120
        assert len(agent.model.pseudo_inputs) <= 2 * 30
        agent.save(tmp_path / "agent")
        sizes.append((tmp_path / "agent").stat().st_size)
    assert sizes[-1] < 1.5 * sizes[1]
    assert agent.visited.shape == (120, 4)


def test_an_interruption_while_hyperparameters_are_learnt_goes_on(monkeypatch):
    agent = SarsaAgent(Corridor(), seed=0, warmup=40, budget=10)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gpsarsa.optimization._Run.climb", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(200)
