"""How alike two state-action pairs are.

A kernel is an immutable object with `k(A, B)` and `k.diag(A)`. The stationary kernels have a
lengthscale per column, `columns` restricts any kernel to some of the input columns, and kernels
add and multiply:

    RBF([0.3, 0.1], columns=[0, 1]) * Delta(columns=2, share=0.5) + Matern52(1.0, variance=0.1)

Every such expression expands to a sum of products of base kernels, which `table` writes as the flat
table of `_table`, so that any combination runs inside the compiled per-transition loops. An object
of the user's own with `__call__` and `diag` works as well wherever a kernel is expected, on a slower
path.

Distances are sums of squared differences of the inputs themselves, exact however far the inputs
lie from the origin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from gpsarsa import _table
from gpsarsa import _validation as check
from gpsarsa._table import Table, Term, kernel_matrix, write_table
from gpsarsa._validation import Array

TermBar = tuple[float, list[Array]]  # ∂F by a term's variance, and by the numbers of each of its factors

__all__ = ["Delta", "Kernel", "KernelLike", "Matern32", "Matern52", "Product", "RBF", "SpectralTerm", "Sum"]


@runtime_checkable
class KernelLike(Protocol):
    """What a user's own kernel must offer."""

    def __call__(self, A: Array, B: Array) -> Array:
        """The matrix k(A_i, B_j)."""

    def diag(self, A: Array) -> Array:
        """The vector k(A_i, A_i)."""


def answer(values: Any, shape: tuple[int, ...], call: str) -> Array:
    """What a kernel of the user's own answered to `call`, checked and copied."""
    raw = np.asarray(values)
    if raw.dtype.kind not in "fiub":
        raise TypeError(f"kernel{call} returned dtype {raw.dtype}; expected real numbers")
    if raw.shape != shape:
        raise ValueError(f"kernel{call} returned shape {raw.shape}; expected {shape}")
    array = np.array(raw, dtype=np.float64, order="C")
    if not np.isfinite(array).all():
        raise ValueError(f"kernel{call} returned NaN or infinity; expected finite numbers")
    return array


def matrix(kernel: KernelLike, A: Array, B: Array) -> Array:
    """k(A, B), checked."""
    return answer(kernel(A, B), (len(A), len(B)), "(A, B)")


def diagonal(kernel: KernelLike, A: Array) -> Array:
    """k.diag(A), checked."""
    return answer(kernel.diag(A), (len(A),), ".diag(A)")


def checked_kernel(kernel: Any) -> KernelLike:
    """The kernel, if it is one."""
    if isinstance(kernel, type) or not isinstance(kernel, KernelLike):
        raise TypeError(f"kernel = {kernel!r}; expected a kernel, or an object with __call__ and diag")
    return kernel


def is_built_in(kernel: Any) -> bool:
    """Whether the flat table says all about the kernel; a subclass may well do something else."""
    return type(kernel) in _KINDS.values()


class Kernel:
    """A covariance function built from the base kernels of this module."""

    def __call__(self, A: Any, B: Any) -> Array:
        """The matrix k(A_i, B_j)."""
        A = check.rows(A, "A")
        B = check.rows(B, "B", A.shape[1])
        out = np.empty((len(A), len(B)))
        kernel_matrix(*self.table(A.shape[1]), np.ascontiguousarray(B.T), len(B), A, out)
        return out

    def diag(self, A: Any) -> Array:
        """The vector k(A_i, A_i), without forming the matrix."""
        A = check.rows(A, "A")
        # every base kernel is 1 where its arguments agree
        return np.full(len(A), sum(variance for variance, _ in self._terms(A.shape[1])))

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Kernel:
        return Product(self, other) if isinstance(other, Kernel) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_config() == self.to_config()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> Any:
        if is_built_in(self):
            return Kernel.from_config, (self.to_config(),)
        return super().__reduce__()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"a kernel does not change; make a new one with the {name} you want, or use with_parameters"
        )

    def _set(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    @property
    def parameters(self) -> dict[str, Any]:
        """Named parameters; those of a composite carry the part's number: '0.variance'."""
        raise NotImplementedError

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        """The same kernel with some parameters replaced."""
        raise NotImplementedError

    def scaled(self, factor: float) -> Self | None:
        """The kernel times a number, by its variances; None where a part has none."""
        raise NotImplementedError

    def table(self, columns: int) -> Table:
        """The kernel over inputs of that many columns, for the compiled loops."""
        codes, values = write_table(self._terms(check.at_least_one(columns, "columns")))
        if not (np.isfinite(values).all() and values[0] > 0.0):
            raise ValueError(f"{self!r} has variance {values[0]}; expected a finite number above 0")
        return codes, values

    def spectral_terms(self, columns: int) -> list[SpectralTerm]:
        """The kernel as a sum of products, in the form from which functions are drawn."""
        spectral = []
        for variance, factors in self._terms(check.at_least_one(columns, "columns")):
            term = SpectralTerm(variance, [], [])
            for kind, indices, numbers in factors:
                if kind == _table.DELTA:
                    term.deltas.append((indices, numbers[0]))
                else:
                    term.stationary.append((indices, np.array(numbers), _DEGREES[kind]))
            spectral.append(term)
        return spectral

    def discrete_columns(self, columns: int) -> set[int]:
        """The columns that a Delta compares, of inputs with that many columns."""
        terms = self._terms(check.at_least_one(columns, "columns"))
        factors = [factor for _, product in terms for factor in product]
        return {index for kind, indices, _ in factors if kind == _table.DELTA for index in indices}

    def gradient(self, columns: int, values_bar: Array) -> dict[str, Any]:
        """∂F by each of `parameters`, from ∂F by each entry of the table's values."""
        bars: list[TermBar] = []
        v = 1
        values_bar = check.vector(values_bar, "values_bar", len(self.table(columns)[1]))
        for _, factors in self._terms(int(columns)):
            variance_bar, numbers = float(values_bar[0] + values_bar[v]), []
            v += 1
            for _, _, own in factors:
                numbers.append(values_bar[v : v + len(own)])
                v += len(own)
            bars.append((variance_bar, numbers))
        return self._pull(int(columns), bars)

    def _pull(self, columns: int, bars: Sequence[TermBar]) -> dict[str, Any]:
        """∂F by each of `parameters`, from ∂F by the numbers in each of `_terms`."""
        raise NotImplementedError

    def _terms(self, columns: int) -> list[Term]:
        """The kernel as a sum: variance and base factors of each product."""
        raise NotImplementedError

    def to_config(self) -> dict[str, Any]:
        """A description that JSON can hold; `from_config` reads it back."""
        raise NotImplementedError

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> Kernel:
        """The kernel that `to_config` described."""
        try:
            options = check.mapping(config, "config")
            return _KINDS[options.pop("kind")]._from_options(options)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a description of a kernel: {config!r}") from error
        except RecursionError:
            raise ValueError("not a description of a kernel: it is nested too deeply") from None

    @classmethod
    def _from_options(cls, options: dict[str, Any]) -> Kernel:
        return cls(**options)


@dataclass(frozen=True)
class SpectralTerm:
    """A product of base kernels as a spectral density times Deltas.

    `stationary`: columns, inverse lengthscales and degrees of freedom of the multivariate t that
    the frequencies follow (0: Gaussian). `deltas`: columns and share.
    """

    variance: float
    stationary: list[tuple[tuple[int, ...], Array, int]]
    deltas: list[tuple[tuple[int, ...], float]]


_DEGREES = {_table.RBF: 0, _table.MATERN32: 3, _table.MATERN52: 5}


def _column_indices(columns: Any) -> tuple[int, ...]:
    single = isinstance(columns, int | np.integer)
    indices = [columns] if single else check.listed(columns, "columns", "a whole number or a list of them")
    if not indices:
        raise ValueError("columns is empty; expected at least one column index")
    for index in indices:
        if not check.is_whole(index):
            raise TypeError(f"columns holds {index!r}; expected whole numbers")
    if len(set(indices)) < len(indices):
        raise ValueError(f"columns = {indices} names a column twice")
    return tuple(int(index) for index in indices)


def _resolved(indices: tuple[int, ...], columns: int, kernel: Kernel) -> tuple[int, ...]:
    for index in indices:
        if not -columns <= index < columns:
            raise ValueError(f"{kernel!r} reads column {index}, but the inputs have {columns} columns")
    resolved = tuple(index % columns for index in indices)
    if len(set(resolved)) < len(resolved):
        raise ValueError(f"{kernel!r} names a column twice in inputs of {columns} columns")
    return resolved


class _Stationary(Kernel):
    """A kernel of the scaled distance r² = Σ ((a_c − b_c) / lengthscale_c)²."""

    _kind: ClassVar[int]
    lengthscales: Array | float
    variance: float
    columns: tuple[int, ...] | None

    def __init__(self, lengthscales: Any, variance: float = 1.0, columns: Any = None) -> None:
        chosen = None if columns is None else _column_indices(columns)
        if check.raw_array(lengthscales, "lengthscales").ndim == 0:
            scales: Array | float = check.positive(lengthscales, "lengthscales")
        else:
            scales = check.vector(
                lengthscales, "lengthscales", None if chosen is None else len(chosen)
            ).copy()
            if len(scales) == 0:
                raise ValueError("lengthscales is empty; expected one number a column")
            for i, scale in enumerate(scales):
                check.positive(float(scale), f"lengthscales[{i}]")
            scales.flags.writeable = False
        smallest = float(np.min(scales))
        if not math.isfinite(1.0 / smallest):
            raise ValueError(f"lengthscales = {smallest} is too small: its inverse overflows")
        self._set(lengthscales=scales, variance=check.positive(variance, "variance"), columns=chosen)

    def __repr__(self) -> str:
        scales = self.lengthscales if isinstance(self.lengthscales, float) else self.lengthscales.tolist()
        columns = "" if self.columns is None else f", columns={list(self.columns)}"
        return f"{type(self).__name__}({scales}, variance={self.variance}{columns})"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"lengthscales": self.lengthscales, "variance": self.variance}

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        _refuse_unknown(parameters, self.parameters)
        return type(self)(**{**self.parameters, **parameters}, columns=self.columns)

    def scaled(self, factor: float) -> Self | None:
        return self.with_parameters({"variance": check.positive(factor, "factor") * self.variance})

    def _terms(self, columns: int) -> list[Term]:
        if self.columns is None:
            indices = tuple(range(columns))
            if np.ndim(self.lengthscales) and len(np.atleast_1d(self.lengthscales)) != columns:
                raise ValueError(
                    f"{self!r} has {len(np.atleast_1d(self.lengthscales))} lengthscales, "
                    f"but the inputs have {columns} columns; name the columns it reads"
                )
        else:
            indices = _resolved(self.columns, columns, self)
        inverse = np.broadcast_to(1.0 / np.asarray(self.lengthscales), len(indices))
        return [(self.variance, ((self._kind, indices, tuple(inverse.tolist())),))]

    def _pull(self, columns: int, bars: Sequence[TermBar]) -> dict[str, Any]:
        [(variance_bar, [inverse_bar])] = bars
        scales_bar = -inverse_bar / np.square(self.lengthscales)  # the table holds 1/lengthscale
        per_column = np.ndim(self.lengthscales) > 0
        return {
            "lengthscales": scales_bar if per_column else float(scales_bar.sum()),
            "variance": variance_bar,
        }

    def to_config(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "lengthscales": np.asarray(self.lengthscales).tolist(),
            "variance": self.variance,
            "columns": None if self.columns is None else list(self.columns),
        }


class RBF(_Stationary):
    """variance · exp(−r²/2), the squared exponential: very smooth functions.

    Here and below r² = Σ ((a_c − b_c) / lengthscale_c)² over the `columns` read, by default all;
    `lengthscales` is one number for all of them or one for each.
    """

    _kind = _table.RBF


class Matern32(_Stationary):
    """variance · (1 + √3 r) exp(−√3 r): functions with one derivative."""

    _kind = _table.MATERN32


class Matern52(_Stationary):
    """variance · (1 + √5 r + 5r²/3) exp(−√5 r): functions with two derivatives."""

    _kind = _table.MATERN52


class Delta(Kernel):
    """(1 − share) · [equal] + share, for columns that hold discrete values such as actions.

    `share` says how much different values have in common: 0 nothing, 1 everything.
    """

    columns: tuple[int, ...]
    share: float

    def __init__(self, columns: Any, share: float = 0.0) -> None:
        self._set(columns=_column_indices(columns), share=check.fraction(share, "share"))

    def __repr__(self) -> str:
        return f"Delta(columns={list(self.columns)}, share={self.share})"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"share": self.share}

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        _refuse_unknown(parameters, self.parameters)
        return type(self)(self.columns, **{**self.parameters, **parameters})

    def scaled(self, factor: float) -> Self | None:
        return None

    def _terms(self, columns: int) -> list[Term]:
        indices = _resolved(self.columns, columns, self)
        return [(1.0, ((_table.DELTA, indices, (self.share,)),))]

    def _pull(self, columns: int, bars: Sequence[TermBar]) -> dict[str, Any]:
        [(_, [share_bar])] = bars
        return {"share": float(share_bar[0])}

    def to_config(self) -> dict[str, Any]:
        return {"kind": "Delta", "columns": list(self.columns), "share": self.share}


class _Composite(Kernel):
    parts: tuple[Kernel, ...]
    _symbol: ClassVar[str]

    def __init__(self, *parts: Kernel) -> None:
        if not parts or not all(is_built_in(part) for part in parts):
            raise TypeError(f"{type(self).__name__} combines kernels of this module, got {parts!r}")
        flat: list[Kernel] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, _Composite) and type(part) is type(self) else [part])
        self._set(parts=tuple(flat))

    def __repr__(self) -> str:
        return self._symbol.join(
            f"({part!r})" if isinstance(part, _Composite) else repr(part) for part in self.parts
        )

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            f"{i}.{name}": value
            for i, part in enumerate(self.parts)
            for name, value in part.parameters.items()
        }

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        _refuse_unknown(parameters, self.parameters)
        return type(self)(
            *(
                part.with_parameters(
                    {
                        name.split(".", 1)[1]: v
                        for name, v in parameters.items()
                        if name.split(".", 1)[0] == str(i)
                    }
                )
                for i, part in enumerate(self.parts)
            )
        )

    def _pull(self, columns: int, bars: Sequence[TermBar]) -> dict[str, Any]:
        return {
            f"{i}.{name}": value
            for i, (part, own) in enumerate(zip(self.parts, self._split(columns, bars), strict=True))
            for name, value in part._pull(columns, own).items()
        }

    def _split(self, columns: int, bars: Sequence[TermBar]) -> list[list[TermBar]]:
        """What `bars` say about each part's own terms."""
        raise NotImplementedError

    def to_config(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, "parts": [part.to_config() for part in self.parts]}

    @classmethod
    def _from_options(cls, options: dict[str, Any]) -> Kernel:
        return cls(*(Kernel.from_config(part) for part in options["parts"]))


class Sum(_Composite):
    """k₁ + k₂ + …"""

    _symbol = " + "

    def scaled(self, factor: float) -> Self | None:
        parts = [part.scaled(factor) for part in self.parts]
        return None if any(part is None for part in parts) else type(self)(*parts)  # type: ignore[arg-type]

    def _terms(self, columns: int) -> list[Term]:
        return [term for part in self.parts for term in part._terms(columns)]

    def _split(self, columns: int, bars: Sequence[TermBar]) -> list[list[TermBar]]:
        remaining = iter(bars)
        return [[next(remaining) for _ in part._terms(columns)] for part in self.parts]


class Product(_Composite):
    """k₁ · k₂ · …"""

    _symbol = " * "

    def scaled(self, factor: float) -> Self | None:
        for i, part in enumerate(self.parts):
            if (one := part.scaled(factor)) is not None:
                return type(self)(*self.parts[:i], one, *self.parts[i + 1 :])
        return None

    def _terms(self, columns: int) -> list[Term]:
        terms: list[Term] = [(1.0, ())]
        for part in self.parts:
            terms = [
                (variance * other, factors + more)
                for variance, factors in terms
                for other, more in part._terms(columns)
            ]
        return terms

    def _split(self, columns: int, bars: Sequence[TermBar]) -> list[list[TermBar]]:
        parts = [part._terms(columns) for part in self.parts]
        split = [
            [(0.0, [np.zeros(len(numbers)) for _, _, numbers in factors]) for _, factors in terms]
            for terms in parts
        ]
        choices = itertools.product(*(range(len(terms)) for terms in parts))  # the order of `_terms`
        for choice, (variance_bar, numbers) in zip(choices, bars, strict=True):
            variances = [terms[i][0] for terms, i in zip(parts, choice, strict=True)]
            remaining = iter(numbers)
            for p, i in enumerate(choice):
                own_bar, own_numbers = split[p][i]
                others = math.prod(variances[:p] + variances[p + 1 :])
                split[p][i] = own_bar + variance_bar * others, [n + next(remaining) for n in own_numbers]
        return split


def _refuse_unknown(given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    unknown = [name for name in check.mapping(given, "parameters") if name not in known]
    if unknown:
        raise ValueError(f"unknown parameter {unknown[0]!r}; this kernel has {', '.join(known)}")


_KINDS: dict[str, Any] = {c.__name__: c for c in (RBF, Matern32, Matern52, Delta, Sum, Product)}
