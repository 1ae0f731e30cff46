"""Arguments of every wrong kind, and the rule that whoever gets one must keep.

    attack(Target(SparseGPSarsa.predict, ...), {"X": value})

A call either works, or raises an error that was made for the purpose: of a documented type, out of the
package's own code, naming an argument. An object that refused is bit for bit what it was before.
"""

from __future__ import annotations

import contextlib
import signal
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gpsarsa

SOURCE = str(Path(gpsarsa.__file__).parent)
PATIENCE = 20.0  # seconds after which a call hangs

# -- values ---------------------------------------------------------------------------------------


class Plain:
    """Nothing that anyone could use."""


class Subclass(np.ndarray):
    """An array, and yet another type."""


class Unequal:
    """Compared with anything, has no answer."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])


class Short:
    """Says that it has three entries, and has none."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: Any) -> Any:
        raise IndexError(at)


def nothing(*_: Any, **__: Any) -> None:
    """Can be called with anything."""


SCALARS = [
    None, True, False, 0, 1, 2, 3, -1, 7, 0.0, -0.0, 0.5, 1.0, 1.5, -1.0,
    float("nan"), float("inf"), -float("inf"), 5e-324, 2.3e-308, 1e-200, 1e200, 1.7e308, -1.7e308,
    1j, complex(1.0, 0.0), Decimal("0.5"), Decimal("NaN"), Decimal("1e999"), Fraction(1, 3),
    np.float16(0.5), np.float32("nan"), np.float64("inf"), np.longdouble("1e4000"), np.longdouble(0.5),
    np.int8(-1), np.uint8(3), np.int64(2), np.bool_(True), np.complex128(1 + 2j), np.complex64(1),
    np.datetime64("2020-01-01"), np.timedelta64(3, "s"), np.str_("0.5"), np.bytes_(b"1"),
]  # fmt: skip
HUGE = [2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30, 10**400, -(10**400)]
HUGE += [np.uint64(2**64 - 1), np.int64(-(2**63))]
OBJECTS = [
    "", "a", "0.5", "nan", "\0", "é ü", "x" * 5000, "exact", "\ud800", b"", b"x", bytearray(b"ab"), Plain(),
    Plain, int, np.ndarray, nothing, ..., NotImplemented, range(3), range(0), {}, {"a": 1}, {0: None}, set(),
    {1.0, 2.0}, frozenset(), slice(None), slice("a", 2), Exception("no"), types, Unequal(), Short(),
    np.random.default_rng(0), [], [[]], [[], []], (), [None], [0.1, None, 0.2], [[1.0, 2.0], [3.0]],
    [1.0, [2.0]], ["a", "b", "c"], [[0.0, "1", 2.0]], [1, 2, 3], [0, 1], [0, 0], (0.5, 0.5), [True, False],
    [10**400, 1, 2], [float("nan")] * 3, [[0.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]] * 2, [1j, 2, 3], [b"x"],
    [np.zeros(2), np.zeros(3)], [[[0.0]]], {"x": [1.0]}, np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]),
    memoryview(b"abc"), np.array(None), np.array("3"), np.array(2.0), np.array(1),
    np.rec.array([(1.0, 2)], dtype=[("a", "f8"), ("b", "i4")]), np.dtype("f8"), np.zeros((2, 3)).flat,
]  # fmt: skip
DTYPES = ["f8", "f4", "f2", "g", "i8", "i1", "u8", "u1", "?", "c16", "O", "U3", "S2", "M8[s]", "m8[s]", ">f8"]
DTYPES += ["V4"]
SHAPES = [(), (0,), (1,), (2,), (3,), (4,), (6,), (0, 3), (1, 3), (2, 3), (6, 3), (3, 2), (6, 1), (0, 0)]
SHAPES += [(3, 0), (1, 1), (2, 3, 1), (1, 2, 3), (300,), (257, 3)]
FILLS = [0.0, 1.0, 0.5, -1.0, float("nan"), float("inf"), 1.7e308, 5e-324, 1e200, 255.0]


def _laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same numbers, stored otherwise."""
    array = np.asarray(array)
    if layout == "read-only":
        array = np.array(array)
        array.flags.writeable = False
    elif layout == "strided" and array.ndim:
        array = np.repeat(array, 2, axis=0)[::2]
    elif layout == "fortran":
        array = np.asfortranarray(array)
    elif layout == "reversed" and array.ndim:
        array = array[::-1].copy()[::-1]
    elif layout == "broadcast" and array.ndim and len(array):
        array = np.broadcast_to(array[:1], array.shape)
    elif layout == "subclass":
        array = array.view(Subclass)
    elif layout == "unaligned" and array.dtype.kind in "fiu":
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
        array = np.ndarray(array.shape, array.dtype, raw.data)
    elif layout == "list" and array.dtype.kind != "V":
        return array.tolist()
    return array


LAYOUTS = ["plain", "read-only", "strided", "fortran", "reversed", "broadcast", "subclass", "unaligned"]
LAYOUTS += ["list"]


@st.composite
def arrays(draw: Any) -> Any:
    """Arrays of any type, shape, content and layout."""
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SHAPES))
    numbers = np.random.default_rng(draw(st.integers(0, 9))).standard_normal(shape)
    fill = draw(st.sampled_from([None, None, *FILLS]))
    if fill is not None and numbers.size:
        numbers = np.array(numbers)
        numbers.flat[draw(st.integers(0, numbers.size - 1)) :] = fill
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if dtype == "V4":
            array = np.zeros(shape, "V4")
        elif dtype[0] in "Mm":
            array = np.nan_to_num(numbers, posinf=0).astype("i1").astype("i8").view(dtype)
        else:
            array = np.asarray(numbers).astype(dtype)
    return _laid_out(array, draw(st.sampled_from(LAYOUTS)))


words = st.text(max_size=8)
small = st.one_of(st.sampled_from(SCALARS), st.sampled_from(OBJECTS), arrays(), st.floats(), words)
anything = st.one_of(small, st.sampled_from(HUGE), st.integers())


# -- the rule -------------------------------------------------------------------------------------

REFUSALS = (ValueError, TypeError)


@dataclass(frozen=True)
class Target:
    """What is attacked.

    `make` returns the callable and the object whose `state` must survive; `good` are arguments that work;
    `errors` are documented besides ValueError and TypeError; `heavy` are arguments of which large numbers
    mean much work, and get small ones only; `positional` are arguments without a name to call by;
    `words` are other names by which an error may speak of an argument.
    """

    make: Callable[[], tuple[Callable[..., Any], Any]]
    good: Callable[[], Mapping[str, Any]]
    state: Callable[[Any], Any] = lambda owner: None
    errors: tuple[type[Exception], ...] = ()
    heavy: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    attempts: list[int] = field(default_factory=lambda: [0, 0])  # made, refused

    @property
    def arguments(self) -> list[str]:
        return [name for name in self.good() if name not in self.fixed]


class Hung(BaseException):
    """A call that did not come back."""


@contextlib.contextmanager
def patience(seconds: float = PATIENCE):
    def late(*_: Any) -> None:
        raise Hung(f"no answer after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def innermost(error: BaseException) -> str:
    """The file in which an error was raised."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename


def attack(target: Target, changes: Mapping[str, Any]) -> bool:
    """Call with some arguments changed; whether it was refused. AssertionError where the rule is broken."""
    call, owner = target.make()
    given = {**target.good(), **changes}
    before = target.state(owner)
    target.attempts[0] += 1
    try:
        with patience(), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)
            first = [given.pop(name) for name in target.positional if name in given]
            result = call(*first, **given)
            if isinstance(result, types.GeneratorType):
                list(result)
    except (MemoryError, *REFUSALS, ArithmeticError, *target.errors) as error:
        _judge(target, changes, error)
        assert target.state(owner) == before, f"a refused call left a trace: {error}"  # noqa: PT017
        target.attempts[1] += 1
        return True
    return False


def _judge(target: Target, changes: Mapping[str, Any], error: Exception) -> None:
    kind = type(error)
    if isinstance(error, MemoryError):
        assert any(isinstance(value, int | np.integer) for value in changes.values()), repr(error)
        return
    if isinstance(error, UnicodeEncodeError):
        return
    if isinstance(error, OSError):
        assert error.filename is not None or "path" in str(error), f"does not say which file: {error!r}"
        return
    if isinstance(error, ArithmeticError):
        assert kind is ArithmeticError, f"a raw {kind.__name__}: {error}"
    assert innermost(error).startswith(SOURCE), f"a raw {kind.__name__} out of {innermost(error)}: {error}"
    if isinstance(error, target.errors) or kind is ArithmeticError:
        return
    words = [*target.good(), *target.words, "the inputs have"]
    assert any(word in str(error) for word in words), f"names none of {words}: {kind.__name__}: {error}"


def changes(target: Target) -> Any:
    """One or two of a target's arguments, and what they become."""
    names = target.arguments

    def value(name: str) -> Any:
        return small if name in target.heavy else anything

    one = st.sampled_from(names).flatmap(lambda name: st.fixed_dictionaries({name: value(name)}))
    if len(names) < 2:
        return one
    two = st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True).flatmap(
        lambda both: st.fixed_dictionaries({name: value(name) for name in both})
    )
    return st.one_of(one, one, two)
