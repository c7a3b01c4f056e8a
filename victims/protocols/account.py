"""What a defense proves of itself: its privacy account, stated by the defense and printed as it is.

No number is called epsilon without saying of what: every line names what it protects, or in which view, and
how the number was composed. A defense that proves nothing says why; one that says nothing has no account.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from victims.common.errors import InputError

DELTA = 1e-5  # where epsilon is stated, unless a defense says otherwise


class Listeners(NamedTuple):
    """Clients of a graph who receive rows of others, and how often each row reaches them.

    Attributes
    ----------
    who : str
        What a person recognizes them by.
    copies : (n_users,) int
        Messages that carry the same row of each client to them in a round, at most; 0 where it sends them
        nothing.
    """

    who: str
    copies: Int[np.ndarray, " users"]


@dataclass(frozen=True, eq=False)
class Setting:
    """What is public of a recording that an account is about.

    Attributes
    ----------
    victim : str
        Name of the protocol.
    weighting : "observed-only" or "include-unrated"
        Which rows clients upload.
    n_rounds : int
        Rounds of uploads, >= 1.
    factor_bound : float or None
        Largest Euclidean norm of a client's factor, where the protocol has one (``Victim.factor_bound``).
    seed : int
        Of the recording.
    rows : (n_users,) int, or None
        Rows that each client sends in a round, where they go along a graph; None where they go to a server,
        one for every rating or, in include-unrated, every item, and one for every attribute.
    listeners : tuple of Listeners
        Those for whom a defense that changes every message anew states lines of their own; none where a row
        is one message. The last one is all who receive anything.
    """

    victim: str
    weighting: str
    n_rounds: int
    factor_bound: float | None
    seed: int = 0
    rows: Int[np.ndarray, " users"] | None = None
    listeners: tuple[Listeners, ...] = ()


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
    lines : tuple of Line
    unproved : str
        Why nothing is proved, where there are no lines.
    not_hidden : tuple of str
        What the defense does not hide, whatever its epsilon.
    """

    title: str
    lines: tuple[Line, ...] = ()
    unproved: str = ""
    not_hidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.lines) == bool(self.unproved):
            raise InputError(
                "an account must have either lines or a reason why nothing is proved; give one of them"
            )
