"""The tidy result table: one row per cell and metric; failed and inapplicable cells are rows too."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

COLUMNS = (
    "victim", "update", "weighting", "data", "defense", "adversary", "attack", "rounds", "seed",
    "metric", "value", "ci_low", "ci_high", "baseline", "baseline_name", "ceiling", "advantage",
    "n_users", "n_abstained", "status", "reason", "seconds", "bytes",
    "advantage_low", "advantage_high", "p_value", "verdict", "ceiling_ml", "ceiling_map",
)  # fmt: skip
Row = dict[str, Any]


def make_row(**values: Any) -> Row:
    """A row with every column; what is not given is NaN, or empty for words."""
    unknown = set(values) - set(COLUMNS)
    if unknown:
        raise KeyError(f"no such result columns: {sorted(unknown)}")
    words = {"baseline_name", "reason", "verdict", "status", "defense"}
    return {name: values.get(name, "" if name in words else float("nan")) for name in COLUMNS}


def write_results(rows: list[Row], directory: Path) -> None:
    """Write ``results.json``, ``results.csv`` and ``results.parquet``, each one atomically."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    directory.mkdir(parents=True, exist_ok=True)

    def replace(name: str, write: Any) -> None:
        partial = directory / f"{name}.partial"
        write(partial)
        partial.replace(directory / name)

    text = json.dumps([finite(row) for row in rows], indent=1) + "\n"
    replace("results.json", lambda path: path.write_text(text, encoding="utf-8"))
    replace("results.csv", lambda path: frame.to_csv(path, index=False))
    replace("results.parquet", lambda path: frame.to_parquet(path, index=False))


def finite(row: Mapping[str, Any]) -> Row:
    """The row with null for NaN, as JSON has none."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
