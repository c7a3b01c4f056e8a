"""Files of finished cells: what is written is read, and what is damaged is computed again."""

from __future__ import annotations

import json

import pytest

from audit.experiments.cache import kept_rows, read_cell, write_cell
from audit.experiments.results import make_row

ROW = make_row(victim="mf", metric="rating_accuracy", value=0.5, status="ran")


def test_round_trip(tmp_path):
    write_cell(tmp_path / "c.json", [ROW])
    (row,) = read_cell(tmp_path / "c.json")
    assert row["value"] == 0.5


@pytest.mark.parametrize(
    "content",
    [b"null", b"[1]", b'"x"', b"{}", b"", b"\xff\xfe", b"[" * 100_000, b'{"format":"factorleak-cell-1"}'],
)
def test_a_damaged_one_is_computed_again_and_said(tmp_path, capsys, content):
    """Before: a traceback, or silently a cell without rows."""
    path = tmp_path / "c.json"
    path.write_bytes(content)
    assert kept_rows(path) is None
    said = capsys.readouterr().err
    assert said.startswith("factorleak: note: a cell is computed again")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["rows"][0].update(value=0.9),
        lambda c: c.update(rows=[]),
        lambda c: c["rows"][0].pop("seed"),
    ],
)
def test_a_changed_one_as_well(tmp_path, change):
    path = tmp_path / "c.json"
    write_cell(path, [ROW])
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    assert kept_rows(path) is None
