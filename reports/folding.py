"""Attacks of one family that have the same to say, as one line: ``root-* (7)``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import groupby
from typing import TypeVar

Line = TypeVar("Line")


def family(attack: str) -> str:
    """Say what the names of an attack's variants begin with.

    Examples
    --------
    >>> family("root-lm"), family("grid")
    ('root', 'grid')
    """
    return attack.partition("-")[0]


def folded(
    lines: Sequence[Line], attack: Callable[[Line], str], same: Callable[[Line], Hashable]
) -> list[tuple[str, list[Line]]]:
    """Join lines that follow each other, are of one family and have the same content.

    Examples
    --------
    >>> lines = [("root-lm", "no"), ("root-krylov", "no"), ("grid", "no")]
    >>> [name for name, _ in folded(lines, lambda line: line[0], lambda line: line[1])]
    ['root-* (2)', 'grid']
    """
    numbered = list(enumerate(lines))

    def key(one: tuple[int, Line]) -> Hashable:
        number, line = one
        content = same(line)
        return (number, None) if content is None else (family(attack(line)), content)

    groups = [[line for _, line in group] for _, group in groupby(numbered, key)]
    return [(_name([attack(line) for line in group]), group) for group in groups]


def _name(attacks: Sequence[str]) -> str:
    return attacks[0] if len(attacks) == 1 else f"{family(attacks[0])}-* ({len(attacks)})"
