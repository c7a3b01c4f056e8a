"""What recordings of ``dpmf-yang`` and ``dmf`` declare."""

from __future__ import annotations

from typing import Any, Literal

from victims.data.ratings import Ratings
from victims.transcript.client_rule import ClientRule
from victims.transcript.manifest import Manifest, Upload


def manifest_of(
    victim: Any,
    ratings: Ratings,
    rounds: list[int],
    link: Literal["sigmoid", "identity"],
    constants: dict[str, float],
    said: dict[str, Any],
) -> Manifest:
    """The manifest of a recording.

    Parameters
    ----------
    victim : DPMFYang or DMF
    ratings : Ratings
    rounds : list of int
    link : "sigmoid" or "identity"
    constants : dict
        Public numbers.
    said : dict
        Keys of the rule that the format does not know.

    Returns
    -------
    Manifest
    """
    per_rating = victim.order == "per-rating"
    rule = ClientRule(
        rule=victim.name,
        order=victim.order,
        local_steps=1,
        batch_size=1 if per_rating else "all",
        reduction="sum",
        upload="gradient",
        rows="rated",
        loss="squared",
        link=link,
        clip="none",
        moves_items=False,
        start="kept",
        own_items=True,  # type: ignore[call-arg]
        **said,
    )
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
        upload=Upload(scale=-1.0, regularization=victim.lambda_items),
        rating_levels=list(ratings.levels),
        recorded_by="factorleak",
        declared_rule=rule,
        links="plain",
        senders_hidden=False,
    )
