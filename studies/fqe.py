"""What runs in an environment with d3rlpy: its fitted Q evaluation of logs, `fqe.py LOG.npz ...`.

A log holds the columns of a table, `target_action` and `target_next_action` (what the policy asked for does
first and next; on-policy the logged actions), and gamma. A line of JSON a log: the mean value of its initial
states, and the CPU seconds of the training.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

import d3rlpy
import numpy as np
import structlog
import torch

STEPS = 5_000  # of 100 transitions each; the rest is d3rlpy's default
LEARNING_RATE = 1e-3  # with the default, 1e-4, so many steps are too few


class Logged:
    """The policy asked for, as far as the log knows it: at an observation, one of the actions taken there."""

    def __init__(self, observations: np.ndarray, actions: np.ndarray) -> None:
        self.impl = self  # what d3rlpy asks for the algorithm's inside
        self._actions: dict[bytes, list[Any]] = {}
        for seen, action in zip(np.ascontiguousarray(observations, dtype=np.float32), actions, strict=True):
            self._actions.setdefault(seen.tobytes(), []).append(action)
        self._any = actions[0]
        self._rng = np.random.default_rng(0)

    def predict_best_action(self, observations: torch.Tensor) -> torch.Tensor:
        """Where an episode ended, what follows does not count, and the answer is any action."""
        taken = [self._actions.get(seen.tobytes(), [self._any]) for seen in observations.numpy()]
        return torch.as_tensor(np.array([known[self._rng.integers(len(known))] for known in taken]))


def value(log: Mapping[str, np.ndarray]) -> dict[str, float]:
    discrete = log["action"].dtype.kind == "i"
    centre, width = log["observation"].mean(axis=0), log["observation"].std(axis=0) + 1e-8
    seen, after = ((log[name] - centre) / width for name in ("observation", "next_observation"))
    kind = d3rlpy.constants.ActionSpace.DISCRETE if discrete else d3rlpy.constants.ActionSpace.CONTINUOUS
    dataset = d3rlpy.dataset.MDPDataset(
        seen.astype(np.float32), log["action"] if discrete else log["action"].astype(np.float32),
        log["reward"], log["terminated"], log["truncated"], action_space=kind,
    )  # fmt: skip
    known = np.concatenate([log["target_action"], log["target_next_action"]])
    actions = known.astype(np.int64 if discrete else np.float32)
    policy = Logged(np.concatenate([seen, after]), actions)
    maker = d3rlpy.ope.DiscreteFQE if discrete else d3rlpy.ope.FQE
    config = d3rlpy.ope.FQEConfig(gamma=float(log["gamma"]), learning_rate=LEARNING_RATE)
    begun = time.process_time()
    fqe = maker(algo=policy, config=config)
    fqe.fit(
        dataset, n_steps=STEPS, n_steps_per_epoch=STEPS, show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )  # fmt: skip
    first = log["step"] == 0
    values = fqe.predict_value(seen[first].astype(np.float32), actions[: len(seen)][first])
    return {"value": float(np.mean(values)), "seconds": time.process_time() - begun}


if __name__ == "__main__":
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for path in sys.argv[1:]:
        d3rlpy.seed(0)
        with np.load(path) as log:
            print(json.dumps(value(log)), flush=True)
