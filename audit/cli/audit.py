"""``factorleak audit``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from audit.cli.accounts import accounts_as_json, show_accounts
from audit.cli.build import AgainstOption, JunitOption, as_records, build_of
from audit.cli.option_values import names, options_by_attack, parse_rounds, texts
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
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run victims, attack them, score, print the table, write RESULTS/."""
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
            Output(quiet, as_json),
        )  # fmt: skip
        return
    from audit.cli.gate import OF_ATTACKS, Vocabulary
    from audit.option_texts import parse_options
    from audit.requests.auditing import AuditRequest
    from audit.requests.auditing import audit as answer
    from reports.audit import audit_table, in_words

    output = Output(quiet, as_json)
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
    ).settled()
    columns = {
        "update": request.updates,
        "weighting": request.weightings,
        "scenario": request.scenarios,
        "attack": request.attacks,
        "adversary": (adversary,),
    }
    build = build_of(fail_on, Vocabulary(values=OF_ATTACKS, columns=columns), against, junit)
    with output.progress("audit") as update_bar:
        found = answer(
            request,
            lambda: output.load(data, item_components, community, seed),
            update_bar,
            jobs=who,
        )
    output.show(found.ratings.describe())
    watched = ",".join(rounds)
    output.show(audit_table(found.rows, f"What the {adversary} reads from {victim}, rounds {watched}"))
    for sentence in in_words(found.rows, listed=found.lists_open):
        output.show(sentence)
    if found.hint:
        output.show(found.hint)
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
    output: Output,
) -> None:
    from audit.cli.gate import OF_ATTACKS, OF_CLAIMED, Vocabulary
    from audit.requests.recording_audit import RecordingRequest, audit_recording, settled
    from reports.audit import audit_table, in_words
    from victims.transcript.client_names import called_by_name

    request, opened = settled(
        RecordingRequest(out, transcript, truth, adversary, attacks, options, sample, seed)
    )
    columns = {"attack": request.attacks, "adversary": (request.adversary,)}
    named = re.compile(rf"adversary={re.escape(adversary)}(?=\s*(,|$))")  # as --adversary names it
    if adversary:
        fail_on = [named.sub(lambda _: f"adversary={request.adversary}", text) for text in fail_on]
    vocabulary = Vocabulary(values=(*OF_ATTACKS, *OF_CLAIMED), columns=columns)
    build = build_of(fail_on, vocabulary, against, junit)
    with output.progress("audit") as update_bar:
        found = audit_recording(request, opened, update_bar)
    output.show(repr(opened))
    if called := called_by_name(opened.path, request.adversary):
        output.show(f"{called}.")
    output.show(audit_table(found.rows, f"What the {request.adversary} reads from {transcript.name}"))
    for sentence in in_words(found.rows, listed=found.lists_open):
        output.show(sentence)
    if found.hint:
        output.show(found.hint)
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
