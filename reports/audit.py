"""What an audit found: a table, and a sentence for each scenario."""

from __future__ import annotations

from collections.abc import Sequence

from reports.folding import folded
from reports.layout import Sheet
from reports.verdicts import (
    ANSWERED,
    CLAIMED,
    LEAK,
    NOT_TESTED,
    RELATIVE,
    Row,
    answers_few,
    grouped,
    is_guess,
    number,
    numbers_of,
    tested,
    verdict_of,
    why_not,
    why_nothing,
)

SHOWN = (
    "rating_accuracy",
    "rated_rating_accuracy",
    "rated_set_auc",
    "attribute_group_accuracy",
    CLAIMED,
    *RELATIVE,
    "factor_cosine",
    "factor_relative_error",
    ANSWERED,
)
HEADLINE = "rating_accuracy"  # of a row that stands for an attack that reads no rating
NAMES = {  # of what leaks, in a line
    "rated_rating_accuracy": "ratings",
    CLAIMED: "ratings of clients without a name",
    **dict(zip(RELATIVE, ("differences of ratings", "sizes of differences of ratings"), strict=True)),
    "attribute_group_accuracy": "attributes",
    "rated_set_f1": "rated items (F1)",
}
LISTED = {"rated_set_auc", "rated_set_f1", "tpr_at_fpr_0.1pct"}
IDLE = {  # status of an attack that did not run -> what is said of those that have it
    "not needed": "Not needed, {}",
    "not applicable": "Not applicable, {}",
    "not reached": f"{NOT_TESTED}, {{}} not reached",
}
OF_RATINGS = ("rated_rating_accuracy", CLAIMED, *RELATIVE)


def audit_table(rows: Sequence[Row], title: str) -> Sheet:
    """Tabulate a block for each scenario and attack: a line and a verdict for each of the main metrics."""
    idle = _idle(rows)
    shown = [
        row
        for row in rows
        if row["metric"] in SHOWN
        and (row["status"] != "ran" or verdict_of(row) or is_guess(row))
        and _cell(row) not in idle
    ]
    lines = [
        (
            f"{row['update']}/{row['weighting']}",
            attack,
            "" if number(row["seconds"]) == "-" else f"{row['seconds']:.2f} s",
            row["metric"],
            *(numbers_of(row)[name] for name in ("value", "interval", "baseline", "ceiling", "answered")),
            verdict_of(row),
            why_not(row),
        )
        for attack, (row, *_) in folded(shown, lambda row: str(row["attack"]), _silence)
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


def idle_lines(rows: Sequence[Row]) -> list[str]:
    """Say in a line for each status which attacks did not run, and why."""
    n_scenarios = len(grouped(rows, "update", "weighting"))
    lines = []
    for status, words in IDLE.items():
        found: dict[tuple[str, str], list[Row]] = {}
        for row in _idle(rows).values():
            if row["status"] == status:
                found.setdefault((str(row["attack"]), str(row["reason"])), []).append(row)
        reasons: dict[str, list[str]] = {}
        for (attack, reason), where in found.items():
            only = "" if len(where) == n_scenarios else f" on {', '.join(map(_scenario, where))}"
            reasons.setdefault(f"{reason}{only}", []).append(attack)
        if found:
            who = len({attack for attack, _ in found})
            named = [
                f"{', '.join(name for name, _ in folded(attacks, str, lambda _: True))}: {reason}"
                for reason, attacks in reasons.items()
            ]
            lines.append(f"{words.format(_counted_attacks(who))}: {'; '.join(named)}.")
    return lines


def finding(rows: Sequence[Row]) -> str:
    """Say in a line what an attack on a scenario leaks."""
    leaks = {row["metric"]: row for row in rows if verdict_of(row) == LEAK}
    if leaks.keys() - LISTED and next(iter(leaks.values()))["weighting"] == "observed-only":
        leaks = {metric: row for metric, row in leaks.items() if metric not in LISTED}  # in the open
    if answered := leaks.get(ANSWERED):
        value, guess = _percent(answered["value"]), _percent(answered["baseline"])
        who = f"{_scenario(answered)}, {answered['attack']}"
        return f"{who}: {LEAK}, an answer for {value} of {_counted(answered)} (on shuffled uploads {guess})"
    claims = {name: leaks[metric] for metric, name in NAMES.items() if metric in leaks}
    if not claims:
        return ""
    row = next(iter(claims.values()))
    said = ", ".join(
        f"{name} {_percent(row['value'])} (guess {_percent(row['baseline'])})" for name, row in claims.items()
    )
    return f"{_scenario(row)}, {row['attack']}: {LEAK} of {said}; {_clients(row)}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _idle(rows: Sequence[Row]) -> dict[tuple[str, ...], Row]:
    """The row of each attack on a scenario that did not run there."""
    ran = {_cell(row) for row in rows if row["status"] not in IDLE}
    return {_cell(row): row for row in rows if _cell(row) not in ran}


def _cell(row: Row) -> tuple[str, ...]:
    return _scenario(row), str(row["attack"])


def _scenario(row: Row) -> str:
    return f"{row['update']}/{row['weighting']}"


def _counted_attacks(number: int) -> str:
    return "1 attack" if number == 1 else f"{number} attacks"


def _silence(row: Row) -> tuple[str, ...] | None:
    """Why an attack did not run, and where; None of one that ran."""
    if row["status"] == "ran":
        return None
    return tuple(str(row[name]) for name in ("update", "weighting", "metric", "status", "reason"))


def in_words(rows: Sequence[Row], *, listed: bool = True) -> list[str]:
    """Say in a sentence per scenario what the strongest attack that ran reads, beside the guess."""
    return [
        f"{update}/{weighting}: {_sentence(of_scenario, listed)}"
        for (update, weighting), of_scenario in grouped(rows, "update", "weighting").items()
    ]


def _sentence(rows: Sequence[Row], listed: bool) -> str:
    if _best(rows, ANSWERED):
        return _sentence_without_truth(rows)
    best = _strongest(rows)
    if best is None:
        return f"{_untested(rows)}."
    metrics = {row["metric"]: row for row in rows if row["attack"] == best}
    named = ["rated_rating_accuracy", *RELATIVE, "attribute_group_accuracy", CLAIMED]
    rated = ""
    if rows[0]["weighting"] == "include-unrated" or not listed:
        named.append("rated_set_auc")
    elif CLAIMED not in metrics:
        rated = "; which items were rated lies in the open (uploads name them)"
    if not any(_claim(metrics.get(name)) for name in named):  # an attack on the list alone
        named.append("rated_set_auc")
    claims = ", ".join(filter(None, (_claim(metrics.get(name)) for name in named)))
    clients = _clients(next(row for row in metrics.values() if tested(row)))
    unread = "" if any(_best(rows, metric) for metric in OF_RATINGS) else f"; ratings: {_untested(rows)}"
    return f"the {rows[0]['adversary']} reads, with {best}, {claims}{rated}{unread} ({clients})."


def _clients(row: Row) -> str:
    """How many clients a number is about, and how many of them were answered."""
    answered = max(row["n_users"] - row["n_abstained"], 0)
    if answered == row["n_users"]:
        return _counted(row)
    return f"{_counted(row)}, {answered} of them answered; the others count with the guess"


def _counted(row: Row) -> str:
    return "1 client" if row["n_users"] == 1 else f"{row['n_users']} clients"


def _untested(rows: Sequence[Row]) -> str:
    """That no attack answers, and why."""
    silent = [row for row in rows if not is_guess(row) and not tested(row)]
    why = why_nothing(silent)
    sees = f"from what the {rows[0]['adversary']} sees" + (f" ({why})" if why else "")
    whom = " about enough clients" if any(map(answers_few, silent)) else ""
    return f"{NOT_TESTED}: no attack has an answer{whom} {sees}"


def _sentence_without_truth(rows: Sequence[Row]) -> str:
    """For whom there is an answer about ratings, else about which items were rated."""
    silent = {row["attack"] for row in rows if row["metric"] == HEADLINE and row["status"] != "ran"}
    best = _best([row for row in rows if row["attack"] not in silent], ANSWERED)
    unread = "" if best else f"; ratings: {_untested(rows)}"
    best = best or _best(rows, ANSWERED)
    row = next(row for row in rows if row["attack"] == best and row["metric"] == ANSWERED)
    value, guess = (f"{100 * row[name]:.1f} %" for name in ("value", "baseline"))
    return (
        f"{best} has an answer for {value} of {_counted(row)} of what the {row['adversary']} sees "
        f"(on shuffled uploads for {guess}): {verdict_of(row)}; how much of it is right needs the truth"
        f"{unread}."
    )


def _strongest(rows: Sequence[Row]) -> str | None:
    """The attack with the best advantage on rated items, else on the rated set; guesses do not count."""
    return next(filter(None, (_best(rows, metric) for metric in (*OF_RATINGS, "rated_set_auc"))), None)


def _best(rows: Sequence[Row], metric: str) -> str | None:
    candidates = [row for row in rows if row["metric"] == metric and tested(row) and not is_guess(row)]
    if not candidates:
        return None
    return max(candidates, key=lambda row: (row["advantage"], row["n_users"]))["attack"]


def _claim(row: Row | None) -> str:
    """A metric by its name, its number, the guess and the verdict; a share in percent."""
    if row is None or verdict_of(row) == NOT_TESTED or number(row["value"]) == "-":
        return ""
    value, guess = (
        f"{100 * row[name]:.1f} %" if row["metric"].endswith("accuracy") else number(row[name])
        for name in ("value", "baseline")
    )
    return f"{row['metric']} {value} (best guess without the transcript {guess}): {verdict_of(row)}"
