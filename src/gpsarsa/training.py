"""A training run in a folder that survives whatever happens to it.

    run = train("MountainCar-v0", steps=5_000, seed=0, out="runs/mountain-car")
    run.summary["evaluation"]["mean"]

`train(..., resume=True)` takes up a run that was killed, at its last checkpoint, and ends with the agent
of an uninterrupted run, bit for bit: checkpoints are at the ends of episodes, and an episode's reset seed
follows from the run's seed and the episode's number. (An environment that draws from another source than
the one `reset` seeds is beyond that.) What the folder holds is said in `runs`.

Nothing is touched before environment and settings are known to be good, and a finished file is only ever
replaced by a finished file. Errors that can be expected are RunErrors that say what is kept.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import gymnasium as gym

from gpsarsa import _validation as check
from gpsarsa import checkpoint, runs
from gpsarsa._progress import say
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.control import evaluation, policies
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.callbacks import BaseCallback, CheckpointCallback, LogCallback, TensorBoardCallback
from gpsarsa.control.checkpoints import Checkpoints
from gpsarsa.control.environments import EnvironmentFault
from gpsarsa.control.spaces import SpaceError
from gpsarsa.runs import Log, Run, RunError
from gpsarsa.settings import OPTIONS, Settlement, described

__all__ = ["load_agent", "make", "train"]

Config = dict[str, Any]


def train(
    env_id: str,
    *,
    steps: int | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str],
    resume: bool = False,
    env_arguments: Mapping[str, Any] | None = None,
    gamma: float | None = None,
    checkpoint_every: int = 1000,
    evaluate_episodes: int = 20,
    progress_bar: bool = True,
    report: bool = True,
    agent_options: Mapping[str, Any] | None = None,
    tensorboard: bool = False,
) -> Run:
    """Train an agent, evaluate it, and return what the folder then says.

    Parameters
    ----------
    env_id : str
        As `gymnasium.make` takes it; "module:Id-v0" imports the module first.
    steps : int, optional
        By default 10 000; those of the run where one is resumed. More steps than the run had extend it.
    seed : int, optional
        By default 0, or that of the run.
    out : path
        The folder. One that holds a run is refused, unless `resume` is set.
    resume : bool
        Go on from the last checkpoint; without one, begin. Settings must be those of the run or left out.
    env_arguments : mapping, optional
        For `gymnasium.make`, in values that JSON can hold.
    gamma : float, optional
        The discount; by default the agent's.
    checkpoint_every : int
        Steps between checkpoints; each waits for the end of an episode.
    evaluate_episodes : int
        Greedy episodes after training, in an environment of their own; 0 for none.
    progress_bar : bool
        Whether to show progress on standard error.
    report : bool
        Whether to write report.html.
    agent_options : mapping, optional
        method, budget, memory, warmup, policy: see SarsaAgent.
    tensorboard : bool
        Whether to write TensorBoard's files too.
    """
    folder = check.path(out, "out")
    options = {} if agent_options is None else check.mapping(agent_options, "agent_options")
    resume, report = check.flag(resume, "resume"), check.flag(report, "report")
    progress_bar = check.flag(progress_bar, "progress_bar")
    tensorboard = check.flag(tensorboard, "tensorboard")
    check.at_least_one(checkpoint_every, "checkpoint_every")
    check.count(evaluate_episodes, "evaluate_episodes")
    for name in options:
        check.one_of(name, "agent_options key", OPTIONS)
    run = _Training(folder, env_id, options.get("policy"))
    with run.explaining():
        known = run.known() if resume else None
        if not resume:
            run.refuse_existing()
        config = Settlement(folder, known).config(env_id, steps, seed, env_arguments, gamma, options)
        with closing(make(config["environment"]["id"], config["environment"]["arguments"])) as env:
            fresh = run.fresh_agent(env, config)
            extra = [_tensorboard(folder)] if tensorboard else []
            with runs.locked(folder, "trains"):
                agent = run.agent(fresh, env, config, resume=resume)
                if run.is_finished(agent, config):
                    say(f"{folder} is finished: {config['steps']} steps; more --steps extend it")
                    return runs.read(folder)
                if resume and progress_bar:
                    run.say_where(agent)
                runs.write_json(folder / runs.CONFIG, config)
                seconds = run.learn(agent, config["steps"], checkpoint_every, extra, progress_bar)
                run.finish(agent, config, seconds, evaluate_episodes)
                if report:
                    _report(folder, agent)
    return runs.read(folder)


def make(env_id: str, arguments: Mapping[str, Any], **more: Any) -> Any:
    """The environment; RunError where there is none of that name, or it cannot be made."""
    try:
        return gym.make(env_id, disable_env_checker=True, **{**arguments, **more})
    except gym.error.UnregisteredEnv as error:
        raise RunError(f"there is no environment {env_id!r}{_suggestion(env_id, error)}") from error
    except Exception as error:
        text = str(error) if isinstance(error, gym.error.Error | ImportError) else f"{_kind(error)}: {error}"
        raise RunError(f"{env_id} cannot be made: {text}") from error


def _kind(error: Exception) -> str:
    return type(error).__name__


def _suggestion(env_id: str, error: Exception) -> str:
    """Names that are like the one that was not found; without any, what Gymnasium says."""
    wanted = env_id.rpartition(":")[2].lower()
    names = {name.lower(): name for name in gym.registry}
    close = [names[name] for name in get_close_matches(wanted, names, n=3, cutoff=0.6)]
    if close:
        return f"; did you mean {', '.join(close)}?"
    return f" ({error}); module:Id-v0 imports the module that registers it first"


def load_agent(folder: str | os.PathLike[str]) -> SarsaAgent:
    """The agent of a run, to act; where its newest checkpoint is damaged, the one before, with a message."""
    agent = Checkpoints(folder).load(SarsaAgent.load)
    if agent is None:
        raise RunError(f"{folder} holds no agent yet: the run has not come to its first checkpoint")
    return agent


def _tensorboard(folder: Path) -> TensorBoardCallback:
    try:
        return TensorBoardCallback(folder / "tensorboard")
    except ImportError as error:
        raise RunError(str(error)) from error


def _report(folder: Path, agent: SarsaAgent) -> None:
    from gpsarsa.report import write_report

    try:
        write_report([folder], agent=agent)
    except RunError as error:
        say(str(error))


# -- the folder -----------------------------------------------------------------------------------


class _Interruption(BaseCallback):
    """Ctrl-C that nothing swallows: where it falls into a callback of C (compiled code being loaded), the
    exception is lost, and the next step raises it again."""

    def __enter__(self) -> Self:
        self._asked = False
        self._before: Any = None
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, *_: Any) -> None:
        self._asked = True
        raise KeyboardInterrupt

    def on_step(self) -> bool:
        if self._asked:
            raise KeyboardInterrupt
        return True

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


class _Saving(CheckpointCallback):
    """Checkpoints whose episodes are on the disk before they are."""

    def __init__(self, save_freq: int, run: _Training, log: Log) -> None:
        super().__init__(save_freq, run.folder)
        self.checkpoints, self.run, self.log = run.checkpoints, run, log

    def save(self) -> None:
        if self.run.saved_at != self.agent.num_timesteps:
            self.log.sync()
            super().save()
            self.run.saved_at = self.agent.num_timesteps


class _Training:
    """A run in its folder."""

    def __init__(self, folder: Path, env_id: str, policy: Any) -> None:
        self.folder, self.env_id, self.policy = folder, env_id, policy
        self.checkpoints = Checkpoints(folder)
        self.saved_at: int | None = None  # the step of the newest checkpoint

    # -- what is there

    def known(self) -> Config | None:
        """config.json, where there is one."""
        if (self.folder / runs.CONFIG).exists():
            return runs.read_config(self.folder)
        for path in (self.checkpoints.newest, self.checkpoints.before):
            if path.exists():
                raise RunError(
                    f"{path} is there, but {runs.CONFIG} is not; restore it, or choose another --out"
                )
        return None

    def summary(self) -> Config:
        try:
            return runs.read_summary(self.folder) or {}
        except RunError:
            return {}

    def refuse_existing(self) -> None:
        checkpoints = (self.checkpoints.newest.name, self.checkpoints.before.name)
        for name in (runs.CONFIG, *checkpoints, runs.PROGRESS, runs.SUMMARY):
            if (self.folder / name).exists():
                raise RunError(
                    f"{self.folder} holds a run already ({name}): --resume to continue it, or another --out"
                )

    # -- the agent

    def fresh_agent(self, env: Any, config: Config) -> SarsaAgent:
        """An agent that knows nothing; completes the settings by its defaults."""
        agent_settings = config["agent"]
        policy = self.policy
        if policy is None and isinstance(agent_settings["policy"], str):
            raise RunError(
                f"{self.folder} was begun with a policy of your own: pass it again, as agent_options"
            )
        try:
            if policy is None and agent_settings["policy"] is not None:
                policy = policies.restored(agent_settings["policy"])
            given = {"gamma": config["gamma"], **agent_settings, "policy": policy}
            given = {name: value for name, value in given.items() if value is not None}
            agent = SarsaAgent(env, seed=config["seed"], **given)
        except (SpaceError, EnvironmentFault):
            raise
        except (TypeError, ValueError, KeyError) as error:
            raise RunError(f"the agent's settings are not good: {error}") from error
        module, colon, _ = config["environment"]["id"].rpartition(":")
        config["environment"]["id"] = f"{module}{colon}{env.spec.id}"
        config["gamma"] = agent.settings["gamma"]
        agent_settings |= {name: agent.settings[name] for name in OPTIONS if name in agent.settings}
        agent_settings["policy"] = described(agent.policy)
        return agent

    def agent(self, fresh: SarsaAgent, env: Any, config: Config, *, resume: bool) -> SarsaAgent:
        """The agent to go on with."""
        if not resume:
            self.refuse_existing()
            return fresh
        self._sweep()
        agent = self.checkpoints.load(self._read)
        if agent is None:
            return fresh
        agent = self._at_an_end(agent, config["steps"])
        self._require_same(agent, env, config)
        self._compare_versions(config)
        self.saved_at = agent.num_timesteps
        return agent

    def _read(self, path: Path) -> SarsaAgent:
        return SarsaAgent.load(path, policy=self.policy)

    def _sweep(self) -> None:
        self.checkpoints.sweep()
        checkpoint.sweep(self.folder, (runs.CONFIG, runs.PROGRESS, runs.SUMMARY, "report.html"))

    def _at_an_end(self, agent: SarsaAgent, steps: int) -> SarsaAgent:
        """Where a run is made longer: the agent of its last checkpoint at an episode's end.

        The last one of all cut an episode short, which the longer run does not.
        """
        planned, reached = (self.known() or {}).get("steps"), self.summary().get("steps")
        if agent.num_timesteps >= steps or agent.num_timesteps not in (planned, reached):
            return agent
        self._write_summary(agent, finished=False)  # marks the place, should this process be killed
        if self._ended_an_episode(agent):
            return agent
        before = self.checkpoints.load_before(self._read)
        return before if before is not None and self._ended_an_episode(before) else agent

    def _ended_an_episode(self, agent: SarsaAgent) -> bool:
        """Whether the agent's last step was its last episode's last, by progress.csv."""
        try:
            steps = runs.read_progress(self.folder)["step"]
        except RunError:
            return False
        return 0 < agent.episodes <= len(steps) and int(steps[agent.episodes - 1]) == agent.num_timesteps

    def _require_same(self, agent: SarsaAgent, env: Any, config: Config) -> None:
        path = self.checkpoints.newest
        try:
            agent.set_env(env)
        except ValueError as error:
            raise RunError(f"{path} is from another environment: {error}") from error
        said = {"seed": config["seed"], "gamma": config["gamma"], **config["agent"]}
        for name, value in agent.settings.items():
            if name in said and said[name] != value:
                raise RunError(
                    f"{path} is from another run: its {name} is {value}, {runs.CONFIG} says {said[name]}"
                )

    def _compare_versions(self, config: Config) -> None:
        now, before = runs.versions(), config["versions"]
        other = [
            f"{name} {before[name]} (now {now[name]})"
            for name in now
            if name in before and before[name] != now[name]
        ]
        if other:
            say(f"the run was begun with {', '.join(other)}; the last bits may come out otherwise")

    # -- learning

    def say_where(self, agent: SarsaAgent) -> None:
        if self.saved_at is None:
            say(f"{self.folder} holds no checkpoint to resume from; beginning")
        else:
            say(f"going on in {self.folder} at step {agent.num_timesteps}")

    def is_finished(self, agent: SarsaAgent, config: Config) -> bool:
        summary = self.summary()
        return (
            summary.get("finished") is True
            and summary["steps"] == config["steps"] == agent.num_timesteps == self.saved_at
        )

    def learn(
        self, agent: SarsaAgent, steps: int, checkpoint_every: int, extra: list[Any], progress_bar: bool
    ) -> float:
        """Learn up to the last step, save, and return the seconds it took altogether."""
        with Log(self.folder / runs.PROGRESS, keep=agent.episodes) as log:
            spent = runs.read_progress(self.folder)["seconds"]
            seconds, began = float(spent[-1]) if len(spent) else 0.0, time.monotonic()
            saving = _Saving(checkpoint_every, self, log)
            if agent.num_timesteps < steps:
                with _Interruption() as interruption:
                    callbacks = [interruption, LogCallback(log, seconds), saving, *extra]
                    agent.learn(steps - agent.num_timesteps, callback=callbacks, progress_bar=progress_bar)
                saving.save()
            return seconds + time.monotonic() - began

    def finish(self, agent: SarsaAgent, config: Config, seconds: float, episodes: int) -> None:
        """Evaluate the agent and write the summary."""
        found = self._evaluate(agent, config, episodes) if episodes > 0 else None
        self._write_summary(agent, finished=True, seconds=seconds, found=found)

    def _evaluate(self, agent: SarsaAgent, config: Config, count: int) -> Config:
        environment = config["environment"]
        with closing(make(environment["id"], environment["arguments"])) as env:
            played = list(evaluation.episodes(agent, env, count, seed=config["seed"]))
            threshold = env.spec.reward_threshold
        returns = [episode.total for episode in played]
        return {
            "episodes": count,
            "mean": sum(returns) / count,
            "standard_error": evaluation.standard_error(returns),
            "threshold": threshold,
            "returns": returns,
            "cut": sum(episode.cut for episode in played),
        }

    def _write_summary(
        self, agent: SarsaAgent, *, finished: bool, seconds: float = 0.0, found: Config | None = None
    ) -> None:
        runs.write_json(
            self.folder / runs.SUMMARY,
            {
                "steps": agent.num_timesteps,
                "episodes": agent.episodes,
                "finished": finished,
                "seconds": seconds,
                "evaluation": found,
            },
        )

    # -- when it goes wrong

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Whatever goes wrong is said together with what is kept and how to go on."""
        try:
            yield
        except EnvironmentFault as error:
            raise RunError(f"{self.env_id}: {error}; {self._kept()}") from error
        except CheckpointError as error:
            raise RunError(f"{error}; nothing was changed") from error
        except SpaceError as error:
            raise RunError(f"{self.env_id}: {error}") from error
        except ArithmeticError as error:
            if type(error) is not ArithmeticError:  # numerical trouble is a plain one
                raise
            raise RunError(f"{self.env_id}: {_kind(error)}: {error}; {self._kept()}") from error
        except OSError as error:
            where = error.filename or self.folder
            raise RunError(f"{where}: {error.strerror or error}; {self._kept()}") from error
        except KeyboardInterrupt:
            say(f"interrupted; {self._kept()}")
            raise

    def _kept(self) -> str:
        path = self.checkpoints.latest
        if path is None or self.saved_at is None:
            return "nothing was saved yet" if path is None else "nothing was changed"
        command = shlex.join(["gpsarsa", "train", self.env_id, "--out", str(self.folder), "--resume"])
        return f"{path} keeps step {self.saved_at}, go on with: {command}"
