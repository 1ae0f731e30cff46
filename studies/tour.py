"""The pictures of docs/tour.md: what is left in a cup of tea, and what an agent thinks of a pole.

python -m studies.tour                # docs/tour_tea.png, docs/tour_pole.png; a quarter of a minute
"""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpsarsa import SarsaAgent, SparseGPSarsa, Transitions, kernels, plots

Array = NDArray[np.float64]

GAMMA = 0.9
CUPS = 10
GRID = np.linspace(0.2, 1.2, 201)
Z = np.linspace(0.25, 1.0, 12)[:, None]
STEPS = 1_500  # of the agent


def pleasure(heat: Array) -> Array:
    """Of a minute with tea of that heat, 0 cold to 1 boiling."""
    return np.exp(-(((heat - 0.6) / 0.1) ** 2))


def cup(rng: np.random.Generator) -> Transitions:
    """One cup, minute by minute, until it is cold."""
    heat = [rng.uniform(0.5, 1.0)]
    while 0.9 * heat[-1] > 0.3:
        heat.append(0.9 * heat[-1])
    rewards = pleasure(np.array(heat)) + 0.05 * rng.standard_normal(len(heat))
    return Transitions.from_trajectory(np.array(heat)[:, None], rewards, GAMMA, terminated=True)


def true_value(heat: Array) -> Array:
    """The discounted pleasure until the cup is cold, without noise."""
    value, weight = np.zeros_like(heat), np.ones_like(heat)
    while weight.any():
        value, heat = value + weight * pleasure(heat), 0.9 * heat
        weight = np.where(heat > 0.3, GAMMA * weight, 0.0)
    return value


def draw_tea(path: Path) -> None:
    """The posterior after one cup, after ten, and after ten with what the evidence says."""
    rng = np.random.default_rng(0)
    cups = [cup(rng) for _ in range(CUPS)]
    everything = Transitions.concatenate(cups)
    model = SparseGPSarsa(kernels.RBF(0.3, variance=4.0), 0.01, Z)
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for number, axis in enumerate(figure.subplots(1, 3, sharey=True)):
        if number == 0:
            seen, title = cups[0], "One cup"
            model.fit(seen)
        elif number == 1:
            seen, title = everything, "Ten cups"
            model.fit(seen)
        else:
            seen, title = everything, "Ten cups, lengthscale and noise learnt"
            model.optimize(seen)
        mean, std = model.predict(GRID[:, None], return_std=True)
        axis.fill_between(
            GRID, mean - 1.96 * std, mean + 1.96 * std, alpha=0.25, linewidth=0, label="95 % interval"
        )
        axis.plot(GRID, mean, label="posterior mean")
        axis.plot(GRID, true_value(GRID), "k--", linewidth=1, label="true value")
        places = model.pseudo_inputs[:, 0]
        axis.plot(
            places, np.full(len(places), -1.9), "D", color="tab:orange", markersize=4, label="pseudo-input"
        )
        axis.plot(seen.inputs[:, 0], np.full(len(seen), -2.3), "k|", markersize=6, label="visited")
        axis.set(title=title, xlabel="heat of the tea", ylim=(-2.6, 4.2), xlim=(GRID[0], GRID[-1]))
        axis.spines[["top", "right"]].set_visible(False)
        if number == 0:
            axis.set_ylabel("pleasure to come")
        if number == 2:
            axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    figure.savefig(path, dpi=110)


def draw_pole(path: Path) -> None:
    """Value and uncertainty over what the agent has seen."""
    agent = SarsaAgent(gym.make("CartPole-v1"), seed=0).learn(STEPS)
    plots.value_surface(agent).savefig(path, dpi=90)


def main(folder: Path = Path("docs")) -> None:
    draw_tea(folder / "tour_tea.png")
    draw_pole(folder / "tour_pole.png")


if __name__ == "__main__":
    main()
