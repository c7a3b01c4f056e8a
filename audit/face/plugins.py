"""What authors of attacks, defenses, protocols and client rules need: ``from factorleak import plugins``.

Interfaces (``Attack``, ``Defense``, ``Victim``), what they are given and return, and checks of one's own
components (``check_victim``, ``check_defense``, ``check_attack``).
"""

from attacks.base import (
    Attack,
    ClientFactors,
    Identities,
    Outcome,
    Progress,
    Scope,
    all_abstain,
)
from attacks.client_rules.differentiable import ClientRule, Family
from attacks.client_rules.own_rule import client_rule
from attacks.identify.identification import Identification
from attacks.inversion.attack import Inversion
from audit.contracts import check_attack, check_defense, check_victim
from audit.scoring.truth import Truth
from audit.transcript_check import TranscriptCheck
from victims.common.seeds import Purpose, generator
from victims.protocols.account import Account, Line, Setting
from victims.protocols.base import (
    Agreed,
    Attacker,
    Capabilities,
    Centralised,
    Cipher,
    Defense,
    Received,
    Rows,
    Sample,
    Total,
    Victim,
)
from victims.transcript.manifest import Manifest
from victims.transcript.messages import Broadcast
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, UserBatch

__all__ = [
    "ATTRIBUTE",
    "ITEM",
    "Account",
    "Agreed",
    "Attack",
    "Attacker",
    "Broadcast",
    "Capabilities",
    "Centralised",
    "Cipher",
    "ClientFactors",
    "ClientRule",
    "Defense",
    "Family",
    "Identification",
    "Identities",
    "Inversion",
    "Line",
    "Manifest",
    "Outcome",
    "Progress",
    "Purpose",
    "Received",
    "Rows",
    "Sample",
    "Scope",
    "Setting",
    "Total",
    "TranscriptCheck",
    "Truth",
    "Uploads",
    "UserBatch",
    "Victim",
    "all_abstain",
    "check_attack",
    "check_defense",
    "check_victim",
    "client_rule",
    "generator",
]
