"""An environment stepped with care: one or many copies behind one face, every answer checked.

A `Course` has one lane for each copy of the environment. `begin` starts an episode in a lane, `step` moves
all lanes and says what happened in each. How a vector environment restarts its copies (`autoreset_mode`)
is settled here. Whatever an environment does wrong is an `EnvironmentFault` that names the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import getitem
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from gpsarsa._validation import Array
from gpsarsa.control.spaces import Actions, Observations, SpaceError

__all__ = ["Course", "EnvironmentFault", "Happening", "check", "course", "lane_of"]


LARGEST_REWARD = 1e100


class EnvironmentFault(ValueError):
    """An environment that does not keep to Gymnasium's contract, or failed; where, and how."""


@dataclass(frozen=True, slots=True)
class Happening:
    """What a step brought: the observation reached, as given and as a row, and how it came about."""

    observation: Any
    row: Array
    reward: float
    terminated: bool
    truncated: bool


class Course:
    """One environment with one lane."""

    lanes = 1

    def __init__(self, env: Any, observations: Observations, actions: Actions) -> None:
        self.env, self.observations, self.actions = env, observations, actions
        self.steps = 0  # of this course, for messages

    def begin(self, lane: int, seed: int) -> tuple[Any, Array] | None:
        """Start an episode: its first observation, or None where it comes with the next step."""
        return self._first(self._reset(seed=seed))

    def step(self, actions: list[Array | None]) -> list[Happening | None]:
        """Take a step in every lane; None where a lane was only being restarted."""
        [row] = actions
        assert row is not None
        action = self.actions.action(row)
        try:
            answer = self.env.step(action)
        except Exception as error:
            raise self._raised("step", error) from error
        self.steps += 1
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise self._not_five(answer)
        observation, reward, terminated, truncated, _ = answer
        return [self._happening(observation, reward, terminated, truncated)]

    def _reset(self, **how: Any) -> Any:
        try:
            answer = self.env.reset(**how)
        except Exception as error:
            raise self._raised("reset", error) from error
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            raise EnvironmentFault(
                f"{self._where()}: env.reset returned {_kind(answer)}; expected the pair observation, info "
                "(Gymnasium's contract)"
            )
        return answer[0]

    def _first(self, observation: Any) -> tuple[Any, Array]:
        return observation, self._row(observation)

    def _happening(self, observation: Any, reward: Any, terminated: Any, truncated: Any) -> Happening:
        row = self._row(observation)
        if type(reward) is not float:
            reward = as_number(reward, self._where())
        if not abs(reward) <= LARGEST_REWARD:
            raise EnvironmentFault(
                f"{self._where()}: the reward is {reward}; expected a finite number of at most "
                f"{LARGEST_REWARD:g}, whose square is finite too"
            )
        over, cut = self._flag(terminated, "terminated"), self._flag(truncated, "truncated")
        return Happening(observation, row, reward, over, cut)

    def _flag(self, value: Any, name: str) -> bool:
        if type(value) is not bool and not isinstance(value, np.bool_):
            raise EnvironmentFault(f"{self._where()}: {name} is {value!r}; expected True or False")
        return bool(value)

    def _row(self, observation: Any) -> Array:
        try:
            return self.observations.row(observation)
        except (SpaceError, ValueError, TypeError) as error:
            raise EnvironmentFault(f"{self._where()}: {error}") from error

    def _raised(self, what: str, error: Exception) -> EnvironmentFault:
        return EnvironmentFault(f"{self._where()}: env.{what} raised {type(error).__name__}: {error}")

    def _not_five(self, answer: Any) -> EnvironmentFault:
        return EnvironmentFault(
            f"{self._where()}: env.step returned {_kind(answer)}; expected the five values observation, "
            "reward, terminated, truncated, info (Gymnasium's contract)"
        )

    def _where(self) -> str:
        return f"after {self.steps} steps of the environment"


class VectorCourse(Course):
    """A vector environment, one lane for each of its copies."""

    def __init__(self, env: VectorEnv[Any, Any, Any], observations: Observations, actions: Actions) -> None:
        super().__init__(env, observations, actions)
        self.lanes = env.num_envs
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        try:
            self._mode = AutoresetMode(mode)
        except ValueError:
            raise EnvironmentFault(
                f"the environment's autoreset_mode is {mode!r}; expected one of "
                f"{', '.join(mode.value for mode in AutoresetMode)}"
            ) from None
        self._started = False
        self._waiting: list[tuple[Any, Array] | None] = [None] * self.lanes

    def begin(self, lane: int, seed: int) -> tuple[Any, Array] | None:
        if not self._started:
            seeds = [seed + i for i in range(self.lanes)]
            self._spread(self._reset(seed=seeds), np.ones(self.lanes, dtype=np.bool_))
            self._started = True
        elif self._mode == AutoresetMode.DISABLED and self._waiting[lane] is None:
            mask = np.zeros(self.lanes, dtype=np.bool_)
            mask[lane] = True
            self._spread(self._reset(options={"reset_mask": mask}), mask)
        first, self._waiting[lane] = self._waiting[lane], None
        return first

    def step(self, actions: list[Array | None]) -> list[Happening | None]:
        idle = [action is None for action in actions]
        filler = self.actions.random(1, np.random.default_rng(0))[0]
        rows = np.array([filler if action is None else action for action in actions])
        try:
            answer = self.env.step(self.actions.actions(rows))
        except Exception as error:
            raise self._raised("step", error) from error
        self.steps += self.lanes
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise self._not_five(answer)
        observations, rewards, terminated, truncated, info = answer
        happenings: list[Happening | None] = []
        for lane in range(self.lanes):
            observation = self._part(observations, lane, "observation")
            if idle[lane]:
                self._waiting[lane] = self._first(observation)
                happenings.append(None)
                continue
            over = self._flag(self._part(terminated, lane, "terminated", getitem), "terminated")
            cut = self._flag(self._part(truncated, lane, "truncated", getitem), "truncated")
            if (over or cut) and self._mode == AutoresetMode.SAME_STEP:
                self._waiting[lane] = self._first(observation)
                observation = self._last(info, lane)
            reward = self._part(rewards, lane, "reward", getitem)
            happenings.append(self._happening(observation, reward, over, cut))
        return happenings

    def _part(self, answer: Any, lane: int, what: str, take: Callable[[Any, int], Any] | None = None) -> Any:
        """One copy's part of what the environment answered; of observations by `lane_of`."""
        try:
            return (lane_of if take is None else take)(answer, lane)
        except (TypeError, LookupError, ValueError):
            raise EnvironmentFault(
                f"{self._where()}: there is no {what} of copy {lane} in {_kind(answer)}; expected one for "
                f"each of {self.lanes} copies"
            ) from None

    def _last(self, info: Any, lane: int) -> Any:
        """What an episode ended with, where the next one has begun in the same step."""
        try:
            return info["final_obs"][lane]
        except (TypeError, LookupError):
            raise EnvironmentFault(
                f"{self._where()}: copy {lane} ended and info has no final_obs for it (autoreset SAME_STEP)"
            ) from None

    def _spread(self, observations: Any, mask: Any) -> None:
        for lane in np.flatnonzero(mask):
            self._waiting[lane] = self._first(self._part(observations, int(lane), "observation"))


def course(env: Any, observations: Observations, actions: Actions) -> Course:
    """The course that fits the environment."""
    return (VectorCourse if isinstance(env, VectorEnv) else Course)(env, observations, actions)


def check(env: Any) -> tuple[Any, Any]:
    """The spaces of a single copy; EnvironmentFault for what is no environment."""
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    if not isinstance(env, gym.Env):
        raise EnvironmentFault(
            f"env is a {type(env).__name__}; expected a gymnasium.Env or a vector environment: "
            "gymnasium.make(id)"
        )
    for name in ("observation_space", "action_space"):
        if getattr(env, name, None) is None:
            raise EnvironmentFault(f"the environment has no {name}; a gymnasium.Env defines one")
    return env.observation_space, env.action_space


def as_number(reward: Any, where: str) -> float:
    """A reward; EnvironmentFault for what is no number."""
    try:
        if reward is None or isinstance(reward, str | bytes):
            raise TypeError
        return float(np.asarray(reward, dtype=np.float64).reshape(()))
    except (TypeError, ValueError, OverflowError):
        raise EnvironmentFault(f"{where}: the reward is {_kind(reward)}; expected a number") from None


def lane_of(observations: Any, lane: int) -> Any:
    """One copy's part of a vector environment's observations."""
    if isinstance(observations, Mapping):
        return {key: lane_of(value, lane) for key, value in observations.items()}
    if isinstance(observations, tuple):
        return tuple(lane_of(value, lane) for value in observations)
    return observations[lane]


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"{value!r}" if isinstance(value, str | int | float | type(None)) else f"a {type(value).__name__}"
