"""Scores of answers that are not about clients by name: pseudonyms, who sent what, lengths of lists.

Pseudonyms: of what an attack claims, how much is true of one client? Each is credited to the client who sent
most of its rows, where the recording tells that, else to the client who rated most of the items that it is
said to have rated (the lower number where two did). That is the scorer's help, who knows the truth: the
attack claims that the rows belong together and what was rated how, not whose they are.

Links: pairs of rows of one sender, and names. Rows of one round are compared; what links rows of several
rounds is the pseudonym, whose name is scored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Outcome, Reconstruction
from audit.scoring.answers import round_ratings
from audit.scoring.baselines import best_of, null_mean
from audit.scoring.metrics import UserScores
from audit.scoring.truth import Truth
from audit.scoring.verdicts import (
    LEAK,
    MOST_UNANSWERED,
    NO_EVIDENCE,
    NOT_TESTED,
    Score,
    in_words,
    joined_reasons,
    reason_of,
    summarise,
    why_verdict,
)
from victims.transcript.manifest import Manifest
from victims.transcript.recorded import Transcript
from victims.transcript.view import ITEM, Copies, View

CLAIMED, SHARE, CLIENTS = "claimed_rating_accuracy", "share_of_ratings_read", "share_of_clients_read"
PRECISION, RECALL, NAMES, NAMED = "link_precision", "link_recall", "names_right", "claimed_names_right"
NEAR = 0.1  # of a list's length


def scores_of_pseudonyms(
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    shuffled: UserScores | None,
    senders: Senders | None,
    seed: int,
) -> list[Score]:
    """Score answers about clients that have pseudonyms alone."""
    abstained, n_pseudonyms = reconstruction.abstained, reconstruction.users.size
    looked = reconstruction.outcome == Outcome.NOTHING_FOUND
    few_claims = not looked and len(abstained) > MOST_UNANSWERED * n_pseudonyms
    linked = reconstruction.linked
    whose = None if linked is None or senders is None else clients_of(linked.label, senders.sender)
    rows = []
    for metric, (name, values, guess) in pseudonym_scores(reconstruction, manifest, truth, whose).items():
        candidates = {name: guess}
        if shuffled is not None and metric in shuffled:
            candidates["shuffled"] = null_mean(shuffled, metric, guess.size)
        best, baseline = best_of(False, candidates)
        summary = summarise(metric, values, baseline, seed)
        if metric != CLAIMED and few_claims and summary.verdict == NO_EVIDENCE:
            summary = replace(summary, verdict=NOT_TESTED)  # a share of nothing is no answer
        reason = joined_reasons(in_words(abstained, n_pseudonyms), why_verdict(summary))
        rows.append(Score(metric, summary, best, None, len(abstained), reason))
    return rows


def score_of_lengths(reconstruction: Reconstruction, truth: Truth, seed: int) -> Score:
    """Score of how many clients the number of ratings is told, within a tenth."""
    users = reconstruction.users
    told = reconstruction.diagnostics.get("list_length", np.full(users.size, np.nan))
    length = np.diff(truth.ratings.indptr)[truth.rows(users)].astype(float)
    right = (np.abs(told - length) <= NEAR * length).astype(float)
    hits = np.abs(length[:, None] - np.unique(length)) <= NEAR * length[:, None]
    best = hits[:, hits.sum(axis=0).argmax()] if users.size else np.zeros(0)
    guess, silent = best.astype(float), np.isnan(told)
    summary = summarise("list_length_accuracy", np.where(silent, guess, right), guess, seed, silent)
    n_silent = int(silent.sum())
    reason = reason_of(summary, in_words(reconstruction.abstained, users.size), n_silent)
    return Score("list_length_accuracy", summary, "best number", None, n_silent, reason)


def scores_of_links(reconstruction: Reconstruction, senders: Senders | None, seed: int) -> list[Score]:
    """Score who is said to have sent the rows that had no sender."""
    linked = reconstruction.linked
    if linked is None or senders is None:
        return []
    rows, silent = [], unsaid(linked.label, linked.name)
    for metric, (name, values, guess) in link_scores(linked.label, linked.name, *senders).items():
        summary = summarise(metric, values, guess, seed)
        reason = why_verdict(summary)
        if silent.get(metric, 0) > MOST_UNANSWERED and summary.verdict != LEAK:
            summary = replace(summary, verdict=NOT_TESTED)  # what is not said bounds nothing
            reason = f"it says nothing of {silent[metric]:.0%} of the rows"
        rows.append(Score(metric, summary, name, None, 0, reason))
    return rows


def pseudonym_scores(
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    clients: Mapping[int, int] | None = None,
) -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """Score the claims about nameless clients.

    ``claimed_rating_accuracy``, one entry per pseudonym: share of its claimed ratings that its client gave;
    beside it the most frequent rating. ``share_of_ratings_read``, one entry per client of the truth: share
    of its ratings that some pseudonym of it claims rightly; ``share_of_clients_read``: 1 where there is one.
    Beside both 0, for nothing is claimed unseen.
    """
    levels, counts = np.unique(truth.ratings.data, return_counts=True)
    mode = levels[counts.argmax()]
    read = np.zeros(truth.users.size)
    right, guessed = [], []
    for pseudonym, items, answer in _claims(reconstruction, manifest):
        known = items < truth.ratings.shape[1]
        table = np.zeros((truth.users.size, items.size))
        table[:, known] = truth.ratings[:, items[known]].toarray()
        client = int((table > 0).sum(axis=1).argmax())
        if clients is not None and pseudonym in clients:
            client = int(truth.rows(np.array([clients[pseudonym]]))[0])
        right.append(float(np.mean(table[client] == answer)))
        guessed.append(float(np.mean(table[client] == mode)))
        read[client] += np.sum(table[client] == answer)
    n_rated = np.diff(truth.ratings.indptr)
    share = np.where(n_rated > 0, np.minimum(read / np.maximum(n_rated, 1), 1), np.nan)
    nothing = np.where(n_rated > 0, 0.0, np.nan)
    return {
        CLAIMED: ("majority", np.array(right), np.array(guessed)),
        SHARE: ("nothing", share, nothing),
        CLIENTS: ("nothing", np.where(n_rated > 0, np.sign(read), np.nan), nothing),
    }


def null_scores(
    reconstruction: Reconstruction, manifest: Manifest, truth: Truth, n_pseudonyms: int
) -> UserScores:
    """Score claims from dealt-out sums, beside an attack that claims ``n_pseudonyms`` clients.

    One number for everybody: whom the null does not claim counts as wrong, for one lucky claim is no guess
    about all of them.
    """
    right = pseudonym_scores(reconstruction, manifest, truth)[CLAIMED][1]
    worth = right.sum() / max(n_pseudonyms, right.size, 1)
    return {CLAIMED: np.full(truth.users.size, worth)}


def _claims(
    reconstruction: Reconstruction, manifest: Manifest
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Every pseudonym about whom something is claimed, items and ratings."""
    for user, kind, index, value, _ in reconstruction.rows():
        answer = round_ratings(value, manifest.rating_levels)
        claimed = (kind == ITEM) & (answer > 0)
        for name in np.unique(user[claimed]):
            mine = claimed & (user == name)
            yield int(name), index[mine], answer[mine]


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
