"""Gaussian-process temporal-difference learning.

    from gpsarsa import SparseGPSarsa, Transitions, kernels

`GPSarsa` is the exact posterior over a value function, `SparseGPSarsa` the sparse pseudo-input one,
which learns from each transition in O(M²).
"""

from gpsarsa import kernels
from gpsarsa._version import __version__
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.exact import GPSarsa
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.transitions import Transitions

__all__ = ["CheckpointError", "GPSarsa", "SparseGPSarsa", "Transitions", "__version__", "kernels"]
