"""Docking a vessel after five hours at sea: an environment of one's own, and a small budget of steps.

A vessel on a river has to reach its berth and to stop there. Near the berth the river runs at up to 0.45 m/s,
which nobody told it; full thrust is good for 0.8 m/s. A step is a minute at sea. The agent gets 300: five
hours, its random first one included, or about thirty attempts of ten minutes at most. Then it is judged from
starts of its own, beside chance and three controllers made by hand: tuned in still water, tuned in the river
by many more attempts than thirty, and told the stream. Five seeds show that luck decides too: with most of
them the agent learns to dock, and not with all.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from matplotlib.figure import Figure
from scipy.stats import t

from gpsarsa import SarsaAgent


def stream(place):
    """Of the river, in m/s: fastest at the berth."""
    return 0.05 + 0.4 * np.exp(-0.5 * (place / 40.0) ** 2)


class Docking(gym.Env):
    """Seen: metres downstream of the berth, speed over ground in m/s. Done: thrust, as a share of full."""

    REACH, FULL, LONGEST = 150.0, 0.8, 10  # m between berth and booms, m/s at full thrust, minutes

    def __init__(self):
        bounds = np.array([self.REACH, 2.0], np.float32)
        self.observation_space = spaces.Box(-bounds, bounds)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed, self.minutes = self.np_random.uniform(-120.0, 120.0), 0.0, 0
        return np.array([self.place, self.speed], np.float32), {}

    def step(self, action):
        thrust = float(np.clip(action[0], -1.0, 1.0))
        for _ in range(6):  # ten seconds each; the vessel takes a minute to follow thrust and water
            self.speed += (self.FULL * thrust + stream(self.place) - self.speed) / 6.0
            self.place += 10.0 * self.speed
            if abs(self.place) > self.REACH:  # a boom stops it
                self.place, self.speed = float(np.clip(self.place, -self.REACH, self.REACH)), 0.0
        self.minutes += 1
        docked = bool(abs(self.place) < 8.0 and abs(self.speed) < 0.15)
        reward = -abs(self.place) / 50.0 - 0.1 * thrust**2  # being away, and fuel
        seen = np.array([self.place, self.speed], np.float32)
        return seen, reward, docked, self.minutes >= self.LONGEST, {"docked": docked}


class Controller:
    """Thrust against the distance and the speed, and against the stream where it is known."""

    def __init__(self, distance=0.04, speed=1.5, informed=False):  # the best of 45 pairs in still water
        self.distance, self.speed, self.informed = distance, speed, informed

    def predict(self, seen, deterministic=True):
        against = stream(seen[0]) / Docking.FULL if self.informed else 0.0
        return np.clip([-self.distance * seen[0] - self.speed * seen[1] - against], -1.0, 1.0), None


class Chance:
    """Any thrust."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def predict(self, seen, deterministic=True):
        return self.rng.uniform(-1.0, 1.0, 1), None


def attempt(policy, seed):
    """What was seen on one attempt, the rewards, and whether the vessel docked."""
    env = Docking()
    seen, _ = env.reset(seed=seed)
    track, rewards, over = [seen], [], False
    while not over:
        seen, reward, terminated, truncated, info = env.step(policy.predict(seen)[0])
        track.append(seen)
        rewards.append(reward)
        over = terminated or truncated
    return np.array(track), np.array(rewards), info["docked"]


def judge(name, policy, attempts):
    """Prints and returns the share docked and the mean return, over the same starts for everyone."""
    _, rewards, docked = zip(*(attempt(policy, 10_000 + i) for i in range(attempts)), strict=True)
    minutes, totals = np.mean([len(r) for r in rewards]), [r.sum() for r in rewards]
    print(f"  {name:30} {100 * np.mean(docked):4.0f} %   {minutes:4.1f}   {np.mean(totals):7.2f}")
    return float(np.mean(docked)), float(np.mean(totals))


def draw(path, agent, size):
    figure = Figure(figsize=(15, 8), layout="constrained")
    (left, right), below = figure.subplots(2, 3)[0, :2], figure.axes[3:]
    place, speed = np.meshgrid(np.linspace(-150.0, 150.0, size), np.linspace(-0.9, 1.3, size))
    mean, std = agent.values(np.column_stack([place.ravel(), speed.ravel()]))
    maps = [
        (left, mean, "viridis", "Value learnt"),
        (right, std, "magma_r", "Its standard deviation, all states seen"),
    ]
    for axis, values, colours, title in maps:
        surface = axis.contourf(place, speed, values.reshape(place.shape), 30, cmap=colours)
        figure.colorbar(surface, ax=axis)
        axis.plot(0.0, 0.0, "*", color="crimson", markeredgecolor="white", markersize=16)
        axis.set(title=title, xlabel="m downstream of the berth", ylabel="speed over ground (m/s)")
    right.plot(*agent.visited.T, ".", color="tab:blue", markersize=3)
    right.set(xlim=(-150, 150), ylim=(-0.9, 1.3))
    river = figure.axes[2]
    river.plot(place[0], stream(place[0]))
    river.set(
        title="What nobody told it: the stream",
        xlabel="m downstream of the berth",
        ylabel="m/s",
        ylim=(0, 0.8),
    )
    policies = {
        "The agent (green: docked)": agent,
        "Controller": Controller(),
        "Controller, told the stream": Controller(informed=True),
    }
    for axis, (name, policy) in zip(below, policies.items(), strict=False):
        for seed in range(10_000, 10_010):
            track, _, docked = attempt(policy, seed)
            axis.plot(track[:, 0], ".-", color="tab:green" if docked else "tab:red")
        axis.axhspan(-8.0, 8.0, color="crimson", alpha=0.2, linewidth=0)
        axis.set(title=f"{name}", xlabel="minute", ylim=(-150, 150), xlim=(0, 10))
    below[0].set_ylabel("m downstream of the berth")
    figure.savefig(path, dpi=100)


def main(out="runs/docking", budget=300, warmup=60, seeds=5, attempts=50, size=41):
    """Learn within the budget with each seed, judge, draw the first; returns what was measured."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    print(f"{attempts} attempts each:               docked   minutes   return")
    found = {
        "chance": judge("chance", Chance(), attempts),
        "controller": judge("controller", Controller(), attempts),
        "stiff": judge("controller, tuned in the river", Controller(0.06, 1.0), attempts),
        "told": judge("controller, told the stream", Controller(informed=True), attempts),
    }
    agents = [SarsaAgent(Docking(), warmup=warmup, seed=seed).learn(budget) for seed in range(seeds)]
    found["agents"] = [
        judge(f"agent, seed {a.seed}, after {a.num_timesteps} min", a, attempts) for a in agents
    ]
    docked, returns = np.array(found["agents"]).T
    half = t.ppf(0.975, seeds - 1) * returns.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else np.inf
    low, mean, high = 100 * docked.min(), 100 * docked.mean(), 100 * docked.max()
    print(f"{budget} minutes buy {mean:.0f} % docked ({low:.0f} to {high:.0f} % over {seeds} seeds) and")
    print(f"a return of {returns.mean():.2f} ± {half:.2f} (95 % interval of the mean).")
    starts, rewards, _ = zip(*(attempt(agents[0], 10_000 + i) for i in range(attempts)), strict=True)
    expected = agents[0].values([track[0] for track in starts])[0].mean()
    came = np.mean([r @ agents[0].gamma ** np.arange(len(r)) for r in rewards])
    print(f"Seed 0 expected a discounted return of {expected:.2f} at these starts; {came:.2f} came.")
    draw(out / "docking.png", agents[0], size)
    print(f"Picture, of seed 0: {out / 'docking.png'}")
    return found


if __name__ == "__main__":
    main()
