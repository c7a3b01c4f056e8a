"""Clients of a pairwise loss (BPR), read back: a fit confirms the labels that rows show, and names are found.

Positives pull and negatives push, so that along their common direction rows fall into two labels by their
sign. Which of these are the positives no rows of one client tell
(``attacks.closed_form.implicit.positives``). Labels are held and the client's factor and the constants
fitted: rows of a pairwise loss are explained to their last digits, after any number of steps, and others are
not. Where each positive has one negative, pairs are rows of equal size, which short steps leave next to each
other.

What it assumes: rows of positives and of the negatives that were drawn, in the clear; one level, the mark of
a positive. A positive that is no row is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Progress, silent
from attacks.client_rules.paired_labels import PairedLabels
from attacks.closed_form.implicit.implicit_recording import OPEN_LABEL, label_estimates, positives
from attacks.closed_form.implicit.labels import WIDEST, Labels, aligned
from attacks.closed_form.uploads.readings import Rows, some_of
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.inversion.answers import Found
from attacks.inversion.clients import SAMPLE, open_clients
from attacks.inversion.compression import uncompressed
from attacks.inversion.guess import Guess
from attacks.inversion.many_starts import chosen, fitted, least
from attacks.inversion.passes import in_order
from attacks.inversion.search import KEPT, LONG, SHORT, allowed_of, begun
from attacks.inversion.starts import Starts
from attacks.inversion.told import SPARE
from victims.transcript.view import View

MOST_FITTED, AT_ONCE = 512, 16  # rows of a client that are fitted, and fits of one call
LENGTHS = np.logspace(-1.5, 1, 6)  # of a client's factor, where fits start
BEYOND = 3  # numbers that rows of one step tell of n: n less the two that are fitted, and less their sum, 0
RATINGS = "the ratings have several levels, and a pairwise loss has labels"
NO_PAIRS = "no pairs of a positive and a negative explain its rows"


class Labelled(NamedTuple):
    """Some clients in one round, their rows in the order of the pairs."""

    users: Int[np.ndarray, " clients"]
    items: Int[np.ndarray, "clients n"]
    rows: Rows  # 0 where a row is of no item
    first: Bool[np.ndarray, "clients n"]  # whether a row has the one label, not which; False off the items
    able: Bool[np.ndarray, " clients"]  # who has rows of both, and enough

    def only(self, some: Int[np.ndarray, " some"]) -> Labelled:
        """Some of the clients."""
        return Labelled(
            self.users[some], self.items[some], some_of(self.rows, some), self.first[some], self.able[some]
        )


class Explained(NamedTuple):
    """How a hypothesis does."""

    good: Bool[np.ndarray, " clients"]  # whose rows factor and constants explain to their last digits
    # the best ones, ``attacks.client_rules.paired_labels.CONSTANTS``
    constants: Float[np.ndarray, "clients c"]


def read_pairs(
    view: View, rule: PairedLabels, found: Found, rounds: int, progress: Progress = silent
) -> tuple[str, str]:
    """Take up whose positives and negatives are told."""
    if len(view.manifest.rating_levels) != 1:
        return "", RATINGS
    for one in dict.fromkeys((rule, PairedLabels(0), PairedLabels(1))):
        guess = _chosen(view, one, found)
        if guess is not None:
            break
    else:
        return "", NO_PAIRS
    split: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for part in labelled(view, one, found, rounds):
        told = explained(one, guess, part)
        for number in np.flatnonzero(told.good).tolist():
            here = part.rows.item[number]
            signs = np.where(part.first[number, here], 1, -1)
            split.setdefault(int(part.users[number]), []).append((part.items[number, here], signs))
        progress(len(split), view.users.size)
    _take_up(view, found, split)
    return f"{guess.value:g} {guess.family.label}", NO_PAIRS


def labelled(view: View, rule: PairedLabels, found: Found, rounds: int) -> Iterator[Labelled]:
    """Split the rows of clients with open answers by their sign, round by round."""
    for users, items, rows in open_clients(view, found, rounds):
        for group in in_order(users, items, rows):
            if group.rows.item.sum(axis=1).max() <= MOST_FITTED:
                yield _split(rule, *group)


def _split(rule: PairedLabels, users: np.ndarray, items: np.ndarray, rows: Rows) -> Labelled:
    """Clients in one round, their rows split by sign; pairs one below another."""
    direction, _ = leading_direction(rows.rows)
    scalar = np.matmul(rows.rows, direction[:, :, None])[..., 0] * rows.item
    first = scalar > 0
    counts = np.stack([first.sum(axis=1), (scalar < 0).sum(axis=1)])
    able = (counts > 0).all(axis=0) & (counts.sum(axis=0) >= BEYOND + SPARE)
    if rule.negatives != 1:
        return Labelled(users, items, rows, first, able)
    able &= counts[0] == counts[1]
    order = _by_turns(scalar, first, np.where(able, counts[0], 0))
    items, first = (np.take_along_axis(one, order, axis=1) for one in (items, first))
    return Labelled(users, items, _ordered(rows, order), first, able)


def _by_turns(
    scalar: Float[np.ndarray, "clients n"],
    first: Bool[np.ndarray, "clients n"],
    half: Int[np.ndarray, " clients"],
) -> Int[np.ndarray, "clients n"]:
    """The order in which rows of both labels stand by turns, equal sizes together; the rest last."""
    size = np.where(first, scalar, np.where(scalar < 0, -scalar, -np.inf))
    order = np.lexsort((-size, ~first))
    place, half = np.arange(order.shape[1])[None], half[:, None]
    return np.take_along_axis(
        order, np.where(place < 2 * half, place // 2 + half * (place % 2), place), axis=1
    )


def _ordered(rows: Rows, order: Int[np.ndarray, "clients n"]) -> Rows:
    """Rows in another order."""
    sent, factors = (np.take_along_axis(one, order[..., None], axis=1) for one in rows[:2])
    offset, item = (np.take_along_axis(one, order, axis=1) for one in rows[2:4])
    return Rows(sent, factors, offset, item, rows.scale, rows.precision, None)


def _chosen(view: View, rule: PairedLabels, found: Found) -> Guess | None:
    """The hypothesis that explains most of a few clients; None where none explains any."""
    for part in labelled(view, rule, found, 1):
        some = np.flatnonzero(part.able)[:SAMPLE]
        if not some.size:
            continue
        few = part.only(some)
        best, most = None, 0
        for family in rule.families(view.manifest):
            for value in sorted(family.values, key=lambda value: value != family.first):
                count = int(explained(rule, guess := Guess(family, value), few).good.sum())
                if count > most:
                    best, most = guess, count
                if 2 * most > some.size:
                    return best
        return best
    return None


def explained(rule: PairedLabels, guess: Guess, part: Labelled) -> Explained:
    """Fit factor and constants, with labels held."""
    rows = part.rows
    small = uncompressed(rows)
    begin, sign, there = begun(_starts(rule, rows, part.first), small, guess)
    n_free = int(guess.free.sum())
    there &= (part.able & (rows.item.sum(axis=1) - BEYOND - (n_free - 1) >= SPARE))[:, None]
    first = fitted(rule, small.problem, begin, sign, there, guess.free, SHORT, ratings=False, at_once=AT_ONCE)
    best = least(first, KEPT)
    sign, there = (np.take_along_axis(one, best, axis=1) for one in (sign, there))
    second = chosen(first.at, best)
    last = fitted(rule, small.problem, second, sign, there, guess.free, LONG, ratings=False, at_once=AT_ONCE)
    left = np.where(np.isnan(last.left), np.inf, last.left)
    at, every = left.argmin(axis=1), np.arange(len(left))
    return Explained(np.asarray(left[every, at] <= allowed_of(rows)), last.at.constants[every, at])


def _starts(rule: PairedLabels, rows: Rows, first: Bool[np.ndarray, "clients n"]) -> Starts:
    """Factors of several lengths along the rows' direction; the rate by which they make the rows."""
    direction, energy = leading_direction(rows.rows)
    n_first, n_other = first.sum(axis=1), (rows.item & ~first).sum(axis=1)
    if rule.negatives:
        square = rule.negatives**2 * n_first + n_other
    else:
        square = n_other**2 * n_first + n_first**2 * n_other
    error = np.sqrt(square) / 2  # all of them, before a factor is told
    sigma = np.sqrt(energy)[:, None] / np.maximum(error, 1)[:, None] / LENGTHS
    factor = LENGTHS[:, None] * direction[:, None]
    labels = np.repeat(first.astype(float)[:, None], LENGTHS.size, axis=1)
    return Starts(factor, labels, np.where(sigma > 0, sigma, np.nan))


def _take_up(view: View, found: Found, split: dict[int, list[tuple[np.ndarray, np.ndarray]]]) -> None:
    """Answers of those whose label of the positives is named; why others have none."""
    if not split:
        return
    found.of_labels = True
    users, n_items = np.array(sorted(split)), view.manifest.n_items
    rows = [
        np.stack([np.full(items.size, client), np.full(items.size, number), items, signs])
        for client, user in enumerate(users.tolist())
        for number, (items, signs) in enumerate(split[user])
    ]
    client, number, item, sign = np.concatenate(rows, axis=1)
    unknown = np.full(client.size, np.nan), np.ones(users.size, bool), np.zeros((users.size, 1))
    told = positives(aligned(Labels(client, number, item, WIDEST * sign, *unknown), n_items), n_items)
    assert told is not None
    found.reasons |= dict.fromkeys(users[~told.told].tolist(), OPEN_LABEL)
    if told.told.any():
        named = users[told.told]
        found.blocks.append(label_estimates(named, told, float(view.manifest.rating_levels[0])))
        found.answered[np.searchsorted(found.users, named)] = True
