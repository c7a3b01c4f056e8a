"""Links that predictions go through, with the losses that clients step along.

Beyond the papers. With p the link and m one over what the loss multiplies the error by, a curve gives p, its
derivative, m and its derivative at a product of factors: m is 1 for cross-entropy (y - p), 1 / (p (1 - p))
for squared errors through a sigmoid. y is the rating as the program has it: r
itself, r over the highest level, or r from 0 at the lowest to 1 at the highest; behind squared errors also r
over half a star more than the highest, which a sigmoid does not reach (fastai's ``y_range``).

References
----------
J. Howard, S. Gugger 2020, "fastai: A Layered API for Deep Learning", arXiv:2002.04688.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

LARGEST = 30.0  # products beyond which a sigmoid is 0 or 1 to the last digits
LINKS = (
    "cross-entropy of r / highest",
    "cross-entropy of (r - lowest) / range",
    "squared error of a sigmoid, r / highest",
    "squared error of a sigmoid, (r - lowest) / range",
    "squared error of a sigmoid, r / (highest + 0.5)",
)
BEYOND = 0.5  # stars, by which a sigmoid may end above the highest level

Numbers = Float[np.ndarray, "*shape"]
Curve = Callable[[Numbers], tuple[Numbers, Numbers, Numbers, Numbers]]


class Link(NamedTuple):
    """A link with a loss."""

    name: str
    curve: Curve  # from products to p, its derivative, m and its derivative


class Scaled(NamedTuple):
    """A link, and what a program makes of ratings before it: y = (r - first) / range."""

    number: int  # place in ``LINKS``
    link: Link
    first: float  # stars
    range: float  # stars


def _sigmoid(product: Numbers) -> tuple[Numbers, Numbers]:
    p = 1 / (1 + np.exp(-np.clip(product, -LARGEST, LARGEST)))
    return p, p * (1 - p)


def cross_entropy(product: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The curve of the loss whose error is y - p."""
    p, slope = _sigmoid(product)
    return p, slope, np.ones_like(p), np.zeros_like(p)


def squared_sigmoid(product: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The curve of the loss whose error is (y - p) p (1 - p)."""
    p, slope = _sigmoid(product)
    return p, slope, 1 / slope, (2 * p - 1) / slope


def links_of(levels: Float[np.ndarray, " levels"]) -> list[Scaled]:
    """List the links that ratings of a grid may go through.

    Examples
    --------
    >>> [(LINKS[one.number], one.first, one.range) for one in links_of(np.array([1.0, 2.0, 3.0]))[:2]]
    [('cross-entropy of r / highest', 0.0, 3.0), ('cross-entropy of (r - lowest) / range', 1.0, 2.0)]
    """
    low, high = float(levels[0]), float(levels[-1])
    maps = [(0.0, high)] if low <= 0 or levels.size == 1 else [(0.0, high), (low, high - low)]
    sigmoids = (Link("cross-entropy", cross_entropy), Link("squared", squared_sigmoid))
    tried = [
        Scaled(2 * n + m, link, first, range_)
        for n, link in enumerate(sigmoids)
        for m, (first, range_) in enumerate(maps)
    ]
    if levels.size > 1:
        tried.append(Scaled(4, sigmoids[1], 0.0, high + BEYOND))
    return tried
