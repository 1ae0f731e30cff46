"""What is installed: versions against constraints.txt, `pip check`, and licences.

    python tools/audit.py

Known vulnerabilities are not looked up: that needs a network, which neither tests nor package use.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
FREE = re.compile(r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|0BSD|Zlib)\b", re.IGNORECASE)


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return dict(line.split("==") for line in lines if "==" in line)


def core() -> list[str]:
    """What `pip install gpsarsa` brings, and what that brings."""
    found, waiting = list[str](), ["gpsarsa"]
    while waiting:
        for line in metadata.requires(waiting.pop()) or []:
            name = re.split(r"[ ;<>=!~\[(]", line, maxsplit=1)[0]
            if "extra ==" not in line and name not in found and installed(name):
                found.append(name)
                waiting.append(name)
    return sorted(found)


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def licence(name: str) -> str:
    about = metadata.metadata(name)
    kinds = [line for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    given = about.get("License-Expression") or "; ".join(line.rpartition(":: ")[2] for line in kinds)
    return given or (about.get("License") or "unknown").split("\n")[0]


def faults() -> list[str]:
    found = [
        f"{name} {there} is installed; constraints.txt says {wanted}"
        for name, wanted in constraints().items()
        if (there := installed(name)) is not None and there != wanted
    ]
    found += [f"{name}: licence {licence(name)}" for name in core() if not FREE.search(licence(name))]
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    return found + (done.stdout.strip().split("\n") if done.returncode else [])


if __name__ == "__main__":
    for package in core():
        print(f"{package} {installed(package)}: {licence(package)}")
    wrong = faults()
    print("\n".join(wrong) or "all as it should be")
    sys.exit(1 if wrong else 0)
