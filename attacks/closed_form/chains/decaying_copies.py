"""Steps on a client's own copy of the factors that shrinks as a whole at each of them: weight decay.

A program that hands all parameters to an optimiser with weight decay shrinks its whole copy at every step, by
q = 1 - rate times decay, whether or not an item takes part. With one pass over minibatches, and what an
untouched item shows, (q^T - 1) v, taken off all rows, step s of T has

    row = rate q^(T - 1 - s) e p_s,    p_{s+1} = q p_s + rate q^s sum e v,    e = r - c_s - q^s p_s . v.

In p_s q^-s the decays vanish but for one place: a chain (``attacks.closed_form.uploads.moving_factor``) sees
steps that nothing shrinks, and r = A g + B (q^(2 s) h + ...) in place of A g + B h. A bias c of the client
that starts from 0 is B s sum_{a < b} q^(b - a) G_a, as in ``attacks.closed_form.chains.chain_readings``. q is
the same for all clients; each with enough rows tells it, by how much its ratings are off the grid without it:
the slope of predictions at q = 1 is a third column, and Gauss and Newton's steps on the levels that are named
then make q exact.

What it assumes: as a chain of minibatches; known biases that are the same number for all items, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.affine_grid import best_numbers
from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of

ASKED, FEWEST = 8, 2  # clients that are asked, and that must name one decay
LEAST, MOST = 1e-7, 0.5  # of what a step shrinks the copy by
ALIKE = 1e-2  # relative, within which clients name one decay
ROUNDS = 8  # of Gauss and Newton
EXACT = 1e-5  # of a step of the grid, which the rows that name a decay leave in the mean
DIFFERENCE = 1e-6  # of q, over which slopes are taken

Predicted = Callable[[float], Float[np.ndarray, "users rows"]]


class Sent(NamedTuple):
    """Errors up to one number, (users, rows); known offsets, stars; which rows count."""

    errors: Float[np.ndarray, "users rows"]
    offset: Float[np.ndarray, "users rows"]
    there: Bool[np.ndarray, "users rows"]


def common_decay(
    sent: Sent, predicted: Predicted, able: Bool[np.ndarray, " users"], levels: Float[np.ndarray, " levels"]
) -> float | None:
    """Find what multiplies clients' copies at each step."""
    few = np.flatnonzero(able)
    few = few[np.argsort(-sent.there[few].sum(axis=1), kind="stable")][:ASKED]
    if few.size < FEWEST:
        return None
    slope = _slope(predicted, 1.0)
    table = np.stack([sent.errors, predicted(1.0), slope], axis=2)[few] * sent.there[few, :, None]
    found = best_numbers(table, sent.offset[few], sent.there[few], levels)
    shrunk = []
    for user, numbers, told in zip(few.tolist(), found.numbers, found.told, strict=True):
        if told and numbers[1] != 0:
            decay = _exactly(sent, predicted, user, numbers, levels)
            if decay is not None and LEAST < 1 - decay < MOST:
                shrunk.append(1 - decay)
    usual = float(np.median(shrunk)) if shrunk else 0.0
    agree = [one for one in shrunk if abs(one - usual) <= ALIKE * usual]
    return 1 - float(np.median(agree)) if len(agree) >= max(FEWEST, len(shrunk) / 2) else None


def _slope(predicted: Predicted, decay: float) -> Float[np.ndarray, "users rows"]:
    """By how much predictions grow with q."""
    return (predicted(decay + DIFFERENCE) - predicted(decay - DIFFERENCE)) / (2 * DIFFERENCE)


def _exactly(
    sent: Sent, predicted: Predicted, user: int, numbers: np.ndarray, levels: np.ndarray
) -> float | None:
    """q of one client by least squares from the levels that its numbers name; None where they are not met."""
    here = sent.there[user]
    error, offset = sent.errors[user, here], sent.offset[user, here]
    a, b, decay = numbers[0], numbers[1], 1 + numbers[2] / numbers[1]
    value = a * error + b * predicted(1.0)[user, here] + numbers[2] * _slope(predicted, 1.0)[user, here]
    target = nearest_level(value + offset, levels) - offset
    for _ in range(ROUNDS):
        known, slope = predicted(decay)[user, here], _slope(predicted, decay)[user, here]
        columns = np.stack([error, known, b * slope], axis=1)
        left = target - a * error - b * known
        if not np.isfinite(columns).all():
            return None
        by_a, by_b, by_decay = np.linalg.lstsq(columns, left, rcond=None)[0]
        a, b, decay = a + by_a, b + by_b, decay + by_decay
        if not 1 - MOST < decay < 1 + MOST:
            return None
    off = np.abs(target - a * error - b * predicted(decay)[user, here]).mean()
    return decay if off <= EXACT * step_of(levels) else None
