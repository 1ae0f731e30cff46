"""`kill -9` at random moments of a run's whole course: whoever goes on ends with the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMES = int(os.environ.get("GPSARSA_FUZZ", "0")) // 200 or 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("what", "kills"), [("sarsa", 40), ("improving", 10), ("evaluate", 25)])
def test_killed_at_random_moments(what, kills, tmp_path):
    command = [sys.executable, str(HERE / "killing.py"), what, str(kills * TIMES), str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{kills * TIMES} kills, " in done.stdout
