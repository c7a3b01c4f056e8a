"""What is said of some clients, before all are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import OPTIONAL, Estimates
from victims.transcript.view import ITEM, View


class Answered(NamedTuple):
    """What is said of the clients whose best round it is."""

    block: Estimates
    reasons: dict[int, str]  # why clients are abstained on
    # ``misfit``, ``steps``, ``declared``, ``pull`` and ``upright`` of ``undeclared``
    diagnostics: Float[np.ndarray, "some 5"]
    # clients, rounds and factors, as for ``attacks.base.joined``
    factors: tuple[np.ndarray, np.ndarray, np.ndarray]
    plain: Bool[np.ndarray, " some"]  # whose answers ask for nothing but ratings as they are
    # whose ratings may as well be higher by the lowest level, as far as their own rows tell
    doubted: Bool[np.ndarray, " some"]
    # whose ratings are the integers in a span, as of ``attacks.closed_form.uploads.readings.Reading``
    spanned: Bool[np.ndarray, " some"] | bool = False


def block_of(block: Estimates, keep: Bool[np.ndarray, " users"]) -> Estimates:
    """Take some clients of a block."""
    rest: dict[str, Any] = {
        name: part if len(part) == 1 != keep.size else part[keep]
        for name, part in (("kind", block.kind), ("index", block.index))
    }
    for name in ("users", "value", *OPTIONAL):
        part = getattr(block, name)
        rest[name] = None if part is None else part[keep]
    return replace(block, **rest)


def answered_alone(
    values: Mapping[int, tuple[np.ndarray, np.ndarray]], view: View, misfit: Float[np.ndarray, " users"]
) -> Answered:
    """Say ratings of clients of whom nothing else is told: no factor, no number of steps."""
    users = np.array(sorted(values))
    told = [values[user] for user in users.tolist()]
    shape = (users.size, max(items.size for items, _ in told))
    value, index = np.full(shape, np.nan), np.zeros(shape, int)
    for row, (items, stars) in enumerate(told):
        value[row, : items.size], index[row, : items.size] = stars, items
    nothing = np.zeros(users.size)
    factors = np.full((users.size, view.manifest.factors), np.nan)
    return Answered(
        Estimates(users, np.full((1, shape[1]), ITEM, np.int8), index, value),
        {},
        np.stack([misfit, nothing * np.nan, nothing, nothing, nothing + 1], axis=1),
        (users, np.full(users.size, view.rounds[0]), factors),
        np.ones(users.size, bool),
        np.zeros(users.size, bool),
        np.ones(users.size, bool),
    )


def exchanged(found: Sequence[Answered], new: Answered) -> list[Answered]:
    """Put what is said of some clients in the place of what was said of them."""
    kept = [_without(one, new.block.users) for one in found]
    return [*(one for one in kept if one.block.users.size), new]


def _without(one: Answered, users: np.ndarray) -> Answered:
    """What is said of all clients but some."""
    here = ~np.isin(one.block.users, users)
    clients, rounds, vectors = one.factors
    return one._replace(
        block=block_of(one.block, here),
        reasons={user: reason for user, reason in one.reasons.items() if user not in set(users.tolist())},
        diagnostics=one.diagnostics[here],
        factors=(clients[here], rounds[here], vectors[here]),
        plain=one.plain[here],
        doubted=one.doubted[here],
        spanned=one.spanned if isinstance(one.spanned, bool) else one.spanned[here],
    )
