"""Figure 1 of the paper, from scratch: what becomes of the posterior when pseudo-inputs find their places.

Left the exact GP-SARSA posterior, supported by all transitions; in the middle SPGP-SARSA through a few
pseudo-inputs put down at random; right the same after a lower bound on the evidence was maximised over their
places. All three have the same hyperparameters. Under each sparse panel: the evidence, and how far the
posterior is from the exact one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions, kernels
from studies.placement import compare

Array = NDArray[np.float64]

GAMMA = 0.9
PLACES, WORTH = np.array([[0.6, 0.4], [-0.5, -0.3]]), np.array([1.0, 0.5])
NOISE = 0.02  # standard deviation of the measured reward
PSEUDO_INPUTS = 50
SIDE = np.linspace(-1.0, 1.0, 61)
SEEDS = range(1, 9)


def episodes(rng: np.random.Generator, count: int = 16, steps: int = 25) -> Transitions:
    """A vehicle is drawn into an eddy; near either of two places the reward is high."""
    parts = []
    for _ in range(count):
        path = [rng.uniform(-1.0, 1.0, 2)]
        for _ in range(steps):
            x = path[-1]
            swirl = 0.12 * np.array([-x[1], x[0]])
            path.append(np.clip(x + 0.08 * (PLACES[0] - x) + swirl, -1.0, 1.0))
        places = np.array(path)
        distances = np.sum((places[:-1, None] - PLACES) ** 2, axis=2)
        rewards = np.exp(-20.0 * distances) @ WORTH + rng.normal(0.0, NOISE, steps)
        parts.append(Transitions.from_trajectory(places, rewards, GAMMA, terminated=False))
    return Transitions.concatenate(parts)


def divergence(model: SparseGPSarsa, exact: GPSarsa, X: Array) -> tuple[float, float]:
    """RMSE of the means over their spread, and the mean of KL(sparse ‖ exact) of the marginals."""
    figures = compare(model.predict(X, return_std=True), exact.predict(X, return_std=True))
    return figures["error"], figures["KL"]


def models(
    seed: int, objective: str = "evidence"
) -> tuple[Transitions, GPSarsa, SparseGPSarsa, SparseGPSarsa]:
    """The data, the exact model, and the sparse one before and after optimisation."""
    rng = np.random.default_rng(seed)
    t = episodes(rng)
    exact = GPSarsa(kernels.RBF([0.5, 0.5]), NOISE**2)
    exact.optimize(t)
    Z = rng.uniform(-1.0, 1.0, (PSEUDO_INPUTS, 2))
    before = SparseGPSarsa(exact.kernel, exact.noise_variance, Z).fit(t)
    after = SparseGPSarsa(exact.kernel, exact.noise_variance, Z)
    after.optimize(t, hyperparameters=False, objective=objective, max_iterations=1000)
    return t, exact, before, after


def draw(path: Path, t: Transitions, exact: GPSarsa, before: SparseGPSarsa, after: SparseGPSarsa) -> None:
    figure = Figure(figsize=(14, 5.4), layout="constrained")
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    X, Y = np.meshgrid(SIDE, SIDE)
    grid = np.stack([X.ravel(), Y.ravel()], axis=1)
    titles: dict[str, GPSarsa | SparseGPSarsa] = {
        "Exact GP-SARSA": exact,
        "SPGP-SARSA, random pseudo-inputs": before,
        "SPGP-SARSA, optimised pseudo-inputs": after,
    }
    means = [model.predict(grid).reshape(X.shape) for model in titles.values()]
    levels = np.linspace(means[0].min(), means[0].max(), 41)
    for axis, (title, model), mean in zip(axes, titles.items(), means, strict=True):
        surface = axis.contourf(X, Y, mean, levels, extend="both")
        axis.plot(*t.inputs.T, ".", color="white", markersize=2.5, alpha=0.8)
        below = f"{len(t)} transitions"
        if isinstance(model, SparseGPSarsa):
            axis.plot(*model.pseudo_inputs.T, "D", color="orangered", markeredgecolor="black", markersize=6)
            rmse, kl = divergence(model, exact, t.inputs)
            below = f"KL to exact {kl:.2f} nats, RMSE {100 * rmse:.1f} %"
        axis.set_title(title, fontsize=13)
        axis.set_xlabel(f"{below}\nlog evidence {model.log_evidence():.1f}", fontsize=12)
        axis.set(xlim=(-1.06, 1.06), ylim=(-1.06, 1.06), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    figure.colorbar(surface, ax=axes, label="posterior mean of Q", ticks=np.round(levels[::10], 1))
    figure.savefig(path, dpi=110)


def closed(objective: str) -> None:
    """Over several seeds: how much of the distance to the exact model the optimisation takes away."""
    print(f"\nobjective: {objective}\nseed   gap in log evidence        mean KL               RMSE / spread")
    shares = []
    for seed in SEEDS:
        t, exact, before, after = models(seed, objective)
        distances = []
        for model in (before, after):
            rmse, kl = divergence(model, exact, t.inputs)
            distances.append([abs(exact.log_evidence() - model.log_evidence()), kl, rmse])
        shares.append(1.0 - np.divide(distances[1], distances[0]))
        (gap0, kl0, rmse0), (gap1, kl1, rmse1) = distances
        print(
            f"{seed:4}   {gap0:8.1f} → {gap1:6.1f}   {kl0:9.2f} → {kl1:7.3f}   {rmse0:9.4f} → {rmse1:7.4f}",
            flush=True,
        )
    least, median, most = 100.0 * np.quantile(shares, [0.0, 0.5, 1.0], axis=0)
    for name, *share in zip(("gap in log evidence", "KL", "RMSE"), median, least, most, strict=True):
        print(f"{name:>20}: {share[0]:.1f} % less (median; {share[1]:.1f} … {share[2]:.1f} over the seeds)")


if __name__ == "__main__":
    draw(Path("docs/figure1.png"), *models(0, "variational"))
    print("wrote docs/figure1.png")
    for name in ("evidence", "variational"):
        closed(name)
