"""What recordings of ``dpmf-yang`` and ``dmf`` declare."""

from __future__ import annotations

from typing import Any, Literal

from victims.data.ratings import Ratings
from victims.protocols.switches import rule_of
from victims.transcript.kinds import STANDARD, with_implicit
from victims.transcript.manifest import Manifest, Upload


def manifest_of(
    victim: Any,
    ratings: Ratings,
    rounds: list[int],
    link: Literal["sigmoid", "identity"],
    constants: dict[str, float],
    said: dict[str, Any],
) -> Manifest:
    """The manifest of a recording."""
    moves = victim.local_steps > 1 or victim.sends != "gradient"
    rule = rule_of(victim, victim.name, "rated", moves, link=link, own_items=True, **said)
    rate = -1.0 if victim.sends == "gradient" else victim.learning_rate  # of errors in a row
    return Manifest(
        format="factorleak-transcript",
        version=2,
        protocol=victim.name,
        update=None,
        weighting="observed-only",
        n_users=ratings.n_users,
        n_items=ratings.n_items,
        n_attributes=0,
        factors=victim.factors,
        rounds=rounds,
        hyperparameters=constants,
        upload=Upload(scale=rate, regularization=-rate * victim.lambda_items),
        rating_levels=list(ratings.levels),
        recorded_by="factorleak",
        declared_rule=rule,
        kinds=with_implicit(sums=True) if victim.rows_about_implicit else dict(STANDARD),
        links="plain",
        senders_hidden=False,
    )
