"""Behind ``factorleak audit``: victims run in their scenarios, or a given recording, attacked and scored."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from attacks.identify.identification import Contradiction
from attacks.identify.identify import identify
from audit.code_identity import code_used
from audit.experiments import attack_cells, outputs, trials
from audit.experiments.attack_cells import PROCEDURE, Attempt, Source, attempts_on
from audit.experiments.cells import Cell, Found, Report, content_of, refuse_if_none_applies, silent
from audit.experiments.ladder import by_cost, is_exhaustive
from audit.experiments.options import SECONDS, check, each_once, refuse_idle_options
from audit.experiments.plan import Audit, GivenRecording
from audit.experiments.recordings import (
    lists_open,
    other_adversary,
    receives_uploads,
    uploads_name_lists,
    users_of_others,
)
from audit.experiments.results import Row, read_beside
from audit.experiments.rows import among, open_row
from audit.experiments.runner import Experiment, run_grid
from audit.experiments.scenarios import (
    active_server,
    attacks_of,
    check_adversary,
    check_numbered,
    scenarios,
    with_budget,
)
from audit.experiments.workers import Cluster
from audit.factories import attackers_of, make_attack, make_defenses
from audit.keys import view_of
from audit.registry import entries, entry, is_guess
from audit.scoring.clients import TABLE, strongest
from audit.scoring.inference import hidden_attributes
from audit.scoring.truth import Truth, factors_beside, read_truth
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable, write_text
from victims.common.validation import or_none, require
from victims.data.ratings import Ratings
from victims.protocols.active_server import ActiveServer
from victims.protocols.base import Victim
from victims.recording import manifest_of
from victims.transcript.adversaries import names_of
from victims.transcript.beside import key_path, truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript

PLACE = ("update", "weighting", "adversary")  # of lines about clients
PACKAGES = ("factorleak", "numpy", "scipy", "jax")  # whose versions are kept beside the results
NO_SERVER = (
    "Clients send to each other here, and nothing to a server: --adversary neighbour:0 is what client 0 "
    "sees, helper and eavesdropper are others."
)


@dataclass(frozen=True)
class Audited:
    """What an audit found."""

    plan: Audit  # settled
    ratings: Ratings
    rows: list[Row]  # with the columns of ``results.json``
    lists_open: bool  # whether uploads name the rated items where unrated ones have no weight
    hint: str  # whose view to ask for where there is no server; empty where that is so already
    seconds: float

    @property
    def victims(self) -> list[Victim]:
        """The victim of each scenario."""
        return [source_of(self.plan, *scenario).make() for scenario in self.plan.scenarios]

    @property
    def budgets(self) -> list[str]:
        """What an active server does in each scenario, and what clients could notice of it."""
        return [victim.budget for victim in self.victims if isinstance(victim, ActiveServer)]


def usual_attacks(
    victim: str, options: dict[str, Any] | None = None, defenses: Sequence[str] = ()
) -> tuple[str, ...]:
    """Choose the attacks where none is named: those that adapt to the victim and its defenses."""
    text = "+".join(defenses) or "none"
    return (*(one.name for one in attackers_of(victim, options or {}, text)), "guess-majority")


def source_of(plan: Audit, update: str, weighting: str) -> Source:
    """What is recorded of one scenario."""
    return Source(
        plan.victim,
        plan.victim_options,
        update,
        weighting,
        rounds=plan.rounds,
        users=plan.users,
        defenses=plan.defenses,
        seed=plan.seed,
        server=active_server(plan.adversary),
    )


def settled(plan: Audit) -> Audit:
    """Choose scenarios and attacks where none are named, and check every name."""
    check(plan, "an audit")
    grid = scenarios(plan.victim, plan.updates, plan.weightings, plan.victim_options)
    exhaustive = is_exhaustive(plan.exhaustive, plan.attacks, plan.attack_options)
    attacks = each_once(plan.attacks)
    if not attacks:
        first = {**grid.options, "update": grid.updates[0], "weighting": grid.weightings[0]}
        attacks = usual_attacks(plan.victim, first, plan.defenses)
        attacks = attacks_of(plan.adversary) + attacks
        attacks = attacks if exhaustive else by_cost(attacks)
    plan = replace(
        plan,
        adversary=with_budget(plan.victim, plan.adversary),
        updates=grid.updates,
        weightings=grid.weightings,
        victim_options=grid.options,
        attacks=attacks,
        rounds=tuple(sorted(set(map(int, plan.rounds)))),
        exhaustive=exhaustive,
    )
    for name in plan.attacks:  # a misspelt name must not cost the work before it
        make_attack(name, plan.attack_options.get(name))
    refuse_idle_options(plan.attack_options, plan.attacks)
    check_adversary(plan.adversary)
    check_numbered(plan.adversary)
    for text in plan.defenses:
        make_defenses(text)
    if plan.trials:
        trials.central(plan.defenses)
    for scenario in plan.scenarios:
        source_of(plan, *scenario).make()
    return plan


def cells_of(plan: Audit, ratings: Ratings, directory: Path) -> list[Cell[Any]]:
    """List the cells of an audit; those of one scenario share its recording; other cells come last."""
    attempts = (
        attempt
        for scenario in plan.scenarios
        for attempt in attempts_on(
            source_of(plan, *scenario),
            plan.attacks,
            plan.adversary,
            plan.data,
            options=plan.attack_options,
            sample=plan.sample,
            exhaustive=bool(plan.exhaustive),
            infer=plan.infer,
        )
    )
    content = content_of(ratings)
    cells: list[Cell[Any]] = [*attack_cells.cells_of(attempts, content, directory)]
    for source in (source_of(plan, *scenario) for scenario in plan.scenarios):
        if plan.outputs:
            cells += outputs.cells_of(source, plan.outputs, plan.data, content, directory)
        if plan.trials:
            cells.append(trials.cell_of(source, plan.trials, plan.data, content, directory))
    return cells


def clients_of(cells: Sequence[Cell[Any]]) -> list[Row]:
    """Say of whom how much is recovered, by which attack, from what lies beside finished cells."""
    tables: dict[tuple[str, ...], dict[str, np.ndarray]] = {}
    for cell in cells:
        table = read_beside(cell.path, len(TABLE))
        if table is not None and not is_guess(cell.task.attack):
            place = tuple(str(cell.task.columns[name]) for name in PLACE)
            tables.setdefault(place, {})[cell.task.attack] = table
    return [
        {**dict(zip(PLACE, place, strict=True)), **line._asdict()}
        for place, found in tables.items()
        for line in strongest(found)
    ]


def lists_named(plan: Audit, ratings: Ratings) -> bool:
    """Tell whether uploads name the rated items where unrated ones have no weight."""
    first = source_of(plan, *plan.scenarios[0]).make()
    chosen = [defense for text in plan.defenses for defense in make_defenses(text)]
    return uploads_name_lists(manifest_of(first, ratings, list(plan.rounds)), chosen)


def open_rows(plan: Audit, ratings: Ratings, rows: list[Row]) -> list[Row]:
    """Make a row for each scenario in which uploads name the rated items to the adversary."""
    if not receives_uploads(plan.adversary) or not lists_named(plan, ratings):
        return []
    beside = {
        "data": plan.data, "adversary": plan.adversary, "rounds": len(plan.rounds), "seed": plan.seed,
    }  # fmt: skip
    named = [
        open_row(**source_of(plan, *scenario).columns, **beside)
        for scenario in plan.scenarios
        if scenario[1] == "observed-only"
    ]
    return among(named, rows)


EXPERIMENT = Experiment(settled, cells_of, PROCEDURE, open_rows)


def run(
    plan: Audit,
    ratings: Ratings,
    directory: Path,
    *,
    keep_transcripts: bool = False,
    jobs: int | Cluster = 1,
    report: Report = silent,
    found: Found = silent,
    deadline: float | None = None,
) -> list[Row]:
    """Run every cell of a settled plan that is not there yet and write the result files."""
    cells = cells_of(plan, ratings, directory)
    refuse_if_none_applies(cells)  # before anything is written
    content = {
        **asdict(plan),
        "versions": {name: version(name) for name in PACKAGES},
        "code": code_used(plan.victim, plan.defenses, plan.attacks),
    }
    write_text(directory / "campaign.json", json.dumps(content, indent=1) + "\n")
    return run_grid(
        cells, PROCEDURE, ratings, directory,
        jobs=jobs, keep_scratch=keep_transcripts, report=report, found=found, deadline=deadline,
        beside=partial(open_rows, plan, ratings),
    )  # fmt: skip


def audit(
    plan: Audit,
    load: Callable[[], Ratings],
    directory: Path,
    report: Report = silent,
    *,
    within: int | float | None = None,
    keep_transcripts: bool = False,
    jobs: int | Cluster = 1,
    found: Found = silent,
) -> Audited:
    """Audit by a settled plan; nothing is loaded before it is known that the results can be written.

    ``within`` is in seconds, after which what was not reached is NOT TESTED.
    """
    if within is not None and isinstance(jobs, Cluster):
        raise InputError(
            "--within bounds work in one process, not that of --distributed; leave one of them out"
        )
    if keep_transcripts and isinstance(jobs, Cluster):
        raise InputError(
            "--keep-transcripts needs recordings that are made here, and --distributed makes them on "
            "workers; leave one of them out"
        )
    require("an audit", "within", within, or_none(SECONDS), "the default is none")
    refuse_unwritable(directory)
    start = time.perf_counter()
    deadline = None if within is None else time.monotonic() + within
    ratings = load()
    hidden_attributes(ratings, plan.infer, plan.seed)  # a misspelt name must not cost a recording
    rows = run(
        plan, ratings, directory,
        keep_transcripts=keep_transcripts, jobs=jobs, report=report, found=found, deadline=deadline,
    )  # fmt: skip
    hint = NO_SERVER if entry("victims", plan.victim).serverless and plan.adversary == "server" else ""
    return Audited(plan, ratings, rows, lists_named(plan, ratings), hint, time.perf_counter() - start)


BEST_GUESS = "guess-majority"
BLOCK = 1 << 20


@dataclass(frozen=True)
class AuditedRecording:
    """What was found in a recording."""

    plan: GivenRecording  # settled; ``truth`` is None where there is none
    transcript: Transcript
    rows: list[Row]  # with the columns of ``results.json``
    contradictions: tuple[Contradiction, ...]  # what of the declared rule the uploads contradict
    seconds: float
    hint: str = ""  # whose view to ask about where this adversary is sent nothing; otherwise empty
    # whether uploads name the items that clients rated; without truth: where they name no others
    lists_open: bool = False


def opened(plan: GivenRecording) -> tuple[GivenRecording, Transcript]:
    """Open the recording, and fill in what the plan leaves empty."""
    check(plan, "an audit")
    if not isinstance(plan.transcript, Path):
        raise InputError(f"transcript must be the directory of a recording, got {plan.transcript!r:.80}")
    transcript = open_transcript(plan.transcript)
    truth = plan.truth
    if truth is None and (beside := truth_path(plan.transcript)).is_file():
        truth = beside
    every = every_attack(with_truth=truth is not None)
    filled = replace(
        plan,
        truth=truth,
        adversary=transcript.adversary(plan.adversary),
        attacks=plan.attacks or by_cost(every, transcript.manifest.n_users, transcript.messages.n_rows),
        exhaustive=is_exhaustive(plan.exhaustive, plan.attacks, plan.attack_options),
    )
    return filled, transcript


def every_attack(with_truth: bool) -> tuple[str, ...]:
    """Names of all attacks, and a guess, which without truth says nothing."""
    # objects that an earlier call was given are none of this one's
    usable = [name for name, one in entries("attacks").items() if not (one.refused or one.adopted)]
    reading = [name for name in usable if not is_guess(name)]
    return (*reading, BEST_GUESS) if with_truth else tuple(reading)


def audit_recording(
    plan: GivenRecording,
    transcript: Transcript,
    directory: Path,
    report: Report = silent,
    *,
    within: int | float | None = None,
    found: Found = silent,
) -> AuditedRecording:
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
    truth = truth_of(plan, transcript)
    deadline = None if within is None else start + within
    cells = cells_on(plan, transcript, directory)
    view = view_of(transcript, plan.adversary)
    named = lists_open(view, truth)
    about = {name: value for name, value in cells[0].task.columns.items() if name != "attack"}
    rows = run_grid(
        cells, PROCEDURE, (transcript, truth), directory,
        report=report, found=found, deadline=deadline,
        beside=lambda rows: [open_row(**about)] if named else [],
    )  # fmt: skip
    report(len(plan.attacks), len(plan.attacks), "which rule the uploads follow")
    contradictions = identify(view, with_noise=False).contradictions(view.manifest)
    hint, seconds = other_adversary(transcript, view), time.monotonic() - start
    return AuditedRecording(plan, transcript, rows, contradictions, seconds, hint, named)


def cells_on(plan: GivenRecording, transcript: Transcript, directory: Path) -> list[Cell[Attempt]]:
    """List the cells of an audit of a recording."""
    return attack_cells.cells_of(_attempts_on_it(plan, transcript), content_of_files(plan), directory)


def truth_of(given: GivenRecording, transcript: Transcript) -> Truth | None:
    """The truth, which must be about whom attacks may answer: that is told before any attack runs."""
    if given.truth is None:
        return None
    truth = read_truth(given.truth)
    truth.refuse_unless_about(transcript.manifest)
    others = users_of_others(view_of(transcript, given.adversary))
    truth.refuse_unless_of(others, names_of(transcript.path))
    return truth


def _attempts_on_it(given: GivenRecording, transcript: Transcript) -> Iterator[Attempt]:
    """Every attack on the recording."""
    shared = columns_of(given, transcript)
    for attack in given.attacks:
        yield Attempt(
            attack,
            given.adversary,
            given.attack_options.get(attack, {}),
            given.sample,
            given.seed,
            label=attack,
            columns={**shared, "attack": attack},
            bounded=bool(transcript.manifest.defenses),
            exhaustive=bool(given.exhaustive),
        )


def columns_of(given: GivenRecording, transcript: Transcript) -> Row:
    """Columns that all rows about a recording have in common."""
    manifest = transcript.manifest
    return {
        "victim": manifest.protocol,
        "update": manifest.rule_name,
        "weighting": manifest.weighting,
        "data": str(given.transcript),
        "defense": "+".join(str(entry.get("name", "unnamed")) for entry in manifest.defenses) or "none",
        "adversary": given.adversary,
        "rounds": len(manifest.rounds),
        "seed": given.seed,
    }


def content_of_files(given: GivenRecording) -> str:
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
