"""Client rules by name: those of this package, and those that installed packages offer."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from attacks.client_rules.adaptive_rule import ADAPTIVE, AdaptiveSteps
from attacks.client_rules.differentiable import ClientRule
from attacks.client_rules.local_updates import NAMES, LocalUpdates
from victims.common.errors import InputError

GROUP = "factorleak.client_rules"
ANY = "any"  # what no rule may be called
WITH_MOMENTUM = LocalUpdates(momentum=True)
OVER_ALL = (LocalUpdates(), WITH_MOMENTUM)  # rules of steps over all ratings
OURS = (*OVER_ALL, *ADAPTIVE)


def rule_named(name: str) -> ClientRule | AdaptiveSteps:
    """A rule of ours, or one that an installed package offers."""
    ours: dict[str, ClientRule | AdaptiveSteps] = {rule.name: rule for rule in OURS}
    ours |= dict.fromkeys(NAMES, LocalUpdates(1))
    offered = offered_on(tuple(sys.path))
    points = offered.get(name, ())
    if not points and name in ours:
        return ours[name]
    if not points:
        names = ", ".join((ANY, *ours, *offered))
        raise InputError(f"rule of inversion must be one of {names}, got {name!r}")
    if len(points) > 1 or name in (ANY, *ours):
        owners = [*(["factorleak"] if name in (ANY, *ours) else []), *map(_package, points)]
        raise InputError(
            f"rule {name!r} is refused: the name is offered by {' and by '.join(owners)}; rename one or "
            "uninstall its package"
        )
    return _made(name, points[0])


@cache
def offered_on(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    """Find the rules that packages on the present search path offer, reading each path once."""
    points = tuple(entry_points(group=GROUP))
    return {one.name: tuple(other for other in points if other.name == one.name) for one in points}


def _made(name: str, point: EntryPoint) -> ClientRule:
    """What an entry point names: a rule, or what makes one."""
    whose = f"rule {name!r} of {_package(point)} ({point.value})"
    try:
        loaded = point.load()
        made = loaded if not isinstance(loaded, type) and not broken(loaded) else loaded()
    except (Exception, SystemExit) as error:
        raise InputError(f"{whose} cannot be made: {error!r:.200}") from error
    if missing := broken(made):
        raise InputError(f"{whose} {missing}; see factorleak.plugins.ClientRule")
    return made


def _package(point: EntryPoint) -> str:
    return "an unnamed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def broken(rule: object) -> str:
    """Say what an object lacks to be a client rule."""
    lacking = [name for name in ("name", "mixes_rows", "families", "upload") if name not in dir(rule)]
    if lacking:
        return f"must have {', '.join(lacking)}, got {rule!r:.80}"
    try:
        hash(rule)
    except Exception:  # whatever a stranger's __hash__ raises
        return f"must be hashable (a frozen dataclass is), got {rule!r:.80}"
    return ""
