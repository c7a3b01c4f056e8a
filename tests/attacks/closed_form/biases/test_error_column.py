"""Surprise's SVD in a federation: a step after every rating, and biases in one table with the factors."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from tests.attacks.closed_form.biases.test_own_biases_recording import ITEMS, USERS, table_of
from tests.attacks.closed_form.centres.test_centred_recording import HALVES, STARS, answers

MEAN = 3.53


def recorded(
    path, table, levels, *, rounds=1, rate=0.005, decay=0.02, factors=5, first=False, mean=MEAN, own=0.0, still=False,
    gradient=False, weights=False, biases_decay=True, after=False, over=1.0, batch=1, mixed=False, sent=np.float64,
):  # fmt: skip
    """Clients that keep a factor and a bias from round to round, and send what each rating changes."""
    rng = np.random.default_rng(1)
    q, p = (rng.normal(0, 0.3, (n, factors)) for n in (ITEMS, USERS))
    b, c = rng.normal(0, 0.2, ITEMS), np.full(USERS, own)
    times = rate if gradient else 1.0
    with fl.Recorder(path, rating_levels=levels) as recorder:
        for round_ in range(rounds):
            recorder.broadcast(round_, np.column_stack([b, q] if first else [q, b]).astype(sent))
            if sent is np.float32:
                q, b = q.astype(sent).astype(float), b.astype(sent).astype(float)
            total, pushed = np.zeros_like(q), np.zeros_like(b)
            for user, ratings in enumerate(table):
                items = rng.permutation(np.flatnonzero(ratings))
                rows, errors = np.zeros((items.size, factors)), np.zeros(items.size)
                for begin in range(0, items.size, batch):
                    now = slice(begin, begin + batch)
                    some = items[now]
                    e = (ratings[some] - mean) / over - c[user] - b[some] - q[some] @ p[user]
                    c[user] += 0.0 if still else rate * (e.sum() - decay * c[user])
                    changed = p[user] + rate * (e @ q[some] - decay * p[user])
                    u = changed if after else p[user]
                    rows[now] = rate * (e[:, None] * u - decay * q[some])
                    errors[now] = rate * (e - decay * biases_decay * b[some])
                    p[user] = changed
                total[items] += rows
                pushed[items] += errors
                upload = np.column_stack([errors, rows] if first else [rows, errors]) / times
                if weights:
                    upload += np.column_stack([b, q] if first else [q, b])[items]
                order = rng.permutation(items.size) if mixed else np.arange(items.size)
                recorder.upload(round_, user, upload[order].astype(sent), items[order])
            q, b = q + total, b + pushed
    return path


@pytest.mark.parametrize(
    ("levels", "program"),
    [
        (STARS, {}),
        (HALVES, {"first": True, "gradient": True}),
        (STARS, {"weights": True, "rounds": 2}),
        (STARS, {"rounds": 3, "sent": np.float32, "rate": 0.02}),
        (HALVES, {"biases_decay": False, "factors": 16}),
        (STARS, {"after": True, "still": True}),
        (STARS, {"over": 5.0, "mean": 0.0, "own": 0.4}),
        (STARS, {"decay": 0.0, "own": 0.3}),
        (STARS, {"mixed": True}),
        (STARS, {"mixed": True, "after": True, "decay": 0.0, "sent": np.float32, "rate": 0.02}),
        (STARS, {"mixed": True, "biases_decay": False, "gradient": True, "first": True}),
    ],
    ids=lambda one: "" if isinstance(one, np.ndarray) else " ".join(one) or "as published",
)
def test_errors_in_a_column_tell_all_ratings(tmp_path, levels, program):
    table = table_of(levels)
    found = fl.attack(recorded(tmp_path / "t", table, levels, **program), "undeclared")
    told, right = answers(found, table)
    assert found.scope == Scope.RATINGS_AND_ATTRIBUTES
    assert told == right == (table > 0).sum()


@pytest.mark.parametrize("program", [{"own": None}, {"batch": 4}, {"over": 2.0}], ids=str)
def test_what_it_does_not_know_is_not_answered_wrongly(tmp_path, program):
    table = table_of(STARS)
    if program == {"own": None}:  # biases of clients from the start tell no shift
        program = {"own": np.random.default_rng(3).normal(0, 0.3, USERS)}
    found = fl.attack(recorded(tmp_path / "t", table, STARS, **program), "undeclared")
    told, right = answers(found, table)
    print(found.scope, told, right, set(found.abstained.values()))
    assert told == right or found.scope != Scope.RATINGS_AND_ATTRIBUTES
