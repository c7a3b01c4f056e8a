"""Between part-text and full-text: what lists tell, what hiding them costs, and the figure of both."""

from __future__ import annotations

import numpy as np
import pytest

from audit.papers.list_privacy import run
from audit.papers.plans import Lists
from reports.figures import list_privacy_figure
from reports.tables import list_privacy_table
from victims.common.errors import InputError

PART, FULL = "part-text", "full-text"


@pytest.fixture(scope="module")
def rows(ratings, tmp_path_factory):
    plan = Lists(rhos=(1.0,), rounds=(1, 3), victim_options={"factors": "16"}, sample=4)
    return run(plan, ratings, tmp_path_factory.mktemp("lists"), jobs=1)


def value(rows, defense, metric, rounds=1, field="value"):
    (found,) = (
        row[field]
        for row in rows
        if (row["defense"], row["metric"], row["rounds"]) == (defense, metric, rounds)
    )
    return found


def test_lists_tell_less_where_zeros_are_among_them(rows):
    """Part-text tells everything; a sample that is drawn once tells in three rounds what it tells in one."""
    anew, once = "unrated-sampling:rho=1", "unrated-sampling:rho=1,redrawn=false"
    assert value(rows, PART, "rated_set_f1") == value(rows, PART, "rated_set_f1", 3) == 1
    first = value(rows, anew, "rated_set_f1")
    assert value(rows, once, "rated_set_f1") == value(rows, once, "rated_set_f1", 3) == first < 0.8
    assert first < value(rows, anew, "rated_set_f1", 3) <= 1
    assert value(rows, anew, "rated_set_auc", field="baseline_name") == "popularity"
    nothing = [row for row in rows if row["defense"] == FULL and row["status"] == "not applicable"]
    assert {row["verdict"] for row in nothing} == {"NOT TESTED"}


def test_bytes_are_counted(rows, ratings):
    """Sixteen numbers under 1,024 bits are two ciphertexts of 256 bytes a row."""
    counts = np.diff(ratings.indptr)
    sampled = np.minimum(2 * counts, ratings.n_items)
    for defense, sent in ((PART, counts.mean()), ("unrated-sampling:rho=1", sampled.mean())):
        np.testing.assert_allclose(value(rows, defense, "bytes_sent_mean"), 512 * sent)
    assert value(rows, FULL, "bytes_sent_mean") == 512 * ratings.n_items


def test_table_and_figure(rows, tmp_path):
    """The same bytes for the same rows."""
    table = list_privacy_table(rows, "lists")
    assert len(table.rows) == 8
    one, two = (list_privacy_figure(rows, tmp_path / name) for name in ("one", "two"))
    assert [a.read_bytes() for a in one] == [b.read_bytes() for b in two]


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (Lists(rounds=(0,)), "rounds of a study of lists must be"),
        (Lists(victim_options={"upload": "full-text"}), "must not name upload"),
        (Lists(rhos=(-1.0,)), "rhos of a study of lists must be 1 to 1000 values, each > 0"),
    ],
)
def test_refusals(plan, complaint, ratings, tmp_path):
    with pytest.raises(InputError, match=complaint):
        run(plan, ratings, tmp_path)
