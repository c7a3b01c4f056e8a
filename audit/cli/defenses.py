"""Commands about what defenses buy and cost: ``compare``, ``quality`` and ``cost``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import (
    ComponentsOption,
    DataOption,
    FailOnOption,
    JobsOption,
    SeedOption,
    Update,
    UpdateOption,
    UsersOption,
    VictimOptions,
    Weighting,
    judge,
    load,
    parse_numbers,
    parse_rounds,
    show,
)
from audit.shell.progress import progress
from victims.common.files import refuse_unwritable


def _scenario(victim: str, update: Update | None, weighting: Weighting | None) -> tuple[str, str]:
    """As given, else the victim's first update, and include-unrated where it has that."""
    from audit.registry import scenarios_of

    updates, weightings = scenarios_of(victim)
    preferred = Weighting.INCLUDE_UNRATED.value
    usual = preferred if preferred in weightings else weightings[0]
    return update.value if update else updates[0], weighting.value if weighting else usual


VictimOption = Annotated[str, typer.Option(help="See `factorleak list victims`.")]


def compare(
    defenses: Annotated[
        list[str] | None,
        typer.Option(help="none, laplace:b=2, paillier, privmvmf, or several as a+b. More may follow."),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(help="More defenses.", show_default=False)] = None,
    out: Annotated[
        Path, typer.Option(help="Directory for results and the figure; cells in it are reused.")
    ] = (Path("COMPARE")),
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmvmf",
    update: UpdateOption = None,
    weighting: Annotated[
        Weighting | None, typer.Option(help="Default: include-unrated where the victim has it.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="Attack to run on all. Default: those that adapt to each. Repeatable."),
    ] = None,
    adversary: Annotated[
        list[str] | None, typer.Option(help="See `factorleak list adversaries`. Repeatable; five by default.")
    ] = None,
    rounds: Annotated[
        str | None,
        typer.Option(
            help="Rounds that the adversaries watch, counted from 0: 4,5 or 0-9. Default: as many from the "
            "first as the adapted attacks use."
        ),
    ] = None,
    users: UsersOption = 120,
    trained: Annotated[int, typer.Option(min=1, help="Rounds before the ranking is measured.")] = 50,
    runs: Annotated[int, typer.Option(min=1, help="Seeds of the ranking.")] = 3,
    fail_on: FailOnOption = None,
    jobs: JobsOption = -1,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    item_components: ComponentsOption = None,
) -> None:
    """Defenses side by side: leakage to each adversary, recommendation quality, cost."""
    from audit.cli.gate import OF_ATTACKS, OF_COST, OF_QUALITY, Vocabulary, parse
    from audit.experiments.compare import ADVERSARIES, Comparison, run, settled, short_of_rounds
    from audit.registry import parse_options
    from reports.compare import comparison_figure, comparison_table, cost_of_defenses_table

    refuse_unwritable(out)
    update_, weighting_ = _scenario(victim, update, weighting)
    plan = Comparison(
        defenses=tuple(dict.fromkeys([*(defenses or []), *(more or [])])),
        victim=victim,
        data=data,
        update=update_,
        weighting=weighting_,
        adversaries=tuple(dict.fromkeys(adversary)) if adversary else ADVERSARIES,
        attacks=tuple(dict.fromkeys(attack or ())),
        rounds=tuple(parse_rounds(rounds)) if rounds else (),
        users=users or 120,
        trained=trained,
        runs=runs,
        seed=seed,
        victim_options=parse_options(set_ or []),
    )
    columns = {"defense": plan.defenses, "adversary": plan.adversaries}
    bars = parse(fail_on or [], Vocabulary(values=(*OF_ATTACKS, *OF_QUALITY, *OF_COST), columns=columns))
    notes = short_of_rounds(plan)
    watched = settled(plan).rounds
    start = time.perf_counter()
    ratings = load(data, item_components)
    with progress("compare") as update_bar:
        rows = run(plan, ratings, out, jobs=jobs, report=update_bar)
    show(ratings.describe())
    title = f"Defenses of {victim}, {plan.update}/{plan.weighting}, rounds {watched[0]} to {watched[-1]}"
    show(comparison_table(rows, title))
    show(cost_of_defenses_table(rows, f"What they leave and cost, {trained} rounds of training"))
    for note in notes:
        show(f"note: {note}")
    for path in comparison_figure(rows, out):
        show(f"figure {path}")
    show(f"{len(rows)} rows in {out}/results.json, .csv, .parquet; {time.perf_counter() - start:.1f} s")
    judge(bars, rows)


def quality(
    data: DataOption = "synthetic",
    defense: Annotated[
        str, typer.Option(help="As for compare; encryption is replaced by its ideal stand-in.")
    ] = "privmvmf",
    victim: VictimOption = "fedmvmf",
    update: UpdateOption = None,
    weighting: Annotated[
        Weighting | None, typer.Option(help="Default: include-unrated where the victim has it.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 200,
    runs: Annotated[int, typer.Option(min=1, help="Seeds of start, split and sample.")] = 5,
    scenario: Annotated[
        list[str] | None, typer.Option(help="existing, 'new user' or 'new item'. Repeatable; all by default.")
    ] = None,
    jobs: JobsOption = -1,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    item_components: ComponentsOption = None,
) -> None:
    """Ranking quality with and without encryption, for known and new users and items."""
    from audit.experiments.ranking_quality import Plan, run
    from audit.registry import parse_options
    from reports.compare import quality_table

    update_, weighting_ = _scenario(victim, update, weighting)
    plan = Plan(
        victim=victim,
        update=update_,
        weighting=weighting_,
        defense=defense,
        rounds=rounds,
        runs=runs,
        scenarios=tuple(scenario) if scenario else ("existing", "new user", "new item"),
        seed=seed,
        victim_options=parse_options(set_ or []),
    )
    begin = time.perf_counter()
    ratings = load(data, item_components)
    with progress("quality") as update_bar:
        rows = run(plan, ratings, jobs=jobs, report=update_bar)
    show(ratings.describe())
    show(quality_table(rows, f"Ranking at 10 under {defense}, {rounds} rounds, mean of {runs} runs (sd)"))
    show(f"{time.perf_counter() - begin:.1f} s")


def cost(
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmf",
    update: UpdateOption = None,
    weighting: Annotated[
        Weighting | None, typer.Option(help="Default: include-unrated where the victim has it.")
    ] = None,
    items: Annotated[
        str | None, typer.Option(help="Numbers of most rated items, as 40,2560. Default: all items.")
    ] = None,
    key_bits: Annotated[str, typer.Option(help="Lengths of Paillier's keys: 1024,2048.")] = "1024,2048",
    phe: Annotated[bool, typer.Option(help="Also measure phe as it comes, one number a ciphertext.")] = True,
    defense: Annotated[
        str, typer.Option(help="What goes before encryption, as unrated-sampling:rho=1, or none.")
    ] = "none",
    sample: Annotated[int, typer.Option(min=1, help="Rows that are encrypted, added and decrypted.")] = 256,
    gigabits: Annotated[float, typer.Option(min=1e-6, help="Gigabits a second of the network.")] = 1.0,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
) -> None:
    """Seconds in each phase of an encrypted round, bytes and memory, beside the papers' numbers."""
    from audit.experiments.cost import Sheet, run
    from audit.registry import parse_options
    from reports.cost import cost_table, fedmf_paper, privmvmf_lines

    update_, weighting_ = _scenario(victim, update, weighting)
    options = parse_options(set_ or [])
    sheet = Sheet(
        victim=victim,
        options={**options, "update": update_, "weighting": weighting_},
        items=parse_numbers("--items", items) if items else (),
        key_bits=parse_numbers("--key-bits", key_bits),
        phe=phe,
        defense=defense,
        sample=sample,
        bits_per_second=gigabits * 1e9,
        seed=seed,
    )
    begin = time.perf_counter()
    ratings = load(data, None)
    with progress("cost") as update_bar:
        rows = run(sheet, ratings, report=update_bar)
    upload = str(options.get("upload", "part-text"))
    for row in rows:
        published = victim == "fedmf" and row["system"] in ("phe, 1024 bit", "packed, 1024 bit")
        row["paper"] = fedmf_paper(row["items"], upload) if published else None
    show(ratings.describe())
    title = f"One round of {victim}{f' ({upload})' if victim == 'fedmf' else ''}: seconds, slowest client"
    show(cost_table(rows, title))
    for note in dict.fromkeys(f"{row['system']}: {row['note']}" for row in rows):
        show(f"  {note}")
    if victim == "fedmvmf":
        for line in privmvmf_lines():
            show(line)
    show(f"{time.perf_counter() - begin:.1f} s")
