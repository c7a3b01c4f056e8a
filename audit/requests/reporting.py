"""A page of results that lie on disk: what is read is checked as what strangers wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.experiments.results import COLUMNS, Row
from audit.experiments.run_record import RUN_FILE, facts_of
from victims.common.errors import InputError, printable
from victims.common.files import refuse_unwritable
from victims.common.json_text import json_of

if TYPE_CHECKING:
    from reports.page.content import Page

RESULTS = "results.json"
MOST_BYTES = 256 << 20
MOST_ROWS = 200_000
WORDS = frozenset(
    {
        "victim", "update", "weighting", "data", "defense", "adversary", "attack", "metric", "baseline_name",
        "status", "reason", "verdict",
    }
)  # fmt: skip
LONGEST = 2_000  # characters of a text


@dataclass(frozen=True)
class ReportRequest:
    """What is asked for.

    Attributes
    ----------
    results : Path
        A directory of results, or its ``results.json``.
    out : Path or None
        Directory for the page; None puts it beside the results.
    title : str
    """

    results: Path
    out: Path | None = None
    title: str = "What the traffic gives away"


@dataclass(frozen=True)
class Report:
    """The page, and the files that hold it."""

    page: Page
    files: tuple[Path, ...]


def report(request: ReportRequest) -> Report:
    """Read results, and write their page.

    Parameters
    ----------
    request : ReportRequest

    Returns
    -------
    Report

    Raises
    ------
    InputError
        If there are no results, or they are not rows of results.
    OutputError
        If the page cannot be written.
    """
    from reports.page.content import page_of
    from reports.page.render import write_page
    from victims.transcript.reader import ADVERSARIES

    source = request.results / RESULTS if request.results.is_dir() else request.results
    out = request.out or source.parent
    rows = rows_of(source)
    refuse_unwritable(out)
    page = page_of(rows, request.title, ADVERSARIES, facts_of(source.parent / RUN_FILE))
    return Report(page, tuple(write_page(page, out)))


def rows_of(path: Path) -> list[Row]:
    """Read the rows of a ``results.json``.

    Parameters
    ----------
    path : Path

    Returns
    -------
    list of dict
        With all of ``COLUMNS``; NaN in place of null where a number belongs.

    Raises
    ------
    InputError
        If it is no such file.
    """
    if not path.is_file():
        raise InputError(
            f"{path} is no file of results; give the directory that a command wrote, or its {RESULTS}"
        )
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(
            f"{path} must have at most {MOST_BYTES >> 20} MiB, got {size >> 20}; report a part of it"
        )
    try:
        found = json_of(path.read_text(encoding="utf-8"))
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path} must be JSON as a command wrote it: {error}") from error
    if not isinstance(found, list) or not found:
        raise InputError(f"{path} must be a list of one result row or more; did the command end?")
    if len(found) > MOST_ROWS:
        raise InputError(f"{path} must have at most {MOST_ROWS} rows, got {len(found)}; report a part of it")
    return [_checked(path, number, row) for number, row in enumerate(found)]


def _checked(path: Path, number: int, row: Any) -> Row:
    where = f"{path}, row {number}"
    if not isinstance(row, Mapping):
        raise InputError(f"{where} must be an object with the result columns, got {type(row).__name__}")
    if missing := [name for name in COLUMNS if name not in row]:
        raise InputError(f"{where} lacks the column {missing[0]}; was it written by another version?")
    return {name: _cell(where, name, row[name]) for name in COLUMNS}


def _cell(where: str, name: str, value: Any) -> Any:
    if name in WORDS:
        if value is None or isinstance(value, str):
            return value if value is None else printable(value[:LONGEST])
        raise InputError(f"{where}: {name} must be text or null, got {value!r:.60}")
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise InputError(f"{where}: {name} must be a finite number or null, got {value!r:.60}")
    return value
