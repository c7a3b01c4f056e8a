"""What a command prints: tables and lines for people, or one JSON value, or nothing."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from audit.shell.notes import complain, note
from audit.shell.progress import ProgressBar, Silent
from audit.shell.progress import progress as bar
from victims.common.errors import printable

if TYPE_CHECKING:
    from audit.accounts import Stated
    from audit.experiments.cells import Found
    from audit.experiments.runner import Experiment
    from audit.experiments.workers import Cluster
    from reports.layout import Sheet
    from victims.data.ratings import Ratings


@dataclass(frozen=True)
class Output:
    """How a command was asked to answer."""

    quiet: bool = False  # say nothing but errors, crossed bars and, where it was asked for, the JSON value
    as_json: bool = False  # print one JSON value instead of tables and lines
    estimate: bool = False  # run no experiment, but say about how long it will take
    # of the ratings that were loaded; they go into the JSON value
    losses: list[dict[str, Any]] = field(default_factory=list)

    def show(self, what: str | Sheet) -> None:
        """Print a table or a line for people."""
        if not (self.quiet or self.as_json):
            show(what)

    def line(self, text: str) -> None:
        """Print a line as it is: several blanks stay, and nothing is folded."""
        if not self.as_json:
            emit(lambda: print(text))

    def finish(self, content: Mapping[str, Any]) -> None:
        """Print the JSON value where it was asked for; numbers that are not finite are null."""
        if self.as_json:
            content = {**content, **({"losses": self.losses} if self.losses else {})}
            emit(lambda: print(json.dumps(_plain(content), indent=1, allow_nan=False)))

    @contextmanager
    def progress(self, label: str, even: bool = True) -> Iterator[ProgressBar]:
        """A bar or lines on stderr, unless nothing is to be said; yields update(done, total, text)."""
        if self.quiet:
            yield Silent()
            return
        with bar(label, even) as update:
            yield update

    def grid(
        self,
        name: str,
        experiment: Experiment[Any, Any, Any, Any],
        plan: Any,
        given: Any,
        out: Path,
        jobs: int | Cluster = -1,
        found: Found = lambda rows: None,
    ) -> list[dict[str, Any]]:
        """The rows of an experiment; or, where an estimate is asked for, that and the end of the command."""
        if not self.estimate:
            with self.progress(name) as update:
                return experiment.run(plan, given, out, jobs=jobs, report=update, found=found)
        from audit.experiments.runner import estimated, try_out

        cells = experiment.cells(plan, given, out)
        with self.progress("trial") as update:
            try_out(cells, experiment.procedure, given, update)
        expected = estimated(cells, jobs)
        self.show(str(expected))
        self.finish({"cells": len(cells), **expected.record()})
        raise typer.Exit

    def load(
        self,
        data: str,
        item_components: int | None = None,
        community: int | None = None,
        seed: int = 0,
        item_tags: Path | None = None,
        sybils: int | None = None,
    ) -> Ratings:
        """The ratings that ``--data`` names; what the loader decided is said on stderr, losses in a table."""
        from audit.rating_data import ratings_of
        from reports.tables import losses_table

        ratings = ratings_of(data, item_components, community, seed, item_tags=item_tags, sybils=sybils)
        for text in () if self.quiet else ratings.notes:
            note(f"{ratings.name}: {text}")
        if ratings.losses:
            self.show(losses_table([astuple(loss) for loss in ratings.losses], ratings.name))
            self.losses.extend(asdict(loss) for loss in ratings.losses)
        return ratings

    def failures(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show why cells failed, each reason once."""
        for reason in dict.fromkeys(row["reason"] for row in rows if row["status"] == "failed"):
            self.show(f"failed: {reason}")

    def results(
        self,
        rows: Sequence[Mapping[str, Any]],
        out: Path,
        seconds: float,
        told: Sequence[Mapping[str, Any]] | None = None,
        held: Sequence[str] = (),
        **more: object,
    ) -> None:
        """Note what made the rows beside them; say where they are, or print them with what else there is.

        ``told`` is printed in their place where a command had a form of its own before it wrote files.
        """
        from audit.experiments.results import write_run

        write_run(out, sys.argv[1:], seconds, len(rows), held)
        unread = {"held": held} if held else {}
        self.show(f"{len(rows)} rows in {out}/results.json, .csv, .parquet; {seconds:.1f} s")
        self.finish(
            {"out": out, "seconds": seconds, "rows": rows if told is None else told, **more, **unread}
        )


def _plain(value: Any) -> Any:
    """A value as JSON has it: null for numbers that are not finite, text for what it does not know."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def judge(conditions: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Hold the rows against the bars of ``--fail-on``: a line on stderr for each, and the exit code."""
    from audit.cli.gate import check

    outcome = check(conditions, rows)
    for line in outcome.lines:
        complain(line)
    if outcome.code:
        raise typer.Exit(outcome.code)


def show(what: str | Sheet) -> None:
    """Print a table or a line of text: folded to the width of a terminal, plain where there is none.

    Nothing in it is obeyed: control characters are shown.
    """
    from rich.console import Console
    from rich.text import Text

    from reports.layout import on_terminal, piped

    console = Console()
    text = printable(what) if isinstance(what, str) else piped(what)
    if console.is_terminal:
        drawn = Text(text) if isinstance(what, str) else on_terminal(what, console)
        emit(lambda: console.print(drawn))
    else:
        emit(lambda: print(text))


def emit(write: Callable[[], None]) -> None:
    """Write to stdout; where its reader is no more, the work and its exit code still count."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def show_accounts(output: Output, stated: Sequence[Stated]) -> None:
    """Print the accounts of all defenses, what they claim and do not hide."""
    from reports.tables import account_table

    beside: dict[str, None] = {}  # what stands below all tables, once
    for defense, accounts in stated:
        if not accounts:
            output.show(f"{defense} states no privacy account")
        for account in accounts:
            if account.lines:
                output.show(account_table([asdict(line) for line in account.lines], account.title))
            else:
                output.show(f"{account.title}: {account.unproved}")
            beside |= dict.fromkeys(account.claims)
    for _, accounts in stated:
        for account in accounts:
            beside |= dict.fromkeys(f"not hidden: {sentence}" for sentence in account.not_hidden)
    for sentence in beside:
        output.show(sentence)


def accounts_as_json(stated: Sequence[Stated]) -> list[dict[str, Any]]:
    """Turn the accounts of all defenses into JSON values."""
    return [
        {"defense": defense, "accounts": [asdict(account) for account in accounts]}
        for defense, accounts in stated
    ]
