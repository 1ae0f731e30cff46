"""Gaussian-process temporal-difference learning.

    from gpsarsa import SarsaAgent, SparseGPSarsa, Transitions, kernels

`GPSarsa` is the exact posterior over a value function, `SparseGPSarsa` the sparse pseudo-input one,
which learns from each transition in O(M²); `SarsaAgent` learns to act in a Gymnasium environment.

Each name is imported when it is first asked for, so that nothing is loaded that is not used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpsarsa._version import __version__

if TYPE_CHECKING:
    from gpsarsa import kernels, placement
    from gpsarsa.checkpoint import CheckpointError
    from gpsarsa.control import SarsaAgent
    from gpsarsa.exact import GPSarsa
    from gpsarsa.sparse import SparseGPSarsa
    from gpsarsa.timescales import Slow, Timescales
    from gpsarsa.transitions import Transitions

__all__ = ["CheckpointError", "GPSarsa", "SarsaAgent", "Slow", "SparseGPSarsa", "Timescales", "Transitions"]
__all__ += ["__version__", "kernels", "placement"]

_HOMES = {
    "CheckpointError": "checkpoint",
    "GPSarsa": "exact",
    "SarsaAgent": "control",
    "Slow": "timescales",
    "SparseGPSarsa": "sparse",
    "Timescales": "timescales",
    "Transitions": "transitions",
}


def __getattr__(name: str) -> Any:
    if name in ("kernels", "placement", "control", "offline"):
        return import_module(f"gpsarsa.{name}")
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(f"gpsarsa.{_HOMES[name]}"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "control", "offline"})
