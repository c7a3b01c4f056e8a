"""What the rows of one round may be, each idea asked by itself: sums, means of a step, biases, links.

An attack takes the first reading that answers; here all are asked, so that what two of them explain equally
well is not called either. A reading explains a client where its ratings lie on the grid to the rows' digits
and no other numbers put them there (``attacks.closed_form.chains.chain_readings``). Its evidence is how
improbable that is by chance: every rating beyond the open numbers would lie so near to the grid with a
probability of ``misfit``, so that it counts as log(1 / misfit) nats, to the digits that ratings keep.

Where no exact idea explains most clients, rows may be linear in ratings with noise, as minibatches in any
order leave them (``attacks.linear_forms``): one idea more, whose evidence is what all clients together say of
ratings against other numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.chains.chain_readings import (
    CLIPPED,
    CLIPPED_MEAN,
    LINK_OF_MEAN,
    MEAN,
    MEAN_AND_BIAS,
    MEAN_AND_NEW_BIAS,
    NEW_BIAS,
    OWN_BIAS,
    batch_sizes,
    candidates,
)
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.links.links import LINKS
from attacks.closed_form.noisy_recording import clients_with_noise
from attacks.closed_form.uploads.common_scale import common
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from victims.transcript.view import View

MAX_MISFIT = 0.1  # of readings that rules are learned from
MOST = 0.5  # of the clients, that a rule must explain
NOISY = "linear in ratings, with noise"
SQUARED: dict[str, Any] = {"loss": "squared", "link": "identity"}
OF_MEANS = (  # of one rating they are sums
    MEAN,
    CLIPPED_MEAN,
    MEAN_AND_NEW_BIAS,
    MEAN_AND_BIAS,
    LINK_OF_MEAN,
)
BESIDE_BIAS = (NEW_BIAS, MEAN_AND_NEW_BIAS, OWN_BIAS, MEAN_AND_BIAS)
OF_LINK: tuple[dict[str, Any], ...] = (
    {"loss": "logistic", "link": "sigmoid"},
    {"loss": "logistic", "link": "sigmoid"},
    {"loss": "squared", "link": "sigmoid"},
    {"loss": "squared", "link": "sigmoid"},
    {"loss": "squared"},  # the format has no word for a sigmoid that ends above the highest level
)


NOBODY: Float[np.ndarray, " clients"] = np.zeros(0)


class RowFit(NamedTuple):
    """One idea of what rows are, and how it does."""

    name: str
    rule: dict[str, Any]  # what it says, as keys of the manifest's ``rule``
    numbers: int  # that are open, of each client
    clients: int  # how many it explains, of how many
    looked_at: int
    nats: float  # evidence against chance, in the middle of those clients; NaN where it is not counted
    # what multiplies the rows of each, NaN where that is not told, and how many it has
    scale: Float[np.ndarray, " clients"] = NOBODY
    n_rated: Float[np.ndarray, " clients"] = NOBODY

    @property
    def explains(self) -> bool:
        """Whether it explains enough of them."""
        return self.clients >= MOST * self.looked_at > 0

    def __str__(self) -> str:
        """What people read."""
        nats = "" if np.isnan(self.nats) else f", {self.nats:.0f} nats"
        return f"{self.name} ({self.clients} of {self.looked_at} clients{nats})"


class _One(NamedTuple):
    """What one idea says of one client."""

    steps: int
    batch: int
    nats: float
    scale: float
    n_rated: int
    largest: float


def row_fits(view: View, lowered: float, pull: float) -> list[RowFit]:
    """Ask every idea about the last round of a view."""
    told: dict[tuple[str, str], list[_One]] = {}
    numbers: dict[str, int] = {}
    levels = np.array(view.manifest.rating_levels)
    for batch in view.batches(BATCH_BYTES):
        rows = rows_of(view.manifest, batch.rounds[-1], None, lowered, pull)
        if not rows.rows.shape[1]:
            continue
        with np.errstate(all="ignore"):
            chain = chain_of(rows)
            sizes = batch_sizes(chain.step)
            n_rated = rows.item.sum(axis=1)
            for one in candidates(chain, rows, levels, MAX_MISFIT):
                able = one.able & (sizes.max(axis=1) > 1) if one.name in OF_MEANS else one.able
                users = np.flatnonzero(able)
                if not users.size:
                    continue
                found, link = one.read(users)
                nats = -np.log(np.maximum(found.misfit, rows.precision**BARS.half))
                nats = nats * np.maximum(n_rated[users] - one.numbers, 0)
                scale = 1 / (found.of_error * found.of_factor)
                for at in np.flatnonzero(found.answered & (found.misfit < 1)).tolist():
                    user = users[at]
                    named = LINKS[link[at]] if link[at] >= 0 else ""
                    numbers[one.name] = one.numbers
                    size = np.abs(chain.scalar[user]) * (sizes[user] if one.name in OF_MEANS else 1)
                    alone = _One(
                        int(chain.n_steps[user]),
                        int(sizes[user].max()),
                        nats[at],
                        scale[at],
                        n_rated[user],
                        float(np.abs(found.of_error[at]) * size.max()),
                    )
                    told.setdefault((one.name, named), []).append(alone)
    fits = [_joined(*key, numbers[key[0]], own, view.users.size) for key, own in told.items()]
    return sorted(fits, key=lambda fit: (fit.numbers, -fit.clients))


def _joined(name: str, link: str, numbers: int, told: list[_One], looked_at: int) -> RowFit:
    """What one idea says of all clients that it explains."""
    rule = dict(OF_LINK[LINKS.index(link)] if link else SQUARED)
    rule |= {"client_biases": True} if name in BESIDE_BIAS else {}
    rule |= {"reduction": "mean"} if name in OF_MEANS else {}
    steps, batch, nats, scale, n_rated, largest = (
        np.array(column, float) for column in zip(*told, strict=True)
    )
    rule |= _steps(steps, batch)
    bound, share = common(largest)
    if name in (CLIPPED, CLIPPED_MEAN) and share > MOST:
        bound = float(f"{bound:.4g}")  # rows in single precision tell no more
        rule["clip"] = [-bound, bound]
    if name not in OF_MEANS and rule.get("batch_size") not in (None, 1, "all"):
        rule["reduction"] = "sum"
    middle = float(np.median(nats))
    return RowFit(link or name, rule, numbers, len(told), looked_at, middle, scale, n_rated)


def _steps(steps: np.ndarray, batch: np.ndarray) -> dict[str, Any]:
    """Order and minibatches that most clients show."""
    several = steps > 1
    if np.mean(~several) > MOST:
        return {"order": "batch", "batch_size": "all", "local_steps": 1}
    if np.mean(batch[several] == 1) > MOST:
        return {"order": "per-rating", "batch_size": 1, "local_steps": 1}
    size = int(np.median(batch[several]))
    if np.mean(batch[several] == size) > MOST:
        return {"order": "batch", "batch_size": size, "local_steps": 1}
    return {}


def noise_fit(view: View) -> RowFit | None:
    """Rows of the last round as a linear form of ratings, with noise; None where no ratings show."""
    if (found := clients_with_noise(view, 0)) is None:
        return None
    n_clients, nats = found
    return RowFit(NOISY, {}, 0, n_clients, view.users.size, nats)
