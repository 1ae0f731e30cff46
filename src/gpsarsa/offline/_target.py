"""A target policy: observations of a table in the form that it takes, its actions as rows of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space

from gpsarsa._validation import Array
from gpsarsa.control.spaces import Observations
from gpsarsa.offline._records import DatasetError


class Target:
    """A policy that is asked what it would do."""

    def __init__(self, policy: Any, observation_columns: int, action_columns: int, *, discrete: bool) -> None:
        if not callable(getattr(policy, "predict", None)):
            raise TypeError(f"target_policy is a {type(policy).__name__}; expected something with predict")
        if getattr(policy, "acting_model", policy) is None:
            raise DatasetError(
                "target_policy is an agent that has learnt nothing yet and acts at random; train it first"
            )
        if action_columns == 0:
            raise DatasetError(
                "Transitions do not say which columns are the action's, so no target_policy can be asked; "
                "write them to a table: gpsarsa.offline.recording.write_table"
            )
        self._policy, self._columns, self._discrete = policy, action_columns, discrete
        self._space = _expected(policy)
        if self._space is not None and _width(self._space) != observation_columns:
            raise DatasetError(
                f"target_policy takes observations of {_width(self._space)} numbers; the table's have "
                f"{observation_columns}"
            )

    def __call__(self, observations: Array) -> Array:
        """Its actions as rows; it is not asked where there are no observations."""
        n, a = len(observations), self._columns
        if n == 0:
            return np.empty((0, a))
        given = observations if self._space is None else _shaped(self._space, observations)
        answer = self._policy.predict(given, deterministic=True)
        actions = np.asarray(answer[0] if isinstance(answer, tuple) else answer)
        if actions.size != n * a or actions.shape[:1] != (n,) or actions.dtype.kind not in "fiub":
            raise DatasetError(
                f"target_policy.predict gave {actions.dtype} of shape {actions.shape} for {n} observations; "
                f"expected an action of {a} number(s) for each"
            )
        rows = actions.reshape(n, a).astype(np.float64)
        if not np.isfinite(rows).all():
            raise DatasetError("target_policy.predict gave an action that is not finite")
        if self._discrete and (broken := (rows != np.rint(rows)).any(axis=1)).any():
            raise DatasetError(
                f"target_policy.predict gave the action {rows[broken][0]}; the table's actions are whole "
                "numbers"
            )
        return rows


def _expected(policy: Any) -> Mapping[str, Any] | None:
    """What the policy takes for an observation, as `Observations.describe` has it; None if it is not said."""
    observations = getattr(policy, "observations", None)
    if not isinstance(observations, Observations):
        space = getattr(policy, "observation_space", None)
        if not isinstance(space, Space):
            return None
        observations = Observations(space)
    return observations.describe()["space"]


def _width(space: Mapping[str, Any]) -> int:
    """How many numbers an observation has."""
    if "parts" in space:
        return sum(_width(part) for _, part in space["parts"])
    return math.prod(space["shape"])


def _shaped(space: Mapping[str, Any], rows: Array) -> Any:
    """A batch of observations of the space, from rows of numbers."""
    if "parts" not in space:
        return rows.astype(space["dtype"]).reshape(len(rows), *space["shape"])
    inside, at = {}, 0
    for key, part in space["parts"]:
        inside[key] = _shaped(part, rows[:, at : at + _width(part)])
        at += _width(part)
    return inside if space["kind"] == "Dict" else tuple(inside.values())
