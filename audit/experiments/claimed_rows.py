"""What an attack claims where there is no truth to hold it against: for whom it has an answer, and how sure.

An attack that judges its own fit has no answer where nothing fits. That it answers more clients than on the
same rows dealt out at random, of few clients again and again, is evidence that it reads something; how much
of it is right stays unknown, and that it answers nobody bounds nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import RELATIVE, Progress, Reconstruction, Scope, silent
from audit.experiments.metric_rows import ALONE, inapplicable_row, why_inapplicable
from audit.experiments.results import Row, make_row
from audit.experiments.shuffled_null import DEALING_SECONDS, dealt_answers, few_clients
from audit.registry import is_guess
from audit.scoring.nulls import FEWEST_REPLICATES, made_in_words, replicates_of_answers
from audit.scoring.statistics import FEWEST, LEAK_LEVEL, answers_test, interval
from audit.scoring.verdicts import INCONCLUSIVE, LEAK, NO_EVIDENCE, Summary, summarise, why_verdict
from victims.transcript.view import ITEM, View

ANSWERED, PROBABILITY = "clients_answered", "claimed_probability"
SHUFFLED = "the same attack on shuffled uploads"
NO_TRUTH = "there is no truth to score against"
TOO_FEW = "too few clients are answered here and not on shuffled uploads"
AS_MANY = "as many are answered on shuffled uploads, so that answers alone show no leak"


def claimed_rows(
    columns: Row,
    attack: str,
    options: dict[str, Any],
    seed: int,
    view: View,
    answer: Reconstruction,
    progress: Progress = silent,
) -> list[Row]:
    """Make the rows of an answer without truth."""
    if not answer.applies:
        return [inapplicable_row(columns, answer, why_inapplicable(answer))]
    rows = [_answered_row(columns, attack, options, seed, view, answer, progress)]
    if answer.scope == Scope.RATED_SET:
        rows.append(inapplicable_row(columns, answer, ALONE[answer.scope]))
    certainty = _certainty(answer)
    if certainty.size:
        low, high = interval(certainty, seed)
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
    columns: Row,
    attack: str,
    options: dict[str, Any],
    seed: int,
    view: View,
    answer: Reconstruction,
    progress: Progress,
) -> Row:
    few = few_clients(view, attack, seed)
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
        verdict="" if is_guess(attack) else INCONCLUSIVE,
        reason=no_truth,
    )
    if is_guess(attack):
        return shared
    real = _has_answer(answer, few.users)
    n_planned = replicates_of_answers(int(real.sum()), few.messages.n_rows)
    dealt = _dealt(attack, options, seed, few, real, n_planned, progress)
    if not dealt.n_made:
        return shared
    summary = summarise(ANSWERED, real.astype(float), dealt.answered / dealt.n_made, seed)
    n_counted = n_planned if dealt.late else dealt.n_made
    p_value = answers_test(real, dealt.answered + n_counted - dealt.n_made, n_counted)
    leak = p_value < LEAK_LEVEL and summary.advantage_low > 0
    why = "" if leak else _why_no_leak(summary, p_value, dealt.n_made)
    cut = made_in_words(dealt.n_made, n_planned, DEALING_SECONDS if dealt.late else 0.0)
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


class _Dealt(NamedTuple):
    """In how many dealings of all rows each client has an answer, how many were made, and whether time ended
    them.
    """

    answered: Int[np.ndarray, " users"]
    n_made: int
    late: bool


def _dealt(
    attack: str,
    options: dict[str, Any],
    seed: int,
    view: View,
    real: Bool[np.ndarray, " users"],
    n_dealings: int,
    progress: Progress,
) -> _Dealt:
    """Deal rows until no answers to those that are left could tell a leak; some make the baseline anyhow."""
    answered, n_made = np.zeros(view.users.size, int), 0
    for one in dealt_answers(attack, options, seed, view, n_dealings, progress):
        answered, n_made = answered + _has_answer(one, view.users), n_made + 1
        if n_made >= FEWEST_REPLICATES and answers_test(real, answered, n_dealings) >= LEAK_LEVEL:
            return _Dealt(answered, n_made, late=False)
    return _Dealt(answered, n_made, late=0 < n_made < n_dealings)


def _why_no_leak(summary: Summary, p_value: float, n_dealings: int) -> str:
    """Why answers alone show no leak."""
    if summary.n_users < FEWEST or summary.advantage_low > 0:
        against = (
            f"against {n_dealings} dealings of their rows" if n_dealings > 1 else "against shuffled uploads"
        )
        return (
            f"{TOO_FEW}: {against} the test gives {p_value:.2g}, and a leak asks for less than {LEAK_LEVEL:g}"
        )
    return why_verdict(summary, TOO_FEW) or (AS_MANY if summary.verdict == NO_EVIDENCE else "")


def _has_answer(answer: Reconstruction, users: np.ndarray) -> Bool[np.ndarray, " users"]:
    return ~np.isin(users, list(answer.abstained))


def _certainty(answer: Reconstruction) -> Float[np.ndarray, " users"]:
    """The attack's own probability of its ratings, mean of each client that has some."""
    means = []
    for block in answer.blocks:
        if block.probability is None or answer.scope in RELATIVE:
            continue
        items = np.broadcast_to(block.kind == ITEM, block.value.shape) & ~np.isnan(block.probability)
        some = items.any(axis=1)
        means.append(np.mean(block.probability[some], axis=1, where=items[some]))
    return np.concatenate(means) if means else np.zeros(0)
