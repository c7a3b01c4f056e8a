"""Items that a client draws anew in each round, with ratings that it makes up, beside those that it rated.

Rows of made-up ratings on the grid are those of ratings, and one round tells nothing (FedRec with random
ratings in place of a mean). Several rounds do: an item that was rated is in all of them with one rating, one
that was drawn is missing in some, or has another rating next time. So where lists of items come and go, those
that are always there are answered, and where ratings change, those that do not. Some that were drawn pass for
rated by accident; how many is told by the others:

- of U items that are in a round with probability d, U binom(k; R, d) are in k of R rounds, so that R of R are
  (R - 1) / (2 R) n(R - 1)^2 / n(R - 2);
- of ratings at levels of frequencies f a share of sum f^R is the same R times.

Lists that come and go are those of clients who send a sample of their ratings as well. No more items are
always in these than that binomial law says, which two rounds do not show.

What it assumes: draws of one round that do not depend on those of another. Items that are drawn once and for
all, with one made-up rating each, are not told from rated ones.

References
----------
G. Lin, F. Liang, W. Pan, Z. Ming, "FedRec: Federated Recommendation With Explicit Feedback", IEEE Intelligent
Systems 36(5), 2021, doi:10.1109/MIS.2020.3017205.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import RELATIVE, Reconstruction, Scope
from attacks.closed_form.fit.contradicted import silent_about
from attacks.closed_form.uploads.readings import Reading
from victims.transcript.view import ITEM, Uploads, View

MOST = 0.5  # of the clients seen in several rounds: a single one may rate an item anew, or delete a rating
SURE = 0.01  # share of a client's answers that may be made up by accident
EXCESS = 2.0  # times as many items are always there as of a sample would be
SAMPLES = ("personalized-sampling", "unrated-sampling")  # defenses after which lists come and go
MOST_ROUNDS = 8  # that are compared, evenly spaced
COMES_AND_GOES = (
    "lists of items come and go from round to round: a client may draw items and make up their ratings, and "
    "too few rounds tell those that are always there from drawn ones"
)
CHANGES = (
    "ratings of items change from round to round: a client may make them up, and too few rounds tell those "
    "that do not change from made-up ones"
)


class Sent(NamedTuple):
    """Rows of items, (n_rows,) each: whose, of what, in which round, and the rating; NaN where not told."""

    user: Int[np.ndarray, " rows"]
    item: Int[np.ndarray, " rows"]
    round: Int[np.ndarray, " rows"]
    rating: Float[np.ndarray, " rows"]


def compared(n_rounds: int) -> list[int]:
    """Number the rounds that are compared, of so many: all of a few, or some that are evenly spaced.

    Examples
    --------
    >>> compared(3), compared(71)
    ([0, 1, 2], [0, 10, 20, 30, 40, 50, 60, 70])
    """
    return np.unique(np.linspace(0, n_rounds - 1, MOST_ROUNDS).round().astype(int)).tolist()


def sent_in(
    users: Int[np.ndarray, " users"], uploads: Sequence[Uploads], read: Sequence[Reading] | None = None
) -> Sent:
    """List the rows of some clients, and the ratings that rounds tell by themselves."""
    columns = []
    for number in compared(len(uploads)):
        one = uploads[number]
        there = np.broadcast_to(one.valid & (one.kind == ITEM), (users.size, one.valid.shape[1]))
        rating = np.full(there.shape, np.nan)
        if read is not None:
            part = read[number]
            rating = np.where((part.answered & (part.steps != 0))[:, None], part.value, np.nan)
            there = there & (rating != 0)  # told not to be rated
        user = np.nonzero(there)[0]
        index = np.broadcast_to(one.index, there.shape)[there]
        columns.append((users[user], index, np.full(user.size, one.round), rating[there]))
    return Sent(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def unless_drawn_anew(found: Reconstruction, sent: Sequence[Sent], view: View) -> Reconstruction:
    """Take back what may be made up, where items or ratings of most clients change from round to round."""
    if view.rounds.size < 2 or found.scope not in (Scope.RATINGS_AND_ATTRIBUTES, *RELATIVE) or not sent:
        return found
    rows = Sent(*(np.concatenate(column) for column in zip(*sent, strict=True)))
    pairs = _pairs_of(rows, np.array(view.manifest.rating_levels), view.manifest.n_items)
    several = pairs.rounds > 1
    many = MOST * np.unique(pairs.client[several]).size
    stays, by_accident, kept = pairs.seen == pairs.rounds, np.zeros(pairs.n_clients), ~pairs.changed
    comes = not _sampled(view) and np.unique(pairs.client[pairs.went]).size > many
    if comes:
        lucky = _always_drawn(pairs, view.manifest.n_items)
        comes = pairs.rounds.max() == 2 or stays[several].sum() > EXCESS * lucky[np.isfinite(lucky)].sum()
    if comes:
        kept, by_accident = kept & stays & several, by_accident + lucky
    if np.unique(pairs.client[pairs.changed]).size > many:
        kept, by_accident = kept & (pairs.read == pairs.rounds) & several, by_accident + _never_changed(pairs)
    elif not comes and kept.all():
        return found
    n_kept = np.bincount(pairs.client[kept], minlength=pairs.n_clients)
    kept &= (by_accident <= SURE * n_kept)[pairs.client]
    return _among(found, pairs.key[kept], view.manifest.n_items, COMES_AND_GOES if comes else CHANGES)


class _Pairs(NamedTuple):
    """Clients and items, (n_pairs,) each.

    ``key`` is user * n_items + item, ``client`` numbers the users; ``seen`` in how many of the client's
    ``rounds``, ``read``: in how many of them a rating is told; ``low``, ``high``: numbers of its levels;
    ``went``: whether the item was missing later.
    """

    key: np.ndarray
    client: np.ndarray
    n_clients: int
    seen: np.ndarray
    rounds: np.ndarray
    read: np.ndarray
    went: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def changed(self) -> np.ndarray:
        """Whose rating is not the same in all rounds."""
        return self.low < self.high


def _pairs_of(sent: Sent, levels: Float[np.ndarray, " levels"], n_items: int) -> _Pairs:
    """Put the rows of a client about an item together."""
    round_ = np.unique(sent.round, return_inverse=True)[1]
    key, pair = np.unique(sent.user.astype(np.int64) * n_items + sent.item, return_inverse=True)
    users, client = np.unique(key // n_items, return_inverse=True)
    there, took_part = (np.zeros((n, int(round_.max(initial=0)) + 1), bool) for n in (key.size, users.size))
    there[pair, round_] = True
    took_part[client[pair], round_] = True
    was_there = np.logical_or.accumulate(there, axis=1)
    went: Bool[np.ndarray, " pairs"] = np.any(was_there & took_part[client] & ~there, axis=1)
    told = np.isfinite(sent.rating)
    near = np.abs(sent.rating[told, None] - levels).argmin(axis=1)
    low, high = np.full(key.size, levels.size), np.full(key.size, -1)
    np.minimum.at(low, pair[told], near)
    np.maximum.at(high, pair[told], near)
    return _Pairs(
        key,
        client,
        users.size,
        there.sum(axis=1),
        took_part.sum(axis=1)[client],
        np.bincount(pair[told], minlength=key.size),
        went,
        low,
        high,
    )


def _always_drawn(pairs: _Pairs, n_items: int) -> Float[np.ndarray, " clients"]:
    """How many drawn items of each client are in all of its rounds, by the binomial law and one item more.

    Where none went all may have been drawn each time.
    """
    n_rounds = np.ones(pairs.n_clients, int)
    n_rounds[pairs.client] = pairs.rounds
    but_one, but_two = (
        np.bincount(pairs.client[pairs.seen == pairs.rounds - left], minlength=pairs.n_clients)
        for left in (1, 2)
    )
    never = n_items - np.bincount(pairs.client, minlength=pairs.n_clients)
    but_two = np.where(n_rounds == 2, never, but_two)
    lucky = (n_rounds - 1) / (2 * n_rounds) * (but_one + 1) ** 2 / np.maximum(but_two, 1)
    return np.where(np.bincount(pairs.client[pairs.went], minlength=pairs.n_clients) > 0, lucky, np.inf)


def _never_changed(pairs: _Pairs) -> Float[np.ndarray, " clients"]:
    """How many made-up ratings of each client are the same in all of its rounds."""
    changed = pairs.changed
    often = np.bincount(np.concatenate([pairs.low[changed], pairs.high[changed]]))
    n_rounds = np.full(pairs.n_clients, 2)
    n_rounds[pairs.client] = pairs.rounds
    same = ((often / often.sum()) ** n_rounds[:, None]).sum(axis=1)
    return np.bincount(pairs.client[changed], minlength=pairs.n_clients) * same / np.maximum(1 - same, SURE)


def _among(
    found: Reconstruction, kept: Int[np.ndarray, " pairs"], n_items: int, reason: str
) -> Reconstruction:
    """Answer these clients and items alone."""
    blocks = []
    for block in found.blocks:
        key = block.users[:, None].astype(np.int64) * n_items + block.index
        left = (block.kind == ITEM) & (block.value != 0) & ~np.isin(key, kept)
        blocks.append(replace(block, value=np.where(left, np.nan, block.value)))
    told = [user for one in blocks for user in one.users[np.isfinite(one.value).any(axis=1)].tolist()]
    quiet = ~np.isin(found.users, [*found.abstained, *told])
    return silent_about(replace(found, blocks=tuple(blocks)), quiet, reason)


def _sampled(view: View) -> bool:
    """Whether clients are declared to send a sample of their ratings in each round."""
    sampled = any(entry.get("name") in SAMPLES for entry in view.manifest.defenses)
    return sampled or isinstance(view.manifest.rule.batch_size, int)
