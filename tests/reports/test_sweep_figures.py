"""Figures of a sweep."""

from __future__ import annotations

from reports.sweep_figures import accuracy_against_scale
from reports.sweep_panels import fell_back


def test_points_that_fell_back_are_hollow():
    """Two of three points: one by its verdict, with no value at all, and one by its count."""
    cells = [(1.0, 0.9, 0, "LEAK"), (2.0, None, 10, "NOT TESTED"), (4.0, 0.3, 6, "INCONCLUSIVE")]
    rows = [
        {
            "update": "sgd", "weighting": "observed-only", "defense": f"laplace:scale={scale}", "attack": "x",
            "rounds": 1, "metric": "rating_accuracy", "status": "ran", "value": value, "ci_low": value,
            "ci_high": value, "baseline": 0.3, "ceiling": 0.95, "n_users": 10, "n_abstained": count,
            "verdict": verdict,
        }
        for scale, value, count, verdict in cells
    ]  # fmt: skip
    assert [fell_back(row) for row in rows] == [False, True, True]
    figure = accuracy_against_scale(rows, "rating_accuracy", "x")
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_ydata()) for line in hollow] == [[0.3, 0.3]]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any("hollow" in label for label in labels)
    assert [list(line.get_ydata()) for line in figure.axes[0].lines if line.get_marker() == "_"] == [
        [0.95] * 3
    ]
    assert [text.get_text() for text in figure.axes[0].texts] == ["best guess"]
    bare = accuracy_against_scale(rows[:1], "rating_accuracy", "x")
    assert not any("hollow" in text.get_text() for text in bare.legends[0].get_texts())
