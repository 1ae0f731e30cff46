"""The commands: `gpsarsa train`, `play`, `report`, `evaluate` and `compare`.

Results go to standard output, progress and messages to standard error. What can be expected to go wrong
is one line that begins with "gpsarsa: ", and exit code 2. Each command imports what it needs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from gpsarsa._words import ends, plus_minus

__all__ = ["main"]

FAILED, INTERRUPTED = 2, 130


class _UsageError(Exception):
    """A command line that makes no sense."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ± shows a question mark
    try:
        if any("\0" in word for word in arguments or ()):
            raise _UsageError("an argument holds a null character; no file or name can")
        options = _parser().parse_args(arguments)
        with _plain_warnings():
            options.command(options)
            sys.stdout.flush()
    except _UsageError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # nobody reads on: `gpsarsa play … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        if not isinstance(error, _expected()):
            raise
        return _fail(str(error))
    return 0


def _expected() -> tuple[type[Exception], ...]:
    from gpsarsa.checkpoint import CheckpointError
    from gpsarsa.control.environments import EnvironmentFault
    from gpsarsa.control.spaces import SpaceError
    from gpsarsa.offline import DatasetError, EngineError
    from gpsarsa.runs import RunError

    return RunError, CheckpointError, EnvironmentFault, SpaceError, DatasetError, EngineError


def _fail(message: str) -> int:
    print(f"gpsarsa: {' '.join(message.split())}", file=sys.stderr)
    return FAILED


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as one line each, without the source they come from."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = re.sub(r"\x1b\[\d+m(WARN: )?", "", str(message))
        print(f"gpsarsa: warning: {' '.join(text.split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


# -- arguments ------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gpsarsa",
        description="Gaussian-process temporal-difference learning: train an agent for a Gymnasium "
        "environment, watch it, read what it learnt, and evaluate policies from logs.",
        epilog="example:\n  gpsarsa train MountainCar-v0 --steps 5000\n  gpsarsa play runs/MountainCar-v0-0",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_train(commands)
    _add_play(commands)
    _add_report(commands)
    _add_evaluate(commands)
    _add_compare(commands)
    return parser


class _Version(argparse.Action):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "nargs": 0, "help": "show the version and exit"})

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from gpsarsa._version import __version__

        print(f"gpsarsa {__version__}")
        parser.exit()


def _add(commands: Any, name: str, run: Callable[[Any], None], what: str, example: str) -> Any:
    parser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}.",
        epilog=f"example:\n{example}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(command=run)
    return parser


def _add_train(commands: Any) -> None:
    parser = _add(
        commands, "train", _train, "train an agent and keep the run in a folder",
        "  gpsarsa train MountainCar-v0 --steps 5000 --seed 1 --out runs/car\n"
        "  gpsarsa train MountainCar-v0 --out runs/car --resume\n"
        "  gpsarsa train FrozenLake-v1 --env-argument is_slippery=false --env-argument map_name=8x8",
    )  # fmt: skip
    add = parser.add_argument
    add("env", metavar="ENV", help="a Gymnasium id; module:Id-v0 imports the module that registers it first")
    add("--steps", type=_positive, metavar="N", help="environment steps (default 10000)")
    add("--seed", type=_count, metavar="S", help="makes the run repeatable (default 0)")
    add("--out", metavar="DIR", help="the run's folder (default runs/ENV-SEED)")
    add("--resume", action="store_true",
        help="go on with the run in DIR; seed, steps and the agent's settings are as they were")  # fmt: skip
    add("--gamma", type=_fraction, metavar="G", help="discount (default 0.97)")
    add("--env-argument", action="append", type=_argument, metavar="NAME=VALUE", dest="env_arguments",
        help="passed to the environment; the value in JSON or plain text; may be repeated")  # fmt: skip
    add("--checkpoint-every", type=_positive, default=1000, metavar="N",
        help="steps between checkpoints, each at the next end of an episode, or after ten times as many "
        "steps without one (default 1000)")  # fmt: skip
    add("--evaluate-episodes", type=_count, default=20, metavar="N",
        help="episodes without exploration after training, to measure the result (default 20)")  # fmt: skip
    add("--budget", type=_positive, metavar="M", help="number of pseudo-inputs (default 300)")
    add("--method", choices=("improving", "sarsa"), help="sarsa: plain on-policy SARSA (default improving)")
    add("--no-report", action="store_true", help="do not write report.html")
    add("--quiet", action="store_true", help="show no progress")
    add("--tensorboard", action="store_true", help="write TensorBoard's files to DIR/tensorboard too")


def _add_play(commands: Any) -> None:
    parser = _add(
        commands, "play", _play, "let a trained agent act, without exploration",
        "  gpsarsa play runs/MountainCar-v0-0 --episodes 20\n"
        "  gpsarsa play runs/MountainCar-v0-0 --video car.gif",
    )  # fmt: skip
    add = parser.add_argument
    add("folder", metavar="DIR", help="the folder of a run")
    add("--episodes", type=_positive, metavar="N", help="how many (default 5; 1 with --video or --render)")
    add("--seed", type=_count, default=0, metavar="S", help="of the episodes (default 0)")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--video", metavar="FILE", help="record them to a .gif or .mp4 file")
    shown.add_argument("--render", action="store_true", help="show them in a window")


def _add_report(commands: Any) -> None:
    parser = _add(
        commands, "report", _report,
        "write the report of a run, of several seeds of one experiment, or of an evaluation",
        "  gpsarsa report runs/MountainCar-v0-0\n"
        "  gpsarsa report runs/MountainCar-v0-* --out report.html",
    )  # fmt: skip
    parser.add_argument(
        "folders", nargs="+", metavar="DIR", help="folders of runs, of folders of runs, or of an evaluation"
    )
    parser.add_argument("--out", metavar="FILE", help="the page (default DIR/report.html)")


def _add_evaluate(commands: Any) -> None:
    parser = _add(
        commands, "evaluate", _evaluate, "evaluate a policy from logged transitions",
        "  gpsarsa evaluate logs/*.parquet --gamma 0.99 --out runs/logged\n"
        "  gpsarsa evaluate minari:D4RL/door/human-v2 --gamma 0.99\n"
        "  gpsarsa evaluate logs/ --gamma 0.97 --target-policy runs/MountainCar-v0-0 --out runs/target",
    )  # fmt: skip
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE",
        help="Parquet files or folders of them, one row per transition; or minari:ID")  # fmt: skip
    add("--gamma", type=_fraction, required=True, metavar="G", help="discount")
    add("--pseudo-inputs", type=_positive, default=256, metavar="M", help="how many (default 256)")
    add("--noise", choices=("auto", "iid", "correlated"), default="auto",
        help="auto: the projected fixed point, right where transitions are stochastic (default); iid: for "
        "deterministic ones; correlated: biased where episodes are truncated")  # fmt: skip
    add("--target-policy", metavar="RUN",
        help="a run's folder or an agent's file: evaluate its policy, not the logged one")  # fmt: skip
    add("--bootstrap", type=_count, default=0, metavar="B",
        help="replicates of a bootstrap over episodes, such as 200 (default: none)")  # fmt: skip
    add("--prior-mean", type=_number, default=0.0, metavar="X", help="of Q (default 0)")
    add("--seed", type=_count, default=0, metavar="S", help="of the sample that is learnt from (default 0)")
    add("--engine", choices=("local", "ray"), default="local", help="where it runs (default local)")
    add("--address", metavar="A", help="of a Ray cluster (default: this machine, or RAY_ADDRESS)")
    add("--workers", type=_positive, metavar="N", help="threads, or tasks of Ray, at a time (default: cores)")
    add("--out", metavar="DIR", help="keep the result there (default: only print it)")
    add("--resume", action="store_true", help="go on with the evaluation in DIR")
    add("--no-report", action="store_true", help="do not write report.html")
    add("--quiet", action="store_true", help="show no progress")


def _add_compare(commands: Any) -> None:
    parser = _add(
        commands,
        "compare",
        _compare,
        "compare evaluated policies",
        "  gpsarsa compare runs/logged runs/target",
    )
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folders that gpsarsa evaluate wrote")


def _count(text: str) -> int:
    return int(_parsed(text, int, lambda value: value >= 0, "a whole number, 0 or more"))


def _positive(text: str) -> int:
    return int(_parsed(text, int, lambda value: value >= 1, "a whole number, 1 or more"))


def _fraction(text: str) -> float:
    return _parsed(text, float, lambda value: 0 <= value <= 1, "a number in [0, 1]")


def _number(text: str) -> float:
    return _parsed(text, float, math.isfinite, "a finite number")


def _parsed(text: str, kind: Callable[[str], float], fits: Callable[[float], bool], expected: str) -> float:
    with contextlib.suppress(ValueError):
        if fits(value := kind(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")


def _argument(text: str) -> tuple[str, Any]:
    """NAME=VALUE, in JSON, in Python's spelling of its constants, or plain text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    constants = {"True": True, "False": False, "None": None}
    if value in constants:
        return name, constants[value]
    try:
        found = json.loads(value, parse_constant=str)
        json.dumps(found, allow_nan=False)  # 1e400 is infinite
        return name, found
    except (ValueError, RecursionError):
        return name, value


# -- train ----------------------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> None:
    from gpsarsa import training

    _find_local_modules()
    chosen = {"budget": options.budget, "method": options.method}
    run = training.train(
        options.env,
        steps=options.steps,
        seed=options.seed,
        out=options.out or _default_folder(options.env, options.seed or 0),
        resume=options.resume,
        env_arguments=dict(options.env_arguments) if options.env_arguments else None,
        gamma=options.gamma,
        checkpoint_every=options.checkpoint_every,
        evaluate_episodes=options.evaluate_episodes,
        progress_bar=not options.quiet,
        report=not options.no_report,
        agent_options={name: value for name, value in chosen.items() if value is not None},
        tensorboard=options.tensorboard,
    )
    assert run.summary is not None
    print(_result(run.config, run.summary))
    page = run.folder / "report.html"
    print(f"run: {run.folder}" + (f", report: {page}" if page.exists() else ""))


def _default_folder(env_id: str, seed: int) -> str:
    name = env_id.rpartition(":")[2].replace("/", "-")
    return os.path.join("runs", f"{name}-{seed}")


def _find_local_modules() -> None:
    """Modules with environments may lie where the command is called."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def _result(config: dict[str, Any], summary: dict[str, Any]) -> str:
    """MountainCar-v0: -104.2 ± 1.3 over 20 episodes (threshold -110: reached) after 5000 steps"""
    found, name = summary["evaluation"], config["environment"]["id"]
    after = f"after {summary['steps']} steps"
    if found is None:
        return f"{name}: not evaluated, {after}"
    text = f"{name}: {plus_minus(found['mean'], found['standard_error'])} over {_episodes(found['episodes'])}"
    threshold = found["threshold"]
    if threshold is not None:
        text += f" (threshold {threshold:g}: {'' if found['mean'] >= threshold else 'not '}reached)"
    if found.get("cut"):
        text += f", {found['cut']} of them cut off because they did not end,"
    return f"{text} {after}"


def _episodes(count: int) -> str:
    return "1 episode" if count == 1 else f"{count} episodes"


# -- play -----------------------------------------------------------------------------------------


def _play(options: argparse.Namespace) -> None:
    from gpsarsa import runs, training

    _find_local_modules()
    environment = runs.read(options.folder).config["environment"]
    agent = training.load_agent(options.folder)
    few = bool(options.video or options.render)
    count = options.episodes or (1 if few else 5)
    with contextlib.ExitStack() as stack:
        mode = "rgb_array" if options.video else "human" if options.render else None
        if options.video:
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame need not look for a screen
        env = stack.enter_context(contextlib.closing(_make(environment, mode)))
        _settle_in(agent, env, options.folder)
        watch = _camera(env, options.video, stack) if options.video else None
        returns = _show_episodes(agent, env, count, options.seed, watch)
    if len(returns) > 1:
        print(_mean_line(returns))
    if options.video:
        print(f"video: {options.video}")


def _settle_in(agent: Any, env: Any, folder: str) -> None:
    from gpsarsa.runs import RunError

    try:
        agent.set_env(env)
    except ValueError as error:
        raise RunError(f"the agent in {folder} is from another environment: {error}") from error


def _make(environment: dict[str, Any], mode: str | None) -> Any:
    from gpsarsa import training
    from gpsarsa.runs import RunError

    name, arguments = environment["id"], dict(environment["arguments"])
    arguments.pop("render_mode", None)
    if mode is None:
        return training.make(name, arguments)
    with contextlib.closing(training.make(name, arguments)) as env:
        modes = env.metadata.get("render_modes") or []
    if mode not in modes and not (mode == "human" and "rgb_array" in modes):
        has = f"only {', '.join(modes)}" if modes else "no pictures at all"
        option = "--video" if mode == "rgb_array" else "--render"
        raise RunError(f"{name} has {has}; {option} needs render mode {mode!r}")
    return training.make(name, arguments, render_mode=mode)


def _camera(env: Any, path: str, stack: contextlib.ExitStack) -> Callable[[], None]:
    from gpsarsa.runs import RunError
    from gpsarsa.video import FPS, Video

    video = stack.enter_context(Video(path, env.metadata.get("render_fps") or FPS))

    def add() -> None:
        try:
            picture = env.render()
        except Exception as error:
            raise RunError(f"the environment cannot be rendered: {error}") from error
        video.add(picture)

    return add


def _show_episodes(agent: Any, env: Any, count: int, seed: int, watch: Any) -> list[float]:
    from gpsarsa.control import evaluation

    returns = []
    for number, episode in enumerate(evaluation.episodes(agent, env, count, seed=seed, watch=watch), start=1):
        cut = ", cut off because it did not end" if episode.cut else ""
        print(f"episode {number}: return {episode.total:.6g}, {episode.length} steps{cut}", flush=True)
        returns.append(episode.total)
    return returns


def _mean_line(returns: list[float]) -> str:
    from gpsarsa.control.evaluation import standard_error

    mean = sum(returns) / len(returns)
    return f"mean: {plus_minus(mean, standard_error(returns))} over {_episodes(len(returns))}"


# -- report ---------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> None:
    from gpsarsa import evaluating, runs
    from gpsarsa.report import write_report

    if any(evaluating.is_evaluation(folder) for folder in options.folders):
        if len(options.folders) > 1:
            raise _UsageError("an evaluation has a report of its own; give one folder")
        print(evaluating.write_report(options.folders[0], options.out))
        return
    found = runs.read_all(options.folders)
    agent = _agent_for_pictures(str(found[0].folder)) if len(found) == 1 else None
    print(write_report(options.folders, path=options.out, agent=agent))


def _agent_for_pictures(folder: str) -> Any:
    """The agent, or None with a message: a report does without."""
    from gpsarsa import training
    from gpsarsa._progress import say
    from gpsarsa.checkpoint import CheckpointError
    from gpsarsa.runs import RunError

    try:
        return training.load_agent(folder)
    except (CheckpointError, RunError, OSError) as error:
        say(f"{error}; the report goes without pictures of the agent")
        return None


# -- evaluate -------------------------------------------------------------------------------------


def _evaluate(options: argparse.Namespace) -> None:
    from gpsarsa.evaluating import evaluate_into
    from gpsarsa.offline.evaluation import FEWEST

    if options.resume and options.out is None:
        raise _UsageError("--resume needs --out, the folder of the evaluation to go on with")
    if options.address is not None and options.engine != "ray":
        raise _UsageError("--address is for --engine ray")
    if options.noise == "correlated" and options.target_policy is not None:
        raise _UsageError("--noise correlated needs the logged next actions; leave out --target-policy")
    if 0 < options.bootstrap < FEWEST:
        raise _UsageError(f"--bootstrap {options.bootstrap} is too few; expected {FEWEST} or more")
    files = options.files
    if len(files) > 1 and any(file.startswith("minari:") for file in files):
        raise _UsageError("a Minari dataset is evaluated alone")
    result = evaluate_into(
        options.out,
        files[0] if len(files) == 1 else files,
        gamma=options.gamma,
        pseudo_inputs=options.pseudo_inputs,
        noise=options.noise,
        prior_mean=options.prior_mean,
        seed=options.seed,
        target_policy=options.target_policy,
        bootstrap=options.bootstrap,
        engine=options.engine,
        address=options.address,
        workers=options.workers,
        resume=options.resume,
        report=not options.no_report,
        progress_bar=not options.quiet,
    )
    print("\n".join(_evaluation_lines(result.summary)))
    if result.folder is not None:
        page = result.folder / "report.html"
        print(f"evaluation: {result.folder}" + (f", report: {page}" if page.exists() else ""))


def _evaluation_lines(found: dict[str, Any]) -> Iterator[str]:
    percent = f"{100 * found['level']:g} %"
    states = found["initial_states"]
    of = (
        f"{states} initial states"
        if found["episodes_known"]
        else f"all {states} states, for episodes are unknown"
    )
    by = "episode" if found["episodes_known"] else "row"
    value = plus_minus(found["mean"], found["standard_error"])
    yield f"value: {value}, mean of {of}"
    yield f"{percent} interval: {ends(found['interval'])} (clustered by {by})"
    yield f"the model's own: {ends(found['posterior_interval'])}"
    if found["bootstrap"]:
        yield f"bootstrap: {ends(found['bootstrap_interval'])} ({found['bootstrap']} replicates)"
    counts = f"{found['transitions']} transitions"
    counts += f" of {_episodes(found['clusters'])}" if found["episodes_known"] else ""
    left = found["left_out"]
    yield (
        counts
        + f"; {left} row{'' if left == 1 else 's'} left out"
        + (" (truncated, without a next action)" if left else "")
    )


# -- compare --------------------------------------------------------------------------------------


def _compare(options: argparse.Namespace) -> None:
    from gpsarsa import evaluating, offline
    from gpsarsa.runs import RunError

    names = list(dict.fromkeys(os.path.normpath(folder) for folder in options.folders))
    if len(names) < 2:
        raise _UsageError("one evaluation has nothing to be compared with; give two folders or more")
    found = {name: evaluating.read(name) for name in names}
    discounts = {name: result.config["settings"]["gamma"] for name, result in found.items()}
    if len(set(discounts.values())) > 1:
        shown = ", ".join(f"{name} {gamma:g}" for name, gamma in discounts.items())
        raise RunError(f"values under different discounts do not compare: {shown}")
    better = offline.compare({name: result.model for name, result in found.items()})
    width = max(map(len, names))
    for name in better:
        summary = found[name].summary
        value = plus_minus(summary["mean"], summary["standard_error"])
        level = f"{100 * summary['level']:g} %"
        print(f"{name:<{width}}  {value}, {level} interval {ends(summary['interval'])}")
    for one, others in better.items():
        for other, probability in others.items():
            if list(better).index(one) < list(better).index(other):
                print(f"{one} is better than {other} with probability {probability:.3f}")
