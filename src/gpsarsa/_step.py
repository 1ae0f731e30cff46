"""The compiled per-transition loop: kernel row, feature, condition; and what its answers mean."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from gpsarsa._linalg import blocked, compiled, lower_times
from gpsarsa.basis import SCRATCH, kernel_differences
from gpsarsa.belief import DONE, INDEFINITE, LOST_DEFINITENESS, OVERFLOW, condition
from gpsarsa.transitions import Transitions

__all__ = ["absorb", "absorb_one", "absorb_transitions", "explain", "explain_row"]

# besides the answers of `condition`
OVEREXPLAINED, BAD_INPUT, BAD_NEXT_INPUT, BAD_REWARD, BAD_DISCOUNT, FULL = 3, 4, 5, 6, 7, 8

# entries of the array `settings`; the flags FITC and CORRELATED are 0 or 1
SIGMA2, PRIOR_MEAN, FITC, CORRELATED, KEPT, ROUNDING, SCALE = range(7)

BLOCK = 16  # rows whose kernel differences are computed together


@compiled
def absorb(W, m, R, c, scalars, settings, n, delta, kappa, rewards, gamma, starts, residuals, scratch):
    """Condition on rows whose δ and κ are known, one after another.

    ψ = W δ, τ = κ − ψᵀψ. Returns (answer, row): DONE, or why it stopped and where. `residuals`
    receives τ. δ has blocked(n) columns, zero beyond n; `scratch` two rows more than δ.
    """
    sigma2, correlated, kept = settings[SIGMA2], settings[CORRELATED] != 0.0, settings[KEPT]
    q, moved, Psi = scratch[0], scratch[1], scratch[2:]
    lower_times(W, delta, n, Psi)
    for t in range(delta.shape[0]):
        psi, tau = Psi[t], kappa[t]
        for j in range(n):
            tau -= psi[j] * psi[j]
        if tau < 0.0:
            if tau < -settings[ROUNDING] * (kappa[t] + settings[SCALE]):
                return OVEREXPLAINED, t
            tau = 0.0
        residuals[t] = tau
        r = rewards[t] - settings[PRIOR_MEAN] * (1.0 - gamma[t])
        answer = condition(
            m, R, c, scalars, n, psi, r, settings[FITC] * tau, gamma[t],
            sigma2, correlated, starts[t], kept, q, moved,
        )  # fmt: skip
        if answer != DONE:
            return answer, t
    return DONE, -1


@compiled
def absorb_transitions(
    codes, values, Zt, W, m, R, c, scalars, settings, n,
    X, rewards, following, gamma, starts, residuals,
):  # fmt: skip
    """`absorb` for built-in kernels, straight from the transitions."""
    rows = X.shape[0]
    step = max(min(BLOCK, rows), 1)
    work = np.zeros((2 * step + SCRATCH, blocked(n + 1)))
    delta, scratch = work[:step], work[step:]
    for lo in range(0, rows, step):
        hi = min(lo + step, rows)
        kappa = residuals[lo:hi]  # τ takes its place
        kernel_differences(
            codes, values, Zt, n, X[lo:hi], following[lo:hi], gamma[lo:hi], delta, kappa, scratch
        )
        answer, row = absorb(
            W, m, R, c, scalars, settings, n,
            delta[: hi - lo], kappa, rewards[lo:hi], gamma[lo:hi], starts[lo:hi], kappa, scratch,
        )  # fmt: skip
        if answer != DONE:
            return answer, lo + row
    return DONE, -1


@compiled
def absorb_one(
    codes, values, Zt, W, m, R, c, scalars, settings, n, newest, records,
    x, reward, following, discount, start,
):  # fmt: skip
    """One transition, whose values it checks. Returns an answer.

    `newest` and `records` are those of `History`, where the transition is entered; FULL where they
    have no room for it. `start` is 0, 1, or negative: inferred from the transition before.
    """
    d = x.shape[0]
    count = int(newest[2 * d + 4])
    if records.shape[0] > 0 and count >= records.shape[0]:
        return FULL
    begins, wrong_x, wrong_next = newest[2 * d + 1] == 0.0, 0.0, 0.0
    for i in range(d):
        begins = begins or x[i] != newest[d + i]
        wrong_x += 0.0 * x[i]  # NaN if x is not finite
        wrong_next += 0.0 * following[i]
    if wrong_x != 0.0:
        return BAD_INPUT
    if not math.isfinite(reward):
        return BAD_REWARD
    if not 0.0 <= discount <= 1.0:
        return BAD_DISCOUNT
    if discount > 0.0 and wrong_next != 0.0:
        return BAD_NEXT_INPUT
    if start >= 0:
        begins = start > 0

    work = np.zeros((2 + SCRATCH, blocked(n + 1)))
    row = np.empty(3)
    row[0], row[1] = reward, discount
    delta, scratch, rewards, gamma, kappa = work[:1], work[1:], row[:1], row[1:2], row[2:]
    kernel_differences(
        codes, values, Zt, n, np.expand_dims(x, 0), np.expand_dims(following, 0), gamma,
        delta, kappa, scratch,
    )  # fmt: skip
    answer, _ = absorb(
        W, m, R, c, scalars, settings, n,
        delta, kappa, rewards, gamma, np.array([begins]), kappa, scratch,
    )  # fmt: skip
    if answer == DONE:
        for i in range(d):
            newest[i], newest[d + i] = x[i], following[i]
        newest[2 * d], newest[2 * d + 1], newest[2 * d + 2] = reward, discount, row[2]
        newest[2 * d + 3], newest[2 * d + 4] = begins, count + 1
        if records.shape[0] > 0:
            for i in range(2 * d + 4):
                records[count, i] = newest[i]
    return answer


def explain(answer: int, where: str, names: dict[str, Any]) -> NoReturn:
    """Raise the error for an answer of the compiled loops, with the argument it speaks of."""
    if answer == OVERFLOW:
        name = f"rewards{where}" if where else "reward"
        raise ValueError(f"{name} = {names['reward']} overflows the posterior; rescale the rewards")
    if answer == INDEFINITE:
        raise ArithmeticError(LOST_DEFINITENESS)
    if answer == OVEREXPLAINED:
        raise ArithmeticError(
            f"transition{where}: the pseudo-inputs explain more than its prior variance, far beyond "
            "rounding; the kernel is not positive definite or K_zz is too ill-conditioned: remove "
            "pseudo-inputs that lie close together"
        )
    name, value, expected = {
        BAD_INPUT: ("x", names["x"], "finite numbers"),
        BAD_NEXT_INPUT: ("x_next", names["x_next"], "finite numbers where discount > 0"),
        BAD_REWARD: ("reward", names["reward"], "a finite number"),
        BAD_DISCOUNT: ("discount", names["discount"], "a number in [0, 1]"),
    }[answer]
    raise ValueError(f"{name} = {value}; expected {expected}")


def explain_row(answer: int, row: int, t: Transitions) -> NoReturn:
    """Raise the error for an answer about a row of transitions."""
    explain(answer, f"[{row}]", {"x": t.inputs[row], "reward": t.rewards[row],
            "x_next": t.next_inputs[row], "discount": t.discounts[row]})  # fmt: skip
