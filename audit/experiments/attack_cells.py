"""The one task of every cell that attacks a recording: made or given, seen, attacked, scored.

``audit``, ``audit --transcript``, ``sweep`` and the leakage of ``compare`` differ in the axes that they vary;
each lists its attempts, and what becomes of them is the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from attacks.base import Identities, Reconstruction, all_abstain
from audit.code_identity import attack_code, code_used
from audit.experiments.answers import SeededAttack, permutation_replicates, select_users, shuffled_scores
from audit.experiments.cells import Cell, Procedure, Say, cell_path, digest
from audit.experiments.ladder import not_needed
from audit.experiments.recordings import (
    OWN_ROWS,
    files_of,
    own_rows_alone,
    recorded,
    rows_of_others,
    sampled,
)
from audit.experiments.results import Row, make_row
from audit.experiments.rows import claimed_rows, failed_row, metric_rows
from audit.experiments.scenarios import obstacle_of
from audit.factories import make_served, make_victim
from audit.keys import view_of
from audit.registry import entry, recorded_name
from audit.scoring.ceiling import Ceiling
from audit.scoring.clients import client_table
from audit.scoring.communities import Communities
from audit.scoring.decoder import ceilings, computable
from audit.scoring.inference import ACCURACY, UNTOLD, Hidden, hidden_attributes, inference_scores
from audit.scoring.metrics import DIFFERENCES, RATED_SET_METRICS, SIZES
from audit.scoring.nulls import FEWEST_LISTS, Replicates, replicates_of_scores
from audit.scoring.pseudonyms import senders_of
from audit.scoring.statistics import FEWEST, LEAK_LEVEL
from audit.scoring.truth import Truth
from audit.scoring.verdicts import INCONCLUSIVE, NOT_TESTED, Score, as_record
from audit.shell.progress import lasting
from victims.protocols.base import Victim
from victims.transcript.recorded import Transcript
from victims.transcript.sybils import SYBILS
from victims.transcript.view import View

FLOAT_BYTES = 8
LONG = 5.0  # seconds, from which on progress says how long an attack is expected to take
ACCURACY_METRICS = ("rating_accuracy", "rated_rating_accuracy", DIFFERENCES, SIZES)
AGREEMENT = "agreement"  # with the answers about a recording without its defenses
DIAGNOSTICS = {  # metric -> what an attack says of itself, client by client
    "solver_success_rate": "converged",
    "seconds_per_user": "seconds",
    "share_of_rows_read": "read",
}


@dataclass(frozen=True)
class Source:
    """A victim in one scenario, which is to be recorded."""

    victim: str
    options: dict[str, Any]  # of the victim, but update and weighting
    update: str
    weighting: str
    rounds: tuple[int, ...]
    users: int | None  # that are recorded; None: all
    defenses: tuple[str, ...]
    seed: int
    train_on_received: bool = True
    server: str = ""  # the adversary, where the server is active; empty: it is honest but curious

    @property
    def scenario(self) -> str:
        """The scenario's name."""
        return f"{self.update}/{self.weighting}"

    @property
    def columns(self) -> Row:
        """Columns that rows have of it."""
        return {
            "victim": recorded_name(self.victim),
            "update": self.update,
            "weighting": self.weighting,
            "defense": "+".join(self.defenses) or "none",
        }

    @property
    def every_option(self) -> dict[str, Any]:
        """All options of the victim."""
        return {**self.options, "update": self.update, "weighting": self.weighting}

    def make(self) -> Victim:
        """Make the victim."""
        return make_served(make_victim(self.victim, self.every_option), self.server)


@dataclass(frozen=True)
class Attempt:
    """The task of a cell: one attack by one adversary on one recording."""

    attack: str
    adversary: str
    options: dict[str, Any] = field(default_factory=dict)  # of the attack
    sample: int = 20  # clients for attacks that solve client by client
    seed: int = 0
    label: str = ""  # what a person recognizes it by
    columns: Row = field(default_factory=dict)  # that all its rows have in common
    source: Source | None = None  # of the recording; None where that is given
    watched: tuple[int, ...] = ()  # rounds that the adversary watches; empty: all
    bounded: bool = False  # whether the highest reachable scores are computed, too
    # without values of permuted rows, scores of groups, seconds and bytes: where cells are many
    scores_alone: bool = False
    exhaustive: bool = True  # also where all that it asks is answered
    infer: tuple[str, ...] = ()  # attributes of users, from what is recovered; where ``source`` is recorded

    @property
    def seeded(self) -> SeededAttack:
        """The attack with its options and seed."""
        return SeededAttack(self.attack, self.options, self.seed)


def attempts_on(
    source: Source,
    attacks: Iterable[str],
    adversary: str,
    data: str,
    *,
    options: Mapping[str, dict[str, Any]] | None = None,
    sample: int = 20,
    exhaustive: bool = True,
    infer: tuple[str, ...] = (),
) -> list[Attempt]:
    """List attacks by one adversary on all rounds of one recording."""
    columns = {
        **source.columns,
        "data": data,
        "adversary": adversary,
        "rounds": len(source.rounds),
        "seed": source.seed,
    }
    return [
        Attempt(
            attack,
            adversary,
            (options or {}).get(attack, {}),
            sample,
            source.seed,
            label=f"{source.scenario}: {attack}",
            columns={**columns, "attack": attack},
            source=source,
            bounded=bool(source.defenses),
            exhaustive=exhaustive,
            infer=infer,
        )
        for attack in attacks
    ]


def cells_of(attempts: Iterable[Attempt], content: str, directory: Path) -> list[Cell[Attempt]]:
    """List the cells of attempts; those of one recording share it. ``content`` is a hash of what is given."""
    cells = []
    for source, of_source in groupby(attempts, key=lambda attempt: attempt.source):
        identity: dict[str, Any] = {"content": content}
        files: tuple[Path, ...] = ()
        obstacle = kind = ""
        if source is not None:
            identity |= asdict(source) | {"code": code_used(source.victim, source.defenses)}
            name = f"{source.update}-{source.weighting}-{digest(identity)}"
            files, kind = files_of(directory / "transcripts" / name), source.scenario
            obstacle = obstacle_of(
                source.victim, source.every_option, source.columns["defense"], source.server
            )
        for attempt in of_source:
            readable = re.sub(r"[^\w.]+", "-", attempt.label)
            path = cell_path(directory, readable, {**identity, "attempt": _identity(attempt)})
            cells.append(
                Cell(
                    attempt,
                    path,
                    files,
                    together="" if files else "recording",
                    kind=kind,
                    resumable=True,
                    obstacle=obstacle,
                )
            )
    return cells


def _identity(attempt: Attempt) -> dict[str, Any]:
    """Everything but the recording that determines the rows of an attempt."""
    return {
        **{name: getattr(attempt, name) for name in ("attack", "adversary", "options", "seed", "columns")},
        "code": attack_code(attempt.attack),
        "sample": attempt.sample if entry("attacks", attempt.attack).per_client else None,
        "watched": attempt.watched,
        "scored": (attempt.bounded, attempt.scores_alone),
        "infer": attempt.infer,
    }


Prepared = tuple[Transcript, Truth | None, Sequence[Hidden | Communities]]


def _prepare(cell: Cell[Attempt], given: Any, say: Say) -> Prepared:
    """Record the scenario of a cell from ratings, unless it was recorded before; else the given recording."""
    source = cell.task.source
    if source is None:
        transcript, truth = given
        return transcript, truth, ()
    say(f"{source.scenario}: recording")
    transcript, truth = recorded(
        cell.scratch[0],
        source.make(),
        given,
        rounds=source.rounds,
        users=source.users,
        defenses=source.defenses,
        seed=source.seed,
        train_on_received=source.train_on_received,
    )
    return transcript, truth, hidden_attributes(given, cell.task.infer, source.seed)


def _measure(cell: Cell[Attempt], prepared: Prepared, say: Say) -> tuple[list[Row], np.ndarray | None]:
    transcript, truth, hidden = prepared
    return rows_of(cell.task, transcript, truth, say, hidden=hidden)


def _failed(task: Attempt, error: Exception) -> list[Row]:
    return [failed_row(task.columns, error)]


def _unneeded(task: Attempt, rows: Sequence[Row]) -> str:
    return "" if task.exhaustive else not_needed(task.attack, rows)


PROCEDURE: Procedure[Attempt, Any, Prepared] = Procedure(_prepare, _measure, _failed, unneeded=_unneeded)


def rows_of(
    attempt: Attempt,
    transcript: Transcript,
    truth: Truth | None,
    say: Say,
    *,
    view: View | None = None,
    reference: Truth | None = None,
    limits: Mapping[str, Ceiling] | None = None,
    hidden: Sequence[Hidden | Communities] = (),
) -> tuple[list[Row], np.ndarray | None]:
    """Attack a recording, score the answer, and say how the attack fared, and with each client.

    ``view`` is what the adversary sees where that is not what was recorded, ``limits`` the highest reachable
    scores where they are known, ``reference`` what answers are held against where there is no truth,
    ``hidden`` the attributes that are inferred from the answer.
    ``seconds`` of each row is all that was spent for them, permutation replicates included.
    """
    start = time.perf_counter()
    view = view_of(transcript, attempt.adversary) if view is None else view
    if truth is not None and attempt.adversary.startswith(SYBILS):
        truth = truth.of(view.users)  # a guess about others is not one about ratings that Sybils invented
    if attempt.watched:
        view = view.during(np.array(attempt.watched))
    view = rows_of_others(view, attempt.attack)
    view = sampled(view, attempt.attack, attempt.sample, attempt.seed)
    answer = _answer(attempt, view, truth, say)
    if attempt.scores_alone and truth is not None:
        if limits is None and attempt.bounded and computable(view):
            limits = ceilings(view, truth)
        return metric_rows(attempt.columns, answer, view.manifest, truth, ceilings=limits), None
    scores: list[Score] = []
    rows = _rows(attempt, transcript, view, truth, answer, say, scores)
    if truth is None and reference is not None:
        rows += _agreement(attempt.columns, answer, view, reference)
    if hidden:
        say(f"{attempt.label}, inferring {', '.join(one.name for one in hidden)}")
        for one in hidden:
            scored = [as_record(score) for score in inference_scores(answer, view.manifest, one)]
            untold = [{"metric": f"{ACCURACY}/{one.name}", "verdict": NOT_TESTED, "reason": UNTOLD}]
            rows += [
                make_row(**attempt.columns, **row, status="ran") for row in scored or untold * answer.applies
            ]
    seconds = time.perf_counter() - start
    return [{**row, "seconds": seconds} for row in rows], client_table(answer, truth, scores)


def _answer(attempt: Attempt, view: View, truth: Truth | None, say: Say) -> Reconstruction:
    """What an attack reads of others, of the clients that there is truth of."""
    declared = attempt.seeded.declared
    expected = declared.cost.seconds(view.users.size, view.messages.n_rows)
    say(f"{attempt.label}, {lasting(expected)}" if expected > LONG else attempt.label)
    answer = attempt.seeded.run(
        view, lambda done, clients: say(f"{attempt.label}, {done} of {clients} clients")
    )
    if not (answer.obstacle and (declared.sums or declared.unsigned)):  # those say themselves what they lack
        answer = _without_own_clients(view, answer)
    of_sample = attempt.source is not None and attempt.source.users is not None
    if of_sample and truth is not None and answer.identities == Identities.CLIENTS:
        # a similarity server, say, knows something of clients who were not recorded, too
        answer = select_users(answer, np.intersect1d(answer.users, truth.users))
    return answer


def _rows(
    attempt: Attempt,
    transcript: Transcript,
    view: View,
    truth: Truth | None,
    answer: Reconstruction,
    say: Say,
    scores: list[Score],
) -> list[Row]:
    """The rows of an answer, held against what the attack recovers from permuted rows."""
    attack, manifest = attempt.seeded, transcript.manifest
    columns = {**attempt.columns, "bytes": _seen_bytes(view)}

    def on_replicate(done: int, times: int) -> None:
        say(f"{attempt.label}, {done} of {times} times on permuted rows")

    if truth is None:
        return claimed_rows(columns, attack, view, answer, on_replicate)
    null = shuffled_scores(attack, view, truth, answer)
    limited = attempt.bounded or manifest.withholds_ratings
    limits = ceilings(view, truth) if limited and computable(view) else None
    senders = senders_of(transcript, view) if answer.linked is not None else None

    def score(replicates: Replicates | None = None) -> list[Row]:
        return metric_rows(
            columns,
            answer,
            manifest,
            truth,
            shuffled=null,
            ceilings=limits,
            senders=senders,
            replicates=replicates,
            by_group=True,
            scored=scores.extend,
        )

    rows = score()
    undecided = _undecided(attempt, rows, answer)
    if n_replicates := _n_replicates(undecided, view, answer):
        rows = score(
            permutation_replicates(
                attack, view, answer, manifest, truth, undecided, n_replicates, on_replicate
            )
        )
    return [*rows, *_diagnostic_rows(columns, answer)]


def _agreement(columns: Row, answer: Reconstruction, view: View, reference: Truth) -> list[Row]:
    """How many answers about ratings are those of a reference, of its clients; that is no leak by itself."""
    common = np.intersect1d(answer.users, reference.users)
    if not answer.applies or answer.identities != Identities.CLIENTS or not common.size:
        return []
    scored = metric_rows(columns, select_users(answer, common), view.manifest, reference)
    about = "answers that are those of the undefended recording; there is no truth"
    return [
        {**row, "metric": AGREEMENT, "verdict": "", "reason": about}
        for row in scored
        if row["metric"] == "rated_rating_accuracy" and row["status"] == "ran"
    ]


def _undecided(attempt: Attempt, rows: list[Row], answer: Reconstruction) -> dict[str, int]:
    """Which metrics of few clients, and of how many, permuted rows may turn into a leak."""
    n_answered = answer.users.size - len(answer.abstained)
    few = answer.identities == Identities.CLIENTS and 0 < n_answered < FEWEST
    if not few or attempt.seeded.declared.per_client:
        return {}
    tested = (*ACCURACY_METRICS, *(RATED_SET_METRICS if n_answered >= FEWEST_LISTS else ()))
    return {
        row["metric"]: row["n_users"]
        for row in rows
        if row["metric"] in tested and row["verdict"] == INCONCLUSIVE and row["advantage_low"] > 0
    }


def _n_replicates(undecided: dict[str, int], view: View, answer: Reconstruction) -> int:
    """How often rows are permuted to test whether few clients leak; 0 where no number would do."""
    if not undecided:
        return 0
    n_answered = answer.users.size - len(answer.abstained)
    return replicates_of_scores(n_answered, answer.users.size, view.messages.n_rows, LEAK_LEVEL)


def _seen_bytes(view: View) -> int:
    """Bytes of the gradients that were attacked."""
    return int(view.messages.n_rows * view.manifest.factors * FLOAT_BYTES)


def _without_own_clients(view: View, answer: Reconstruction) -> Reconstruction:
    """The answer without what a client recovers from its own uploads, which is no leak."""
    if answer.identities == Identities.PSEUDONYMS or not answer.users.size:
        return answer
    others = ~np.isin(answer.users, view.members)
    obstacle = OWN_ROWS if view.adversary == "decrypter" else "" if others.any() else own_rows_alone(view)
    if obstacle:
        return all_abstain(answer.attack, answer.users, obstacle, answer.options)
    return answer if others.all() else select_users(answer, answer.users[others])


def _diagnostic_rows(columns: Row, answer: Reconstruction) -> list[Row]:
    """What an attack says of itself, mean over clients: convergence, time, share of the rows that it read."""
    rows = []
    for metric, name in DIAGNOSTICS.items():
        values = answer.diagnostics.get(name)
        if values is None or not values.size:
            continue
        rows.append(
            make_row(
                **columns,
                metric=metric,
                value=float(values.astype(np.float64).mean()),
                n_users=values.size,
                n_abstained=len(answer.abstained),
                status="ran",
            )
        )
    return rows
