"""What happens when: the recursion between slow steps, budgets that hold, and runs that go on from a file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import KERNELS, pseudo_inputs, transitions
from test_errors import fingerprint
from test_sparse import Cosine

from gpsarsa import CheckpointError, Slow, SparseGPSarsa, Timescales, Transitions, kernels
from gpsarsa.placement import DROP_RULES, EvidenceGain, KMeansPlusPlus, Novelty, Random, Situation
from gpsarsa.reservoir import Reservoir

KERNEL = kernels.RBF([0.8, 1.0], columns=[0, 1]) * kernels.Delta(2, share=0.4)
MODES = [("exact", "iid"), ("exact", "correlated"), ("frozen", "iid"), ("streaming", "iid")]
MODES += [("streaming", "correlated")]


def empty(growth="exact", noise="iid", kernel=KERNEL):
    return SparseGPSarsa(kernel, 0.1, np.empty((0, 3)), growth=growth, noise=noise, prior_mean=0.2)


def rows(t):
    return zip(t.inputs, t.rewards, t.next_inputs, t.discounts, t.starts, strict=True)


def walk(rng, n, columns=2, gamma=0.9):
    x = np.empty((n + 1, columns))
    x[0] = rng.uniform(-1.0, 1.0, columns)
    for i, step in enumerate(0.2 * rng.standard_normal((n, columns))):
        x[i + 1] = np.clip(x[i] + step, -2.0, 2.0)
    rewards = np.sin(2.0 * x[:-1, 0]) + 0.1 * rng.standard_normal(n)
    return Transitions.from_trajectory(x, rewards, gamma, terminated=False)


@pytest.mark.parametrize(("growth", "noise"), MODES)
def test_the_fast_timescales_are_adding_and_observing(growth, noise, rng):
    t, threshold = transitions(rng, 80), 0.1
    driven = Timescales(empty(growth, noise), placement=Novelty(threshold), budget=None).update(t)
    model, added = empty(growth, noise), 0
    for x, r, following, gamma, start in rows(t):
        Z = model.pseudo_inputs
        novelty = 1.0 - (KERNEL(x[None], Z) @ np.linalg.solve(KERNEL(Z, Z), KERNEL(Z, x[None])))[0, 0]
        if novelty > threshold:
            added += int(model.add_pseudo_inputs(x[None])[0])
        model.observe(x, r, following, gamma, start)
    assert added == driven.counts["added"] == len(model.pseudo_inputs)
    assert driven.counts["transitions"] == len(t)
    assert driven.counts["episodes"] == t.starts.sum()
    assert fingerprint(driven.model) == fingerprint(model)


@pytest.mark.parametrize(("growth", "noise"), MODES)
def test_without_placement_and_slow_steps_it_is_update(growth, noise, rng):
    t, Z = transitions(rng, 60), pseudo_inputs(rng, 6)
    driven, model = (SparseGPSarsa(KERNEL, 0.1, Z, growth=growth, noise=noise) for _ in range(2))
    Timescales(driven, placement=None).update(t)
    model.update(t)
    X = pseudo_inputs(rng, 9)
    for a, b in zip(driven.predict(X, return_std=True), model.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("drop", ["variance", "information", "oldest"])
@pytest.mark.parametrize(("growth", "noise"), MODES)
def test_the_budget_holds_at_every_step(growth, noise, drop, rng):
    t = transitions(rng, 150)
    driver = Timescales(empty(growth, noise), placement=Novelty(0.01), budget=12, drop=drop)
    for x, r, following, gamma, start in rows(t):
        driver.observe(x, r, following, gamma, start)
        assert len(driver.model.pseudo_inputs) <= 12
    assert driver.counts["dropped"] > 0
    assert driver.counts["added"] - driver.counts["dropped"] == 12
    if growth == "exact":  # the posterior that today's pseudo-inputs would have given from the start
        fresh = SparseGPSarsa(KERNEL, 0.1, driver.model.pseudo_inputs, noise=noise, prior_mean=0.2).update(t)
        X = pseudo_inputs(rng, 9)
        for a, b in zip(
            driver.model.predict(X, return_std=True), fresh.predict(X, return_std=True), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def held(model):
    """The bytes of a model's arrays."""
    basis, belief, history = model._basis, model._belief, model._history
    arrays = [basis.W, basis.Zt, basis._Z, belief.R, belief.m, belief.c, history.records, history.newest]
    return sum(array.nbytes for array in arrays)


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_a_long_stream_through_a_small_budget(noise, rng):
    """No more memory, no drift of W, and a covariance that stays positive definite."""
    kernel = kernels.RBF(0.5)
    model = SparseGPSarsa(kernel, 0.05, np.empty((0, 2)), growth="streaming", noise=noise)
    driver = Timescales(
        model, placement=Novelty(0.001), budget=24, slow=[Slow(2500, max_iterations=3)], seed=0
    )
    sizes = []
    for _ in range(5):
        driver.update(walk(rng, 2500))
        Z, W = model.pseudo_inputs, model._basis.factor
        sizes.append(held(model))
        assert len(Z) <= 24
        # W inverts the factor of K_zz as well as the condition of K_zz allows
        assert np.abs(W @ kernel(Z, Z) @ W.T - np.eye(len(Z))).max() < 1e-9
        assert np.linalg.eigvalsh(model._belief.covariance)[0] > 0.0
        assert np.isfinite(model.log_evidence())
    assert driver.counts["dropped"] > 20
    assert max(sizes) == sizes[0]


def test_useless_newcomers_are_not_even_added(rng):
    """At the budget, under the variance rule, a newcomer that would be dropped at once is not added."""
    driver = Timescales(empty("streaming"), placement=Random(1.0), budget=10, drop="variance", seed=0)
    driver.update(transitions(rng, 300))
    assert driver.counts["added"] < 200
    before = driver.model._basis.redundancy.max()
    Z = driver.model.pseudo_inputs
    driver.model.add_pseudo_inputs(Z[3:4] + 0.01)
    assert driver.model._basis.redundancy.max() > before  # it would have been the one to go


@pytest.mark.parametrize(("growth", "noise"), MODES)
def test_the_recursion_goes_on_exactly_after_a_slow_step(growth, noise, rng):
    t, more = transitions(rng, 90), transitions(rng, 30)
    slow = Slow(10**9, hyperparameters=True, objective="evidence", max_iterations=4)
    driver = Timescales(
        empty(growth, noise), budget=15, slow=[slow], reservoir=None if growth != "streaming" else 64
    )
    driver.update(t)
    report = driver.step(slow)
    assert report.end > report.start
    model = driver.model
    seen = t if growth != "streaming" else driver.reservoir.transitions
    fresh = SparseGPSarsa(
        model.kernel, model.noise_variance, model.pseudo_inputs, growth=growth, noise=noise, prior_mean=0.2
    ).fit(seen)
    assert model.log_evidence() == pytest.approx(fresh.log_evidence(), rel=1e-9)
    driver.placement = None
    driver.update(more)
    fresh.update(more)
    X = pseudo_inputs(rng, 9)
    for a, b in zip(model.predict(X, return_cov=True), fresh.predict(X, return_cov=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_a_streaming_model_keeps_what_it_knows_when_pseudo_inputs_move(noise, rng):
    t = walk(rng, 600)
    model = SparseGPSarsa(kernels.RBF(1.2), 0.05, np.empty((0, 2)), growth="streaming", noise=noise)
    slow = Slow(10**9, max_iterations=10)
    driver = Timescales(model, placement=Novelty(1e-4), budget=50, slow=slow, seed=1).update(t)
    before, kernel = model.predict(t.inputs), model.kernel
    evidence, Z = model.log_evidence(), model.pseudo_inputs
    driver.step(slow)
    assert not np.array_equal(model.pseudo_inputs, Z)
    assert model.kernel == kernel
    assert model.log_evidence() == evidence  # the prequential sum, untouched
    assert model.n_transitions == 600
    change = np.sqrt(np.mean((model.predict(t.inputs) - before) ** 2))
    assert change < 0.2 * np.std(before)


def test_slow_steps_run_when_they_are_due(rng):
    t = Transitions.concatenate([walk(rng, 25) for _ in range(8)])
    slow = [
        Slow(50, max_iterations=1),
        Slow(3, "episodes", pseudo_inputs=False, hyperparameters=["noise_variance"], max_iterations=1),
    ]
    model = SparseGPSarsa(kernels.RBF(0.7), 0.05, np.empty((0, 2)))
    driver = Timescales(model, budget=10, slow=slow)
    done = []
    for x, r, following, gamma, start in rows(t):
        driver.observe(x, r, following, gamma, start)
        done.append(driver.counts["optimized"])
    steps = np.flatnonzero(np.diff([0, *done])) + 1
    # after transitions 50, 100, 150, 200 and with the first transition of episodes 4 and 7
    assert steps.tolist() == [50, 76, 100, 150, 151, 200]
    assert len(driver.reports) == 6
    assert model.kernel == kernels.RBF(0.7)
    assert model.noise_variance != 0.05


@pytest.mark.parametrize("reservoir", [None, 100])
def test_slow_steps_help(reservoir, rng):
    """From poor hyperparameters, learning them raises the evidence of what comes next."""
    t, later = walk(rng, 400), walk(rng, 200)
    slow = Slow(100, hyperparameters=True, max_iterations=10)
    scores = []
    for steps in ([], [slow]):
        model = SparseGPSarsa(kernels.RBF(3.0), 0.1, np.empty((0, 2)))
        Timescales(model, budget=30, slow=steps, reservoir=reservoir, seed=0).update(t)
        before = model.log_evidence()
        scores.append(model.update(later).log_evidence() - before)
    assert scores[1] > scores[0] + 100.0


def test_a_slow_step_that_finds_nothing_changes_nothing(rng):
    for growth in ("exact", "streaming"):
        driver = Timescales(empty(growth), slow=Slow(10**9), reservoir=64, seed=0).update(
            transitions(rng, 90)
        )
        before = fingerprint(driver.model)
        driver.step(Slow(1, hyperparameters=True, max_iterations=0))
        assert fingerprint(driver.model) == before


def test_an_interrupted_slow_step_is_counted(monkeypatch, rng):
    driver = Timescales(empty("exact"), slow=Slow(10**9), reservoir=64, seed=0)
    driver.update(transitions(rng, 90))
    search = SparseGPSarsa._search

    def interrupted(self, *given):
        found, report = search(self, *given)
        return found, replace(report, interrupted=True)

    monkeypatch.setattr(SparseGPSarsa, "_search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        driver.step(Slow(1, hyperparameters=True, max_iterations=3))
    assert driver.counts["optimized"] == 1
    assert driver.reports[-1].interrupted
    assert driver.reports[-1].end > driver.reports[-1].start


def test_one_name_is_enough(rng):
    assert Slow(5, hyperparameters="noise_variance").hyperparameters == ["noise_variance"]


def test_a_model_beyond_the_budget_is_brought_within_it(rng):
    model = SparseGPSarsa(KERNEL, 0.1, pseudo_inputs(rng, 9), growth="streaming")
    driver = Timescales(model, budget=4)
    assert len(model.pseudo_inputs) == 4
    assert driver.counts["dropped"] == 5


class Interrupted:
    """A drop rule that is interrupted the first time."""

    def __init__(self):
        self.calls = 0

    def __call__(self, basis, belief):
        self.calls += 1
        if self.calls == 1:
            raise KeyboardInterrupt
        return 0


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_an_interruption_between_adding_and_dropping(growth, tmp_path, monkeypatch, rng):
    t = transitions(rng, 60)
    driver = Timescales(empty(growth), placement=Random(1.0), budget=4, drop="oldest", seed=0)
    monkeypatch.setitem(DROP_RULES, "oldest", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        driver.update(t)
    driver.save(tmp_path / "run.safetensors")
    for run in (driver, Timescales.load(tmp_path / "run.safetensors")):
        run.observe(t.inputs[0], 1.0, t.next_inputs[0], 0.9)
        assert len(run.model.pseudo_inputs) == 4


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
def test_an_interruption_just_after_a_transition_was_taken_in(growth, monkeypatch, rng):
    """The posterior and the history still belong together."""
    t = transitions(rng, 60)
    driver = Timescales(empty(growth), placement=Random(1.0), budget=None, seed=0).update(t[:20])

    def observe_and_be_interrupted(self, *row):
        original(self, *row)
        raise KeyboardInterrupt

    original = SparseGPSarsa.observe
    with monkeypatch.context() as patch:
        patch.setattr(SparseGPSarsa, "observe", observe_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            driver.update(t[20:21])
    model = driver.model
    assert model.n_transitions == 21
    if growth == "exact":
        fresh = SparseGPSarsa(KERNEL, 0.1, model.pseudo_inputs, prior_mean=0.2).fit(t[:21])
        assert model.log_evidence() == pytest.approx(fresh.log_evidence(), rel=1e-9)


def test_the_random_state_of_a_refused_transition_is_restored(rng):
    driver = Timescales(empty(), placement=Random(0.5), seed=0).update(transitions(rng, 20))
    state = driver.rng.bit_generator.state
    with pytest.raises(ValueError, match="overflow"):
        driver.observe([9.0, 9.0, 1.0], 1e200, [0.0, 0.0, 1.0], 0.9)
    assert driver.rng.bit_generator.state == state


@pytest.mark.parametrize("placement", [Novelty(0.0), EvidenceGain(0.0)], ids=["novelty", "gain"])
@pytest.mark.parametrize("growth", ["exact", "streaming"])
def test_inputs_along_a_smooth_path_never_make_the_prior_singular(placement, growth, rng):
    """Each is novel when it comes; those that later ones determine make way, and K_zz stays regular."""
    kernel, t = kernels.RBF(3.0), walk(rng, 150)
    model = SparseGPSarsa(kernel, 1e-3, np.empty((0, 2)), growth=growth)
    driver = Timescales(model, placement=placement, budget=None)
    for x, r, following, gamma, start in rows(t):
        driver.observe(x, r, following, gamma, start)
        assert model._basis.redundancy.max() <= 1e9
    assert driver.counts["dropped"] > 0
    assert np.isfinite(model.predict(t.inputs, return_std=True)).all()
    Z = Novelty(0.0).choose(t, 150, kernel, 1e-3)
    assert (np.linalg.inv(kernel(Z, Z)).diagonal() < 2e9).all()


# -- the reservoir ----------------------------------------------------------------------------


def test_a_reservoir_is_a_uniform_sample(rng):
    kept = np.zeros(60)
    for _ in range(1500):
        reservoir = Reservoir(1, 11)
        for j in range(60):
            reservoir.add([j], 0.0, [j], 0.0, True, rng)
            assert len(reservoir) == min(j + 1, 11)
        kept[reservoir.transitions.inputs[:-1, 0].astype(int)] += 1  # the last is always there
    np.testing.assert_allclose(kept[:-1] / 1500, 10 / 59, atol=0.05)


def test_a_reservoir_keeps_stretches_together(rng):
    reservoir, t = Reservoir(2, 64, stretch=8), Transitions.concatenate([walk(rng, 5) for _ in range(140)])
    for x, r, following, gamma, start in rows(t):
        reservoir.add(x, r, following, gamma, start, rng)
        assert len(reservoir) <= 64
    kept = reservoir.transitions
    assert len(kept) >= 56  # short episodes share a stretch
    place = {tuple(x): i for i, x in enumerate(t.inputs)}
    order = np.array([place[tuple(x)] for x in kept.inputs])
    np.testing.assert_array_equal(kept.rewards, t.rewards[order])
    np.testing.assert_array_equal(kept.next_inputs, t.next_inputs[order])
    assert (np.diff(order) > 0).all()
    continues = ~kept.starts[1:]
    assert continues.sum() > 30
    assert (np.diff(order)[continues] == 1).all()
    assert not t.starts[order[1:]][continues].any()
    assert kept.starts[t.starts[order]].all()


def test_a_reservoir_too_small():
    for capacity, stretch in ((0, 1), (1, 1), (8, 8), (5, 0)):
        with pytest.raises(ValueError, match=r"capacity|stretch"):
            Reservoir(2, capacity, stretch=stretch)


# -- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("growth", "noise"), MODES)
def test_a_loaded_run_goes_on_bit_for_bit(growth, noise, tmp_path, rng):
    t, more = transitions(rng, 120), transitions(rng, 120)
    driver = Timescales(
        empty(growth, noise), placement=KMeansPlusPlus(0.5), budget=12, drop="information",
        slow=[Slow(50, max_iterations=2, bounds={"pseudo_inputs": (np.full(3, -3.0), np.full(3, 3.0))}),
              Slow(2, "episodes", pseudo_inputs=False, hyperparameters=True, max_iterations=2)],
        reservoir=256, seed=5,
    )  # fmt: skip
    driver.update(t).save(tmp_path / "run.safetensors")
    loaded = Timescales.load(tmp_path / "run.safetensors")
    for both in (driver, loaded):
        both.update(more)
    assert driver.counts == loaded.counts
    assert driver.counts["optimized"] > 4
    assert fingerprint(driver.model) == fingerprint(loaded.model)
    assert driver.reservoir.transitions == loaded.reservoir.transitions
    assert loaded.placement == KMeansPlusPlus(0.5)


class Always:
    def choose(self, transitions, count, kernel, noise_variance, rng=None):
        return transitions.inputs[:count]

    def admits(self, situation: Situation) -> bool:
        return True


def test_strategies_and_kernels_of_the_users_own(tmp_path, rng):
    t, path = transitions(rng, 30), tmp_path / "run.safetensors"
    driver = Timescales(empty("streaming", kernel=Cosine()), placement=Always(), budget=5).update(t)
    assert len(driver.model.pseudo_inputs) == 5
    driver.save(path)
    with pytest.raises(CheckpointError, match="kernel of your own"):
        Timescales.load(path)
    with pytest.raises(CheckpointError, match="strategy of your own"):
        Timescales.load(path, kernel=Cosine())
    loaded = Timescales.load(path, kernel=Cosine(), placement=Always())
    for both in (driver, loaded):
        both.update(t)
    assert fingerprint(driver.model) == fingerprint(loaded.model)


def test_settings_of_any_number_type_can_be_saved(tmp_path, rng):
    slow = Slow(
        np.int64(50),
        max_iterations=np.int64(2),
        hyperparameters={"noise_variance"},
        pseudo_inputs=np.bool_(False),
    )
    for placement in (Novelty(np.float32(0.1)), EvidenceGain(pool=np.int64(4))):
        Timescales(empty(), placement=placement, slow=slow).save(tmp_path / "run.safetensors")
        assert Timescales.load(tmp_path / "run.safetensors").slow == (slow,)
    with pytest.raises(TypeError, match="MT19937"):
        Timescales(empty(), seed=np.random.Generator(np.random.MT19937(0))).save(tmp_path / "run.safetensors")


def test_another_kernel_than_the_saved_one_is_refused(tmp_path):
    Timescales(empty()).save(tmp_path / "run.safetensors")
    with pytest.raises(CheckpointError, match="holds its own kernel"):
        Timescales.load(tmp_path / "run.safetensors", kernel=kernels.RBF(1.0))


def test_a_model_is_not_a_run(tmp_path, rng):
    model = empty()
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="does not hold a Timescales"):
        Timescales.load(tmp_path / "model.safetensors")
    Timescales(model).save(tmp_path / "run.safetensors")
    with pytest.raises(CheckpointError, match="not a SparseGPSarsa"):
        SparseGPSarsa.load(tmp_path / "run.safetensors")


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget = 0"),
        ({"slow": [Slow(5, hyperparameters=["lenghtscale"])]}, "lenghtscale"),
        ({"slow": [Slow(5, hyperparameters=True, bounds={"noise_variance": (2, 1)})]}, "cannot be met"),
        ({"budget": -1}, "budget"),
        ({"drop": "newest"}, "drop = 'newest'"),
        ({"placement": "novelty"}, "placement = 'novelty'"),
        ({"placement": Novelty}, "placement"),
        ({"slow": [3]}, r"slow\[0\]"),
        ({"slow": [Slow(5)], "reservoir": None}, "reservoir is None"),
        ({"slow": [Slow(5)], "reservoir": 1}, "reservoir = 1"),
        ({"model": 3}, "model is a int"),
    ],
)
def test_settings_that_make_no_sense(options, message, rng):
    model = SparseGPSarsa(KERNEL, 0.1, pseudo_inputs(rng, 4), growth="streaming")
    with pytest.raises((ValueError, TypeError), match=message):
        Timescales(**{"model": model, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every = 0"),
        ({"every": 2.5}, "every = 2.5"),
        ({"every": 5, "unit": "days"}, "unit = 'days'"),
        ({"every": 5, "objective": "loss"}, "objective = 'loss'"),
        ({"every": 5, "max_iterations": -1}, "max_iterations"),
        ({"every": 5, "pseudo_inputs": "no"}, "pseudo_inputs = 'no'"),
        ({"every": 5, "hyperparameters": ["noise_variance", 3]}, "hyperparameters = "),
    ],
)
def test_slow_steps_that_make_no_sense(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Slow(**options)


@pytest.mark.parametrize("growth", ["exact", "frozen", "streaming"])
@pytest.mark.parametrize(
    "row",
    [
        ([np.nan, 0.0, 1.0], 1.0, [0.0, 0.0, 1.0], 0.9),
        ([9.0, 9.0, 1.0], np.inf, [0.0, 0.0, 1.0], 0.9),
        ([9.0, 9.0, 1.0], 1.0, [0.0, np.inf, 1.0], 0.9),
        ([9.0, 9.0, 1.0], 1.0, None, 0.9),
        ([9.0, 9.0, 1.0], 1.0, [0.0, 0.0, 1.0], 1.5),
        ([9.0, 9.0, 1.0], 1e200, [0.0, 0.0, 1.0], 0.9),
        ([9.0, 9.0], 1.0, [0.0, 0.0, 1.0], 0.9),
        ([9.0, 9.0, 1.0], 1.0, [0.0, 0.0, 1.0], 0.9, "yes"),
    ],
)
def test_a_refused_transition_changes_nothing(growth, row, rng):
    driver = Timescales(empty(growth), budget=10, slow=[Slow(7, max_iterations=1)], seed=0)
    driver.update(transitions(rng, 40))
    before, counts, kept = fingerprint(driver.model), dict(driver.counts), len(driver.reservoir)
    with pytest.raises((ValueError, TypeError)):
        driver.observe(*row)
    assert fingerprint(driver.model) == before
    assert driver.counts == counts
    assert len(driver.reservoir) == kept


def test_kernels_of_the_tests_all_work(rng):
    for kernel in KERNELS.values():
        driver = Timescales(empty(kernel=kernel), budget=8, slow=[Slow(25, max_iterations=2)]).update(
            transitions(rng, 50)
        )
        assert np.isfinite(driver.model.log_evidence())
