"""The rows of a comparison's cell: leakage to each adversary, ranking quality, or cost of a round."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from audit.experiments import campaign
from audit.experiments.compare_cells import Asked, adapted
from audit.experiments.encryption import encrypts, standing_in
from audit.experiments.grid import Cell, Procedure, Say, only_ratings
from audit.experiments.metric_rows import HEADLINE, failed_row
from audit.experiments.results import Row, make_row
from audit.experiments.round_cost import cost_of
from audit.factories import make_defenses, make_victim
from audit.registry import entry
from audit.scoring.verdicts import NOT_TESTED
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.evaluation.ranking import ranked, trained
from victims.evaluation.ranking_cases import case
from victims.evaluation.ranks import constant, popular
from victims.evaluation.rating_error import errors, why_poor

QUALITY = "ndcg_at_10"
TIED = "ndcg_at_10/constant"  # of a predictor that says the same of every item
ERROR = "rmse"


def _measure(cell: Cell[Asked], ratings: Ratings, say: Say) -> list[Row]:
    task = cell.task
    say(f"{task.defense}: {task.question}")
    try:
        if task.question == "leakage":
            return _leakage(task, ratings, cell.scratch[0].parent)
        return _quality(task, ratings) if task.question == "quality" else _cost(task, ratings)
    except InputError as error:  # does not apply to this victim, say
        return [make_row(**task.columns(), metric=task.question, status="not applicable", reason=str(error))]


def _failed(task: Asked, error: Exception) -> list[Row]:
    if task.question == "leakage":
        return [
            failed_row({**task.columns(), "adversary": who}, error) for who in task.comparison.adversaries
        ]
    return [failed_row(task.columns(), error, task.question, verdict="")]


PROCEDURE = Procedure(only_ratings, _measure, _failed)


def _leakage(task: Asked, ratings: Ratings, folder: Path) -> list[Row]:
    """Every attack on every view of one recording."""
    twins = _twins(task)
    rows: list[Row] = []
    for adversary in task.comparison.adversaries:
        twin = twins.get(adversary)
        if twin in task.comparison.adversaries:
            rows += [{**row, "adversary": adversary} for row in rows if row["adversary"] == twin]
        else:
            rows += _read_by(adversary, task, ratings, folder)
    return [{**row, "defense": task.defense} for row in rows]


def _twins(task: Asked) -> dict[str, str]:
    """Who sees the same as another: on the wire lies what the server receives, and without encryption a
    client's key adds nothing to it.
    """
    if entry("victims", task.comparison.victim).serverless:
        return {}
    twins = {"eavesdropper": "server"}
    return twins if encrypts(task.defense) else {**twins, "server+client": "server"}


def _read_by(adversary: str, task: Asked, ratings: Ratings, folder: Path) -> list[Row]:
    """What one adversary reads; the recording is left for the next one."""
    plan, defense = task.comparison, standing_in(task.defense)
    one = campaign.Campaign(
        victim=plan.victim,
        data=plan.data,
        updates=(plan.update,),
        weightings=(plan.weighting,),
        attacks=tuple(attacker.name for attacker in adapted(plan, task.defense)),
        rounds=plan.rounds,
        adversary=adversary,
        seed=plan.seed,
        users=None if encrypts(task.defense) else plan.users,
        defenses=tuple(defense.split("+")) if defense else (),
        victim_options=plan.victim_options,
    )
    try:
        return campaign.run(one, ratings, folder, keep_transcripts=True)
    except InputError as error:  # nobody decrypts under this defense, say
        # rows are the same wherever they are kept
        reason = re.sub(re.escape(str(folder)) + r"[^\s,;:]*", "its manifest", str(error))
        status = {"status": "not applicable", "verdict": NOT_TESTED, "reason": reason}
        return [make_row(**task.columns(), adversary=adversary, metric=HEADLINE, **status)]


def _quality(task: Asked, ratings: Ratings) -> list[Row]:
    """Of known users: items ranked, beside popularity, and ratings predicted, beside the training mean.

    Both ends of either axis are measured with it: no defense is a cell of its own, and what a constant
    predictor does stands beside (its ranking) or is the baseline (its error).
    """
    plan = task.comparison
    chosen = case("existing", ratings, task.seed)
    victim: Any = make_victim(plan.victim, plan.options)
    defenses = make_defenses(standing_in(task.defense) or "none")
    run = trained(victim, chosen, rounds=plan.trained, defenses=defenses, seed=task.seed)
    found, guess, tied = (
        every["rated"]
        for every in (ranked(run, chosen), popular(chosen, task.seed), constant(chosen, task.seed))
    )
    numbers = [
        (QUALITY if name == "ndcg" else name, value, beside, "popularity")
        for name, value, beside in zip(found._fields, found, guess, strict=True)
    ]
    own, mean = errors(run, chosen.train, chosen.test)
    numbers.append((TIED, tied.ndcg, guess.ndcg, "popularity"))
    numbers.append((ERROR, own, mean, "training mean"))
    return [
        make_row(
            **task.columns(),
            metric=metric,
            rounds=plan.trained,
            value=value,
            baseline=beside,
            baseline_name=name,
            status="ran",
            reason=why_poor(own, mean, victim.centralised) if metric == ERROR else "",
        )
        for metric, value, beside, name in numbers
    ]


def _cost(task: Asked, ratings: Ratings) -> list[Row]:
    """Seconds and bytes of a client in one round."""
    plan = task.comparison
    victim: Any = make_victim(plan.victim, plan.options)
    found = cost_of(victim, ratings, make_defenses(task.defense), plan.seed)
    return [
        make_row(**task.columns(), metric=metric, value=value, rounds=1, status="ran", reason=found.note)
        for metric, value in found.metrics().items()
    ]
