"""In which order a client made its steps, where a column of its rows holds their errors.

For ``attacks.closed_form.biases.error_column``, where rows come in another order than that of the steps
(sorted by item, say), and for steps over several rows. Rows tell the factors p that they were made with, but
for one number (``attacks.closed_form.biases.error_batches``). From there

    p_k+1 - p_k = t sum g q - d p_k,

the sum over the rows of step k, has two numbers, t and d, in K equations: of all pairs of steps only those
that follow each other have nothing but rounding left. They tell both numbers, and these each step's next one.
The same backwards is that of rows about the factor after the step in place of before it, which only ratings
tell.

What it assumes: four factors or more beside the biases, where the order is not seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from attacks.closed_form.fit.credible import HALF

FEWEST = 6  # steps that have to be followed by another one
MOST = 0.75  # of a client's steps that have to be
STEPS = 64  # of a client that is asked, at most: each pair of them is tried
WIDTH = 4  # factors, so that a pair of steps is told from any other


class Steps(NamedTuple):
    """With which factors a client made its rows, and what pushed it on from there."""

    factor: Float[np.ndarray, "n K"]  # p, and the sum of g q; in any order
    push: Float[np.ndarray, "n K"]  # p, and the sum of g q; in any order


class Numbers(NamedTuple):
    """What is left of the factor at each step, 1 - d, and t."""

    kept: float
    rate: float


def numbers_in_order(clients: list[Steps], precision: float) -> Numbers | None:
    """Fit both numbers to steps that come in their order."""
    both = [
        (one.factor[1:], one.factor[:-1], one.push[:-1]) for one in clients if np.isfinite(one.factor).all()
    ]
    if sum(len(now) for now, _, _ in both) < FEWEST:
        return None
    now, before, push = (np.concatenate(part) for part in zip(*both, strict=True))
    table = np.stack([before.ravel(), push.ravel()], axis=1)
    (kept, rate), *_ = np.linalg.lstsq(table, now.ravel(), rcond=None)
    left = np.linalg.norm(now - kept * before - rate * push)
    return (
        Numbers(float(kept), float(rate)) if left <= precision**HALF * np.linalg.norm(now - before) else None
    )


def numbers_of(clients: list[Steps], precision: float, after: bool) -> Numbers | None:
    """Find both numbers by pairs of steps that have no rest, in whatever order they come."""
    if not clients or clients[0].factor.shape[1] < WIDTH:
        return None
    usable = [one for one in clients if 1 < len(one.factor) <= STEPS and np.isfinite(one.factor).all()]
    told = np.concatenate([np.zeros((0, 2)), *(_of_pairs(one, precision, after) for one in usable)])
    if len(told) < max(FEWEST, MOST * sum(len(one.factor) - 1 for one in usable)):
        return None
    return Numbers(*np.median(told, axis=0).tolist())


def _of_pairs(steps: Steps, precision: float, after: bool) -> Float[np.ndarray, "pairs 2"]:
    """Both numbers of each pair of steps that may follow each other."""
    first, second = np.nonzero(~np.eye(len(steps.factor), dtype=bool))
    table = np.stack([steps.factor[first], steps.push[second if after else first]], axis=2)
    numbers = np.matmul(np.linalg.pinv(table), steps.factor[second][..., None])
    left = np.linalg.norm(steps.factor[second] - np.matmul(table, numbers)[..., 0], axis=1)
    length = np.linalg.norm(steps.factor[second] - steps.factor[first], axis=1)
    return numbers[left <= precision**HALF * length, :, 0]


def order_of(steps: Steps, numbers: Numbers, after: bool) -> Int[np.ndarray, " n"] | None:
    """Number one client's steps in their order."""
    n = len(steps.factor)
    if n == 1:
        return np.zeros(1, int)
    if not np.isfinite(steps.factor).all():
        return None
    # a row about the factor after its step is what its own push has led to
    before = steps.factor - numbers.rate * steps.push if after else steps.factor
    led = numbers.kept * steps.factor if after else numbers.kept * steps.factor + numbers.rate * steps.push
    away, follower = cKDTree(before).query(led)
    last = int(np.argmax(away))
    starts = np.setdiff1d(np.arange(n), np.delete(follower, last))
    place = np.full(n, -1)
    at = int(starts[0])
    for step in range(n):
        if place[at] >= 0:
            return None
        place[at] = step
        at = int(follower[at])
    return place
