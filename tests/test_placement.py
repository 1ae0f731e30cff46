"""Where pseudo-inputs come and go: every criterion against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import residuals
from problems import KERNELS, pseudo_inputs, transitions
from test_sparse import Cosine

from gpsarsa import SparseGPSarsa, Transitions, evidence, kernels
from gpsarsa.basis import Basis
from gpsarsa.belief import Belief
from gpsarsa.placement import (
    DROP_RULES,
    STRATEGIES,
    EvidenceGain,
    Greedy,
    KMeansPlusPlus,
    Novelty,
    Placement,
    Random,
    Situation,
)

ALL = [strategy() for strategy in STRATEGIES.values()]
NAMES = list(STRATEGIES)


def visited(t):
    return np.unique(np.concatenate([t.inputs, t.next_inputs]), axis=0)


def conditional_variances(kernel, Z, X):
    """var Q(x) given Q(Z), densely."""
    if len(Z) == 0:
        return kernel.diag(X)
    return kernel.diag(X) - np.einsum("ij,ij->j", kernel(Z, X), np.linalg.solve(kernel(Z, Z), kernel(Z, X)))


def basis_of(kernel, Z):
    basis = Basis(kernel, Z.shape[1])
    assert basis.append(Z).all()
    return basis


def situation(kernel, Z, t, row, sigma2=0.1, seed=0):
    rng = np.random.default_rng(seed)
    x, following, gamma = t.inputs[row], t.next_inputs[row], float(t.discounts[row])
    return Situation(basis_of(kernel, Z), sigma2, x.copy(), following.copy(), gamma, rng)


@pytest.mark.parametrize("strategy", ALL, ids=NAMES)
@pytest.mark.parametrize("kernel", [*KERNELS.values(), Cosine()], ids=[*KERNELS, "own"])
def test_chosen_inputs_are_distinct_visited_and_repeatable(strategy, kernel, rng):
    t = transitions(rng, 60)
    Z = strategy.choose(t, 12, kernel, 0.1, rng=3)
    assert isinstance(strategy, Placement)
    assert 0 < len(Z) <= 12
    assert {tuple(z) for z in Z} <= {tuple(x) for x in visited(t)}
    assert len({tuple(z) for z in Z}) == len(Z)
    np.testing.assert_array_equal(Z, strategy.choose(t, 12, kernel, 0.1, rng=3))


@pytest.mark.parametrize("strategy", ALL, ids=NAMES)
def test_no_more_than_there_are(strategy, rng):
    x = rng.standard_normal((4, 2))
    t = Transitions(x[[0, 1, 2, 0, 1]], np.ones(5), x[[1, 2, 3, 1, 2]], np.full(5, 0.9))
    kernel = kernels.RBF(1.0)
    assert len(strategy.choose(t, 50, kernel, 0.1, rng=0)) <= 4
    assert len(strategy.choose(t, 0, kernel, 0.1, rng=0)) == 0
    same = Transitions(np.ones((5, 2)), np.ones(5), np.ones((5, 2)), np.full(5, 0.9))
    assert len(strategy.choose(same, 3, kernel, 0.1, rng=0)) == 1


def test_greedy_takes_the_largest_conditional_variance_each_time(rng):
    t, kernel = transitions(rng, 60), KERNELS["sum"]
    X, Z = visited(t), Greedy().choose(t, 15, KERNELS["sum"], 0.1)
    assert len(Z) == 15
    for i in range(1, 15):
        left = conditional_variances(kernel, Z[:i], X)
        own = conditional_variances(kernel, Z[:i], Z[i : i + 1])[0]
        assert own >= left.max() - 1e-9


def test_novelty_takes_what_is_novel_and_nothing_else(rng):
    t, kernel, threshold = transitions(rng, 80), kernels.RBF(1.5), 0.2
    Z = Novelty(threshold).choose(t, 1000, kernel, 0.1)
    for i in range(1, len(Z)):
        assert conditional_variances(kernel, Z[:i], Z[i : i + 1])[0] > threshold
    assert (conditional_variances(kernel, Z, visited(t)) <= threshold + 1e-9).all()
    for row in range(20):
        now = situation(kernel, Z[:7], t, row)
        expected = conditional_variances(kernel, Z[:7], t.inputs[row : row + 1])[0]
        assert now.novelty == pytest.approx(max(expected, 0.0), abs=1e-9)
        assert Novelty(threshold).admits(now) == Greedy(threshold).admits(now) == (expected > threshold)


def test_evidence_gain_takes_what_raises_the_bound_most(rng):
    t, kernel, sigma2 = transitions(rng, 24), KERNELS["rbf"], 0.2
    X = visited(t)
    Z = EvidenceGain(pool=len(X)).choose(t, 4, kernel, sigma2, rng=0)

    def bound(Z):
        return evidence.log_evidence(kernel, sigma2, Z, t, objective="variational")

    for i in range(4):
        best = max(bound(np.vstack([Z[:i], x])) for x in X if not (x == Z[:i]).all(axis=1).any())
        assert bound(Z[: i + 1]) == pytest.approx(best, rel=1e-9)


def test_evidence_gain_online_is_the_information_of_the_transition(rng):
    t, kernel, sigma2, Z = transitions(rng, 40), KERNELS["matern52"], 0.1, pseudo_inputs(rng, 6)
    for row in range(len(t)):
        before = residuals(kernel, Z, t[row])[0]
        after = residuals(kernel, np.vstack([Z, t.inputs[row]]), t[row])[0]
        gain = 0.5 * np.log((sigma2 + before) / (sigma2 + after))
        for factor in (0.99, 1.01):
            strategy = EvidenceGain(threshold=factor * gain)
            assert strategy.admits(situation(kernel, Z, t, row, sigma2)) == (factor < 1)


def test_kmeans_seeding_finds_the_clusters(rng):
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    x = np.repeat(centres, 50, axis=0) + 0.01 * rng.standard_normal((150, 2))
    t = Transitions(x, np.zeros(150), x, np.zeros(150))
    for seed in range(20):
        Z = KMeansPlusPlus().choose(t, 3, kernels.RBF(1.0), 0.1, rng=seed)
        assert {int(np.argmin(((z - centres) ** 2).sum(axis=1))) for z in Z} == {0, 1, 2}


def test_kmeans_online_probability(rng):
    t, kernel, Z = transitions(rng, 20), kernels.RBF(1.0), pseudo_inputs(rng, 4)
    share = 1.0 - kernel(t.inputs[:1], Z).max()
    now = situation(kernel, Z, t, 0)
    admitted = np.mean([KMeansPlusPlus(rate=0.8).admits(now) for _ in range(4000)])
    assert admitted == pytest.approx(0.8 * share, abs=0.03)
    assert KMeansPlusPlus(rate=0.0).admits(situation(kernel, np.empty((0, 3)), t, 0))


def test_random_is_uniform_over_the_inputs_visited(rng):
    x = np.arange(10.0)[:, None]
    t = Transitions(x[[0] * 50 + list(range(10))], np.zeros(60), x[[0] * 60], np.zeros(60))
    counts = np.zeros(10)
    for seed in range(2000):
        counts[Random().choose(t, 3, kernels.RBF(1.0), 0.1, rng=seed)[:, 0].astype(int)] += 1
    np.testing.assert_allclose(counts / 2000, 0.3, atol=0.05)
    now = situation(kernels.RBF(1.0), x[:1], t, 3)
    assert np.mean([Random(rate=0.25).admits(now) for _ in range(4000)]) == pytest.approx(0.25, abs=0.03)


class Linear:
    """A kernel that is 0 at the origin."""

    def __call__(self, A, B):
        return A @ B.T

    def diag(self, A):
        return np.einsum("ij,ij->i", A, A)


def test_an_input_without_prior_variance_is_not_novel(rng):
    now = Situation(Basis(Linear(), 2), 0.1, np.zeros(2), np.zeros(2), 0.0, rng)
    assert now.novelty == 0.0
    assert not Novelty().admits(now)


def test_more_candidates_than_are_considered(monkeypatch, rng):
    monkeypatch.setattr("gpsarsa.placement.CANDIDATES", 10)
    t = transitions(rng, 60)
    assert len(Greedy().choose(t, 30, KERNELS["rbf"], 0.1, rng=0)) == 10
    assert len(EvidenceGain(rows=5).choose(t, 4, KERNELS["rbf"], 0.1, rng=0)) == 4


def taught(kernel, rng, size=7):
    Z = pseudo_inputs(rng, size)
    return SparseGPSarsa(kernel, 0.2, Z).fit(transitions(rng, 30))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_the_one_that_the_others_determine_best(kernel, rng):
    model = taught(kernel, rng)
    Z = model.pseudo_inputs
    left = [
        conditional_variances(kernel, np.delete(Z, i, axis=0), Z[i : i + 1])[0] / kernel.diag(Z[i : i + 1])[0]
        for i in range(len(Z))
    ]
    assert DROP_RULES["variance"](model._basis, model._belief) == np.argmin(left)
    np.testing.assert_allclose(1.0 / model._basis.redundancy, left, rtol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_the_one_whose_loss_changes_the_posterior_least(kernel, rng):
    """KL between q(u) and q(the others) p(u_i | the others), densely."""
    model = taught(kernel, rng)
    Z = model.pseudo_inputs
    K, (mean, S) = kernel(Z, Z), model.predict(Z, return_cov=True)
    losses = []
    for i in range(len(Z)):
        rest = np.delete(np.arange(len(Z)), i)
        weights = np.linalg.solve(K[np.ix_(rest, rest)], K[rest, i])
        to_all = np.zeros((len(Z), len(rest)))
        to_all[rest] = np.eye(len(rest))
        to_all[i] = weights
        other = to_all @ S[np.ix_(rest, rest)] @ to_all.T
        other[i, i] += K[i, i] - K[i, rest] @ weights
        difference = to_all @ mean[rest] - mean
        inverse = np.linalg.inv(other)
        _, log_det = np.linalg.slogdet(other)
        _, log_det0 = np.linalg.slogdet(S)
        losses.append(
            0.5 * (np.trace(inverse @ S) + difference @ inverse @ difference - len(Z) + log_det - log_det0)
        )
    assert DROP_RULES["information"](model._basis, model._belief) == np.argmin(losses)


def test_information_survives_a_covariance_without_definiteness(rng):
    basis, belief = basis_of(KERNELS["rbf"], pseudo_inputs(rng, 5)), Belief(5)
    belief.R[2, 2] = -1e-17
    expected = DROP_RULES["variance"](basis, belief)
    assert DROP_RULES["information"](basis, belief) == expected
    assert DROP_RULES["oldest"](basis, belief) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Novelty(2.0), "threshold = 2.0"),
        (lambda: Greedy(-0.1), "threshold = -0.1"),
        (lambda: EvidenceGain(threshold=-1.0), "threshold = -1.0"),
        (lambda: EvidenceGain(pool=-1), "pool = -1"),
        (lambda: EvidenceGain(pool=0), "pool = 0"),
        (lambda: KMeansPlusPlus(rate=3), "rate = 3"),
        (lambda: Random(rate=-1), "rate = -1"),
    ],
)
def test_settings_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_nothing_to_choose_from(rng):
    t = transitions(rng)
    with pytest.raises(ValueError, match="transitions is empty"):
        Greedy().choose(t[:0], 3, KERNELS["rbf"], 0.1)
    with pytest.raises(TypeError, match="expected Transitions"):
        Greedy().choose(t.inputs, 3, KERNELS["rbf"], 0.1)
    with pytest.raises(ValueError, match="noise_variance"):
        Greedy().choose(t, 3, KERNELS["rbf"], 0.0)
    with pytest.raises(ValueError, match="count"):
        Greedy().choose(t, -3, KERNELS["rbf"], 0.1)
