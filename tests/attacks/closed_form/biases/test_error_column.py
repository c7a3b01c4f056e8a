"""Surprise's SVD and fastai's model in a federation: biases in one table with the factors."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.biases.error_column_recording import read_error_column, with_error_column
from attacks.closed_form.round_answers import DIAGNOSTICS
from tests.attacks.closed_form.biases.test_own_biases_recording import ITEMS, USERS, both_ends, table_of
from tests.attacks.closed_form.centres.test_centred_recording import HALVES, STARS, answers, sizes

MEAN = 3.53


def recorded(
    path, table, levels, *, rounds=1, rate=0.005, decay=0.02, factors=5, first=False, mean=MEAN, own=0.0,
    still=False, gradient=False, weights=False, biases_decay=True, after=False, over=1.0, batch=1,
    mean_step=False, mixed=False, sent=np.float64, reach=None, own_decay=None, spread=0.3,
    entry=1.0, lowest=False, length=0.3,
):  # fmt: skip
    """Clients that keep a factor and a bias from round to round, and send what each rating changes."""
    rng = np.random.default_rng(1)
    q, p = (rng.normal(0, 0.3, (n, factors)) for n in (ITEMS, len(table)))
    b, c, p = rng.normal(0, 0.2, ITEMS), np.full(len(table), own), p * length / 0.3
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
OWN = np.random.default_rng(3).normal(0.3, 0.3, USERS)


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
    table = table_of(levels)
    found = read(recorded(tmp_path / "t", table, levels, **program))
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
    table = table_of(STARS)
    found = fl.attack(recorded(tmp_path / "t", table, STARS, **program), "undeclared")
    told, right = answers(found, table)
    assert told == right == (table > 0).sum()


def test_a_bias_from_the_start_leaves_a_shift(tmp_path):
    table = table_of(STARS)
    found = read(recorded(tmp_path / "t", table, STARS, own=OWN))
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
    table = np.concatenate([table_of(STARS, seed) for seed in range(4)])
    found = read(recorded(tmp_path / "t", table, STARS, spread=0.0, **program))
    if found is not None:
        told, right = answers(found, table)
        assert told == right


@pytest.mark.parametrize(
    "program", [{}, {"own": OWN}, {"batch": 4, "reach": 5.0, "own": OWN}], ids=["plain", "own", "sigmoid"]
)
def test_biases_that_are_taken_off_turn_no_ratings_round(tmp_path, program):
    """A difficulty of items, p.q - b: rows of the mirror images of ratings with p.q + b."""
    table = table_of(STARS)
    found = read(recorded(tmp_path / "t", table, STARS, entry=-1.0, **program))
    if found is not None:
        assert found.scope == Scope.SIZES
        many, right = sizes(found, table)
        assert right == many > 0


@pytest.mark.parametrize("own", [0.0, 0.3])
def test_ratings_less_own_lowest_ones_are_not_taken_for_ratings(tmp_path, own):
    table = table_of(STARS)
    found = read(recorded(tmp_path / "t", table, STARS, lowest=True, own=own))
    assert found is not None
    told, right = answers(found, table)
    assert told == right
    assert found.abstained


@pytest.mark.parametrize("batch", [1, 50])
def test_rows_of_factors_of_zero_are_no_failure(tmp_path, batch):
    """A client's first row holds its error alone, and all do in one step."""
    table = table_of(STARS)
    found = read(recorded(tmp_path / "t", table, STARS, length=0.0, decay=0.0, batch=batch))
    if found is not None:
        told, right = answers(found, table)
        assert told == right


def test_ratings_half_as_large_are_not_answered_on_a_grid_of_halves(tmp_path):
    path = recorded(tmp_path / "t", table_of(STARS), HALVES, over=2.0, mean=0.0, own=0.4)
    assert read(path) is None


@pytest.mark.parametrize(
    "program",
    [{"over": 2.0, "mixed": True}, {"batch": 4, "reach": 6.0, "own": OWN}, {"batch": 50, "reach": 6.0}],
    ids=["half as large", "another sigmoid", "another sigmoid, one step"],
)
def test_what_it_does_not_know_is_not_answered(tmp_path, program):
    assert read(recorded(tmp_path / "t", table_of(STARS), STARS, **program)) is None


def test_ratings_that_are_no_levels_are_not_answered(tmp_path):
    rng = np.random.default_rng(5)
    table = table_of(STARS)
    made_up = np.where(table > 0, np.clip(table + rng.normal(0, 0.3, table.shape), 0.5, 5.5), 0)
    assert read(recorded(tmp_path / "t", made_up, STARS)) is None
