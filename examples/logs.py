"""Which ordering rule earns more? Answered from a shop's log, without trying either rule.

Every morning a shop may order goods, sells what is asked for, and pays for what stays on its shelves. Its
log holds forty months of a manager who orders by feel. Two rules are up for discussion that nobody has ever
followed. `offline.evaluate` says from the log what each would earn, with an interval, and
`offline.compare` how sure one can be which is better. This shop being simulated, the rules can also be tried
out: twenty logs, of as many managers, show how often the answer was right.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from matplotlib.figure import Figure

from gpsarsa import offline

GAMMA, LEVEL = 0.95, 0.9  # discount; of the intervals
SHELF = 20.0  # units that fit into the shop
CRATES = np.array([0.0, 5.0, 10.0])  # what can be ordered: nothing, half a van, a van


class Shop(gym.Env):
    """Seen: units in stock. Done: crates ordered, 0 to 2. A month is an episode; it is cut off, not over."""

    def __init__(self):
        self.observation_space = spaces.Box(0.0, SHELF, (1,), np.float64)
        self.action_space = spaces.Discrete(len(CRATES))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stock, self.day = self.np_random.uniform(0.0, SHELF, 1), 0
        return self.stock.copy(), {}

    def step(self, action):
        self.stock, earned = day(self.stock, np.array([action]), self.np_random)
        self.day += 1
        return self.stock.copy(), float(earned[0]), False, self.day >= 30, {}


def day(stock, action, rng):
    """One day of one or many shops: the stock in the evening, and what was earned."""
    order = CRATES[action]
    available = np.minimum(stock + order, SHELF)
    sold = np.minimum(available, rng.gamma(4.0, size=len(stock)))
    evening = available - sold
    return evening, 3.0 * sold - 2.0 * order - 2.0 * (order > 0.0) - 0.1 * evening  # 2 is for the van


class Refill:
    """Below `least` units, order so many crates."""

    def __init__(self, least, crates):
        self.least, self.crates = least, crates

    def predict(self, stock, deterministic=True):
        return np.where(stock[..., 0] < self.least, self.crates, 0), None


RULES = {"early": Refill(5.0, 2), "late": Refill(3.0, 2)}


def by_feel(rng):
    """The manager: any order, the less likely the more there is in stock."""
    return lambda stock: int(rng.binomial(2, np.clip(0.8 - stock[0] / 16.0, 0.1, 0.9)))


def tried_out(rule, shops=20_000, days=200):
    """The true value: the mean over many shops that follow the rule, and its standard error."""
    rng = np.random.default_rng(0)
    stock, total = rng.uniform(0.0, SHELF, shops), np.zeros(shops)
    for t in range(days):
        stock, earned = day(stock, rule.predict(stock[:, None])[0], rng)
        total += GAMMA**t * earned
    return float(total.mean()), float(total.std() / np.sqrt(shops))


def draw(path, found, truth):
    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    for shift, colour, name in ((-0.12, "tab:orange", "early"), (0.12, "tab:blue", "late")):
        values = np.array([evaluations[name].value for evaluations in found])
        ends = np.array([evaluations[name].interval(LEVEL) for evaluations in found])
        at = np.arange(1, len(found) + 1) + shift
        bars = np.abs(ends.T - values)
        axis.errorbar(at, values, bars, fmt="o", color=colour, capsize=3, label=f"{name}, from the log")
        axis.axhline(truth[name][0], color=colour, linestyle="--", linewidth=1, label=f"{name}, tried out")
    axis.set(xlabel="log", ylabel="discounted earnings", xticks=range(1, len(found) + 1))
    axis.set_title(f"What two rules would earn: {100 * LEVEL:.0f} % intervals, and the truth")
    axis.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    figure.savefig(path, dpi=100)


def main(out="runs/logs", logs=20, months=40, shops=20_000):
    """Evaluate both rules on each log and compare; returns what was measured."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    truth = {name: tried_out(rule, shops) for name, rule in RULES.items()}
    found, right, covered, sure = [], 0, 0, []
    print(f"Earnings of each rule from a log of {months} months, with {100 * LEVEL:.0f} % intervals:\n")
    print("log   refill early           refill late            how sure that late is better")
    for i in range(logs):
        table = out / f"log{i}.parquet"
        offline.record(Shop(), by_feel(np.random.default_rng(i)), table, episodes=months, seed=i)
        each = {n: offline.evaluate(table, gamma=GAMMA, target_policy=r) for n, r in RULES.items()}
        found.append(each)
        sure.append(offline.compare(each)["late"]["early"])
        spans = {name: evaluation.interval(LEVEL) for name, evaluation in each.items()}
        covered += sum(low <= truth[name][0] <= high for name, (low, high) in spans.items())
        right += sure[-1] > 0.5
        shown = [f"{each[n].value:.1f} [{low:.1f}, {high:.1f}]" for n, (low, high) in spans.items()]
        print(f"{i + 1:3}   {shown[0]:20}   {shown[1]:20}   {100 * sure[-1]:.0f} %")
    print("true  " + "   ".join(f"{mean:.1f} ± {error:.1f}{'':9}" for mean, error in truth.values()))
    better = max(truth, key=lambda name: truth[name])
    errors = np.array([[each[name].value - truth[name][0] for name in RULES] for each in found])
    alike = float(np.corrcoef(errors.T)[0, 1])
    certain = sum(p > 0.95 for p in sure)
    print(
        f"\nIn truth {better} is better. {right} of {logs} logs prefer late, {certain} with more than 95 %."
    )
    print(
        f"{covered} of {2 * logs} intervals contain the truth. Errors about the two correlate by {alike:.2f};"
    )
    print("how sure one can be is counted as if they did not, and is too little where rules share a log.")
    draw(out / "logs.png", found, truth)
    print(f"Picture: {out / 'logs.png'}")
    return {"truth": truth, "found": found, "sure": sure, "right": right, "covered": covered, "alike": alike}


if __name__ == "__main__":
    main()
