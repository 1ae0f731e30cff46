"""What damaged input is given to. Each target takes bytes and raises only if a promise is broken.

A file is read, or refused by one of the errors that are documented for it, naming the file. What was read can
be used: asked, and saved again.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import gymnasium as gym
import tables
from problems import KERNELS, pseudo_inputs, transitions
from test_runs import make as make_run

from fuzz import damage
from gpsarsa import (
    CheckpointError,
    GPSarsa,
    SparseGPSarsa,
    Timescales,
    checkpoint,
    cli,
    evaluating,
    runs,
    settings,
    training,
)
from gpsarsa.control import evaluation
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.offline import DatasetError, evaluate, open_dataset
from gpsarsa.offline.evaluation import Evaluation
from gpsarsa.offline.recording import write_table
from gpsarsa.report import write_report
from gpsarsa.runs import RunError
from gpsarsa.timescales import Slow


class Workshop:
    """A folder with one good file of every kind, and the targets."""

    def __init__(self) -> None:
        fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.home = Path(tempfile.mkdtemp(prefix="gpsarsa-fuzz-", dir=fast))
        rng, Z = np.random.default_rng(0), pseudo_inputs(np.random.default_rng(1), 4)
        t, kernel = transitions(rng, 16), KERNELS["action"]
        SparseGPSarsa(kernel, 0.1, Z).update(t).save(self.home / "model")
        GPSarsa(kernel, 0.1).update(t[:6]).save(self.home / "exact")
        Timescales(
            SparseGPSarsa(kernel, 0.1, Z),
            slow=[Slow(50, bounds={"pseudo_inputs": (0, 1)})],
            reservoir=20,
            seed=0,
        ).update(t[:8]).save(self.home / "times")
        env = gym.make("CartPole-v1")
        SarsaAgent(env, seed=0, budget=8, warmup=40).learn(70).save(self.home / "agent")
        evaluate(t, gamma=0.9, kernel=kernel, noise_variance=0.1, pseudo_inputs=3, workers=1).save(
            self.home / "evaluation"
        )
        make_run(self.home / "run")
        write_table(self.home / "table.parquet", **tables.columns([4, 3, 5]), rows_per_group=5)
        with contextlib.redirect_stderr(io.StringIO()):
            training.train(
                "CartPole-v1", steps=30, out=self.home / "trained", progress_bar=False, report=False,
                evaluate_episodes=1, agent_options={"budget": 8, "warmup": 50},
            )  # fmt: skip
            evaluating.evaluate_into(
                self.home / "evaluated", str(self.home / "table.parquet"), gamma=0.9, pseudo_inputs=3,
                report=False, workers=1,
            )  # fmt: skip
        self.kinds: dict[str, tuple[Any, Any]] = {
            "model": (SparseGPSarsa.load, lambda one: one.predict(Z, return_std=True)),
            "exact": (GPSarsa.load, lambda one: one.predict(Z) if one.n_transitions else None),
            "times": (Timescales.load, lambda one: one.model.predict(Z)),
            "agent": (SarsaAgent.load, lambda one: one.predict(np.zeros(4))),
            "evaluation": (Evaluation.load, lambda one: one.predict(Z)),
        }

    def close(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    # -- checkpoints

    def checkpoint(self, kind: str, data: bytes) -> None:
        """A file of bytes, to be read as a checkpoint."""
        path = self.home / f"{kind}.damaged"
        path.write_bytes(data)
        self._load(kind, path)

    def rewritten(self, kind: str, rng: random.Random) -> None:
        """A checkpoint whose checksum fits and whose content does not."""
        arrays, content = damage.damaged_content(*checkpoint.read(self.home / kind), rng)
        path = self.home / f"{kind}.rewritten"
        try:
            checkpoint.write(path, arrays, content)
        except (TypeError, ValueError):
            return  # nothing that a file could hold
        self._load(kind, path)

    def _load(self, kind: str, path: Path) -> None:
        load, use = self.kinds[kind]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                found = load(path)
            except CheckpointError as error:
                assert path.name in str(error), error  # noqa: PT017
                return
            with contextlib.suppress(ValueError, ArithmeticError):  # content that makes sense to nobody
                use(found)
            found.save(self.home / "again")

    # -- folders

    def folder(self, name: str, data: bytes) -> None:
        """One file of a run's folder is another."""
        path = self.home / "run" / name
        path.write_bytes(data)
        try:
            with contextlib.suppress(RunError):
                runs.read(self.home / "run")
            with warnings.catch_warnings(), contextlib.suppress(RunError):
                warnings.simplefilter("ignore")
                runs.Log(self.home / "run" / "progress.csv", keep=2).close()
        finally:
            self.new_run()

    def new_run(self) -> None:
        shutil.rmtree(self.home / "run", ignore_errors=True)
        make_run(self.home / "run")

    def page(self, name: str, data: bytes) -> None:
        """The report of a run one of whose files is another."""
        path = self.home / "run" / name
        path.write_bytes(data)
        try:
            with warnings.catch_warnings(), contextlib.suppress(RunError):
                warnings.simplefilter("ignore")
                write_report(self.home / "run", self.home / "page.html")
        finally:
            self.new_run()

    # -- tables

    def table(self, data: bytes) -> None:
        path = self.home / "damaged.parquet"
        path.write_bytes(data)
        try:
            dataset = open_dataset(str(path))
            for partition in dataset.partitions:
                for _ in dataset.blocks(partition, gamma=0.9):
                    pass
        except DatasetError as error:
            assert "damaged.parquet" in str(error), error  # noqa: PT017

    # -- the command line

    def command(self, line: list[str]) -> int:
        """Exit code 0, or 2 and one line; never anything else."""
        out, messages = io.StringIO(), io.StringIO()
        before = os.getcwd()
        os.chdir(self.home)
        learn, longest, steps = SarsaAgent.learn, evaluation.LONGEST, settings.STEPS

        def briefly(self: Any, total_timesteps: int, **more: Any) -> Any:
            return learn(self, min(total_timesteps, 3), **more)

        SarsaAgent.learn, evaluation.LONGEST, settings.STEPS = briefly, 2, 3  # type: ignore[method-assign]
        try:
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(messages),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("default")
                try:
                    code = cli.main(line)
                except SystemExit as end:  # --help and --version
                    code = int(end.code or 0)
        finally:
            SarsaAgent.learn, evaluation.LONGEST, settings.STEPS = learn, longest, steps  # type: ignore[method-assign]
            os.chdir(before)
        said = messages.getvalue().rstrip("\n").split("\n")
        assert code in (0, 2), (line, code)
        if code == 2:
            assert said[-1].startswith("gpsarsa: "), (line, said)
            assert len(said[-1]) > len("gpsarsa: "), line
        return code

    def files(self) -> list[str]:
        return ["run", "trained", "evaluated", "table.parquet", "model", "agent", "new"]

    def tidy(self) -> None:
        """Away with what commands have written."""
        for path in self.home.iterdir():
            known = {*self.kinds, "run", "trained", "evaluated", "table.parquet", "corpus"}
            if path.name not in known:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def attempts(workshop: Workshop) -> dict[str, Callable[[random.Random], Any]]:
    """What is done with each number of chance, by name."""
    home = workshop.home
    found: dict[str, Callable[[random.Random], Any]] = {}
    for kind in workshop.kinds:
        good = (home / kind).read_bytes()
        found[f"bytes of {kind}"] = lambda rng, kind=kind, good=good: workshop.checkpoint(
            kind, damage.damaged_bytes(good, rng)
        )
        found[f"content of {kind}"] = lambda rng, kind=kind: workshop.rewritten(kind, rng)
    for name in ("config.json", "summary.json", "progress.csv"):
        good = (home / "run" / name).read_bytes()
        found[f"run's {name}"] = lambda rng, name=name, good=good: workshop.folder(
            name, damage.damaged_text(good, rng)
        )
    table = (home / "table.parquet").read_bytes()
    found["table"] = lambda rng: workshop.table(damage.damaged_bytes(table, rng))

    def command(rng: random.Random) -> None:
        workshop.command(damage.command_line(workshop.files(), rng))
        workshop.tidy()

    def damaged_folder(rng: random.Random) -> None:
        """A command in a folder one of whose files is damaged."""
        which = rng.choice(("trained", "evaluated"))
        path = rng.choice([p for p in sorted((home / which).iterdir()) if p.is_file()])
        good = path.read_bytes()
        try:
            if rng.random() < 0.1:
                path.unlink()
            else:
                path.write_bytes(damage.damaged_text(good, rng))
            lines = {
                "trained": [
                    ["play", "trained", "--episodes", "1"],
                    ["train", "CartPole-v1", "--out", "trained", "--resume", "--quiet", "--no-report",
                     "--evaluate-episodes", "0"],
                    ["evaluate", "table.parquet", "--gamma", "0.9", "--target-policy", "trained"],
                ],
                "evaluated": [
                    ["compare", "evaluated", "./trained/../evaluated"],
                    ["compare", "evaluated", "trained"],
                    ["report", "evaluated", "--out", "page"],
                    ["evaluate", "table.parquet", "--gamma", "0.9", "--out", "evaluated", "--resume",
                     "--pseudo-inputs", "3", "--no-report", "--quiet"],
                ],
            }  # fmt: skip
            workshop.command(rng.choice(lines[which]))
        finally:
            path.write_bytes(good)
            workshop.tidy()

    found["command"] = command
    found["damaged folder"] = damaged_folder
    return found
