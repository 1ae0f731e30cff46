"""An evaluation of logged episodes in a folder, which survives whatever happens to it.

    result = evaluate_into("runs/logs", "logs/*.parquet", gamma=0.99)
    result.model.value, result.model.interval(0.9)

    model.safetensors            the evaluation: gpsarsa.offline.Evaluation.load reads it
    config.json                  the table, discount, settings, versions
    summary.json                 the value, its intervals, what they are made of
    report.html                  the pictures
    partial/                     sums of finished partitions, while it goes on

`resume=True` takes up an evaluation that was interrupted, and reads only what was not finished.
`write_report` makes the pictures anew, from the table.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpsarsa import _validation as check
from gpsarsa import checkpoint, runs
from gpsarsa._progress import say
from gpsarsa._validation import Array
from gpsarsa.offline.datasets import Dataset, DatasetError, open_dataset
from gpsarsa.offline.engines import EngineError
from gpsarsa.offline.evaluation import Evaluation, evaluate
from gpsarsa.runs import RunError

__all__ = ["LEVEL", "Result", "evaluate_into", "is_evaluation", "load_policy", "read", "write_report"]

MODEL, REPORT, PARTIAL = "model.safetensors", "report.html", "partial"
LEVEL = 0.9  # of the intervals in summary and report
DRAWN, VISITED = 60, 2_000  # initial states and observations in the pictures

PathLike = str | os.PathLike[str]
Config = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What an evaluation's folder says."""

    folder: Path | None
    config: Config
    summary: Config
    model: Evaluation


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(file, str) for file in value)


def _are_ends(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(runs.is_number_or_none, value))


_CONFIG: tuple[runs.Shape, ...] = (
    ("table", _is_table, "a list of files"),
    ("settings", lambda value: isinstance(value, dict), "an object"),
    ("settings.gamma", lambda value: runs.is_number(value) and 0 <= value <= 1, "a number in [0, 1]"),
    ("settings.seed", runs.is_count, "a whole number"),
    ("settings.target_policy", lambda value: value is None or isinstance(value, str), "a path or null"),
    ("versions", lambda value: isinstance(value, dict), "an object"),
)
_SUMMARY: tuple[runs.Shape, ...] = (
    *((name, runs.is_number, "a number") for name in ("mean", "noise_variance", "seconds")),
    *((name, runs.is_number_or_none, "a number or null") for name in ("standard_error", "posterior_std")),
    *(
        (name, runs.is_count, "a whole number")
        for name in (
            "initial_states", "transitions", "left_out", "clusters", "bootstrap", "rows", "pseudo_inputs",
        )
    ),
    *((name, lambda value: isinstance(value, str), "a string") for name in ("method", "kernel")),
    ("level", lambda value: runs.is_number(value) and 0 < value < 1, "a number between 0 and 1"),
    *((name, _are_ends, "two numbers") for name in ("interval", "posterior_interval")),
    ("bootstrap_interval", lambda value: value is None or _are_ends(value), "two numbers or null"),
    ("episodes_known", lambda value: isinstance(value, bool), "true or false"),
)  # fmt: skip


# -- evaluating -----------------------------------------------------------------------------------


def evaluate_into(
    out: PathLike | None,
    source: Any,
    *,
    gamma: float,
    pseudo_inputs: int = 256,
    noise: str = "auto",
    prior_mean: float = 0.0,
    seed: int = 0,
    target_policy: PathLike | None = None,
    bootstrap: int = 0,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    resume: bool = False,
    report: bool = True,
    progress_bar: bool = False,
) -> Result:
    """Evaluate a policy from a table and keep the result in a folder; nothing is kept where `out` is None.

    Arguments that are not described here are those of `gpsarsa.offline.evaluate`.

    Parameters
    ----------
    out : path, optional
        The folder. One that holds anything is refused; with `resume`, an evaluation of the same table and
        settings is taken up, on whatever engine.
    target_policy : path, optional
        The folder of a training run, or an agent's file: its greedy policy is evaluated.
    report : bool
        Whether to write report.html.
    """
    resume, report = check.flag(resume, "resume"), check.flag(report, "report")
    if target_policy is not None:
        check.path(target_policy, "target_policy")
    settings: Config = {
        "gamma": gamma, "pseudo_inputs": pseudo_inputs, "noise": noise, "prior_mean": prior_mean,
        "seed": seed, "target_policy": None if target_policy is None else os.path.abspath(target_policy),
        "bootstrap": bootstrap,
    }  # fmt: skip
    with _explained(source):
        dataset = open_dataset(source)
    config = {
        "kind": runs.EVALUATION,
        "table": sorted({partition.file for partition in dataset.partitions}),
        "settings": settings,
        "versions": runs.versions(),
    }
    folder = None if out is None else _Folder(check.path(out, "out"))
    if folder is not None and (known := folder.refuse_or_take_up(config, resume)) is not None:
        return known
    policy = None if target_policy is None else load_policy(target_policy)
    how: Config = {"engine": engine, "address": address, "workers": workers, "progress_bar": progress_bar}
    arguments = {**settings, **how, "target_policy": policy}
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(folder.at_work(config))
        with _explained(source):
            model = evaluate(dataset, work=None if folder is None else folder.partial, **arguments)
        summary = _summary(model, dataset, time.perf_counter() - begun)
        result = Result(None if folder is None else folder.path, config, summary, model)
        if folder is not None:
            folder.keep(result)
            if report:
                try:
                    _write_report(result, dataset, policy, folder.path / REPORT)
                except RunError as error:
                    say(str(error))
    return result


@contextlib.contextmanager
def _explained(source: Any) -> Iterator[None]:
    """What a table or an engine can be blamed for, as it is said; numbers that do not work as RunErrors."""
    try:
        yield
    except (DatasetError, EngineError):
        raise
    except (ValueError, ArithmeticError) as error:
        shown = source if isinstance(source, str) or not isinstance(source, Sequence) else source[0]
        raise RunError(f"{shown} cannot be evaluated: {error}") from error


def load_policy(path: PathLike) -> Any:
    """The agent of a training run's folder, or of a file; one that has learnt nothing yet is refused."""
    from gpsarsa import training
    from gpsarsa.control.agent import SarsaAgent

    path = check.path(path, "path")
    if not path.exists():
        raise RunError(f"the target policy {path} does not exist; give a run's folder or an agent's file")
    agent = training.load_agent(path) if path.is_dir() else SarsaAgent.load(path)
    if agent.acting_model is None:
        raise RunError(
            f"the target policy {path} has learnt nothing in its {agent.num_timesteps} steps and acts at "
            f"random; train it for more than {agent.settings['warmup']}"
        )
    return agent


def _summary(model: Evaluation, dataset: Dataset, seconds: float) -> Config:
    replicates = len(model.replicates)
    return {
        **{name: _known(value) for name, value in asdict(model.summary).items()},
        "level": LEVEL,
        "interval": _ends(model, "clustered"),
        "posterior_interval": _ends(model, "posterior"),
        "bootstrap": replicates,
        "bootstrap_interval": _ends(model, "bootstrap") if replicates else None,
        "rows": dataset.rows,
        "episodes_known": dataset.has_episodes,
        "noise_variance": model.noise_variance,
        "pseudo_inputs": len(model.pseudo_inputs),
        "kernel": repr(model.kernel),
        "seconds": seconds,
    }


def _ends(model: Evaluation, kind: str) -> list[Any]:
    return [_known(end) for end in model.interval(LEVEL, kind)]


def _known(value: Any) -> Any:
    """JSON has no infinities."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- the folder -----------------------------------------------------------------------------------


class _Folder:
    """The folder of one evaluation."""

    def __init__(self, path: Path) -> None:
        self.path, self.partial = path, path / PARTIAL

    def refuse_or_take_up(self, config: Config, resume: bool) -> Result | None:
        """The result where it is there already; RunError where the folder is something else."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file, not a folder; choose another --out")
        there = [path.name for path in self.path.glob("*") if not path.name.startswith(".")]
        if not there:
            return None
        if not is_evaluation(self.path):
            raise RunError(f"{self.path} holds something else ({sorted(there)[0]}); choose another --out")
        if not resume:
            raise RunError(
                f"{self.path} holds an evaluation already: --resume to go on with it, or another --out"
            )
        self._require_same(config)
        if runs.SUMMARY not in there:
            return None
        say(f"{self.path} is finished")
        return read(self.path)

    def _require_same(self, config: Config) -> None:
        known = runs.read_json(self.path / runs.CONFIG)
        if known.get("table") != config["table"]:
            raise RunError(f"{self.path} was begun with other files; choose another --out")
        before: Mapping[str, Any] = known.get("settings") or {}
        for name, value in config["settings"].items():
            if before.get(name) != value:
                raise RunError(
                    f"{self.path} was begun with {name} {before.get(name)}, not {value}; leave it as it was, "
                    "or choose another --out"
                )

    @contextlib.contextmanager
    def at_work(self, config: Config) -> Iterator[None]:
        """Sums are kept while it goes on; what cannot be written is said with the way to go on."""
        try:
            with runs.locked(self.path, "evaluates"):
                checkpoint.sweep(self.path, (runs.CONFIG, runs.SUMMARY, MODEL, REPORT))
                begun = (self.path / runs.CONFIG).exists()
                runs.write_json(self.path / runs.CONFIG, config)
                try:
                    yield
                except BaseException:
                    if not begun and not any(self.partial.glob("*")):  # other settings may be next
                        (self.path / runs.CONFIG).unlink(missing_ok=True)
                    raise
        except OSError as error:
            kept = "; what was finished is kept: --resume goes on" if self.partial.exists() else ""
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}{kept}") from error

    def keep(self, result: Result) -> None:
        """The summary comes last: where it is, the evaluation is whole."""
        result.model.save(self.path / MODEL)
        runs.write_json(self.path / runs.SUMMARY, result.summary)
        shutil.rmtree(self.partial, ignore_errors=True)


def is_evaluation(folder: PathLike) -> bool:
    """Whether a folder holds an evaluation, finished or not."""
    try:
        return runs.read_json(check.path(folder, "folder") / runs.CONFIG).get("kind") == runs.EVALUATION
    except RunError:
        return False


def read(folder: PathLike) -> Result:
    """The finished evaluation in a folder."""
    folder = check.path(folder, "folder")
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise RunError(f"{folder} {what}; give the folder that gpsarsa evaluate wrote")
    if not is_evaluation(folder):
        raise RunError(f"{folder} holds no evaluation; give the folder that gpsarsa evaluate wrote")
    if not (folder / runs.SUMMARY).exists():
        raise RunError(
            f"{folder} holds an evaluation that is not finished; gpsarsa evaluate --resume ends it"
        )
    config = runs.read_json(folder / runs.CONFIG, _CONFIG)
    summary = runs.read_json(folder / runs.SUMMARY, _SUMMARY)
    return Result(folder, config, summary, Evaluation.load(folder / MODEL))


# -- the report -----------------------------------------------------------------------------------


class _Policy:
    """An evaluation as the pictures want an agent: the value of what its policy does.

    The policy that made a log is known where it acted: elsewhere its action is that of the nearest
    observation.
    """

    def __init__(self, model: Evaluation, dataset: Dataset, inputs: Array, target: Any) -> None:
        self.model, self._inputs, self._target = model, inputs, target
        columns = dataset.observation_columns
        self.observations = SimpleNamespace(
            names=dataset.names[:columns], columns=columns, categories=(False,) * columns
        )
        self.visited = inputs[:, :columns]
        width = np.std(self.visited, axis=0)
        self._width = np.where(width > 0, width, 1.0)

    def values(self, rows: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of Q at observations, with the policy's action."""
        mean, std = self.model.predict(np.hstack([rows, self._chosen(rows)]), return_std=True)
        return mean, std

    def _chosen(self, rows: Array) -> Array:
        if self._target is not None:
            return np.asarray(self._target(rows))
        from scipy.spatial import KDTree

        nearest = KDTree(self.visited / self._width).query(rows / self._width)[1]
        return self._inputs[nearest, self.observations.columns :]


def write_report(folder: PathLike, path: PathLike | None = None) -> Path:
    """Write the report of a finished evaluation anew and return where it is, by default in its folder.

    Its pictures are made from a sample of the table, which must be where it was, and as it was.
    """
    result = read(folder)
    files, rows = result.config["table"], result.summary["rows"]
    made = f"the report of {folder} is made from its table"
    try:
        dataset = open_dataset(files[0] if len(files) == 1 else files)
    except DatasetError as error:
        raise RunError(f"{made}, which cannot be read: {error}") from error
    if dataset.rows != rows:
        raise RunError(f"{made}, which has {dataset.rows} rows now and had {rows}; evaluate it anew")
    target = result.config["settings"]["target_policy"]
    policy = None if target is None else load_policy(target)
    page = Path(folder) / REPORT if path is None else check.path(path, "path")
    return _write_report(result, dataset, policy, page)


def _write_report(result: Result, dataset: Dataset, policy: Any, path: Path) -> Path:
    """The pictures are made from a sample of the table."""
    from gpsarsa.evaluation_report import write_evaluation_report

    settings = result.config["settings"]
    rng = np.random.default_rng(settings["seed"])
    block = dataset.sample(VISITED, rng, gamma=settings["gamma"], target_policy=policy)
    target = dataset.target(policy)
    shown = _Policy(result.model, dataset, block.transitions.inputs, target)
    X = block.transitions.inputs[block.first] if dataset.has_episodes else block.transitions.inputs
    X = X if block.target_first is None else block.target_first
    X = X[rng.permutation(len(X))[:DRAWN]]
    return write_evaluation_report(result, shown, X, LEVEL, path)
