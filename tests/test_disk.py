"""Disks that are full, and files and folders that cannot be read or written: what was there stays."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import tables
from problems import KERNELS, pseudo_inputs
from test_survival import agent_of, no_privileges, visible_folder  # noqa: F401  (fixtures)

from gpsarsa import CheckpointError, SparseGPSarsa, checkpoint, cli, runs
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.checkpoints import Checkpoints
from gpsarsa.offline.recording import write_table
from gpsarsa.report import write_report
from gpsarsa.runs import RunError
from gpsarsa.training import train

FULL = "No space left on device"


class Disk:
    """Counts what is asked of the disk, and is full from a certain moment on."""

    def __init__(self, patch):
        self.asked, self.full_at = 0, None
        for module in (checkpoint, runs):
            patch.setattr(module, "open", self.open, raising=False)
        for name in ("replace", "fsync"):
            patch.setattr(os, name, self.counted(getattr(os, name)))

    def ask(self, *path):
        self.asked += 1
        if self.full_at is not None and self.asked >= self.full_at:
            raise OSError(errno.ENOSPC, FULL, *map(str, path))

    def counted(self, good):
        def call(*given, **named):
            self.ask()
            return good(*given, **named)

        return call

    def open(self, path, mode="r", *rest, **named):
        if mode != "r":
            self.ask(path)
        return File(builtins.open(path, mode, *rest, **named), self)


class File:
    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def write(self, data):
        self._disk.ask()
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def rests(folder):
    return [path.name for path in folder.rglob("*") if path.name.endswith(".part") or ".next." in path.name]


# -- full -----------------------------------------------------------------------------------------

model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(np.random.default_rng(0), 3))


def save_model(path):
    model.save(path)


def save_text(path):
    runs.write_text(path, "new")


def save_log(path):
    runs.Log(path, keep=0).close()


def save_table(path):
    write_table(path, **tables.columns([4, 4]))


@pytest.mark.parametrize("save", [save_model, save_text, save_log, save_table])
def test_full_at_each_moment_of_a_save(save, disk, tmp_path):
    path = tmp_path / "the file"
    path.write_bytes(b"old")
    save(tmp_path / "other")
    moments, refusals = disk.asked, 0
    (tmp_path / "other").unlink()
    for moment in range(1, moments + 1):
        disk.asked, disk.full_at = 0, moment
        try:
            save(path)
        except OSError as error:
            refusals += 1
            assert (error.errno, error.filename) == (errno.ENOSPC, str(path))  # noqa: PT017
            last = save is save_log and moment >= moments - 1  # it is there, and cannot be opened once more
            assert path.read_bytes() == b"old" or last
        else:
            assert moment == moments  # the folder's own sync is a courtesy
        assert os.listdir(tmp_path) == ["the file"]
    assert refusals >= 3


def test_full_at_each_moment_of_a_run(disk, tmp_path):
    """The checkpoint that was there can be read, nothing half written is left, and the run goes on."""

    def run(folder):
        train(
            "CartPole-v1", steps=80, seed=3, out=folder, resume=True, checkpoint_every=10, progress_bar=False,
            report=False, evaluate_episodes=0, agent_options={"method": "sarsa", "budget": 8, "warmup": 50},
        )  # fmt: skip

    run(tmp_path / "whole")
    moments, folder = disk.asked, tmp_path / "run"
    assert moments > 20
    expected, saved, refusals = agent_of(tmp_path / "whole"), False, 0
    for moment in range(1, moments + 1):
        disk.asked, disk.full_at = 0, moment
        shutil.rmtree(folder, ignore_errors=True)
        try:
            run(folder)
        except RunError as error:
            refusals += 1
            assert FULL in str(error)  # noqa: PT017
            assert str(folder) in str(error)  # noqa: PT017
        disk.full_at = None
        assert not rests(folder)
        kept = Checkpoints(folder).load(SarsaAgent.load)
        assert kept is not None or not saved
        saved = saved or kept is not None
        if moment % 5 == 0:
            run(folder)
            assert agent_of(folder) == expected
    assert refusals > moments // 2


def test_no_room_for_a_report(disk, tmp_path):
    pytest.importorskip("matplotlib")
    from test_runs import make

    folder = tmp_path / "run"
    make(folder)
    (folder / "report.html").write_text("old")
    disk.full_at = disk.asked + 1
    with pytest.raises(RunError, match=rf"report\.html cannot be written: {FULL}"):
        write_report(folder)
    assert (folder / "report.html").read_text() == "old"
    assert not rests(folder)


# -- in the way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [save_model, save_text, save_log, save_table])
def test_a_folder_where_the_file_should_be(save, tmp_path):
    path = tmp_path / "taken"
    path.mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        save(path)
    assert refused.value.filename == str(path)
    assert os.listdir(tmp_path) == ["taken"]
    with pytest.raises(IsADirectoryError):
        SparseGPSarsa.load(path)


@pytest.mark.parametrize("save", [save_model, save_text, save_log, save_table])
def test_a_link_to_what_is_not_there_yet(save, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    save(link)
    assert link.is_symlink()
    assert target.is_file()
    assert sorted(os.listdir(tmp_path)) == ["link", "target"]


@pytest.mark.parametrize("save", [save_model, save_text, save_log])
def test_a_link_into_a_folder_that_is_not_there(save, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "no" / "where")
    with pytest.raises(FileNotFoundError) as refused:
        save(link)
    assert refused.value.filename == str(link)
    assert os.listdir(tmp_path) == ["link"]


def test_links_that_go_round_in_circles(tmp_path, refused):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links"):
        SparseGPSarsa.load(tmp_path / "a")
    for command in (["play"], ["report"], ["train", "CartPole-v1", "--out"]):
        assert str(tmp_path / "a") in refused(*command, tmp_path / "a")


# -- not allowed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [save_model, save_text, save_log, save_table])
def test_a_folder_that_may_not_be_written(save, visible_folder, request):  # noqa: F811
    path = visible_folder / "file"
    path.write_bytes(b"old")
    visible_folder.chmod(0o555)
    request.getfixturevalue("no_privileges")
    with pytest.raises(PermissionError) as error:
        save(path)
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(visible_folder) == ["file"]


def test_files_that_may_not_be_read(visible_folder, request, refused):  # noqa: F811
    folder = visible_folder / "run"
    with warnings.catch_warnings():
        train("CartPole-v1", steps=30, out=folder, progress_bar=False, report=False, evaluate_episodes=0)
    os.chmod(folder, 0o755)
    os.chmod(folder / "agent.safetensors", 0o000)
    request.getfixturevalue("no_privileges")
    with pytest.raises(PermissionError, match=r"agent\.safetensors"):
        SarsaAgent.load(folder / "agent.safetensors")
    assert "agent.safetensors: Permission denied" in refused("play", folder)


def test_a_folder_that_may_not_be_looked_into(visible_folder, request, refused):  # noqa: F811
    (visible_folder / "closed").mkdir(mode=0o000)
    request.getfixturevalue("no_privileges")
    inside = visible_folder / "closed" / "run"
    with pytest.raises(RunError, match=r"closed.run cannot be read: Permission denied"):
        runs.read(inside)
    for command in (["play"], ["report"], ["train", "CartPole-v1", "--out"], ["compare", "x"]):
        assert "Permission denied" in refused(*command, inside) or command == ["compare", "x"]
    assert "closed" in refused("evaluate", visible_folder / "closed" / "t.parquet", "--gamma", 0.9)


# -- strange names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["two words", "Läufe ü 実行", "-dash", "semi;colon $HOME 'quoted'", "new\nline"]
)
def test_strange_names(name, tmp_path, run):
    folder = tmp_path / name
    brief = ["--quiet", "--no-report", "--evaluate-episodes", 0]
    assert run("train", "CartPole-v1", "--steps", 30, "--out", folder, *brief)[0] == 0
    assert run("train", "CartPole-v1", "--steps", 40, "--out", folder, "--resume", *brief)[0] == 0
    assert run("play", folder, "--episodes", 1)[0] == 0
    path = folder / f"{name}.safetensors"
    model.save(path)
    assert SparseGPSarsa.load(path).n_transitions == 0
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CheckpointError, match=r"damaged"):
        SparseGPSarsa.load(path)
    table = folder / f"{name}.parquet"
    save_table(table)
    code, _, messages = run("evaluate", table, "--gamma", 0.9, "--pseudo-inputs", 3, "--quiet")
    assert code == 0, messages
    assert not rests(folder)


def test_a_relative_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save("here")
    model.save(Path("./here"))
    assert os.listdir() == ["here"]
    assert cli.main(["play", "here"]) == 2
