"""The command line. Heavy imports happen inside the commands, so that ``--help`` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EROFS
from functools import cache
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand
from typer.main import get_command

from audit.cli import (
    attack,
    audit,
    claims,
    compare,
    listing,
    papers,
    record,
    report,
    score,
    sweep,
    transcript,
)
from audit.shell import debugging, interrupts
from audit.shell.exits import Exit
from audit.shell.notes import complain, note
from audit.shell.programs import keep_programs
from victims.common.errors import InputError, OutputError, one_line
from victims.common.files import reason_of


class Plain(TyperCommand):
    """A command whose help is plain: typer before 0.21.1 escapes its brackets for rich all the same."""

    def get_help(self, ctx: Any) -> str:
        """Format the help."""
        return super().get_help(ctx).replace("\\[", "[")


app = typer.Typer(
    name="factorleak",
    help="Tell what the traffic of a federated or decentralised matrix-factorisation recommender gives away.",
    epilog="An option that takes several values is repeated: --attack spectral --attack grid. Numbers and "
    "names may also be listed with commas: --rounds 4,5 or 0-9.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
papers_app = typer.Typer(help="Reproduce tables and figures of the five papers.", no_args_is_help=True)
MOVED = ("predict", "quality", "cost", "lists", "train")  # to ``papers``; their old names go with 0.2.0
data_app = typer.Typer(help="List or fetch rating data sets.", no_args_is_help=True)
transcript_app = typer.Typer(
    help="Look into a recording, or print the format's schema.", no_args_is_help=True
)


def _whole(command: Callable[..., object]) -> str:
    """What a command does, for the list of commands, where it would be cut otherwise."""
    return (command.__doc__ or "").partition("\n")[0]


for command, ending in (
    (audit.audit, audit.EXAMPLES),
    (record.record, record.EXAMPLES),
    (attack.attack, attack.EXAMPLES),
    (score.score, score.EXAMPLES),
    (sweep.sweep, sweep.EXAMPLES),
    (compare.compare, compare.EXAMPLES),
    (claims.claims, claims.EXAMPLES),
    (report.report, report.EXAMPLES),
):
    app.command(cls=Plain, epilog=ending, short_help=_whole(command))(command)
for command, ending in papers.EXAMPLES.items():
    papers_app.command(cls=Plain, epilog=ending, short_help=_whole(command))(command)
app.add_typer(papers_app, name="papers")
app.command("list", cls=Plain, epilog=listing.LIST_EXAMPLES, short_help=_whole(listing.list_))(listing.list_)
data_app.command("list", cls=Plain, epilog=listing.DATA_LIST_EXAMPLES)(listing.data_list)
data_app.command("fetch", cls=Plain, epilog=listing.DATA_FETCH_EXAMPLES)(listing.data_fetch)
app.add_typer(data_app, name="data")
transcript_app.command(cls=Plain, epilog=transcript.CHECK_EXAMPLES)(transcript.check)
transcript_app.command(cls=Plain, epilog=transcript.SCHEMA_EXAMPLES)(transcript.schema)
app.add_typer(transcript_app, name="transcript")


def _version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        print(f"factorleak {version('factorleak')}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    debug: Annotated[
        bool,
        typer.Option(debugging.FLAG, help="Show the traceback of an error; or set FACTORLEAK_DEBUG=1."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Tell what the traffic of a federated or decentralised matrix-factorisation recommender gives away."""
    debugging.turned_on([debugging.FLAG] if debug else [])


def main() -> None:
    """Run the command line in this process; ``audit.shell.exits`` has the codes with which it leaves."""
    words = debugging.turned_on(sys.argv[1:])
    if words and words[0] in MOVED:
        searches = words[0] == "train" and any(word.startswith("--tune") for word in words)
        now = "tune" if searches else words[0]
        note(f"{words[0]} is now `factorleak papers {now}`")
        words = ["papers", now, *words[1:]]
    keep_programs()
    try:
        _program()(words)
        sys.stdout.flush()
    except SystemExit as leave:
        if leave.code == Exit.INTERRUPTED:  # Ctrl-C, as the command-line library reports it
            complain(interrupts.STOPPED)
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


@cache
def _program() -> Callable[[list[str]], object]:
    """All commands and their options, read from their signatures once for all runs in this process."""
    return get_command(app)


def _leave(code: Exit, error: BaseException | None, message: str) -> NoReturn:
    """One line, and out; nothing more is said where a signal ends the process already."""
    interrupts.halt()
    if error is not None:
        debugging.trace(error)
    complain(message if message.startswith("internal") else f"error: {message}")
    sys.exit(code)
