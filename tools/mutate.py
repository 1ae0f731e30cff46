"""Does a test fail when a sign or an index is changed? `make mutate`.

    python tools/mutate.py [FILE …] [--only LINE] [--every N] [--at-once N]

One change at a time is made to a copy of the package: + for −, · for /, < for ≤, = for ≠, the next index, a
lost minus. The tests of the core run until the first one fails; a change that none notices is UNNOTICED.
Compiled functions run as plain Python meanwhile: compiling each change would take longer than all else.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gpsarsa"
FILES = ("belief.py", "basis.py")
TESTS = (
    "sparse",
    "growth",
    "fixed_point",
    "moments",
    "sampling",
    "placement",
    "evidence",
    "files",
    "errors",
    "accuracy",
)
SLOW = "ten_thousand or doubling or million"
SECONDS = 900  # who takes longer hangs, and that is noticed
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
PLAIN = """
import math
import gpsarsa._table, gpsarsa._pullback
for module in (gpsarsa._table, gpsarsa._pullback):
    module.exp = lambda x: math.exp(max(x, -708.0))
"""


def changes(tree: ast.Module) -> Iterator[tuple[int, str, ast.Module]]:
    """Line, description and tree of every change."""
    nodes = list(ast.walk(tree))
    for i, node in enumerate(nodes):
        for what, change in _of(node):
            mutant = copy.deepcopy(tree)
            change(list(ast.walk(mutant))[i])
            yield node.lineno, f"{ast.unparse(node)}: {what}", mutant


def _of(node: ast.AST) -> Iterator[tuple[str, object]]:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in SWAPS:
        swap = SWAPS[type(node.op)]
        yield swap.__name__, lambda n: setattr(n, "op", swap())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        other = SWAPS[type(node.ops[0])]
        yield other.__name__, lambda n: n.ops.__setitem__(0, other())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "no minus", lambda n: setattr(n, "op", ast.UAdd())
    if isinstance(node, ast.Subscript) and _is_index(node.slice):
        yield "next index", lambda n: setattr(n, "slice", _next(n.slice))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        yield (
            "longer range",
            lambda n: n.args.__setitem__(min(1, len(n.args) - 1), _next(n.args[min(1, len(n.args) - 1)])),
        )


def _is_index(node: ast.expr) -> bool:
    """A variable or a number, not a type or a name."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    return (
        isinstance(node, ast.Name)
        and node.id[0].islower()
        and node.id not in ("float", "int", "str", "object")
    )


def _next(node: ast.expr) -> ast.expr:
    return ast.BinOp(node, ast.Add(), ast.Constant(1))


def survives(name: str, mutant: ast.Module) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / "gpsarsa", ignore=shutil.ignore_patterns("__pycache__"))
        text = ast.unparse(ast.fix_missing_locations(mutant))
        (Path(folder) / "gpsarsa" / name).write_text(text, encoding="utf-8")
        (Path(folder) / "plain_exp.py").write_text(PLAIN, encoding="utf-8")
        tests = [str(ROOT / "tests" / f"test_{test}.py") for test in TESTS]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "plain_exp",
            "-p",
            "no:cacheprovider",
            "-k",
            f"not ({SLOW})",
        ]
        env = {**os.environ, "PYTHONPATH": folder, "NUMBA_DISABLE_JIT": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            done = subprocess.run([*command, *tests], cwd=ROOT, env=env, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", default=FILES, help="of the package")
    parser.add_argument("--only", type=int, help="changes of this line")
    parser.add_argument("--every", type=int, default=1, help="of so many changes one")
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    if not survives(FILES[0], ast.parse((PACKAGE / FILES[0]).read_text(encoding="utf-8"))):
        sys.exit("a test fails without any change: nothing could be learnt from changes")
    alive = count = 0
    for name in options.files:
        tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"))
        wanted = [c for c in changes(tree) if options.only in (None, c[0])][:: options.every]
        with ThreadPoolExecutor(options.at_once) as pool:
            answers = pool.map(survives, [name] * len(wanted), [mutant for _, _, mutant in wanted])
            for (line, what, _), unnoticed in zip(wanted, answers, strict=True):
                count, alive = count + 1, alive + unnoticed
                print(f"{'UNNOTICED' if unnoticed else 'noticed':10}{name}:{line}  {what[:100]}", flush=True)
    print(f"{count - alive} of {count} changes are noticed")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
