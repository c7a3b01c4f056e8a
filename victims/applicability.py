"""Whether a victim can have its defenses, before any ratings are loaded, by a look at a few synthetic ones.

What is asked are the rules of ``victims.defense_rules`` themselves. A defense that cannot be asked without
its own ratings (its file names other clients, say) is taken to apply; it is refused when it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TypeVar

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.defense_rules import (
    only_one,
    refuse_beside_biases,
    refuse_in_turn,
    refuse_on_the_way,
    refuse_twice,
)
from victims.protocols.base import Choosy, Defense, Network, OneServer, Shape, Star, Victim

T = TypeVar("T")


def obstacle(victim: Victim, defenses: Sequence[Defense]) -> str:
    """Say why a victim cannot have defenses."""
    try:
        refuse_twice(defenses)
        for defense in defenses:
            refuse_in_turn(victim, defense)
        _refuse_by_network(victim, defenses)
        sample = only_one([_asked(partial(defense.sampled, _few(), 0, 0)) for defense in defenses])
    except InputError as error:
        return str(error)
    if sample is None or not isinstance(victim, Choosy):
        return ""
    return _asked(victim.sampling_obstacle) or ""


def _refuse_by_network(victim: Victim, defenses: Sequence[Defense]) -> None:
    few, factors = _few(), 2
    network = network_of(victim) if defenses else None
    if network is None:
        return
    for position, defense in enumerate(defenses):
        encrypts = _asked(partial(defense.cipher, few.n_users, factors, 0)) is not None
        shares_scale = network.edges is not None and (
            _asked(partial(defense.noise_scale, few, factors, 0, 0)) is not None
        )
        refuse_beside_biases(victim, defense, encrypts=encrypts)
        refuse_on_the_way(network, defenses, position, encrypts=encrypts, shares_scale=shares_scale)


def network_of(victim: Victim) -> Network | None:
    """Form the network of a victim among a few clients."""
    if isinstance(victim, OneServer):
        return Star(Shape(0, 0, 0))
    return _asked(lambda: victim.network(victim.init(_few(), 0), _few()))


def _asked(question: Callable[[], T]) -> T | None:
    """The answer, None where these ratings allow none.

    Components of others may raise anything on so few clients. That must not end the command while its cells
    are listed: what cannot be told is tried, and fails as a row with its reason.
    """
    try:
        return question()
    except Exception:
        return None


@cache
def _few() -> Ratings:
    return generate(Synthetic(users=6, items=8, ratings_per_user=4.0))
