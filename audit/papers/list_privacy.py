"""Which items clients rated, read from encrypted uploads, against what hiding them costs.

Behind ``papers lists``. Chai et al. 2021 (arXiv:1906.05108) leaves open what lies between its PartText, whose
lists are the rated items, and its FullText, which sends a row for every item (section 7: "more gradients than
only the rated items, but not all the items"). Here clients send rows of zeros about sampled unrated items
(``defenses.unrated_sampling``), drawn anew in each round or once.

A cell is one way of hiding. What the server reads of the lists is ``rated-set`` on the first rounds of one
recording with ideal encryption and a single factor, for lists hang on neither; what a round costs is measured
with the real cryptosystem and all factors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from attacks.closed_form.lists.rated_set import RatedSet
from audit.code_identity import code_used
from audit.experiments.cells import Cell, Procedure, Say, cell_path, content_of
from audit.experiments.options import check, each_once, refuse_said_elsewhere
from audit.experiments.recordings import Recorded, files_of, recorded
from audit.experiments.results import Row, make_row
from audit.experiments.round_cost import cost_of
from audit.experiments.rows import failed_row, metric_rows
from audit.experiments.runner import Experiment
from audit.factories import make_defense, make_defenses, make_victim
from audit.keys import view_of
from audit.papers.plans import Lists
from victims.data.ratings import Ratings

THING = "a study of lists"
VICTIM, ATTACK, SERVER = "fedmf", "rated-set", "server"
READ = ("rated_set_auc", "rated_set_f1")
STAND_IN = "paillier:ideal=true"


class Hiding(NamedTuple):
    """The task of a cell: one way of hiding, as the defense that does it and the upload that it needs."""

    plan: Lists
    defense: str
    upload: str = "part-text"

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.upload if self.defense == "none" else self.defense

    @property
    def rounds(self) -> int:
        """How many rounds tell more than the first: of lists that stay the same none does."""
        return max(self.plan.rounds) if self.defense != "none" else 1

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        return {
            "victim": VICTIM,
            "update": "sgd",
            "weighting": "observed-only",
            "data": self.plan.data,
            "defense": self.label,
            "adversary": SERVER,
            "attack": ATTACK,
            "seed": self.plan.seed,
        }


def settled(plan: Lists) -> Lists:
    """Check every value of a plan."""
    check(plan, THING)
    refuse_said_elsewhere(THING, plan.victim_options, upload="the ways of hiding, which are compared")
    make_victim(VICTIM, plan.victim_options)
    make_defense(_encryption(plan))
    for rho in plan.rhos:
        make_defense(f"unrated-sampling:rho={rho:g}")
    return replace(plan, rhos=each_once(plan.rhos), rounds=each_once(plan.rounds))


def cells_of(plan: Lists, ratings: Ratings, directory: Path) -> list[Cell[Hiding]]:
    """List the cells of a plan: part-text, samples, and full-text."""
    content = content_of(ratings)
    sampled = [f"unrated-sampling:rho={rho:g}{once}" for rho in plan.rhos for once in ("", ",redrawn=false")]
    tasks = [Hiding(plan, "none"), *(Hiding(plan, one) for one in sampled), Hiding(plan, "none", "full-text")]
    return [_cell(task, content, directory) for task in tasks]


def _encryption(plan: Lists) -> str:
    return f"paillier:key_bits={plan.key_bits}"


def _cell(task: Hiding, content: str, directory: Path) -> Cell[Hiding]:
    readable = "".join(c if c.isalnum() or c in "-.=" else "_" for c in task.label)
    identity = {
        "code": code_used(VICTIM, [task.defense, STAND_IN], [ATTACK]),
        "plan": {**task.plan.__dict__, "rhos": (), "data": ""},
        "hiding": (task.defense, task.upload),
        "ratings": content,
    }
    path = cell_path(directory, readable, identity)
    return Cell(task, path, files_of(directory / "transcripts" / path.stem))


def _record(cell: Cell[Hiding], ratings: Ratings, say: Say) -> tuple[Recorded, Ratings]:
    task = cell.task
    say(f"{task.label}: recording")
    options = {**task.plan.victim_options, "upload": task.upload, "factors": "1"}
    defenses = [STAND_IN] if task.defense == "none" else [task.defense, STAND_IN]
    found = recorded(
        cell.scratch[0],
        make_victim(VICTIM, options),
        ratings,
        rounds=range(task.rounds),
        users=None,
        defenses=defenses,
        seed=task.plan.seed,
    )
    return found, ratings


def _measure(cell: Cell[Hiding], given: tuple[Recorded, Ratings], say: Say) -> list[Row]:
    task, ((transcript, truth), ratings) = cell.task, given
    view = view_of(transcript, SERVER)
    rows = []
    for watched in sorted(set(task.plan.rounds)):
        say(f"{task.label}: {watched} rounds")
        answer = RatedSet().attack(view.during(range(min(watched, task.rounds))), task.plan.seed)
        columns = {**task.columns(), "rounds": watched}
        rows += metric_rows(columns, answer, transcript.manifest, truth)
    say(f"{task.label}: cost of a round")
    victim: Any = make_victim(VICTIM, {**task.plan.victim_options, "upload": task.upload})
    defenses = [*make_defenses(task.defense), *make_defenses(_encryption(task.plan))]
    found = cost_of(victim, ratings, defenses, task.plan.seed, sample=task.plan.sample)
    return rows + [
        make_row(**task.columns(), metric=metric, value=value, rounds=1, status="ran", reason=found.note)
        for metric, value in found.metrics().items()
    ]


def _failed(task: Hiding, error: Exception) -> list[Row]:
    return [failed_row(task.columns(), error, READ[0])]


EXPERIMENT = Experiment(settled, cells_of, Procedure(_record, _measure, _failed))
run = EXPERIMENT.run
