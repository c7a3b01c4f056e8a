"""Rows of one answer: one per metric, or one that says why there is no number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attacks.base import RELATIVE, Progress, Reconstruction, Scope, silent
from audit.experiments.answers import REPLICATE_SECONDS, SeededAttack, few_clients, permuted_answers
from audit.experiments.results import Row, make_row
from audit.experiments.workers import KilledError
from audit.registry import is_guess
from audit.scoring.ceiling import Ceiling
from audit.scoring.clients import claims
from audit.scoring.groups import group_scores
from audit.scoring.metrics import UserScores
from audit.scoring.nulls import FEWEST_REPLICATES, Replicates, made_in_words, replicates_of_answers
from audit.scoring.pseudonyms import Senders
from audit.scoring.score import score
from audit.scoring.statistics import FEWEST, LEAK_LEVEL, answers_test, interval
from audit.scoring.truth import Truth
from audit.scoring.verdicts import (
    INCONCLUSIVE,
    LEAK,
    NO_EVIDENCE,
    NOT_TESTED,
    OPEN,
    RATED_SET,
    Score,
    Summary,
    as_record,
    in_words,
    summarise,
    why_verdict,
)
from victims.common.errors import InputError, one_line, words_of
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

ALONE = {  # why there is no number of ratings
    Scope.RATED_SET: "it reads which items are rated and nothing else",
    Scope.DIFFERENCES: "it reads how a client's ratings differ, and not by how many levels all of them are "
    "to be shifted: nobody's rows tell",
    Scope.SIZES: "it reads how far a client's ratings are from each other, and not which of two is the "
    "higher, or by how many levels all of them are to be shifted: nobody's rows tell",
}
NAMED = "uploads name the items that their client rated, whatever is in their rows"
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
    replicates: Replicates | None = None,
    by_group: bool = False,
    scored: Callable[[Sequence[Score]], None] | None = None,
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
        replicates=replicates,
    )
    if scored is not None:
        scored(scores)
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


# what tells one recording, and whoever listens, from another
RECORDED = ("victim", "update", "weighting", "data", "defense", "adversary", "seed")


def open_row(**columns: object) -> Row:
    """Make the row that says that uploads themselves name the items that their clients rated."""
    return make_row(
        **columns, attack=None, metric=RATED_SET, value=1.0, status="ran", verdict=OPEN, reason=NAMED
    )


def among(open_rows: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Leave those about what was recorded: where every row failed, no uploads were."""
    recorded = {tuple(row[name] for name in RECORDED) for row in rows if row["status"] != "failed"}
    return [row for row in open_rows if tuple(row[name] for name in RECORDED) in recorded]


def untested(attack: object) -> str:
    """Say NOT TESTED of an attack, and nothing of a guess."""
    return "" if is_guess(attack) else NOT_TESTED


def failed_row(shared: Row, error: Exception, metric: str = HEADLINE, verdict: str | None = None) -> Row:
    """Make the row of what failed, with the reason."""
    known = isinstance(error, InputError | KilledError)
    reason = one_line(error if known else f"{type(error).__name__}: {words_of(error)}")
    verdict = untested(shared.get("attack")) if verdict is None else verdict
    return make_row(**shared, metric=metric, status="failed", reason=reason, verdict=verdict)


ANSWERED, PROBABILITY = "clients_answered", "claimed_probability"
SHUFFLED = "the same attack on shuffled uploads"
NO_TRUTH = "there is no truth to score against"
TOO_FEW = "too few clients are answered here and not on shuffled uploads"
AS_MANY = "as many are answered on shuffled uploads, so that answers alone show no leak"


def claimed_rows(
    columns: Row,
    attack: SeededAttack,
    view: View,
    answer: Reconstruction,
    progress: Progress = silent,
) -> list[Row]:
    """Make the rows of an answer without truth."""
    if not answer.applies:
        return [inapplicable_row(columns, answer, why_inapplicable(answer))]
    rows = [_answered_row(columns, attack, view, answer, progress)]
    if answer.scope == Scope.RATED_SET:
        rows.append(inapplicable_row(columns, answer, ALONE[answer.scope]))
    _, certainty = claims(answer)
    if certainty.size:
        low, high = interval(certainty, attack.seed)
        rows.append(
            make_row(
                **columns,
                metric=PROBABILITY,
                value=float(certainty.mean()),
                ci_low=low,
                ci_high=high,
                n_users=certainty.size,
                status="ran",
                reason="the attack's own probability that its ratings are right, mean over clients",
            )
        )
    return rows


def _answered_row(
    columns: Row, attack: SeededAttack, view: View, answer: Reconstruction, progress: Progress
) -> Row:
    """How many clients are answered, beside how many are on permuted rows."""
    few = few_clients(attack, view)
    no_truth = NO_TRUTH
    if answer.scope in RELATIVE:
        no_truth += f"; {ALONE[answer.scope]}"
    has = _has_answer(answer, answer.users)
    shared = make_row(
        **columns,
        metric=ANSWERED,
        value=float(has.mean()),
        n_users=answer.users.size,
        n_abstained=len(answer.abstained),
        status="ran",
        verdict="" if is_guess(attack.name) else INCONCLUSIVE,
        reason=no_truth,
    )
    if is_guess(attack.name):
        return shared
    real = _has_answer(answer, few.users)
    n_planned = replicates_of_answers(int(real.sum()), few.messages.n_rows)
    permuted = _count_permuted(attack, few, real, n_planned, progress)
    if not permuted.n_made:
        return shared
    summary = summarise(ANSWERED, real.astype(float), permuted.answered / permuted.n_made, attack.seed)
    n_counted = n_planned if permuted.late else permuted.n_made
    p_value = answers_test(real, permuted.answered + n_counted - permuted.n_made, n_counted)
    leak = p_value < LEAK_LEVEL and summary.advantage_low > 0
    why = "" if leak else _why_no_leak(summary, p_value, permuted.n_made)
    cut = made_in_words(permuted.n_made, n_planned, REPLICATE_SECONDS if permuted.late else 0.0)
    return shared | {
        "reason": "; ".join(filter(None, (no_truth, why, cut))),
        "ci_low": summary.ci_low,
        "ci_high": summary.ci_high,
        "baseline": summary.baseline,
        "baseline_name": SHUFFLED,
        "advantage": summary.advantage,
        "advantage_low": summary.advantage_low,
        "advantage_high": summary.advantage_high,
        "p_value": p_value,
        "verdict": LEAK if leak else INCONCLUSIVE,
    }


class _PermutedCounts(NamedTuple):
    """In how many permutations of all rows each client is answered, of how many, and whether time ran out."""

    answered: Int[np.ndarray, " users"]
    n_made: int
    late: bool


def _count_permuted(
    attack: SeededAttack,
    view: View,
    real: Bool[np.ndarray, " users"],
    n_replicates: int,
    progress: Progress,
) -> _PermutedCounts:
    """Permute rows until those that are left could show no leak; the fewest make the baseline in any case."""
    answered, n_made = np.zeros(view.users.size, int), 0
    for answer in permuted_answers(attack, view, n_replicates, progress):
        answered, n_made = answered + _has_answer(answer, view.users), n_made + 1
        if n_made >= FEWEST_REPLICATES and answers_test(real, answered, n_replicates) >= LEAK_LEVEL:
            return _PermutedCounts(answered, n_made, late=False)
    return _PermutedCounts(answered, n_made, late=0 < n_made < n_replicates)


def _why_no_leak(summary: Summary, p_value: float, n_replicates: int) -> str:
    """Why answers alone show no leak."""
    if summary.n_users < FEWEST or summary.advantage_low > 0:
        against = (
            f"against {n_replicates} dealings of their rows"
            if n_replicates > 1
            else "against shuffled uploads"
        )
        return (
            f"{TOO_FEW}: {against} the test gives {p_value:.2g}, and a leak asks for less than {LEAK_LEVEL:g}"
        )
    return why_verdict(summary, TOO_FEW) or (AS_MANY if summary.verdict == NO_EVIDENCE else "")


def _has_answer(answer: Reconstruction, users: np.ndarray) -> Bool[np.ndarray, " users"]:
    return ~np.isin(users, list(answer.abstained))
