"""What happens around learning: objects that an agent calls at every step and after every episode.

    agent.learn(10_000, callback=[EvalCallback(eval_env, eval_freq=1000), CheckpointCallback(1000, "run")])

The names and habits are those of Stable-Baselines3: `on_step` returns False to stop. A plain callable
`callback(agent)` is called at every step and stops likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpsarsa.control.agent import SarsaAgent

__all__ = ["BaseCallback", "CallbackList", "as_callback"]


class BaseCallback:
    """Derive from this and override what is of interest. `self.agent` is set when learning begins."""

    agent: SarsaAgent

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
        """Learning has ended."""


class CallbackList(BaseCallback):
    """Several callbacks, called in order; learning stops if any of them says so."""

    def __init__(self, callbacks: Iterable[BaseCallback]) -> None:
        self.callbacks = list(callbacks)

    def on_training_start(self) -> None:
        for callback in self.callbacks:
            callback.agent = self.agent
            callback.on_training_start()

    def on_step(self) -> bool:
        return all([callback.on_step() for callback in self.callbacks])

    def on_episode_end(self, episode: dict[str, Any]) -> bool:
        return all([callback.on_episode_end(episode) for callback in self.callbacks])

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
