"""Every target with damage at random, for a while: `python -m fuzz --seconds 20` (for each of them)."""

from __future__ import annotations

import argparse
import random
import time

from fuzz.targets import Workshop, attempts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each target")
    parser.add_argument("--seed", type=int, default=None, help="repeats one attempt alone")
    parser.add_argument("--only", default="", help="targets whose name holds this")
    options = parser.parse_args()
    workshop, total = Workshop(), 0
    begin = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    try:
        for name, act in attempts(workshop).items():
            if options.only not in name:
                continue
            end, done = time.monotonic() + options.seconds, 0
            while time.monotonic() < end and (options.seed is None or done == 0):
                try:
                    act(random.Random(begin + done))
                except BaseException:
                    print(f"{name}: failed, again with --only {name!r} --seed {begin + done}")
                    raise
                done += 1
            total += done
            print(f"{name}: {done}", flush=True)
    finally:
        workshop.close()
    print(f"{total} attempts")


if __name__ == "__main__":
    main()
