"""Scores of answers that are not about clients by name: pseudonyms, lengths of lists, who sent what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attacks.base import Outcome, Reconstruction
from audit.scoring.abstentions import in_words
from audit.scoring.baselines import best_guess, null_mean
from audit.scoring.lengths import length_scores
from audit.scoring.linking import Senders, clients_of, link_scores, unsaid
from audit.scoring.metric_score import Score
from audit.scoring.metrics import UserScores
from audit.scoring.pseudonyms import CLAIMED, pseudonym_scores
from audit.scoring.summary import summarise
from audit.scoring.truth import Truth
from audit.scoring.verdict_reasons import reason_of, why_inconclusive
from audit.scoring.verdicts import LEAK, MOST_UNANSWERED, NO_EVIDENCE, NOT_TESTED
from victims.transcript.manifest import Manifest


def of_pseudonyms(
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    shuffled: UserScores | None,
    senders: Senders | None,
    seed: int,
) -> list[Score]:
    """Score answers about clients that have pseudonyms alone."""
    silent, rows = len(reconstruction.abstained), []
    why = in_words(reconstruction.abstained, reconstruction.users.size)
    linked = reconstruction.linked
    whose = None if linked is None or senders is None else clients_of(linked.label, senders.sender)
    for metric, (name, values, guess) in pseudonym_scores(reconstruction, manifest, truth, whose).items():
        candidates = {name: guess}
        if shuffled is not None and metric in shuffled.values:
            candidates["shuffled"] = null_mean(shuffled, metric, guess.size)
        best, baseline = best_guess(metric, candidates)
        summary = summarise(metric, values, baseline, seed)
        if metric != CLAIMED and not _most_are_claimed(reconstruction) and summary.verdict == NO_EVIDENCE:
            summary = replace(summary, verdict=NOT_TESTED)  # a share of nothing is no answer
        reason = "; ".join(filter(None, (why, why_inconclusive(summary))))
        rows.append(Score(metric, summary, best, None, silent, reason))
    return rows


def of_lengths(reconstruction: Reconstruction, truth: Truth, seed: int) -> Score:
    """Score how many clients' numbers of ratings are told, within a tenth."""
    users = reconstruction.users
    told = reconstruction.diagnostics.get("list_length", np.full(users.size, np.nan))
    right, guess = length_scores(told, users, truth)
    silent = np.isnan(told)
    summary = summarise("list_length_accuracy", np.where(silent, guess, right), guess, seed, silent)
    why = in_words(reconstruction.abstained, users.size)
    reason = reason_of(summary, why, int(silent.sum()))
    return Score("list_length_accuracy", summary, "best number", None, int(silent.sum()), reason)


def of_links(reconstruction: Reconstruction, senders: Senders | None, seed: int) -> list[Score]:
    """Score who is said to have sent the rows that had no sender."""
    linked = reconstruction.linked
    if linked is None or senders is None:
        return []
    rows, silent = [], unsaid(linked.label, linked.name)
    for metric, (name, values, guess) in link_scores(linked.label, linked.name, *senders).items():
        summary = summarise(metric, values, guess, seed)
        reason = why_inconclusive(summary)
        if silent.get(metric, 0) > MOST_UNANSWERED and summary.verdict != LEAK:
            summary = replace(summary, verdict=NOT_TESTED)  # what is not said bounds nothing
            reason = f"it says nothing of {silent[metric]:.0%} of the rows"
        rows.append(Score(metric, summary, name, None, 0, reason))
    return rows


def _most_are_claimed(reconstruction: Reconstruction) -> bool:
    """Whether at most half of the pseudonyms are without an answer, or there is nothing to read."""
    looked = reconstruction.outcome == Outcome.NOTHING_FOUND
    return looked or len(reconstruction.abstained) <= MOST_UNANSWERED * reconstruction.users.size
