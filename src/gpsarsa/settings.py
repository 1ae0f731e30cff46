"""What a training run is: its environment, length, seed, discount, and the agent's options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpsarsa import _validation as check
from gpsarsa import runs
from gpsarsa.control import policies
from gpsarsa.runs import RunError

__all__ = ["OPTIONS", "Settlement", "described"]

STEPS, SEED = 10_000, 0
OPTIONS = ("method", "budget", "memory", "warmup", "policy")  # of the agent, besides discount and seed

Config = dict[str, Any]


class Settlement:
    """Settles what a run is: what is asked for, what the run was before, and defaults, in that order."""

    def __init__(self, folder: Path, known: Config | None) -> None:
        self.folder, self.known = folder, known

    def config(
        self,
        env_id: str,
        steps: int | None,
        seed: int | None,
        arguments: Mapping[str, Any] | None,
        gamma: float | None,
        options: Mapping[str, Any],
    ) -> Config:
        """What config.json says; before there is an agent, only as far as asked for or known."""
        given = {name: value for name, value in options.items() if name != "policy"}
        if options.get("policy") is not None:
            given["policy"] = described(options["policy"])
        before = self.known or {"environment": {"id": None, "arguments": None}, "agent": {}}
        return {
            "environment": {
                "id": self._environment(env_id, before["environment"]["id"]),
                "arguments": self._one(
                    "environment arguments", _plain(arguments), before["environment"]["arguments"], {}
                ),
            },
            "seed": self._one("seed", seed, before.get("seed"), SEED),
            "steps": self._steps(steps, before.get("steps")),
            "gamma": self._one("gamma", gamma, before.get("gamma"), None),
            "agent": {
                name: self._one(name, given.get(name), before["agent"].get(name), None) for name in OPTIONS
            },
            "versions": before.get("versions") or runs.versions(),
        }

    def _one(self, name: str, given: Any, before: Any, default: Any) -> Any:
        if before is None:
            return default if given is None else given
        if given is None or given == before:
            return before
        raise RunError(
            f"{self.folder} was begun with {name} {_short(before)}, not {_short(given)}; leave it as it was, "
            "or begin another run with another --out"
        )

    def _environment(self, given: str, before: str | None) -> str:
        """The same name, or the same without its module or version."""
        if before is not None:
            name, known = (str(text).rpartition(":")[2] for text in (given, before))
            if known == name or known.startswith(f"{name}-v"):
                return before
        return str(self._one("environment", given, before, None))

    def _steps(self, given: int | None, before: int | None) -> int:
        if given is not None:
            check.at_least_one(given, "steps")
        if given is None or before is None:
            return before or given or STEPS
        if given < before:
            raise RunError(
                f"{self.folder} was begun with steps {before}, not {given}; only more steps extend a run"
            )
        return given


def _plain(arguments: Mapping[str, Any] | None) -> Config | None:
    """The arguments as they come back from a JSON file."""
    if arguments is None:
        return None
    try:
        return dict(json.loads(json.dumps(dict(arguments), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"env_arguments = {arguments!r}; expected values that JSON can hold: {error}"
        ) from None


def described(policy: Any) -> list[Any] | str:
    """A policy as JSON can hold it; of one of the user's own, its name."""
    name = getattr(policy, "__qualname__", type(policy).__qualname__)
    return policies.described(policy) or name


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
