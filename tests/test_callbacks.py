"""Callbacks around learning, and evaluation, which must not change what is learnt."""

from __future__ import annotations

import csv
import math
import sys

import gymnasium as gym
import numpy as np
import pytest
import third_party  # noqa: F401 - registers environments
from survival import digest

from gpsarsa import runs
from gpsarsa.control import callbacks
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.callbacks import (
    CheckpointCallback,
    EvalCallback,
    LogCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
    TensorBoardCallback,
)
from gpsarsa.control.environments import EnvironmentFault
from gpsarsa.control.evaluation import episodes, evaluate_policy, standard_error

STEPS = 320


def new_agent(env="CartPole-v1"):
    return SarsaAgent(gym.make(env), seed=1, budget=30)


def learnt(callback=None, steps=STEPS):
    return new_agent().learn(steps, callback=callback)


class Constant:
    """All that evaluation asks for."""

    def __init__(self, action):
        self.action = action

    def predict(self, observation, deterministic=True):
        assert deterministic
        return self.action, None


# -- evaluation -----------------------------------------------------------------------------------


def test_anything_with_predict_is_evaluated_in_the_same_episodes_each_time():
    env = gym.make("CartPole-v1")
    mean, std = evaluate_policy(Constant(1), env, 8)
    assert 8 <= mean <= 11
    assert std > 0
    assert evaluate_policy(Constant(1), env, 8) == (mean, std)
    assert evaluate_policy(Constant(1), env, 8, seed=1) != (mean, std)
    returns = [episode.total for episode in episodes(Constant(1), env, 8)]
    assert mean == np.mean(returns)
    assert standard_error(returns) == pytest.approx(np.std(returns, ddof=1) / np.sqrt(8))
    assert standard_error([3.0]) is None


def test_evaluation_differs_from_training():
    seeds = []

    class Seeds(gym.Wrapper):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    SarsaAgent(Seeds(gym.make("CartPole-v1")), seed=0).learn(60)
    trained = set(seeds)
    seeds.clear()
    evaluate_policy(Constant(1), Seeds(gym.make("CartPole-v1")), 20, seed=0)
    assert len(set(seeds)) == 20
    assert not trained & set(seeds)


def test_an_episode_without_end_is_cut_off():
    env = gym.make("Endless-v0")
    assert [(e.length, e.cut) for e in episodes(Constant(5), env, 2, longest=30)] == [(30, True)] * 2


def test_what_cannot_be_evaluated():
    vector = gym.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(TypeError, match="expected a single environment"):
        evaluate_policy(Constant(1), vector)
    with pytest.raises(TypeError, match="predict method"):
        evaluate_policy(object(), gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="n_eval_episodes = 0"):
        evaluate_policy(Constant(1), gym.make("CartPole-v1"), 0)
    with pytest.raises(
        EnvironmentFault, match=r"step 3 of evaluation episode 1: env\.step raised OSError: the"
    ):
        evaluate_policy(Constant(5), gym.make("Probe-v0", fault="raise", at=3))
    with pytest.raises(EnvironmentFault, match="step 3 of evaluation episode 1: the reward is nan"):
        evaluate_policy(Constant(5), gym.make("Probe-v0", fault="nan", at=3))
    vector.close()


# -- EvalCallback ---------------------------------------------------------------------------------


def test_evaluating_does_not_change_what_is_learnt(tmp_path):
    learnt().save(tmp_path / "without.safetensors")
    callback = EvalCallback(
        gym.make("CartPole-v1"), n_eval_episodes=2, eval_freq=50, best_model_save_path=tmp_path / "best"
    )
    agent = learnt([callback, CheckpointCallback(40, tmp_path)])
    agent.save(tmp_path / "with.safetensors")
    assert digest(tmp_path / "with.safetensors") == digest(tmp_path / "without.safetensors")
    steps = [step for step, _, _ in callback.evaluations]
    assert len(steps) >= 3
    assert min(np.diff([0, *steps])) >= 50
    assert callback.best_mean_reward == max(mean for _, mean, _ in callback.evaluations)
    assert callback.last_mean_reward == callback.evaluations[-1][1]
    best = SarsaAgent.load(tmp_path / "best" / "best_model.safetensors")
    assert (best.num_timesteps, callback.best_mean_reward) in [(s, m) for s, m, _ in callback.evaluations]


def test_training_stops_at_a_threshold():
    stop = StopTrainingOnRewardThreshold(5.0)
    callback = EvalCallback(gym.make("CartPole-v1"), eval_freq=30, callback_on_new_best=stop)
    agent = learnt(callback)
    assert len(callback.evaluations) == 1
    assert 30 <= agent.num_timesteps < STEPS
    high = EvalCallback(
        gym.make("CartPole-v1"),
        eval_freq=100,
        callback_on_new_best=StopTrainingOnRewardThreshold(501.0),
    )
    assert learnt(high).num_timesteps == STEPS


def test_a_plain_function_on_a_new_best():
    seen = []
    learnt(EvalCallback(gym.make("CartPole-v1"), eval_freq=30, callback_on_new_best=seen.append))
    assert seen
    assert isinstance(seen[0], SarsaAgent)


def test_several_on_a_new_best():
    seen = []
    both = [seen.append, StopTrainingOnRewardThreshold(5.0)]
    agent = learnt(EvalCallback(gym.make("CartPole-v1"), eval_freq=30, callback_on_new_best=both))
    assert seen == [agent]
    assert agent.num_timesteps < STEPS


def test_mistakes_are_named():
    agent = new_agent()
    with pytest.raises(ValueError, match="eval_env is the environment that is trained in"):
        agent.learn(10, callback=EvalCallback(agent.env))
    with pytest.raises(ValueError, match="eval_freq = 0"):
        EvalCallback(gym.make("CartPole-v1"), eval_freq=0)
    with pytest.raises(TypeError, match=r"save_freq = 1\.5"):
        CheckpointCallback(1.5, "x")
    with pytest.raises(ValueError, match="callback_on_new_best of an EvalCallback"):
        agent.learn(10, callback=StopTrainingOnRewardThreshold(1.0))
    with pytest.raises(ValueError, match="max_episodes = 0"):
        StopTrainingOnMaxEpisodes(0)


# -- the others -----------------------------------------------------------------------------------


def test_training_stops_after_some_episodes():
    agent = learnt(StopTrainingOnMaxEpisodes(3))
    assert agent.episodes == 3
    assert agent.learn(STEPS, callback=StopTrainingOnMaxEpisodes(2)).episodes == 5


def test_checkpoints_are_at_the_ends_of_episodes_and_take_turns(tmp_path):
    ends = []

    class Ends(callbacks.BaseCallback):
        def on_episode_end(self, episode):
            ends.append(episode["step"])
            return True

    learnt([Ends(), CheckpointCallback(60, tmp_path / "deep" / "folder", "mine")])
    folder = tmp_path / "deep" / "folder"
    newest, before = (
        SarsaAgent.load(folder / name) for name in ("mine.safetensors", "mine.previous.safetensors")
    )
    assert newest.num_timesteps in ends
    assert before.num_timesteps in ends
    assert newest.num_timesteps - before.num_timesteps >= 60
    assert sorted(path.name for path in folder.iterdir()) == ["mine.previous.safetensors", "mine.safetensors"]


def test_learning_goes_on_from_a_callbacks_checkpoint_bit_for_bit(tmp_path):
    learnt(CheckpointCallback(100, tmp_path)).save(tmp_path / "whole.safetensors")
    agent = SarsaAgent.load(tmp_path / "agent.safetensors", gym.make("CartPole-v1"))
    agent.learn(STEPS - agent.num_timesteps).save(tmp_path / "parts.safetensors")
    assert digest(tmp_path / "parts.safetensors") == digest(tmp_path / "whole.safetensors")


def test_an_episode_without_end_is_saved_late(tmp_path):
    SarsaAgent(gym.make("Endless-v0"), seed=0, budget=20).learn(
        150, callback=CheckpointCallback(10, tmp_path)
    )
    assert SarsaAgent.load(tmp_path / "agent.safetensors").num_timesteps == 100


def test_the_log_has_a_line_for_every_episode(tmp_path):
    with runs.Log(tmp_path / "progress.csv", keep=0) as log:
        agent = learnt(LogCallback(log, seconds=1000.0))
    with open(tmp_path / "progress.csv") as file:
        lines = list(csv.DictReader(file))
    assert [int(line["episode"]) for line in lines] == list(range(agent.episodes))
    assert float(lines[0]["seconds"]) >= 1000.0


class Writer:
    """In place of tensorboardX's."""

    def __init__(self, folder, purge_step):
        self.folder, self.purge_step, self.scalars, self.closed = folder, purge_step, [], False
        Writer.last = self

    def add_scalar(self, label, value, step):
        self.scalars.append((label, value, step))

    def close(self):
        self.closed = True


def test_curves_for_tensorboard(tmp_path, monkeypatch):
    module = pytest.importorskip("tensorboardX")
    learnt(TensorBoardCallback(tmp_path / "board"), steps=60)
    assert [path.name.startswith("events.") for path in (tmp_path / "board").iterdir()] == [True]
    monkeypatch.setattr(module, "SummaryWriter", Writer)
    agent = learnt(TensorBoardCallback(tmp_path / "board"))
    written = Writer.last
    assert written.closed
    assert written.purge_step == 1
    assert all(math.isfinite(value) for _, value, _ in written.scalars)
    assert sum(label == "rollout/return" for label, _, _ in written.scalars) == agent.episodes
    assert {"model/pseudo_inputs", "model/noise_variance"} <= {label for label, _, _ in written.scalars}


def test_tensorboard_missing_names_the_cure(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'gpsarsa\[tensorboard\]'"):
        TensorBoardCallback(tmp_path)
