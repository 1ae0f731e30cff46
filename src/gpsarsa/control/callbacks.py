"""What happens around learning: objects that an agent calls at every step and after every episode.

    agent.learn(10_000, callback=[EvalCallback(eval_env, eval_freq=1000), CheckpointCallback(1000, "run")])

The names and habits are those of Stable-Baselines3: `on_step` returns False to stop. A plain callable
`callback(agent)` is called at every step and stops likewise.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gpsarsa import _validation as check
from gpsarsa.control import evaluation
from gpsarsa.control.checkpoints import SUFFIX, Checkpoints

if TYPE_CHECKING:
    from gpsarsa.control.agent import SarsaAgent
    from gpsarsa.runs import Log

__all__ = ["BaseCallback", "CallbackList", "as_callback"]
__all__ += ["CheckpointCallback", "EvalCallback", "LogCallback", "TensorBoardCallback"]
__all__ += ["StopTrainingOnMaxEpisodes", "StopTrainingOnRewardThreshold"]

LATE = 10  # a checkpoint waits for an episode's end, unless it is late by this factor


class BaseCallback:
    """Derive from this and override what is of interest. `self.agent` is set when learning begins."""

    agent: SarsaAgent
    parent: BaseCallback | None = None  # the callback that calls this one, where one does

    def on_training_start(self) -> None:
        """Learning begins."""

    def on_step(self) -> bool:
        """A step was taken. False stops learning."""
        return True

    def on_episode_end(self, episode: dict[str, Any]) -> bool:
        """An episode ended and all that was due after it is done; `episode` is its line of the log.

        False stops learning.
        """
        return True

    def on_training_end(self) -> None:
        """Learning has ended, also by an error or an interruption."""


class CallbackList(BaseCallback):
    """Several callbacks, called in order; learning stops if any of them says so."""

    def __init__(self, callbacks: Iterable[BaseCallback]) -> None:
        self.callbacks = check.listed(callbacks, "callbacks", "a list of callbacks")
        for i, callback in enumerate(self.callbacks):
            if not isinstance(callback, BaseCallback):
                raise TypeError(f"callbacks[{i}] = {callback!r}; expected a BaseCallback")

    def on_training_start(self) -> None:
        for callback in self.callbacks:
            callback.agent = self.agent
            callback.on_training_start()

    def on_step(self) -> bool:
        for callback in self.callbacks:
            callback.agent, callback.parent = self.agent, self.parent
        going = [callback.on_step() for callback in self.callbacks]
        return all(going)

    def on_episode_end(self, episode: dict[str, Any]) -> bool:
        going = [callback.on_episode_end(episode) for callback in self.callbacks]
        return all(going)

    def on_training_end(self) -> None:
        for callback in self.callbacks:
            callback.on_training_end()


class _Function(BaseCallback):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def on_step(self) -> bool:
        return self.function(self.agent) is not False


def as_callback(callback: Any) -> BaseCallback | None:
    """What the agent calls: a callback, a list of them, a callable, or None."""
    if callback is None or isinstance(callback, BaseCallback):
        return callback
    if isinstance(callback, list | tuple):
        return CallbackList(part for one in callback if (part := as_callback(one)) is not None)
    if isinstance(callback, type) or not callable(callback):
        raise TypeError(f"callback = {callback!r}; expected a BaseCallback, a list of them, or a callable")
    return _Function(callback)


# -- evaluation -----------------------------------------------------------------------------------


class EvalCallback(BaseCallback):
    """Evaluates the policy now and then. What is learnt does not depend on it.

    Parameters
    ----------
    eval_env : gymnasium.Env
        An environment of its own.
    n_eval_episodes : int
        Always the same ones, see `evaluation`.
    eval_freq : int
        Steps between evaluations; each waits for the end of an episode.
    callback_on_new_best : callback, optional
        Its `on_step` is called when the mean return is higher than ever, with `parent` set to this object;
        False stops learning.
    best_model_save_path : path, optional
        A folder, in which `best_model.safetensors` is kept.
    seed : int
        Of the episodes.
    """

    def __init__(
        self,
        eval_env: Any,
        *,
        n_eval_episodes: int = 5,
        eval_freq: int = 1000,
        callback_on_new_best: Any = None,
        best_model_save_path: str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.eval_env, self.seed = eval_env, check.count(seed, "seed")
        self.n_eval_episodes = check.at_least_one(n_eval_episodes, "n_eval_episodes")
        self.eval_freq = check.at_least_one(eval_freq, "eval_freq")
        self.callback = as_callback(callback_on_new_best)
        path = best_model_save_path
        self.folder = None if path is None else check.path(path, "best_model_save_path")
        self.best_mean_reward = self.last_mean_reward = -math.inf
        self.evaluations: list[tuple[int, float, float]] = []  # step, mean and standard deviation
        self._last = 0

    def on_training_start(self) -> None:
        if _innermost(self.eval_env) is _innermost(self.agent.env):
            raise ValueError("eval_env is the environment that is trained in; make another one for it")
        self._last = self.agent.num_timesteps

    def on_episode_end(self, episode: dict[str, Any]) -> bool:
        if self.agent.num_timesteps - self._last < self.eval_freq:
            return True
        self._last = self.agent.num_timesteps
        mean, std = evaluation.evaluate_policy(
            self.agent, self.eval_env, self.n_eval_episodes, seed=self.seed
        )
        self.evaluations.append((self.agent.num_timesteps, mean, std))
        self.last_mean_reward = mean
        return self._new_best(mean) if mean > self.best_mean_reward else True

    def _new_best(self, mean: float) -> bool:
        self.best_mean_reward = mean
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.agent.save(self.folder / f"best_model{SUFFIX}")
        if self.callback is None:
            return True
        self.callback.agent, self.callback.parent = self.agent, self
        return self.callback.on_step()


def _innermost(env: Any) -> Any:
    return getattr(env, "unwrapped", env)


class StopTrainingOnRewardThreshold(BaseCallback):
    """As `callback_on_new_best` of an EvalCallback: stop once the mean return reaches the threshold."""

    def __init__(self, reward_threshold: float) -> None:
        self.reward_threshold = check.number(reward_threshold, "reward_threshold")

    def on_training_start(self) -> None:
        raise ValueError(
            "StopTrainingOnRewardThreshold evaluates nothing itself: pass it as callback_on_new_best of an "
            "EvalCallback"
        )

    def on_step(self) -> bool:
        assert isinstance(self.parent, EvalCallback)
        return self.parent.best_mean_reward < self.reward_threshold


class StopTrainingOnMaxEpisodes(BaseCallback):
    """Stop after a number of episodes, counted from the start of this call of `learn`."""

    def __init__(self, max_episodes: int) -> None:
        self.max_episodes = check.at_least_one(max_episodes, "max_episodes")
        self._first = 0

    def on_training_start(self) -> None:
        self._first = self.agent.episodes

    def on_episode_end(self, episode: dict[str, Any]) -> bool:
        return self.agent.episodes - self._first < self.max_episodes


# -- files ----------------------------------------------------------------------------------------


class CheckpointCallback(BaseCallback):
    """Saves the agent now and then, in two files that take turns: see `checkpoints`.

    An agent that is loaded goes on with a new episode, so a checkpoint waits for the end of an episode, and
    learning goes on from it bit for bit. Where no end comes for ten times `save_freq` steps, the agent is
    saved all the same; from such a checkpoint the episode under way is not taken up again.

    Parameters
    ----------
    save_freq : int
        Steps between checkpoints.
    save_path : path
        The folder.
    name_prefix : str
        How the files' names begin.
    """

    def __init__(self, save_freq: int, save_path: str | os.PathLike[str], name_prefix: str = "agent") -> None:
        self.save_freq = check.at_least_one(save_freq, "save_freq")
        check.path(name_prefix, "name_prefix")
        self.checkpoints = Checkpoints(check.path(save_path, "save_path"), name_prefix)
        self._last = 0

    def on_training_start(self) -> None:
        self._last = self.agent.num_timesteps

    def on_step(self) -> bool:
        if self.agent.num_timesteps - self._last >= LATE * self.save_freq:
            self.save()
        return True

    def on_episode_end(self, episode: dict[str, Any]) -> bool:
        if self.agent.num_timesteps - self._last >= self.save_freq:
            self.save()
        return True

    def save(self) -> None:
        """Save the agent as it is now."""
        self.checkpoints.save(self.agent)
        self._last = self.agent.num_timesteps


class LogCallback(BaseCallback):
    """Writes a line for every episode.

    Parameters
    ----------
    log : gpsarsa.runs.Log
        Where it goes.
    seconds : float
        Spent before, by the process that was interrupted.
    """

    def __init__(self, log: Log, seconds: float = 0.0) -> None:
        self.log, self.seconds = log, check.number(seconds, "seconds")

    def on_episode_end(self, episode: dict[str, Any]) -> bool:
        self.log.append({**episode, "seconds": self.seconds + episode["seconds"]})
        return True


class TensorBoardCallback(BaseCallback):
    """Writes curves that TensorBoard shows: `tensorboard --logdir FOLDER`."""

    NAMES = (
        ("rollout/return", "return"), ("rollout/length", "length"), ("rollout/predicted", "predicted"),
        ("rollout/discounted", "discounted"), ("model/pseudo_inputs", "pseudo_inputs"),
        ("model/log_evidence", "log_evidence"), ("model/noise_variance", "noise_variance"),
    )  # fmt: skip

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            self._module: Any = importlib.import_module("tensorboardX")
        except ImportError as error:
            raise ImportError(
                f"TensorBoard's files need tensorboardX ({error}): pip install 'gpsarsa[tensorboard]'"
            ) from error
        self.folder = check.path(folder, "folder")
        self._writer: Any = None

    def on_training_start(self) -> None:
        """Begin a file; what was written of steps after this one, by a process now dead, is hidden."""
        self._writer = self._module.SummaryWriter(str(self.folder), purge_step=self.agent.num_timesteps + 1)

    def on_episode_end(self, episode: dict[str, Any]) -> bool:
        for label, name in self.NAMES:
            if math.isfinite(episode[name]):
                self._writer.add_scalar(label, episode[name], episode["step"])
        return True

    def on_training_end(self) -> None:
        self._writer.close()
