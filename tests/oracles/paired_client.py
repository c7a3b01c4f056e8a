"""A client that steps on the pairwise loss of implicit feedback, in plain loops."""

from __future__ import annotations

import numpy as np


def trained(u, v, pairs, *, steps: int, rate: float, decay: float, item_decay: float):
    """Steps over all pairs of a positive and a negative, one pair after the other added up."""
    u, w = u.copy(), v.copy()
    for _ in range(steps):
        of_factor, of_items = -decay * u, -item_decay * w
        for i, j in pairs:
            wrong = 1 / (1 + np.exp(u @ (w[i] - w[j])))
            of_items[i] += wrong * u
            of_items[j] -= wrong * u
            of_factor = of_factor + wrong * (w[i] - w[j])
        u, w = u + rate * of_factor, w + rate * of_items
    return w - v, u
