"""Steps after every rating or minibatch, of clients with a bias of their own beside known biases of items.

Nothing shrinks that bias, which moves with the factor (``attacks.closed_form.chains.moving_bias``): ratings
are read up to a shift, as those of one step (``attacks.closed_form.centres.shifted``).
"""

from __future__ import annotations

import numpy as np

from attacks.closed_form.centres.shifted import Shifted, on_steps, told_alone
from attacks.closed_form.chains.moving_bias import with_moving_bias
from attacks.closed_form.uploads.readings import Rows


def read_shifted_chain(rows: Rows, levels: np.ndarray) -> Shifted:
    """Read clients that step after every rating or minibatch, beside known biases of items."""
    users = len(rows.rows)
    told, above = np.zeros(users, bool), np.full(rows.item.shape, -1)
    distance = np.zeros(users)
    for numbers in with_moving_bias(rows):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = on_steps(numbers, rows, levels)
        new = found.told & ~told
        above[new], distance[new] = found.above[new], found.distance[new]
        told |= new
    return told_alone(above, told, distance, rows.rows.shape[2])
