"""What a server hands out of other clients' rows is in everybody's, and is nobody's own rating."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl

ITEMS, K = 60, 4
LEVELS = np.arange(1.0, 6.0)


def scaffold(path, clients, seed, first=1, at_once=None):
    """Rounds from ``first`` on are recorded; returns ratings of clients in the order in which they appear."""
    rng = np.random.default_rng(seed)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.6, (clients, K))
    table = np.where(rng.random((clients, ITEMS)) < 0.4, rng.choice(LEVELS, (clients, ITEMS)), 0)
    seen: dict[int, None] = {}
    own, shared = np.zeros((clients, ITEMS, K)), np.zeros((ITEMS, K))
    with fl.Recorder(path, rating_levels=LEVELS) as recorder:
        for round_ in range(first + 2):
            if round_ >= first:
                recorder.broadcast(round_ - first, q)
            sent, before = np.zeros((clients, ITEMS, K)), own.copy()
            for user in rng.permutation(clients)[:at_once]:
                error = np.where(table[user] > 0, table[user] - q @ p[user], 0)
                own[user] = -2 * error[:, None] * p[user]
                sent[user] = own[user] - before[user] + shared
                items = np.flatnonzero(sent[user].any(axis=1))
                if round_ >= first:
                    recorder.upload(round_ - first, user, sent[user][items], items)
                    seen[user] = None
                p[user] += 0.02 * error @ q
            shared = shared + (own - before).mean(axis=0)
            q = q - 0.02 * sent.mean(axis=0)
    return table[list(seen)]


def silos(path, clients, users, seed):
    """One round of rows that are sums of several users' rows; returns the ratings of all users."""
    rng = np.random.default_rng(seed)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.6, (clients, users, K))
    shape = clients, users, ITEMS
    table = np.where(rng.random(shape) < 0.35, rng.choice(LEVELS, shape), 0)
    with fl.Recorder(path, rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, q)
        for client in range(clients):
            error = np.where(table[client] > 0, table[client] - p[client] @ q.T, 0)
            items = np.flatnonzero(table[client].any(axis=0))
            recorder.upload(0, client, -2 * np.einsum("ui,uk->ik", error, p[client])[items], items)
    return table


def answers(found):
    """Client, item and rating of every answer."""
    return [
        (user, item, round(value))
        for users, kind, items, values, _ in found.rows()
        for user, item, value in zip(users[kind == 0], items[kind == 0], values[kind == 0], strict=True)
    ]


@pytest.mark.parametrize(
    ("clients", "at_once", "first"),
    [
        (2, None, 2),
    ],
)
def test_others_ratings_are_nobodys_own(tmp_path, clients, at_once, first):
    """The first rounds being missed, all that one alone rated was answered as the other's."""
    for seed in range(3):
        table = scaffold(tmp_path / str(seed), clients, seed, first, at_once)
        found = fl.attack(tmp_path / str(seed), "undeclared")
        assert all(value == table[user, item] for user, item, value in answers(found))


def test_the_first_round_tells_all(tmp_path):
    """Nothing is handed out yet; rounds after it are no better, though they fit."""
    table = scaffold(tmp_path / "t", 2, 0, first=0)
    told = answers(fl.attack(tmp_path / "t", "undeclared"))
    assert len(told) == (table > 0).sum()
    assert all(value == table[user, item] for user, item, value in told)


def test_users_of_one_client_are_still_read(tmp_path):
    """Two users each: no other client sends rows about all items that one of them alone rated."""
    table = silos(tmp_path / "t", 4, 2, 0)
    told = answers(fl.attack(tmp_path / "t", "undeclared"))
    assert len(told) == ((table > 0).sum(axis=1) == 1).sum()
    assert all(value == table[client, :, item].max() for client, item, value in told)
