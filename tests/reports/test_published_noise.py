"""Figures 1 to 3 of paper 000."""

from __future__ import annotations

import pytest

from reports.published_noise import published_figures, published_noise
from tests.reports.rows import ran


def rows_of(scales, metric="rating_accuracy", solver="root-anderson"):
    lines = {solver: 0.6, "guess-uniform": 0.2}
    return [
        ran(metric, attack=attack, defense=f"laplace:scale={scale:g}", value=value, baseline=0.9, rounds=2)
        for scale in scales
        for attack, value in lines.items()
    ]


@pytest.mark.parametrize(("scales", "kind"), [((0, 0.5, 2), "linear"), ((1, 100, 10_000), "log")])
def test_what_is_drawn(scales, kind):
    axes = published_noise(rows_of(scales), "rating_accuracy").axes[0]
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
    rows = [*rows_of((0, 1)), *rows_of((0, 1), "attribute_accuracy"), *rows_of((0, 1), "rated_set_auc")]
    written = published_figures(rows, tmp_path)
    assert {path.name for path in written} == {
        f"published_{metric}_under_noise.{ending}"
        for metric in ("rating_accuracy", "attribute_accuracy")
        for ending in ("svg", "png")
    }
    assert not published_figures(rows_of((0, 1), solver="spectral"), tmp_path)
