"""The sentences of findings: of an audit while it runs and at its end, of all systems, of models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from reports.verdicts import (
    AGREEMENT,
    ANSWERED,
    BOUND,
    CLAIMED,
    COMMUNITY,
    DIFFERENCES,
    DISTORTION,
    ERROR,
    INCONCLUSIVE,
    INFERRED,
    LEAK,
    LEAKS,
    MEMBERSHIP,
    NOT_NEEDED,
    NOT_TESTED,
    OPEN,
    OUTPUTS,
    RELATIVE,
    SIZES,
    UNFINISHED,
    AdversaryView,
    Leak,
    Row,
    answers_few,
    badness,
    folded_names,
    grouped,
    interval_of,
    is_guess,
    kind_of,
    number,
    of_what,
    strongest,
    tested,
    values_of,
    verdict_of,
    why_silent,
)

NO_EVIDENCE = "NO EVIDENCE"
HEADLINE = "rating_accuracy"  # of a row that stands for an attack that reads no rating
NAMES = {  # of what leaks, in a line
    "rated_rating_accuracy": "ratings",
    CLAIMED: "ratings of clients without a name",
    DIFFERENCES: "differences of ratings",
    SIZES: "sizes of differences of ratings",
    "attribute_group_accuracy": "attributes",
    "rated_set_f1": "rated items (F1)",
    "rating_membership_auc": "membership of ratings (AUC)",
    "user_membership_auc": "membership of users (AUC)",
    INFERRED: "attributes that were not sent",
    COMMUNITY: "members of communities",
}
NOUNS = {**NAMES, CLAIMED: "ratings", "rated_set_auc": "rated items"}  # in the sentence of a system
IN_OPEN = {"rated_set_auc", "rated_set_f1", "tpr_at_fpr_0.1pct"}  # where uploads name the rated items
IDLE = {  # status of an attack that did not run -> what is said of those that have it
    NOT_NEEDED: "Not needed, {}",
    "not applicable": "Not applicable, {}",
    "not reached": f"{NOT_TESTED}, {{}} not reached",
}
OF_RATINGS = ("rated_rating_accuracy", CLAIMED, *RELATIVE)
WORST_FIRST = (LEAK, OPEN, INCONCLUSIVE, NO_EVIDENCE, NOT_TESTED)


# Of defenses that were tried on a recording

FEW = 3  # defenses of one line


def what_helps(rows: Sequence[Row]) -> list[str]:
    """Say for each leak of the undefended recording which defenses bring it to the guess, the cheapest first.

    A defense helps where an attack answers, none failed, none leaks and none is better than the guess for
    sure, and where all that holds of the same defense at a higher cost, too: an attack that abstains on weak
    noise and reads through stronger noise has not been stopped.
    """
    tried = grouped(rows, "defense")
    bare = tried.pop("none", [])
    kinds = (ANSWERED,) if any(row["metric"] == ANSWERED for row in rows) else LEAKS
    found = []
    for kind in kinds:
        leak = strongest(bare, kind)
        if leak is None or leak["verdict"] != LEAK:
            continue
        noun = {**NOUNS, ANSWERED: "answered clients"}[kind]
        read = {text: _cost(here) for text, here in tried.items() if not _helps(here, kind)}
        helpful = sorted(
            (_cost(here), text)
            for text, here in tried.items()
            if not any(_family(text) == _family(one) and cost >= _cost(here) for one, cost in read.items())
        )
        shown, silent = (
            [
                f"{text} (distortion {cost:.2g})"
                for cost, text in helpful
                if (strongest(tried[text], kind) is None) == silently
            ][:FEW]
            for silently in (False, True)
        )
        # an attack that abstains has shown nothing
        unknown = f" No attack answers under {', '.join(silent)}: nothing is shown of that." if silent else ""
        if shown:
            found.append(f"What to do, {noun}: to the guess by {', '.join(shown)}.{unknown}")
            continue
        left = {text: row for text, here in tried.items() if (row := strongest(here, kind)) is not None}
        nearest = min(left, key=lambda text: left[text]["value"], default="")
        words = f"; the nearest is {nearest}, {number(left[nearest]['value'])}" if nearest else ""
        none = f"none of {len(tried)} defenses is shown to bring them to the guess{words}"
        found.append(f"What to do, {noun}: {none}.{unknown}")
    return found


def helpful_defenses(rows: Sequence[Row]) -> list[str]:
    """List the cheapest defense for each leak, each once."""
    return list(dict.fromkeys(re.findall(r"to the guess by (\S+)", " ".join(what_helps(rows)))))


def _cost(rows: Sequence[Row]) -> float:
    values = values_of(rows, DISTORTION)
    return float(values[0]) if values.size else float("inf")


def _family(text: str) -> str:
    """A defense without its last option, which is how strong it is."""
    return text.rpartition("=")[0]


def _helps(rows: Sequence[Row], kind: str) -> bool:
    if any(row["status"] in UNFINISHED for row in rows):
        return False
    found = [strongest(rows, kind), strongest(rows, AGREEMENT) if kind == ANSWERED else None]
    return not any(row and (row["verdict"] == LEAK or (row["advantage_low"] or 0) > 0) for row in found)


# Of an audit


def scenario_of(row: Row) -> str:
    """Name a client update rule and whether unrated items are sent; where no rule is known, the program."""
    named = row["update"] == "unknown" and row["victim"] != "unknown"
    return str(row["victim"]) if named else f"{row['update']}/{row['weighting']}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def idle_of(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """Find the row of each attack on a scenario that did not run there."""
    cells = [(scenario_of(row), str(row["attack"])) for row in rows]
    ran = {cell for cell, row in zip(cells, rows, strict=True) if row["status"] not in IDLE}
    return {cell: row for cell, row in zip(cells, rows, strict=True) if cell not in ran}


def idle_lines(rows: Sequence[Row]) -> list[str]:
    """Say in a line for each status which attacks did not run, and why."""
    n_scenarios = len(grouped(rows, "update", "weighting"))
    lines = []
    for status, words in IDLE.items():
        found = [row for row in idle_of(rows).values() if row["status"] == status]
        reasons: dict[str, list[str]] = {}
        for (attack, reason), where in grouped(found, "attack", "reason").items():
            only = "" if len(where) == n_scenarios else f" on {', '.join(map(scenario_of, where))}"
            reasons.setdefault(f"{reason}{only}", []).append(str(attack))
        if found:
            n_attacks = len({row["attack"] for row in found})
            counted = "1 attack" if n_attacks == 1 else f"{n_attacks} attacks"
            named = [f"{folded_names(attacks)}: {reason}" for reason, attacks in reasons.items()]
            lines.append(f"{words.format(counted)}: {'; '.join(named)}.")
    return lines


def finding(rows: Sequence[Row]) -> str:
    """Say in a line what an attack on a scenario leaks."""
    leaking = sorted((row for row in rows if verdict_of(row) == LEAK), key=lambda row: row["advantage"])
    leaks = {kind_of(row["metric"]): row for row in leaking}  # of outputs the strongest of several attacks
    if leaks.keys() - IN_OPEN and next(iter(leaks.values()))["weighting"] == "observed-only":
        leaks = {metric: row for metric, row in leaks.items() if metric not in IN_OPEN}
    if answered := leaks.get(ANSWERED):
        value, guess = _percent(answered["value"]), _percent(answered["baseline"])
        who = f"{scenario_of(answered)}, {answered['attack']}"
        return f"{who}: {LEAK}, an answer for {value} of {_counted(answered)} (on shuffled uploads {guess})"
    claims = {name: leaks[metric] for metric, name in NAMES.items() if metric in leaks}
    if not claims:
        return ""
    row = next(iter(claims.values()))
    said = ", ".join(
        f"{name}{of_what(row) * (name == NAMES[INFERRED])} {_percent(row['value'])} "
        f"(guess {_percent(row['baseline'])})"
        for name, row in claims.items()
    )
    return f"{scenario_of(row)}, {row['attack']}: {LEAK} of {said}; {_clients(row)}"


def in_words(rows: Sequence[Row], *, listed: bool = True) -> list[str]:
    """Say in a sentence per scenario what the strongest attack that ran reads, beside the guess."""
    tried = [row for row in rows if row["metric"] == BOUND]
    messages = [row for row in rows if row["adversary"] != OUTPUTS and row["metric"] != BOUND]
    outputs = [row for row in rows if row["metric"] in MEMBERSHIP]
    return [
        f"{scenario_of(found[0])}: {say(found)}"
        for say, part in (
            (partial(_of_scenario, listed=listed), messages),
            (_of_outputs, outputs),
            (_of_trials, tried),
        )
        for found in grouped(part, "update", "weighting").values()
    ]


def _of_trials(rows: Sequence[Row]) -> str:
    """What telling trainings with a client and without apart shows of what is proved."""
    return " ".join(map(_of_trial, rows))


def _of_trial(row: Row) -> str:
    if row["status"] != "ran":
        return f"{NOT_TESTED}: trials: {row['reason']}."
    proved = "nothing" if number(row["baseline"]) == "inf" else f"epsilon <= {number(row['baseline'])}"
    return (
        f"of one client's rows the sums prove epsilon >= {number(row['value'])}, of at most "
        f"{number(row['ceiling'])} that so many trainings could; proved is {proved} ({row['reason']}): "
        f"{row['verdict']}."
    )


def _of_outputs(rows: Sequence[Row]) -> str:
    """What outputs alone tell of what was trained on."""
    best = [row for metric in MEMBERSHIP if (row := strongest(rows, metric))]
    if not best:
        return f"{NOT_TESTED}: outputs: {rows[0]['reason']}."
    claims = [f"{_claim(row)}, with {row['attack']}, {_clients(row)}" for row in best]
    return f"outputs alone, of a perfect protocol, tell {'; '.join(claims)}."


def _of_scenario(rows: Sequence[Row], listed: bool) -> str:
    if _best(rows, ANSWERED):
        return _without_truth(rows)
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
    guessed = any(is_guess(row) and row["status"] == "ran" for row in rows)
    asked = not guessed or any(
        row["metric"] in OF_RATINGS for row in rows
    )  # of implicit feedback they are not
    read = any(_best(rows, metric) for metric in OF_RATINGS)
    unread = f"; ratings: {_untested(rows)}" if asked and not read else ""
    return f"{called(rows[0]['adversary'])} reads, with {best}, {claims}{rated}{unread} ({clients})."


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
    why = why_silent(silent)
    sees = f"from what {called(rows[0]['adversary'])} sees" + (f" ({why})" if why else "")
    whom = " about enough clients" if any(map(answers_few, silent)) else ""
    return f"{NOT_TESTED}: no attack has an answer{whom} {sees}"


def _without_truth(rows: Sequence[Row]) -> str:
    """For whom there is an answer about ratings, else about which items were rated."""
    silent = {row["attack"] for row in rows if row["metric"] == HEADLINE and row["status"] != "ran"}
    best = _best([row for row in rows if row["attack"] not in silent], ANSWERED)
    unread = "" if best else f"; ratings: {_untested(rows)}"
    best = best or _best(rows, ANSWERED)
    row = next(row for row in rows if row["attack"] == best and row["metric"] == ANSWERED)
    return (
        f"{best} has an answer for {_percent(row['value'])} of {_counted(row)} of what "
        f"{called(row['adversary'])} sees (on shuffled uploads for {_percent(row['baseline'])}): "
        f"{verdict_of(row)}; how much of it is right needs the truth{unread}."
    )


def _strongest(rows: Sequence[Row]) -> str | None:
    """The attack with the best advantage on rated items, else on the rated set; guesses do not count."""
    return next(filter(None, (_best(rows, metric) for metric in (*OF_RATINGS, "rated_set_auc"))), None)


def _best(rows: Sequence[Row], metric: str) -> str | None:
    candidates = [row for row in rows if row["metric"] == metric and tested(row) and not is_guess(row)]
    found = max(candidates, key=lambda row: (row["advantage"], row["n_users"]), default=None)
    return None if found is None else found["attack"]


def _claim(row: Row | None) -> str:
    """A metric by its name, its number, the guess and the verdict; a share in percent."""
    if row is None or verdict_of(row) == NOT_TESTED or number(row["value"]) == "-":
        return ""
    write = _percent if row["metric"].endswith("accuracy") else number
    value, guess = write(row["value"]), write(row["baseline"])
    return f"{row['metric']} {value} (best guess without the transcript {guess}): {verdict_of(row)}"


# Of systems


def sentence(name: str, verdict: str, seen: Sequence[AdversaryView]) -> str:
    """Say of one system what the worst adversary reads, and who was not tested."""
    untested = [who for one in seen if one.verdict == NOT_TESTED for who in one.alike]
    rest = f" Not tested: {', '.join(untested)}." if untested else ""
    if verdict == NOT_TESTED:
        return f"{name}: {NOT_TESTED}; no attack answered, which says nothing about what leaks.{rest}"
    if verdict == OPEN:
        return f"{name}: {OPEN}; uploads name the items that each client rated.{rest}"
    answers = [
        (one.adversary, [leak for leak in one.leaks if leak.row is not None])
        for one in seen
        if one.verdict == verdict
    ]
    adversary, leaks = max(answers, key=lambda one: max(map(badness, one[1])))
    leak = max((one for one in leaks if one.row is not None and one.row["verdict"] == verdict), key=badness)
    return f"{name}: {verdict}; {_reads(adversary, leak, verdict)}.{rest}"


def _reads(adversary: str, leak: Leak, verdict: str) -> str:
    row = leak.row
    assert row is not None
    shown = f"{number(row['value'])} {interval_of(row)}"
    if row["metric"] == ANSWERED:
        return (
            f"{row['attack']} answers for a share of {shown} of the clients that {called(adversary)} sees, "
            f"and for {number(row['baseline'])} on shuffled uploads; there is no truth to score against"
        )
    kind = kind_of(str(row["metric"]))
    what = NOUNS.get(kind, leak.kind) + (of_what(row, " ({})") if kind == INFERRED else "")
    said = (
        f"{called(adversary)} reads {what} at {shown} with {row['attack']}, where the best guess without the "
        f"transcript is {number(row['baseline'])}"
    )
    if verdict == LEAK:
        off = leak.worst_off
        tenth = "" if off is None else f"; of the worst-off tenth of the clients, {number(off['value'])}"
        return said + tenth
    if verdict == NO_EVIDENCE:
        bound = number(row["advantage_high"])
        return (
            f"{said}: an advantage of at most {bound} by this attack on {row['n_users']:.0f} clients, and no "
            "proof against others"
        )
    return said + (f" ({row['reason']})" if row["reason"] else "")


def called(adversary: str) -> str:
    """Name an adversary in a sentence: ``the server``, and ``neighbour:0`` as it is."""
    if adversary == OUTPUTS:
        return "an observer of outputs"
    return adversary if ":" in adversary else f"the {adversary}"


# Of models and budgets


def worse_than_mean(rows: Sequence[Row]) -> list[str]:
    """Say which models predict worse than the training mean: a line for each victim and defense."""
    poor = [row for row in rows if row["metric"] == ERROR and row["status"] == "ran" and row["reason"]]
    lines = []
    for (victim, defense, reason), found in grouped(poor, "victim", "defense", "reason").items():
        error, mean = (number(fmean(row[name] for row in found)) for name in ("value", "baseline"))
        lines.append(f"{victim}, {defense or 'none'}: {reason} (RMSE {error}, training mean {mean})")
    return lines


def budgets_line(quantiles: Mapping[str, Sequence[float]], epsilon: float) -> str:
    """Say the smallest, the quartiles and the largest budgets of users, items and ratings."""
    groups = [f"{who} {' '.join(f'{value:.2g}' for value in values)}" for who, values in quantiles.items()]
    return f"budgets for epsilon {epsilon:g} (least, quartiles, most): {'; '.join(groups)}"
