"""Biases of items and of clients beside the rows, or in a column of them."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Reconstruction, Scope
from attacks.closed_form.biases.bias_courses import Course, Part
from attacks.closed_form.biases.bias_steps import Clients, Moves, shifts_of
from attacks.closed_form.biases.error_column_recording import read_error_column, with_error_column
from attacks.closed_form.biases.own_biases_recording import OwnBiases, with_own_biases
from attacks.closed_form.centres.shifted import Shifted
from attacks.closed_form.round_answers import DIAGNOSTICS
from tests.attacks.closed_form.test_centres import HALVES, STARS, answers, sizes

# Programs after Koren: biases of items are broadcast, and each client keeps one of its own.


USERS_OWN_BIASES, ITEMS_OWN_BIASES, K_OWN_BIASES = 16, 40, 4


def table_of_own_biases(levels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Ratings (users, items), 0 where unrated; every fourth client has both ends of the grid."""
    rng = np.random.default_rng(seed)
    place = np.clip(
        rng.normal(0.6, 0.3, (USERS_OWN_BIASES, ITEMS_OWN_BIASES)) * (levels.size - 1), 1, levels.size - 2
    )
    place = np.rint(place).astype(int)
    place[::4, :2] = 0, levels.size - 1
    place[1::4, 0] = 0
    rated = (
        rng.random((USERS_OWN_BIASES, ITEMS_OWN_BIASES)) < np.linspace(0.3, 0.7, USERS_OWN_BIASES)[:, None]
    )
    rated[::4, :2] = rated[1::4, 0] = True
    return np.where(rated, levels[place], 0)


def recorded_of_own_biases(
    path, table, levels, *, rounds=3, rate=0.005, decay=0.02, own_decay=None, mean=False, steps=1, start=0.4,
    centre=3.2, column=False, dtype=np.float64, per_rating=False,
):  # fmt: skip
    """Clients that step factor and bias over all their ratings, so many times a round."""
    rng = np.random.default_rng(1)
    q, p = (rng.normal(0, 0.3, (n, K_OWN_BIASES)).astype(dtype) for n in (ITEMS_OWN_BIASES, USERS_OWN_BIASES))
    b = rng.normal(0, 0.4, ITEMS_OWN_BIASES).astype(dtype)
    c = (centre + start * rng.normal(0, 1, USERS_OWN_BIASES)).astype(dtype)
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
    table = table_of_own_biases(levels)
    many, right = answers(
        fl.attack(recorded_of_own_biases(tmp_path / "t", table, levels, **program), "undeclared"), table
    )
    assert right == many >= 0.95 * (table > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [{"column": True}, pytest.param({"steps": 3, "column": True}, marks=pytest.mark.thorough)],
)
def test_without_decay_both_ends_of_the_grid_tell_it(tmp_path, program):
    table = table_of_own_biases(STARS)
    path = recorded_of_own_biases(tmp_path / "t", table, STARS, decay=0, **program)
    found = fl.attack(path, "undeclared")
    many, right = answers(found, table)
    whole = both_ends(table, STARS)
    assert right == many == (table[whole] > 0).sum()
    assert set(found.abstained) == set(np.flatnonzero(~whole).tolist())
    assert all("shift" in reason for reason in found.abstained.values())


@pytest.mark.thorough
def test_where_nobody_has_both_ends_differences_are_told(tmp_path):
    table = np.minimum(table_of_own_biases(STARS), 4)
    path = recorded_of_own_biases(tmp_path / "t", table, STARS, decay=0)
    found = fl.attack(path, "undeclared")
    assert found.scope == Scope.DIFFERENCES
    off = {
        user: np.unique(np.round(value - table[user, items])[~np.isnan(value)]).size
        for block in found.blocks
        for user, items, value in zip(block.users, block.index, block.value, strict=True)
    }
    assert len(off) == USERS_OWN_BIASES
    assert set(off.values()) == {1}


def test_a_mean_that_nobody_told_beside_biases(tmp_path):
    """No bias of the client: one number for all has one place where all ratings are on the grid."""
    table = table_of_own_biases(STARS)
    path = recorded_of_own_biases(tmp_path / "t", table, STARS, rounds=1, start=0, centre=3.37)
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
    table = table_of_own_biases(STARS)
    for column in (False, True):
        path = recorded_of_own_biases(tmp_path / f"{column}", table, STARS, column=column)
        found = fl.attack(path, "undeclared").factors
        assert found is not None
        assert found.value.shape[1] == K_OWN_BIASES + column
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
    none = np.zeros((client.size, K_OWN_BIASES))
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


# Surprise's SVD and fastai's model in a federation: biases in one table with the factors.


MEAN = 3.53


def recorded_of_error_column(
    path, table, levels, *, rounds=1, rate=0.005, decay=0.02, factors=5, first=False, mean=MEAN, own=0.0,
    still=False, gradient=False, weights=False, biases_decay=True, after=False, over=1.0, batch=1,
    mean_step=False, mixed=False, sent=np.float64, reach=None, own_decay=None, spread=0.3,
    entry=1.0, lowest=False, length=0.3,
):  # fmt: skip
    """Clients that keep a factor and a bias from round to round, and send what each rating changes."""
    rng = np.random.default_rng(1)
    q, p = (rng.normal(0, 0.3, (n, factors)) for n in (ITEMS_OWN_BIASES, len(table)))
    b, c, p = rng.normal(0, 0.2, ITEMS_OWN_BIASES), np.full(len(table), own), p * length / 0.3
    own_decay = decay if own_decay is None else own_decay
    if not spread:  # items that all start alike
        q[:], b[:] = q[0], 0.1
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
                    inside = c[user] + entry * b[some] + q[some] @ p[user]
                    less = ratings[ratings > 0].min() if lowest else mean
                    e = (ratings[some] - less) / over - inside
                    if reach is not None:
                        share = 1 / (1 + np.exp(-inside))
                        e = (ratings[some] - reach * share) * reach * share * (1 - share)
                    if mean_step:
                        e = e / some.size
                    changed = p[user] + rate * (e @ q[some] - decay * p[user])
                    u = changed if after else p[user]
                    rows[now] = rate * (e[:, None] * u - decay * q[some])
                    errors[now] = rate * (entry * e - decay * biases_decay * b[some])
                    p[user] = changed
                    c[user] += 0.0 if still else rate * (e.sum() - own_decay * c[user])
                total[items] += rows
                pushed[items] += errors
                upload = np.column_stack([errors, rows] if first else [rows, errors]) / times
                if weights:
                    upload += np.column_stack([b, q] if first else [q, b])[items]
                order = rng.permutation(items.size) if mixed else np.arange(items.size)
                recorder.upload(round_, user, upload[order].astype(sent), items[order])
            q, b = q + total, b + pushed
    return path


THOROUGH = pytest.mark.thorough
OWN = np.random.default_rng(3).normal(0.3, 0.3, USERS_OWN_BIASES)


def read(path) -> fl.Reconstruction | None:
    """What the column alone tells, where there is one."""
    view = fl.open_transcript(path).view("server")
    own = read_error_column(view)
    if own is None:
        return None
    reasons = dict.fromkeys(view.users.tolist(), "")
    unknown = {one: np.full(view.users.size, np.nan) for one in DIAGNOSTICS}
    nobody = fl.Reconstruction("undeclared", view.users, (), reasons, {}, unknown)
    return with_error_column(nobody, own, np.array(view.manifest.rating_levels))


@pytest.mark.parametrize(
    ("levels", "program"),
    [
        pytest.param(STARS, {}, id="as published"),
        pytest.param(HALVES, {"first": True, "gradient": True}, id="gradients", marks=THOROUGH),
        pytest.param(STARS, {"weights": True, "rounds": 2}, id="weights", marks=THOROUGH),
        pytest.param(STARS, {"rounds": 3, "sent": np.float32, "rate": 0.02}, id="single", marks=THOROUGH),
        pytest.param(HALVES, {"biases_decay": False, "factors": 16}, id="factors decay", marks=THOROUGH),
        pytest.param(STARS, {"biases_decay": False, "own_decay": 0.0}, id="no bias decays", marks=THOROUGH),
        pytest.param(STARS, {"after": True, "still": True}, id="after the step", marks=THOROUGH),
        pytest.param(STARS, {"over": 5.0, "mean": 0.0, "own": 0.4}, id="over the highest"),
        pytest.param(STARS, {"decay": 0.0, "own": 0.3}, id="no decay", marks=THOROUGH),
        pytest.param(STARS, {"mixed": True}, id="by item"),
        pytest.param(
            STARS,
            {"mixed": True, "after": True, "decay": 0.0, "sent": np.float32, "rate": 0.02},
            id="by item, after the step",
            marks=THOROUGH,
        ),
        pytest.param(
            STARS,
            {"mixed": True, "biases_decay": False, "first": True},
            id="by item, factors decay",
            marks=THOROUGH,
        ),
        pytest.param(HALVES, {"batch": 4, "mixed": True, "mean_step": True}, id="minibatches by item"),
        pytest.param(
            STARS, {"batch": 4, "decay": 0.0, "still": True}, id="minibatches, biases stay", marks=THOROUGH
        ),
        pytest.param(STARS, {"batch": 50, "mean_step": True}, id="at once"),
        pytest.param(STARS, {"batch": 50, "reach": 5.5, "own": OWN}, id="sigmoid"),
        pytest.param(STARS, {"reach": 5.5, "own": OWN}, id="sigmoid, every rating", marks=THOROUGH),
        pytest.param(
            STARS,
            {"batch": 4, "mean_step": True, "mixed": True, "reach": 5.0, "own": OWN, "sent": np.float32}
            | {"rate": 0.1},
            id="sigmoid, minibatches",
            marks=THOROUGH,
        ),
    ],
)
def test_errors_in_a_column_tell_all_ratings(tmp_path, levels, program):
    table = table_of_own_biases(levels)
    found = read(recorded_of_error_column(tmp_path / "t", table, levels, **program))
    assert found is not None
    told, right = answers(found, table)
    assert found.scope == Scope.RATINGS_AND_ATTRIBUTES
    assert told == right == (table > 0).sum()


@pytest.mark.parametrize(
    "program",
    [
        {},
    ],
    ids=[
        "plain",
    ],
)
def test_the_attack_reads_them(tmp_path, program):
    table = table_of_own_biases(STARS)
    found = fl.attack(recorded_of_error_column(tmp_path / "t", table, STARS, **program), "undeclared")
    told, right = answers(found, table)
    assert told == right == (table > 0).sum()


def test_a_bias_from_the_start_leaves_a_shift(tmp_path):
    table = table_of_own_biases(STARS)
    found = read(recorded_of_error_column(tmp_path / "t", table, STARS, own=OWN))
    assert found is not None
    told, right = answers(found, table)
    assert told == right == (table[both_ends(table, STARS)] > 0).sum()


@pytest.mark.parametrize(
    "program",
    [
        pytest.param({}, id="every rating"),
        pytest.param({"batch": 50}, id="at once"),
        pytest.param({"batch": 50, "reach": 5.5}, id="sigmoid", marks=THOROUGH),
    ],
)
def test_items_that_all_start_alike_tell_no_rating(tmp_path, program):
    """Predictions that are the same are on the grid with no error at all."""
    table = np.concatenate([table_of_own_biases(STARS, seed) for seed in range(4)])
    found = read(recorded_of_error_column(tmp_path / "t", table, STARS, spread=0.0, **program))
    if found is not None:
        told, right = answers(found, table)
        assert told == right


@pytest.mark.parametrize(
    "program", [{}, {"own": OWN}, {"batch": 4, "reach": 5.0, "own": OWN}], ids=["plain", "own", "sigmoid"]
)
def test_biases_that_are_taken_off_turn_no_ratings_round(tmp_path, program):
    """A difficulty of items, p.q - b: rows of the mirror images of ratings with p.q + b."""
    table = table_of_own_biases(STARS)
    found = read(recorded_of_error_column(tmp_path / "t", table, STARS, entry=-1.0, **program))
    if found is not None:
        assert found.scope == Scope.SIZES
        many, right = sizes(found, table)
        assert right == many > 0


@pytest.mark.parametrize("own", [0.0, 0.3])
def test_ratings_less_own_lowest_ones_are_not_taken_for_ratings(tmp_path, own):
    table = table_of_own_biases(STARS)
    found = read(recorded_of_error_column(tmp_path / "t", table, STARS, lowest=True, own=own))
    assert found is not None
    told, right = answers(found, table)
    assert told == right
    assert found.abstained


@pytest.mark.parametrize("batch", [1, 50])
def test_rows_of_factors_of_zero_are_no_failure(tmp_path, batch):
    """A client's first row holds its error alone, and all do in one step."""
    table = table_of_own_biases(STARS)
    found = read(recorded_of_error_column(tmp_path / "t", table, STARS, length=0.0, decay=0.0, batch=batch))
    if found is not None:
        told, right = answers(found, table)
        assert told == right


def test_ratings_half_as_large_are_not_answered_on_a_grid_of_halves(tmp_path):
    path = recorded_of_error_column(
        tmp_path / "t", table_of_own_biases(STARS), HALVES, over=2.0, mean=0.0, own=0.4
    )
    assert read(path) is None


@pytest.mark.parametrize(
    "program",
    [{"over": 2.0, "mixed": True}, {"batch": 4, "reach": 6.0, "own": OWN}, {"batch": 50, "reach": 6.0}],
    ids=["half as large", "another sigmoid", "another sigmoid, one step"],
)
def test_what_it_does_not_know_is_not_answered(tmp_path, program):
    assert (
        read(recorded_of_error_column(tmp_path / "t", table_of_own_biases(STARS), STARS, **program)) is None
    )


def test_ratings_that_are_no_levels_are_not_answered(tmp_path):
    rng = np.random.default_rng(5)
    table = table_of_own_biases(STARS)
    made_up = np.where(table > 0, np.clip(table + rng.normal(0, 0.3, table.shape), 0.5, 5.5), 0)
    assert read(recorded_of_error_column(tmp_path / "t", made_up, STARS)) is None
