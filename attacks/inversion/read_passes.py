"""Clients that pass over their ratings in the order of their rows, with momentum or without, read by a fit.

A pass is told apart from one step, and from one pass alone, before anything is fitted: of these
``attacks.closed_form.undeclared`` reads what they tell. Rate, number of passes and the like are chosen on a
few clients (``attacks.inversion.passes``, ``attacks.inversion.momentum_choice``); then all are fitted, and
those that are left once more with the constants that most of the others share.
"""

from __future__ import annotations

import numpy as np

from attacks.base import Progress, silent
from attacks.client_rules.local_passes import LocalPasses
from attacks.client_rules.momentum_passes import MomentumPasses
from attacks.closed_form.uploads.readings import some_of
from attacks.inversion.answers import Found
from attacks.inversion.clients import is_one_pass, open_clients
from attacks.inversion.momentum_choice import chosen_with_momentum
from attacks.inversion.one_step import one_step
from attacks.inversion.passes import chosen_in_order, in_order, sized, told_in_order
from victims.transcript.view import View

WITH_ATTRIBUTES = "attributes take part in the steps, which passes over ratings do not model"
ONE_PASS = "each row follows from another by one step: one pass, of which undeclared reads what it tells"


def read_passes(
    view: View,
    rule: LocalPasses | MomentumPasses,
    found: Found,
    rounds: int,
    progress: Progress = silent,
) -> tuple[str, str]:
    """Take up whose ratings are told by passes over them in one order."""
    if view.manifest.n_attributes:
        return "", WITH_ATTRIBUTES
    if reason := one_step(view, found):
        return "", reason
    if is_one_pass(view, found):
        return "", ONE_PASS
    levels = np.array(view.manifest.rating_levels)
    parts = (in_order(*part) for part in open_clients(view, found, rounds))
    groups = sorted((group for part in parts for group in part), key=lambda one: one.rows.item.shape[1])
    if isinstance(rule, MomentumPasses):
        rule = sized(rule, view.manifest, groups)
        chosen = chosen_with_momentum(rule, view.manifest, groups, levels)
        rule, guess = (rule, None) if chosen is None else chosen
    else:
        rule = sized(rule, view.manifest, groups)
        guess = chosen_in_order(rule, view.manifest, groups, levels)
    if guess is None:
        return "", f"passes ({rule.name}) in the order of the rows explain no client that was tried"
    for again in (False, True):
        constants = found.common(guess.family)
        if again and constants is None:
            break
        now = guess._replace(constants=constants) if again else guess
        for group in groups:
            here = ~found.answered[np.searchsorted(view.users, group.users)]
            if here.any():
                told = told_in_order(rule, now, some_of(group.rows, here), levels)
                found.add_by_fit(group.users[here], group.items[here], told)
            progress(int(found.answered.sum()), view.users.size)
    return f"{guess.value:g} {guess.family.label}, {rule.name}", ""
