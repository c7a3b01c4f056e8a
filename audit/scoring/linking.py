"""Score who an attack says sent which anonymous rows: pairs of one sender, and names.

Rows of one round are compared; what links rows of several rounds is the pseudonym, whose name is scored
once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.transcript.recorded import Transcript
from victims.transcript.view import Copies, View

PRECISION, RECALL, NAMES, NAMED = "link_precision", "link_recall", "names_right", "claimed_names_right"


class Senders(NamedTuple):
    """Who sent the rows of a view, and in which round, in the order of ``View.copies``."""

    sender: Int[np.ndarray, " rows"]
    round: Int[np.ndarray, " rows"]


def senders_of(transcript: Transcript, view: View) -> Senders | None:
    """Look up who sent the rows that a view has without their sender."""
    if view.copies is None or not transcript.manifest.senders_hidden:
        return None
    told = replace(transcript, manifest=transcript.manifest.model_copy(update={"senders_hidden": False}))
    copies = told.view(view.adversary).copies
    assert copies is not None
    copies = copies.where(np.isin(copies.round, view.copies.round))
    if copies.round.size != view.copies.round.size or (copies.sender < 0).any():
        return None
    sender = np.empty(copies.round.size, np.int64)
    sender[_by_content(view.copies)] = copies.sender[_by_content(copies)]
    return Senders(sender, view.copies.round)


def _by_content(copies: Copies) -> Int[np.ndarray, " rows"]:
    """An order in which no sender counts."""
    columns = (copies.index, copies.kind, copies.receiver, copies.round)
    return np.lexsort([*copies.gradient.T[::-1], *columns])


def link_scores(
    label: Int[np.ndarray, " rows"],
    name: Int[np.ndarray, " pseudonyms"],
    sender: Int[np.ndarray, " rows"],
    round_: Int[np.ndarray, " rows"],
) -> dict[str, tuple[str, Float[np.ndarray, " n"], Float[np.ndarray, " n"]]]:
    """Score links and names.

    ``link_precision``, one entry per pseudonym with two rows in a round: share of its pairs of rows that one
    client sent; beside it the share of all pairs. ``link_recall``, one entry per client with two rows in a
    round: share of its pairs that are linked; beside it what as many links at random would find.
    ``names_right``, one entry per client: whether the pseudonym of most of its rows has its name;
    ``claimed_names_right``, one entry per named pseudonym: whether most of its rows are that client's; beside
    both a client at random.
    """
    _, who = np.unique(sender, return_inverse=True)
    _, when = np.unique(round_, return_inverse=True)
    clients = np.unique(sender)
    linked = label >= 0
    n_labels, n_rounds = name.size, int(when.max(initial=-1)) + 1
    claimed, true = (np.zeros((n, n_rounds)) for n in (n_labels, clients.size))
    np.add.at(claimed, (label[linked], when[linked]), 1)
    np.add.at(true, (who, when), 1)
    cells, size = np.unique(np.stack([label, who, when])[:, linked], axis=1, return_counts=True)
    of_label, of_client = np.zeros(n_labels), np.zeros(clients.size)
    np.add.at(of_label, cells[0], _pairs(size))
    np.add.at(of_client, cells[1], _pairs(size))
    all_pairs = _pairs(np.bincount(when)).sum()
    by_label, by_client = _pairs(claimed).sum(axis=1), _pairs(true).sum(axis=1)
    precision = of_label[by_label > 0] / by_label[by_label > 0]
    recall = of_client[by_client > 0] / by_client[by_client > 0]
    alike, found = by_client.sum() / max(all_pairs, 1), by_label.sum() / max(all_pairs, 1)
    overlap = np.zeros((n_labels, clients.size))
    np.add.at(overlap, (cells[0], cells[1]), size)
    one = 1 / max(clients.size, 1)
    right, claims = _names(overlap, name, clients)
    return {
        PRECISION: ("random pairs", precision, np.full(precision.size, alike)),
        RECALL: ("random pairs", recall, np.full(recall.size, found)),
        NAMES: ("random names", right, np.full(right.size, one)),
        NAMED: ("random names", claims, np.full(claims.size, one)),
    }


def unsaid(label: Int[np.ndarray, " rows"], name: Int[np.ndarray, " pseudonyms"]) -> dict[str, float]:
    """Share of the rows about which nothing is said, by the metric that asks of all of them.

    Examples
    --------
    >>> unsaid(np.array([0, 0, 1, -1]), np.array([-1, 5]))
    {'link_recall': 0.25, 'names_right': 0.75}
    """
    of_label = np.append(name, -1)[label]  # -1 is the last one
    return {
        metric: float(np.mean(said < 0)) if said.size else 1.0
        for metric, said in ((RECALL, label), (NAMES, of_label))
    }


def clients_of(label: Int[np.ndarray, " rows"], sender: Int[np.ndarray, " rows"]) -> dict[int, int]:
    """The client who sent most rows of each pseudonym, the lower number where two did.

    Examples
    --------
    >>> clients_of(np.array([0, 0, 1, -1, 0]), np.array([7, 7, 9, 9, 9]))
    {0: 7, 1: 9}
    """
    linked = label >= 0
    pairs, count = np.unique(np.stack([label[linked], sender[linked]]), axis=1, return_counts=True)
    order = np.lexsort((pairs[1], -count, pairs[0]))
    names, first = np.unique(pairs[0, order], return_index=True)
    return dict(zip(names.tolist(), pairs[1, order[first]].tolist(), strict=True))


def _pairs(size: np.ndarray) -> Float[np.ndarray, "*shape"]:
    return size * (size - 1) / 2


def _names(overlap: np.ndarray, name: np.ndarray, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each client whether its pseudonym has its name; for each named pseudonym whether that is right."""
    if not name.size:
        return np.zeros(clients.size), np.zeros(0)
    of_client = overlap.argmax(axis=0)
    right = (name[of_client] == clients) & (overlap.max(axis=0) > 0)
    said = name >= 0
    most = clients[overlap[said].argmax(axis=1)]
    return right.astype(float), (name[said] == most).astype(float)
