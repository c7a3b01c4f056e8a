"""The figure of a comparison."""

from __future__ import annotations

import numpy as np
from matplotlib.collections import PathCollection

from reports import compare_figure
from tests.reports.rows import ran


def test_what_was_not_tested_is_hollow_in_its_lane(monkeypatch, tmp_path):
    """Before the axis said "ratings", of all items or of those that were rated."""
    kept = []
    monkeypatch.setattr(compare_figure, "save", lambda figure, path: kept.append(figure) or [])
    bounds = {"advantage_low": 0.9, "advantage_high": 1.0, "adversary": "server"}
    rows = [
        ran("rated_rating_accuracy", defense="none", **bounds),
        ran("rated_rating_accuracy", "NOT TESTED", defense="paillier", **bounds),
    ]
    compare_figure.comparison_figure(rows, tmp_path)
    (axes,) = kept[0].axes
    assert axes.get_title() == "server\nratings of rated items"
    filled = {
        float(np.asarray(marks.get_offsets())[0, 1]): len(marks.get_facecolor()) > 0
        for marks in axes.collections
        if isinstance(marks, PathCollection)
    }
    assert filled == {0.956: True, compare_figure.LANE: False}
