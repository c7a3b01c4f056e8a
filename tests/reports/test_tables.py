"""What tables and sentences say: verdicts, reasons, and no number where nothing was tested."""

from __future__ import annotations

import re

from reports.layout import piped
from reports.tables import READ, audit_table, claims_table, score_table
from reports.verdicts import why_not
from reports.words import in_words
from tests.reports.rows import LOST, ROWS, SILENT, WHY, ran


class TestWords:
    def test_every_metric_has_its_own_verdict(self):
        rows = [ran("rating_accuracy", "NO EVIDENCE"), ran("rated_rating_accuracy", "LEAK")]
        lines = piped(audit_table(rows, "x")).splitlines()[2:]
        assert [("NO EVIDENCE" in line, "LEAK" in line) for line in lines] == [(True, False), (False, True)]

    def test_no_number_where_nothing_was_tested(self):
        for sheet in (audit_table(ROWS, "x"), score_table([*ROWS, SILENT], "x")):
            lines = [line for line in piped(sheet).splitlines() if "NOT TESTED" in line]
            assert lines
            for line in lines:
                assert not re.search(r"0\.\d\d\d", line)
        assert why_not(LOST) == f"not applicable: {WHY}"
        assert why_not(SILENT) == "bad fit"
        assert why_not(ROWS[0]) == ""

    def test_a_leak_without_truth_says_what_it_is_of(self):
        """Else nobody would know that differences of ratings alone are told."""
        row = ran("clients_answered", n_users=1, n_abstained=0, reason="no truth; differences alone")
        assert why_not(row) == "no truth; differences alone"
        (sentence,) = in_words([row])
        assert " of 1 client of what the server sees" in sentence

    def test_the_sentence_names_its_metrics(self):
        (sentence,) = in_words(ROWS)
        assert sentence.startswith("semi-als/include-unrated: the server reads, with root-linearmixing, ")
        assert "rated_rating_accuracy 97.1 % (best guess without the transcript 34.5 %): LEAK" in sentence
        assert "attribute_group_accuracy 97.1 %" in sentence
        assert "rated_set_auc 0.971 (best guess without the transcript 0.345): LEAK" in sentence

    def test_nothing_tested_is_said(self):
        (sentence,) = in_words([LOST, SILENT, ran("rated_rating_accuracy", "LEAK", attack="guess-majority")])
        assert sentence.startswith("semi-als/include-unrated: NOT TESTED")
        assert "0." not in sentence


def read(metric):
    """The cell of what the best attack reads, of one answer."""
    seen = {"victim": "hdpmf", "adversary": "all rounds, 8 of 10", "reason": "-"}
    bound = ran("empirical_epsilon", "CLAIM HOLDS", **seen)
    (cell,) = claims_table([bound, ran(metric, victim="hdpmf")], "x").column(READ)
    return cell


def test_differences_of_ratings_are_read_too():
    """Before: NOT TESTED, beside a leak."""
    assert "root-linearmixing, differences, LEAK" in read("rating_difference_accuracy")
    assert "root-linearmixing, LEAK" in read("rated_rating_accuracy")
    assert read("rated_set_auc") == "NOT TESTED"
