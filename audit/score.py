"""Score a reconstruction against the truth: one row per metric, never an accuracy without its baseline."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from attacks.interface import Reconstruction
from audit.baselines import best_guess, guesses
from audit.metrics import UserScores, score_users
from audit.statistics import Summary, summarise
from audit.truth import Truth
from victims.manifest import Manifest


@dataclass(frozen=True)
class Score:
    """One metric of one reconstruction.

    ``ceiling`` is what a decoder that is told every p_i would reach, NaN where it is not computed.
    Clients on which the attack abstained count with the best guess, so that abstaining neither helps
    nor hurts; ``n_abstained`` says how many they are.
    """

    metric: str
    summary: Summary
    baseline_name: str
    ceiling: float
    n_abstained: int


def score(
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    *,
    shuffled: UserScores | None = None,
    seed: int = 0,
) -> list[Score]:
    """Score every metric of a reconstruction.

    Parameters
    ----------
    reconstruction : Reconstruction
    manifest : Manifest
        Of the transcript that was attacked.
    truth : Truth
    shuffled : UserScores, optional
        The same attack on a shuffled transcript; becomes one more candidate for the baseline.
    seed : int
        Of the bootstrap.

    Raises
    ------
    InputError
        If a client is missing from the truth.
    """
    users = np.unique(reconstruction.users)
    found = score_users(reconstruction.blocks, manifest, truth, users)
    silent = np.isin(users, list(reconstruction.abstained))
    everything = guesses(manifest, truth, users)
    rows = []
    for metric, candidates in everything.items():
        if shuffled is not None and not _in_the_open(metric, manifest):
            candidates |= {"shuffled": _aligned(shuffled, metric, users)}
        name, baseline = best_guess(metric, candidates)
        values = found.values[metric]
        unanswered = silent | np.isnan(values)
        values = np.where(unanswered, baseline, values)
        summary = summarise(metric, values, baseline, seed)
        rows.append(Score(metric, summary, name, _ceiling(metric, manifest), int(silent.sum())))
    return rows


def _in_the_open(metric: str, manifest: Manifest) -> bool:
    """Observed-only uploads name the rated items, also when their gradients are shuffled."""
    rated_set = metric.startswith("rated_set") or metric.startswith("tpr")
    return rated_set and manifest.weighting == "observed-only"


def _aligned(scores: UserScores, metric: str, users: np.ndarray) -> np.ndarray:
    """The null's mean for every client: it may have been run on a sample of clients only."""
    values = scores.values[metric]
    return np.full(users.size, np.nan if np.isnan(values).all() else np.nanmean(values))


def _ceiling(metric: str, manifest: Manifest) -> float:
    """Without a defense the decoder that is told p_i divides every row by it and reads all."""
    if manifest.defenses:
        return float("nan")
    return 0.0 if metric == "rating_mae" else 1.0


def as_record(score: Score) -> dict[str, object]:
    """Flat mapping with the column names of the result table."""
    summary = asdict(score.summary)
    n_users = summary.pop("n_users")
    return {
        "metric": score.metric,
        **summary,
        "baseline_name": score.baseline_name,
        "ceiling": score.ceiling,
        "n_users": n_users,
        "n_abstained": score.n_abstained,
    }
