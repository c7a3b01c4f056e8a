"""Result rows as data frames that print in a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

SHOWN_ROWS = 12
ALWAYS = ("metric", "value", "ci_low", "ci_high", "baseline", "advantage", "verdict")
WHERE = ("victim", "update", "weighting", "defense", "adversary", "attack", "rounds", "scale")


class Results(pd.DataFrame):
    """A data frame of result rows whose text is short: the main columns of the first rows.

    Nothing else differs from a data frame, and what is made from it is one.
    """

    def __repr__(self) -> str:
        """The main columns of the first rows, and how many there are."""
        shown = [name for name in WHERE if name in self and self[name].nunique() > 1]
        shown += [name for name in ALWAYS if name in self]
        chosen = pd.DataFrame(self)[shown or list(self.columns)]
        text = chosen.head(SHOWN_ROWS).to_string(
            index=False, float_format="%.3f", na_rep="-", max_colwidth=40
        )
        left = f", the first {SHOWN_ROWS} shown" if len(self) > SHOWN_ROWS else ""
        return f"{text}\n[{len(self)} rows x {self.shape[1]} columns{left}]"

    def _repr_html_(self) -> None:
        """Notebooks show the same text."""


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Make a data frame of tidy rows; None and NaN are both missing."""
    return Results(list(rows), columns=None if columns is None else list(columns))
