"""What strangers will install, tried as they would: `make release`, or `python tools/release.py [CHECK …]`.

build    sdist and wheel, into dist/; the wheel holds the package and nothing else
core     the wheel in an empty environment: only the core dependencies come with it, less than 500 MB,
         and it learns, saves, loads and shows its command line
extras   each extra alone, in an environment of its own, does what it is for
lowest   the tests of the core with the lowest versions that pyproject.toml allows
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
MOST_MEGABYTES = 500
CORE = {  # the package, its dependencies, and what these need
    "gpsarsa", "numpy", "scipy", "numba", "llvmlite", "safetensors", "gymnasium", "threadpoolctl",
    "cloudpickle", "farama-notifications", "typing-extensions",
}  # fmt: skip
TESTS = (
    "accuracy", "agent", "evidence", "exact", "files", "fixed_point", "growth", "imagination", "kernels",
    "moments", "optimize", "paper", "placement", "policies", "sampling", "sparse", "spaces", "timescales",
    "transitions",
)  # fmt: skip
LEARNS = """
import gymnasium, numpy as np, gpsarsa
from gpsarsa import SarsaAgent, SparseGPSarsa, kernels
agent = SarsaAgent(gymnasium.make("CartPole-v1"), seed=0).learn(300)
agent.save("agent.safetensors")
again = SarsaAgent.load("agent.safetensors", gymnasium.make("CartPole-v1"))
row = np.zeros(4, np.float32)
assert agent.predict(row)[0] == again.predict(row)[0]
print(gpsarsa.__version__)
"""
RECORDS = """
import gymnasium
from gpsarsa import offline
env = gymnasium.make("CartPole-v1")
offline.record(env, lambda observation: int(observation[2] > 0.0), "log.parquet", episodes=30, seed=0)
"""
TRAIN = "train CartPole-v1 --steps 250 --evaluate-episodes 1 --quiet --out run"
EVALUATE = "evaluate log.parquet --gamma 0.9 --pseudo-inputs 20 --no-report --out result"
EXTRAS = {  # what each is for: some Python, then commands of gpsarsa
    "plot": ("", TRAIN, "report run --out again.html"),
    "render": (
        "import gymnasium; env = gymnasium.make('CartPole-v1', render_mode='rgb_array'); env.reset()\n"
        "assert env.render().ndim == 3",
    ),
    "video": ("", f"{TRAIN} --no-report", "play run --video episode.gif"),
    "tensorboard": ("", f"{TRAIN} --no-report --tensorboard"),
    "offline": (RECORDS, EVALUATE),
    "minari": (f"import minari, h5py\n{RECORDS}", EVALUATE),
    "ray": (RECORDS, f"{EVALUATE} --engine ray"),
}


class Environment:
    """A virtual environment of its own, in a folder that goes away."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, folder / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)

    def install(self, *what: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", *what], check=True)

    def run(self, *arguments: str) -> str:
        command = [str(self.python), *arguments]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, cwd=self.folder)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-4000:]}\nfailed: {' '.join(command)}")
        return done.stdout.strip()

    @property
    def distributions(self) -> set[str]:
        code = "from importlib.metadata import distributions as d; print(*{x.name for x in d()})"
        return {re.sub(r"[-_.]+", "-", name).lower() for name in self.run("-c", code).split()}

    @property
    def megabytes(self) -> float:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file()) / 1e6


def wheel() -> Path:
    (found,) = DIST.glob("*.whl")
    return found


def build(folder: Path) -> str:
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", DIST, ROOT], check=True, capture_output=True)
    names = zipfile.ZipFile(wheel()).namelist()
    strange = [name for name in names if not name.startswith(("gpsarsa/", "gpsarsa-"))]
    assert not strange, f"the wheel holds {strange}"
    assert "gpsarsa/py.typed" in names
    return ", ".join(f"{path.name} ({path.stat().st_size / 1e3:.0f} kB)" for path in sorted(DIST.iterdir()))


def core(folder: Path) -> str:
    env = Environment(folder)
    env.install(str(wheel()))
    assert env.distributions <= CORE, f"not of the core: {env.distributions - CORE}"
    size = env.megabytes
    assert size < MOST_MEGABYTES, f"{size:.0f} MB installed"
    version = env.run("-c", LEARNS)
    assert "train" in env.run("-m", "gpsarsa", "--help")
    return f"{version} learns; {len(env.distributions)} distributions, {size:.0f} MB"


def extras(folder: Path) -> str:
    declared = _project()["optional-dependencies"]
    together = {"all", "test", "dev", "docs"}
    assert set(declared) - together == set(EXTRAS), "an extra is not tried here"
    for name, (code, *commands) in EXTRAS.items():
        env = Environment(folder / name)
        env.install(f"{wheel()}[{name}]")
        env.run("-c", code)
        for command in commands:
            env.run("-m", "gpsarsa", *command.split())
        print(f"  {name}: {env.megabytes:.0f} MB", flush=True)
        shutil.rmtree(env.folder)
    return f"{len(EXTRAS)} extras work alone"


def lowest(folder: Path) -> str:
    env = Environment(folder)
    least = [requirement.replace(">=", "==") for requirement in _project()["dependencies"]]
    env.install(f"{wheel()}[plot]", *least, "pytest", "pytest-xdist", "hypothesis", "mpmath")
    tests = [str(ROOT / "tests" / f"test_{name}.py") for name in TESTS]
    quiet = "-q", "-p", "no:cacheprovider", "-W", "ignore", "-c", str(ROOT / "pyproject.toml")
    said = env.run(
        "-m", "pytest", *quiet, "-n", "2", "--dist", "worksteal", "--rootdir", str(ROOT), *tests
    ).splitlines()[-1]
    return f"{', '.join(least)}: {said}"


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


CHECKS: dict[str, Callable[[Path], str]] = {"build": build, "core": core, "extras": extras, "lowest": lowest}


def main(names: list[str]) -> None:
    for name in names or CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {CHECKS[name](Path(folder))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
