"""Environments as a user's own package would register them: `third_party:Probe-v0`."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces

OBSERVATIONS = {
    "box": spaces.Box(-2.0, 2.0, (3,)),
    "picture": spaces.Box(-2.0, 2.0, (2, 2)),
    "discrete": spaces.Discrete(5, start=-2),
    "multidiscrete": spaces.MultiDiscrete([5, 3]),
    "multibinary": spaces.MultiBinary(3),
    "dict": spaces.Dict({"place": spaces.Box(-2.0, 2.0, (2,)), "light": spaces.Discrete(2)}),
    "tuple": spaces.Tuple((spaces.Box(-2.0, 2.0, (1,)), spaces.MultiBinary(2))),
    "text": spaces.Text(5),
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=5),
    "multidiscrete": spaces.MultiDiscrete([2, 3]),
    "multibinary": spaces.MultiBinary(2),
    "box": spaces.Box(-1.0, 1.0, (2,)),
}


class Probe(gym.Env):
    """Rewards actions that look like the observation, in any space; can be made to fail at a step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012

    def __init__(self, observation="box", action="discrete", fault=None, at=0, render_mode=None):
        self.observation_space, self.action_space = OBSERVATIONS[observation], ACTIONS[action]
        self.render_mode, self._fault, self._at, self._steps = render_mode, fault, at, 0

    def _observe(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._steps += 1
        reward = float(np.sum(action)) - float(self.np_random.random())
        observation = self._observe()
        if self._fault is not None and self._steps == self._at:
            if self._fault == "raise":
                raise OSError("the robot fell over")
            reward = float("nan")
        return observation, reward, bool(self.np_random.random() < 0.05), False, {}

    def render(self):
        if self.render_mode is None:
            return None
        picture = np.zeros((32, 48, 3), np.uint8)
        picture[:, : self._steps % 48] = 40 + self._steps % 200
        return picture


class Endless(Probe):
    """An episode that never ends, of an environment that cannot be seen."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, False, False, {}


gym.register("Probe-v0", Probe, max_episode_steps=20)
gym.register("Endless-v0", Endless)
