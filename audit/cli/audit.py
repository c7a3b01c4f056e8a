"""``factorleak audit``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.accounts import accounts_as_json, show_accounts
from audit.cli.build import AgainstOption, JunitOption, as_records, build_of
from audit.cli.option_values import names, options_by_attack, parse_rounds, parse_seconds, texts
from audit.cli.options import (
    ALL_CORES,
    WATCHED,
    AdversaryOption,
    AttacksOption,
    CommunityOption,
    ComponentsOption,
    DataOption,
    DefenseOption,
    DistributedOption,
    EstimateOption,
    FailOnOption,
    JsonOption,
    OneAttackOption,
    QuietOption,
    RoundsOption,
    SampleOption,
    SeedOption,
    UpdatesOption,
    UsersOption,
    VictimOption,
    VictimOptions,
    WeightingsOption,
    examples,
    refuse_idle,
    workers,
)
from audit.cli.output import Output
from audit.shell.progress import ProgressBar

if TYPE_CHECKING:
    from audit.requests.auditing import AuditRequest
    from victims.data.ratings import Ratings

ONE_PROCESS = 1
IDENTIFY = "factorleak attack --identify takes the rule from the uploads"
COLUMNS = (
    "value [95 % interval over clients]; guess: the best guess without the transcript; answered: "
    "clients with an answer, the others count with that guess."
)
LISTED = (
    "Uploads name items: which ones a client rated lies in the open, whatever is in their rows, unless it "
    "sends rows of others, too."
)
REMEDIES = {"upload": "declare what is uploaded, or nothing: then the rows tell"}
EXAMPLES = examples(
    "factorleak audit",
    "factorleak audit --data ml-100k --update sgd --attack spectral --attack grid",
    "factorleak audit --defense laplace:scale=2 --rounds 4,5 --fail-on leak",
    "factorleak audit --transcript RECORDING --fail-on leak",
)


def audit(
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "RESULTS"
    ),
    transcript: Annotated[
        Path | None,
        typer.Option(help="Attack this recording, of any origin, with everything; nothing is run."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="With --transcript. Default: the file beside it, if there is one.")
    ] = None,
    data: DataOption = "synthetic",
    victim: VictimOption = "fedmvmf",
    update: UpdatesOption = None,
    weighting: WeightingsOption = None,
    attack: AttacksOption = None,
    rounds: RoundsOption = WATCHED,
    adversary: AdversaryOption = "server",
    sample: SampleOption = 20,
    users: UsersOption = None,
    defense: DefenseOption = None,
    seed: SeedOption = 0,
    set_: VictimOptions = None,
    option: OneAttackOption = None,
    community: CommunityOption = None,
    item_components: ComponentsOption = None,
    fail_on: FailOnOption = None,
    against: AgainstOption = None,
    junit: JunitOption = None,
    distributed: DistributedOption = None,
    keep_transcripts: Annotated[
        bool, typer.Option(help="Leave the recordings in RESULTS/transcripts.")
    ] = False,
    exhaustive: Annotated[
        bool,
        typer.Option("--exhaustive", help="Also run attacks whose every question is answered already."),
    ] = False,
    within: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop after so long, as 60s or 5m; the rest is NOT TESTED."),
    ] = None,
    estimate: EstimateOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run victims, attack them, score, print the table, write RESULTS/."""
    limit = None if within is None else parse_seconds("--within", within)
    everything = True if exhaustive or any("attack=" in text for text in fail_on or ()) else None
    if transcript is not None:
        refuse_idle(
            "says what to run, and with --transcript nothing is run",
            data=data != "synthetic", victim=victim != "fedmvmf", update=update, weighting=weighting,
            rounds=rounds != WATCHED, users=users, defense=defense, set=set_, community=community,
            item_components=item_components, distributed=distributed, keep_transcripts=keep_transcripts,
        )  # fmt: skip
        _audit_recording(
            out, transcript, truth, "" if adversary == "server" else adversary, names(attack),
            dict(options_by_attack(option)), sample, seed, fail_on or [], against, junit,
            everything, limit, Output(quiet, as_json, estimate),
        )  # fmt: skip
        return
    from audit.cli.gate import OF_ATTACKS, Vocabulary
    from audit.option_texts import parse_options
    from audit.requests.auditing import AuditRequest
    from audit.requests.auditing import audit as answer

    output = Output(quiet, as_json, estimate)
    who = ONE_PROCESS if distributed is None else workers(ALL_CORES, distributed)
    request = AuditRequest(
        out=out,
        data=data,
        victim=victim,
        updates=texts(update),
        weightings=texts(weighting),
        attacks=names(attack),
        rounds=tuple(parse_rounds(rounds)),
        adversary=adversary,
        sample=sample,
        users=users,
        defenses=tuple(defense or ()),
        seed=seed,
        victim_options=parse_options(set_ or []),
        attack_options=dict(options_by_attack(option)),
        keep_transcripts=keep_transcripts,
        exhaustive=everything,
        within=limit,
    ).settled()
    columns = {
        "update": request.updates,
        "weighting": request.weightings,
        "scenario": request.scenarios,
        "attack": request.attacks,
        "adversary": (adversary,),
    }
    build = build_of(fail_on, Vocabulary(values=OF_ATTACKS, columns=columns), against, junit)
    if estimate:
        _show_estimate(output, request, output.load(data, item_components, community, seed))
        return
    title = f"What the {adversary} reads from {victim}, rounds {','.join(rounds)}"
    with _as_found(output, title) as (update_bar, tell):
        found = answer(
            request,
            lambda: output.load(data, item_components, community, seed),
            update_bar,
            jobs=who,
            found=tell,
        )
    output.show(found.ratings.describe())
    _show_table(output, found.rows, title)
    _show_sentences(output, found.rows, found.lists_open, found.hint)
    output.show(COLUMNS)
    show_accounts(output, found.accounts)
    changed = build.changes(found.rows)
    build.show(output, changed)
    accounts, told = accounts_as_json(found.accounts), as_records(changed)
    output.results(found.rows, out, found.seconds, accounts=accounts, changes=told)
    build.judge(found.rows, changed)


def _audit_recording(
    out: Path,
    transcript: Path,
    truth: Path | None,
    adversary: str,
    attacks: tuple[str, ...],
    options: dict[str, dict[str, Any]],
    sample: int,
    seed: int,
    fail_on: list[str],
    against: Path | None,
    junit: Path | None,
    exhaustive: bool | None,
    within: float | None,
    output: Output,
) -> None:
    from audit.cli.gate import OF_ATTACKS, OF_CLAIMED, Vocabulary
    from audit.experiments.ladder import expected
    from audit.requests.recording_audit import RecordingRequest, audit_recording, settled
    from victims.transcript.client_names import called_by_name

    request, opened = settled(
        RecordingRequest(
            out, transcript, truth, adversary, attacks, options, sample, seed, exhaustive, within
        )
    )
    columns = {"attack": request.attacks, "adversary": (request.adversary,)}
    named = re.compile(rf"adversary={re.escape(adversary)}(?=\s*(,|$))")  # as --adversary names it
    if adversary:
        fail_on = [named.sub(lambda _: f"adversary={request.adversary}", text) for text in fail_on]
    vocabulary = Vocabulary(values=(*OF_ATTACKS, *OF_CLAIMED), columns=columns)
    build = build_of(fail_on, vocabulary, against, junit)
    if output.estimate:
        sizes = [(opened.manifest.n_users, opened.messages.n_rows)]
        output.show(expected(request.attacks, sizes, sample))
        return
    title = f"What the {request.adversary} reads from {transcript.name}"
    with _as_found(output, title) as (update_bar, tell):
        found = audit_recording(request, opened, update_bar, tell)
    output.show(repr(opened))
    if called := called_by_name(opened.path, request.adversary):
        output.show(f"{called}.")
    _show_table(output, found.rows, title)
    _show_sentences(output, found.rows, found.lists_open, found.hint)
    for wrong in found.contradictions:
        output.show(f"{wrong}; {REMEDIES.get(wrong.key, IDENTIFY)}.")
    if request.truth is not None:
        output.show(COLUMNS)
    else:
        if found.lists_open:
            output.show(LISTED)
        output.show(
            "There is no truth to score against: clients_answered counts those for whom an attack, which "
            "abstains where nothing fits, has an answer; guess: the same on shuffled uploads."
        )
    wrong_keys = [one._asdict() for one in found.contradictions]
    changed = build.changes(found.rows)
    build.show(output, changed)
    told = as_records(changed)
    output.results(found.rows, out, found.seconds, contradictions=wrong_keys, changes=told)
    build.judge(found.rows, changed)


def _show_estimate(output: Output, request: AuditRequest, ratings: Ratings) -> None:
    from audit.experiments.ladder import expected

    clients = min(request.users or ratings.n_users, ratings.n_users)
    rated = ratings.n_ratings * clients // ratings.n_users
    rows = {"observed-only": rated, "include-unrated": clients * ratings.n_items}
    sizes = [
        (clients, len(request.rounds) * rows.get(weighting, rated))
        for _ in request.updates
        for weighting in request.weightings
    ]
    output.show(expected(request.attacks, sizes, request.sample))


@contextmanager
def _as_found(
    output: Output, title: str
) -> Iterator[tuple[ProgressBar, Callable[[list[dict[str, Any]]], None]]]:
    """Progress, and what to call with the rows of each attack: a leak is said at once, and whatever ends the
    audit before its end, what was finished is shown.
    """
    from audit.shell.interrupts import last_words
    from reports.audit import finding

    rows: list[dict[str, Any]] = []

    def show() -> None:
        if rows:
            output.show("Stopped; what was finished:")
            _show_table(output, list(rows), title)

    with output.progress("audit", even=False) as bar, last_words(show):

        def tell(of_attack: list[dict[str, Any]]) -> None:
            rows.extend(of_attack)
            if of_attack and (line := finding(of_attack)):
                bar.say(line)

        try:
            yield bar, tell
        except Exception:
            show()
            raise


def _show_table(output: Output, rows: list[dict[str, Any]], title: str) -> None:
    from reports.audit import audit_table, idle_lines

    output.show(audit_table(rows, title))
    for line in idle_lines(rows):
        output.show(line)


def _show_sentences(output: Output, rows: list[dict[str, Any]], lists_open: bool, hint: str) -> None:
    from reports.audit import in_words

    for sentence in in_words(rows, listed=lists_open):
        output.show(sentence)
    if hint:
        output.show(hint)
