"""Do the intervals of `gpsarsa.offline.evaluate` contain the truth? Measured where true values are known.

    python -m studies.coverage [--fqe PYTHON] [--rollouts]

Episodes are logged, written as a table and evaluated with all defaults, a hundred times with fresh seeds;
beside it LSTD in the same features, and d3rlpy's fitted Q evaluation (`studies/fqe.py`). That one depends on
the logs alone and takes long: its values are kept in a file, which `--fqe` makes anew, given a Python that
has d3rlpy. Reported are seeds from 2 000; whatever was tuned or looked at before, had others.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy comes; the processes inherit it

import argparse
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import binomtest

from gpsarsa.offline.evaluation import Evaluation, evaluate
from gpsarsa.offline.recording import write_table
from studies.plots import select
from studies.tables import table
from studies.workers import in_two_processes

Array = np.ndarray
Rng = np.random.Generator
Row = dict[str, Any]
Log = dict[str, Array]

LEVEL = 0.9
AIM = (0.80, 0.97)  # where the coverage of a 90 % interval should lie
FIRST_SEED, REPETITIONS = 2_000, 100
FQE_SEEDS = range(1_000, 1_010)  # logs of their own, for their values are kept
REPLICATES = 100  # of the bootstrap
TEST_SEED, TEST_INPUTS = 20_000, 100
KNOWN, FITTED = (Path(__file__).with_name(f"coverage_{name}.json") for name in ("cartpole", "fqe"))
RIDGES = (1e-8, 1e-6, 1e-4, 1e-2)  # of LSTD, in units of the mean diagonal of Σφφᵀ
ROLLOUTS, INPUT_ROLLOUTS = 400_000, 4_000  # behind the values in that file


@dataclass(frozen=True)
class Problem:
    """A world, the policy that acts in the logs, and the policy whose value is asked for."""

    name: str
    gamma: float
    length: int  # after which an episode is cut off
    episodes: tuple[int, int]
    starts: Callable[[Rng, int], Array]  # states
    logging: Callable[[Rng, Array], Array]  # actions of the policy that acts
    step: Callable[[Rng, Array, Array], tuple[Array, Array, Array]]  # next states, rewards, whether it ended
    observed: Callable[[Array], Array]
    value: Callable[[], tuple[float, float]]  # of the initial states, and its standard error
    values: Callable[[Array, Array], Array]  # true Q of states and actions
    target: Callable[[Array], Array] | None = None  # its actions from observations; None: the logging policy

    def log(self, seed: int, episodes: int) -> Log:
        """The columns of a table of transitions."""
        rng = np.random.default_rng([seed, 2])
        states = self.starts(rng, episodes)
        actions, alive = self.logging(rng, states), np.ones(episodes, dtype=bool)
        path = []
        for step in range(self.length):
            following, reward, ended = self.step(rng, states, actions)
            after = self.logging(rng, following)
            row = {
                "state": states, "observation": self.observed(states), "action": actions, "reward": reward,
                "next_observation": self.observed(following), "next_action": after, "terminated": ended,
                "truncated": ~ended & (step == self.length - 1), "alive": alive,
                "episode": np.arange(episodes), "step": np.full(episodes, step),
            }  # fmt: skip
            path.append(row)
            states, actions, alive = following, after, alive & ~ended
            if not alive.any():
                break
        columns = {name: np.stack([row[name] for row in path], axis=1) for name in path[0]}
        alive = columns.pop("alive")
        return {name: column[alive] for name, column in columns.items()}

    def test(self) -> tuple[Array, Array]:
        """Inputs of a log of its own, distributed as those visited, and their true values."""
        if self.name.startswith("CartPole"):
            known = json.loads(KNOWN.read_text())[self.name]
            return np.array(known["inputs"]), np.array(known["values"])
        states, actions = test_inputs(self)
        return _inputs(self.observed(states), actions), self.values(states, actions)


def test_inputs(problem: Problem) -> tuple[Array, Array]:
    """States and actions of a log of its own."""
    log = problem.log(TEST_SEED, 200)
    chosen = np.random.default_rng(TEST_SEED).choice(len(log["reward"]), TEST_INPUTS, replace=False)
    return log["state"][chosen], log["action"][chosen]


def _inputs(observations: Array, actions: Array) -> Array:
    return np.column_stack([observations, actions.astype(float)])


# -- worlds of few states: the truth by linear algebra ----------------------------------------


@dataclass(frozen=True)
class Finite:
    """A world of S states, of which some end an episode on arrival; the reward is that of the arrival."""

    moves: Array  # (S, A, S): probabilities
    reward: Array  # (S,): on arrival
    ends: Array  # (S,)
    start: Array  # (S,): probabilities
    places: Array  # (S, d): what is observed

    def starts(self, rng: Rng, n: int) -> Array:
        return rng.choice(len(self.start), n, p=self.start)

    def step(self, rng: Rng, states: Array, actions: Array) -> tuple[Array, Array, Array]:
        following = _drawn(rng, self.moves[states, actions])
        return following, self.reward[following], self.ends[following]

    def values(self, policy: Array, gamma: float) -> Array:
        """Q (S, A) of a policy (S, A): Q = g + γ P π Q, where arrivals that end an episode have no future."""
        S, A = policy.shape
        ahead = gamma * self.moves * ~self.ends
        chain = np.einsum("sat,tb->satb", ahead, policy).reshape(S * A, S * A)
        return np.linalg.solve(np.eye(S * A) - chain, (self.moves @ self.reward).ravel()).reshape(S, A)


def _drawn(rng: Rng, probabilities: Array) -> Array:
    """One number from each row of probabilities."""
    return (rng.random(len(probabilities))[:, None] > np.cumsum(probabilities, axis=1)[:, :-1]).sum(axis=1)


def _finite(
    name: str, world: Finite, policy: Array, gamma: float, target: Array | None, **own: Any
) -> Problem:
    """The problem of evaluating, on logs of `policy`, that policy or the target's (S,) actions."""
    asked = policy if target is None else np.eye(policy.shape[1])[target]
    Q = world.values(asked, gamma)
    state_of = {tuple(place): state for state, place in enumerate(world.places)}
    return Problem(
        name, gamma, starts=world.starts, step=world.step,
        logging=lambda rng, states: _drawn(rng, policy[states]),
        observed=lambda states: world.places[states],
        value=lambda: (float(world.start @ (asked * Q).sum(axis=1)), 0.0),
        values=lambda states, actions: Q[states, actions],
        target=None if target is None else lambda seen: target[[state_of[tuple(row)] for row in seen]],
        **own,
    )  # fmt: skip


def random_walk() -> Problem:
    """19 places in a row; a step goes the way it was meant in 4 of 5 cases. Only the right end is worth 1."""
    n = 19
    moves = np.zeros((n + 2, 2, n + 2))
    for place in range(1, n + 1):
        for action, way in enumerate((-1, 1)):
            moves[place, action, [place + way, place - way]] = 0.8, 0.2
    moves[[0, n + 1], :, [0, n + 1]] = 1.0
    ends = np.isin(np.arange(n + 2), (0, n + 1))
    world = Finite(moves, np.eye(n + 2)[-1], ends, ~ends / n, np.arange(n + 2.0)[:, None])
    policy = np.full((n + 2, 2), 0.5)
    return _finite("random walk", world, policy, 0.95, None, length=1_000, episodes=(25, 100))


GRID = ("S....", ".#.H.", "...#.", "H..#.", "...HG")
WAYS = ((-1, 0), (0, 1), (1, 0), (0, -1))
GUIDE = ("rrrrd", "ulrld", "rdlld", "ldlrd", "rruug")  # the way to the goal


def gridworld(off_policy: bool) -> Problem:
    """5 × 5 cells with three rocks and three holes. A quarter of the steps go to one side or the other."""
    cells = [(i, j) for i in range(5) for j in range(5)]
    number = {cell: k for k, cell in enumerate(cells)}
    kinds = np.array([GRID[i][j] for i, j in cells])
    moves = np.zeros((25, 4, 25))
    for (i, j), here in number.items():
        for action in range(4):
            for turn, share in ((0, 0.75), (1, 0.125), (3, 0.125)):
                di, dj = WAYS[(action + turn) % 4]
                there = number.get((i + di, j + dj), here)
                moves[here, action, here if kinds[there] == "#" else there] += share
    reward = np.where(kinds == "G", 1.0, np.where(kinds == "H", -1.0, -0.02))
    world = Finite(
        moves, reward, np.isin(kinds, ("G", "H")), (kinds == "S").astype(float), np.array(cells, dtype=float)
    )
    way = np.array([max("urdl".find(GUIDE[i][j]), 0) for i, j in cells])
    policy = 0.6 * np.eye(4)[way] + 0.1
    name = "gridworld, off-policy" if off_policy else "gridworld"
    return _finite(name, world, policy, 0.95, way if off_policy else None, length=200, episodes=(50, 200))


# -- a linear-quadratic regulator: the truth by a Lyapunov equation ---------------------------

DRIFT, PUSH = np.array([[1.0, 0.2], [0.0, 0.9]]), np.array([[0.0], [0.3]])
GAIN, JITTER, SHOCKS = np.array([[0.8, 1.0]]), 0.5, 0.15  # of the policy, of its actions, of the states
COST, EFFORT, FIRST = np.array([[1.0, 0.0], [0.0, 0.2]]), 0.1, 1.0


def regulator() -> Problem:
    """A point on a line under a linear policy with exploring noise; place and speed cost, so does force."""
    gamma, closed = 0.95, DRIFT - PUSH @ GAIN
    P = solve_discrete_lyapunov(math.sqrt(gamma) * closed.T, COST + EFFORT * GAIN.T @ GAIN)
    shocks = SHOCKS**2 * np.trace(P)
    constant = (EFFORT * JITTER**2 + gamma * (shocks + JITTER**2 * (PUSH.T @ P @ PUSH).item())) / (1 - gamma)

    def cost(x: Array, u: Array) -> Array:
        return np.einsum("ni,ij,nj->n", x, COST, x) + EFFORT * u[:, 0] ** 2

    def step(rng: Rng, x: Array, u: Array) -> tuple[Array, Array, Array]:
        following = x @ DRIFT.T + u @ PUSH.T + rng.normal(0.0, SHOCKS, x.shape)
        return following, -cost(x, u), np.zeros(len(x), dtype=bool)

    def values(x: Array, u: Array) -> Array:
        """−cost − γ E[x′ᵀPx′ + c]."""
        ahead = x @ DRIFT.T + u @ PUSH.T
        return -cost(x, u) - gamma * (np.einsum("ni,ij,nj->n", ahead, P, ahead) + shocks + constant)

    return Problem(
        "regulator", gamma, length=30, episodes=(25, 100), step=step, values=values,
        starts=lambda rng, n: rng.normal(0.0, FIRST, (n, 2)),
        logging=lambda rng, x: -x @ GAIN.T + rng.normal(0.0, JITTER, (len(x), 1)),
        observed=lambda x: x,
        value=lambda: (-float(FIRST**2 * np.trace(P) + constant), 0.0),
    )  # fmt: skip


# -- CartPole: the truth by rollouts ----------------------------------------------------------


def _balance(rng: Rng, states: Array, actions: Array) -> tuple[Array, Array, Array]:
    """A fiftieth of a second of Gymnasium's CartPole-v1: a pole of 0.1 kg and 1 m on a cart of 1 kg."""
    _, v, angle, spin = states.T
    sine, cosine = np.sin(angle), np.cos(angle)
    push = (np.where(actions == 1, 10.0, -10.0) + 0.05 * spin**2 * sine) / 1.1
    twist = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    drive = push - 0.05 * twist * cosine / 1.1
    following = states + 0.02 * np.column_stack([v, drive, spin, twist])
    fallen = (np.abs(following[:, 0]) > 2.4) | (np.abs(following[:, 2]) > math.radians(12))
    return following, np.ones(len(states)), fallen


def _against_the_lean(seen: Array) -> Array:
    """Looks at the angle alone, so that the pole swings ever wider."""
    return (seen[:, 2] > 0.0).astype(int)


def _clumsily(rng: Rng, seen: Array) -> Array:
    """The same, with every fifth action at random."""
    return np.where(rng.random(len(seen)) < 0.2, rng.integers(2, size=len(seen)), _against_the_lean(seen))


def cartpole(off_policy: bool) -> Problem:
    """Truth and test values come from a file that `python -m studies.coverage --rollouts` makes."""
    name = "CartPole, off-policy" if off_policy else "CartPole"

    def known() -> tuple[float, float]:
        found = json.loads(KNOWN.read_text())[name]
        return found["value"], found["standard error"]

    def values(states: Array, actions: Array) -> Array:
        return rollouts(cartpole(off_policy), states, actions, INPUT_ROLLOUTS, TEST_SEED).mean(axis=1)

    return Problem(
        name, 0.99, length=500, episodes=(20, 60), step=_balance, logging=_clumsily, values=values,
        starts=lambda rng, n: rng.uniform(-0.05, 0.05, (n, 4)), observed=lambda states: states, value=known,
        target=_against_the_lean if off_policy else None,
    )  # fmt: skip


def rollouts(problem: Problem, states: Array, actions: Array, times: int, seed: int) -> Array:
    """Returns (n, times) of episodes that begin in states with actions and follow the policy asked for."""
    rng = np.random.default_rng([seed, 3])
    n = len(states)
    states, actions = np.repeat(states, times, axis=0), np.repeat(actions, times, axis=0)
    returns, weight, place = np.zeros(n * times), 1.0, np.arange(n * times)
    while len(place) and weight > 1e-6:
        states, rewards, ended = problem.step(rng, states, actions)
        returns[place] += weight * rewards
        weight *= problem.gamma
        states, place = states[~ended], place[~ended]
        actions = problem.logging(rng, states) if problem.target is None else problem.target(states)
    return returns.reshape(n, times)


def write_known() -> None:
    """Values of CartPole's initial states and of the test inputs, with their standard errors."""
    found = {}
    for problem in (cartpole(False), cartpole(True)):
        rng = np.random.default_rng([TEST_SEED, 4])
        states = problem.starts(rng, ROLLOUTS)
        actions = problem.logging(rng, states) if problem.target is None else problem.target(states)
        returns = rollouts(problem, states, actions, 1, TEST_SEED + 1)
        error = float(returns.std() / math.sqrt(ROLLOUTS))
        states, actions = test_inputs(problem)
        values, X = problem.values(states, actions), _inputs(states, actions)
        found[problem.name] = {
            "value": round(float(returns.mean()), 4), "standard error": round(error, 4),
            "inputs": X.round(4).tolist(), "values": values.round(3).tolist(),
        }  # fmt: skip
    KNOWN.write_text(json.dumps(found) + "\n")


@cache
def problems() -> dict[str, Problem]:
    every = (
        random_walk(), regulator(), gridworld(False), cartpole(False), gridworld(True), cartpole(True),
    )  # fmt: skip
    return {problem.name: problem for problem in every}


# -- one repetition ---------------------------------------------------------------------------


class Policy:
    """What `evaluate` asks for the actions of the target."""

    def __init__(self, act: Callable[[Array], Array]) -> None:
        self._act = act

    def predict(self, seen: Array, deterministic: bool = True) -> tuple[Array, None]:
        return self._act(seen), None


def evaluated(problem: Problem, log: Log, path: Path) -> Evaluation:
    """The evaluation of a log as a user would have it: from a table, with all defaults."""
    write_table(path, **{name: column for name, column in log.items() if name != "state"})
    policy = None if problem.target is None else Policy(problem.target)
    return evaluate(path, gamma=problem.gamma, target_policy=policy, workers=1)


def resampled(problem: Problem, found: Evaluation, path: Path) -> Evaluation:
    """The same with a bootstrap: kernel and pseudo-inputs stay as they were learnt."""
    policy = None if problem.target is None else Policy(problem.target)
    return evaluate(
        path, gamma=problem.gamma, target_policy=policy, workers=1, bootstrap=REPLICATES,
        kernel=found.kernel, noise_variance=found.noise_variance, pseudo_inputs=found.pseudo_inputs,
    )  # fmt: skip


def lstd(problem: Problem, log: Log, found: Evaluation) -> list[float]:
    """The mean value of the initial states by LSTD in the features φ = W k(Z, x), for each ridge:

    (ρI + Σφ(φ − γφ′)ᵀ) w = Σφr.
    """
    first, now, after = log["step"] == 0, log["action"], log["next_action"]
    begin = now[first]
    if problem.target is not None:
        after, begin = problem.target(log["next_observation"]), problem.target(log["observation"][first])
    factor = np.linalg.cholesky(found.kernel(found.pseudo_inputs, found.pseudo_inputs))

    def features(observations: Array, actions: Array) -> Array:
        return np.linalg.solve(factor, found.kernel(found.pseudo_inputs, _inputs(observations, actions))).T

    Phi = features(log["observation"], now)
    discounts = np.where(log["terminated"], 0.0, problem.gamma)
    ahead = discounts[:, None] * features(log["next_observation"], after)
    A, b, at = Phi.T @ (Phi - ahead), Phi.T @ log["reward"], features(log["observation"][first], begin)
    scale = np.square(Phi).sum() / len(A)
    return [float((at @ np.linalg.solve(A + ridge * scale * np.eye(len(A)), b)).mean()) for ridge in RIDGES]


def mean_return(problem: Problem, log: Log) -> float:
    """Of the logged episodes, discounted."""
    return float(problem.gamma ** log["step"] @ log["reward"] / (log["step"] == 0).sum())


def measure(task: tuple[str, int, int]) -> list[Row]:
    """One log and its evaluations against the truth."""
    name, episodes, seed = task
    problem = problems()[name]
    log = problem.log(seed, episodes)
    true, (X, Q) = problem.value()[0], problem.test()
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        found = evaluated(problem, log, Path(folder, "log.parquet"))
        seconds = time.process_time() - begun
        replicated = resampled(problem, found, Path(folder, "log.parquet"))
    low, high = found.interval_at(X, LEVEL)
    row: Row = {
        "problem": name, "episodes": episodes, "seed": seed, "rows": len(log["reward"]),
        "error": found.value - true, "half width": found.interval(LEVEL)[1] - found.value,
        "covers": _inside(true, found.interval(LEVEL)),
        "posterior covers": _inside(true, found.interval(LEVEL, kind="posterior")),
        "bootstrap covers": _inside(true, replicated.interval(LEVEL, kind="bootstrap")),
        "states covered": float(np.mean((low <= Q) & (high >= Q))),
        "Q error": float(np.mean(np.abs(found.predict(X) - Q))),
        "LSTD errors": [value - true for value in lstd(problem, log, found)],
        "return error": mean_return(problem, log) - true if problem.target is None else math.nan,
        "seconds": seconds, "M": len(found.pseudo_inputs),
    }  # fmt: skip
    return [row]


def _inside(value: float, ends: tuple[float, float]) -> bool:
    return bool(ends[0] <= value <= ends[1])


def tasks(repetitions: int) -> list[tuple[str, int, int]]:
    own = [
        (name, episodes, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + repetitions)
        for name, problem in problems().items()
        for episodes in problem.episodes
    ]
    return own + [
        (name, problem.episodes[0], seed) for seed in FQE_SEEDS for name, problem in problems().items()
    ]


# -- fitted Q evaluation ----------------------------------------------------------------------


def fit_q(python: str) -> None:
    """Evaluate the smaller logs by d3rlpy, in an environment of its own, and keep the values."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, problem in problems().items():
            paths = []
            for seed in FQE_SEEDS:
                log = problem.log(seed, problem.episodes[0])
                first, after = log["action"], log["next_action"]
                if problem.target is not None:
                    first, after = problem.target(log["observation"]), problem.target(log["next_observation"])
                paths.append(str(Path(folder, f"{seed}.npz")))
                own = {"target_action": first, "target_next_action": after, "gamma": problem.gamma}
                np.savez(paths[-1], **log, **own)
            command = [python, "-W", "ignore", str(Path(__file__).with_name("fqe.py")), *paths]
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found[name] = [json.loads(line) for line in answer.splitlines() if line.startswith("{")]
            print(f"{name}: {found[name]}", flush=True)
    FITTED.write_text(json.dumps(found) + "\n")


# -- what comes of it -------------------------------------------------------------------------


def cells(rows: list[Row]) -> list[Row]:
    """Figures of each problem and size, over the repetitions."""
    fitted = json.loads(FITTED.read_text()) if FITTED.exists() else {}
    found = []
    for name, problem in problems().items():
        for episodes in problem.episodes:
            every = sorted(select(rows, problem=name, episodes=episodes), key=lambda row: row["seed"])
            own = [row for row in every if row["seed"] not in FQE_SEEDS]
            column = {key: np.array([row[key] for row in own]) for key in own[0]}
            cell: Row = {"problem": name, "episodes": episodes, "n": len(own)}
            cell["rows"] = float(column["rows"].mean())
            for key in ("covers", "posterior covers", "bootstrap covers"):
                inside = binomtest(int(column[key].sum()), len(own)).proportion_ci(0.95, "wilson")
                cell[key] = float(column[key].mean()), inside.low, inside.high
            cell["states covered"] = float(column["states covered"].mean())
            cell["error"] = float(np.abs(column["error"]).mean())
            cell["bias"] = float(column["error"].mean())
            errors = np.abs(column["LSTD errors"]).mean(axis=0)
            cell["LSTD"], cell["best LSTD"] = float(errors[0]), float(errors.min())
            cell["returns"] = float(np.abs(column["return error"]).mean())
            cell["seconds"] = float(np.median(column["seconds"]))
            known = fitted.get(name, []) if episodes == problem.episodes[0] else []
            if known:
                off = [one["value"] - problem.value()[0] for one in known]
                cell["FQE"] = float(np.abs(off).mean())
                there = [abs(row["error"]) for row in every if row["seed"] in FQE_SEEDS]
                cell["error there"] = float(np.mean(there)) if there else math.nan
                cell["FQE seconds"] = float(np.median([one["seconds"] for one in known]))
            found.append(cell)
    return found


def coverage_table(found: list[Row]) -> str:
    head = [
        "problem", "episodes (rows)", "90 % interval covers", "bootstrap covers", "posterior covers",
        "`interval_at` covers",
    ]  # fmt: skip
    body = []
    for cell in found:
        size = f"{cell['episodes']} ({cell['rows']:,.0f})".replace(",", " ")
        shares = [_share(*cell[key]) for key in ("covers", "bootstrap covers", "posterior covers")]
        body.append([cell["problem"], size, *shares, f"{100 * cell['states covered']:.0f} %"])
    return table(head, body)


def error_table(found: list[Row]) -> str:
    head = [
        "problem", "episodes", "`evaluate`", "bias", "LSTD", "LSTD, best ridge", "mean return", "s",
        "FQE (`evaluate` there)", "FQE s",
    ]  # fmt: skip
    body = []
    for cell in found:
        numbers = [f"{cell[key]:.3g}" for key in ("error", "bias", "LSTD", "best LSTD")]
        numbers.append("–" if math.isnan(cell["returns"]) else f"{cell['returns']:.3g}")
        fitted = ["–", "–"]
        if "FQE" in cell:
            fitted = [f"{cell['FQE']:.3g} ({cell['error there']:.3g})", f"{cell['FQE seconds']:.0f}"]
        body.append([cell["problem"], str(cell["episodes"]), *numbers, f"{cell['seconds']:.2f}", *fitted])
    return table(head, body)


def _share(share: float, low: float, high: float) -> str:
    return f"{100 * share:.0f} % ({100 * low:.0f}–{100 * high:.0f})"


COLOURS = {"covers": "C0", "bootstrap covers": "C6", "posterior covers": "C1", "states covered": "C2"}
LABELS = {
    "covers": "value: interval()",
    "bootstrap covers": "value: interval(kind='bootstrap')",
    "posterior covers": "value: interval(kind='posterior')",
    "states covered": "states: interval_at(), mean over states",
}
RIVALS = {"LSTD": ("s", "C3"), "best LSTD": ("D", "C4"), "returns": ("^", "0.45"), "FQE": ("P", "C5")}
RIVAL_LABELS = {
    "LSTD": "LSTD, same features",
    "best LSTD": "LSTD, best ridge in hindsight",
    "returns": "mean logged return",
    "FQE": "d3rlpy's FQE",
}


def draw(found: list[Row], path: Path) -> None:
    """Coverage, errors relative to `evaluate`'s, and time; a row for each problem and size."""
    figure = Figure(figsize=(15, 6.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=(5, 4, 2.4))
    places = np.array([i + 0.35 * (i // 2) for i in range(len(found))])
    left.axvspan(100 * AIM[0], 100 * AIM[1], color="0.93", zorder=0)
    left.axvline(100 * LEVEL, color="0.4", linewidth=0.9, linestyle=":")
    for shift, (key, colour) in zip((-0.24, 0.0, 0.24), list(COLOURS.items())[:3], strict=True):
        share, low, high = 100 * np.array([cell[key] for cell in found]).T
        style = {"fmt": "o", "markersize": 7 if key == "covers" else 5, "linewidth": 1.6, "color": colour}
        left.errorbar(share, places + shift, xerr=(share - low, high - share), label=LABELS[key], **style)
    key, states = "states covered", [100 * cell["states covered"] for cell in found]
    left.plot(states, places + 0.12, "D", color=COLOURS[key], label=LABELS[key], markerfacecolor="none")
    for shift, (name, (marker, colour)) in zip((-0.15, -0.05, 0.05, 0.15), RIVALS.items(), strict=True):
        own = "error there" if name == "FQE" else "error"
        ratio = [cell[name] / cell[own] if name in cell else math.nan for cell in found]
        style = {"color": colour, "markersize": 7, "alpha": 0.85}
        middle.plot(ratio, places + 1.5 * shift, marker, label=RIVAL_LABELS[name], **style)
    middle.axvline(1.0, color="C0", linewidth=1.4, label="evaluate")
    right.plot([cell["seconds"] for cell in found], places, "o", color="C0", label="evaluate", markersize=7)
    marker, colour = RIVALS["FQE"]
    fitted = [cell.get("FQE seconds", math.nan) for cell in found]
    right.plot(fitted, places, marker, color=colour, label=RIVAL_LABELS["FQE"], markersize=8)
    left.set(xlim=(-2, 102), xlabel="% that contain the truth", title="Coverage of 90 % intervals")
    middle.set(xscale="log", xlabel="mean absolute error / that of evaluate", title="Error of the value")
    right.set(xscale="log", xlabel="CPU seconds", title="Time")
    for axis, ticks in ((middle, (0.5, 0.7, 1, 1.5, 2, 3, 5, 10)), (right, (0.3, 1, 3, 10, 30, 100))):
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
    names = [f"{cell['problem']}, {cell['episodes']} episodes" for cell in found]
    left.set_yticks(places, names)
    left.invert_yaxis()
    for axis in (left, middle, right):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.11))
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--fqe", metavar="PYTHON", help="evaluate by d3rlpy anew, with this Python")
    parser.add_argument("--rollouts", action="store_true", help="make CartPole's true values anew")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--picture", type=Path, default=Path("docs/coverage.png"))
    arguments = parser.parse_args()
    if arguments.rollouts:
        write_known()
    if arguments.fqe:
        fit_q(arguments.fqe)
    found = cells(in_two_processes(measure, tasks(arguments.repetitions), "coverage"))
    print(f"\n{coverage_table(found)}\n\n{error_table(found)}\n")
    draw(found, arguments.picture)


if __name__ == "__main__":
    main()
