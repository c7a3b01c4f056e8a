"""What is said of some clients, before all are put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import OPTIONAL, Estimates


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
