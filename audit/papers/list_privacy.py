"""Which items clients rated, read from encrypted uploads, against what hiding them costs.

Behind ``papers lists``. Paper 001 (arXiv:1906.05108) leaves open what lies between its PartText, whose
lists are the rated items, and its FullText, which sends a row for every item (section 7: "more gradients than
only the rated items, but not all the items"). Here clients send rows of zeros about sampled unrated items
(``defenses.selection.unrated_sampling``), drawn anew in each round or once.

A cell is one way of hiding. What the server reads of the lists is ``rated-set`` on the first rounds of one
recording with ideal encryption and a single factor, for lists hang on neither; what a round costs is measured
with the real cryptosystem and all factors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from attacks.closed_form.lists.rated_set import RatedSet
from audit.code_identity import code_used
from audit.experiments.cache import cell_path, content_of
from audit.experiments.grid import Cell, Procedure, Report, Say, silent
from audit.experiments.recordings import Recorded, files_of, recorded
from audit.experiments.results import Row, make_row
from audit.experiments.round_cost import SAMPLE_ROWS, cost_of
from audit.experiments.rows import failed_row, metric_rows
from audit.experiments.runner import run_grid
from audit.factories import make_defense, make_defenses, make_victim
from audit.keys import view_of
from victims.common.errors import InputError
from victims.data.ratings import Ratings

VICTIM, ATTACK, SERVER = "fedmf", "rated-set", "server"
READ = ("rated_set_auc", "rated_set_f1")
STAND_IN = "paillier:ideal=true"


@dataclass(frozen=True)
class Plan:
    """What is hidden how, and how long it is watched."""

    data: str = "synthetic"
    # sampled unrated items per rated one, > 0; part-text and full-text are always beside them
    rhos: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    rounds: tuple[int, ...] = (1, 2, 5, 10)  # numbers of rounds that the server watches, each >= 1
    key_bits: int = 1024  # of the real encryption, whose cost is measured
    victim_options: dict[str, Any] = field(default_factory=dict)
    sample: int = SAMPLE_ROWS  # rows whose cost is measured; as everywhere
    seed: int = 0  # rows whose cost is measured; as everywhere


class Hiding(NamedTuple):
    """The task of a cell: one way of hiding, as the defense that does it and the upload that it needs."""

    plan: Plan
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


def run(
    plan: Plan, ratings: Ratings, directory: Path, *, jobs: int = -1, report: Report = silent
) -> list[Row]:
    """Run every cell that is not there yet and write the result files."""
    if not plan.rounds or min(plan.rounds) < 1:
        raise InputError(f"--rounds must be numbers of rounds >= 1, got {plan.rounds!r:.80}")
    if "upload" in plan.victim_options:
        raise InputError("upload is what this command varies; leave --set upload out")
    make_victim(VICTIM, plan.victim_options)
    make_defense(_encryption(plan))
    tasks = _tasks(plan)
    for task in tasks:
        make_defenses(task.defense)
    content = content_of(ratings)
    cells = [_cell(task, content, directory) for task in tasks]
    return run_grid(cells, PROCEDURE, ratings, directory, jobs=jobs, report=report)


def _tasks(plan: Plan) -> list[Hiding]:
    sampled = [
        Hiding(plan, f"unrated-sampling:rho={rho:g}{once}")
        for rho in plan.rhos
        for once in ("", ",redrawn=false")
    ]
    return [Hiding(plan, "none"), *sampled, Hiding(plan, "none", "full-text")]


def _encryption(plan: Plan) -> str:
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


PROCEDURE = Procedure(_record, _measure, _failed)
