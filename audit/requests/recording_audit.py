"""The request behind ``factorleak audit --transcript``: a recording of any origin, and all attacks on it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attacks.identify.identification import Contradiction
from attacks.identify.identify import identify
from audit.experiments import given_recording
from audit.experiments.given_recording import GivenRecording, every_attack, truth_beside
from audit.experiments.grid import Found, Report, silent
from audit.experiments.ladder import by_cost, is_exhaustive
from audit.experiments.plan_rules import ANY_NAMES, CLIENTS, OPTIONS_OF_ATTACKS, SECONDS, SEED, TEXT
from audit.experiments.results import Row
from audit.keys import view_of
from audit.requests.hints import lists_open, other_adversary
from audit.scoring.truth import read_truth
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable
from victims.common.validation import or_none, require_fields
from victims.transcript.reader import Transcript, open_transcript


@dataclass(frozen=True)
class RecordingRequest:
    """What to audit."""

    out: Path  # directory for results; finished cells in it are reused
    transcript: Path
    truth: Path | None = None  # none: the file beside the transcript, if there is one
    adversary: str = ""  # empty: the one who recorded, or the server
    attacks: tuple[str, ...] = ()  # empty: all
    attack_options: dict[str, dict[str, Any]] = field(default_factory=dict)  # attack -> its options
    sample: int = 20  # clients for attacks that solve client by client
    seed: int = 0
    # attack also where every question of an attack is answered; None: where attacks, or their options, are
    # named
    exhaustive: bool | None = None
    within: int | float | None = None  # seconds, after which what was not reached is NOT TESTED


@dataclass(frozen=True)
class RecordingResponse:
    """What was found."""

    request: RecordingRequest  # with nothing left empty but ``truth``, which is None where there is none
    transcript: Transcript
    rows: list[Row]  # with the columns of ``results.json``
    contradictions: tuple[Contradiction, ...]  # what of the declared rule the uploads contradict
    seconds: float
    hint: str = ""  # whose view to ask about where this adversary is sent nothing; otherwise empty
    # whether uploads name the items that clients rated; without truth: where they name no others
    lists_open: bool = False


def settled(request: RecordingRequest) -> tuple[RecordingRequest, Transcript]:
    """Open the recording, and fill in what the request leaves empty."""
    require_fields(
        request,
        "an audit",
        attacks=ANY_NAMES,
        adversary=TEXT,
        sample=CLIENTS,
        seed=SEED,
        attack_options=OPTIONS_OF_ATTACKS,
        within=or_none(SECONDS),
    )
    if not isinstance(request.transcript, Path):
        raise InputError(f"transcript must be the directory of a recording, got {request.transcript!r:.80}")
    opened = open_transcript(request.transcript)
    truth = truth_beside(request.transcript, request.truth)
    filled = replace(
        request,
        truth=truth,
        adversary=opened.adversary(request.adversary),
        attacks=request.attacks or _every_attack(opened, with_truth=truth is not None),
        exhaustive=is_exhaustive(request.exhaustive, request.attacks, request.attack_options),
    )
    return filled, opened


def _every_attack(opened: Transcript, with_truth: bool) -> tuple[str, ...]:
    return by_cost(every_attack(with_truth), opened.manifest.n_users, opened.messages.n_rows)


def audit_recording(
    request: RecordingRequest, transcript: Transcript, report: Report = silent, found: Found = silent
) -> RecordingResponse:
    """Run every attack that was not run yet; the result files are in ``request.out``."""
    refuse_unwritable(request.out)
    start = time.monotonic()
    given = GivenRecording(
        request.transcript,
        request.truth,
        request.adversary,
        request.attacks,
        request.attack_options,
        request.sample,
        request.seed,
        bool(request.exhaustive),
    )
    deadline = None if request.within is None else start + request.within
    rows = given_recording.run(given, transcript, request.out, report=report, found=found, deadline=deadline)
    view = view_of(transcript, request.adversary)
    report(len(request.attacks), len(request.attacks), "which rule the uploads follow")  # up to a minute
    contradictions = identify(view).contradictions(view.manifest)
    seconds = time.monotonic() - start
    hint = other_adversary(transcript, view)
    named = lists_open(view, None if request.truth is None else read_truth(request.truth))
    return RecordingResponse(request, transcript, rows, contradictions, seconds, hint, named)
