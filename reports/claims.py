"""A claimed epsilon beside what is proved, measured and read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from reports.verdicts import CLAIMED, NOT_TESTED, RELATIVE, Row, grouped, number, of_what, tested

BOUND = "empirical_epsilon"
LEAK = "rated_rating_accuracy"
CLIENTS = "share_of_clients_read"
HEADINGS = (
    "protocol",
    "noise",
    "eps",
    "view",
    "proved for the median item",
    "empirical eps (claim)",
    "verdict",
    "ratings read: best attack",
    "MSE (mean)",
)
LEGEND = (
    "empirical epsilon: one-run lower bounds at 95 %, for all planted ratings and for the third with the "
    "smallest claims, each beside its largest claim; [most that so many ratings can show]; then from "
    "repetitions for one client, if asked for"
)


def budgets_line(quantiles: Mapping[str, Sequence[float]], epsilon: float) -> str:
    """Say the smallest, the quartiles and the largest budgets of users, items and ratings.

    Examples
    --------
    >>> budgets_line({"users": [0.1, 0.3, 0.5, 0.8, 1.0]}, 1.0)
    'budgets for epsilon 1 (least, quartiles, most): users 0.1 0.3 0.5 0.8 1'
    """
    groups = [f"{who} {' '.join(f'{value:.2g}' for value in values)}" for who, values in quantiles.items()]
    return f"budgets for epsilon {epsilon:g} (least, quartiles, most): {'; '.join(groups)}"


def claims_table(rows: Sequence[Row], title: str) -> Table:
    """Tabulate one line per protocol, reading of the noise and view."""
    table = Table(title=title, title_justify="left", show_lines=True, caption=LEGEND, caption_justify="left")
    for name in HEADINGS:
        table.add_column(name, overflow="fold")
    for (protocol, defense), of_system in grouped(rows, "victim", "defense").items():
        names = (str(protocol), option_of(defense, "noise"), option_of(defense, "epsilon"))
        for line in _lines(names, of_system):
            table.add_row(*line)
    return table


def _lines(names: tuple[str, ...], rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """A failure, then a line per view of the recommender, then one of a fellow client."""
    error = _error(rows)
    failed = [row for row in rows if row["status"] == "failed"]
    if failed:
        yield (*names, "-", failed[0]["reason"], "-", "failed", "-", error)
    for place, (view, bounds) in enumerate(_views(rows).items()):
        read = _read(rows) if view == "all rounds" else "-"
        first, last = (names, error) if place == 0 else (("", "", ""), "")
        yield (*first, view, bounds[0]["reason"], *_bound_cells(bounds), read, last)
    fellow = [row for row in rows if str(row["adversary"]).startswith("client:")]
    if fellow:
        view = f"V of all rounds ({fellow[0]['adversary']})"
        yield ("", "", "", view, "-", "-", "-", _read_by_a_fellow(fellow), "")


def _error(rows: Sequence[Row]) -> str:
    errors = [row for row in rows if row["metric"] == "mse"]
    return f"{errors[0]['value']:.3f} ({errors[0]['baseline']:.3f})" if errors else "-"


def _views(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Bounds by what was looked at."""
    views: dict[str, list[Row]] = {}
    for row in rows:
        if row["metric"] == BOUND and row["status"] == "ran":
            views.setdefault(str(row["adversary"]).partition(",")[0], []).append(row)
    return views


def _bound_cells(bounds: Sequence[Row]) -> tuple[str, str]:
    """The bounds beside their claims, and the verdicts."""
    numbers = "\n".join(f"{row['value']:.2f} ({_claim(row)}) [{row['ceiling']:.1f}]" for row in bounds)
    return numbers, "\n".join(str(row["verdict"]) for row in bounds)


def _claim(row: Row) -> str:
    return f"{row['baseline']:.2f}" if math.isfinite(row["baseline"]) else "none"


def option_of(defense: str, name: str) -> str:
    """Look up an option in the text of a defense.

    Examples
    --------
    >>> option_of("hdpmf:noise=once,epsilon=1", "noise"), option_of("none", "noise")
    ('once', '-')
    """
    return defense.rpartition(f"{name}=")[2].partition(",")[0] if f"{name}=" in defense else "-"


def _read_by_a_fellow(rows: Sequence[Row]) -> str:
    """What one client reads of the others, who have no names there."""
    metrics = {str(row["metric"]): row for row in rows if row["status"] == "ran"}
    if CLAIMED not in metrics:
        return f"{NOT_TESTED}: {rows[0]['reason']}"
    claimed, clients = metrics[CLAIMED], metrics[CLIENTS]
    return (
        f"{claimed['value']:.3f} [{claimed['ci_low']:.3f}, {claimed['ci_high']:.3f}]\nof what it claims of "
        f"{round(clients['value'] * clients['n_users'])} nameless clients\nguess {claimed['baseline']:.3f}\n"
        f"{claimed['attack']}, {claimed['verdict']}"
    )


def best_answer(rows: Sequence[Row]) -> Row | None:
    """Find the attack with the largest advantage on rated items, or on how their ratings differ."""
    answered = [row for row in rows if row["metric"] in (LEAK, *RELATIVE) and tested(row)]
    return max(answered, key=lambda row: row["advantage"]) if answered else None


def _read(rows: Sequence[Row]) -> str:
    best = best_answer(rows)
    if best is None:
        return NOT_TESTED
    words = (
        f"{best['value']:.3f} [{best['ci_low']:.3f}, {best['ci_high']:.3f}]\nguess {best['baseline']:.3f}, "
        f"ceiling {number(best['ceiling'])}\n{best['attack']}{of_what(best)}, {best['verdict']}"
    )
    silent = int(best["n_abstained"])
    return f"{words}\nno answer for {silent} clients" if silent else words
