"""Gaussian-process temporal-difference learning.

    from gpsarsa import SarsaAgent, SparseGPSarsa, Transitions, kernels

`GPSarsa` is the exact posterior over a value function, `SparseGPSarsa` the sparse pseudo-input one,
which learns from each transition in O(M²); `SarsaAgent` learns to act in a Gymnasium environment.
"""

from typing import TYPE_CHECKING, Any

from gpsarsa import kernels, placement
from gpsarsa._version import __version__
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.exact import GPSarsa
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.timescales import Slow, Timescales
from gpsarsa.transitions import Transitions

if TYPE_CHECKING:
    from gpsarsa.control import SarsaAgent

__all__ = ["CheckpointError", "GPSarsa", "SarsaAgent", "Slow", "SparseGPSarsa", "Timescales", "Transitions"]
__all__ += ["__version__", "kernels", "placement"]


def __getattr__(name: str) -> Any:
    """The agent is imported when it is first asked for, and Gymnasium with it."""
    if name == "SarsaAgent":
        from gpsarsa.control import SarsaAgent

        return SarsaAgent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
