"""The differential privacy that Laplace noise on clipped rows gives: of one row, and of one client.

Two recordings are neighbours if they differ in the values of one client's ratings and attributes. The set
of rated items is not protected: in observed-only it is in the clear, in include-unrated all items are
uploaded either way. A row of K coordinates that is clipped to L1 norm C moves by at most 2 C, so noise of
scale b makes it 2 C / b - private (Dwork, McSherry, Nissim, Smith 2006, Proposition 1). One rating enters
its own row and, through p_i, every other row of its client; the bound of one rating is therefore that of
the client, except where p_i does not depend on it yet (the first round of sgd), where one row moves.
m rows in T rounds compose m T times: by the plain sum, and by the privacy loss distribution
(dp-accounting; Sommer, Meiser, Mohammadi 2019, doi:10.2478/popets-2019-0029), for which the
one-dimensional Laplace pair at distance 2 C dominates a row's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from victims.errors import InputError

DELTA = 1e-5
NOT_HIDDEN = {
    "observed-only": (
        "which items a client rated: the uploads name them",
        "what repeats: the noise is fresh in every round, the ratings stay, so T rounds average it",
        "the direction that all rows of a client share: many rows tell it",
    ),
    "include-unrated": (
        "what repeats: the noise is fresh in every round, the ratings stay, so T rounds average it",
        "the direction that all rows of a client share: one row per item tells it",
    ),
}
CELLS = 2_000_000  # of the discretised privacy loss


@dataclass(frozen=True)
class Account:
    """What a number of noisy rows gives away at most.

    Attributes
    ----------
    rows : int
        Uploaded rows, all rounds together.
    plain : float
        Epsilon with delta = 0, the plain sum. Infinite without clipping.
    composed : float
        Epsilon at ``delta`` from the privacy loss distribution, never above the plain sum.
    delta : float
    """

    rows: int
    plain: float
    composed: float
    delta: float


def account(scale: float, clip: float | None, rows: int, rounds: int = 1, delta: float = DELTA) -> Account:
    """The account of ``rows`` rows in each of ``rounds`` rounds.

    Parameters
    ----------
    scale : float
        b >= 0.
    clip : float or None
        L1 norm to which rows are clipped; None gives no finite epsilon.
    rows, rounds : int
        >= 1.
    delta : float
        In 0..1, exclusive.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> account(scale=2.0, clip=1.0, rows=1).plain
    1.0
    >>> account(scale=2.0, clip=None, rows=1).plain
    inf
    """
    rules = {
        "scale": (scale >= 0, ">= 0", scale),
        "rows": (rows >= 1, ">= 1", rows),
        "rounds": (rounds >= 1, ">= 1", rounds),
        "delta": (0 < delta < 1, "between 0 and 1", delta),
    }
    for name, (holds, rule, value) in rules.items():
        if not holds:
            raise InputError(f"the account's {name} must be {rule}, got {value!r}")
    count = rows * rounds
    if clip is None or scale == 0:
        return Account(count, float("inf"), float("inf"), delta)
    single = 2 * clip / scale
    return Account(count, single * count, _composed(single, count, delta), delta)


def _composed(single: float, count: int, delta: float) -> float:
    """Epsilon of ``count`` Laplace mechanisms of epsilon ``single`` each."""
    from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

    total = single * count
    step = max(single / 100, total / CELLS)
    if step > single:  # the grid is too coarse to do better than the sum
        return total
    loss = from_laplace_mechanism(1 / single, value_discretization_interval=step)
    return min(total, float(loss.self_compose(count).get_epsilon_for_delta(delta)))


def rows_of_account(defense: dict[str, Any], counts: dict[str, int], rounds: int) -> list[dict[str, Any]]:
    """The account of a manifest's defense for clients of several sizes, one mapping for each.

    Parameters
    ----------
    defense : mapping
        ``{"name": "laplace", "scale": b, "clip": C}`` as in a manifest, or with what is not public.
    counts : mapping of label to rows per round
    rounds : int
    """
    table = []
    for label, count in counts.items():
        for length in dict.fromkeys((1, rounds)):
            found = account(defense["scale"], defense.get("clip"), count, length)
            table.append(
                {
                    "who": label,
                    "rows": count,
                    "rounds": length,
                    "plain": found.plain,
                    "composed": found.composed,
                    "delta": found.delta,
                }
            )
    return table
