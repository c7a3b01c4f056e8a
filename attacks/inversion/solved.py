"""Clients that solve for their factor in every round (semi-als), read by a fit of ratings and open constants.

The factor follows from the ratings (``attacks.client_rules.semi_als``), so that rows of one round tell all
ratings, and whether they come of such factors. A ridge or a scale that nobody told is told by the grid. Rows
are taken free of the scale and the regularisation that are declared; whether these, and the declared ridge,
are right is told by the rows: what the declaration does not explain is tried with an open ridge, and with an
open scale.
"""

from __future__ import annotations

from attacks.base import Progress, silent
from attacks.client_rules.semi_als import SemiALS
from attacks.inversion.answers import Found
from attacks.inversion.clients import choice_of
from attacks.inversion.fitted_twice import fit_twice
from victims.transcript.view import View

WITH_ATTRIBUTES = (
    "attributes take part in what clients solve for, which this rule is not fitted with; spectral reads both"
)
UNEXPLAINED = (
    "no hypothesis about the rule semi-als explains the rows of any client that was tried: factors are no "
    "solutions of Eq. (8), or rows give too few equations (an open ridge and scale take five factors)"
)


def read_solved(
    view: View, rule: SemiALS, found: Found, rounds: int, progress: Progress = silent
) -> tuple[str, str]:
    """Take up whose ratings are told by factors that follow from them."""
    if view.manifest.n_attributes:
        return "", WITH_ATTRIBUTES
    choice = choice_of(view, rule, found, as_declared=True)
    if choice is None:
        return "", UNEXPLAINED
    fit_twice(view, rule, choice.guess, found, rounds, progress, as_declared=True)
    return choice.guess.family.label, ""
