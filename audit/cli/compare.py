"""``factorleak compare``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.build import AgainstOption, JunitOption, as_records, build_of
from audit.cli.campaign import run_campaign
from audit.cli.option_values import names, parse_rounds
from audit.cli.options import (
    AttacksOption,
    ComponentsOption,
    DataOption,
    DistributedOption,
    FailOnOption,
    JobsOption,
    JsonOption,
    PreferredWeightingOption,
    QuietOption,
    SeedOption,
    UpdateOption,
    UsersOption,
    VictimOption,
    VictimOptions,
    completing,
    examples,
    refuse_idle,
    workers,
)
from audit.cli.output import Output
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

USERS, TRAINED, RUNS = 120, 50, 3
EXAMPLES = examples(
    "factorleak compare --defense none --defense laplace:scale=2 --defense privmvmf",
    "factorleak compare --defense none --defense gaussian:sigma=1 --adversary server --runs 1",
    "factorleak compare campaign.toml --dry-run --estimate",
    "factorleak compare campaign.toml --distributed tcp://10.0.0.5:8786",
)


def compare(
    defenses: Annotated[
        list[str] | None,
        typer.Option(
            "--defense",
            "--defenses",
            help="none, laplace:b=2, paillier, privmvmf, or several together as a+b. Repeatable.",
            autocompletion=completing("defenses"),
        ),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Argument(help="A campaign file (.toml), or more defenses.", show_default=False),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Directory for results and the figure; cells in it are reused.")
    ] = (Path("COMPARE")),
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmvmf",
    update: UpdateOption = None,
    weighting: PreferredWeightingOption = None,
    attack: AttacksOption = None,
    adversary: Annotated[
        list[str] | None,
        typer.Option(
            "--adversary",
            "--adversaries",
            help="See `factorleak list adversaries`. Repeatable; five by default.",
            autocompletion=completing("adversaries"),
        ),
    ] = None,
    rounds: Annotated[
        list[str] | None,
        typer.Option(
            "--rounds",
            help="Rounds that the adversaries watch, counted from 0: 4,5 or 0-9. Repeatable. Default: as "
            "many from the first as the adapted attacks use.",
        ),
    ] = None,
    users: UsersOption = USERS,
    trained: Annotated[int, typer.Option(help="Rounds before the ranking is measured.")] = TRAINED,
    runs: Annotated[int, typer.Option(help="Seeds of the ranking.")] = RUNS,
    fail_on: FailOnOption = None,
    against: AgainstOption = None,
    junit: JunitOption = None,
    jobs: JobsOption = -1,
    distributed: DistributedOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    item_components: ComponentsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check a campaign file and count its cells; nothing is run.")
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Say about how long it will take, from one cell of each kind that was never timed; stop "
            "there, but for a campaign file, which goes on unless --dry-run is given.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Defenses side by side: leakage to each adversary, recommendation quality, cost."""
    if campaign := _campaign_of(more or []):
        refuse_idle(
            "is said by the campaign file, where it can be written",
            defense=defenses, data=data != "synthetic", victim=victim != "fedmvmf", update=update,
            weighting=weighting, attack=attack, adversary=adversary, rounds=rounds, users=users != USERS,
            trained=trained != TRAINED, runs=runs != RUNS, seed=seed, set=set_,
            item_components=item_components,
        )  # fmt: skip
        run_campaign(
            campaign, out, workers(jobs, distributed), fail_on, against, junit,
            Output(quiet, as_json, estimate), estimate=estimate, dry_run=dry_run,
        )  # fmt: skip
        return
    if dry_run:
        raise InputError("--dry-run is about the cells of a campaign file; name one")
    who = workers(jobs, distributed)
    from audit.cli.gate import OF_ATTACKS, OF_COST, OF_QUALITY, Vocabulary
    from audit.experiments.compare import EXPERIMENT, Comparison, settled, short_of_rounds
    from audit.option_texts import parse_options
    from audit.requests.hints import lists_named_to
    from reports.compare import comparison_table, cost_of_defenses_table
    from reports.compare_figure import comparison_figure
    from reports.learning import worse_than_mean

    output = Output(quiet, as_json, estimate)
    refuse_unwritable(out)
    plan = Comparison(
        defenses=tuple(dict.fromkeys([*(defenses or []), *(more or [])])),
        victim=victim,
        data=data,
        update=update or "",
        weighting=weighting or "",
        adversaries=names(adversary),
        attacks=names(attack),
        rounds=tuple(parse_rounds(rounds)) if rounds else (),
        users=USERS if users is None else users,
        trained=trained,
        runs=runs,
        seed=seed,
        victim_options=parse_options(set_ or []),
    )
    plan = settled(plan)
    notes = short_of_rounds(plan)
    columns = {"defense": plan.defenses, "adversary": plan.adversaries}
    vocabulary = Vocabulary(values=(*OF_ATTACKS, *OF_QUALITY, *OF_COST), columns=columns)
    build = build_of(fail_on, vocabulary, against, junit)
    start = time.perf_counter()
    ratings = output.load(data, item_components)
    rows = output.grid("compare", EXPERIMENT, plan, ratings, out, who)
    output.show(ratings.describe())
    title = (
        f"Defenses of {victim}, {plan.update}/{plan.weighting}, rounds {plan.rounds[0]} to {plan.rounds[-1]}"
    )
    output.show(comparison_table(rows, title, lists_named_to(plan, ratings)))
    output.show(cost_of_defenses_table(rows, f"What they leave and cost, {trained} rounds of training"))
    notes = [*notes, *worse_than_mean(rows)]
    for note in notes:
        output.show(f"note: {note}")
    figures = comparison_figure(rows, out)
    for path in figures:
        output.show(f"figure {path}")
    changed = build.changes(rows)
    build.show(output, changed)
    told = as_records(changed)
    output.results(rows, out, time.perf_counter() - start, figures=figures, notes=notes, changes=told)
    build.judge(rows, changed)


def _campaign_of(words: list[str]) -> Path | None:
    """The campaign file among the arguments; None where they are defenses."""
    files = [word for word in words if word.endswith(".toml")]
    if files and len(words) > 1:
        raise InputError(f"a campaign file must stand alone, got {' '.join(words)}; it names its defenses")
    return Path(files[0]) if files else None
