"""What multiplies the rows of all clients, where nobody declares it: one number, or one over their ratings.

Means over minibatches of b ratings are neither: it is value / n for a client of n <= b ratings, value / b for
whole minibatches, and value where a chain (``attacks.closed_form.chains.chain_readings``) was read as means.

A client's own rows leave multiples of its ratings open (r and r / 2 with another scale). Clients who are read
without knowing the scale tell it, each for itself; where most of them agree, it is known for the others, too,
among them those with few ratings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

ALIKE = 1e-3  # relative, within which two constants are one
MOST = 0.5  # of the clients that must agree
FEWEST = 3  # clients that tell a common scale
# clients with another scale than the declared one, if nobody has that; ratings of one that is enough alone
DENYING, DENYING_ALONE = 2, 6


class Scale(NamedTuple):
    """sigma of a client with n ratings: value, or value / n where rows are means; the share that agrees.

    Of means over minibatches, ``batch`` is the number of their ratings; it is infinite otherwise.
    """

    reduction: str
    value: float
    share: float
    batch: float = np.inf

    def like(self, other: Scale) -> bool:
        """Whether both are one."""
        if self.reduction != other.reduction or self.batch != other.batch:
            return False
        return abs(self.value - other.value) <= ALIKE * abs(other.value)

    def of(self, n_rated: Float[np.ndarray, " users"]) -> Float[np.ndarray, " users"]:
        """sigma of clients with so many ratings; NaN where the last minibatch has another than the rest."""
        if self.reduction != "mean":
            return np.full(n_rated.shape, self.value)
        uneven = (n_rated > self.batch) & (n_rated % self.batch > 0)
        return np.where(uneven, np.nan, self.value / np.minimum(n_rated, self.batch))


class Told(NamedTuple):
    """sigma of clients that were read without knowing it, the number of their ratings, and of their steps."""

    scale: Float[np.ndarray, " clients"]
    n_rated: Float[np.ndarray, " clients"]
    steps: Float[np.ndarray, " clients"]


def shown_scale(told: Told) -> Scale | None:
    """The scale that most clients share, of means over minibatches, too.

    Examples
    --------
    >>> n_rated, steps = np.array([2.0, 4.0, 8.0, 9.0]), np.array([1.0, 1.0, 2.0, 3.0])
    >>> shown_scale(Told(np.array([0.5, 0.25, 0.25, 1.0]), n_rated, steps))
    Scale(reduction='mean', value=1.0, share=1.0, batch=4.0)
    >>> n_rated, steps = np.array([6.0, 9.0, 8.0, 11.0]), np.array([2.0, 3.0, 2.0, 3.0])
    >>> shown_scale(Told(np.array([1.0, 1.0, 0.25, 1.0]), n_rated, steps))
    Scale(reduction='mean', value=1.0, share=1.0, batch=4.0)
    """
    found = [_of_sums_or_means(told), _of_minibatches(told)]
    return max((one for one in found if one is not None), key=lambda one: one.share, default=None)


def _of_sums_or_means(told: Told) -> Scale | None:
    """The scale of most clients; none where most of those who take one step have another.

    Several steps that were read as means of each have the scale of a single rating.
    """
    found = common_scale(told.scale, told.n_rated)
    alone = told.steps == 1
    if found is None or not alone.any():
        return found
    off = np.abs(told.scale / found.of(told.n_rated) - 1) > ALIKE
    return None if off[alone].mean() > MOST else found


def _of_minibatches(told: Told) -> Scale | None:
    """The same of means over minibatches, where clients of one and of several of them tell one size.

    Where nobody takes a single step, clients of whole minibatches alone tell it: others are read with the
    scale of a sum.
    """
    one, several = told.steps == 1, told.steps > 1
    if told.scale.size < FEWEST or not several.any():
        return None
    value, _ = common((told.scale * told.n_rated)[one] if one.any() else told.scale)
    sizes = np.arange(2.0, told.n_rated[several].max())
    if not sizes.size:
        return None
    each = sizes[:, None]
    whole, mean = (np.abs(told.scale * by / value - 1) <= ALIKE for by in (each, np.ones_like(each)))
    even = told.n_rated % each == 0
    if not one.any():
        whole, mean = whole & even, mean & ~even
    alone = (np.abs(told.scale * told.n_rated / value - 1) <= ALIKE) & (told.n_rated <= each)
    fits = np.where(several, (whole | mean) & (np.ceil(told.n_rated / each) == told.steps), one & alone)
    share = fits.mean(axis=1)
    best = int(share.argmax())
    if share[best] < MOST or (share == share[best]).sum() > 1 or not fits[best, several].any():
        return None
    if not one.any() and not (fits & whole)[best].any():
        return None
    return Scale("mean", value, float(share[best]), float(sizes[best]))


def contradicted(declared: Scale, told: Told) -> bool:
    """Tell whether clients are read with another scale than that, and none with it.

    Several, or one with ratings enough that it is no accident: of who fits the declared scale, and any other
    as well, that says nothing then.

    Examples
    --------
    >>> two = Told(np.array([0.2, 0.25]), np.array([5.0, 4.0]), np.ones(2))
    >>> contradicted(Scale("sum", 1.0, 1.0), two), contradicted(Scale("mean", 1.0, 1.0), two)
    (True, False)
    >>> one = [Told(np.array([0.2]), np.array([n_rated]), np.ones(1)) for n_rated in (5.0, 12.0)]
    >>> [contradicted(Scale("sum", 1.0, 1.0), told) for told in one]
    [False, True]
    """
    off = np.abs(told.scale / declared.of(told.n_rated) - 1) > ALIKE
    enough = off.size >= DENYING or (told.n_rated >= DENYING_ALONE).any()
    return bool(enough and off.all())


def common_scale(
    scale: Float[np.ndarray, " clients"], n_rated: Float[np.ndarray, " clients"]
) -> Scale | None:
    """The scale that most clients share.

    Examples
    --------
    >>> common_scale(np.array([-0.5, -1.0, -0.25]), np.array([4.0, 2.0, 8.0]))
    Scale(reduction='mean', value=-2.0, share=1.0, batch=inf)
    """
    if scale.size < FEWEST:
        return None
    found = (Scale("sum", *common(scale)), Scale("mean", *common(scale * n_rated)))
    likeliest = max(found, key=lambda one: one.share)  # of equals the first
    return likeliest if likeliest.share >= MOST else None


def common(numbers: Float[np.ndarray, " clients"]) -> tuple[float, float]:
    """The middle of some numbers, and the share of them that are equal to it."""
    middle = float(np.median(numbers))
    return middle, float(np.mean(np.abs(numbers - middle) <= ALIKE * abs(middle)))
