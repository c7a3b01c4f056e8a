"""A view of one step of Adam or its relatives as one of the gradients that their digits tell.

``attacks.closed_form.adaptive.adaptive_digits`` tells each client's gradients up to eps, which all share:
they are rows whose scale nobody declared, with fewer digits than were sent, and are read as such. Which form
of the step it is, a sample says; forms that explain it alike are tried one after the other: the rating grid
tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attacks.base import Reconstruction
from attacks.closed_form.adaptive.adaptive_digits import FORMS, Digits, digits
from victims.transcript.view import ITEM, Messages, View, rows_of

# clients that are looked at, those of them that tell the form, and the share of these that it has to explain
LOOKED_AT, ASKED, MOSTLY = 32, 8, 0.5
ROUNDS, MOST = 2, 400  # of a client that are looked at, the first ones, and rows of one of them
FEW_ROWS, FEW_COLUMNS = 60, 24  # of a client of the sample: more tell no more of the form
TYPES = (np.float32, np.float16)  # with the digits that are left
NEARLY_ALL, ROUGHEST = 0.9, 2.0  # share of the rows, whose sizes err by so many last digits of that type
WITHIN = 4.0  # of these, that rows may err by


class _Sent(NamedTuple):
    """All rows, by round and client; where each client's begin and end; the factors of their items."""

    messages: Messages
    parts: tuple[slice, ...]
    factors: np.ndarray


def gradient_views(view: View) -> Iterator[View]:
    """Show the gradients that digits tell as rows of a single step without a known scale."""
    sent = None
    for form in _forms(view):
        sent = _sent(view) if sent is None else sent
        instead = _view(view, sent, form)
        if instead is not None:
            yield instead


def tells_by_digits(view: View) -> bool:
    """Whether rows of a sample are explained as one step of Adam or a relative, to their last digits."""
    return any(True for _ in _forms(view))


def _forms(view: View) -> Iterator[tuple[int, bool]]:
    """Those that explain most of a sample."""
    if view.messages.gradient is None or view.messages.reference is not None:
        return
    sent = _sent(view.select(view.users[:: max(1, view.users.size // LOOKED_AT)]))
    usual = 2 * view.manifest.factors
    asked = sorted(sent.parts, key=lambda part: abs(part.stop - part.start - usual))[:ASKED]
    for form in FORMS:
        if _explains(form, sent, asked):
            yield form


def _explains(form: tuple[int, bool], sent: _Sent, asked: list[slice]) -> bool:
    """Whether it explains most of them; once it cannot, the others are not looked at."""
    spare = (1 - MOSTLY) * len(asked)
    for part in asked:
        spare -= _digits(sent, _first(part), *form, FEW_COLUMNS) is None
        if spare <= 0:
            return False
    return bool(asked)


def of_everybody(told: Reconstruction, view: View, reason: str) -> Reconstruction:
    """Say why nothing is told of those who are not among the clients of another view."""
    place = np.searchsorted(view.users, told.users)
    diagnostics = {}
    for name, own in told.diagnostics.items():
        diagnostics[name] = np.full(view.users.size, np.nan)
        diagnostics[name][place] = own
    rest = np.setdiff1d(view.users, told.users).tolist()
    reasons = {**told.abstained, **dict.fromkeys(rest, reason)}
    return replace(told, users=view.users, abstained=reasons, diagnostics=diagnostics)


def _sent(view: View) -> _Sent:
    """Rows about items of the first rounds."""
    order = view.messages.in_order()
    kind, round_ = view.messages.take(order, view.messages.kind, view.messages.round)
    first = np.unique(round_)[:ROUNDS]
    messages = rows_of(view.messages, order[(kind == ITEM) & np.isin(round_, first)])
    sender, round_, index = messages.sender[0], messages.round[0], messages.index[0]
    factors = np.zeros((sender.size, view.manifest.factors))
    known = np.zeros(sender.size, bool)
    for number in first.tolist():
        here = np.flatnonzero(round_ == number)
        broadcast = view.broadcasts.get(int(number))
        if broadcast is not None:
            at = broadcast.positions(np.zeros(here.size, int), index[here])
            factors[here], known[here] = broadcast.factors[at], at >= 0
    starts = np.flatnonzero(np.r_[True, (np.diff(sender) != 0) | (np.diff(round_) != 0)][: sender.size])
    ends = np.r_[starts, sender.size][1:]
    parts = (slice(*both) for both in zip(starts.tolist(), ends.tolist(), strict=True))
    return _Sent(messages, tuple(part for part in parts if known[part].all()), factors)


def _first(part: slice) -> slice:
    """Not all rows of a long list; none of one that is too long to be read."""
    return part if part.stop - part.start > MOST else slice(part.start, min(part.stop, part.start + FEW_ROWS))


def _digits(sent: _Sent, part: slice, power: int, decays: bool, columns: int | None = None) -> Digits | None:
    """What the digits of one client tell, in one round, of the first few columns or of all."""
    assert sent.messages.gradient is not None
    if part.stop - part.start > MOST:
        return None
    rows, factors = sent.messages.gradient[0][part, :columns], sent.factors[part, :columns]
    return digits(rows, factors, power, decays)


def _view(view: View, sent: _Sent, form: tuple[int, bool]) -> View | None:
    """The clients that a form explains; None where too few digits are left of them."""
    told = [(part, _digits(sent, part, *form)) for part in sent.parts]
    explained = [(part, one) for part, one in told if one is not None]
    if not explained:
        return None
    error = np.concatenate([one.error for _, one in explained])
    good = [kind for kind in TYPES if np.quantile(error, NEARLY_ALL) <= ROUGHEST * np.finfo(kind).eps]
    if not good:
        return None
    rows = np.concatenate([np.arange(part.start, part.stop) for part, _ in explained])
    keep: Bool[np.ndarray, " rows"] = error <= WITHIN * np.finfo(good[0]).eps
    gradient = np.concatenate([one.gradient for _, one in explained])[keep]
    if not len(gradient):
        return None
    gradient /= np.median(np.linalg.norm(gradient, axis=1))
    chosen: Int[np.ndarray, " rows"] = rows[keep]
    messages = replace(rows_of(sent.messages, chosen), gradient=(gradient.astype(good[0]),))
    upload = view.manifest.upload.model_copy(update={"scale": 1.0, "regularization": 0.0})
    rounds = np.unique(messages.round[0]).tolist()
    bare = view.declared(upload=upload, scale_known=False, rounds=rounds)
    broadcasts = {number: view.broadcasts[number] for number in rounds}
    return replace(bare, messages=messages, broadcasts=broadcasts)
