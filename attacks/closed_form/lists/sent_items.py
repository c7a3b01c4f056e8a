"""Which of the items that clients send rows of they rated, as far as the lists of items alone tell.

Of an item j that a share pi_j of the clients rated, a client u sends a row with probability

    c_u + (d - c_u) pi_j,

c_u where it did not rate it, d where it did: 1, or 0 where unrated items alone are sent (negatives of BPR
whose positives stay at home). Items that many people use are few, those that hardly anybody uses are many. So
how often items are sent is skewed to the right for d = 1 and to the left for d = 0, and c is the share of the
hardly used items that are sent. Which these are is taken from one half of the clients, and how often they are
sent from the other.

A round in which most clients send rows of all items that are sent at all says nothing, and is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.special
from jaxtyping import Float, Int

from attacks.closed_form.implicit.positives import EVEN, UNEVEN, off_even_draws
from victims.transcript.view import ITEM, View

SKEWED = 3.0  # standard errors of the third moment
TAIL = 10  # one of so many items is hardly used
SIZES = 40  # numbers of rated items that are tried
ROUNDS = 20  # passes over how many clients have how many
TINY = 1e-12
MOST = 0.5  # of the clients of a round, beyond whom it says nothing
HALVINGS = 60  # of the interval that holds b_i
WIDEST = 40.0  # nats
RAREST = 1e-3  # share of clients


class Lists(NamedTuple):
    """Items that clients list, by the number of rounds in which they do."""

    listed: sp.csr_array
    n_rounds: Int[np.ndarray, " users"]

    @property
    def lasting(self) -> sp.csr_array:
        """Items that are on every list of their client."""
        out = sp.csr_array(self.listed, copy=True)
        out.data = (out.data == np.repeat(self.n_rounds, np.diff(out.indptr))).astype(np.float64)
        out.eliminate_zeros()
        return out

    @property
    def sent(self) -> sp.csr_array:
        """Items that are on any list of their client."""
        out = sp.csr_array(self.listed, copy=True)
        out.data = np.ones(out.nnz)
        return out


def lists_of(view: View, *, every_round: bool) -> Lists:
    """Count in how many rounds each client lists each item."""
    messages, users, n_items = view.messages, view.users, view.manifest.n_items
    columns: list[tuple[np.ndarray, ...]] = []
    exponents = messages.exponent or [np.ones(chunk.size, np.int32) for chunk in messages.sender]
    for round_, sender, kind, index, exponent in zip(
        messages.round, messages.sender, messages.kind, messages.index, exponents, strict=True
    ):
        item = (kind == ITEM) & (exponent != 0)
        columns.append((round_[item], np.searchsorted(users, sender[item]), index[item]))
    round_, row, column = map(np.concatenate, zip(*columns, strict=True))
    if not every_round:
        keep = np.isin(round_, _telling(round_, row, column, n_items))
        round_, row, column = round_[keep], row[keep], column[keep]
    shape = users.size, n_items
    listed = sp.csr_array(sp.coo_array((np.ones(row.size), (row, column)), shape=shape))
    taken_part = np.unique(np.stack([row, round_]), axis=1)[0]
    return Lists(listed, np.bincount(taken_part, minlength=users.size))


def _telling(round_: np.ndarray, row: np.ndarray, column: np.ndarray, n_items: int) -> np.ndarray:
    """Rounds in which at least half of the clients do not list all items that are listed."""
    rounds, place = np.unique(round_, return_inverse=True)
    of, length = np.unique(np.stack([place, row]), axis=1, return_counts=True)
    n_clients = np.bincount(of[0], minlength=rounds.size)
    n_listed = np.bincount(np.unique(np.stack([place, column]), axis=1)[0], minlength=rounds.size)
    whole = np.where(n_clients > 1, n_listed, n_items)
    n_whole = np.bincount(of[0], length >= whole[of[0]], minlength=rounds.size)
    return rounds[n_whole <= MOST * n_clients]


def direction_of(sent: sp.csr_array) -> int:
    """Say whether items that many use are sent more often than others, 1, or less often, -1."""
    n_items = sent.shape[1]
    share = np.diff(sent.indptr) / n_items
    off = np.bincount(sent.indices, minlength=n_items) - share.sum()
    variance = (share * (1 - share)).sum()
    if not variance > 0:
        return 0
    uneven = (off**2 - variance).sum() / (np.sqrt(2 * n_items) * variance)
    third = off**3 - (share * (1 - share) * (1 - 2 * share)).sum()
    skew = third.sum() / (np.sqrt(n_items) * max(third.std(), 1e-300))
    return int(np.sign(skew)) if uneven >= UNEVEN and abs(skew) >= SKEWED else 0


def without_draws(lists: Lists) -> sp.csr_array:
    """Leave out items that come and go, where these are even draws and those that last are not."""
    lasting, sent = lists.lasting, lists.sent
    passing = sp.csr_array(sent - lasting)
    passing.eliminate_zeros()
    if not passing.nnz or not lasting.nnz:
        return sent
    drawn = off_even_draws(passing, lasting) <= EVEN and off_even_draws(lasting, passing) >= UNEVEN
    return lasting if drawn else sent


def share_of_hardly_used(sent: sp.csr_array, direction: int) -> float:
    """Estimate the mean of c_u: how many clients send an item that hardly anybody uses."""
    n_users, n_items = sent.shape
    half, total = np.arange(n_users) % 2, 0.0
    for mine in (0, 1):
        others = np.asarray(sent[half != mine].sum(axis=0)).ravel()
        hardly = np.argsort(direction * others, kind="stable")[: max(n_items // TAIL, 1)]
        total += sent[half == mine][:, hardly].sum() / hardly.size
    return float(total / n_users)


def never_sent(sent: sp.csr_array, others: sp.csr_array) -> sp.csr_array:
    """Give items that are not sent the probability that they are rated, for d = 0.

    Of a client with r rated items n = c (m - r) are sent, so that r alone is open. Its likelihood is that of
    the list, item by item; how many clients have how many comes out of all lists together.
    """
    n_users, n_items = sent.shape
    length, owner = np.diff(sent.indptr), np.repeat(np.arange(n_users), np.diff(others.indptr))
    share = np.bincount(sent.indices, minlength=n_items) / n_users
    prior = scipy.special.logit(np.clip(1 - share / share_of_hardly_used(sent, -1), RAREST, 1 - RAREST))
    sizes = np.unique(np.geomspace(1, n_items / 2, SIZES).astype(int))
    nats, rated = np.full((sizes.size, n_users), -np.inf), np.zeros((sizes.size, others.nnz))
    every = sp.csr_array(np.ones((1, n_items)))
    for k, size in enumerate(sizes.tolist()):
        used = with_probabilities(every, np.array([float(size)]), prior).data
        c = length / (n_items - size)
        some = (c <= 1) & (np.diff(others.indptr) > 0)
        unsent = 1 - np.minimum(c, 1)[owner] * (1 - used[others.indices])
        whole = sent @ np.log1p(-np.minimum(used, 1 - TINY)) + length * np.log(np.maximum(c, TINY))
        whole += np.bincount(owner, np.log(np.maximum(unsent, TINY)), minlength=n_users)
        nats[k, some], rated[k] = whole[some], used[others.indices] / np.maximum(unsent, TINY)
    asked = np.isfinite(nats).any(axis=0)
    weight, posterior = np.full(sizes.size, 1 / sizes.size), np.zeros(nats.shape)
    likelihood = np.exp(nats[:, asked] - nats[:, asked].max(axis=0))
    for _ in range(ROUNDS):
        joint = weight[:, None] * likelihood
        posterior[:, asked] = joint / joint.sum(axis=0)
        weight = posterior[:, asked].mean(axis=1)
    out = sp.csr_array(others, copy=True)
    out.data = np.minimum((posterior[:, owner] * rated).sum(axis=0), 1.0)
    return out


def popularity(
    share: Float[np.ndarray, " items"], drawn: Float[np.ndarray, " users"] | float
) -> Float[np.ndarray, " items"]:
    """Estimate logit pi_j for d = 1, from the share of the clients that send each item."""
    c = float(np.mean(drawn))
    return scipy.special.logit(np.clip((share - c) / max(1 - c, RAREST), RAREST, 1 - RAREST))


def with_probabilities(
    candidate: sp.csr_array, expected: Float[np.ndarray, " users"], prior: Float[np.ndarray, " items"] | None
) -> sp.csr_array:
    """Give every candidate sigma(prior + b_i)."""
    owner = np.repeat(np.arange(candidate.shape[0]), np.diff(candidate.indptr))
    logit = np.zeros(owner.size) if prior is None else prior[candidate.indices]
    low, high = np.full(candidate.shape[0], -WIDEST), np.full(candidate.shape[0], WIDEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        total = np.bincount(owner, scipy.special.expit(logit + middle[owner]), minlength=low.size)
        low, high = np.where(total < expected, middle, low), np.where(total < expected, high, middle)
    certain = np.diff(candidate.indptr) <= expected
    out = sp.csr_array(candidate, copy=True)
    out.data = np.where(certain[owner], 1.0, scipy.special.expit(logit + high[owner]))
    return out
