"""What figures draw: every line is named, and what was not tested is never at a number."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from reports import figures
from reports.figures import accuracy_against_scale, comparison_figure, fell_back
from reports.paper_figures import (
    GROWS,
    LABELS,
    PANELS,
    growth_figure,
    leakage_figure,
    published_figures,
    published_noise,
    rounds_figure,
)
from tests.reports.rows import ran


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


def test_what_was_not_tested_is_hollow_in_its_lane(monkeypatch, tmp_path):
    """Before the axis said "ratings", of all items or of those that were rated."""
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure) or [])
    bounds = {"advantage_low": 0.9, "advantage_high": 1.0, "adversary": "server"}
    rows = [
        ran("rated_rating_accuracy", defense="none", **bounds),
        ran("rated_rating_accuracy", "NOT TESTED", defense="paillier", **bounds),
    ]
    comparison_figure(rows, tmp_path)
    (axes,) = kept[0].axes
    assert axes.get_title() == "server\nratings of rated items"
    filled = {
        float(np.asarray(marks.get_offsets())[0, 1]): len(marks.get_facecolor()) > 0
        for marks in axes.collections
        if isinstance(marks, PathCollection)
    }
    assert filled == {0.956: True, figures.LANE: False}
    (cells,) = kept[1].axes
    assert [text.get_text() for text in cells.texts] == ["0.97", "-"]


def test_leakage_is_drawn_as_advantage_over_the_guess():
    rows = [
        {"panel": panel, "protocol": f"{protocol}, senders told", "x": x, "right": right}
        | {"by name": 0.3, "low": 0.2, "high": 0.9, "guess": 0.3}
        for panel in PANELS
        for protocol in {name for name, _ in LABELS}
        for x, right in ((1, 0.3), (2, 1.0))
    ]
    figure = leakage_figure(pd.DataFrame(rows))
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == list(LABELS.values())
    for axes in figure.axes:
        assert axes.get_legend() is None
        drawn = [list(container.lines[0].get_ydata()) for container in axes.containers]
        assert drawn == [[0, 0] if "right name" in words else [0, 1] for words in said]


def test_rounds_have_a_line_for_each_variant():
    rows = [
        {"variant": name, "rate": 0.01, "rounds": number, "mae": 1 / number}
        for name in ("a", "b")
        for number in (1, 2)
    ]
    figure = rounds_figure(pd.DataFrame(rows), mean=0.95, published=1.02)
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["published, PDMFRec", "mean of the training ratings", "a", "b"]
    assert [line.get_ydata()[0] for line in figure.axes[0].lines][:2] == [1.02, 0.95]


def test_growth_is_drawn_beside_the_claim():
    rows = [
        {
            "protocol": "a",
            "varied": varied,
            "at": at,
            "bytes": 9e6 * at,
            "claimed": 8e6 * at,
            "seconds": 2 + at,
        }
        for varied in GROWS
        for at in (1, 4)
    ]
    figure = growth_figure(pd.DataFrame(rows))
    drawn = [[list(line.get_ydata()) for line in axes.lines] for axes in figure.axes]
    assert drawn[:3] == [[[9, 36], [8, 32]]] * 3
    assert drawn[3:] == [[[3, 6], [3, 12]]] * 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "a, as claimed"]


def noisy_rows(scales, metric="rating_accuracy", solver="root-anderson"):
    lines = {solver: 0.6, "guess-uniform": 0.2}
    return [
        ran(metric, attack=attack, defense=f"laplace:scale={scale:g}", value=value, baseline=0.9, rounds=2)
        for scale in scales
        for attack, value in lines.items()
    ]


@pytest.mark.parametrize(("scales", "kind"), [((0, 0.5, 2), "linear"), ((1, 100, 10_000), "log")])
def test_what_is_drawn(scales, kind):
    axes = published_noise(noisy_rows(scales), "rating_accuracy").axes[0]
    assert axes.get_xscale() == kind
    drawn = {
        (tuple(line.get_xdata()), *set(line.get_ydata())) for line in axes.lines if len(line.get_xdata())
    }
    assert drawn == {(scales, 0.6), (scales, 0.2), (scales, 0.9)}
    figure = axes.get_figure()
    figure.canvas.draw()
    if kind == "log":
        assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "100", "10,000"]
    assert axes.get_title() == "semi-als / include-unrated\nsolver root-anderson (paper: scalar Jacobian)"


def test_a_figure_for_each_metric_that_a_solver_was_scored_on(tmp_path):
    rows = [
        *noisy_rows((0, 1)),
        *noisy_rows((0, 1), "attribute_accuracy"),
        *noisy_rows((0, 1), "rated_set_auc"),
    ]
    written = published_figures(rows, tmp_path)
    assert {path.name for path in written} == {
        f"published_{metric}_under_noise.{ending}"
        for metric in ("rating_accuracy", "attribute_accuracy")
        for ending in ("svg", "png")
    }
    assert not published_figures(noisy_rows((0, 1), solver="spectral"), tmp_path)
