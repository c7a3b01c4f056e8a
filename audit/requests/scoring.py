"""The request behind ``factorleak score``: a reconstruction beside the truth and the best guess."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attacks.base import Identities, Reconstruction
from audit.experiments.plan_rules import SEED
from audit.experiments.results import Row, finite
from audit.keys import view_of
from audit.scoring.ceiling import ceilings, obstacle
from audit.scoring.limits import Ceiling
from audit.scoring.linking import Senders, senders_of
from audit.scoring.metric_score import as_record
from audit.scoring.reconstruction_files import read_reconstruction
from audit.scoring.reliability import Bin, reliability
from audit.scoring.score import score as score_reconstruction
from audit.scoring.truth import Truth, read_truth
from victims.common.errors import InputError
from victims.common.validation import require_fields
from victims.transcript.client_names import names_of
from victims.transcript.manifest import Manifest
from victims.transcript.reader import Transcript, open_transcript
from victims.transcript.writer import truth_path


@dataclass(frozen=True)
class ScoreRequest:
    """What to score."""

    reconstruction: Reconstruction | Path  # as an attack returned it, or the file that it was written to
    truth: Truth | Path | None = None  # none: the file beside the transcript
    # needed for a reconstruction that does not come from a file of ours, and for the ceiling of uploads under
    # a defense
    transcript: Transcript | Path | None = None
    # who attacked; None: whom the file or the answer itself names, or the server
    adversary: str | None = None
    reliability: bool = False  # whether to measure if the attack's own probabilities are right
    seed: int = 0  # of the bootstrap


@dataclass(frozen=True)
class ScoreResponse:
    """How much of the truth a reconstruction holds."""

    reconstruction: Reconstruction
    manifest: Manifest  # of the transcript that was attacked
    adversary: str
    metrics: list[Row]  # one row for each metric
    bins: list[Bin]  # empty unless reliability was asked for and the attack gave probabilities
    no_ceiling: str  # why there is no ceiling under a defense, or nothing

    @property
    def rows(self) -> list[Row]:
        """The metrics with the columns of the result table that are known of a single reconstruction."""
        about = {
            "update": self.manifest.rule_name,
            "weighting": self.manifest.weighting,
            "adversary": self.adversary,
            "attack": self.reconstruction.attack,
            "status": "ran",
        }
        return [{**row, **about} for row in self.metrics]

    def content(self, reliability: bool) -> dict[str, Any]:
        """The response as JSON values."""
        found = {
            "attack": self.reconstruction.attack,
            "update": self.manifest.rule_name,
            "weighting": self.manifest.weighting,
            "abstained": {str(user): why for user, why in self.reconstruction.abstained.items()},
            "scores": [finite(row) for row in self.metrics],
        }
        return found | ({"reliability": [one._asdict() for one in self.bins]} if reliability else {})


def score(request: ScoreRequest) -> ScoreResponse:
    """Score every metric of a reconstruction."""
    require_fields(request, "a score", seed=SEED)
    found, manifest, adversary = _attacked(request)
    recorded = request.transcript
    if isinstance(recorded, Path):
        recorded = open_transcript(recorded)
    if recorded is not None:
        manifest = recorded.manifest
    if manifest is None:
        raise InputError(
            f"{_called(request.reconstruction)} does not say which transcript it is about; "
            "give --transcript DIR"
        )
    truth = _truth(request.truth, recorded)
    if recorded is not None and found.identities == Identities.CLIENTS:
        truth.refuse_unless_about(manifest)
        truth.refuse_unless_of(found.users, names_of(recorded.path))
    limits, why = _ceilings(recorded, manifest, adversary, found.users, truth)
    scores = score_reconstruction(
        found,
        manifest,
        truth,
        ceilings=limits,
        senders=_senders(recorded, adversary, found),
        seed=request.seed,
    )
    bins = reliability(found, manifest, truth, request.seed) if request.reliability else []
    return ScoreResponse(found, manifest, adversary, [as_record(one) for one in scores], bins, why)


def _attacked(request: ScoreRequest) -> tuple[Reconstruction, Manifest | None, str]:
    """The reconstruction, and the recording and the adversary as far as its file names them."""
    given = request.reconstruction
    if not isinstance(given, Reconstruction | Path):
        raise InputError(f"reconstruction must be what an attack returned, or a file, got {given!r:.80}")
    if isinstance(given, Reconstruction):
        said = given.linked.adversary if given.linked is not None else ""
        return given, None, request.adversary or said or "server"
    stored = read_reconstruction(given)
    if stored.origin is None:
        return stored.reconstruction, None, request.adversary or "server"
    return stored.reconstruction, stored.origin.manifest, request.adversary or stored.origin.adversary


def _senders(recorded: Transcript | None, adversary: str, found: Reconstruction) -> Senders | None:
    """Who sent what the adversary got without a sender; None where the recording does not tell it."""
    if recorded is None or found.linked is None:
        return None
    linked, view = found.linked, view_of(recorded, adversary)
    if view.copies is not None and linked.round is not None:
        view = view.during(np.unique(linked.round))
    arrived = 0 if view.copies is None else view.copies.round.size
    if arrived != linked.label.size:
        raise InputError(
            f"the reconstruction says who sent {linked.label.size:,} rows, and {adversary!r} receives "
            f"{arrived:,} in those rounds of {recorded.path}; give adversary and transcript of the attack"
        )
    return senders_of(recorded, view)


def _called(reconstruction: Reconstruction | Path) -> str:
    return str(reconstruction) if isinstance(reconstruction, Path) else "the reconstruction"


def _truth(truth: Truth | Path | None, recorded: Transcript | None) -> Truth:
    if isinstance(truth, Truth):
        return truth
    if truth is None and recorded is None:
        raise InputError(
            "scoring needs the truth: give NAME.truth.arrow, or the transcript that it is beside"
        )
    return read_truth(truth if truth is not None else truth_path(recorded.path))  # type: ignore[union-attr]


def _ceilings(
    recorded: Transcript | None, manifest: Manifest, adversary: str, users: np.ndarray, truth: Truth
) -> tuple[dict[str, Ceiling] | None, str]:
    """The limits of a recording's uploads for the scored clients where they are not known; or why not."""
    if not (manifest.defenses or manifest.withholds_ratings):
        return None, ""
    if recorded is None:
        when = "under a defense" if manifest.defenses else "where ratings are never sent"
        return None, f"{when} it needs the uploads: give --transcript DIR"
    view = view_of(recorded, adversary).select(users)
    why = obstacle(view)
    return (None if why else ceilings(view, truth)), why
