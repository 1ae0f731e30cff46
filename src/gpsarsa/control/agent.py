"""A SARSA agent for Gymnasium.

    agent = SarsaAgent(gymnasium.make("MountainCar-v0"), seed=0).learn(5_000, progress_bar=True)
    action, _ = agent.predict(observation)

On every transition the posterior over Q is updated recursively; a novel input becomes a pseudo-input.
Slower, as data grows (`learner`): next actions of stored transitions are chosen anew by the improved policy
and the posterior is solved again (`improvement`); slower still, hyperparameters are learnt by the evidence
and the pseudo-inputs placed anew (`critic`), and what the environment does is learnt: with that, policies are
judged and better ones found without a step taken (`imagination`). `predict` acts with the best policy there
is evidence for (`incumbent`). With method="sarsa" nothing of that is added: the paper's on-policy SARSA.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa import checkpoint
from gpsarsa._estimator import saved_kernel
from gpsarsa._progress import Progress
from gpsarsa._validation import Array
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.control import environments, policies
from gpsarsa.control.callbacks import as_callback
from gpsarsa.control.critic import Critic
from gpsarsa.control.environments import Course, Happening
from gpsarsa.control.episodes import Episodes
from gpsarsa.control.experience import Experience
from gpsarsa.control.foresight import Foresight, imagination_of
from gpsarsa.control.improvement import Improvement
from gpsarsa.control.incumbent import Incumbent
from gpsarsa.control.learner import Learner, controller
from gpsarsa.control.rules import Rule
from gpsarsa.control.spaces import Actions, Observations
from gpsarsa.control.values import Values
from gpsarsa.kernels import KernelLike
from gpsarsa.placement import Placement
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.timescales import Timescales

__all__ = ["SarsaAgent"]


@dataclass
class Lane:
    """An episode under way in one copy of the environment."""

    observation: Any
    row: Array
    role: str
    model: SparseGPSarsa | None  # frozen: who acts (trial, incumbent), or what explores at the start
    values: Values | Rule | None = None  # by which it looks ahead, or the rule by which it acts
    curious: bool = True  # explores what is not known, where it explores
    start: Array = field(init=False)  # the first observation
    action: Array | None = None
    first: bool = True
    total: float = 0.0
    discounted: float = 0.0
    weight: float = 1.0  # γ^length
    length: int = 0
    down: int = 0  # steps in which a flag was not as usual
    predicted: tuple[float, float] | None = None
    function: Callable[[Array], Array] | None = None  # drawn from the posterior for this episode

    def __post_init__(self) -> None:
        self.start = self.row.copy()


class SarsaAgent:
    """Learns to act in a Gymnasium environment, from few steps, with uncertainty.

    Parameters
    ----------
    env : gymnasium.Env or gymnasium.vector.VectorEnv
        Observations: Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple of these. Actions: Discrete,
        MultiDiscrete, MultiBinary, bounded Box.
    gamma : float
        The discount. A truncated episode is not a terminated one: its last state keeps its value.
    policy : callable, optional
        How to act while learning: a policy of `gpsarsa.control.policies`, or any callable from a
        `Decision` to an action.
    model : SparseGPSarsa or Timescales, optional
        Over rows of an observation followed by an action, in the environment's units. By default kernel
        and noise variance are chosen from the data, and the prior mean is 0. With "improving" a model that is
        given fixes these three, and pseudo-inputs are placed by the agent; with "sarsa" it is the model that
        learns.
    seed : int, optional
        Makes a run repeatable; each episode's reset seed follows from it and the episode's number (copies of
        a vector environment are seeded once).
    method : {"improving", "sarsa"}
        "sarsa" is the paper's on-policy SARSA and nothing else: a SparseGPSarsa is updated on every
        transition, a Timescales does what it is set to do.
    budget : int
        How many pseudo-inputs are placed; between two placements a quarter more may come.
    memory : int
        How many transitions, the newest ones, are kept for the slow steps.
    warmup : int
        Steps of random actions before there is a model, where none is given.
    """

    env: Any = None

    def __init__(
        self,
        env: Any,
        *,
        gamma: float = 0.97,
        policy: Any = None,
        model: SparseGPSarsa | Timescales | None = None,
        seed: int | None = None,
        method: str = "improving",
        budget: int = 300,
        memory: int = 50_000,
        warmup: int = 200,
    ) -> None:
        observation_space, action_space = environments.check(env)
        if method == "improving" and check.discount(gamma, "gamma") == 0.0:
            raise ValueError(
                "gamma = 0.0 with method='improving', which looks ahead; expected more than 0, or "
                "method='sarsa'"
            )
        self._prepare(
            Observations(observation_space), Actions(action_space),
            {
                "gamma": check.discount(gamma, "gamma"),
                "method": check.one_of(method, "method", ("improving", "sarsa")),
                "budget": check.at_least_one(budget, "budget"),
                "memory": check.at_least_one(memory, "memory"),
                "warmup": check.at_least_one(warmup, "warmup"),
                "seed": int(np.random.SeedSequence().generate_state(1)[0]) if seed is None
                else check.count(seed, "seed"),
            },
            policies.Curious() if policy is None else policy,
        )  # fmt: skip
        self.env = env
        if model is not None:
            self.learner.adopt(model)

    def _prepare(
        self, observations: Observations, actions: Actions, settings: dict[str, Any], policy: Any
    ) -> None:
        self.observations, self.actions, self.settings, self.policy = observations, actions, settings, policy
        self.gamma, self.method, self.seed = settings["gamma"], settings["method"], settings["seed"]
        self._choose = policies.as_choice(policy, actions)
        self.rng = np.random.default_rng(self.seed)
        self._acting = np.random.default_rng([self.seed, 1])  # for predict, which is no part of learning
        self.critic = Critic(observations, actions, self.gamma, settings["budget"])
        self.experience = Experience(observations.columns, actions.columns, settings["memory"])
        self.incumbent = Incumbent()
        self.foresight = Foresight(
            None if self.method == "sarsa"
            else imagination_of(observations, actions, self.gamma, settings["budget"]),
            self.critic, self.experience, self.incumbent, isinstance(policy, policies.Curious),
        )  # fmt: skip
        self.learner = Learner(
            self.foresight, Improvement(self.experience, actions), self.rng,
            on_policy=self.method == "sarsa", budget=settings["budget"], warmup=settings["warmup"],
        )  # fmt: skip
        self.num_timesteps = 0
        self.episodes = 0
        self._began, self._spent = time.monotonic(), 0.0

    # -- what it knows ------------------------------------------------------------------------

    @property
    def model(self) -> SparseGPSarsa | None:
        """The newest posterior over Q; None before there is one."""
        return self.learner.model

    @property
    def acting_model(self) -> SparseGPSarsa | None:
        """The posterior by which `predict` acts: the incumbent's, else the newest."""
        holder = self.incumbent.holder
        return self.model if holder is None else holder.model

    @property
    def imagination(self) -> Episodes | None:
        """What it knows of the world."""
        return self.foresight.imagination

    @property
    def log_evidence(self) -> float:
        """Per transition, when hyperparameters were learnt last."""
        return self.learner.log_evidence

    @property
    def failures(self) -> int:
        """Slow steps that numerical trouble prevented."""
        return self.learner.failures

    @property
    def visited(self) -> Array:
        """The observations kept, one a row."""
        return self.experience.inputs[:, : self.observations.columns].copy()

    def values(self, rows: Any) -> tuple[Array, Array]:
        """Mean and standard deviation of Q at observation rows with the greedy action."""
        rows = check.rows(rows, "rows", self.observations.columns)
        model = self._require_model()
        best = np.array([policies.maximiser(model, self.actions, row, None) for row in rows])
        mean, std = model.predict(np.hstack([rows, best.reshape(len(rows), -1)]), return_std=True)
        return mean, std

    def _require_model(self) -> SparseGPSarsa:
        model = self.acting_model
        if model is None:
            raise ValueError(
                f"the agent has learnt nothing yet: {self.num_timesteps} steps so far, the first "
                f"{self.settings['warmup']} only gather data; call learn"
            )
        return model

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, None]:
        """The action for an observation, or actions for a batch of them, as in Stable-Baselines3.

        The incumbent's best action, found by looking ahead where the world is known, else by its posterior
        mean, or by its rule where observations have many columns; with `deterministic` False, as while
        learning. Nothing that is asked here changes what is learnt.
        """
        deterministic = check.flag(deterministic, "deterministic")
        many = self.observations.batch(observation)
        if many is None:
            return self.actions.action(
                self._answer(observation, self.observations.row(observation), deterministic)
            ), None
        rows = self.observations.rows(observation)
        chosen = [
            self._answer(None if deterministic else environments.lane_of(observation, i), row, deterministic)
            for i, row in enumerate(rows)
        ]
        return self.actions.actions(np.array(chosen).reshape(many, self.actions.columns)), None

    def _answer(self, observation: Any, row: Array, deterministic: bool) -> Array:
        model = self.acting_model
        if model is None:
            return self.actions.random(1, self._acting)[0]
        if deterministic:
            holder = self.incumbent.holder
            return self._greedy(model, None if holder is None else self.foresight.values(holder), row)
        draw = lambda: model.sample(1, self._acting)[0]  # noqa: E731
        return self._choose(
            policies.Decision(observation, row, self.num_timesteps, self._acting, model, self.actions, draw)
        )

    def _greedy(self, model: SparseGPSarsa, values: Values | Rule | None, row: Array) -> Array:
        """The best action: some steps ahead where the world is known, else in the posterior mean."""
        if values is None or self.imagination is None:
            return policies.maximiser(model, self.actions, row, None)
        return self.imagination.plan(values, row)

    # -- learning -----------------------------------------------------------------------------

    def learn(self, total_timesteps: int, *, callback: Any = None, progress_bar: bool = False) -> Self:
        """Take `total_timesteps` more steps in the environment and learn from each.

        An episode that is under way at the end is left there; the next call begins another one.
        """
        last = self.num_timesteps + check.count(total_timesteps, "total_timesteps")
        called, progress_bar = as_callback(callback), check.flag(progress_bar, "progress_bar")
        if self.env is None:
            raise ValueError("the agent has no environment; load it with env=… or call set_env(env)")
        course = environments.course(self.env, self.observations, self.actions)
        course.steps = self.num_timesteps
        controller()  # now: it looks for libraries in a callback of C, which swallows an interruption
        self._began = time.monotonic()
        if called is not None:
            called.agent = self
            called.on_training_start()
        try:
            with Progress("train", last, shown=progress_bar) as progress:
                lanes: list[Lane | None] = [None] * course.lanes
                going = True
                while going and self.num_timesteps < last:
                    going = self._step(course, lanes, called, progress)
                progress(self.num_timesteps, self._message())
        finally:  # also where it is interrupted
            self._spent += time.monotonic() - self._began
            self._began = time.monotonic()
            if called is not None:
                called.on_training_end()
        return self

    def set_env(self, env: Any) -> None:
        """Go on in another copy of the environment."""
        observation_space, action_space = environments.check(env)
        for name, mine, theirs in (
            ("observation", self.observations.describe(), Observations(observation_space).describe()),
            ("action", self.actions.describe(), Actions(action_space).describe()),
        ):
            if mine != theirs:
                raise ValueError(
                    f"the environment's {name} space is another than the agent's: {theirs}, not {mine}"
                )
        self.env = env

    def _step(
        self, course: Course, lanes: list[Lane | None], called: Any, progress: Callable[[int, str], None]
    ) -> bool:
        """One step in every lane; False where a callback wants to stop."""
        for i, lane in enumerate(lanes):
            if lane is None:
                lanes[i] = self._begin(course, i)
        happenings = course.step([None if lane is None else lane.action for lane in lanes])
        going = True
        for i, (lane, happening) in enumerate(zip(lanes, happenings, strict=True)):
            if lane is None or happening is None:
                continue
            self._transition(lane, happening, alone=course.lanes == 1)
            if called is not None:
                going = called.on_step() and going
            if happening.terminated or happening.truncated:
                lanes[i] = None
                episode = self._end(lane, happening)
                progress(self.num_timesteps, self._message())
                if called is not None:
                    going = called.on_episode_end(episode) and going
            else:
                self.learner.slow_steps(self.num_timesteps, at_end=False)
                if self.num_timesteps % 100 == 0:
                    progress(self.num_timesteps, self._message())
        return going

    def _message(self) -> str:
        recent = self.incumbent.recent
        mean = f"return {sum(recent) / len(recent):.1f} (last {len(recent)}), " if recent else ""
        size = 0 if self.model is None else self.model._basis.size
        return f"episode {self.episodes}, {mean}{size} pseudo-inputs"

    def _begin(self, course: Course, i: int) -> Lane | None:
        """Start an episode; None where its first observation comes with the next step."""
        seed = np.random.SeedSequence([self.seed, self.episodes + i]).generate_state(1)[0]
        first = course.begin(i, int(seed))
        if first is None:
            return None
        if self.imagination is not None:
            self.imagination.starts.append(first[1].copy())
        role, frozen, values = self._role()
        curious = self.foresight.curious_now(role == "explore", self.num_timesteps) or role == "random"
        lane = Lane(*first, role, frozen, values, curious)
        lane.action = self._act(lane, lane.observation, lane.row)
        if self.model is not None:
            asked = self.model if frozen is None else frozen
            mean, variance = asked._moments(policies.inputs(lane.row, lane.action[None]), True)
            lane.predicted = float(mean[0]) + asked.prior_mean, float(np.sqrt(variance[0]))
        return lane

    def _role(self) -> tuple[str, SparseGPSarsa | None, Values | Rule | None]:
        """Who acts in the next episode."""
        if self.model is None:
            return "random", None, None
        if self.method == "sarsa":
            return "explore", None, None
        role = self.incumbent.role(self.episodes, self.foresight.fruitful(self.num_timesteps))
        contender = {"trial": self.incumbent.challenger, "incumbent": self.incumbent.holder}.get(role)
        if contender is not None:
            return role, contender.model, self.foresight.values(contender)
        return "explore", self.model.copy(), self.foresight.variant(self.rng)

    def _act(self, lane: Lane, observation: Any, row: Array) -> Array:
        if lane.model is not None and (lane.values is not None or lane.role in ("trial", "incumbent")):
            action = self._greedy(lane.model, lane.values, row)
            if self.foresight.down(row):
                lane.down += 1
                action = self.foresight.restless(action, lane.down)
            return self.actions.taken(action)

        def draw() -> Callable[[Array], Array]:
            if lane.function is None:
                assert self.model is not None
                lane.function = self.model.sample(1, self.rng)[0]
            return lane.function

        decision = policies.Decision(
            observation,
            row,
            self.num_timesteps,
            self.rng,
            self.model,
            self.actions,
            draw,
            self.foresight.way_out(row) if lane.curious else None,
        )
        return self.actions.taken(self._choose(decision))

    def _transition(self, lane: Lane, happening: Happening, alone: bool) -> None:
        """Learn from one step and choose the next action."""
        assert lane.action is not None
        split = self.observations.columns
        x = np.empty(self.experience.columns)
        x[:split], x[split:] = lane.row, lane.action
        following, discount, action = x.copy(), 0.0, None
        following[:split] = happening.row
        if not happening.terminated:
            discount = self.gamma
            action = self._act(lane, happening.observation, happening.row)
            following[split:] = action
        ahead, begins = following if discount > 0.0 else x, lane.first or not alone
        self.learner.observe(x, happening.reward, ahead, discount, begins)
        self.experience.add(x, happening.reward, following, discount)
        if self.imagination is not None:
            self.imagination.seen(x, happening.row)
        self.num_timesteps += 1
        lane.total += happening.reward
        lane.discounted += lane.weight * happening.reward
        lane.weight *= self.gamma
        lane.length += 1
        lane.observation, lane.row, lane.action, lane.first = (
            happening.observation, happening.row, action, False,
        )  # fmt: skip

    def _end(self, lane: Lane, happening: Happening) -> dict[str, Any]:
        """Finish an episode: judge who acted, do what is due, and return its line of the log."""
        number = self.episodes
        self.episodes += 1
        if self.imagination is not None:
            self.imagination.finished(lane.length, happening.truncated and not happening.terminated)
        if self.method == "improving":
            rule = lane.values if isinstance(lane.values, Rule) else None
            self.incumbent.finished(
                lane.role, lane.model, lane.total, lane.length, self.num_timesteps, lane.start, rule
            )  # fmt: skip
        else:
            self.incumbent.recent.append(lane.total)
        self.learner.slow_steps(self.num_timesteps, at_end=True)
        model, unknown = self.model, float("nan")
        predicted, std = (unknown, unknown) if lane.predicted is None else lane.predicted
        return {
            "step": self.num_timesteps,
            "episode": number,
            "return": lane.total,
            "length": lane.length,
            "terminated": int(happening.terminated),
            "role": lane.role,
            "predicted": predicted,
            "predicted_std": std,
            "discounted": lane.discounted,
            "pseudo_inputs": 0 if model is None else model._basis.size,
            "log_evidence": self.log_evidence,
            "noise_variance": unknown if model is None else model.noise_variance,
            "seconds": self._spent + time.monotonic() - self._began,
        }

    # -- files --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to act and to go on learning to one file, atomically."""
        arrays, content = self._state()
        checkpoint.write(path, arrays, content)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays = {f"experience.{name}": array for name, array in self.experience.state().items()}
        own, content = self.learner.state()
        arrays |= own
        content |= {
            "observations": self.observations.describe(),
            "actions": self.actions.describe(),
            "settings": self.settings,
            "policy": policies.described(self.policy),
            "num_timesteps": self.num_timesteps,
            "episodes": self.episodes,
            "rng": self.rng.bit_generator.state,
        }
        own, content["foresight"] = self.foresight.state()
        arrays |= {f"foresight.{name}": array for name, array in own.items()}
        own, content["incumbent"] = self.incumbent.state()
        arrays |= {f"incumbent.{name}": array for name, array in own.items()}
        return arrays, {"agent": content}

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        env: Any = None,
        *,
        policy: Any = None,
        kernel: KernelLike | None = None,
        placement: Placement | None = None,
    ) -> Self:
        """Read an agent back, to act or, with an environment, to go on learning bit for bit.

        A kernel or a placement of the user's own must be given again, a policy of the user's own only to
        learn on.
        """
        arrays, content = checkpoint.read(path)
        if "agent" not in content:
            raise CheckpointError(f"{path} does not hold an agent")
        try:
            self = cls._restored(arrays, content["agent"], policy, kernel, placement)
        except CheckpointError as error:
            raise CheckpointError(f"{path} {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise CheckpointError(f"{path} does not describe an agent: {error}") from error
        if env is not None:
            try:
                self.set_env(env)
            except ValueError as error:
                raise CheckpointError(f"{path} is from another environment: {error}") from error
        return self

    @classmethod
    def _restored(
        cls, arrays: dict[str, Any], kept: dict[str, Any], policy: Any, kernel: Any, placement: Any
    ) -> Self:
        names = "experience", "learner", "sums", "incumbent", "foresight"
        parts: dict[str, dict[str, Any]] = {name: {} for name in names}
        for name, array in arrays.items():
            part, own = name.split(".", 1)
            parts[part][own] = array
        if policy is None:
            policy = _missing if kept["policy"] is None else policies.restored(kept["policy"])
        self = cls.__new__(cls)
        self._prepare(
            Observations.described(kept["observations"]),
            Actions.described(kept["actions"]),
            kept["settings"],
            policy,
        )
        self.experience.restore(parts["experience"])
        self.num_timesteps, self.episodes = int(kept["num_timesteps"]), int(kept["episodes"])
        self.rng.bit_generator.state = kept["rng"]
        self.learner.restore(parts, kept, kernel, placement)
        self.foresight.restore(parts["foresight"], kept["foresight"])
        self.incumbent.restore(
            parts["incumbent"],
            kept["incumbent"],
            lambda described: saved_kernel(described, kernel),
            self.foresight.rule_of,
        )
        for contender in (self.incumbent.holder, self.incumbent.challenger):
            if contender is not None and contender.starts:
                check.rows(np.array(contender.starts), "starts", self.observations.columns)
        return self


def _missing(decision: policies.Decision) -> Any:
    raise ValueError("the agent was saved with a policy of your own: to learn on, load it with policy=…")
