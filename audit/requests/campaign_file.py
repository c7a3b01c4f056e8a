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

    [[exclude]]
    defense = "privmvmf"
    adversary = "item-server"
    reason = "it is the server's partner"

``docs/how-to/run-a-campaign.md`` has all keys.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from audit.experiments.campaign import check_adversary
from audit.experiments.compare_cells import Comparison, adapted, usual_adversaries
from audit.experiments.matrix import Exclusion, Matrix
from audit.factories import make_attack, make_victim, scenarios_of
from audit.registry import entry, main_name
from audit.requests.rating_data import ratings_of
from victims.common.complaints import first_complaint
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.transcript.spelling import closest

MOST_BYTES = 1 << 20
MOST_CELLS = 100_000
Word = Annotated[str, Field(min_length=1, max_length=500)]
Words = Annotated[list[Word], Field(max_length=1000)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key not in cls.model_fields:
                near = closest(str(key), cls.model_fields)
                hint = f"did you mean {near!r}?" if near else f"it takes {', '.join(cls.model_fields)}"
                raise ValueError(f"there is no key {key!r}; {hint}")
        return value


class DataEntry(_Strict):
    """Ratings: their name in results, what ``--data`` takes, how many random clients are all there are."""

    name: Word
    path: Word | None = None
    community: Count | None = None


class Watched(_Strict):
    """What may be said of the whole, and by each victim for itself."""

    defenses: Words | None = None
    adversaries: Words | None = None
    attacks: Words | None = None
    rounds: list[list[Number]] | None = None
    seeds: Annotated[list[Number], Field(min_length=1)] | None = None
    users: Count | None = None
    trained: Count | None = None
    runs: Count | None = None


class VictimEntry(Watched):
    """A victim: its scenarios (default: all), its options, and what differs from the whole."""

    name: Word
    update: Words | None = None
    weighting: Words | None = None
    set: dict[str, str | int | float | bool] = Field(default_factory=dict)


class ExcludeEntry(_Strict):
    """Cells that are left out: all that have these values, and why."""

    reason: Word
    victim: Word | None = None
    update: Word | None = None
    weighting: Word | None = None
    data: Word | None = None
    defense: Word | None = None
    adversary: Word | None = None
    seed: Number | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Any:
        if len(self.model_fields_set) < 2:
            raise ValueError(
                "an exclusion must name a victim, update, weighting, data, defense, adversary, seed"
            )
        return self


class CampaignFile(_Strict):
    """The whole file."""

    format: Literal["factorleak-campaign"]
    version: Literal[1]
    title: Annotated[str, Field(max_length=200)] = "What the traffic gives away"
    data: Annotated[list[DataEntry], Field(min_length=1)]
    victim: Annotated[list[VictimEntry], Field(min_length=1)]
    grid: Watched = Field(default_factory=Watched)
    exclude: list[ExcludeEntry] = Field(default_factory=list)

    @field_validator("data")
    @classmethod
    def _one_name_each(cls, value: list[DataEntry]) -> list[DataEntry]:
        names = [one.name for one in value]
        if len(set(names)) < len(names):
            raise ValueError("must have a name each; two are the same")
        return value


def read_campaign(path: Path) -> CampaignFile:
    """Read a campaign's file.

    Parameters
    ----------
    path : Path

    Returns
    -------
    CampaignFile

    Raises
    ------
    InputError
        If it cannot be read, is no TOML, or says something that is not known.
    """
    if not path.is_file():
        raise InputError(f"campaign {path} must be a TOML file; nothing is there")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"campaign {path} must have at most {MOST_BYTES} bytes, got {size}")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return CampaignFile.model_validate(content)
    except ValidationError as error:
        raise InputError(f"campaign {path}: {first_complaint(error)}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"campaign {path} must be TOML: {error}") from None


def matrix_of(content: CampaignFile) -> Matrix:
    """Form the grid of a campaign, every name in it checked.

    Parameters
    ----------
    content : CampaignFile

    Returns
    -------
    Matrix

    Raises
    ------
    InputError
        If a name is unknown, an exclusion means no cell, or cells are too many.
    """
    plans = tuple(plan for victim in content.victim for plan in _plans(victim, content))
    n_cells = sum(len(plan.defenses) * (2 + plan.runs) for plan in plans)
    if n_cells > MOST_CELLS:
        raise InputError(f"a campaign must have at most {MOST_CELLS} cells, got {n_cells}; split it")
    matrix = Matrix(plans, tuple(map(_exclusion, content.exclude)))
    for exclusion in matrix.exclusions:
        if not any(
            exclusion.names(plan, defense, who)
            for plan in plans for defense in plan.defenses for who in plan.adversaries
        ):  # fmt: skip
            words = ", ".join(f"{name} = {value!r}" for name, value in exclusion.where.items())
            raise InputError(f"campaign: the exclusion with {words} means no cell; correct or remove it")
    return matrix


def load_data(content: CampaignFile, folder: Path) -> dict[str, Ratings]:
    """Load all ratings of a campaign.

    Parameters
    ----------
    content : CampaignFile
    folder : Path
        That paths are relative to.

    Returns
    -------
    dict
        Name -> ratings.

    Raises
    ------
    InputError
        If ratings cannot be loaded.
    """
    return {one.name: ratings_of(_source(one, folder), community=one.community) for one in content.data}


def _source(one: DataEntry, folder: Path) -> str:
    given = one.path or one.name
    beside = folder / given
    return str(beside) if beside.exists() else given


def _plans(victim: VictimEntry, content: CampaignFile) -> list[Comparison]:
    entry("victims", victim.name)
    updates, weightings = scenarios_of(victim.name)
    options = {name: str(value).lower() for name, value in victim.set.items()}
    chosen = _chosen(victim, content.grid)
    plans = []
    for update, weighting, data, seed, rounds in product(
        _known("update", victim.update, updates),
        _known("weighting", victim.weighting, weightings),
        content.data,
        chosen["seeds"],
        chosen["rounds"],
    ):
        make_victim(victim.name, {**options, "update": update, "weighting": weighting})
        plan = Comparison(
            defenses=tuple(dict.fromkeys(chosen["defenses"])),
            victim=main_name("victims", victim.name),
            data=data.name,
            update=update,
            weighting=weighting,
            adversaries=tuple(dict.fromkeys(chosen["adversaries"] or usual_adversaries(victim.name))),
            attacks=tuple(chosen["attacks"]),
            rounds=tuple(sorted(set(rounds))),
            users=chosen["users"],
            trained=chosen["trained"],
            runs=chosen["runs"],
            seed=seed,
            victim_options=options,
        )
        _check_names(plan)
        plans.append(plan)
    return plans


DEFAULTS: dict[str, Any] = {
    "defenses": ("none",), "adversaries": None, "attacks": (), "rounds": ((),), "seeds": (0,),
    "users": 120, "trained": 50, "runs": 3,
}  # fmt: skip


def _chosen(victim: VictimEntry, grid: Watched) -> dict[str, Any]:
    """What the victim says, else the whole, else the default."""
    found = {}
    for name, default in DEFAULTS.items():
        own, shared = getattr(victim, name), getattr(grid, name)
        found[name] = own if own is not None else shared if shared is not None else default
    return found


def _known(what: str, given: Sequence[str] | None, every: Sequence[str]) -> Sequence[str]:
    for name in given or ():
        if name not in every:
            raise InputError(f"campaign: {what} must be one of {', '.join(every)}, got {name!r}")
    return given or every


def _check_names(plan: Comparison) -> None:
    for name in plan.attacks:
        make_attack(name)
    for name in plan.adversaries:
        check_adversary(name)
    for defense in plan.defenses:
        adapted(plan, defense)


def _exclusion(one: ExcludeEntry) -> Exclusion:
    given: Mapping[str, Any] = one.model_dump(exclude={"reason"}, exclude_none=True)
    where = {name: str(value) for name, value in given.items()}
    if "victim" in where:
        where["victim"] = main_name("victims", where["victim"])
    return Exclusion(where, one.reason)
