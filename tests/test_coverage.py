"""The coverage study: its true values are true, and a few repetitions of it."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpsarsa.offline import evaluate
from gpsarsa.offline.recording import write_table
from studies import coverage
from studies.coverage import problems, rollouts

NAMES = tuple(problems())


def returns(problem, states, actions, times, seed=0):
    """Rollouts under the policy that is asked for; targets look at observations."""
    if problem.target is not None:
        seen = problem.target
        problem = replace(problem, target=lambda states: seen(problem.observed(states)))
    return rollouts(problem, states, actions, times, seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_value_of_the_initial_states_is_the_mean_return(name):
    problem, rng = problems()[name], np.random.default_rng(5)
    states = problem.starts(rng, 10_000)
    target = problem.target
    actions = problem.logging(rng, states) if target is None else target(problem.observed(states))
    found = returns(problem, states, actions, 1)
    value, error = problem.value()
    assert abs(found.mean() - value) < 4.0 * math.hypot(found.std() / 100.0, error)


@pytest.mark.parametrize("name", NAMES)
def test_the_values_of_test_inputs_are_mean_returns(name):
    problem = problems()[name]
    states, actions = coverage.test_inputs(problem)
    X, Q = problem.test()
    np.testing.assert_allclose(X[:, :-1], problem.observed(states), atol=1e-4)
    np.testing.assert_allclose(X[:, -1], np.ravel(actions), atol=1e-4)
    found = returns(problem, states[:10], actions[:10], 1_000)
    off = (found.mean(axis=1) - Q[:10]) / np.hypot(found.std(axis=1) / math.sqrt(1_000), 1e-2)
    assert np.abs(off).max() < 5.0


def test_the_cartpole_is_gymnasiums(rng):
    env = gymnasium.make("CartPole-v1").unwrapped
    for seed in range(20):
        state, _ = env.reset(seed=seed)
        state, ended = np.array(env.state, dtype=float)[None], False
        while not ended:
            action = int(rng.integers(2))
            _, reward, ended, _, _ = env.step(action)
            state, rewards, fallen = coverage._balance(rng, state, np.array([action]))
            np.testing.assert_allclose(state[0], env.state, rtol=1e-12, atol=1e-12)
            assert rewards[0] == reward
            assert fallen[0] == ended


@pytest.mark.parametrize("name", NAMES)
def test_a_log_is_a_table_of_whole_episodes(name):
    problem = problems()[name]
    log = problem.log(7, 6)
    ends = log["terminated"] | log["truncated"]
    assert ends.sum() == (log["step"] == 0).sum() == 6
    going = np.flatnonzero(~ends)
    np.testing.assert_array_equal(log["next_observation"][going], log["observation"][going + 1])
    np.testing.assert_array_equal(log["next_action"][going], log["action"][going + 1])
    again = problem.log(7, 6)
    assert all(np.array_equal(log[key], again[key]) for key in log)


def test_lstd_finds_the_values_of_a_gridworld(tmp_path):
    for name in ("gridworld", "gridworld, off-policy"):
        problem = problems()[name]
        log = problem.log(3, 1_000)
        found = coverage.evaluated(problem, problem.log(4, 100), tmp_path / "log.parquet")
        assert abs(coverage.lstd(problem, log, found)[0] - problem.value()[0]) < 0.1


@pytest.mark.parametrize("name", ["gridworld", "gridworld, off-policy", "regulator"])
def test_intervals_cover_in_most_repetitions(name):
    rows = [row for seed in range(10_000, 10_006) for row in coverage.measure((name, 30, seed))]
    assert sum(row["covers"] for row in rows) >= 4
    assert all(row["half width"] > 0.0 for row in rows)


def values(problem, log, folder):
    """By the fixed point, and under correlated noise."""
    write_table(folder / "log.parquet", **{name: c for name, c in log.items() if name != "state"})
    how = {"gamma": problem.gamma, "workers": 1}
    return [evaluate(folder / "log.parquet", noise=noise, **how).value for noise in ("auto", "correlated")]


def test_correlated_noise_is_right_where_episodes_end(tmp_path):
    """With FITC weights, the residual would take the place of the noise: 18 for 35."""
    problem = problems()["CartPole"]
    for value in values(problem, problem.log(10_000, 60), tmp_path):
        assert abs(value - problem.value()[0]) < 5.0


def test_correlated_noise_is_biased_where_episodes_are_cut_off(tmp_path):
    problem = replace(problems()["regulator"], length=10)
    true = problem.value()[0]
    fixed, correlated = (
        np.array([values(problem, problem.log(seed, 300), tmp_path) for seed in (10_000, 10_001)]) - true
    ).mean(axis=0)
    assert abs(fixed) < 0.8
    assert correlated < -1.0


def test_the_kernels_variance_does_not_run_away(tmp_path):
    """On this log the evidence grows with variance and lengthscale together, to 10⁵ for values below 1."""
    problem = problems()["random walk"]
    found = coverage.evaluated(problem, problem.log(1_079, 100), tmp_path / "log.parquet")
    assert found.kernel.parameters["0.variance"] < 1_000
    assert abs(found.value - problem.value()[0]) < 0.1


def test_tables_and_picture(tmp_path):
    one = coverage.measure(("gridworld", 20, 10_000))[0]
    rows = [
        one | {"problem": name, "episodes": episodes, "seed": seed, "covers": seed > 0}
        for name, problem in problems().items()
        for episodes in problem.episodes
        for seed in range(4)
    ]
    found = coverage.cells(rows)
    assert "| random walk | 25 (" in coverage.coverage_table(found)
    assert "75 % (30–95)" in coverage.coverage_table(found)
    assert coverage.error_table(found).count("\n") == 1 + len(found)
    coverage.draw(found, tmp_path / "coverage.png")
    assert (tmp_path / "coverage.png").stat().st_size > 20_000
