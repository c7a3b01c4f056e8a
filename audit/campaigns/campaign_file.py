"""A campaign as a file: what is compared with what, checked before anything runs.

    format = "factorleak-campaign"
    version = 1

    [[data]]
    name = "ml-100k"
    path = "ml-100k"        # what --data takes; paths are relative to the file

    [[victim]]
    name = "fedmvmf"
    update = ["semi-als"]
    defenses = ["none", "laplace:b=2", "privmvmf"]

    [[sweep]]               # what a command measures: see audit.campaigns.blocks
    scales = [0, 1, 10]

    [[exclude]]
    defense = "privmvmf"
    adversary = "item-server"
    reason = "it is the server's partner"

``docs/how-to/run-a-campaign.md`` has all keys.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from audit.campaigns.blocks import NAMES
from audit.campaigns.strict_tables import DataEntry, Number, Strict, Word, Words, told
from victims.common.errors import InputError

MOST_BYTES = 1 << 20


class Watched(Strict):
    """What may be said of the whole, and by each victim for itself."""

    defenses: Words | None = None
    adversaries: Words | None = None
    attacks: Words | None = None
    rounds: Annotated[list[Annotated[list[int], Field(min_length=1)]], Field(min_length=1)] | None = None
    seeds: list[int] | None = None
    users: int | None = None
    trained: int | None = None
    runs: int | None = None


class VictimEntry(Watched):
    """A victim: its scenarios (default: all), its options, and what differs from the whole."""

    name: Word
    update: Words | None = None
    weighting: Words | None = None
    set: dict[str, str | int | float | bool] = Field(default_factory=dict)


class ExcludeEntry(Strict):
    """Cells that are left out: all that have these values, and why."""

    reason: Word
    victim: Word | None = None
    update: Word | None = None
    weighting: Word | None = None
    data: Word | None = None
    defense: Word | None = None
    adversary: Word | None = None
    attack: Word | None = None
    seed: Number | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Any:
        if len(self.model_fields_set) < 2:
            raise ValueError(
                "an exclusion must name at least one of "
                + ", ".join(name for name in type(self).model_fields if name != "reason")
            )
        return self


Blocks = list[dict[str, Any]]


class CampaignFile(Strict):
    """The whole file."""

    format: Literal["factorleak-campaign"]
    version: Literal[1]
    title: Annotated[str, Field(max_length=200)] = "What the traffic gives away"
    data: Annotated[list[DataEntry], Field(min_length=1)]
    victim: list[VictimEntry] = Field(default_factory=list)
    audit: Blocks = Field(default_factory=list)
    sweep: Blocks = Field(default_factory=list)
    predict: Blocks = Field(default_factory=list)
    claims: Blocks = Field(default_factory=list)
    cost: Blocks = Field(default_factory=list)
    quality: Blocks = Field(default_factory=list)
    grid: Watched = Field(default_factory=Watched)
    exclude: list[ExcludeEntry] = Field(default_factory=list)

    @field_validator("data")
    @classmethod
    def _one_name_each(cls, value: list[DataEntry]) -> list[DataEntry]:
        names = [one.name for one in value]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ValueError(f"must have a name each, got {name!r:.60} twice; rename one")
        return value

    @model_validator(mode="after")
    def _measures_something(self) -> Any:
        if not self.victim and not any(getattr(self, name) for name in NAMES):
            blocks = ", ".join(f"[[{name}]]" for name in ("victim", *NAMES))
            raise ValueError(f"a campaign must have a block that says what is measured: {blocks}")
        return self


def read_campaign(path: Path) -> CampaignFile:
    """Read a campaign's file."""
    if not path.is_file():
        shown = "docs/how-to/run-a-campaign.md shows one"
        raise InputError(f"campaign {path} must be a TOML file; nothing is there ({shown})")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"campaign {path} must have at most {MOST_BYTES} bytes, got {size}")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return CampaignFile.model_validate(content)
    except ValidationError as error:
        raise InputError(f"campaign {path}: {told(error)}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"campaign {path} must be TOML: {error}") from None
