"""The protocol of `benchmarks.control`: tasks, thresholds, marks, and how a policy is judged.

Every 500 steps the greedy policy plays the evaluation episodes in environments of their own, from start
states that neither training nor another evaluation has; nothing of that is learnt from. InvertedPendulum,
CliffWalking and Reacher were chosen beforehand, and nothing was tuned on them. Reacher's threshold is easier
than the registered −3.75; who stands still gets −11.3.

This file does not import the package: it also runs in the environment of the peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

EVERY = 500  # steps between evaluations
SPARSE, SPARSELY = 10_000, 2_000  # beyond so many steps the peers are evaluated less often
SEED = 1_000_000  # from which those of the evaluation episodes are drawn
SCALE = 1_000.0


@dataclass(frozen=True)
class Task:
    """An environment, what passes there, and how long it is learnt."""

    id: str
    threshold: float
    aim: int | None = None  # by which step the default agent should pass
    steps: int = 10_000
    peer_steps: int = 50_000
    episodes: int = 20
    floor: float = 0.0  # where the picture's axis begins
    options: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0

    @property
    def name(self) -> str:
        return self.id if self.scale == 1.0 else f"{self.id} ×{self.scale:g}"

    def make(self) -> gym.Env:
        env = gym.make(self.id, disable_env_checker=True, **self.options)
        return env if self.scale == 1.0 else Rescaled(env, self.scale)


class Rescaled(gym.Wrapper):
    """The same task in other units: observations, their bounds and rewards times `scale`."""

    def __init__(self, env: gym.Env, scale: float = SCALE) -> None:
        super().__init__(env)
        self.scale = scale
        box = env.observation_space
        self.observation_space = gym.spaces.Box(scale * box.low, scale * box.high, dtype=box.dtype)

    def reset(self, **options):
        observation, info = self.env.reset(**options)
        return self._scaled(observation), info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._scaled(observation), self.scale * float(reward), terminated, truncated, info

    def _scaled(self, observation):
        return (self.scale * observation).astype(observation.dtype)


PLAIN = (
    Task("CartPole-v1", 475, aim=2_500),
    Task("MountainCar-v0", -110, aim=2_500, peer_steps=120_000, floor=-210),
    Task("Acrobot-v1", -100, aim=1_500, floor=-510),
    Task("Pendulum-v1", -200, aim=2_500, peer_steps=100_000, floor=-1_700),
    Task("MountainCarContinuous-v0", 90, aim=4_000, floor=-100),
    Task("LunarLander-v3", 200, aim=20_000, steps=40_000, peer_steps=100_000, floor=-600),
    Task(
        "FrozenLake-v1", 0.65, aim=10_000, peer_steps=100_000, episodes=500,
        options={"map_name": "4x4", "is_slippery": True},
    ),
)  # fmt: skip
UNTUNED = (
    Task("InvertedPendulum-v5", 950),
    Task("CliffWalking-v1", -13, floor=-220, options={"max_episode_steps": 200}),
    Task("Reacher-v5", -10, floor=-40),
)
RESCALED = tuple(
    Task(task.id, task.threshold, task.aim, floor=task.floor, scale=SCALE)
    for task in PLAIN
    if task.id in ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1")
)
TASKS = {task.name: task for task in PLAIN + UNTUNED + RESCALED}


def marks(steps: int, sparsely: int = EVERY) -> list[int]:
    """At which steps to evaluate: every 500, and beyond 10 000 every `sparsely`."""
    dense = range(EVERY, min(steps, SPARSE) + 1, EVERY)
    return [*dense, *range(SPARSE + sparsely, steps + 1, sparsely)]


class Judge:
    """Evaluates the policy of a run at the marks, and keeps the time that this takes apart."""

    def __init__(self, task: Task, marks: Sequence[int], seed: int) -> None:
        self.task, self.marks, self.seed = task, list(marks), seed
        self.envs = [task.make() for _ in range(task.episodes)]
        self.evaluations: list[tuple[int, float]] = []
        self.seconds = 0.0

    def __call__(self, step: int, act: Callable[[list[Any]], Sequence[Any]]) -> None:
        """Evaluate if a mark is reached. `act` gives actions for the observations of some episodes."""
        if not self.marks or step < self.marks[0]:
            return
        begun = time.process_time()
        while self.marks and step >= self.marks[0]:
            self.marks.pop(0)
        self.evaluations.append((step, self.play(act)))
        self.seconds += time.process_time() - begun

    def play(self, act: Callable[[list[Any]], Sequence[Any]]) -> float:
        """The mean return of all episodes, in the units of the task as it is registered."""
        stream = np.random.SeedSequence([SEED, self.seed, len(self.evaluations)])
        seeds = stream.generate_state(len(self.envs))
        observations = [env.reset(seed=int(own))[0] for env, own in zip(self.envs, seeds, strict=True)]
        totals = np.zeros(len(self.envs))
        going = list(range(len(self.envs)))
        while going:
            actions = act([observations[i] for i in going])
            ended = set()
            for i, action in zip(going, actions, strict=True):
                observations[i], reward, terminated, truncated, _ = self.envs[i].step(action)
                totals[i] += float(reward)
                if terminated or truncated:
                    ended.add(i)
            going = [i for i in going if i not in ended]
        return float(totals.mean()) / self.task.scale


def timed(judge: Judge, learn: Callable[[], Any], steps: int) -> dict[str, Any]:
    """Learn under a judge's eyes: the evaluations, and µs of processor time a step without them."""
    begun = time.process_time()
    learn()
    spent = time.process_time() - begun - judge.seconds
    return {"evaluations": judge.evaluations, "microseconds": 1e6 * spent / steps}
