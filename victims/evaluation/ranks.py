"""How good lists are, given scores: NDCG, precision, recall and F1 at k.

Paper 000, appendix .2, as corrected: (51) divides by t_p^i + f_p^i; (54) has the gain 2^x - 1 and sums to k.
The paper lists 10 items and calls a rating of at least 4 relevant (``Cut``). It does not say among which
items it ranks, so both readings are computed: ``rated``, the items that the user rated in the test set, and
``all``, all items that the user did not rate in training.

References
----------
Paper 000 (arXiv:2210.07775), section 6.3 and Eq. (51) to (54).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from victims.common.seeds import Purpose, generator
from victims.common.validation import above, require_fields, whole
from victims.evaluation.ranking_cases import Case

BLOCK = 512  # users ranked together
READINGS = ("rated", "all")


@dataclass(frozen=True)
class Cut:
    """Where a list ends, and which ratings are worth listing.

    References
    ----------
    Paper 000 (arXiv:2210.07775), appendix .2: 10 and 4.
    """

    k: int = 10  # length of the list, >= 1
    relevant: float = 4.0  # smallest rating that counts as relevant, in stars

    def __post_init__(self) -> None:
        require_fields(self, "a ranking", k=whole(1, 2**31 - 1), relevant=above(0))


PAPER = Cut()


class Quality(NamedTuple):
    """Means over users, each between 0 and 1; f1 is that of the mean precision and recall (53)."""

    ndcg: float
    precision: float
    recall: float
    f1: float


def rank(chosen: Case, predict: Callable[[np.ndarray], np.ndarray], cut: Cut = PAPER) -> dict[str, Quality]:
    """Quality of a ranking in both readings."""
    per_user: dict[str, list[np.ndarray]] = {reading: [] for reading in READINGS}
    for users, actual, trained in _blocks(chosen):
        scores = predict(users)
        for reading in READINGS:
            among = actual > 0 if reading == "rated" else chosen.open_items & ~trained
            per_user[reading].append(_at(cut, np.where(among, scores, -np.inf), actual))
    return {reading: _means(np.concatenate(blocks)) for reading, blocks in per_user.items()}


def popular(chosen: Case, seed: int, cut: Cut = PAPER) -> dict[str, Quality]:
    """Rank items by their number of training ratings; ties, and new items, at random."""
    counts = np.bincount(chosen.train.items, minlength=chosen.train.n_items).astype(np.float64)
    counts += generator(seed, Purpose.POPULARITY_TIES).random(counts.size)
    return rank(chosen, lambda users: np.broadcast_to(counts, (users.size, counts.size)), cut)


def constant(chosen: Case, seed: int, cut: Cut = PAPER) -> dict[str, Quality]:
    """Rank where every prediction is equal, so that all items are tied: each user's in a random order."""
    rng = generator(seed, Purpose.POPULARITY_TIES)
    return rank(chosen, lambda users: rng.random((users.size, chosen.train.n_items)), cut)


def _blocks(chosen: Case) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Users with test ratings; their test ratings, 0 where there is none; what they rated in training."""
    test, train = chosen.test.matrix(), chosen.train.matrix()
    if chosen.scenario == "new user":
        train = sp.csr_array(test.shape)
    tested = np.flatnonzero(np.diff(chosen.test.indptr))
    for first in range(0, tested.size, BLOCK):
        users = tested[first : first + BLOCK]
        yield users, test[users].toarray(), train[users].toarray() > 0


def _at(
    cut: Cut, scores: Float[np.ndarray, "users items"], actual: Float[np.ndarray, "users items"]
) -> Float[np.ndarray, "users 3"]:
    """NDCG, precision and recall of every user; recall is NaN where nothing is relevant."""
    top = np.argsort(-scores, axis=1, kind="stable")[:, : cut.k]
    listed = np.isfinite(np.take_along_axis(scores, top, axis=1))
    stars_listed = np.where(listed, np.take_along_axis(actual, top, axis=1), 0.0)
    discount = 1 / np.log2(np.arange(2, top.shape[1] + 2))
    ideal = -np.sort(-actual, axis=1)[:, : top.shape[1]]
    gain, most = ((2.0**stars - 1) @ discount for stars in (stars_listed, ideal))
    hits = (stars_listed >= cut.relevant).sum(axis=1)
    relevant = (actual >= cut.relevant).sum(axis=1)
    precision = hits / np.maximum(listed.sum(axis=1), 1)
    recall = np.where(relevant > 0, hits / np.maximum(relevant, 1), np.nan)
    return np.stack([gain / most, precision, recall], axis=1)


def _means(users: Float[np.ndarray, "users 3"]) -> Quality:
    if not np.isfinite(users[:, 2]).any():
        return Quality(float(users[:, 0].mean()), float(users[:, 1].mean()), float("nan"), float("nan"))
    ndcg, precision = (float(column.mean()) for column in users.T[:2])
    recall = float(np.nanmean(users[:, 2]))
    both = precision + recall
    return Quality(ndcg, precision, recall, 2 * precision * recall / both if both else 0.0)
