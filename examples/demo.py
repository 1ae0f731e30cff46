"""Mountain Car from scratch: train, compare with the threshold, write the report.

An underpowered car must swing back and forth to leave a valley; every step costs 1. The environment counts
as solved at an average return of -110. Nothing is tuned here: `gpsarsa train MountainCar-v0` does the same.
"""

import shutil
import sys
from pathlib import Path

from gpsarsa.training import train

STEPS, SEED = 5_000, 0


def main(out="runs/demo", steps=STEPS):
    """Train into a fresh folder; returns the run."""
    if (Path(out) / "config.json").exists():  # of an earlier demo
        shutil.rmtree(out)
    print(f"Training on MountainCar-v0, {steps} steps, seed {SEED}. The first run compiles, half a minute.")
    sys.stdout.flush()
    run = train("MountainCar-v0", steps=steps, seed=SEED, out=out)
    result = run.summary["evaluation"]
    mean, error, threshold = result["mean"], result["standard_error"], result["threshold"]
    verdict = "reached" if mean >= threshold else "not reached"
    print(f"\nGreedy policy after {steps} steps: {mean:.1f} ± {error:.1f} over {result['episodes']} episodes")
    print(f"Threshold {threshold:g}: {verdict}. An episode that never leaves the valley is cut off at -200.")
    print(f"Took {run.summary['seconds']:.0f} s. Look at {Path(out) / 'report.html'}")
    return run


if __name__ == "__main__":
    main(*sys.argv[1:2])
