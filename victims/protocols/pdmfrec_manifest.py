"""What is public of a PDMFRec recording, and what the helper is told before the first round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from victims.data.ratings import Ratings
from victims.protocols.base import SetUp
from victims.protocols.similarity_graph import co_rated
from victims.protocols.switches import rule_of
from victims.transcript.kinds import STANDARD, Kind
from victims.transcript.manifest import Manifest, Upload

HELPER = -3
ITEM_SET, CO_RATED = "item-set", "co-rated"


def told_to_the_helper(helper: Literal["item-set", "counts"], ratings: Ratings) -> Iterator[SetUp]:
    """Form what the helper needs for W."""
    if helper == "item-set":
        yield SetUp(ITEM_SET, HELPER, ratings.users, ratings.items)
        return
    common = co_rated(ratings)
    one, other = np.nonzero(np.triu(common))
    yield SetUp(CO_RATED, HELPER, one, other, common[one, other].astype(np.float64))


def manifest_of(victim: Any, ratings: Ratings, rounds: list[int]) -> Manifest:
    """Write down everything that neighbours know."""
    beyond: dict[str, Any] = {"own_items": True}  # each client has copies of its own, and keeps them
    beyond |= {name: getattr(victim, name) for name in ("own_step", "weight", "variant", "threshold")}
    moves = victim.own_step and (victim.local_steps > 1 or victim.sends != "gradient")
    rule = rule_of(victim, "pdmfrec", "rated", moves, **beyond)
    rate = -1.0 if victim.sends == "gradient" else victim.learning_rate  # of errors in a row
    kinds = {
        ITEM_SET: Kind(of="item", role="other", width=1),
        CO_RATED: Kind(of="client", role="other", width=1),
    }
    return Manifest(
        format="factorleak-transcript",
        version=2,
        protocol="pdmfrec",
        update=None,
        weighting="observed-only",
        n_users=ratings.n_users,
        n_items=ratings.n_items,
        n_attributes=0,
        factors=victim.factors,
        rounds=rounds,
        hyperparameters={"learning_rate": victim.learning_rate, "regularization": victim.regularization},
        upload=Upload(scale=rate, regularization=-rate * victim.regularization),
        rating_levels=list(ratings.levels),
        parties={"helper": HELPER},
        recorded_by="factorleak",
        declared_rule=rule,
        kinds={**STANDARD, **kinds},
        roles={"helper": "helper"},
        links=victim.links,
        senders_hidden=victim.anonymous,
    )
