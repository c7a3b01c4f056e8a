"""``factorleak audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.accounts import accounts_as_json, show_accounts
from audit.cli.options import (
    WATCHED,
    AdversaryOption,
    AttacksOption,
    CommunityOption,
    ComponentsOption,
    DataOption,
    DefenseOption,
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
    names,
    options_by_attack,
    parse_rounds,
    texts,
)
from audit.cli.output import Output, judge

EXAMPLES = examples(
    "factorleak audit",
    "factorleak audit --data ml-100k --update sgd --attack spectral --attack grid",
    "factorleak audit --defense laplace:scale=2 --rounds 0-9 --fail-on leak",
)


def audit(
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "RESULTS"
    ),
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
    keep_transcripts: Annotated[
        bool, typer.Option(help="Leave the recordings in RESULTS/transcripts.")
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run victims, attack them, score, print the table, write RESULTS/."""
    from audit.cli.gate import OF_ATTACKS, Vocabulary, parse
    from audit.registry import parse_options
    from audit.requests.auditing import AuditRequest
    from audit.requests.auditing import audit as answer
    from reports.audit import audit_table, in_words

    output = Output(quiet, as_json)
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
    bars = parse(fail_on or [], Vocabulary(values=OF_ATTACKS, columns=columns))
    with output.progress("audit") as update_bar:
        found = answer(
            request,
            lambda: output.load(data, item_components, community, seed),
            update_bar,
        )
    output.show(found.ratings.describe())
    watched = ",".join(rounds)
    output.show(audit_table(found.rows, f"What the {adversary} reads from {victim}, rounds {watched}"))
    for sentence in in_words(found.rows):
        output.show(sentence)
    output.show(
        "value [95 % interval over clients]; guess: the best guess without the transcript; answered: "
        "clients with an answer, the others count with that guess."
    )
    show_accounts(output, found.accounts)
    output.results(found.rows, out, found.seconds, accounts=accounts_as_json(found.accounts))
    judge(bars, found.rows)
