"""CartPole: learn, watch the return pass the threshold, save the agent and go on from the file.

A cart must keep a pole upright; every step that it stands is worth 1, and an episode ends after 500. The task
counts as solved at a mean return of 475. What `predict` would return is watched in episodes apart, from which
nothing is learnt. Then the first agent is saved, and goes on from the file as if there had been no break.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure

from gpsarsa import SarsaAgent
from gpsarsa.control.evaluation import evaluate_policy

TASK, THRESHOLD = "CartPole-v1", 475.0


def watch(every, curve):
    """A callback: after every so many steps, plays five episodes with `predict` and notes the mean return."""
    env = gym.make(TASK)

    def look(agent):
        if agent.num_timesteps % every == 0:
            mean, _ = evaluate_policy(agent, env, 5)
            curve.append((agent.num_timesteps, mean))

    return look


def shown(curve):
    return ", ".join(f"{mean:.0f} at {step}" for step, mean in curve)


def draw(path, curves, break_at):
    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    for seed, curve in enumerate(curves):
        axis.plot(*np.array(curve).T, ".-", label=f"seed {seed}")
    axis.axhline(THRESHOLD, color="black", linestyle="--", linewidth=1, label=f"solved: {THRESHOLD:g}")
    axis.axvline(break_at, color="0.6", linestyle=":", label="saved and loaded (seed 0)")
    axis.set(xlabel="steps taken in the environment", ylabel="mean return of predict", ylim=(0, 520))
    axis.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=100)


def main(out="runs/cartpole", steps=500, more=300, every=50, seeds=3):
    """Learn for `steps` steps, with the first seed for `more` from the file; returns what was measured."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    agents, curves = [], []
    print("Mean return of predict over five episodes, after so many steps:")
    for seed in range(seeds):
        curves.append([])
        agent = SarsaAgent(gym.make(TASK), seed=seed)
        agents.append(agent.learn(steps, callback=watch(every, curves[-1])))
        print(f"  seed {seed}: {shown(curves[-1])}")
    solved = [next((step for step, mean in curve if mean >= THRESHOLD), None) for curve in curves]
    print(f"First at {THRESHOLD:g} or more: " + ", ".join("not yet" if s is None else str(s) for s in solved))

    file, rest = out / "agent.safetensors", []
    agents[0].save(file)
    print(f"\nSaved the first agent: {file}, {file.stat().st_size / 1e6:.1f} MB. From the file it goes on:")
    loaded = SarsaAgent.load(file, gym.make(TASK)).learn(more, callback=watch(every, rest))
    print(f"  seed 0: {shown(rest)}")
    agents[0].learn(more)  # and the one that was never away
    gap = float(np.abs(loaded.values(loaded.visited)[0] - agents[0].values(loaded.visited)[0]).max())
    print(f"  Its values and those of the agent that never left memory differ by at most {gap:g}.")
    curves[0] += rest
    draw(out / "cartpole.png", curves, steps)
    print(f"Picture: {out / 'cartpole.png'}")
    return {"curves": curves, "solved": solved, "gap": gap, "steps": loaded.num_timesteps}


if __name__ == "__main__":
    main()
