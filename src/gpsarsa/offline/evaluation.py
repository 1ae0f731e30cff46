"""How good is a policy, from each state, and how sure are we? From logged episodes.

    evaluation = evaluate("logs/*.parquet", gamma=0.99)
    evaluation.value, evaluation.interval(0.9)          # of the initial states
    evaluation.predict(X, return_std=True)              # a SparseGPSarsa as any other

Pseudo-inputs and hyperparameters are chosen on a sample of the table; then one exact pass over all of it
gives the posterior and a second one its standard errors. Unless another noise model is asked for, the
posterior is that of the projected fixed point, which stochastic transitions do not bias, whether the next
actions are the logged ones or a target policy's.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import secrets
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit
from threadpoolctl import threadpool_limits

from gpsarsa import _validation as check
from gpsarsa import checkpoint
from gpsarsa._linalg import product
from gpsarsa._progress import Progress
from gpsarsa._validation import Array
from gpsarsa._version import __version__
from gpsarsa.basis import Basis, pivots
from gpsarsa.kernels import Delta, Kernel, KernelLike, Matern52, Product, checked_kernel
from gpsarsa.offline.datasets import Dataset, DatasetError, open_dataset
from gpsarsa.offline.engines import Engine, Work, engine
from gpsarsa.offline.sums import First, Replicates, Resampling, Second, Spread, Totals
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.statistics import FixedPoint, Likelihood
from gpsarsa.stochasticity import looks_stochastic
from gpsarsa.transitions import Transitions

__all__ = ["Evaluation", "compare", "evaluate"]

SAMPLE = 4_000  # transitions on which pseudo-inputs and hyperparameters are chosen
LEARN_WITH, LEARN_STEPS = 100, 40  # pseudo-inputs and iterations of the evidence
METHODS = {"auto": "projected fixed point", "iid": "iid noise", "correlated": "correlated noise"}
CHANGES = (
    "fit",
    "update",
    "observe",
    "add_pseudo_inputs",
    "remove_pseudo_inputs",
    "move_pseudo_inputs",
    "optimize",
)
NOVEL = 1e-6  # pseudo-inputs leave none of which less than this share of the variance is new
UNIT_LENGTHSCALE = 0.5  # of a column's range, at first
LARGEST = 1e100  # reward, whose square and sums must be finite
BOUNDS = {"lengthscales": (0.04, 10.0), "variance": (1e-4, 1e2)}  # the least and most, in units of the first
ROUNDS = 3  # of regression and evidence, at the fixed point
TOGETHER = 25  # replicates of the bootstrap in one pass, each with a matrix of its own
FEWEST = 20  # replicates that have ends at 5 and 95 %


@dataclass(frozen=True)
class Value:
    """The mean value of the initial states, and what is known of its error."""

    mean: float
    standard_error: float  # clustered by episode; infinite where there is one episode only
    posterior_std: float  # the model's own
    initial_states: int
    transitions: int
    left_out: int
    clusters: int
    method: str  # what the mean is: "projected fixed point", "iid noise" or "correlated noise"


class Evaluation(SparseGPSarsa):
    """The posterior over a policy's Q, with standard errors clustered by episode.

    `value` is the mean value of the initial states (all states where episodes are unknown), `interval` its
    interval, `interval_at` that of Q at other inputs. It is asked as a SparseGPSarsa is, but is a result:
    more data, or other pseudo-inputs, make another evaluation.

    With G and the scores g_e of the C episodes as in `gpsarsa.offline.sums`, and w ~ N(0, I) the prior,

        Cov(m) = G (C/(C − 1) Σ g_e g_eᵀ + I) Gᵀ:

    what other episodes would have changed, and how far the prior may have pulled m from w (m has the mean
    w − Gw). Intervals take Student's quantile with C − 1 degrees of freedom.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._value: Value | None = None
        self._spread = np.zeros((self._basis.size, self._basis.size))  # Cov(m)
        self._replicates = np.empty(0)
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

    @property
    def replicates(self) -> Array:
        """The values that the bootstrap found; none where it was not asked for."""
        return self._replicates.copy()

    def interval(self, level: float = 0.9, kind: str = "clustered") -> tuple[float, float]:
        """An interval for the policy's value.

        "clustered": v̄ ± Student's quantile · `standard_error`. "posterior": the model's own credible
        interval. "bootstrap": between quantiles of the values of replicates, where `evaluate` made some.
        """
        check.one_of(kind, "kind", ("clustered", "posterior", "bootstrap"))
        found = self.summary
        if kind == "bootstrap":
            return self._between(level)
        if kind == "posterior":
            half = _quantile(level) * found.posterior_std
        else:
            half = _quantile(level, found.clusters - 1) * found.standard_error
        return found.mean - half, found.mean + half

    def _between(self, level: float) -> tuple[float, float]:
        """Quantiles of the replicates; those that drew no episode are left out."""
        _quantile(level)  # refuses what is no level
        drawn = self._replicates[np.isfinite(self._replicates)]
        if len(self._replicates) == 0:
            raise ValueError("there is no bootstrap; ask for one: evaluate(..., bootstrap=200)")
        if len(drawn) == 0:
            return -math.inf, math.inf
        low, high = np.quantile(drawn, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
        return float(low), float(high)

    def interval_at(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends for Q at the rows of X: clustered errors, and what Z leaves open."""
        X = check.rows(X, "X", self._columns)
        quantile = _quantile(level, self.summary.clusters - 1)
        basis = self._basis
        Psi = basis.whiten(basis.kernel_rows(X))
        variance = np.einsum("ij,ij->i", product(np.ascontiguousarray(Psi), self._spread), Psi)
        half = quantile * np.sqrt(np.maximum(variance, 0.0) + basis.unexplained(X, Psi))
        mean = self.predict(X)
        return mean - half, mean + half

    def log_evidence(self) -> float:
        """Of the rewards; the projected fixed point has none."""
        if self._value is not None and self._value.method == METHODS["auto"]:
            raise ValueError(
                "the projected fixed point has no evidence; evaluate(..., noise='iid') or 'correlated' have"
            )
        return super().log_evidence()

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, content = super()._state()
        value = None if self._value is None else asdict(self._value)
        if value is not None and math.isinf(value["standard_error"]):
            value["standard_error"] = None  # JSON has no infinities
        return arrays | {"spread": self._spread, "replicates": self._replicates}, content | {
            "value": value,
            "gamma": None if math.isnan(self.gamma) else self.gamma,
        }

    @classmethod
    def _from_state(
        cls, kernel: KernelLike, arrays: dict[str, NDArray[Any]], content: dict[str, Any]
    ) -> Self:
        self = super()._from_state(kernel, arrays, content)
        M = self._basis.size
        self._spread = check.rows(arrays["spread"].reshape(M, M or 1), "spread")[:, :M]
        self._replicates = np.array(arrays["replicates"], dtype=np.float64).reshape(-1)
        self._value = None if content["value"] is None else _restored_value(content["value"])
        self.gamma = math.nan if content["gamma"] is None else check.discount(content["gamma"], "gamma")
        return self


def _refused(name: str) -> Callable[..., Any]:
    def method(self: Evaluation, *arguments: Any, **options: Any) -> NoReturn:
        raise TypeError(
            f"{name} would leave this evaluation's value and intervals behind: evaluate again, or learn "
            "with a SparseGPSarsa"
        )

    method.__name__ = name
    return method


for _name in CHANGES:
    setattr(Evaluation, _name, _refused(_name))


def _restored_value(kept: dict[str, Any]) -> Value:
    """What a file says, checked; JSON has no infinities."""
    error = kept["standard_error"]
    counts = ("initial_states", "transitions", "left_out", "clusters")
    return Value(
        mean=check.number(kept["mean"], "mean"),
        posterior_std=check.number(kept["posterior_std"], "posterior_std"),
        **{name: check.count(kept[name], name) for name in counts},
        standard_error=math.inf if error is None else check.number(error, "standard_error"),
        method=check.one_of(kept["method"], "method", tuple(METHODS.values())),
    )


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
    bootstrap: int = 0,
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
    kernel : Kernel or KernelLike, optional
        Used as it is; None: learnt by the evidence on a sample.
    noise_variance : float, optional
        Likewise.
    prior_mean : float
        Q's mean before any data.
    noise : {"auto", "iid", "correlated"}
        "auto": none; the posterior of the projected fixed point, which stochastic transitions do not bias.
        "iid": the residual's posterior, for deterministic transitions. "correlated": the posterior under
        Engel's noise model with DTC weights, for stochastic ones; it needs `episode` and `step` columns and
        the logged next actions, and is biased where episodes are truncated.
    pseudo_inputs : int or (M, d) array
        How many are placed among the inputs of a sample, or which.
    target_policy : object with `predict`, optional
        Evaluate this policy instead of the one that made the log.
    bootstrap : int
        Replicates of a bootstrap over episodes: in each, every episode counts as often as a Poisson variable
        of mean 1 says, and the posterior mean is solved for anew; kernel and pseudo-inputs stay. A pass over
        the table for every 25 of them.
    engine : {"local", "ray"} or an Engine
        Where it runs.
    seed : int
        Of the sample and the bootstrap.
    work : folder, optional
        Keeps the sums of finished partitions, so that an interrupted evaluation goes on where it was.
    workers : int, optional
        Threads, or tasks of Ray, at a time; by default as many as there are cores.
    address : str, optional
        Of a Ray cluster.
    progress_bar : bool
        Whether to show progress on standard error.
    """
    dataset = open_dataset(source)
    check.one_of(noise, "noise", ("auto", "iid", "correlated"))
    if noise == "correlated" and target_policy is not None:
        raise ValueError(
            "noise = 'correlated' needs the logged next actions, not a target policy's; use noise='auto'"
        )
    if kernel is not None:
        checked_kernel(kernel)
    if work is not None:
        check.path(work, "work")
    if abs(check.number(prior_mean, "prior_mean")) > LARGEST:
        raise ValueError(f"prior_mean = {prior_mean} is too large for double precision; rescale the rewards")
    progress_bar = check.flag(progress_bar, "progress_bar")
    if 0 < check.count(bootstrap, "bootstrap") < FEWEST:
        raise ValueError(f"bootstrap = {bootstrap}; expected 0 or at least {FEWEST}, better 200")
    return _Evaluator(
        dataset, check.discount(gamma, "gamma"), check.number(prior_mean, "prior_mean"), noise,
        target_policy, bootstrap, check.generator(seed), _engine(engine, address, workers), work,
        progress_bar,
    ).run(kernel, noise_variance, pseudo_inputs)  # fmt: skip


def compare(evaluations: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """P(the row's policy is better than the column's), from values and clustered standard errors.

    With the difference d of two values, their standard errors s and t and degrees of freedom μ and ν,

        P = F(d / √(s² + t²)),     F Student's distribution with (s² + t²)² / (s⁴/μ + t⁴/ν) degrees

    of freedom (Welch). The best comes first. Evaluations are taken as independent, which overstates the
    doubt where policies are evaluated on the same log.
    """
    for name, evaluation in check.mapping(evaluations, "evaluations").items():
        if not isinstance(evaluation, Evaluation):
            raise TypeError(f"evaluations[{name!r}] is a {type(evaluation).__name__}; expected an Evaluation")
    names = sorted(evaluations, key=lambda name: -evaluations[name].value)
    return {
        one: {other: _probability(evaluations[one], evaluations[other]) for other in names if other != one}
        for one in names
    }


def _probability(one: Evaluation, other: Evaluation) -> float:
    difference = one.value - other.value
    found = [(e.standard_error**2, max(e.summary.clusters - 1, 1)) for e in (one, other)]
    variance = sum(square for square, _ in found)
    if variance == 0.0:
        return 0.5 + 0.5 * float(np.sign(difference))
    if math.isinf(variance):
        return 0.5
    freedom = 1.0 / sum((square / variance) ** 2 / degrees for square, degrees in found)
    return float(stdtr(freedom, difference / math.sqrt(variance)))


def _engine(name: Any, address: str | None, workers: int | None) -> Engine:
    return engine(name, address=address, workers=workers)


def _quantile(level: float, freedom: float = math.inf) -> float:
    """Of Student's distribution, by default the normal one, so that ± it holds `level`."""
    level = check.fraction(level, "level")
    if level in (0.0, 1.0):
        raise ValueError(f"level = {level}; expected a number between 0 and 1, such as 0.9")
    if freedom < 1:
        return math.inf
    if math.isinf(freedom):
        return NormalDist().inv_cdf(0.5 + 0.5 * level)
    return float(stdtrit(freedom, 0.5 + 0.5 * level))


@dataclass
class _Evaluator:
    """One evaluation, step by step."""

    dataset: Dataset
    gamma: float
    prior_mean: float
    noise: str
    target_policy: Any
    bootstrap: int
    rng: np.random.Generator
    engine: Engine
    work: Any
    progress_bar: bool

    def run(self, kernel: Any, noise_variance: Any, pseudo_inputs: Any) -> Evaluation:
        fixed_point, correlated = self.noise == "auto", self.noise == "correlated"
        if correlated and not self.dataset.has_episodes:
            raise DatasetError(
                "noise='correlated' needs to know which rows follow each other: the table has no columns "
                "episode and step; use noise='auto'"
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
        if self.noise == "iid" and self._looks_stochastic(t):
            warnings.warn(
                "the logged transitions look stochastic, where iid noise is biased however much data there "
                "is; use noise='auto'",
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
        return looks_stochastic(X, Y, category)

    def _pass(self, task: Any, what: str) -> Any:
        dataset = self.dataset
        description = {
            "gamma": self.gamma, "task": type(task).__name__, "version": __version__,
            "state": [np.asarray(part).tobytes().hex() for part in task.numbers],
            "objects": [_fingerprint(task.kernel), _fingerprint(self.target_policy)],
        }  # fmt: skip
        share = dataset.rows / max(len(dataset.partitions), 1)
        with Progress(what, dataset.rows, shown=self.progress_bar) as progress:
            rows = 0.0, 0.0  # of partitions done, of those whose sums were kept from before

            def done(number: int, kept: bool) -> None:
                nonlocal rows
                rows = rows[0] + share, rows[1] + share * kept
                progress(round(rows[0]), progress.pace(round(rows[0]), "rows", before=round(rows[1])))

            read = Reader(dataset, self.gamma, self.target_policy)
            return self.engine.run(
                task, dataset.partitions, read, work=Work(self.work, description), done=done
            )

    def _evaluation(self, task: First, totals: Totals) -> Evaluation:
        likelihood = task.likelihood
        belief, G = totals.statistics.posterior(likelihood), totals.statistics.inverse()
        E = max(totals.counts[1], 1.0)
        initial = totals.initial / E  # ψ̄
        centred = float(initial @ belief.mean)
        direction = product(np.ascontiguousarray(G.T), initial)
        spread: Spread = self._pass(Second(task, belief.mean.copy(), direction, centred, float(E)), "errors")
        clusters = int(spread.numbers[1])
        finite = clusters / max(clusters - 1, 1)
        found = Evaluation(
            task.kernel, likelihood.noise_variance, task.basis.Z, growth="streaming",
            weights="fitc" if likelihood.fitc else "dtc",
            noise="correlated" if likelihood.correlated else "iid", prior_mean=self.prior_mean,
        )  # fmt: skip
        found._belief = belief
        found._history.newest[-1] = totals.counts[0]
        found._spread = product(product(G, finite * spread.meat + np.eye(len(G))), np.ascontiguousarray(G.T))
        found._replicates = self._replicated(task)
        found.gamma = self.gamma
        square = finite * spread.numbers[0] + float(direction @ direction)
        found._value = Value(
            mean=self.prior_mean + centred,
            standard_error=math.sqrt(square) if clusters > 1 else math.inf,
            posterior_std=math.sqrt(max(float(initial @ product(belief.covariance, initial)), 0.0)),
            initial_states=int(totals.counts[1]),
            transitions=int(totals.counts[0]),
            left_out=int(totals.counts[2]),
            clusters=clusters,
            method=METHODS[self.noise],
        )
        return found

    def _replicated(self, task: First) -> Array:
        """The values of the bootstrap's replicates, a pass for some of them at a time."""
        seed = int(self.rng.spawn(1)[0].integers(2**62)) if self.bootstrap else 0
        values = [np.empty(0)]
        for begin in range(0, self.bootstrap, TOGETHER):
            end = min(begin + TOGETHER, self.bootstrap)
            found: Replicates = self._pass(Resampling(task, seed, begin, end), f"bootstrap {end}")
            values.append(self.prior_mean + found.values())
        return np.concatenate(values)


@dataclass(frozen=True)
class Reader:
    """Reads a partition; picklable, for engines elsewhere."""

    dataset: Dataset
    gamma: float
    target_policy: Any

    def __call__(self, partition: Any) -> Any:
        return self.dataset.blocks(partition, gamma=self.gamma, target_policy=self.target_policy)


def _fingerprint(value: Any) -> str:
    """Equal for agents that would be saved alike and for other objects that pickle alike; of one that pickle
    refuses, no two are equal."""
    if isinstance(value, Kernel):
        return repr(value)
    try:
        if callable(getattr(value, "_state", None)):
            return checkpoint.checksum(*value._state())
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
        for _ in range(ROUNDS if self.fixed_point else 1):
            rows = self._targets(model) if self.fixed_point else t
            found = model._tuned(rows, names, bounds, LEARN_STEPS)[0]
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
        """Lengthscales and variance within BOUNDS. Further out the evidence is flat in both together; they
        run away, and few pseudo-inputs are left that differ."""
        return {
            name: (low * np.asarray(value), high * np.asarray(value))
            for name, value in kernel.parameters.items()
            for ending, (low, high) in BOUNDS.items()
            if name.endswith(ending)
        }

    def _at(self, kernel: Any, noise_variance: float, t: Transitions) -> SparseGPSarsa:
        Z = t.inputs[pivots(kernel, t._arrays[0], LEARN_WITH, NOVEL)]
        return SparseGPSarsa(
            kernel, noise_variance, Z, growth="streaming",
            weights="dtc" if self.correlated else "fitc",  # FITC's τ takes the place of correlated noise
            noise="correlated" if self.correlated else "iid", prior_mean=self.evaluator.prior_mean,
        )  # fmt: skip

    def _targets(self, model: SparseGPSarsa) -> Transitions:
        """The regression of which the fixed point is made: r + γQ(x′), without a next input."""
        t, basis = self.t, model._basis
        belief = FixedPoint.from_block(basis, t, model._likelihood).posterior(model._likelihood)
        ahead = product(np.ascontiguousarray(basis.whiten(basis.kernel_rows(t._arrays[2]))), belief.mean)
        targets = t.rewards + t.discounts * (ahead + model.prior_mean)
        return Transitions._outcomes(t.inputs, targets)

    def pseudo_inputs(self, kernel: Any, wanted: Any) -> Array:
        """Those given, or so many among the inputs of the sample."""
        if check.raw_array(wanted, "pseudo_inputs").ndim == 0:
            count = check.count(wanted, "pseudo_inputs")
            if count == 0:
                raise ValueError("pseudo_inputs = 0; expected 1 or more, or an array of them")
            X = np.unique(np.vstack([self.t.inputs, self.t.next_inputs]), axis=0)
            X = X[self.evaluator.rng.permutation(len(X))[:8_000]]
            return X[pivots(kernel, X, min(count, len(X)), NOVEL)]
        Z = check.rows(wanted, "pseudo_inputs", self.t.columns)
        admitted = Basis.spanned_by(kernel, Z)[1]
        return Z[admitted]
