"""Clients of a view for fits: whose rows are open, whose ratings are known, which hypothesis these choose.

Clients whose ratings are known without one (``attacks.closed_form.numbers.integer_relation``) tell it best:
every value of every family is tried on them. Where there are none, ratings are fitted, too, with the declared
value, then coarsely through each family and finely about its best: numbers of steps that are close explain
rows nearly alike, and the fit with a neighbour is a start for the next.

Of recordings of one step, or of no step at all, no fit of several local steps tells anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.client_rules.differentiable import ClientRule, Family
from attacks.closed_form.numbers.integer_relation import LOOSE, precision_of, ratings_in_span
from attacks.closed_form.rows.row_readings import LONGEST
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.item_rows import rounded_place_of, rows_of
from attacks.closed_form.uploads.readings import Rows, moved, some_of
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.closed_form.uploads.shared_pull import without_pull
from attacks.inversion.answers import Found
from attacks.inversion.compression import aside
from attacks.inversion.least_squares import Guess, Unknowns
from attacks.inversion.search import OUTSIDE, allowed_of, explained, told
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, View

BATCH_BYTES = 1 << 20
MOSTLY = 0.5  # of the clients
SAMPLE = 4  # clients that choose among hypotheses
MOST_FITTED = 400  # rows of a client that are fitted where the rule does not mix them
ENOUGH = 0.5  # of the clients, above which no further hypothesis is tried
FEWEST = 2  # clients that must be explained, or all
COARSE, MANY = 4, 8  # every fourth value first, of so many
ASIDE = (
    "off its items' factors a client's rows have several directions, which no steps along these make: noise, "
    "or another rule"
)


def pointless(view: View, rule: ClientRule, found: Found) -> str:
    """Say why nothing is to be fitted."""
    if found.answered.all():
        return "all are answered"
    if not rule.mixes_rows:
        return ""
    told_of = ~np.isnan(found.outside)
    if told_of.any() and not (found.outside <= found.allowed)[told_of].any():
        return (
            "rows of clients with more ratings than factors are not affine in factors and ratings, as "
            "several steps over all ratings would make them"
        )
    return one_step(view, found)


def one_step(view: View, found: Found) -> str:
    """Say why neither several steps nor passes are to be fitted."""
    if leave_items(view, found):
        return ASIDE
    if all(_parallel(rows_in(view, batch.rounds[0], found)) for batch in view.batches(BATCH_BYTES)):
        return (
            "rows of a client are parallel, off their items' factors: one step, of which undeclared reads "
            "what it tells"
        )
    return ""


def _parallel(rows: Rows) -> bool:
    """Whether each client's rows have one direction, but for a multiple of its items' factors (a pull)."""
    clean, _ = without_pull(rows.rows, rows.factors, rows.item)
    limit = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    return bool((np.minimum(_turned(rows.rows), _turned(clean)) <= limit).all())


def _turned(rows: Float[np.ndarray, "clients n K"]) -> Float[np.ndarray, " clients"]:
    """How much of each client's rows is off their direction, relative."""
    direction, energy = leading_direction(rows)
    off = rows - np.matmul(rows, direction[:, :, None]) * direction[:, None]
    size = np.sqrt(energy)
    return np.linalg.norm(off, axis=(1, 2)) / np.where(size > 0, size, 1.0)


def answer_by_span(view: View, rule: ClientRule, found: Found, rounds: int) -> None:
    """Take up whose ratings are told without a fit."""
    if not rule.mixes_rows:
        return
    levels = np.array(view.manifest.rating_levels)
    for users, index, rows in open_clients(view, found, rounds):
        relation = ratings_in_span(rows.rows, rows.factors, rows.offset, rows.item, levels, rows.precision)
        found.add_by_span(users, index, relation)


def leave_items(view: View, found: Found) -> bool:
    """Whether no client's rows can come of local steps along its items' factors, by those that tell it."""
    asked = False
    for _, _, rows in open_clients(view, found, 1):
        off = aside(rows)
        asked |= bool((~np.isnan(off)).any())
        if (off <= OUTSIDE * allowed_of(rows)).any():
            return False
    return asked


def open_clients(view: View, found: Found, rounds: int) -> Iterator[tuple[np.ndarray, np.ndarray, Rows]]:
    """Clients without an answer: who, the items of their rows, and the rows, round by round."""
    for batch in view.batches(BATCH_BYTES):
        for uploads in batch.rounds[:rounds]:
            open_ = ~found.answered[np.searchsorted(view.users, batch.users)]
            if open_.any() and uploads.index.shape[-1]:  # in a changing graph some are silent in a round
                rows = some_of(rows_in(view, uploads, found), open_)
                index = np.broadcast_to(uploads.index, (batch.users.size, rows.item.shape[1]))[open_]
                yield batch.users[open_], index, rows


def rows_in(view: View, uploads: Uploads, found: Found) -> Rows:
    """Rows of a round, of the items that moved."""
    manifest = bare(view.manifest)
    rows = moved(rows_of(manifest, uploads, None, found.lowered))
    here = rows.item.any(axis=1)
    if not here.any() or not (place := rounded_place_of(uploads.gradients, rows.factors)):
        return rows
    # precision_of allows for rows shorter than factors
    largest = np.maximum(np.abs(rows.rows).max(axis=(1, 2)), np.abs(rows.factors).max(axis=(1, 2)))
    last = place / abs(manifest.upload.scale) / largest[here].min()
    return rows._replace(precision=max(float(np.finfo(uploads.gradients.dtype).eps), last))


def is_one_pass(view: View, found: Found) -> bool:
    """Whether each row of most clients follows from the one before by one step."""
    once = asked = 0
    for _, _, rows in open_clients(view, found, 1):
        if rows.rows.shape[1] <= LONGEST:
            with np.errstate(all="ignore"):
                chain = chain_of(rows)
            once += int((chain.whole & (chain.n_steps > 1)).sum())
        asked += len(rows.item)
    return once > MOSTLY * asked


def bare(manifest: Manifest) -> Manifest:
    """Without the scale of a single step: rows of several are what they are."""
    plain = manifest.upload.model_copy(update={"scale": 1.0, "regularization": 0.0})
    return manifest.model_copy(update={"upload": plain})


def known_clients(view: View, found: Found) -> tuple[Rows, Float[np.ndarray, "clients n"]] | None:
    """Rows of the first round, and ratings, of some clients whose ratings are told, of one batch."""
    best: tuple[Rows, np.ndarray] | None = None
    for batch in view.batches(BATCH_BYTES):
        here = np.flatnonzero(np.isin(batch.users, list(found.ratings)))[:SAMPLE]
        if here.size <= (0 if best is None else len(best[1])):
            continue
        rows = some_of(rows_in(view, batch.rounds[0], found), here)
        index = np.broadcast_to(batch.rounds[0].index, (batch.users.size, rows.item.shape[1]))[here]
        own = [found.ratings[int(user)] for user in batch.users[here]]
        ratings = np.array(
            [[one.get(at, np.nan) for at in items] for one, items in zip(own, index.tolist(), strict=True)]
        )
        whole = np.isfinite(ratings).all(axis=1, where=rows.item)
        if whole.sum() > (0 if best is None else len(best[1])):
            best = some_of(rows, whole), ratings[whole]
    return best


def choice_of(
    view: View,
    rule: ClientRule,
    found: Found,
    n_families: int | None = None,
) -> Choice | None:
    """The hypothesis that explains a sample best."""
    known = known_clients(view, found)
    if known is not None:
        return chosen_by_ratings(rule, view.manifest, *known)
    levels = np.array(view.manifest.rating_levels)
    for batch in view.batches(BATCH_BYTES):
        rows = rows_in(view, batch.rounds[0], found)
        n_rated = rows.item.sum(axis=1)
        most = np.argsort(-n_rated, kind="stable")[: 2 * SAMPLE : 2]
        here = np.isin(np.arange(n_rated.size), most) & (n_rated > 1)
        if not rule.mixes_rows:
            here &= n_rated <= MOST_FITTED
        if here.any():
            return chosen(rule, view.manifest, some_of(rows, here), levels, n_families)
    return None


class Choice(NamedTuple):
    """A guess, and how it does."""

    guess: Guess
    explained: int  # clients
    left: float  # what it leaves of the rows, in the middle

    @property
    def rank(self) -> tuple[int, float]:
        """Larger is better."""
        return self.explained, -self.left


def chosen_by_ratings(
    rule: ClientRule, manifest: Manifest, rows: Rows, ratings: Float[np.ndarray, "clients n"]
) -> Choice | None:
    """Choose a hypothesis by clients whose ratings are known."""
    best: Choice | None = None
    for family in rule.families(manifest):
        near: Unknowns | None = None
        for value in _declared_first(family):
            found, allowed = explained(rule, Guess(family, value, None, near), rows, ratings)
            near = found.at
            choice = _choice(Guess(family, value), found.left <= allowed, found.left)
            best = choice if best is None or choice.rank > best.rank else best
            if _done(best, len(ratings)):
                return best
    return best if best is not None and best.explained else None


def chosen(
    rule: ClientRule,
    manifest: Manifest,
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
    n_families: int | None = None,
) -> Choice | None:
    """Choose a hypothesis by clients whose ratings are fitted with it."""
    best: Choice | None = None
    families = rule.families(manifest)[:n_families]
    for family in families:
        if family.first is not None:
            one = _tried(rule, Guess(family, family.first), rows, levels)[0]
            best = one if best is None or one.rank > best.rank else best
            if _done(best, len(rows.item)):
                return best
    coarse: list[tuple[Choice, Unknowns]] = []
    for family in families:
        near: Unknowns | None = None
        for value in _first_tried(family):
            choice, near = _tried(rule, Guess(family, value, None, near), rows, levels)
            coarse.append((choice, near))
            if _done(choice, len(rows.item)):
                return choice
    best, near = max([*coarse, *([] if best is None else [(best, None)])], key=lambda one: one[0].rank)
    best = _about(rule, best, near, rows, levels)
    return best if best.explained else None


def _done(best: Choice, n_clients: int) -> bool:
    return best.explained >= min(FEWEST, n_clients) and best.explained > ENOUGH * n_clients


def _declared_first(family: Family) -> tuple[float, ...]:
    return (*(value for value in family.values if value == family.first), *family.values)


def _first_tried(family: Family) -> tuple[float, ...]:
    return family.values[::COARSE] if len(family.values) > MANY else family.values


def _choice(guess: Guess, good: np.ndarray, left: np.ndarray) -> Choice:
    finite = left[np.isfinite(left)]
    return Choice(guess, int(good.sum()), float(np.median(finite)) if finite.size else np.inf)


def _tried(
    rule: ClientRule, guess: Guess, rows: Rows, levels: Float[np.ndarray, " levels"]
) -> tuple[Choice, Unknowns]:
    found = told(rule, guess, rows, levels)
    return _choice(Guess(guess.family, guess.value), found.explained, found.left), found.at


def _about(
    rule: ClientRule, best: Choice, near: Unknowns | None, rows: Rows, levels: Float[np.ndarray, " levels"]
) -> Choice:
    """The best of a value and its neighbours."""
    family = best.guess.family
    at = family.values.index(best.guess.value)
    for value in family.values[max(0, at - COARSE + 1) : at + COARSE]:
        if _done(best, len(rows.item)):
            break
        if value not in _first_tried(family):
            one, near = _tried(rule, Guess(family, value, None, near), rows, levels)
            best = max(best, one, key=lambda choice: choice.rank)
    return best
