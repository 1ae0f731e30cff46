"""Return against steps with the defaults, over seeds: `python -m benchmarks.learning [SEEDS [STEPS]]`.

Each agent learns with its shipped defaults. At each mark its `predict` plays 20 episodes in an environment
of its own, whose start states no training episode has; nothing of that is learnt from.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure

from gpsarsa import SarsaAgent
from gpsarsa.control.callbacks import BaseCallback
from gpsarsa.control.evaluation import evaluate_policy

TASKS = ("MountainCar-v0", "CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0")
MARKS = (500, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000)
SHOWN = (500, 1_000, 2_000, 3_000, 5_000, 10_000)


class AtMarks(BaseCallback):
    """Evaluates when the marks are reached, wherever in an episode that is."""

    def __init__(self, env, marks):
        self.env, self.marks, self.found = env, list(marks), []

    def on_step(self):
        while self.marks and self.agent.num_timesteps >= self.marks[0]:
            self.marks.pop(0)
            self.found.append(evaluate_policy(self.agent, self.env, 20, seed=1_000_000)[0])
        return True


def learn(task: str, seed: int, steps: int) -> list[float]:
    """The mean return at each mark."""
    marks = AtMarks(gym.make(task), [mark for mark in MARKS if mark <= steps])
    SarsaAgent(gym.make(task), seed=seed).learn(steps, callback=marks)
    return marks.found


def draw(results: dict[str, np.ndarray], marks: list[int], path: str) -> None:
    figure = Figure(figsize=(12, 7.2), layout="constrained")
    for axes, (task, returns) in zip(figure.subplots(2, 3).flat, results.items(), strict=False):
        for row in returns:
            axes.plot(marks, row, color="0.75", linewidth=1)
        axes.plot(marks, np.median(returns, axis=0), color="#0072B2", linewidth=2, label="median")
        threshold = gym.spec(task).reward_threshold or -200.0  # Pendulum registers none
        axes.axhline(
            threshold, color="#D55E00", linestyle="--", linewidth=1, label=f"threshold {threshold:g}"
        )
        axes.set(title=task, xlabel="environment steps", ylabel="return of 20 greedy episodes")
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", frameon=False)
    for axes in figure.axes[len(results) :]:
        axes.remove()
    figure.savefig(path, dpi=110)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    marks = [mark for mark in MARKS if mark <= steps]
    results = {}
    with ProcessPoolExecutor(2) as pool:
        jobs = {task: [pool.submit(learn, task, seed, steps) for seed in range(seeds)] for task in TASKS}
        for task, waiting in jobs.items():
            results[task] = np.array([job.result() for job in waiting])
    shown = [mark for mark in SHOWN if mark <= steps]
    places = [marks.index(mark) for mark in shown]
    print("| task | seed | " + " | ".join(f"{mark}" for mark in shown) + " |")
    print("|---" * (len(shown) + 2) + "|")
    for task, returns in results.items():
        for seed, row in enumerate(returns):
            print(f"| {task} | {seed} | " + " | ".join(f"{row[i]:.0f}" for i in places) + " |")
        print(f"| {task} | median | " + " | ".join(f"{np.median(returns[:, i]):.0f}" for i in places) + " |")
    draw(results, marks, "docs/learning_curves.png")
    print("\nPicture: docs/learning_curves.png")


if __name__ == "__main__":
    main()
