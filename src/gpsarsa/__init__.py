"""Gaussian-process temporal-difference learning.

    from gpsarsa import SparseGPSarsa, Transitions, kernels

`GPSarsa` is the exact posterior over a value function, `SparseGPSarsa` the sparse pseudo-input one,
which learns from each transition in O(M²).
"""

from gpsarsa import kernels, placement
from gpsarsa._version import __version__
from gpsarsa.checkpoint import CheckpointError
from gpsarsa.exact import GPSarsa
from gpsarsa.sparse import SparseGPSarsa
from gpsarsa.timescales import Slow, Timescales
from gpsarsa.transitions import Transitions

__all__ = ["CheckpointError", "GPSarsa", "Slow", "SparseGPSarsa", "Timescales", "Transitions", "__version__"]
__all__ += ["kernels", "placement"]
