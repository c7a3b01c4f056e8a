"""A page of results that lie on disk: what is read is checked as what strangers wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from audit.experiments.run_record import RUN_FILE, facts_of
from audit.requests.result_files import file_of, rows_of
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from reports.page.content import Page


@dataclass(frozen=True)
class ReportRequest:
    """What is asked for."""

    results: Path  # A directory of results, or its ``results.json``
    out: Path | None = None  # directory for the page; None puts it beside the results
    title: str = "What the traffic gives away"


@dataclass(frozen=True)
class Report:
    """The page, and the files that hold it."""

    page: Page
    files: tuple[Path, ...]


def report(request: ReportRequest) -> Report:
    """Read results, and write their page."""
    from reports.page.content import page_of
    from reports.page.render import write_page
    from victims.transcript.reader import ADVERSARIES

    source = file_of(request.results)
    out = request.out or source.parent
    rows = rows_of(source)
    refuse_unwritable(out)
    page = page_of(rows, request.title, ADVERSARIES, facts_of(source.parent / RUN_FILE))
    return Report(page, tuple(write_page(page, out)))
