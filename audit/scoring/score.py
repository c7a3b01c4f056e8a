"""Score a reconstruction against the truth: one row per metric, never an accuracy without its baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import RELATIVE, Identities, Outcome, Reconstruction, Scope
from audit.registry import is_guess
from audit.scoring.abstentions import in_words
from audit.scoring.baselines import best_guess, guesses, null_mean
from audit.scoring.dealings import Dealings
from audit.scoring.dealt_rows import FEWEST_LISTS, dealt_out
from audit.scoring.differences import OF_SCOPE, SIZES, TOLD, difference_accuracy, difference_guesses
from audit.scoring.factor_scores import score_factors
from audit.scoring.limits import Ceiling, limit_of
from audit.scoring.linking import Senders
from audit.scoring.metric_score import PerClient, Score
from audit.scoring.metrics import (
    RATED_SET_METRICS,
    YES_OR_NO,
    UserScores,
    of_attributes,
    of_the_set,
    score_users,
)
from audit.scoring.nameless_scores import of_lengths, of_links, of_pseudonyms
from audit.scoring.statistics import GUESSED
from audit.scoring.summary import summarise
from audit.scoring.truth import Truth
from audit.scoring.verdict_reasons import reason_of
from victims.common.errors import InputError
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE

NO_ATTRIBUTES = "its answers say nothing of attributes"


def score(
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    *,
    shuffled: UserScores | None = None,
    ceilings: Mapping[str, Ceiling] | None = None,
    senders: Senders | None = None,
    dealt: Dealings | None = None,
    seed: int = 0,
) -> list[Score]:
    """Score every metric of a reconstruction."""
    truth.refuse_unless_about(manifest)
    _refuse_unless_about(reconstruction, manifest)
    if reconstruction.scope == Scope.LIST_LENGTHS:
        return [of_lengths(reconstruction, truth, seed)]
    links = of_links(reconstruction, senders, seed)
    if reconstruction.identities == Identities.PSEUDONYMS:
        return [*of_pseudonyms(reconstruction, manifest, truth, shuffled, senders, seed), *links]
    users = np.unique(reconstruction.users)
    found = values_of(reconstruction, manifest, truth, users)
    silent = np.isin(users, list(reconstruction.abstained))
    asked = _Asked(reconstruction, users, silent, _varied(truth, users), dealt, seed)
    rows = []
    if of_differences := OF_SCOPE.get(reconstruction.scope):
        same = difference_guesses(of_differences, truth, users)
        rows.append(_scored(of_differences, same, found[of_differences], asked, manifest, ceilings))
    for metric, candidates in guesses(manifest, truth, users).items():
        if not _is_asked(metric, reconstruction.scope):
            continue
        if shuffled is not None and not _in_the_open(metric, manifest):
            candidates |= {"shuffled": null_mean(shuffled, metric, users.size)}
        rows.append(_scored(metric, candidates, found[metric], asked, manifest, ceilings))
    if reconstruction.factors is not None and truth.factors is not None:
        for metric, one in score_factors(reconstruction.factors, truth.factors, users).items():
            rows.append(_scored(metric, one.guesses, one.values, asked, manifest, ceilings))
    return [*rows, *links]


class _Asked(NamedTuple):
    """A reconstruction, who is scored, on whom it abstained, ``_varied``, what is read of dealt rows, and the
    bootstrap's seed.
    """

    reconstruction: Reconstruction
    users: Int[np.ndarray, " users"]
    silent: Bool[np.ndarray, " users"]
    varied: Float[np.ndarray, " users"]
    dealt: Dealings | None
    seed: int


def _scored(
    metric: str,
    candidates: dict[str, Float[np.ndarray, " users"]],
    values: Float[np.ndarray, " users"],
    asked: _Asked,
    manifest: Manifest,
    ceilings: Mapping[str, Ceiling] | None,
) -> Score:
    """One metric beside the best of some guesses, which counts where there is no answer."""
    reconstruction, users, silent, varied, dealt, seed = asked
    name, baseline = best_guess(metric, candidates)
    unanswered = silent | np.isnan(values)
    values = np.where(unanswered, baseline, values)
    looked = reconstruction.outcome == Outcome.NOTHING_FOUND
    n_ratings = _single_ratings(metric, manifest, varied)
    alone = metric in YES_OR_NO and not looked  # noise is told by all uploads together
    unheard = unanswered & ~(silent & looked)
    anyhow, n_unbeaten = None, 0
    lists = of_the_set(metric) and (~unanswered).sum() >= FEWEST_LISTS
    if dealt is not None and dealt.values and (n_ratings is not None or lists):
        anyhow, n_unbeaten = np.stack([one[metric] for one in dealt.values]), dealt.n_unbeaten
        if lists:  # items that are liked by others say something without any rows
            anyhow = np.fmax(anyhow, baseline)
    summary = summarise(
        metric,
        values,
        baseline,
        seed,
        unheard,
        n_ratings,
        yes_or_no=alone,
        dealt=anyhow,
        n_unbeaten=n_unbeaten,
    )
    if is_guess(reconstruction.attack):
        summary = replace(summary, verdict="")
    limit = limit_of(metric, manifest, ceilings, users, np.where(np.isnan(values), np.nan, baseline))
    n_abstained = int((unanswered & ~np.isnan(baseline)).sum())
    why = in_words(reconstruction.abstained, users.size)
    if of_attributes(metric, manifest) and reconstruction.blocks and not _says_attributes(reconstruction):
        why = NO_ATTRIBUTES
    each = PerClient(values, candidates, unanswered)
    reason = reason_of(summary, why, n_abstained)
    if dealt is not None and summary.by_dealings is not None:
        reason = "; ".join(filter(None, (reason, dealt.words)))
    return Score(metric, summary, name, limit, n_abstained, reason, each)


def _says_attributes(reconstruction: Reconstruction) -> bool:
    """Whether a client has an answer about attributes."""
    blocks = reconstruction.blocks
    return any(bool(((one.kind == ATTRIBUTE) & ~np.isnan(one.value)).any()) for one in blocks)


def _varied(truth: Truth, users: Int[np.ndarray, " users"]) -> Float[np.ndarray, " users"]:
    """How many ratings each client has; 0 where more than ``GUESSED`` of them are of one level."""
    ratings = truth.ratings[truth.rows(users)]
    n_rated = np.diff(ratings.indptr)
    levels, level = np.unique(ratings.data, return_inverse=True)
    owner = np.repeat(np.arange(users.size), n_rated)
    pair, count = np.unique(owner * max(levels.size, 1) + level, return_counts=True)
    most = np.zeros(users.size)
    np.maximum.at(most, pair // max(levels.size, 1), count)
    return np.where(most <= GUESSED * n_rated, n_rated, 0).astype(float)


def values_of(
    found: Reconstruction, manifest: Manifest, truth: Truth, users: Int[np.ndarray, " users"]
) -> dict[str, Float[np.ndarray, " users"]]:
    """Compute all metrics of clients, those of differences of ratings too."""
    differences = difference_accuracy(found.blocks, manifest, truth, users)
    return score_users(found.blocks, manifest, truth, users).values | differences


def values_anyhow(
    real: Reconstruction,
    dealt: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    users: Int[np.ndarray, " users"],
    rng: np.random.Generator,
) -> dict[str, Float[np.ndarray, " users"]]:
    """Compute all metrics of what is read of dealt rows, or of real answers, dealt out, if that is better."""
    ratings, lists = (
        replace(real, blocks=dealt_out(real.blocks, among, rng)) for among in (manifest.rating_levels, None)
    )
    of_rows, of_ratings, of_lists = (
        values_of(one, manifest, truth, users) for one in (dealt, ratings, lists)
    )
    return {
        metric: np.fmax(values, (of_lists if of_the_set(metric) else of_ratings)[metric])
        for metric, values in of_rows.items()
    }


def lists_of_others(
    real: Reconstruction, manifest: Manifest, truth: Truth, users: Int[np.ndarray, " users"]
) -> dict[str, Float[np.ndarray, " users"]]:
    """Compute how well each client's list is told by what is said of another one, the best of them."""
    answered = np.setdiff1d(users, list(real.abstained))
    best = {metric: np.full(users.size, np.nan) for metric in RATED_SET_METRICS}
    for shift in range(1, answered.size):
        other = dict(zip(answered.tolist(), np.roll(answered, shift).tolist(), strict=True))
        blocks = tuple(
            replace(block, users=np.array([other.get(user, user) for user in block.users.tolist()]))
            for block in real.blocks
        )
        told = values_of(replace(real, blocks=blocks), manifest, truth, users)
        best = {metric: np.fmax(values, told[metric]) for metric, values in best.items()}
    return best


def _is_asked(metric: str, scope: Scope) -> bool:
    """Whether answers of a scope are about what a metric asks."""
    if scope == Scope.RATED_SET:
        return of_the_set(metric)
    return scope not in RELATIVE or not _of_values(metric)


def _of_values(metric: str) -> bool:
    return metric.startswith(("rating_", "rated_rating", "users_fully_recovered"))


def _single_ratings(
    metric: str, manifest: Manifest, varied: Float[np.ndarray, " users"]
) -> Float[np.ndarray, " users"] | None:
    """Of how many of each client's ratings a metric is the share that is right; None where it is not."""
    if metric == SIZES and len(manifest.rating_levels) > 2:
        return None  # a rating that is turned at the middle leaves distances to middle ones as they are
    if metric in TOLD:
        return np.maximum(varied - TOLD[metric], 0)
    of_rated = metric == "rating_accuracy" and manifest.weighting == "observed-only"
    return varied if of_rated or metric == "rated_rating_accuracy" else None


def _refuse_unless_about(reconstruction: Reconstruction, manifest: Manifest) -> None:
    """Answers are about items and attributes of the manifest."""
    for block in reconstruction.blocks:
        for number, (name, size) in enumerate(
            (("item", manifest.n_items), ("attribute", manifest.n_attributes))
        ):
            largest = block.index.max(initial=-1, where=block.kind == number)
            if largest >= size:
                raise InputError(
                    f"the reconstruction: index of kind {name} must be below {size} (manifest), got "
                    f"{largest}; score it with the transcript that was attacked"
                )


def _in_the_open(metric: str, manifest: Manifest) -> bool:
    """Lists of uploads tell the rated items, wholly or in part, also when their gradients are shuffled."""
    chosen = any(defense.get("name") == "unrated-sampling" for defense in manifest.defenses)
    return of_the_set(metric) and (chosen or manifest.weighting == "observed-only")
