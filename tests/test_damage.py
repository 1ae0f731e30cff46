"""Damaged files and nonsense on the command line: a part of `fuzz`, always the same, and what it found."""

from __future__ import annotations

import random

import numpy as np
import pyarrow
import pytest
from hostile import patience

from fuzz.targets import Workshop, attempts
from gpsarsa import CheckpointError, SparseGPSarsa, Timescales, checkpoint
from gpsarsa._table import numbers_read
from gpsarsa.kernels import RBF, Delta
from gpsarsa.offline import DatasetError, open_dataset
from gpsarsa.offline.evaluation import Evaluation
from gpsarsa.offline.recording import write_table

TIMES = {"command": 250, "damaged folder": 60, "content of agent": 60, "table": 200}


@pytest.fixture(scope="module")
def workshop():
    made = Workshop()
    yield made
    made.close()


KINDS = ["model", "exact", "times", "agent", "evaluation"]
NAMES = [f"{what} of {kind}" for kind in KINDS for what in ("bytes", "content")]
NAMES += [f"run's {name}" for name in ("config.json", "summary.json", "progress.csv")]
NAMES += ["table", "command", "damaged folder"]


def test_the_names_are_all(workshop):
    assert list(attempts(workshop)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_damage_gives_a_clear_error_or_none(name, workshop, monkeypatch):
    monkeypatch.setattr("warnings.showwarning", lambda *_, **__: None)
    act = attempts(workshop)[name]
    for number in range(TIMES.get(name, 300)):
        with patience():
            act(random.Random(number))


def test_any_bytes_as_a_page(workshop):
    pytest.importorskip("matplotlib")
    for number, name in enumerate(("config.json", "summary.json", "progress.csv")):
        from fuzz.damage import damaged_text

        data = (workshop.home / "run" / name).read_bytes()
        for more in range(3):
            workshop.page(name, damaged_text(data, random.Random(10 * number + more)))


# -- what was found -------------------------------------------------------------------------------


def rewritten(workshop, kind, change):
    arrays, content = checkpoint.read(workshop.home / kind)
    change(arrays, content)
    path = workshop.home / "changed"
    checkpoint.write(path, arrays, content)
    return path


def test_a_random_state_that_is_none(workshop):
    def change(arrays, content):
        content["timescales"]["rng"]["state"]["state"] = -1

    with pytest.raises(CheckpointError, match="changed does not describe a Timescales"):
        Timescales.load(rewritten(workshop, "times", change))


def test_a_value_that_is_no_number(workshop):
    def change(arrays, content):
        content["value"]["standard_error"] = "much"

    with pytest.raises(CheckpointError, match=r"changed .*standard_error = 'much'"):
        Evaluation.load(rewritten(workshop, "evaluation", change))


def test_the_codes_of_a_table_are_read_as_they_were_written():
    kernel = RBF([1.0, 2.0], columns=[0, 2]) * Delta(1) + RBF(1.0)
    codes, values = kernel.table(3)
    assert numbers_read(codes, 3) == len(values)
    for bad in (codes[:-1], codes[:0], codes * -1, codes.astype(float), codes[None]):
        with pytest.raises(ValueError, match="codes"):
            numbers_read(bad, 3)
    with pytest.raises(ValueError, match="columns"):
        numbers_read(codes, 2)


def test_names_of_columns_that_are_no_text(tmp_path):
    path = tmp_path / "table.parquet"
    arrow = pyarrow.table({"réward": [1.0]})
    pyarrow.parquet.write_table(arrow, path)
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\x8b\x8b"))
    with pytest.raises(DatasetError, match=r"table\.parquet"):
        open_dataset(str(path))


@pytest.mark.parametrize("actions", [[np.nan, 0.0, 0.0], [0.5, 0.0, 0.0]])
def test_next_actions_that_are_no_whole_numbers(actions, tmp_path):
    columns = {
        "observation": np.zeros((3, 2)), "action": [0, 1, 0], "reward": np.zeros(3),
        "next_observation": np.zeros((3, 2)), "next_action": actions,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"next_action\[0\] = .*expected whole numbers, as in action"):
        write_table(tmp_path / "t.parquet", **columns, terminated=[False, False, True])
    assert write_table(tmp_path / "t.parquet", **columns, terminated=[True, False, True]) == 3


def test_a_flag_that_is_none_compiles_nothing():
    """Numba would compile the prediction anew for each type it is given."""
    model = SparseGPSarsa(RBF(1.0), 0.1, [[0.0]])
    for flag in (np.float16(1), 0.5, "no", {1.0}):
        with pytest.raises(TypeError, match="return_std"):
            model.predict([[0.0]], return_std=flag)


def test_a_null_character_on_the_command_line(refused):
    assert "null character" in refused("play", "a\0b")
