"""Which code a result comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from audit.factories import expanded
from audit.option_texts import named_options
from audit.plugins import OURS, code_at, code_of, own_code
from audit.registry import entry
from victims.common.files import existing_file

FILE = "weights"  # the option of a defense that names a file


def code_used(victim: str, defenses: Iterable[str] = (), attacks: Iterable[str] = ()) -> dict[str, str]:
    """Name package, version and source of all that a cell runs.

    It is part of the cell's name, so that other code runs anew. Any change of our own source counts, even a
    comment's: cells are cheap beside a wrong answer. Of a file that a defense reads its content counts, too.
    """
    parts = [defense for text in defenses for defense in expanded(text)]
    names = [("victims", victim), *(("defenses", named_options(defense)[0]) for defense in parts)]
    read = {path for defense in parts if (path := named_options(defense)[1].get(FILE))}
    return {**_code_of([*names, *(("attacks", name) for name in attacks)]), **_content_of(read)}


def _content_of(paths: Iterable[str]) -> dict[str, str]:
    return {
        path: hashlib.sha256(existing_file(Path(path)).read_bytes()).hexdigest() for path in sorted(paths)
    }


def attack_code(attack: str) -> dict[str, str]:
    """Name package, version and source of an attack alone."""
    return _code_of([("attacks", attack)])


def defense_code(text: str) -> dict[str, str]:
    """Name package, version and source of some defenses alone."""
    return _code_of([("defenses", named_options(one)[0]) for one in expanded(text)])


def _code_of(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    found = {(group, name): entry(group, name) for group, name in names}
    theirs = {
        f"{group[:-1]} {name}": code_of(one.component)
        if one.component
        else code_at(one.location, one.package)
        for (group, name), one in found.items()
        if one.package
    }
    return {OURS: own_code(), **theirs}
