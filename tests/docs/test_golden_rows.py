"""Tables and figures of the handbook are of this code: tiny runs of it give the rows that they gave then."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS, GALLERY = ROOT / "docs" / "research", ROOT / "reports" / "gallery"
ORIGINS = tomllib.loads((RESULTS / "tables.toml").read_text())
GOLDEN, FIGURES = ORIGINS.pop("golden"), ORIGINS.pop("figures")
CLOSE = 1e-4  # values are noted with four decimals


def made_by(golden: str) -> list[str]:
    """The tables and figures that stand on golden rows."""
    return [name for name, one in (ORIGINS | FIGURES).items() if golden in one["golden"]]


def agrees(row: Mapping[str, Any], noted: Mapping[str, Any]) -> bool:
    return all(
        row.get(key) == (pytest.approx(value, abs=CLOSE) if isinstance(value, float) else value)
        for key, value in noted.items()
    )


def near(rows: list[dict[str, Any]], noted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the rows that are meant hold now."""
    words = {key: value for key, value in noted.items() if not isinstance(value, float)}
    return ({key: row.get(key) for key in noted} for row in rows if agrees(row, words))


@pytest.mark.thorough
@pytest.mark.parametrize("golden", GOLDEN)
def test_golden_rows_are_as_they_were(golden, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = GOLDEN[golden]
    for command in one["command"].split(" && "):
        code, text, errors = run(*shlex.split(command)[1:], "--json")
        assert code == 0, errors
    content = json.loads(text)
    rows = content.get("rows") or content["scores"]
    for noted in one["rows"]:
        assert any(agrees(row, noted) for row in rows), (
            f"{one['command']} gave {noted} when docs/research/tables.toml was written, and gives "
            f"{list(near(rows, noted))} now. Make again what stands on it, or say why it holds: "
            f"{', '.join(made_by(golden))}; then note the new row there"
        )


def test_every_table_and_figure_says_what_it_stands_on():
    assert set(ORIGINS) == {path.stem for path in (RESULTS / "rows").glob("*.csv")}
    assert set(FIGURES) == {path.stem for path in GALLERY.glob("*.png")}
    assert {name for one in (ORIGINS | FIGURES).values() for name in one["golden"]} == set(GOLDEN)
    assert all(
        one["command"] and re.match(r"[0-9a-f]{7}", one["commit"]) for one in (ORIGINS | FIGURES).values()
    )
    assert all(one["rows"] for one in GOLDEN.values())


def test_no_figure_of_the_handbook_is_elsewhere():
    """Each is in the gallery, so that it is among those above."""
    shown = {
        (page.parent / target).resolve()
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        if not page.is_relative_to(RESULTS / "source")  # written one folder up
        for target in re.findall(r"!\[[^]]*\]\(([^)#\s]+)\)", page.read_text())
    }
    assert {path.parent for path in shown} == {GALLERY}
    assert {path.stem for path in shown} == set(FIGURES)
