"""The rows of one attack on one recording: what it reads beside the truth, or, without it, what it claims."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from attacks.base import OPTIONAL, Identities, Reconstruction, all_abstain
from attacks.obstacles import nothing_received
from audit.experiments.answers import answered
from audit.experiments.grid import Say
from audit.experiments.permuted import dealt_values, shuffled_scores
from audit.experiments.recordings import sampled
from audit.experiments.results import Row, make_row
from audit.experiments.rows import claimed_rows, metric_rows
from audit.keys import view_of
from audit.registry import entry
from audit.scoring.decoder import ceilings, computable
from audit.scoring.metrics import DIFFERENCES, RATED_SET_METRICS, SIZES
from audit.scoring.nulls import FEWEST_LISTS, replicates_of_scores
from audit.scoring.pseudonyms import senders_of
from audit.scoring.statistics import FEWEST, LEAK_LEVEL
from audit.scoring.truth import Truth
from audit.scoring.verdicts import INCONCLUSIVE
from audit.shell.progress import lasting
from victims.transcript.recorded import Transcript
from victims.transcript.view import View

FLOAT_BYTES = 8
TOLD = 5.0  # seconds, from which on it is told how long an attack is expected to take
OWN_ROWS = "the adversary is a client and receives nobody else's uploads"
BY_RATINGS = ("rating_accuracy", "rated_rating_accuracy", DIFFERENCES, SIZES)
DIAGNOSTICS = {  # metric -> what an attack says of itself, client by client
    "solver_success_rate": "converged",
    "seconds_per_user": "seconds",
    "share_of_rows_read": "read",
}


@dataclass(frozen=True)
class Attempt:
    """One attack by one adversary."""

    attack: str
    adversary: str
    options: dict[str, Any] = field(default_factory=dict)  # of the attack
    sample: int = 20  # clients for attacks that solve client by client
    seed: int = 0
    label: str = ""  # what a person recognizes it by
    # the truth is of the clients that were recorded, and the adversary may be told something of others, too
    # (a helper is): answers about those are left out
    of_sample: bool = False


def rows_of(
    attempt: Attempt,
    columns: Row,
    transcript: Transcript,
    truth: Truth | None,
    say: Say,
    *,
    with_ceilings: bool = False,
) -> list[Row]:
    """Attack a recording, score the answer, and say how the attack fared.

    ``seconds`` of each row is all that was spent for them, permutation replicates included.
    """
    start = time.perf_counter()
    rows = _made(attempt, columns, transcript, truth, say, with_ceilings)
    seconds = time.perf_counter() - start
    return [{**row, "seconds": seconds} for row in rows]


def _made(
    attempt: Attempt,
    columns: Row,
    transcript: Transcript,
    truth: Truth | None,
    say: Say,
    with_ceilings: bool,
) -> list[Row]:
    """The rows without their seconds."""
    view = rows_of_others(view_of(transcript, attempt.adversary), attempt.attack)
    view = sampled(view, attempt.attack, attempt.sample, attempt.seed)
    expected = entry("attacks", attempt.attack).cost.seconds(view.users.size, view.messages.n_rows)
    say(f"{attempt.label}, {lasting(expected)}" if expected > TOLD else attempt.label)
    answer = answered(
        attempt.attack,
        attempt.options,
        view,
        attempt.seed,
        lambda done, clients: say(f"{attempt.label}, {done} of {clients} clients"),
    )
    what = entry("attacks", attempt.attack)
    if not (answer.obstacle and (what.sums or what.unsigned)):  # those say themselves what they lack
        answer = _of_others(view, answer)
    columns = {**columns, "bytes": _seen_bytes(view)}
    if attempt.of_sample and truth is not None and answer.identities == Identities.CLIENTS:
        answer = _of_users(answer, np.intersect1d(answer.users, truth.users))

    def on_dealt_rows(done: int, times: int) -> None:
        say(f"{attempt.label}, {done} of {times} times on dealt rows")

    if truth is None:
        return claimed_rows(
            columns, attempt.attack, attempt.options, attempt.seed, view, answer, on_dealt_rows
        )
    null = shuffled_scores(attempt.attack, attempt.options, attempt.seed, view, truth, answer)
    wanted = with_ceilings or transcript.manifest.withholds_ratings
    limits = ceilings(view, truth) if wanted and computable(view) else None
    who = senders_of(transcript, view) if answer.linked is not None else None
    score = partial(
        metric_rows,
        columns,
        answer,
        transcript.manifest,
        truth,
        shuffled=null,
        ceilings=limits,
        senders=who,
        by_group=True,
    )
    rows = score()
    tellable = _tellable(attempt, rows, answer)
    if n_dealings := _dealings(tellable, view, answer):
        dealt = dealt_values(
            attempt.attack,
            attempt.options,
            attempt.seed,
            view,
            answer,
            transcript.manifest,
            truth,
            tellable,
            n_dealings,
            on_dealt_rows,
        )
        rows = score(dealt=dealt)
    return [*rows, *_diagnostic_rows(columns, answer)]


def _tellable(attempt: Attempt, rows: list[Row], answer: Reconstruction) -> dict[str, int]:
    """Which metrics of few clients, and of how many, dealt rows may turn into a leak."""
    n_read = answer.users.size - len(answer.abstained)
    few = answer.identities == Identities.CLIENTS and 0 < n_read < FEWEST
    if not few or entry("attacks", attempt.attack).per_client:
        return {}
    asked = (*BY_RATINGS, *(RATED_SET_METRICS if n_read >= FEWEST_LISTS else ()))
    return {
        row["metric"]: row["n_users"]
        for row in rows
        if row["metric"] in asked and row["verdict"] == INCONCLUSIVE and row["advantage_low"] > 0
    }


def _dealings(tellable: dict[str, int], view: View, answer: Reconstruction) -> int:
    """How often rows are dealt out to tell whether few clients are read; 0 where no dealing would."""
    if not tellable:
        return 0
    n_read = answer.users.size - len(answer.abstained)
    return replicates_of_scores(n_read, answer.users.size, view.messages.n_rows, LEAK_LEVEL)


def _seen_bytes(view: View) -> int:
    """Bytes of the gradients that were attacked."""
    return int(view.messages.n_rows * view.manifest.factors * FLOAT_BYTES)


def rows_of_others(view: View, attack: str) -> View:
    """Leave out what a client itself uploaded, where it receives rows of others and the attack takes any."""
    others = users_of_others(view)
    whole = others.size in (0, view.users.size) or entry("attacks", attack).whole
    return view if whole else view.select(others)


def users_of_others(view: View) -> np.ndarray:
    """Clients whose uploads an adversary receives, without itself."""
    return view.users[~np.isin(view.users, view.members)]


def own_rows_alone(view: View) -> str:
    """Say that a client receives nothing of others, or nothing."""
    if not view.members or not view.users.size or users_of_others(view).size:
        return ""
    return f"beside its own uploads, {nothing_received(view)}" if view.anonymous_rows else OWN_ROWS


def _of_others(view: View, answer: Reconstruction) -> Reconstruction:
    """The answer without what a client reads of its own uploads, which is no leak."""
    if answer.identities == Identities.PSEUDONYMS or not answer.users.size:
        return answer
    others = ~np.isin(answer.users, view.members)
    nobody = OWN_ROWS if view.adversary == "decrypter" else "" if others.any() else own_rows_alone(view)
    if nobody:
        return all_abstain(answer.attack, answer.users, nobody, answer.options)
    return answer if others.all() else _of_users(answer, answer.users[others])


def _of_users(answer: Reconstruction, users: np.ndarray) -> Reconstruction:
    """The answers about some of the clients."""
    blocks = []
    for block in answer.blocks:
        keep = np.isin(block.users, users)
        given = {name: part[keep] for name in OPTIONAL if (part := getattr(block, name)) is not None}
        kind, index = (part[keep] if part.shape[0] > 1 else part for part in (block.kind, block.index))
        chosen = replace(block, users=block.users[keep], kind=kind, index=index, value=block.value[keep])
        blocks += [replace(chosen, **given)] if keep.any() else []
    kept = np.isin(answer.users, users)
    return replace(
        answer,
        users=answer.users[kept],
        blocks=tuple(blocks),
        abstained={user: reason for user, reason in answer.abstained.items() if user in set(users.tolist())},
        diagnostics={name: values[kept] for name, values in answer.diagnostics.items()},
        factors=None if answer.factors is None else answer.factors.of(users),
    )


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
