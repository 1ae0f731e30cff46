"""A run's folder: every damage is named, half-written files are read, and writing is atomic."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsarsa.runs import COLUMNS, Log, RunError, read, read_all, write_json, write_text

CONFIG = {
    "environment": {"id": "CartPole-v1", "arguments": {}},
    "seed": 0,
    "steps": 1000,
    "gamma": 0.97,
    "agent": {"budget": 300},
    "versions": {"gpsarsa": "0.3.0"},
}
EVALUATION = {"episodes": 20, "mean": 1.5, "standard_error": 0.1, "returns": [1.0, 2.0], "threshold": None}
SUMMARY = {"steps": 1000, "episodes": 3, "finished": True, "evaluation": EVALUATION, "seconds": 2.5}
HEADER = ",".join(COLUMNS)


def row(episode, **changes):
    given = {
        "step": 10 * episode + 10,
        "episode": episode,
        "return": -1 / 3,
        "length": 10,
        "terminated": True,
        "role": "explore",
        "predicted": 0.1,
        "predicted_std": 1e-17,
        "discounted": -0.3,
        "pseudo_inputs": np.int64(7),
        "log_evidence": None,
        "noise_variance": float("nan"),
        "seconds": 1.25,
    }
    return given | changes


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path / "run")


def make(folder, episodes=3):
    folder.mkdir(parents=True)
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "summary.json", SUMMARY)
    with Log(folder / "progress.csv", keep=0) as log:
        for episode in range(episodes):
            log.append(row(episode))
    return folder


# -- reading --------------------------------------------------------------------------------------


def test_what_is_written_is_read_back(folder):
    run = read(folder)
    assert (run.config, run.summary, run.folder) == (CONFIG, SUMMARY, folder)
    assert tuple(run.progress) == COLUMNS
    np.testing.assert_array_equal(run.progress["step"], [10.0, 20.0, 30.0])
    np.testing.assert_array_equal(run.progress["return"], [-1 / 3] * 3)
    np.testing.assert_array_equal(run.progress["predicted_std"], [1e-17] * 3)
    np.testing.assert_array_equal(run.progress["terminated"], [1.0] * 3)
    assert run.progress["role"].tolist() == ["explore"] * 3
    assert np.isnan(run.progress["log_evidence"]).all()
    assert np.isnan(run.progress["noise_variance"]).all()
    assert read(str(folder)).config == CONFIG


def test_a_run_that_has_only_begun(folder):
    (folder / "summary.json").unlink()
    (folder / "progress.csv").unlink()
    run = read(folder)
    assert run.summary is None
    assert {len(array) for array in run.progress.values()} == {0}
    write_json(folder / "summary.json", SUMMARY | {"evaluation": None})
    assert read(folder).summary["evaluation"] is None


def test_folders_that_are_no_runs(tmp_path):
    with pytest.raises(RunError, match="nowhere does not exist; give the folder"):
        read(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file is a file, not a folder"):
        read(tmp_path / "file")
    with pytest.raises(RunError, match=r"is not a run's folder: it holds no config\.json"):
        read(tmp_path)
    with pytest.raises(RunError, match=r"neither it nor a folder in it holds a config\.json"):
        read_all([tmp_path])
    with pytest.raises(RunError, match="no folder was given"):
        read_all([])
    with pytest.raises(RunError, match="nowhere does not exist"):
        read_all([tmp_path / "nowhere"])


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged: it is no JSON"),
        (b'{"seed": 0, "environ', "is damaged: it is no JSON"),
        (b"\xff\xfe{}", "is damaged: it is no JSON"),
        (b"[" * 100_000, "is damaged: it is no JSON"),
        (b"[1, 2]", "is damaged: it holds no JSON object"),
        (b"{}", "is damaged: .* is missing, expected"),
    ],
)
def test_damaged_json(folder, name, content, message):
    (folder / name).write_bytes(content)
    with pytest.raises(RunError, match=rf"{name} {message}"):
        read(folder)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("config", "environment", "CartPole-v1", "environment is 'CartPole-v1', expected an object"),
        ("config", "environment", {"id": 3, "arguments": {}}, "environment.id is 3, expected a string"),
        ("config", "seed", "0", "seed is '0', expected a whole number"),
        ("config", "steps", -1, "steps is -1, expected a whole number"),
        ("config", "gamma", 1.5, r"gamma is 1.5, expected a number in \[0, 1\]"),
        ("config", "agent", None, "agent is None, expected an object"),
        ("summary", "finished", 1, "finished is 1, expected true or false"),
        pytest.param("summary", "seconds", 10**400, "seconds is 10+, expected a number", id="no double"),
        ("summary", "evaluation", 3, "evaluation is 3, expected an object or null"),
        ("summary", "evaluation", EVALUATION | {"mean": None}, "evaluation.mean is None, expected a number"),
    ],
)
def test_json_that_makes_no_sense(folder, name, key, value, message):
    document = {"config": CONFIG, "summary": SUMMARY}[name] | {key: value}
    (folder / f"{name}.json").write_text(json.dumps(document))
    with pytest.raises(RunError, match=rf"{name}\.json is damaged: {message}"):
        read(folder)


@pytest.mark.parametrize("header", ["", "step,episode\n", HEADER.upper() + "\n"])
def test_a_wrong_header(folder, header):
    (folder / "progress.csv").write_text(header)
    with pytest.raises(RunError, match=r"progress\.csv has the header .*; expected 'step,episode,"):
        read(folder)
    with pytest.raises(RunError, match="move it away"):
        Log(folder / "progress.csv", keep=1)


@pytest.mark.parametrize(
    ("column", "word", "message"),
    [
        ("return", "x", "return = 'x'; expected a number"),
        ("return", "", "return = ''; expected a number"),
        ("return", "nan", "return = 'nan'; expected a number"),
        ("discounted", "inf", "discounted = 'inf'; expected a number"),
        ("step", "1.5", "step = '1.5'; expected a whole number"),
        ("length", "-1", "length = '-1'; expected a whole number"),
        ("role", "king", "role = 'king'; expected one of 'explore', 'trial', 'incumbent', 'random'"),
        ("seconds", "1,2", "it has 14 values, expected 13"),
        ("seconds", "é", "it is not text"),
    ],
)
def test_a_bad_line_is_named(folder, column, word, message):
    path = folder / "progress.csv"
    header, first, second, third = path.read_text().splitlines()
    words = second.split(",")
    words[COLUMNS.index(column)] = word
    path.write_text("\n".join([header, first, ",".join(words), third]) + "\n")
    with pytest.raises(RunError, match=rf"progress\.csv, line 3: {message}; remove the line"):
        read(folder)


def test_a_killed_run_is_read_to_its_last_whole_line(folder):
    path = folder / "progress.csv"
    data = path.read_bytes()
    whole = read(folder).progress["step"]
    ends = [i for i, byte in enumerate(data) if byte == ord("\n")]
    for length in range(ends[0] + 1, len(data)):
        path.write_bytes(data[:length])
        expected = sum(end < length for end in ends) - 1
        np.testing.assert_array_equal(read(folder).progress["step"], whole[:expected])
    path.write_bytes(data + b"\0\xff" * 40)  # what a power cut may leave
    np.testing.assert_array_equal(read(folder).progress["step"], whole)
    path.write_bytes(data.replace(b"\n", b"\r\n"))
    np.testing.assert_array_equal(read(folder).progress["step"], whole)


def test_a_file_that_cannot_be_read_is_named(folder):
    (folder / "summary.json").unlink()
    (folder / "summary.json").mkdir()
    with pytest.raises(RunError, match=r"summary\.json cannot be read: Is a directory"):
        read(folder)


def test_all_runs_in_natural_order_and_each_once(tmp_path):
    for seed in (10, 2, 1):
        make(tmp_path / "all" / f"seed-{seed}")
    (tmp_path / "all" / "notes").mkdir()
    (tmp_path / "all" / "notes.txt").touch()
    names = [run.folder.name for run in read_all([tmp_path / "all"])]
    assert names == ["seed-1", "seed-2", "seed-10"]
    again = read_all(
        [tmp_path / "all" / "seed-2", tmp_path / "all", tmp_path / "all" / ".." / "all" / "seed-1"]
    )
    assert len(again) == 3
    assert [run.folder.name for run in read_all(tmp_path / "all" / "seed-2")] == ["seed-2"]
    make(tmp_path / "all" / "broken")
    (tmp_path / "all" / "broken" / "config.json").write_text("{")
    with pytest.raises(RunError, match=r"broken.config\.json is damaged"):
        read_all(tmp_path / "all")


# -- the log --------------------------------------------------------------------------------------


def test_a_line_is_there_as_soon_as_it_is_appended(tmp_path):
    path = tmp_path / "progress.csv"
    with Log(path, keep=0) as log:
        assert path.read_text() == HEADER + "\n"
        log.append(row(0))
        assert (
            path.read_text().splitlines()[1]
            == "10,0,-0.3333333333333333,10,1,explore,0.1,1e-17,-0.3,7,,,1.25"
        )
        log.sync()
        log.append({name: value for name, value in row(1).items() if name != "log_evidence"})
    assert len(path.read_text().splitlines()) == 3
    with pytest.raises(ValueError, match="closed"):
        log.append(row(2))


@pytest.mark.parametrize("tail", ["", "30,2,-1", "garbage\n", "\0\0\0", "é\n"])
def test_a_resumed_log_goes_on_where_the_checkpoint_was(folder, tail):
    path = folder / "progress.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines) + tail)
    with Log(path, keep=2) as log:
        assert path.read_text() == "".join(lines[:3])
        log.append(row(2, role="trial"))
    assert read(folder).progress["role"].tolist() == ["explore", "explore", "trial"]
    with Log(path, keep=0):
        pass
    assert path.read_text() == HEADER + "\n"


def test_a_log_with_too_few_lines_says_so(folder):
    path = folder / "progress.csv"
    path.write_text("\n".join([*path.read_text().splitlines()[:3], "bad", "30,2", ""]))
    with pytest.warns(UserWarning, match=r"holds 2 good lines, fewer than the 5 episodes"):
        Log(path, keep=5).close()
    assert len(read(folder).progress["step"]) == 2
    path.unlink()
    with pytest.warns(UserWarning, match="holds 0 good lines"):
        Log(path, keep=1).close()
    assert path.read_text() == HEADER + "\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": 1}, "row has the key 'extra'"),
        ({"return": None}, "row has no 'return'"),
        ({"return": float("nan")}, "return = nan; expected a finite number"),
        ({"step": 1.5}, "step = 1.5; expected a whole number"),
        ({"length": -1}, "length = -1; expected a whole number"),
        ({"role": "a,b\n"}, "role = 'a,b\\\\n'; expected one of"),
    ],
)
def test_a_bad_row_is_refused_and_leaves_no_trace(tmp_path, changes, message):
    path = tmp_path / "progress.csv"
    with Log(path, keep=0) as log:
        with pytest.raises(ValueError, match=message):
            log.append(row(0, **changes))
        log.append(row(0))
    assert len(path.read_text().splitlines()) == 2
    with pytest.raises(TypeError, match=r"keep = 1\.5; expected a whole number"):
        Log(path, keep=1.5)


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(value=numbers, predicted=st.one_of(st.none(), numbers), step=st.integers(0, 2**50))
def test_every_number_comes_back_as_it_was(tmp_path_factory, value, predicted, step):
    folder = tmp_path_factory.mktemp("numbers")
    write_json(folder / "config.json", CONFIG)
    with Log(folder / "progress.csv", keep=0) as log:
        log.append(row(0, **{"return": value, "predicted": predicted, "step": step}))
    progress = read(folder).progress
    assert progress["return"][0] == value
    assert progress["step"][0] == step
    np.testing.assert_array_equal(progress["predicted"][0], np.nan if predicted is None else predicted)


# -- writing --------------------------------------------------------------------------------------


def full_disk(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_files(folder, name, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(os, name, full_disk)
        for write in (
            lambda: write_text(folder / "config.json", "new"),
            lambda: write_json(folder / "summary.json", {}),
            lambda: Log(folder / "progress.csv", keep=0),
        ):
            with pytest.raises(OSError, match="No space left"):
                write()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_json_cannot_hold_leaves_the_old_file(folder):
    before = (folder / "config.json").read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(folder / "config.json", {"a": float("nan")})
    with pytest.raises(TypeError, match="has type object, which JSON cannot hold"):
        write_json(folder / "config.json", {"a": object()})
    with pytest.raises(UnicodeEncodeError):
        write_text(folder / "config.json", "\ud800")
    assert (folder / "config.json").read_bytes() == before
    assert len(list(folder.iterdir())) == 3
    write_json(folder / "config.json", {"γ": np.float64(0.5), "n": np.int64(3), "returns": np.arange(2.0)})
    assert json.loads((folder / "config.json").read_text("utf-8")) == {
        "γ": 0.5,
        "n": 3,
        "returns": [0.0, 1.0],
    }


def test_text_is_written_through_a_link(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    write_text(tmp_path / "link.txt", "neu und schön\n")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text("utf-8") == "neu und schön\n"
