"""Where pseudo-inputs come and go.

A strategy answers two questions. Offline, `choose(transitions, count, kernel, noise_variance)`: which
`count` of the inputs visited support the posterior best? Online, `admits(situation)`: should the
input just visited become a pseudo-input? Any object with these two methods is a strategy.

| strategy | offline | online |
|---|---|---|
| `Novelty` | the first inputs whose conditional variance ρ exceeds a share ν of their own | ρ > ν k(x, x) |
| `Greedy` | the input of largest ρ, again and again (pivoted Cholesky) | as `Novelty` |
| `EvidenceGain` | the input that raises the variational bound most | by the information it would bring |
| `KMeansPlusPlus` | at random, by the squared distance to those chosen | likewise |
| `Random` | at random | at random |

A drop rule answers `rule(basis, belief)`: the place of the least useful pseudo-input. DROP_RULES has
`variance` (the one that the others determine best), `information` (the one whose loss changes the
posterior least) and `oldest`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gpsarsa import _validation as check
from gpsarsa._validation import Array
from gpsarsa.basis import NOVELTY, Basis, pivots
from gpsarsa.belief import Belief
from gpsarsa.kernels import KernelLike, checked_kernel, diagonal, matrix
from gpsarsa.transitions import Transitions

__all__ = ["DROP_RULES", "STRATEGIES", "EvidenceGain", "Greedy", "KMeansPlusPlus", "Novelty", "Placement"]
__all__ += ["Random", "Situation", "determined"]

LEAST_NOVELTY = 1e-6  # inputs of less do not become pseudo-inputs, whatever the threshold

MOST_REDUNDANCY = 1e9  # a pseudo-input whose prior variance is more than this times what others leave goes

CANDIDATES = 20_000  # of more inputs than this, that many at random are considered


@dataclass(frozen=True)
class Situation:
    """What an online strategy decides from: the model's basis and σ², and the transition at hand."""

    basis: Basis
    noise_variance: float
    x: Array
    x_next: Array
    discount: float
    rng: np.random.Generator

    @cached_property
    def conditional(self) -> tuple[Array, float, float]:
        """ℓ = W k(Z, x), ρ = k(x, x) − ℓᵀℓ and k(x, x)."""
        return self.basis.conditional(self.x)

    @property
    def novelty(self) -> float:
        """ρ/k(x, x): the share of Q(x)'s prior variance that the pseudo-inputs leave."""
        _, rho, prior = self.conditional
        return rho / prior if prior > 0.0 else 0.0


@runtime_checkable
class Placement(Protocol):
    """A strategy for placing pseudo-inputs."""

    def choose(
        self, transitions: Transitions, count: int, kernel: KernelLike, noise_variance: float, rng: Any = None
    ) -> Array:
        """At most `count` of the inputs visited, as rows, all different."""

    def admits(self, situation: Situation) -> bool:
        """Whether the input just visited should become a pseudo-input."""


@dataclass(frozen=True)
class _Task:
    """Choose `count` of the rows of X to support transitions t."""

    X: Array
    t: Transitions
    count: int
    kernel: KernelLike
    sigma2: float
    rng: np.random.Generator


def _store(strategy: Any, name: str, checked: Callable[[Any, str], Any]) -> Any:
    """Check a field of a frozen strategy, and keep it as the plain number that files can hold."""
    value = checked(getattr(strategy, name), name)
    object.__setattr__(strategy, name, value)
    return value


class _Strategy:
    def choose(
        self, transitions: Transitions, count: int, kernel: KernelLike, noise_variance: float, rng: Any = None
    ) -> Array:
        """At most `count` of the inputs visited, as rows, all different."""
        if not isinstance(transitions, Transitions):
            raise TypeError(f"transitions is a {type(transitions).__name__}; expected Transitions")
        if len(transitions) == 0:
            raise ValueError("transitions is empty; pseudo-inputs are chosen among the inputs visited")
        generator = check.generator(rng, "rng")
        X = _candidates(transitions, generator)
        most, sigma2 = min(check.count(count, "count"), len(X)), check.noise_variance(noise_variance)
        kernel = checked_kernel(kernel)
        return X[self._choose(_Task(X, transitions, most, kernel, sigma2, generator))]

    def _choose(self, task: _Task) -> list[int]:
        raise NotImplementedError


def _candidates(t: Transitions, rng: np.random.Generator) -> Array:
    """The distinct inputs visited, in order of their first visit."""
    both = np.empty((2 * len(t), t.columns))
    both[0::2], both[1::2] = t.inputs, t.next_inputs
    _, first = np.unique(both, axis=0, return_index=True)
    if len(first) > CANDIDATES:
        first = rng.choice(first, CANDIDATES, replace=False)
    return both[np.sort(first)]


@dataclass(frozen=True)
class Novelty(_Strategy):
    """Approximate linear dependence (Engel, Mannor and Meir 2004): ρ above a share of k(x, x)."""

    threshold: float = 0.001

    def __post_init__(self) -> None:
        _store(self, "threshold", check.fraction)

    def _choose(self, task: _Task) -> list[int]:
        X, chosen = task.X, list[int]()
        basis = Basis(task.kernel, X.shape[1])
        for i in range(len(X)):
            if len(chosen) >= task.count:
                break
            situation = Situation(basis, task.sigma2, X[i], X[i], 0.0, task.rng)
            if self.admits(situation) and basis.append(X[i : i + 1])[0]:
                chosen.append(i)
                while (least := determined(basis)) is not None:
                    basis.remove(least)
                    del chosen[least]
        return chosen

    def admits(self, situation: Situation) -> bool:
        return situation.novelty > max(self.threshold, LEAST_NOVELTY)


@dataclass(frozen=True)
class Greedy(Novelty):
    """The input of largest conditional variance, again and again: pivoted Cholesky of K_xx."""

    def _choose(self, task: _Task) -> list[int]:
        return pivots(task.kernel, task.X, task.count)


@dataclass(frozen=True)
class EvidenceGain(_Strategy):
    """Offline the input, out of a random `pool`, that raises the variational bound most:

        ½ log ω + ½ ω (v − sᵀm)² + Σ η²/2σ²,   ω = 1/(1 + Σ η²/σ² − sᵀRs),

    with η the transitions' new feature, s = Σ ψη/σ², v = Σ ηr/σ². Online, for z = x, the information
    in nats that this transition's reward would bring through z, ½ log((σ² + τ)/(σ² + τ − η²)), which
    must exceed `threshold`.
    """

    threshold: float = 0.01
    pool: int = 32
    rows: int = field(default=5_000)  # of more transitions, that many at random are considered

    def __post_init__(self) -> None:
        if _store(self, "threshold", check.number) < 0:
            raise ValueError(f"threshold = {self.threshold}; expected 0 or more")
        for name in ("pool", "rows"):
            _store(self, name, check.at_least_one)

    def _choose(self, task: _Task) -> list[int]:
        X, t, kernel, sigma2, rng = task.X, task.t, task.kernel, task.sigma2, task.rng
        if len(t) > self.rows:
            t = t[np.sort(rng.choice(len(t), self.rows, replace=False))]
        inputs, rewards, following, gamma, _ = t._arrays
        basis, belief = Basis(kernel, t.columns), Belief()
        Psi, chosen = np.empty((len(t), task.count)), list[int]()
        left = np.ones(len(X), dtype=np.bool_)
        while len(chosen) < task.count and left.any():
            M = basis.size
            free = np.flatnonzero(left)
            pool = rng.choice(free, min(self.pool, len(free)), replace=False)
            ell = basis.whiten(basis.kernel_rows(X[pool]))
            prior = diagonal(kernel, X[pool])
            rho = prior - np.einsum("ij,ij->i", ell, ell)
            useful = rho > 10.0 * NOVELTY * prior
            left[pool[~useful]] = False  # determined for ever
            pool, ell, rho = pool[useful], ell[useful], rho[useful]
            if len(pool) == 0:
                continue
            delta = matrix(kernel, inputs, X[pool]) - gamma[:, None] * matrix(kernel, following, X[pool])
            eta = (delta - Psi[:, :M] @ ell.T) / np.sqrt(rho)
            cross = Psi[:, :M].T @ eta / sigma2
            power = np.einsum("ij,ij->j", eta, eta) / sigma2
            gain = belief.border_gains(cross, 1.0 + power, rewards @ eta / sigma2) + 0.5 * power
            best = int(np.argmax(gain))
            left[pool[best]] = False
            if not basis.append(X[pool[best]][None])[0]:
                continue
            belief.border(
                cross[:, [best]], np.array([[1.0 + power[best]]]), rewards @ eta[:, [best]] / sigma2
            )
            Psi[:, M] = eta[:, best]
            chosen.append(int(pool[best]))
        return chosen

    def admits(self, situation: Situation) -> bool:
        basis, x, sigma2 = situation.basis, situation.x[None], situation.noise_variance
        gamma = np.array([situation.discount])
        delta, kappa = basis.differences(x, situation.x_next[None], gamma)
        psi = basis.whiten(delta)[0]
        ell, rho, prior = situation.conditional
        if rho <= LEAST_NOVELTY * prior:
            return False
        ahead = float(matrix(basis.kernel, x, situation.x_next[None])[0, 0]) if situation.discount else 0.0
        eta2 = (prior - situation.discount * ahead - float(ell @ psi)) ** 2 / rho
        noise = sigma2 + max(float(kappa[0]) - float(psi @ psi), eta2)
        return -0.5 * math.log1p(-eta2 / noise) > self.threshold


@dataclass(frozen=True)
class KMeansPlusPlus(_Strategy):
    """k-means++ seeding (Arthur and Vassilvitskii 2007) in the kernel's own distance.

    d²(x) = min over z of k(x, x) + k(z, z) − 2k(x, z); the next input is drawn with probability ∝ d².
    Online an input is admitted with probability `rate` · d²/(k(x, x) + k(z, z)).
    """

    rate: float = 0.1

    def __post_init__(self) -> None:
        _store(self, "rate", check.fraction)

    def _choose(self, task: _Task) -> list[int]:
        X, kernel, rng, chosen = task.X, task.kernel, task.rng, list[int]()
        prior = diagonal(kernel, X)
        distance = prior.copy()
        for _ in range(task.count):
            total = float(distance.sum())
            if total <= 10.0 * NOVELTY * float(prior.sum()):
                break
            new = int(rng.choice(len(X), p=distance / total))
            apart = prior + prior[new] - 2.0 * matrix(kernel, X[new : new + 1], X)[0]
            distance = np.minimum(distance, np.maximum(apart, 0.0)) if chosen else np.maximum(apart, 0.0)
            distance[new] = 0.0
            chosen.append(new)
        return chosen

    def admits(self, situation: Situation) -> bool:
        basis, x = situation.basis, situation.x[None]
        if basis.size == 0:
            return True
        prior = diagonal(basis.kernel, x)[0] + basis.variances
        share = 1.0 - 2.0 * basis.kernel_rows(x)[0] / np.maximum(prior, np.finfo(float).tiny)
        return bool(situation.rng.random() < self.rate * max(float(share.min()), 0.0))


@dataclass(frozen=True)
class Random(_Strategy):
    """Inputs visited, uniformly at random; online each with probability `rate`."""

    rate: float = 0.1

    def __post_init__(self) -> None:
        _store(self, "rate", check.fraction)

    def _choose(self, task: _Task) -> list[int]:
        return task.rng.choice(len(task.X), task.count, replace=False).tolist()

    def admits(self, situation: Situation) -> bool:
        return situation.basis.size == 0 or bool(situation.rng.random() < self.rate)


STRATEGIES = {
    strategy.__name__: strategy for strategy in (Novelty, Greedy, EvidenceGain, KMeansPlusPlus, Random)
}


# -- which one to drop ------------------------------------------------------------------------


def least_variance(basis: Basis, belief: Belief) -> int:
    """The pseudo-input that the others determine best: least conditional variance 1/A_ii of its own.

    Dropping it loses least of the variance that the pseudo-inputs explain.
    """
    return int(np.argmax(basis.redundancy))


def least_information(basis: Basis, belief: Belief) -> int:
    """The pseudo-input whose loss changes the posterior least.

    Dropping z_i replaces q(u_i | the others) by the prior's p(u_i | the others). The divergence
    KL(before ‖ after) is ½ (log(s_i/A_ii) − 1 + (C_ii + α_i²)/A_ii) with s = diag(WᵀR⁻¹W), the
    posterior precision; C, A and α are the paper's.
    """
    W = basis.factor
    posterior = belief.precisions(W)
    if posterior is None:  # R has lost its definiteness to rounding: judge by the prior
        return least_variance(basis, belief)
    prior, C = np.einsum("ij,ij->j", W, W), np.einsum("ij,ij->j", W, belief.covariance @ W)
    loss = np.log(posterior / prior) - 1.0 + (C + basis.unwhiten(belief.mean) ** 2) / prior
    return int(np.argmin(loss))


def would_go_at_once(situation: Situation) -> bool:
    """Whether x, once a pseudo-input, would be the one with the least conditional variance.

    With g = K⁻¹k(Z, x) and ρ the conditional variance of x, adding x makes 1/A_ii of the others
    1/(A_ii + g_i²/ρ) and is itself left with ρ.
    """
    basis = situation.basis
    ell, rho, prior = situation.conditional
    if rho <= 0.0:
        return True
    g = basis.unwhiten(ell)
    return bool(prior / rho >= float((basis.redundancy + g * g / rho * basis.variances).max()))


def determined(basis: Basis) -> int | None:
    """The pseudo-input that later ones have come to determine, if there is one.

    Each was novel when it came; together they may still make K_zz nearly singular.
    """
    redundancy = basis.redundancy
    return int(np.argmax(redundancy)) if np.max(redundancy, initial=0.0) > MOST_REDUNDANCY else None


def oldest(basis: Basis, belief: Belief) -> int:
    """The pseudo-input that has been there longest."""
    return 0


DropRule = Callable[[Basis, Belief], int]

DROP_RULES: dict[str, DropRule] = {
    "variance": least_variance,
    "information": least_information,
    "oldest": oldest,
}
