"""Which cells cannot be, and which defenses encrypt: what they leak is measured with a stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audit.factories import expanded, make_defenses, make_victim
from audit.registry import entry
from victims.training import obstacle


def standing_in(text: str) -> str:
    """Put ideal encryption, which shows the same views and numbers, in the place of the real one.

    Examples
    --------
    >>> standing_in("privmvmf")
    'unrated-sampling:rho=1+paillier:ideal=true'
    """
    return "+".join(map(_idealised, expanded(text)))


def without_encryption(text: str) -> str:
    """Leave encryption out.

    Examples
    --------
    >>> without_encryption("privmvmf"), without_encryption("paillier")
    ('unrated-sampling:rho=1', 'none')
    """
    return "+".join(defense for defense in expanded(text) if not _ideal(defense)) or "none"


def encrypts(text: str) -> bool:
    """Tell whether uploads are encrypted."""
    return any(_ideal(defense) for defense in expanded(text))


def _ideal(defense: str) -> dict[str, str]:
    return entry("defenses", defense.partition(":")[0]).ideal


def _idealised(defense: str) -> str:
    name, _, options = defense.partition(":")
    ideal = [f"{option}={value}" for option, value in _ideal(defense).items()]
    return f"{name}:{','.join(filter(None, (options, *ideal)))}" if ideal else defense


def obstacle_of(victim: str, options: Mapping[str, Any], defense: str) -> str:
    """Say why a victim cannot have a defense.

    Examples
    --------
    >>> obstacle_of("mf", {}, "laplace"), obstacle_of("pdmfrec", {}, "paillier")[:23]
    ('', 'paillier needs a server')
    """
    return obstacle(make_victim(victim, dict(options)), make_defenses(standing_in(defense) or "none"))
