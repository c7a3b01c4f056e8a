"""The manifest of a published protocol with a server, in version 1 of the format."""

from __future__ import annotations

from typing import Any

from victims.data.ratings import Ratings
from victims.transcript.manifest import Manifest


def published_manifest(
    protocol: str,
    victim: Any,
    ratings: Ratings,
    rounds: list[int],
    hyperparameters: dict[str, float],
    **more: Any,
) -> Manifest:
    """Write down what a participant of a published protocol knows."""
    of_ratings: dict[str, Any] = {"n_attributes": 0, "attribute_groups": [], "parties": {"server": -1}}
    return Manifest(
        format="factorleak-transcript",
        version=1,
        protocol=protocol,
        update=victim.update,
        weighting=victim.weighting,
        n_users=ratings.n_users,
        n_items=ratings.n_items,
        factors=victim.factors,
        rounds=rounds,
        hyperparameters=hyperparameters,
        rating_levels=list(ratings.levels),
        adversary="all",
        recorded_by="factorleak",
        **(of_ratings | more),
    )
