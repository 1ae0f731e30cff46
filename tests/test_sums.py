"""Sums over blocks and partitions: any order and cut gives the same, and the sandwich is the obvious one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsarsa.basis import Basis
from gpsarsa.offline.datasets import open_dataset
from gpsarsa.offline.recording import write_table
from gpsarsa.offline.sums import First, Resampling, Second
from gpsarsa.statistics import Likelihood

LENGTHS = [7, 1, 12, 5, 30, 2, 9, 16]
CASES = {
    "dtc": (Likelihood(tables.NOISE, False, True, 0.5), False),
    "iid": (Likelihood(tables.NOISE, True, False, 0.5), False),
    "correlated": (Likelihood(tables.NOISE, True, True, 0.5), False),
    "fixed point": (Likelihood(tables.NOISE, True, False, 0.5), True),
}


def first_pass(case):
    likelihood, fixed_point = CASES[case]
    return First(tables.KERNEL, tables.pseudo_inputs(), likelihood, fixed_point)


def second_pass(case, seed=2):
    first, rng = first_pass(case), np.random.default_rng(seed)
    size = first.basis.size
    return Second(first, rng.standard_normal(size), rng.standard_normal(size), 0.7, float(len(LENGTHS)))


def third_pass(case, end=7):
    return Resampling(first_pass(case), 11, 2, end)


PASSES = [make(case) for make in (first_pass, second_pass, third_pass) for case in CASES]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("sums") / "logs.parquet"
    write_table(path, **tables.columns(LENGTHS), rows_per_group=6)
    return open_dataset(path, rows_per_partition=10)


def parts(task, data, rows=16_384):
    return [task.over(data.blocks(p, gamma=tables.GAMMA, rows=rows)) for p in data.partitions]


def same(one, other, tolerance=1e-10):
    for name, array in one.state().items():
        np.testing.assert_allclose(array, other.state()[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("task", PASSES)
def test_sums_add_up_in_any_order_and_grouping(task, data):
    found = parts(task, data)
    assert len(found) > 5
    forwards = sum(found[1:], found[0])
    rng = np.random.default_rng(0)
    for _ in range(3):
        waiting = list(found)
        while len(waiting) > 1:  # add up two at random
            one, other = (waiting.pop(rng.integers(len(waiting))) for _ in range(2))
            waiting.append(one + other)
        same(forwards, waiting[0])
    same(forwards, forwards + task.empty())


@pytest.mark.parametrize("task", PASSES)
def test_sums_come_back_from_their_arrays(task, data):
    total = sum(parts(task, data), task.empty())
    arrays = {name: array.copy() for name, array in total.state().items()}
    for array in arrays.values():
        array.flags.writeable = False
    again = task.restored(arrays)
    same(total, again, 0.0)
    same(total + total, again + again, 0.0)


@given(rows=st.integers(1, 50))
@settings(max_examples=10)
def test_blocks_of_any_size_give_the_same(data, rows):
    for task in PASSES:
        same(sum(parts(task, data), task.empty()), sum(parts(task, data, rows), task.empty()))


@pytest.mark.parametrize("make", [first_pass, second_pass, third_pass])
def test_a_task_is_small_and_goes_through_pickle(make, data):
    task = make("correlated")
    before = parts(task, data)[0]
    letter = pickle.dumps(task)
    assert len(letter) < 5_000
    same(before, parts(pickle.loads(letter), data)[0], 0.0)


# ── against loops over episodes ──────────────────────────────────────────────────────────────────────


def differences(basis, t):
    return basis.kernel_rows(t.inputs) - t.discounts[:, None] * basis.kernel_rows(t.next_inputs)


def noise_matrix(t, tau, sigma2, correlated):
    """Of one episode, written out."""
    N = len(t)
    noise = np.diag(tau + sigma2)
    if correlated:
        for i in range(N):
            noise[i, i] += t.discounts[i] ** 2 * sigma2
        for i in range(1, N):
            noise[i, i - 1] = noise[i - 1, i] = -t.discounts[i - 1] * sigma2
    return noise


def residual_variances(basis, t, Psi):
    k = tables.KERNEL
    prior = [
        k(x[None], x[None])[0, 0] - 2 * g * k(x[None], y[None])[0, 0] + g * g * k(y[None], y[None])[0, 0]
        for x, y, g in zip(t.inputs, t.next_inputs, t.discounts, strict=True)
    ]
    return np.array(prior) - (Psi**2).sum(axis=1)


def episode_terms(case, t):
    """Ψᵀ-like weights and residual-like rewards of one episode: the score is A (r − Ψ m)."""
    likelihood, fixed_point = CASES[case]
    basis = Basis.spanned_by(tables.KERNEL, tables.pseudo_inputs())[0]
    W = basis.factor
    Psi = differences(basis, t) @ W.T
    r = t.rewards - likelihood.prior_mean * (1 - t.discounts)
    if fixed_point:
        Phi = basis.kernel_rows(t.inputs) @ W.T
        b = 1 / (tables.KERNEL.diag(t.inputs) - (Phi**2).sum(axis=1) + likelihood.noise_variance)
        return (b[:, None] * Phi).T, Psi, r
    tau = residual_variances(basis, t, Psi) if likelihood.fitc else np.zeros(len(t))
    noise = noise_matrix(t, tau, likelihood.noise_variance, likelihood.correlated)
    return Psi.T @ np.linalg.inv(noise), Psi, r


def episodes():
    table = tables.columns(LENGTHS)
    t = tables.transitions(table)
    return [t[np.flatnonzero(table["episode"] == e)] for e in range(len(LENGTHS))]


@pytest.mark.parametrize("case", CASES)
def test_the_posterior_is_the_obvious_one(case, data):
    task = first_pass(case)
    total = sum(parts(task, data), task.empty())
    matrix, moment = np.eye(task.basis.size), np.zeros(task.basis.size)
    for t in episodes():
        A, Psi, r = episode_terms(case, t)
        matrix += A @ Psi
        moment += A @ r
    belief = total.statistics.posterior(task.likelihood)
    np.testing.assert_allclose(belief.mean, np.linalg.solve(matrix, moment), atol=1e-9)
    rows = [t.inputs[0] for t in episodes()]
    Phi = task.basis.kernel_rows(np.array(rows)) @ task.basis.factor.T
    np.testing.assert_allclose(total.initial, Phi.sum(axis=0), atol=1e-10)
    assert list(total.counts) == [sum(LENGTHS), len(LENGTHS), 0]


@pytest.mark.parametrize("case", CASES)
def test_the_sandwich_is_the_obvious_one(case, data):
    task = second_pass(case)
    basis, E = task.first.basis, len(LENGTHS)
    meat, squares = np.zeros((basis.size, basis.size)), 0.0
    for t in episodes():
        A, Psi, r = episode_terms(case, t)
        g = A @ (r - Psi @ task.mean)
        begin = basis.factor @ basis.kernel_rows(t.inputs[:1])[0]
        influence = task.direction @ g + (begin @ task.mean - task.value) / E
        meat += np.outer(g, g)
        squares += influence**2
    found = sum(parts(task, data), task.empty())
    np.testing.assert_allclose(found.meat, meat, rtol=1e-9, atol=1e-9 * np.abs(meat).max())
    np.testing.assert_allclose(found.numbers[:2], [squares, E], rtol=1e-9)


# ── the bootstrap ────────────────────────────────────────────────────────────────────────────────────


def solved(task, data):
    """The mean value of the initial states."""
    totals = sum(parts(task, data), task.empty())
    return totals.initial @ totals.statistics.posterior(task.likelihood).mean / totals.counts[1]


def repeated(table, weights):
    """A table in which each episode, known by its first row, stands as often as its weight says."""
    first = np.flatnonzero(table["step"] == 0)
    which = np.cumsum(table["step"] == 0) - 1
    rows = [np.flatnonzero(which == e) for e in range(len(first)) for _ in range(weights[first[e]])]
    new = {name: np.concatenate([column[r] for r in rows]) for name, column in table.items()}
    return new | {"episode": np.repeat(np.arange(len(rows)), [len(r) for r in rows])}


@pytest.mark.parametrize("case", CASES)
def test_a_replicate_is_the_table_with_its_episodes_repeated(case, data, tmp_path):
    table, task = tables.columns(LENGTHS), third_pass(case)
    found = sum(parts(task, data), task.empty()).values()
    first = np.flatnonzero(table["step"] == 0)
    drawn = {row: np.random.default_rng([task.seed, 0, row]).poisson(1.0, task.end) for row in first}
    assert len(found) == task.end - task.begin
    for k in range(task.begin, task.end):
        weights = {row: numbers[k] for row, numbers in drawn.items()}
        path = tmp_path / f"{k}.parquet"
        write_table(path, **repeated(table, weights))
        expected = solved(task.first, open_dataset(path))
        assert found[k - task.begin] == pytest.approx(expected, rel=1e-9)


def test_replicates_do_not_depend_on_how_many_are_made_at_a_time(data):
    whole, part = (
        sum(parts(task, data), task.empty()) for task in (third_pass("iid", 7), third_pass("iid", 4))
    )
    np.testing.assert_allclose(whole.values()[:2], part.values(), rtol=1e-12)


def test_rows_without_episodes_are_drawn_one_by_one(tmp_path):
    loose = tables.columns(LENGTHS, chains=False)
    single = loose | {"episode": np.arange(sum(LENGTHS)), "step": np.zeros(sum(LENGTHS), dtype=int)}
    found = []
    for name, table in (("loose", loose), ("single", single)):
        write_table(tmp_path / f"{name}.parquet", **table, rows_per_group=20)
        data = open_dataset(tmp_path / f"{name}.parquet", rows_per_partition=20)
        task = third_pass("fixed point")
        found.append(sum(parts(task, data), task.empty()).values())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)
    assert np.ptp(found[0]) > 0


def test_replicates_that_drew_nothing_have_no_value(tmp_path):
    write_table(tmp_path / "one.parquet", **tables.columns([9]))
    data, task = open_dataset(tmp_path / "one.parquet"), Resampling(first_pass("iid"), 0, 0, 40)
    weights = np.random.default_rng([0, 0, 0]).poisson(1.0, 40)
    found = sum(parts(task, data), task.empty()).values()
    assert np.array_equal(np.isnan(found), weights == 0)


# ── clusters ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "names", [lambda e: 0 * e, lambda e: -1 - e, lambda e: e % 2], ids=["0", "-1…", "0, 1"]
)
def test_episodes_are_told_apart_whatever_they_are_called(data, tmp_path, names):
    table = tables.columns(LENGTHS)
    write_table(tmp_path / "named.parquet", **table | {"episode": names(table["episode"])}, rows_per_group=6)
    other = open_dataset(tmp_path / "named.parquet", rows_per_partition=10)
    for task in (second_pass("fixed point"), third_pass("fixed point")):
        same(sum(parts(task, data), task.empty()), sum(parts(task, other), task.empty()))


def test_rows_without_episodes_are_clusters_of_their_own(tmp_path):
    write_table(tmp_path / "loose.parquet", **tables.columns(LENGTHS, chains=False), rows_per_group=20)
    data = open_dataset(tmp_path / "loose.parquet", rows_per_partition=20)
    task = second_pass("iid")
    found = sum(parts(task, data), task.empty())
    assert found.numbers[1] == sum(LENGTHS)


def test_a_row_that_overflows_is_named(tmp_path):
    table = tables.columns([5, 6, 7])
    table["reward"][9] = 1e200
    write_table(tmp_path / "huge.parquet", **table)
    data = open_dataset(tmp_path / "huge.parquet")
    for task in (first_pass("correlated"), second_pass("correlated")):
        with pytest.raises(ValueError, match=r"rewards\[9\] = 1e\+200 overflows"):
            parts(task, data, rows=4)
