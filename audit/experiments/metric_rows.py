"""Rows of one answer: one per metric, or one that says why there is no number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from attacks.base import Reconstruction, Scope
from audit.experiments.processes import KilledError
from audit.experiments.results import Row, make_row
from audit.registry import is_guess
from audit.scoring.ceiling import Ceiling
from audit.scoring.groups import group_scores
from audit.scoring.metrics import UserScores
from audit.scoring.nulls import Replicates
from audit.scoring.pseudonyms import Senders
from audit.scoring.score import score
from audit.scoring.truth import Truth
from audit.scoring.verdicts import NOT_TESTED, as_record, in_words
from victims.common.errors import InputError, one_line, words_of
from victims.transcript.manifest import Manifest

ALONE = {  # why there is no number of ratings
    Scope.RATED_SET: "it reads which items are rated and nothing else",
    Scope.DIFFERENCES: "it reads how a client's ratings differ, and not by how many levels all of them are "
    "to be shifted: nobody's rows tell",
    Scope.SIZES: "it reads how far a client's ratings are from each other, and not which of two is the "
    "higher, or by how many levels all of them are to be shifted: nobody's rows tell",
}
HEADLINE = "rating_accuracy"  # the metric of a row that stands for all of them


def metric_rows(
    shared: Row,
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    *,
    shuffled: UserScores | None = None,
    ceilings: Mapping[str, Ceiling] | None = None,
    senders: Senders | None = None,
    dealt: Replicates | None = None,
    by_group: bool = False,
) -> list[Row]:
    """Score an answer, or say why the attack does not apply.

    An attack that looked at every client and found nothing did apply: it has scores, all of them the guess.
    """
    if not reconstruction.applies:
        return [inapplicable_row(shared, reconstruction, why_inapplicable(reconstruction))]
    scores = score(
        reconstruction,
        manifest,
        truth,
        shuffled=shuffled,
        ceilings=ceilings,
        senders=senders,
        replicates=dealt,
    )
    rows = [make_row(**shared, **as_record(one), status="ran") for one in scores]
    if by_group and not is_guess(reconstruction.attack):
        groups = group_scores(scores, reconstruction, manifest, truth)
        rows += [make_row(**shared, **asdict(one), status="ran") for one in groups]
    if alone := ALONE.get(reconstruction.scope):
        rows.append(inapplicable_row(shared, reconstruction, alone))
    return rows


def why_inapplicable(reconstruction: Reconstruction) -> str:
    """Say why nobody is answered: one reason for all, or the commonest ones."""
    words = in_words(reconstruction.abstained, reconstruction.users.size)
    return reconstruction.obstacle or words or "the adversary receives no uploads"


def inapplicable_row(shared: Row, reconstruction: Reconstruction, reason: str) -> Row:
    """Make the row of an attack that does not apply."""
    return make_row(
        **shared,
        metric=HEADLINE,
        status="not applicable",
        verdict=untested(reconstruction.attack),
        n_users=reconstruction.users.size,
        n_abstained=len(reconstruction.abstained),
        reason=reason,
    )


def untested(attack: object) -> str:
    """Say NOT TESTED of an attack, and nothing of a guess."""
    return "" if is_guess(attack) else NOT_TESTED


def failed_row(shared: Row, error: Exception, metric: str = HEADLINE, verdict: str | None = None) -> Row:
    """Make the row of what failed, with the reason."""
    known = isinstance(error, InputError | KilledError)
    reason = one_line(error if known else f"{type(error).__name__}: {words_of(error)}")
    verdict = untested(shared.get("attack")) if verdict is None else verdict
    return make_row(**shared, metric=metric, status="failed", reason=reason, verdict=verdict)
