"""Which ratings of hidden orders are answered."""

from __future__ import annotations

import numpy as np

from attacks.closed_form.orders.order_answers import Told, answers_of, lack_biases
from attacks.closed_form.orders.order_pairs import FirstOrder

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


def test_a_bias_of_most_clients_is_told_by_what_all_their_ratings_lack():
    """With 3.87 taken off ratings, one of five clients with biases of their own fitted upside down."""
    rng = np.random.default_rng(0)
    told, ones = {}, {}
    for user, bias in enumerate([0.06, -0.05, 0.04, 0.0]):
        g, h, named = rng.normal(size=20), rng.normal(size=20), rng.choice(STARS, 20)
        # what is left of a client's ratings but for its bias
        error = named - 3.87 - bias - h + rng.normal(0, 0.01, 20)
        sure = np.ones(20, bool)
        told[user] = Told(named, error, 1e-3, sure, sure, 0.05, np.ones(2), False, 1.0, 0.0)
        ones[user] = FirstOrder(g, h, np.full(20, 3.87), np.ones(20, bool))
    assert lack_biases(told, ones)
    assert not lack_biases({3: told[3]}, ones)
    assert not lack_biases({}, ones)
