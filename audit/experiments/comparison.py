"""Defenses side by side: what each adversary reads, how well the recommender ranks, and what it costs.

Behind ``factorleak compare``. Cells are, of each defense, its leakage, its cost, and its ranking quality.
What encryption leaks is measured with the ideal stand-in, which shows the same views and numbers; what it
costs, with the real cryptosystem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from audit.code_identity import code_used
from audit.experiments import attack_cells
from audit.experiments.attack_cells import PROCEDURE, Source, attempts_on
from audit.experiments.cells import Cell, Procedure, Say, cell_path, content_of, only_ratings
from audit.experiments.options import check, each_once, refuse_too_many
from audit.experiments.plan import Comparison
from audit.experiments.recordings import receives_uploads, uploads_name_lists
from audit.experiments.results import Row, make_row
from audit.experiments.round_cost import cost_of
from audit.experiments.rows import HEADLINE, among, failed_row, open_row
from audit.experiments.runner import Experiment, run_grid
from audit.experiments.scenarios import (
    active_server,
    attacks_of,
    check_adversary,
    check_numbered,
    encrypts,
    obstacle_of,
    one_scenario,
    shows_sums_alone,
    standing_in,
    with_budget,
)
from audit.factories import attackers_of, make_attack, make_defenses
from audit.registry import entry
from audit.scoring.verdicts import NOT_TESTED
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.evaluation.ranking import case, constant, popular, ranked, readings_of, trained
from victims.evaluation.rating_error import errors, why_poor
from victims.protocols.base import Attacker
from victims.recording import manifest_of
from victims.training import as_read

ADVERSARIES = ("server", "server+client", "decrypter", "eavesdropper", "item-server")
PEERS = ("neighbour:0", "neighbours:0,1,2", "helper", "eavesdropper")  # where there is no server
Question = Literal["leakage", "cost", "quality"]
QUALITY = "ndcg_at_10"
TIED = "ndcg_at_10/constant"  # of a predictor that says the same of every item
ERROR = "rmse"
OF_ALL = "among all items that were not trained on: it predicts no ratings"
FEWEST = 2  # rounds that are watched at least, where nothing else is said


def settled(comparison: Comparison) -> Comparison:
    """Choose scenario, adversaries and rounds of a comparison where none are named, and check every name."""
    if not comparison.defenses:
        raise InputError("a comparison must have a defense at least; name none, laplace:b=2 or privmvmf, say")
    check(comparison, "a comparison")
    chosen = one_scenario(
        comparison.victim, comparison.update, comparison.weighting, comparison.victim_options
    )
    comparison = replace(
        comparison,
        update=chosen.update,
        weighting=chosen.weighting,
        victim_options=chosen.options,
        defenses=each_once(comparison.defenses),
        adversaries=each_once(comparison.adversaries) or usual_adversaries(comparison.victim),
        attacks=each_once(comparison.attacks),
        rounds=tuple(sorted(set(map(int, comparison.rounds)))),
    )
    refuse_too_many("a comparison", defenses=comparison.defenses, questions=range(2 + comparison.runs))
    for name in comparison.attacks:
        make_attack(name)
    for name in comparison.adversaries:
        check_adversary(name)
        check_numbered(name)
    needed = [attacker.rounds for text in comparison.defenses for attacker in adapted(comparison, text)]
    rounds = comparison.rounds or tuple(range(max(FEWEST, *needed)))
    return replace(comparison, rounds=rounds)


def short_of_rounds(comparison: Comparison) -> list[str]:
    """Say where fewer rounds are watched than an adapted attack uses."""
    comparison = settled(comparison)
    rounds = np.array(comparison.rounds)
    longest = max(run.size for run in np.split(rounds, np.flatnonzero(np.diff(rounds) != 1) + 1))
    return [
        f"{text}: {attacker.name} uses {attacker.rounds} consecutive rounds, {longest} are watched"
        for text in comparison.defenses
        for attacker in adapted(comparison, text)
        if attacker.rounds > longest
    ]


def open_rows(plan: Comparison, ratings: Ratings, rows: list[Row]) -> list[Row]:
    """Make a row for each defense under which, and adversary to whom, uploads name the rated items."""
    if plan.weighting != "observed-only":
        return []
    manifest = manifest_of(source_of(plan).make(), ratings, list(plan.rounds))
    columns = {**source_of(plan).columns, "data": plan.data, "rounds": len(plan.rounds), "seed": plan.seed}
    named = [
        open_row(**{**columns, "defense": text, "adversary": adversary})
        for text in plan.defenses
        if uploads_name_lists(manifest, make_defenses(text))
        and not obstacle_of(plan.victim, source_of(plan).every_option, text)
        for adversary in plan.adversaries
        if receives_uploads(adversary)
    ]
    return among(named, rows)


def source_of(plan: Comparison, defense: str = "none") -> Source:
    """What is recorded under a defense, with a stand-in for encryption."""
    bare = standing_in(defense)
    return Source(
        plan.victim,
        plan.victim_options,
        plan.update,
        plan.weighting,
        rounds=plan.rounds,
        users=None if shows_sums_alone(plan.victim, defense) else plan.users,
        defenses=tuple(bare.split("+")) if bare else (),
        seed=plan.seed,
    )


def usual_adversaries(victim: str) -> tuple[str, ...]:
    """Choose whose views are tried where nobody is named."""
    return PEERS if entry("victims", victim).serverless else ADVERSARIES


def adapted(comparison: Comparison, defense: str) -> tuple[Attacker, ...]:
    """List the attacks that one defense meets."""
    declared = attackers_of(comparison.victim, source_of(comparison).every_option, defense)
    if not comparison.attacks:
        return declared
    rounds = {attacker.name: attacker.rounds for attacker in declared}
    return tuple(Attacker(name, rounds.get(name, 1)) for name in comparison.attacks)


@dataclass(frozen=True)
class Asked:
    """The task of a cell: a question about a defense; ``run`` numbers the seeds of the ranking."""

    plan: Comparison
    defense: str
    question: Question
    run: int = 0

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self.plan.seed + self.run

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        columns = source_of(self.plan).columns
        return {**columns, "data": self.plan.data, "defense": self.defense, "seed": self.seed}


def cells_of(comparison: Comparison, ratings: Ratings, directory: Path) -> list[Cell[Asked]]:
    """List the cells of a comparison."""
    content = content_of(ratings)
    tasks = [
        task
        for defense in comparison.defenses
        for task in (
            Asked(comparison, defense, "leakage"),
            Asked(comparison, defense, "cost"),
            *(Asked(comparison, defense, "quality", run) for run in range(comparison.runs)),
        )
    ]
    options = source_of(comparison).every_option
    obstacles = {defense: obstacle_of(comparison.victim, options, defense) for defense in comparison.defenses}
    return [replace(_cell(task, content, directory), obstacle=obstacles[task.defense]) for task in tasks]


def _cell(task: Asked, content: str, directory: Path) -> Cell[Asked]:
    readable = "".join(c if c.isalnum() or c in "-.=" else "_" for c in task.defense)[:60]
    path = cell_path(directory, f"{readable}-{task.question}-{task.run}", _identity(task, content))
    sealed = " encrypted" if encrypts(task.defense) else ""
    kind = f"{task.plan.victim} on {task.plan.data}: {task.question}{sealed}"
    if task.question != "leakage":
        return Cell(task, path, kind=kind)
    # the rows of attacks that ended are kept beside the recordings
    return Cell(task, path, (directory / "leakage" / path.stem / "transcripts",), kind, resumable=True)


def _identity(task: Asked, content: str) -> dict[str, Any]:
    """Everything that determines the rows: of the plan what the question depends on."""
    plan = task.plan
    irrelevant: dict[str, Any] = {"defenses": (), "runs": 0, "data": ""}
    if task.question != "quality":
        irrelevant |= {"trained": 0}
    if task.question != "leakage":
        irrelevant |= {"adversaries": (), "attacks": (), "rounds": (), "users": 0}
    attacks = [attacker.name for attacker in adapted(plan, task.defense)]
    return {
        "code": code_used(plan.victim, [task.defense], attacks),
        "plan": replace(plan, **irrelevant).__dict__,
        "ratings": content,
        "cell": (task.defense, task.question, task.run),
    }


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
        return [failed_row({**task.columns(), "adversary": who}, error) for who in task.plan.adversaries]
    return [failed_row(task.columns(), error, task.question, verdict="")]


def _leakage(task: Asked, ratings: Ratings, folder: Path) -> list[Row]:
    """Every attack on every view of one recording."""
    twins = _twins(task)
    rows: list[Row] = []
    for adversary in task.plan.adversaries:
        twin = twins.get(adversary)
        if twin in task.plan.adversaries:
            rows += [{**row, "adversary": adversary} for row in rows if row["adversary"] == twin]
        else:
            rows += _read_by(adversary, task, ratings, folder)
    return [{**row, "defense": task.defense} for row in rows]


def _twins(task: Asked) -> dict[str, str]:
    """Who sees the same as another: on the wire lies what the server receives, where it does not add up
    rows by itself, and without encryption a client's key adds nothing to it.
    """
    if entry("victims", task.plan.victim).serverless:
        return {}
    if encrypts(task.defense):
        return {"eavesdropper": "server"}
    with_client = {"server+client": "server"}
    if shows_sums_alone(task.plan.victim, task.defense):
        return with_client
    return {"eavesdropper": "server", **with_client}


def _read_by(adversary: str, task: Asked, ratings: Ratings, folder: Path) -> list[Row]:
    """What one adversary reads; the recording is left for the next one."""
    plan, source = task.plan, source_of(task.plan, task.defense)
    adapted_ones = (attacker.name for attacker in adapted(plan, task.defense))
    try:
        adversary = with_budget(plan.victim, adversary)
        source = replace(source, server=active_server(adversary))
        attacks = each_once((*attacks_of(adversary), *adapted_ones))
        cells = attack_cells.cells_of(
            attempts_on(source, attacks, adversary, plan.data), content_of(ratings), folder
        )
        return run_grid(cells, PROCEDURE, ratings, folder, keep_scratch=True)
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
    plan = task.plan
    victim: Any = source_of(plan).make()
    chosen = case("existing", as_read(victim, ratings), task.seed)
    defenses = make_defenses(standing_in(task.defense) or "none")
    run = trained(victim, chosen, rounds=plan.trained, defenses=defenses, seed=task.seed)
    reading, implicit = readings_of(victim)[0], victim.capabilities.implicit
    found, guess, tied = (
        every[reading]
        for every in (ranked(run, chosen), popular(chosen, task.seed), constant(chosen, task.seed))
    )
    numbers = [
        (QUALITY if name == "ndcg" else name, value, beside, "popularity")
        for name, value, beside in zip(found._fields, found, guess, strict=True)
    ]
    numbers.append((TIED, tied.ndcg, guess.ndcg, "popularity"))
    reasons = {}
    if not implicit:
        own, mean = errors(run, chosen.train, chosen.test)
        numbers.append((ERROR, own, mean, "training mean"))
        reasons = {ERROR: why_poor(own, mean, victim.capabilities.centralised)}
    return [
        make_row(
            **task.columns(),
            metric=metric,
            rounds=plan.trained,
            value=value,
            baseline=beside,
            baseline_name=name,
            status="ran",
            reason=reasons.get(metric, OF_ALL if implicit else ""),
        )
        for metric, value, beside, name in numbers
    ]


def _cost(task: Asked, ratings: Ratings) -> list[Row]:
    """Seconds and bytes of a client in one round."""
    plan = task.plan
    victim: Any = source_of(plan).make()
    found = cost_of(victim, ratings, make_defenses(task.defense), plan.seed)
    return [
        make_row(**task.columns(), metric=metric, value=value, rounds=1, status="ran", reason=found.note)
        for metric, value in found.metrics().items()
    ]


EXPERIMENT = Experiment(settled, cells_of, Procedure(only_ratings, _measure, _failed), open_rows)
run = EXPERIMENT.run
