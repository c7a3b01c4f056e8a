"""The tidy result table: one row per cell and metric; failed and inapplicable cells are rows too."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
    """Make a row with every column; what is not given is NaN, or empty for words."""
    unknown = set(values) - set(COLUMNS)
    if unknown:
        raise KeyError(f"no such result columns: {sorted(unknown)}")
    words = {"baseline_name", "reason", "verdict", "status", "defense"}
    return {name: values.get(name, "" if name in words else float("nan")) for name in COLUMNS}


def columns_of(rows: Sequence[Row]) -> list[str]:
    """List the columns of rows: those of the contract, then what a command has beside them."""
    return list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)]))


def write_results(rows: list[Row], directory: Path) -> None:
    """Write ``results.json``, ``results.csv`` and ``results.parquet``, each one whole or not at all.

    In the CSV a text that a spreadsheet would take for a formula stands behind an apostrophe; the other two
    hold it as it is.
    """
    columns = {name: [_known(row.get(name)) for row in rows] for name in columns_of(rows)}
    text = json.dumps([finite(row) for row in rows], indent=1) + "\n"
    write_text(directory / "results.json", text)
    with replacing(directory / "results.csv") as partial, partial.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(map(_no_formula, zip(*columns.values(), strict=True)))
    with replacing(directory / "results.parquet") as partial:
        pq.write_table(pa.table({name: _column(cells) for name, cells in columns.items()}), partial)


def _known(cell: Any) -> Any:
    """A cell as Python has it; None where there is nothing."""
    plain = cell.item() if isinstance(cell, np.generic) else cell
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _column(cells: list[Any]) -> pa.Array:
    return pa.array(cells, None if any(cell is not None for cell in cells) else pa.float64())


def _no_formula(cells: Sequence[Any]) -> list[Any]:
    """Cells that a spreadsheet shows and does not evaluate."""
    return [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in cells]


def finite(row: Mapping[str, Any]) -> Row:
    """Replace NaN and infinities of a row by null, as JSON has none."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
