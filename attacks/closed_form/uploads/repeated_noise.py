"""Whether the noise on a client's rows is the same in two rounds: drawn once, or anew from the same seed.

A row of round t is e p^t + x, and the rows e p^t of a client lie in one direction. What is off it is noise.
Where x is the same in the next round, the difference of the rows is a combination of p^t and p^{t+1}, and
nothing is off this plane; noise that is drawn anew is off it as much as in the rows themselves. Nobody has to
say which noise it is, or that there is any.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.closed_form.uploads.common_items import with_common_items
from attacks.closed_form.uploads.reduction import freed
from victims.transcript.view import Uploads, View

ENOUGH = 200  # clients that are looked at
FEWEST_ROWS = 4  # of a client, one more than a plane needs
CLEAN = 1e-5  # share of the rows off their direction, up to which they have no noise
SAME = 0.1  # of the size of the noise in the rows, that differences may have off their plane


def noise_repeats(view: View) -> bool:
    """Tell whether rows have noise that is the same in two consecutive rounds."""
    if view.manifest.factors <= 2:
        return False
    view = with_common_items(view)
    rows_off = differences_off = energy = 0.0
    asked = 0
    for batch in view.batches():
        for now, then in zip(batch.rounds[:-1], batch.rounds[1:], strict=True):
            if then.round == now.round + 1:
                found = _sizes(now, then, view.manifest.upload.regularization)
                rows_off, differences_off, energy = (
                    total + more
                    for total, more in zip((rows_off, differences_off, energy), found, strict=True)
                )
        asked += batch.users.size
        if asked >= ENOUGH:
            break
    return rows_off > CLEAN**2 * energy and differences_off < SAME**2 * rows_off


def _sizes(now: Uploads, then: Uploads, regularization: float) -> tuple[float, float, float]:
    """Mean squares, summed over clients: off the rows' direction, of differences off their plane, of rows."""
    width = min(now.gradients.shape[1], then.gradients.shape[1])
    valid = np.broadcast_to(now.valid, now.gradients.shape[:2])[:, :width]
    count = valid.sum(axis=1)
    usable = now.same_list(then) & (count >= FEWEST_ROWS)
    first, second = (freed(part, regularization)[usable, :width] for part in (now, then))
    n, k = count[usable], first.shape[2]
    with np.errstate(over="ignore", invalid="ignore"):
        off, energy = _off(first, 1)
        left, _ = _off(second - first, 2)
        sizes = off / ((n - 1) * (k - 1)), left / (2 * (n - 2) * (k - 2)), energy / (n * k)
    fit = np.isfinite(sizes).all(axis=0)
    rows_off, differences_off, whole = (float(part[fit].sum()) for part in sizes)
    return rows_off, differences_off, whole


def _off(
    rows: Float[np.ndarray, "users rows K"], dimensions: int
) -> tuple[Float[np.ndarray, " users"], Float[np.ndarray, " users"]]:
    """Energy of rows off their leading direction or plane, and all of it."""
    gram = np.matmul(rows.transpose(0, 2, 1), rows)
    finite = np.isfinite(gram).all(axis=(1, 2))
    values = np.linalg.eigvalsh(np.where(finite[:, None, None], gram, 0))
    whole = np.where(finite, values.sum(axis=1), np.nan)
    return np.maximum(whole - values[:, -dimensions:].sum(axis=1), 0), whole
