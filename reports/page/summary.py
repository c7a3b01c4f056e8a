"""The first screen of a page, for who decides: how bad, for whom, what, by whom, how sure, and what to do."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reports.verdicts import (
    ANSWERED,
    CLAIMED,
    COMMUNITY,
    DIFFERENCES,
    FULLY,
    INFERRED,
    KINDS,
    LEAK,
    MEMBERSHIP,
    NOT_TESTED,
    SAME,
    SEVERITIES,
    SIZES,
    UNDEFENDED,
    AdversaryView,
    Leak,
    Row,
    System,
    badness,
    interval_of,
    is_guess,
    kind_of,
    number,
    of_what,
    severity,
)
from reports.words import called

DONE = {  # what is right, out of a hundred
    "rated_rating_accuracy": "gets {found} of 100 ratings right",
    CLAIMED: "gets {found} of 100 ratings of clients without a name right",
    DIFFERENCES: "gets {found} of 100 differences between two of a client's ratings right",
    SIZES: "tells in {found} of 100 pairs of a client's ratings how far they are from each other",
    "rated_set_auc": "tells a rated item from another in {found} of 100 pairs",
    "attribute_group_accuracy": "gets {found} of 100 attributes right",
    MEMBERSHIP[0]: "tells a rating that was trained on from another in {found} of 100 pairs",
    MEMBERSHIP[1]: "tells a user who took part from another in {found} of 100 pairs",
    INFERRED: "tells {what} of {found} of 100 clients right",
    "inferred_auc": "tells {what} of one client from another's in {found} of 100 pairs",
    COMMUNITY: "is right of {found} of 100 of those whom it says share an interest",
    "link_precision": "is right in {found} of 100 pairs of rows that it says one client sent",
    ANSWERED: "claims to know the ratings of {found} of 100 clients",
}
NAMED = "Uploads name the items that each client rated: nobody needs an attack for these."
NO_TRUTH = "No truth lies beside the recording, so that this is what is claimed, not what is right."


class Summary(NamedTuple):
    """What stands on the first screen."""

    severity: str  # one of ``SEVERITIES``; empty where nothing was attacked
    about: str  # system, data and date
    sentence: str
    facts: tuple[tuple[str, str], ...]


def summary_of(systems: Sequence[System], facts: Mapping[str, str], bounds: Sequence[Row] = ()) -> Summary:
    """Sum up the worst system and its worst adversary; ``facts`` say how the rows were made, ``bounds``
    what was claimed of epsilons.
    """
    attacked = [one for one in systems if one.adversaries]
    rows = [row for one in systems for row in one.rows]
    about = [
        _names(rows, "victim").replace("unknown", "a program without a name"),
        _names(rows, "data"),
        facts.get("started, ended", "")[:10],
    ]
    said = " · ".join(filter(None, about))
    verdicts = [row["verdict"] for row in bounds]
    refuted, held = verdicts.count("CLAIM REFUTED"), verdicts.count("not refuted")
    claims = f"{refuted} of {refuted + held} claims of an epsilon are refuted" if bounds else ""
    if untried := len(bounds) - refuted - held:
        claims += f"; {untried} not tested, or nothing is claimed"
    if not attacked:
        words = "No attack was run: usefulness and cost say nothing about what leaks."
        return Summary("", said, words, (("Claims", claims),) if claims else ())
    system = min(attacked, key=lambda one: (SEVERITIES.index(one.severity), *_mildness(one)))
    seen, leak = _worst(system)
    lines = {
        "Verdict": _verdict(attacked, system, len(systems) - len(attacked)),
        "Claims": claims,
        "Who is affected": _affected(system, leak),
        "What is recovered": _recovered(seen),
        "By whom": _by_whom(system, leak),
        "How sure": _how_sure(attacked, leak),
        "What to do": what_to_do(attacked, system, facts.get("command", "")),
    }
    shown = tuple((name, words) for name, words in lines.items() if words)
    return Summary(system.severity, said, _sentence(seen, leak, system), shown)


def _names(rows: Sequence[Row], column: str) -> str:
    found = [str(row[column]).rstrip("/").rpartition("/")[2] for row in rows]
    names = list(dict.fromkeys(name for name in found if name and name != "nan"))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _mildness(system: System) -> tuple[bool, float]:
    leak = system.worst
    return (True, 0.0) if leak is None else (not badness(leak)[0], -badness(leak)[2])


def _worst(system: System) -> tuple[AdversaryView, Leak]:
    """The adversary and the kind that decide the severity of a system, ratings before lists in the open."""
    pairs = [(seen, leak) for seen in system.adversaries for leak in seen.leaks]
    return min(
        pairs,
        key=lambda one: (
            SEVERITIES.index(severity(one[1])), one[1].in_open,
            -one[1].row["advantage"] if one[1].row is not None else 0.0,
        ),
    )  # fmt: skip


def _sentence(seen: AdversaryView, leak: Leak, system: System) -> str:
    row, named = leak.row, any(one.in_open for one in seen.leaks)
    if system.severity == "not tested":
        return "No attack answered: nothing is known of what leaks, and nothing is shown to be safe."
    if leak.in_open:
        return NAMED
    assert row is not None
    if row["verdict"] != LEAK:
        return "No attack that ran recovered more than a guess does."
    found, guess = (f"{100 * row[name]:.0f}" for name in ("value", "baseline"))
    metric = str(row["metric"])
    name = metric.partition("/")[0] if kind_of(metric) == INFERRED else metric
    done = DONE[name].format(found=found, what=of_what(row, "{}"))
    where = "and on permuted rows those of" if row["metric"] == ANSWERED else "where a guess gets"
    who = called(seen.adversary)
    return f"{who[0].upper()}{who[1:]} {done}, {where} {guess}." + (f" {NAMED}" if named else "")


def _verdict(attacked: Sequence[System], system: System, others: int) -> str:
    more = f". Of {others} more, usefulness or cost alone was measured" if others else ""
    if len(attacked) == 1:
        return f"{system.severity}: {system.name}{more}"
    counts = Counter(one.severity for one in attacked)
    words = ", ".join(f"{counts[word]} {word}" for word in SEVERITIES if word in counts)
    return f"{len(attacked)} configurations: {words}. The worst: {system.name}{more}"


def _affected(system: System, leak: Leak) -> str:
    row = leak.row
    if row is None:
        return "every client that uploads" if leak.in_open else ""
    if row["verdict"] != LEAK:
        return f"nobody that the attacks found, of {row['n_users']:.0f} clients"
    n_users, n_answered = (int(n) for n in (row["n_users"], max(row["n_users"] - row["n_abstained"], 0)))
    who = f"{n_answered} of {n_users} clients"
    same = [one for one in system.rows if all(one[name] == row[name] for name in SAME)]
    for one in same:
        if one["metric"] == FULLY and number(one["value"]) != "-":
            who += f"; of {round(one['value'] * one['n_users'])} of them all that they gave is recovered"
    if leak.worst_off is not None and row["value"] < leak.worst_off["value"]:
        who += f"; of the worst-off tenth {number(leak.worst_off['value'])}"
    return who


def _recovered(seen: AdversaryView) -> str:
    words = []
    for leak in seen.leaks:
        if leak.in_open:
            words.append(f"{leak.kind}: in the open")
        elif leak.row is not None:
            row = leak.row
            beside = "on permuted rows" if row["metric"] == ANSWERED else "guess"
            guess = f"{interval_of(row)}, {beside} {number(row['baseline'])}"
            words.append(f"{leak.kind}{of_what(row)}: {number(row['value'])} {guess}")
    return "; ".join(words)


def _by_whom(system: System, leak: Leak) -> str:
    order = [word for word in SEVERITIES if word != "not tested"]
    found: dict[str, list[str]] = {}
    for seen in system.adversaries:
        found.setdefault(min(map(severity, seen.leaks), key=SEVERITIES.index), []).extend(seen.alike)
    words = [f"{', '.join(found[word])} ({word})" for word in order if word in found]
    untested = [f"not tested: {', '.join(found['not tested'])}"] if "not tested" in found else []
    with_what = "" if leak.row is None or leak.in_open else f"; strongest attack {leak.row['attack']}"
    return "; ".join([*words, *untested]) + with_what


def _how_sure(attacked: Sequence[System], leak: Leak) -> str:
    row = leak.row
    tried = {
        row["attack"] for one in attacked for row in one.rows if row["status"] == "ran" and not is_guess(row)
    }
    ran = f"attacks that ran: {len({name for name in tried if isinstance(name, str)})}"
    if row is None:
        return f"{'certain: it is how uploads are built' if leak.in_open else NOT_TESTED}; {ran}"
    bounds = f"[{number(row['advantage_low'])}, {number(row['advantage_high'])}]"
    sure = f"{row['verdict']}: advantage {number(row['advantage'])} {bounds} (95 % over clients)"
    if number(row["p_value"]) != "-":
        sure += f", p = {row['p_value']:.1g}"
    return f"{sure}; {ran}" + (f". {NO_TRUTH}" if row["metric"] == ANSWERED else "")


OF_ITS_KIND = ("victim", "update", "weighting", "data")  # a defense of another system says nothing of this


def _what_defenses_leave(attacked: Sequence[System]) -> list[str]:
    """Of each kind, the defense that leaves the smallest advantage; what was not tested is none."""
    bare: dict[str, float] = {}
    left: dict[str, dict[str, float]] = {}
    for system in attacked:
        defense = str(system.rows[0]["defense"])
        for leak in (leak for seen in system.adversaries for leak in seen.leaks):
            if leak.row is None and not leak.in_open:
                continue
            advantage = 1.0 if leak.in_open or leak.row is None else float(leak.row["advantage"])
            found = bare if defense in UNDEFENDED else left.setdefault(leak.kind, {})
            name = leak.kind if defense in UNDEFENDED else defense
            found[name] = max(found.get(name, -1.0), advantage)
    words = []
    for kind, by_defense in left.items():
        name = min(by_defense, key=by_defense.__getitem__)
        least, before = by_defense[name], bare.get(kind, 1.0)
        if least < before:
            words.append(f"{name} leaves least of {kind}: an advantage of {number(least)}")
        elif before > 0:
            words.append(f"none is shown to lessen what leaks of {kind}")
    return words


def what_to_do(attacked: Sequence[System], system: System, command: str) -> str:
    """Name the defense that leaves least of those that were measured, else the command that measures one."""
    row = system.rows[0]
    if system.severity == "not tested":
        return "See below why no attack answered; factorleak attack --identify tells what uploads look like."
    if system.severity == "none shown":
        return "Nothing against these attacks. Gate the build with --fail-on leak, so that it stays so."
    alike = [one for one in attacked if all(one.rows[0][name] == row[name] for name in OF_ITS_KIND)]
    if words := _what_defenses_leave(alike):
        return f"Of the defenses measured, {'; '.join(words)}. The charts say what they cost."
    if "--transcript" in command:
        recording = shlex.quote(str(row["data"]))
        return f"Try defenses on these uploads: factorleak audit --transcript {recording} --advise"
    if system.worst is not None and system.worst.kind == KINDS[MEMBERSHIP[1]]:
        return (
            "Noise on sums of clipped uploads bounds what outputs tell of a user; `factorleak list defenses "
            "dp-fedavg` has its options, and the command below measures it with --defense."
        )
    names = ("victim", "data", "update", "weighting")
    what = " ".join(f"--{name} {shlex.quote(str(row[name]))}" for name in names)
    return f"Measure a defense: factorleak compare {what} --defense none --defense laplace:scale=1"
