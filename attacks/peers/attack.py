"""What the neighbours of a client of a graph read of what it sends them, by name or without one.

Duriakova et al. 2019 (PDMFRec) sends W (-e u + alpha v) for every rating to all neighbours, one way and
anonymously, "so that rating behaviour is protected well"; DMF sends the same to users whom it knows. The
attack

- sorts rows without a sender by sender (``attacks.peers.senders``),
- says who each sender is, where the weights tell (``attacks.peers.weights``),
- reads the ratings of each (``attacks.peers.claims``), and where the receiver holds another copy of the
  item factors than the sender, reads what that leaves (``attacks.peers.nearby``).

A coalition of neighbours names by the weights of all its members, and of rows under noise that is drawn
anew for each message takes the mean.

What it assumes: rows of rated items in the clear, four factors or more where senders are not told, the
rating grid. What it does not tell apart it leaves out.

References
----------
PDMFRec, E. Duriakova et al., RecSys 2019, doi:10.1145/3298689.3347035, as reproduced in the seed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from attacks.base import Progress, Reconstruction, all_abstain, silent
from attacks.obstacles import factors_hidden
from attacks.peers.answers import of_told, of_untold, scope_of, told_users
from attacks.peers.claims import read_all
from attacks.peers.received import arrived
from attacks.peers.senders import LARGEST, sorted_by_sender
from attacks.peers.weights import weights_unknown
from victims.common.validation import above, one_of, require_fields
from victims.transcript.view import UNTOLD, View

ANSWERS = {"claims": "peers", "ratings": "peers-named", "lists": "peers-lists"}  # and what that is called
LEAST_FACTORS = 3
NO_PEER = "it reads what clients of a graph send each other, and the adversary is none of them"
SEALED = "what others send the adversary is encrypted, and this attack reads no sums of it; aggregate does"


@dataclass(frozen=True)
class Peers:
    """Hyper-parameters.

    Attributes
    ----------
    answers : {"claims", "ratings", "lists"}
        Of rows without a sender: what was read under pseudonyms; under names, of senders who are named;
        or of these which items they rated and nothing else.
    max_misfit : float
        Abstain where the distance of the answer from the grid exceeds this share of what random pairing
        gives, > 0.
    """

    answers: str = "claims"
    max_misfit: float = 0.25

    def __post_init__(self) -> None:
        require_fields(self, "peers", answers=one_of(*ANSWERS), max_misfit=above(0))

    @property
    def name(self) -> str:
        """Name in the registry."""
        return ANSWERS[self.answers]

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read the neighbours of the adversary."""
        options = {**asdict(self), "seed": key}
        scope = scope_of(self.answers)
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options, scope=scope)
        rounds, told = arrived(view), _senders_told(view)
        found = sorted_by_sender(rounds, told_users(view))
        progress(1, 3)
        claims = read_all(view.manifest, rounds, found, self.max_misfit, key)
        progress(2, 3)
        answer = (
            of_told(view, claims, scope) if told else of_untold(view, rounds, found, claims, self.answers)
        )
        progress(3, 3)
        return replace(answer, attack=self.name, options=options, scope=scope)

    def obstacle(self, view: View) -> str:
        """Why the attack does not apply, or nothing."""
        if view.copies is None:
            return no_copies(view)
        naming = self.answers != "claims" and not _senders_told(view)
        return no_rows(view) or _too_many(view) or (weights_unknown(view) if naming else "")


def no_copies(view: View) -> str:
    """Say why a view has no rows that arrived at clients."""
    return SEALED if view.members else NO_PEER


def no_rows(view: View) -> str:
    """Say why nothing can be read of what neighbours send, or nothing."""
    assert view.copies is not None
    if view.copies.round.size == 0:
        return "the adversary receives nothing from others"
    if view.manifest.rule.link == "sigmoid":
        return "predictions go through a sigmoid, which this attack does not model; use cofactors"
    return factors_hidden(view) or (
        "" if arrived(view) else "nothing arrived about items whose factors the adversary holds"
    )


def _too_many(view: View) -> str:
    """Say why rows without a sender are not sorted, or nothing."""
    assert view.copies is not None
    if _senders_told(view):
        return ""
    if view.manifest.factors < LEAST_FACTORS:
        return f"rows without a sender are not told apart in fewer than {LEAST_FACTORS} factors"
    if np.bincount(view.copies.round).max() > LARGEST * len(view.members):
        return f"it compares pairs of rows without a sender, and of at most {LARGEST:,} in a round"
    return ""


def _senders_told(view: View) -> bool:
    assert view.copies is not None
    return bool((view.copies.sender != UNTOLD).all())
