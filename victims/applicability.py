"""Whether a victim can have its defenses, before any ratings are loaded, by a look at a few synthetic ones.

What is asked are the rules of ``victims.training`` themselves. A defense that cannot be asked without
its own ratings (its file names other clients, say) is taken to apply; it is refused when it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TypeVar

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Defense, Network, Shape, Star, Victim
from victims.training import check_on_the_way, check_together, only_one

T = TypeVar("T")


def obstacle(victim: Victim, defenses: Sequence[Defense]) -> str:
    """Say why a victim cannot have defenses."""
    try:
        check_together(victim, defenses)
        network = network_of(victim) if defenses else None
        if network is not None:
            check_on_the_way(victim, defenses, network, _few(), 2, 0, _asked)
        sample = only_one([_asked(partial(defense.sampled, _few(), 0, 0)) for defense in defenses])
    except InputError as error:
        return str(error)
    return "" if sample is None else victim.capabilities.sampling_obstacle


def network_of(victim: Victim) -> Network | None:
    """Form the network of a victim among a few clients."""
    network = victim.capabilities.network
    if network is None:
        return Star(Shape(0, 0, 0))
    return _asked(lambda: network(victim.init(_few(), 0), _few()))


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
