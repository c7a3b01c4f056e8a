"""Attack a recording of any origin with everything that applies: the grid behind ``audit --transcript``."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from attacks.identify.identification import Contradiction
from attacks.identify.identify import identify
from audit.code_identity import attack_code
from audit.experiments.attack_rows import Attempt, rows_of, users_of_others
from audit.experiments.auditing import check_adversary
from audit.experiments.cache import cell_path
from audit.experiments.grid import Cell, Found, Procedure, Report, Say, silent
from audit.experiments.hints import lists_open, other_adversary
from audit.experiments.ladder import by_cost, is_exhaustive, not_needed
from audit.experiments.options import check
from audit.experiments.plan import GivenRecording
from audit.experiments.plan_rules import SECONDS, refuse_idle_options
from audit.experiments.results import Row
from audit.experiments.rows import failed_row
from audit.experiments.runner import run_grid
from audit.factories import make_attack
from audit.keys import view_of
from audit.registry import entries, is_guess
from audit.scoring.truth import Truth, factors_beside, read_truth
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable
from victims.common.validation import or_none, require
from victims.transcript.adversaries import names_of
from victims.transcript.beside import key_path, truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript

BEST_GUESS = "guess-majority"
BLOCK = 1 << 20


@dataclass(frozen=True)
class Audited:
    """What was found in a recording."""

    plan: GivenRecording  # settled; ``truth`` is None where there is none
    transcript: Transcript
    rows: list[Row]  # with the columns of ``results.json``
    contradictions: tuple[Contradiction, ...]  # what of the declared rule the uploads contradict
    seconds: float
    hint: str = ""  # whose view to ask about where this adversary is sent nothing; otherwise empty
    # whether uploads name the items that clients rated; without truth: where they name no others
    lists_open: bool = False


class Opened(NamedTuple):
    """A recording, and the truth where there is one."""

    transcript: Transcript
    truth: Truth | None


class AttackedRecording(NamedTuple):
    """The task of a cell: what is attacked, by which attack; columns that its rows have in common."""

    given: GivenRecording
    attack: str
    columns: Row


def settled(plan: GivenRecording) -> tuple[GivenRecording, Transcript]:
    """Open the recording, and fill in what the plan leaves empty."""
    check(plan, "an audit")
    if not isinstance(plan.transcript, Path):
        raise InputError(f"transcript must be the directory of a recording, got {plan.transcript!r:.80}")
    opened = open_transcript(plan.transcript)
    truth = plan.truth
    if truth is None and (beside := truth_path(plan.transcript)).is_file():
        truth = beside
    every = every_attack(with_truth=truth is not None)
    filled = replace(
        plan,
        truth=truth,
        adversary=opened.adversary(plan.adversary),
        attacks=plan.attacks or by_cost(every, opened.manifest.n_users, opened.messages.n_rows),
        exhaustive=is_exhaustive(plan.exhaustive, plan.attacks, plan.attack_options),
    )
    return filled, opened


def every_attack(with_truth: bool) -> tuple[str, ...]:
    """Names of all attacks, and a guess, which without truth says nothing."""
    # objects that an earlier call was given are none of this one's
    usable = [name for name, one in entries("attacks").items() if not (one.refused or one.adopted)]
    reading = [name for name in usable if not is_guess(name)]
    return (*reading, BEST_GUESS) if with_truth else tuple(reading)


def audit(
    plan: GivenRecording,
    transcript: Transcript,
    directory: Path,
    report: Report = silent,
    *,
    within: int | float | None = None,
    found: Found = silent,
) -> Audited:
    """Run every attack of a settled plan that was not run yet, and write the result files.

    ``within`` is in seconds, after which what was not reached is NOT TESTED.
    """
    require("an audit", "within", within, or_none(SECONDS), "the default is none")
    refuse_unwritable(directory)
    start = time.monotonic()
    for name in plan.attacks if plan.exhaustive else plan.attack_options:  # of all few are imported
        make_attack(name, plan.attack_options.get(name))
    refuse_idle_options(plan.attack_options, plan.attacks)
    check_adversary(plan.adversary)
    truth = None if plan.truth is None else _truth_of(plan.truth, plan, transcript)
    procedure = Procedure(_prepared, _measured, _failed, unneeded=_unneeded)
    deadline = None if within is None else start + within
    cells = _cells(plan, transcript, directory)
    rows = run_grid(
        cells, procedure, Opened(transcript, truth), directory, report=report, found=found, deadline=deadline
    )
    view = view_of(transcript, plan.adversary)
    report(len(plan.attacks), len(plan.attacks), "which rule the uploads follow")  # up to a minute
    contradictions = identify(view).contradictions(view.manifest)
    hint, seconds = other_adversary(transcript, view), time.monotonic() - start
    return Audited(plan, transcript, rows, contradictions, seconds, hint, lists_open(view, truth))


def _truth_of(path: Path, given: GivenRecording, transcript: Transcript) -> Truth:
    """The truth, which must be about whom attacks may answer: that is told before any attack runs."""
    truth = read_truth(path)
    truth.refuse_unless_about(transcript.manifest)
    others = users_of_others(view_of(transcript, given.adversary))
    truth.refuse_unless_of(others, names_of(transcript.path))
    return truth


def _cells(given: GivenRecording, transcript: Transcript, directory: Path) -> list[Cell[AttackedRecording]]:
    manifest = transcript.manifest
    columns: Row = {
        "victim": manifest.protocol,
        "update": manifest.rule_name,
        "weighting": manifest.weighting,
        "data": str(given.transcript),
        "defense": "+".join(str(entry.get("name", "unnamed")) for entry in manifest.defenses) or "none",
        "adversary": given.adversary,
        "rounds": len(manifest.rounds),
        "seed": given.seed,
    }
    content = _content(given)
    cells = []
    for attack in given.attacks:
        identity = {
            "transcript": given.transcript,
            "adversary": given.adversary,
            "sample": given.sample,
            "seed": given.seed,
            "content": content,
            "attack": attack,
            "options": given.attack_options.get(attack, {}),
            "code": attack_code(attack),
        }
        path = cell_path(directory, f"recording-{attack}", identity)
        task = AttackedRecording(given, attack, {**columns, "attack": attack})
        cells.append(Cell(task, path, together="recording"))
    return cells


def _content(given: GivenRecording) -> str:
    """Hash of all files that are read."""
    digest = hashlib.sha256()
    beside = [
        given.truth,
        key_path(given.transcript),
        None if given.truth is None else factors_beside(given.truth),
    ]
    files = [*sorted(given.transcript.iterdir()), *(path for path in beside if path is not None)]
    for path in files:
        if path.is_file():
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
    return digest.hexdigest()


def _prepared(cell: Cell[AttackedRecording], opened: Opened, say: Say) -> Opened:
    return opened


def _measured(cell: Cell[AttackedRecording], opened: Opened, say: Say) -> list[Row]:
    given, attack, columns = cell.task
    attempt = Attempt(
        attack,
        given.adversary,
        given.attack_options.get(attack, {}),
        given.sample,
        given.seed,
        attack,
    )
    defended = bool(opened.transcript.manifest.defenses)
    return rows_of(attempt, columns, opened.transcript, opened.truth, say, with_ceilings=defended)


def _unneeded(task: AttackedRecording, rows: Sequence[Row]) -> str:
    return "" if task.given.exhaustive else not_needed(task.attack, rows)


def _failed(task: AttackedRecording, error: Exception) -> list[Row]:
    return [failed_row(task.columns, error)]
