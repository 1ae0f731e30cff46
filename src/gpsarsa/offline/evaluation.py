"""How good is a policy, from each state, and how sure are we? From logged episodes.

    evaluation = evaluate("logs/*.parquet", gamma=0.99)
    evaluation.value, evaluation.interval(0.9)          # of the initial states
    evaluation.predict(X, return_std=True)              # a SparseGPSarsa as any other

Pseudo-inputs and hyperparameters are chosen on a sample of the table; then one exact pass over all of it
gives the posterior and a second one its standard errors. On-policy (the logged next actions), noise is
correlated where episodes are known: then stochastic transitions leave no bias. With a target policy, the
next action is the target's and the posterior is that of the projected fixed point.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import secrets
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit
from threadpoolctl import threadpool_limits

from gpsarsa import _validation as check
from gpsarsa._linalg import product
from gpsarsa._progress import Progress
from gpsarsa._validation import Array
from gpsarsa._version import __version__
from gpsarsa.basis import Basis, pivots
from gpsarsa.belief import Belief
from gpsarsa.kernels import Delta, Kernel, KernelLike, Matern52, Product
from gpsarsa.offline.datasets import Dataset, DatasetError, open_dataset
from gpsarsa.offline.engines import Engine, Work, engine
from gpsarsa.offline.sums import First, Second, Spread, Totals
from gpsarsa.optimization import Search
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.statistics import FixedPoint, Likelihood
from gpsarsa.stochasticity import looks_stochastic
from gpsarsa.transitions import Transitions

__all__ = ["Evaluation", "compare", "evaluate"]

SAMPLE = 4_000  # transitions on which pseudo-inputs and hyperparameters are chosen
LEARN_WITH, LEARN_STEPS = 100, 40  # pseudo-inputs and iterations of the evidence
NOVEL = 1e-6  # pseudo-inputs leave none of which less than this share of the variance is new
UNIT_LENGTHSCALE = 0.5  # of a column's range, at first
LARGEST = 1e100  # reward, whose square and sums must be finite
LENGTHSCALES = (0.04, 10.0)  # the least and most, in units of the first
ROUNDS = 3  # of regression and evidence, off-policy


@dataclass(frozen=True)
class Value:
    """The mean value of the initial states, and what is known of its error."""

    mean: float
    standard_error: float  # clustered by episode: other episodes would have given other values
    posterior_std: float  # the model's own
    initial_states: int
    transitions: int
    left_out: int
    clusters: int


class Evaluation(SparseGPSarsa):
    """The posterior over a policy's Q, with standard errors clustered by episode.

    `value` is the mean value of the initial states (all states where episodes are unknown), `interval` its
    interval, `interval_at` that of Q at other inputs. Everything else is a SparseGPSarsa's.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._value: Value | None = None
        self._spread = np.zeros((self._basis.size, self._basis.size))  # Cov(m), the sandwich
        self.gamma = math.nan

    @property
    def summary(self) -> Value:
        """All that is known about the value of the initial states."""
        if self._value is None:
            raise ValueError("nothing was evaluated yet; gpsarsa.offline.evaluate makes evaluations")
        return self._value

    @property
    def value(self) -> float:
        """The mean value of the initial states."""
        return self.summary.mean

    @property
    def standard_error(self) -> float:
        """Of `value`, clustered by episode."""
        return self.summary.standard_error

    def interval(self, level: float = 0.9, kind: str = "clustered") -> tuple[float, float]:
        """An interval for the policy's value; `kind` "posterior" is the model's own credible interval."""
        check.one_of(kind, "kind", ("clustered", "posterior"))
        found = self.summary
        half = (
            _quantile(level, found.clusters) * found.standard_error
            if kind == "clustered"
            else _quantile(level) * found.posterior_std
        )
        return found.mean - half, found.mean + half

    def interval_at(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends for Q at the rows of X: clustered errors, and what Z leaves open."""
        X = check.rows(X, "X", self._columns)
        basis = self._basis
        Psi = basis.whiten(basis.kernel_rows(X))
        variance = np.einsum("ij,ij->i", product(np.ascontiguousarray(Psi), self._spread), Psi)
        half = _quantile(level, self.summary.clusters) * np.sqrt(np.maximum(variance, 0.0) + basis.unexplained(X, Psi))
        mean = self.predict(X)
        return mean - half, mean + half

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, content = super()._state()
        return arrays | {"spread": self._spread}, content | {
            "value": None if self._value is None else asdict(self._value),
            "gamma": None if math.isnan(self.gamma) else self.gamma,
        }

    @classmethod
    def _from_state(
        cls, kernel: KernelLike, arrays: dict[str, NDArray[Any]], content: dict[str, Any]
    ) -> Self:
        self = super()._from_state(kernel, arrays, content)
        M = self._basis.size
        self._spread = check.rows(arrays["spread"].reshape(M, M or 1), "spread")[:, :M]
        self._value = None if content["value"] is None else Value(**content["value"])
        self.gamma = math.nan if content["gamma"] is None else float(content["gamma"])
        return self


def evaluate(
    source: Any,
    *,
    gamma: float,
    kernel: KernelLike | None = None,
    noise_variance: float | None = None,
    prior_mean: float = 0.0,
    noise: str = "auto",
    pseudo_inputs: Any = 256,
    target_policy: Any = None,
    engine: Any = "local",
    seed: Any = 0,
    work: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress_bar: bool = False,
) -> Evaluation:
    """Evaluate the policy that made a log, or another one, from the log alone.

    Parameters
    ----------
    source : path, list of paths, "minari:id", a Minari dataset, Transitions, or a Dataset
        A table of transitions, see `gpsarsa.offline.datasets`.
    gamma : float
        The discount.
    kernel, noise_variance, pseudo_inputs :
        What is given is used as it is; a kernel or noise variance of None is learnt by the evidence on a
        sample, a number of pseudo-inputs is placed among the inputs of a sample.
    prior_mean : float
    noise : {"auto", "iid", "correlated"}
        "auto": correlated where the table has `episode` and `step`, else iid.
    target_policy : object with `predict`, optional
        Evaluate this policy instead of the one that made the log, by the projected fixed point.
    engine : {"local", "ray"} or an Engine
        `workers` says how many, `address` where a Ray cluster is.
    seed : int
        Of the sample.
    work : folder, optional
        Keeps the sums of finished partitions, so that an interrupted evaluation goes on where it was.
    """
    dataset = source if isinstance(source, Dataset) else open_dataset(source)
    return _Evaluator(
        dataset, check.discount(gamma, "gamma"), check.number(prior_mean, "prior_mean"),
        check.one_of(noise, "noise", ("auto", "iid", "correlated")), target_policy,
        np.random.default_rng(seed), _engine(engine, address, workers), work, progress_bar,
    ).run(kernel, noise_variance, pseudo_inputs)  # fmt: skip


def compare(evaluations: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """P(the row's policy is better than the column's), from values and clustered standard errors.

    The best comes first. Evaluations are taken as independent, which overstates the doubt where policies
    are evaluated on the same log.
    """
    names = sorted(evaluations, key=lambda name: -evaluations[name].value)
    return {
        one: {other: _probability(evaluations[one], evaluations[other]) for other in names if other != one}
        for one in names
    }


def _probability(one: Evaluation, other: Evaluation) -> float:
    spread = math.hypot(one.standard_error, other.standard_error)
    difference = one.value - other.value
    return NormalDist().cdf(difference / spread) if spread > 0 else 0.5 + 0.5 * float(np.sign(difference))


def _engine(name: Any, address: str | None, workers: int | None) -> Engine:
    return engine(name, address=address, workers=workers)


def _quantile(level: float, clusters: float = math.inf) -> float:
    """Student's with clusters − 1 degrees of freedom, or the normal one."""
    level = check.fraction(level, "level")
    if level in (0.0, 1.0):
        raise ValueError(f"level = {level}; expected a number between 0 and 1, such as 0.9")
    if clusters < 1e6:
        return float(stdtrit(max(clusters - 1.0, 1.0), 0.5 + 0.5 * level))
    return NormalDist().inv_cdf(0.5 + 0.5 * level)


@dataclass
class _Evaluator:
    """One evaluation, step by step."""

    dataset: Dataset
    gamma: float
    prior_mean: float
    noise: str
    target_policy: Any
    rng: np.random.Generator
    engine: Engine
    work: Any
    progress_bar: bool

    def run(self, kernel: Any, noise_variance: Any, pseudo_inputs: Any) -> Evaluation:
        fixed_point = self.target_policy is not None or self.noise == "auto"
        correlated = not fixed_point and (
            self.noise == "correlated"
        )
        if self.noise == "correlated" and not self.dataset.has_episodes:
            raise DatasetError(
                "noise='correlated' needs to know which rows follow each other: the table has no columns "
                "episode and step; use noise='iid'"
            )
        block = self.dataset.sample(SAMPLE, self.rng, gamma=self.gamma, target_policy=self.target_policy)
        t = block.transitions
        if len(t) == 0:
            raise DatasetError(
                f"none of {block.left_out} rows looked at can be used: all are truncated and have no next "
                "action; log it, or give a target policy"
            )
        largest = t.rewards[np.argmax(np.abs(t.rewards))]
        if abs(largest) > LARGEST:
            raise DatasetError(f"the reward {largest} is too large for double precision; rescale the rewards")
        if not fixed_point and not correlated and self._looks_stochastic(t):
            warnings.warn(
                "the logged transitions look stochastic, where iid noise is biased however much data there "
                "is; give the table `episode` and `step` columns, so that noise can be correlated",
                stacklevel=4,
            )
        learner = _Learner(self, t, correlated, fixed_point)
        with threadpool_limits(1, user_api="blas"):  # small matrices
            model = learner.model(kernel, noise_variance)
            Z = learner.pseudo_inputs(model.kernel, pseudo_inputs)
        likelihood = Likelihood(model.noise_variance, not correlated, correlated, self.prior_mean)
        task = First(model.kernel, Z, likelihood, fixed_point)
        totals = self._pass(task, "posterior")
        return self._evaluation(task, totals)

    def _looks_stochastic(self, t: Transitions) -> bool:
        columns = self.dataset.observation_columns
        category = np.zeros(t.columns, dtype=np.bool_)
        category[columns:] = self.dataset.discrete_action
        going = t.discounts > 0.0
        X, Y = t.inputs[going][:600], t.next_inputs[going][:600, :columns]
        return len(X) > 20 and looks_stochastic(X, Y, category)

    def _pass(self, task: Any, what: str) -> Any:
        dataset = self.dataset
        first = task.first if isinstance(task, Second) else task
        description = {
            "gamma": self.gamma, "task": type(task).__name__, "version": __version__,
            "state": [np.asarray(part).tobytes().hex() for part in _numbers(task)],
            "objects": [_fingerprint(first.kernel), _fingerprint(self.target_policy)],
        }  # fmt: skip
        share = dataset.rows / max(len(dataset.partitions), 1)
        with Progress(what, dataset.rows, shown=self.progress_bar) as progress:

            def done(number: int) -> None:
                rows = round(share * (number + 1))
                progress(rows, progress.pace(rows, "rows"))

            read = Reader(dataset, self.gamma, self.target_policy)
            return self.engine.run(
                task, dataset.partitions, read, work=Work(self.work, description), done=done
            )

    def _evaluation(self, task: First, totals: Totals) -> Evaluation:
        belief = totals.statistics.posterior(task.likelihood)
        E = max(totals.counts[1], 1.0)
        direction = totals.initial / E
        centred = float(direction @ belief.mean)
        inverse = _inverse(totals, belief)
        second = Second(
            task, belief.mean.copy(), product(np.ascontiguousarray(inverse.T), direction), centred, float(E)
        )
        spread: Spread = self._pass(second, "errors")
        clusters = max(spread.numbers[1], 1.0)
        finite = clusters / max(clusters - 1.0, 1.0)
        meat = finite * spread.meat
        found = Evaluation(
            task.kernel, task.likelihood.noise_variance, task.basis.Z, growth="streaming",
            noise="correlated" if task.likelihood.correlated else "iid", prior_mean=self.prior_mean,
        )  # fmt: skip
        found._belief = belief
        found._history.newest[-1] = totals.counts[0]
        found._spread = product(product(inverse, meat + np.eye(len(meat))), np.ascontiguousarray(inverse.T))
        found.gamma = self.gamma
        covariance = float(direction @ product(belief.covariance, direction))
        found._value = Value(
            mean=self.prior_mean + centred,
            standard_error=math.sqrt(finite * spread.numbers[0] + float(second.direction @ second.direction)),
            posterior_std=math.sqrt(max(covariance, 0.0)),
            initial_states=int(totals.counts[1]),
            transitions=int(totals.counts[0]),
            left_out=int(totals.counts[2]),
            clusters=int(clusters),
        )
        return found


@dataclass(frozen=True)
class Reader:
    """Reads a partition; picklable, for engines elsewhere."""

    dataset: Dataset
    gamma: float
    target_policy: Any

    def __call__(self, partition: Any) -> Any:
        return self.dataset.blocks(partition, gamma=self.gamma, target_policy=self.target_policy)


def _inverse(totals: Totals, belief: Belief) -> Array:
    """G: R, or for the fixed point (I + Σ bφψᵀ)⁻¹."""
    if isinstance(totals.statistics, FixedPoint):
        return np.asarray(np.linalg.inv(np.eye(belief.size) + totals.statistics.cross), dtype=np.float64)
    return belief.covariance


def _numbers(task: Any) -> list[Any]:
    """All numbers on which a task's sums depend."""
    if isinstance(task, Second):
        return [*_numbers(task.first), task.mean, task.direction, task.value, task.episodes]
    likelihood = [float(value) for value in asdict(task.likelihood).values()]
    table = task.kernel.table(task.pseudo_inputs.shape[1]) if isinstance(task.kernel, Kernel) else ()
    return [task.pseudo_inputs, likelihood, float(task.fixed_point), *table]


def _fingerprint(value: Any) -> str:
    """Equal for objects that went equal through pickle; of one that cannot, no two are equal."""
    if isinstance(value, Kernel):
        return repr(value)
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # whatever an object of the user's own raises
        return secrets.token_hex(16)


@dataclass
class _Learner:
    """Kernel, noise and pseudo-inputs from a sample of the table."""

    evaluator: _Evaluator
    t: Transitions
    correlated: bool
    fixed_point: bool

    def model(self, kernel: Any, noise_variance: Any) -> SparseGPSarsa:
        """A model with what was given, and the rest learnt."""
        t, given = self.t, kernel
        unit = max(float(np.std(t.rewards)), float(np.abs(t.rewards).mean()), 1e-12)
        if kernel is None:
            kernel = self._kernel((unit / max(1.0 - self.evaluator.gamma, 0.05)) ** 2)
        start = unit**2 if noise_variance is None else check.positive(noise_variance, "noise_variance")
        names = [] if given is not None else list(kernel.parameters)
        names += [] if noise_variance is not None else ["noise_variance"]
        model = self._at(kernel, start, t)
        if not names:
            return model
        bounds = {} if given is not None else self._bounds(kernel)
        search = Search(
            pseudo_inputs=False, hyperparameters=names, bounds=bounds, max_iterations=LEARN_STEPS, quiet=True
        )
        for _ in range(ROUNDS if self.fixed_point else 1):
            rows = self._targets(model) if self.fixed_point else t
            found, report = model._search(rows, search)
            if report.interrupted:
                raise KeyboardInterrupt
            model = self._at(found.kernel, found.noise_variance, t)
        return model

    def _kernel(self, variance: float) -> Kernel:
        t, columns = self.t, self.evaluator.dataset.observation_columns
        width = np.ptp(np.vstack([t.inputs, t.next_inputs]), axis=0)
        width[width == 0.0] = 1.0
        discrete = self.evaluator.dataset.discrete_action
        numbers = list(range(columns if discrete else t.columns))
        parts: list[Kernel] = [Matern52(UNIT_LENGTHSCALE * width[numbers], variance, numbers)]
        if discrete:
            parts += [Delta(column, share=0.5) for column in range(columns, t.columns)]
        return parts[0] if len(parts) == 1 else Product(*parts)

    def _bounds(self, kernel: Kernel) -> dict[str, Any]:
        """Lengthscales within LENGTHSCALES times the start; beyond, variance and lengthscales run away together."""
        low, high = LENGTHSCALES
        return {
            name: (low * np.asarray(value), high * np.asarray(value))
            for name, value in kernel.parameters.items()
            if name.endswith("lengthscales")
        }

    def _at(self, kernel: Any, noise_variance: float, t: Transitions) -> SparseGPSarsa:
        Z = t.inputs[pivots(kernel, t._arrays[0], LEARN_WITH, NOVEL)]
        return SparseGPSarsa(
            kernel, noise_variance, Z, growth="streaming",
            weights="dtc" if self.correlated else "fitc",
            noise="correlated" if self.correlated else "iid", prior_mean=self.evaluator.prior_mean,
        )  # fmt: skip

    def _targets(self, model: SparseGPSarsa) -> Transitions:
        """The regression of which the fixed point is made: r + γQ(x′), without a next input."""
        t, basis = self.t, model._basis
        belief = FixedPoint.from_block(basis, t, model._likelihood).posterior(model._likelihood)
        ahead = product(np.ascontiguousarray(basis.whiten(basis.kernel_rows(t._arrays[2]))), belief.mean)
        targets = t.rewards + t.discounts * (ahead + model.prior_mean)
        return Transitions(t.inputs, targets, t.inputs, np.zeros(len(t)), np.ones(len(t), dtype=np.bool_))

    def pseudo_inputs(self, kernel: Any, wanted: Any) -> Array:
        """Those given, or so many among the inputs of the sample."""
        if np.ndim(wanted) == 0:
            count = check.count(wanted, "pseudo_inputs")
            if count == 0:
                raise ValueError("pseudo_inputs = 0; expected 1 or more, or an array of them")
            X = np.unique(np.vstack([self.t.inputs, self.t.next_inputs]), axis=0)
            X = X[self.evaluator.rng.permutation(len(X))[:8_000]]
            return X[pivots(kernel, X, count, NOVEL)]
        Z = check.rows(wanted, "pseudo_inputs", self.t.columns)
        admitted = Basis.spanned_by(kernel, Z)[1]
        return Z[admitted]
