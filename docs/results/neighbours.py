"""Who reads what without a server: ``python docs/results/neighbours.py SHARED OUT``.

Records the protocols of papers 003 and 004 on the data of the folder SHARED, watched by a client, by
several, by the helper or by an eavesdropper, and writes OUT/neighbours.csv: what the best of the attacks
reads, beside guess and ceiling. Lines are written as they are measured, and not measured again.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.experiments.attack_rows import Attempt, rows_of
from audit.factories import make_defenses, make_victim
from audit.scoring.truth import Truth, read_truth
from victims.data.loaders import load
from victims.data.ratings import Ratings
from victims.recording import record
from victims.transcript.reader import Transcript, open_transcript
from victims.transcript.writer import truth_path

ML, FILM = "ml-100k", "filmtrust:trust=trust.txt"


@dataclass(frozen=True)
class Protocol:
    """A victim, and by which attack its rows are read."""

    name: str
    data: str
    victim: str
    options: dict[str, str] = field(default_factory=dict)
    defense: str = "none"
    attacks: tuple[str, ...] = ("peers", "peers-named", "peers-lists")

    @property
    def senders(self) -> str:
        """Whether receivers see who sends."""
        hidden = self.victim == "pdmfrec" and self.options.get("anonymous") != "false"
        return "hidden" if hidden else "told"

    def but(self, name: str, defense: str = "none", **options: str) -> Protocol:
        """The same with other options."""
        return replace(self, name=name, defense=defense, options={**self.options, **options})


PDMFREC = Protocol("PDMFRec", ML, "pdmfrec", {"threshold": "20"})
DMF = Protocol("DMF", FILM, "dmf", attacks=("peers-named", "peers-lists"))
YANG = Protocol("DPMF-Yang", FILM, "dpmf-yang", attacks=("cofactors", "cofactors-lists"))
ONE, TWENTY, HELPER, WIRE = "neighbour", "coalition", "helper", "eavesdropper"
LISTS = ("helper-lists", "traffic")
TOLD = PDMFREC.but("PDMFRec", anonymous="false")


class Line(NamedTuple):
    """A line of the table: the adversary by its kind, and the rounds that it watches."""

    protocol: Protocol
    adversary: str
    rounds: tuple[int, ...] = (0,)
    attacks: tuple[str, ...] = ()


LINES = (
    Line(PDMFREC, ONE),
    Line(PDMFREC, "coalition of 3"),
    Line(PDMFREC, ONE, (3,), ("peers",)),
    Line(TOLD, ONE),
    Line(TOLD, ONE, (3,), ("peers-named",)),
    Line(PDMFREC.but("PDMFRec(-sim)", variant="-sim"), ONE),
    Line(PDMFREC.but("PDMFRec, private starts", start="private"), ONE),
    Line(PDMFREC.but("PDMFRec, private starts", start="private", anonymous="false"), ONE),
    Line(PDMFREC.but("PDMFRec, secure sums", defense="secure-sum"), ONE),
    Line(PDMFREC.but("PDMFRec, item sets to the helper"), HELPER, attacks=LISTS),
    Line(PDMFREC.but("PDMFRec, counts to the helper", helper="counts"), HELPER, attacks=LISTS),
    Line(PDMFREC.but("PDMFRec, plain links", anonymous="false"), WIRE, attacks=("undeclared", "rated-set")),
    Line(PDMFREC.but("PDMFRec, sealed links", links="sealed"), WIRE, attacks=LISTS),
    Line(DMF, ONE),
    Line(DMF, "coalition of 20"),
    Line(DMF, "coalition of 20", (3,)),
    Line(YANG, ONE),
    Line(YANG, "coalition of 20"),
    Line(YANG, "coalition of 20", (0, 1, 2)),
    Line(YANG.but("DPMF-Yang, negatives anew", negatives="rounds"), "coalition of 20", (0, 1, 2)),
    Line(YANG, "coalition of 20", (3,)),
    Line(YANG.but("DPMF-Yang, private starts", personal_start="private"), "coalition of 20"),
)

HEAD = (
    "protocol",
    "senders",
    "adversary",
    "rounds",
    "clients",
    "rated-set AUC",
    "popularity",
    "ratings right",
    "guess",
    "ceiling",
    "claims right (guess), senders",
    "whole",
    "links P / R",
    "links by chance",
    "named",
    "named by chance",
    "verdict",
)


class Recording(NamedTuple):
    """A recording, its truth, and who sends to whom."""

    transcript: Transcript
    truth: Truth
    sender: np.ndarray
    receiver: np.ndarray


def ratings_of(data: str, shared: Path) -> Ratings:
    """The ratings of a protocol."""
    return load(str(shared / "data" / data))


def recorded(
    protocol: Protocol, ratings: Ratings, watched: Sequence[int], rounds: Sequence[int], folder: Path
) -> Recording:
    """Record a protocol, all clients as senders, with what the watched ones hold."""
    path = folder / f"{time.monotonic_ns()}"
    victim = make_victim(protocol.victim, protocol.options)
    defenses = make_defenses(protocol.defense)
    record(victim, ratings, path, rounds=rounds, watched=watched, defenses=defenses, seed=0)
    transcript = open_transcript(path)
    links = transcript.deliveries
    assert links is not None
    return Recording(transcript, read_truth(truth_path(path)), links.sender, links.receiver)


def graph_of(protocol: Protocol, ratings: Ratings) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers of the first round."""
    victim: Any = make_victim(protocol.victim, protocol.options)
    edges = victim.network(victim.init(ratings, 0), ratings).edges
    return edges.sender, edges.receiver


def members_of(kind: str, protocol: Protocol, ratings: Ratings) -> list[int]:
    """The clients who are an adversary of some kind, by a rule.

    In ML-100K the client with a number of neighbours nearest to 40 (a quarter of all has fewer than 30, half
    more than 250); in FilmTrust the one to whom most send. A coalition is the next ones by the same rule.
    """
    if kind in (HELPER, WIRE):
        return []
    degree = np.bincount(graph_of(protocol, ratings)[1], minlength=ratings.n_users)
    size = 1 if kind == ONE else int(kind.rsplit(maxsplit=1)[-1])
    order = np.argsort(np.abs(degree - 40) if protocol.data == ML else -degree, kind="stable")
    return sorted(order[:size].tolist())


def adversary_of(kind: str, members: Sequence[int]) -> str:
    """The name of an adversary in a recording."""
    if not members:
        return kind
    return f"neighbour:{members[0]}" if len(members) == 1 else f"neighbours:{','.join(map(str, members))}"


def line_of(line: Line, ratings: Ratings, folder: Path) -> dict[str, str]:
    """Measure one line of the table."""
    protocol = line.protocol
    members = members_of(line.adversary, protocol, ratings)
    made = recorded(protocol, ratings, members or [0], line.rounds, folder)
    name = adversary_of(line.adversary, members)
    found: dict[str, dict[str, Any]] = {}
    reasons: list[str] = []
    lengths: list[str] = []
    for attack in line.attacks or protocol.attacks:
        attempt = Attempt(attack, name, label=attack)
        for row in rows_of(attempt, {}, made.transcript, made.truth, lambda _: None, with_ceilings=True):
            if row["status"] == "ran":
                better = row["metric"] not in found or row["value"] > found[row["metric"]]["value"]
                if better:
                    found[row["metric"]] = row | {"attack": attack}
            elif row["reason"] and "nothing else" not in row["reason"]:
                reasons.append(row["reason"])
    heard = np.setdiff1d(np.unique(made.sender[np.isin(made.receiver, members)]), members)
    everybody = line.adversary in (HELPER, WIRE)
    if "list_length_accuracy" in found:
        one = found["list_length_accuracy"]
        lengths = [f"lengths of lists {one['value']:.3f} (guess {one['baseline']:.3f})"]
    verdicts = [found[m]["verdict"] for m in found if found[m].get("verdict")]
    verdict = "LEAK" if "LEAK" in verdicts else next(iter(verdicts), f"NOT TESTED: {'; '.join(reasons)}")
    told = protocol.senders == "told" or everybody
    return dict(
        zip(
            HEAD,
            (
                protocol.name,
                "told" if told else "hidden",
                line.adversary,
                ", ".join(map(str, line.rounds)),
                f"{ratings.n_users if everybody else heard.size:,}",
                _value(found, "rated_set_auc"),
                _value(found, "rated_set_auc", "baseline"),
                _interval(found, "rated_rating_accuracy"),
                _value(found, "rated_rating_accuracy", "baseline"),
                _value(found, "rated_rating_accuracy", "ceiling"),
                _of(found, "claimed_rating_accuracy"),
                _value(found, "users_fully_recovered"),
                "told" if told else _two(found, "value"),
                "" if told else _two(found, "baseline"),
                "told" if told else _value(found, "names_right"),
                "" if told else _value(found, "names_right", "baseline"),
                "; ".join([verdict, *lengths]),
            ),
            strict=True,
        )
    )


def _value(found: dict[str, dict[str, Any]], metric: str, column: str = "value") -> str:
    value = found.get(metric, {}).get(column)
    return "-" if value is None or not np.isfinite(float(value)) else f"{float(value):.3f}"


def _interval(found: dict[str, dict[str, Any]], metric: str) -> str:
    value = _value(found, metric)
    low, high = (_value(found, metric, column) for column in ("ci_low", "ci_high"))
    return value if value == "-" else f"{value} [{low}, {high}]"


def _of(found: dict[str, dict[str, Any]], metric: str) -> str:
    """A share of claims beside its guess, and of how many senders it is the mean."""
    value = _value(found, metric)
    if value == "-":
        return value
    return f"{value} ({_value(found, metric, 'baseline')}), {found[metric]['n_users']}"


def _two(found: dict[str, dict[str, Any]], column: str) -> str:
    return f"{_value(found, 'link_precision', column)} / {_value(found, 'link_recall', column)}"


def append(path: Path, head: Sequence[str], row: Sequence[str]) -> None:
    """Add a line to a table, and its head to a new one."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if new:
            out.writerow(head)
        out.writerow(row)


def known(path: Path, columns: int) -> set[tuple[str, ...]]:
    """The first columns of the lines that a table has."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {tuple(row[:columns]) for row in list(csv.reader(file))[1:]}


def main(shared: Path, out: Path) -> None:
    """Measure the lines that are not there yet."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "neighbours.csv"
    there = known(path, 4)
    for line in LINES:
        told = line.protocol.senders == "told" or line.adversary in (HELPER, WIRE)
        head = (line.protocol.name, "told" if told else "hidden", line.adversary)
        if (*head, ", ".join(map(str, line.rounds))) not in there:
            found = line_of(line, ratings_of(line.protocol.data, shared), out)
            append(path, HEAD, list(found.values()))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
