"""How right inferred attributes are: accuracy, balanced accuracy, and for two categories the area under ROC.

Half of the users, drawn by the seed, are those whom the adversary knows (``attacks.attributes``); the other
half is scored. Truth of these is opened here alone. The ceiling is the same classifier on their true ratings.

    inferred_accuracy/NAME/SOURCE              exact sign test against the majority, which is McNemar's
    inferred_balanced_accuracy/NAME/SOURCE     mean over categories; it describes and has no verdict
    inferred_auc/NAME/SOURCE                   exact to ties; E. R. DeLong et al. 1988, doi:10.2307/2531595
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from attacks.attributes import Inferred, Known, infer
from attacks.base import Reconstruction
from audit.scoring.ceiling import Limit
from audit.scoring.communities import COMMUNITIES, Communities, community_scores
from audit.scoring.verdicts import Score, Summary, joined_reasons, reason_of, summarise, verdict
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.transcript.manifest import Manifest

ACCURACY, BALANCED, AUC = "inferred_accuracy", "inferred_balanced_accuracy", "inferred_auc"
INFERRED = (ACCURACY, BALANCED, AUC)  # each with /NAME/SOURCE
UNTOLD = "nothing to learn from: no client without a known attribute is answered, or too few users are known"
UNKNOWN = "unknown"  # the category of users of whom a table says nothing


@dataclass(frozen=True, eq=False)
class Hidden:
    """An attribute that is inferred, of all users of the data."""

    name: str
    labels: tuple[str, ...]
    category: Int[np.ndarray, " users"]  # -1 where it is not told
    ratings: sp.csr_array
    seed: int

    @cached_property
    def known(self) -> Known:
        """Those whom the adversary knows: half of all."""
        order = generator(self.seed, Purpose.KNOWN_USERS).permutation(self.category.size)
        users = np.sort(order[: order.size // 2])
        users = users[self.category[users] >= 0]
        return Known(users, self.ratings[users], self.category[users], self.seed)

    def asked(self, users: Int[np.ndarray, " some"]) -> Int[np.ndarray, " asked"]:
        """Clients who are scored: not known, and their attribute is told."""
        users = np.unique(users)
        return users[~np.isin(users, self.known.users) & (self.category[users] >= 0)]


def hidden_attributes(ratings: Ratings, names: Iterable[str], seed: int) -> list[Hidden | Communities]:
    """Find attributes by name among those of the users; ``communities`` are of their lists."""
    groups = {
        ratings.attribute_names[group[0]].partition("=")[0]: group for group in ratings.attribute_groups
    }
    shape = ratings.n_users, ratings.n_items
    table = sp.csr_array((ratings.values, ratings.items, ratings.indptr), shape=shape)
    out: list[Hidden | Communities] = []
    for name in names:
        if name == COMMUNITIES:
            out.append(
                Communities(sp.csr_array((np.ones(table.nnz), table.indices, table.indptr), shape), seed)
            )
            continue
        if name not in groups:
            none = "it has none: FILE:attributes=USERS.csv reads a table of them"
            there = f"it has {', '.join(groups)}" if groups else none
            raise InputError(
                f"infer must name attributes of users of {ratings.name}, got {name!r:.40}; {there}"
            )
        columns = groups[name]
        labels = tuple(ratings.attribute_names[column].partition("=")[2] for column in columns)
        hot = ratings.attributes[:, columns] * [label != UNKNOWN for label in labels]
        category = np.where(hot.any(axis=1), hot.argmax(axis=1), -1)
        out.append(Hidden(name, labels, category, table, seed))
    return out


def inference_scores(found: Reconstruction, manifest: Manifest, hidden: Hidden | Communities) -> list[Score]:
    """Infer an attribute, or communities, from what an attack recovered, and score it."""
    if isinstance(hidden, Communities):
        return list(community_scores(found, manifest, hidden))
    users = hidden.asked(found.users)
    if not users.size:
        return []
    scores = []
    for inferred in infer(found, manifest, hidden.known, len(hidden.labels)):
        most = hidden.known.classify(inferred.source, hidden.ratings[users], len(hidden.labels))
        scores += _scores(inferred, most, users, hidden)
    return scores


def _scores(
    inferred: Inferred,
    most: Float[np.ndarray, "users categories"] | None,
    users: Int[np.ndarray, " users"],
    hidden: Hidden,
) -> list[Score]:
    true, n_categories = hidden.category[users], len(hidden.labels)
    share = np.bincount(true, minlength=n_categories) / users.size
    silent, scored = ~np.isin(users, inferred.users), np.isin(inferred.users, users)
    probability = np.tile(share, (users.size, 1))  # of a client without an answer
    probability[np.searchsorted(users, inferred.users[scored])] = inferred.probability[scored]
    right = (probability.argmax(axis=1) == true).astype(np.float64)
    reached = None if most is None else (most.argmax(axis=1) == true).astype(np.float64)
    weight = 1 / (share * (share > 0).sum())[true]  # of a client, so that each category counts the same
    majority = (share.argmax() == true).astype(np.float64)  # right at least as often as a stratified guess
    known = f"the adversary knows {hidden.name} and " + (
        f"uploads of {inferred.n_known:,} clients" if inferred.source == "factors" else
        f"ratings of {inferred.n_known:,} other users"
    )  # fmt: skip
    n_silent = int(silent.sum())

    def scored_as(metric: str, summary: Summary, baseline: str, limit: float | None) -> Score:
        reason = joined_reasons(known, reason_of(summary, "", n_silent))
        most_of_all = None if limit is None else Limit(np.nan, np.nan, limit)
        label = f"{metric}/{hidden.name}/{inferred.source}"
        return Score(label, summary, baseline, most_of_all, n_silent, reason)

    out = []
    for metric, scale in ((ACCURACY, np.ones(users.size)), (BALANCED, weight)):
        summary = summarise(metric, right * scale, majority * scale, hidden.seed, silent)
        if metric == BALANCED:
            summary = replace(summary, verdict="", p_value=np.nan)
        limit = None if reached is None else float((reached * scale).mean())
        out.append(scored_as(metric, summary, "majority", limit))
    if (share > 0).all() and n_categories == 2:
        limit = None if most is None else _placements(most[:, 1], true == 1)[0]
        summary = _area(probability[:, 1], true == 1, silent, hidden.seed)
        out.append(scored_as(AUC, summary, "chance", limit))
    return out


def _placements(
    score: Float[np.ndarray, " users"], positive: Bool[np.ndarray, " users"]
) -> tuple[float, Float[np.ndarray, " users"]]:
    """The area, and for each client the share of those of the other category that are on the right side."""
    from scipy.stats import rankdata

    within = np.empty(score.size)
    within[positive], within[~positive] = rankdata(score[positive]), rankdata(score[~positive])
    below = rankdata(score) - within
    n_positive, n_negative = positive.sum(), (~positive).sum()
    share = np.where(positive, below / n_negative, 1 - below / n_positive)
    return float(share[positive].mean()), share


def _area(
    score: Float[np.ndarray, " users"],
    positive: Bool[np.ndarray, " users"],
    silent: Bool[np.ndarray, " users"],
    seed: int,
) -> Summary:
    """The area under ROC: an interval from each client's share in it, and the test of Mann and Whitney."""
    from scipy.stats import mannwhitneyu

    area, share = _placements(score, positive)
    weight = positive.size / np.where(positive, positive.sum(), (~positive).sum())
    values = area + weight * (share - area)  # mean: the area; variance: DeLong's
    chance = np.full(values.size, 0.5)
    summary = summarise(AUC, values, chance, seed, silent)
    p_value = float(mannwhitneyu(score[positive], score[~positive], alternative="greater").pvalue)
    said = verdict(summary.advantage_low, summary.advantage_high, p_value, float(silent.mean()), values.size)
    return replace(summary, p_value=p_value, verdict=said, below=False)
