"""A campaign's file: its tables and blocks, strictly read, and the plans that they ask for.

    format = "factorleak-campaign"
    version = 1
    [[data]]
    name = "ml-100k"
    path = "ml-100k"        # what --data takes; paths are relative to the file
    [[victim]]
    name = "fedmvmf"
    update = ["semi-als"]
    defenses = ["none", "laplace:b=2", "privmvmf"]
    [[sweep]]               # what ``factorleak sweep`` measures; the keys are the fields of its plan
    scales = [0, 1, 10]
    [[exclude]]
    defense = "privmvmf"
    adversary = "item-server"
    reason = "it is the server's partner"

``docs/how-to/run-a-campaign.md`` has all keys.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from audit.campaigns.matrix import COMPARE, PRESETS, Exclusion, Matrix, Part
from audit.experiments.options import SEED, each_once, refuse_said_elsewhere
from audit.experiments.plan import Audit, Claims, Comparison, Sweep
from audit.experiments.scenarios import NOWHERE
from audit.factories import make_victim, scenarios_of
from audit.papers.plans import PartsPlan, Prediction, Quality, Sheet, TrustedPlan
from audit.rating_data import ratings_of
from audit.registry import entry, main_name
from victims.common.declarations import closest, first_complaint
from victims.common.errors import InputError
from victims.common.validation import each, require
from victims.data.ratings import Ratings
from victims.evaluation.ranking import Cut

Word = Annotated[str, Field(min_length=1, max_length=500)]
Words = Annotated[list[Word], Field(max_length=1000)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
TO_GIVE = {
    "format": 'write format = "factorleak-campaign"',
    "version": "write version = 1",
    "data": 'write a block [[data]] with name = "synthetic", say',
}  # what a file must have -> how


class Strict(BaseModel):
    """A table of a campaign's file: no other keys, no other types."""

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


class DataEntry(Strict):
    """Ratings: their name in results, what ``--data`` takes, how many random clients are all there are."""

    name: Word
    path: Word | None = None
    community: Count | None = None


def told(error: ValidationError) -> str:
    """Say what is wrong first: key, rule, value and remedy."""
    wrong = first_complaint(error)
    if wrong.rule == "must be given":
        return f"{wrong}; {TO_GIVE.get(wrong.where, 'add it')}"
    if not wrong.where or not wrong.rule.startswith("must be "):
        return str(wrong)
    got = "" if ", got " in wrong.rule else f", got {wrong.got!r:.60}"
    return f'{wrong}{got}; the handbook\'s page "Run a campaign" has all keys'


def as_typed(value: object) -> str:
    """Write an option's value as on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


PLANS: dict[str, type[Any]] = {
    "audit": Audit,
    "sweep": Sweep,
    "predict mf": Prediction,
    "predict pdmfrec": PartsPlan,
    "predict dpmf-yang": TrustedPlan,
    "claims": Claims,
    "cost": Sheet,
    "quality": Quality,
}
NAMES = tuple(dict.fromkeys(preset.partition(" ")[0] for preset in PLANS))
KEYS = {
    "updates": "update",
    "weightings": "weighting",
    "victim_options": "set",
    "attack_options": "options",
    "systems": "methods",
}  # a plan's field -> the key that says it
NOT_SAID = ("data", "seed", "source", "chosen", "uploads")  # fields that no key of that name says
Options = dict[Word, str | int | float | bool]


def cut_of(given: object) -> Cut:
    """Read where a list ends: ``cut = { k = 10, relevant = 4.0 }``."""
    keys = [one.name for one in fields(Cut)]
    if not isinstance(given, dict) or not set(given) <= set(keys):
        raise InputError(f"must be a table of {' and '.join(keys)}, got {given!r:.60}; {{ k = 10 }}, say")
    return Cut(**given)


WRITTEN: dict[str, Any] = {
    "victim_options": Options,
    "attack_options": dict[Word, Options],
    "cut": Annotated[Cut, BeforeValidator(cut_of)],
}  # fields whose values a file writes otherwise than a plan has them


def parts_of(
    name: str, block: Mapping[str, Any], sources: Mapping[str, str], seeds: Sequence[int]
) -> list[Part]:
    """Make the plans that a block means, settled."""
    preset, said = _preset_of(name, block)
    given = _given(name, preset, said)
    wanted = given.pop("data", None) or list(sources)
    if unknown := [one for one in wanted if one not in sources]:
        known = ", ".join(sources)
        raise InputError(f"campaign: [[{name}]] data must be of {known}, got {unknown[0]!r:.60}")
    own = given.pop("seeds", seeds)
    own = seeds_of(f"[[{name}]]", seeds if own is None else own)
    plan = _settled(name, preset, PLANS[preset](**given))  # whatever the ratings and the seed
    return [
        Part(preset, data, _about(plan, data, sources[data], seed), f"[[{name}]]")
        for data in dict.fromkeys(wanted)
        for seed in own
    ]


def seeds_of(block: str, seeds: Sequence[int]) -> tuple[int, ...]:
    """Check the seeds of a block."""
    try:
        require(block, "seeds", tuple(seeds), each(SEED), "the default is 0")
    except InputError as error:
        raise InputError(f"campaign: {error}") from None
    return each_once(seeds)


def _about(plan: Any, data: str, source: str, seed: int) -> Any:
    """A plan on some ratings and from a seed."""
    beside = {"source": source or NOWHERE} if "source" in _fields(type(plan)) else {}
    return replace(plan, data=data, seed=seed, **beside)


def _preset_of(name: str, block: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The preset of a block, and what it says beside; ``predict`` has one for each victim."""
    if name in PLANS:
        return name, dict(block)
    victims = [preset.partition(" ")[2] for preset in PLANS if preset.startswith(f"{name} ")]
    victim = block.get("victim", victims[0])
    if victim not in victims:
        raise InputError(
            f"campaign: [[{name}]] victim must be one of {', '.join(victims)}, got {victim!r:.60}"
        )
    return f"{name} {victim}", {key: value for key, value in block.items() if key != "victim"}


def _given(name: str, preset: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a plan that a block says."""
    try:
        found = _model_of(preset).model_validate({key: _frozen(value) for key, value in said.items()})
    except ValidationError as error:
        raise InputError(f"campaign: [[{name}]]: {told(error)}") from None
    keys = {KEYS.get(field, field): field for field in _fields(PLANS[preset])}
    given = {keys.get(key, key): getattr(found, key) for key in found.model_fields_set}
    for field, value in given.items():
        if KEYS.get(field, field) == "set":
            given[field] = {option: as_typed(one) for option, one in value.items()}
        if field == "attack_options":
            given[field] = {
                attack: {option: as_typed(one) for option, one in options.items()}
                for attack, options in value.items()
            }
    return given


def _frozen(value: Any, levels: int = 2) -> Any:
    """Lists, and lists in them, as plans have them."""
    return tuple(_frozen(one, levels - 1) for one in value) if levels and isinstance(value, list) else value


def _settled(name: str, preset: str, plan: Any) -> Any:
    """Settled by the command's experiment."""
    try:
        return PRESETS[preset].experiment.settle(plan)
    except InputError as error:
        raise InputError(f"campaign: [[{name}]]: {error}") from None


@cache
def _model_of(preset: str) -> type[Strict]:
    """The keys of a preset's block, with the types of its plan's fields."""
    hints = {**get_type_hints(PLANS[preset]), **WRITTEN}
    keys: dict[str, Any] = {
        KEYS.get(name, name): (hints[name], None) for name in _fields(PLANS[preset]) if name not in NOT_SAID
    }
    return create_model(
        preset,
        __base__=Strict,
        data=(tuple[Word, ...] | None, None),
        seeds=(tuple[int, ...] | None, None),
        **keys,
    )


def _fields(plan_of: type[Any]) -> list[str]:
    return [field.name for field in fields(plan_of)]


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


MOST_PARTS = 500  # so many are checked in seconds


def matrix_of(content: CampaignFile, folder: Path) -> Matrix:
    """Form the grid of a campaign, every name in it checked."""
    _check_grid(content)
    parts = []
    for victim in content.victim:
        crossed = victim.defenses is None and len(content.victim) > 1
        asked = "[[victim]]" if crossed else f"[[victim]] {victim.name}"
        parts += [Part(COMPARE, plan.data, plan, asked) for plan in _plans(victim, content)]
        _refuse_many(len(parts))
    sources = {one.name: "" if one.community else _source(one, folder) for one in content.data}
    for name in NAMES:
        for number, block in enumerate(getattr(content, name)):
            found = parts_of(name, block, sources, content.grid.seeds or (0,))
            parts += [replace(part, asked=f"{part.asked} number {number + 1}") for part in found]
            _refuse_many(len(parts))
    return Matrix(tuple(parts), tuple(map(_exclusion, content.exclude)))


def load_data(content: CampaignFile, folder: Path) -> dict[str, Ratings]:
    """Load all ratings of a campaign."""
    return {one.name: ratings_of(_source(one, folder), community=one.community) for one in content.data}


def _check_grid(content: CampaignFile) -> None:
    """What no victim uses, because each says it for itself, is checked all the same."""
    grid = content.grid
    idle = sorted(grid.model_fields_set - {"seeds"})
    if idle and not content.victim:
        raise InputError(
            f"campaign: [grid] {', '.join(idle)} is about [[victim]] blocks, and there is none; leave it "
            "out, or write it into the other blocks"
        )
    if grid.seeds is not None:
        seeds_of("[grid]", grid.seeds)
    chosen = _chosen(Watched(), grid)
    for rounds in chosen["rounds"]:
        _settled_comparison("[grid]", _comparison(chosen, tuple(rounds)))


def _refuse_many(n_parts: int) -> None:
    if n_parts > MOST_PARTS:
        raise InputError(
            f"a campaign must have at most {MOST_PARTS} parts (blocks times data, seeds, scenarios and lists "
            f"of rounds), got {n_parts:,} or more; split it into several files"
        )


def _source(one: DataEntry, folder: Path) -> str:
    given = one.path or one.name
    beside = folder / given
    return str(beside) if beside.exists() else given


def _plans(victim: VictimEntry, content: CampaignFile) -> list[Comparison]:
    entry("victims", victim.name)
    updates, weightings = scenarios_of(victim.name)
    options = {name: as_typed(value) for name, value in victim.set.items()}
    chosen = _chosen(victim, content.grid)
    thing = f"[[victim]] {victim.name}"
    try:
        refuse_said_elsewhere(thing, options, update="update", weighting="weighting")
    except InputError as error:
        raise InputError(f"campaign: {error}") from None
    updates = each_once(_known("update", victim.update, updates))
    weightings = each_once(_known("weighting", victim.weighting, weightings))
    watched = each_once(map(tuple, chosen["rounds"]))
    seeds = seeds_of(f"[[victim]] {victim.name}", chosen["seeds"])  # those of [grid] are checked before
    _refuse_many(math.prod(map(len, (updates, weightings, content.data, seeds, watched))))
    settled = {}  # whatever the ratings and the seed
    for update, weighting, rounds in product(updates, weightings, watched):
        make_victim(victim.name, {**options, "update": update, "weighting": weighting})
        plan = replace(
            _comparison(chosen, rounds),
            victim=main_name("victims", victim.name),
            update=update,
            weighting=weighting,
            victim_options=options,
        )
        settled[update, weighting, rounds] = _settled_comparison(f"[[victim]] {victim.name}", plan)
    return [
        replace(settled[update, weighting, rounds], data=data.name, seed=seed)
        for update, weighting, data, seed, rounds in product(
            updates, weightings, content.data, seeds, watched
        )
    ]


def _comparison(chosen: Mapping[str, Any], rounds: tuple[int, ...]) -> Comparison:
    """What is asked, whoever the victim is."""
    return Comparison(
        defenses=tuple(chosen["defenses"]),
        adversaries=tuple(chosen["adversaries"]),
        attacks=tuple(chosen["attacks"]),
        rounds=rounds,
        users=chosen["users"],
        trained=chosen["trained"],
        runs=chosen["runs"],
    )


def _settled_comparison(block: str, plan: Comparison) -> Comparison:
    try:
        return PRESETS[COMPARE].experiment.settle(plan)
    except InputError as error:
        raise InputError(f"campaign: {block}: {error}") from None


DEFAULTS: dict[str, Any] = {
    "defenses": ("none",), "adversaries": (), "attacks": (), "rounds": ((),), "seeds": (0,),
    "users": 120, "trained": 50, "runs": 3,
}  # fmt: skip


def _chosen(victim: Watched, grid: Watched) -> dict[str, Any]:
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


def _exclusion(one: ExcludeEntry) -> Exclusion:
    given: Mapping[str, Any] = one.model_dump(exclude={"reason"}, exclude_none=True)
    return Exclusion({name: str(value) for name, value in given.items()}, one.reason)
