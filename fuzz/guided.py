"""Fuzzing that follows which lines of the package are reached (atheris).

    python -m fuzz.guided checkpoint --seconds 60

Targets: `checkpoint`, `agent`, `run`, `table`, `command`. What libFuzzer finds is raised here, with the bytes
in a file crash-…; it then becomes an ordinary test.
"""

from __future__ import annotations

import argparse
import inspect
import random
import sys

import atheris

from fuzz import damage
from fuzz.targets import Workshop

COMPILED = ("@compiled", "@njit", "@intrinsic")  # what Numba reads must stay as it was written
MANY = 1 << 30


class Chance(random.Random):
    """Chance out of the fuzzer's bytes, so that it learns which choices lead on."""

    def __init__(self, data: bytes) -> None:
        self._bytes = atheris.FuzzedDataProvider(data)
        super().__init__(0)

    def random(self) -> float:
        return self._bytes.ConsumeIntInRange(0, MANY) / (MANY + 1.0)

    def getrandbits(self, k: int) -> int:
        return self._bytes.ConsumeIntInRange(0, (1 << min(k, 62)) - 1)


def instrument() -> None:
    """Let the fuzzer see which lines are reached, except in modules with compiled functions."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("gpsarsa"):
            continue
        if any(word in inspect.getsource(module) for word in COMPILED):
            continue
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
        for value in own:
            parts = vars(value).values() if inspect.isclass(value) else [value]
            for part in parts:
                function = getattr(part, "__func__", getattr(part, "fget", part))
                if inspect.isfunction(function) and function.__module__ == name:
                    atheris.instrument_func(function)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.guided")
    parser.add_argument("target", choices=("checkpoint", "agent", "run", "table", "command"))
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    workshop = Workshop()
    instrument()
    home = workshop.home
    corpus = home / "corpus"
    corpus.mkdir()
    table = (home / "table.parquet").read_bytes()

    def checkpoint(data: bytes) -> None:
        kind = ("model", "exact", "times", "evaluation")[data[0] % 4] if data else "model"
        if data[1:2] < b"\x80":
            workshop.checkpoint(kind, data[2:])
        else:
            workshop.rewritten(kind, Chance(data[2:]))

    def agent(data: bytes) -> None:
        workshop.rewritten("agent", Chance(data)) if data[:1] < b"\x80" else workshop.checkpoint(
            "agent", data[1:]
        )

    def run(data: bytes) -> None:
        name = ("config.json", "summary.json", "progress.csv")[data[0] % 3] if data else "config.json"
        chance, good = Chance(data[2:]), (home / "run" / name).read_bytes()
        workshop.folder(name, data[2:] if data[1:2] < b"\x40" else damage.damaged_text(good, chance))

    def tables(data: bytes) -> None:
        workshop.table(data[1:] if data[:1] < b"\x40" else damage.damaged_bytes(table, Chance(data[1:])))

    def command(data: bytes) -> None:
        workshop.command(damage.command_line(workshop.files(), Chance(data)))
        workshop.tidy()

    chosen = {"checkpoint": checkpoint, "agent": agent, "run": run, "table": tables, "command": command}
    for i, name in enumerate(("model", "exact", "times", "evaluation")):
        (corpus / name).write_bytes(bytes([i, 0]) + (home / name).read_bytes())
    limits = [f"-max_total_time={options.seconds}", "-max_len=20000", "-timeout=60", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *limits, "-close_fd_mask=0", str(corpus)], chosen[options.target])
    try:
        atheris.Fuzz()
    finally:
        workshop.close()


if __name__ == "__main__":
    main()
