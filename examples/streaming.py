"""A stream far longer than memory: the value of every state, through sixty pseudo-inputs and no more.

Two readings of a machine wander about their means for ever, and how they stand is rewarded. Transitions come
one by one, and none is kept. The first 2 000 choose the kernel; after that `Timescales` takes in each, puts a
pseudo-input where one is missing, and drops the least useful one at the budget. The true value is known here
in closed form, so the error can be watched as it falls, while time and memory stay what they were.
"""

import itertools
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from gpsarsa import SparseGPSarsa, Timescales, Transitions, kernels, placement

GAMMA, KEEP, SHOCK = 0.9, 0.9, 0.4  # x′ = KEEP·x + SHOCK·e, e ~ N(0, I)
SPREAD = SHOCK / np.sqrt(1.0 - KEEP**2)  # the standard deviation of a reading, in the long run
FIRST = 2_000


def reward(state):
    """A wave over both readings."""
    return float(np.sin(1.5 * state[0]) * np.cos(state[1]))


def true_value(states, terms=300):
    """Σ γᵗ E[reward(xₜ) | x₀], with E sin(kz) = sin(k·mean)·exp(−k²·variance/2), and cos likewise."""
    t = np.arange(terms)
    shrunk, variance = KEEP**t, SPREAD**2 * (1.0 - KEEP ** (2 * t))
    one = np.sin(1.5 * states[:, :1] * shrunk) * np.exp(-0.5 * 1.5**2 * variance)
    other = np.cos(states[:, 1:] * shrunk) * np.exp(-0.5 * variance)
    return (one * other) @ GAMMA**t


def stream(rng):
    """Transitions (x, reward, x_next, discount), one after another and without end."""
    state = SPREAD * rng.normal(size=2)
    while True:
        following = KEEP * state + SHOCK * rng.normal(size=2)
        yield state, reward(state), following, GAMMA
        state = following


def begin(transitions, budget):
    """A model whose kernel and noise are those that the evidence of the first transitions prefers."""
    first = Transitions(*map(np.array, zip(*itertools.islice(transitions, FIRST), strict=True)))
    kernel = kernels.RBF([1.0, 1.0])
    model = SparseGPSarsa(  # correlated noise, since transitions are stochastic; streaming keeps none of them
        kernel, 1.0, placement.Greedy().choose(first, budget, kernel, 1.0),
        growth="streaming", noise="correlated", weights="dtc",
    )  # fmt: skip
    model.optimize(first, pseudo_inputs=False)
    return Timescales(model, budget=budget)


def follow(run, transitions, count, every, file):
    """Take in `count` transitions; a row for `every` of them: seen, error, µs each, kB kept."""
    states = SPREAD * np.random.default_rng(99).normal(size=(1_000, 2))
    true, rows = true_value(states), []
    for done in range(every, count + 1, every):
        chunk = list(itertools.islice(transitions, every))
        clock = time.process_time()
        for transition in chunk:
            run.observe(*transition)
        seconds = time.process_time() - clock
        mean, std = run.model.predict(states, return_std=True)
        error = float(np.sqrt(np.mean((mean - true) ** 2)))
        run.save(file)
        rows.append((FIRST + done, error, 1e6 * seconds / every, file.stat().st_size / 1e3))
        inside = float(np.mean(np.abs(mean - true) <= 1.645 * std))
    return np.array(rows), inside


def draw(path, tables, run, spread):
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    axes = figure.subplots(1, 4)
    labels = ["root mean square error", "µs a transition", "kB of everything that is kept"]
    for axis, column, label in zip(axes[:3], (1, 2, 3), labels, strict=True):
        for table in tables:
            axis.plot(table[:, 0] / 1e3, table[:, column], ".-")
        axis.set(title=label, xlabel="thousand transitions seen", ylim=(0, None))
    axes[0].set_title(f"error, where values spread by {spread:.1f}")
    side = np.linspace(-3.0, 3.0, 61)
    grid = np.stack(np.meshgrid(side, side), axis=-1)
    values = run.model.predict(grid.reshape(-1, 2)).reshape(61, 61)
    figure.colorbar(axes[3].contourf(side, side, values, 30), ax=axes[3])
    axes[3].plot(*run.model.pseudo_inputs.T, "D", color="orange", markeredgecolor="black", markersize=4)
    axes[3].set(title="Value learnt, and pseudo-inputs", xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
    figure.savefig(path, dpi=100)


def main(out="runs/streaming", count=60_000, every=3_000, budget=60, seeds=3):
    """Follow a stream for each seed; returns the tables that were measured."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    spread = float(np.std(true_value(SPREAD * np.random.default_rng(99).normal(size=(1_000, 2)))))
    tables, shares = [], []
    for seed in range(seeds):
        transitions = stream(np.random.default_rng(seed))
        run = begin(transitions, budget)
        table, inside = follow(run, transitions, count, every, out / "run.safetensors")
        tables.append(table)
        shares.append(inside)
        print(f"Seed {seed}, {len(run.model.pseudo_inputs)} pseudo-inputs, {run.counts['added']} came and "
              f"{run.counts['dropped']} went:")  # fmt: skip
        for seen, error, micros, size in (table[0], table[len(table) // 2], table[-1]):
            print(
                f"  {seen:6.0f} seen   error {error:.3f}   {micros:3.0f} µs a transition   {size:.1f} kB kept"
            )
    kept = FIRST + count
    print(f"Values spread by {spread:.2f}. All {kept} transitions would fill {48 * kept / 1e3:.0f} kB.")
    print(
        f"Inside the model's own 90 % interval at the end: {', '.join(f'{100 * s:.0f} %' for s in shares)}."
    )
    draw(out / "streaming.png", tables, run, spread)
    print(f"Picture: {out / 'streaming.png'}")
    return {"tables": tables, "spread": spread, "run": run}


if __name__ == "__main__":
    main()
