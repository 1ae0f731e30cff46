"""Does a test fail when a sign or an index is changed? `make mutate`.

    python tools/mutate.py [FILE …] [--only LINE …] [--every N] [--at-once N]

One change at a time: + for −, · for /, a comparison for its opposite, the next index, a lost minus, a loop
that ends one early. Each is made in a process forked from one that has the package loaded, where the changed
function's code takes the place of the old one; a compiled function, and those that call it, run as plain
Python there, everything else stays compiled. Then the tests of the core run until the first one fails. A
change that none notices is UNNOTICED.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import pkgutil
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
FILES = ("belief.py", "basis.py")
TESTS = ("parts", "sparse", "growth", "moments", "sampling", "fixed_point", "placement", "transitions",
         "sums", "evidence", "files", "errors", "accuracy")  # fmt: skip
INTERPRETED = ("parts", "sparse", "growth")  # of these, where a compiled function runs as plain Python
SECONDS = 900  # of computing: who needs more hangs, and that is noticed
EQUIVALENT = {  # changes that change nothing but the time it takes, or nothing at all
    "total += 0.0 * moved[j]: Sub": "zeros, or what is not finite",
    "self.mean[:, None] + root @ rng.standard_normal((self.size, count)): Sub": "the same distribution",
    "len(Psi) <= 16: Gt": "two ways to the same numbers",
    "len(delta) * self.size ** 2 < SMALL: GtE": "two ways to the same numbers",
    "len(delta) * self.size ** 2: Div": "two ways to the same numbers",
    "len(Psi_bar) * self.size ** 2 < SMALL: GtE": "two ways to the same numbers",
    "len(Psi_bar) * self.size ** 2: Div": "two ways to the same numbers",
    "pivots ** (-2.0) >= least: Lt": "row by row instead of at once",
    "work[2]: next index": "another place to work in, overwritten after",
    "rows.stop - rows.start: Add": "of the first block, which starts at 0",
    "info == 0: NotEq": "row by row instead of at once",
    "np.abs(W).sum(axis=1) / pivots: Mult": "row by row instead of at once",
}
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip


class Change(NamedTuple):
    file: str
    line: int
    what: str
    scope: tuple[str, ...]  # the names of the class and the function that it is in
    tree: ast.Module


def changes(file: str) -> Iterator[Change]:
    """Every change of a function of the file."""
    tree = ast.parse((ROOT / "src" / "gpsarsa" / file).read_text(encoding="utf-8"))
    scopes = _scopes(tree)
    for i, node in enumerate(ast.walk(tree)):
        for what, change in _of(node):
            if id(node) in scopes and f"{ast.unparse(node)}: {what}" not in EQUIVALENT:
                mutant = copy.deepcopy(tree)
                change(list(ast.walk(mutant))[i])
                ast.fix_missing_locations(mutant)
                yield Change(file, node.lineno, f"{ast.unparse(node)}: {what}", scopes[id(node)], mutant)


def _scopes(tree: ast.Module) -> dict[int, tuple[str, ...]]:
    """For each node in a function's body: where the function is to be found."""
    places: dict[int, tuple[str, ...]] = {}
    for outer in tree.body:
        inside = outer.body if isinstance(outer, ast.ClassDef) else [outer]
        for function in inside:
            if isinstance(function, ast.FunctionDef):
                path = (outer.name, function.name) if function is not outer else (function.name,)
                for node in (n for statement in function.body for n in ast.walk(statement)):
                    places[id(node)] = path
    return places


def _of(node: Any) -> Iterator[tuple[str, Callable[[Any], None]]]:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in SWAPS:
        swap = SWAPS[type(node.op)]
        yield swap.__name__, lambda n: setattr(n, "op", swap())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        opposite = SWAPS[type(node.ops[0])]
        yield opposite.__name__, lambda n: n.ops.__setitem__(0, opposite())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "no minus", lambda n: setattr(n, "op", ast.UAdd())
    if isinstance(node, ast.Subscript) and _is_index(node.slice):
        yield "next index", lambda n: setattr(n, "slice", _moved(n.slice, ast.Add()))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        last = min(1, len(node.args) - 1)
        yield "shorter range", lambda n: n.args.__setitem__(last, _moved(n.args[last], ast.Sub()))


def _is_index(node: ast.expr) -> bool:
    """A variable or a number, not a type."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    return isinstance(node, ast.Name) and node.id not in ("float", "int", "str", "slice")


def _moved(node: ast.expr, operator: ast.operator) -> ast.expr:
    return ast.BinOp(node, operator, ast.Constant(1))


def make(change: Change) -> None:
    """Let the changed function take the old one's place wherever this process refers to it."""
    module = sys.modules[f"gpsarsa.{change.file[:-3]}"]
    code: Any = compile(change.tree, change.file, "exec")
    for name in change.scope:
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
    found: Any = module
    for name in change.scope:
        found = vars(found)[name]
    function = (
        getattr(found, "py_func", None) or getattr(found, "__func__", None) or getattr(found, "fget", found)
    )
    function.__code__ = code
    if hasattr(found, "py_func"):
        _interpret(found)


def interpreted(change: Change) -> bool:
    """Whether it is in a compiled function."""
    return hasattr(vars(sys.modules[f"gpsarsa.{change.file[:-3]}"])[change.scope[0]], "py_func")


def interpret(module: types.ModuleType) -> None:
    """Have all compiled functions of a module run as plain Python."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) == module.__name__ and hasattr(value, "py_func"):
            _interpret(value)


def _interpret(dispatcher: Any) -> None:
    """Have a compiled function, and all compiled ones that refer to it, run as plain Python."""
    np.seterr(all="ignore")  # what is compiled does not warn
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(("gpsarsa", "test_"))]
    for module in modules:
        for name, value in list(vars(module).items()):
            if value is dispatcher:
                setattr(module, name, dispatcher.py_func)
    for module in modules:
        for value in list(vars(module).values()):
            plain = getattr(value, "py_func", None)
            if plain is not None and dispatcher.__name__ in plain.__code__.co_names:
                _interpret(value)


class Trials:
    """A pytest plugin: the tests, loaded once, run in a forked process for each change.

    The test that noticed a change is the first to look at the next one.
    """

    def __init__(self, wanted: list[Change], at_once: int) -> None:
        self.wanted, self.at_once = wanted, at_once
        self.unnoticed: list[Change] = []
        self.running: dict[int, tuple[Change | None, int]] = {}  # and the pipe that says which test failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed or not session.items:
            sys.exit("the tests cannot be loaded")
        self.tests = list(session.items)
        started = time.perf_counter()
        self._begin(None, session)
        if (failed := self._end()[1]) is not None:
            sys.exit(f"{failed} fails without any change: nothing could be learnt from changes")
        print(f"without a change the tests pass in {time.perf_counter() - started:.0f} s", flush=True)
        for change in self.wanted:
            if len(self.running) == self.at_once:
                self._report()
            self._begin(change, session)
        while self.running:
            self._report()
        return True

    def _begin(self, change: Change | None, session: pytest.Session) -> None:
        answer, write = os.pipe()
        process = os.fork()
        if process:
            os.close(write)
            self.running[process] = change, answer
            return
        try:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            plain = change is None or interpreted(change)
            if change is None:
                for file in FILES:
                    interpret(sys.modules[f"gpsarsa.{file[:-3]}"])
            else:
                make(change)
            tests = [test for test in self.tests if not plain or test.path.stem[5:] in INTERPRETED]
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
                if session.testsfailed:
                    os.write(write, str(self.tests.index(test)).encode())
                    break
            else:
                os.write(write, b"passed")
        finally:
            os._exit(0)

    def _end(self) -> tuple[Change | None, str | None]:
        """The change of a process that has ended, and the test that noticed it."""
        process, _ = os.wait()
        change, pipe = self.running.pop(process)
        answer = os.read(pipe, 64).decode()
        os.close(pipe)
        if answer == "passed":
            return change, None
        if not answer:
            return change, "did not end"
        test = self.tests.pop(int(answer))
        self.tests.insert(0, test)
        return change, test.nodeid.split("/")[-1]

    def _report(self) -> None:
        change, noticed = self._end()
        assert change is not None
        if noticed is None:
            self.unnoticed.append(change)
        verdict = "UNNOTICED" if noticed is None else "noticed"
        print(f"{verdict:10}{change.file}:{change.line}  {change.what[:100]}  {noticed or ''}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", default=FILES, help="of the package")
    parser.add_argument("--only", type=int, nargs="*", help="changes of these lines")
    parser.add_argument("--every", type=int, default=1, help="of so many changes one")
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "tests"))
    package = importlib.import_module("gpsarsa")
    for found in pkgutil.walk_packages(package.__path__, "gpsarsa."):
        importlib.import_module(found.name)

    wanted = [c for file in options.files for c in changes(file)]
    wanted = [c for c in wanted if options.only is None or c.line in options.only][:: options.every]
    trials = Trials(wanted, options.at_once)
    files = [str(ROOT / "tests" / f"test_{test}.py") for test in TESTS]
    quiet = ["-s", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:terminal"]
    if code := pytest.main([*quiet, *files], plugins=[trials]):
        return int(code)
    print(f"{len(wanted) - len(trials.unnoticed)} of {len(wanted)} changes are noticed")
    return int(bool(trials.unnoticed))


if __name__ == "__main__":
    sys.exit(main())
