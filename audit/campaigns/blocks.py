"""Blocks of a campaign's file that stand for a command: ``[[sweep]]`` is what ``factorleak sweep`` measures.

The keys of a block are the fields of the command's plan, so that a file and a command line make the same
plan, with the same defaults; ``data`` and ``seeds`` are lists, and each of their pairs is a plan of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import (
    BeforeValidator,
    ValidationError,
    create_model,
)

from audit.campaigns.parts import PRESETS, Part
from audit.campaigns.strict_tables import Strict, Word, as_typed, told
from audit.experiments.plan import Audit, Claims, Sweep
from audit.experiments.plan_rules import SEED, each_once
from audit.experiments.private_mf import NOWHERE
from audit.papers.cost import Sheet
from audit.papers.hu_fang import Plan as Prediction
from audit.papers.pdmfrec import PartsPlan
from audit.papers.ranking_quality import Plan as Quality
from audit.papers.yang import TrustedPlan
from victims.common.errors import InputError
from victims.common.validation import each, require
from victims.evaluation.ranks import Cut

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
NOT_SAID = ("data", "seed", "source", "chosen")  # fields that no key of that name says
Options = dict[Word, str | int | float | bool]


def cut_of(given: object) -> Cut:
    """Read where a list ends: ``cut = { k = 10, relevant = 4.0 }``."""
    keys = [one.name for one in fields(Cut)]
    if not isinstance(given, dict) or not set(given) <= set(keys):
        raise InputError(f"must be a table of {' and '.join(keys)}, got {given!r:.60}; {{ k = 10 }}, say")
    return Cut(**given)


WRITTEN: dict[str, Any] = {
    "victim_options": Options,
    "options": Options,
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
    """A plan, or sheets, on some ratings and from a seed."""
    if isinstance(plan, tuple):
        return tuple(_about(sheet, data, source, seed) for sheet in plan)
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
    keys = {_key(preset, field): field for field in _fields(PLANS[preset])}
    given = {keys.get(key, key): getattr(found, key) for key in found.model_fields_set}
    for field, value in given.items():
        if _key(preset, field) == "set":
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
    """Settled by the command's experiment, whose plan is several sheets where costs are measured."""
    whole = (plan,) if isinstance(plan, Sheet) else plan
    try:
        return PRESETS[preset].experiment.settle(whole)
    except InputError as error:
        raise InputError(f"campaign: [[{name}]]: {error}") from None


@cache
def _model_of(preset: str) -> type[Strict]:
    """The keys of a preset's block, with the types of its plan's fields."""
    hints = {**get_type_hints(PLANS[preset]), **WRITTEN}
    keys: dict[str, Any] = {
        _key(preset, name): (hints[name], None) for name in _fields(PLANS[preset]) if name not in NOT_SAID
    }
    return create_model(
        preset,
        __base__=Strict,
        data=(tuple[Word, ...] | None, None),
        seeds=(tuple[int, ...] | None, None),
        **keys,
    )


def _key(preset: str, field: str) -> str:
    return "set" if (preset, field) == ("cost", "options") else KEYS.get(field, field)


def _fields(plan_of: type[Any]) -> list[str]:
    return [field.name for field in fields(plan_of)]
