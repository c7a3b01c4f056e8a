"""Several steps over all ratings with a bias of the client among what moves.

Rows of a single short step tell what everybody takes off the ratings where nobody declared it
(``attacks.closed_form.common_numbers``); a bias that moves misleads those, so that here ratings are taken as
they are. A number of whole levels that the program takes off all of them would look like that: r - 1 of a
client that never rated 1 is on the grid, too. So somebody has to be answered whose ratings, a number of
levels higher or lower, leave the grid, or nobody is: whoever fits r - z as it is has room for z.
"""

from __future__ import annotations

from copy import copy
from functools import reduce

import numpy as np
from jaxtyping import Float

from attacks.base import Progress, silent
from attacks.client_rules.biased_steps import BiasedSteps
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.images import NEAR, OPEN_SHIFT
from attacks.inversion.answers import Found
from attacks.inversion.clients import affine_beside_one, choice_of
from attacks.inversion.fitted_twice import fit_twice
from attacks.inversion.one_step import one_step
from victims.transcript.view import View

NO_BIAS = "a bias of the client does not explain the rows of clients with many ratings"


def read_beside_bias(
    view: View, rule: BiasedSteps, found: Found, rounds: int, progress: Progress = silent
) -> tuple[str, str]:
    """Take up whose ratings are told beside a bias that moves."""
    if reason := one_step(view, found):
        return "", reason
    if found.answered.any():
        return "", "another rule explains the rows of other clients"
    affine = (found.outside <= found.allowed).any()  # False of NaN
    plain = _as_they_are(found)
    if affine or not affine_beside_one(view, plain):
        return "", NO_BIAS
    choice = choice_of(view, rule, plain)
    if choice is None:
        return "", f"no hypothesis about the rule {rule.name} explains the rows of any client that was tried"
    guess = choice.guess
    fit_twice(view, rule, guess, plain, rounds, progress)
    _take_up(plain, found, np.array(view.manifest.rating_levels))
    return f"{guess.value:g} {guess.family.label}", ""


def _as_they_are(found: Found) -> Found:
    """The same clients, with ratings as they are and answers of their own."""
    new = copy(found)
    new.lowered, new.settled = 0.0, True
    new.answered, new.blocks = found.answered.copy(), []
    new.reasons, new.constants, new.ratings = {}, {}, {}
    new.left, new.fitted = found.left.copy(), found.fitted.copy()
    return new


def _take_up(new: Found, found: Found, levels: Float[np.ndarray, " levels"]) -> None:
    """Answers that leave room for no number that is taken off all ratings; reasons otherwise."""
    used = [np.unique(own[np.isfinite(own)]) for block in new.blocks for own in block.value]
    shifts = [_shifts(one, levels) for one in used]
    if shifts and reduce(_common, shifts).size > 1:
        new.reasons |= dict.fromkeys(new.users[new.answered & ~found.answered].tolist(), OPEN_SHIFT)
    else:
        found.blocks += new.blocks
        found.answered |= new.answered
        found.left, found.fitted = new.left, new.fitted
    found.reasons |= new.reasons


def _shifts(used: Float[np.ndarray, " some"], levels: np.ndarray) -> Float[np.ndarray, " n"]:
    """By how much a client's ratings may be higher, 0 among them."""
    shifts = levels - used[0]
    near = NEAR * np.diff(levels).min(initial=np.inf)
    return shifts[(distance_to_levels(used + shifts[:, None], levels) <= near).all(axis=1)]


def _common(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return first[(np.abs(first[:, None] - second) < NEAR).any(axis=1)]
