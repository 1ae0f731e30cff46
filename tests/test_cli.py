"""The command line: what it prints, where, and its exit codes."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import third_party

from gpsarsa import checkpoint, cli, runs, training, video
from gpsarsa._version import __version__
from gpsarsa._words import plus_minus
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.runs import RunError
from gpsarsa.video import Video

TESTS = Path(__file__).parent
BRIEF = ["--quiet", "--no-report", "--evaluate-episodes", "2"]


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    """A finished run in an environment that can be filmed."""
    folder = tmp_path_factory.mktemp("probe") / "run"
    assert cli.main(["train", "third_party:Probe-v0", "--steps", "260", "--out", str(folder), *BRIEF]) == 0
    return folder


def process(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "gpsarsa", *arguments], cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS), "OPENBLAS_NUM_THREADS": "1", **environment},
    )  # fmt: skip


# -- in general -----------------------------------------------------------------------------------


def test_the_version(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"gpsarsa {__version__}\n"


@pytest.mark.parametrize("command", [[], ["train"], ["play"], ["report"]])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*command, "--help"])
    assert end.value.code == 0
    assert "example:\n  gpsarsa" in capsys.readouterr().out


def test_help_states_the_agents_defaults(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name in ("gamma", "budget", "method"):
        default = inspect.signature(SarsaAgent).parameters[name].default
        assert re.search(rf"--{name} (?:(?!--).)*\(default {default}\)", shown), name


def test_help_loads_neither_gymnasium_nor_matplotlib():
    code = "import sys, gpsarsa.cli as cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n"
    code += "print('loaded:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.partition("loaded:")[2].split()
    assert not {"gymnasium", "matplotlib", "gpsarsa.training", "scipy.optimize"} & set(loaded)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND (see gpsarsa --help)"),
        (["fly"], "invalid choice: 'fly'"),
        (["train"], "required: ENV (see gpsarsa train --help)"),
        (["train", "CartPole-v1", "--steps", "0"], "--steps: '0' is not a whole number, 1 or more"),
        (["train", "CartPole-v1", "--steps", "1e4"], "--steps: '1e4' is not a whole number"),
        (["train", "CartPole-v1", "--seed", "-1"], "--seed: '-1' is not a whole number, 0 or more"),
        (["train", "CartPole-v1", "--gamma", "1.5"], "--gamma: '1.5' is not a number in [0, 1]"),
        (["train", "CartPole-v1", "--gamma", "nan"], "--gamma: 'nan' is not"),
        (["train", "CartPole-v1", "--budget", "none"], "--budget: 'none' is not"),
        (["train", "CartPole-v1", "--method", "q"], "--method: invalid choice: 'q'"),
        (["train", "CartPole-v1", "--env-argument", "size"], "'size' is not NAME=VALUE"),
        (["train", "CartPole-v1", "--bogus"], "unrecognized arguments: --bogus"),
        (["play", "x", "--video", "a.gif", "--render"], "not allowed with argument"),
        (["play", "x", "--episodes", "0"], "--episodes: '0' is not"),
        (["report"], "required: DIR"),
    ],
)
def test_a_command_line_that_makes_no_sense(arguments, message, refused):
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=[1, 2]", [1, 2]), ("a=false", False), ("a=False", False), ("a=None", None),
     ("a=8x8", "8x8"), ("a=b=c", "b=c"), ("a=NaN", "NaN"), ("a=1e400", "1e400"), ("a=", "")],
)  # fmt: skip
def test_arguments_of_an_environment(text, value):
    assert cli._argument(text) == ("a", value)


def test_an_argument_too_deep_to_be_json_is_text():
    assert cli._argument("a=" + 50_000 * "[") == ("a", 50_000 * "[")


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [(-104.23, 1.31, "-104.2 ± 1.3"), (500.0, 0.0, "500 ± 0"), (3.25, None, "3.25"),
     (1234.5, 123.4, "1234 ± 123"), (0.01234, 0.00056, "0.01234 ± 0.00056"),
     (9.3, 1e-15, "9.3 ± 1e-15")],
)  # fmt: skip
def test_means_show_the_digits_that_count(mean, error, text):
    assert plus_minus(mean, error) == text


def test_a_process_of_its_own(tmp_path):
    """Where messages go, and a module that lies in the working directory."""
    shutil.copy(third_party.__file__, tmp_path / "mine.py")
    done = process(
        "train",
        "mine:Probe-v0",
        "--steps",
        "40",
        "--no-report",
        cwd=tmp_path,
        PYTHONPATH="",
        PYTHONSAFEPATH="1",
    )
    assert done.returncode == 0
    assert re.match(
        r"mine:Probe-v0: \S+ ± \S+ over 20 episodes after 40 steps\nrun: runs/Probe-v0-0\n", done.stdout
    )
    assert done.stderr.startswith("train ")
    failed = process("train", "mine:Probe-v0", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert failed.stderr == (
        "gpsarsa: runs/Probe-v0-0 holds a run already (config.json): "
        "--resume to continue it, or another --out\n"
    )


def test_nobody_reads_on(probe, tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m gpsarsa play {probe} --episodes 30 | head -1", shell=True, cwd=TESTS,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("episode 1: ")
    assert done.stderr == ""


def test_a_terminal_without_unicode(probe):
    done = process("play", str(probe), cwd=TESTS, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert re.search(r"mean: \S+ \? \S+ over 5 episodes", done.stdout)


# -- train ----------------------------------------------------------------------------------------


def test_training_writes_the_run(run, tmp_path):
    out = tmp_path / "run"
    settings = ["--seed", 2, "--budget", 30, "--gamma", 0.9, "--env-argument", "sutton_barto_reward=true"]
    code, printed, _ = run("train", "CartPole-v1", "--steps", 300, *settings, "--out", out, "--quiet")
    assert code == 0
    result, judged = r"CartPole-v1: \S+ ± \S+ over 20 episodes", r"\(threshold 475: not reached\)"
    assert re.match(rf"{result} {judged} after 300 steps\n", printed)
    assert f"run: {out}, report: {out}/report.html" in printed
    found = runs.read(out)
    assert found.config["environment"] == {"id": "CartPole-v1", "arguments": {"sutton_barto_reward": True}}
    assert (found.config["seed"], found.config["steps"], found.config["gamma"]) == (2, 300, 0.9)
    assert found.config["agent"]["budget"] == 30
    assert found.config["agent"]["method"] == "improving"
    assert set(found.config["versions"]) == {"python", "gpsarsa", "numpy", "scipy", "numba", "gymnasium"}
    assert found.summary["finished"]
    assert len(found.summary["evaluation"]["returns"]) == 20
    agent = SarsaAgent.load(out / "agent.safetensors")
    assert agent.num_timesteps == 300
    assert agent.episodes == len(found.progress["step"]) == found.summary["episodes"]


def test_quiet_is_quiet_and_progress_is_on_standard_error(run, tmp_path):
    _, _, messages = run("train", "CartPole-v1", "--steps", 40, "--out", tmp_path / "a", *BRIEF)
    assert messages == ""
    _, out, messages = run("train", "CartPole-v1", "--steps", 40, "--out", tmp_path / "b", *BRIEF[1:])
    assert messages.startswith("train ")
    assert "train" not in out


def test_resuming_needs_no_settings_again(run, tmp_path):
    out = tmp_path / "run"
    run("train", "CartPole-v1", "--steps", 60, "--seed", 5, "--budget", 33, "--out", out, *BRIEF)
    code, printed, messages = run("train", "CartPole", "--out", out, "--resume", *BRIEF)
    assert code == 0
    assert messages.endswith("is finished: 60 steps; more --steps extend it\n")
    assert "after 60 steps" in printed
    code, printed, _ = run("train", "CartPole-v1", "--out", out, "--resume", "--steps", 90, *BRIEF)
    assert code == 0
    assert "after 90 steps" in printed
    assert run("train", "CartPole-v1", "--out", out, "--resume", "--steps", 99, *BRIEF[1:])[2].startswith(
        f"gpsarsa: going on in {out} at step "
    )
    nowhere = ["--out", tmp_path / "typo", "--resume", "--steps", 30]
    assert (
        "holds no checkpoint to resume from; beginning"
        in run("train", "CartPole-v1", *nowhere, *BRIEF[1:])[2]
    )
    assert runs.read(out).config["seed"] == 5
    assert runs.read(out).config["agent"]["budget"] == 33


def test_plain_sarsa_and_tensorboard(run, tmp_path):
    pytest.importorskip("tensorboardX")
    out = tmp_path / "run"
    code, *_ = run(
        "train", "CartPole-v1", "--steps", 220, "--method", "sarsa", "--tensorboard", "--out", out, *BRIEF
    )
    assert code == 0
    assert SarsaAgent.load(out / "agent.safetensors").method == "sarsa"
    assert list((out / "tensorboard").glob("events.*"))


def test_the_default_folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("train", "third_party:Probe-v0", "--steps", 30, "--seed", 4, *BRIEF)[0] == 0
    assert (tmp_path / "runs" / "Probe-v0-4" / "config.json").exists()
    assert cli._default_folder("ALE/Pong-v5", 1) == os.path.join("runs", "ALE-Pong-v5-1")


SUPPORTED = [
    *((observation, "discrete") for observation in third_party.OBSERVATIONS if observation != "text"),
    *(("box", action) for action in third_party.ACTIONS if action != "discrete"),
    ("dict", "box"),
]


@pytest.mark.parametrize(("observation", "action"), SUPPORTED)
def test_every_supported_space(observation, action, run, tmp_path):
    spaces = ["--env-argument", f"observation={observation}", "--env-argument", f"action={action}"]
    out = tmp_path / "run"
    code, printed, _ = run(
        "train", "third_party:Probe-v0", *spaces, "--steps", 260, "--budget", 30, "--out", out, *BRIEF
    )
    assert code == 0
    assert "after 260 steps" in printed
    agent = SarsaAgent.load(out / "agent.safetensors")
    assert agent.model is not None
    assert agent.failures == 0
    assert run("play", out, "--episodes", 2)[0] == 0


def test_an_environment_that_does_not_exist(refused, tmp_path):
    out = ["--out", tmp_path / "run"]
    assert "there is no environment 'MountianCar-v0'; did you mean MountainCar-v0" in refused(
        "train", "MountianCar-v0", *out
    )
    assert "did you mean CartPole-v1" in refused("train", "cartpole-v1", *out)
    assert "module:Id-v0 imports" in refused("train", "Quux/Zork-v9", *out)
    assert "cannot be made: No module named 'no_such_module'" in refused("train", "no_such_module:X-v0", *out)
    assert "cannot be made: Malformed environment ID" in refused("train", "a b", *out)
    assert not (tmp_path / "run").exists()


def test_an_environment_that_cannot_be_made(refused, tmp_path):
    message = refused("train", "CartPole-v1", "--env-argument", "size=3", "--out", tmp_path / "run")
    assert "cannot be made: TypeError" in message
    assert "'size'" in message
    assert not (tmp_path / "run").exists()


def test_spaces_that_are_not_supported(refused, tmp_path):
    message = refused(
        "train", "third_party:Probe-v0", "--env-argument", "observation=text", "--out", tmp_path / "run"
    )
    assert "expected Box, Discrete" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("fault", "message"),
    [("raise", "env.step raised OSError: the robot fell over"), ("nan", "the reward is nan")],
)
def test_an_environment_that_fails_on_the_way(fault, message, refused, run, tmp_path):
    out = tmp_path / "my run"
    failing = [
        "train",
        "third_party:Probe-v0",
        "--env-argument",
        f"fault={fault}",
        "--env-argument",
        "at=120",
    ]
    said = refused(*failing, "--checkpoint-every", 50, "--steps", 200, "--out", out, *BRIEF)
    assert message in said
    assert re.search(r"after 1(19|20) steps", said)
    kept = int(re.search(r"agent\.safetensors keeps step (\d+)", said)[1])
    assert kept >= 50
    assert f"go on with: gpsarsa train third_party:Probe-v0 --out '{out}' --resume" in said
    assert SarsaAgent.load(out / "agent.safetensors").num_timesteps == kept


def test_a_failure_before_anything_is_saved(refused, tmp_path):
    failing = ["train", "third_party:Probe-v0", "--env-argument", "fault=raise", "--env-argument", "at=1"]
    assert "nothing was saved yet" in refused(*failing, "--out", tmp_path / "run", *BRIEF)


def test_an_environment_that_fails_in_evaluation(refused, run, tmp_path, monkeypatch):
    out, good = tmp_path / "run", training.make

    def make(env_id, arguments, **more):
        made.append(good(env_id, {"fault": "raise", "at": 10} if made else {}, **more))
        return made[-1]

    made = []
    monkeypatch.setattr(training, "make", make)
    said = refused("train", "third_party:Probe-v0", "--steps", 40, "--out", out, *BRIEF)
    assert "of evaluation episode 1: env.step raised OSError" in said
    assert "keeps step 40" in said
    monkeypatch.undo()
    assert run("train", "third_party:Probe-v0", "--resume", "--out", out, *BRIEF)[0] == 0


def test_episodes_that_do_not_end(run, tmp_path, monkeypatch):
    monkeypatch.setattr("gpsarsa.control.evaluation.LONGEST", 50)
    code, printed, _ = run(
        "train", "third_party:Endless-v0", "--steps", 30, "--out", tmp_path / "run", *BRIEF
    )
    assert code == 0
    assert "over 2 episodes, 2 of them cut off because they did not end, after 30 steps" in printed
    assert "50 steps, cut off because it did not end" in run("play", tmp_path / "run", "--episodes", 1)[1]


def test_files_in_the_way(refused, tmp_path):
    (tmp_path / "file").write_text("")
    assert re.search(
        "file: (File exists|Not a directory)",
        refused("train", "CartPole-v1", "--out", tmp_path / "file", *BRIEF),
    )
    assert "file/run: Not a directory" in refused(
        "train", "CartPole-v1", "--out", tmp_path / "file" / "run", *BRIEF
    )


def test_runs_that_cannot_be_resumed(refused, probe, tmp_path):
    out = shutil.copytree(probe, tmp_path / "run")
    resume = ["train", "third_party:Probe-v0", "--resume", "--out", out]
    assert "was begun with seed 0, not 1" in refused(*resume, "--seed", 1)
    assert "was begun with environment third_party:Probe-v0, not CartPole-v1" in refused(
        "train", "CartPole-v1", *resume[2:]
    )
    for name in ("agent.safetensors", "agent.previous.safetensors"):
        (out / name).write_bytes(b"nonsense")
    assert "agent.safetensors is damaged" in refused(*resume)
    (out / "config.json").write_text("{")
    assert "config.json is damaged" in refused(*resume)
    (out / "config.json").unlink()
    assert "config.json is not; restore it" in refused(*resume)


def test_a_checkpoint_of_another_release(refused, probe, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 9)
    resume = ["train", "third_party:Probe-v0", "--resume", "--out", probe]
    assert "has format version 1; this release reads version 9" in refused(*resume)
    assert "has format version 1" in refused("play", probe)


def test_without_matplotlib_training_goes_on(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, messages = run("train", "CartPole-v1", "--steps", 30, "--out", tmp_path / "run", "--quiet")
    assert code == 0
    assert "report.html was not written" in messages
    assert "gpsarsa[plot]" in messages
    assert "after 30 steps" in out


def test_without_tensorboardx(refused, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    message = refused("train", "CartPole-v1", "--tensorboard", "--out", tmp_path / "run")
    assert "pip install 'gpsarsa[tensorboard]'" in message
    assert not (tmp_path / "run").exists()


def test_an_interrupt(run, tmp_path, monkeypatch):
    def interrupted(self, *_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(SarsaAgent, "learn", interrupted)
    code, _, messages = run("train", "CartPole-v1", "--out", tmp_path / "run")
    assert code == 130
    assert messages == "gpsarsa: interrupted; nothing was saved yet\n"


def test_an_error_that_nobody_expects_is_not_hidden(monkeypatch, tmp_path):
    def broken(self, *_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(SarsaAgent, "learn", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["train", "CartPole-v1", "--out", str(tmp_path / "run")])


def test_a_policy_of_ones_own(tmp_path):
    options = {"policy": mostly_five, "budget": 20}
    brief = {"progress_bar": False, "report": False, "evaluate_episodes": 1, "out": tmp_path / "run"}
    training.train("third_party:Probe-v0", steps=60, agent_options=options, **brief)
    with pytest.raises(RunError, match="a policy of your own: pass it again"):
        training.train("third_party:Probe-v0", steps=90, resume=True, **brief)
    run = training.train("third_party:Probe-v0", steps=90, resume=True, agent_options=options, **brief)
    assert run.summary["steps"] == 90
    with pytest.raises(ValueError, match="agent_options key = 'model'"):
        training.train("third_party:Probe-v0", agent_options={"model": None}, **brief)
    with pytest.raises(ValueError, match=r"env_arguments = .* JSON can hold"):
        training.train("CartPole-v1", env_arguments={"x": {1}}, **{**brief, "out": tmp_path / "other"})


def mostly_five(decision):
    return 5


# -- play -----------------------------------------------------------------------------------------


def test_playing_prints_returns(run, probe):
    code, printed, messages = run("play", probe, "--episodes", 3)
    *lines, last = printed.strip().split("\n")
    assert code == 0
    assert messages == ""
    assert all(re.match(rf"episode {n}: return \S+, \d+ steps$", line) for n, line in enumerate(lines, 1))
    assert re.match(r"mean: \S+ ± \S+ over 3 episodes$", last)
    assert run("play", probe, "--episodes", 3)[1] == printed
    assert run("play", probe, "--episodes", 3, "--seed", 1)[1] != printed


def test_playing_with_a_damaged_checkpoint_uses_the_one_before(run, probe, tmp_path):
    out = shutil.copytree(probe, tmp_path / "run")
    shutil.copy(out / "agent.safetensors", out / "agent.previous.safetensors")
    (out / "agent.safetensors").write_bytes(b"nonsense")
    code, _, messages = run("play", out)
    assert code == 0
    assert "agent.safetensors is damaged" in messages
    assert "the checkpoint before is used" in messages


def test_a_gif(run, probe, tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "probe.GIF"
    code, printed, _ = run("play", probe, "--video", path)
    assert code == 0
    steps = int(re.search(r"(\d+) steps", printed)[1])
    assert printed.endswith(f"video: {path}\n")
    assert path.read_bytes()[:6] == b"GIF89a"
    with image.open(path) as film:
        assert film.n_frames == steps + 1
        assert film.size == (48, 32)
        assert film.info["duration"] == 40
    assert os.listdir(tmp_path) == ["probe.GIF"]


def test_an_mp4(run, probe, tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "probe.mp4"
    code, printed, _ = run("play", probe, "--video", path, "--episodes", 2)
    assert code == 0
    steps = sum(int(length) for length in re.findall(r"(\d+) steps", printed))
    assert path.read_bytes()[4:8] == b"ftyp"
    frames, seconds = ffmpeg.count_frames_and_secs(str(path))
    assert frames == steps + 2
    assert seconds == pytest.approx(frames / 25, abs=0.1)
    assert os.listdir(tmp_path) == ["probe.mp4"]


def test_a_film_of_pygame(run, tmp_path, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    out = tmp_path / "run"
    run("train", "CartPole-v1", "--steps", 30, "--out", out, *BRIEF)
    assert run("play", out, "--video", tmp_path / "pole.gif")[0] == 0
    assert (tmp_path / "pole.gif").stat().st_size > 1000
    assert run("play", out, "--render")[0] == 0


def test_videos_that_cannot_be_made(refused, run, probe, tmp_path, monkeypatch):
    assert "a video ends in .gif or .mp4" in refused("play", probe, "--video", tmp_path / "film.avi")
    assert "No such file or directory" in refused("play", probe, "--video", tmp_path / "no" / "film.gif")
    assert "has only rgb_array; " not in run("play", probe, "--render", "--episodes", 1)[2]
    run("train", "third_party:Endless-v0", "--steps", 30, "--out", tmp_path / "unseen", *BRIEF[:2],
        "--evaluate-episodes", 0)  # fmt: skip
    assert "Endless-v0 has no pictures at all; --render needs render mode 'human'" in refused(
        "play", tmp_path / "unseen", "--render"
    )
    assert "--video needs render mode 'rgb_array'" in refused("play", tmp_path / "unseen", "--video", "a.gif")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    for name in ("film.mp4", "film.gif"):
        message = refused("play", probe, "--video", tmp_path / name)
        assert "pip install 'gpsarsa[video]'" in message
    assert os.listdir(tmp_path) == ["unseen"]


def test_a_film_that_breaks_off_leaves_the_old_one(tmp_path):
    path = tmp_path / "film.gif"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), Video(path, 25) as film:  # noqa: PT012
        film.add(np.zeros((4, 4, 3), np.uint8))
        raise ZeroDivisionError
    with pytest.raises(RunError, match="picture is nothing"), Video(path, 25) as film:
        film.add(None)
    with Video(path, 25):
        pass
    assert os.listdir(tmp_path) == ["film.gif"]
    assert path.read_bytes() == b"old"
    with pytest.raises(OSError, match=r"none/film\.gif"):
        Video(tmp_path / "none" / "film.gif", 25)
    assert video.FPS == 30


def test_folders_that_cannot_be_played(refused, probe, tmp_path):
    assert "does not exist" in refused("play", tmp_path / "none")
    assert "holds no config.json" in refused("play", tmp_path)
    shutil.copy(probe / "config.json", tmp_path)
    assert "holds no agent yet" in refused("play", tmp_path)
    (tmp_path / "agent.safetensors").write_bytes(b"nonsense")
    assert "agent.safetensors is damaged" in refused("play", tmp_path)
    shutil.copy(probe / "agent.safetensors", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["environment"] = {"id": "CartPole-v1", "arguments": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = refused("play", tmp_path)
    assert "is from another environment" in message
    assert "observation space is another than the agent's" in message


# -- report ---------------------------------------------------------------------------------------


def test_a_report(run, probe, tmp_path):
    out = shutil.copytree(probe, tmp_path / "run")
    code, printed, _ = run("report", out)
    assert (code, printed) == (0, f"{out}/report.html\n")
    assert "<svg" in (out / "report.html").read_text() or "<img" in (out / "report.html").read_text()
    second = shutil.copytree(probe, tmp_path / "second")
    code, printed, _ = run("report", out, second, "--out", tmp_path / "both.html")
    assert (code, printed) == (0, f"{tmp_path}/both.html\n")
    for name in ("agent.safetensors", "agent.previous.safetensors"):
        (out / name).unlink(missing_ok=True)
    code, _, messages = run("report", out)
    assert code == 0
    assert "goes without pictures of the agent" in messages


def test_reports_that_cannot_be_written(refused, probe, tmp_path):
    assert "does not exist" in refused("report", tmp_path / "none")
    assert "is not a run's folder" in refused("report", tmp_path)
    assert "say which file" in refused("report", probe, probe)
    assert "cannot be written" in refused("report", probe, "--out", tmp_path / "no" / "page.html")
