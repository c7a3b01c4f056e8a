"""What a campaign's file asks for, as plans: every name and value in it checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from audit.campaigns.blocks import NAMES, parts_of, seeds_of
from audit.campaigns.campaign_file import CampaignFile, ExcludeEntry, VictimEntry, Watched
from audit.campaigns.matrix import Exclusion, Matrix
from audit.campaigns.parts import COMPARE, PRESETS, Part
from audit.campaigns.strict_tables import DataEntry, as_typed
from audit.experiments.plan import Comparison
from audit.experiments.plan_rules import each_once, refuse_said_elsewhere
from audit.factories import make_victim, scenarios_of
from audit.rating_data import ratings_of
from audit.registry import entry, main_name
from victims.common.errors import InputError
from victims.data.ratings import Ratings

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
        _settled("[grid]", _comparison(chosen, tuple(rounds)))


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
        settled[update, weighting, rounds] = _settled(f"[[victim]] {victim.name}", plan)
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


def _settled(block: str, plan: Comparison) -> Comparison:
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
