"""Test that few clients are read better from their rows than from the same rows, dealt out again and again.

A sign test over clients asks whether the next client is read, too, and of fewer than seven it cannot tell.
That these clients are read is another question, and it has an answer for one: where rows say nothing of its
ratings, what is read of the real rows is no better than what is read of rows that lie anyhow. Nor is it
better than the same answers about each other's items: rows that fit together may be of other ratings, random
ones that a client sends in place of its own, say, and dealt out they get no answer, which is easily beaten.

Of lists, which items a client rated, the same is asked. Answers dealt out among items would not do alone:
items are liked together, and answers that go together are all right by one stroke of luck. Dealt rows are as
lucky. Nor is a list read that is told no better by its own rows than by what is read of another client, or
than by how popular items are. Of one client or two that leaves too much: rows of somebody else's list, who
likes what all like, are better than any dealing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy.special import gammaincc

from attacks.base import OPTIONAL, Estimates
from audit.scoring.answers_said import round_ratings
from victims.transcript.view import ITEM

ROWS = 50_000  # that are dealt out in all, at most, but for the fewest dealings
FEWEST_DEALINGS, MOST_DEALINGS = 10, 100  # one client takes so many
FEWEST_LISTS = 3  # clients with an answer, of fewer of whom it is not asked which items they rated
SPARE = 2  # times as many as where no client is read as well from any: some are by chance


def most_dealings(n_rows: int) -> int:
    """Bound how often rows are dealt out, for an attack is run each time.

    Examples
    --------
    >>> [most_dealings(n) for n in (40, 1000, 100_000)]
    [100, 50, 10]
    """
    return min(max(ROWS // max(n_rows, 1), FEWEST_DEALINGS), MOST_DEALINGS)


def dealings_of(n_read: int, n_users: int, n_rows: int, level: float) -> int:
    """Find how often rows have to be dealt out for ``beaten_test`` to become significant.

    Examples
    --------
    >>> [dealings_of(n, 6, 100, 0.01) for n in (1, 2, 3, 6)], dealings_of(1, 1, 100, 0.01)
    ([0, 0, 100, 16], 100)
    """
    most = most_dealings(n_rows)
    counts = np.arange(1, most + 1)
    enough = gammaincc(n_users, n_read * np.log(counts + 1)) < level
    return int(min(SPARE * counts[enough][0], most)) if enough.any() else 0


def dealt_out(
    blocks: tuple[Estimates, ...], levels: list[float] | None, rng: np.random.Generator
) -> tuple[Estimates, ...]:
    """Permute each client's answers among the items: ratings, or membership."""
    return tuple(_dealt_out(block, levels, rng) for block in blocks)


def _dealt_out(block: Estimates, levels: list[float] | None, rng: np.random.Generator) -> Estimates:
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


def beaten_test(
    right: Float[np.ndarray, " users"],
    dealt: Float[np.ndarray, "dealings users"],
    *,
    n_beaten: int = 0,
    n_unbeaten: int = 0,
) -> float:
    """Test one-sidedly that clients are read better from their rows than from dealt ones.

    If rows say nothing of a client's ratings, the real dealing is one of the best m of all with a probability
    of m / (dealings + 1) at most, so that the sum of the clients' -log m / (dealings + 1) is no larger than
    one of exponential numbers. Clients are taken to be read on their own account.

    Dealings may end as soon as ``n_beaten`` of all that are left would not make it significant. At every
    level below that one it then errs no more often than with all of them, for whoever is significant has had
    them all; of one client the p-value is one at every level (Besag and Clifford).

    References
    ----------
    E. J. G. Pitman 1937, doi:10.2307/2984124 (permutation within blocks); R. A. Fisher, "Statistical Methods
    for Research Workers", 4th ed., 1932, section 21.1; J. Besag, P. Clifford 1991,
    doi:10.1093/biomet/78.2.301 (dealings that end early).

    Examples
    --------
    >>> round(beaten_test(np.ones(3), np.array([[0.4, np.nan, 0.2]] * 20)), 4)
    0.0056
    >>> beaten_test(np.full(3, 0.4), np.full((4, 3), 0.4))
    1.0
    """
    real, other = (np.where(np.isnan(part), 0.0, part) for part in (right, dealt))
    among_best = 1 + n_unbeaten + (other >= real).sum(axis=0)
    n_all = 1 + n_unbeaten + n_beaten + len(dealt)
    return float(gammaincc(right.size, -np.log(among_best / n_all).sum()))
