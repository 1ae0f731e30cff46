"""One run of `benchmarks.control` in the package's own environment, printed as JSON.

    python -m benchmarks.control_ours gpsarsa|tiles TASK SEED STEPS

`gpsarsa` is a `SarsaAgent` with its shipped defaults and nothing else.
"""

from __future__ import annotations

import json
import sys

from benchmarks.control_tasks import SPARSELY, TASKS, Judge, Task, marks, timed
from benchmarks.tiles import TileSarsa
from gpsarsa import SarsaAgent, __version__

WARMUP = Task("CartPole-v1", 475), Task("Pendulum-v1", -200), Task("FrozenLake-v1", 0.65)


def gpsarsa(task: Task, seed: int, steps: int) -> dict:
    judge = Judge(task, marks(steps), seed)
    agent = SarsaAgent(task.make(), seed=seed)

    def act(observations):
        return [agent.predict(observation, deterministic=True)[0] for observation in observations]

    return timed(
        judge, lambda: agent.learn(steps, callback=lambda agent: judge(agent.num_timesteps, act)), steps
    )


def tiles(task: Task, seed: int, steps: int) -> dict:
    judge = Judge(task, marks(steps, SPARSELY), seed)
    agent = TileSarsa(task.make(), task.id, seed)

    def act(observations):
        return [agent.predict(observation) for observation in observations]

    return timed(judge, lambda: agent.learn(steps, lambda agent: judge(agent.num_timesteps, act)), steps)


CONTENDERS = {"gpsarsa": gpsarsa, "tiles": tiles}


def main(contender: str, name: str, seed: str, steps: str) -> None:
    learn = CONTENDERS[contender]
    for other in WARMUP:  # compiles
        learn(other, 0, 450)
    print(json.dumps({**learn(TASKS[name], int(seed), int(steps)), "version": f"gpsarsa {__version__}"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
