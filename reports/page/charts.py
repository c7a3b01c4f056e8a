"""The charts of a page: who reads what, its price, growth with rounds, of whom most is read, attributes."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

from reports.leaks import LEAKS
from reports.page.drawing import ON_PAGE, Chart, panels
from reports.page.frontier import frontier
from reports.page.groups import by_client, by_item
from reports.page.overview import System
from reports.page.points import blocks_frame, leaks_frame, rounds_frame


def charts_of(systems: Sequence[System]) -> list[Chart]:
    """Draw what the results hold."""
    makers = (_leakage, frontier, _rounds, by_client, by_item, _blocks)
    return [chart for make in makers if (chart := make(systems)) is not None]


def _leakage(systems: Sequence[System]) -> Chart | None:
    """A panel for each kind: every system and adversary with interval, guess and ceiling."""
    frame = leaks_frame(systems)
    if frame.empty:
        return None
    single = frame.system.nunique() == 1
    many = frame.adversary.nunique() > 1
    names = frame.system + ": " + frame.adversary if many else frame.system
    frame = frame.assign(line=frame.adversary if single else names)
    figure, hovers = panels(frame, {kind: kind for kind in dict.fromkeys(frame.metric)}, "leak")
    caption = (
        "Strongest answer to each adversary with its 95 % interval over clients; the tick is the best guess "
        "without the transcript, the dotted one the ceiling. What was not tested is in the grey lane."
    )
    if (frame.about != "").any():
        caption += (
            " Under a mark of ratings stands what it is about, where that is not the ratings themselves."
        )
    return Chart("leakage", "Who reads what", caption, figure, hovers)


def _rounds(systems: Sequence[System]) -> Chart | None:
    frame = rounds_frame(systems)
    if frame.empty:
        return None
    with mpl.rc_context(ON_PAGE):
        figure = Figure(figsize=(8.2, 3.2), layout="constrained", facecolor="none")
        axes = figure.subplots()
        sns.lineplot(frame, x="rounds", y="value", hue="system", ax=axes, errorbar=None, legend="full")
        axes.vlines(frame.rounds, frame.low, frame.high, color="0.5", linewidth=0.8)
        sns.scatterplot(frame, x="rounds", y="value", hue="system", ax=axes, s=30, legend=False, zorder=3)
        axes.collections[-1].set_gid("rounds")
        guess = frame.guess.mean()
        axes.axhline(guess, color="0.5", linestyle="--", linewidth=0.9)
        axes.annotate("best guess", (frame.rounds.max(), guess), ha="right", va="bottom", fontsize=7)
        axes.set(xlabel="rounds watched", ylabel=LEAKS[frame.metric.iloc[0]] + " right", ylim=(-0.02, 1.05))
        axes.set_xticks(sorted(set(frame.rounds)))
        axes.legend(frameon=False, title="", loc="upper left", bbox_to_anchor=(1.01, 1))
    caption = (
        "Ratings read right by the strongest attack, against how many rounds the adversary watches. What "
        "was not tested has no mark here."
    )
    return Chart("rounds", "Leakage by round", caption, figure, {"rounds": list(frame.hover)})


def _blocks(systems: Sequence[System]) -> Chart | None:
    frame = blocks_frame(systems)
    if frame.empty:
        return None
    blocks = {block: block for block in dict.fromkeys(frame.metric)}
    figure, hovers = panels(frame.assign(line=frame.system), blocks, "block")
    caption = (
        "Clients whose value in each block of attributes is read right, by the strongest attack of any "
        "adversary; the tick is the best guess without the transcript."
    )
    return Chart("attributes", "Attributes", caption, figure, hovers)
