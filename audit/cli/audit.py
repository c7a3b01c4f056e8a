"""``factorleak audit``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.build import AgainstOption, AllowOpenOption, Build, JunitOption, as_records, build_of
from audit.cli.options import (
    ALL_CORES,
    CommunityOption,
    ComponentsOption,
    DistributedOption,
    FailOnOption,
    NamesOption,
    changed,
    examples,
    from_plan,
    refuse_idle,
    workers,
)
from audit.cli.output import Output, accounts_as_json, show_accounts
from audit.experiments.plan import Audit, GivenRecording
from audit.option_texts import parse_seconds
from audit.shell.progress import ProgressBar
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.experiments.attack_cells import Attempt
    from audit.experiments.auditing import Audited, AuditedRecording
    from audit.experiments.cells import Cell
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


@from_plan(Audit)
def audit(
    *,
    output: Output,
    out: Annotated[Path, typer.Option(help="Directory for results; cells in it are reused.")] = Path(
        "RESULTS"
    ),
    plan: Audit,
    transcript: Annotated[
        Path | None,
        typer.Option(help="Attack this recording, of any origin, with everything; nothing is run."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="With --transcript. Default: the file beside it, if there is one.")
    ] = None,
    community: CommunityOption = None,
    item_components: ComponentsOption = None,
    by_client: Annotated[
        Path | None,
        typer.Option(
            help="Also write here (CSV) of whom how much is recovered, by which attack, and what it claims."
        ),
    ] = None,
    names: NamesOption = False,
    fail_on: FailOnOption = None,
    against: AgainstOption = None,
    junit: JunitOption = None,
    allow_open: AllowOpenOption = False,
    distributed: DistributedOption = None,
    keep_transcripts: Annotated[
        bool, typer.Option(help="Leave the recordings in RESULTS/transcripts.")
    ] = False,
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="With --transcript, where something leaks: try a few defenses on the uploads, and say which "
            "bring it to the guess, the cheapest first; minutes.",
        ),
    ] = False,
    within: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop after so long, as 60s or 5m; the rest is NOT TESTED."),
    ] = None,
) -> None:
    """Run victims, attack them, score, print the table, write RESULTS/."""
    if by_client is not None:
        refuse_unwritable(by_client.parent)
    if names and (by_client is None or transcript is None):
        raise InputError("--names is about lines of --by-client, and lies beside --transcript; give both")
    limit = None if within is None else parse_seconds("--within", within)
    if any("attack=" in text for text in fail_on or ()):
        plan = replace(plan, exhaustive=True)
    if transcript is not None:
        shared = ("attacks", "adversary", "sample", "seed", "attack_options", "exhaustive")
        idle = {"community": community, "item-components": item_components, "distributed": distributed}
        refuse_idle(
            "says what to run, and with --transcript nothing is run",
            **changed(plan, *shared), **idle, keep_transcripts=keep_transcripts,
        )  # fmt: skip
        given = {name: getattr(plan, name) for name in shared}
        given["adversary"] = "" if plan.adversary == Audit.adversary else plan.adversary
        recording = GivenRecording(transcript, truth, **given)
        _audit_recording(
            recording, output, out, fail_on or [], against, junit, limit, by_client, names, allow_open, advise
        )
        return
    if advise:
        about = "".join(f" --{name} {shlex.quote(getattr(plan, name))}" for name in ("data", "victim"))
        raise InputError(
            f"--advise tries defenses on a recording: factorleak record RUN{about}, with the options given "
            "here, then factorleak audit --transcript RUN --advise"
        )
    from audit.accounts import accounts_of
    from audit.cli.gate import BOUND, OF_ATTACKS, Vocabulary
    from audit.experiments import auditing
    from audit.experiments.outputs import ADVERSARY as OUTPUTS
    from audit.experiments.outputs import ATTACKS as OUTPUT_ATTACKS
    from audit.experiments.trials import ADVERSARY as SUMS
    from audit.experiments.trials import ATTACK as TRIED
    from audit.factories import make_defenses

    rounds = ",".join(map(str, plan.rounds))
    plan = auditing.settled(plan)
    who = ONE_PROCESS if distributed is None else workers(ALL_CORES, distributed)
    columns = {
        "update": plan.updates,
        "weighting": plan.weightings,
        "scenario": [f"{update}/{weighting}" for update, weighting in plan.scenarios],
        "attack": (
            *plan.attacks,
            *(OUTPUT_ATTACKS if plan.outputs else ()),
            *((TRIED,) if plan.trials else ()),
        ),
        "adversary": (
            plan.adversary,
            *((OUTPUTS,) if plan.outputs else ()),
            *((SUMS,) if plan.trials else ()),
        ),
    }
    words: tuple[str, ...] = ("leak",)
    values: tuple[str, ...] = OF_ATTACKS
    if plan.trials:
        words, values = ("leak", "refuted"), (*OF_ATTACKS, BOUND)
    build = build_of(fail_on, Vocabulary(words, values, columns), against, junit, allow_open)
    if output.estimate:
        _show_estimate(output, plan, output.load(plan.data, item_components, community, plan.seed))
        return
    title = f"What the {plan.adversary} reads from {plan.victim}, rounds {rounds}"
    with _as_found(output, title) as (update_bar, tell):
        found = auditing.audit(
            plan, lambda: output.load(plan.data, item_components, community, plan.seed), out, update_bar,
            within=limit, keep_transcripts=keep_transcripts, jobs=who, found=tell,
        )  # fmt: skip
    output.show(found.ratings.describe())
    _show_findings(output, found, title)
    output.show(COLUMNS)
    for budget in found.budgets:
        output.show(f"Active server, {budget}")
    accounts = accounts_of(
        plan.victim, found.victims, [one for text in plan.defenses for one in make_defenses(text)],
        found.ratings, n_rounds=max(plan.rounds) + 1, seed=plan.seed, adversary=plan.adversary,
    )  # fmt: skip
    show_accounts(output, accounts)
    if by_client is not None:
        _write_clients(output, by_client, auditing.cells_of(plan, found.ratings, out))
    _finish(output, found, out, build, accounts=accounts_as_json(accounts))


def _audit_recording(
    plan: GivenRecording,
    output: Output,
    out: Path,
    fail_on: list[str],
    against: Path | None,
    junit: Path | None,
    within: float | None,
    by_client: Path | None,
    names: bool,
    allow_open: bool,
    advise: bool,
) -> None:
    from audit.cli.gate import OF_ATTACKS, OF_CLAIMED, Vocabulary
    from audit.experiments import auditing
    from audit.experiments.ladder import expected
    from victims.transcript.adversaries import called_by_name, names_of

    asked = plan.adversary
    plan, opened = auditing.opened(plan)
    columns = {"attack": plan.attacks, "adversary": (plan.adversary,)}
    named = re.compile(rf"adversary={re.escape(asked)}(?=\s*(,|$))")  # as --adversary names it
    if asked:
        fail_on = [named.sub(lambda _: f"adversary={plan.adversary}", text) for text in fail_on]
    vocabulary = Vocabulary(values=(*OF_ATTACKS, *OF_CLAIMED), columns=columns)
    build = build_of(fail_on, vocabulary, against, junit, allow_open)
    if output.estimate:
        sizes = [(opened.manifest.n_users, opened.messages.n_rows)]
        output.show(expected(plan.attacks, sizes, plan.sample))
        return
    title = f"What the {plan.adversary} reads from {plan.transcript.name}"
    with _as_found(output, title) as (update_bar, tell):
        found = auditing.audit_recording(plan, opened, out, update_bar, within=within, found=tell)
    output.show(repr(opened))
    if called := called_by_name(opened.path, plan.adversary):
        output.show(f"{called}.")
    _show_findings(output, found, title)
    for wrong in found.contradictions:
        output.show(f"{wrong}; {REMEDIES.get(wrong.key, IDENTIFY)}.")
    if plan.truth is not None:
        output.show(COLUMNS)
    else:
        if found.lists_open:
            output.show(LISTED)
        output.show(
            "There is no truth to score against: clients_answered counts those for whom an attack, which "
            "abstains where nothing fits, has an answer; guess: the same on shuffled uploads."
        )
    if by_client is not None:
        cells = auditing.cells_on(plan, opened, out)
        _write_clients(output, by_client, cells, names_of(opened.path) if names else None)
    held = [f"{kind}: {amount}" for kind, amount in opened.unread.items()]
    if held:
        output.show(f"Held and read by no attack: {'; '.join(held)}.")
    advice = _advice(output, found, out, advise)
    contradictions = [one._asdict() for one in found.contradictions]
    _finish(output, found, out, build, held=held, contradictions=contradictions, advice=advice)


def _advice(output: Output, found: AuditedRecording, out: Path, advise: bool) -> list[str]:
    """What to do about leaks: defenses tried on the recording, or the command that tries them."""
    from audit.scoring.verdicts import LEAK

    leaking = list(dict.fromkeys(row["attack"] for row in found.rows if row["verdict"] == LEAK))
    again = f"factorleak {{}} --transcript {shlex.quote(str(found.plan.transcript))}"
    if not leaking:
        return []
    if not advise:
        output.show(f"What to do: {again.format('audit')} --advise tries a few defenses on these uploads.")
        return []
    from audit.experiments.recorded_defenses import EXPERIMENT, NOT_SIMULATED, advised
    from reports.tables import recorded_table
    from reports.words import helpful_defenses, what_helps

    plan = advised(found.plan, leaking)
    rows = output.grid("advise", EXPERIMENT, plan, plan, out / "advice")
    output.show(recorded_table(rows, "What a few defenses of these uploads leave"))
    advice = what_helps(rows)
    if helpful := helpful_defenses(rows):
        advice.append(f"Again: {again.format('compare none ' + ' '.join(helpful))}")
    advice.append(NOT_SIMULATED)
    for line in advice:
        output.show(line)
    return advice


def _write_clients(
    output: Output, path: Path, cells: list[Cell[Attempt]], names: Mapping[int, str] | None = None
) -> None:
    """Write of whom how much is recovered, with names where they were asked for."""
    from audit.experiments.auditing import clients_of
    from audit.experiments.results import write_table

    lines = clients_of(cells)
    if names is not None:
        lines = [{"name": names.get(line["client"], ""), **line} for line in lines]
    write_table(path, lines)
    output.show(f"{len(lines)} lines about clients in {path}")


def _finish(output: Output, found: Audited | AuditedRecording, out: Path, build: Build, **more: Any) -> None:
    """Say what changed, where the rows are, and whether a bar is crossed."""
    changes = build.changes(found.rows)
    build.show(output, changes)
    output.results(found.rows, out, found.seconds, **more, changes=as_records(changes))
    build.judge(found.rows, changes)


def _show_estimate(output: Output, plan: Audit, ratings: Ratings) -> None:
    from audit.experiments.ladder import expected

    clients = min(plan.users or ratings.n_users, ratings.n_users)
    rated = ratings.n_ratings * clients // ratings.n_users
    rows = {"observed-only": rated, "include-unrated": clients * ratings.n_items}
    sizes = [(clients, len(plan.rounds) * rows.get(weighting, rated)) for _, weighting in plan.scenarios]
    output.show(expected(plan.attacks, sizes, plan.sample))
    if plan.outputs:
        output.show(f"It counts neither training {plan.outputs} models nor attacking their outputs: minutes.")
    if plan.trials:
        output.show(f"It does not count {2 * plan.trials} trainings of few clients: seconds to minutes.")


@contextmanager
def _as_found(
    output: Output, title: str
) -> Iterator[tuple[ProgressBar, Callable[[list[dict[str, Any]]], None]]]:
    """Progress, and what to call with the rows of each attack: a leak is said at once, and whatever ends the
    audit before its end, what was finished is shown.
    """
    from audit.shell.interrupts import last_words
    from reports.words import finding

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
    from reports.tables import audit_table
    from reports.words import idle_lines

    output.show(audit_table(rows, title))
    for line in idle_lines(rows):
        output.show(line)


def _show_findings(output: Output, found: Audited | AuditedRecording, title: str) -> None:
    from reports.words import in_words

    _show_table(output, found.rows, title)
    for sentence in in_words(found.rows, listed=found.lists_open):
        output.show(sentence)
    if found.hint:
        output.show(found.hint)
