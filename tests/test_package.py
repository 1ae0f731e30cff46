"""The package as a whole: what importing it costs, what it compiles, who imports whom."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import gpsarsa

SOURCE = Path(gpsarsa.__file__).parent

# a module imports only from rows below its own
LAYERS = [
    ["__main__"],
    ["cli"],
    ["evaluating"],
    ["training"],
    ["evaluation_report", "report", "video"],
    ["_page", "plots"],
    ["__init__", "control.__init__"],
    ["offline.__init__"],
    ["offline.evaluation"],
    ["offline.engines", "offline.recording"],
    ["offline.datasets", "offline.sums"],
    ["offline._memory", "offline._minari", "offline._parquet"],
    ["offline._blocks", "offline._columns"],
    ["offline._chains", "offline._sampling", "offline._schema", "offline._target"],
    ["offline._files"],
    ["offline._records"],
    ["control.agent"],
    ["control.callbacks"],
    ["settings"],
    ["runs"],
    ["control.checkpoints", "control.evaluation"],
    ["control.learner"],
    ["control.foresight"],
    ["control.tables"],
    ["control.imagination"],
    ["control.dynamics", "control.episodes", "control.rehearsal"],
    ["control.contact", "control.potential"],
    ["control.lessons"],
    ["control.shapes"],
    ["control.regression", "control.values"],
    ["control.improvement", "control.critic", "control.incumbent", "control.policies"],
    ["control.environments", "control.experience", "control.rules"],
    ["control.world"],
    ["control.spaces"],
    ["control.ascent", "control.descriptions"],
    ["timescales"],
    ["exact", "sparse"],
    ["_estimator"],
    ["optimization"],
    ["_space"],
    ["evidence", "placement", "stochasticity"],
    ["statistics"],
    ["_step"],
    ["draws"],
    ["belief", "basis"],
    ["_moments"],
    ["reservoir"],
    ["transitions"],
    ["kernels"],
    ["_pullback"],
    ["_table"],
    ["checkpoint"],
    ["_linalg"],
    ["_progress", "_validation", "_version"],
    ["_words"],
]


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    ).stdout


def imported(node, modules):
    """The modules of the package that an import statement names, as in LAYERS."""
    if not (isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gpsarsa"):
        return
    inside = node.module.removeprefix("gpsarsa").removeprefix(".")
    for alias in node.names:
        name = f"{inside}.{alias.name}".removeprefix(".")
        if name in modules:
            yield name
        elif inside in modules:
            yield inside
        else:
            yield f"{inside}.__init__".removeprefix(".")


def outside_type_checking(tree):
    """Every statement that runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        yield node
        yield from outside_type_checking(node)


def test_modules_import_only_from_below():
    level = {name: depth for depth, names in enumerate(LAYERS) for name in names}
    modules = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")
    }
    assert set(modules) == set(level)
    for name, path in modules.items():
        for node in outside_type_checking(ast.parse(path.read_text())):
            for part in imported(node, modules):
                assert level[part] > level[name], f"{name} imports {part}"


def test_importing_is_light():
    """The heavy parts of SciPy, and anything that draws or learns deeply, are left alone."""
    loaded = run("import sys, gpsarsa; print(*sys.modules)").split()
    for heavy in ("scipy.optimize", "scipy.sparse", "scipy.stats", "matplotlib", "gymnasium", "torch", "ray"):
        assert heavy not in loaded


COMPILED = """
import warnings; warnings.simplefilter("ignore")
import numpy as np, gpsarsa
from numba.core import event
from gpsarsa import GPSarsa, SparseGPSarsa, Transitions, kernels
with event.install_recorder("numba:compile") as recorder:
    rng = np.random.default_rng(0)
    frozen = rng.standard_normal((5, 2)); frozen.flags.writeable = False
    fortran = np.asfortranarray(rng.standard_normal((5, 2)))
    t = Transitions(frozen, np.ones(5), fortran, np.full(5, 0.9))
    for kernel in (kernels.RBF(1.0), kernels.Matern32(1.0) * kernels.Delta(1) + kernels.Matern52(2.0)):
        for growth in ("exact", "frozen", "streaming"):
            model = SparseGPSarsa(kernel, 0.1, frozen, growth=growth).fit(t).update(t).update(t[1:3])
            model.observe(frozen[0], 1, fortran[1], np.float32(0.5)).observe([0, 1], 0.5, None, 0)
            model.add_pseudo_inputs(fortran)
            model.remove_pseudo_inputs([0, 2])
            model.predict(fortran, return_std=True); model.predict(frozen, return_cov=True)
            model.sample(1, 0)[0](frozen)
            model.optimize(t, max_iterations=2)
        GPSarsa(kernel, 0.1, noise="correlated").fit(t).update(t).predict(fortran, return_std=True)
        exact = GPSarsa(kernel, 0.1); exact.optimize(t, max_iterations=2)
    model = SparseGPSarsa(kernel, 0.1, frozen[:0], noise="correlated")
    model.optimize(t, max_iterations=2)
    gpsarsa.Timescales(model, slow=[gpsarsa.Slow(3, max_iterations=2)], budget=2).update(t).update(t)
    SparseGPSarsa(kernel, 0.1, frozen, noise="correlated", forgetting=0.9).update(t)
print(len(recorder.buffer))
from gpsarsa import _linalg, _pullback, _step, _table, basis, belief, evidence, statistics
for module in (_linalg, _pullback, _step, _table, basis, belief, evidence, statistics):
    for name, function in vars(module).items():
        if hasattr(function, "signatures") and len(function.signatures) > 1:
            print("many:", name, function.signatures)
"""


def test_only_the_first_run_compiles_and_each_function_once(tmp_path):
    first = run(COMPILED, NUMBA_CACHE_DIR=str(tmp_path)).split("\n")
    assert int(first[0]) > 0
    assert not [line for line in first if line.startswith("many:")]
    second = run(COMPILED, NUMBA_CACHE_DIR=str(tmp_path)).split("\n")
    assert int(second[0]) == 0


def test_the_version_is_one_number():
    pyproject = (SOURCE.parents[1] / "pyproject.toml").read_text()
    assert 'attr = "gpsarsa._version.__version__"' in pyproject
    assert gpsarsa.__version__.count(".") == 2


def test_the_citation_names_this_version():
    citation = (SOURCE.parent.parent / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {gpsarsa.__version__}\n" in citation
