"""What a defense proves of itself: its privacy account, stated by the defense and printed as it is.

A proof covers settings, and an account has numbers where the setting that ran is one of them
(``defenses.accounts``); of any other nothing is proved, and it says why. No number is called epsilon
without saying of what: which recordings are neighbours, who sees what, and how the number was composed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from victims.common.errors import InputError

DELTA = 1e-5  # where epsilon is stated, unless a defense says otherwise


class Listeners(NamedTuple):
    """Clients of a graph who receive rows of others, and how often each row reaches them."""

    who: str  # what a person recognizes them by
    # messages that carry the same row of each client to them in a round, at most; 0 where it sends them
    # nothing
    copies: Int[np.ndarray, " users"]


@dataclass(frozen=True, eq=False)
class Setting:
    """What ran, as far as proofs ask.

    Attributes
    ----------
    victim : str
        Name of the protocol in the registry.
    options : mapping
        All options of the victim, by name.
    changed : tuple of str
        Those of them that do not have their default.
    n_rounds : int
        Rounds that ran, from round 0 on, whatever was recorded of them: broadcasts depend on the uploads of
        all rounds before. >= 1.
    defenses : tuple of str
        Names of all defenses, in their order.
    on_received : bool
        Whether receivers trained on what the defenses made of the rows, and not on the rows before.
    seed : int
        Of the recording.
    rows : (n_users,) int
        Rows of each client in a round that its ratings or attributes enter; none where clipped rows with
        noise have no proof (``defenses.accounts.ROWS``).
    listeners : tuple of Listeners
        Those for whom a defense whose noise is drawn anew for every message states lines of their own; none
        where a row is one message. The last one is all who receive anything.
    fresh_messages : bool
        Whether noise is drawn anew for every message, by this defense or because one before it does.
    """

    victim: str
    options: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    n_rounds: int = 1
    defenses: tuple[str, ...] = ()
    on_received: bool = True
    seed: int = 0
    rows: Int[np.ndarray, " users"] = field(default_factory=lambda: np.zeros(0, int))
    listeners: tuple[Listeners, ...] = ()
    fresh_messages: bool = False

    @property
    def weighting(self) -> str:
        """The scenario's rows: observed-only or include-unrated."""
        return str(self.options.get("weighting", "observed-only"))

    @property
    def text(self) -> str:
        """The victim and its scenario, in words."""
        scenario = [str(self.options[name]) for name in ("update", "weighting") if name in self.options]
        return f"{self.victim} {'/'.join(scenario)}".strip()


@dataclass(frozen=True)
class Line:
    """One line of an account.

    Attributes
    ----------
    what : str
        Whose values are protected, or what is seen and by whom.
    epsilon : float
        With delta = 0; infinite where no finite number holds, NaN where nothing is proved.
    at_delta : float
        Epsilon at ``delta``; infinite or NaN as above.
    delta : float
        In 0..1, exclusive.
    why : str
        How the numbers were composed, or why there are none.
    """

    what: str
    epsilon: float
    at_delta: float
    delta: float
    why: str


@dataclass(frozen=True)
class Account:
    """What a defense proves.

    Attributes
    ----------
    title : str
        Printed before all else; usually the name of the defense.
    lines : tuple of Line
    unproved : str
        Why nothing is proved, where there are no lines.
    claims : tuple of str
        What the numbers of the lines are about: neighbours, view, and what they do not claim.
    not_hidden : tuple of str
        What the defense does not hide, whatever its epsilon.
    """

    title: str
    lines: tuple[Line, ...] = ()
    unproved: str = ""
    claims: tuple[str, ...] = ()
    not_hidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.lines) == bool(self.unproved):
            raise InputError(
                "an account must have either lines or a reason why nothing is proved; give one of them"
            )
