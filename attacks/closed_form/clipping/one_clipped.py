"""Rows of a client of which the longest alone is off the grid: clipped, or something else.

Beyond Chai et al. 2021 and Hu & Fang 2023, for programs that clip errors or rows one by one. Two rows that
were clipped are equally long, which shows (``attacks.closed_form.grid.grid_reading``); one alone looks like
any other. But all others of the client are on the grid to the last digit then, whatever it holds, and nothing
else puts so many there. It is left open here; all clients together tell of a bound
(``attacks.closed_form.clipping.common_bound``).

What it assumes: one step, or a step after every rating; exact rows, five of them beside the longest.
"""

from __future__ import annotations

import numpy as np

from attacks.closed_form.grid.grid_reading import read
from attacks.closed_form.rows.row_readings import LONGEST, one_step, several_steps
from attacks.closed_form.rows.weighted_zeros import HALF
from attacks.closed_form.uploads.readings import Reading, Rows, fitting_better, nothing
from victims.transcript.manifest import Manifest

FEWEST = 5  # rows on the grid to the last digit, where two numbers are open and one row is left out


def reading_of_one_clipped(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients whose rows but the longest are on the grid to the last digit."""
    best = nothing(rows.item.shape)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ideas = [one_step(rows)]
        if rows.rows.shape[1] <= LONGEST:
            ideas.append(several_steps(rows))
        for numbers in ideas:
            size = np.abs(numbers.scalar) * numbers.there
            longest = size >= (1 - rows.precision**HALF) * size.max(axis=1, initial=0.0)[:, None]
            there = numbers.there & ~longest
            whole = numbers.whole & (there.sum(axis=1) >= FEWEST)
            found = read(numbers._replace(there=there, whole=whole), rows, manifest, max_misfit)
            inexact = ~(found.misfit <= rows.precision**HALF)
            found = found._replace(misfit=np.where(inexact, np.nan, found.misfit))
            best = fitting_better(best, found)
    return best
