"""Policy evaluation from logs, larger than memory and on as many machines as there are.

    from gpsarsa.offline import evaluate

    evaluation = evaluate("logs/", gamma=0.99)
    evaluation.value, evaluation.interval(0.9)

Each name is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpsarsa.offline.datasets import DatasetError, open_dataset
    from gpsarsa.offline.engines import EngineError
    from gpsarsa.offline.evaluation import Evaluation, compare, evaluate
    from gpsarsa.offline.recording import convert, record

__all__ = [
    "DatasetError",
    "EngineError",
    "Evaluation",
    "compare",
    "convert",
    "evaluate",
    "open_dataset",
    "record",
]

_HOMES = {
    "DatasetError": "datasets",
    "EngineError": "engines",
    "Evaluation": "evaluation",
    "compare": "evaluation",
    "convert": "recording",
    "evaluate": "evaluation",
    "open_dataset": "datasets",
    "record": "recording",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(f"gpsarsa.offline.{_HOMES[name]}"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
