"""Clients fitted under one hypothesis, and those that are left once more with constants that most share."""

from __future__ import annotations

import numpy as np

from attacks.base import Progress, silent
from attacks.client_rules.differentiable import ClientRule
from attacks.inversion.answers import Found
from attacks.inversion.clients import open_clients
from attacks.inversion.guess import Guess
from attacks.inversion.search import told
from victims.transcript.view import View


def fit_twice(
    view: View,
    rule: ClientRule,
    guess: Guess,
    found: Found,
    rounds: int,
    progress: Progress = silent,
    *,
    as_declared: bool = False,
) -> None:
    """Take up whose ratings a fit tells."""
    levels = np.array(view.manifest.rating_levels)
    for again in (False, True):
        constants = found.common(guess.family)
        if again and (constants is None or not guess.free.any()):
            break
        now = guess._replace(constants=constants if again else None)
        for users, index, rows in open_clients(view, found, rounds, as_declared=as_declared):
            found.add_by_fit(users, index, told(rule, now, rows, levels))
            progress(int(found.answered.sum()), view.users.size)
