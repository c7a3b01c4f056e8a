"""Attack a recording of any origin with everything that applies: the grid behind ``audit --transcript``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from audit.code_identity import attack_code
from audit.experiments.attack_rows import Attempt, rows_of, users_of_others
from audit.experiments.campaign import check_adversary
from audit.experiments.grid import Cell, Found, Procedure, Report, Say, silent
from audit.experiments.ladder import not_needed
from audit.experiments.metric_rows import failed_row
from audit.experiments.naming import cell_path
from audit.experiments.plan_rules import refuse_idle_options
from audit.experiments.results import Row
from audit.experiments.runner import run_grid
from audit.factories import make_attack
from audit.keys import view_of
from audit.registry import entries, is_guess
from audit.scoring.factor_truth import factors_beside
from audit.scoring.truth import Truth, read_truth
from victims.transcript.client_names import names_of
from victims.transcript.reader import Transcript
from victims.transcript.writer import key_path, truth_path

BEST_GUESS = "guess-majority"
BLOCK = 1 << 20


@dataclass(frozen=True)
class GivenRecording:
    """What to attack, and how."""

    transcript: Path
    truth: Path | None
    adversary: str
    attacks: tuple[str, ...]
    attack_options: dict[str, dict[str, Any]] = field(default_factory=dict)  # attack -> its options
    sample: int = 20  # clients for attacks that solve client by client
    seed: int = 0
    exhaustive: bool = True  # attack also where every question of an attack is answered


class Opened(NamedTuple):
    """A recording, and the truth where there is one."""

    transcript: Transcript
    truth: Truth | None


class AttackedRecording(NamedTuple):
    """The task of a cell: what is attacked, by which attack; columns that its rows have in common."""

    given: GivenRecording
    attack: str
    columns: Row


def truth_beside(transcript: Path, truth: Path | None) -> Path | None:
    """Where the truth is: as given, else beside the recording, else nowhere."""
    if truth is not None:
        return truth
    beside = truth_path(transcript)
    return beside if beside.is_file() else None


def every_attack(with_truth: bool) -> tuple[str, ...]:
    """Names of all attacks, and a guess, which without truth says nothing."""
    # objects that an earlier call was given are none of this one's
    usable = [name for name, one in entries("attacks").items() if not (one.refused or one.adopted)]
    reading = [name for name in usable if not is_guess(name)]
    return (*reading, BEST_GUESS) if with_truth else tuple(reading)


def run(
    given: GivenRecording,
    transcript: Transcript,
    directory: Path,
    *,
    report: Report = silent,
    found: Found = silent,
    deadline: float | None = None,
) -> list[Row]:
    """Run every attack that was not run yet, and write the result files."""
    for name in given.attacks if given.exhaustive else given.attack_options:  # of all few are imported
        make_attack(name, given.attack_options.get(name))
    refuse_idle_options(given.attack_options, given.attacks)
    check_adversary(given.adversary)
    opened = Opened(transcript, None if given.truth is None else _truth_of(given.truth, given, transcript))
    procedure = Procedure(_prepared, _measured, _failed, unneeded=_unneeded)
    cells = _cells(given, opened.transcript, directory)
    return run_grid(cells, procedure, opened, directory, report=report, found=found, deadline=deadline)


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
