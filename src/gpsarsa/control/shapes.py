"""How what is learnt of a world may vary: for each regression its kernel at first, and the bounds of its
hyperparameters.

Lengthscales are measured in widths of columns, as far as these were visited; outcomes have variance 1, but
for what is 0 or 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsarsa._validation import Array
from gpsarsa.control.regression import LEAST_NOISE
from gpsarsa.control.spaces import Actions
from gpsarsa.kernels import RBF, Delta, Kernel, Matern32, Product, Sum

__all__ = ["LEAST_LENGTHSCALE", "MOST_END_NOISE", "MOST_LENGTHSCALE", "Shape"]
__all__ += ["contact", "end", "outcome", "potential", "touch"]

LENGTHSCALE, LEAST_LENGTHSCALE, MOST_LENGTHSCALE = 0.5, 0.05, 10.0
LEAST_SHARE, MOST_SHARE = 0.01, 0.9999  # between discrete actions
LEAST_VARIANCE, MOST_VARIANCE, MOST_NOISE = 0.01, 1e3, 1.0
END_VARIANCE, LEAST_END_VARIANCE, MOST_END_VARIANCE, MOST_END_NOISE = 0.1, 1e-4, 10.0, 1e-4
CONTACT_VARIANCE, LEAST_CONTACT_VARIANCE, MOST_CONTACT_VARIANCE = 0.3, 1e-3, 10.0
LEAST_TOUCH, LEAST_TOUCH_NOISE = 0.15, 0.1  # few know what touches earn, and there is chance in it
TOUCH_VARIANCE, LEAST_TOUCH_VARIANCE, MOST_TOUCH_VARIANCE = 0.1, 1e-3, 10.0  # of each column's part in that
LEAST_POTENTIAL_NOISE = 1e-3  # variance of V's noise

Shape = tuple[Kernel, dict[str, Any]]


def outcome(actions: Actions, width: Array) -> Shape:
    """What follows observations with actions."""
    split = len(width)
    parts: list[Kernel] = [RBF(LENGTHSCALE * width, 1.0, list(range(split)))]
    bounds: dict[str, Any] = {
        "0.lengthscales": (LEAST_LENGTHSCALE * width, MOST_LENGTHSCALE * width),
        "0.variance": (LEAST_VARIANCE, MOST_VARIANCE),
        "noise_variance": (LEAST_NOISE, MOST_NOISE),
    }
    own = list(range(split, split + actions.columns))
    if actions.continuous:
        reach = actions.high - actions.low
        reach = np.where(reach > 0.0, reach, 1.0)
        parts.append(RBF(LENGTHSCALE * reach, 1.0, own))
        bounds["1.lengthscales"] = LEAST_LENGTHSCALE * reach, MOST_LENGTHSCALE * reach
    else:
        parts += [Delta(column, share=0.5) for column in own]
        bounds |= {f"{i}.share": (LEAST_SHARE, MOST_SHARE) for i in range(1, len(parts))}
    return Product(*parts), bounds


def end(width: Array) -> Shape:
    """Ends are often a matter of one column, at whatever value of the others: a term for each, and one for
    all of them together. They are no accident."""
    terms = [(reach, [column]) for column, reach in enumerate(width)] + [(width, list(range(len(width))))]
    variances = END_VARIANCE, LEAST_END_VARIANCE, MOST_END_VARIANCE
    return _sum(terms, LEAST_LENGTHSCALE, variances, (LEAST_NOISE, MOST_END_NOISE))


def contact(width: Array, columns: NDArray[np.intp]) -> Shape:
    """A matter of where one is, however one came there, and of ground that is not observed: a term for each
    of some columns, and one for all of them together."""
    own = [int(column) for column in columns]
    terms = [(width[column], [column]) for column in own] + [(width[own], own)]
    variances = CONTACT_VARIANCE, LEAST_CONTACT_VARIANCE, MOST_CONTACT_VARIANCE
    return _sum(terms, LEAST_LENGTHSCALE, variances, (LEAST_NOISE, MOST_NOISE))


def touch(width: Array, columns: NDArray[np.intp]) -> Shape:
    """Few touches are known, and how fast, how upright and where one touches each have their own part in what
    that earns: a term for each of some columns."""
    terms = [(width[column], [int(column)]) for column in columns]
    variances = TOUCH_VARIANCE, LEAST_TOUCH_VARIANCE, MOST_TOUCH_VARIANCE
    return _sum(terms, LEAST_TOUCH, variances, (LEAST_TOUCH_NOISE, MOST_NOISE))


def potential(width: Array) -> Shape:
    """V of observations: it may have kinks, as a distance has."""
    bounds = {
        "lengthscales": (LEAST_LENGTHSCALE * width, MOST_LENGTHSCALE * width),
        "variance": (1.0, MOST_VARIANCE**2),
        "noise_variance": (LEAST_POTENTIAL_NOISE, MOST_NOISE),
    }
    return Matern32(LENGTHSCALE * width, 100.0, list(range(len(width)))), bounds


def _sum(
    terms: list[tuple[Any, list[int]]],
    least: float,
    variances: tuple[float, float, float],
    noise: tuple[float, float],
) -> Shape:
    """A term for each of some groups of columns, given with their widths; of the variances the first one, the
    least and the largest."""
    bounds: dict[str, Any] = {"noise_variance": noise}
    for i, (width, _) in enumerate(terms):
        bounds[f"{i}.lengthscales"] = least * width, MOST_LENGTHSCALE * width
        bounds[f"{i}.variance"] = variances[1:]
    return Sum(*(RBF(LENGTHSCALE * width, variances[0], columns) for width, columns in terms)), bounds
