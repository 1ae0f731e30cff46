"""What an agent costs a step: `python -m benchmarks.agent [PEERS_PYTHON]`.

On CartPole with the shipped defaults, all timescales included, the time of a step without the
environment's own; the fast path alone (choose, update) at M = 100; and, where a Python with
Stable-Baselines3 is given, its PPO on the same environment, in turn with ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
from threadpoolctl import threadpool_limits

from gpsarsa import SarsaAgent, SparseGPSarsa, Timescales, kernels
from gpsarsa.control import policies
from gpsarsa.placement import Novelty

STEPS = 10_000
PEER, PPO = Path(__file__).with_name("sb3.py"), "PPO (Stable-Baselines3)"


def environment_time(steps: int = 5_000) -> float:
    """Seconds of one step of CartPole by itself."""
    env = gym.make("CartPole-v1")
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    begun = time.perf_counter()
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(int(rng.integers(2)))
        if terminated or truncated:
            env.reset()
    return (time.perf_counter() - begun) / steps


class Timed(SarsaAgent):
    """An agent that knows how long its slow steps took."""

    slow = 0.0

    def _attempt(self, step):
        begun = time.perf_counter()
        super()._attempt(step)
        self.slow += time.perf_counter() - begun


def overhead(seed: int, steps: int = STEPS) -> dict[str, float]:
    """Seconds a step: all of it, and the slow steps."""
    agent = Timed(gym.make("CartPole-v1"), seed=seed)
    begun = time.perf_counter()
    agent.learn(steps)
    return {"all": (time.perf_counter() - begun) / steps, "slow": agent.slow / steps}


def fast_path(M: int, repeats: int = 20_000) -> float:
    """Seconds to choose an action among two and to take in a transition, novelty test included."""
    rng = np.random.default_rng(0)
    env = gym.make("CartPole-v1")
    kernel = kernels.Matern52([2.0, 2.0, 0.2, 2.0], columns=[0, 1, 2, 3]) * kernels.Delta(4, share=0.5)
    low, high = np.array([-2.0, -2.0, -0.2, -2.0, 0.0]), np.array([2.0, 2.0, 0.2, 2.0, 1.0])
    Z = rng.uniform(low, high, (M, 5))
    Z[:, 4] = rng.integers(2, size=M)
    model = SparseGPSarsa(kernel, 1e-2, Z, growth="streaming")
    agent = SarsaAgent(env, seed=0)
    learner = Timescales(model, placement=Novelty(0.99), budget=M, seed=0)
    rows = rng.uniform(low[:4], high[:4], (1_000, 4))
    x = np.append(rows[0], 0.0)
    begun = time.perf_counter()
    for i in range(repeats):
        row = rows[i % 1_000]
        decision = policies.Decision(row, row, i, agent.rng, model, agent.actions, None)
        action = agent.policy.row(decision)
        following = np.empty(5)
        following[:4], following[4:] = row, action
        learner._take(x, 1.0, following, 0.97, False)
        x = following
    return (time.perf_counter() - begun) / repeats


def peer(python: str, steps: int = STEPS) -> float:
    """Seconds a step of Stable-Baselines3's PPO, the environment's own included."""
    answer = subprocess.run(
        [python, str(PEER), "ppo", str(steps)], capture_output=True, text=True, check=True
    ).stdout
    return float(json.loads(answer)["seconds a step"])


def measure(python: str | None = None, repeats: int = 5) -> dict[str, list[float]]:
    """Seconds a step, one number a repeat; what is compared takes turns."""
    overhead(0, 1_000)  # compiles
    rows: dict[str, list[float]] = {}
    for repeat in range(repeats):
        own = environment_time()
        with threadpool_limits(1):
            measured = overhead(repeat)
            rows.setdefault("fast path, M = 100", []).append(fast_path(100))
            rows.setdefault("fast path, M = 300", []).append(fast_path(300))
        rows.setdefault("agent", []).append(measured["all"] - own)
        rows.setdefault("of it slow steps", []).append(measured["slow"])
        if python is not None:
            rows.setdefault(PPO, []).append(peer(python) - own)
        rows.setdefault("the environment itself", []).append(own)
    return rows


def main() -> None:
    rows = measure(sys.argv[1] if len(sys.argv) > 1 else None)
    print("CartPole-v1, µs a step (median of 5, smallest and largest)\n")
    for name, values in rows.items():
        low, mid, high = 1e6 * min(values), 1e6 * float(np.median(values)), 1e6 * max(values)
        print(f"{name:<28}{mid:8.0f}   ({low:.0f} … {high:.0f})")
    if PPO in rows:
        ratio = np.array(rows["agent"]) / np.array(rows[PPO])
        print(f"\nagent / PPO: {float(np.median(ratio)):.2f}")


if __name__ == "__main__":
    main()
