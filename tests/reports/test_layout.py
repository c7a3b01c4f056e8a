"""Tables in a pipe and on terminals of any width."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from audit.cli.output import show
from reports.layout import Sheet, on_terminal, piped
from reports.tables import audit_table, score_table, sweep_table
from tests.reports.rows import METRICS, ROWS, SILENT, ran

SCORE = "0.988 (0.430)\n[0.980, 0.996]\nLEAK\ntrajectory"
SCORES = [ran(name) for name in (*METRICS, "tpr_at_fpr_0.1pct", "users_fully_recovered")]
WIDE = Sheet(
    "Defenses",
    ("defense\nadversary", "rated items", "rated set (AUC)", "attributes (blocks)", "NDCG@10 (sd)"),
    [
        ("unrated-sampling:rho=1\nserver\neavesdropper", SCORE, SCORE, "-", "0.512 (0.01)"),
        ("[bold]server+client[/]", "NOT TESTED\nnot applicable: nothing here", "-", "-", "a\x1b[31mb"),
    ],
    right=("NDCG@10 (sd)",),
    caption="what [this] means",
)
SHEETS = [
    audit_table(ROWS, "What the server reads from fedmvmf, rounds 4,5"),
    score_table([*SCORES, SILENT], "spectral on fedmvmf semi-als/include-unrated"),
    sweep_table(ROWS, "Ratings under Laplace noise", "root-linearmixing"),
    WIDE,
]
sheets = pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.title[:8])


def drawn(sheet, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(on_terminal(sheet, console))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [200, 80, 60, 45])
@sheets
def test_nothing_is_cut_and_no_number_is_wrapped(sheet, width):
    lines = drawn(sheet, width)
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    assert "\x1b" not in text
    numbers = {
        line for row in sheet.rows for cell in row for line in cell.split("\n") if re.match(r"[\d[]+\.", line)
    }
    words = {word for row in sheet.rows for cell in row for word in cell.split() if "\x1b" not in word}
    assert [one for one in numbers | words - {"-"} if one not in text] == []


@pytest.mark.parametrize("width", [200, 80])
@pytest.mark.parametrize("sheet", SHEETS[:3], ids=lambda sheet: sheet.title[:8])
def test_columns_stay_columns(sheet, width):
    """Each metric has one line with its number, its interval and its own verdict, or stacks them."""
    lines = drawn(sheet, width)
    assert "verdict" in lines[1] + lines[2]
    assert sum("verdict" in line for line in lines) == 1


def test_shapes():
    sheet = Sheet("", ("a", "b", "c"), (("one two", "1", "x"),), stacks=(("a", "b"),))
    assert drawn(sheet, 20)[2] == "one two  1  x"
    assert drawn(sheet, 9)[2:] == ["one  1  x", "two"]
    assert drawn(sheet, 6) == ["a  one", "   two", "b  1", "c  x"]


class TestPipe:
    @sheets
    def test_a_line_is_a_row(self, sheet):
        lines = piped(sheet).splitlines()
        body = lines[1 : 2 + len(sheet.rows)]
        assert {len(re.split("  +", line)) for line in body} == {len(sheet.columns)}
        assert all(line == line.rstrip() and line.isascii() for line in lines)
        assert "\x1b" not in "".join(lines)

    def test_a_row_says_whose_it_is(self):
        (line,) = [line for line in piped(SHEETS[0]).splitlines() if "  rated_set_auc  " in line]
        assert line.startswith("semi-als/include-unrated  root-linearmixing  12.30 s")
        assert "LEAK" in line

    def test_printing(self, capsys):
        show("what [bold] is in a path [/] stays")
        show(WIDE)
        text = capsys.readouterr().out
        assert text.startswith("what [bold] is in a path [/] stays\nDefenses\n")
        assert text.endswith("what [this] means\n")

    def test_a_terminal_is_recognised(self, capsys, monkeypatch):
        monkeypatch.setattr(Console, "is_terminal", True)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TERM", "xterm")
        show(SHEETS[0])
        text = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
        assert [line.rstrip() for line in text.splitlines()] == drawn(SHEETS[0], 80)
