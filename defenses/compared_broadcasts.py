"""Clients compare hashes of what they were sent, and upload nothing in a round in which these differ.

Against servers who tell clients different things so that sums become the rows of a few (attack ``isolated``):
every client signs a hash of the factors that it received, and hears those of all others before it uploads; 32
bytes for each client and round. Pasquini, Francati and Ateniese 2022 propose it, and to derive the
masks of the sum from the hash, so that a sum over clients who differ is noise and nobody has to hear anybody.

What this does not stop: a broadcast that is the same for everybody and crafted all the same (manipulation
``canary``); a server that hands the hashes on, and they are not signed by keys that it did not choose; clients
of its own among those who compare. It hides nothing from a server that is honest but curious. Any broadcast
that differs for an honest reason (compression by client, late clients) stops the round, as one client who lies
about its hash does.
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
