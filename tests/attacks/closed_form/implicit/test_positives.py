"""Positives named by numbers, rounds and others: lists drawn by the model's own rules, and by others."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.centres.unmirrored import SURE
from attacks.closed_form.implicit.positives import by_numbers, by_others, named
from attacks.closed_form.implicit.sides import Sides, joined


def lists(
    rng: np.random.Generator, n_clients: int, n_items: int, each: int, by_popularity: bool = False
) -> tuple[list[Sides], np.ndarray]:
    """Clients who use few of many items, and draw negatives: their sides, and the positives' sign."""
    popularity = rng.gamma(0.3, size=n_items)
    clients, signs = [], rng.choice([-1, 1], n_clients)
    for sign in signs:
        used = rng.choice(n_items, 12, replace=False, p=popularity / popularity.sum())
        rest = np.setdiff1d(np.arange(n_items), used)
        law = popularity[rest] / popularity[rest].sum() if by_popularity else None
        drawn = rng.choice(rest, 12 * each, replace=False, p=law)
        label = np.repeat([sign, -sign], [12, drawn.size])
        clients.append(joined([(np.concatenate([used, drawn]), label)], n_items))
    return clients, signs


def test_others_tell_where_negatives_are_drawn_evenly():
    """All who are told are right, but for a chance of a hundredth each, at most."""
    clients, sign = lists(np.random.default_rng(1), 150, 300, 1)
    found = named(clients, 300)
    told = found.probability >= SURE
    assert told.mean() > 0.5
    assert (found.positive == sign)[told].all()


@pytest.mark.parametrize("seed", range(3))
def test_draws_by_popularity_tell_nothing(seed: int):
    clients, _ = lists(np.random.default_rng(seed), 150, 300, 1, by_popularity=True)
    assert (named(clients, 300).probability < SURE).all()


@pytest.mark.parametrize("each", [2, 3])
def test_a_negative_for_several_positives_is_not_the_other_way_round(each: int):
    """Of a program that leaves out positives that do not divide. Before: all were told wrongly."""
    rng, clients, signs = np.random.default_rng(5), [], []
    popularity = rng.gamma(0.3, size=300)
    for _ in range(40):
        n = int(rng.integers(2, 9))
        used = rng.choice(300, each * n, replace=False, p=popularity / popularity.sum())
        drawn = rng.choice(np.setdiff1d(np.arange(300), used), n, replace=False)
        signs.append(int(rng.choice([-1, 1])))
        label = np.repeat([signs[-1], -signs[-1]], [used.size, n])
        clients.append(joined([(np.concatenate([used, drawn]), label)], 300))
    assert (by_numbers(clients, 300).positive == -np.array(signs)).all()
    found = named(clients, 300)
    told = found.probability >= SURE
    assert (found.positive == signs)[told].all()


def test_numbers_of_labels_do_not_say_which_is_which():
    """About five negatives for each positive, as of draws with repetition: before, some were told wrongly."""
    clients, sign = lists(np.random.default_rng(2), 120, 400, 5)
    some = [
        one._replace(item=one.item[:-3], sign=one.sign[:-3], counts=one.counts - [[1, 2]]) for one in clients
    ]
    odds = by_others(some, np.zeros(120, int), 400)
    told = np.abs(odds) > 5
    assert told.mean() > 0.5
    assert (np.sign(odds) == sign)[told].all()


def test_lists_of_most_of_the_catalogue_tell_nothing():
    """Half of the positives are not seen, nearly all else is: without the rule 19 of 60 are told wrongly."""
    rng = np.random.default_rng(3)
    clients, _ = lists(rng, 60, 90, 6)
    seen = [one._replace(item=one.item[6:], sign=one.sign[6:]) for one in clients]
    assert not by_others(seen, np.zeros(60, int), 90).any()


@pytest.mark.parametrize(("kept", "told"), [(True, False), (False, True)])
def test_negatives_that_are_kept_beside_minibatches_are_no_positives(kept: bool, told: bool):
    """Negatives drawn once, and half of the positives in each round: before, all were the other way round."""
    rng, clients = np.random.default_rng(0), []
    for _ in range(30):
        items = rng.permutation(300)
        rounds = []
        for _ in range(3):
            fresh = rng.choice(items[:12] if kept else items[40:], 6, replace=False)
            rounds.append((np.concatenate([fresh, items[20:28]]), np.repeat([1, -1], [6, 8])))
        clients.append(joined(rounds, 300))
    assert all(one.lasting < -50 for one in clients)
    found = named(clients, 300)
    assert (found.probability >= SURE).all() == told
    assert told or (found.probability == 0.5).all()


@pytest.mark.parametrize(
    ("drawn_of", "twice", "told"),
    [(slice(300), True, False), (slice(300), False, False), (slice(308, None), True, True)],
    ids=["a minibatch of 37", "none of them twice", "negatives of all others"],
)
def test_small_minibatches_are_told_from_negatives_by_those_who_come_again(
    drawn_of: slice, twice: bool, told: bool
):
    """Eight of 300 positives in each round beside kept negatives: before, all were the other way round."""
    rng, clients = np.random.default_rng(0), []
    for _ in range(60):
        items = rng.permutation(2000)
        fresh = rng.permutation(items[drawn_of])
        sent = [rng.choice(fresh, 8, replace=False) if twice else fresh[8 * t : 8 * t + 8] for t in range(3)]
        rounds = [(np.concatenate([own, items[300:308]]), np.repeat([1, -1], 8)) for own in sent]
        clients.append(joined(rounds, 2000))
    found = named(clients, 2000)
    assert (found.probability >= SURE).all() == told
    assert told or (found.probability < SURE).all()


def of_sizes(sizes: list[tuple[int, int]]) -> list[Sides]:
    """Clients with so many items of label 1 and of label -1."""
    return [joined([(np.arange(a + b), np.repeat([1, -1], [a, b]))], 100) for a, b in sizes]


def test_numbers():
    """Two negatives for each positive; as many of both tell nothing."""
    told = by_numbers(of_sizes([(n, 2 * n) for n in range(3, 11)]), 100)
    assert (told.positive == 1).all()
    assert (told.probability == 1 - 2.0**-8).all()
    assert not by_numbers(of_sizes([(n, n) for n in range(3, 11)]), 100).positive.any()
    assert not by_numbers(of_sizes([(n, 2 * n) for n in range(3, 8)]), 100).positive.any()  # by chance


@pytest.mark.parametrize("n", [[20] * 12, [*range(8, 20)]], ids=["all alike", "half of them even"])
def test_a_negative_for_every_two_positives_is_not_taken_for_two_each(n: list[int]):
    """Before, the negatives were called positives, for sure."""
    assert not by_numbers(of_sizes([(one, one // 2) for one in n]), 100).positive.any()


def test_rounds():
    """Positives last, negatives are drawn again; where both last nothing is told, nor by one round."""
    first = np.arange(8), np.repeat([1, -1], 4)
    again = np.array([0, 1, 2, 3, 20, 21, 22, 23]), np.repeat([-1, 1], 4)  # all labels exchanged
    both = joined([first, again], 50)
    assert both.lasting > 10
    assert dict(zip(both.item.tolist(), both.sign.tolist(), strict=True))[22] == -1
    assert joined([first, first], 50).lasting == joined([first], 50).lasting == 0
    contradicting = first[0], np.array([1, 1, -1, -1, 1, 1, -1, -1])
    assert len(joined([first, contradicting], 50).counts) == 1
