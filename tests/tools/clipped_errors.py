"""What is answered of clipped errors in rounded rows: ``python -m tests.tools.clipped_errors``.

One recording for each rule, seed and rounding. Exits with 1 where more than one answer of a thousand is
wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyarrow import feather

from tests.oracles.rule_programs import Recording
from tests.tools.programs import BAR, answers

RULES = ("clipped-error", "clipped-error-per-rating")


def significant(rows: np.ndarray, digits: int) -> np.ndarray:
    """Rounded to so many digits."""
    unit = 10.0 ** (np.floor(np.log10(np.abs(rows), where=rows != 0, out=np.zeros(rows.shape))) + 1 - digits)
    return np.round(rows / unit) * unit


ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda rows: rows,
    "float32": lambda rows: rows.astype(np.float32),
    "float16": lambda rows: rows.astype(np.float16),
    **{f"{n} decimals": lambda rows, n=n: rows.round(n) for n in range(2, 7)},
    **{f"{n} digits": lambda rows, n=n: significant(rows, n) for n in range(2, 6)},
}


def round_rows(path: Path, rounding: str) -> None:
    """Round what clients of a recording sent."""
    file = path / "messages.arrow"
    table = feather.read_table(file, memory_map=False)
    place = table.schema.get_field_index("gradient")
    column = table.column(place).combine_chunks()
    rows = ROUNDINGS[rounding](column.values.to_numpy().astype(float)).astype(float)
    rounded = pa.FixedSizeListArray.from_arrays(
        pa.array(rows).cast(column.type.value_type), column.type.list_size
    )
    changed = table.set_column(place, table.schema.field(place), rounded)
    feather.write_feather(changed, file, compression="uncompressed")


def main() -> None:
    """Print how many ratings there are, are answered, and are answered wrongly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=12, help="seeds")
    parser.add_argument("--first", type=int, default=100, help="the first of them")
    given = parser.parse_args()
    there = answered = wrong = 0
    for rule in RULES:
        for seed in range(given.first, given.first + given.count):
            for rounding in ROUNDINGS:
                with TemporaryDirectory() as folder:
                    ratings = Recording(rule, seed=seed).record(Path(folder) / "t")
                    round_rows(Path(folder) / "t", rounding)
                    many, bad = answers(Path(folder) / "t", ratings)
                there, answered, wrong = there + int((ratings > 0).sum()), answered + many, wrong + bad
                if bad:
                    print(f"{rule}, seed {seed}, {rounding}: {bad} of {many} answers are wrong", flush=True)
    print(f"{there:,} ratings, {answered:,} answered, {wrong:,} wrong")
    raise SystemExit(wrong > BAR * answered)


if __name__ == "__main__":
    main()
