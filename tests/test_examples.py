"""Every example in reduced size: what it prints, what it draws, and that what it claims is so."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from matplotlib.image import imread

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    """The script as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_drawn(path):
    """A picture of some size that is more than a frame."""
    picture = imread(path)
    assert min(picture.shape[:2]) >= 300
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda script: script.stem)
def test_scripts_tell_what_they_show_and_the_readme_lists_them(script):
    module = example(script.stem)
    assert len(module.__doc__.splitlines()[0]) > 20
    assert callable(module.main)
    assert f"python examples/{script.name}" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


def test_mountain_car_trains_and_writes_its_report(tmp_path, capsys):
    demo = example("demo")
    out = tmp_path / "demo"
    out.mkdir()
    for name in ("config.json", "agent.old"):  # of an earlier demo, which makes way
        (out / name).write_text("{}", encoding="utf-8")
    run = demo.main(out, steps=220)
    assert not (out / "agent.old").exists()
    assert run.summary["steps"] == 220
    assert (out / "report.html").stat().st_size > 10_000
    assert f"{run.summary['evaluation']['mean']:.1f}" in capsys.readouterr().out


def test_cartpole_goes_on_from_the_file_bit_for_bit(tmp_path, capsys):
    found = example("cartpole").main(tmp_path, steps=350, more=50, every=50, seeds=1)
    assert found["gap"] == 0.0
    assert found["steps"] == 400
    steps, means = np.array(found["curves"][0]).T
    np.testing.assert_array_equal(steps, np.arange(50, 401, 50))
    assert means.max() > 100.0  # chance: 22; six seeds lie between 208 and 500
    assert "never left memory differ by at most 0." in capsys.readouterr().out
    assert_drawn(tmp_path / "cartpole.png")


def test_pendulum_costs_less_than_chance(tmp_path, capsys):
    pendulum = example("pendulum")
    found = pendulum.main(tmp_path, steps=300, every=100, seeds=(2,), judged=3, size=9)
    assert max(mean for _, mean, _ in found["curves"][2]) > -800.0  # chance: -1200
    torques = np.array(found["tracks"])[:, :, 2]
    assert torques.shape == (3, 200)
    assert 0.5 < np.abs(torques).max() <= 2.0
    assert "± " in capsys.readouterr().out
    assert_drawn(tmp_path / "pendulum.png")


def test_streaming_errs_less_and_less_and_keeps_no_more(tmp_path):
    streaming = example("streaming")
    found = streaming.main(tmp_path, count=9_000, every=1_500, budget=60, seeds=1)
    [table] = found["tables"]
    errors, sizes = table[:, 1], table[:, 3]
    assert errors[-1] < 0.15 * found["spread"]
    assert errors[-2:].mean() < errors[:2].mean()
    assert np.ptp(sizes) < 1.0  # kB
    assert len(found["run"].model.pseudo_inputs) <= 60
    assert_drawn(tmp_path / "streaming.png")


def test_true_value_of_the_stream_solves_the_bellman_equation():
    streaming = example("streaming")
    states = np.array([[0.3, -0.7], [1.2, 0.4]])
    shocks = streaming.SHOCK * np.random.default_rng(0).normal(size=(20_000, 2))
    for state in states:
        following = np.vstack([streaming.KEEP * state + shocks, streaming.KEEP * state - shocks])
        ahead = streaming.GAMMA * streaming.true_value(following)
        expected = streaming.reward(state) + ahead.mean()
        error = ahead.std() / np.sqrt(len(ahead))
        assert abs(streaming.true_value(state[None])[0] - expected) < 4.0 * error


def test_the_docking_environment_keeps_gymnasiums_rules():
    docking = example("docking")
    check_env(docking.Docking(), skip_render_check=True)
    track, _, docked = docking.attempt(docking.Controller(informed=True), seed=0)
    assert docked
    assert abs(track[-1, 0]) < 8.0
    env = docking.Docking()
    env.reset(seed=0)
    for minute in range(10):  # against the boom
        seen, reward, terminated, truncated, info = env.step(np.array([1.0]))
        assert (terminated, truncated) == (False, minute == 9)
    assert seen[0] == 150.0
    assert reward == pytest.approx(-3.1)
    assert info == {"docked": False}


def test_docking_is_learnt_within_the_budget(tmp_path, capsys):
    found = example("docking").main(tmp_path, budget=200, seeds=3, attempts=10, size=7)
    assert found["told"][0] == 1.0
    assert found["controller"][0] < 0.2
    assert found["chance"][1] < found["controller"][1] < found["told"][1]
    assert np.median([returns for _, returns in found["agents"]]) > 0.5 * found["chance"][1]  # one may fail
    printed = capsys.readouterr().out
    assert "after 200 min" in printed
    assert "Seed 0 expected a discounted return" in printed
    assert_drawn(tmp_path / "docking.png")


def test_logs_say_which_rule_is_better_and_how_sure_one_can_be(tmp_path, capsys):
    logs = example("logs")
    check_env(logs.Shop(), skip_render_check=True)
    found = logs.main(tmp_path, logs=3, months=40, shops=2_000)
    (early, early_error), (late, late_error) = found["truth"]["early"], found["truth"]["late"]
    assert late - early > 5.0 * np.hypot(early_error, late_error)
    assert found["right"] >= 2
    assert -1.0 <= found["alike"] <= 1.0
    assert all(0.0 < sure < 1.0 for sure in found["sure"])
    for evaluations in found["found"]:
        for name, evaluation in evaluations.items():
            low, high = evaluation.interval(0.999)
            assert low < found["truth"][name][0] < high
    assert "how sure" in capsys.readouterr().out
    assert_drawn(tmp_path / "logs.png")
