"""Of whom more is read than the mean says: the worst-off tenth of clients, clients and items in thirds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from reports.leaks import best, of_group
from reports.page.drawing import Chart, panels
from reports.page.overview import System
from reports.page.points import COLUMNS, RATINGS, line_of

CLIENTS = {
    "": "all clients",
    "worst_tenth": "worst-off tenth",
    "few_ratings": "few ratings",
    "some_ratings": "some ratings",
    "many_ratings": "many ratings",
}
ITEMS = {"": "all items", "rare_items": "rare items", "common_items": "common", "popular_items": "popular"}


def groups_frame(systems: Sequence[System], groups: Mapping[str, str]) -> pd.DataFrame:
    """Collect what the strongest attack on ratings reads of groups, over all adversaries of a system."""
    lines: list[dict[str, object]] = []
    untested: list[str] = []
    there: set[str] = set()
    for system in systems:
        row = best([one for one in system.rows if isinstance(one["adversary"], str)], RATINGS)
        found = {} if row is None else {group: of_group(row, system.rows, group) for group in groups if group}
        if row is None and system.adversaries:
            untested.append(system.short)
        if row is None or not any(found.values()):
            continue
        for group, part in {"": row, **found}.items():
            if part is not None:
                whole = {**part, "verdict": row["verdict"]}
                lines.append(line_of(system.short, str(row["adversary"]), group, whole))
                there.add(group)
    lines += [line_of(name, "", group, None) for name in untested for group in groups if group in there]
    return pd.DataFrame(lines, columns=list(COLUMNS)).assign(line=lambda frame: frame.system)


def by_client(systems: Sequence[System]) -> Chart | None:
    """Draw what is read of the worst-off clients, and of those with few and many ratings."""
    caption = (
        "Ratings read right by the strongest attack of any adversary: of all clients, of the tenth of whom "
        "most is read, and of the clients in thirds by how many ratings they gave. The tick is the best "
        "guess for the same clients; beside the worst-off tenth it is the tenth for which a guess is most "
        "right, for such a tenth is above the mean by chance alone. Colours are the verdict on all clients: "
        "groups have none."
    )
    return _chart("clients", "Of whom most is read", caption, systems, CLIENTS)


def by_item(systems: Sequence[System]) -> Chart | None:
    """Draw what is read of ratings of rare and of popular items."""
    caption = (
        "Ratings read right by the strongest attack of any adversary, by how many of the scored clients "
        "rated the item: each class holds about a third of the ratings. The tick is the best guess for the "
        "same items."
    )
    return _chart("items", "By popularity of the item", caption, systems, ITEMS)


def _chart(
    name: str, title: str, caption: str, systems: Sequence[System], groups: Mapping[str, str]
) -> Chart | None:
    frame = groups_frame(systems, groups)
    there = set(frame.metric)
    if frame.empty:
        return None
    titles = {group: words for group, words in groups.items() if group in there}
    figure, hovers = panels(frame, titles, name, width=1.6)
    return Chart(name, title, caption, figure, hovers)
