"""Result rows as terminal tables and as words.

Works on plain mappings with the columns of ``results.json``. An accuracy never appears without its
baseline and its interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from reports.layout import Sheet

Row = Mapping[str, Any]

SHOWN = (
    "rating_accuracy",
    "rated_rating_accuracy",
    "rated_set_auc",
    "attribute_group_accuracy",
    "claimed_rating_accuracy",
    "clients_answered",
)
CLAIMED = "claimed_rating_accuracy"  # of answers about clients without a name
NOT_TESTED = "NOT TESTED"
BELOW = "worse than the guess"


def tested(row: Row) -> bool:
    """Whether a row holds a number that an attack answered for."""
    return verdict_of(row) != NOT_TESTED and number(row["advantage"]) != "-"


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


def verdict_of(row: Row) -> str:
    """The row's verdict; NOT TESTED where the attack did not run.

    Examples
    --------
    >>> verdict_of({"status": "failed", "verdict": ""}), verdict_of({"status": "ran", "verdict": "LEAK"})
    ('NOT TESTED', 'LEAK')
    """
    return str(row["verdict"]) if row["status"] == "ran" else NOT_TESTED


def why_not(row: Row) -> str:
    """Why a row has no number, or one that is worse than the guess, in words; else empty."""
    if verdict_of(row) != NOT_TESTED:
        return BELOW if number(row["advantage_high"]) != "-" and _is_below(row) else ""
    if row["status"] != "ran":
        return f"{row['status']}: {row['reason']}"
    return str(row["reason"]) or f"{row['n_abstained']} of {row['n_users']} clients got no answer"


def _is_below(row: Row) -> bool:
    """Significantly worse than the guess, which scoring says in the row's reason."""
    return bool(row["verdict"] == "INCONCLUSIVE" and row["advantage_high"] < 0)


def _numbers(row: Row, digits: int = 3) -> dict[str, str]:
    """Value, interval, guess and ceiling in words; dashes where nothing was tested."""
    names = ("value", "ci_low", "ci_high", "baseline", "ceiling", "ceiling_ml", "advantage")
    if verdict_of(row) == NOT_TESTED:
        return {"interval": "-", "answered": "-", **dict.fromkeys(names, "-")}
    found = {name: number(row[name]) for name in names}
    answered = max(row["n_users"] - row["n_abstained"], 0)
    return {
        **found,
        "value": number(row["value"], digits),
        "interval": "-" if found["ci_low"] == "-" else f"[{found['ci_low']}, {found['ci_high']}]",
        "ceiling_ml": "-" if found["ceiling_ml"] == found["ceiling"] else found["ceiling_ml"],
        "answered": f"{answered}/{row['n_users']}",
    }


def audit_table(rows: Sequence[Row], title: str) -> Sheet:
    """A block for each scenario and attack, in it a line and a verdict for each of the main metrics."""
    lines = [
        (
            f"{row['update']}/{row['weighting']}",
            str(row["attack"]),
            "" if number(row["seconds"]) == "-" else f"{row['seconds']:.2f} s",
            row["metric"],
            *(_numbers(row)[name] for name in ("value", "interval", "baseline", "ceiling", "answered")),
            verdict_of(row),
            why_not(row),
        )
        for row in rows
        if row["metric"] in SHOWN and (row["status"] != "ran" or verdict_of(row))
    ]
    heads = ("scenario", "attack", "seconds", "metric", "value", "95 % interval", "guess", "ceiling")
    sheet = Sheet(
        title=title,
        columns=(*heads, "answered", "verdict", "reason"),
        rows=tuple(lines),
        right=("value", "95 % interval", "guess", "ceiling", "answered"),
        blocks=3,
        stacks=(("value", "95 % interval"), ("guess", "ceiling")),
        note="reason",
    )
    trivial = {"-", number(0.0), number(1.0)}
    return sheet.without("ceiling") if set(sheet.column("ceiling")) <= trivial else sheet


def in_words(rows: Sequence[Row]) -> list[str]:
    """One sentence per scenario: what the strongest attack that ran reads, beside the guess."""
    scenarios: dict[str, list[Row]] = {}
    for row in rows:
        scenarios.setdefault(f"{row['update']}/{row['weighting']}", []).append(row)
    return [f"{scenario}: {_said(part)}" for scenario, part in scenarios.items()]


def _said(part: Sequence[Row]) -> str:
    best = _strongest(part)
    if best is None:
        reasons = Counter(why for row in part if not _is_guess(row) and (why := why_not(row)))
        commonest = "".join(f" ({why})" for why, _ in reasons.most_common(1))
        return f"{NOT_TESTED}: no attack that was tried answers from what the adversary sees{commonest}."
    metrics = {row["metric"]: row for row in part if row["attack"] == best}
    named = ["rated_rating_accuracy", "attribute_group_accuracy", CLAIMED]
    rated = ""
    if part[0]["weighting"] == "include-unrated":
        named.append("rated_set_auc")
    elif CLAIMED not in metrics:
        rated = "; which items were rated lies in the open (uploads name them)"
    claims = ", ".join(filter(None, (_claim(metrics.get(name)) for name in named)))
    clients = next(iter(metrics.values()))["n_users"]
    return f"the {part[0]['adversary']} reads, with {best}, {claims}{rated} ({clients} clients)."


def _strongest(rows: Sequence[Row]) -> str | None:
    """The attack with the best advantage on rated items, else on the rated set; guesses do not count."""
    metrics = ("rated_rating_accuracy", CLAIMED, "rated_set_auc")
    return next(filter(None, (_best(rows, metric) for metric in metrics)), None)


def _best(rows: Sequence[Row], metric: str) -> str | None:
    candidates = [
        row
        for row in rows
        if row["metric"] == metric
        and verdict_of(row) != NOT_TESTED
        and not _is_guess(row)
        and number(row["advantage"]) != "-"
    ]
    if not candidates:
        return None
    return max(candidates, key=lambda row: (row["advantage"], row["n_users"]))["attack"]


def _is_guess(row: Row) -> bool:
    return str(row["attack"]).startswith("guess")


def _claim(row: Row | None) -> str:
    """A metric by its name, its number, the guess and the verdict; a share in percent."""
    if row is None or verdict_of(row) == NOT_TESTED or number(row["value"]) == "-":
        return ""
    value, guess = (
        f"{100 * row[name]:.1f} %" if row["metric"].endswith("accuracy") else number(row[name])
        for name in ("value", "baseline")
    )
    return f"{row['metric']} {value} (best guess without the transcript {guess}): {verdict_of(row)}"


def score_table(rows: Sequence[Row], title: str) -> Sheet:
    """Every metric of one reconstruction."""
    lines = [
        (
            row["metric"],
            *(_numbers(row, 4)[name] for name in ("value", "interval", "baseline")),
            row["baseline_name"],
            *(_numbers(row)[name] for name in ("ceiling", "ceiling_ml", "answered")),
            verdict_of(row),
            _numbers(row)["advantage"],
            why_not(row),
        )
        for row in ({"status": "ran", "reason": "", **row} for row in rows)
    ]
    heads = ("metric", "value", "95 % interval", "best guess", "which", "ceiling", "ceiling ML", "answered")
    return Sheet(
        title=title,
        columns=(*heads, "verdict", "advantage", "reason"),
        rows=tuple(lines),
        right=heads[1:4] + heads[5:] + ("advantage",),
        stacks=(
            ("metric", "answered"),
            ("value", "95 % interval"),
            ("best guess", "which"),
            ("ceiling", "ceiling ML"),
            ("verdict", "advantage"),
        ),
        note="reason",
    )


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


def sweep_table(rows: Sequence[Row], title: str, attack: str) -> Sheet:
    """One line per scenario, scale and number of rounds: value, interval, guess, ceiling and its share."""
    metric = "rating_accuracy"
    lines = []
    for row in rows:
        if row["attack"] != attack or row["metric"] != metric:
            continue
        found = _numbers(row)
        limit = row["ceiling"]
        known = found["ceiling"] != "-" and limit > 0
        lines.append(
            (
                f"{row['update']}/{row['weighting']}",
                str(row["defense"]).rpartition("=")[2],
                str(row["rounds"]),
                *(found[name] for name in ("value", "interval", "baseline", "ceiling", "ceiling_ml")),
                number(row["value"] / limit) if known else "-",
                found["answered"],
                verdict_of(row),
                why_not(row),
            )
        )
    heads = ("scenario", "b", "rounds", metric, "95 % interval", "best guess", "ceiling", "ceiling ML")
    return Sheet(
        title=title,
        columns=(*heads, "of it", "answered", "verdict", "reason"),
        rows=tuple(lines),
        right=(*heads[1:], "of it", "answered"),
        blocks=1,
        stacks=((metric, "95 % interval"), ("ceiling", "ceiling ML")),
        note="reason",
    )


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
