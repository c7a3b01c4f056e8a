"""How right communities of interest are: of K clients named for target items, the share that is of them.

Targets are the lists of users whom the adversary knows, drawn by the seed and none of them scored. Of a
community are the K clients whose true list has the largest Jaccard index with a target, all that tie with the
last of them included; clients are named by their expected one (``attacks.communities``), ties shared.

    community_precision    mean over targets, over which the interval is resampled

The guess is the best of rankings that see no upload, and know how many items each client rated: random, the
longest lists, those nearest 1, 1.5 or 2 times as long as the target. The p-value is exact for the null that
answers say nothing of whose they are: answers permuted among clients. The ceiling is 1. A client without an
answer ranks as the mean of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from attacks.attributes import in_open
from attacks.base import Reconstruction
from attacks.communities import jaccard, likeness
from audit.scoring.ceiling import Limit
from audit.scoring.statistics import RESAMPLES
from audit.scoring.verdicts import Score, joined_reasons, reason_of, summarise, verdict
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest

PRECISION, COMMUNITIES = "community_precision", "communities"
SIZE = 10  # K, clients named for each target; half of them where they are fewer than 20
TARGETS = 100
RATIOS = (1.0, 1.5, 2.0)  # of lengths of lists; the best of them counts, so that the guess is a strong one


@dataclass(frozen=True, eq=False)
class Communities:
    """Target items, and which items each user of the data rated (0 or 1)."""

    lists: sp.csr_array
    seed: int
    name: str = COMMUNITIES

    @property
    def known(self) -> Int[np.ndarray, " targets"]:
        """Users whose lists are the targets: 100, or half of all."""
        order = generator(self.seed, Purpose.KNOWN_USERS).permutation(self.lists.shape[0])
        return np.sort(order[: min(TARGETS, order.size // 2)])


def community_scores(found: Reconstruction, manifest: Manifest, hidden: Communities) -> Iterator[Score]:
    """Name the members of each community from what an attack recovered, and score it."""
    known, targets = hidden.known, hidden.lists[hidden.known]
    users = np.unique(found.users[~np.isin(found.users, known)])
    theirs, expected = likeness(found, manifest, targets)
    asked = np.isin(theirs, users)
    if users.size < 2 or not asked.any():
        return
    place = np.searchsorted(users, theirs[asked])
    silent = ~np.isin(users, theirs)
    score = np.tile(expected[:, asked].mean(axis=1, keepdims=True), users.size)
    score[:, place] = expected[:, asked]
    size = min(SIZE, users.size // 2)
    true, guesses = truth_and_guesses(hidden.lists[users], targets, size)
    named = top(score, size)
    right = {name: (guess * true).sum(axis=1) / size for name, guess in guesses.items()}
    best = max(right, key=lambda name: right[name].mean())
    summary = summarise(PRECISION, (named * true).sum(axis=1) / size, right[best], hidden.seed)
    p_value, leaves = permuted(named, true, place, hidden.seed), summary.baseline < 1 - 1e-12
    low, high = summary.advantage_low, summary.advantage_high
    said = verdict(low, high, p_value, float(silent.mean()), users.size, leaves=leaves)
    counts = {"n_users": users.size, "n_unanswered": int(silent.sum())}
    summary = replace(summary, p_value=p_value, verdict=said, below=False, **counts)
    about = f"the adversary knows lists of {known.size} other users and names {size} clients for each"
    settled = "uploads name the items (OPEN): no attack is needed" if in_open(manifest) else ""
    reason = joined_reasons(about, settled, reason_of(summary, "", summary.n_unanswered))
    yield Score(PRECISION, summary, best, Limit(np.nan, np.nan, 1.0), summary.n_unanswered, reason)


def truth_and_guesses(
    lists: sp.csr_array, targets: sp.csr_array, size: int
) -> tuple[Bool[np.ndarray, "targets users"], dict[str, Float[np.ndarray, "targets users"]]]:
    """Who is of each community, and whom rankings name that know numbers of ratings alone."""
    length, theirs = (np.maximum(np.diff(table.indptr), 1.0) for table in (lists, targets))
    shared = (lists @ targets.T).toarray().astype(float)
    index = jaccard(shared, length[:, None], targets).T
    true = index >= np.partition(index, -size, axis=1)[:, -size][:, None]
    rankings = {"random": np.zeros_like(index), "longest lists": np.tile(length, (theirs.size, 1))}
    for ratio in RATIOS:
        apart = np.abs(np.log(length) - np.log(ratio * theirs[:, None]))
        rankings[f"lists {ratio:g} times as long"] = -apart
    return true, {name: top(ranking, size) for name, ranking in rankings.items()}


def top(score: Float[np.ndarray, "targets users"], size: int) -> Float[np.ndarray, "targets users"]:
    """How far each client is named for each target, K in all; ties share the last places."""
    last = np.partition(score, -size, axis=1)[:, -size][:, None]
    above, tied = score > last, score == last
    left = size - above.sum(axis=1, keepdims=True)
    return above + tied * (left / tied.sum(axis=1, keepdims=True))


def permuted(
    named: Float[np.ndarray, "targets users"],
    true: Bool[np.ndarray, "targets users"],
    answered: Int[np.ndarray, " answered"],
    seed: int,
) -> float:
    """The share of permutations of the answers among clients, the real one included, that are as right."""
    rng, named = generator(seed, Purpose.COMMUNITY_PERMUTATIONS), named[:, answered]
    target, whose = np.nonzero(named)
    weight = named[target, whose]
    right = [
        (weight * true[target, owner[whose]]).sum()
        for owner in (answered, *(rng.permutation(answered) for _ in range(RESAMPLES - 1)))
    ]
    return float((np.array(right) >= right[0] - 1e-9).mean())
