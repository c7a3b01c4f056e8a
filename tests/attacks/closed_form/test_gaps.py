"""Rows of which some entries are not sent."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.gaps.filled_rows import filled_in
from attacks.closed_form.uploads.readings import Rows
from tests.oracles.gap_programs import (
    GapProgram,
    at_random,
    largest_of_all,
    largest_of_each_row,
    one_step,
    three_steps,
)

# Rows of which some entries are not sent, read by ``undeclared``: none wrongly.


def score(found: fl.Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
    """Answers, and how many of them are right."""
    if not found.blocks:
        return 0, 0
    columns = list(found.columns())
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    return user.size, int((np.abs(value - ratings[user, item]) < 0.25).sum())


def name(value: object) -> str:
    return getattr(value, "__name__", str(value))


CASES = (  # who steps how, what is sent, of how much, and the least share of ratings that is told
    (one_step, largest_of_each_row, 0.5, 0.9),
    (one_step, largest_of_each_row, 0.2, 0.45),
    (one_step, largest_of_all, 0.5, 0.8),
    (one_step, largest_of_all, 0.2, 0.2),
    (one_step, at_random, 0.5, 0.98),
    (one_step, at_random, 0.2, 0.75),
    (three_steps, largest_of_all, 0.5, 0.7),
)
BY_DEFAULT = (0, 4)  # in double precision
SINGLY = (4,)  # in single precision, too; tests.tools.gaps has all


@pytest.mark.parametrize(
    ("step", "sent", "share", "least", "dtype"),
    [
        pytest.param(
            *case,
            dtype,
            marks=[] if number in BY_DEFAULT and dtype is np.float64 else [pytest.mark.thorough],
        )
        for number, case in enumerate(CASES)
        for dtype in (np.float64, np.float32)
        if dtype is np.float64 or number in SINGLY
    ],
    ids=name,
)
def test_what_is_missing_is_told_by_what_is_sent(tmp_path, step, sent, share, least, dtype):
    # of few clients in single precision the largest entries of all are too few to say much
    few = 20 if sent is largest_of_all and dtype is np.float32 else 12
    ratings = GapProgram(step, sent, share, n_users=few, dtype=dtype).record(tmp_path / "t")
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert right == answers >= least * (ratings > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize("sent", [at_random], ids=name)
def test_shuffled_rows_are_not_read(tmp_path, sent):
    GapProgram(sent=sent, n_users=3).record(tmp_path / "t")
    view = fl.open_transcript(tmp_path / "t").view("server").shuffled(3)
    assert len(fl.attack(view, "undeclared").abstained) == view.users.size


@pytest.mark.thorough
def test_ratings_off_the_grid_are_not_read(tmp_path):
    """Ratings less a number that nobody knows."""

    def centred(u, r, v):
        return one_step(u, r - 3.21, v)

    GapProgram(centred, n_users=3).record(tmp_path / "t")
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == 3


def rows_about(sent: np.ndarray) -> Rows:
    """Rows of one client, about factors of size 1."""
    n = len(sent)
    return Rows(
        sent[None], np.ones((1, *sent.shape)), np.zeros((1, n)), np.ones((1, n), bool), np.full(1, np.nan),
        float(np.finfo(float).eps), None,
    )  # fmt: skip


def test_filling_in():
    rng = np.random.default_rng(0)
    whole = np.outer(rng.normal(size=12), rng.normal(size=6))
    found = filled_in(rows_about(np.where(rng.random(whole.shape) < 0.6, whole, 0)))
    assert found.one_step.all()
    np.testing.assert_allclose(found.rows[0], whole, rtol=1e-12)


def test_entries_that_rounding_leaves_at_zero_are_not_taken_for_missing():
    """Eight bits of the largest number of all: small entries are 0, and the others no longer of rank one."""
    rng = np.random.default_rng(0)
    whole = np.outer(rng.normal(size=12), rng.normal(size=6))
    step = np.abs(whole).max() / 127
    sent = np.round(whole / step) * step
    assert (sent == 0).any()
    assert not filled_in(rows_about(sent)).one_step.any()


def test_an_entry_of_another_rule_is_seen():
    rng = np.random.default_rng(0)
    whole = np.outer(rng.normal(size=12), rng.normal(size=6))
    whole[0, :3] = 0
    whole[5, 4] *= 1.001
    assert not filled_in(rows_about(whole)).one_step.any()


def test_rows_that_share_no_column_with_others_have_a_scale_of_their_own(tmp_path):
    """Two blocks: nothing says how long the factor's parts are beside each other."""
    whole = np.outer(np.arange(1.0, 7), np.arange(1.0, 5))
    whole[:3, :2], whole[3:, 2:] = 0, 0
    found = filled_in(rows_about(whole))
    assert found.joined.sum() == 3
