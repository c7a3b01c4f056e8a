"""Tables in a pipe and on narrow terminals."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from audit.cli.output import show
from reports.audit import audit_table
from reports.layout import Sheet, on_terminal, piped, sheet_of
from reports.score import score_table
from reports.sweep import sweep_table
from tests.reports.rows import METRICS, ROWS, SILENT, ran

SCORES = [ran(name) for name in (*METRICS, "tpr_at_fpr_0.1pct", "users_fully_recovered")]
SHEETS = [
    audit_table(ROWS, "What the server reads from fedmvmf, rounds 4,5"),
    score_table([*SCORES, SILENT], "spectral on fedmvmf semi-als/include-unrated"),
    sweep_table(ROWS, "Ratings under Laplace noise", "root-linearmixing"),
]


def wide() -> Table:
    """As other reports make them: many columns, repeated names left out, markup."""
    table = Table(title="Defenses", caption="what [this] means")
    for name in (
        "defense",
        "adversary",
        "rated items",
        "rated set (AUC)",
        "attributes (blocks)",
        "NDCG@10 (sd)",
    ):
        table.add_column(name, justify="right" if name == "NDCG@10 (sd)" else "left")
    score = "0.988\n[0.980, 0.996]\nguess 0.430\ntrajectory, 943 clients\n[bold]LEAK[/]"
    table.add_row("unrated-sampling:rho=1", "server\neavesdropper", score, score, "-", "0.512 (0.01)")
    table.add_row("", "server+client", "not applicable: nothing here", "-", "-", "")
    return table


class TestNarrow:
    @pytest.mark.parametrize("width", [80, 60, 45])
    @pytest.mark.parametrize("sheet", [*SHEETS, sheet_of(wide())], ids=lambda sheet: sheet.title[:8])
    def test_nothing_is_cut(self, sheet, width):
        text = on_terminal(sheet, width).plain
        words = {word for row in sheet.rows for cell in row for word in cell.split() if cell != "-"}
        assert [word for word in words if word not in text] == []
        assert max(map(cell_len, text.splitlines())) <= width

    @pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.title[:8])
    def test_columns_stay_columns_at_80(self, sheet):
        """Each metric has one line with its number, its interval and its own verdict, or stacks them."""
        lines = on_terminal(sheet, 80).plain.splitlines()
        assert "verdict" in lines[1]
        assert not [line for line in lines if re.match(r"verdict\s+LEAK", line)]

    def test_what_does_not_fit_at_all_is_a_list(self):
        text = on_terminal(sheet_of(wide()), 60).plain
        assert "rated items          0.988\n" in text
        assert text.count("unrated-sampling:rho=1") == 2
        assert "\x1b" not in text

    def test_shapes(self):
        sheet = Sheet("", ("a", "b", "c"), (("one two", "1", "x"),), stacks=(("a", "b"),))
        assert on_terminal(sheet, 20).plain.splitlines()[2] == "one two  1  x"
        assert on_terminal(sheet, 12).plain.splitlines()[3:] == ["one two  x", "1"]
        assert on_terminal(sheet, 9).plain.splitlines()[3:] == ["one     x", "two", "1"]
        assert on_terminal(sheet, 5).plain.splitlines() == ["a  one two", "b  1", "c  x"]


class TestPipe:
    @pytest.mark.parametrize("sheet", [*SHEETS, sheet_of(wide())], ids=lambda sheet: sheet.title[:8])
    def test_a_line_is_a_row(self, sheet):
        lines = piped(sheet).splitlines()
        body = lines[1 : 2 + len(sheet.rows)]
        assert {len(re.split("  +", line)) for line in body} == {len(sheet.columns)}
        assert all(line == line.rstrip() and line.isascii() for line in lines)

    def test_a_row_says_whose_it_is(self):
        text = piped(SHEETS[0])
        (line,) = [line for line in text.splitlines() if "  rated_set_auc  " in line]
        assert line.startswith("semi-als/include-unrated  root-linearmixing  12.30 s")
        assert "LEAK" in line
        (line,) = [line for line in piped(sheet_of(wide())).splitlines() if "server+client" in line]
        assert line.startswith("unrated-sampling:rho=1")

    def test_printing(self, capsys):
        show("what [bold] is in a path [/] stays")
        show(wide())
        text = capsys.readouterr().out
        assert text.startswith("what [bold] is in a path [/] stays\nDefenses\n")
        assert text.endswith("what [this] means\n")
        assert "│" not in text

    def test_a_terminal_is_recognised(self, capsys, monkeypatch):
        monkeypatch.setattr(Console, "is_terminal", True)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TERM", "xterm")
        show(SHEETS[0])
        text = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
        assert [line.rstrip() for line in text.splitlines()] == [
            line.rstrip() for line in on_terminal(SHEETS[0], 80).plain.splitlines()
        ]
