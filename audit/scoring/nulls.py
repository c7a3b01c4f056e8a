"""What is read of permuted rows and of permuted answers: the null of few clients.

Where rows say nothing of a client's ratings, what is read of the real rows is no better than what is read of
rows in any other order. Nor is it better than the same answers about each other's items: rows that fit
together may be of other ratings, random ones that a client sends in place of its own, say, and permuted they
get no answer, which is easily beaten.

Of lists, which items a client rated, the same is asked. Answers permuted among items would not do alone:
items are liked together, and answers that go together are all right by one stroke of luck. Permuted rows are
as lucky. Nor is a list read that is told no better by its own rows than by what is read of another client, or
than by how popular items are. Of one client or two that leaves too much: rows of somebody else's list, who
likes what all like, are better than any permutation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int
from scipy.special import gammaincc

from attacks.base import OPTIONAL, Estimates, Reconstruction
from audit.scoring.answers import round_ratings
from audit.scoring.metrics import RATED_SET_METRICS, UserScores, score_users
from audit.scoring.statistics import LEAK_LEVEL
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM

ROWS = 50_000  # that are permuted in all, at most, but for the fewest replicates
FEWEST_REPLICATES, MOST_REPLICATES = 10, 100  # one client takes so many
FEWEST_LISTS = 3  # clients with an answer, of fewer of whom it is not asked which items they rated
SPARE = 2  # times as many as where no client is read as well from any: some are by chance


@dataclass(frozen=True)
class Replicates:
    """What is read of the rows of few clients, permuted again and again."""

    # of each: metric -> (n_users,), as ``permuted_scores`` makes them
    values: tuple[Mapping[str, np.ndarray], ...]
    n_planned: int  # replicates that were to be made
    # after which no more were begun, 0 where time did not end them. Those that are left out then count as
    # read as well as the real rows: how long an attack takes may have to do with what it reads
    seconds: float = 0.0

    @property
    def n_unbeaten(self) -> int:
        """How many replicates that were not made count as read as well as the real rows."""
        return self.n_planned - len(self.values) if self.seconds else 0

    @property
    def words(self) -> str:
        """What must be said of replicates that were not made; empty where all were."""
        return made_in_words(len(self.values), self.n_planned, self.seconds)


def made_in_words(n_made: int, n_planned: int, seconds: float) -> str:
    """Say how many replicates were made, and why no more.

    Examples
    --------
    >>> made_in_words(100, 100, 0.0), made_in_words(2, 100, 0.0)
    ('', 'rows were dealt out 2 of 100 times: more could not have changed the verdict')
    """
    if n_made == n_planned:
        return ""
    count = f"rows were dealt out {n_made:,} of {n_planned:,} times"
    if not seconds:
        return f"{count}: more could not have changed the verdict"
    return (
        f"{count}, for the {seconds:g} s allowed were over, and the others count as read as well as the real "
        "ones: a recording of fewer rounds, or a faster attack, can be tested further"
    )


def most_replicates(n_rows: int) -> int:
    """Bound how often rows are permuted, for an attack is run each time.

    Examples
    --------
    >>> [most_replicates(n) for n in (40, 1000, 100_000)]
    [100, 50, 10]
    """
    return min(max(ROWS // max(n_rows, 1), FEWEST_REPLICATES), MOST_REPLICATES)


def replicates_of_scores(n_read: int, n_users: int, n_rows: int, level: float = LEAK_LEVEL) -> int:
    """Find how often rows have to be permuted for ``permutation_p_value`` to become significant.

    Examples
    --------
    >>> [replicates_of_scores(n, 6, 100) for n in (1, 2, 3, 6)], replicates_of_scores(1, 1, 100)
    ([0, 0, 100, 16], 100)
    """
    most = most_replicates(n_rows)
    counts = np.arange(1, most + 1)
    enough = gammaincc(n_users, n_read * np.log(counts + 1)) < level
    return int(min(SPARE * counts[enough][0], most)) if enough.any() else 0


def replicates_of_answers(n_clients: int, n_rows: int) -> int:
    """Find how often rows have to be permuted for ``answers_test`` to become significant.

    Examples
    --------
    >>> [replicates_of_answers(n, 50) for n in (1, 2, 3, 4, 6, 7, 100)], replicates_of_answers(1, 5000)
    ([100, 10, 4, 3, 2, 1, 1], 10)
    """
    enough = int(LEAK_LEVEL ** (-1 / max(n_clients, 1)) + 1e-9)  # (enough + 1)^-n < LEAK_LEVEL
    return min(enough, most_replicates(n_rows))


def permuted(
    blocks: tuple[Estimates, ...], levels: list[float] | None, rng: np.random.Generator
) -> tuple[Estimates, ...]:
    """Permute each client's answers among the items that it is said to have rated; without levels, all."""
    return tuple(_permuted(block, levels, rng) for block in blocks)


def _permuted(block: Estimates, levels: list[float] | None, rng: np.random.Generator) -> Estimates:
    shape = block.value.shape
    among = (np.broadcast_to(block.kind, shape) == ITEM) & ~np.isnan(block.value)
    if levels is not None:
        among &= round_ratings(np.where(among, block.value, 0.0), levels) > 0
    source = np.broadcast_to(np.arange(shape[1]), shape).copy()
    for own, here in zip(source, among, strict=True):
        own[here] = rng.permutation(own[here])
    moved = {
        name: np.take_along_axis(part, source, axis=1)
        for name in ("value", *OPTIONAL)
        if (part := getattr(block, name)) is not None
    }
    return replace(block, **moved)


def permuted_scores(
    real: Reconstruction,
    of_permuted_rows: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    users: Int[np.ndarray, " users"],
    rng: np.random.Generator,
) -> UserScores:
    """Score what is read of permuted rows, or real answers, permuted, if those are better."""
    of_rows, of_ratings, of_lists = (
        score_users(blocks, manifest, truth, users, real.scope)
        for blocks in (
            of_permuted_rows.blocks,
            permuted(real.blocks, manifest.rating_levels, rng),
            permuted(real.blocks, None, rng),
        )
    )
    return {
        metric: np.fmax(values, (of_lists if metric in RATED_SET_METRICS else of_ratings)[metric])
        for metric, values in of_rows.items()
    }


def scores_of_others_lists(
    real: Reconstruction, manifest: Manifest, truth: Truth, users: Int[np.ndarray, " users"]
) -> UserScores:
    """Score how well each client's list is told by what is said of another one, the best of them."""
    answered = np.setdiff1d(users, list(real.abstained))
    best = {metric: np.full(users.size, np.nan) for metric in RATED_SET_METRICS}
    for shift in range(1, answered.size):
        other = dict(zip(answered.tolist(), np.roll(answered, shift).tolist(), strict=True))
        blocks = [
            replace(block, users=np.array([other.get(user, user) for user in block.users.tolist()]))
            for block in real.blocks
        ]
        scores = score_users(blocks, manifest, truth, users, real.scope)
        best = {metric: np.fmax(values, scores[metric]) for metric, values in best.items()}
    return best
