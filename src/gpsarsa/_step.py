"""The compiled per-transition loop: kernel row, feature, condition."""

from __future__ import annotations

import math

import numpy as np

from gpsarsa._linalg import blocked, compiled, lower_times
from gpsarsa.basis import kernel_differences
from gpsarsa.belief import DONE, condition

__all__ = ["absorb", "absorb_one", "absorb_transitions"]

# besides the answers of `condition`
OVEREXPLAINED, BAD_INPUT, BAD_NEXT_INPUT, BAD_REWARD, BAD_DISCOUNT = 3, 4, 5, 6, 7

BLOCK = 16  # rows whose kernel differences are computed together


@compiled
def absorb(
    W, m, R, c, scalars, n, delta, kappa, rewards, gamma, starts,
    sigma2, prior_mean, fitc, correlated, kept, slack, residuals,
):  # fmt: skip
    """Condition on rows whose δ and κ are known, one after another.

    ψ = W δ, τ = κ − ψᵀψ. Returns (answer, row): DONE, or why it stopped and where. `residuals`
    receives τ. δ must have blocked(n) columns, zero beyond n.
    """
    width = blocked(n)
    psi, q, moved = np.zeros(width), np.zeros(width), np.zeros(width)
    for t in range(delta.shape[0]):
        lower_times(W, delta[t], n, psi)
        tau = kappa[t]
        for j in range(n):
            tau -= psi[j] * psi[j]
        if tau < 0.0:
            if tau < -slack * kappa[t]:
                return OVEREXPLAINED, t
            tau = 0.0
        residuals[t] = tau
        r = rewards[t] - prior_mean * (1.0 - gamma[t])
        answer = condition(
            m, R, c, scalars, n, psi, r, tau if fitc else 0.0, gamma[t],
            sigma2, correlated, starts[t], kept, q, moved,
        )  # fmt: skip
        if answer != DONE:
            return answer, t
    return DONE, -1


@compiled
def absorb_transitions(
    codes, values, Zt, W, m, R, c, scalars, n, X, rewards, following, gamma, starts,
    sigma2, prior_mean, fitc, correlated, kept, slack, residuals,
):  # fmt: skip
    """`absorb` for built-in kernels, straight from the transitions."""
    rows = X.shape[0]
    delta, kappa = np.zeros((min(BLOCK, rows), blocked(n))), np.empty(min(BLOCK, rows))
    for lo in range(0, rows, BLOCK):
        hi = min(lo + BLOCK, rows)
        kernel_differences(codes, values, Zt, n, X[lo:hi], following[lo:hi], gamma[lo:hi], delta, kappa)
        answer, row = absorb(
            W, m, R, c, scalars, n, delta[: hi - lo], kappa, rewards[lo:hi], gamma[lo:hi],
            starts[lo:hi], sigma2, prior_mean, fitc, correlated, kept, slack, residuals[lo:hi],
        )  # fmt: skip
        if answer != DONE:
            return answer, lo + row
    return DONE, -1


@compiled
def absorb_one(
    codes, values, Zt, W, m, R, c, scalars, n, x, reward, following, discount, start, last,
    sigma2, prior_mean, fitc, correlated, kept, slack,
):  # fmt: skip
    """One transition, whose values it checks. Returns an answer.

    `last` holds x′ and γ of the transition before, and leaves with this one's, followed by its
    τ and by whether it was a start. `start` is 0, 1, or negative: inferred from `last`.
    """
    columns = x.shape[0]
    if not _finite(x):
        return BAD_INPUT
    if not math.isfinite(reward):
        return BAD_REWARD
    if not 0.0 <= discount <= 1.0:
        return BAD_DISCOUNT
    if discount > 0.0 and not _finite(following):
        return BAD_NEXT_INPUT
    begins = start > 0
    if start < 0:
        begins = last[columns] == 0.0
        for i in range(columns):
            begins = begins or x[i] != last[i]
    residual = np.empty(1)
    answer, _ = absorb_transitions(
        codes, values, Zt, W, m, R, c, scalars, n, x.reshape(1, columns), np.array([reward]),
        following.reshape(1, columns), np.array([discount]), np.array([begins]),
        sigma2, prior_mean, fitc, correlated, kept, slack, residual,
    )  # fmt: skip
    if answer == DONE:
        last[:columns] = following if discount > 0.0 else x
        last[columns], last[columns + 1], last[columns + 2] = discount, residual[0], begins
    return answer


@compiled
def _finite(x):
    total = 0.0
    for i in range(x.shape[0]):
        total += 0.0 * x[i]
    return math.isfinite(total)
