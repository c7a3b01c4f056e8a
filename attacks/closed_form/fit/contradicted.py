"""A declaration that most clients contradict: what it answers of the others, it answers by accident."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Estimates, Outcome, Reconstruction
from attacks.closed_form.fit.decoding import nearest_level
from victims.transcript.view import ITEM

MOST = 0.5  # share of the clients that can be judged that has to fit
FEWEST, FEWEST_NOISY = 3, 8  # of these clients, at least: exact rows of the declared rule are never off
TELLING = 3  # levels among a client's ratings: fewer lie on the grid under many a shift and factor
EXACTLY = 0.8  # the same of exact rows, which are never off the grid unless something else is learned
ALIKE, ALIKE_CLIENTS = 20, 3  # ratings of one level, and clients, that are no accident
ALL_ALIKE = (
    "everybody would have rated everything alike, which the rows of some optimizers say of any ratings"
)
OFF = 0.5  # misfit of exact rows that are off the grid
ROUGH = 0.01  # misfit, from where on a bias that nobody else has may be what makes ratings fit
BIASED_ALONE = (
    "its ratings are near the grid with a bias of its own alone, which next to nobody else's rows ask for"
)


def unless_contradicted(
    found: Reconstruction, max_misfit: float, clear: Bool[np.ndarray, " users"] | None = None
) -> Reconstruction:
    """Answer nobody where most clients whose ratings suffice to judge are off the rating grid."""
    misfit = found.diagnostics["misfit"]
    answered = ~np.isin(found.users, list(found.abstained))
    if clear is None:
        judged, fewest = answered | (misfit >= OFF), FEWEST
    else:
        judged, fewest = (
            (found.diagnostics["allowed"] >= max_misfit) & np.isfinite(misfit) & clear,
            FEWEST_NOISY,
        )
    return _if_most_fit(found, answered, judged, fewest)


def unless_most_fit(found: Reconstruction, contradicting: Bool[np.ndarray, " users"]) -> Reconstruction:
    """Answer nobody where exact rows of more clients than are answered contradict the declaration."""
    answered = ~np.isin(found.users, list(found.abstained))
    return _if_most_fit(found, answered, answered | contradicting, FEWEST)


def _if_most_fit(
    found: Reconstruction,
    answered: Bool[np.ndarray, " users"],
    judged: Bool[np.ndarray, " users"],
    fewest: int,
) -> Reconstruction:
    """Answer nobody where most of those who can be judged are not answered."""
    if judged.sum() < fewest or answered[judged].mean() >= MOST:
        return found
    reason = (
        f"of {judged.sum()} clients who can be judged {answered[judged].sum()} fit the rating grid: the "
        "others contradict the declared rule, scale or levels"
    )
    return silent_about(found, answered, reason)


def unless_off_the_grid(
    found: Reconstruction,
    off: Bool[np.ndarray, " users"],
    levels: Float[np.ndarray, " levels"],
    plain: Bool[np.ndarray, " users"] | None = None,
) -> Reconstruction:
    """Answer nobody where exact rows of more than a fifth of clients that can be judged are off the grid.

    Ratings less a number that nobody told lie on the grid for some clients, one factor of each being open:
    always for those with two levels, which therefore speak for nothing.
    """
    abstained = np.isin(found.users, list(found.abstained))
    answered = ~abstained if plain is None else ~abstained & plain
    telling = np.zeros(found.users.size, bool)
    for block in found.blocks:
        near = np.where(
            np.isnan(block.value) | (block.value == 0), np.nan, nearest_level(block.value, levels)
        )
        used = np.array([np.unique(own[np.isfinite(own)]).size for own in near])
        telling[np.searchsorted(found.users, block.users)] = used >= TELLING
    n_off, n_fit = int((off & abstained).sum()), int((answered & telling).sum())
    if n_fit >= EXACTLY * (n_off + n_fit) or not n_off:
        return found
    reason = (
        f"{n_off} clients' rows are of one step, of numbers on no multiple of the rating grid, {n_fit} with "
        "three levels or more are on it: the program takes something off ratings, or the levels are others"
    )
    return silent_about(found, answered, reason)


def unless_biased_alone(found: Reconstruction, biased: Bool[np.ndarray, " users"]) -> Reconstruction:
    """Abstain on who is near the grid with a bias of its own alone, where most clients are without one.

    A program keeps biases of all clients or of none, and one number more brings ratings near to many a grid:
    whole stars of a grid of halves may come out half a star lower.
    """
    answered = ~np.isin(found.users, list(found.abstained))
    n_biased, n_others = int((answered & biased).sum()), int((answered & ~biased).sum())
    if n_others < FEWEST or n_biased >= n_others:
        return found
    return silent_about(found, answered & biased & (found.diagnostics["misfit"] > ROUGH), BIASED_ALONE)


def mostly_on_the_grid(
    value: Float[np.ndarray, "clients rows"],
    good: Bool[np.ndarray, " clients"],
    off: Bool[np.ndarray, " clients"],
    levels: Float[np.ndarray, " levels"],
) -> bool:
    """Tell whether exact rows of a fifth of those who can be judged, or less, are off the grid.

    Examples
    --------
    >>> one, two, stars = np.array([True, False]), np.array([False, True]), np.arange(1.0, 6.0)
    >>> read = np.array([[1.0, 3.0, 5.0], [np.nan, np.nan, np.nan]])
    >>> mostly_on_the_grid(read, one, two, stars), mostly_on_the_grid(read, one, two & False, stars)
    (False, True)
    """
    told = good[:, None] & np.isfinite(value)
    near = np.where(told, nearest_level(value, levels), np.nan)
    used = np.array([np.unique(own[there]).size for own, there in zip(near, told, strict=True)])
    n_fit = int((good & (used >= TELLING)).sum())
    return n_fit >= EXACTLY * (n_fit + int(off.sum()))


def unless_all_alike(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> Reconstruction:
    """Answer nobody where several clients are all told to have rated everything alike.

    Rows of one length, as optimizers make them, say so wherever a length of the factor happens to allow it.
    """
    if levels.size == 1:
        return found
    named, clients, answers = set[float](), 0, 0
    for block in found.blocks:
        here = (block.kind == ITEM) & np.isfinite(block.value) & (block.value != 0)
        named.update(np.unique(nearest_level(block.value[here], levels)).tolist())
        if len(named) > 1:
            return found
        clients, answers = clients + int(here.any(axis=1).sum()), answers + int(here.sum())
    if clients < ALIKE_CLIENTS or answers < ALIKE:
        return found
    return silent_about(found, ~np.isin(found.users, list(found.abstained)), ALL_ALIKE)


def silent_about(found: Reconstruction, whom: Bool[np.ndarray, " users"], reason: str) -> Reconstruction:
    """Take back the answers about some clients."""
    left = found.users[whom]
    looked = found.outcome == Outcome.NOTHING_FOUND
    taken_back = looked and (~np.isin(left, list(found.abstained))).sum() > MOST * found.users.size
    abstained = {**found.abstained, **dict.fromkeys(left.tolist(), reason)}
    kept = found.users[~np.isin(found.users, list(abstained))]
    return replace(
        found,
        blocks=tuple(_without(block, left) for block in found.blocks),
        abstained=abstained,
        factors=None if found.factors is None else found.factors.of(kept),
        outcome=Outcome.ANSWERED if taken_back else found.outcome,
    )


def _without(block: Estimates, users: Int[np.ndarray, " some"]) -> Estimates:
    """The block with nothing said about some users."""
    silenced = np.isin(block.users, users)[:, None]
    value, if_rated = (
        None if part is None else np.where(silenced, np.nan, part)
        for part in (block.value, block.rating_if_rated)
    )
    assert value is not None
    return replace(block, value=value, rating_if_rated=if_rated)
