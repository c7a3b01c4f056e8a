"""What is said of some clients, before all are put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import OPTIONAL, Estimates


class Answered(NamedTuple):
    """What is said of the clients whose best round it is.

    Attributes
    ----------
    block : Estimates
    reasons : dict of client to str
        Why clients are abstained on.
    diagnostics : (n_clients, 5)
        ``misfit``, ``steps``, ``declared``, ``pull`` and ``upright`` of ``undeclared``.
    factors : tuple
        Clients, rounds and factors, as for ``attacks.base.joined``.
    plain : (n_clients,)
        Whose answers ask for nothing but ratings as they are.
    doubted : (n_clients,)
        Whose ratings may as well be higher by the lowest level, as far as their own rows tell.
    spanned : (n_clients,) bool, or bool
        Whose ratings are the integers in a span, as of ``attacks.closed_form.uploads.readings.Reading``.
    """

    block: Estimates
    reasons: dict[int, str]
    diagnostics: Float[np.ndarray, "some 5"]
    factors: tuple[np.ndarray, np.ndarray, np.ndarray]
    plain: Bool[np.ndarray, " some"]
    doubted: Bool[np.ndarray, " some"]
    spanned: Bool[np.ndarray, " some"] | bool = False


def block_of(block: Estimates, keep: Bool[np.ndarray, " users"]) -> Estimates:
    """Take some clients of a block.

    Parameters
    ----------
    block : Estimates
    keep : (n_users,) bool

    Returns
    -------
    Estimates
    """
    rest: dict[str, Any] = {
        name: part if len(part) == 1 != keep.size else part[keep]
        for name, part in (("kind", block.kind), ("index", block.index))
    }
    for name in ("users", "value", *OPTIONAL):
        part = getattr(block, name)
        rest[name] = None if part is None else part[keep]
    return replace(block, **rest)
