"""Which items a client rated, from nothing but the list of items that it uploads.

In observed-only the list is the answer. Where unrated items are sampled beside the rated ones, rho times as
many (paper 000, Eq. 36; in FedMF rows of zeros), a client's list of N items has n = N / (1 + rho) rated ones:

- one round: each listed item is rated with probability 1 / (rho + 1), the paper's bound, if nothing is known
  of the items. But items that many clients list are popular, and popular items are more often rated: with
  pi_j the share of clients that rated j, seen through the shares that list it, P_ij = sigma(logit pi_j + b_i)
  on the list, with b_i such that the probabilities add up to n;
- several rounds with fresh samples: rated items are on every list, sampled ones come back with probability
  q = rho n / (m - n) each time, so the candidates are the intersection of the lists.

No number inside a row is read: the attack is the same on encrypted rows. Where clients send a row for every
item and their encoding publishes exponents beside the ciphertexts, rows of zeros show: frexp(0) = 0, while
gradients are small. What it assumes: rho is public, and clients list all their rated items in every round.

References
----------
Paper 000: P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775, Eq. (36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import scipy.sparse as sp
import scipy.special
from jaxtyping import Float

from attacks.base import Estimates, Progress, Reconstruction, Scope, all_abstain, silent
from attacks.obstacles import nothing_received
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

HALVINGS = 60  # of the interval that holds b_i
WIDEST = 40.0  # nats
RAREST = 1e-3  # share of clients
BLOCK_CELLS = 1 << 20  # clients x candidates of one block of answers
EVERYTHING = "every client uploads a row for every item, so the lists say nothing"


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
        """Read the lists of all clients.

        Parameters
        ----------
        view : View
        key : int
            Unused: the attack draws nothing at random.
        progress : callable

        Returns
        -------
        Reconstruction
            Scored on the rated set alone (``scope``). ``value`` is the median rating level for items
            taken to be rated (probability above one half), else 0; ``probability`` that this is right.
            Diagnostics: ``candidates`` and ``expected`` numbers of rated items per client.
        """
        options = {**asdict(self), "seed": key}
        users = view.users
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, users, obstacle, options, scope=Scope.RATED_SET)
        lists = _lists(view)
        n_rounds = np.asarray((lists.max(axis=1)).todense(), np.int64).ravel()
        candidate = sp.csr_array(lists, copy=True)
        candidate.data = (lists.data == np.repeat(n_rounds, np.diff(lists.indptr))).astype(np.float64)
        candidate.eliminate_zeros()
        expected = _expected(view.manifest, lists, n_rounds)
        prior = _popularity(view.manifest, lists, n_rounds, expected) if self.popularity else None
        probability = _probabilities(candidate, expected, prior)
        progress(users.size, users.size)
        diagnostics = {"candidates": np.diff(candidate.indptr).astype(float), "expected": expected}
        blocks = tuple(_estimates(view.manifest, users, candidate, probability))
        without = np.diff(lists.indptr) == 0
        abstained = dict.fromkeys(users[without].tolist(), "the client listed no item")
        return Reconstruction(
            self.name, users, blocks, abstained, options, diagnostics, scope=Scope.RATED_SET
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
        return EVERYTHING if _everything(manifest, _lists(view)) else ""


def _everything(manifest: Manifest, lists: sp.csr_array) -> bool:
    """Whether all clients list all items, and nobody declared that they rated them."""
    declared = manifest.rule.rows == "rated" and "rows" not in manifest.inferred
    said = declared and not manifest.samples_unrated
    return not said and bool((np.diff(lists.indptr) == manifest.n_items).all())


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


def _lists(view: View) -> sp.csr_array:
    """In how many rounds each client lists each item, (users, items)."""
    messages, users = view.messages, view.users
    rows, columns = [], []
    exponents = messages.exponent or [np.ones(chunk.size, np.int32) for chunk in messages.sender]
    for sender, kind, index, exponent in zip(
        messages.sender, messages.kind, messages.index, exponents, strict=True
    ):
        item = (kind == ITEM) & (exponent != 0)
        rows.append(np.searchsorted(users, sender[item]))
        columns.append(index[item])
    row, column = np.concatenate(rows), np.concatenate(columns)
    shape = users.size, view.manifest.n_items
    return sp.csr_array(sp.coo_array((np.ones(row.size), (row, column)), shape=shape))


def _expected(manifest: Manifest, lists: sp.csr_array, n_rounds: np.ndarray) -> Float[np.ndarray, " users"]:
    """Number of rated items: the listed ones of a round over 1 + rho."""
    length = np.asarray(lists.sum(axis=1)).ravel() / np.maximum(n_rounds, 1)
    rho = _rho(manifest) or 0.0
    return np.floor(length / (1 + rho) + 1e-9)


def _popularity(
    manifest: Manifest, lists: sp.csr_array, n_rounds: np.ndarray, expected: np.ndarray
) -> Float[np.ndarray, " items"]:
    """logit of the share of clients that rated each item, from the share that lists it in a round."""
    listed = np.asarray(
        sp.csr_array(lists.multiply(1 / np.maximum(n_rounds, 1)[:, None])).mean(axis=0)
    ).ravel()
    rho = _rho(manifest) or 0.0
    sampled = np.mean(np.minimum(rho * expected / np.maximum(manifest.n_items - expected, 1), 1.0))
    share = (listed - sampled) / max(1 - sampled, RAREST)
    return scipy.special.logit(np.clip(share, RAREST, 1 - RAREST))


def _probabilities(
    candidate: sp.csr_array, expected: np.ndarray, prior: np.ndarray | None
) -> Float[np.ndarray, " candidates"]:
    """sigma(prior + b) for every candidate, with b by bisection so that each client's sum is as expected."""
    owner = np.repeat(np.arange(candidate.shape[0]), np.diff(candidate.indptr))
    logit = np.zeros(owner.size) if prior is None else prior[candidate.indices]
    low, high = np.full(candidate.shape[0], -WIDEST), np.full(candidate.shape[0], WIDEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        total = np.bincount(owner, scipy.special.expit(logit + middle[owner]), minlength=low.size)
        low, high = np.where(total < expected, middle, low), np.where(total < expected, high, middle)
    certain = np.diff(candidate.indptr) <= expected
    return np.where(certain[owner], 1.0, scipy.special.expit(logit + high[owner]))


def _estimates(
    manifest: Manifest, users: np.ndarray, candidate: sp.csr_array, probability: np.ndarray
) -> Iterator[Estimates]:
    """The candidates of clients with lists of similar length; every other item is surely unrated."""
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
        rated = np.where(there, probability[entry], np.nan)
        if manifest.weighting == "observed-only" and not manifest.samples_unrated:
            value = np.where(rated > 0, level, np.nan)  # rows exist for rated items only
        else:
            value = np.where(there, np.where(rated > 0.5, level, 0.0), np.nan)
        yield Estimates(
            users[members].astype(np.int32),
            np.zeros((1, slot.size), np.int8),
            np.where(there, candidate.indices[entry], 0).astype(np.int32),
            value,
            np.maximum(rated, 1 - rated),
            rated_probability=rated,
        )
