"""Evaluating a policy from logs: values, intervals, files, comparison, warnings and refusals."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import tables
from scipy import stats

from gpsarsa import CheckpointError, SarsaAgent, SparseGPSarsa, kernels, offline
from gpsarsa.offline import DatasetError, Evaluation, compare, evaluate, open_dataset
from gpsarsa.offline.evaluation import CHANGES, _fingerprint
from gpsarsa.offline.recording import write_table

LENGTHS = [7, 1, 12, 5, 30, 2, 9, 16, 4, 11] * 3
QUANTILES = {0.5: 0.6744897501960817, 0.9: 1.6448536269514722, 0.99: 2.5758293035489004}


def given_model(**more):
    return {
        "gamma": tables.GAMMA, "kernel": tables.KERNEL, "noise_variance": tables.NOISE,
        "pseudo_inputs": tables.pseudo_inputs(), **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("evaluation") / "logs.parquet"
    write_table(path, **tables.columns(LENGTHS), rows_per_group=50)
    return path


@pytest.fixture(scope="module")
def found(table):
    return evaluate(table, **given_model())


# ── what it says ─────────────────────────────────────────────────────────────────────────────────────


def test_the_value_is_the_mean_over_initial_states(found):
    table = tables.columns(LENGTHS)
    x = tables.transitions(table).inputs[table["step"] == 0]
    mean, covariance = found.predict(x, return_cov=True)
    assert found.value == pytest.approx(mean.mean(), rel=1e-10)
    assert found.summary.initial_states == found.summary.clusters == len(LENGTHS)
    assert found.summary.transitions == sum(LENGTHS)
    assert found.summary.left_out == 0
    assert 0 < found.summary.posterior_std <= np.sqrt(covariance.mean())
    assert found.gamma == tables.GAMMA


def test_without_episodes_all_states_count(tmp_path):
    table = tables.columns(LENGTHS, chains=False)
    write_table(tmp_path / "loose.parquet", **table)
    found = evaluate(tmp_path / "loose.parquet", **given_model())
    assert found.value == pytest.approx(found.predict(tables.transitions(table).inputs).mean(), rel=1e-10)
    assert found.summary.initial_states == found.summary.clusters == sum(LENGTHS)


def test_rows_without_a_next_action_are_left_out(tmp_path):
    table = tables.columns(LENGTHS)
    gone = table["truncated"]
    table["next_action"] = np.ma.masked_array(table["next_action"], gone)
    write_table(tmp_path / "cut.parquet", **table)
    found = evaluate(tmp_path / "cut.parquet", **given_model())
    assert found.summary.left_out == gone.sum() > 0
    assert found.summary.transitions == len(gone) - gone.sum()
    other = evaluate(tmp_path / "cut.parquet", **given_model(target_policy=tables.Always(1)))
    assert other.summary.left_out == 0


def test_a_known_value_is_found():
    """A reward of one each step for ever: Q = 1/(1 − γ) wherever there are data."""
    table = tables.columns([40] * 20)
    table["reward"] = np.ones(len(table["reward"]))
    table["terminated"][:] = False
    found = evaluate(tables.transitions(table), gamma=tables.GAMMA, pseudo_inputs=40)
    assert found.value == pytest.approx(1 / (1 - tables.GAMMA), rel=0.02)


def test_the_same_seed_gives_the_same_numbers(table):
    one, two, other = (evaluate(table, gamma=0.9, pseudo_inputs=20, seed=s) for s in (3, 3, 4))
    assert one.summary == two.summary
    assert np.array_equal(one.pseudo_inputs, two.pseudo_inputs)
    assert other.value == pytest.approx(one.value, abs=5 * one.standard_error + 0.1)


def test_what_is_given_is_used_and_the_rest_is_learnt(table, found):
    assert found.kernel == tables.KERNEL or repr(found.kernel) == repr(tables.KERNEL)
    assert found.noise_variance == tables.NOISE
    learnt = evaluate(table, gamma=0.9, pseudo_inputs=15)
    assert len(learnt.pseudo_inputs) == 15
    assert learnt.noise_variance != tables.NOISE
    half = evaluate(table, gamma=0.9, kernel=tables.KERNEL, pseudo_inputs=15)
    assert repr(half.kernel) == repr(tables.KERNEL)
    assert half.noise_variance > 0


def test_a_prior_mean_moves_what_is_unknown(table):
    far = np.array([[50.0, 50.0, 0.0]])
    assert evaluate(table, **given_model(prior_mean=7.0)).predict(far) == pytest.approx(7.0, abs=1e-6)


@pytest.mark.filterwarnings("ignore:the logged transitions look stochastic")
def test_the_method_is_told(found, table):
    assert found.summary.method == "projected fixed point"
    assert evaluate(table, **given_model(noise="iid")).summary.method == "iid noise"
    correlated = evaluate(table, **given_model(noise="correlated"))
    assert correlated.summary.method == "correlated noise"
    assert (correlated.noise, correlated.get_params()["weights"]) == ("correlated", "dtc")


def test_no_discount_is_plain_regression(table):
    found = evaluate(table, **given_model(gamma=0.0))
    t = tables.transitions(tables.columns(LENGTHS), gamma=0.0)
    model = SparseGPSarsa(tables.KERNEL, tables.NOISE, tables.pseudo_inputs(), growth="streaming").fit(t)
    X = tables.pseudo_inputs(5, seed=9)
    np.testing.assert_allclose(found.predict(X), model.predict(X), atol=1e-9)


# ── intervals ────────────────────────────────────────────────────────────────────────────────────────


def dense(table, noise):
    """G, the episodes' scores and the initial features of a table, in terms of K_zz⁻¹ and loops alone."""
    t, Z, k = tables.transitions(table), tables.pseudo_inputs(), tables.KERNEL
    W = np.linalg.inv(np.linalg.cholesky(k(Z, Z)))
    Phi, ahead = k(t.inputs, Z) @ W.T, k(t.next_inputs, Z) @ W.T
    Psi = Phi - t.discounts[:, None] * ahead
    if noise == "auto":
        Lambda = Phi / (k.diag(t.inputs) - (Phi**2).sum(axis=1) + tables.NOISE)[:, None]
    elif noise == "iid":
        cross = np.array([k(x[None], y[None])[0, 0] for x, y in zip(t.inputs, t.next_inputs, strict=True)])
        prior = k.diag(t.inputs) - 2 * t.discounts * cross + t.discounts**2 * k.diag(t.next_inputs)
        Lambda = Psi / (prior - (Psi**2).sum(axis=1) + tables.NOISE)[:, None]
    else:
        covariance = np.diag(1.0 + t.discounts**2)  # of e(x) − γ e(x′) with e iid along an episode
        for i in np.flatnonzero(~t.starts):
            covariance[i, i - 1] = covariance[i - 1, i] = -t.discounts[i - 1]
        Lambda = np.linalg.solve(tables.NOISE * covariance, Psi)
    G = np.linalg.inv(np.eye(len(Z)) + Lambda.T @ Psi)
    m = G @ Lambda.T @ t.rewards
    scores = Lambda * (t.rewards - Psi @ m)[:, None]
    return G, m, np.array([scores[table["episode"] == e].sum(axis=0) for e in range(len(LENGTHS))]), W


@pytest.mark.parametrize("noise", ["auto", "iid", "correlated"])
@pytest.mark.filterwarnings("ignore:the logged transitions look stochastic")
def test_intervals_are_the_obvious_ones(table, noise):
    found, columns = evaluate(table, **given_model(noise=noise)), tables.columns(LENGTHS)
    (G, m, scores, W), E, k = dense(columns, noise), len(LENGTHS), tables.KERNEL
    initial = k(tables.transitions(columns).inputs[columns["step"] == 0], tables.pseudo_inputs()) @ W.T
    mean = initial.mean(axis=0)
    assert found.value == pytest.approx(mean @ m, rel=1e-9)
    influence = scores @ G.T @ mean + (initial @ m - mean @ m) / E
    square = E / (E - 1) * (influence**2).sum() + mean @ G @ G.T @ mean
    assert found.standard_error == pytest.approx(np.sqrt(square), rel=1e-8)
    low, high = found.interval(0.9)
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.95, E - 1) * np.sqrt(square), rel=1e-8)
    X = tables.pseudo_inputs(5, seed=9)
    covariance = G @ (E / (E - 1) * scores.T @ scores + np.eye(len(G))) @ G.T
    Phi = k(X, tables.pseudo_inputs()) @ W.T
    variance = np.diag(Phi @ covariance @ Phi.T) + k.diag(X) - (Phi**2).sum(axis=1)
    low, high = found.interval_at(X, 0.8)
    np.testing.assert_allclose((high - low) / 2, stats.t.ppf(0.9, E - 1) * np.sqrt(variance), rtol=1e-7)


def test_one_episode_says_nothing_about_others(tmp_path):
    write_table(tmp_path / "one.parquet", **tables.columns([40]))
    found = evaluate(tmp_path / "one.parquet", **given_model())
    found.save(tmp_path / "model.safetensors")
    for one in (found, Evaluation.load(tmp_path / "model.safetensors")):
        assert np.isfinite(one.value)
        assert one.standard_error == np.inf
        assert one.interval() == (-np.inf, np.inf)
        assert np.isinf(one.interval_at(tables.pseudo_inputs(2))).all()
        assert np.isfinite(one.interval(kind="posterior")).all()


@pytest.fixture(scope="module")
def resampled(table):
    return evaluate(table, **given_model(bootstrap=400))


def test_the_bootstrap_spreads_as_the_episodes_do(resampled, found):
    assert resampled.summary == found.summary
    values = resampled.replicates
    assert len(values) == 400
    assert np.mean(values) == pytest.approx(found.value, abs=0.3 * found.standard_error)
    assert np.std(values) == pytest.approx(found.standard_error, rel=0.25)
    low, high = resampled.interval(0.8, "bootstrap")
    assert np.mean((values >= low) & (values <= high)) == pytest.approx(0.8, abs=0.01)
    values[:] = 0.0
    assert np.ptp(resampled.replicates) > 0


def test_the_bootstrap_depends_on_seed_not_on_partitions(table, resampled):
    cut = open_dataset(table, rows_per_partition=1)
    again = evaluate(cut, **given_model(bootstrap=40))
    np.testing.assert_allclose(again.replicates, resampled.replicates[:40], rtol=1e-10)
    other = evaluate(cut, **given_model(bootstrap=40, seed=1))
    assert not np.isclose(other.replicates, again.replicates).any()


def test_replicates_come_back_from_their_file(resampled, tmp_path):
    resampled.save(tmp_path / "model.safetensors")
    again = Evaluation.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.replicates, resampled.replicates)
    assert again.interval(0.9, "bootstrap") == resampled.interval(0.9, "bootstrap")


@pytest.mark.parametrize("level", QUANTILES)
def test_intervals_have_their_level(found, level):
    low, high = found.interval(level, "posterior")
    assert (high - low) / 2 == pytest.approx(QUANTILES[level] * found.summary.posterior_std)
    assert (high + low) / 2 == pytest.approx(found.value)


def test_wider_levels_contain_narrower_ones(found):
    X = tables.pseudo_inputs(5, seed=9)
    for narrow, wide in ((0.5, 0.9), (0.9, 0.99)):
        assert found.interval(wide)[0] < found.interval(narrow)[0] < found.value
        assert found.value < found.interval(narrow)[1] < found.interval(wide)[1]
        (inner_low, inner_high), (low, high) = found.interval_at(X, narrow), found.interval_at(X, wide)
        assert (low < inner_low).all()
        assert (inner_low < found.predict(X)).all()
        assert (inner_high < high).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), r"level = 0\.0; expected a number between 0 and 1"),
        ((1.0,), r"level = 1\.0"),
        ((90,), r"level = 90"),
        ((0.9, "bootstrap"), r"no bootstrap; ask for one: evaluate\(\.\.\., bootstrap=200\)"),
        ((0.9, "frequentist"), "kind = 'frequentist'; expected one of 'clustered', 'posterior', 'bootstrap'"),
    ],
)
def test_intervals_that_make_no_sense(found, arguments, message):
    with pytest.raises(ValueError, match=message):
        found.interval(*arguments)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────


def test_an_evaluation_comes_back_from_its_file(found, tmp_path):
    found.save(tmp_path / "model.safetensors")
    again = Evaluation.load(tmp_path / "model.safetensors")
    X = tables.pseudo_inputs(5, seed=9)
    assert again.summary == found.summary
    assert again.gamma == found.gamma
    assert again.interval(0.8) == found.interval(0.8)
    for one, other in zip(again.interval_at(X), found.interval_at(X), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(again.predict(X), found.predict(X))


def test_a_damaged_file_is_refused(found, tmp_path):
    path = tmp_path / "model.safetensors"
    found.save(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match="damaged"):
        Evaluation.load(path)


def test_one_that_evaluated_nothing_says_so():
    empty = Evaluation(kernels.RBF([1.0]), 0.1, np.zeros((1, 1)), growth="streaming")
    for ask in (lambda: empty.value, lambda: empty.interval(), lambda: empty.summary):
        with pytest.raises(ValueError, match="nothing was evaluated yet"):
            ask()


@pytest.mark.parametrize("name", CHANGES)
def test_an_evaluation_is_a_result(found, name):
    before = found.value, found.interval_at(tables.pseudo_inputs(3))
    with pytest.raises(TypeError, match=f"{name} would leave this evaluation's value"):
        getattr(found, name)(tables.transitions(tables.columns(LENGTHS)))
    assert found.value == before[0]
    np.testing.assert_array_equal(found.interval_at(tables.pseudo_inputs(3)), before[1])


@pytest.mark.filterwarnings("ignore:the logged transitions look stochastic")
def test_the_fixed_point_has_no_evidence(found, table):
    with pytest.raises(ValueError, match="the projected fixed point has no evidence"):
        found.log_evidence()
    t = tables.transitions(tables.columns(LENGTHS))
    iid = evaluate(table, **given_model(noise="iid"))
    alike = SparseGPSarsa(iid.kernel, iid.noise_variance, iid.pseudo_inputs, weights=iid.weights)
    assert iid.log_evidence() == pytest.approx(alike.fit(t).log_evidence(), rel=1e-9)


def test_a_log_that_begins_in_the_middle_of_an_episode():
    t = tables.transitions(tables.columns(LENGTHS))
    whole, cut = (evaluate(rows, **given_model()).summary for rows in (t, t[3:]))
    assert (cut.initial_states, cut.clusters) == (whole.initial_states, whole.clusters)


def test_agents_that_would_be_saved_alike_have_one_fingerprint(tmp_path):
    agent = SarsaAgent(gym.make("CartPole-v1"), seed=0).learn(250)
    agent.save(tmp_path / "agent.safetensors")
    marks = [_fingerprint(SarsaAgent.load(tmp_path / "agent.safetensors")) for _ in range(2)]
    assert marks[0] == marks[1]
    agent.learn(20)
    assert _fingerprint(agent) != marks[0]


# ── comparison ───────────────────────────────────────────────────────────────────────────────────────


def test_policies_are_compared(table):
    evaluations = {
        f"always {a}": evaluate(table, **given_model(target_policy=tables.Always(a))) for a in (0, 2)
    }
    better = compare(evaluations)
    assert list(better) == ["always 2", "always 0"]  # each action's reward grows with its number
    assert better["always 2"]["always 0"] > 0.5
    assert better["always 2"]["always 0"] + better["always 0"]["always 2"] == pytest.approx(1.0)
    assert compare({"alone": evaluations["always 0"]}) == {"alone": {}}


def test_the_probability_is_that_of_welchs_test(table):
    one, other = (evaluate(table, **given_model(target_policy=tables.Always(a))) for a in (0, 2))
    other._value = replace(other.summary, clusters=7)  # as if from another log
    numbers = [
        number
        for e in (one, other)
        for number in (e.value, e.standard_error * np.sqrt(e.summary.clusters), e.summary.clusters)
    ]
    welch = stats.ttest_ind_from_stats(*numbers, equal_var=False, alternative="less")
    better = compare({"one": one, "other": other})
    assert better["other"]["one"] == pytest.approx(1 - welch.pvalue, rel=1e-9)
    assert better["one"]["other"] == pytest.approx(welch.pvalue, rel=1e-9)


def test_a_policy_is_as_good_as_itself(found):
    assert compare({"one": found, "same": found})["one"]["same"] == pytest.approx(0.5)


# ── warnings and refusals ────────────────────────────────────────────────────────────────────────────


def test_iid_noise_on_stochastic_logs_is_warned_of(table):
    for policy in (None, tables.Always(0)):
        with pytest.warns(UserWarning, match=r"look stochastic.*use noise='auto'"):
            evaluate(table, **given_model(noise="iid", target_policy=policy))


@pytest.mark.filterwarnings("error")
def test_what_suits_stochastic_logs_is_not_warned_of(table):
    for noise in ("auto", "correlated"):
        evaluate(table, **given_model(noise=noise))
    evaluate(table, **given_model(target_policy=tables.Always(0)))


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"gamma": 1.5}, ValueError, "gamma"),
        ({"gamma": "much"}, TypeError, "gamma"),
        ({"noise": "white"}, ValueError, "noise = 'white'; expected one of"),
        ({"prior_mean": np.inf}, ValueError, "prior_mean"),
        ({"noise_variance": 0.0}, ValueError, "noise_variance"),
        ({"pseudo_inputs": 0}, ValueError, "pseudo_inputs = 0; expected 1 or more"),
        ({"pseudo_inputs": 2.5}, TypeError, r"pseudo_inputs = 2\.5"),
        ({"pseudo_inputs": np.zeros((3, 2))}, ValueError, "pseudo_inputs"),
        ({"pseudo_inputs": np.full((3, 3), np.nan)}, ValueError, "pseudo_inputs"),
        ({"engine": "spark"}, ValueError, "engine = 'spark'"),
        ({"workers": 0}, ValueError, "workers = 0"),
        ({"address": "host:1"}, ValueError, "is for engine='ray'"),
        ({"bootstrap": 5}, ValueError, "bootstrap = 5; expected 0 or at least 20"),
        ({"bootstrap": -1}, ValueError, "bootstrap = -1"),
        ({"bootstrap": 20.5}, TypeError, r"bootstrap = 20\.5"),
        ({"noise": "correlated", "target_policy": tables.Always(0)}, ValueError, "logged next actions"),
        ({"target_policy": 3}, TypeError, "target_policy is a int"),
    ],
)
def test_arguments_that_make_no_sense(table, arguments, kind, message):
    with pytest.raises(kind, match=message):
        evaluate(table, **given_model(**arguments))


def test_correlated_noise_needs_episodes(tmp_path):
    write_table(tmp_path / "loose.parquet", **tables.columns([5, 5], chains=False))
    with pytest.raises(DatasetError, match="no columns episode and step; use noise='auto'"):
        evaluate(tmp_path / "loose.parquet", **given_model(noise="correlated"))


def test_a_table_of_which_nothing_can_be_used(tmp_path):
    table = tables.columns([1, 1, 1])
    table["terminated"][:], table["truncated"][:] = False, True
    table["next_action"] = np.ma.masked_array(table["next_action"], np.ones(3, dtype=bool))
    write_table(tmp_path / "cut.parquet", **table)
    with pytest.raises(DatasetError, match="none of 3 rows"):
        evaluate(tmp_path / "cut.parquet", gamma=0.9)


def test_an_open_dataset_is_taken_as_it_is(table, found):
    again = evaluate(open_dataset(table, rows_per_partition=1), **given_model())
    assert again.value == pytest.approx(found.value, rel=1e-10)


def test_the_package_offers_its_names():
    for name in offline.__all__:
        assert getattr(offline, name).__name__ == name
    assert set(offline.__all__) <= set(dir(offline))
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        offline.evalute  # noqa: B018


def test_progress_tells_rows_and_time(table, capsys):
    evaluate(table, progress_bar=True, **given_model())
    shown = capsys.readouterr().err
    assert f"posterior {sum(LENGTHS)}/{sum(LENGTHS)}" in shown
    assert f"errors {sum(LENGTHS)}/{sum(LENGTHS)}" in shown
    assert "rows/s, 0 s left" in shown
