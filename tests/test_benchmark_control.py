"""The arithmetic of the control benchmark, its peer, its wrapper, and that it goes on where it stopped."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace

import gymnasium as gym
import numpy as np
import pytest

from benchmarks import control, control_ablation, control_report, tables
from benchmarks.control import Results, Run
from benchmarks.control_tasks import TASKS, Judge, Rescaled, Task, marks
from benchmarks.pages import put, table
from benchmarks.tiles import TILES, TILINGS, OneHot, TileCoder, TileSarsa
from gpsarsa import SarsaAgent
from gpsarsa.control.dynamics import _partners

# -- tile coding ----------------------------------------------------------------------------------


def test_each_tiling_has_one_active_tile(rng):
    coder = TileCoder([-1.0, 0.0], [1.0, 4.0])
    tilings = {}
    for point in rng.uniform([-1.0, 0.0], [1.0, 4.0], (2_000, 2)):
        rows = coder(point)
        assert len(rows) == TILINGS
        for tiling, row in enumerate(rows):
            assert tilings.setdefault(row, tiling) == tiling
    assert TILINGS * TILES**2 < len(coder.known) <= TILINGS * (TILES + 1) ** 2


def test_neighbours_share_tiles_and_an_eighth_of_a_tile_changes_one_tiling_a_dimension():
    coder = TileCoder([0.0, 0.0], [8.0, 8.0])  # tiles of width 1
    start = coder([4.01, 4.01])
    assert np.sum(start == coder([4.01, 4.01])) == 8
    assert np.sum(start == coder([4.01 + 1 / 8, 4.01])) == 7
    assert np.sum(start == coder([4.01 + 1 / 8, 4.01 + 1 / 8])) == 6
    assert np.sum(start == coder([4.01 + 5 / 8, 4.01])) == 3
    assert np.sum(start == coder([5.01, 4.01])) == 0


def test_outside_the_bounds_the_last_tiles_are_taken():
    coder = TileCoder([0.0], [1.0])
    assert np.array_equal(coder([7.0]), coder([1.0]))
    assert np.array_equal(coder([-7.0]), coder([0.0]))


def test_a_full_table_shares_rows(rng):
    coder = TileCoder(np.zeros(3), np.ones(3), rows=50)
    rows = np.array([coder(point) for point in rng.uniform(size=(200, 3))])
    assert rows.min() >= 0
    assert rows.max() < 50
    assert len(coder.known) == 50


def test_a_discrete_observation_is_its_own_row():
    assert OneHot(16)(np.int64(5)).tolist() == [5]


def test_every_evaluation_has_starts_of_its_own_and_a_run_is_judged_the_same_again():
    task = replace(TASKS["CartPole-v1"], episodes=3)
    first = []

    def act(observations):
        first.append(tuple(np.concatenate(observations)))
        return [0] * len(observations)

    def starts(seed):
        judge = Judge(task, [500, 1_000], seed)
        for step in (500, 1_000):
            first.clear()
            judge(step, act)
            yield first[0]

    found = [*starts(0), *starts(1)]
    assert len(set(found)) == 4
    assert [*starts(0), *starts(1)] == found


def test_tile_coding_learns_the_cliff_and_being_watched_changes_nothing():
    task = TASKS["CliffWalking-v1"]
    judge = Judge(task, [7_000], 3)
    watched, alone = (TileSarsa(task.make(), task.id, seed=1) for _ in range(2))

    def act(observations):
        return [watched.predict(observation) for observation in observations]

    watched.learn(7_000, lambda agent: judge(agent.num_timesteps, act))
    alone.learn(7_000, lambda agent: None)
    assert np.array_equal(watched.weights, alone.weights)
    [(step, value)] = judge.evaluations
    assert step == 7_000
    assert -20 <= value <= -13


# -- the protocol ---------------------------------------------------------------------------------


def test_marks():
    assert marks(1_700) == [500, 1_000, 1_500]
    assert marks(11_000)[-3:] == [10_000, 10_500, 11_000]
    assert marks(15_000, 2_000)[-4:] == [9_500, 10_000, 12_000, 14_000]


@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1"])
def test_the_rescaled_task_is_the_same_in_other_units(name):
    plain, scaled = gym.make(name), TASKS[f"{name} ×1000"].make()
    assert isinstance(scaled, Rescaled)
    assert scaled.observation_space.dtype == plain.observation_space.dtype
    assert np.array_equal(scaled.observation_space.high, 1_000 * plain.observation_space.high)
    assert np.array_equal(scaled.observation_space.low, 1_000 * plain.observation_space.low)
    plain.action_space.seed(0)
    before, _ = plain.reset(seed=3)
    after, _ = scaled.reset(seed=3)
    for _ in range(5):
        assert after.dtype == before.dtype
        assert np.array_equal(after, 1_000 * before)
        assert scaled.observation_space.contains(after)
        action = plain.action_space.sample()
        before, reward, *ends, _ = plain.step(action)
        after, larger, *scaled_ends, _ = scaled.step(action)
        assert larger == 1_000 * reward
        assert scaled_ends == ends


def test_a_return_is_given_in_the_units_of_the_task():
    plain, scaled = Task("CartPole-v1", 475, episodes=3), Task("CartPole-v1", 475, episodes=3, scale=1_000.0)

    def push(observations):
        return [int(observation[2] > 0) for observation in observations]

    assert Judge(scaled, [], 0).play(push) == Judge(plain, [], 0).play(push) > 9


# -- the report -----------------------------------------------------------------------------------


def curve(*values):
    return [(500 * (i + 1), value) for i, value in enumerate(values)]


def test_first_pass_and_what_holds_since():
    found = curve(100, 480, 300, 475, 500)
    assert control_report.first_pass(found, 475) == 1_000
    assert control_report.held(found, 475) == (3, 4)


def test_a_curve_that_never_passes():
    assert control_report.first_pass(curve(100, 474.9), 475) == math.inf
    assert control_report.held(curve(100, 474.9), 475) == (0, 0)


def test_quartiles_with_seeds_that_never_pass():
    inf = math.inf
    assert control_report.quartiles([1, 2, 3, 4, 5]) == (2, 3, 4)
    assert control_report.quartiles([500, inf, inf, 1_000, 1_500]) == (1_000, 1_500, inf)
    assert control_report.quartiles([500, inf, 1_000, inf]) == (500, 1_000, inf)
    assert control_report.quartiles([500, inf, inf])[1] == inf


def rows(*curves, contender="gpsarsa", task="CartPole-v1"):
    return [
        {"contender": contender, "task": task, "seed": seed, "steps": 1_500, "evaluations": found,
         "microseconds": 250.0, "version": "gpsarsa 0.1.0", "revision": ""}
        for seed, found in enumerate(curves)
    ]  # fmt: skip


def test_a_line_of_the_table():
    found = rows(curve(9, 480, 500), curve(500, 10, 20), curve(9, 9, 9))
    line = control_report.tables(found).splitlines()[-1]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells == [
        "CartPole-v1", "475", "gpsarsa", "3", "1 500", "1 000 (500 – ∞)", "2 of 3", "2 of 3 by 2 500",
        "67%", "60% of 5", "20", "250",
    ]  # fmt: skip


def test_a_dash_where_most_seeds_fail():
    line = control_report.tables(rows(curve(9, 9), curve(9, 9), curve(9, 500))).splitlines()[-1]
    assert line.split("|")[6].strip() == "—"
    assert control_report.tables([]) == "No runs yet."


def test_the_report_replaces_what_stood_between_the_marks(tmp_path):
    page = tmp_path / "results.md"
    page.write_text(f"above\n{control_report.BEGIN}\nstale\n{control_report.END}\nbelow\n")
    (tmp_path / "algorithms").mkdir()
    for short in [tmp_path / name for name in control_report.SHORT_PAGES]:
        short.write_text(f"{control_report.SHORT_BEGIN}\nstale\n{control_report.SHORT_END}\nbelow\n")
    found = rows(curve(9, 480, 500)) + rows(curve(9, 9), contender="tiles")
    control_report.write(found, tmp_path)
    first = page.read_text()
    control_report.write(found, tmp_path)
    assert page.read_text() == first
    assert first.startswith("above\n")
    assert first.endswith("\nbelow\n")
    assert "stale" not in first
    assert "tile coding" in first
    lines = short.read_text().splitlines()
    assert (
        lines[2]
        == "| task | threshold | seeds | first pass (quartiles) | pass by the aim | held since: pooled |"
    )
    assert lines[4] == "| CartPole-v1 | 475 | 1 | 1 000 (1 000 – 1 000) | 1 of 1 by 2 500 | 100% of 2 |"
    assert lines[5:] == ["", control_report.SHORT_END, "below"]
    assert (tmp_path / "results.png").stat().st_size > 0
    assert (tmp_path / "results_others.png").stat().st_size > 0


# -- going on -------------------------------------------------------------------------------------


def answer(run, python):
    return {**asdict(run), "evaluations": [(500, 1.0)], "seconds": 0.0}


def test_finished_runs_are_not_run_again(tmp_path):
    path = tmp_path / "control.jsonl"
    runs = control.plan(["gpsarsa"], ["CartPole-v1", "Acrobot-v1"], 2, short=False)
    assert [(run.seed, run.task) for run in runs] == [
        (control.seeds_of("gpsarsa", task)[place], task)
        for place in range(2)
        for task in ("CartPole-v1", "Acrobot-v1")
    ]
    assert control.carry_out(runs[:3], Results(path), "", execute=answer) == 0
    path.write_bytes(path.read_bytes() + b'{"contender": "gps')  # killed while it wrote
    asked = []

    def note(run, python):
        asked.append(run)
        return answer(run, python)

    results = Results(path)
    control.carry_out(runs, results, "", execute=note)
    assert asked == runs[3:]
    assert [json.loads(line)["task"] for line in path.read_text().splitlines()] == [
        row["task"] for row in results.rows
    ]
    assert all(run in Results(path) for run in runs)


def test_a_run_that_fails_is_counted_and_left_to_be_done(tmp_path):
    def fail(run, python):
        raise subprocess.CalledProcessError(1, "run", stderr="why")

    results = Results(tmp_path / "control.jsonl")
    run = Run("dqn", "CartPole-v1", 1_000, 50_000)
    assert control.carry_out([run], results, "", execute=fail) == 1
    assert run not in results


def test_every_contender_only_runs_where_it_can():
    runs = control.plan(control.ENTRIES, TASKS, None, short=False)
    assert len(runs) == len(set(runs)) == 10 * len(TASKS) + 5 * (10 + 4 + 8 + 4)
    assert [run.contender for run in runs[: 10 * len(TASKS)]] == ["gpsarsa"] * 10 * len(TASKS)
    assert {run.steps for run in runs if run.contender == "sac"} == {20_000, 50_000}
    for contender in ("gpsarsa", "dqn"):
        seeds = [run.seed for run in runs if (run.contender, run.task) == (contender, "LunarLander-v3")]
        assert seeds == [*control.seeds_of(contender, "LunarLander-v3")]


# -- ablation -------------------------------------------------------------------------------------


def test_the_ablations_table():
    def row(part, seed, *values, task="CartPole-v1"):
        evaluations = [(500 * i, value) for i, value in enumerate(values, 1)]
        return {"contender": part, "task": task, "seed": seed, "evaluations": evaluations}

    rows = [row("everything", seed, 400.0, last) for seed, last in enumerate((500.0, 475.0, 474.0))]
    rows += [row("no brinks", 0, 0.0, 9.0), row("no brinks", 1, 480.0, 500.0), row("no brinks", 9, 0.0, 0.0)]
    rows += [row("no circles", 0, -90.0, -300.0, task="Acrobot-v1")]
    lines = {line.split(" | ")[0]: line for line in control_ablation.narrow_table(rows).splitlines()}
    assert lines["| "].startswith("|  | CartPole-v1 (475) | MountainCar-v0 (−110) |")
    assert lines["| everything"].startswith("| everything | 33%, 2 of 3 |  |")
    # of the same seeds −50 and +50; Pendulum never ends, so that there are no brinks
    assert lines["| no brinks"] == "| no brinks | 33%, 1 of 3 |  |  | = |  | = | +0 ± 50 (2 runs) |"
    assert lines["| no circles"] == "| no circles | = | = | 50%, 0 of 1 |  | = | = |  |"
    assert len(lines) == 2 + len(control_ablation.PARTS)


@pytest.mark.parametrize("task", control_ablation.NUMBERS)
def test_where_a_part_has_nothing_to_do(task, rng):
    """Few actions to look ahead with, columns on a circle, ends: a part acts where these are."""
    env = TASKS[task].make()
    depth = SarsaAgent(env).imagination.depth
    following, ended = [], 0
    for _ in range(10):
        env.reset(seed=int(rng.integers(2**31)))
        env.action_space.seed(int(rng.integers(2**31)))
        over = False
        while not over:
            row, _, terminated, truncated, _ = env.step(env.action_space.sample())
            following.append(row)
            ended, over = ended + terminated, terminated or truncated
    circle = bool((_partners(np.array(following, dtype=float)) >= 0).any())
    assert (depth > 1) == (task in control_ablation.ACTS["one step ahead, always"])
    assert circle == (task in control_ablation.ACTS["no circles"])
    assert ended == 0 or task in control_ablation.ACTS["no brinks"]


def test_the_table_of_rules():
    def row(part, seed, *evaluations, task=control_ablation.WIDE):
        return {"contender": part, "task": task, "seed": seed, "steps": 10_000, "evaluations": evaluations}

    rows = [
        row("no hope", 3, (5_000, 250.0), (7_500, 100.0), (10_000, 210.0)),
        row("no hope", 4, (5_000, -5.0), (10_000, -20.0)),
        row("no hope", 4, (500, 9.0), task="CartPole-v1"),
        row("everything", 3, (10_000, 165.0)),
        row("everything", 4, (10_000, 10.0)),
        {**row("everything", 4, (10_000, 99.0), (20_000, 99.0)), "steps": 20_000},
    ]
    lines = control_ablation.wide_table(rows, 10_000).splitlines()
    assert lines[2:] == [
        "| everything | ∞, ∞ | — | 165, 10 | 0% |  |",
        "| no hope | 5 000, ∞ | 67% of 3 | 155, −20 | 33% | −20 ± 10 (2 runs) |",
    ]


def test_each_group_of_seeds_has_a_table_of_rules_of_its_own():
    """Its runs are of one agent, another group's of another."""
    rows = [
        {"contender": "everything", "task": control_ablation.WIDE, "seed": seeds[0], "steps": steps,
         "evaluations": [(steps, 250.0 + place)]}
        for place, (seeds, _, steps) in enumerate(control_ablation.WIDE_PLAN)
    ]  # fmt: skip
    tables = control_ablation.wide_tables(rows)
    assert ["250" in tables[0], "251" in tables[1], "252" in tables[2]] == [True] * 3
    assert all(table.count("everything") == 1 for table in tables)
    assert len(control_ablation.wide_tables([*rows[:1], {**rows[1], "task": "CartPole-v1"}])) == 1


def test_every_part_of_those_for_many_columns_can_be_taken_away():
    """In a process of its own, which it changes: what is replaced is called as it is here. All at once."""
    code = """
import sys; sys.path.insert(0, "tests")
import numpy as np
from benchmarks.control_ablation import WIDE_PARTS
from gpsarsa import SarsaAgent
from gpsarsa.control import rules
from test_rules import Wide
rules.GENERATIONS = 2
for part in sorted(WIDE_PARTS, key="no rules".__eq__):
    WIDE_PARTS[part]()
    if part in ("everything", "no rules") or part == [*WIDE_PARTS][-1]:
        agent = SarsaAgent(Wide(), seed=0, budget=30).learn(260)
        print(agent.failures, agent.imagination.found is not None, agent.imagination.hope is not None)
from test_imagination import held, judged, ruled
incumbent = held(*[258.0] * 5)  # who has shown much
incumbent.imagined(ruled(np.full(9, 206.0)), judged("old", np.full(9, 194.0)), np.full(5, 194.0))
print(incumbent.holder.model)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=control.ROOT)
    assert done.stdout.splitlines() == ["0 True True", "0 True False", "0 False False", "new"], done.stderr


def test_a_part_that_is_taken_away_is_missed():
    """In a process of its own: the agent without imagination takes other steps than the whole one."""
    runs = [Run(part, "MountainCar-v0", 1, 600) for part in ("everything", "no imagination")]
    whole, less = (control.execute(run, "", "control_ablation")["evaluations"] for run in runs)
    assert [step for step, _ in whole] == [step for step, _ in less] == [500]
    assert whole != less


# -- the README's tables --------------------------------------------------------------------------


def test_the_table_of_steps_is_made_of_runs():
    """The median of the first three seeds; others do not count, and who did not pass is said to."""

    def row(contender, task, seed, *curve):
        return {"contender": contender, "task": task, "seed": seed, "evaluations": list(curve)}

    ours, theirs = (control.seeds_of(name, "CartPole-v1") for name in ("gpsarsa", "dqn"))
    curves = [[(500, 20.0), (1_000 + 500 * i, 500.0)] for i in range(3)]
    rows = [row("gpsarsa", "CartPole-v1", ours[i], *curve) for i, curve in enumerate(curves)]
    rows.append(row("gpsarsa", "CartPole-v1", ours[3], (500, 500.0)))
    rows += [row("dqn", "MountainCar-v0", theirs[i], (500, -200.0 + 95 * (i == 0))) for i in range(3)]
    lines = {cells[0]: cells[1:] for cells in tables.sample_efficiency(rows)}
    assert lines["steps until first passed"] == ["gpsarsa", "tile coding", "DQN", "PPO", "SAC"]
    assert lines["CartPole-v1 (475)"] == ["1 500", "not measured", "not measured", "not measured", "–"]
    assert lines["MountainCar-v0 (−110)"][2] == "more than 120 000 (1 of 3 passed)"


def test_tables_are_written_between_their_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    for text in ("one", "two"):
        put(table([["a", "b"], [text, "4"]]), page, tables.BEGIN, tables.END)
    written = "| a | b |\n|---|---|\n| two | 4 |"
    assert page.read_text() == f"before\n{tables.BEGIN}\n\n{written}\n\n{tables.END}\nafter\n"
    page.write_text("nothing here")
    with pytest.raises(ValueError, match=r"page\.md has no place for what was measured"):
        put("text", page, tables.BEGIN, tables.END)
    assert page.read_text() == "nothing here"
