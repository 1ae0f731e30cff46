"""Every public function and method, with arguments of every wrong kind: see `hostile` for the rule.

`GPSARSA_FUZZ=1000` tries that many for each, at random; `make fuzz` does. The ordinary run tries a few,
always the same.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import pkgutil
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import hostile
import numpy as np
import pytest
from hostile import Target, attack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from problems import KERNELS, pseudo_inputs, transitions
from test_errors import fingerprint
from test_runs import make, row

import gpsarsa
from gpsarsa import (
    GPSarsa,
    SarsaAgent,
    Slow,
    SparseGPSarsa,
    Timescales,
    Transitions,
    checkpoint,
    evaluating,
    evidence,
    offline,
    placement,
    report,
    runs,
    training,
    video,
)
from gpsarsa import settings as run_settings
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.control import EnvironmentFault, SpaceError, callbacks, evaluation, policies
from gpsarsa.control.checkpoints import Checkpoints
from gpsarsa.kernels import RBF, Delta, Kernel, Matern32, Matern52, Product, Sum
from gpsarsa.offline import DatasetError, EngineError, engines, recording
from gpsarsa.offline.evaluation import CHANGES, Evaluation
from gpsarsa.runs import RunError

EXAMPLES = int(os.environ.get("GPSARSA_FUZZ", "0"))

# -- what there is --------------------------------------------------------------------------------

PUBLIC = [
    "", "checkpoint", "cli", "control", "control.callbacks", "control.checkpoints", "control.evaluation",
    "control.policies", "evaluating", "evidence", "kernels", "offline", "offline.engines",
    "offline.recording", "placement", "report", "runs", "training", "video",
]  # fmt: skip
INNER = {  # take what the package hands them
    "basis", "belief", "control.agent", "control.ascent", "control.contact", "control.critic",
    "control.descriptions", "control.dynamics", "control.environments", "control.episodes",
    "control.experience", "control.foresight", "control.imagination", "control.improvement",
    "control.incumbent", "control.learner", "control.lessons", "control.potential", "control.regression",
    "control.rehearsal", "control.rules", "control.shapes", "control.spaces", "control.tables",
    "control.values", "control.world", "draws", "evaluation_report", "exact", "offline.datasets",
    "offline.evaluation", "offline.sums", "optimization", "plots",
    "reservoir", "settings", "sparse", "statistics", "stochasticity", "timescales", "transitions",
}  # fmt: skip
ASKED_BY_THE_PACKAGE = {  # with objects of its own
    "BaseCallback.on_episode_end", "CallbackList.on_episode_end", "CheckpointCallback.on_episode_end",
    "EvalCallback.on_episode_end", "LogCallback.on_episode_end", "TensorBoardCallback.on_episode_end",
    "StopTrainingOnMaxEpisodes.on_episode_end", "Novelty.admits", "EvidenceGain.admits",
    "KMeansPlusPlus.admits", "Random.admits", "Placement.choose", "Placement.admits", "KernelLike.diag",
    "KernelLike.__call__", "EpsilonGreedy.row", "UpperConfidence.row", "Curious.row", "Greedy.row",
    "PosteriorSampling.row", "Decision.best", "Situation", "determined", "maximiser", "Decision",
    "SpectralTerm", "Gradient", "exact_evidence", "sparse_evidence", "noise_covariance", "Run", "Episode",
    "Result", "Engine.run", "Local.run", "Ray.run", "Work", "Work.path", "say",
    "Kernel.__call__", "Kernel.diag", "Kernel.with_parameters", "Kernel.scaled", "Timescales.restored",
    "main", "checksum", "sweep", "sync_folder",
}  # fmt: skip
REFUSED = {f"Evaluation.{name}" for name in CHANGES}  # whatever is given: `test_evaluation`


def takes_something(function: Any) -> bool:
    named = [name for name in inspect.signature(function).parameters if name != "self"]
    return bool(named)


def methods(kind: type, public: set[type]) -> list[str]:
    """Those that a class has of its own or from private bases, and that take anything."""
    found = {}
    for base in kind.__mro__:
        if not base.__module__.startswith("gpsarsa"):
            continue
        if base is not kind and base in public:
            break  # attacked there
        for name, value in vars(base).items():
            if isinstance(value, classmethod | staticmethod):
                value = value.__func__
            asked = not name.startswith("_") or name in ("__call__", "__getitem__")
            if asked and inspect.isfunction(value):
                parameters = list(inspect.signature(value).parameters)
                found[name] = len(parameters) > (0 if parameters[:1] not in (["self"], ["cls"]) else 1)
    return [name for name, needed in found.items() if needed]


def public_names() -> set[str]:
    """Classes, their methods, and functions, as TARGETS names them."""
    objects = {}
    for module in PUBLIC:
        loaded = importlib.import_module(f"gpsarsa.{module}" if module else "gpsarsa")
        objects |= {name: getattr(loaded, name) for name in loaded.__all__}
    classes = {value for value in objects.values() if inspect.isclass(value)}
    found = set()
    for name, value in objects.items():
        if inspect.isclass(value):
            if issubclass(value, Exception):
                continue
            if takes_something(value) and not getattr(value, "_is_protocol", False):
                found.add(name)
            found |= {f"{name}.{method}" for method in methods(value, classes)}
        elif inspect.isfunction(value) and takes_something(value):
            found.add(name)
    return found


def test_every_module_is_public_or_not():
    modules = {m.name.removeprefix("gpsarsa.") for m in pkgutil.walk_packages(gpsarsa.__path__, "gpsarsa.")}
    known = {name for name in modules if not any(part.startswith("_") for part in name.split("."))}
    assert known == (set(PUBLIC) - {""}) | INNER


def test_every_public_name_is_attacked():
    assert public_names() - set(TARGETS) - ASKED_BY_THE_PACKAGE - REFUSED == set()
    assert not ASKED_BY_THE_PACKAGE & set(TARGETS)


# -- what is attacked -----------------------------------------------------------------------------

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where syncing costs nothing
HOME = Path(tempfile.mkdtemp(prefix="gpsarsa-fuzz-", dir=FAST))
rng = np.random.default_rng(5)
DATA = transitions(rng, 24)
Z = pseudo_inputs(rng, 5)
KERNEL = KERNELS["action"]
TARGETS: dict[str, Target] = {}


@pytest.fixture(autouse=True, scope="module")
def home():
    """Strange names of files are relative ones."""
    before = os.getcwd()
    HOME.mkdir(exist_ok=True)  # where tests are shared out, a process may come back to this module
    os.chdir(HOME)
    yield
    os.chdir(before)
    shutil.rmtree(HOME, ignore_errors=True)


def target(name: str, call: Any, good: Any, **options: Any) -> None:
    """A function, or a method of an object that is made for each attack."""
    fixed = good if callable(good) else lambda: good
    TARGETS[name] = Target(lambda: (call, None), fixed, **options)


def method(name: str, owner: Any, good: Any, **options: Any) -> None:
    attribute = name.partition("[")[0].rpartition(".")[2]

    def made() -> tuple[Any, Any]:
        one = owner()
        return getattr(one, attribute), one

    TARGETS[name] = Target(made, good if callable(good) else lambda: good, **options)


MODELS = {
    "SparseGPSarsa": lambda: SparseGPSarsa(KERNEL, 0.1, Z).update(DATA),
    "SparseGPSarsa[streaming]": lambda: SparseGPSarsa(KERNEL, 0.1, Z, growth="streaming").update(DATA),
    "SparseGPSarsa[correlated]": lambda: SparseGPSarsa(KERNEL, 0.1, Z, noise="correlated").update(DATA),
    "GPSarsa": lambda: GPSarsa(KERNEL, 0.1).update(DATA[:12]),
}
PATH_WORDS = ("path",)
OBSERVE = {"x": Z[0], "reward": 1.0, "x_next": Z[1], "discount": 0.9, "start": None}
OPTIMIZE = {
    "transitions": DATA[:8], "hyperparameters": True, "prior_mean": False, "bounds": None,
    "max_iterations": 1, "restarts": 0, "seed": 0, "progress_bar": False, "refit_on": None,
}  # fmt: skip

target("SparseGPSarsa", SparseGPSarsa, {
    "kernel": KERNEL, "noise_variance": 0.1, "pseudo_inputs": Z, "growth": "exact", "weights": "fitc",
    "noise": "iid", "prior_mean": 0.0, "forgetting": 1.0,
})  # fmt: skip
target("GPSarsa", GPSarsa, {"kernel": KERNEL, "noise_variance": 0.1, "noise": "iid", "prior_mean": 0.0})

for which, owner in MODELS.items():
    name, _, variant = which.partition("[")
    suffix = f"[{variant}" if variant else ""
    known = {"state": fingerprint}
    method(f"{name}.observe{suffix}", owner, OBSERVE, **known)
    method(f"{name}.predict{suffix}", owner, {"X": Z, "return_std": False, "return_cov": False}, **known)
    method(f"{name}.sample{suffix}", owner, {"n": 1, "rng": 0}, heavy=("n",), **known)
    method(f"{name}.fit{suffix}", owner, {"transitions": DATA[:12]}, **known)
    method(f"{name}.update{suffix}", owner, {"transitions": DATA[:12]}, **known)
    if name == "SparseGPSarsa":
        method(f"{name}.add_pseudo_inputs{suffix}", owner, {"Z": Z + 0.5}, **known)
        method(f"{name}.move_pseudo_inputs{suffix}", owner, {"Z": Z + 0.5}, **known)
        method(f"{name}.remove_pseudo_inputs{suffix}", owner, {"indices": [0, 2]}, **known)
for name in ("SparseGPSarsa", "GPSarsa"):
    owner = MODELS[name]
    more = {"pseudo_inputs": True, "objective": "evidence"} if name == "SparseGPSarsa" else {}
    method(f"{name}.optimize", owner, OPTIMIZE | more, state=fingerprint,
           heavy=("max_iterations", "restarts"))  # fmt: skip
    method(f"{name}.get_params", owner, {"deep": True}, state=fingerprint)
    method(f"{name}.save", owner, {"path": "model"}, state=fingerprint, errors=(OSError,))
    target(f"{name}.load", getattr(gpsarsa, name).load, {"path": "model", "kernel": None},
           errors=(OSError, CheckpointError))  # fmt: skip
TARGETS["SparseGPSarsa.sample[function]"] = Target(
    lambda: (MODELS["SparseGPSarsa"]().sample(1, 0)[0], None), lambda: {"X": Z}
)

PARTS = {
    "inputs": DATA.inputs[:6], "rewards": DATA.rewards[:6], "next_inputs": DATA.next_inputs[:6],
    "discounts": DATA.discounts[:6], "starts": None,
}  # fmt: skip
target("Transitions", Transitions, PARTS)
target("Transitions.from_trajectory", Transitions.from_trajectory,
       {"inputs": Z[:3], "rewards": [1.0, 0.0, 2.0], "gamma": 0.9, "terminated": True})  # fmt: skip
target("Transitions.concatenate", Transitions.concatenate, {"parts": [DATA[:2], DATA[2:5]]})
method("Transitions.__getitem__", lambda: DATA, {"rows": 0}, errors=(IndexError,), words=("row",))

# -- kernels

STATIONARY = {"lengthscales": [0.5, 1.0, 2.0], "variance": 1.0, "columns": None}
for kind in (RBF, Matern32, Matern52):
    target(kind.__name__, kind, STATIONARY)
    method(f"{kind.__name__}.scaled", lambda kind=kind: kind(1.0), {"factor": 2.0}, words=("variance",))
    method(f"{kind.__name__}.with_parameters", lambda kind=kind: kind(1.0), {"parameters": {"variance": 2.0}},
           words=("lengthscales", "variance"))  # fmt: skip
target("Delta", Delta, {"columns": 2, "share": 0.5})
method("Delta.scaled", lambda: Delta(0), {"factor": 2.0})
method("Delta.with_parameters", lambda: Delta(0), {"parameters": {"share": 0.1}}, words=("share",))
for kind in (Sum, Product):
    target(kind.__name__, kind, {"one": RBF(1.0), "other": Delta(2)}, positional=("one", "other"),
           words=("combines kernels",))  # fmt: skip
    method(f"{kind.__name__}.scaled", lambda kind=kind: kind(RBF(1.0), RBF(2.0)), {"factor": 2.0},
           words=("variance",))  # fmt: skip
    method(f"{kind.__name__}.with_parameters", lambda kind=kind: kind(RBF(1.0), Delta(2)),
           {"parameters": {"0.variance": 2.0}}, words=("variance", "lengthscales", "share"))  # fmt: skip
for which, kernel in KERNELS.items():
    method(f"Kernel.__call__[{which}]", lambda kernel=kernel: kernel, {"A": Z, "B": Z[:2]})
    method(f"Kernel.diag[{which}]", lambda kernel=kernel: kernel, {"A": Z})
for name in ("table", "spectral_terms", "discrete_columns"):
    method(f"Kernel.{name}", lambda: KERNELS["nested"], {"columns": 3}, heavy=("columns",))
method("Kernel.gradient", lambda: KERNELS["sum"],
       {"columns": 3, "values_bar": 0.0 * KERNELS["sum"].table(3)[1]}, heavy=("columns",))  # fmt: skip
target("Kernel.from_config", Kernel.from_config, {"config": KERNELS["nested"].to_config()},
       words=("kernel", "lengthscales", "variance", "columns", "share"))  # fmt: skip

# -- placement and timescales

CHOOSE = {"transitions": DATA, "count": 3, "kernel": KERNEL, "noise_variance": 0.1, "rng": 0}
STRATEGIES = {
    "Novelty": {"threshold": 0.1}, "Greedy": {"threshold": 0.1}, "KMeansPlusPlus": {"rate": 0.1},
    "Random": {"rate": 0.1}, "EvidenceGain": {"threshold": 0.1, "pool": 4, "rows": 50},
}  # fmt: skip
for name, options in STRATEGIES.items():
    target(name, placement.STRATEGIES[name], options)
    method(f"{name}.choose", placement.STRATEGIES[name], CHOOSE)

SLOW = {
    "every": 5, "unit": "transitions", "pseudo_inputs": True, "hyperparameters": False, "prior_mean": False,
    "objective": None, "bounds": None, "max_iterations": 1,
}  # fmt: skip


def timescales() -> Timescales:
    slow = [Slow(50, max_iterations=1)]
    return Timescales(MODELS["SparseGPSarsa"](), slow=slow, reservoir=50, seed=0).update(DATA[:5])


def timescales_state(one: Timescales) -> Any:
    arrays, content = one.state()
    return {name: array.tobytes() for name, array in arrays.items()}, repr(content)


timescales_known = {"state": timescales_state}
target("Slow", Slow, SLOW)
target("Timescales", lambda **given: Timescales(MODELS["SparseGPSarsa"](), **given), {
    "placement": placement.Novelty(), "budget": 10, "drop": "information", "slow": [Slow(3)],
    "reservoir": 50, "seed": 0,
}, words=("capacity",))  # fmt: skip
target("Timescales[model]", Timescales, {"model": MODELS["SparseGPSarsa"]()})
method("Timescales.observe", timescales, OBSERVE, **timescales_known)
method("Timescales.update", timescales, {"transitions": DATA[:3]}, **timescales_known)
method("Timescales.step", timescales, {"step": Slow(3, max_iterations=1)}, **timescales_known)
method("Timescales.save", timescales, {"path": "times"}, errors=(OSError,), **timescales_known)
target("Timescales.load", Timescales.load, {"path": "times", "kernel": None, "placement": None},
       errors=(OSError, CheckpointError))  # fmt: skip
target("log_evidence", evidence.log_evidence, {
    "kernel": KERNEL, "noise_variance": 0.1, "pseudo_inputs": Z, "transitions": DATA, "weights": "fitc",
    "noise": "iid", "prior_mean": 0.0, "objective": "evidence", "gradient": False,
}, words=("rewards",))  # fmt: skip

# -- control

ENV = gym.make("CartPole-v1")
AGENT = {"env": ENV, "gamma": 0.9, "policy": None, "model": None, "seed": 0, "method": "improving",
         "budget": 10, "memory": 100, "warmup": 5}  # fmt: skip
TRAINED = SarsaAgent(ENV, seed=0, budget=10, warmup=30).learn(60)
with tempfile.NamedTemporaryFile() as kept:
    TRAINED.save(kept.name)
    SAVED = Path(kept.name).read_bytes()


def agent_state(agent: SarsaAgent) -> Any:
    arrays, content = agent._state()
    return {name: array.tobytes() for name, array in arrays.items()}, repr(content), id(agent.env)


def agent() -> SarsaAgent:
    return TRAINED


agent_known = {"state": agent_state, "errors": (EnvironmentFault, SpaceError)}
target("SarsaAgent", SarsaAgent, AGENT, errors=(EnvironmentFault, SpaceError))
method("SarsaAgent.learn", lambda: SarsaAgent(ENV, seed=0, warmup=100),
       {"total_timesteps": 1, "callback": None, "progress_bar": False}, heavy=("total_timesteps",),
       **agent_known)  # fmt: skip
method("SarsaAgent.predict", agent,
       {"observation": np.zeros(4), "state": None, "episode_start": None, "deterministic": True},
       **agent_known)  # fmt: skip
method("SarsaAgent.values", agent, {"rows": np.zeros((1, 4))}, **agent_known)
method("SarsaAgent.set_env", agent, {"env": ENV}, **agent_known)
method("SarsaAgent.save", agent, {"path": "agent"}, state=agent_state, errors=(OSError,))
target("SarsaAgent.load", SarsaAgent.load,
       {"path": "agent", "env": None, "policy": None, "kernel": None, "placement": None},
       errors=(OSError, CheckpointError, EnvironmentFault, SpaceError))  # fmt: skip

target("CallbackList", callbacks.CallbackList, {"callbacks": [callbacks.BaseCallback()]})
target("CheckpointCallback", callbacks.CheckpointCallback,
       {"save_freq": 10, "save_path": "x", "name_prefix": "agent"})  # fmt: skip
target("EvalCallback", callbacks.EvalCallback, {
    "eval_env": ENV, "n_eval_episodes": 1, "eval_freq": 10, "callback_on_new_best": None,
    "best_model_save_path": None, "seed": 0,
}, errors=(EnvironmentFault,), words=("callback",))  # fmt: skip
target("LogCallback", callbacks.LogCallback, {"log": SimpleNamespace(append=print), "seconds": 0.0})
target("TensorBoardCallback", callbacks.TensorBoardCallback, {"folder": "x"})
target("StopTrainingOnMaxEpisodes", callbacks.StopTrainingOnMaxEpisodes, {"max_episodes": 1})
target("StopTrainingOnRewardThreshold", callbacks.StopTrainingOnRewardThreshold, {"reward_threshold": 1.0})
target("as_callback", callbacks.as_callback, {"callback": None})
target("EpsilonGreedy", policies.EpsilonGreedy, {"epsilon": 0.1, "final": 0.0, "steps": 10})
method("EpsilonGreedy.at", lambda: policies.EpsilonGreedy(0.1, 0.0, 10), {"step": 3})
target("UpperConfidence", policies.UpperConfidence, {"bonus": 1.0})
target("Curious", policies.Curious, {"bonus": 1.0})
target("as_choice", policies.as_choice, {"policy": policies.Greedy(), "actions": TRAINED.actions},
       fixed=("actions",))  # fmt: skip
target("described", policies.described, {"policy": policies.Greedy()})
target("restored", policies.restored, {"config": ["Curious", {"bonus": 1.0}]}, words=("policy", "bonus"))
target("evaluate_policy", evaluation.evaluate_policy,
       {"agent": TRAINED, "env": ENV, "n_eval_episodes": 1, "seed": 0}, heavy=("n_eval_episodes",),
       errors=(EnvironmentFault,))  # fmt: skip
target("episodes", evaluation.episodes,
       {"agent": TRAINED, "env": ENV, "count": 1, "seed": 0, "longest": 2, "watch": None},
       heavy=("count", "longest"), errors=(EnvironmentFault,))  # fmt: skip
target("standard_error", evaluation.standard_error, {"returns": [1.0, 2.0]})
target("Checkpoints", Checkpoints, {"folder": "x", "name": "agent"})
method("Checkpoints.save", lambda: Checkpoints("saved"), {"agent": TRAINED}, errors=(OSError,))
for name in ("load", "load_before"):
    method(f"Checkpoints.{name}", lambda: Checkpoints("saved"), {"read": SarsaAgent.load},
           errors=(CheckpointError, OSError), words=("argument",))  # fmt: skip
method("Checkpoints.load[say]", lambda: Checkpoints("saved"), {"read": SarsaAgent.load, "say": print},
       errors=(CheckpointError, OSError))  # fmt: skip

# -- files and runs

FILES = (OSError, CheckpointError, RunError)
target("write", checkpoint.write, {"path": "file", "arrays": {"a": np.zeros(3)}, "content": {"b": 1}},
       errors=(OSError,))  # fmt: skip
target("read", runs.read, {"folder": "run"}, errors=FILES)
target("read[checkpoint]", checkpoint.read, {"path": "agent"}, errors=FILES)
target("read[evaluation]", evaluating.read, {"folder": "evaluation"}, errors=FILES)
target("read_header", checkpoint.read_header, {"data": SAVED}, words=("header",))


def atomically(path: Any) -> None:
    with checkpoint.atomic(path) as file:
        file.write(b"x")


def under_lock(folder: Any, does: Any) -> None:
    with runs.locked(folder, does):
        pass


target("atomic", atomically, {"path": "file"}, errors=(OSError,))
target("locked", under_lock, {"folder": Path("locked"), "does": "works"}, errors=(OSError, RunError))
target("read_all", runs.read_all, {"folders": ["run"]}, errors=FILES)
for name in ("read_config", "read_progress", "read_summary"):
    target(name, getattr(runs, name), {"folder": Path("run")}, errors=FILES)
target("read_json", runs.read_json, {"path": Path("run/config.json"), "shapes": ()}, errors=FILES,
       fixed=("shapes",))  # fmt: skip
target("write_text", runs.write_text, {"path": "text", "text": "text"}, errors=(OSError, UnicodeEncodeError))
target("write_json", runs.write_json, {"path": "text", "value": {"a": 1}},
       errors=(OSError, UnicodeEncodeError), words=("JSON",))  # fmt: skip


class OneLog:
    def __init__(self) -> None:
        with runs.Log("progress.csv", keep=0) as log:
            log.append(row(0))

    def append(self, **given: Any) -> None:
        with runs.Log("progress.csv", keep=1) as log:
            log.append(**given)

    def append_row(self, **changes: Any) -> None:
        self.append(row={**row(1), **changes})


target("Log", lambda **given: runs.Log(**given).close(), {"path": "log.csv", "keep": 0}, heavy=("keep",),
       errors=(OSError, RunError))  # fmt: skip
method("Log.append", OneLog, {"row": row(1)}, words=tuple(runs.COLUMNS))
method("Log.append_row", OneLog, row(1), words=tuple(runs.COLUMNS))
target("load_agent", training.load_agent, {"folder": "saved"}, errors=FILES)
target("make", training.make, {"env_id": "CartPole-v1", "arguments": {}}, errors=(RunError,))
TRAIN = {
    "env_id": "CartPole-v1", "steps": 1, "seed": 0, "resume": False, "env_arguments": None, "gamma": 0.9,
    "checkpoint_every": 100, "evaluate_episodes": 0, "progress_bar": False, "report": False,
    "agent_options": {"budget": 10, "warmup": 50}, "tensorboard": False,
}  # fmt: skip
HEAVY = ("steps", "evaluate_episodes", "report", "tensorboard", "progress_bar")


def trained(**given: Any) -> None:
    shutil.rmtree("out", ignore_errors=True)
    before, run_settings.STEPS = run_settings.STEPS, 2  # where none are asked for
    try:
        with tempfile.TemporaryDirectory(dir=HOME) as folder:
            training.train(**{"out": Path(folder) / "run"} | given)
    finally:
        run_settings.STEPS = before


target("train", trained, TRAIN, heavy=HEAVY, errors=(RunError,))
target("train[out]", trained, {**TRAIN, "out": "out", "resume": True}, heavy=HEAVY, errors=(RunError,),
       fixed=tuple(name for name in TRAIN))  # fmt: skip
target("write_report", report.write_report, {"folders": ["run"], "path": "page", "agent": None},
       errors=(RunError,))  # fmt: skip
target(
    "write_report[evaluation]", evaluating.write_report, {"folder": "evaluation", "path": None}, errors=FILES
)
target("is_evaluation", evaluating.is_evaluation, {"folder": "run"})
target("load_policy", evaluating.load_policy, {"path": "saved"}, errors=FILES)


def filmed(path: Any, fps: Any, frame: Any) -> None:
    with video.Video(path, fps) as film:
        film.add(frame)


FRAME = np.zeros((4, 4, 3), np.uint8)
target("Video", filmed, {"path": "film.gif", "fps": 30.0, "frame": FRAME}, errors=(OSError, RunError))
target("Video.add", filmed, {"path": "film.gif", "fps": 30.0, "frame": FRAME}, errors=(OSError, RunError),
       fixed=("path", "fps"))  # fmt: skip

# -- logged transitions

OFFLINE = (DatasetError, EngineError, OSError)
EVALUATE = {
    "source": DATA, "gamma": 0.9, "kernel": KERNEL, "noise_variance": 0.1, "prior_mean": 0.0, "noise": "auto",
    "pseudo_inputs": 3, "target_policy": None, "bootstrap": 0, "engine": "local", "seed": 0, "work": None,
    "workers": 1, "address": None, "progress_bar": False,
}  # fmt: skip
target("evaluate", offline.evaluate, EVALUATE, errors=OFFLINE, heavy=("bootstrap", "workers"))
target("evaluate_into", lambda **given: evaluating.evaluate_into(None, **given), {
    "source": DATA, "gamma": 0.9, "pseudo_inputs": 3, "noise": "auto", "prior_mean": 0.0, "seed": 0,
    "target_policy": None, "bootstrap": 0, "engine": "local", "address": None, "workers": 1, "resume": False,
    "report": False, "progress_bar": False,
}, errors=(*OFFLINE, RunError, CheckpointError), heavy=("bootstrap", "workers"))  # fmt: skip
with contextlib.redirect_stderr(None):
    EVALUATED = offline.evaluate(**EVALUATE)
target("compare", offline.compare, {"evaluations": {"a": EVALUATED, "b": EVALUATED}})
target(
    "convert", offline.convert, {"dataset": "none/none-v0", "path": "x", "rows_per_group": 10}, errors=OFFLINE
)
target("open_dataset", offline.open_dataset, {"source": DATA, "rows_per_partition": 10}, errors=OFFLINE)
target("record", offline.record, {
    "env": ENV, "policy": None, "path": "table.parquet", "episodes": 1, "steps": 2, "seed": 0,
    "deterministic": True, "rows_per_group": 10, "progress_bar": False,
}, errors=(*OFFLINE, EnvironmentFault, SpaceError), heavy=("episodes", "steps"))  # fmt: skip
target("write_table", recording.write_table, {
    "path": "table.parquet", "observation": Z[:3, :2], "action": [0, 1, 0], "reward": np.zeros(3),
    "next_observation": Z[:3, :2], "next_action": [0, 1, 0], "terminated": [False, False, True],
    "truncated": None, "episode": [0, 0, 0], "step": [0, 1, 2], "rows_per_group": 10,
}, errors=OFFLINE)  # fmt: skip
method("Evaluation.interval", lambda: EVALUATED, {"level": 0.9, "kind": "clustered"}, state=fingerprint)
method("Evaluation.interval_at", lambda: EVALUATED, {"X": Z, "level": 0.9}, state=fingerprint)
target(
    "Evaluation", Evaluation, {"kernel": KERNEL, "noise_variance": 0.1, "pseudo_inputs": Z, "growth": "exact"}
)
target("engine", engines.engine, {"name": "local", "address": None, "workers": 1}, words=("engine",))
target("Local", engines.Local, {"workers": 1})
target("Ray", engines.Ray, {"address": None, "workers": 1})


@pytest.fixture(scope="module", autouse=True)
def files(home):
    """What the targets above read."""
    MODELS["SparseGPSarsa"]().save("model")
    timescales().save("times")
    TRAINED.save("agent")
    Checkpoints("saved").save(TRAINED)
    make(HOME / "run")


# -- the attack -----------------------------------------------------------------------------------

few = settings(max_examples=25)
every = settings(max_examples=EXAMPLES, derandomize=False, database=None) if EXAMPLES else few


@pytest.mark.parametrize("name", list(TARGETS))
@settings(every, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_wrong_arguments_are_refused_or_work(name, data):
    one = TARGETS[name]
    attack(one, data.draw(hostile.changes(one)))


@pytest.mark.parametrize("name", list(TARGETS))
def test_the_good_arguments_work(name):
    if name in ("convert", "read[evaluation]", "write_report[evaluation]", "GPSarsa.load"):
        pytest.skip("there is nothing to read")
    assert not attack(TARGETS[name], {})
