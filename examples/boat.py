"""What does the rest of the trip cost? A value function with intervals, from sixteen trips.

An autopilot steers a boat to its berth across a tidal stream that carries it east. A second under way costs
1, falling to 0 at the berth, where the episode ends. `SparseGPSarsa` watches sixteen trips and learns what
the rest of a trip costs from any state. The dynamics are deterministic, so the rewards summed along a
noise-free trip are the true value, against which the posterior is checked.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from gpsarsa import GPSarsa, SparseGPSarsa, Transitions, kernels

BERTH = np.array([5.0, 4.0])  # m east, m north; the harbour is 20 m by 16 m
GAMMA = 0.95
REWARD_NOISE = 0.05  # standard deviation of the measured reward

# The prior: a second costs at most 1, so values lie between -1 / (1 - GAMMA) = -20 and 0: -10 ± 2 · 5.
# Lengthscales of 12 m and 4 m/s are of the order that the log evidence prefers.
PRIOR_MEAN = -10.0
KERNEL = kernels.Matern52([12.0, 12.0, 4.0, 4.0], variance=5.0**2)

# Trips start at most 14 m east: the last two states lie beyond everything seen.
TEST_STATES = np.array([[2, 2], [8, 2], [5, 8], [12, 6], [3, 13], [10, 14], [16, 4], [19.5, 0.5]])
GRID = np.stack(np.meshgrid(np.linspace(0.0, 20.0, 41), np.linspace(0.0, 16.0, 33)), axis=-1)


def policy(states):
    """The autopilot's velocity through the water in m/s: towards the berth, slower when close."""
    course = BERTH - states
    return 0.8 * course / np.hypot(np.linalg.norm(course, axis=-1, keepdims=True), 2.0)


def stream(states):
    """The tidal stream in m/s: eastward, strongest along a line 10 m north."""
    speed = 0.5 * np.exp(-0.5 * ((states[..., 1] - 10.0) / 2.0) ** 2)
    return np.stack([speed, np.zeros_like(speed)], axis=-1)


def step(states):
    """One second: the next states, the rewards, and whether the boat has arrived."""
    rewards = np.expm1(-0.125 * np.sum((states - BERTH) ** 2, axis=-1))
    following = states + policy(states) + stream(states)
    return following, rewards, np.linalg.norm(following - BERTH, axis=-1) < 0.3


def rows(states):
    """Input rows: the state and the action that the policy chooses there."""
    return np.concatenate([states, policy(states)], axis=-1)


def true_value(states):
    """The discounted sum of the rewards until arrival, without noise."""
    value, weight = np.zeros(len(states)), np.ones(len(states))
    while weight.any():
        states, rewards, arrived = step(states)
        value += weight * rewards
        weight = np.where(arrived, 0.0, GAMMA * weight)
    return value


def trip(rng, most_steps):
    """The transitions (x, reward, x_next, discount) of one episode from a random start."""
    state, arrived = rng.uniform([0.0, 0.0], [14.0, 16.0]), False
    while most_steps > 0 and not arrived:
        following, reward, arrived = step(state)
        # Arrived: discount 0. A trip that is merely cut short keeps its discount and bootstraps from x_next.
        discount = 0.0 if arrived else GAMMA
        yield rows(state), reward + rng.normal(0.0, REWARD_NOISE), rows(following), discount
        state, most_steps = following, most_steps - 1


def learn(rng, trips=16):
    """Learn online, transition by transition; the last trip is cut short. The model and what it saw."""
    model = SparseGPSarsa(KERNEL, REWARD_NOISE**2, np.empty((0, 4)), prior_mean=PRIOR_MEAN)
    seen = []
    for i in range(trips):
        for x, reward, x_next, discount in trip(rng, most_steps=6 if i == trips - 1 else 100):
            # a new pseudo-input wherever none of the present ones is much alike
            if (KERNEL(x[None], model.pseudo_inputs) < 0.99 * KERNEL.variance).all():
                model.add_pseudo_inputs(x[None])
            model.observe(x, reward, x_next, discount)
            seen.append((x, reward, x_next, discount))
    return model, Transitions(*map(np.array, zip(*seen, strict=True)))


def print_table(states, true, mean, std):
    print("  state (m)       true     mean    95 % interval    inside")
    for (x, y), v, m, half in zip(states, true, mean, 1.96 * std, strict=True):
        inside = "yes" if abs(v - m) <= half else "no"
        print(f"({x:4.1f}, {y:4.1f})  {v:7.2f}  {m:7.2f}   [{m - half:6.2f}, {m + half:6.2f}]   {inside:>4}")


def draw_map(axis, values, levels, colours, title, label):
    surface = axis.contourf(*np.moveaxis(GRID, -1, 0), values.reshape(GRID.shape[:2]), levels, cmap=colours)
    bar = axis.figure.colorbar(surface, ax=axis, location="bottom", aspect=40, pad=0.02, label=label)
    bar.set_ticks(levels[::16])
    axis.plot(*BERTH, "*", color="crimson", markeredgecolor="white", markersize=16)
    axis.set(title=title, xlabel="east (m)", ylabel="north (m)", aspect="equal", xticks=range(0, 21, 5))


def draw(path, model, seen, true, mean, std):
    """Maps of the true value, the posterior mean and its standard deviation; below, a slice eastwards."""
    figure = Figure(figsize=(15, 8.2), layout="constrained")
    figure.get_layout_engine().set(hspace=0.06)
    panels = figure.subplot_mosaic([["true", "mean", "std"], ["slice"] * 3], height_ratios=[1.55, 1])
    values, widths = np.arange(-16.0, 1.01, 0.25), np.arange(0.0, std.max() + 0.05, 0.03125)
    unit = "value (discounted seconds)"
    draw_map(panels["true"], true, values, "viridis", "True value, and the stream", unit)
    draw_map(panels["mean"], mean, values, "viridis", "Posterior mean, trips and pseudo-inputs", unit)
    draw_map(panels["std"], std, widths, "magma_r", "Posterior standard deviation", "discounted seconds")
    arrows = GRID[12:29:2, 2::8].reshape(-1, 2)
    panels["true"].quiver(*arrows.T, *stream(arrows).T, color="white", scale_units="x", scale=0.25)
    trips = np.insert(seen.inputs[:, :2], np.flatnonzero(seen.starts), np.nan, axis=0)
    panels["mean"].plot(*trips.T, ".-", color="white", linewidth=0.8, markersize=3)
    panels["mean"].plot(
        *model.pseudo_inputs[:, :2].T, "D", color="orange", markeredgecolor="black", markersize=5
    )
    panels["std"].plot(*trips.T, ".-", color="0.3", linewidth=0.8, markersize=3)
    panels["std"].axhline(BERTH[1], color="tab:blue", linestyle=":")

    line, axis = np.column_stack([np.linspace(0.0, 20.0, 201), np.full(201, BERTH[1])]), panels["slice"]
    m, s = model.predict(rows(line), return_std=True)
    axis.fill_between(line[:, 0], m - 1.96 * s, m + 1.96 * s, alpha=0.2, linewidth=0, label="95 % interval")
    axis.plot(line[:, 0], m, label="posterior mean")
    axis.plot(line[:, 0], true_value(line), "k--", label="true value")
    axis.set(title="Along the dotted line, due east through the berth", xlabel="east (m)", ylabel=unit)
    axis.set(xlim=(0, 20), xticks=range(0, 21, 5))
    axis.legend(frameon=False, loc="lower left")
    figure.savefig(path, dpi=100)


def main(path="runs/boat/boat.png"):
    """Learn, print what was learnt, save the picture to `path`; the figures of merit as a dict."""
    model, seen = learn(np.random.default_rng(0))
    print(f"Learnt from {seen} through {len(model.pseudo_inputs)} pseudo-inputs\n")
    print_table(TEST_STATES, true_value(TEST_STATES), *model.predict(rows(TEST_STATES), return_std=True))

    states = GRID.reshape(-1, 2)
    true = true_value(states)
    mean, std = model.predict(rows(states), return_std=True)
    exact = GPSarsa(KERNEL, REWARD_NOISE**2, prior_mean=PRIOR_MEAN).fit(seen)
    rmse, span = float(np.sqrt(np.mean((mean - true) ** 2))), float(np.ptp(true))
    # States close together err together, so the share scatters around its mean from seed to seed.
    coverage = float(np.mean(np.abs(mean - true) <= 1.96 * std))
    difference = float(np.abs(mean - exact.predict(rows(states))).max())
    print(
        f"\nOn a grid of {len(states)} states over the whole harbour, where the true value spans {span:.1f}:"
    )
    print(f"  root mean square error {rmse:.2f} ({100 * rmse / span:.1f} % of the span)")
    print(f"  inside the 95 % interval: {100 * coverage:.1f} % of the states")
    print(f"  posterior mean against exact GP-SARSA: at most {difference:.2f} apart")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    draw(path, model, seen, true, mean, std)
    print(f"Picture: {path}")
    return {"rmse": rmse, "span": span, "coverage": coverage, "difference": difference}


if __name__ == "__main__":
    main()
