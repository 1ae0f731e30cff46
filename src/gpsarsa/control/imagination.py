"""Episodes that are only imagined: what a policy would be worth, and better ones, without a step taken.

With the environment's dynamics learnt (`dynamics`), a posterior over Q acts by looking ahead, one step
or, where actions are few, several:

    π(s) = argmax_a  r̂(s, a) + γ max_a′ Q(ŝ′, a′),

and its return from the start states seen so far can be computed. Better posteriors come from transitions
that are imagined too: from states on the way of a policy and states visited, every action is followed by
n steps of the policy,

    r₀ + γr₁ + … + γⁿ⁻¹rₙ₋₁  =  Q(x₀) − γⁿ Q(xₙ) + noise,

rows like any other, with γⁿ as their discount. Where an observation has many columns, a rule is searched for
instead (`rules`), by its imagined returns. In the same way a policy is dreamt that leaves what is known
as soon as it can: its reward is 1 where that happens, and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpsarsa._validation import Array
from gpsarsa.basis import pivots
from gpsarsa.control.critic import NOVEL
from gpsarsa.control.dynamics import Dynamics
from gpsarsa.control.episodes import Episodes, Judged, Tuning
from gpsarsa.control.experience import Experience
from gpsarsa.control.regression import sampled
from gpsarsa.control.rehearsal import rehearse
from gpsarsa.control.rules import LEARNT, Rule, search
from gpsarsa.control.spaces import Actions, Observations
from gpsarsa.control.values import Values, check_values, values_of
from gpsarsa.control.world import ENDED, LOST, World, chances, strange
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["Imagination"]

STARTS, FEWEST = 40, 10  # start states of imagined episodes; and as many on the way, at least so many
SEARCH_STARTS = 5  # of each generation, by which rules are searched for
LEAVES = 8  # at most, of the tree of actions by which it looks ahead
DREAMS, CURIOUS_DREAMS = 8, 3  # posteriors made from imagined transitions, each time
FAR = 10  # steps of imagined transitions
ROWS, REAL = 3_000, 1_500  # transitions that are imagined; real ones that join them
PLACE_FROM = 1_000  # inputs among which pseudo-inputs are chosen
GRID, SPREAD, FEW = 11, 32, 7  # continuous actions: on a line, in more dimensions, in imagined transitions
PATIENCE, SOON = 3.0, 300  # curiosity's discount reaches so much farther; the steps it has
DREAMT, CURIOUS = 250, 120  # pseudo-inputs of what is dreamt, and of curiosity
SOON_ENOUGH = 0.5  # of its discounted success: no better one is looked for
MANY, SEARCHED = 6, 400  # columns beyond which rules are searched for; the steps these are judged by


EXPLORER = "codes", "values", "Zt", "weights"
RULES = "found", "hope"

Outcomes = tuple[Array, Array, NDArray[np.int8]]  # next observations, rewards, fates of the episodes


class Sight(NamedTuple):
    """How a dream is dreamt: its discount, and how many real transitions join those that are imagined."""

    gamma: float
    real: int = 0


class Imagination(Episodes):
    """Judges posteriors, and makes better ones, in a world that was learnt."""

    def __init__(self, observations: Observations, actions: Actions, gamma: float, budget: int) -> None:
        super().__init__(gamma)
        self.budget, self.actions = budget, actions
        self.split, self.columns = observations.columns, observations.columns + actions.columns
        self.wide = self.split > MANY  # too many columns for values of all that can be
        patient = 1.0 - (1.0 - gamma) / PATIENCE
        self.sight, self.curiosity = Sight(gamma, REAL), Sight(patient)
        self.dynamics = Dynamics(observations, actions)
        self.candidates = actions.some(GRID, SPREAD)
        self.tried = actions.some(FEW, FEW)
        self.depth = max(1, int(np.log(LEAVES) / np.log(max(len(self.candidates), 2))))
        self.outgrown = False
        self.explorer: Values | None = None  # by which to leave what is known
        self.found: Rule | None = None  # the rule that was last searched for
        self.hope: Rule | None = None  # the best rule there would be if no end were bad

    @property
    def ready(self) -> bool:
        return bool(self.dynamics.regressions)

    @property
    def growth(self) -> float:  # type: ignore[override]
        return self.dynamics.growth

    @property
    def _starts(self) -> int:
        return min(STARTS, len(self.starts))

    @property
    def world(self) -> World:
        return self.dynamics.world

    def learn(self, experience: Experience, rng: np.random.Generator, search: bool = True) -> None:
        """What the world does; without `search` with the hyperparameters there are. Where that fails, what
        was known stays."""
        dynamics = self.dynamics.copy()
        dynamics.learn(experience, rng, search)
        self.dynamics = dynamics
        self.outgrown = False
        self.earned(experience, usual=self.wide)  # of many columns some are always new

    def plan(self, values: Values | Rule, row: Array) -> Array:
        """The action row of a rule, or the one that is best some steps ahead; where these are not foreseen,
        the one that was learnt for all of them."""
        if isinstance(values, Rule):
            return values.greedy(row[None])[0]
        world = self.world
        if world.touching[0] and strange(row[None], world.flags[0])[0]:
            return world.rest
        scores, _, _, _ = self._look_ahead(values, row[None])
        return values.candidates[int(scores[0].argmax())]

    def _look_ahead(self, values: Values, states: Array) -> tuple[Array, Array, Array, NDArray[np.int8]]:
        """What every candidate is worth in every state, some steps ahead: r̂ + γ max (r̂′ + … + γ max Q); and
        ŝ′, r̂ and what becomes of the episode after the first of them."""
        A, steps, at = len(values.candidates), [], states
        for _ in range(1 if values.curious else self.depth):
            steps.append(self._outcomes(values, self._pairs(at, values.candidates), self.world))
            at = steps[-1][0][:, : self.split]
        V, scores = values(steps[-1][0]).max(axis=1), np.empty(0)
        for ahead, rewards, fate in reversed(steps):
            lost = np.flatnonzero(fate == LOST)
            if len(lost):  # nothing is known of what follows
                V[lost] = values(ahead[lost]).max(axis=1)
            V[fate == ENDED] = 0.0
            scores = (rewards + values.gamma * V).reshape(-1, A)
            V = scores.max(axis=1)
        return scores, *steps[0]

    def _lost(self, gamma: float) -> float:
        """What a state is worth of which nothing is known: the worst, as far as a discount reaches."""
        return self.worst(1.0 / max(1.0 - gamma, 1e-3))

    def _outcomes(
        self, values: Values | Rule, X: Array, world: World, chance: Array | None = None
    ) -> Outcomes:
        """What follows inputs, and what that is worth to who acts by some values."""
        ahead, rewards, fate = world.outcomes(X, chance)
        if not values.curious:
            return ahead, rewards, fate
        new = (fate != ENDED) & self.dynamics.new(ahead[:, : self.split])
        return ahead, new.astype(float), np.where(new, np.int8(ENDED), fate)

    def _pairs(self, states: Array, actions: Array) -> Array:
        """Every state with every action."""
        X = np.empty((len(states), len(actions), self.columns))
        X[:, :, : self.split], X[:, :, self.split :] = states[:, None], actions
        return X.reshape(-1, self.columns)

    def judge(self, values: Values | Rule, starts: Array, model: SparseGPSarsa | None = None) -> Judged:
        """Who acts by some values, by imagined returns; curiosity by how soon it succeeds."""
        steps = min(self.steps, SOON) if values.curious else self.steps
        returns, visited, strays = self._play(
            lambda states, alive: self._followed(values, states, chances(alive)), starts, steps,
            self.curiosity.gamma if values.curious else 1.0,
        )  # fmt: skip
        lost = bool(strays[: self._starts].any())
        return Judged(values, returns, np.concatenate(visited), lost, self._starts, model)

    def _play(
        self, follow: Callable[[Array, NDArray[np.intp]], Outcomes], states: Array, steps: int, gamma: float
    ) -> tuple[Array, list[Array], NDArray[np.bool_]]:
        """Imagined episodes: their returns, the observations on the way, and which are lost. `follow` says
        what comes after states, which are those of the episodes numbered."""
        alive, weight, visited = np.arange(len(states)), 1.0, list[Array]()
        returns, strays = np.zeros(len(states)), np.zeros(len(states), dtype=np.bool_)
        for step in range(steps):
            visited.append(states)
            ahead, rewards, fate = follow(states, alive)
            returns[alive] += weight * rewards
            weight *= gamma
            stray = alive[fate == LOST]
            strays[stray] = True
            returns[stray] += self._astray(steps - step - 1)
            states, alive = ahead[fate == 0, : self.split], alive[fate == 0]
            if len(alive) == 0:
                break
        return returns, visited, strays

    def _astray(self, steps: int) -> float:
        """What being lost is worth while there are so many steps left."""
        return max(self.worst(steps), self._lost(self.gamma))

    def _followed(self, values: Values | Rule, states: Array, chance: Array) -> Outcomes:
        """What comes after states where some values act."""
        if isinstance(values, Rule):
            X = np.hstack([states, values.greedy(states)])
            world = self.world._replace(worth=np.array([self.dynamics.contact.worth(values.rest)]))
            return self._outcomes(values, X, world, chance)
        scores, ahead, rewards, fate = self._look_ahead(values, states)
        best = scores.argmax(axis=1)
        if self.dynamics.chancy:  # what is foreseen is one half's, what follows another's
            X = np.hstack([states, values.candidates[best]])
            return self._outcomes(values, X, self.world, chance)
        chosen = np.arange(len(states)) * len(values.candidates) + best
        return ahead[chosen], rewards[chosen], fate[chosen]

    def values_of(self, model: SparseGPSarsa, curious: bool = False) -> Values | None:
        """None where the kernel is not a product of one over observations and one over actions."""
        gamma = self.curiosity.gamma if curious else self.gamma
        return values_of(model, self.candidates, self.split, gamma, curious)

    def _rows_ahead(self, values: Values | Rule, X: Array, gamma: float) -> tuple[Array, Array, Array]:
        """From each input some steps, the first with its own action, then greedy in Q: discounted rewards,
        the input reached, and γⁿ, or 0 where the episode ended."""
        rewards, weights, at, alive = np.zeros(len(X)), np.ones(len(X)), X.copy(), np.arange(len(X))
        for _ in range(FAR):
            ahead, reward, fate = self._outcomes(values, at[alive], self.world, chances(alive))
            lost = np.where(fate == LOST, gamma * self._lost(gamma), 0.0)
            rewards[alive] += weights[alive] * (reward + lost)
            weights[alive] *= np.where(fate == 0, gamma, 0.0)
            alive, ahead = alive[fate == 0], ahead[fate == 0]
            if len(alive) == 0:
                break
            ahead[:, self.split :] = values.greedy(ahead)
            at[alive] = ahead
        return rewards, np.where(weights[:, None] > 0.0, at, X), weights

    def some_starts(self, experience: Experience, rng: np.random.Generator) -> Array:
        """Where imagined episodes begin: as real ones did, and on their way."""
        starts = np.array(self.starts)
        way = experience.inputs[experience.sample(max(self._starts, FEWEST), rng)][:, : self.split]
        return np.concatenate([starts[rng.permutation(len(starts))[:STARTS]], way])

    def recently(self, experience: Experience) -> Array:
        """Where the agent has just been."""
        return experience.inputs[experience.newest[::5], : self.split]

    def better(
        self,
        known: list[Judged],
        starts: Array,
        experience: Experience,
        tune: Tuning,
        rng: Any,
        doubted: bool = False,
    ) -> Judged:
        """The best of those known and of some that are dreamt; `tune` makes a model, without pseudo-inputs,
        for imagined transitions and a discount. Unless it is `doubted`, none is dreamt where no policy can
        be better than the best."""
        best, last, tuned = max(known, key=lambda judged: judged.mean), known[0], None
        curious = best.values.curious
        if self.wide and not curious:
            return self._by_rule(known, starts, experience, tune, rng)
        how, dreams, most = (
            (self.curiosity, CURIOUS_DREAMS, CURIOUS) if curious else (self.sight, DREAMS, DREAMT)
        )
        for dream in range(dreams):
            if not doubted and self._enough(best, experience):
                break
            rows = self._dreamt(best if dream % 2 == 0 else last, experience, how, rng)
            tuned = tune(rows, how.gamma) if tuned is None else tuned
            model = self._fitted(tuned.copy(), rows, most, rng)
            values = self.values_of(model, curious)
            assert values is not None
            last = self.judge(values, starts, model)
            best = last if last.mean > best.mean else best
        return best

    def _fitted(
        self, model: SparseGPSarsa, rows: Transitions, most: int, rng: np.random.Generator
    ) -> SparseGPSarsa:
        """A model without pseudo-inputs, given some and fitted."""
        places = rows.inputs[sampled(np.arange(len(rows)), PLACE_FROM, rng)]
        model.add_pseudo_inputs(places[pivots(model.kernel, places, min(self.budget, most), NOVEL)])
        return model.fit(rows)

    def _by_rule(
        self, known: list[Judged], starts: Array, experience: Experience, tune: Tuning, rng: Any
    ) -> Judged:
        """The best of those known and a rule that is searched for, with a posterior of its values."""
        ruled = [(judged.mean, judged.values) for judged in known if isinstance(judged.values, Rule)]
        begun = [self.rule(experience.inputs)]  # here too: the best rule there is may be only the best around
        if ruled:
            begun.append(max(ruled, key=lambda pair: pair[0])[1])
        searched = [self.judge(self._search(start, rng), starts) for start in begun]
        found, how = max(searched, key=lambda judged: judged.mean), self.sight
        assert isinstance(found.values, Rule)
        self.found = found.values
        usual = self._usual(experience)
        if self.dynamics.contact.touching and self.dynamics.contact.fair > usual:
            self.hope = None  # there are ends that are not bad
        else:
            self.hope = self._search(begun[-1] if self.hope is None else self.hope, rng, usual)
        rows = self._dreamt(found, experience, how, rng)
        found.model = self._fitted(tune(rows, how.gamma), rows, DREAMT, rng)
        return max([*known, found], key=lambda judged: judged.mean)

    def rule(self, inputs: Array) -> Rule:
        """A rule by which all is the same, for observations like those of the inputs."""
        actions = self.actions
        candidates = np.array([actions.low, actions.high]) if actions.continuous else self.candidates
        return Rule.blank(inputs[:, : self.split], candidates, actions.continuous)

    @staticmethod
    def _usual(experience: Experience) -> float:
        """The reward of a step that is neither good nor bad."""
        return float(np.median(experience.rewards))

    def _search(self, start: Rule, rng: np.random.Generator, hope: float | None = None) -> Rule:
        """A better rule, by returns of imagined episodes from where real ones began; with `hope` no end is
        worse than this, and what is not known neither."""
        begun, steps = np.array(self.starts), min(self.steps, SEARCHED)
        lost = np.array([self._astray(steps - step - 1) for step in range(steps)])

        def returns(weights: Array) -> Array:
            chosen = begun[rng.permutation(len(begun))[:SEARCH_STARTS]]
            return rehearse(self.world, start, weights, chosen, lost, self.steps - steps, hope)

        return self.rested(search(start, returns, rng))

    def rested(self, rule: Rule) -> Rule:
        """A rule with what is known by now of where it does not act."""
        return rule._replace(usual=self.dynamics.usual, rest=self.dynamics.contact.rest)

    def seen(self, x: Array, row: Array) -> None:
        """What followed an input; `outgrown` says that more is known than when the world was learnt."""
        if self.explorer is not None and not self.outgrown:
            self.outgrown = bool(self.dynamics.new(row[None])[0])

    def explore(self, prior: SparseGPSarsa, experience: Experience, tune: Tuning, rng: Any) -> None:
        """Find how to leave what is known soonest."""
        values = self.values_of(prior, curious=True) if self.explorer is None else self.explorer
        self.explorer = None
        if values is not None:
            starts = np.concatenate([self.some_starts(experience, rng), self.recently(experience)])
            best = self.better([self.judge(values, starts)], starts, experience, tune, rng)
            assert isinstance(best.values, Values)
            self.explorer = best.values if best.mean > 0.0 else None

    def _enough(self, judged: Judged, experience: Experience) -> bool:
        """Whether no policy returns more from where episodes begin: the largest reward at every step."""
        if judged.values.curious:
            return judged.mean > SOON_ENOUGH
        most = float(experience.rewards.max()) * self.steps
        return most > 0.0 and float(judged.returns[: judged.starts].min()) >= most - 1e-9 * abs(most)

    def _dreamt(
        self, source: Judged, experience: Experience, how: Sight, rng: np.random.Generator
    ) -> Transitions:
        """Transitions that are imagined, with every action and then a policy's, from states on its way and
        states that were visited."""
        half = ROWS // len(self.tried) // 2
        way = source.visited[rng.permutation(len(source.visited))[:half]]
        states = np.concatenate([way, experience.inputs[experience.sample(half, rng)][:, : self.split]])
        X = self._pairs(states, self.tried)
        rewards, following, discounts = self._rows_ahead(source.values, X, how.gamma)
        real = experience.transitions(experience.sample(how.real, rng))
        ahead = real._arrays[2].copy()
        going = np.flatnonzero(real.discounts > 0.0)
        ahead[going, self.split :] = source.values.greedy(ahead[going])
        return Transitions._trusted(
            np.concatenate([X, real.inputs]), np.concatenate([rewards, real.rewards]),
            np.concatenate([following, ahead]),
            np.concatenate([discounts, np.where(real.discounts > 0.0, how.gamma, 0.0)]),
            np.ones(len(X) + len(real), dtype=np.bool_),
        )  # fmt: skip

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, content = super().state()
        own, dynamics = self.dynamics.state()
        arrays |= own
        content |= {"dynamics": dynamics, "growth": self.dynamics.growth, "outgrown": self.outgrown}
        for name in RULES:
            rule = getattr(self, name)
            if rule is not None:
                arrays |= {f"{name}.{key}": array for key, array in rule.state().items()}
        if self.explorer is not None:
            content["explorer"] = self.explorer.prior_mean
            arrays |= {f"explorer.{name}": getattr(self.explorer, name) for name in EXPLORER}
        return arrays, content

    def restore(self, arrays: Mapping[str, Array], content: Mapping[str, Any]) -> None:
        super().restore(arrays, content)
        self.dynamics.restore(arrays, content["dynamics"])
        self.dynamics.growth, self.outgrown = float(content["growth"]), bool(content["outgrown"])
        self.explorer = self.found = self.hope = None
        for name in RULES:
            if f"{name}.weights" in arrays:
                kept = {key: arrays[f"{name}.{key}"] for key in LEARNT}
                rule = self.rule(np.zeros((1, self.columns))).restored(kept)
                setattr(self, name, rule)
        if "explorer" in content:
            own: dict[str, Any] = {name: np.array(arrays[f"explorer.{name}"]) for name in EXPLORER}
            check_values(own, len(self.candidates), self.columns)
            self.explorer = Values(
                **own,
                candidates=self.candidates,
                prior_mean=float(content["explorer"]),
                gamma=self.curiosity.gamma,
                curious=True,
            )
