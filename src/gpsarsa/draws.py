"""Whole functions drawn from a Gaussian-process prior.

A draw is a callable X → values that answers the same at every later call, with the prior's
covariance k between any two inputs. Estimators turn prior draws into posterior ones by Matheron's
rule: a prior draw plus the correction that the data make to it.

Built-in kernels are drawn by random features. For a product of stationary kernels and Deltas,

    f(x) = Σ_i s_i(x) (a_i cos ωᵢᵀx + b_i sin ωᵢᵀx),   a_i, b_i ~ N(0, variance/F),

where ω_i is drawn from the product's spectral density (Gaussian for RBF, multivariate t for
Matérn; frequencies of factors add) and s_i is, for each Delta, 1 with probability `share` and else
a random sign of its own for every value. Features are drawn anew for every function, so that the
covariance over draws is k itself and not an approximation to it.

A user's own kernel is drawn exactly, point by point: each new input is conditioned on all inputs
that were asked for before.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpsarsa._validation import Array
from gpsarsa.basis import Basis
from gpsarsa.kernels import Kernel, KernelLike, SpectralTerm, is_built_in

__all__ = ["FEATURES", "per_function", "prior_draw"]

FEATURES = 1024  # frequencies a term


def prior_draw(kernel: KernelLike, columns: int, rng: np.random.Generator) -> Callable[[Array], Array]:
    """One function drawn from GP(0, k)."""
    if isinstance(kernel, Kernel) and is_built_in(kernel):
        terms = [_TermDraw(term, columns, rng) for term in kernel.spectral_terms(columns)]
        return lambda X: np.asarray(sum(term(X) for term in terms))
    return _PointwiseDraw(kernel, columns, rng)


class _TermDraw:
    """A draw from one product of base kernels, by random features."""

    def __init__(self, term: SpectralTerm, columns: int, rng: np.random.Generator) -> None:
        self._frequencies = np.zeros((columns, FEATURES))
        for indices, inverse, degrees in term.stationary:
            omega = rng.standard_normal((len(indices), FEATURES)) * inverse[:, None]
            if degrees:
                omega *= np.sqrt(degrees / rng.chisquare(degrees, FEATURES))
            self._frequencies[list(indices)] += omega
        self._signs = [_Signs(indices, share, rng) for indices, share in term.deltas]
        scale = np.sqrt(term.variance / FEATURES)
        self._cosine = scale * rng.standard_normal(FEATURES)
        self._sine = scale * rng.standard_normal(FEATURES)

    def __call__(self, X: Array) -> Array:
        phase = X @ self._frequencies
        values = np.cos(phase) * self._cosine + np.sin(phase) * self._sine
        for signs in self._signs:
            values *= signs(X)
        return np.asarray(values.sum(axis=1))


class _Signs:
    """Random signs with E[s(a) s(b)] = share + (1 − share)[a = b]."""

    def __init__(self, indices: tuple[int, ...], share: float, rng: np.random.Generator) -> None:
        self._indices = list(indices)
        self._common = rng.random(FEATURES) < share
        self._key = int(rng.integers(2**63))
        self._known: dict[bytes, Array] = {}

    def __call__(self, X: Array) -> Array:
        values = X[:, self._indices] + 0.0  # −0 is 0
        return np.array([self._of(np.ascontiguousarray(row)) for row in values]).reshape(-1, FEATURES)

    def _of(self, value: Array) -> Array:
        name = value.tobytes()
        if name not in self._known:
            # the signs of a value depend on nothing but the value and this draw's key
            words = np.frombuffer(name, dtype=np.uint32)
            own = np.random.default_rng([self._key, *words.tolist()]).integers(0, 2, FEATURES)
            self._known[name] = np.where(self._common, 1.0, 2.0 * own - 1.0)
        return self._known[name]


class _PointwiseDraw:
    """A draw at the inputs asked for so far: f(x) = ψ(x)ᵀw over a basis that takes in each new x."""

    def __init__(self, kernel: KernelLike, columns: int, rng: np.random.Generator) -> None:
        self._basis = Basis(kernel, columns)
        self._w = np.zeros(0)
        self._rng = rng

    def __call__(self, X: Array) -> Array:
        new = int(self._basis.append(X).sum())
        self._w = np.concatenate([self._w, self._rng.standard_normal(new)])
        return np.asarray(self._basis.whiten(self._basis.kernel_rows(X)) @ self._w)


def per_function(count: int, rng: np.random.Generator) -> list[np.random.Generator]:
    """A generator of its own for each of `count` functions, so that none depends on the others' calls."""
    return [np.random.default_rng(int(seed)) for seed in rng.integers(2**63, size=count)]
