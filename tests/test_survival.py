"""Training runs that are killed, damaged, refused or out of room: what is saved stays good."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from survival import digest

from gpsarsa import checkpoint, runs
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.checkpoints import Checkpoints
from gpsarsa.control.learner import Learner
from gpsarsa.runs import RunError
from gpsarsa.settings import Settlement
from gpsarsa.training import train

ROOT = Path(__file__).parents[1]
STEPS = 420
QUIET = {"progress_bar": False, "report": False, "evaluate_episodes": 2}
KILLS = os.environ.get("GPSARSA_KILLS", "2")


def trained(folder, **changes):
    return train("CartPole-v1", **{**plan(), "out": folder, **changes})


def plan():
    return {"steps": STEPS, "seed": 3, "checkpoint_every": 50, "agent_options": {"budget": 40}, **QUIET}


def agent_of(folder):
    return digest(folder / "agent.safetensors")


def contents(folder):
    """A hash of every file and the time of its last change."""
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    trained(folder)
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def unfinish(folder):
    """As if the process had been killed after its last regular checkpoint."""
    os.replace(folder / "agent.previous.safetensors", folder / "agent.safetensors")
    (folder / "summary.json").unlink()


def stop_after(monkeypatch, count, error):
    """Let the save after `count` good ones fail."""
    good = SarsaAgent.save
    calls = []

    def save(self, path):
        calls.append(path)
        if len(calls) > count:
            raise error
        good(self, path)

    monkeypatch.setattr(SarsaAgent, "save", save)


# -- killed ---------------------------------------------------------------------------------------


def test_killed_at_random_moments(tmp_path):
    """The script does as many kills as it is told: GPSARSA_KILLS=20."""
    script = [sys.executable, str(ROOT / "tests" / "survival.py"), "--kills", KILLS, "--steps", "500"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{KILLS} kills" in done.stdout
    assert "DAMAGED" not in done.stdout


AT_EACH_WRITE = """
import os, signal, sys
from gpsarsa.training import train

def attempt(number, **how):
    child = os.fork()
    if child == 0:
        left = [number]
        def counted(good):
            def call(*given):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return good(*given)
            return call
        os.replace, os.fsync = counted(os.replace), counted(os.fsync)
        train("CartPole-v1", **how)
        os._exit(0)
    return os.waitpid(child, 0)[1]

how = {plan!r}
folder, kills = sys.argv[1], 0
for number in [*range(1, 26), 0]:
    status = attempt(number, out=folder, resume=True, **how)
    if number and os.WIFSIGNALED(status):
        kills += 1
        print(number, *sorted(os.listdir(folder)))
print("kills", kills)
"""


def test_killed_at_each_write(tmp_path, finished):
    """Before every rename and sync, where half-done work would show."""
    folder = tmp_path / "run"
    script = textwrap.dedent(AT_EACH_WRITE).replace("{plan!r}", repr(plan()))
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    *lines, last = done.stdout.strip().split("\n")
    assert int(last.split()[1]) >= 15
    saved = False
    for line in lines:
        _, *files = line.split()
        present = {"agent.safetensors", "agent.previous.safetensors"} & set(files)
        assert present or not saved
        saved = saved or bool(present)
    assert agent_of(folder) == agent_of(finished)
    assert not [name for name in os.listdir(folder) if name.endswith(".part") or ".next." in name]
    assert len(runs.read(folder).progress["step"]) == len(runs.read(finished).progress["step"])


def test_resuming_where_nothing_is_yet_begins(tmp_path, finished):
    trained(tmp_path / "deep" / "run", resume=True)
    assert agent_of(tmp_path / "deep" / "run") == agent_of(finished)


def test_resuming_with_a_config_alone_begins(tmp_path, finished):
    (tmp_path / "run").mkdir()
    shutil.copy(finished / "config.json", tmp_path / "run")
    train("CartPole-v1", out=tmp_path / "run", resume=True, checkpoint_every=50, **QUIET)
    assert agent_of(tmp_path / "run") == agent_of(finished)


def test_the_log_of_a_resumed_run_is_that_of_an_uninterrupted_one(copy, finished):
    unfinish(copy)
    with open(copy / "progress.csv", "a") as file:
        file.write("999,99,1.0")  # half a line
    trained(copy, resume=True)
    resumed, whole = (runs.read(folder).progress for folder in (copy, finished))
    for name in runs.COLUMNS:
        if name != "seconds":
            assert resumed[name].tolist() == pytest.approx(whole[name].tolist(), abs=0, nan_ok=True)
    assert (resumed["seconds"][1:] >= resumed["seconds"][:-1]).all()


def test_interrupted_by_the_keyboard(tmp_path, monkeypatch, capsys, finished):
    stop_after(monkeypatch, 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run")
    assert "--resume" in capsys.readouterr().err
    monkeypatch.undo()
    trained(tmp_path / "run", resume=True)
    assert agent_of(tmp_path / "run") == agent_of(finished)


def test_an_interrupt_signal_ends_with_130(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "gpsarsa", "train", "CartPole-v1", "--steps", "100000", "--out", "run"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )  # fmt: skip
    assert "train" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "gpsarsa: interrupted; nothing was saved yet" in messages
    assert "Traceback" not in messages


def test_an_interruption_that_is_swallowed_comes_again(tmp_path, monkeypatch):
    """As by a callback of C, in which exceptions are ignored."""
    improve = Learner._restructure

    def deaf(self, seen):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        improve(self, seen)

    monkeypatch.setattr(Learner, "_restructure", deaf)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "run")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# -- finished, and longer -------------------------------------------------------------------------


def test_a_finished_run_is_left_alone(copy, capsys):
    before = contents(copy)
    run = trained(copy, resume=True)
    assert "is finished" in capsys.readouterr().err
    assert run.summary["finished"]
    assert contents(copy) == before


def test_more_steps_extend_a_run_as_if_it_had_been_asked_for_at_once(copy, tmp_path):
    trained(tmp_path / "long", steps=600)
    run = trained(copy, steps=600, resume=True)
    assert agent_of(copy) == agent_of(tmp_path / "long")
    assert (run.config["steps"], run.summary["steps"]) == (600, 600)
    assert SarsaAgent.load(copy / "agent.safetensors").num_timesteps == 600


def test_an_extension_that_is_killed_at_once_is_the_same(copy, tmp_path, monkeypatch):
    trained(tmp_path / "long", steps=600)
    stop_after(monkeypatch, 0, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        trained(copy, steps=600, resume=True)
    monkeypatch.undo()
    assert not runs.read(copy).summary["finished"]
    trained(copy, resume=True, steps=None)
    assert agent_of(copy) == agent_of(tmp_path / "long")


def test_what_was_left_to_do_after_the_last_checkpoint_is_done(copy, finished):
    (copy / "summary.json").unlink()
    run = trained(copy, resume=True)
    assert agent_of(copy) == agent_of(finished)
    assert run.summary["evaluation"] == runs.read(finished).summary["evaluation"]


@pytest.mark.parametrize("given", ["mod:Name-v0", "Name-v0", "mod:Name", "Name"])
def test_an_environment_is_known_by_its_name(given, tmp_path):
    """With or without the module that registers it, and its version, as whoever begins may write it."""
    assert Settlement(tmp_path, {})._environment(given, "mod:Name-v0") == "mod:Name-v0"
    with pytest.raises(RunError, match="was begun with environment mod:Other-v0"):
        Settlement(tmp_path, {})._environment(given, "mod:Other-v0")


# -- damaged --------------------------------------------------------------------------------------


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, truncate, empty])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(copy, finished, damage, capsys):
    damage(copy / "agent.safetensors")
    trained(copy, resume=True)
    message = capsys.readouterr().err
    assert str(copy / "agent.safetensors") in message
    assert "damaged" in message
    assert "the checkpoint before is used" in message
    assert agent_of(copy) == agent_of(finished)
    SarsaAgent.load(copy / "agent.previous.safetensors")


def test_both_damaged(copy):
    flip(copy / "agent.safetensors")
    truncate(copy / "agent.previous.safetensors")
    before = contents(copy)
    with pytest.raises(RunError, match=r"agent\.safetensors .*checksum.*agent\.previous\.safetensors"):
        trained(copy, resume=True)
    assert contents(copy) == before


def test_the_newest_missing_is_no_damage(copy, finished, capsys):
    (copy / "agent.safetensors").unlink()
    trained(copy, resume=True)
    assert "damaged" not in capsys.readouterr().err
    assert agent_of(copy) == agent_of(finished)


def test_a_checkpoint_of_another_release_is_refused(copy, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 7)
    before = contents(copy)
    with pytest.raises(RunError, match=r"agent\.safetensors has format version 1; .* reads version 7"):
        trained(copy, resume=True)
    assert contents(copy) == before


def test_a_damaged_log_does_not_stop_a_run(copy, finished):
    unfinish(copy)
    lines = (copy / "progress.csv").read_text().split("\n")
    lines[-1] = "not,a,line\n"
    (copy / "progress.csv").write_text("\n".join(lines))
    trained(copy, resume=True)
    assert agent_of(copy) == agent_of(finished)


def test_a_damaged_file_is_not_kept_in_place_of_a_good_one(tmp_path):
    class Saved:
        def __init__(self, value):
            self.value = value

        def save(self, path):
            checkpoint.write(path, {}, {"value": self.value})

    def read(path):
        return checkpoint.read(path)[1]["value"]

    both = Checkpoints(tmp_path)
    both.save(Saved(1))
    both.save(Saved(2))
    flip(both.newest)
    again, said = Checkpoints(tmp_path), []
    assert again.load(read, said.append) == 1
    assert len(said) == 1
    assert (again.latest, both.latest) == (again.before, both.newest)
    again.save(Saved(3))
    assert (read(again.newest), read(again.before)) == (3, 1)
    again.save(Saved(4))
    assert (read(again.newest), read(again.before)) == (4, 3)
    assert again.latest == again.newest
    again.newest.unlink()
    assert again.latest == again.before
    again.before.unlink()
    assert again.latest is None


# -- refused --------------------------------------------------------------------------------------


def test_a_folder_with_a_run_is_refused_and_untouched(copy):
    before = contents(copy)
    with pytest.raises(RunError, match="--resume to continue it, or another --out"):
        trained(copy)
    assert contents(copy) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 4}, "seed 3, not 4"),
        ({"gamma": 0.5}, "gamma 0.97, not 0.5"),
        ({"agent_options": {"budget": 41}}, "budget 40, not 41"),
        ({"agent_options": {"method": "sarsa"}}, "method improving, not sarsa"),
        ({"env_arguments": {"sutton_barto_reward": True}}, r'arguments \{\}, not \{"sutton_barto_reward"'),
        ({"steps": 100}, "steps 420, not 100"),
    ],
)
def test_another_run_is_not_resumed(copy, changes, message):
    before = contents(copy)
    with pytest.raises(RunError, match=message):
        trained(copy, resume=True, **changes)
    assert contents(copy) == before


def test_another_environment_is_not_resumed(copy):
    with pytest.raises(RunError, match="environment CartPole-v1, not Acrobot-v1"):
        train("Acrobot-v1", out=copy, resume=True, **QUIET)


def test_a_checkpoint_of_another_environment_is_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    config["environment"]["id"] = "Acrobot-v1"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=r"agent\.safetensors is from another environment"):
        train("Acrobot-v1", out=copy, resume=True, **QUIET)


def test_a_checkpoint_of_another_run_is_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "seed": 9}))
    with pytest.raises(RunError, match=r"from another run: its seed is 3, config\.json says 9"):
        trained(copy, resume=True, seed=None)


def test_two_processes_do_not_train_in_one_folder(copy):
    fcntl = pytest.importorskip("fcntl")
    unfinish(copy)
    with open(copy / ".lock", "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = contents(copy)
        with pytest.raises(RunError, match=r"another process trains in .* holds .*\.lock"):
            trained(copy, resume=True)
        assert contents(copy) == before


def test_other_versions_are_mentioned(copy, capsys):
    config = json.loads((copy / "config.json").read_text())
    config["versions"]["numpy"] = "1.0"
    (copy / "config.json").write_text(json.dumps(config))
    trained(copy, resume=True)
    assert "begun with numpy 1.0 (now " in capsys.readouterr().err


# -- out of room ----------------------------------------------------------------------------------


def test_a_full_disk_leaves_what_was_saved(tmp_path, monkeypatch, finished):
    stop_after(monkeypatch, 2, OSError(errno.ENOSPC, "No space left on device"))
    folder = tmp_path / "run"
    with pytest.raises(RunError, match=r"agent\.safetensors: No space left on device; .* keeps step \d+"):
        trained(folder)
    monkeypatch.undo()
    assert SarsaAgent.load(folder / "agent.safetensors").num_timesteps >= 100
    trained(folder, resume=True)
    assert agent_of(folder) == agent_of(finished)


@pytest.fixture
def small_disk(tmp_path, finished):
    """A file system with room for the last checkpoint, and not for the one before it too; where one can be
    mounted."""
    size = 6 * (finished / "agent.safetensors").stat().st_size // 5 // 1024
    folder = tmp_path / "disk"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "mount") or libc.mount(b"none", bytes(folder), b"tmpfs", 0, b"size=%dk" % size) != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    libc.umount2(bytes(folder), 2)


def test_a_disk_that_fills_up(small_disk, tmp_path, finished):
    folder = small_disk / "run"
    with pytest.raises(RunError, match=r"run/.*: No space left on device; .* keeps step \d+"):
        trained(folder)
    assert not [name for name in os.listdir(folder) if name.endswith(".part")]
    step = SarsaAgent.load(folder / "agent.safetensors").num_timesteps
    assert step > 0
    larger = shutil.copytree(folder, tmp_path / "larger")
    trained(larger, resume=True)
    assert agent_of(larger) == agent_of(finished)


LIMITED = """
import resource, sys
from gpsarsa.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
sys.exit(main(sys.argv[1:]))
"""


def test_a_limit_on_files(tmp_path):
    pytest.importorskip("resource")
    command = ["train", "CartPole-v1", "--steps", "900", "--budget", "40", "--checkpoint-every", "50"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *command, "--out", "run", "--quiet", "--no-report"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(
        "gpsarsa: run/agent.safetensors: File too large; run/agent.safetensors keeps"
    )
    SarsaAgent.load(tmp_path / "run" / "agent.safetensors")


@pytest.fixture
def no_privileges():
    """Root may write anywhere, so be somebody else for a while."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


@pytest.fixture
def visible_folder():
    """One that others may look into, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_folder_that_cannot_be_written(finished, visible_folder, request):
    folder = shutil.copytree(finished, visible_folder / "run")
    unfinish(folder)
    folder.chmod(0o555)
    before = contents(folder)
    request.getfixturevalue("no_privileges")
    with pytest.raises(RunError, match=r"\.lock: Permission denied; nothing was changed"):
        trained(folder, resume=True)
    with pytest.raises(RunError, match="new: Permission denied; nothing was saved"):
        trained(folder / "new")
    assert contents(folder) == before
