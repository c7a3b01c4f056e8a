"""A claimed epsilon's table: what stands for the ratings that are read."""

from __future__ import annotations

from reports.claims import HEADINGS, claims_table
from tests.reports.rows import ran


def read(metric):
    """The cell of what the best attack reads, of one answer."""
    seen = {"victim": "hdpmf", "adversary": "all rounds, 8 of 10", "reason": "-"}
    bound = ran("empirical_epsilon", "CLAIM HOLDS", **seen)
    table = claims_table([bound, ran(metric, victim="hdpmf")], "x")
    (cell,) = table.columns[HEADINGS.index("ratings read: best attack")].cells
    return cell


def test_differences_of_ratings_are_read_too():
    """Before: NOT TESTED, beside a leak."""
    assert "root-linearmixing, differences, LEAK" in read("rating_difference_accuracy")
    assert "root-linearmixing, LEAK" in read("rated_rating_accuracy")
    assert read("rated_set_auc") == "NOT TESTED"
