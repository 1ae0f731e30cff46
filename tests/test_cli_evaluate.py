"""`gpsarsa evaluate` and `gpsarsa compare`: what they print, keep and refuse, and how they go on."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tables

from gpsarsa import SarsaAgent, checkpoint, cli, evaluating, offline, runs
from gpsarsa.offline import Evaluation
from gpsarsa.offline.engines import Ray
from gpsarsa.offline.evaluation import Reader
from gpsarsa.offline.recording import write_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FILES = 5
LENGTHS = [7, 12, 5, 30, 9, 16]
BRIEF = ["--gamma", "0.9", "--pseudo-inputs", "12", "--quiet"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A folder of several files, each a partition."""
    folder = tmp_path_factory.mktemp("logs")
    for number in range(FILES):
        write_table(folder / f"{number}.parquet", **tables.columns(LENGTHS, seed=number))
    return folder


@pytest.fixture(scope="module")
def kept(logs, tmp_path_factory):
    """A finished evaluation with its report."""
    folder = tmp_path_factory.mktemp("kept") / "evaluation"
    assert cli.main(["evaluate", str(logs), *BRIEF, "--out", str(folder)]) == 0
    return folder


def read_counted(monkeypatch):
    """The partitions that are read from now on."""
    read, original = [], Reader.__call__

    def counted(self, partition):
        read.append(partition.index)
        return original(self, partition)

    monkeypatch.setattr(Reader, "__call__", counted)
    return read


# ── results ──────────────────────────────────────────────────────────────────────────────────────────


def test_it_prints_the_value_with_its_intervals(run, logs):
    code, out, messages = run("evaluate", logs, *BRIEF)
    assert code == 0
    assert messages == ""
    value, interval, own, counts = out.rstrip("\n").split("\n")
    assert re.fullmatch(r"value: -?\d+\.\d+ ± \d+\.\d+, mean of 30 initial states", value)
    number = r"-?\d+\.?\d*"
    assert re.fullmatch(rf"90 % interval: {number} to {number} \(clustered by episode\)", interval)
    assert re.fullmatch(rf"the model's own: {number} to {number}", own)
    assert counts == f"{FILES * sum(LENGTHS)} transitions of 30 episodes; 0 rows left out"


def test_a_folder_holds_the_evaluation(kept):
    names = {path.name for path in kept.iterdir() if not path.name.startswith(".")}
    assert names == {"model.safetensors", "config.json", "summary.json", "report.html"}
    model = Evaluation.load(kept / "model.safetensors")
    config, summary = (json.loads((kept / name).read_text()) for name in ("config.json", "summary.json"))
    assert config["kind"] == "evaluation"
    assert config["settings"]["gamma"] == 0.9
    assert len(config["table"]) == FILES
    assert summary["mean"] == model.value
    assert summary["interval"] == list(model.interval(0.9))
    assert summary["posterior_interval"] == list(model.interval(0.9, "posterior"))
    assert summary["transitions"] == summary["rows"] == FILES * sum(LENGTHS)


def test_the_report_is_a_page_of_its_own(kept):
    page = (kept / "report.html").read_text()
    assert page.count("<figure>") == 3
    assert "Value of the policy" in page
    assert "Map of the uncertainty" in page
    assert not re.search(r'(src|href)="(?!data:)', page)


def test_files_one_by_one_are_the_folder(run, logs):
    one = run("evaluate", logs, *BRIEF)
    assert run("evaluate", *sorted(logs.iterdir()), *BRIEF) == one
    assert run("evaluate", logs / "*.parquet", *BRIEF) == one


def test_rows_left_out_are_counted(run, tmp_path):
    table = tables.columns(LENGTHS)
    table["next_action"] = np.ma.masked_array(table["next_action"], table["truncated"])
    write_table(tmp_path / "cut.parquet", **table)
    assert (
        "; 3 rows left out (truncated, without a next action)"
        in run("evaluate", tmp_path / "cut.parquet", *BRIEF)[1]
    )


@pytest.mark.filterwarnings("default")
def test_without_episodes_it_says_so(run, tmp_path):
    write_table(tmp_path / "loose.parquet", **tables.columns([40] * 5, chains=False))
    code, out, messages = run("evaluate", tmp_path / "loose.parquet", *BRIEF, "--out", tmp_path / "kept")
    assert code == 0
    assert "mean of all 200 states, for episodes are unknown" in out
    assert "(clustered by row)" in out
    assert messages == ""
    iid = run("evaluate", tmp_path / "loose.parquet", *BRIEF, "--noise", "iid")
    assert iid[2].startswith("gpsarsa: warning: the logged transitions look stochastic")


def test_one_column_and_one_state_have_reports_too(run, tmp_path):
    table = tables.columns(LENGTHS)
    for name in ("observation", "next_observation"):
        table[name] = table[name][:, 0]
    write_table(tmp_path / "one.parquet", **table)
    assert run("evaluate", tmp_path / "one.parquet", *BRIEF, "--out", tmp_path / "one")[0] == 0
    assert (tmp_path / "one" / "report.html").read_text().count("<figure>") == 2


def test_no_report_on_request(run, logs, tmp_path):
    code, out, _ = run("evaluate", logs, *BRIEF, "--out", tmp_path / "kept", "--no-report")
    assert code == 0
    assert not (tmp_path / "kept" / "report.html").exists()
    assert out.rstrip("\n").endswith(f"evaluation: {tmp_path / 'kept'}")


def test_progress_goes_to_standard_error(run, logs):
    code, out, messages = run("evaluate", logs, *BRIEF[:-1])
    assert code == 0
    assert "rows/s" in messages
    assert "rows/s" not in out


def test_a_bootstrap_on_request(run, logs, tmp_path):
    code, out, _ = run("evaluate", logs, *BRIEF, "--bootstrap", "30", "--out", tmp_path / "kept")
    assert code == 0
    number = r"-?\d+\.?\d*"
    assert re.search(rf"^bootstrap: {number} to {number} \(30 replicates\)$", out, re.MULTILINE)
    summary = json.loads((tmp_path / "kept" / "summary.json").read_text())
    model = Evaluation.load(tmp_path / "kept" / "model.safetensors")
    assert summary["bootstrap"] == len(model.replicates) == 30
    assert summary["bootstrap_interval"] == list(model.interval(0.9, "bootstrap"))
    assert "Bootstrap over episodes, 30 replicates" in (tmp_path / "kept" / "report.html").read_text()


def test_one_episode_has_no_interval(run, tmp_path):
    write_table(tmp_path / "one.parquet", **tables.columns([60]))
    code, out, _ = run("evaluate", tmp_path / "one.parquet", *BRIEF, "--out", tmp_path / "kept")
    assert code == 0
    assert "90 % interval: unknown (clustered by episode)" in out
    summary = json.loads((tmp_path / "kept" / "summary.json").read_text())
    assert (summary["standard_error"], summary["interval"]) == (None, [None, None])
    assert (tmp_path / "kept" / "report.html").exists()


# ── the report anew ──────────────────────────────────────────────────────────────────────────────────


def test_the_report_is_written_anew(run, kept, tmp_path):
    page = (kept / "report.html").read_text()
    (kept / "report.html").unlink()
    assert run("report", kept) == (0, f"{kept / 'report.html'}\n", "")
    again = (kept / "report.html").read_text()
    assert again.count("<figure>") == page.count("<figure>")
    assert run("report", kept, "--out", tmp_path / "other.html")[0] == 0
    assert (tmp_path / "other.html").read_text().count("<figure>") == page.count("<figure>")


def test_the_report_of_a_target_policy_is_written_anew(run, trained, tmp_path):
    how = ["--gamma", "0.9", "--pseudo-inputs", "20", "--quiet", "--no-report"]
    out = tmp_path / "out"
    policy = ["--target-policy", trained / "run"]
    assert run("evaluate", trained / "random.parquet", *how, *policy, "--out", out)[0] == 0
    assert run("report", out)[0] == 0
    assert (out / "report.html").read_text().count("<figure>") == 3


def test_reports_that_cannot_be_written_anew(run, refused, kept, logs, trained, tmp_path):
    assert "an evaluation has a report of its own; give one folder" in refused(
        "report", kept, trained / "run"
    )
    table = tmp_path / "logs.parquet"
    write_table(table, **tables.columns(LENGTHS))
    out = tmp_path / "out"
    assert run("evaluate", table, *BRIEF, "--out", out, "--no-report")[0] == 0
    write_table(table, **tables.columns(LENGTHS[:-1]))
    fewer, rows = sum(LENGTHS[:-1]), sum(LENGTHS)
    assert f"from its table, which has {fewer} rows now and had {rows}" in refused("report", out)
    table.unlink()
    assert "from its table, which cannot be read" in refused("report", out)
    (out / "summary.json").unlink()
    assert "is not finished" in refused("report", out)
    assert not (out / "report.html").exists()


# ── a target policy ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run and a log of its environment."""
    from gpsarsa.offline import record

    folder = tmp_path_factory.mktemp("trained")
    brief = ["--quiet", "--no-report", "--evaluate-episodes", "1"]
    assert cli.main(["train", "CartPole-v1", "--steps", "400", "--out", str(folder / "run"), *brief]) == 0
    record("CartPole-v1", None, folder / "random.parquet", episodes=15, seed=0)
    return folder


def test_the_policy_of_a_run_is_evaluated(run, trained, tmp_path):
    log = trained / "random.parquet"
    how = ["--gamma", "0.9", "--pseudo-inputs", "20", "--quiet"]
    code, out, _ = run(
        "evaluate", log, *how, "--target-policy", trained / "run", "--out", tmp_path / "a", "--no-report"
    )
    assert code == 0
    file = trained / "run" / "agent.safetensors"
    assert run("evaluate", log, *how, "--target-policy", file)[1] in out
    assert run("evaluate", log, *how)[1] not in out


def test_a_target_policy_has_a_report(run, trained, tmp_path):
    code, *_ = run(
        "evaluate", trained / "random.parquet", "--gamma", "0.9", "--pseudo-inputs", "20", "--quiet",
        "--target-policy", trained / "run", "--out", tmp_path / "a",
    )  # fmt: skip
    assert code == 0
    assert (tmp_path / "a" / "report.html").exists()


def test_an_agent_that_learnt_nothing_is_no_policy(refused, trained, tmp_path):
    agent = SarsaAgent(gymnasium.make("CartPole-v1"), seed=0).learn(30)
    agent.save(tmp_path / "agent.safetensors")
    out = tmp_path / "out"
    message = refused(
        "evaluate", trained / "random.parquet", *BRIEF, "--out", out,
        "--target-policy", tmp_path / "agent.safetensors",
    )  # fmt: skip
    assert "agent.safetensors has learnt nothing in its 30 steps and acts at random; train it for" in message
    assert not out.exists()


def test_target_policies_that_cannot_be_asked(refused, logs, trained, tmp_path):
    assert "does not exist" in refused("evaluate", logs, *BRIEF, "--target-policy", tmp_path / "nowhere")
    assert "observations of 4 numbers; the table's have 2" in refused(
        "evaluate", logs, *BRIEF, "--target-policy", trained / "run"
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no agent" in refused("evaluate", logs, *BRIEF, "--target-policy", empty)
    (tmp_path / "text").write_text("hello")
    assert "damaged or not a checkpoint" in refused(
        "evaluate", logs, *BRIEF, "--target-policy", tmp_path / "text"
    )


# ── going on ─────────────────────────────────────────────────────────────────────────────────────────

DYING = """
import os, signal, sys
from gpsarsa import checkpoint, cli
write, left = checkpoint.write, [int(sys.argv[1])]

def dying(path, arrays, content):
    write(path, arrays, content)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

checkpoint.write = dying
cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize("after", [2, FILES + 3])
def test_a_killed_evaluation_goes_on(run, logs, kept, tmp_path, monkeypatch, after):
    out = tmp_path / "kept"
    arguments = ["evaluate", str(logs), *BRIEF, "--out", str(out), "--workers", "1"]
    died = subprocess.run([sys.executable, "-c", DYING, str(after), *arguments], capture_output=True)
    assert died.returncode == -signal.SIGKILL
    assert not (out / "summary.json").exists()
    assert len(list((out / "partial").glob("*.safetensors"))) == after
    read = read_counted(monkeypatch)
    code, printed, _ = run(*arguments, "--resume")
    assert code == 0
    assert len(read) == 2 * FILES - after
    assert not (out / "partial").exists()
    found, expected = (evaluating.read(folder).summary for folder in (out, kept))
    assert all(found[name] == expected[name] for name in ("mean", "standard_error", "posterior_std"))
    assert printed.startswith("value: ")


LOST = """
import os, signal, sys
from gpsarsa import cli
from gpsarsa.offline.engines import Ray
run, left = Ray.run, [int(sys.argv[1])]

def dying(self, task, partitions, read, *, work, done):
    def told(number, kept):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return run(self, task, partitions, read, work=work, done=told)

Ray.run = dying
cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize("after", [FILES + 2])
def test_a_killed_driver_of_ray_goes_on(run, logs, kept, tmp_path, monkeypatch, after):
    ray = pytest.importorskip("ray")
    out, told, original = tmp_path / "kept", [], Ray.run

    def counting(self, task, partitions, read, *, work, done):
        return original(self, task, partitions, read, work=work, done=lambda *of: told.append(of))

    arguments = ["evaluate", str(logs), *BRIEF, "--out", str(out), "--engine", "ray", "--workers", "1"]
    died = subprocess.run([sys.executable, "-c", LOST, str(after), *arguments], capture_output=True)
    assert died.returncode == -signal.SIGKILL
    assert not (out / "summary.json").exists()
    monkeypatch.setattr(Ray, "run", counting)
    try:
        code, *_ = run(*arguments, "--resume", "--no-report")
    finally:
        ray.shutdown()
    assert code == 0
    assert after <= sum(known for _, known in told) < len(told) == 2 * FILES
    found, expected = (evaluating.read(folder).summary for folder in (out, kept))
    for name in ("mean", "standard_error", "posterior_std"):
        assert found[name] == pytest.approx(expected[name], rel=1e-9)


def test_the_pace_after_a_resumption_is_that_of_what_was_read(logs, tmp_path, capsys):
    how = {"gamma": 0.9, "pseudo_inputs": 12, "work": tmp_path, "progress_bar": True}
    offline.evaluate(logs, **how)
    rows = FILES * sum(LENGTHS)
    assert "kept from before" not in capsys.readouterr().err
    offline.evaluate(logs, **how)
    last = capsys.readouterr().err.rstrip("\n").split("\n")[-1]
    assert last.startswith(f"errors {rows}/{rows} ")
    assert last.endswith(f" {rows} rows kept from before")


def test_a_finished_evaluation_is_read_not_repeated(run, logs, kept, monkeypatch):
    read = read_counted(monkeypatch)
    code, out, messages = run("evaluate", logs, *BRIEF, "--out", kept, "--resume")
    assert code == 0
    assert read == []
    assert "is finished" in messages
    assert f"evaluation: {kept}" in out


def test_resume_where_nothing_is_begins(run, logs, tmp_path):
    out = tmp_path / "new"
    assert run("evaluate", logs, *BRIEF, "--out", out, "--resume", "--no-report")[0] == 0
    assert (out / "summary.json").exists()


def test_other_settings_are_not_taken_up(refused, logs, kept):
    again = ["evaluate", logs, "--quiet", "--out", kept, "--resume", "--pseudo-inputs", "12"]
    assert "was begun with gamma 0.9, not 0.8" in refused(*again, "--gamma", "0.8")
    assert "was begun with seed 0, not 4" in refused(*again, "--gamma", "0.9", "--seed", "4")
    assert "was begun with other files" in refused(
        "evaluate", logs / "0.parquet", *BRIEF, "--out", kept, "--resume"
    )


def test_settings_that_were_refused_do_not_take_the_folder(run, refused, tmp_path):
    write_table(tmp_path / "loose.parquet", **tables.columns([40] * 5, chains=False))
    given = ["evaluate", tmp_path / "loose.parquet", *BRIEF, "--out", tmp_path / "kept"]
    assert "noise='auto'" in refused(*given, "--noise", "correlated")
    assert not (tmp_path / "kept" / "config.json").exists()
    assert run(*given)[0] == 0


def test_an_evaluation_of_a_target_policy_goes_on(run, trained, tmp_path, monkeypatch):
    read = read_counted(monkeypatch)
    given = [
        "evaluate",
        trained / "random.parquet",
        *BRIEF,
        "--target-policy",
        trained / "run",
        "--no-report",
    ]

    def unfinished(self, result):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(evaluating._Folder, "keep", unfinished)
        assert run(*given, "--out", tmp_path / "kept")[0] == 130
    assert read
    read.clear()
    assert run(*given, "--out", tmp_path / "kept", "--resume")[0] == 0
    assert read == []


def test_folders_of_another_kind_are_refused(refused, logs, kept, trained, tmp_path):
    again = ["evaluate", logs, *BRIEF, "--out"]
    assert "holds an evaluation already: --resume to go on" in refused(*again, kept)
    assert "holds something else" in refused(*again, trained / "run")
    assert "holds something else" in refused(*again, logs, "--resume")
    (tmp_path / "file").write_text("")
    assert "is a file, not a folder" in refused(*again, tmp_path / "file")
    assert not (logs / "config.json").exists()


def test_one_at_a_time(refused, logs, tmp_path):
    with runs.locked(tmp_path, "evaluates"):
        assert "another process evaluates in" in refused("evaluate", logs, *BRIEF, "--out", tmp_path)


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def bad(tmp_path):
    """A table with columns changed."""

    def make(**changes):
        table = pa.table({name: c.tolist() for name, c in tables.columns(LENGTHS).items()})
        for name, change in changes.items():
            at = table.column_names.index(name)
            if change is None:
                table = table.remove_column(at)
            elif isinstance(change, str):
                table = table.rename_columns([change if n == name else n for n in table.column_names])
            else:
                table = table.set_column(at, name, pa.array(change))
        pq.write_table(table, tmp_path / "bad.parquet")
        return tmp_path / "bad.parquet"

    return make


def test_tables_that_cannot_be_used(refused, bad, tmp_path):
    assert "reward" in refused("evaluate", bad(reward=None), *BRIEF)
    assert "terminatd" in refused("evaluate", bad(terminated="terminatd"), *BRIEF)
    rewards = tables.columns(LENGTHS)["reward"].tolist()
    rewards[17] = float("nan")
    message = refused("evaluate", bad(reward=rewards), *BRIEF)
    assert "bad.parquet, row 17: reward = nan; expected a finite number" in message
    rewards[17] = 1e200
    assert "the reward 1e+200 is too large" in refused("evaluate", bad(reward=rewards), *BRIEF)
    path = bad()
    path.write_bytes(path.read_bytes()[:-100])
    assert "damaged, incomplete or no Parquet file" in refused("evaluate", path, *BRIEF)
    path.write_bytes(b"")
    assert "damaged, incomplete or no Parquet file" in refused("evaluate", path, *BRIEF)
    pq.write_table(pq.read_table(bad()).slice(0, 0), tmp_path / "none.parquet")
    assert "has no rows" in refused("evaluate", tmp_path / "none.parquet", *BRIEF)
    assert "does not exist" in refused("evaluate", tmp_path / "nowhere.parquet", *BRIEF)
    loose = bad(step=None, episode=None)
    assert "no columns episode and step" in refused("evaluate", loose, *BRIEF, "--noise", "correlated")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(refused, bad):
    path = bad()
    path.chmod(0)
    assert "no permission to read it" in refused("evaluate", path, *BRIEF)


def test_a_file_that_may_not_be_opened(refused, bad, monkeypatch):
    def forbidden(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    path = bad()
    monkeypatch.setattr(pq, "ParquetFile", forbidden)
    assert "no permission to read it" in refused("evaluate", path, *BRIEF)


def test_a_full_disk_keeps_what_was_finished(refused, run, logs, tmp_path, monkeypatch):
    write, out = checkpoint.write, tmp_path / "kept"
    left = [3]

    def full(path, arrays, content):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, arrays, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", full)
        message = refused("evaluate", logs, *BRIEF, "--out", out, "--workers", "1")
    assert "No space left on device; what was finished is kept: --resume goes on" in message
    read = read_counted(monkeypatch)
    assert run("evaluate", logs, *BRIEF, "--out", out, "--resume", "--no-report")[0] == 0
    assert len(read) == 2 * FILES - 3


def test_a_folder_that_cannot_be_made(refused, logs, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written: Not a directory" in refused(
        "evaluate", logs, *BRIEF, "--out", tmp_path / "file" / "kept"
    )


def test_ray_that_is_missing_or_silent(refused, logs, monkeypatch):
    pytest.importorskip("ray")
    ray = [*BRIEF, "--engine", "ray"]
    assert "Ray cannot be reached at 127.0.0.1:1" in refused(
        "evaluate", logs, *ray, "--address", "127.0.0.1:1"
    )
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "Ray is not installed" in refused("evaluate", logs, *ray)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pseudo-inputs", "5"], "the following arguments are required: --gamma"),
        (["--gamma", "2"], "'2' is not a number in [0, 1]"),
        (["--gamma", "0.9", "--pseudo-inputs", "0"], "'0' is not a whole number, 1 or more"),
        (["--gamma", "0.9", "--engine", "spark"], "invalid choice: 'spark'"),
        (["--gamma", "0.9", "--prior-mean", "inf"], "'inf' is not a finite number"),
        (["--gamma", "0.9", "--address", "host:1"], "--address is for --engine ray"),
        (["--gamma", "0.9", "--resume"], "--resume needs --out"),
        (["--gamma", "0.9", "--bootstrap", "5"], "--bootstrap 5 is too few; expected 20 or more"),
        (["--gamma", "0.9", "--noise", "correlated", "--target-policy", "a"], "leave out --target-policy"),
        (["minari:a/b-v0", "--gamma", "0.9"], "a Minari dataset is evaluated alone"),
    ],
)
def test_command_lines_that_make_no_sense(refused, logs, arguments, message):
    assert message in refused("evaluate", logs, *arguments)


# ── comparison ───────────────────────────────────────────────────────────────────────────────────────


def test_evaluations_are_compared(run, kept, tmp_path):
    table = tables.columns(LENGTHS, seed=9)
    table["reward"] += 1.0
    write_table(tmp_path / "better.parquet", **table)
    better = tmp_path / "better"
    assert run("evaluate", tmp_path / "better.parquet", *BRIEF, "--out", better, "--no-report")[0] == 0
    code, out, messages = run("compare", kept, better)
    assert code == 0
    assert messages == ""
    first, second, verdict = out.rstrip("\n").split("\n")
    assert first.startswith(str(better))
    assert second.startswith(str(kept))
    assert "90 % interval" in first
    assert re.fullmatch(rf"{better} is better than {kept} with probability (0\.\d+|1\.000)", verdict)


def test_comparisons_that_make_no_sense(refused, run, kept, logs, trained, tmp_path):
    assert "nothing to be compared with" in refused("compare", kept)
    assert "nothing to be compared with" in refused("compare", kept, f"{kept}/")
    assert "does not exist" in refused("compare", kept, tmp_path / "nowhere")
    assert "holds no evaluation" in refused("compare", kept, trained / "run")
    other = tmp_path / "other"
    how = ["--gamma", "0.5", "--pseudo-inputs", "5", "--quiet", "--no-report"]
    assert run("evaluate", logs, *how, "--out", other)[0] == 0
    assert "different discounts do not compare" in refused("compare", kept, other)
    (other / "model.safetensors").write_bytes(b"nonsense")
    assert "damaged" in refused("compare", kept, other)
    (other / "summary.json").unlink()
    assert "is not finished" in refused("compare", kept, other)


def test_an_evaluation_is_no_run(refused, kept):
    assert "holds an evaluation, not a training run" in refused("play", kept)
