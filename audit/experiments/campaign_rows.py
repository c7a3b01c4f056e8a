"""The rows of a campaign's cell: record the scenario, attack what the adversary sees, score the answer."""

from __future__ import annotations

import time

import numpy as np

from attacks.base import Identities, Reconstruction, all_abstain
from audit.experiments.answers import answered
from audit.experiments.campaign_cells import AttackedScenario
from audit.experiments.grid import Cell, Procedure, Say
from audit.experiments.metric_rows import failed_row, metric_rows
from audit.experiments.recordings import Recorded, recorded, sampled
from audit.experiments.results import Row, make_row
from audit.experiments.shuffled_null import shuffled_scores
from audit.keys import view_of
from audit.scoring.ceiling import ceilings, computable
from audit.scoring.score import Ceiling
from audit.scoring.truth import Truth
from victims.data.ratings import Ratings
from victims.transcript.view import View

FLOAT_BYTES = 8
DIAGNOSTICS = {  # metric -> what an attack says of itself, client by client
    "solver_success_rate": "converged",
    "seconds_per_user": "seconds",
    "share_of_rows_read": "read",
}


def record_scenario(cell: Cell[AttackedScenario], ratings: Ratings, say: Say) -> Recorded:
    """Record the scenario of a cell, unless it was before."""
    task = cell.task
    campaign = task.campaign
    say(f"{task.scenario}: recording")
    return recorded(
        cell.scratch[0],
        campaign.victim_of(task.update, task.weighting),
        ratings,
        rounds=campaign.rounds,
        users=campaign.users,
        defenses=campaign.defenses,
        seed=campaign.seed,
    )


def attack_scenario(cell: Cell[AttackedScenario], recording: Recorded, say: Say) -> list[Row]:
    """Attack a recording, score the answer, and say how the attack fared."""
    task = cell.task
    campaign = task.campaign
    label = f"{task.scenario}: {task.attack}"
    say(label)
    view = view_of(recording.transcript, campaign.adversary)
    view = sampled(view, task.attack, campaign.sample, campaign.seed)
    start = time.perf_counter()
    answer = answered(
        task.attack,
        task.options,
        view,
        campaign.seed,
        lambda done, clients: say(f"{label}, {done} of {clients} clients"),
    )
    seconds = time.perf_counter() - start
    answer = _of_others(campaign.adversary, answer)
    columns = {**task.columns(), "seconds": seconds, "bytes": _seen_bytes(view)}
    null = shuffled_scores(task.attack, task.options, campaign.seed, view, recording.truth, answer)
    limits = _ceilings(task, view, recording.truth)
    manifest = recording.transcript.manifest
    rows = metric_rows(columns, answer, manifest, recording.truth, shuffled=null, ceilings=limits)
    return [*rows, *_diagnostic_rows(columns, answer)]


def failed_scenario(task: AttackedScenario, error: Exception) -> list[Row]:
    """Make the row of an attack that failed, or whose scenario could not be recorded."""
    return [failed_row(task.columns(), error)]


PROCEDURE = Procedure(record_scenario, attack_scenario, failed_scenario, resumable=True)


def _seen_bytes(view: View) -> int:
    """Bytes of the gradients that were attacked."""
    return int(view.messages.n_rows * view.manifest.factors * FLOAT_BYTES)


def _ceilings(task: AttackedScenario, view: View, truth: Truth) -> dict[str, Ceiling] | None:
    if not (task.campaign.defenses and computable(view)):
        return None
    return ceilings(view, truth)


def _of_others(adversary: str, answer: Reconstruction) -> Reconstruction:
    """The answer without what a client reads of its own uploads, which is no leak."""
    alone = adversary.startswith("client:") or adversary == "decrypter"
    if not alone or answer.identities == Identities.PSEUDONYMS:
        return answer
    reason = "the adversary is a client and receives nobody else's uploads"
    return all_abstain(answer.attack, answer.users, reason, answer.options)


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
