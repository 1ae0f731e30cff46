"""When an agent uses its imagination: to act, to explore, and to find better policies than it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gpsarsa._validation import Array
from gpsarsa.control.critic import Critic
from gpsarsa.control.episodes import Episodes
from gpsarsa.control.experience import Experience
from gpsarsa.control.imagination import Imagination
from gpsarsa.control.incumbent import Contender, Incumbent
from gpsarsa.control.rules import Rule
from gpsarsa.control.spaces import Actions, Observations
from gpsarsa.control.tables import Tables
from gpsarsa.control.values import Values
from gpsarsa.control.world import strange
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["Foresight", "imagination_of"]

FRUITFUL = 0.02  # growth of a column's range by which exploring has found something
HOPEFUL, SHARE = 400, 0.1  # steps, or a share of all, that it goes on without finding any more
LIES = 5.0  # over 1 − γ: steps with a flag not as usual after which another action is tried there
ROUNDING = 1e-9  # by this share a sum of rewards may be off
CURIOSITY = 0.1  # the unit of its rewards, which are 0 and 1
FOLLOW, FOLLOW_SHARE = 50, 0.03  # steps, or a share, before what was found is learnt from; thrice if nothing


def imagination_of(
    observations: Observations, actions: Actions, gamma: float, budget: int
) -> Episodes | None:
    """Of a world whose observations are numbers, or categories; not both."""
    if not any(observations.categories):
        return Imagination(observations, actions, gamma, budget)
    if all(observations.categories) and actions.candidates is not None:
        return Tables(observations, actions, gamma, budget)
    return None


class Foresight:
    """An agent's imagination, where it has one, with what the agent knows and whom it believes."""

    def __init__(
        self,
        imagination: Episodes | None,
        critic: Critic,
        experience: Experience,
        incumbent: Incumbent,
        curious: bool,
    ) -> None:
        self.imagination, self.critic, self.experience = imagination, critic, experience
        self.incumbent, self.curious = incumbent, curious
        self.explored = 0  # episodes
        self.found = 0  # the step at which exploring last found something
        self.unseen = False  # whether the rule that was last searched for has not acted yet

    # -- acting -------------------------------------------------------------------------------

    def values(self, contender: Contender) -> Values | Rule | None:
        """By which a contender looks ahead, where the world is known; its rule, resting as is best by now."""
        imagination = self.imagination
        if imagination is None or not imagination.ready:
            return None
        if isinstance(contender.values, Rule):
            assert isinstance(imagination, Imagination)
            return imagination.rested(contender.values)
        if contender.values is None:
            contender.values = imagination.values_of(contender.model)
        return contender.values

    def variant(self, rng: np.random.Generator) -> Rule | None:
        """A rule to explore by, where rules are searched for: unless one hopes, the one that was found, once;
        then that one, and draws around it, each with a rest as often as that may be the best."""
        if not isinstance(self.imagination, Imagination) or not self.curious:
            return None
        imagination = self.imagination
        found, hope, contact = imagination.found, imagination.hope, imagination.dynamics.contact
        rest = contact.drawn_rest(rng) if contact.touching else contact.rest
        if self.unseen and hope is None:
            self.unseen = False
            return found
        if hope is not None and self.explored % 2 == 0:
            return hope.drawn(rng)._replace(rest=rest)
        if found is None:
            return None
        other = contact.touching and not np.array_equal(found.rest, rest)
        as_found = other and (hope is not None or self.explored % 2 == 0)
        return (found if as_found else found.drawn(rng))._replace(rest=rest)

    def down(self, row: Array) -> bool:
        """Whether an observation has a flag that is not as usual, where imagined episodes end there."""
        imagination = self.imagination
        if not isinstance(imagination, Imagination):
            return False
        return bool(strange(row[None], imagination.dynamics.usual)[0])

    def restless(self, action: Array, steps: int) -> Array:
        """What to do instead of an action where a flag has not been as usual for so many steps of an episode:
        who lies for long without an end tries one after the other, first what may be the best."""
        turn = int(steps * (1.0 - self.critic.gamma) / LIES)
        if turn == 0 or not isinstance(self.imagination, Imagination) or not self.curious:
            return action
        rests = self.imagination.dynamics.contact.hopeful_rests
        others = rests[(rests != action).any(axis=1)]
        return np.concatenate([action[None], others])[turn % (len(others) + 1)]

    def way_out(self, row: Array) -> Callable[[], Array] | None:
        """How to get from an observation to what is not known."""
        imagination = self.imagination
        if imagination is None or imagination.explorer is None:
            return None
        explorer: Any = imagination.explorer
        return lambda: imagination.plan(explorer, row)

    def curious_now(self, exploring: bool, seen: int) -> bool:
        """Whether the episode that begins looks for what is not known: while that is fruitful each one that
        explores, later every second. Counts it; `variant`, which goes by that, is asked before."""
        self.explored += exploring
        return self.fruitful(seen) or self.explored % 2 == 1

    # -- when ---------------------------------------------------------------------------------

    def fruitful(self, seen: int) -> bool:
        """Whether looking for what is not known found much, after so many steps."""
        if self.imagination is None or self.imagination.explorer is None:
            return False
        return seen - self.found <= max(HOPEFUL, SHARE * seen)

    def due(self, since: int, seen: int) -> bool:
        """Whether to learn from what exploring found, or that it found nothing."""
        imagination = self.imagination
        if imagination is None:
            return False
        if imagination.at_once and imagination.outgrown:
            return not self.unbeatable()
        wait = max(FOLLOW, int(FOLLOW_SHARE * seen))
        return self.fruitful(seen) and since >= (wait if imagination.outgrown else 3 * wait)

    def unbeatable(self) -> bool:
        """Whether the incumbent always earns the largest reward for the longest time there is."""
        return self.incumbent.unbeatable(self._most())

    def _most(self) -> float:
        """No return is larger, but for rounding: the largest reward, where that is something, for the longest
        time there is."""
        imagination, rewards = self.imagination, self.experience.rewards
        most = float(rewards.max()) if len(rewards) else 0.0
        return np.inf if imagination is None or most <= 0.0 else (1.0 - ROUNDING) * most * imagination.steps

    # -- slow steps ---------------------------------------------------------------------------

    def imagine(
        self,
        newest: SparseGPSarsa,
        seen: int,
        rng: np.random.Generator,
        own_kernel: bool,
        search: bool = True,
    ) -> None:
        """Learn what the world does, judge the incumbent and the newest posterior in it, dream of better;
        without `search` with the hyperparameters there are."""
        imagination, experience, holder = self.imagination, self.experience, self.incumbent.holder
        if imagination is None or not imagination.starts:
            return
        imagination.learn(experience, rng, search)
        starts = imagination.some_starts(experience, rng)
        values: Any = imagination.values_of(newest)
        if values is None:
            return
        known, old = [imagination.judge(values, starts, newest)], None
        if holder is not None and (values := self.values(holder)) is not None:
            old = imagination.judge(values, starts, holder.model)
            known.append(old)
            holder.lost = old.lost

        def tuned(rows: Transitions, gamma: float) -> SparseGPSarsa:
            if own_kernel:
                return self.critic.empty(newest.kernel, newest.noise_variance, newest.prior_mean)
            return replace(self.critic, gamma=gamma).tuned(newest, rows, experience, rng)

        self._explore(seen, rng)
        doubted = holder is not None and min(holder.returns, default=np.inf) < self._most()
        best = imagination.better(known, starts, experience, tuned, rng, doubted)
        if best is not old:
            confirmed, shown = old, None
            if old is not None:  # from other starts than those by which it was chosen
                starts = imagination.some_starts(experience, rng)
                best = imagination.judge(best.values, starts, best.model)
                confirmed = imagination.judge(old.values, starts)
                if isinstance(best.values, Rule) and holder is not None and holder.returns:
                    shown = imagination.judge(old.values, np.array(holder.starts)).returns
            self.incumbent.imagined(best, confirmed, shown)
        if isinstance(imagination, Imagination):
            contenders = self.incumbent.holder, self.incumbent.challenger
            found = imagination.found
            self.unseen = all(one is None or one.values is not found for one in contenders)

    def follow(self, seen: int, rng: np.random.Generator) -> None:
        """More of the world is known than when it was learnt: go on from there."""
        assert self.imagination is not None
        self.imagination.learn(self.experience, rng, search=False)
        self._explore(seen, rng)

    def _explore(self, seen: int, rng: np.random.Generator) -> None:
        """Find how to get to what is not known yet."""
        imagination, experience, critic = self.imagination, self.experience, self.critic
        if imagination is None or not self.curious or self.unbeatable() or self.ruled():
            return

        def tuned(rows: Transitions, gamma: float) -> SparseGPSarsa:
            return critic.tuned(prior, rows, experience, rng, CURIOSITY)

        if imagination.growth > FRUITFUL:
            self.found = seen
        prior = critic.empty(critic.kernel(critic.scaling(experience), 1.0), CURIOSITY**4)
        imagination.explore(prior, experience, tuned, rng)

    def ruled(self) -> bool:
        """Whether acting and exploring are left to rules: there are rewards by which to tell them."""
        rules = isinstance(self.imagination, Imagination) and self.imagination.wide
        return rules and float(np.ptp(self.experience.rewards)) > 0.0

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        content: dict[str, Any] = {"exploring": [self.explored, self.found], "unseen": self.unseen}
        if self.imagination is None:
            return {}, content
        arrays, content["imagination"] = self.imagination.state()
        return arrays, content

    def rule_of(self, arrays: Mapping[str, Array]) -> Rule:
        """A contender's rule out of a file."""
        if not isinstance(self.imagination, Imagination):
            raise ValueError("a rule is kept, and these observations or actions have none")
        return self.imagination.rule(np.zeros((1, self.experience.columns))).restored(arrays)

    def restore(self, arrays: Mapping[str, Array], content: Mapping[str, Any]) -> None:
        self.explored, self.found = (int(n) for n in content["exploring"])
        self.unseen = bool(content["unseen"])
        if self.imagination is not None:
            self.imagination.restore(arrays, content["imagination"])
