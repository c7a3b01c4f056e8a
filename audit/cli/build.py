"""What a build server asks of a run: bars, what became worse since earlier results, JUnit XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.output import Output
from audit.shell.exits import Exit
from audit.shell.notes import complain
from victims.common.errors import InputError

if TYPE_CHECKING:
    from audit.cli.gate import Condition, Vocabulary
    from audit.experiments.across_rows import Change

WORSE = "worse"
SHOWN = 20  # lines of what changed
AgainstOption = Annotated[
    Path | None,
    typer.Option(
        help="Earlier results (a directory or its results.json): say what became better or worse beyond "
        "noise. --fail-on worse makes it a bar."
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option(help="Also write JUnit XML here: a test case for each answer; crossed bars fail."),
]

AllowOpenOption = Annotated[
    bool,
    typer.Option(
        "--allow-open",
        help="With --fail-on leak: let pass that uploads name the items that their clients rated (OPEN).",
    ),
]


@dataclass(frozen=True)
class Build:
    """Bars and the like, checked before anything runs."""

    bars: list[Condition]
    worse: bool = False  # whether anything that became worse is a crossed bar
    before: list[dict[str, Any]] | None = None  # rows of earlier results
    junit: Path | None = None
    allow_open: bool = False  # whether rated items may be named by the uploads themselves

    def changes(self, rows: Sequence[Mapping[str, Any]]) -> list[Change]:
        """What differs from the earlier results; nothing where there are none."""
        from audit.experiments.across_rows import SAME, changes

        return [] if self.before is None else [one for one in changes(rows, self.before) if one.said != SAME]

    def show(self, output: Output, found: Sequence[Change]) -> None:
        """Say what changed, the worst first."""
        from audit.experiments.across_rows import TOLD

        if self.before is None:
            return
        for line in sorted(found, key=lambda one: TOLD.index(one.said))[:SHOWN]:
            output.show(str(line))
        more = f"; {len(found) - SHOWN} lines more with --json" if len(found) > SHOWN else ""
        told = f"{len(found)} changes" if found else "nothing changed beyond noise"
        output.show(f"against the earlier results: {told} (family-wise level 0.05){more}")

    def judge(self, rows: Sequence[Mapping[str, Any]], found: Sequence[Change]) -> None:
        """Write the JUnit file, hold rows and changes against the bars, and leave with the exit code."""
        from audit.cli.gate import check, without_open
        from audit.experiments.across_rows import GONE, UNTESTED
        from audit.experiments.across_rows import WORSE as BECAME_WORSE

        if self.allow_open:
            rows = without_open(rows)
        if self.junit is not None:
            from audit.experiments.across_rows import write_junit

            write_junit(self.junit, rows, lambda row: [bar.text for bar in self.bars if bar.crossed_by(row)])
        outcome = check(self.bars, rows)
        code, lines = outcome.code, list(outcome.lines)
        if self.worse:
            crossed = [str(one) for one in found if one.said == BECAME_WORSE]
            lost = [str(one) for one in found if one.said in (UNTESTED, GONE)]
            lines += [f"--fail-on worse is crossed: {line}" for line in crossed]
            lines += [f"--fail-on worse was not measured: {line}" for line in lost]
            code = Exit.CROSSED if crossed else code or (Exit.UNMEASURED if lost else Exit.DONE)
        for line in lines:
            complain(line)
        if code:
            raise typer.Exit(code)


def build_of(
    fail_on: Sequence[str] | None,
    vocabulary: Vocabulary,
    against: Path | None,
    junit: Path | None,
    allow_open: bool = False,
) -> Build:
    """Read what a build server asks."""
    from audit.cli.gate import parse
    from audit.experiments.results import file_of, rows_of
    from victims.common.files import refuse_unwritable

    texts = list(fail_on or [])
    worse = WORSE in texts
    if worse and against is None:
        raise InputError("--fail-on worse compares with earlier results; give them with --against")
    bars = parse([text for text in texts if text != WORSE], vocabulary)
    if junit is not None:
        refuse_unwritable(junit.parent)
    return Build(bars, worse, None if against is None else rows_of(file_of(against)), junit, allow_open)


def as_records(found: Sequence[Change]) -> list[dict[str, Any]]:
    """Changes as JSON has them."""
    from audit.experiments.across_rows import CELL

    return [
        {
            **dict(zip(CELL, one.cell, strict=True)),
            "change": one.said,
            "advantage_before": one.before,
            "advantage_now": one.after,
            "p_value": one.p_value,
        }
        for one in found
    ]
