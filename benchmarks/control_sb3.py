"""One run of `benchmarks.control` with Stable-Baselines3, in the peers' environment, printed as JSON.

    python -m benchmarks.control_sb3 dqn|ppo|sac TASK SEED STEPS

The settings are those that RL Baselines3 Zoo publishes (github.com/DLR-RM/rl-baselines3-zoo, hyperparams:
dqn.yml of commit ce95481, ppo.yml of 208b6fd, sac.yml of c94924e), where those of LunarLander-v2,
InvertedPendulum-v2 and Reacher-v2 serve for the newer versions. SAC has none for InvertedPendulum and Reacher
and runs with Stable-Baselines3's defaults. Schedules run over `n_timesteps` of the Zoo, also where this run
stops earlier.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.control_tasks import SPARSELY, TASKS, Judge, Task, marks, timed

WIDE = {"net_arch": [256, 256]}
ALGORITHMS = {"dqn": DQN, "ppo": PPO, "sac": SAC}


def linear(start: float):
    """A schedule from `start` to 0."""
    return lambda remaining: remaining * start


SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("dqn", "CartPole-v1"): {
        "n_timesteps": 50_000, "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000,
        "learning_starts": 1_000, "gamma": 0.99, "target_update_interval": 10, "train_freq": 256,
        "gradient_steps": 128, "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
        "policy_kwargs": WIDE,
    },
    ("dqn", "MountainCar-v0"): {
        "n_timesteps": 120_000, "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000,
        "learning_starts": 1_000, "gamma": 0.98, "target_update_interval": 600, "train_freq": 16,
        "gradient_steps": 8, "exploration_fraction": 0.2, "exploration_final_eps": 0.07,
        "policy_kwargs": WIDE,
    },
    ("dqn", "Acrobot-v1"): {
        "n_timesteps": 100_000, "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000,
        "learning_starts": 0, "gamma": 0.99, "target_update_interval": 250, "train_freq": 4,
        "gradient_steps": -1, "exploration_fraction": 0.12, "exploration_final_eps": 0.1,
        "policy_kwargs": WIDE,
    },
    ("dqn", "LunarLander-v3"): {
        "n_timesteps": 100_000, "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000,
        "learning_starts": 0, "gamma": 0.99, "target_update_interval": 250, "train_freq": 4,
        "gradient_steps": -1, "exploration_fraction": 0.12, "exploration_final_eps": 0.1,
        "policy_kwargs": WIDE,
    },
    ("ppo", "CartPole-v1"): {
        "n_envs": 8, "n_timesteps": 100_000, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8,
        "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0, "learning_rate": linear(1e-3),
        "clip_range": linear(0.2),
    },
    ("ppo", "MountainCar-v0"): {
        "normalize": True, "n_envs": 16, "n_timesteps": 1_000_000, "n_steps": 16, "gae_lambda": 0.98,
        "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    },
    ("ppo", "Acrobot-v1"): {
        "normalize": True, "n_envs": 16, "n_timesteps": 1_000_000, "n_steps": 256, "gae_lambda": 0.94,
        "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    },
    ("ppo", "Pendulum-v1"): {
        "n_envs": 4, "n_timesteps": 100_000, "n_steps": 1_024, "gae_lambda": 0.95, "gamma": 0.9,
        "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True,
        "sde_sample_freq": 4,
    },
    ("ppo", "MountainCarContinuous-v0"): {
        "normalize": True, "n_timesteps": 20_000, "batch_size": 256, "n_steps": 8, "gamma": 0.9999,
        "learning_rate": 7.77e-5, "ent_coef": 0.00429, "clip_range": 0.1, "n_epochs": 10, "gae_lambda": 0.9,
        "max_grad_norm": 5, "vf_coef": 0.19, "use_sde": True,
        "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
    },
    ("ppo", "LunarLander-v3"): {
        "n_envs": 16, "n_timesteps": 1_000_000, "n_steps": 1_024, "batch_size": 64, "gae_lambda": 0.98,
        "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01,
    },
    ("ppo", "InvertedPendulum-v5"): {
        "normalize": True, "n_timesteps": 1_000_000, "batch_size": 64, "n_steps": 32, "gamma": 0.999,
        "learning_rate": 0.000222425, "ent_coef": 1.37976e-07, "clip_range": 0.4, "n_epochs": 5,
        "gae_lambda": 0.9, "max_grad_norm": 0.3, "vf_coef": 0.19816,
    },
    ("ppo", "Reacher-v5"): {
        "normalize": True, "n_timesteps": 1_000_000, "batch_size": 32, "n_steps": 512, "gamma": 0.9,
        "learning_rate": 0.000104019, "ent_coef": 7.52585e-08, "clip_range": 0.3, "n_epochs": 5,
        "gae_lambda": 1.0, "max_grad_norm": 0.9, "vf_coef": 0.950368,
    },
    ("sac", "Pendulum-v1"): {"n_timesteps": 20_000, "learning_rate": 1e-3},
    ("sac", "MountainCarContinuous-v0"): {
        "n_timesteps": 50_000, "learning_rate": 3e-4, "buffer_size": 50_000, "batch_size": 512,
        "ent_coef": 0.1, "train_freq": 32, "gradient_steps": 32, "gamma": 0.9999, "tau": 0.01,
        "learning_starts": 0, "use_sde": True, "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
    },
    ("sac", "InvertedPendulum-v5"): {},
    ("sac", "Reacher-v5"): {},
}  # fmt: skip


class Watch(BaseCallback):
    """Evaluates at the marks and stops after `steps`."""

    def __init__(self, judge: Judge, steps: int) -> None:
        super().__init__()
        self.judge, self.steps = judge, steps

    def _on_step(self) -> bool:
        self.judge(self.model.num_timesteps, self._act)
        return self.model.num_timesteps < self.steps

    def _act(self, observations):
        rows = np.stack(observations)
        normalize = self.model.get_vec_normalize_env()
        if normalize is not None:
            rows = normalize.normalize_obs(rows)
        return self.model.predict(rows, deterministic=True)[0]


def learn(contender: str, task: Task, seed: int, steps: int) -> dict:
    settings = dict(SETTINGS[contender, task.id])
    total = max(settings.pop("n_timesteps", steps), steps)
    env = make_vec_env(task.make, settings.pop("n_envs", 1), seed=seed)
    if settings.pop("normalize", False):
        env = VecNormalize(env, gamma=settings["gamma"])
    model = ALGORITHMS[contender]("MlpPolicy", env, device="cpu", seed=seed, **settings)
    judge = Judge(task, marks(steps, SPARSELY), seed)
    return timed(judge, lambda: model.learn(total, callback=Watch(judge, steps)), steps)


def main(contender: str, name: str, seed: str, steps: str) -> None:
    torch.set_num_threads(1)
    found = learn(contender, TASKS[name], int(seed), int(steps))
    print(json.dumps({**found, "version": f"stable-baselines3 {stable_baselines3.__version__}"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
