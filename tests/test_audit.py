"""What the source does not do: run what it reads, call a shell, or use a network."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gpsarsa
from tools import audit

SOURCE = Path(gpsarsa.__file__).parent
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "input", "breakpoint"}
FORBIDDEN_MODULES = {
    "cloudpickle", "ctypes", "dill", "ftplib", "http", "joblib", "marshal", "multiprocessing", "pickle",
    "requests", "shelve", "smtplib", "socket", "subprocess", "telnetlib", "urllib", "xmlrpc", "yaml",
}  # fmt: skip
FORBIDDEN_ATTRIBUTES = {
    "Unpickler", "allow_pickle", "execl", "execv", "execve", "load_module", "popen", "spawnl", "spawnv",
    "system",
}  # fmt: skip
ALLOWED = {
    ("offline/evaluation.py", "pickle"),  # a hash of what `dumps` says; nothing is read back
    ("offline/engines.py", "socket"),  # whether a Ray cluster answers, at the address the user gave
}
FILES = sorted(SOURCE.rglob("*.py"))


def deeds(tree: ast.AST) -> set[str]:
    """Names of modules, functions and attributes that are forbidden, as far as they occur."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {(node.module or "").partition(".")[0]} & FORBIDDEN_MODULES
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {node.func.id} & FORBIDDEN_CALLS
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & FORBIDDEN_ATTRIBUTES
        if isinstance(node, ast.Call):
            found |= {f"{keyword.arg}=" for keyword in node.keywords} & {"shell=", "allow_pickle="}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_forbidden(path):
    own = str(path.relative_to(SOURCE))
    found = deeds(ast.parse(path.read_text("utf-8")))
    assert {deed for deed in found if (own, deed) not in ALLOWED} == set()


def test_pickle_is_written_only():
    tree = ast.parse((SOURCE / "offline" / "evaluation.py").read_text("utf-8"))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pickle"
    }
    assert used == {"dumps"}


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from yaml import load", "eval('1')", "os.system('x')", "f(shell=True)",
     "os.popen('x')", "import urllib.request", "np.load(f, allow_pickle=True)"],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(code):
    assert deeds(ast.parse(code))


def test_licences_of_what_comes_along():
    packages = audit.core()
    assert {"numpy", "scipy", "numba", "safetensors", "gymnasium", "threadpoolctl"} <= set(packages)
    for package in packages:
        assert audit.FREE.search(audit.licence(package)), (package, audit.licence(package))
