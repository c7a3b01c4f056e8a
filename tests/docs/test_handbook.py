"""The handbook holds: its snippets run, its tables are those of the rows, its links and paths exist."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

from audit.registry import entries

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


LONG = (  # seconds each
    "README",
    "add-a-client-rule",
    "add-a-defense",
    "add-an-attack",
    "make-a-page",
    "record-another-program",
)


def pages_with_snippets() -> list[Path]:
    return [page for page in PAGES if SNIPPET.search(page.read_text())]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.thorough if page.stem in LONG else ())
        for page in pages_with_snippets()
    ],
    ids=lambda page: page.stem,
)
def test_snippets_run(page, tmp_path, monkeypatch):
    """One after the other in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("snippet")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "snippet", module)
    for code in SNIPPET.findall(page.read_text()):
        exec(compile(code, str(page), "exec"), module.__dict__)


def test_results_pages_are_written_from_their_rows():
    for path, text in runpy.run_path(str(DOCS / "research" / "make.py"))["pages"]().items():
        assert path.read_text() == text, f"{path.name} is out of date; run python docs/research/make.py"


def test_every_table_says_where_it_comes_from():
    rows = {path.stem for path in (DOCS / "research" / "rows").glob("*.csv")}
    source = "".join(path.read_text() for path in (DOCS / "research" / "source").glob("*.md"))
    used = re.findall(r"<!-- table: ([a-z0-9-]+) -->", source)
    assert "<!-- ledger: " in source
    assert sorted([*used, "speed-ledger"]) == sorted(rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    missing = [
        target
        for target in LINK.findall(page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    if page.is_relative_to(DOCS / "research" / "source"):  # written one folder up
        missing = [target for target in missing if not (page.parent.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", *PAGES], ids=lambda page: page.stem)
def test_paths_of_the_project_exist(page):
    named = re.findall(
        r"`((?:victims|attacks|defenses|audit|reports|tests|docs)/[\w/.-]+)`", page.read_text()
    )
    assert not [path for path in named if not (ROOT / path).exists() and not (ROOT / f"{path}.py").exists()]


@pytest.mark.parametrize("group", ["attacks", "defenses"])
def test_every_component_has_a_page(group):
    """Members of a family share one."""
    folder = DOCS / "explanation" / group
    index = (folder / "index.md").read_text()
    offered = [name for name, one in entries(group).items() if not one.adopted]
    for name in offered:
        family = name.split("-", maxsplit=1)[0]
        pages = {path.stem for path in folder.glob("*.md")}
        assert name in pages or family in pages or f"`{name}`" in index, name
