"""Which hypothesis explains some clients.

Clients whose ratings are known without one (``attacks.closed_form.numbers.integer_relation``) tell it best:
every value of every family is tried on them. Where there are none, ratings are fitted, too, with the declared
value, then coarsely through each family and finely about its best: numbers of steps that are close explain
rows nearly alike, and the fit with a neighbour is a start for the next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.client_rules.differentiable import ClientRule, Family
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.guess import Guess
from attacks.inversion.least_squares import Unknowns
from attacks.inversion.search import explained, told
from victims.transcript.manifest import Manifest

ENOUGH = 0.5  # of the clients, above which no further hypothesis is tried
FEWEST = 2  # clients that must be explained, or all
COARSE, MANY = 4, 8  # every fourth value first, of so many


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
