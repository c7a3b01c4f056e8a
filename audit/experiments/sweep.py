"""Accuracy against noise scale and against rounds watched: the grid behind ``factorleak sweep``.

One recording per scenario and scale, of as many rounds as the longest watch. The server is trained without
the noise, so that all scales show the same factors and only what the adversary reads differs (as in Mai &
Pang 2022, section 6.2). A cell is one attack on one watch of a scenario under one scale of noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from audit.experiments import attack_cells
from audit.experiments.attack_cells import PROCEDURE, Attempt, Source
from audit.experiments.cells import Cell, content_of
from audit.experiments.options import check, each_once, refuse_idle_options, refuse_too_many
from audit.experiments.plan import PUBLISHED, Sweep
from audit.experiments.results import Row
from audit.experiments.runner import Experiment
from audit.experiments.scenarios import scenarios
from audit.factories import make_attack
from audit.registry import entry, recorded_name
from victims.data.ratings import Ratings

CHOSEN = {  # its Table 6, whose "scalar Jacobian approximation" cites the method of df-sane
    ("semi-als", "observed-only"): "root-hybr",
    ("semi-als", "include-unrated"): "root-df-sane",
    ("sgd", "observed-only"): "root-anderson",
    ("sgd", "include-unrated"): "root-hybr",
}


def source_of(sweep: Sweep, update: str, weighting: str, scale: float = 0.0) -> Source:
    """A scenario under noise of one scale, as many rounds as the longest watch."""
    return Source(
        sweep.victim,
        sweep.victim_options,
        update,
        weighting,
        rounds=tuple(range(sweep.first, sweep.first + max(sweep.rounds))),
        users=sweep.users,
        defenses=(f"laplace:scale={scale:g}",) if scale > 0 else (),
        seed=sweep.seed,
        train_on_received=False,
    )


def attack_of(sweep: Sweep, name: str, update: str, weighting: str) -> str:
    """What a name among the attacks stands for in a scenario; of another paper's victim, for hybr."""
    if name != PUBLISHED:
        return name
    chosen = CHOSEN if recorded_name(sweep.victim) == "fedmvmf" else {}
    return chosen.get((update, weighting), "root-hybr")


def as_named(sweep: Sweep, rows: Sequence[Row]) -> list[Row]:
    """Rows with ``published`` as the attack where that, and no name of its own, asked for the solver."""
    return [
        {**row, "attack": PUBLISHED}
        if row["attack"] not in sweep.attacks
        and row["attack"] == attack_of(sweep, PUBLISHED, str(row["update"]), str(row["weighting"]))
        else row
        for row in rows
    ]


def settled(sweep: Sweep) -> Sweep:
    """Choose the scenarios of a sweep and the options of the paper's procedure."""
    check(sweep, "a sweep")
    grid = scenarios(sweep.victim, sweep.updates, sweep.weightings, sweep.victim_options)
    options: dict[str, dict[str, Any]] = {}
    if PUBLISHED in sweep.attacks:
        options[PUBLISHED] = {"solutions": "10"}
    for name, values in sweep.attack_options.items():
        options.setdefault(name, {}).update(values)
    refuse_idle_options(options, sweep.attacks)
    sweep = replace(
        sweep,
        updates=grid.updates,
        weightings=grid.weightings,
        victim_options=grid.options,
        attack_options=options,
        attacks=each_once(sweep.attacks),
        scales=each_once(map(float, sweep.scales)),
        rounds=each_once(map(int, sweep.rounds)),
    )
    refuse_too_many(
        "a sweep",
        updates=sweep.updates,
        weightings=sweep.weightings,
        scales=sweep.scales,
        rounds=sweep.rounds,
        attacks=sweep.attacks,
    )
    for update in sweep.updates:
        for weighting in sweep.weightings:
            for name in sweep.attacks:
                make_attack(attack_of(sweep, name, update, weighting), sweep.attack_options.get(name))
            source_of(sweep, update, weighting).make()
    return sweep


def attempts_of(sweep: Sweep) -> Iterator[Attempt]:
    """Every attack on every watch of every scenario under every scale of noise."""
    for update, weighting, scale in product(sweep.updates, sweep.weightings, sweep.scales):
        source = source_of(sweep, update, weighting, scale)
        for rounds, named in product(sweep.rounds, sweep.attacks):
            attack = attack_of(sweep, named, update, weighting)
            options = dict(sweep.attack_options.get(named, {}))
            if entry("attacks", attack).per_client:
                options["jobs"] = "1"  # the cells are what runs in parallel
            columns = {
                **source.columns,
                "data": sweep.data,
                "defense": f"laplace:scale={scale:g}",
                "adversary": "server",
                "attack": attack,
                "rounds": rounds,
                "seed": sweep.seed,
            }
            yield Attempt(
                attack,
                "server",
                options,
                sweep.sample,
                sweep.seed,
                label=f"{source.scenario}-{scale:g}-{rounds}: {named}",
                columns=columns,
                source=source,
                watched=source.rounds[:rounds],
                bounded=scale > 0,
                scores_alone=True,
            )


def cells_of(sweep: Sweep, ratings: Ratings, directory: Path) -> list[Cell[Attempt]]:
    """List the cells of a sweep; those of one scenario and scale share its recording."""
    return attack_cells.cells_of(attempts_of(sweep), content_of(ratings), directory)


EXPERIMENT = Experiment(settled, cells_of, PROCEDURE)
run = EXPERIMENT.run
