"""What shows of a user-level guarantee of noise on sums: a lower bound of epsilon beside what is proved.

The victim is trained again and again under its defense, in half of the runs without the rows of one client
(``user_level``). Who tells the runs apart sees all sums and knows what others send, so that a few of the
clients are enough.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from audit.accounts import accounts_of
from audit.code_identity import code_used
from audit.experiments.attack_cells import Source
from audit.experiments.cells import Cell, Procedure, Say, cell_path, only_ratings
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row
from audit.experiments.user_level import Trial, bound_of, craft
from audit.factories import make_defenses
from audit.scoring.verdicts import BOUND, refuted
from defenses.central_noise import CentralNoise
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.subsets import of_users
from victims.training import obstacle
from victims.transcript.manifest import AGREEMENTS

ADVERSARY, ATTACK = "sums", "neighbours"
MOST_CLIENTS = 60


@dataclass(frozen=True)
class Trials:
    """The task of a cell: one scenario, and how often it is trained with the client and without."""

    source: Source
    runs: int
    data: str

    @property
    def columns(self) -> Row:
        """Columns that all rows have in common."""
        rounds = max(self.source.rounds) + 1
        return {**self.source.columns, "data": self.data, "adversary": ADVERSARY, "rounds": rounds,
                "seed": self.source.seed, "attack": ATTACK}  # fmt: skip


def central(defenses: tuple[str, ...]) -> CentralNoise:
    """The one defense whose guarantee is tried."""
    made = [one for one in make_defenses("+".join(defenses) or "none") if one.name not in AGREEMENTS]
    if len(made) != 1 or not isinstance(made[0], CentralNoise):
        raise InputError(
            "trials of an audit need one defense, dp-fedavg or dp-ftrl, whose guarantee is of whole clients, "
            f"got {'+'.join(defenses) or 'none'}; name it, or leave trials out"
        )
    if not made[0].noise:
        raise InputError("trials of an audit need noise on the sums, got noise=0; set noise of the defense")
    return made[0]


def cell_of(source: Source, runs: int, data: str, content: str, directory: Path) -> Cell[Trials]:
    """The cell of one scenario."""
    task = Trials(source, runs, data)
    identity = {"content": content, **asdict(source), "trials": runs, "data": data,
                "code": code_used(source.victim, source.defenses)}  # fmt: skip
    path = cell_path(directory, f"trials-{source.update}-{source.weighting}", identity)
    why = obstacle(source.make(), make_defenses("+".join(source.defenses)))
    return Cell(task, path, kind=f"{source.scenario}: trials", obstacle=why, procedure=PROCEDURE)


def _measure(cell: Cell[Trials], ratings: Ratings, say: Say) -> list[Row]:
    task, begin = cell.task, time.perf_counter()
    source, rounds = task.source, max(task.source.rounds) + 1
    victim, defense = source.make(), central(source.defenses)
    told = accounts_of(source.victim, [victim], [defense], ratings, n_rounds=rounds, seed=source.seed)
    account = told[0].accounts[0]
    line = account.lines[0] if account.lines else None
    delta = defense.delta_of(ratings.n_users)
    claim = np.inf if line is None else line.at_delta
    few = craft(of_users(ratings, np.arange(min(ratings.n_users, MOST_CLIENTS))), 0)

    def report(done: int, total: int) -> None:
        say(f"{source.scenario}: training {done + 1:,} of {total:,}, with a client or without")

    trial = Trial(victim, few, 0, defense, defense, rounds)
    try:
        bound = bound_of(trial, runs=task.runs, delta=delta, seed=source.seed, progress=report)
    except InputError as error:
        return _failed(task, error)
    return [
        make_row(
            **task.columns, metric=BOUND, value=bound.epsilon, ci_low=bound.epsilon, ci_high=float("inf"),
            baseline=claim, baseline_name="proved", ceiling=bound.most, n_users=1, n_abstained=0,
            status="ran", verdict=refuted(bound.epsilon, claim), seconds=time.perf_counter() - begin,
            reason=account.unproved or f"at delta {delta:.2g}, of one client's rows in all rounds",
        )
    ]  # fmt: skip


def _failed(task: Trials, error: Exception) -> list[Row]:
    return [failed_row(task.columns, error, BOUND, verdict="")]


PROCEDURE = Procedure(only_ratings, _measure, _failed)
