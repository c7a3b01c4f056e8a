"""Whether a victim can have a defense, both as texts, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audit.experiments.encryption import standing_in
from audit.factories import make_defenses, make_victim
from victims.applicability import obstacle


def obstacle_of(victim: str, options: Mapping[str, Any], defense: str) -> str:
    """Say why a victim cannot have a defense.

    Examples
    --------
    >>> obstacle_of("mf", {}, "laplace"), obstacle_of("pdmfrec", {}, "paillier")[:23]
    ('', 'paillier needs a server')
    """
    return obstacle(make_victim(victim, dict(options)), make_defenses(standing_in(defense) or "none"))
