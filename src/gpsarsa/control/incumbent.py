"""Holding what was learnt: the best policy there is evidence for, judged by training returns and imagination.

An incumbent is a posterior, frozen, whose policy is the best there is evidence for; or a rule with the
posterior of its values (`rules`). Where episodes can be imagined, who is imagined to be better takes over at
once; a rule, the best of a thousand, only if it is imagined to be better than what the incumbent has shown,
else it is the challenger. Who has shown something stays the challenger (`Incumbent.imagined`).
Elsewhere an episode that explores with the newest posterior is that posterior's first showing, and one that
explores by a rule always is the rule's; where it is no worse than what the incumbent does on average, who
acted becomes the challenger. A challenger is tried in episodes of training, in turn with an incumbent that
has fewer. It takes over after two episodes where it is clearly better (one standard error below its mean is
above one standard error over the incumbent's mean), after some more where the difference of the means is more
than its standard error. It is dropped once its mean plus one standard error is below the incumbent's mean; if
the trials decide nothing, the larger mean does. Every `MEANWHILE`-th episode explores all the same.
The incumbent acts every `RERUN`-th episode (every `RERUN_IMAGINED`-th where it was imagined, at once where it
goes where nobody has been), so that a lucky one is found out. Trials and reruns are training episodes like
any other: what they see is learnt from.

Rules succeed or fail, and three successes may be luck: each is taken to have had two more episodes, like
recent ones on average.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpsarsa._validation import Array
from gpsarsa.control.rules import Rule
from gpsarsa.sparse import SparseGPSarsa

__all__ = ["Contender", "Incumbent"]

RERUN = 4  # the incumbent acts in every fourth episode
RERUN_IMAGINED = 2  # in every second one where contenders are imagined: it shows what imagination is worth
MEANWHILE = 4  # exploring goes on in every fourth one while there is a challenger
TRIALS = 3  # episodes before a challenger can take over by little
MOST_TRIALS, MOST_STEPS = 6, 0.1  # after as many episodes and this share of all steps the larger mean decides
WINDOW = 40  # newest episodes by which a contender is judged
LUCK = 2  # more returns, as recent ones were on average, are added to those of rules before they are compared
RECENT = 20  # newest episodes of all, whose spread stands in where a contender has few


@dataclass
class Contender:
    """A frozen posterior and the returns of its greedy policy."""

    model: SparseGPSarsa
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    starts: deque[Array] = field(default_factory=lambda: deque(maxlen=WINDOW))  # observations they began with
    steps: int = 0  # it took to find out
    values: Any = None  # how it acts where the world is known, see `imagination`
    lost: bool = True  # whether, as far as is imagined, it goes where nobody has been

    @property
    def mean(self) -> float:
        return math.fsum(self.returns) / max(len(self.returns), 1)

    def showed(self, total: float, start: Array) -> None:
        """One more return."""
        self.returns.append(total)
        self.starts.append(start)


class Incumbent:
    """The incumbent, its challenger, and the rule by which one replaces the other."""

    def __init__(self) -> None:
        self.holder: Contender | None = None
        self.challenger: Contender | None = None
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.lengths: deque[int] = deque(maxlen=RECENT)  # of the same episodes
        self.so_far = 0  # steps of all episodes
        self.imagining = False  # whether contenders come from imagination, not from exploring episodes

    def role(self, episode: int, fruitful: bool = False) -> str:
        """Who acts in an episode: "trial" (the challenger), "incumbent", or "explore" (the newest)."""
        holder = self.holder
        if self.challenger is not None and episode % MEANWHILE != 0:
            behind = holder is not None and len(holder.returns) < min(len(self.challenger.returns), TRIALS)
            return "incumbent" if behind else "trial"
        every = RERUN
        if self.imagining and holder is not None:
            if holder.lost and not holder.returns:
                return "incumbent"
            every = RERUN if fruitful and not holder.lost else RERUN_IMAGINED
        if holder is not None and episode % every == every - 1:
            return "incumbent"
        return "explore"

    def finished(
        self,
        role: str,
        model: SparseGPSarsa | None,
        total: float,
        length: int,
        so_far: int,
        start: Array,
        rule: Rule | None = None,
    ) -> None:
        """Take in the return of an episode of some `length`, in which `model` (frozen) acted, or a rule.

        `so_far` counts the steps of all episodes; `start` is the observation with which this one began.
        """
        self.recent.append(total)
        self.lengths.append(length)
        self.so_far = so_far
        if model is None:
            return
        if role == "incumbent" and self.holder is not None and model is self.holder.model:
            self.holder.showed(total, start)
        elif role == "trial" and self.challenger is not None and model is self.challenger.model:
            self.challenger.showed(total, start)
            self.challenger.steps += length
            self._judge(self.challenger, so_far)
        elif role == "explore" and (rule is not None or not self.imagining):
            contender = Contender(model, steps=length)
            if rule is not None:
                contender.values, contender.lost = rule, False
            contender.showed(total, start)
            if self.holder is None:
                self.holder = contender
            elif self.challenger is None and total >= self.holder.mean and not self._settled(total):
                self.challenger = contender
                self._judge(contender, so_far)

    def imagined(self, judged: Any, holder: Any, shown: Array | None = None) -> None:
        """A posterior as it was judged in imagination, and the holder from the same starts; `shown` is what
        is imagined of the holder from where its real episodes began.

        Where it is better by more than chance, it takes over. A rule, the best of a thousand in imagination,
        does so if it is better still than what the holder is worth by its real returns, where trials are
        cheap by more than imagination may be off; else it is tried.
        """
        self.imagining = True
        values = judged.values
        contender = Contender(judged.model, values=values, lost=judged.lost)
        if self.holder is None or holder is None:
            self.holder, self.challenger = contender, None
            return
        gains = judged.returns - holder.returns
        gain = float(gains.mean())
        least = float(gains.std()) / math.sqrt(len(gains))
        if gain <= least:
            return
        if isinstance(values, Rule):
            surplus, doubt = self._surplus(shown)
            if gain - surplus <= math.hypot(least, doubt if self._cheap else 0.0):
                self.challenger = self.challenger or contender
                return
        self.holder = contender
        if self.challenger is not None and not self.challenger.returns:  # who has shown something stays
            self.challenger = None

    @property
    def _cheap(self) -> bool:
        """Whether the trials before a challenger can take over are few steps among all."""
        return TRIALS * float(np.mean(self.lengths or [np.inf])) <= MOST_STEPS * self.so_far

    def _surplus(self, shown: Array | None) -> tuple[float, float]:
        """How much more the holder is worth than is imagined: n ē / (n + 1), where its n returns were ē above
        what is imagined from their starts; and the standard deviation √(n / (n + 1)) σ of what imagination
        says of a new one beside it. Such errors are taken to vary among contenders as much, by σ², as they do
        among a contender's episodes: as much less than returns as they do less among those that are known."""
        assert self.holder is not None
        n = len(self.holder.returns)
        if shown is None or n == 0:
            return 0.0, 0.0
        returns = np.array(self.holder.returns)
        errors, weight, varied = returns - shown, n / (n + 1.0), _squares([returns])
        less = min(_squares([errors]) / varied, 1.0) if n > 2 and varied > 0.0 else 1.0
        return weight * float(errors.mean()), math.sqrt(weight) * self._spread([errors], less)

    def unbeatable(self, most: float) -> bool:
        """Whether the holder returned `most`, beyond which there is nothing, every time."""
        holder = self.holder
        if holder is None or holder.lost or len(holder.returns) < TRIALS:
            return False
        return min(holder.returns) >= most

    def _settled(self, total: float) -> bool:
        """Whether the incumbent has always returned just this: there is nothing to decide."""
        holder = self.holder
        return holder is not None and len(holder.returns) >= TRIALS and set(holder.returns) == {total}

    def _judge(self, challenger: Contender, so_far: int) -> None:
        assert self.holder is not None
        if not self.holder.returns:
            return
        known = [np.array(contender.returns) for contender in (challenger, self.holder)]
        tried, worse = len(challenger.returns), float(known[0].mean() - known[1].mean())
        if isinstance(challenger.values, Rule):
            known = [np.append(returns, [np.mean(self.recent)] * LUCK) for returns in known]
        (n, mean), (held, least) = ((len(returns), float(returns.mean())) for returns in known)
        spread = self._spread(known)
        clearly = tried >= 2 and mean - spread / math.sqrt(n) > least + spread / math.sqrt(held)
        if clearly or (tried >= TRIALS and mean - least > spread * math.sqrt(1.0 / n + 1.0 / held)):
            self.holder, self.challenger = challenger, None
        elif worse + spread / math.sqrt(tried) < 0.0:
            self.challenger = None
        elif tried >= MOST_TRIALS and challenger.steps > MOST_STEPS * so_far:
            self.holder = challenger if mean > least else self.holder
            self.challenger = None

    def _spread(self, known: list[Array], less: float = 1.0) -> float:
        """The standard deviation of a policy's returns, over all contenders; where these have few, it is that
        of all recent ones, whose variance counts as one more, `less` times as large."""
        freedom = sum(len(returns) - 1 for returns in known)
        prior = float(np.var(self.recent)) if self.recent else 0.0
        return math.sqrt((_squares(known) + less * prior) / (freedom + 1))

    # -- files --------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {}
        content: dict[str, Any] = {"recent": list(self.recent), "lengths": list(self.lengths)}
        content["so_far"] = self.so_far
        for name in ("holder", "challenger"):
            contender = getattr(self, name)
            if contender is not None:
                own, model = contender.model._state()
                arrays |= {f"{name}.{key}": value for key, value in own.items()}
                if contender.starts:
                    arrays[f"{name}.starts"] = np.array(contender.starts)
                content[name] = {
                    "model": model,
                    "kernel": contender.model._described_kernel(),
                    "returns": list(contender.returns),
                    "steps": contender.steps,
                    "lost": contender.lost,
                }
                if isinstance(contender.values, Rule):
                    rule = contender.values.state()
                    arrays |= {f"{name}.rule.{key}": value for key, value in rule.items()}
        content["imagining"] = self.imagining
        return arrays, content

    def restore(
        self,
        arrays: Mapping[str, Any],
        content: Mapping[str, Any],
        kernel_of: Any,
        rule_of: Any,
    ) -> None:
        """`kernel_of` turns a saved description of a kernel into the kernel, `rule_of` the arrays of a rule
        into the rule."""
        self.recent = deque(content["recent"], maxlen=RECENT)
        self.lengths = deque((int(n) for n in content["lengths"]), maxlen=RECENT)
        self.so_far = int(content["so_far"])
        self.imagining = bool(content["imagining"])
        for name in ("holder", "challenger"):
            contender = None
            if name in content:
                kept, own = content[name], _below(arrays, name)
                model = SparseGPSarsa._from_state(kernel_of(kept["kernel"]), own, kept["model"])
                rule = _below(own, "rule")
                starts = own.get("starts", ())
                if len(starts) != len(kept["returns"]):
                    raise ValueError(f"the {name} has {len(starts)} starts of {len(kept['returns'])} returns")
                contender = Contender(
                    model,
                    deque(kept["returns"], maxlen=WINDOW),
                    deque((row.copy() for row in starts), maxlen=WINDOW),
                    int(kept["steps"]),
                    values=rule_of(rule) if rule else None,
                    lost=bool(kept["lost"]),
                )
            setattr(self, name, contender)


def _squares(known: list[Array]) -> float:
    """Σ (return − mean)², each contender's around its own mean."""
    return math.fsum(float(np.square(returns - returns.mean()).sum()) for returns in known)


def _below(arrays: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Those whose names begin with it, without that."""
    return {key.split(".", 1)[1]: value for key, value in arrays.items() if key.startswith(f"{name}.")}
