"""Result rows as terminal tables and as words.

Works on plain mappings with the columns of ``results.json``. An accuracy never appears without its
baseline and its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

Row = Mapping[str, Any]

SHOWN = {
    "rating_accuracy": "ratings (Eq. 43)",
    "rated_rating_accuracy": "rated items only",
    "rated_set_auc": "rated set (AUC)",
    "attribute_group_accuracy": "attributes (blocks)",
}
CLAIMED = "claimed_rating_accuracy"  # of answers about clients without a name
VERDICT_STYLE = {"LEAK": "bold red", "NO EVIDENCE": "green", "INCONCLUSIVE": "yellow"}


def number(value: Any, digits: int = 3) -> str:
    """A number for people; a dash where there is none.

    Examples
    --------
    >>> number(0.98765), number(float("nan"))
    ('0.988', '-')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.{digits}f}"


def score_cell(row: Row | None) -> str:
    """Value, interval and baseline in one cell."""
    if row is None or number(row["value"]) == "-":
        return "-"
    interval = f"[{number(row['ci_low'])}, {number(row['ci_high'])}]"
    cell = f"{number(row['value'])}\n{interval}\nguess {number(row['baseline'])}"
    if number(row["ceiling"]) not in ("-", number(1.0)):
        cell += f"\nceiling {number(row['ceiling'])}"
    return cell


def audit_table(rows: Sequence[Row], title: str) -> Table:
    """One line per scenario and attack: the main metrics, each over its best guess."""
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("scenario\nattack", overflow="fold")
    for heading in SHOWN.values():
        table.add_column(heading)
    table.add_column("clients\nseconds", justify="right")
    table.add_column("verdict")
    for (update, weighting, attack), part in _cells(rows):
        first = part[0]
        metrics = {row["metric"]: row for row in part}
        if CLAIMED in metrics:  # nameless clients: nothing else is scored
            metrics["rated_rating_accuracy"] = metrics[CLAIMED]
        cell = f"{update}\n{weighting}\n[bold]{attack}[/]"
        if first["status"] != "ran":
            words = f"{first['status']}: {first['reason']}"
            blank = ["-"] * (len(SHOWN) - 1)
            table.add_row(cell, words, *blank, f"-\n{number(first['seconds'], 2)} s", "-")
            continue
        clients = f"{first['n_users']}\n{number(first['seconds'], 2)} s"
        if first["n_abstained"]:
            clients += f"\n{first['n_abstained']} abst."
        found = cell_verdict(part)
        table.add_row(
            cell,
            *(score_cell(metrics.get(name)) for name in SHOWN),
            clients if CLAIMED not in metrics else f"{clients}\nnameless",
            f"[{VERDICT_STYLE[found]}]{found}[/]",
        )
    return table


def _cells(rows: Sequence[Row]) -> Iterable[tuple[tuple[str, str, str], list[Row]]]:
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["update"], row["weighting"], row["attack"]), []).append(row)
    return cells.items()


def cell_verdict(rows: Sequence[Row]) -> str:
    """LEAK if ratings or attributes leak; NO EVIDENCE only if none of the two leaves it open.

    The rated set is judged by its own row: in observed-only it is in the open by design.
    """
    judged = [
        row["verdict"]
        for row in rows
        if row["metric"] in ("rated_rating_accuracy", "rating_accuracy", "attribute_group_accuracy", CLAIMED)
        and row["verdict"]
    ]
    if not judged:  # an attack on the rated set alone
        judged = [row["verdict"] for row in rows if row["metric"] == "rated_set_auc" and row["verdict"]]
    if "LEAK" in judged:
        return "LEAK"
    return "NO EVIDENCE" if judged and set(judged) == {"NO EVIDENCE"} else "INCONCLUSIVE"


def in_words(rows: Sequence[Row]) -> list[str]:
    """One sentence per scenario: what the strongest attack that ran reads, beside the guess."""
    sentences = []
    scenarios: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        scenarios.setdefault((row["update"], row["weighting"]), []).append(row)
    for (update, weighting), part in scenarios.items():
        best = _strongest(part)
        if best is None:
            sentences.append(
                f"{update}/{weighting}: none of the attacks tried applies to what the adversary sees."
            )
            continue
        metrics = {row["metric"]: row for row in part if row["attack"] == best}
        claims = [
            _claim(metrics.get(name), words)
            for name, words in (
                ("rated_rating_accuracy", "of the ratings"),
                ("attribute_group_accuracy", "of the attributes"),
                (CLAIMED, "of the ratings that it claims of nameless clients"),
            )
        ]
        who = part[0]["adversary"]
        rated = "which items were rated lies in the open (uploads name them)"
        if CLAIMED in metrics:
            rated = ""
        elif weighting == "include-unrated":
            rated = _claim(metrics.get("rated_set_auc"), "AUC on which items were rated", "")
        clients = next(iter(metrics.values()))["n_users"]
        said = "; ".join(filter(None, [", ".join(filter(None, claims)), rated]))
        sentences.append(f"{update}/{weighting}: the {who} reads, with {best}, {said} ({clients} clients).")
    return sentences


def _strongest(rows: Sequence[Row]) -> str | None:
    """The attack with the best advantage on rated items, else on the rated set; guesses do not count."""
    metrics = ("rated_rating_accuracy", CLAIMED, "rated_set_auc")
    return next(filter(None, (_best(rows, metric) for metric in metrics)), None)


def _best(rows: Sequence[Row], metric: str) -> str | None:
    candidates = [
        row
        for row in rows
        if row["metric"] == metric
        and row["status"] == "ran"
        and not row["attack"].startswith("guess")
        and number(row["advantage"]) != "-"
    ]
    if not candidates:
        return None
    return max(candidates, key=lambda row: (row["advantage"], row["n_users"]))["attack"]


def _claim(row: Row | None, words: str, unit: str = "%") -> str:
    if row is None or number(row["value"]) == "-":
        return ""
    if unit == "%":
        value, guess = f"{100 * row['value']:.1f} %", f"{100 * row['baseline']:.1f} %"
        return f"{value} {words} (best guess without the transcript {guess})"
    return f"{number(row['value'])} {words} (best guess {number(row['baseline'])})"


def score_table(rows: Sequence[Row], title: str) -> Table:
    """Every metric of one reconstruction."""
    table = Table(title=title, title_justify="left")
    for name in ("metric", "value", "95 % interval", "best guess", "ceiling", "advantage", "clients"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    table.add_column("verdict")
    for row in rows:
        found = row["verdict"]
        table.add_row(
            row["metric"],
            number(row["value"], 4),
            f"[{number(row['ci_low'])}, {number(row['ci_high'])}]",
            f"{number(row['baseline'])} ({row['baseline_name']})",
            _limit(row),
            number(row["advantage"]),
            str(row["n_users"]),
            f"[{VERDICT_STYLE.get(found, 'dim')}]{found}[/]",
        )
    return table


def reliability_table(bins: Sequence[Row]) -> Table:
    """What an attack claimed of its answers, beside the share that is right."""
    table = Table(title="Reliability of the attack's probabilities", title_justify="left")
    for name in ("answers about", "probability", "answers", "clients", "claimed", "right", "95 % interval"):
        table.add_column(name, justify="left" if name == "answers about" else "right")
    for row in bins:
        table.add_row(
            row["what"],
            f"{row['least']:g} to {row['below']:g}",
            f"{row['answers']:,}",
            str(row["clients"]),
            number(row["claimed"]),
            number(row["right"]),
            f"[{number(row['right_low'])}, {number(row['right_high'])}]",
        )
    return table


def _limit(row: Row) -> str:
    """The ceiling, and what maximum likelihood alone reaches where that is less."""
    both = number(row["ceiling"])
    if number(row["ceiling_ml"]) not in ("-", both):
        both += f" (ML {number(row['ceiling_ml'])})"
    return both


def sweep_table(rows: Sequence[Row], title: str, attack: str) -> Table:
    """One line per scenario, scale and number of rounds: value, interval, guess, ceiling and its share."""
    table = Table(title=title, title_justify="left")
    for name in ("scenario", "b", "rounds", "ratings", "95 % interval", "best guess", "ceiling", "of it"):
        table.add_column(name, justify="left" if name == "scenario" else "right")
    table.add_column("verdict")
    for row in rows:
        if row["attack"] != attack or row["metric"] != "rating_accuracy":
            continue
        scenario = f"{row['update']}/{row['weighting']}"
        scale = str(row["defense"]).rpartition("=")[2]
        if row["status"] != "ran":
            words = f"{row['status']}: {row['reason']}"
            table.add_row(scenario, scale, str(row["rounds"]), "-", "-", "-", "-", "-", words)
            continue
        limit = row["ceiling"]
        share = "-" if number(limit) == "-" or limit <= 0 else number(row["value"] / limit)
        table.add_row(
            scenario,
            scale,
            str(row["rounds"]),
            number(row["value"]),
            f"[{number(row['ci_low'])}, {number(row['ci_high'])}]",
            number(row["baseline"]),
            _limit(row),
            share,
            f"[{VERDICT_STYLE.get(row['verdict'], 'dim')}]{row['verdict']}[/]",
        )
    return table


def account_table(lines: Sequence[Row], title: str) -> Table:
    """A defense's privacy account: columns what, epsilon (delta = 0), at_delta, delta and why."""
    table = Table(title=title, title_justify="left")
    for name in ("what", "eps, delta = 0", "eps at delta", "delta", "why"):
        table.add_column(name, overflow="fold")
    for line in lines:
        values = (_epsilon(line[name]) for name in ("epsilon", "at_delta"))
        table.add_row(line["what"], *values, f"{line['delta']:g}", line["why"])
    return table


def _epsilon(value: float) -> str:
    if math.isnan(value):
        return "nothing proved"
    return f"{value:,.4g}" if math.isfinite(value) else "none"


def learning_table(
    rounds: Sequence[int],
    rmse: Sequence[float],
    centralised: float,
    bias: float,
    mean: float,
    title: str,
) -> Table:
    """Error after each number of rounds, beside what needs no federation."""
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    table.add_column("RMSE", justify="right")
    for count, error in zip(rounds, rmse, strict=True):
        table.add_row(f"federated, {count} rounds", number(error))
    table.add_row("centralised alternating least squares, best of 15 sweeps", number(centralised))
    table.add_row("centralised mean + user bias + item bias", number(bias))
    table.add_row("training mean", number(mean))
    return table
