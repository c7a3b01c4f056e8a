"""What no attack should pass: what a decoder with help reads, as means over the clients that are scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from audit.scoring.metrics import LOWER_IS_BETTER
from victims.transcript.manifest import Manifest


class Ceiling(NamedTuple):
    """What a decoder with help reads of each client, by maximum likelihood and a posteriori.

    users (n_users,) ascending; ml, map (n_users,): NaN where the metric is not defined.
    """

    users: Int[np.ndarray, " users"]
    ml: Float[np.ndarray, " users"]
    map: Float[np.ndarray, " users"]


class Limit(NamedTuple):
    """Means of a ``Ceiling`` over the clients that are scored, and what no attack should pass: the better of
    both, or the best guess where that is better, for whoever has help may still guess.
    """

    ml: float
    map: float
    best: float


def limit_of(
    metric: str,
    manifest: Manifest,
    ceilings: Mapping[str, Ceiling] | None,
    users: Int[np.ndarray, " users"],
    baseline: Float[np.ndarray, " users"],
) -> Limit | None:
    """Average what a decoder with help reads; a client that it says nothing of counts with the guess.

    Without a defense the decoder that is told all but one answer divides every row by p_i and reads it: all
    there is, unless clients keep some of their ratings to themselves.
    """
    perfect = 0.0 if metric in LOWER_IS_BETTER else 1.0
    if not (manifest.defenses or manifest.withholds_ratings):
        return Limit(perfect, perfect, perfect)
    found, counted = (ceilings or {}).get(metric), ~np.isnan(baseline)
    if found is None or not counted.any():
        return None
    place = np.minimum(np.searchsorted(found.users, users), found.users.size - 1)
    there = found.users[place] == users
    ml, informed = (
        float(np.mean(np.where(np.isnan(part), baseline, part)[counted]))
        for part in (np.where(there, values[place], np.nan) for values in (found.ml, found.map))
    )
    best = min if metric in LOWER_IS_BETTER else max
    return Limit(ml, informed, best(ml, informed, float(np.mean(baseline[counted]))))
