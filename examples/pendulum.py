"""Pendulum: a continuous torque, too weak to lift the pendulum at once, learnt within forty seconds of it.

A step is a twentieth of a second, and the agent gets 800 of them. The return counts what 200 steps cost; it
depends on where the pendulum begins, and -200 on average is usually called solved. Actions are torques
between -2 and 2. The maps show what was learnt, and how the pendulum gets up.
The curves are means of five episodes, always the same; what is printed comes from others, and may disagree.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure

from gpsarsa import SarsaAgent
from gpsarsa.control.callbacks import EvalCallback
from gpsarsa.control.evaluation import episodes, standard_error

TASK, SOLVED = "Pendulum-v1", -200.0


def observations(angles, speeds):
    """As the environment shows them: cosine, sine, speed."""
    return np.stack([np.cos(angles), np.sin(angles), speeds], axis=-1).astype(np.float32)


def swing(agent, seed):
    """Angle, speed and torque along the 200 steps of an episode."""
    env, rows = gym.make(TASK), []
    seen, _ = env.reset(seed=seed)
    for _ in range(200):
        torque, _ = agent.predict(seen)
        rows.append([np.arctan2(seen[1], seen[0]), seen[2], torque[0]])
        seen, *_ = env.step(torque)
    return np.array(rows)


def draw(path, agent, curves, tracks, size):
    figure = Figure(figsize=(15, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for seed, curve in curves.items():
        left.plot(*np.array(curve)[:, :2].T, ".-", label=f"seed {seed}")
    left.axhline(SOLVED, color="black", linestyle="--", linewidth=1, label="-200")
    left.set(title="Return of predict", xlabel="steps", ylabel="mean return of five episodes")
    left.legend(frameon=False, loc="lower right")

    angles, speeds = np.meshgrid(np.linspace(-np.pi, np.pi, size), np.linspace(-8.0, 8.0, size))
    grid = observations(angles, speeds).reshape(-1, 3)
    maps = [
        (middle, agent.values(grid)[0], "viridis", "Value, as the agent expects it"),
        (right, agent.predict(grid)[0], "coolwarm", "Torque, and three episodes"),
    ]
    for axis, values, colours, title in maps:
        surface = axis.pcolormesh(angles, speeds, np.reshape(values, angles.shape), cmap=colours)
        figure.colorbar(surface, ax=axis)
        for track in tracks[:3]:
            jumps = np.flatnonzero(np.abs(np.diff(track[:, 0])) > np.pi) + 1  # once around
            axis.plot(*np.insert(track[:, :2], jumps, np.nan, axis=0).T, "-", color="black", linewidth=1)
            axis.plot(*track[0, :2], "o", color="white", markeredgecolor="black")
        axis.plot(0.0, 0.0, "*", color="white", markeredgecolor="black", markersize=14)
        axis.set(title=title, xlabel="angle, 0 is upright (rad)", ylabel="speed (rad/s)")
    figure.savefig(path, dpi=100)


def main(out="runs/pendulum", steps=800, every=100, seeds=(0, 1, 2), judged=10, size=41):
    """Learn with each seed, judge each in `judged` episodes; returns what was measured."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    agents, curves, means = [], {}, []
    for seed in seeds:
        watching = EvalCallback(gym.make(TASK), n_eval_episodes=5, eval_freq=every)
        agent = SarsaAgent(gym.make(TASK), seed=seed).learn(steps, callback=watching)
        agents.append(agent)
        curves[seed] = watching.evaluations
        returns = [episode.total for episode in episodes(agent, gym.make(TASK), judged, seed=1)]
        means.append(float(np.mean(returns)))
        print(
            f"seed {seed}: after {agent.num_timesteps} steps {means[-1]:.0f} ± {standard_error(returns):.0f} "
            f"(mean and standard error of {judged} episodes)"
        )
    print(f"{sum(mean >= SOLVED for mean in means)} of {len(seeds)} seeds reach {SOLVED:g}.")
    tracks = [swing(agents[0], seed) for seed in range(judged)]
    upright = sum(bool((np.abs(track[-20:, 0]) < 0.4).all()) for track in tracks)
    print(f"With the first one {upright} of {judged} episodes end with a second within 0.4 rad of upright.")
    angles, speeds, torques = np.array(tracks).transpose(2, 0, 1)
    costs = angles**2 + 0.1 * speeds**2 + 0.001 * torques**2  # the environment's
    came = -(costs @ agents[0].gamma ** np.arange(200)).mean()
    expected = agents[0].values(observations(angles[:, 0], speeds[:, 0]))[0].mean()
    print(f"It expected a discounted return of {expected:.0f} at their starts; {came:.0f} came.")
    draw(out / "pendulum.png", agents[0], curves, tracks, size)
    print(f"Picture: {out / 'pendulum.png'}")
    return {"means": means, "upright": upright, "curves": curves, "tracks": tracks}


if __name__ == "__main__":
    main()
