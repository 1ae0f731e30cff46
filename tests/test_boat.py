"""The boat example: its table, its picture, and that the values it learns are good."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

DEMO = Path(__file__).parents[1] / "examples" / "boat.py"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_demo_prints_its_table_and_draws_its_picture(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    figures = demo.main()
    printed = capsys.readouterr().out

    lines = printed.splitlines()
    head = next(i for i, line in enumerate(lines) if "95 % interval" in line)
    table = lines[head + 1 : head + 1 + len(demo.TEST_STATES)]
    for line, (east, north), true in zip(
        table, demo.TEST_STATES, demo.true_value(demo.TEST_STATES), strict=True
    ):
        assert line.startswith(f"({east:4.1f}, {north:4.1f})  {true:7.2f}")
        assert line.split()[-1] in ("yes", "no")

    picture = imread("runs/boat/boat.png")
    assert picture.shape[0] >= 400
    assert picture.shape[1] >= 1000
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 100

    assert figures["rmse"] < 0.05 * figures["span"]
    assert figures["coverage"] >= 0.9
    assert figures["difference"] < 0.1 * figures["span"]


def test_demo_saves_where_it_is_told(demo, tmp_path, capsys):
    demo.main(tmp_path / "other.png")
    assert (tmp_path / "other.png").stat().st_size > 10_000
    assert "other.png" in capsys.readouterr().out


def test_true_value_solves_the_bellman_equation(demo):
    states = np.random.default_rng(1).uniform([0.0, 0.0], [20.0, 16.0], (200, 2))
    following, rewards, arrived = demo.step(states)
    expected = rewards + np.where(arrived, 0.0, demo.GAMMA * demo.true_value(following))
    np.testing.assert_allclose(demo.true_value(states), expected, rtol=1e-12)


def test_interval_is_wide_away_from_the_trips(demo):
    model, seen = demo.learn(np.random.default_rng(0))
    _, near = model.predict(seen.inputs, return_std=True)
    _, far = model.predict(demo.rows(np.array([[20.0, 0.0], [20.0, 16.0]])), return_std=True)
    assert far.min() > 5 * np.median(near)


def test_one_trip_is_cut_short_and_the_others_arrive(demo):
    _, seen = demo.learn(np.random.default_rng(0))
    last_rows = np.append(np.flatnonzero(seen.starts)[1:], len(seen)) - 1
    assert (seen.discounts[last_rows[:-1]] == 0).all()
    assert seen.discounts[-1] == demo.GAMMA
    assert (seen.discounts == 0).sum() == len(last_rows) - 1


@pytest.mark.parametrize("seed", range(1, 6))
def test_intervals_cover_on_other_trips_too(demo, seed):
    model, _ = demo.learn(np.random.default_rng(seed))
    states = demo.GRID.reshape(-1, 2)
    mean, std = model.predict(demo.rows(states), return_std=True)
    true = demo.true_value(states)
    assert np.mean(np.abs(mean - true) <= 1.96 * std) >= 0.9
    assert np.sqrt(np.mean((mean - true) ** 2)) < 0.1 * np.ptp(true)
