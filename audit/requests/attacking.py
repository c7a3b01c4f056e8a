"""The request behind ``factorleak attack``: one attack on what one adversary sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attacks.base import Attack, Foreseeing, Reconstruction
from attacks.identify.identification import Identification
from attacks.identify.identify import identify
from audit.experiments.answers import answered_or_refused, complaints
from audit.experiments.lent import lent
from audit.experiments.plan_rules import CLIENTS, NAME, SEED
from audit.factories import make_attack
from audit.keys import view_of
from audit.plugins import said
from audit.requests.rating_data import sample_of
from victims.common.errors import InputError
from victims.common.seeds import Purpose
from victims.common.validation import or_none, require_fields
from victims.transcript.reader import Transcript, open_transcript
from victims.transcript.view import View

BY_DEFAULT = ("spectral", "undeclared", "aggregate")
"""Where no attack is named, the first of these that applies: a known step, any step, decrypted sums."""


@dataclass(frozen=True)
class AttackRequest:
    """What to attack, and how."""

    target: Transcript | View | Path
    # A name takes ``options``; an object has them. None takes the first of ``BY_DEFAULT`` that applies
    attack: object = None
    adversary: str = "server"  # whose view of a transcript is attacked
    users: int | None = None  # clients to attack, a random sample; None attacks all
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    identified: bool = False  # attack under the client rule that the uploads show, not the declared one


@dataclass(frozen=True)
class AttackResponse:
    """What the attack read, of which view, in how many seconds; the rule that was found, if asked."""

    reconstruction: Reconstruction
    view: View
    seconds: float
    identification: Identification | None = None


def attack(
    request: AttackRequest, report: Callable[[int, int], None] = lambda done, total: None
) -> AttackResponse:
    """Run one attack."""
    require_fields(request, "an attack", adversary=NAME, users=or_none(CLIENTS), seed=SEED)
    chosen = request.attack
    if isinstance(chosen, str):
        make_attack(chosen, request.options)  # a misspelt name comes before opening the transcript
    elif chosen is not None and not isinstance(chosen, Attack):
        raise InputError(f"attack must be a name or have the verb of factorleak.Attack, got {chosen!r:.80}")
    elif request.options:
        whose = "into the attack that is given as an object" if chosen is not None else "with a named attack"
        raise InputError(f"options go {whose}, got {request.options}; name it, or leave them out")
    view = view_of_target(request.target, request.adversary)
    identification = identify(view) if request.identified else None
    if identification is not None:
        view = identification.applied(view)
    sample = sample_of(view.users, request.users, Purpose.ATTACKED_CLIENTS, request.seed)
    if sample is not None:
        view = view.select(sample)
    if chosen is None:
        chosen = first_that_applies(view)
    start = time.perf_counter()
    if isinstance(chosen, str):
        found = answered_or_refused(chosen, request.options, view, request.seed, report)
    else:
        try:
            found = chosen.attack(lent(view), request.seed, report)
        except (SystemExit, GeneratorExit) as error:
            raise InputError(f"attack {chosen.name!r} must not end the program, got {said(error)}") from error
        for complaint in complaints(found, view):
            raise InputError(f"attack {chosen.name!r} {complaint}")
    seconds = time.perf_counter() - start
    if identification is not None:
        found = replace(found, options={**found.options, "identified": identification.summary()})
    return AttackResponse(found, view, seconds, identification)


def first_that_applies(view: View) -> str:
    """Find the attack on a view where none is named."""
    for name in BY_DEFAULT:
        attack = make_attack(name)
        if not isinstance(attack, Foreseeing) or not attack.obstacle(view):
            return name
    return BY_DEFAULT[0]


def view_of_target(target: Transcript | View | Path, adversary: str) -> View:
    """What an adversary sees of a recording; a view is what it is."""
    if isinstance(target, View):
        return target
    if not isinstance(target, Transcript | Path):
        raise InputError(f"target must be a recording, its directory or a view of it, got {target!r:.80}")
    recorded = target if isinstance(target, Transcript) else open_transcript(target)
    return view_of(recorded, adversary)
