"""What people and programs read: tables in a pipe and on narrow terminals, sentences, progress lines."""

from __future__ import annotations

import re
import sys
from threading import Event, enumerate

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from audit.cli.output import show
from audit.experiments.results import make_row
from audit.shell.progress import Heartbeat, progress
from reports.audit import audit_table, in_words
from reports.layout import Sheet, on_terminal, piped, sheet_of
from reports.score import score_table
from reports.sweep import sweep_table
from reports.verdicts import why_not

METRICS = ("rating_accuracy", "rated_rating_accuracy", "rated_set_auc", "attribute_group_accuracy")


def ran(metric, verdict="LEAK", **changes):
    values = {
        "update": "semi-als", "weighting": "include-unrated", "attack": "root-linearmixing",
        "adversary": "server", "defense": "laplace:scale=0.5", "rounds": 20, "seconds": 12.3,
        "status": "ran", "metric": metric,
        "value": 0.971, "ci_low": 0.95, "ci_high": 0.99, "baseline": 0.345, "baseline_name": "popularity",
        "ceiling": 0.98, "ceiling_ml": 0.97, "ceiling_map": 0.98, "advantage": 0.956, "verdict": verdict,
        "n_users": 943, "n_abstained": 3,
    }  # fmt: skip
    return make_row(**{**values, **changes})


WHY = "the clients' step of fedmvmf/semi-als is not one that this attack knows, so that nothing was tried"
LOST = ran("rating_accuracy", "", status="not applicable", reason=WHY, attack="trajectory", value=0.123)
SILENT = ran(
    "rated_rating_accuracy", "NOT TESTED", n_abstained=900, attack="spectral", value=0.456, reason="bad fit"
)
ROWS = [*(ran(name) for name in METRICS), LOST, SILENT]
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


class TestWords:
    def test_every_metric_has_its_own_verdict(self):
        rows = [ran("rating_accuracy", "NO EVIDENCE"), ran("rated_rating_accuracy", "LEAK")]
        lines = piped(audit_table(rows, "x")).splitlines()[2:]
        assert [("NO EVIDENCE" in line, "LEAK" in line) for line in lines] == [(True, False), (False, True)]

    def test_no_number_where_nothing_was_tested(self):
        for sheet in SHEETS[:2]:
            lines = [line for line in piped(sheet).splitlines() if "NOT TESTED" in line]
            assert lines
            for line in lines:
                assert not re.search(r"0\.\d\d\d", line)
        assert why_not(LOST) == f"not applicable: {WHY}"
        assert why_not(SILENT) == "bad fit"
        assert why_not(ROWS[0]) == ""

    def test_the_sentence_names_its_metrics(self):
        (sentence,) = in_words(ROWS)
        assert sentence.startswith("semi-als/include-unrated: the server reads, with root-linearmixing, ")
        assert "rated_rating_accuracy 97.1 % (best guess without the transcript 34.5 %): LEAK" in sentence
        assert "attribute_group_accuracy 97.1 %" in sentence
        assert "rated_set_auc 0.971 (best guess without the transcript 0.345): LEAK" in sentence

    def test_nothing_tested_is_said(self):
        (sentence,) = in_words([LOST, SILENT, ran("rated_rating_accuracy", "LEAK", attack="guess-majority")])
        assert sentence.startswith("semi-als/include-unrated: NOT TESTED")
        assert "0." not in sentence


class TestProgress:
    """With a clock of our own: what is said when."""

    @pytest.fixture
    def lines(self):
        now, said = [100.0], []
        beat = Heartbeat("audit", clock=lambda: now[0], write=said.append)

        def after(seconds):
            now[0] += seconds
            return beat

        return after, said

    def test_a_short_job_says_nothing(self, lines):
        after, said = lines
        for done in range(5):
            after(1.9).update(done, 5, "x")
        with after(0):
            pass
        assert said == []

    def test_a_long_step_is_told_again_and_again(self, lines):
        after, said = lines
        after(1).update(0, 12, "sgd: recording")
        for _ in range(70):
            after(1).tick()
        assert said == [f"audit: 0 of 12 (sgd: recording), {seconds} s" for seconds in (10, 40, 70)]

    def test_the_end_of_a_step_is_told(self, lines):
        after, said = lines
        after(1).update(0, 12, "first")
        for seconds, done in ((10, 1), (1, 2), (1, 3), (9, 4)):
            after(seconds).update(done, 12, "next")
        with after(5):
            pass
        assert said == [
            "audit: 1 of 12 (next), 11 s",
            "audit: 4 of 12 (next), 22 s",
            "audit: 4 of 12 (next), 27 s",
        ]

    def test_a_reader_that_went_away(self, lines):
        def gone(line):
            raise BrokenPipeError

        beat = Heartbeat("audit", write=gone)
        beat.FIRST = 0.0
        with beat:
            beat.tick()
            beat.update(1, 2)

    def test_the_thread_speaks_and_ends(self, monkeypatch):
        spoken = Event()
        monkeypatch.setattr(Heartbeat, "FIRST", 0.0)
        monkeypatch.setattr(sys.stderr, "write", lambda text: spoken.set() or len(text))

        def work():
            with progress("audit"):
                assert spoken.wait(60)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()
        assert "factorleak-progress" not in {thread.name for thread in enumerate()}
