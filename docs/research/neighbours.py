"""Who reads what without a server: ``python docs/research/neighbours.py SHARED OUT``.

Records the protocols of Duriakova et al. 2019 and Yang et al. 2022 on the data of the folder SHARED, watched
by a client, by several, by the helper or by an eavesdropper, and writes OUT/neighbours.csv: what the best of
the attacks reads, beside guess and ceiling. All rows go to OUT/neighbours.jsonl as they are measured, and
what is there is not measured again.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.experiments.attack_cells import Attempt, rows_of
from audit.experiments.results import Row
from audit.factories import make_defenses, make_victim
from audit.scoring.truth import Truth, read_truth
from victims.data.loaders import load
from victims.data.ratings import Ratings
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript

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

    @property
    def words(self) -> tuple[str, str, str, str]:
        """The first cells: protocol, whether senders are told, adversary, rounds."""
        told = self.protocol.senders == "told" or self.adversary in (HELPER, WIRE)
        rounds = ", ".join(map(str, self.rounds))
        return self.protocol.name, "told" if told else "hidden", self.adversary, rounds


LINES = (
    Line(PDMFREC, ONE),
    Line(PDMFREC, "coalition of 3"),
    Line(PDMFREC, ONE, (3,), ("peers",)),
    Line(TOLD, ONE),
    Line(TOLD, ONE, (3,), ("peers-named",)),
    Line(PDMFREC.but("PDMFRec(-sim)", variant="-sim"), ONE),
    Line(PDMFREC.but("PDMFRec, private starts", start="private"), ONE),
    Line(PDMFREC.but("PDMFRec, private starts", start="private", anonymous="false"), ONE),
    Line(PDMFREC.but("PDMFRec, secure sums", defense="secure-sum"), ONE, attacks=("peers", "aggregate")),
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

KINDS = {  # metric -> what leaks
    "rated_set_auc": "lists",
    "rated_rating_accuracy": "ratings",
    "claimed_rating_accuracy": "ratings under pseudonyms",
    "link_precision": "links",
    "names_right": "names",
}
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


def measured(line: Line, ratings: Ratings, folder: Path) -> dict[str, Any]:
    """Record and attack one line of the table; what it is, and all rows."""
    protocol = line.protocol
    members = members_of(line.adversary, protocol, ratings)
    made = recorded(protocol, ratings, members or [0], line.rounds, folder)
    name = adversary_of(line.adversary, members)
    rows: list[Row] = []
    for attack in line.attacks or protocol.attacks:
        attempt = Attempt(attack, name, label=attack, bounded=True)
        found = rows_of(attempt, made.transcript, made.truth, lambda _: None)
        rows += [_plain(row) | {"attack": attack} for row in found]
    heard = np.setdiff1d(np.unique(made.sender[np.isin(made.receiver, members)]), members)
    clients = heard.size if members else ratings.n_users
    return {"line": line.words, "members": name, "clients": int(clients), "rows": rows}


def _plain(row: Row) -> Row:
    """Without columns that say nothing; a verdict and a reason are words."""
    words = {name: row[name] if isinstance(row[name], str) else "" for name in ("verdict", "reason")}
    empty = [name for name, value in row.items() if isinstance(value, float) and np.isnan(value)]
    return {**row, **dict.fromkeys(empty), **words}


def cells_of(measured: dict[str, Any]) -> list[str]:
    """A line of the table: of each metric the attack that reads most, and what is told as a leak."""
    found: dict[str, Row] = {}
    for row in measured["rows"]:
        metric = row["metric"]
        if row["status"] != "ran" or row["value"] is None:
            continue
        if metric not in found or row["value"] > found[metric]["value"]:
            found[metric] = row
    told = measured["line"][1] == "told"
    return [
        *measured["line"],
        f"{measured['clients']:,}",
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
        _verdict(found, measured["rows"]),
    ]


def _verdict(found: dict[str, Row], rows: Sequence[Row]) -> str:
    """What is a leak by the preset thresholds; else why nothing is."""
    leaks = [words for metric, words in KINDS.items() if found.get(metric, {}).get("verdict") == "LEAK"]
    length = found.get("list_length_accuracy", {})
    if length.get("verdict") == "LEAK":
        leaks += [f"lengths of lists ({length['value']:.3f}, guess {length['baseline']:.3f})"]
    if leaks:
        return f"LEAK: {', '.join(leaks)}"
    said = {row["verdict"] for row in found.values() if row["verdict"]}
    reasons = [row["reason"] for row in rows if row["reason"] and "nothing else" not in row["reason"]]
    return "; ".join(dict.fromkeys([*sorted(said or {"NOT TESTED"}), *reasons]))


def _value(found: dict[str, Row], metric: str, column: str = "value") -> str:
    value = found.get(metric, {}).get(column)
    return "-" if value is None or not np.isfinite(float(value)) else f"{float(value):.3f}"


def _interval(found: dict[str, Row], metric: str) -> str:
    value = _value(found, metric)
    low, high = (_value(found, metric, column) for column in ("ci_low", "ci_high"))
    return value if value == "-" else f"{value} [{low}, {high}]"


def _of(found: dict[str, Row], metric: str) -> str:
    """A share of claims beside its guess, and of how many senders it is the mean."""
    value = _value(found, metric)
    if value == "-":
        return value
    return f"{value} ({_value(found, metric, 'baseline')}), {found[metric]['n_users']}"


def _two(found: dict[str, Row], column: str) -> str:
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
    """Measure the lines that are not there yet, and write the table of all."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "neighbours.jsonl"
    there = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for line in LINES:
        if list(line.words) not in [one["line"] for one in there]:
            there.append(measured(line, ratings_of(line.protocol.data, shared), out))
            with path.open("a") as file:
                file.write(json.dumps(there[-1], default=float) + "\n")
    order = [list(line.words) for line in LINES]
    (out / "neighbours.csv").unlink(missing_ok=True)
    for one in sorted(there, key=lambda one: order.index(one["line"])):
        append(out / "neighbours.csv", HEAD, cells_of(one))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
