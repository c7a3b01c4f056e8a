"""Which ratings of hidden orders are answered."""

from __future__ import annotations

import numpy as np

from attacks.closed_form.orders.order_answers import Told, answers_of

STARS = np.arange(1.0, 6.0)


def told(missed: float) -> Told:
    """Eight ratings, each of them sure, that miss the grid by so much."""
    error = np.linspace(-1, 1, 8)
    sure = np.ones(8, bool)
    return Told(np.resize(STARS, 8), error, 1e-3, sure, sure, missed, np.ones(2), False, 1.0, 0.0)


def test_a_client_many_times_as_far_off_the_grid_as_others_is_not_answered():
    """Rows with weights of their own look like that: others' are alike, and on the grid."""
    clients = dict(enumerate([1e-3, 2e-3, 3e-3, 4e-3, 0.1]))
    found = answers_of({user: told(missed) for user, missed in clients.items()}, 0, STARS)
    assert sorted(found) == [0, 1, 2, 3]
    assert 4 in answers_of({user: told(0.1 + missed) for user, missed in clients.items()}, 0, STARS)
