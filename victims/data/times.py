"""When ratings were given: seconds since 1970, or dates as text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Bool, Float

EARLIEST, LATEST = -2_208_988_800.0, 4_102_444_800.0  # 1900 and 2100, seconds
MILLISECONDS = 1e3  # timestamps beyond the latest that are plausible as milliseconds are read as such


def seconds_of(column: pa.Array) -> tuple[Float[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
    """Read a column of times.

    Examples
    --------
    >>> seconds_of(pa.array(["881250949", "2018-07-07 22:09:11", ""]))[0].tolist()
    [881250949.0, 1531001351.0, nan]
    """
    if isinstance(column, pa.DictionaryArray):
        column = column.cast(column.type.value_type)
    if pa.types.is_temporal(column.type):
        dates = pd.Series(column.to_pandas(date_as_object=False))
        seconds = _of_dates(pd.to_datetime(dates, utc=True, errors="coerce"))
        return seconds, ~dates.isna().to_numpy() & ~((seconds >= EARLIEST) & (seconds <= LATEST))
    cells = pd.Series(column.to_pandas())
    empty = cells.isna() | (cells.astype(str).str.strip() == "")
    seconds = pd.to_numeric(cells.mask(empty), errors="coerce").to_numpy(np.float64, copy=True)
    text = np.isnan(seconds) & ~empty.to_numpy()
    if text.any():
        dates = pd.to_datetime(cells[text].astype(str), utc=True, errors="coerce", format="ISO8601")
        seconds[text] = _of_dates(dates)
    empty |= seconds == 0  # how data sets write that they do not know
    seconds[empty] = np.nan
    late = (np.abs(seconds) > LATEST) & ~text
    seconds[late] /= MILLISECONDS
    bad = ~empty.to_numpy() & ~((seconds >= EARLIEST) & (seconds <= LATEST))
    return seconds, bad


def _of_dates(dates: pd.Series) -> Float[np.ndarray, " rows"]:
    # milliseconds hold every year that text can name; nanoseconds end in 2262
    moments = dates.dt.tz_localize(None).to_numpy().astype("datetime64[ms]")
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / MILLISECONDS)
