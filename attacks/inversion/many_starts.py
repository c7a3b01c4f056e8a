"""Fits of many starts of many clients, so many at a time, and the best of them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from attacks.client_rules.differentiable import ClientRule
from attacks.inversion.least_squares import Fit, Problem, Unknowns, fit

AT_ONCE, FEW = 64, 16  # fits of one call, and of one where there are no more


def fitted(
    rule: ClientRule,
    problem: Problem,
    start: Unknowns,
    sign: np.ndarray,
    there: np.ndarray,
    free_constants: np.ndarray,
    steps: int,
    *,
    ratings: bool = True,
    at_once: int | None = None,
) -> Fit:
    """Fit all starts, so many at a time; the answer is NaN where there is none."""
    client, trial = np.nonzero(there)
    at_once = at_once or (FEW if client.size <= FEW else AT_ONCE)
    out = Unknowns(*(np.array(part) for part in start))
    left = np.full(there.shape, np.nan)
    for begin in range(0, client.size, at_once):
        some = np.arange(begin, min(begin + at_once, client.size))
        full = np.resize(some, at_once)  # few shapes, few compiled programs
        c, t = client[full], trial[full]
        own = Problem(problem.rows[c] * sign[c, t][:, None, None], problem.factors[c])
        at = Unknowns(*(part[c, t] for part in start))
        free = Unknowns(
            np.ones(at.factor.shape),
            np.full(at.ratings.shape, float(ratings)),
            np.broadcast_to(free_constants.astype(float), at.constants.shape),
        )
        found = fit(rule, own, at, free, steps)
        for whole, part in zip(out, found.at, strict=True):
            whole[client[some], trial[some]] = part[: some.size]
        left[client[some], trial[some]] = found.left[: some.size]
    return Fit(out, left)


def least(fits: Fit, most: int) -> Int[np.ndarray, "clients some"]:
    """Choose the starts of each client that leave least."""
    left = np.where(np.isnan(fits.left), np.inf, fits.left)
    return np.argsort(left, axis=1, kind="stable")[:, :most]


def chosen(at: Unknowns, number: np.ndarray) -> Unknowns:
    """Take some fits of each client."""
    return Unknowns(*(np.take_along_axis(part, number[..., None], axis=1) for part in at))
