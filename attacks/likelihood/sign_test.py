"""Whether uploads can be told from noise, whatever the clients' rule is.

If rows are nothing but independent noise that is symmetric around 0, flipping the sign of any of their
coordinates changes nothing about their law. Rows of a client that share a direction lose it. So the share of
each client's energy that lies along its leading direction, summed over clients, is compared with the same of
rows whose signs were flipped at random: an exact randomisation test (Phipson and Smyth 2010,
doi:10.2202/1544-6115.1585, for the p-value). It needs no law, no scale and no update rule, so an attack whose
model fails on uploads that have a structure cannot call them noise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from attacks.closed_form.uploads.reduction import freed
from victims.transcript.view import View

FLIPS = 199
MOST_CLIENTS = 200  # clients that are looked at; fewer where they have many rows
MOST_NUMBERS = 4_000_000  # coordinates that are looked at
LEVEL = 0.01


def has_structure(view: View, rng: np.random.Generator) -> bool:
    """Whether rows of the same client have a direction in common, at a level of 1 %.

    References
    ----------
    Phipson and Smyth 2010, doi:10.2202/1544-6115.1585.
    """
    return p_value(view, rng) <= LEVEL


def p_value(view: View, rng: np.random.Generator) -> float:
    """Probability of as much common direction in rows whose signs were flipped at random.

    References
    ----------
    Phipson and Smyth 2010, doi:10.2202/1544-6115.1585.
    """
    per_client = view.messages.n_rows * view.manifest.factors / max(view.users.size, 1)
    most = int(min(MOST_CLIENTS, max(1, MOST_NUMBERS // max(per_client, 1))))
    if view.users.size > most:
        view = view.select(np.sort(rng.choice(view.users, most, replace=False)))
    seen, flipped = 0.0, np.zeros(FLIPS)
    for rows in _rows(view):
        seen += float(_along(rows).sum())
        signs = np.array([-1.0, 1.0])
        for flip in range(FLIPS):
            flipped[flip] += float(_along(rows * rng.choice(signs, rows.shape)).sum())
    # sums of the same terms in another order may differ in the last bits
    return float((1 + np.sum(flipped >= seen * (1 - 1e-12))) / (1 + FLIPS))


def _rows(view: View) -> Iterator[Float[np.ndarray, "users rows K"]]:
    for batch in view.batches():
        for uploads in batch.rounds:
            rows = _squarable(freed(uploads, view.manifest.upload.regularization))
            finite = np.isfinite(np.einsum("urk,urk->u", rows, rows))
            yield rows[finite]


def _squarable(rows: Float[np.ndarray, "users rows K"]) -> Float[np.ndarray, "users rows K"]:
    """Rows of a size whose square does not overflow: the largest number of each client is 1."""
    largest = np.abs(rows).max(axis=(1, 2), initial=0)
    return rows / np.where(largest > 0, largest, 1)[:, None, None]


def _along(rows: Float[np.ndarray, "users rows K"]) -> Float[np.ndarray, " users"]:
    """Share of each client's energy along its leading direction; 0 for a client of zeros."""
    gram = np.matmul(rows.transpose(0, 2, 1), rows)
    energy = np.trace(gram, axis1=1, axis2=2)
    return np.linalg.eigvalsh(gram)[:, -1] / np.where(energy > 0, energy, 1)
