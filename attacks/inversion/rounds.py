"""What each round tells by itself: whether clients' lists and ratings stay the same."""

from __future__ import annotations

import numpy as np

from attacks.client_rules.named import OVER_ALL
from attacks.closed_form.lists.drawn_anew import Sent, compared, sent_in
from attacks.inversion.answers import Found
from attacks.inversion.clients import BATCH_BYTES, answer_by_span
from victims.transcript.view import View


def rows_by_rounds(view: View) -> list[Sent]:
    """List the rows of a view, and the ratings that a round tells without a fit."""
    if view.rounds.size < 2:
        return []
    out = [sent_in(batch.users, batch.rounds) for batch in view.batches(BATCH_BYTES)]
    for number in compared(view.rounds.size):
        part = view.during(view.rounds[[number]])
        found = Found(part)
        answer_by_span(part, OVER_ALL[0], found, 1)
        for user, _, index, value, _ in found.reconstruction("", "", {}).rows():
            out.append(Sent(user, index, np.full(user.size, view.rounds[number]), value))
    return out
