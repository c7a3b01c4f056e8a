"""``tests/slow.txt`` and ``tests/repeated.txt`` name tests that are there, each once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTED, REPEATED = ((ROOT / "tests" / name).read_text().splitlines() for name in ("slow.txt", "repeated.txt"))


@functools.cache
def names_in(path: Path) -> set[str]:
    """The test functions, classes and methods of a file as the list writes them."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {node.name} | {
                f"{node.name}::{part.name}" for part in node.body if hasattr(part, "name")
            }
    return found


@pytest.mark.parametrize("listed", [LISTED, REPEATED], ids=["slow", "repeated"])
def test_every_entry_names_something(listed):
    gone = []
    for entry in listed:
        file, _, name = entry.partition("[")[0].partition("::")
        path = ROOT / file
        if not path.is_file() or (name and name not in names_in(path)):
            gone.append(entry)
    assert not gone


def test_no_entry_is_said_twice():
    """Neither as it is, nor by the file or class that it is in."""
    whole = [entry for entry in LISTED if any(entry.startswith(f"{other}::") for other in LISTED)]
    assert sorted(set(LISTED)) == LISTED
    assert sorted(set(REPEATED)) == REPEATED
    assert not whole


def test_cases_are_repeated_not_whole_tests():
    """The gate runs one case at least; what is thorough as a whole is marked where it is written."""
    assert all(entry.endswith("]") for entry in REPEATED)
