"""Score a reconstruction against the truth: one row per metric, never an accuracy without its baseline.

``metrics`` says how right the answers are, ``baselines`` what is guessed without the transcript, ``ceiling``
what no attack should pass, ``verdicts`` what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Identities, Outcome, Reconstruction, Scope
from audit.registry import is_guess
from audit.scoring.answers import Factors
from audit.scoring.baselines import Candidates, Population, best_of, null_mean
from audit.scoring.ceiling import Ceiling, limit_of
from audit.scoring.metrics import METRICS, Metric, UserScores, metrics_of, score_users
from audit.scoring.nulls import FEWEST_LISTS, Replicates
from audit.scoring.pseudonyms import Senders, score_of_lengths, scores_of_links, scores_of_pseudonyms
from audit.scoring.statistics import GUESSED
from audit.scoring.truth import Truth
from audit.scoring.verdicts import PerClient, Score, in_words, joined_reasons, reason_of, summarise
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
    replicates: Replicates | None = None,
    seed: int = 0,
) -> list[Score]:
    """Score every metric of a reconstruction."""
    truth.refuse_unless_about(manifest)
    _check_about(reconstruction, manifest)
    if reconstruction.scope == Scope.LIST_LENGTHS:
        return [score_of_lengths(reconstruction, truth, seed)]
    links = scores_of_links(reconstruction, senders, seed)
    if reconstruction.identities == Identities.PSEUDONYMS:
        return [*scores_of_pseudonyms(reconstruction, manifest, truth, shuffled, senders, seed), *links]
    scoring = _Scoring(reconstruction, manifest, truth, ceilings, replicates, seed)
    users, rows = scoring.users, []
    values = score_users(reconstruction.blocks, manifest, truth, users, reconstruction.scope)
    for metric in metrics_of(manifest, reconstruction.scope):
        candidates = metric.baselines(scoring.population)
        if shuffled is not None and metric.name in shuffled and not _names_rated_items(metric, manifest):
            candidates |= {"shuffled": null_mean(shuffled, metric.name, users.size)}
        rows.append(scoring.row(metric, values[metric.name], candidates))
    if reconstruction.factors is not None and truth.factors is not None:
        factors = Factors(reconstruction.factors, truth.factors, users)
        rows += [
            scoring.row(metric, metric.score(factors), metric.baselines(factors))
            for metric in METRICS
            if metric.of_factors
        ]
    return [*rows, *links]


@dataclass(frozen=True, eq=False)
class _Scoring:
    """What the rows of one reconstruction share."""

    reconstruction: Reconstruction
    manifest: Manifest
    truth: Truth
    ceilings: Mapping[str, Ceiling] | None
    replicates: Replicates | None
    seed: int

    @cached_property
    def users(self) -> Int[np.ndarray, " users"]:
        """The clients that are scored, ascending."""
        return np.unique(self.reconstruction.users)

    @cached_property
    def population(self) -> Population:
        """The same clients, as baselines know them."""
        return Population(self.manifest, self.truth, self.users)

    @cached_property
    def abstained(self) -> Bool[np.ndarray, " users"]:
        """On whom the attack abstained."""
        return np.isin(self.users, list(self.reconstruction.abstained))

    @cached_property
    def why_abstained(self) -> str:
        """How many those are, and why."""
        return in_words(self.reconstruction.abstained, self.users.size)

    @cached_property
    def n_varied(self) -> Float[np.ndarray, " users"]:
        """How many ratings each client has; 0 where more than ``GUESSED`` of them are of one level."""
        ratings, owner, counts = self.population.ratings.data, self.population.owner, self.population.counts
        levels, level = np.unique(ratings, return_inverse=True)
        pair, count = np.unique(owner * max(levels.size, 1) + level, return_counts=True)
        most = np.zeros(self.users.size)
        np.maximum.at(most, pair // max(levels.size, 1), count)
        return np.where(most <= GUESSED * counts, counts, 0).astype(float)

    @cached_property
    def says_attributes(self) -> bool:
        """Whether a client has an answer about attributes, or nobody has any answer."""
        blocks = self.reconstruction.blocks
        return not blocks or any(
            bool(((block.kind == ATTRIBUTE) & ~np.isnan(block.value)).any()) for block in blocks
        )

    def row(self, metric: Metric, values: Float[np.ndarray, " users"], candidates: Candidates) -> Score:
        """One metric beside its best baseline, which counts where there is no answer."""
        name, baseline = best_of(metric.lower_is_better, candidates)
        unanswered = self.abstained | np.isnan(values)
        values = np.where(unanswered, baseline, values)
        found_nothing = self.reconstruction.outcome == Outcome.NOTHING_FOUND
        known = metric.known_ratings(self.manifest)
        summary = summarise(
            metric.name,
            values,
            baseline,
            self.seed,
            unanswered & ~(self.abstained & found_nothing),
            None if known is None else np.maximum(self.n_varied - known, 0),
            binary=metric.binary and not found_nothing,  # noise shows in all uploads together
            replicates=self._permuted(metric, baseline, int((~unanswered).sum())),
            n_unbeaten=0 if self.replicates is None else self.replicates.n_unbeaten,
        )
        if is_guess(self.reconstruction.attack):  # others are held against it
            summary = replace(summary, verdict="")
        defined_baseline = np.where(np.isnan(values), np.nan, baseline)
        limit = limit_of(metric, self.manifest, self.ceilings, self.users, defined_baseline)
        n_abstained = int((unanswered & ~np.isnan(baseline)).sum())
        why_abstained = self.why_abstained
        if metric.of_attributes and self.manifest.n_attributes and not self.says_attributes:
            why_abstained = NO_ATTRIBUTES
        reason = reason_of(summary, why_abstained, n_abstained)
        if self.replicates is not None and summary.by_permutation is not None:
            reason = joined_reasons(reason, self.replicates.words)
        per_client = PerClient(values, candidates, unanswered)
        return Score(metric.name, summary, name, limit, n_abstained, reason, per_client)

    def _permuted(
        self, metric: Metric, baseline: Float[np.ndarray, " users"], n_answered: int
    ) -> Float[np.ndarray, "replicates users"] | None:
        """The metric on permuted rows; None where it is not tested against them."""
        if self.replicates is None or not self.replicates.values:
            return None
        lists = metric.of_lists and n_answered >= FEWEST_LISTS
        if not lists and metric.known_ratings(self.manifest) is None:
            return None
        values = np.stack([scores[metric.name] for scores in self.replicates.values])
        # how popular items are says something without any rows
        return np.fmax(values, baseline) if lists else values


def _check_about(reconstruction: Reconstruction, manifest: Manifest) -> None:
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


def _names_rated_items(metric: Metric, manifest: Manifest) -> bool:
    """Whether uploads name the rated items, wholly or in part, also when their gradients are shuffled."""
    sampled = any(defense.get("name") == "unrated-sampling" for defense in manifest.defenses)
    return metric.of_lists and (sampled or manifest.weighting == "observed-only")
