"""Tables of what a recording holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from reports.folding import folded


def facts_table(facts: Mapping[str, str], name: str) -> Table:
    """Tabulate what a recording holds."""
    table = Table(title=f"What {name} holds", title_justify="left")
    for column in ("what", "how much"):
        table.add_column(column, overflow="fold")
    for what, value in facts.items():
        table.add_row(what, value)
    return table


def rule_table(rule: Sequence[Mapping[str, Any]]) -> Table:
    """Tabulate the clients' rule as attacks take it."""
    table = Table(title="What the clients' rule is taken to be", title_justify="left")
    for column in ("key", "value", "why"):
        table.add_column(column, overflow="fold")
    for key in rule:
        table.add_row(key["name"], key["value"], key["source"])
    return table


def attacks_table(attacks: Sequence[Mapping[str, Any]], adversary: str) -> Table:
    """Tabulate which attacks apply."""
    table = Table(title=f"Attacks on what the {adversary} sees", title_justify="left")
    table.caption = "applies: it will look, which is no promise that it finds"
    table.caption_justify = "left"
    for column in ("attack", "applies", "why not"):
        table.add_column(column, overflow="fold")
    groups = folded(attacks, lambda one: one["attack"], lambda one: one["reason"] or None)
    for name, (one, *_) in groups:
        table.add_row(name, "yes" if one["applies"] else "no", one["reason"])
    return table
