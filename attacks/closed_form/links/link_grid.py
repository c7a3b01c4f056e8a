"""Two open numbers per client, where its predictions go through a link: the grid on the link's other side.

Beyond the papers, for programs whose predictions are a sigmoid of the product of the factors. Any loss that
is a function of a rating and its prediction leaves rows of one direction
(``attacks.closed_form.grid.rank_one``), or a chain of them
(``attacks.closed_form.uploads.moving_factor``): these need to know nothing of the errors. With g the row
along that direction, h = d . v and b the item's known bias, a rating is

    y = p(B h + b) + A g m(B h + b),

p the link, m one over what the loss multiplies the error by, and y the rating as the program has it
(``attacks.closed_form.links.links``). A and B are sought client by client and link by link
(``attacks.closed_form.links.link_fit``): a search in one dimension, which takes no start and no constant of
the step.

Where the lowest level is 0 and the highest 1 behind a sigmoid, 1 - y, with B and A negated, is the mirror
image of y and makes the same rows, so that no client is answered alone; ``up_to_mirror`` tells all but that.

What it assumes: uploads in the clear, exact to their last digits; more rows than two; a grid of a hundred
levels at most. It answers where one list of ratings leaves no more than rounding, and no list under any other
link does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.affine_grid import MOST_TRIALS
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of
from attacks.closed_form.links.link_fit import LEAST, Client, Trials, fitted_trials
from attacks.closed_form.links.links import Scaled, links_of
from attacks.closed_form.uploads.kept import kept

FEWEST = 4  # rows of a client that is answered
KEPT = 32  # answers, of a number a row


class Through(NamedTuple):
    """What is told of some clients."""

    value: Float[np.ndarray, "users rows"]  # ratings in stars; NaN where not told
    told: Bool[np.ndarray, " users"]
    # mean distance from the grid, of what chance gives; NaN where nothing is told
    misfit: Float[np.ndarray, " users"]
    link: Int[np.ndarray, " users"]  # place in ``links.LINKS``; -1 where nothing is told


@kept(KEPT)
def ratings_through_links(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    bias: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    precision: float,
) -> Through:
    """Find the ratings of each client that lie on the grid through one of ``links.LINKS``.

    Examples
    --------
    >>> from attacks.closed_form.links.links import LINKS
    >>> random = np.random.RandomState(0)
    >>> h, r = random.randn(1, 9), random.randint(1, 6, (1, 9)) * 1.0
    >>> p = 1 / (1 + np.exp(-1.7 * h))
    >>> found = ratings_through_links(
    ...     0.3 * (r / 5 - p), h, 0 * h, h == h, np.arange(1.0, 6.0), 2e-16)
    >>> bool((found.value == r).all()), LINKS[found.link[0]]
    (True, 'cross-entropy of r / highest')
    """
    users, n_rows = scalar.shape
    value, misfit = np.full((users, n_rows), np.nan), np.full(users, np.nan)
    told, link = np.zeros(users, bool), np.full(users, -1)
    able = _able(scalar, valid, levels)
    clients = [Client(*(part[user, here] for part in (scalar, along, bias))) for user, here in able]
    for (user, here), answer in zip(able, _answers(clients, levels, precision), strict=True):
        if answer is not None:
            value[user, here], misfit[user] = answer.ratings, answer.away
            told[user], link[user] = True, answer.number
    return Through(value, told, misfit, link)


def _able(
    scalar: np.ndarray, valid: np.ndarray, levels: np.ndarray
) -> list[tuple[int, Bool[np.ndarray, " rows"]]]:
    """Clients with enough rows, and which of their rows count."""
    here = valid & (scalar != 0)
    able = (here.sum(axis=1) >= FEWEST) & (levels.size**2 <= MOST_TRIALS)
    return [(user, here[user]) for user in np.flatnonzero(able).tolist()]


def up_to_mirror(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    precision: float,
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users 2"]]:
    """Find the ratings of each client, or their mirror images, behind a sigmoid from lowest to highest.

    Examples
    --------
    >>> random = np.random.RandomState(0)
    >>> h, r = random.randn(1, 9), random.randint(1, 6, (1, 9)) * 1.0
    >>> g = 0.3 * ((r - 1) / 4 - 1 / (1 + np.exp(-1.7 * h)))
    >>> ratings, _ = up_to_mirror(g, h, h == h, np.arange(1.0, 6.0), 2e-16)
    >>> bool((ratings == r).all() or (ratings == 6 - r).all())
    True
    """
    value, numbers = np.full(scalar.shape, np.nan), np.full((len(scalar), 2), np.nan)
    able = _able(scalar, valid, levels)
    clients = [
        Client(scalar[user, here], along[user, here], np.zeros(int(here.sum()))) for user, here in able
    ]
    for (user, here), answer in zip(able, _answers(clients, levels, precision, mirrored=True), strict=True):
        if answer is not None:
            value[user, here], numbers[user] = answer.ratings, answer.numbers
    return value, numbers


class _Answer(NamedTuple):
    """Of one client: the link's place, its ratings in stars, their misfit, and A and B."""

    number: int
    ratings: Float[np.ndarray, " rows"]
    away: float
    numbers: Float[np.ndarray, " 2"]


def _answers(
    clients: list[Client], levels: np.ndarray, precision: float, *, mirrored: bool = False
) -> list[_Answer | None]:
    """What is nearest to the grid, if nothing else is as near; or nothing but its mirror image."""
    out: list[_Answer | None] = [None] * len(clients)
    able = [(number, *unit) for number, one in enumerate(clients) if (unit := _in_units(one)) is not None]
    links = links_of(levels)
    found = [fitted_trials([one for _, one, _ in able], link, levels) for link in links]
    for (number, _, size), trials in zip(able, zip(*found, strict=True), strict=True):
        out[number] = _best(trials, links, size, levels, precision, mirrored=mirrored)
    return out


def _in_units(client: Client) -> tuple[Client, Float[np.ndarray, " 2"]] | None:
    """The client with g and h of size 1, and their sizes; None where they have none."""
    size = np.array([np.abs(client.scalar).max(), np.abs(client.along).max()])
    if not (np.isfinite(size).all() and size.min() > 0 and np.isfinite(client.bias).all()):
        return None
    return Client(client.scalar / size[0], client.along / size[1], client.bias), size


def _best(
    found: Sequence[Trials],
    links: list[Scaled],
    size: Float[np.ndarray, " 2"],
    levels: np.ndarray,
    precision: float,
    *,
    mirrored: bool,
) -> _Answer | None:
    """Of one client's trials under each link."""
    named, worst, mean, spread = (
        np.concatenate([np.asarray(getattr(part, name)) for part in found])
        for name in ("named", "worst", "mean", "spread")
    )
    number = np.repeat([one.number for one in links], [len(part.worst) for part in found])
    if not worst.size:
        return None
    best = int(np.argmin(worst))
    step = step_of(levels)
    limit = step * precision**BARS.half
    away = float(mean[best] / (step / 4))
    other = (named != named[best]).any(axis=1)
    if mirrored:
        # sigmoids that end as far below the lowest level as above the highest
        ends = {one.number: 2 * one.first + one.range for one in links}
        if abs(ends.get(int(number[best]), np.inf) - levels[0] - levels[-1]) > LEAST * step:
            return None
        other &= (named != levels[0] + levels[-1] - named[best]).any(axis=1)
    rivals = worst[other]
    n_tried = len(links) * levels.size**2
    chance = accidental(np.array([named.shape[1] - 2]), n_tried, BARS.accident_of_many)[0]
    # predictions that are one number take no part, and rows tell ratings up to a multiple
    told = (
        worst[best] <= limit and away < chance and spread[best] > max(mean[best] / BARS.telling, LEAST * step)
    )
    told &= bool((rivals > max(limit, BARS.clearly * worst[best])).all())
    numbers = np.concatenate([part.numbers for part in found])[best] / size
    return _Answer(int(number[best]), named[best], away, numbers) if told else None
