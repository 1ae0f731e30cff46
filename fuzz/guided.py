"""Fuzzing that follows which lines of the package are reached (atheris).

    python -m fuzz.guided checkpoint --seconds 60

Targets: `checkpoint`, `agent`, `run`, `table`, `command`. What libFuzzer finds is raised here, with the bytes
in a file crash-…; it then becomes an ordinary test.
"""

from __future__ import annotations

import argparse
import random
import sys

import atheris

with atheris.instrument_imports(include=["gpsarsa"]):
    from fuzz.targets import Workshop

from fuzz import damage

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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.guided")
    parser.add_argument("target", choices=("checkpoint", "agent", "run", "table", "command"))
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    workshop = Workshop()
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
