"""``manifest.json`` of transcript version 2.

It declares the client's rule and the constants, the kinds of rows and the parties; what it leaves out is
unknown to the adversary. Attacks get it as ``victims.transcript.manifest.Manifest``, as they get version 1.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from victims.common.limits import DEEPEST, PLAUSIBLE, depth_of, is_plausible
from victims.transcript.client_rule import ClientRule
from victims.transcript.kinds import STANDARD, Kind
from victims.transcript.manifest import CONSTANTS, INT32_MAX, Count, Manifest, Size
from victims.transcript.spelling import plain, refuse_misspelt

SCALE, PULL = "upload_scale", "upload_regularization"
ROLES = ("server", "item_server", "helper", "decrypter", "other")
Number = Annotated[int, Field(ge=-INT32_MAX, le=-1)]


class NamedParty(BaseModel):
    """A party that is no client.

    Attributes
    ----------
    id : int
        Below 0; its number in ``messages.arrow``.
    role : {"server", "item_server", "helper", "decrypter", "other"}
    """

    model_config = ConfigDict(frozen=True, strict=True)

    id: Number
    role: Literal["server", "item_server", "helper", "decrypter", "other"] = "other"


class Manifest2(BaseModel):
    """The file; see the handbook's page on transcripts for the meaning of each key.

    A key that is a misspelling of a known one is refused; other unknown keys are ignored, but in ``rule``,
    where they tell that there is more to the rule.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal["factorleak-transcript"]
    version: Literal[2]
    protocol: Annotated[str, Field(min_length=1, max_length=200)] = "unknown"
    rule: ClientRule = Field(default_factory=ClientRule)
    constants: dict[str, Any] = Field(default_factory=dict)
    weighting: Literal["observed-only", "include-unrated"]
    n_users: Count
    n_items: Count
    n_attributes: Size = 0
    factors: Annotated[int, Field(ge=1, le=65_536)]
    rounds: Annotated[list[Size], Field(min_length=1, max_length=1_000_000)]
    rating_levels: Annotated[list[FiniteFloat], Field(min_length=1, max_length=1000)]
    attribute_groups: list[list[Size]] = Field(default_factory=list)
    item_features: list[list[Size]] | None = None
    kinds: Annotated[dict[str, Kind], Field(min_length=1, max_length=100)] = Field(
        default_factory=lambda: dict(STANDARD)
    )
    parties: dict[str, Number | NamedParty] = {"server": -1}
    anonymous: bool = False
    links: Literal["plain", "sealed"] = "plain"
    senders_hidden: bool = False
    inferred: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=1000)] = Field(
        default_factory=list
    )
    adversary: Annotated[str, Field(max_length=200)] = "all"
    defenses: list[dict[str, Any]] = Field(default_factory=list)
    recorded_by: Annotated[str, Field(max_length=1000)] = "unknown"

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if depth_of(value) > DEEPEST:
            raise ValueError(f"the manifest must be nested at most {DEEPEST} deep")
        if isinstance(value, dict):
            refuse_misspelt(value, cls.model_fields, "the manifest")
            if isinstance(value.get("constants"), dict):
                refuse_misspelt(value["constants"], (*CONSTANTS, SCALE, PULL), "constants")
        return plain(value)

    @model_validator(mode="after")
    def _check(self) -> Any:
        numbers = list(self.numbers().values())
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"parties must not share an id, got {str(numbers)[:80]}")
        for name in (*CONSTANTS, SCALE, PULL):  # here, where they have the names that the file uses
            number = self.constants.get(name)
            if number is None:  # unknown
                continue
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ValueError(
                    f"{name} of constants must be a number, got {str(number)[:20]}; leave it out if unknown"
                )
            if not is_plausible(number):
                raise ValueError(f"{name} of constants must be {PLAUSIBLE}, got {str(number)[:20]}")
        if self.constants.get(SCALE) == 0:
            raise ValueError(f"{SCALE} of constants must not be 0, or every upload is empty")
        return self

    def numbers(self) -> dict[str, int]:
        """The id of each party that is no client."""
        return {name: party if isinstance(party, int) else party.id for name, party in self.parties.items()}

    def as_manifest(self) -> Manifest:
        """The same facts, as attacks know them."""
        constants = dict(self.constants)
        scale, pull = (constants.pop(name, None) for name in (SCALE, PULL))
        upload = {"zeros_if_unrated": self.rule.rows != "rated"}
        upload |= {} if scale is None else {"scale": scale}
        upload |= {} if pull is None else {"regularization": pull}
        own = {"rule", "constants", "parties", "anonymous", "inferred", "kinds", "links", "senders_hidden"}
        roles = {name: name if isinstance(party, int) else party.role for name, party in self.parties.items()}
        parties = self.numbers()
        for name, role in roles.items():  # adversaries are known by their roles
            parties.setdefault(role, parties[name])
        return Manifest(
            **self.model_dump(exclude=own),
            update=self.rule.rule if self.rule.rule in ("semi-als", "sgd") else None,  # type: ignore[arg-type]
            hyperparameters=constants,
            upload=upload,  # type: ignore[arg-type]
            parties=parties,
            declared_rule=self.rule,
            scale_known=scale is not None,
            kinds=self.kinds,
            roles=roles,
            anonymous=self.anonymous,
            links=self.links,
            senders_hidden=self.senders_hidden,
            inferred=self.inferred,
        )


def file_of(manifest: Manifest) -> dict[str, Any]:
    """The content of ``manifest.json`` in the version that the manifest names."""
    content = manifest.model_dump()
    if manifest.version == 1:
        return content
    for name in ("update", "hyperparameters", "upload"):
        del content[name]
    constants: dict[str, float] = dict(manifest.hyperparameters)
    if manifest.scale_known:
        constants |= {SCALE: manifest.upload.scale, PULL: manifest.upload.regularization}
    return content | {
        "rule": manifest.rule.model_dump(exclude_none=True),
        "constants": constants,
        "kinds": {name: kind.model_dump(exclude_none=True) for name, kind in manifest.kinds.items()},
        "anonymous": manifest.anonymous,
        **({"links": manifest.links} if manifest.links != "plain" else {}),
        **({"senders_hidden": True} if manifest.senders_hidden else {}),
        **({"inferred": manifest.inferred} if manifest.inferred else {}),
        "parties": {
            name: {"id": number, "role": role if role in ROLES else "other"}
            for name, number in manifest.parties.items()
            if (role := manifest.roles.get(name, "" if manifest.roles else name))  # no second name of a party
        },
    }
