"""Systems that are measured: scenarios of a victim, defenses that it can have, those of Hu & Fang 2023."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from audit.factories import expanded, make_defenses, make_served, make_victim, scenarios_of
from audit.registry import entry
from victims.common.errors import InputError
from victims.training import obstacle
from victims.transcript.adversaries import ACTIVE, ADVERSARIES, CLIENT, NEIGHBOUR, NEIGHBOURS
from victims.transcript.manifest import SECURE_SUM
from victims.transcript.sybils import SYBILS, sybils_of

PREFERRED = "include-unrated"


class Scenarios(NamedTuple):
    """Updates and weightings of a grid, and the other options of its victim."""

    updates: tuple[str, ...]
    weightings: tuple[str, ...]
    options: dict[str, Any]


def scenarios(
    victim: str, updates: Iterable[object], weightings: Iterable[object], options: Mapping[str, Any]
) -> Scenarios:
    """Choose the scenarios that are asked for, by name or as the victim's options, each once; else all."""
    all_updates, all_weightings = scenarios_of(victim)
    own, rest = _apart(options)
    first, second = tuple(dict.fromkeys(map(str, updates))), tuple(dict.fromkeys(map(str, weightings)))
    _refuse_two_choices(own, update=first, weighting=second)
    return Scenarios(
        first or ((own["update"],) if own["update"] else all_updates),
        second or ((own["weighting"],) if own["weighting"] else all_weightings),
        rest,
    )


class Scenario(NamedTuple):
    """One scenario, and the other options of its victim."""

    update: str
    weighting: str
    options: dict[str, Any]


def one_scenario(victim: str, update: str, weighting: str, options: Mapping[str, Any]) -> Scenario:
    """Choose one scenario, by name or as the victim's options; else the first update, unrated items too."""
    grid = scenarios(victim, filter(None, [update]), filter(None, [weighting]), options)
    usual = PREFERRED if PREFERRED in grid.weightings else grid.weightings[0]
    return Scenario(grid.updates[0], usual, grid.options)


def _apart(options: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Update and weighting that options name, empty where they do not or say none, and the other options."""
    rest = dict(options)
    return {name: str(rest.pop(name, None) or "") for name in ("update", "weighting")}, rest


def _refuse_two_choices(options: Mapping[str, str], **asked: Iterable[object]) -> None:
    for name, choices in asked.items():
        given = [str(choice) for choice in choices if choice]
        if given and options[name] and given != [options[name]]:
            raise InputError(
                f"{name} must be said once, got {', '.join(given)} and {name}={options[name]} in set; leave "
                "one out"
            )


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


def shows_sums_alone(victim: str, text: str) -> bool:
    """Tell whether a server of this victim sees no row under a defense, but sums, which take all clients.

    Examples
    --------
    >>> shows_sums_alone("mf", "laplace:b=2+secure-sum"), shows_sums_alone("pdmfrec", "secure-sum")
    (True, False)
    """
    masked = any(defense.partition(":")[0] == SECURE_SUM for defense in expanded(text))
    return encrypts(text) or (masked and not entry("victims", victim).serverless)


def _ideal(defense: str) -> dict[str, str]:
    return entry("defenses", defense.partition(":")[0]).ideal


def _idealised(defense: str) -> str:
    name, _, options = defense.partition(":")
    ideal = [f"{option}={value}" for option, value in _ideal(defense).items()]
    return f"{name}:{','.join(filter(None, (options, *ideal)))}" if ideal else defense


def obstacle_of(victim: str, options: Mapping[str, Any], defense: str, server: str = "") -> str:
    """Say why a victim cannot have a defense.

    Examples
    --------
    >>> obstacle_of("mf", {}, "laplace"), obstacle_of("pdmfrec", {}, "paillier")[:23]
    ('', 'paillier needs a server')
    """
    served = make_served(make_victim(victim, dict(options)), server)
    return obstacle(served, make_defenses(standing_in(defense) or "none"))


TESTED = 10  # ratings per user
NOWHERE = os.devnull  # a source without a published split
VICTIM = "decentralised-mf"
BUDGETED = ("trajectory", "rated-set")  # what the recommender tries on every one of them


@dataclass(frozen=True)
class System:
    """A system as tables name it."""

    name: str
    defense: str  # its name in the registry; empty where nothing protects
    attacks: tuple[str, ...] = BUDGETED  # what the recommender tries
    # the system whose training it shares, where it is another one's with other predictions
    variant_of: str = ""

    @property
    def tuned_as(self) -> str:
        """The system whose learning rate and regularization it takes."""
        return self.variant_of or self.name

    @property
    def is_private(self) -> bool:
        """Whether anything protects, so that there is noise and a budget."""
        return bool(self.defense)

    def defense_text(self, noise: str, epochs: int, **options: float | str) -> str:
        """Write the defense with its options.

        Examples
        --------
        >>> system_of("hdpmf").defense_text("once", 9, epsilon=0.5)
        'hdpmf:noise=once,epochs=9,epsilon=0.5'
        """
        if not self.is_private:
            return "none"
        told = {name: value if isinstance(value, str) else f"{value:g}" for name, value in options.items()}
        others = "".join(f",{option}={value}" for option, value in told.items())
        return f"{self.defense}{',' if ':' in self.defense else ':'}noise={noise},epochs={epochs}{others}"


SYSTEMS = {
    "mf": System("mf", "", (*BUDGETED, "spectral", "grid", "likelihood")),
    "hdpmf": System("hdpmf", "hdpmf"),
    "pdpmf": System("pdpmf", "pdpmf"),
    "dpmf": System("dpmf", "dpmf"),
    "dpmf-program": System("dpmf-program", "dpmf-program"),
    "hdpmf-r": System("hdpmf-r", "hdpmf-r", variant_of="hdpmf"),
}


def system_of(name: str) -> System:
    """Look a system up.

    Examples
    --------
    >>> system_of("hdpmf:mixing=draw").defense_text("fresh", 9)
    'hdpmf:mixing=draw,noise=fresh,epochs=9'
    """
    return SYSTEMS.get(name, System(name, name))


def active_server(adversary: str) -> str:
    """The adversary whose server a victim is recorded under; empty where it is an honest one."""
    return adversary if adversary.startswith(ACTIVE) else ""


def with_budget(victim: str, adversary: str) -> str:
    """Name an active server with its whole budget, as recordings do; anybody else as they are."""
    server = active_server(adversary)
    return make_served(make_victim(victim), server).text if server else adversary


def attacks_of(adversary: str) -> tuple[str, ...]:
    """Attacks that know of an adversary, which are tried before those that know of defenses."""
    return ("isolated",) if active_server(adversary) else ()


def check_adversary(name: str) -> None:
    """Refuse an adversary that no recording has."""
    if name.startswith(SYBILS):
        sybils_of(name)
    elif name not in ADVERSARIES and not name.startswith((CLIENT, NEIGHBOUR, NEIGHBOURS, f"{ACTIVE}:")):
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {name!r}")


def check_numbered(adversary: str) -> None:
    """Refuse clients who are not named by their numbers: a recording of our own has no other names."""
    if adversary.startswith(SYBILS):
        return
    who, colon, numbers = adversary.partition(":")
    many = numbers.split(",") if f"{who}:" == NEIGHBOURS else [numbers]
    if colon and who != ACTIVE and not all(one.isascii() and one.isdigit() and len(one) < 10 for one in many):
        raise InputError(
            f"adversary {who} must be clients by their numbers, as {who}:0, got {adversary!r:.80}"
        )
