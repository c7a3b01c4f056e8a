"""Programs after Koren: biases of items are broadcast, and each client keeps one of its own."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Reconstruction, Scope
from attacks.closed_form.biases.bias_courses import Course, Part
from attacks.closed_form.biases.bias_steps import Clients, Moves, shifts_of
from attacks.closed_form.biases.own_biases_recording import OwnBiases, with_own_biases
from attacks.closed_form.centres.shifted import Shifted
from tests.attacks.closed_form.centres.test_centred_recording import HALVES, STARS, answers

USERS, ITEMS, K = 16, 40, 4


def table_of(levels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Ratings (users, items), 0 where unrated; every fourth client has both ends of the grid."""
    rng = np.random.default_rng(seed)
    place = np.clip(rng.normal(0.6, 0.3, (USERS, ITEMS)) * (levels.size - 1), 1, levels.size - 2)
    place = np.rint(place).astype(int)
    place[::4, :2] = 0, levels.size - 1
    place[1::4, 0] = 0
    rated = rng.random((USERS, ITEMS)) < np.linspace(0.3, 0.7, USERS)[:, None]
    rated[::4, :2] = rated[1::4, 0] = True
    return np.where(rated, levels[place], 0)


def recorded(
    path, table, levels, *, rounds=3, rate=0.005, decay=0.02, own_decay=None, mean=False, steps=1, start=0.4,
    centre=3.2, column=False, dtype=np.float64, per_rating=False,
):  # fmt: skip
    """Clients that step factor and bias over all their ratings, so many times a round."""
    rng = np.random.default_rng(1)
    q, p = (rng.normal(0, 0.3, (n, K)).astype(dtype) for n in (ITEMS, USERS))
    b = rng.normal(0, 0.4, ITEMS).astype(dtype)
    c = (centre + start * rng.normal(0, 1, USERS)).astype(dtype)
    own_decay = decay if own_decay is None else own_decay
    with fl.Recorder(path, rating_levels=levels) as recorder:
        for round_ in range(rounds):
            if column:
                recorder.broadcast(round_, np.column_stack([b, q]))
            else:
                recorder.broadcast(round_, q, biases=b)
            total, pushed = np.zeros_like(q), np.zeros_like(b)
            for user, ratings in enumerate(table):
                items = np.flatnonzero(ratings)
                r, v, bias = ratings[items].astype(dtype), q[items].copy(), b[items].copy()
                rows, errors = np.zeros_like(v), np.zeros_like(r)
                for _ in range(steps):
                    e = (r - bias - c[user] - v @ p[user]) / dtype(items.size if mean else 1)
                    rows, errors = rows + e[:, None] * p[user], errors + e
                    if steps > 1:
                        v, bias = v + dtype(rate) * e[:, None] * p[user], bias + dtype(rate) * e
                    fewer = dtype(items.size if per_rating else 1)
                    c[user] += dtype(rate) * (e.sum() - dtype(own_decay) * fewer * (c[user] - dtype(centre)))
                    p[user] += dtype(rate) * (e @ q[items] - dtype(decay) * fewer * p[user])
                sent = np.column_stack([errors, rows]) if column else rows
                recorder.upload(round_, user, sent.astype(dtype), items)
                total[items] += rows
                pushed[items] += errors
            q, b = q + dtype(rate) * total, b + dtype(rate) * pushed
    return path


def both_ends(table: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Clients who have the lowest and the highest level."""
    return (table == levels[0]).any(axis=1) & (table == levels[-1]).any(axis=1)


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"rounds": 2},
        {"own_decay": 0.1},
        {"mean": True, "rate": 0.1},
        {"per_rating": True},
        {"dtype": np.float32, "rate": 0.02, "decay": 0.1, "mean": True, "rounds": 6},
    ],
    ids=["sums", "two rounds", "a decay of its own", "means", "a decay for each rating", "single"],
)
@pytest.mark.parametrize("levels", [STARS, HALVES], ids=["stars", "halves"])
def test_rounds_tell_the_shift(tmp_path, levels, program):
    table = table_of(levels)
    many, right = answers(fl.attack(recorded(tmp_path / "t", table, levels, **program), "undeclared"), table)
    assert right == many >= 0.95 * (table > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [{"column": True}, pytest.param({"steps": 3, "column": True}, marks=pytest.mark.thorough)],
)
def test_without_decay_both_ends_of_the_grid_tell_it(tmp_path, program):
    table = table_of(STARS)
    path = recorded(tmp_path / "t", table, STARS, decay=0, **program)
    found = fl.attack(path, "undeclared")
    many, right = answers(found, table)
    whole = both_ends(table, STARS)
    assert right == many == (table[whole] > 0).sum()
    assert set(found.abstained) == set(np.flatnonzero(~whole).tolist())
    assert all("shift" in reason for reason in found.abstained.values())


@pytest.mark.thorough
def test_where_nobody_has_both_ends_differences_are_told(tmp_path):
    table = np.minimum(table_of(STARS), 4)
    path = recorded(tmp_path / "t", table, STARS, decay=0)
    found = fl.attack(path, "undeclared")
    assert found.scope == Scope.DIFFERENCES
    off = {
        user: np.unique(np.round(value - table[user, items])[~np.isnan(value)]).size
        for block in found.blocks
        for user, items, value in zip(block.users, block.index, block.value, strict=True)
    }
    assert len(off) == USERS
    assert set(off.values()) == {1}


def test_a_mean_that_nobody_told_beside_biases(tmp_path):
    """No bias of the client: one number for all has one place where all ratings are on the grid."""
    table = table_of(STARS)
    path = recorded(tmp_path / "t", table, STARS, rounds=1, start=0, centre=3.37)
    many, right = answers(fl.attack(path, "undeclared"), table)
    assert right == many == (table > 0).sum()


def test_an_answer_by_several_steps_is_not_kept_of_who_took_one():
    """In single precision a shift may lie in the span of several steps by accident (37 answers of one)."""
    one, several = (replaced_answers(steps) for steps in (1.0, np.nan))
    assert one.scope == Scope.RATINGS_AND_ATTRIBUTES
    assert several.scope == Scope.DIFFERENCES


def test_an_answer_near_the_grid_is_not_kept_where_a_bias_puts_ratings_on_it():
    """Ratings 5 and 4 had been answered as 2 and 0.999 (9 answers of one recording)."""
    assert replaced_answers(1.0, misfit=2e-3).scope == Scope.DIFFERENCES


def replaced_answers(steps: float, misfit: float = 0.0) -> Reconstruction:
    """A client's answers of another reading that fit what one step says up to a shift, which is open."""
    items, value = np.arange(3)[None], np.array([[3.0, 4.0, 2.0]])
    block = Estimates(np.array([0]), np.zeros((1, 3), int), items, value)
    diagnostics = {name: np.array([0.0]) for name in ("declared", "pull", "upright")}
    diagnostics |= {"steps": np.array([steps]), "misfit": np.array([misfit])}
    told = Reconstruction("one", np.array([0]), (block,), {}, {}, diagnostics)
    number, table = np.array([2.5]), np.zeros((1, 2))
    above = np.array([[1, 2, 0]])
    found = Shifted(above, number, number, table, table, table, number, number, np.array([True]))
    found = found._replace(distance=np.zeros(1))
    part = Part(np.array([0]), 0, np.zeros((1, 3), int), items, found)
    course = Course(
        np.array([0]), [part], number, moves_of(np.zeros(1, int), np.random.default_rng(0), decay=0)
    )
    return with_own_biases(told, OwnBiases([course], np.array([-1]), 1), STARS)


def test_factors_are_those_of_the_clients(tmp_path):
    table = table_of(STARS)
    for column in (False, True):
        path = recorded(tmp_path / f"{column}", table, STARS, column=column)
        found = fl.attack(path, "undeclared").factors
        assert found is not None
        assert found.value.shape[1] == K + column
        assert not column or (found.value[:, 0] == 1).all()


def moves_of(shift, rng, *, decay, noise=0.0, rounds=4):
    """Biases of clients that step by one law, as read with their lowest rating at the lowest level."""
    n, rows = shift.size, []
    c = rng.normal(3, 0.5, n)
    for _ in range(rounds):
        pushed = rng.normal(0, 3, n)
        new = c + 0.01 * pushed - decay * (c - 3.1)
        rows.append((np.arange(n), c - shift, new - c + noise * rng.normal(size=n), pushed))
        c = new
    client, *columns = (np.concatenate(column) for column in zip(*rows, strict=True))
    none = np.zeros((client.size, K))
    return Moves(client, *columns, none, none, none)


def clients_of(reach):
    return Clients(np.array(reach), np.full(len(reach), 10), np.full(len(reach), np.nan))


def test_decay_tells_shifts_and_its_absence_none():
    shift, reach = np.array([0, 1, 0, 2, 1]), [4, 3, 3, 2, 2]
    told = shifts_of(clients_of(reach), moves_of(shift, np.random.default_rng(0), decay=1e-3), 5, 1.0)
    assert told.tolist() == shift.tolist()
    told = shifts_of(clients_of(reach), moves_of(shift, np.random.default_rng(0), decay=0), 5, 1.0)
    assert told.tolist() == [0, -1, -1, -1, -1]


def test_noise_as_large_as_the_decay_leaves_shifts_open():
    shift, reach = np.array([0, 1, 0, 2, 1]), [4, 3, 3, 2, 2]
    moves = moves_of(shift, np.random.default_rng(0), decay=1e-3, noise=1e-3)
    assert shifts_of(clients_of(reach), moves, 5, 1.0).tolist() == [0, -1, -1, -1, -1]


def test_without_both_ends_what_shifts_have_in_common_is_told_where_one_fits():
    """Of three levels from the first and three from the last of four, and of three from the first alone."""
    shift = np.array([0, 1, 0, 1])
    moves = moves_of(shift, np.random.default_rng(0), decay=1e-3)
    assert shifts_of(clients_of([2] * 4), moves, 4, 1.0).tolist() == shift.tolist()
    moves = moves_of(0 * shift, np.random.default_rng(0), decay=1e-3)
    assert shifts_of(clients_of([2] * 4), moves, 4, 1.0).tolist() == [-1] * 4
