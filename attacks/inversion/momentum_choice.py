"""Which passes with momentum explain some clients: those whose drift leaves least of their rows first."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from jaxtyping import Float

from attacks.client_rules.momentum_passes import OPEN, MomentumPasses, family_of, passes_tried
from attacks.inversion.guess import Guess
from attacks.inversion.momentum_starts import kinds
from attacks.inversion.passes import Ordered, asked, passes_declared, told_in_order
from victims.transcript.manifest import Manifest


def chosen_with_momentum(
    rule: MomentumPasses, manifest: Manifest, groups: list[Ordered], levels: Float[np.ndarray, " levels"]
) -> tuple[MomentumPasses, Guess] | None:
    """The rule, kind of momentum, number of passes and open constants that explain some clients."""
    rows = asked(groups)
    if rows is None:
        return None
    told = kinds(rows, rule.batch_size, passes_tried(manifest))
    rules = (rule,) if rule.batch_size == 1 else (rule, replace(rule, mean=not rule.mean))
    families = [
        (kind.passes, family_of(manifest, number, kind.momentum, ahead=kind.ahead, coasts=kind.coasts))
        for number in range(len(OPEN))
        for kind in told
    ]
    best, most = None, 0
    frees = (False, True) if passes_declared(manifest) else (False,)
    for free, (passes, family), one in product(frees, families, rules):
        guess = Guess(family, passes)
        answered = int(told_in_order(one, guess, rows, levels, free=free).answered.sum())
        if answered > most:
            best, most = (one, guess), answered
        if 2 * most > len(rows.item):
            break
    return best
