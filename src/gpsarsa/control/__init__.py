"""Control: agents that choose their own actions in Gymnasium environments."""

from gpsarsa.control import callbacks, policies
from gpsarsa.control.agent import SarsaAgent
from gpsarsa.control.environments import EnvironmentFault
from gpsarsa.control.spaces import SpaceError

__all__ = ["EnvironmentFault", "SarsaAgent", "SpaceError", "callbacks", "policies"]
