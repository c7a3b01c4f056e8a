"""The tidy result table: one row per cell and metric; failed and inapplicable cells are rows too."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from victims.common.files import replacing, write_text

COLUMNS = (
    "victim", "update", "weighting", "data", "defense", "adversary", "attack", "rounds", "seed",
    "metric", "value", "ci_low", "ci_high", "baseline", "baseline_name", "ceiling", "advantage",
    "n_users", "n_abstained", "status", "reason", "seconds", "bytes",
    "advantage_low", "advantage_high", "p_value", "verdict", "ceiling_ml", "ceiling_map",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # with which spreadsheets let a formula begin
Row = dict[str, Any]


def make_row(**values: Any) -> Row:
    """Make a row with every column; what is not given is NaN, or empty for words.

    Parameters
    ----------
    values : Any
        By the names of ``COLUMNS``.

    Returns
    -------
    Row
        Its keys are ``COLUMNS`` in their order.

    Raises
    ------
    KeyError
        If a name is no column.
    """
    unknown = set(values) - set(COLUMNS)
    if unknown:
        raise KeyError(f"no such result columns: {sorted(unknown)}")
    words = {"baseline_name", "reason", "verdict", "status", "defense"}
    return {name: values.get(name, "" if name in words else float("nan")) for name in COLUMNS}


def columns_of(rows: Sequence[Row]) -> list[str]:
    """List the columns of rows: those of the contract, then what a command has beside them.

    Parameters
    ----------
    rows : sequence of Row

    Returns
    -------
    list of str
    """
    return list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)]))


def write_results(rows: list[Row], directory: Path) -> None:
    """Write ``results.json``, ``results.csv`` and ``results.parquet``, each one whole or not at all.

    In the CSV a text that a spreadsheet would take for a formula stands behind an apostrophe; the other two
    hold it as it is.

    Parameters
    ----------
    rows : list of Row
        One per cell and metric.
    directory : Path
        Made where it does not exist.

    Raises
    ------
    OutputError
        If a file cannot be written.
    """
    import pandas as pd  # which takes a second to import

    frame = pd.DataFrame(rows, columns=columns_of(rows))
    text = json.dumps([finite(row) for row in rows], indent=1) + "\n"
    write_text(directory / "results.json", text)
    with replacing(directory / "results.csv") as partial:
        frame.map(_no_formula).to_csv(partial, index=False)
    with replacing(directory / "results.parquet") as partial:
        frame.to_parquet(partial, index=False)


def _no_formula(cell: Any) -> Any:
    """A cell that a spreadsheet shows and does not evaluate."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def finite(row: Mapping[str, Any]) -> Row:
    """Replace NaN and infinities of a row by null, as JSON has none.

    Parameters
    ----------
    row : mapping of str to Any
        Left as it is.

    Returns
    -------
    Row
        With None for every float that is not finite.
    """
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
