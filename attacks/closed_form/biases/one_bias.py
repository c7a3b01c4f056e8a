"""A mean of all ratings that is broadcast in each round as the bias of every item, beside biases of clients.

Programs after Koren predict mu + b_u + p . q_j. With mu as the bias of every item and b_u untold,
``attacks.closed_form.centres.shifted`` has no biases that differ, and what it says of mirror images does not
hold: mu and b_u are one number of each client that nobody told, as where nothing is broadcast
(``attacks.closed_form.centres.centred``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from victims.transcript.view import View


def views_without_one_bias(view: View) -> Iterator[View]:
    """Leave out biases that are one number in each round."""
    biases = [one.bias for one in view.broadcasts.values() if one.bias is not None]
    if not any(bias.any() for bias in biases) or any(np.ptp(bias) > 0 for bias in biases):
        return
    yield replace(
        view, broadcasts={number: replace(one, bias=None) for number, one in view.broadcasts.items()}
    )
