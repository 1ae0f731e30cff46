"""What an agent imagines: the world learnt from transitions, policies judged and dreamt in it."""

from __future__ import annotations

from collections import deque

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from test_sparse import close

from gpsarsa import SarsaAgent, SparseGPSarsa
from gpsarsa.control import imagination as module
from gpsarsa.control.dynamics import Dynamics, _brinks, _partners
from gpsarsa.control.episodes import Judged
from gpsarsa.control.experience import Experience
from gpsarsa.control.imagination import FAR, Imagination
from gpsarsa.control.incumbent import Contender, Incumbent
from gpsarsa.control.lessons import Lesson, Rests, thinned, touched
from gpsarsa.control.policies import EpsilonGreedy
from gpsarsa.control.potential import features
from gpsarsa.control.regression import Regression
from gpsarsa.control.rules import Rule
from gpsarsa.control.spaces import Actions, Observations
from gpsarsa.control.tables import Tables
from gpsarsa.control.values import values_of
from gpsarsa.control.world import ENDED, LOST, _tabled, chances
from gpsarsa.kernels import RBF, Delta, Matern52

GAMMA = 0.9
BOUNDS = {
    "0.lengthscales": (np.full(2, 0.1), np.full(2, 20.0)),
    "0.variance": (0.01, 1e3),
    "1.share": (0.01, 0.9999),
    "noise_variance": (1e-8, 1.0),
}

# ── a world that is known ────────────────────────────────────────────────────────────────────────────


def step(s, a):
    """A mass on a line with a wall at −1, whose episode ends at 1; actions 0, 1, 2 push."""
    x, v = s
    v = 0.95 * v + 0.05 * (a - 1)
    x = x + v
    if x < -1.0:
        x, v = -1.0, 0.0
    return np.array([x, v]), -1.0 + 0.1 * x, x > 1.0


def walked(count=1_500, seed=0, worlds=step):
    """Random walks in that world."""
    rng = np.random.default_rng(seed)
    experience = Experience(2, 1, 10_000)
    s, a = np.zeros(2), 1.0
    for _ in range(count):
        if rng.random() < 0.2:
            a = float(rng.integers(3))
        ahead, reward, ended = worlds(s, a)
        experience.add(np.append(s, a), reward, np.append(ahead, 1.0), 0.0 if ended else GAMMA)
        s = rng.uniform([-0.5, -0.1], [0.5, 0.1]) if ended or rng.random() < 0.02 else ahead
    return experience


def spaces_of():
    box = spaces.Box(-2.0, 2.0, (2,), np.float64)
    return Observations(box), Actions(spaces.Discrete(3))


def imagined(experience, seed=0):
    imagination = Imagination(*spaces_of(), GAMMA, 60)
    rng = np.random.default_rng(seed)
    imagination.learn(experience, rng)
    imagination.starts.extend(rng.uniform([-0.5, -0.1], [0.5, 0.1], (20, 2)))
    return imagination


@pytest.fixture(scope="module")
def experience():
    return walked()


@pytest.fixture(scope="module")
def imagination(experience):
    return imagined(experience)


def posterior(seed=0, M=20):
    """Some posterior over Q of that world's inputs."""
    rng = np.random.default_rng(seed)
    Z = np.column_stack([rng.uniform([-1, -0.5], [1, 0.5], (M, 2)), rng.integers(3, size=M)])
    kernel = Matern52([0.7, 0.4], 4.0, [0, 1]) * Delta(2, share=0.5)
    model = SparseGPSarsa(kernel, 0.1, Z, prior_mean=-3.0)
    return model.fit(walked(200, seed + 1).transitions())


# ── regressions ──────────────────────────────────────────────────────────────────────────────────────


def test_a_regression_is_a_gaussian_process(experience):
    """With as many pseudo-inputs as rows, the posterior mean of dense algebra."""
    rng = np.random.default_rng(0)
    X = experience.inputs[:40].copy()
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]
    regression = Regression(RBF([0.8, 0.5], 1.5, [0, 1]) * Delta(2, share=0.6), 3)
    regression.noise = 1e-4
    regression.fit(X, y, rng)
    at = experience.inputs[40:60].copy()
    K, k = regression.kernel(X, X), regression.kernel(at, X)
    wanted = k @ np.linalg.solve(K + 1e-4 * np.eye(len(X)), y)
    assert np.abs(regression(at) - wanted).max() < 2e-2  # pseudo-inputs leave the noise's share unexplained


def test_outliers_are_left_out(experience):
    rng = np.random.default_rng(0)
    X = experience.inputs[:400].copy()
    y = 0.3 * X[:, 0] + 0.1 * X[:, 1] * X[:, 2]
    spoilt = y.copy()
    spoilt[::50] += 40.0
    kernel = RBF([1.0, 1.0], 1.0, [0, 1]) * Delta(2, share=0.5)
    regression = Regression(kernel, 3)
    regression.learn(X, spoilt, BOUNDS, rng)
    assert regression.outliers == pytest.approx(8 / 400)
    kept = np.ones(400, bool)
    kept[::50] = False
    assert np.abs(regression(X) - y)[kept].max() < 0.01


def test_what_is_predicted_well_is_not_learnt_again(experience):
    rng = np.random.default_rng(0)
    X = experience.inputs[:300].copy()
    y = 0.3 * X[:, 0] - X[:, 1]
    regression = Regression(RBF([1.0, 1.0], 1.0, [0, 1]) * Delta(2, share=0.5), 3)
    regression.learn(X, y, BOUNDS, rng)
    weights = regression.weights
    regression.learn(X[:200], y[:200], BOUNDS, rng)
    assert regression.weights is weights
    regression.learn(X, -y, BOUNDS, rng)
    assert regression.weights is not weights
    assert np.abs(regression(X) + y).max() < 0.01


def test_a_constant_needs_no_pseudo_inputs():
    regression = Regression(RBF([1.0, 1.0], 1.0, [0, 1]) * Delta(2, share=0.5), 3)
    X = np.random.default_rng(0).normal(size=(30, 3))
    regression.learn(X, np.full(30, -1.5), BOUNDS, np.random.default_rng(0))
    assert len(regression.weights) == 0
    assert (regression(X) == -1.5).all()


# ── the world ────────────────────────────────────────────────────────────────────────────────────────


def test_the_world_is_learnt(experience, imagination):
    """Next states, rewards and ends of inputs that were not seen."""
    test = walked(400, seed=5)
    X, ended = test.inputs.copy(), test.discounts == 0.0
    ahead, rewards, fate = imagination.world.outcomes(X)
    free = test.following[:, 0] > -1.0  # not at the wall
    inside = free & (fate != LOST)
    assert np.mean(inside) > 0.7
    assert np.abs(ahead[inside, :2] - test.following[inside, :2]).max() < 2e-2
    assert np.abs(rewards - test.rewards)[inside].max() < 5e-2
    assert np.mean((fate == ENDED)[inside] == ended[inside]) > 0.98


def test_a_wall_stops_and_the_unknown_is_lost(imagination):
    assert imagination.dynamics.walls[0, 0] == -1.0
    assert (imagination.dynamics.walls[1] == 2.0).all()  # the space's own bounds, where no wall was met
    X = np.array([[-0.98, -0.1, 0.0], [0.0, 0.0, 1.0], [0.0, 3.0, 2.0]])
    ahead, _, fate = imagination.world.outcomes(X)
    assert ahead[0, 0] == -1.0
    assert fate[0] != LOST
    assert fate[1] == 0
    assert fate[2] == LOST or fate[2] == ENDED


def test_outcomes_are_those_of_the_regressions(imagination):
    """The compiled loop against one regression after another."""
    X = walked(60, seed=9).inputs.copy()
    ahead, rewards, fate = imagination.world.outcomes(X)
    x, v, end, reward, last, potential = imagination.dynamics.regressions
    assert not potential.known
    walls, known, brinks = (getattr(imagination.dynamics, name) for name in ("walls", "known", "brinks"))
    wanted = np.clip(X[:, :2] + np.column_stack([x(X), v(X)]), walls[0], walls[1])
    np.testing.assert_allclose(ahead[:, :2], wanted, atol=1e-8)
    padded = np.column_stack([wanted, np.zeros(len(X))])
    over = ((wanted < brinks[0]) | (wanted > brinks[1])).any(axis=1)
    ended = over | (end(padded) > 0.5)
    lost = ((wanted < known[0]) | (wanted > known[1])).any(axis=1) & ~ended
    assert (fate == np.where(ended, ENDED, np.where(lost, LOST, 0))).all()
    np.testing.assert_allclose(rewards, np.where(ended, last(X), reward(X)), atol=1e-8)


@pytest.mark.parametrize(("observation", "reward"), [(1000.0, 1.0), (1.0, 1000.0), (1e-3, 1e-3)])
def test_units_do_not_matter(experience, imagination, observation, reward):
    """The same world counted in other units is learnt as well, up to where searches end."""

    def scaled(x):
        return x * np.array([observation, observation, 1.0])

    other = Experience(2, 1, 10_000)
    for x, r, ahead, discount in zip(
        experience.inputs, experience.rewards, experience.following, experience.discounts, strict=True
    ):
        other.add(scaled(x), reward * r, scaled(ahead), discount)
    box = spaces.Box(-2.0 * observation, 2.0 * observation, (2,), np.float64)
    converted = Imagination(Observations(box), Actions(spaces.Discrete(3)), GAMMA, 60)
    converted.learn(other, np.random.default_rng(0))
    X = walked(200, seed=5).inputs.copy()
    (mine, r, fate), (theirs, r2, fate2) = (
        imagination.world.outcomes(X), converted.world.outcomes(scaled(X)),
    )  # fmt: skip
    np.testing.assert_allclose(converted.dynamics.known / observation, imagination.dynamics.known)
    np.testing.assert_allclose(theirs / observation, mine, atol=2e-3)
    np.testing.assert_allclose(r2 / reward, r, atol=2e-3)
    assert np.mean(fate == fate2) > 0.99


def test_beyond_a_brink_every_episode_ends(imagination, experience):
    """Every walk beyond 1 ended, and none before: no regression is needed to know."""
    going = experience.following[experience.discounts > 0.0]
    brinks = imagination.dynamics.brinks
    assert brinks[1, 0] == going[:, 0].max() <= 1.0
    assert brinks[0].tolist() == [-np.inf, -np.inf]
    assert brinks[1, 1] == np.inf
    assert len(imagination.dynamics.regressions[2].weights) == 0
    X = np.array([[0.98, 0.3, 2.0], [0.5, 0.1, 1.0]])
    assert imagination.world.outcomes(X)[2].tolist() == [ENDED, 0]


def test_an_end_that_is_no_matter_of_one_column_is_learnt():
    """It ends inside of a disc, around which episodes go on."""

    def disc(s, a):
        ahead = np.clip(s + np.array([0.1 * (a - 1), 0.07 * np.sign(np.sin(40 * s[0]))]), -1.0, 1.0)
        return ahead, -1.0, bool(np.square(ahead - 0.3).sum() < 0.09)

    experience = walked(2_000, worlds=disc)
    imagination = imagined(experience)
    assert not np.isfinite(imagination.dynamics.brinks).any()
    at = imagination.dynamics.regressions[2]
    rows = np.column_stack([experience.following[:, :2], np.zeros(len(experience))])
    ended = experience.discounts == 0.0
    assert np.mean((at(rows) > 0.5) == ended) > 0.97
    assert np.mean(at(rows[ended]) > 0.5) > 0.8
    world = imagination.world  # reads the parts of single columns from tables
    assert (world.grid[1] > 0.0).all()
    joint = at.kernel.parts[-1](rows, at.Z) @ at.weights
    total = at.offset + at.scale * (joint + [_tabled(world.terms, world.grid, row) for row in rows])
    np.testing.assert_allclose(total, at(rows), atol=1e-6)
    assert np.abs(at(rows) - at.offset - at.scale * joint).max() > 0.1
    assert _tabled(world.terms, world.grid, np.array([np.nan, 1e300, 0.0])) == 0.0


def test_many_inputs_together_are_each_as_alone(imagination):
    """The compiled loop runs over inputs where they are many, and over pseudo-inputs where these are."""
    X = walked(300, seed=4).inputs.copy()
    assert 1 < imagination.world.sizes[0] < len(X)
    ahead, rewards, fate = imagination.world.outcomes(X)
    alone = [imagination.world.outcomes(X[t : t + 1].copy()) for t in range(len(X))]
    np.testing.assert_allclose(ahead, np.concatenate([each[0] for each in alone]), atol=1e-8)
    np.testing.assert_allclose(rewards, np.concatenate([each[1] for each in alone]), atol=1e-8)
    assert (fate == np.concatenate([each[2] for each in alone])).all()


def test_an_end_that_was_never_seen():
    """No episode ended: none ends in imagination."""

    def endless(s, a):
        ahead, reward, _ = step(s, a)
        return np.clip(ahead, -1.0, 0.9), reward, False

    imagination = imagined(walked(400, worlds=endless))
    _, _, fate = imagination.world.outcomes(walked(100, seed=3, worlds=endless).inputs.copy())
    assert (fate != ENDED).all()


def test_dynamics_are_saved_whole(experience, imagination):
    arrays, content = imagination.state()
    other = Imagination(*spaces_of(), GAMMA, 60)
    other.restore(arrays, content)
    X = walked(50, seed=2).inputs.copy()
    for mine, theirs in zip(imagination.world.outcomes(X), other.world.outcomes(X), strict=True):
        assert (mine == theirs).all()
    assert np.array_equal(np.array(other.starts), np.array(imagination.starts))
    one, two = np.random.default_rng(4), np.random.default_rng(4)
    imagination2 = imagined(experience)
    other2 = Imagination(*spaces_of(), GAMMA, 60)
    other2.restore(*imagination2.state())
    more = walked(1_800, seed=0)
    imagination2.learn(more, one)
    other2.learn(more, two)
    for mine, theirs in zip(imagination2.world, other2.world, strict=True):
        assert np.array_equal(mine, theirs, equal_nan=True)


def turn(s, a):
    """A hand of length 3 that actions 0, 1, 2 turn."""
    angle = np.arctan2(s[1], s[0]) + 0.1 * (a - 0.9) + 0.05 * s[0] / 3.0
    return 3.0 * np.array([np.cos(angle), np.sin(angle)]), -s[0], False


def test_what_lies_on_a_circle_stays_there():
    rng = np.random.default_rng(0)
    experience, angles = Experience(2, 1, 10_000), rng.uniform(0.0, 2.0 * np.pi, 600)
    for angle in angles:
        s, a = 3.0 * np.array([np.cos(angle), np.sin(angle)]), float(rng.integers(3))
        ahead, reward, _ = turn(s, a)
        experience.add(np.append(s, a), reward, np.append(ahead, 1.0), GAMMA)
    box = spaces.Box(-4.0, 4.0, (2,), np.float64)
    dynamics = Dynamics(Observations(box), Actions(spaces.Discrete(3)))
    dynamics.learn(experience, rng)
    np.testing.assert_array_equal(dynamics.partners, [1, 0])
    s = at = np.array([3.0, 0.0])
    for _ in range(1_000):
        a = float(rng.integers(3))
        s, at = turn(s, a)[0], dynamics.world.outcomes(np.append(at, a)[None])[0][0, :2]
    assert np.hypot(*at) == pytest.approx(3.0, abs=1e-9)
    assert np.abs(s - at).max() < 0.03


def test_which_columns_lie_on_a_circle():
    rng = np.random.default_rng(0)
    one, two = rng.uniform(-1.0, 1.0, (2, 50))
    on = np.array([np.cos(one), 1e3 * np.cos(two), one, np.sin(one), np.full(50, 2.0), 1e3 * np.sin(two)]).T
    np.testing.assert_array_equal(_partners(on), [3, 5, -1, 0, -1, 1])
    np.testing.assert_array_equal(_partners(on * (1.0 + 0.01 * rng.normal(size=on.shape))), np.full(6, -1))
    np.testing.assert_array_equal(_partners(on[:, 4:5]), [-1])


def bounce(s, a):
    """A ball that actions 0, 1, 2 lift or let fall; below 0 the second column says that it touches the
    ground, which throws it up at once."""
    touching = s[0] < 0.0
    x = s[0] + (0.3 + 0.02 * a if touching else 0.05 * (a - 1.3))
    return np.array([min(x, 1.0), float(touching)]), -x * x, False


def test_a_column_of_two_values_is_a_flag():
    """Its values are one or the other, and what else happens depends on them as they are by then."""
    experience, test = walked(1_500, worlds=bounce), walked(300, seed=7, worlds=bounce)
    for rows in (experience, test):  # walks begin with noise there
        rows.inputs[:, 1] = np.round(rows.inputs[:, 1])
    imagination = imagined(experience)
    np.testing.assert_array_equal(imagination.dynamics.flags, [[np.nan, 0.0], [np.nan, 1.0]])
    ahead, _, fate = imagination.world.outcomes(test.inputs.copy())
    assert set(ahead[:, 1]) == {0.0, 1.0}
    right = ahead[:, 1] == test.following[:, 1]
    assert np.mean(right) > 0.97
    assert np.mean(ahead[test.following[:, 1] == 1.0, 1]) > 0.9
    inside = right & (fate != LOST) & (test.following[:, 0] < 1.0)
    assert np.abs(ahead - test.following)[inside, 0].max() < 2e-2


def test_a_reward_for_a_change_is_none_for_what_stays():
    """Beyond 0.3 the second column is 1. Who goes there gets 1, who leaves −1, who stays nothing."""

    def gate(s, a):
        x = float(np.clip(s[0] + 0.05 * (a - 1.0), -1.0, 1.0))
        return np.array([x, float(x > 0.3)]), float(x > 0.3) - s[1], False

    experience, test = (walked(rows, seed, worlds=gate) for rows, seed in ((2_500, 0), (1_000, 3)))
    for rows in (experience, test):  # walks begin with noise there, and with a reward for that
        rows.inputs[:, 1] = rows.inputs[:, 0] > 0.3
        rows.rewards[:] = rows.following[:, 1] - rows.inputs[:, 1]
    ahead, rewards, _ = imagined(experience).world.outcomes(test.inputs.copy())
    right = ahead[:, 1] == test.following[:, 1]
    assert np.mean(right) > 0.9
    changed = test.rewards != 0.0
    assert min(np.sum(test.rewards == 1.0), np.sum(test.rewards == -1.0), np.sum(changed & right)) > 5
    assert np.abs(rewards - test.rewards)[right].max() < 0.2


def test_chances_are_spread_evenly_however_many_there_are():
    for count in (5, 10, 40, 1_000):
        drawn = np.sort(chances(np.arange(count)))
        assert drawn.min() >= 0.0
        assert drawn.max() < 1.0
        gaps = np.diff(np.concatenate([[drawn[-1] - 1.0], drawn]))  # on a ring
        assert gaps.max() < 2.0 / count
        assert gaps.min() > 0.3 / count
    np.testing.assert_array_equal(chances(np.arange(5)), chances(np.arange(9))[:5])


def test_ground_that_is_not_observed_stays_where_it_is_for_an_episode():
    """It lies anywhere between −0.8 and 0 and ends the episode. Imagined episodes touch it as deep as their
    number says, however slowly they come; who stops above stays there for ever."""
    drawn, ground = np.random.default_rng(2), [0.0]

    def fall(s, a):
        if s[1] == 1.0:
            return s, -1.0, True
        x = s[0] - 0.03 * a
        touched = x < ground[0]
        if touched:
            ground[0] = -0.8 * drawn.random()
        return np.array([x, float(touched)]), -0.1, False

    experience = walked(4_000, worlds=fall)
    experience.inputs[:, 1] = experience.inputs[:, 1] == 1.0
    imagination = imagined(experience)
    assert imagination.dynamics.contact.touching
    numbers = np.arange(20)
    depth, states = np.full(20, np.nan), np.tile([0.5, 0.0], (20, 1))
    for _ in range(150):
        going = np.flatnonzero(np.isnan(depth))
        X = np.column_stack([states[going], np.full(len(going), 0.5)])
        ahead, _, fate = imagination.world.outcomes(X, chances(numbers)[going])
        states[going] = ahead[:, :2]
        depth[going[fate != 0]] = ahead[fate != 0, 0]
    assert np.isfinite(depth).mean() >= 0.9
    touched = np.isfinite(depth)
    assert np.corrcoef(depth[touched], chances(numbers)[touched])[0, 1] < -0.9
    assert np.ptp(depth[touched]) > 0.4
    assert depth[touched].max() < 0.0
    still = np.tile([-0.6, 0.0, 0.0], (20, 1))
    once = imagination.world.outcomes(still, chances(numbers))[2]
    assert 0.0 < np.mean(once == 0) < 1.0
    for _ in range(5):  # no chance adds up
        still[:, :2] = imagination.world.outcomes(still, chances(numbers))[0][:, :2]
        assert (imagination.world.outcomes(still, chances(numbers))[2] == once).all()


def test_who_hovers_where_all_others_touched_is_one_of_them():
    """The ground lies at 0, but once, where somebody stays for a thousand steps below that."""
    ground = [0.0]

    def fall(s, a):
        if s[1] == 1.0:
            return s, -1.0, True
        x = s[0] - 0.03 * a
        return np.array([x, float(x < ground[0])]), -0.1, False

    experience = walked(1_500, worlds=fall)
    experience.inputs[:, 1] = experience.inputs[:, 1] == 1.0
    rng = np.random.default_rng(1)
    for x in -0.2 + 0.05 * rng.uniform(-1.0, 1.0, 1_000):
        ahead = np.array([x, 0.0, 0.0])
        experience.add(np.array([x, 0.0, 0.0]), -0.1, ahead, GAMMA)
    experience.following[-1_000:-1, :2] = experience.inputs[-999:, :2]  # one episode
    imagination = imagined(experience)
    assert imagination.dynamics.contact.touching
    below = np.tile([-0.2, 0.0, 0.0], (20, 1))
    touch = imagination.world.outcomes(below, chances(np.arange(20)))[2] == ENDED
    assert touch.mean() > 0.7


def test_an_end_that_a_flag_announces_is_imagined():
    """Beyond 0.8 the second column says that it is over, before it never does; the first says nothing."""

    def crash(s, a):
        x = s[0] + 0.05 * (a - 0.8)
        return np.array([0.0 if x > 0.8 else x, float(x > 0.8)]), -1.0, x > 0.8

    experience = walked(1_500, worlds=crash)
    experience.inputs[:, 1] = 0.0
    ended = experience.discounts == 0.0
    assert ended.sum() > 10
    _, rewards, fate = imagined(experience).world.outcomes(experience.inputs.copy())
    assert np.mean(fate[ended] == ENDED) > 0.8
    assert np.mean(fate[~ended] == ENDED) < 0.05
    np.testing.assert_allclose(rewards, -1.0, atol=1e-6)


def test_which_value_of_a_flag_is_usual_does_not_change():
    dynamics = Dynamics(*spaces_of())
    X, ends = np.array([[0.1, 1.0], [0.2, 1.0], [0.3, 0.0]]), np.array([[0.1, 0.0], [0.3, 1.0]])
    flag = np.array([False, True])
    dynamics.flags = dynamics._flags(flag, ends, X)
    np.testing.assert_array_equal(dynamics.flags, [[np.nan, 1.0], [np.nan, 0.0]])
    X[:, 1] = 0.0
    np.testing.assert_array_equal(dynamics._flags(flag, ends, X), [[np.nan, 1.0], [np.nan, 0.0]])
    np.testing.assert_array_equal(dynamics._flags(np.zeros(2, np.bool_), ends, X), np.full((2, 2), np.nan))


def test_who_touches_the_ground_gets_what_those_did_who_touched_it():
    """Who falls deep loses more; two steps later all are thrown anywhere, praised if they took action 1.
    What follows a touch is not imagined, but what it earns, all in all, is."""
    thrown = np.random.default_rng(1)

    def fall(s, a):
        x, touching = s[0], s[1] == 1.0
        if not touching:
            x -= 0.06 + 0.02 * a + 0.01 * np.sin(5 * x)
            return np.array([x, float(x < -0.5)]), -1.0, False
        if x > -0.7:
            return np.array([x - 0.2, 1.0]), 100.0 * (x + 0.5), False
        return np.array([thrown.uniform(-0.4, 0.8), 1.0]), 4.0 * (a == 1.0), True

    experience, test = walked(3_000, worlds=fall), walked(2_000, seed=5, worlds=fall)
    for rows in (experience, test):
        rows.inputs[:, 1] = rows.inputs[:, 1] == 1.0
    imagination = imagined(experience)
    assert imagination.dynamics.contact.touching
    assert not np.isfinite(imagination.dynamics.brinks).any()
    np.testing.assert_array_equal(imagination.dynamics.contact.rest, [1.0])
    X, touches = test.inputs.copy(), (test.inputs[:, 1] == 0.0) & (test.following[:, 1] == 1.0)
    ahead, rewards, fate = imagination.world.outcomes(X)
    assert touches.sum() > 100
    assert np.mean(fate[touches] == ENDED) > 0.8
    over = touches & (fate == ENDED)
    expected = -1.0 + 100.0 * (test.following[over, 0] + 0.5) + 4.0
    assert np.ptp(expected) > 6.0
    assert np.abs(rewards[over] - expected).mean() < 1.0
    flying = (X[:, 0] > -0.3) & (X[:, 1] == 0.0)
    assert np.mean(fate[flying] == ENDED) < 0.01
    np.testing.assert_allclose(ahead[flying, 0], test.following[flying, 0], atol=0.01)
    assert (ahead[flying, 1] == 0.0).all()
    assert (fate[X[:, 1] == 1.0] == ENDED).all()
    below = np.array([[-0.6, 0.0, a] for a in range(3)])  # where nobody is without touching
    assert (imagination.world.outcomes(below)[2] == ENDED).all()
    other = Imagination(*spaces_of(), GAMMA, 60)
    other.restore(*imagination.state())
    assert other.dynamics.contact.touching
    np.testing.assert_array_equal(other.dynamics.contact.rest, [1.0])
    np.testing.assert_array_equal(other.world.outcomes(X)[1], rewards)
    np.testing.assert_array_equal(other.world.outcomes(X)[2], fate)
    values = values_of(posterior(), imagination.candidates, 2, GAMMA)
    for row in ([-0.6, 1.0], [0.4, 1.0]):
        np.testing.assert_array_equal(imagination.plan(values, np.array(row)), [1.0])
    arrays, content = imagination.state()
    content["dynamics"] = content["dynamics"][:-1]
    with pytest.raises(ValueError, match="5 regressions are kept; expected 6"):
        Imagination(*spaces_of(), GAMMA, 60).restore(arrays, content)


def test_a_room_that_nobody_leaves_is_no_ground_to_touch():
    """Episodes of one room end, of the other they do not: no step leads from one to the other."""
    room, rng = 0.0, np.random.default_rng(2)

    def walk(s, a):
        nonlocal room
        x, over = s[0] + 0.1 * (a - 1.0), room == 1.0 and rng.random() < 0.3
        following = np.array([x, room])
        room = float(rng.random() < 0.3) if over or rng.random() < 0.1 else room
        return following, -abs(x), over

    experience = walked(400, worlds=walk)
    experience.inputs[:, 1] = experience.following[:, 1]
    assert (experience.discounts == 0.0).sum() > 5
    assert not imagined(experience).dynamics.contact.touching


def test_a_flag_that_takes_a_third_value_while_others_touch():
    """What touches earn has one term for each column that is no flag: a column more, and it is made anew."""
    rng, dynamics = (
        np.random.default_rng(0),
        Dynamics(Observations(spaces.Box(-9.0, 9.0, (3,))), spaces_of()[1]),
    )
    experience = Experience(3, 1, 5_000)

    def play(modes):
        for _ in range(20):
            x, touching = 0.3 * rng.normal(), 0.0
            mode = float(rng.integers(2))
            for _ in range(20):
                a, over = float(rng.integers(2)), touching == 1.0
                ahead = np.array([x + 0.2 * a - 0.1, float(x < -0.4 or over), float(rng.integers(modes)), a])
                experience.add(
                    np.array([x, touching, mode, a]), -5.0 * over + 0.1 * rng.normal(), ahead,
                    0.0 if over else GAMMA,
                )  # fmt: skip
                x, touching, mode = ahead[:3]
                if over:
                    break

    for modes, terms in ((2, 1), (3, 2)):
        play(modes)
        dynamics.learn(experience, rng)
        assert dynamics.contact.touching
        assert len(dynamics.regressions[5].kernel.parts) == terms


def test_trouble_while_the_world_is_learnt_leaves_the_one_before(experience, monkeypatch):
    imagination = Imagination(*spaces_of(), GAMMA, 60)
    few, rng = walked(150, seed=3), np.random.default_rng(0)

    def fail(*given):
        raise ArithmeticError

    with monkeypatch.context() as patched:
        patched.setattr(Dynamics, "_learn_ends", fail)
        with pytest.raises(ArithmeticError):
            imagination.learn(few, rng)
        assert not imagination.ready
    imagination.learn(few, rng)
    X = few.inputs.copy()
    before, known = imagination.world.outcomes(X), imagination.dynamics.known
    monkeypatch.setattr(Dynamics, "_learn_rewards", fail)
    with pytest.raises(ArithmeticError):
        imagination.learn(experience, rng)
    imagination.dynamics._world = None  # made of what is kept
    for mine, old in zip(imagination.world.outcomes(X), before, strict=True):
        np.testing.assert_array_equal(mine, old)
    assert imagination.dynamics.known is known


def test_actions_since_a_touch_are_compared_by_a_regression():
    """Beside dense algebra: where each stretch began, and which action it was."""
    contact, rng = Dynamics(*spaces_of()).contact, np.random.default_rng(0)
    states, rows = rng.normal(size=(60, 2)), np.arange(5, 45)
    choices, earned = rng.integers(2, size=40), rng.normal(size=40)
    earned[choices == 1] += 3.0
    means, deviations = contact.compare(states, Rests(rows, choices, earned), -0.5)
    y = np.maximum(earned, -0.5)
    low, high = np.quantile(states[rows], [0.1, 0.9], axis=0)

    def k(a, b, one, other):
        distance = np.square((a[:, None] - b) / (high - low)).sum(axis=2)
        return np.exp(-0.5 * distance) * np.where(one[:, None] == other, 1.0, 0.5)

    X, newest = states[rows], states[rows][-20:]
    inverse = np.linalg.inv(k(X, X, choices, choices) + 0.3 * np.eye(40))

    def expected(taken):
        across = k(newest, X, taken, choices)
        mean = across @ inverse @ (y - y.mean()) / y.std()
        return mean.mean(), np.sqrt((k(newest, newest, taken, taken) - across @ inverse @ across.T).mean())

    as_taken = expected(choices[-20:])[0]
    for action in range(3):
        mean, deviation = expected(np.full(20, action))
        assert means[action] == pytest.approx(y.std() * (mean - as_taken), rel=1e-9, abs=1e-12)
        assert deviations[action] == pytest.approx(y.std() * deviation, rel=1e-9)
    assert means.argmax() == 1
    assert deviations.argmax() == 2  # which nobody took
    alike = Rests(rows[:0], choices[:0], earned[:0]), Rests(rows, choices, np.ones(40))
    for nothing in alike:
        np.testing.assert_array_equal(contact.compare(states, nothing, -0.5), np.zeros((2, 3)))


def test_an_action_that_failed_after_hard_touches_may_be_better_after_gentle_ones():
    contact, rng = Dynamics(*spaces_of()).contact, np.random.default_rng(0)
    choices = np.repeat([1, 0], [10, 20])  # the second was taken by few, and failed

    def compared(speed):
        speeds = np.append(rng.normal(speed, 0.1, 10), rng.normal(0.0, 0.1, 20))
        earned = np.where(choices == 1, -100.0, 10.0 * rng.normal(size=30))
        states = np.column_stack([speeds, rng.normal(size=30)])
        return contact.compare(states, Rests(np.arange(30), choices, earned), -100.0)

    gentle, hard = compared(0.0), compared(1.0)
    assert hard[0, 1] > gentle[0, 1] + 10.0
    assert hard[1, 1] > 1.5 * gentle[1, 1]


def test_exploring_rests_by_what_may_be_the_best_and_others_by_what_is_known():
    contact = Dynamics(*spaces_of()).contact
    contact.rests = np.array([[1.0, 1.2, -9.0], [0.1, 1.0, 1.0]])  # the second is hardly known
    np.testing.assert_array_equal(contact.hopeful_rests, [[1.0], [0.0], [2.0]])
    np.testing.assert_array_equal(contact.ranked(-1.0)[0], [0.0])
    contact.rests[1, 1] = 0.01
    np.testing.assert_array_equal(contact.ranked(-1.0)[0], [1.0])


def test_what_was_done_after_touches_is_told_in_stretches():
    """A bounce between two steps of one action is a part of its stretch; so few steps of another say nothing,
    but the last ones do."""
    down = np.array([0, 1, 1, 0, *[1] * 10, 1, 1, *[1] * 12, 1.0])
    taken = np.array([2, 0, 0, 1, *[0] * 10, 2, 2, *[1] * 12, 0.0])
    n = len(down)
    states = np.column_stack([down, np.arange(n)])
    following = np.column_stack([np.append(down[1:], 1.0), np.arange(1, n + 1)])
    ended = np.arange(n) == n - 1
    lesson = lesson_of(states, following, np.arange(float(n)), ended, taken)
    rests = touched(lesson, np.array([0.0, np.nan]), np.array([[0.0], [1.0], [2.0]])).rests
    np.testing.assert_array_equal(rests.rows, [1, 16, 28])
    np.testing.assert_array_equal(rests.choices, [0, 1, 0])
    np.testing.assert_array_equal(rests.earned, [sum(range(1, 14)), sum(range(16, 28)), 28])


def test_what_touches_earned_is_known_when_the_store_has_wrapped():
    """Episodes stay whole, but for the oldest one, and the newest touches are the last."""
    choices, usual = np.array([[0.0], [1.0]]), np.array([0.0, np.nan])
    whole, small = Experience(2, 1, 1_000), Experience(2, 1, 100)
    for episode in range(30):
        for step in range(11):
            x, down = np.array([float(step > 4), episode + step / 100, episode % 2]), float(step >= 4)
            following, discount = (
                np.array([down, episode + (step + 1) / 100, episode % 2]),
                GAMMA * (step < 10),
            )
            for store in (whole, small):
                store.add(x, float(episode), following, discount)

    def learnt(store):
        rows = store.by_age
        X, following = store.inputs[rows], store.following[rows, :2]
        lesson = lesson_of(X[:, :2], following, store.rewards[rows], store.discounts[rows] == 0.0, X[:, 2])
        return touched(lesson, usual, choices)

    rests = learnt(small).rests
    np.testing.assert_array_equal(rests.earned, [6.0 * episode for episode in range(21, 30)])
    np.testing.assert_array_equal(learnt(whole).rests.earned[-9:], rests.earned)
    np.testing.assert_array_equal(learnt(whole).rewards[-90:], learnt(small).rewards[-90:])


def lesson_of(states, following, rewards, ended, actions):
    return Lesson(
        states, np.column_stack([states, actions]), following, rewards, ended, np.array([True, False]),
        np.ones(2), np.random.default_rng(0), True,
    )  # fmt: skip


@pytest.mark.parametrize("interleaved", [False, True])
def test_an_episode_is_over_where_a_flag_is_not_as_usual(interleaved):
    """Two episodes, of which the second was cut off, and a third that has just begun; one after the other, or
    side by side as several environments store them."""
    states = np.array([[0.0, 7.0], [0.0, 8.0], [1.0, 9.0], [1.0, 6.0], [0.0, 5.0], [1.0, 4.0], [0.0, 3.0]])
    following = np.array([[0.0, 8.0], [1.0, 9.0], [1.0, 6.0], [1.0, 1.0], [1.0, 4.0], [1.0, 2.0], [0.0, 2.0]])
    ended = np.array([False, False, False, True, False, False, False])
    actions = np.array([0.0, 0.0, 2.0, 2.0, 1.0, 0.0, 1.0])
    order = np.array([0, 4, 6, 1, 5, 2, 3]) if interleaved else np.arange(7)
    lesson = lesson_of(*(a[order].copy() for a in (states, following, np.arange(7.0), ended, actions)))
    choices = np.array([[0.0], [1.0], [2.0]])
    learnt = touched(lesson, np.array([0.0, np.nan]), choices)
    back = np.argsort(order)
    np.testing.assert_array_equal(learnt.ended[back], [False, True, True, True, True, True, False])
    first = [0, 1, 4, 6]  # what comes later is learnt by nobody
    np.testing.assert_array_equal(learnt.rewards[back][first], [0.0, 6.0, 9.0, 6.0])
    np.testing.assert_array_equal(learnt.since[back][first], [-1, 2, 0, -1])
    np.testing.assert_array_equal(learnt.later[back], [False, False, True, True, False, True, False])
    episode = learnt.episode[back]
    assert len(set(episode[:4])) == len(set(episode[4:6])) == 1
    assert len({episode[0], episode[4], episode[6]}) == 3
    np.testing.assert_array_equal(learnt.inputs[:, 0], 0.0)
    np.testing.assert_array_equal(learnt.inputs[:, 1:], lesson.inputs[:, 1:])
    np.testing.assert_array_equal(lesson.rewards, np.arange(7.0)[order])
    np.testing.assert_array_equal(lesson.inputs[:, :2], states[order])


def test_a_long_episode_counts_as_little_as_a_short_one():
    episode, rows = np.repeat([0, 1, 2], [50, 3, 10]), np.arange(1, 63)
    chosen = thinned(rows, episode, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(episode[chosen]), [5, 3, 5])
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(rows)
    seen = set(np.concatenate([thinned(rows, episode, 5, np.random.default_rng(i)) for i in range(200)]))
    assert seen == set(rows)  # at random


def test_an_observation_that_comes_again_is_no_endless_episode():
    states = np.array([[0.0, 7.0], [1.0, 9.0], [1.0, 9.0], [0.0, 6.0], [1.0, 9.0]])
    following = np.array([[1.0, 9.0], [1.0, 9.0], [1.0, 9.0], [0.0, 6.0], [1.0, 9.0]])
    lesson = lesson_of(states, following, np.arange(5.0), np.zeros(5, np.bool_), np.zeros(5))
    learnt = touched(lesson, np.array([0.0, np.nan]), np.zeros((1, 1)))
    np.testing.assert_array_equal(learnt.rewards[[0, 3]], [7.0, 3.0])


def test_rewards_for_coming_nearer_are_learnt_as_differences():
    """The wind is not foreseen, but what a step earns is only how much nearer it comes, less its cost."""
    wind = np.random.default_rng(1)

    def worth(s):
        return -3.0 * np.abs(s[..., 0]) - np.abs(s[..., 1] - 0.2)

    def drift(s, a):
        ahead = np.clip(s + 0.1 * wind.normal(size=2) + [0.05 * (a - 1.0), 0.0], -1.0, 1.0)
        return ahead, float(worth(ahead) - worth(s)) - 0.1 * a, False

    imagination = imagined(walked(2_000, worlds=drift))
    assert imagination.dynamics.regressions[5].known
    X = walked(300, seed=3, worlds=drift).inputs.copy()
    ahead, rewards, _ = imagination.world.outcomes(X)
    error = rewards - (worth(ahead) - worth(X) - 0.1 * X[:, 2])
    assert np.std(rewards) > 0.05
    assert np.sqrt(np.mean(np.square(error))) < 0.05
    other = Imagination(*spaces_of(), GAMMA, 60)
    other.restore(*imagination.state())
    np.testing.assert_array_equal(other.world.outcomes(X)[1], rewards)


@pytest.mark.parametrize("continuous", [False, True])
def test_what_an_action_costs_is_told_apart_from_the_potential(continuous):
    """Though one is mostly taken low down, and whatever falls passes there: its cost looks like a height."""
    rng = np.random.default_rng(2)
    observations, discrete = spaces_of()
    actions = Actions(spaces.Box(0.0, 2.0, (1,), np.float64)) if continuous else discrete
    experience, s = Experience(2, 1, 10_000), np.array([1.0, 0.0])
    for _ in range(2_000):
        a = rng.uniform(0.0, 2.0) if continuous else float(rng.integers(3))
        a = a if rng.random() < 0.2 else 2.0 * (s[0] < 0.0)
        ahead = np.clip(s + rng.normal([-0.05, 0.0], [0.02, 0.1]), -1.0, 1.0)
        nearer = 2.0 * (np.abs(s[1]) - np.abs(ahead[1]))
        experience.add(np.append(s, a), nearer - 0.1 * a**2, np.append(ahead, 0.0), GAMMA)
        s = ahead if ahead[0] > -1.0 else np.array([1.0, rng.uniform(-0.5, 0.5)])
    dynamics = Dynamics(observations, actions)
    dynamics.learn(experience, rng)
    assert dynamics.regressions[5].known
    X = np.column_stack([rng.uniform(-0.9, 0.9, (60, 2)), np.repeat([0.0, 1.0, 2.0], 20)])
    np.testing.assert_allclose(dynamics.regressions[3](X), -0.1 * X[:, 2] ** 2, atol=0.05)


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (spaces.Discrete(4), 4),
        (spaces.MultiDiscrete([3, 4]), 7),
        (spaces.MultiDiscrete([50, 50, 50]), 1),
        (spaces.Box(-1.0, 1.0, (2,)), 5),
        (spaces.Box(-1.0, 1.0, (17,)), 1),
    ],
    ids=str,
)
def test_costs_are_learnt_by_few_features_of_the_action(space, count):
    actions = Actions(space)
    found = features(actions, actions.random(300, np.random.default_rng(0)))
    assert found.shape == (300, count)
    assert np.ptp(np.linalg.lstsq(found, np.ones(300), rcond=None)[0] @ found.T) < 1e-9  # a constant


def test_a_brink_is_not_where_a_crash_has_thrown_it():
    following = np.array([[0.1], [0.2], [0.5], [0.6], [0.7]])
    ended, none = np.array([False, False, True, True, True]), np.zeros((5, 1), dtype=np.bool_)
    brinks, explained = _brinks(following, ended, none)
    assert brinks[1, 0] == 0.2
    np.testing.assert_array_equal(explained, ended)
    brinks, explained = _brinks(following, ended, ended[:, None])
    assert np.isinf(brinks).all()
    assert not explained.any()


def test_a_flag_that_never_changes_stays_what_it_is():
    """It differs from episode to episode only."""

    def lamp(s, a):
        return np.array([np.clip(s[0] + 0.1 * (a - 1.0), -1.0, 1.0), float(s[1] > 0.0)]), -1.0, False

    experience = walked(600, worlds=lamp)
    experience.inputs[:, 1] = experience.following[:, 1]
    X = experience.inputs[:200].copy()
    ahead, _, _ = imagined(experience).world.outcomes(X)
    assert set(X[:, 1]) == {0.0, 1.0}
    assert (ahead[:, 1] == X[:, 1]).all()


def test_a_flag_may_appear_and_cease_to_be_one():
    """First it was never up, then it was; then it had a third value, and is a number."""
    experience, rng = walked(900, worlds=bounce), np.random.default_rng(0)
    experience.inputs[:, 1] = np.round(experience.inputs[:, 1])
    kinds = []
    imagination = Imagination(*spaces_of(), GAMMA, 60)
    part = Experience(2, 1, 10_000)

    def learn(rows, third=None):
        for i in rows:
            ahead = experience.following[i].copy()
            ahead[1] = ahead[1] if third is None else third
            part.add(experience.inputs[i], experience.rewards[i], ahead, GAMMA)
        imagination.learn(part, rng)
        kinds.append((bool(np.isfinite(imagination.dynamics.flags[0, 1])), imagination.dynamics.flags[1, 1]))
        assert np.isfinite(imagination.world.outcomes(experience.inputs[:50].copy())[0]).all()

    up = (experience.inputs[:, 1] == 1.0) | (experience.following[:, 1] == 1.0)
    learn(np.flatnonzero(~up)[:200])
    learn(np.flatnonzero(up)[:60])
    other = Imagination(*spaces_of(), GAMMA, 60)
    other.restore(*imagination.state())
    X = experience.inputs[:80].copy()
    np.testing.assert_array_equal(other.world.outcomes(X)[0], imagination.world.outcomes(X)[0])
    learn(np.flatnonzero(~up)[200:210], third=0.5)
    assert [kind for kind, _ in kinds] == [False, True, False]
    assert kinds[1][1] == 1.0


# ── acting and judging ───────────────────────────────────────────────────────────────────────────────


def test_values_are_those_of_the_posterior(imagination):
    model, states = posterior(), np.random.default_rng(3).uniform(-1, 1, (7, 2))
    values = values_of(model, imagination.candidates, 2, GAMMA)
    X = np.column_stack([np.repeat(states, 3, axis=0), np.tile([0.0, 1.0, 2.0], 7)])
    close(values(np.column_stack([states, np.zeros(7)])), model.predict(X).reshape(7, 3))


def test_a_kernel_that_does_not_factorise_is_not_judged(imagination):
    model = SparseGPSarsa(RBF(1.0), 0.1, np.zeros((1, 3)))
    assert values_of(model, imagination.candidates, 2, GAMMA) is None
    assert imagination.values_of(model) is None


def looked_ahead(imagination, model, s):
    """The plan in plain Python: scores of the candidates, and what follows each."""
    found = []
    for a in (0.0, 1.0, 2.0):
        ahead, reward, fate = imagination.world.outcomes(np.array([[*s, a]]))
        later = max(model.predict(np.array([[*ahead[0, :2], b] for b in (0.0, 1.0, 2.0)])))
        score = reward[0] + GAMMA * (0.0 if fate[0] == ENDED else later)
        found.append((score, ahead[0, :2], reward[0], fate[0]))
    return found


def test_a_plan_looks_one_step_ahead(imagination):
    model = posterior()
    values = values_of(model, imagination.candidates, 2, GAMMA)
    for s in np.random.default_rng(5).uniform([-0.9, -0.2], [0.9, 0.2], (10, 2)):
        scores = [score for score, *_ in looked_ahead(imagination, model, s)]
        assert imagination.plan(values, s)[0] == np.argmax(scores)


def test_few_actions_are_looked_ahead_for_several_steps(experience):
    """With two actions three steps, by plain recursion; where all is lost, by Q."""
    observations = spaces_of()[0]
    imagination = Imagination(observations, Actions(spaces.Discrete(2)), GAMMA, 60)
    assert imagination.depth == 3
    assert Imagination(*spaces_of(), GAMMA, 60).depth == 1
    imagination.learn(experience, np.random.default_rng(0))
    model = posterior()
    values = values_of(model, imagination.candidates, 2, GAMMA)

    def best(s, depth):
        if depth == 0:
            return max(model.predict(np.array([[*s, b] for b in (0.0, 1.0)])))
        return max(scores(s, depth))

    def scores(s, depth):
        found = []
        for a in (0.0, 1.0):
            ahead, reward, fate = (each[0] for each in imagination.world.outcomes(np.array([[*s, a]])))
            later = 0.0 if fate == ENDED else best(ahead[:2], 0 if fate == LOST else depth - 1)
            found.append(reward + GAMMA * later)
        return found

    for s in np.random.default_rng(5).uniform([-0.9, -0.2], [0.98, 0.2], (20, 2)):
        found = imagination._look_ahead(values, s[None])[0]
        close(found[0], np.array(scores(s, 3)))


def test_judging_is_imagining_whole_episodes(experience):
    """Returns against a loop over single steps; an episode that is lost has the worst that can follow."""
    imagination, model = imagined(experience), posterior()
    imagination.longest = imagination.limit = 25
    starts = np.array(imagination.starts)[:6]
    judged = imagination.judge(imagination.values_of(model), starts, model)
    wanted, fates = [], set()
    for s in starts:
        total = 0.0
        for t in range(25):
            _, s, reward, fate = max(looked_ahead(imagination, model, s), key=lambda found: found[0])
            total += reward
            fates.add(int(fate))
            if fate == LOST:
                total += imagination.least * min(25 - t - 1, 1 / (1 - GAMMA))
            if fate:
                break
        wanted.append(total)
    np.testing.assert_allclose(judged.returns, wanted, atol=1e-8)
    assert len(judged.visited) >= 6
    assert judged.lost == (LOST in fates)
    assert judged.model is model


def test_imagined_rows_are_sums_over_steps(imagination, experience):
    model = posterior()
    values = values_of(model, imagination.candidates, 2, GAMMA)
    X = experience.inputs[:12].copy()
    rewards, following, discounts = imagination._rows_ahead(values, X, GAMMA)
    for x, reward, ahead, discount in zip(X, rewards, following, discounts, strict=True):
        total, weight, at = 0.0, 1.0, x
        for _ in range(FAR):
            next_, r, fate = imagination.world.outcomes(at[None])
            total += weight * r[0]
            total += weight * GAMMA * imagination.least / (1 - GAMMA) * (fate[0] == LOST)
            weight *= 0.0 if fate[0] else GAMMA
            if fate[0]:
                at = x
                break
            s = next_[0, :2]
            at = np.array([*s, np.argmax(model.predict(np.array([[*s, b] for b in (0.0, 1.0, 2.0)])))])
        assert reward == pytest.approx(total, abs=1e-9)
        assert discount == pytest.approx(weight)
        np.testing.assert_allclose(ahead, at, atol=1e-9)


def test_the_worst_is_an_end_or_a_long_time():
    """The smallest last reward is paid once, the smallest of the others as long as it goes on."""
    experience = Experience(2, 1, 100)
    imagination = Imagination(*spaces_of(), GAMMA, 60)
    for reward, discount in ((-2.0, GAMMA), (1.0, GAMMA), (-50.0, 0.0), (70.0, 0.0)):
        experience.add(np.zeros(3), reward, np.zeros(3), discount)
    imagination.earned(experience)
    assert imagination.worst(10) == -50.0
    assert imagination.worst(100) == -200.0
    assert imagination._lost(GAMMA) == -50.0
    experience.add(np.zeros(3), -8.0, np.zeros(3), GAMMA)
    imagination.earned(experience)
    assert imagination._lost(GAMMA) == pytest.approx(-80.0)


def test_episodes_are_as_long_as_one_that_was_cut_off():
    imagination = Imagination(*spaces_of(), GAMMA, 60)
    assert imagination.steps == 100  # ten times what a discount of 0.9 reaches
    imagination.finished(120, truncated=False)
    assert imagination.steps == 180
    imagination.finished(150, truncated=True)
    assert imagination.steps == 150
    imagination.finished(170, truncated=False)
    assert imagination.steps == 255


def test_dreams_are_better(experience):
    """The best of what is known and dreamt is no worse than what was known, and reaches the end sooner."""
    imagination, rng = imagined(experience), np.random.default_rng(1)
    imagination.longest = imagination.limit = 60
    model, starts = posterior(), np.array(imagination.starts)[:12]
    judged = imagination.judge(imagination.values_of(model), starts, model)

    def like(rows, gamma):
        return SparseGPSarsa(
            model.kernel, 1e-3, np.empty((0, 3)), growth="streaming", prior_mean=model.prior_mean
        )

    best = imagination.better([judged], starts, experience, like, rng)
    assert best.mean >= judged.mean
    assert best.mean > -40.0  # pushing one way all the time takes some thirty steps
    real = []
    for s in starts:
        total = 0.0
        for _ in range(60):
            s, reward, ended = step(s, imagination.plan(best.values, s)[0])
            total += reward
            if ended:
                break
        real.append(total)
    assert np.mean(real) == pytest.approx(best.mean, abs=2.0)


def test_where_nothing_can_be_gained_nothing_is_dreamt(imagination, monkeypatch):
    experience = walked(400, worlds=lambda s, a: (step(s, a)[0], 1.0, step(s, a)[2]))
    judged = imagination.judge(imagination.values_of(posterior()), np.array(imagination.starts)[:12])
    judged.returns[:] = float(experience.rewards.max()) * imagination.steps
    monkeypatch.setattr(module, "pivots", None)  # would fail
    assert imagination.better([judged], np.zeros((1, 2)), experience, None, None) is judged
    with pytest.raises(TypeError):  # unless it was less than that
        imagination.better([judged], np.zeros((1, 2)), experience, None, np.random.default_rng(0), True)


# ── curiosity ────────────────────────────────────────────────────────────────────────────────────────


def prior():
    kernel = Matern52([0.7, 0.4], 1.0, [0, 1]) * Delta(2, share=0.5)
    return SparseGPSarsa(kernel, 1e-4, np.empty((0, 3)), growth="streaming")


def narrow(count=300):
    """Walks that never went beyond |x| = ½: there is more to find."""
    rng, experience = np.random.default_rng(0), Experience(2, 1, 10_000)
    s = np.zeros(2)
    while len(experience) < count:
        a = float(rng.integers(3))
        ahead, reward, _ = step(s, a)
        if abs(ahead[0]) > 0.5:
            s = rng.uniform([-0.3, -0.05], [0.3, 0.05])
            continue
        experience.add(np.append(s, a), reward, np.append(ahead, 1.0), GAMMA)
        s = ahead
    return experience


def test_curiosity_leaves_what_is_known():
    """In the real world too, from every start."""
    experience = narrow()
    imagination = imagined(experience)
    imagination.explore(prior(), experience, lambda rows, gamma: prior(), np.random.default_rng(1))
    assert imagination.explorer is not None
    assert imagination.explorer.curious
    for s in np.random.default_rng(2).uniform([-0.3, -0.05], [0.3, 0.05], (8, 2)):
        for _ in range(60):
            s, _, _ = step(s, imagination.plan(imagination.explorer, s)[0])
            if imagination.dynamics.new(s[None])[0]:
                break
        else:
            pytest.fail("it stayed in what is known")


def test_where_all_is_known_nobody_is_curious():
    """A world between walls, all of which was seen: there is no way out."""

    def box(s, a):
        return np.clip([s[0] + 0.1 * (a - 1), 0.5 * s[0]], -1.0, 1.0), 0.0, False

    experience = walked(800, worlds=box)
    imagination = imagined(experience)
    imagination.explore(prior(), experience, lambda rows, gamma: prior(), np.random.default_rng(1))
    assert imagination.explorer is None


def test_growth_is_the_widening_of_what_is_known(experience):
    few = narrow()
    imagination = imagined(few)
    assert imagination.dynamics.growth == 1.0
    imagination.learn(few, np.random.default_rng(0))
    assert imagination.dynamics.growth == 0.0
    before = np.ptp(imagination.dynamics.seen, axis=0)
    imagination.learn(experience, np.random.default_rng(0))
    after = np.ptp(imagination.dynamics.seen, axis=0)
    assert imagination.dynamics.growth == pytest.approx((1.0 - before / after).max())


def test_what_lies_beyond_is_noticed():
    experience = narrow()
    imagination = imagined(experience)
    beyond = imagination.dynamics.known[1] + 0.01
    imagination.seen(np.zeros(3), beyond)
    assert not imagination.outgrown  # nobody explores
    imagination.explore(prior(), experience, lambda rows, gamma: prior(), np.random.default_rng(1))
    imagination.seen(np.zeros(3), np.zeros(2))
    assert not imagination.outgrown
    imagination.seen(np.zeros(3), beyond)
    assert imagination.outgrown
    imagination.learn(experience, np.random.default_rng(0))
    assert not imagination.outgrown


def test_curiosity_is_saved_whole():
    experience = narrow()
    imagination = imagined(experience)
    imagination.explore(prior(), experience, lambda rows, gamma: prior(), np.random.default_rng(1))
    other = Imagination(*spaces_of(), GAMMA, 60)
    other.restore(*imagination.state())
    for mine, theirs in zip(imagination.explorer, other.explorer, strict=True):
        assert np.array_equal(mine, theirs)
    arrays, content = imagination.state()  # compiled loops trust them: what does not fit is refused
    for name, bad in {
        "codes": arrays["explorer.codes"][:-1],
        "values": arrays["explorer.values"][:-1],
        "Zt": arrays["explorer.Zt"][:-1],
        "weights": arrays["explorer.weights"][1:],
    }.items():
        with pytest.raises(ValueError, match=name):
            Imagination(*spaces_of(), GAMMA, 60).restore({**arrays, f"explorer.{name}": bad}, content)


def test_a_policy_of_the_users_own_is_not_curious():
    agent = SarsaAgent(Push(), seed=0, gamma=GAMMA, budget=40, policy=EpsilonGreedy(0.2)).learn(300)
    assert agent.imagination.ready
    assert agent.imagination.explorer is None


# ── the incumbent ────────────────────────────────────────────────────────────────────────────────────


def judged(model, returns, lost=False):
    values = values_of(posterior(), np.zeros((1, 1)), 2, GAMMA)
    return Judged(values, np.array(returns, dtype=float), np.zeros((1, 2)), lost, 2, model)


def held(*returns, lost=False):
    incumbent = Incumbent()
    incumbent.imagined(judged("old", np.zeros(4), lost), None)
    for total in returns:
        incumbent.holder.showed(total, np.zeros(2))
    incumbent.recent = deque(returns, maxlen=20)
    return incumbent


def test_the_first_that_is_imagined_is_the_incumbent():
    incumbent = held()
    assert incumbent.holder.model == "old"
    assert incumbent.imagining
    assert [incumbent.role(episode) for episode in range(4)] == ["explore", "incumbent"] * 2


def test_who_explores_by_itself_is_shown_at_once():
    """A holder that goes where nobody has been shows what is there; one that does not, can wait."""
    roles = [held(lost=lost).role(0) for lost in (True, False)]
    assert roles == ["incumbent", "explore"]
    shown = held(10.0, lost=True)
    assert [shown.role(episode, fruitful=True) for episode in range(4)] == ["explore", "incumbent"] * 2
    sure = held(10.0)
    assert [sure.role(episode, fruitful=True) for episode in range(4)] == ["explore"] * 3 + ["incumbent"]


def test_a_better_one_takes_over():
    """Whatever the old one returned: who acts by values is believed as imagined."""
    incumbent = held(10.0, 12.0, 11.0)
    incumbent.imagined(judged("new", [105.0, 106.0, 105.0]), judged("old", [100.0, 101.0, 99.0]))
    assert incumbent.holder.model == "new"
    assert incumbent.challenger is None


def ruled(returns):
    """A new rule, as judged."""
    rule = Rule.blank(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[0.0], [1.0]]), False)
    return Judged(rule, np.array(returns, dtype=float), np.zeros((1, 2)), False, 2, "new")


@pytest.mark.parametrize(("gain", "who"), [(16.0, "new"), (14.0, "old")])
def test_a_rule_must_be_better_than_what_the_holder_has_shown(gain, who):
    """Three returns were 20 above what is imagined of them: 15 of these are believed."""
    incumbent = held(30.0, 32.0, 31.0)
    incumbent.imagined(ruled(np.full(3, 11.0 + gain)), judged("old", np.full(3, 11.0)), np.full(3, 11.0))
    assert incumbent.holder.model == who
    assert (incumbent.challenger is None) == (who == "new")


def test_a_rule_is_not_compared_with_what_nobody_has_shown():
    incumbent = held()
    incumbent.imagined(ruled(np.full(3, 11.1)), judged("old", np.full(3, 11.0)), None)
    assert incumbent.holder.model == "new"


def test_a_rule_must_be_better_by_more_than_imagination_may_be_off():
    """The holder returned 40 and 60, 20 more on average than is imagined, and two thirds of that count. What
    is imagined of the new one may be off by as much as these differ, 10, or so: that counts where trials are
    cheap, 300 steps of 3 000."""
    surplus, deviation = 20.0 * 2.0 / 3.0, 10.0 * np.sqrt(2.0 / 3.0)
    enough = surplus + deviation
    for length, gain, who in (
        (100, enough + 0.1, "new"), (100, enough - 0.1, "old"),
        (101, surplus + 0.1, "new"), (101, surplus - 0.1, "old"),
    ):  # fmt: skip
        incumbent = held(40.0, 60.0)
        incumbent.finished("random", None, 0.0, length, 3_000, np.zeros(2))
        incumbent.recent.clear()
        assert incumbent._surplus(np.full(2, 30.0)) == pytest.approx((surplus, deviation))
        incumbent.imagined(ruled(np.full(3, 30.0 + gain)), judged("", np.full(3, 30.0)), np.full(2, 30.0))
        assert incumbent.holder.model == who
        assert (incumbent.challenger is None) == (who == "new")


@pytest.mark.parametrize(("gain", "who"), [(12.0, "old"), (140.0, "new")])
def test_who_has_shown_much_gives_way_to_no_small_promise(gain, who):
    """The holder returned 64 more than is imagined, by more or less."""
    incumbent = held(*[198.0, 318.0] * 11)
    incumbent.finished("random", None, 250.0, 100, 10_000, np.zeros(2))
    incumbent.imagined(ruled(np.full(9, 194.0 + gain)), judged("old", np.full(9, 194.0)), np.full(22, 194.0))
    assert incumbent.holder.model == who
    assert (incumbent.challenger is None) == (who == "new")


def test_three_successes_may_be_luck():
    """A holder that always returns about 250, a challenger that returns 280: three episodes do not tell where
    others failed of late; where nobody did, they do."""
    needed = []
    for failed in (-100.0, 260.0):
        incumbent = held(*(250.0 + i % 3 for i in range(20)))
        incumbent.recent.extend([failed, 250.0] * 10)
        incumbent.challenger = Contender("new", values=ruled([0.0]).values)
        while incumbent.challenger is not None:
            incumbent.finished("trial", "new", 280.0, 10, 10**6, np.zeros(2))
        assert incumbent.holder.model == "new"
        needed.append(len(incumbent.holder.returns))
    assert needed[0] > 5 > needed[1]


def test_who_has_shown_something_stays_the_challenger():
    for returns, stays in (((), False), ((200.0,), True)):
        incumbent = held()
        incumbent.challenger = Contender("explorer")
        for total in returns:
            incumbent.challenger.showed(total, np.zeros(2))
        incumbent.imagined(ruled(np.full(3, 20.0)), judged("old", np.full(3, 11.0)), None)
        assert incumbent.holder.model == "new"
        assert (incumbent.challenger is not None) == stays


def test_trials_and_the_holders_episodes_take_turns():
    """A challenger cannot be judged by real returns while the holder has none."""
    incumbent = held()
    incumbent.challenger = Contender("new")
    assert incumbent.role(0) == incumbent.role(4) == "explore"  # which goes on meanwhile
    assert incumbent.role(1) == "trial"
    incumbent.finished("trial", "new", 7.0, 10, 100, np.zeros(2))
    assert incumbent.role(1) == "incumbent"
    incumbent.finished("incumbent", "old", 3.0, 10, 110, np.zeros(2))
    assert incumbent.role(2) == "trial"


def test_a_rule_that_explores_may_become_the_challenger():
    rule = Rule.blank(np.zeros((2, 2)), np.arange(2.0)[:, None], False)
    incumbent = held(10.0, 12.0, 11.0)
    incumbent.finished("explore", "newest", 50.0, 10, 100, np.zeros(2))
    assert incumbent.challenger is None
    incumbent.finished("explore", "newest", 10.0, 10, 110, np.zeros(2), rule)
    assert incumbent.challenger is None
    incumbent.finished("explore", "newest", 50.0, 10, 120, np.zeros(2), rule)
    assert incumbent.challenger.values is rule
    assert list(incumbent.challenger.returns) == [50.0]
    assert not incumbent.challenger.lost


def test_by_chance_better_is_not_better():
    incumbent = held(10.0, 12.0, 11.0)
    incumbent.imagined(judged("new", [30.0, 5.0, 2.0]), judged("old", [11.0, 11.5, 10.5]))
    assert incumbent.holder.model == "old"
    assert incumbent.challenger is None


@pytest.mark.parametrize(("reward", "steps"), [(0.7, 300), (0.1, 1_000), (1.0, 500)])
def test_who_earns_the_largest_reward_at_every_step_is_unbeatable(reward, steps, monkeypatch):
    """Though a sum of rewards is rounded, and their product with the number of steps otherwise."""
    agent = SarsaAgent(gymnasium.make("CartPole-v1"), seed=0).learn(250)
    foresight, total = agent.foresight, 0.0
    for _ in range(steps):
        total += reward
    foresight.experience._rows[: len(foresight.experience), 2 * foresight.experience.columns] = reward
    monkeypatch.setattr(type(foresight.imagination), "steps", steps)
    foresight.incumbent = held(*[total] * 5)
    foresight.incumbent.holder.lost = False
    assert foresight.unbeatable()
    foresight.incumbent.holder.returns.append(total - reward)
    assert not foresight.unbeatable()


def test_unbeatable():
    incumbent = held(500.0, 500.0)
    assert not incumbent.unbeatable(500.0)
    incumbent.holder.returns.append(500.0)
    assert incumbent.unbeatable(500.0)
    assert not incumbent.unbeatable(501.0)
    incumbent.holder.lost = True  # there may be more where nobody has been
    assert not incumbent.unbeatable(500.0)
    incumbent.holder.lost = False
    incumbent.holder.returns.append(499.0)
    assert not incumbent.unbeatable(500.0)


# ── the agent ────────────────────────────────────────────────────────────────────────────────────────


class Push(gymnasium.Env):
    """The known world as an environment."""

    def __init__(self):
        self.observation_space, self.action_space = (
            spaces.Box(-2.0, 2.0, (2,), np.float64),
            spaces.Discrete(3),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s, self.t = self.np_random.uniform([-0.5, -0.1], [0.5, 0.1]), 0
        return self.s.copy(), {}

    def step(self, action):
        self.s, reward, ended = step(self.s, float(action))
        self.t += 1
        return self.s.copy(), reward, bool(ended), self.t >= 60, {}


def test_an_agent_imagines_and_reaches_the_end():
    agent = SarsaAgent(Push(), seed=0, gamma=GAMMA, budget=60).learn(500)
    assert agent.imagination.ready
    assert agent.incumbent.imagining
    assert agent.failures == 0
    env, lengths = Push(), []
    for seed in range(1_000, 1_005):
        observation, _ = env.reset(seed=seed)
        ended, steps = False, 0
        while not ended and steps < 60:
            observation, _, ended, _, _ = env.step(agent.predict(observation)[0])
            steps += 1
        lengths.append(steps)
    assert np.mean(lengths) < 20  # pushing one way all the time takes 6 to 17


def test_an_agent_goes_on_with_what_it_imagined(tmp_path):
    one = SarsaAgent(Push(), seed=1, gamma=GAMMA, budget=40).learn(400)
    one.save(tmp_path / "agent.safetensors")
    two = SarsaAgent.load(tmp_path / "agent.safetensors", Push())
    for state in np.random.default_rng(0).uniform(-0.5, 0.5, (5, 2)):
        assert one.predict(state)[0] == two.predict(state)[0]
    for agent, name in ((one, "one"), (two, "two")):
        agent.learn(300).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_who_imagines():
    """Worlds of numbers, and worlds of categories; not those of both, and not the paper's SARSA."""

    class Rooms(gymnasium.Env):
        observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)

    class Both(Rooms):
        observation_space = spaces.Tuple([spaces.Discrete(4), spaces.Box(-1.0, 1.0, (1,))])

    class Pushed(Rooms):
        action_space = spaces.Box(-1.0, 1.0, (1,))

    assert isinstance(SarsaAgent(Rooms(), seed=0).imagination, Tables)
    for env in (Both(), Pushed()):
        assert SarsaAgent(env, seed=0).imagination is None
    for env in (Rooms(), Push()):
        assert SarsaAgent(env, seed=0, method="sarsa").imagination is None


def test_dynamics_of_continuous_actions():
    """The action's column is smooth too."""
    rng = np.random.default_rng(0)
    observations = Observations(spaces.Box(-2.0, 2.0, (2,), np.float64))
    actions = Actions(spaces.Box(-1.0, 1.0, (1,), np.float64))
    experience, s = Experience(2, 1, 1_000), np.zeros(2)
    for _ in range(400):
        a = rng.uniform(-1, 1)
        ahead = np.array([s[0] + 0.1 * s[1], 0.9 * s[1] + 0.1 * a**2 - 0.05])
        experience.add(np.array([*s, a]), -a * a, np.array([*ahead, 0.0]), GAMMA)
        s = ahead if rng.random() > 0.05 else rng.uniform(-1, 1, 2)
    dynamics = Dynamics(observations, actions)
    dynamics.learn(experience, rng)
    X = np.column_stack([rng.uniform(-0.5, 0.5, (50, 2)), rng.uniform(-1, 1, 50)])
    ahead, rewards, _ = dynamics.world.outcomes(X)
    assert np.abs(ahead[:, 1] - (0.9 * X[:, 1] + 0.1 * X[:, 2] ** 2 - 0.05)).max() < 1e-2
    assert np.abs(rewards + X[:, 2] ** 2).max() < 2e-2
