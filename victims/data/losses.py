"""What of a file did not become ratings, or is not known of them, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """Something that was counted and left out, or is not known."""

    where: str  # the file, or the data set
    what: str  # in the plural: rows, times, users,
    count: int  # how many are lost, of how many
    of: int  # how many are lost, of how many
    why: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.where}: {self.count:,} of {self.of:,} {self.what} lost: {self.why}"


def those(*losses: Loss) -> tuple[Loss, ...]:
    """Keep the losses that count something.

    Examples
    --------
    >>> found = those(Loss("a.csv", "rows", 2, 9, "no stars"), Loss("a.csv", "users", 0, 9, ""))
    >>> [str(loss) for loss in found]
    ['a.csv: 2 of 9 rows lost: no stars']
    """
    return tuple(loss for loss in losses if loss.count)
