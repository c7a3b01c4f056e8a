"""Figures of protocols without a server: every line is told, and legends lie beside the panels."""

from __future__ import annotations

import pandas as pd

from reports.growth_figure import GROWS, growth_figure
from reports.neighbours_figure import LABELS, PANELS, leakage_figure
from reports.parts_figure import rounds_figure


def test_leakage_is_drawn_as_advantage_over_the_guess():
    rows = [
        {"panel": panel.name, "protocol": f"{protocol}, senders told", "x": x, "right": right}
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
