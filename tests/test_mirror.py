"""Tests mirror the packages, and patch nothing that is private."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("attacks", "audit", "defenses", "reports", "victims")

# Test files that have no module's name: they are about several modules of their folder. A folder's own name
# (``attacks/inversion/test_inversion.py``) needs no reason.
TOPICS = {
    "attacks/closed_form/clipping/test_clipped_rows.py": "rows clipped by entries or samples",
    "attacks/closed_form/gaps/test_gap_fits.py": "rows with gaps, fitted by steps and by passes",
    "attacks/peers/test_anonymous_rows.py": "senders linked, named and read, by all of the folder",
    "attacks/peers/test_strangers.py": "programs of other people, read by all of the folder",
    "attacks/peers/test_under_defenses.py": "noise, sampling and sums under neighbours, by all of the folder",
    "attacks/peers/test_victims.py": "victims without a server, read by all of the folder",
    "attacks/trajectory/test_steps_in_turn.py": "paper 002's order per-rating, by all of the folder",
    "audit/cli/test_faults.py": "what may end a run in the middle, in several commands",
    "audit/cli/test_grids.py": "several commands: compare, quality, cost",
    "audit/cli/test_own_ratings.py": "options of data, in several commands",
    "audit/cli/test_recordings.py": "audit, attack and score of recordings of any origin",
    "audit/cli/test_shell.py": "signals, full disks and damaged files, in several commands",
    "audit/cli/test_strangers.py": "reasons are the same in all commands",
    "audit/cli/test_usage.py": "help, --quiet and --json of all commands",
    "audit/requests/test_hostile_plans.py": "bad values of all commands, from file, command line and face",
    "audit/scoring/test_dealt_lists.py": "lists of few clients, from dealt rows to verdicts",
    "audit/scoring/test_factors.py": "clients' factors, from recording to score",
    "audit/scoring/test_hostile_answers.py": "damaged answers and truths, in all of the folder",
    "audit/test_aliases.py": "other names of components, in registry, factories and results",
    "defenses/encryption/test_encrypted_recordings.py": "both ciphers with both victims",
    "reports/page/test_browser.py": "the whole page in a browser",
    "reports/test_neighbour_figures.py": "figures of protocols without a server, from several modules",
    "victims/data/test_hostile_databases.py": "databases that would compute without end",
    "victims/data/test_own_ratings.py": "ratings of one's own, in all readers",
    "victims/recorders/test_flower_live.py": "flower beside the program itself",
    "victims/transcript/test_implicit_rows.py": "rows about a second table, in all of the folder",
    "victims/transcript/test_version_2.py": "version 2, in reader and writer",
}


def folders_of_modules() -> set[Path]:
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return {
        path.parent.relative_to(ROOT) for path in files if path.name not in ("__init__.py", "__main__.py")
    }


def all_test_files() -> list[Path]:
    return sorted(path for name in PACKAGES for path in (ROOT / "tests" / name).rglob("test_*.py"))


def private_names_patched(source: str) -> list[str]:
    """What ``setattr``, ``patch`` and the like name, where it begins with one underscore."""
    if not re.search(r"setattr|delattr|patch", source):  # most have none, and need not be parsed
        return []
    return [
        word.value
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and re.search(r"(setattr|delattr|patch(\.object|\.dict)?)$", ast.unparse(call.func))
        for word in call.args[:2]
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
        if re.search(r"(^|\.)_(?!_)\w+", word.value)
    ]


def test_every_room_has_tests():
    with_tests = {path.parent.relative_to(ROOT / "tests") for path in all_test_files()}
    assert folders_of_modules() == with_tests


def test_a_test_file_has_the_name_of_what_it_tests():
    strange = [
        path.relative_to(ROOT / "tests").as_posix()
        for path in all_test_files()
        for folder in [ROOT / path.parent.relative_to(ROOT / "tests")]
        if not (folder / path.name.removeprefix("test_")).exists() and path.stem != f"test_{folder.name}"
    ]
    assert strange == sorted(TOPICS), "name it after a module of the folder, or give the reason in TOPICS"


def test_nothing_private_is_patched():
    patched = {
        path.relative_to(ROOT).as_posix(): names
        for path in (ROOT / "tests").rglob("*.py")
        if (names := private_names_patched(path.read_text()))
    }
    assert not patched


def test_a_private_name_is_seen():
    source = (
        'monkeypatch.setattr(reader, "_limit", 1)\nmock.patch("a.b._c")\nmonkeypatch.setattr("a.B.c", 1)\n'
    )
    assert private_names_patched(source) == ["_limit", "a.b._c"]
