"""Clients compare hashes of what they were sent, and upload nothing in a round in which these differ.

Against servers who tell clients different things so that sums become the rows of a few (attack ``isolated``).
Every client signs a hash of the factors that it received and waits for those of all others: 32 bytes and a
signature for each client and round. D. Pasquini, D. Francati and G. Ateniese (CCS 2022, arXiv:2111.07380)
propose to have the masks of a sum depend on the hash instead, so that what differs does not add up.

What this does not stop: a broadcast that is crafted and the same for everybody (manipulation ``canary``); a
server that passes the hashes on, unless they are signed with keys that it did not hand out; whatever an
honest but curious server reads. One client who lies about its hash stops a round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from victims.protocols.active_server import ActiveServer
from victims.protocols.base import Attacker, Defense, Victim


@dataclass(frozen=True)
class ComparedBroadcasts(Defense):
    """No upload where clients were sent different factors; honest servers see no difference.

    References
    ----------
    D. Pasquini, D. Francati, G. Ateniese, CCS 2022, doi:10.1145/3548606.3560557 (arXiv:2111.07380).
    """

    name: str = "compare-hashes"
    attackers = (Attacker("isolated", 2),)  # what it is about; uploads are as they were

    def agreed(self, victim: Victim[Any]) -> Victim[Any]:
        """The same protocol, whose clients refuse."""
        return replace(victim, compared=True) if isinstance(victim, ActiveServer) else victim
