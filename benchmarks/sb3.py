"""What runs in an environment with Stable-Baselines3: `sb3.py ppo STEPS`, `sb3.py evaluate`.

`ppo` times its PPO on CartPole. `evaluate` hands agents of this package to its `evaluate_policy`, unchanged,
and compares with playing the same episodes by hand; that needs gpsarsa installed beside it.
"""

from __future__ import annotations

import json
import sys
import time

import gymnasium as gym
import numpy as np
from stable_baselines3.common.evaluation import evaluate_policy


def ppo(steps: int) -> dict[str, float]:
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    model = PPO("MlpPolicy", "CartPole-v1", device="cpu", seed=0)
    model.learn(2_048)
    begun = time.perf_counter()
    model.learn(steps)
    return {"seconds a step": (time.perf_counter() - begun) / model.num_timesteps}


def evaluate() -> dict[str, list[float]]:
    from stable_baselines3.common.env_util import make_vec_env

    from gpsarsa import SarsaAgent

    found = {}
    for name, steps in (("CartPole-v1", 1_000), ("Pendulum-v1", 600), ("FrozenLake-v1", 600)):
        agent = SarsaAgent(gym.make(name), seed=0).learn(steps)
        for copies in (1, 3):
            env = make_vec_env(name, n_envs=copies, seed=7)
            returns, lengths = evaluate_policy(agent, env, n_eval_episodes=6, return_episode_rewards=True)
            assert len(returns) == 6
            assert all(length > 0 for length in lengths)
            found[f"{name}, {copies} at a time"] = [float(np.mean(returns)), float(np.std(returns))]
        plain, _ = evaluate_policy(agent, gym.make(name), n_eval_episodes=3, warn=False)
        assert np.isfinite(plain)
    return found


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    print(json.dumps(ppo(int(arguments[0])) if command == "ppo" else evaluate()))
