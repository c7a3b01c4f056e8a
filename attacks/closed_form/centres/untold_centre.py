"""What a program takes off every rating, neither nothing nor the lowest level: the mean, the middle, 3.53.

Each client's rows are read as ratings less some number (``attacks.closed_form.centres.centred``), and all
clients together tell one number (``attacks.closed_form.centres.mirrored``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from attacks.closed_form.centres.centred import Centred, even, read_centred
from attacks.closed_form.centres.mirrored import NEAR, centre_of, has_other_mirror, higher_centre, patterns_of
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.readings import Rows, some_of

ABLE = 6  # ratings of a client that can be read alone
FEWEST_TOLD = 3  # clients that must be read so
BEYOND, FEWEST_BEYOND = 0.1, 2  # clients that the grid is too short for, of those told, and how many at least


def untold_centre(
    asked: Sequence[Rows], n_answered: int, levels: Float[np.ndarray, " levels"]
) -> tuple[float, float]:
    """Say what the program takes off every rating where that is neither nothing nor the lowest level."""
    plain = (0.0, 1.0)
    if not even(levels) or any((rows.offset != 0).any() for rows in asked):
        return plain
    no_items = np.zeros((1, 1), int)
    read = [(read_centred(rows, levels), no_items) for rows in asked]
    told = sum(int(found.told.sum()) for found, _ in read)
    if told < max(FEWEST_TOLD, 2 * n_answered):
        return plain
    beyond = sum(_beyond(rows, found, levels) for rows, (found, _) in zip(asked, read, strict=True))
    if beyond >= max(FEWEST_BEYOND, BEYOND * told):  # steps finer than the grid's, not less a number
        return plain
    found = patterns_of(read, levels.size)
    centre = centre_of(found, levels)
    mirror = levels[0] + levels[-1] - centre.value
    if any(abs(one - usual) < NEAR for one in (centre.value, mirror) for usual in (0.0, levels[0])):
        return plain
    if centre.placed and has_other_mirror(centre.value, levels):
        return higher_centre(found, centre.value, levels)
    return np.nan, 1.0


def _beyond(rows: Rows, found: Centred, levels: Float[np.ndarray, " levels"]) -> int:
    """How many whom the grid does not tell are told by one that goes on, over more levels than it has."""
    longer = levels[0] + step_of(levels) * np.arange(2 * levels.size - 1)
    if not even(longer):
        return 0
    open_ = ~found.told & (rows.item.sum(axis=1) >= ABLE)
    again = read_centred(some_of(rows, open_), longer, linear=True)
    return int((again.told & (again.reach >= levels.size)).sum())
