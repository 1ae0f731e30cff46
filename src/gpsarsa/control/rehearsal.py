"""Many rules at once in imagined episodes, in one compiled loop: on this a search for a rule spends its time.

Returns are not discounted. What a step earns by V, the difference V(s) − V(s′), is asked of V only where an
episode begins and ends, and halfway where it goes on. An episode that goes on to the last step earns as
much in each of those beyond as it did on average in the second half.
"""

from __future__ import annotations

import numpy as np

from gpsarsa._linalg import compiled
from gpsarsa._validation import Array
from gpsarsa.control.rules import FAR, Rule
from gpsarsa.control.world import ENDED, LOST, World, chances, limits, outcomes

__all__ = ["rehearse"]


def rehearse(
    world: World, rule: Rule, weights: Array, starts: Array, lost: Array, beyond: int, hope: float | None
) -> Array:
    """The mean imagined return of a rule with each of some weights, stacked, from all starts.

    There are as many steps as `lost` has numbers: what being lost is worth after each of them. With `hope` no
    end is worse than this, and what is not known neither.
    """
    rules, steps = len(weights), len(lost)
    states, half = np.tile(starts, (rules, 1)), (steps + 1) // 2
    owner = np.repeat(np.arange(rules), len(starts))
    chance = np.tile(limits(chances(np.arange(len(starts)))), rules)
    returns, late, middle, final = np.zeros(len(states)), np.zeros(len(states)), states.copy(), states.copy()
    going = _rehearsed(
        *world.level(), rule.centre, rule.width, rule.candidates, rule.continuous, weights, states, owner,
        chance, lost, half, np.nan if hope is None else hope, returns, late, middle, final,
    )  # fmt: skip
    rest = world.potential(final)
    returns += np.tile(world.potential(starts), rules) - rest
    late[going] += world.potential(middle[going]) - rest[going]
    returns[going] += beyond / max(steps - half, 1) * late[going]
    return returns.reshape(rules, -1).mean(axis=1)


@compiled
def _act(centre, width, candidates, continuous, weights, x, split, scores):
    """The rule's action into the columns of x that follow the observation's."""
    for o in range(weights.shape[0]):
        scores[o] = weights[o, split]
        for c in range(split):
            scores[o] += weights[o, c] * min(max((x[c] - centre[c]) / width[c], -FAR), FAR)
    if continuous:
        for o in range(weights.shape[0]):
            low, high = candidates[0, o], candidates[1, o]
            x[split + o] = 0.5 * (low + high) + 0.5 * (high - low) * min(max(scores[o], -1.0), 1.0)
    else:
        best = 0
        for o in range(1, weights.shape[0]):
            best = o if scores[o] > scores[best] else best
        for c in range(candidates.shape[1]):
            x[split + c] = candidates[best, c]


@compiled
def _rehearsed(
    codes, values, Zt, sizes, regressed, offset, scale, terms, grid, walls, known, brinks, flags, partners,
    rest, worth, touching, centre, width, candidates, continuous, weights, states, owner, chance, lost, half,
    hope, returns, late, middle, final,
):  # fmt: skip
    """Adds what episodes earn to `returns`, and to `late` from step `half` on; where they are by then is
    `middle`, where they end `final`. Returns those that go on after the last step."""
    split, alive = states.shape[1], np.arange(len(states))
    X, ahead = np.empty((len(states), Zt.shape[1])), np.zeros((len(states), Zt.shape[1]))
    rewards, fate, scores = (
        np.empty(len(states)),
        np.empty(len(states), dtype=np.int8),
        np.empty(len(weights[0])),
    )
    limit, n = chance.copy(), len(states)
    for step in range(len(lost)):
        for i in range(n):
            e = alive[i]
            limit[i] = chance[e]
            for c in range(split):
                X[i, c] = final[e, c]
                if step == half:
                    middle[e, c] = final[e, c]
            _act(centre, width, candidates, continuous, weights[owner[e]], X[i], split, scores)
        outcomes(
            codes, values, Zt, sizes, regressed, offset, scale, terms, grid, walls, known, brinks, flags,
            partners, rest, worth, touching, X[:n], limit[:n], ahead[:n], rewards[:n], fate[:n],
        )  # fmt: skip
        going = 0
        for i in range(n):
            e, reward, over = alive[i], rewards[i], fate[i] == ENDED
            if fate[i] != 0 and not np.isnan(hope):
                reward, over = max(reward, hope), True
            returns[e] += reward
            late[e] += reward if step >= half else 0.0
            if over:
                continue
            for c in range(split):
                final[e, c] = ahead[i, c]
            if fate[i] == LOST:
                returns[e] += lost[step]
            else:
                alive[going] = e
                going += 1
        n = going
        if n == 0:
            break
    return alive[:n].copy()
