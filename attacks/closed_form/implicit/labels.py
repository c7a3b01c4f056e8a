"""Which rows of a client are of one label and which of the other, up to which is which.

Beyond the papers, for implicit feedback: clients upload rows of the items that they used, and of items that
they drew as negatives. Whatever the loss, the scorer and the optimiser, positives pull and negatives push, so
that a row lies on one side of 0 along the client's first singular direction. How far it is off that direction
(local epochs, minibatches, the layers of a neural scorer) says how sure its side is: directions of rows are a
mixture of two von Mises-Fisher laws, opposite to each other, of one concentration.

Numbers that have a sign and no label (errors of ratings) lie on both sides, too. Labels leave 0 empty: the
sizes of each label's rows are log-normal, within a factor of e, those of other numbers normal or log-normal
and spread wider, and the recording is asked which explains all its rows, in nats.

References
----------
A. Banerjee et al., "Clustering on the Unit Hypersphere using von Mises-Fisher Distributions", JMLR 6, 2005,
for the concentration. Its use against uploads is ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logit, xlogy

from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.shared_pull import without_pull
from victims.transcript.view import View

ROUNDS = 10  # of EM
WIDEST = 30.0  # nats that one row may say of its label
BAR = np.log(1e4)  # nats, by which labels explain all rows better than numbers do
AGREE = 0.5  # items of one label, more than of another, by which a client's rounds say which is which


class Labels(NamedTuple):
    """The rows of all clients by label: one entry for each client, round and item, in the order of rounds."""

    client: Int[np.ndarray, " rows"]  # its place among the users of the view
    round: Int[np.ndarray, " rows"]
    item: Int[np.ndarray, " rows"]
    odds: Float[np.ndarray, " rows"]  # nats for label 1 against label -1; the same label in all rounds
    size: Float[np.ndarray, " rows"]  # of the row along the client's direction
    two: Bool[np.ndarray, " clients"]  # whose rows are of two labels
    direction: Float[
        np.ndarray, "clients K"
    ]  # of the rows of label 1 in the client's first round, of length 1

    def only(self, some: Bool[np.ndarray, " rows"]) -> Labels:
        """Some of the rows."""
        client, round_, item, odds, size = (column[some] for column in self[:5])
        return Labels(client, round_, item, odds, size, self.two, self.direction)


def split(
    rows: Float[np.ndarray, "users rows K"], item: Bool[np.ndarray, "users rows"]
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows"], Float[np.ndarray, "users K"]]:
    """Nats for one label against the other, size of each row along the client's direction, and this.

    Examples
    --------
    >>> rows = np.array([[[2, 1], [-0.4, -0.3], [0.5, 0.2], [-0.1, 0.1]]])
    >>> odds, *_ = split(rows, np.ones((1, 4), bool))
    >>> np.sign(odds).tolist(), bool(np.abs(odds).argmin() == 3)
    ([[1.0, -1.0, 1.0, -1.0]], True)
    """
    sent = np.where(item[..., None] & np.isfinite(rows), rows, 0.0)
    largest = np.abs(sent).max(axis=(1, 2), initial=0)
    sent = sent / np.where(largest > 0, largest, 1.0)[:, None, None]
    direction = np.linalg.eigh(np.swapaxes(sent, 1, 2) @ sent)[1][:, :, -1]
    along = np.einsum("urk,uk->ur", sent, direction)
    turn = np.where(along.sum(axis=1) < 0, -1.0, 1.0)[:, None]
    length = np.linalg.norm(sent, axis=2)
    here, n_factors = length > 0, sent.shape[2]
    cosine = turn * along / np.where(here, length, 1.0)
    n = np.maximum(here.sum(axis=1), 1)
    side = np.sign(cosine)
    for _ in range(ROUNDS):
        mean = np.clip((side * cosine).sum(axis=1) / n, 0, 1 - 1 / (2 * n))
        sharpness = mean * (n_factors - mean**2) / (1 - mean**2)
        share = np.clip((1 + side.sum(axis=1) / n) / 2, 1 / (2 * n), 1 - 1 / (2 * n))
        odds = np.clip(2 * sharpness[:, None] * cosine + logit(share)[:, None], -WIDEST, WIDEST) * here
        side = np.tanh(odds / 2)
    return odds, np.abs(along), turn * direction


def nats_of(
    odds: Float[np.ndarray, "users rows"], size: Float[np.ndarray, "users rows"]
) -> Float[np.ndarray, " users"]:
    """By how much two narrow log-normal laws explain a client's rows better than a normal law, or wide ones.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.where(rng.random((1, 50)) < 0.2, 0.7, -0.3) * rng.uniform(0.8, 1.2, (1, 50))
    >>> numbers = rng.normal(size=(1, 50))
    >>> [bool(nats_of(one, np.abs(one))[0] > 9) for one in (labels, numbers)]
    [True, False]
    """
    here = (odds != 0) & (size > 0)
    n = np.maximum(here.sum(axis=1), 1)
    log = np.log(np.where(here, size, 1.0))
    per_normal, per_wide = -log.sum(axis=1), np.zeros(len(size))
    for one in (here & (odds > 0), here & (odds < 0)):
        m = one.sum(axis=1)
        mean = (log * one).sum(axis=1) / np.maximum(m, 1)
        squares = ((log - mean[:, None]) ** 2 * one).sum(axis=1)
        narrow = (squares + 1) / (m + 1)  # one row at a factor of e beforehand: few are near by accident
        wide = np.maximum(narrow, 1.0)
        per_normal += xlogy(m, m / n) - m * np.log(narrow) / 2 - squares / narrow / 2 + m / 2
        per_wide += m * np.log(wide / narrow) / 2 + squares * (1 / wide - 1 / narrow) / 2
    x = np.sign(odds) * size * here
    mean = x.sum(axis=1) / n
    spread = np.sqrt((((x - mean[:, None]) * here) ** 2).sum(axis=1) / n)
    per_normal += n * np.log(np.where(spread > 0, spread, 1.0))
    both = (here & (odds > 0)).any(axis=1) & (here & (odds < 0)).any(axis=1)
    return np.where(both, np.minimum(per_normal, per_wide) - 1.5 * np.log(n), 0.0)  # three numbers more


def labels_of(view: View) -> Labels | None:
    """Split the rows of all clients by label; None where there are none."""
    parts: list[tuple[np.ndarray, ...]] = []
    nats, directions = np.zeros(view.users.size), np.zeros((view.users.size, view.manifest.factors))
    for batch in view.batches(BATCH_BYTES):
        place = np.searchsorted(view.users, batch.users)
        for uploads in batch.rounds:
            rows = rows_of(view.manifest, uploads, None)
            if not rows.item.any():
                continue
            with np.errstate(all="ignore"):
                clean, _ = without_pull(rows.rows, rows.factors, rows.item)
                odds, size, direction = split(clean, rows.item)
                nats[place] += nats_of(odds, size)
            new = ~directions[place].any(axis=1) & rows.item.any(axis=1)
            directions[place[new]] = direction[new]
            user, slot = np.nonzero((odds != 0) & rows.item)
            index = np.broadcast_to(uploads.index, odds.shape)[user, slot]
            parts.append(
                (place[user], np.full(user.size, uploads.round), index, odds[user, slot], size[user, slot])
            )
    if not parts:
        return None
    client, round_, item, every, sizes = (np.concatenate(column) for column in zip(*parts, strict=True))
    labels = Labels(client, round_, item, every, sizes, _of_labels(nats), directions)
    return aligned(labels, view.manifest.n_items)


def _of_labels(nats: Float[np.ndarray, " clients"]) -> Bool[np.ndarray, " clients"]:
    """Whose rows are of labels, by all clients together; nobody's where that may be by accident."""
    share = 0.5
    for _ in range(ROUNDS):
        each = expit(np.clip(nats, -300, 300) + logit(share))
        share = float(np.clip(each.mean(), 1e-3, 1 - 1e-3))
    total = np.logaddexp(np.log(share) + nats, np.log1p(-share)).sum()
    return ((each >= 0.5) | (share >= 0.5)) & (nats != 0) & (total >= BAR)


def aligned(labels: Labels, n_items: int) -> Labels:
    """One label by the same name in all rounds of a client; rounds that do not say which are left out."""
    shape = labels.two.size, n_items
    odds, keep = labels.odds.copy(), np.ones(labels.odds.size, bool)
    known = sp.csr_array(shape)
    for round_ in np.unique(labels.round).tolist():
        here = labels.round == round_
        client = labels.client[here]
        sent = sp.csr_array((np.tanh(odds[here] / 2), (client, labels.item[here])), shape=shape)
        agree, shared = (
            np.asarray(one.multiply(other).sum(axis=1)).ravel()
            for one, other in ((known, sent), (abs(known), abs(sent)))
        )
        told = np.abs(agree) >= np.maximum(AGREE, shared / 2)
        turn = np.where(np.diff(known.indptr) == 0, 1.0, np.where(told, np.sign(agree), 0.0))
        odds[here] *= turn[client]
        keep[here] = turn[client] != 0
        known = sp.csr_array(known + sp.diags_array(turn) @ sent)
        known.eliminate_zeros()
        known.data = np.clip(known.data, -1, 1)
    return labels._replace(odds=odds).only(keep)
