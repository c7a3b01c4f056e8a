"""Client rules by name: those of this package, and those that installed packages offer."""

from __future__ import annotations

from importlib.metadata import entry_points

from attacks.client_rules.adaptive_rule import ADAPTIVE
from attacks.client_rules.biased_steps import BiasedSteps
from attacks.client_rules.differentiable import ClientRule
from attacks.client_rules.local_passes import NAMES, LocalPasses
from attacks.client_rules.local_steps import LocalSteps
from attacks.client_rules.momentum_passes import MomentumPasses
from attacks.client_rules.paired_labels import PairedLabels
from attacks.client_rules.semi_als import SemiALS
from victims.common.errors import InputError

GROUP = "factorleak.client_rules"
WITH_MOMENTUM = LocalSteps(momentum=True)
OVER_ALL = (LocalSteps(), WITH_MOMENTUM)  # rules of steps over all ratings
WITH_BIAS = BiasedSteps()
PASSES_WITH_MOMENTUM = MomentumPasses()
SOLVED = SemiALS()
IN_PAIRS = PairedLabels()
OURS = (*OVER_ALL, PASSES_WITH_MOMENTUM, WITH_BIAS, SOLVED, IN_PAIRS, *ADAPTIVE)


def rule_named(name: str) -> ClientRule:
    """A rule of ours, or one that an installed package offers.

    Parameters
    ----------
    name : str

    Returns
    -------
    ClientRule

    Raises
    ------
    InputError
        If nothing has that name, or it cannot be made.
    """
    for rule in OURS:
        if name == rule.name:
            return rule
    if name in NAMES:
        return LocalPasses()
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        names = ", ".join(("any", *(rule.name for rule in OURS), *NAMES, *offered))
        raise InputError(f"rule of inversion must be one of {names}, got {name!r}")
    try:
        loaded = offered[name].load()
        return loaded if not isinstance(loaded, type) and not broken(loaded) else loaded()
    except Exception as error:
        raise InputError(f"rule {name!r} of {offered[name].value} cannot be made: {error!r:.200}") from error


def broken(rule: object) -> str:
    """Say what an object lacks to be a client rule.

    Parameters
    ----------
    rule : object

    Returns
    -------
    str
        Empty where it has all.
    """
    lacking = [name for name in ("name", "mixes_rows", "families", "upload") if name not in dir(rule)]
    if lacking:
        return f"must have {', '.join(lacking)}, got {rule!r:.80}"
    try:
        hash(rule)
    except Exception:  # whatever a stranger's __hash__ raises
        return f"must be hashable (a frozen dataclass is), got {rule!r:.80}"
    return ""
