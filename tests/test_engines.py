"""Engines: threads and Ray give what `fit` gives, whatever is cut, killed, damaged or taken up again."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsarsa import SparseGPSarsa, checkpoint
from gpsarsa.basis import Basis
from gpsarsa.offline import engines
from gpsarsa.offline.datasets import DatasetError, open_dataset
from gpsarsa.offline.engines import EngineError, Local, Ray, Work, engine
from gpsarsa.offline.evaluation import Reader, evaluate
from gpsarsa.offline.recording import write_table
from gpsarsa.offline.sums import First
from gpsarsa.statistics import FixedPoint, Likelihood

pytestmark = pytest.mark.filterwarnings("ignore:the logged transitions look stochastic")

LENGTHS = [7, 1, 12, 5, 30, 2, 9, 16, 4, 11]
X = tables.pseudo_inputs(6, seed=5)


def given_model(**more):
    return {
        "gamma": tables.GAMMA, "kernel": tables.KERNEL, "noise_variance": tables.NOISE,
        "pseudo_inputs": tables.pseudo_inputs(), "prior_mean": 0.5, **more,
    }  # fmt: skip


def fitted(noise):
    model = SparseGPSarsa(
        tables.KERNEL, tables.NOISE, tables.pseudo_inputs(), growth="streaming", noise=noise, prior_mean=0.5,
        weights="dtc" if noise == "correlated" else "fitc",
    )  # fmt: skip
    return model.fit(tables.transitions(tables.columns(LENGTHS)))


def assert_same_posterior(found, expected):
    assert np.array_equal(found.pseudo_inputs, expected.pseudo_inputs)
    mean, covariance = expected.predict(X, return_cov=True)
    np.testing.assert_allclose(found.predict(X), mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.predict(X, return_cov=True)[1], covariance, rtol=1e-9, atol=1e-9)


def fixed_point(action=None):
    """The mean of the projected fixed point, from the rows in memory; of the policy that knows one action."""
    table = tables.columns(LENGTHS)
    if action is not None:
        table["next_action"] = np.full_like(table["next_action"], action)
    basis = Basis.spanned_by(tables.KERNEL, tables.pseudo_inputs())[0]
    likelihood = Likelihood(tables.NOISE, True, False, 0.5)
    belief = FixedPoint.from_block(basis, tables.transitions(table), likelihood).posterior(likelihood)
    return 0.5 + basis.whiten(basis.kernel_rows(X)) @ belief.mean


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "logs.parquet"
    write_table(path, **tables.columns(LENGTHS), rows_per_group=8)
    return path


def opened(table, rows=15):
    return open_dataset(table, rows_per_partition=rows)


@pytest.fixture(scope="module")
def cluster():
    """One Ray for all tests of this module."""
    ray = pytest.importorskip("ray")
    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    for module in (tables, sys.modules[__name__]):  # workers cannot import them
        ray.cloudpickle.register_pickle_by_value(module)
    yield ray
    for module in (tables, sys.modules[__name__]):
        ray.cloudpickle.unregister_pickle_by_value(module)
    ray.shutdown()


# ── the same posterior ───────────────────────────────────────────────────────────────────────────────


@given(group=st.integers(1, 120), partition=st.integers(1, 120), workers=st.integers(1, 3))
@settings(max_examples=12)
def test_threads_give_what_fit_gives(group, partition, workers):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logs.parquet"
        write_table(path, **tables.columns(LENGTHS), rows_per_group=group)
        for noise in ("iid", "correlated"):
            found = evaluate(opened(path, partition), **given_model(noise=noise, workers=workers))
            assert_same_posterior(found, fitted(noise))
        for action, policy in ((None, None), (1, tables.Always(1))):
            found = evaluate(opened(path, partition), **given_model(target_policy=policy, workers=workers))
            np.testing.assert_allclose(found.predict(X), fixed_point(action), rtol=1e-9, atol=1e-9)


def test_several_files_are_one_table(tmp_path):
    whole = tables.columns(LENGTHS)
    for number, chosen in enumerate(np.array_split(np.arange(len(LENGTHS)), 3)):
        rows = np.isin(whole["episode"], chosen)
        write_table(tmp_path / f"{number}.parquet", **{name: c[rows] for name, c in whole.items()})
    assert_same_posterior(evaluate(tmp_path, **given_model(noise="correlated")), fitted("correlated"))


@pytest.mark.parametrize("noise", ["auto", "iid", "correlated"])
def test_ray_gives_what_fit_gives(table, cluster, noise):
    found = evaluate(opened(table), engine="ray", **given_model(noise=noise, bootstrap=30))
    if noise == "auto":
        np.testing.assert_allclose(found.predict(X), fixed_point(), rtol=1e-9, atol=1e-9)
    else:
        assert_same_posterior(found, fitted(noise))
    local = evaluate(opened(table, 40), **given_model(noise=noise, bootstrap=30))
    assert found.value == pytest.approx(local.value, rel=1e-9)
    assert found.standard_error == pytest.approx(local.standard_error, rel=1e-9)
    np.testing.assert_allclose(found.replicates, local.replicates, rtol=1e-9)


def test_ray_evaluates_a_target_policy(table, cluster):
    found = evaluate(opened(table, 1), engine="ray", **given_model(target_policy=tables.Always(2)))
    np.testing.assert_allclose(found.predict(X), fixed_point(2), rtol=1e-9, atol=1e-9)


def test_read_only_arrays_of_the_object_store_are_fine(cluster):
    t = tables.transitions(tables.columns(LENGTHS * 300))  # large enough not to be sent inline
    local, far = evaluate(t, **given_model()), evaluate(t, engine="ray", **given_model())
    np.testing.assert_allclose(far.predict(X), local.predict(X), rtol=1e-9, atol=1e-9)


def test_threads_give_the_same_bits_however_many(table):
    found = [evaluate(opened(table, 1), **given_model(workers=n, bootstrap=20)) for n in (1, 2, 4)]
    for other in found[1:]:
        assert np.array_equal(found[0].predict(X), other.predict(X))
        assert found[0].summary == other.summary
        assert np.array_equal(found[0].replicates, other.replicates)


# ── taking up ────────────────────────────────────────────────────────────────────────────────────────


class Counting:
    """Reads partitions and remembers which; fails at the one it is told to."""

    def __init__(self, data, fail_at=None):
        self.inner, self.fail_at, self.read = Reader(data, tables.GAMMA, None), fail_at, []

    def __call__(self, partition):
        if partition.index == self.fail_at:
            raise RuntimeError("the disk went away")
        self.read.append(partition.index)
        return self.inner(partition)


def task():
    likelihood = Likelihood(tables.NOISE, True, True, 0.5)
    return First(tables.KERNEL, tables.pseudo_inputs(), likelihood, False)


def run(data, read, folder, description=(), workers=1):
    told = []
    total = Local(workers).run(
        task(),
        data.partitions,
        read,
        work=Work(folder, {"what": description}),
        done=lambda *of: told.append(of),
    )
    assert [number for number, _ in told] == list(range(len(data.partitions)))
    fresh = sum(not kept for _, kept in told)
    assert fresh == len(read.read)
    return total


def test_only_unfinished_partitions_are_read_again(table, tmp_path):
    data = opened(table, 1)
    whole = run(data, Counting(data), None)
    broken = Counting(data, fail_at=4)
    with pytest.raises(RuntimeError, match="disk"):
        run(data, broken, tmp_path)
    done = set(broken.read)
    assert {0, 1, 2, 3} <= done < set(range(len(data.partitions)))
    again = Counting(data)
    total = run(data, again, tmp_path)
    assert set(again.read) == set(range(len(data.partitions))) - done
    for name, array in whole.state().items():
        assert np.array_equal(array, total.state()[name])
    nothing = Counting(data)
    run(data, nothing, tmp_path)
    assert nothing.read == []


def test_sums_of_something_else_are_not_taken(table, tmp_path):
    data = opened(table, 1)
    run(data, Counting(data), tmp_path)
    other = Counting(data)
    run(data, other, tmp_path, description="another discount")
    assert len(other.read) == len(data.partitions)
    changed = Counting(data)
    os.utime(table, ns=(1, data.partitions[0].mtime_ns + 1))
    try:
        newer = opened(table, 1)
        changed = Counting(newer)
        run(newer, changed, tmp_path)
    finally:
        os.utime(table, ns=(1, data.partitions[0].mtime_ns))
    assert len(changed.read) == len(data.partitions)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other arrays"])
def test_a_damaged_sum_is_computed_again(table, tmp_path, damage):
    data = opened(table, 1)
    whole = run(data, Counting(data), tmp_path)
    path = Work(tmp_path, {"what": ()}).path(data.partitions[2])
    content = path.read_bytes()
    if damage == "other arrays":
        checkpoint.write(path, {"a": np.zeros(3)}, {})
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes({"cut": content[:-9], "flipped": flipped, "empty": b""}[damage])
    again = Counting(data)
    total = run(data, again, tmp_path)
    assert again.read == [2]
    assert path.read_bytes() == content
    assert np.array_equal(total.statistics.moment, whole.statistics.moment)


def test_target_policies_do_not_share_sums(table, tmp_path):
    values = [
        evaluate(table, work=tmp_path, **given_model(target_policy=tables.Always(a))).value for a in (0, 2)
    ]
    fresh = [evaluate(table, **given_model(target_policy=tables.Always(a))).value for a in (0, 2)]
    assert values == fresh
    assert fresh[0] != fresh[1]


class Own:
    """A kernel of a user's own, which has no table of numbers."""

    def __init__(self, width):
        self.width = width

    def __call__(self, A, B):
        distance = ((np.asarray(A)[:, None] - np.asarray(B)[None]) ** 2).sum(axis=2)
        return np.exp(-distance / self.width)

    def diag(self, A):
        return np.ones(len(A))


def test_kernels_of_ones_own_do_not_share_sums(table, tmp_path):
    for width in (1.0, 3.0):
        how = given_model(kernel=Own(width))
        assert evaluate(table, work=tmp_path, **how).value == evaluate(table, **how).value


def test_what_cannot_be_pickled_is_evaluated_but_not_taken_up(table, tmp_path):
    policy = tables.Always(1)
    policy.lock = threading.Lock()
    found = [evaluate(table, work=tmp_path, **given_model(target_policy=policy)).value for _ in range(2)]
    assert found[0] == found[1]


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def bad(tmp_path):
    table = tables.columns(LENGTHS)
    table["reward"][60] = 1e200
    write_table(tmp_path / "bad.parquet", **table, rows_per_group=8)
    return tmp_path / "bad.parquet"


def test_errors_name_the_file_and_the_row(bad):
    data = opened(bad)
    with pytest.raises(DatasetError, match=r"bad\.parquet: rewards\[60\] = 1e\+200 overflows"):
        run(data, Counting(data), None)


def test_errors_of_ray_workers_are_those_of_threads(bad, cluster):
    data = opened(bad)
    how = {"work": Work(None, {}), "done": lambda number, kept: None}
    with pytest.raises(DatasetError, match=r"^\S*bad\.parquet: rewards\[60\] = 1e\+200 overflows[^\n]*$"):
        Ray().run(task(), data.partitions, Reader(data, tables.GAMMA, None), **how)


def test_an_error_ends_a_pass_early(bad, cluster, tmp_path):
    data, read = opened(bad, 1), tmp_path / "read"
    read.mkdir()

    def noted(partition):
        (read / str(partition.index)).touch()
        raise DatasetError("no good")

    many = data.partitions * 20
    with pytest.raises(DatasetError, match="no good"):
        Ray().run(task(), many, noted, work=Work(None, {}), done=lambda number, kept: None)
    assert len(list(read.iterdir())) <= len(data.partitions)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "spark"}, "engine = 'spark'; expected one of 'local', 'ray'"),
        ({"name": 3}, "engine = 3"),
        ({"name": "local", "workers": 0}, "workers = 0; expected 1 or more"),
        ({"name": "local", "workers": -1}, "workers = -1"),
        ({"name": "local", "address": "host:1"}, "address = 'host:1' is for engine='ray'"),
    ],
)
def test_engines_that_do_not_exist(arguments, message):
    with pytest.raises(ValueError, match=message):
        engine(**arguments)


def test_an_engine_of_ones_own(table):
    class Slow:
        def run(self, task, partitions, read, *, work, done):
            return sum((task.over(read(p)) for p in partitions), task.empty())

    found = evaluate(opened(table), engine=Slow(), **given_model(noise="correlated"))
    assert_same_posterior(found, fitted("correlated"))


def test_ray_that_is_not_installed(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"Ray is not installed .* pip install 'gpsarsa\[ray\]'"):
        evaluate(table, engine="ray", **given_model())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1"])
def test_a_cluster_that_does_not_answer(address):
    with pytest.raises(EngineError, match=r"Ray cannot be reached at .*; check the address"):
        engines._knock(address)


@pytest.mark.parametrize("address", ["somewhere", "127.0.0.1:"])
def test_an_address_that_is_none(address):
    with pytest.raises(EngineError, match="expected HOST:PORT"):
        engines._knock(address)


def test_a_port_beyond_the_last_is_not_another():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        engines._knock(f"127.0.0.1:{port}")
        with pytest.raises(EngineError, match="expected HOST:PORT"):
            engines._knock(f"127.0.0.1:{port + 2**16}")  # the system would take it modulo 2¹⁶


def test_a_policy_that_workers_cannot_import(table, cluster, tmp_path, monkeypatch):
    (tmp_path / "unheard_of.py").write_text(
        "class Policy:\n    def predict(self, x, deterministic):\n        return [1] * len(x), None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import unheard_of

    with pytest.raises(EngineError, match=r"No module named 'unheard_of'.*installed on all machines"):
        evaluate(table, engine="ray", **given_model(target_policy=unheard_of.Policy()))


# ── lost workers ─────────────────────────────────────────────────────────────────────────────────────


def test_a_killed_worker_changes_nothing(table, cluster, tmp_path):
    data, marks = opened(table, 1), tmp_path
    inner = Reader(data, tables.GAMMA, None)

    def read(partition):
        mark = marks / f"{partition.index}"
        if partition.index in (1, 4) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(partition)

    told = []
    found = Ray().run(
        task(), data.partitions, read, work=Work(None, {}), done=lambda number, kept: told.append(number)
    )
    assert len(list(marks.iterdir())) == 2
    assert told == list(range(len(data.partitions)))
    expected = run(data, Counting(data), None)
    for name, array in expected.state().items():
        np.testing.assert_allclose(found.state()[name], array, rtol=1e-12, atol=1e-12)


def test_a_worker_that_always_dies_is_given_up(table, cluster, monkeypatch):
    monkeypatch.setattr(engines, "TRIES", 1)
    data = opened(table, 1_000)

    def read(partition):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(EngineError, match="Ray gave up"):
        Ray().run(task(), data.partitions, read, work=Work(None, {}), done=lambda number, kept: None)


def test_ray_keeps_and_takes_up_sums(table, cluster, tmp_path):
    data = opened(table, 1)
    read = Counting(data)
    whole = run(data, read, tmp_path)

    def nothing(partition):
        raise RuntimeError("must not be read")

    work = Work(tmp_path, {"what": ()})
    found = Ray().run(task(), data.partitions, nothing, work=work, done=lambda number, kept: None)
    np.testing.assert_allclose(found.statistics.moment, whole.statistics.moment, rtol=1e-12, atol=1e-12)
    fresh = tmp_path / "fresh"
    Ray().run(task(), data.partitions, read, work=Work(fresh, {}), done=lambda number, kept: None)
    assert len(list(fresh.glob("*.safetensors"))) == len(data.partitions)


def test_no_partitions_sum_to_nothing(cluster):
    for one in (Local(), Ray()):
        total = one.run(task(), [], None, work=Work(None, {}), done=lambda number, kept: None)
        assert total.counts.sum() == 0
