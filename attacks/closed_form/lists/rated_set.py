"""Which items a client rated, from the list of items that it uploads.

Where the recording declares that rows are of rated items, the list is the answer. Where unrated items are
sampled beside the rated ones, rho times as many (Mai & Pang 2022, Eq. 36; in FedMF rows of zeros), a client's
list of N items has n = N / (1 + rho) rated ones:

- one round: each listed item is rated with probability 1 / (rho + 1), the paper's bound, if nothing is known
  of the items. But items that many clients list are popular, and popular items are more often rated: with
  pi_j the share of clients that rated j, seen through the shares that list it, P_ij = sigma(logit pi_j + b_i)
  on the list, with b_i such that the probabilities add up to n;
- several rounds with fresh samples: rated items are on every list, sampled ones come back with probability
  q = rho n / (m - n) each time, so the candidates are the intersection of the lists.

Where nothing is declared, the items that are sent may be those that were rated, those and drawn negatives, or
drawn negatives alone, so that the rated ones are among those that are never sent. In this order these decide:

- two labels of rows (``attacks.closed_form.implicit.labels``): positives were rated, where
  ``attacks.closed_form.implicit.positives`` names them, and clients where it does not are not answered;
- whether items that many use are sent more or less often (``attacks.closed_form.lists.sent_items``). Less
  often: the rated ones are among those that are not sent. More often, with ratings on one level and rows that
  are not read: some are drawn, as many as c_u says. Rows of one sign hold none, for positives pull and
  negatives push;
- otherwise ratings on several levels are taken to have rows of their own, with no probability claimed, unless
  lists hold more than half of the catalogue. On one level nothing tells, and nobody is answered.

It is the same on encrypted rows, but for the labels. Where clients send a row for every item and their
encoding publishes exponents beside the ciphertexts, rows of zeros show: frexp(0) = 0, while gradients are
small. What it assumes: rho is public where it is declared, clients list all their rated items in every round,
and few items are used by many.

References
----------
P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775, Eq. (36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from attacks.base import Estimates, Progress, Reconstruction, Scope, all_abstain, silent
from attacks.closed_form.implicit.implicit_recording import OPEN_LABEL, Positives, positives_of
from attacks.closed_form.lists.sent_items import (
    Lists,
    direction_of,
    lists_of,
    never_sent,
    popularity,
    share_of_hardly_used,
    with_probabilities,
    without_draws,
)
from attacks.closed_form.uploads.noise_floor import without_noise
from attacks.obstacles import nothing_received
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

BLOCK_CELLS = 1 << 20  # clients x candidates of one block of answers
MOST_LISTED = 0.5  # of the catalogue, beyond which lists are not taken for ratings without evidence
ONE_SIGN = 0.99  # of a client's rows along their first direction, that have the same sign
EVERYTHING = "every client uploads a row for every item, so the lists say nothing"
NO_ITEM = "the client listed no item"
ALL_ITEMS = "the client sent rows of every item"
OTHER_LABELS = "its rows are of one label, and others' of two: whether it is that of the positives is open"
NOTHING_TELLS = (
    "rows may be of rated items, of drawn negatives or of both, and neither labels nor how often items are "
    "sent tell which; rule['rows'] = 'rated' declares that they are of rated items alone"
)
TOO_FEW_DRAWN = (
    "what is sent avoids the items that many use: negatives that were drawn, and too few of them for the "
    "rest to say what the client rated"
)


class Rated(NamedTuple):
    """What lists say."""

    probability: sp.csr_array  # that an item is rated, of every candidate; other items are not
    silent: dict[int, str]
    all_sent: bool = False  # whether everything that is sent is taken to be rated
    classes: int = 1  # labels of the rows: 2 where a client's rows fall into two, else 1
    claimed: bool = True  # whether the probabilities are more than an assumption


@dataclass(frozen=True)
class RatedSet:
    """Hyper-parameters.

    Attributes
    ----------
    popularity : bool
        Whether items that many clients list are taken to be rated more often; without it every candidate
        of a client has the same probability.
    """

    popularity: bool = True
    name: str = "rated-set"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read the lists of all clients."""
        options = {**asdict(self), "seed": key}
        users = view.users
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, users, obstacle, options, scope=Scope.RATED_SET)
        view = without_noise(view)
        found = rated_items(view, by_popularity=self.popularity)
        progress(users.size, users.size)
        diagnostics = {
            "candidates": np.diff(found.probability.indptr).astype(float),
            "expected": np.asarray(found.probability.sum(axis=1)).ravel(),
            "classes": np.full(users.size, float(found.classes)),
        }
        blocks = tuple(_estimates(view.manifest, users, found))
        return Reconstruction(
            self.name, users, blocks, found.silent, options, diagnostics, scope=Scope.RATED_SET
        )

    def obstacle(self, view: View) -> str:
        """Why lists say nothing, or nothing."""
        manifest, messages = view.manifest, view.messages
        if messages.n_rows == 0:
            return nothing_received(view)
        if manifest.upload.zeros_if_unrated and messages.gradient is None and messages.exponent is None:
            return EVERYTHING
        if _rho(manifest) is None:
            return "every client uploads every item, or the ratio rho of sampled to rated ones is not public"
        return "" if _lists(without_noise(view)).listed.nnz else EVERYTHING


def rated_items(view: View, *, by_popularity: bool = True) -> Rated:
    """Say which items each client may have rated, of a view that ``RatedSet`` has no obstacle for."""
    lists = _lists(view)
    if rho := _rho(view.manifest):
        found = Rated(_beside_samples(view.manifest, lists, rho, by_popularity), {})
    elif _declared(view.manifest):
        found = Rated(lists.sent, {}, all_sent=True)
    else:
        readable = view.messages.gradient is not None and view.broadcasts
        positives = positives_of(view) if readable else None
        found = _by_label(view, positives) if positives is not None else _undeclared(view, lists)
    none = view.users[np.diff(found.probability.indptr) == 0].tolist()
    listed = np.diff(lists.listed.indptr)[np.searchsorted(view.users, none)]
    reasons = {user: ALL_ITEMS if some else NO_ITEM for user, some in zip(none, listed, strict=True)}
    return found._replace(silent=reasons | found.silent)


def _declared(manifest: Manifest) -> bool:
    """Whether it is declared that rows are of rated items: in so many words, or by the rule's name."""
    rule = manifest.rule
    named_rule = rule.rows == "all" and manifest.update is not None
    return "rows" not in manifest.inferred and (rule.rows == "rated" or named_rule)


def _rho(manifest: Manifest) -> float | None:
    """Sampled unrated items per rated one; 0 where only rated items are uploaded."""
    if manifest.weighting == "observed-only" and not manifest.samples_unrated:
        return 0.0
    for defense in manifest.defenses:
        value = defense.get("rho")
        if (
            defense.get("name") == "unrated-sampling"
            and isinstance(value, int | float)
            and 0 < value < np.inf
        ):
            return float(value)
    return None


def _lists(view: View) -> Lists:
    """Lists of the rounds that say something; all of them where clients may have rated everything."""
    rated_alone = view.manifest.rule.rows == "rated" and not view.manifest.samples_unrated
    return lists_of(view, every_round=rated_alone and _declared(view.manifest))


def _beside_samples(manifest: Manifest, lists: Lists, rho: float, by_popularity: bool) -> sp.csr_array:
    """Probabilities where rho is declared."""
    rounds = np.maximum(lists.n_rounds, 1)
    expected = np.floor(np.asarray(lists.listed.sum(axis=1)).ravel() / rounds / (1 + rho) + 1e-9)
    share = np.asarray(sp.csr_array(lists.listed.multiply(1 / rounds[:, None])).mean(axis=0)).ravel()
    drawn = np.minimum(rho * expected / np.maximum(manifest.n_items - expected, 1), 1.0)
    prior = popularity(share, drawn) if by_popularity else None
    return with_probabilities(lists.lasting, expected, prior)


def _by_label(view: View, positives: Positives) -> Rated:
    """The positives of clients whose labels are named."""
    reasons = np.where(positives.two, OPEN_LABEL, OTHER_LABELS)
    left = ~positives.told
    keep = sp.csr_array(sp.diags_array(positives.told * 1.0) @ positives.probability)
    silent_ = dict(zip(view.users[left].tolist(), reasons[left].tolist(), strict=True))
    return Rated(keep, silent_, classes=2)


def _undeclared(view: View, lists: Lists) -> Rated:
    """Items that are sent, or those that are not, by how often all clients send them."""
    sent = lists.sent
    direction = direction_of(sent)
    if direction < 0:
        return _never_sent(view, sent)
    if len(view.manifest.rating_levels) > 1:
        if direction == 0 and sent.nnz > MOST_LISTED * sent.shape[0] * sent.shape[1]:
            return _nobody(view, NOTHING_TELLS)
        rated = without_draws(lists)
        return Rated(rated, {}, all_sent=rated.nnz == sent.nnz, claimed=False)
    if direction == 0:
        return _nobody(view, NOTHING_TELLS)
    if _of_one_sign(view):
        return Rated(sent, {}, all_sent=True, claimed=False)
    length = np.diff(sent.indptr)
    drawn = min(share_of_hardly_used(sent, direction) * sent.shape[0] * sent.shape[1] / sent.nnz, 1.0)
    share = np.asarray(sent.mean(axis=0)).ravel()
    prior = popularity(share, drawn * length / sent.shape[1])
    return Rated(with_probabilities(sent, length * (1 - drawn), prior), {})


def _never_sent(view: View, sent: sp.csr_array) -> Rated:
    """Items that are not sent, of clients who send at least half of them."""
    n_users, n_items = sent.shape
    length = np.diff(sent.indptr)
    many = 2 * length >= n_items
    if not many.any():
        return _nobody(view, TOO_FEW_DRAWN)
    rest = [
        np.setdiff1d(np.arange(n_items), sent.indices[start:stop]) if use else np.zeros(0, int)
        for start, stop, use in zip(sent.indptr[:-1], sent.indptr[1:], many, strict=True)
    ]
    bounds = np.cumsum([0, *map(len, rest)])
    others = sp.csr_array((np.ones(bounds[-1]), np.concatenate(rest), bounds), shape=(n_users, n_items))
    few = dict.fromkeys(view.users[~many].tolist(), TOO_FEW_DRAWN)
    return Rated(never_sent(sent, others), few)


def _of_one_sign(view: View) -> bool:
    """Whether rows are read, and those of nearly every client lie on one side of 0."""
    if view.messages.gradient is None or not view.broadcasts:
        return False
    alike = [
        max((along > 0).mean(), (along < 0).mean())
        for batch in view.batches()
        for uploads in batch.rounds
        for user, here in enumerate(uploads.valid & (uploads.kind == 0))
        if here.any()
        for along in [_along(uploads.gradients[user, here])]
    ]
    return bool(np.median(alike) >= ONE_SIGN)


def _along(rows: np.ndarray) -> np.ndarray:
    """Rows along their first singular direction."""
    return rows @ np.linalg.svd(rows, full_matrices=False)[2][0]


def _nobody(view: View, reason: str) -> Rated:
    """Nobody is answered."""
    empty = sp.csr_array((view.users.size, view.manifest.n_items))
    return Rated(empty, dict.fromkeys(view.users.tolist(), reason))


def _estimates(manifest: Manifest, users: np.ndarray, found: Rated) -> Iterator[Estimates]:
    """The candidates of clients with lists of similar length; every other item is surely unrated."""
    candidate = found.probability
    length = np.diff(candidate.indptr)
    order = np.argsort(length, kind="stable")
    order = order[length[order] > 0]
    level = manifest.rating_levels[len(manifest.rating_levels) // 2]
    while order.size:
        n_users = max(int((length[order] * np.arange(1, order.size + 1) <= BLOCK_CELLS).sum()), 1)
        members, order = np.sort(order[:n_users]), order[n_users:]
        slot = np.arange(length[members].max())
        there = slot < length[members, None]
        entry = np.where(there, candidate.indptr[members, None] + slot, 0)
        rated = np.where(there, candidate.data[entry], np.nan)
        yield Estimates(
            users[members].astype(np.int32),
            np.zeros((1, slot.size), np.int8),
            np.where(there, candidate.indices[entry], 0).astype(np.int32),
            np.where(there, np.where(rated > 0.5, level, 0.0), np.nan),
            np.maximum(rated, 1 - rated) if found.claimed else None,
            rated_probability=rated if found.claimed else None,
        )
