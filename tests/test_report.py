"""Pictures and the HTML report, from synthetic runs and a small agent with a real model."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest

from gpsarsa import SparseGPSarsa, Transitions, kernels, plots, runs
from gpsarsa._page import plus_minus_of
from gpsarsa.report import write_report
from gpsarsa.runs import RunError

GAMMA = 0.97


def make_run(folder, seed=0, episodes=120, steps=12_000, env="CartPole-v1", evaluation=True, threshold=475.0):
    """A run whose returns rise, in the files that training writes."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    runs.write_json(folder / runs.CONFIG, config(seed, steps, env))
    step = 0
    with runs.Log(folder / runs.PROGRESS, keep=0) as log:
        for episode in range(episodes):
            length = int(np.clip(rng.normal(20 + 480 * (episode / episodes) ** 0.5, 60), 8, 500))
            if step + length > steps:
                break
            step += length
            log.append(row(rng, episode, step, length))
    if evaluation is not None:
        runs.write_json(folder / runs.SUMMARY, summary(rng, step, episodes, evaluation, threshold))
    return folder


def config(seed, steps, env):
    return {
        "environment": {"id": env, "arguments": {"sutton_barto_reward": False}},
        "seed": seed,
        "steps": steps,
        "gamma": GAMMA,
        "agent": {"budget": 300, "noise": "iid", "bonus": 1.0, "slow": [200, 1.5], "prior_mean": None},
        "versions": {"gpsarsa": "0.3.0", "python": "3.12.1", "numpy": "2.4.6", "gymnasium": "1.4.0"},
    }


def row(rng, episode, step, length):
    """One episode of a model that comes after three random ones."""
    known = episode >= 3
    realised = (1 - GAMMA**length) / (1 - GAMMA)
    std = 6 / (1 + episode / 10) + 1
    return {
        "step": step,
        "episode": episode,
        "return": float(length),
        "length": length,
        "terminated": length < 500,
        "role": "random" if not known else ("explore", "explore", "trial", "incumbent")[episode % 4],
        "predicted": realised + 1.3 * std * rng.standard_normal() if known else None,
        "predicted_std": std if known else None,
        "discounted": realised,
        "pseudo_inputs": int(300 * (1 - np.exp(-step / 3000))) if known else 0,
        "log_evidence": -1.2 + 2.5 * np.log1p((episode // 9) / 3) if episode >= 9 else None,
        "noise_variance": 0.1 * 0.8 ** (episode // 9) if known else None,
        "seconds": 0.004 * step,
    }


def summary(rng, steps, episodes, evaluation, threshold):
    returns = np.clip(rng.normal(488, 25, 20), 0, 500).round()
    error = returns.std(ddof=1) / np.sqrt(20)
    found = {"episodes": 20, "mean": returns.mean(), "standard_error": error, "returns": returns}
    found["threshold"] = threshold
    return {
        "steps": steps,
        "episodes": episodes,
        "finished": True,
        "evaluation": found if evaluation else None,
        "seconds": 0.004 * steps,
    }


def make_agent(columns=4, categories=None, kernel=None, count=60):
    """What `value_surface` asks of an agent, around a model fitted to a smooth function."""
    rng = np.random.default_rng(7)
    categories = (False,) * columns if categories is None else categories
    visited = rng.normal(size=(800, columns)) * (3.0 / 2.0 ** np.arange(columns))
    visited[:, categories] = rng.integers(0, 5, (800, sum(categories)))
    inputs = np.column_stack([visited, rng.integers(0, 2, 800)])
    if kernel is None:
        kernel = kernels.Delta(columns, share=0.6)
        for column, unordered in enumerate(categories):
            own = kernels.Delta(column, 0.3) if unordered else kernels.Matern52(1.5, columns=column)
            kernel = own * kernel
        kernel = kernels.RBF(1e3, 4.0) * kernel
    model = SparseGPSarsa(kernel, 0.1, np.unique(inputs[:count], axis=0))
    rewards = 5 * np.cos(inputs[:, 0]) * np.exp(-0.2 * inputs[:, -2] ** 2)
    model.fit(Transitions(inputs[:200], rewards[:200], inputs[:200], np.zeros(200)))

    def values(rows):
        both = [
            model.predict(np.column_stack([rows, np.full(len(rows), a)]), return_std=True) for a in (0, 1)
        ]
        best = both[0][0] >= both[1][0]
        return tuple(np.where(best, first, second) for first, second in zip(*both, strict=True))

    names = ("cart position", "cart velocity", "pole angle", "pole velocity")[:columns]
    return SimpleNamespace(
        model=model,
        observations=SimpleNamespace(columns=columns, names=names, categories=tuple(categories)),
        actions=SimpleNamespace(columns=1, names=("action",)),
        visited=visited,
        values=values,
    )


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("one") / "run", seed=3)


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    folder = tmp_path_factory.mktemp("five")
    for seed in range(5):
        make_run(folder / f"seed-{seed}", seed)
    return folder


@pytest.fixture(scope="module")
def agent():
    return make_agent()


def begun(folder):
    """A run that was killed before its first episode ended."""
    make_run(folder, episodes=0, evaluation=None)
    return folder


def labels(figure):
    """Labels of all artists in the figure's legend."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


# -- pictures of training -------------------------------------------------------------------------


def test_the_learning_curve_of_one_run(one):
    [run] = runs.read_all(one)
    figure = plots.learning_curve(run)
    [axes] = figure.axes
    drawn = sum(
        len(points.get_offsets()) for points in axes.collections if points.get_label() in labels(figure)
    )
    assert drawn == len(run.progress["step"])
    roles = ["random actions", "exploring", "candidate on trial", "incumbent"]
    label = "median of 9 incumbent's episodes"
    assert labels(figure) == [*roles, label, "threshold 475", "final evaluation"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "return")
    median = next(line for line in axes.get_lines() if line.get_label() == label)
    shown = run.progress["role"] == "incumbent"  # who explores fails on purpose
    assert median.get_ydata()[0] == np.median(run.progress["return"][shown][:5])
    assert median.get_xdata()[-1] == run.progress["step"][shown][-1]
    diamond = next(line for line in axes.get_lines() if line.get_marker() == "D")
    assert diamond.get_ydata()[0] == run.summary["evaluation"]["mean"]
    assert diamond.get_xdata()[0] == run.summary["steps"]


def test_where_the_incumbent_has_few_episodes_the_median_is_of_all(one):
    [run] = runs.read_all(one)
    own = np.flatnonzero(run.progress["role"] == "incumbent")
    run.progress["role"][own[4:]] = "explore"
    [axes] = plots.learning_curve(run).axes
    median = next(line for line in axes.get_lines() if line.get_label() == "median of 9 episodes")
    assert median.get_ydata()[0] == np.median(run.progress["return"][:5])


def test_the_learning_curve_of_several_seeds(five):
    seeds = runs.read_all(five)
    figure = plots.learning_curve(seeds)
    [axes] = figure.axes
    assert labels(figure) == [
        "each seed (9 incumbent's episodes)",
        "mean of 5 seeds",
        "threshold 475",
        "final evaluation",
    ]
    thin = [line for line in axes.get_lines() if line.get_linewidth() == 0.8]
    assert len(thin) == 5
    mean = next(line for line in axes.get_lines() if line.get_label() == "mean of 5 seeds")
    steps = [run.progress["step"][run.progress["role"] == "incumbent"] for run in seeds]
    assert mean.get_xdata()[0] == max(own[0] for own in steps)
    assert mean.get_xdata()[-1] == min(own[-1] for own in steps)
    [band] = axes.collections[:1]
    width = np.ptp([y for x, y in band.get_paths()[0].vertices if x == mean.get_xdata()[-1]])
    ends = np.array([np.interp(mean.get_xdata()[-1], line.get_xdata(), line.get_ydata()) for line in thin])
    np.testing.assert_allclose(mean.get_ydata()[-1], ends.mean())
    np.testing.assert_allclose(width, 2 * 2.776445 * ends.std(ddof=1) / np.sqrt(5), rtol=1e-6)


def test_runs_of_unequal_length(tmp_path):
    folders = [make_run(tmp_path / "a", 1), make_run(tmp_path / "b", 2, episodes=1), begun(tmp_path / "c")]
    figure = plots.learning_curve(runs.read_all(folders))
    assert "mean of 2 seeds" not in labels(figure)  # they share but a point
    assert len([line for line in figure.axes[0].get_lines() if line.get_linewidth() == 0.8]) == 2
    for draw in (plots.growth, plots.evidence, plots.calibration):
        draw(runs.read_all(folders))


@pytest.mark.parametrize("draw", [plots.learning_curve, plots.growth, plots.evidence, plots.calibration])
def test_nothing_to_draw_is_said(draw, tmp_path):
    figure = draw(runs.read(begun(tmp_path / "run")))
    assert all("yet" in said for said in texts(figure))
    assert texts(figure)
    with pytest.raises(ValueError, match="runs is empty; expected at least one run"):
        draw([])


def test_growth_and_evidence(one, five):
    [run] = runs.read_all(one)
    [line] = plots.growth(run).axes[0].get_lines()
    np.testing.assert_array_equal(line.get_ydata(), run.progress["pseudo_inputs"])
    figure = plots.growth(runs.read_all(five))
    assert labels(figure) == ["each seed", "median of 5 seeds"]
    assert len(figure.axes[0].get_lines()) == 6
    upper, lower = plots.evidence(run).axes
    known = np.isfinite(run.progress["log_evidence"])
    np.testing.assert_array_equal(upper.get_lines()[0].get_ydata(), run.progress["log_evidence"][known])
    assert (upper.get_ylabel(), lower.get_ylabel()) == (
        "log evidence\nper transition",
        "noise variance\n(reward²)",
    )
    assert plots.evidence(runs.read_all(five)).axes[1].get_yscale() == "linear"  # less than a factor of five
    wide = {"noise_variance": run.progress["noise_variance"] ** 3}
    assert plots.evidence(changed(run, **wide)).axes[1].get_yscale() == "log"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.009, 0.06, [0.01, 0.02, 0.05]),
        (0.3, 40.0, [1.0, 10.0]),
        (1e-8, 1.0, [1e-8, 1e-6, 1e-4, 1e-2, 1.0]),
        (1.1, 5.6, [2.0, 5.0]),
        (1e-300, 1e300, [1e-300, 1e-179, 1e-58, 1e63, 1e184]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_few_and_round(low, high, expected):
    assert plots._round_numbers(low, high) == expected


def changed(run, **columns):
    return runs.Run(run.folder, run.config, run.summary, run.progress | columns)


def test_calibration_counts_whole_returns_only(tmp_path):
    [run] = runs.read_all(make_run(tmp_path / "run"))
    n = len(run.progress["step"])
    long = np.full(n, 200.0)
    inside = np.arange(n) % 4 != 0
    realised = np.arange(n, dtype=float)
    columns = {
        "terminated": np.ones(n),
        "length": long,
        "discounted": realised,
        "predicted": realised + np.where(inside, 1.6, 1.7),
        "predicted_std": np.ones(n),
    }
    share = 100 * inside.mean()
    figure = plots.calibration(changed(run, **columns))
    assert texts(figure) == [f"{share:.0f} % of {n} returns inside 90 % intervals"]
    assert labels(figure) == ["interval contains the return", "interval misses it", "predicted = realised"]
    bars = figure.axes[0].collections
    assert [len(bar.get_segments()) for bar in bars] == [inside.sum(), (~inside).sum()]
    np.testing.assert_allclose(np.ptp(bars[0].get_segments()[0][:, 1]), 2 * 1.645)

    few = columns | {"terminated": np.zeros(n), "length": np.where(inside, 200.0, 90.0)}  # 0.97⁹⁰ = 0.065
    assert f"100 % of {inside.sum()} returns" in texts(plots.calibration(changed(run, **few)))[0]
    unknown = columns | {"predicted": np.full(n, np.nan)}
    assert "no finished episode" in texts(plots.calibration(changed(run, **unknown)))[0]


def test_many_episodes_are_thinned_in_the_picture_only(one):
    [run] = runs.read_all(one)
    many = {name: np.tile(column, 60) for name, column in run.progress.items()}
    many["step"] = np.arange(len(many["step"]), dtype=float)
    figure = plots.calibration(changed(run, **many))
    assert sum(len(bar.get_segments()) for bar in figure.axes[0].collections) == 400
    assert "(400 drawn)" in texts(figure)[0]
    assert len(plots.learning_curve(changed(run, **many)).axes[0].get_lines()[0].get_xdata()) == 200


# -- pictures of the agent ------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["value", "uncertainty"])
def test_the_surface_is_what_the_agent_says(agent, what):
    figure = plots.value_surface(agent, what)
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cart position", "cart velocity")  # the widest two
    mesh = axes.collections[0]
    x, y = np.linspace(*axes.get_xlim(), 161)[1::2], np.linspace(*axes.get_ylim(), 161)[1::2]
    rows = np.tile(np.median(agent.visited, axis=0), (2, 1))
    rows[:, 0], rows[:, 1] = x[[0, 79]], y[[30, 79]]
    expected = agent.values(rows)[what == "uncertainty"]
    heights = mesh.get_array().reshape(80, 80)
    np.testing.assert_allclose([heights[30, 0], heights[79, 79]], expected, rtol=1e-8)
    assert labels(figure) == ["pseudo-inputs"]
    assert bar.get_ylabel() == ("expected discounted return", "posterior standard deviation")[what != "value"]


def test_the_most_important_columns_have_short_lengthscales():
    sharp = kernels.Matern52([9.0, 9.0, 0.1, 0.1], columns=[0, 1, 2, 3]) * kernels.Delta(-1, 0.5)
    figure = plots.value_surface(make_agent(kernel=sharp))
    assert figure.axes[0].get_xlabel() == "pole angle"
    assert figure.axes[0].get_ylabel() == "pole velocity"
    summed = kernels.RBF(5.0) + kernels.RBF([1e-2], columns=[3]) * kernels.Delta(4)
    assert plots.value_surface(make_agent(kernel=summed)).axes[0].get_ylabel() == "pole velocity"


def test_a_kernel_of_the_users_own_gives_the_first_columns():
    class Own:
        inner = kernels.RBF(1.0)

        def __call__(self, A, B):
            return self.inner(A, B)

        def diag(self, A):
            return self.inner.diag(A)

    assert plots.value_surface(make_agent(kernel=Own())).axes[0].get_ylabel() == "cart velocity"


def test_unordered_columns_count_least_and_stand_side_by_side():
    figure = plots.value_surface(make_agent(3, (True, False, False)))
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("cart velocity", "pole angle")
    figure = plots.value_surface(make_agent(2, (False, True)))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list("01234")
    assert figure.axes[0].collections[0].get_array().shape == (5, 80)
    assert plots.value_surface(make_agent(2, (True, True))).axes[0].collections[0].get_array().shape == (5, 5)


def test_one_column_gives_a_line_or_bars():
    agent = make_agent(1)
    figure = plots.value_surface(agent)
    assert labels(figure) == ["90 % interval", "posterior mean", "pseudo-inputs"]
    line, diamonds = figure.axes[0].get_lines()
    np.testing.assert_array_equal(line.get_ydata(), agent.values(line.get_xdata()[:, None])[0])
    np.testing.assert_array_equal(diamonds.get_xdata(), agent.model.pseudo_inputs[:, 0])
    agent = make_agent(1, (True,))
    figure = plots.value_surface(agent)
    mean, std = agent.values(np.arange(5.0)[:, None])
    np.testing.assert_array_equal([bar.get_height() for bar in figure.axes[0].patches], mean)
    [errors] = [c for c in figure.axes[0].collections if hasattr(c, "get_segments")]
    np.testing.assert_allclose([np.ptp(s[:, 1]) for s in errors.get_segments()], 2 * 1.645 * std)


def test_names_are_no_mathematics_and_a_constant_column_no_obstacle():
    agent = make_agent(2)
    agent.observations.names = ("cost in $", "$x_{")
    agent.visited[:, 1] = 3.0
    plots.value_surface(agent).canvas.draw()


def test_an_agent_without_a_model_and_a_wrong_word(agent):
    with pytest.raises(ValueError, match="agent has no model yet; train it"):
        plots.value_surface(SimpleNamespace(**vars(agent) | {"model": None}))
    with pytest.raises(ValueError, match="what = 'mean'; expected one of 'value', 'uncertainty'"):
        plots.value_surface(agent, "mean")


def test_pictures_leave_matplotlibs_state_alone(one, agent):
    before = dict(matplotlib.rcParams)
    code = (
        f"import sys; from gpsarsa import plots, runs; assert 'matplotlib' not in sys.modules; "
        f"plots.learning_curve(runs.read({str(one)!r})).canvas.draw(); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    write_report(one, agent=agent)
    assert dict(matplotlib.rcParams) == before


# -- the page -------------------------------------------------------------------------------------

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects what the tests ask for."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.images = [], [], "", []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names)
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attributes))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


def page(path):
    return Page(path.read_text("utf-8"))


def kinds(found):
    return [re.match(r"data:image/(\w+)", image["src"])[1] for image in found.images]


def test_the_report_of_one_run(one, agent):
    path = write_report([one], agent=agent)
    assert path == one / "report.html"
    assert sorted(os.listdir(one)) == ["config.json", "progress.csv", "report.html", "summary.json"]
    text, found = path.read_text("utf-8"), page(path)
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert "<title>CartPole-v1 – gpsarsa report</title>" in text
    assert kinds(found) == ["svg", "svg", "svg", "svg", "png", "png"]
    for image in found.images:
        data = base64.b64decode(image["src"].partition(",")[2], validate=True)
        assert data.startswith(b"\x89PNG") or data.rstrip().endswith(b"</svg>")
        assert image["alt"]
        assert int(image["width"]) > 0
    assert "Threshold 475 reached" in found.text
    assert "20 greedy episodes" in found.text
    assert "sutton_barto_reward = false" in found.text
    assert "expected return of the policy" in found.text
    assert found.tags.count("tr") == 2 + 7 + 5 + 21
    for address in re.findall(r'(?:src|href)="([^"]{0,30})', text):
        assert address.startswith("data:image/")
    assert "script" not in found.tags
    assert "url(" not in text
    assert "@import" not in text


def test_a_report_is_the_same_when_written_again(one):
    first = write_report(one).read_bytes()
    assert write_report(str(one)).read_bytes() == first


def test_the_report_of_several_runs(five):
    path = write_report([five])
    assert path == five / "report.html"
    found = page(path)
    assert kinds(found) == ["svg"] * 4
    assert "of 5 seeds reach the threshold 475" in found.text
    assert "0 to 4" in found.text
    assert "which was not given to this report" in found.text
    assert found.tags.count("details") == 5
    seeds = sorted(five.glob("seed-*"))[:2]
    with pytest.raises(RunError, match=r"2 folders have no place for one report; say which file"):
        write_report(seeds)
    assert write_report(seeds, five / "two.html") == five / "two.html"
    assert "0, 1" in page(five / "two.html").text


def test_a_missed_threshold_none_and_no_evaluation(tmp_path):
    missed = make_run(tmp_path / "missed", threshold=1e6)
    assert "Threshold 1\u202f000\u202f000 not reached" in page(write_report(missed)).text
    none = make_run(tmp_path / "none", threshold=None)
    assert "No threshold of success is set" in page(write_report(none)).text
    killed = make_run(tmp_path / "killed", episodes=7, evaluation=None)
    text = page(write_report(killed)).text
    for said in ("Mean return of the last 7 training episodes", "Not evaluated;", "unfinished"):
        assert said in text
    assert "No episode has finished yet" in page(write_report(begun(tmp_path / "begun"))).text
    mixed = write_report([missed, make_run(tmp_path / "open", 1, evaluation=False)], tmp_path / "mixed.html")
    assert "0 of 1 seeds reach the threshold 1\u202f000\u202f000; 1 not evaluated" in page(mixed).text


def test_an_agent_that_has_learnt_nothing_or_has_one_column(one):
    found = page(write_report(one, agent=SimpleNamespace(model=None)))
    assert "The agent has no model yet" in found.text
    found = page(write_report(one, agent=make_agent(1)))
    assert len(found.images) == 5


def test_long_runs_have_their_points_in_pixels(tmp_path):
    folder = make_run(tmp_path / "run", episodes=30)
    with runs.Log(folder / runs.PROGRESS, keep=0) as log:
        for episode in range(2100):
            log.append(row(np.random.default_rng(episode), episode, 20 * episode + 20, 20))
    path = write_report(folder)
    assert kinds(page(path))[0] == "png"
    assert path.stat().st_size < 1_000_000


def test_every_text_from_a_file_is_escaped(tmp_path):
    evil = "<script>alert(1)</script>\"&'"
    folder = make_run(tmp_path / "<b>bold&", env=evil)
    document = config(0, 100, evil)
    document["environment"]["arguments"] = {evil: [evil]}
    document["agent"] = {evil: evil}
    document["versions"] = {evil: evil}
    document["agent"]["half"] = "half a character \ud800 of a setting"
    (folder / runs.CONFIG).write_text(json.dumps(document))
    agent = make_agent(1)
    agent.observations.names = (evil,)
    path = write_report(folder, agent=agent)
    text, found = path.read_text("utf-8"), page(path)
    assert "<script" not in text
    assert "<b>" not in text
    assert found.text.count("<script>alert(1)</script>") == 9
    assert "half a character ? of a setting" in found.text
    assert "<b>bold&" in found.text


def test_runs_of_several_environments_are_refused(tmp_path):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b", env="Acrobot-v1")
    with pytest.raises(
        RunError, match=r"a ran CartPole-v1, .*b ran Acrobot-v1; report one environment at a time"
    ):
        write_report(tmp_path)
    document = config(0, 100, "CartPole-v1")
    document["environment"]["arguments"] = {}
    runs.write_json(second / runs.CONFIG, document)
    with pytest.raises(RunError, match="b ran CartPole-v1 with other arguments"):
        write_report([first, second], tmp_path / "report.html")


def test_settings_that_differ_show_each_value(tmp_path):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b", 1)
    document = config(1, 12_000, "CartPole-v1")
    document["agent"] = {"budget": 100}
    runs.write_json(second / runs.CONFIG, document)
    assert "300 | 100" in page(write_report(first.parent)).text


def test_without_matplotlib_the_cure_is_told(one, monkeypatch):
    (one / "report.html").write_text("old")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RunError, match=r"was not written: .* pip install 'gpsarsa\[plot\]'"):
        write_report(one)
    with pytest.raises(ImportError, match=r"pip install 'gpsarsa\[plot\]'"):
        plots.growth(runs.read(one))
    assert (one / "report.html").read_text() == "old"


def test_a_report_that_cannot_be_written(one, monkeypatch):
    (one / "report.html").write_text("old")

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(RunError, match=r"report\.html cannot be written: No space left on device"):
        write_report(one)
    assert (one / "report.html").read_text() == "old"
    assert len(os.listdir(one)) == 4


@pytest.mark.parametrize(
    ("mean", "error", "expected"),
    [
        (481.4321, 4.861, "481.4 ± 4.9"),
        (-12345.6, 123.4, "−12\u202f346 ± 123"),
        (0.012345, 0.00123, "0.0123 ± 0.0012"),
        (500.0, 0.0, "500"),
        (500.25, None, "500.2"),
        (1.0, 1e-9, "1 ± 1e−09"),
        (500.0, np.inf, "500"),
    ],
)
def test_numbers_have_no_more_digits_than_they_deserve(mean, error, expected):
    assert plus_minus_of(mean, error) == expected


# -- in a browser ---------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROBE = """<!DOCTYPE html><title>probe</title><pre id="answer">nothing</pre>
<iframe src="{page}" width="{width}" height="900"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const inside = frame.contentDocument;
  const sizes = [...inside.querySelectorAll("img, svg")].map(image => {{
    const box = image.getBoundingClientRect();
    return [image.complete ? image.naturalWidth : 0, box.width, box.height].map(Math.round).join(" ");
  }});
  const root = inside.documentElement;
  document.getElementById("answer").textContent =
    [inside.title, root.scrollWidth - root.clientWidth, ...sizes].join("|");
}};
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_shows_the_page(one, agent, tmp_path, width):
    path = write_report(one, tmp_path / "report.html", agent)
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(page=path.as_uri(), width=width), "utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=4000"]
    command += ["--enable-logging=stderr", "--v=0", "--dump-dom", probe.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in done.stderr
    title, overflow, *sizes = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout)[1].split("|")
    assert title == "CartPole-v1 – gpsarsa report"
    assert overflow == "0"
    assert len(sizes) == 6
    for size in sizes:
        natural, wide, high = map(int, size.split())
        assert natural > 0
        assert 250 < wide <= width
        assert high > 150
