"""What a loader left out of the ratings that somebody gave."""

from __future__ import annotations

from collections.abc import Sequence

from reports.layout import Sheet

Counted = tuple[str, str, int, int, str]  # where, what, how many, of how many, why


def losses_table(losses: Sequence[Counted], name: str) -> Sheet:
    """Tabulate what was left out or is not known, a line for each reason."""
    return Sheet(
        title=f"What {name} loses on the way",
        columns=("file", "what", "lost", "of", "why"),
        rows=tuple((where, what, f"{count:,}", f"{of:,}", why) for where, what, count, of, why in losses),
        right=("lost", "of"),
    )
