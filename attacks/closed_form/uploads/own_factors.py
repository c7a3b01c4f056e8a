"""The factors of clients whose rows are one step, once their ratings are read."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.closed_form.uploads.readings import Reading, Rows
from attacks.closed_form.uploads.reduction import leading_direction

SAME_READING = 0.05  # stars, within which a factor has to say the ratings that were read


def factors_of(rows: Rows, read: Reading) -> Float[np.ndarray, "users K"]:
    """The factors of clients whose rows are one step: r = A f . d + B q . d says that p is B d for any A."""
    with np.errstate(over="ignore", invalid="ignore"):
        clean = rows.rows - np.nan_to_num(read.pull)[:, None, None] * rows.factors
        direction, _ = leading_direction(clean)
        scalar, along = (np.matmul(part, direction[:, :, None])[..., 0] for part in (clean, rows.factors))
        a, b, c = (part[:, None] for part in (read.of_error, read.of_factor, read.own_bias))
        own, known = a * scalar + b * along, read.value - rows.offset - c
        there = rows.item & ~np.isnan(read.value)
        away = np.stack([np.where(there, np.abs(sign * own - known), 0).sum(axis=1) for sign in (1, -1)])
        told = (away.min(axis=0) < SAME_READING * there.sum(axis=1)) & (read.steps <= 1)
    turned = np.where(away[1] < away[0], -1, 1)  # the direction's sign is open
    return direction * np.where(told, read.of_factor * turned, np.nan)[:, None]
