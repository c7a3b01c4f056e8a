"""Names and options of components as text: ``laplace:b=2,clip=10``."""

from __future__ import annotations

from victims.common.errors import InputError


def named_options(text: str) -> tuple[str, dict[str, str]]:
    """Split ``laplace:b=2,clip=10`` into the name and its options."""
    name, _, options = text.partition(":")
    return name, parse_options([option for option in options.split(",") if option])


def parse_options(pairs: list[str]) -> dict[str, str]:
    """Read ``["factors=8"]`` as a mapping."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"an option must be name=value, got {pair!r}")
        options[name.strip().replace("-", "_")] = value.strip()
    return options
