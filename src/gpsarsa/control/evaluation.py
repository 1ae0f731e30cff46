"""How good a policy is: whole episodes in an environment of their own, from which nothing is learnt.

    mean, std = evaluate_policy(agent, gymnasium.make("CartPole-v1"), 20)

Whatever has Stable-Baselines3's `predict` can be evaluated. Each episode's reset seed follows from `seed`
and the episode's number, by another rule than in training, so that every call plays the same episodes and
none of them was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from gpsarsa import _validation as check
from gpsarsa.control.environments import EnvironmentFault, as_number

__all__ = ["LONGEST", "Episode", "episodes", "evaluate_policy", "standard_error"]

LONGEST = 10_000  # steps after which an episode that does not end is cut off
APART = 0x6576616C  # sets these seeds apart from those of training


@dataclass(frozen=True, slots=True)
class Episode:
    """How an episode went; `cut` where it had not ended after as many steps as were allowed."""

    total: float
    length: int
    cut: bool


def evaluate_policy(agent: Any, env: Any, n_eval_episodes: int = 10, *, seed: int = 0) -> tuple[float, float]:
    """Mean and standard deviation of the returns of some episodes, acting deterministically."""
    count = check.at_least_one(n_eval_episodes, "n_eval_episodes")
    returns = [episode.total for episode in episodes(agent, env, count, seed=seed)]
    return float(np.mean(returns)), float(np.std(returns))


def standard_error(returns: Sequence[float]) -> float | None:
    """Of the mean of some returns; None where one return says nothing about their spread."""
    values = check.vector(returns, "returns")
    with np.errstate(over="ignore", invalid="ignore"):
        return None if len(values) < 2 else float(np.std(values, ddof=1)) / math.sqrt(len(values))


def episodes(
    agent: Any,
    env: Any,
    count: int,
    *,
    seed: int = 0,
    longest: int | None = None,
    watch: Callable[[], None] | None = None,
) -> Iterator[Episode]:
    """Play episodes one after another; `watch` is called whenever there is something new to see.

    An episode that has not ended after `longest` steps (by default 10 000) is cut off.
    """
    if isinstance(env, VectorEnv):
        raise TypeError(f"env is a {type(env).__name__}; expected a single environment: gymnasium.make(id)")
    if not callable(getattr(agent, "predict", None)):
        raise TypeError(f"agent is a {type(agent).__name__}; expected something with a predict method")
    for name in ("reset", "step"):
        if not callable(getattr(env, name, None)):
            raise TypeError(f"env is a {type(env).__name__}; expected an environment: gymnasium.make(id)")
    if watch is not None and not callable(watch):
        raise TypeError(f"watch = {watch!r}; expected something to call, or None")
    longest = None if longest is None else check.count(longest, "longest")
    seed = check.count(seed, "seed")
    for number in range(check.count(count, "count")):
        reset_seed = np.random.SeedSequence([seed, APART, number]).generate_state(1)[0]
        yield _episode(agent, env, number, int(reset_seed), LONGEST if longest is None else longest, watch)


def _episode(
    agent: Any, env: Any, number: int, seed: int, longest: int, watch: Callable[[], None] | None
) -> Episode:
    observation, _ = _answer(env.reset, 2, number, 0, seed=seed)
    total = 0.0
    for step in range(1, longest + 1):
        if watch is not None:
            watch()
        action, _ = agent.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, _ = _answer(env.step, 5, number, step, action)
        total += as_number(reward, _where(number, step))
        if not math.isfinite(total):
            raise EnvironmentFault(
                f"{_where(number, step)}: the reward is {reward}; expected a finite number"
            )
        if terminated or truncated:
            if watch is not None:
                watch()
            return Episode(total, step, cut=False)
    return Episode(total, longest, cut=True)


def _answer(
    ask: Callable[..., Any], values: int, number: int, step: int, *given: Any, **named: Any
) -> tuple[Any, ...]:
    """What the environment answers, so many values, or a fault that says where it failed."""
    try:
        answer = ask(*given, **named)
    except Exception as error:
        raise EnvironmentFault(
            f"{_where(number, step)}: env.{ask.__name__} raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(answer, tuple) or len(answer) != values:
        raise EnvironmentFault(
            f"{_where(number, step)}: env.{ask.__name__} returned a {type(answer).__name__}; expected "
            f"{values} values (Gymnasium's contract)"
        )
    return answer


def _where(number: int, step: int) -> str:
    return f"in step {step} of evaluation episode {number + 1}"
