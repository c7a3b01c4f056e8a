"""Which defenses go together, with a victim and on the way that its rows take."""

from __future__ import annotations

from collections.abc import Sequence

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.protocols.base import (
    Defense,
    Network,
    Sample,
    Victim,
)
from victims.protocols.switches import Switches


def refuse_in_turn(victim: Victim, defense: Defense) -> None:
    """Refuse a defense that a server which steps at every upload rules out."""
    if victim.stepwise and defense.changes_uploads and not defense.additive:
        raise InputError(
            f"{defense.name} cannot be applied where the server steps at every upload: what is done to "
            "a row must not depend on the row; use order=batch"
        )


def refuse_twice(defenses: Sequence[Defense]) -> None:
    """Refuse the same noise twice: it is drawn by its name, so that the second would be the first again."""
    names = [defense.name for defense in defenses if defense.changes_uploads]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{name} must be named once, for its second noise would be the first again; got it "
                f"{names.count(name)} times; use one with a larger scale"
            )


def refuse_beside_biases(victim: Victim, defense: Defense, *, encrypts: bool) -> None:
    """Refuse what protects rows alone where clients send what changes an item's bias beside them."""
    if isinstance(victim, Switches) and victim.biases is not None and (encrypts or defense.changes_uploads):
        raise InputError(
            f"{defense.name} must have no biases beside the rows that it protects, for clients send their "
            f"errors for them in the clear; got biases={victim.biases}; use biases=none"
        )


def refuse_on_the_way(
    network: Network, defenses: Sequence[Defense], position: int, *, encrypts: bool, shares_scale: bool
) -> None:
    """Refuse a defense that makes no sense among others, or on the way that rows take."""
    defense = defenses[position]
    network.check(defense.name, encrypts, defense.sums_of_neighbours)
    if network.edges is not None and shares_scale:
        raise InputError(
            f"{defense.name} is noise whose scale a server draws and hands out, and these clients have "
            "none; use laplace or gaussian"
        )
    if encrypts and position < len(defenses) - 1:
        raise InputError(
            f"{defense.name} must be the last defense, for nothing can be done to encrypted rows; "
            f"got {defenses[position + 1].name} after it"
        )


def sampled(defenses: Sequence[Defense], ratings: Ratings, round_: int, seed: int) -> Sample | None:
    """Unrated items that take part in a round, by the one defense that chooses them."""
    return only_one([d.sampled(ratings, round_, seed) for d in defenses])


def only_one(samples: Sequence[Sample | None]) -> Sample | None:
    """Choose the sample of the one defense that has one."""
    chosen = [sample for sample in samples if sample is not None]
    if len(chosen) > 1:
        raise InputError("at most one defense may sample unrated items; leave the others out")
    return chosen[0] if chosen else None
