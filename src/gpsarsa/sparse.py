"""SPGP-SARSA: a posterior over Q through M pseudo-inputs, in batch or one transition at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa._estimator import NEEDS_NEXT, Estimator, Function, check_transitions
from gpsarsa._linalg import blocked
from gpsarsa._moments import FEW, moments, slopes
from gpsarsa._pullback import scratch_for
from gpsarsa._step import FULL, absorb, absorb_one, absorb_transitions, explain, explain_row
from gpsarsa._validation import Array
from gpsarsa.basis import Basis
from gpsarsa.belief import CARRY_VARIANCE, DONE, Belief
from gpsarsa.draws import per_function, prior_draw
from gpsarsa.evidence import Gradient, sparse_evidence
from gpsarsa.kernels import KernelLike
from gpsarsa.optimization import Bounds, Optimization, Parameters, Search, maximise
from gpsarsa.statistics import Likelihood, Refused, Statistics, border_terms
from gpsarsa.transitions import History, Transitions

__all__ = ["SparseGPSarsa"]

DOUBLE = np.dtype(np.float64)


class SparseGPSarsa(Estimator):
    """Sparse pseudo-input Gaussian-process SARSA.

    Parameters
    ----------
    kernel : Kernel or KernelLike
        How alike two state-action pairs are: one of `gpsarsa.kernels`, or any object with
        `__call__(A, B)` and `diag(A)`.
    noise_variance : float
        σ² of the reward noise.
    pseudo_inputs : (M, d) array
        Where the posterior is supported; (0, d) starts with none. One that the others determine
        already is left out with a warning.
    growth : {"exact", "frozen", "streaming"}
        What adding or removing pseudo-inputs means for the transitions seen before.

        - "exact": the posterior that today's pseudo-inputs would have given from the start. Keeps
          the transitions; O(NM²) a change.
        - "frozen": likewise, but each transition keeps the weight b it had on arrival (the paper's
          recursion). Keeps the transitions; O(NM + M²) to add.
        - "streaming": acts on the posterior alone: adding leaves every prediction as it is,
          removing is the exact marginal. Keeps no transitions; O(M²) a change.
    weights : {"fitc", "dtc"}
        Whether the noise includes what the pseudo-inputs cannot explain (FITC, the paper's SPGP) or
        not (DTC; with "streaming" growth Engel's sparse online GPTD).
    noise : {"iid", "correlated"}
        "iid" is right for deterministic transitions, "correlated" (ε = e − γe′) for stochastic ones.
    prior_mean : float
        Q's mean before any data.
    forgetting : float in (0, 1]
        λ: before each transition the posterior moves back towards the prior, R ← λR + (1 − λ)I.
        1 forgets nothing.
    """

    _parameters = (
        "kernel", "noise_variance", "pseudo_inputs", "growth", "weights", "noise", "prior_mean", "forgetting",
    )  # fmt: skip
    _columns: int

    def __init__(
        self,
        kernel: KernelLike,
        noise_variance: float,
        pseudo_inputs: Any,
        *,
        growth: str = "exact",
        weights: str = "fitc",
        noise: str = "iid",
        prior_mean: float = 0.0,
        forgetting: float = 1.0,
    ) -> None:
        super().__init__(kernel, noise_variance, noise, prior_mean)
        Z = check.rows(pseudo_inputs, "pseudo_inputs")
        self._growth = check.one_of(growth, "growth", ("exact", "frozen", "streaming"))
        self._weights = check.one_of(weights, "weights", ("fitc", "dtc"))
        self._forgetting = check.fraction(forgetting, "forgetting")
        if self.forgetting == 0.0:
            raise ValueError("forgetting = 0 would keep nothing; expected a number in (0, 1]")
        if self.growth == "frozen" and self.noise == "correlated":
            raise ValueError(
                "growth='frozen' with noise='correlated' has no meaning: the weights it would freeze "
                "belong to single transitions, correlated noise to whole episodes; use 'exact' or 'streaming'"
            )
        if self.growth == "frozen" and self.forgetting < 1.0:
            raise ValueError(
                "growth='frozen' with forgetting < 1 has no meaning: a frozen posterior is a sum over "
                "transitions, a forgetting one is not; use 'exact' or 'streaming'"
            )
        self._likelihood = Likelihood(
            self.noise_variance, self.weights == "fitc", self.noise == "correlated", self.prior_mean
        )
        self._columns = Z.shape[1]
        self._shape = (self._columns,)
        basis = Basis(self.kernel, self._columns)
        admitted = basis.append(Z)
        if not admitted.all():
            refused = np.flatnonzero(~admitted)
            warnings.warn(
                f"{len(refused)} of {len(Z)} pseudo-inputs are determined by those before them and were "
                f"left out (first: row {refused[0]}); pseudo_inputs lists the admitted ones",
                stacklevel=2,
            )
        self._start_over(basis)

    def _start_over(self, basis: Basis) -> None:
        self._basis = basis
        self._belief = self._prior(basis.size)
        self._history = History(self._columns, keep=self.growth != "streaming")
        self._hot: tuple[Any, ...] | None = None  # what `observe` hands to the compiled step

    def _prior(self, size: int) -> Belief:
        belief = Belief(size)
        belief.scalars[CARRY_VARIANCE] = self.noise_variance
        return belief

    # -- learning -----------------------------------------------------------------------------

    def fit(self, transitions: Transitions) -> Self:
        """Start over from the prior and take in all transitions at once, by sums over blocks.

        Row 0 is taken as an episode's start. With forgetting, rows are taken in one by one.
        """
        t = check_transitions(transitions, self._columns)
        belief, residuals = self._posterior(self._basis, t)
        history = History(self._columns, keep=self.growth != "streaming")
        history.append(t, residuals)
        self.__dict__.update(_belief=belief, _history=history, _hot=None)  # at once: nothing comes between
        return self

    def update(self, transitions: Transitions) -> Self:
        """Take in transitions one after another, on top of what was learnt before.

        All rows or, where one is refused, none. A first row with `starts` False continues the
        transition before it.
        """
        t = check_transitions(transitions, self._columns)
        if len(t) == 0:
            return self
        before = self._belief.copy()
        try:
            self._history.append(t, self._absorb(self._basis, self._belief, t))
        except BaseException:
            self._belief = before
            raise
        finally:
            self._hot = None  # the belief or the history may be another
        return self

    def observe(self, x: Any, reward: float, x_next: Any, discount: float, start: bool | None = None) -> Self:
        """Take in one transition, O(M²).

        `discount` is 0 where the episode terminated; `x_next` is then ignored and may be None.
        `start` says whether an episode begins; by default it does unless `x` is the last `x_next`.
        Without any pseudo-inputs the posterior stays the prior, and with `streaming` growth the
        transition is gone.
        """
        if self._hot is None:
            basis = self._basis
            if basis.table is None:
                return super().observe(x, reward, x_next, discount, start)
            state = self._compiled_state(basis, self._belief)
            self._hot = (*basis.table, basis.Zt, *state, self._history.newest, self._history.records)
        x = self._ready(x, "x")
        if type(reward) is not float:
            reward = check.number(reward, "reward")
        if type(discount) is not float:
            discount = check.discount(discount, "discount")
        if discount == 0.0:
            x_next = x
        elif x_next is None:
            raise ValueError(NEEDS_NEXT.format(check.discount(discount, "discount")))
        else:
            x_next = self._ready(x_next, "x_next")
        begins = -1 if start is None else int(check.flag(start, "start"))
        answer = absorb_one(*self._hot, x, reward, x_next, discount, begins)
        if answer == FULL:
            self._history.reserve(self._history.count + 1)
            self._hot = None
            return self.observe(x, reward, x_next, discount, start)
        if answer != DONE:
            explain(answer, "", {"x": x, "reward": reward, "x_next": x_next, "discount": discount})
        return self

    def _compiled_state(self, basis: Basis, belief: Belief) -> tuple[Any, ...]:
        """What the compiled loops work on; valid until the basis or the belief grows or is replaced."""
        likelihood = self._likelihood
        settings = np.array(
            [
                likelihood.noise_variance,
                likelihood.prior_mean,
                likelihood.fitc,
                likelihood.correlated,
                self.forgetting,
                basis.rounding,
                basis.scale,
            ]
        )
        return basis.W, belief.m, belief.R, belief.c, belief.scalars, settings, basis.size

    def _ready(self, x: Any, name: str) -> Array:
        """x as the compiled step takes it, which also checks that it is finite."""
        if type(x) is np.ndarray and x.dtype is DOUBLE and x.shape == self._shape and x.flags.carray:
            return x
        return check.vector(x, name, self._columns).copy()

    def _posterior(
        self, basis: Basis, t: Transitions, residuals: Array | None = None
    ) -> tuple[Belief, Array]:
        """The belief after nothing but these transitions, and their τ (or the ones given)."""
        if self.forgetting < 1.0:
            belief = self._prior(basis.size)
            return belief, self._absorb(basis, belief, t)
        statistics = Statistics(basis.size)
        try:
            taus = statistics.accumulate(basis, t, self._likelihood, residuals)
        except Refused as refused:
            explain_row(refused.answer, refused.row, t)
        belief = statistics.posterior(self._likelihood)
        if not np.isfinite(belief.scalars).all() or not np.isfinite(belief.mean).all():
            raise ValueError("the rewards overflow the posterior; rescale them")
        return belief, taus

    def _absorb(self, basis: Basis, belief: Belief, t: Transitions) -> Array:
        """Condition a belief on transitions row by row; returns their τ."""
        X, rewards, following, gamma, starts = t._arrays
        residuals = np.empty(len(t))
        state = self._compiled_state(basis, belief)
        if basis.table is not None:
            answer, row = absorb_transitions(
                *basis.table, basis.Zt, *state, X, rewards, following, gamma, starts, residuals
            )
            if answer != DONE:
                explain_row(answer, row, t)
            return residuals
        for block, delta, kappa in basis.differences_by_block(X, following, gamma):
            padded = np.zeros((len(delta), blocked(basis.size)))
            padded[:, : basis.size] = delta
            scratch = np.zeros((len(delta) + 2, padded.shape[1]))
            rows = rewards[block], gamma[block], starts[block], residuals[block]
            answer, row = absorb(*state, padded, kappa, *rows, scratch)
            if answer != DONE:
                explain_row(answer, block.start + row, t)
        return residuals

    # -- pseudo-inputs ------------------------------------------------------------------------

    def add_pseudo_inputs(self, Z: Any) -> NDArray[np.bool_]:
        """Admit more pseudo-inputs; what that means for the past is the `growth`.

        Returns a mask of those admitted: one that the others determine already (conditional
        variance below 1e-10 of its own) is refused.
        """
        Z = check.rows(Z, "Z", self._columns)
        basis, belief, old = self._basis, self._belief, self._basis.size
        self._hot = None
        belief.reserve(old + len(Z))  # whatever happens next, no loop runs beyond a buffer
        try:
            admitted = basis.append(Z)
            new = int(admitted.sum())
            if new == 0:
                return admitted
            if not self._history:
                belief.extend(new)
            elif self.growth == "frozen":
                self._belief = self._bordered(new)
            else:
                self._belief, _ = self._posterior(basis, self._history.transitions)
        except BaseException:
            basis.truncate(old)
            if self._belief is belief:
                belief.truncate(old)
            raise
        return admitted

    def _bordered(self, new: int) -> Belief:
        """The belief after the newest pseudo-inputs, each transition weighted as on arrival."""
        t, residuals = self._history.transitions, self._history.residuals
        belief = self._belief.copy()
        try:
            belief.border(*border_terms(self._basis, new, t, self._likelihood, residuals))
        except ArithmeticError:  # digits lost in the border: from the start instead
            belief, _ = self._posterior(self._basis, t, residuals)
        return belief

    def remove_pseudo_inputs(self, indices: Any) -> None:
        """Drop pseudo-inputs by their places in `pseudo_inputs`; what that means is the `growth`."""
        basis, chosen = self._basis, np.atleast_1d(check.raw_array(indices, "indices"))
        if chosen.size == 0:
            return
        if chosen.dtype.kind not in "iu" or chosen.ndim != 1:
            raise TypeError(f"indices has dtype {chosen.dtype}; expected whole numbers")
        outside = (chosen < -basis.size) | (chosen >= basis.size)
        if outside.any():
            raise ValueError(f"indices holds {chosen[outside][0]}; there are {basis.size} pseudo-inputs")
        places = sorted({int(i) % basis.size for i in chosen}, reverse=True)
        if len(places) < len(chosen):
            raise ValueError(f"indices = {chosen.tolist()} names a pseudo-input twice")
        self._hot = None
        smaller, belief = basis.copy(), self._belief.copy()
        for place in places:
            belief.marginalise(place, *smaller.remove(place))
        if self._history:
            kept = self._history.residuals if self.growth == "frozen" else None
            belief, _ = self._posterior(smaller, self._history.transitions, kept)
        self._basis, self._belief = smaller, belief

    def move_pseudo_inputs(self, Z: Any) -> None:
        """Put these pseudo-inputs in the place of the present ones; what that means is the `growth`.

        With "streaming" growth they take over what the posterior knows about Q there, as if they were
        added before the old ones are removed. One that the others determine is left out.
        """
        Z = check.rows(Z, "Z", self._columns)
        moved = Basis(self.kernel, self._columns)
        moved.append(Z)
        if self._history:
            kept = self._history.residuals if self.growth == "frozen" else None
            belief, _ = self._posterior(moved, self._history.transitions, kept)
        elif self.n_transitions:
            belief = self._belief.projected(moved.projection(self._basis))
        else:
            belief = self._prior(moved.size)
        self._basis, self._belief, self._hot = moved, belief, None

    def optimize(
        self,
        transitions: Transitions | None = None,
        pseudo_inputs: bool = True,
        hyperparameters: bool | Iterable[str] = True,
        prior_mean: bool = False,
        *,
        objective: str = "evidence",
        bounds: Bounds | None = None,
        max_iterations: int = 100,
        restarts: int = 0,
        seed: Any = None,
        progress_bar: bool = False,
        refit_on: Transitions | None = None,
    ) -> Optimization:
        """Learn pseudo-inputs and hyperparameters by maximising the log evidence, then `fit`.

        The objective never ends lower than it started, unless `bounds` exclude the start. Columns
        that a Delta compares stay as they are. Ctrl-C leaves the model at the last accepted step. The
        evidence is that of a model which forgets nothing, whatever `forgetting` is.

        Parameters
        ----------
        transitions : Transitions, optional
            What to learn from; by default the transitions kept.
        pseudo_inputs : bool
            Whether to move Z.
        hyperparameters : bool or names
            Whether to learn the kernel's parameters and the noise variance, or which of them.
        prior_mean : bool
            Whether to learn μ₀ too.
        objective : {"evidence", "variational"}
            The model's own log evidence, or Titsias' lower bound on the exact model's, under which
            pseudo-inputs keep covering the data where FITC's evidence may gather them in a few places.
        bounds : dict of (low, high), optional
            By name: a kernel parameter, "noise_variance", "prior_mean", "pseudo_inputs" (one number a
            column). By default Z stays in the data's bounding box, enlarged by 5 % on each side, and
            hyperparameters within several orders of magnitude.
        max_iterations : int
            Of each climb.
        restarts : int
            How many more climbs, from randomly perturbed starts; the best of all is taken. `seed`
            makes them repeatable.
        progress_bar : bool
        refit_on : Transitions, optional
            What to `fit` afterwards; by default `transitions`.

        Returns
        -------
        Optimization
            start, end, iterations, evaluations, reason, converged and the trace of the objective.
        """
        search = Search(
            pseudo_inputs, hyperparameters, prior_mean, objective, bounds, max_iterations, restarts, seed,
            progress_bar,
        )  # fmt: skip
        return self._optimize(transitions, search, refit_on)

    def _search(self, t: Transitions, search: Search) -> tuple[Parameters, Optimization]:
        def evaluate(p: Parameters) -> tuple[float, Gradient]:
            likelihood = replace(self._likelihood, noise_variance=p.noise_variance, prior_mean=p.prior_mean)
            return sparse_evidence(
                p.kernel, p.pseudo_inputs, t, likelihood, search.objective == "variational"
            )

        found, report = maximise(evaluate, self._start(self.pseudo_inputs), t, search)
        admitted = Basis(found.kernel, self._columns).append(found.pseudo_inputs)
        merged = int((~admitted).sum())
        return replace(found, pseudo_inputs=found.pseudo_inputs[admitted]), replace(report, merged=merged)

    def _tuned(
        self, t: Transitions, names: list[str], bounds: Bounds, steps: int
    ) -> tuple[Parameters, Optimization]:
        """Hyperparameters by the evidence, the pseudo-inputs where they are; an interruption goes on."""
        found, report = self._search(
            t, Search(False, hyperparameters=names, bounds=bounds, max_iterations=steps, quiet=True)
        )
        if report.interrupted:
            raise KeyboardInterrupt
        return found, report

    def _become(self, found: Parameters, rows: Transitions) -> None:
        options = {name: getattr(self, name) for name in self._parameters[3:]}
        options["prior_mean"] = found.prior_mean
        other = SparseGPSarsa(found.kernel, found.noise_variance, found.pseudo_inputs, **options)
        self.__dict__.update(other.fit(rows).__dict__)

    def copy(self) -> Self:
        """The same model, which goes its own way from here."""
        other = object.__new__(type(self))
        history = History.restored(
            self._columns, self._history.newest, self._history.kept if self._history.keep else None
        )
        other.__dict__.update(
            self.__dict__, _basis=self._basis.copy(), _belief=self._belief.copy(), _history=history, _hot=None
        )
        return other

    # -- the posterior ------------------------------------------------------------------------

    def _moments(self, X: Array, with_variance: bool) -> tuple[Array, Array]:
        basis, belief = self._basis, self._belief
        mean, variance = np.empty(len(X)), np.empty(len(X))
        if basis.table is not None and len(X) <= FEW:
            state = basis.Zt, basis.W, belief.m, belief.R, basis.size
            if moments(*basis.table, *state, X, with_variance, basis.rounding, mean, variance) < 0:
                return mean, variance
        for block in basis.blocks(len(X)):
            Psi = basis.whiten(basis.kernel_rows(X[block]))
            mean[block] = Psi @ belief.mean
            if with_variance:
                variance[block] = basis.unexplained(X[block], Psi, block.start) + belief.variances(Psi)
        return mean, variance

    def _slopes(self, X: Array, bonus: float) -> Array:
        """∂/∂x (mean + bonus · standard deviation) at each row, for a kernel of this package."""
        basis, belief, slope = self._basis, self._belief, np.empty(X.shape)
        if basis.table is None:
            raise TypeError(f"{basis.kernel!r} has no derivatives here; use a kernel of gpsarsa.kernels")
        state = basis.Zt, basis.W, belief.m, belief.R, basis.size
        slopes(*basis.table, *state, X, bonus, scratch_for(basis.table, basis.size), slope)
        return slope

    def _covariance(self, X: Array) -> tuple[Array, Array]:
        basis, belief = self._basis, self._belief
        Psi = basis.whiten(basis.kernel_rows(X))
        return Psi @ belief.mean, basis.unexplained_covariance(X, Psi) + belief.covariances(Psi)

    def sample(self, n: int, rng: Any = None) -> list[Function]:
        """n whole functions X → values drawn from the posterior over Q.

        Each is the same function at every later call and has the posterior's covariance
        everywhere, away from the pseudo-inputs too: f(x) = f̃(x) + ψ(x)ᵀ(w − W f̃(Z)) with f̃ drawn
        from the prior and w from N(m, R). `rng` is a seed or a numpy Generator.
        """
        count, rng = check.count(n, "n"), check.generator(rng, "rng")
        basis = self._basis.copy()  # the functions outlive later changes of the model
        w = self._belief.draws(count, rng)
        return [self._draw(basis, w[:, i], own) for i, own in enumerate(per_function(count, rng))]

    def _draw(self, basis: Basis, w: Array, rng: np.random.Generator) -> Function:
        prior = prior_draw(self.kernel, self._columns, rng)
        shift = w - basis.whiten(prior(basis.Z)[None])[0]
        return self._function(lambda X: prior(X) + basis.whiten(basis.kernel_rows(X)) @ shift)

    def log_evidence(self) -> float:
        """log p(rewards) under the model.

        With `streaming` growth it is the sum of the one-step predictive densities as they were.
        """
        return self._belief.log_evidence

    @property
    def growth(self) -> str:
        """What changing the pseudo-inputs means for the past: "exact", "frozen" or "streaming"."""
        return self._growth

    @property
    def weights(self) -> str:
        """The weights of transitions: "fitc" or "dtc"."""
        return self._weights

    @property
    def forgetting(self) -> float:
        """λ; 1 forgets nothing."""
        return self._forgetting

    @property
    def pseudo_inputs(self) -> Array:
        """The (M, d) pseudo-inputs in use."""
        return self._basis.Z.copy()

    @property
    def alpha(self) -> Array:
        """The paper's α = Wᵀm: the posterior mean is k(x, Z) α."""
        return self._basis.unwhiten(self._belief.mean)

    @property
    def A(self) -> Array:
        """The paper's A = K_zz⁻¹ = WᵀW."""
        return self._basis.A

    @property
    def C(self) -> Array:
        """The paper's C = (K_zz + K_zr B K_rz)⁻¹ = WᵀRW."""
        return self._basis.sandwich(self._belief.covariance)

    @property
    def P(self) -> Array:
        """The paper's P = A − C = Wᵀ(I − R)W, without the subtraction of two large matrices."""
        return self._basis.sandwich(np.eye(self._belief.size) - self._belief.covariance)

    # -- files --------------------------------------------------------------------------------

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        basis, belief, M = self._basis, self._belief, self._basis.size
        arrays: dict[str, NDArray[Any]] = {
            "Z": basis.Z, "W": basis.factor, "m": belief.mean, "R": belief.R[:M, :M], "c": belief.c[:M],
            "scalars": belief.scalars, "newest": self._history.newest,
        }  # fmt: skip
        if self._history.keep:
            arrays["history"] = self._history.kept
        options = {name: getattr(self, name) for name in self._parameters[3:]}
        return arrays, {"noise_variance": self.noise_variance, "options": options}

    @classmethod
    def _from_state(
        cls, kernel: KernelLike, arrays: dict[str, NDArray[Any]], content: dict[str, Any]
    ) -> Self:
        Z = check.rows(arrays["Z"], "Z")
        M, d = Z.shape
        self = cls(kernel, content["noise_variance"], Z[:0], **content["options"])
        W, R = (
            check.rows(arrays["W"].reshape(M, M or 1), "W"),
            check.rows(arrays["R"].reshape(M, M or 1), "R"),
        )
        self._basis = Basis.restored(kernel, Z, W[:, :M])
        self._belief = Belief.restored(
            check.vector(arrays["m"], "m", M), R[:, :M], check.vector(arrays["c"], "c", M),
            check.vector(arrays["scalars"], "scalars", 3),
        )  # fmt: skip
        kept = arrays["history"] if self._history.keep else None
        self._history = History.restored(d, arrays["newest"], kept)
        return self
