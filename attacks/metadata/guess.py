"""Guesses that read no gradient: what an adversary answers who only knows the public part.

They use the lists of uploaded items and attributes, the rating grid, the attribute blocks and the
broadcast factors, never a number that a client computed. Every other attack has to beat them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Int

from attacks.base import Estimates, Progress, Reconstruction, all_abstain, silent
from attacks.obstacles import factors_hidden, nothing_received
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, Uploads, UserBatch, View

# a guess is drawn or looked up per row of the last round of a client: (manifest, uploads, generator) -> value
Answer = Callable[[Manifest, Uploads, np.random.Generator], np.ndarray]


def _guess(
    view: View, key: int, name: str, options: dict, answer: Answer, if_rated: Answer
) -> Reconstruction:
    """One answer for every row, and one for the same row in case the item is rated."""
    options = {**options, "seed": key}
    blocks = []
    if reason := _obstacle(view):
        return all_abstain(name, view.users, reason, options)
    for number, batch in enumerate(view.batches()):
        rng = generator(key, Purpose.GUESSES, number)
        last = _last_round(batch)
        for round_, uploads in enumerate(batch.rounds):
            here = last == round_
            if not here.any():
                continue
            value = np.where(uploads.valid, answer(view.manifest, uploads, rng), np.nan)[here]
            kind, index = (c[here] if c.shape[0] > 1 else c for c in (uploads.kind, uploads.index))
            block = Estimates(batch.users[here], kind, index, value)
            if view.manifest.weighting == "include-unrated":
                block = replace(block, rating_if_rated=if_rated(view.manifest, uploads, rng)[here])
            blocks.append(block)
    return Reconstruction(name, view.users, tuple(blocks), {}, options)


def _obstacle(view: View) -> str:
    if view.messages.n_rows == 0:
        return nothing_received(view)
    if view.messages.gradient is None:
        return "the uploads are encrypted; no list of rows to guess about"
    return factors_hidden(view)


def _last_round(batch: UserBatch) -> Int[np.ndarray, " users"]:
    """The last round in which each client sent something, by its place in the batch."""
    last = np.full(batch.users.size, -1)
    for round_, uploads in enumerate(batch.rounds):
        last[np.broadcast_to(uploads.valid.any(axis=1), last.shape)] = round_
    return last


def _constant(uploads: Uploads, rating: float | np.ndarray) -> np.ndarray:
    """The given rating for items, 0 for attributes, (n_users, n_rows)."""
    value = np.where(uploads.kind == ITEM, rating, 0.0)
    return np.broadcast_to(value, uploads.gradients.shape[:2]).copy()


def _common_level(manifest: Manifest) -> float:
    levels = manifest.rating_levels
    return levels[round(0.75 * (len(levels) - 1))]


@dataclass(frozen=True)
class GuessUniform:
    """Every rating level equally likely (in include-unrated also 0), every attribute 0 or 1.

    The "random guessing" of Mai & Pang 2022, figures 1-3.
    """

    name: str = "guess-uniform"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Draw every answer."""

        def answer(manifest: Manifest, uploads: Uploads, rng: np.random.Generator) -> np.ndarray:
            levels = list(manifest.rating_levels)
            if manifest.weighting == "include-unrated":
                levels = [0.0, *levels]
            shape = uploads.gradients.shape[:2]
            return np.where(uploads.kind == ITEM, rng.choice(levels, shape), rng.integers(0, 2, shape))

        def if_rated(manifest: Manifest, uploads: Uploads, rng: np.random.Generator) -> np.ndarray:
            return rng.choice(manifest.rating_levels, uploads.gradients.shape[:2])

        return _guess(view, key, self.name, asdict(self), answer, if_rated)

    def obstacle(self, view: View) -> str:
        """Why there is no list to guess about, or nothing."""
        return _obstacle(view)


@dataclass(frozen=True)
class GuessMajority:
    """The most common answer: "unrated" in include-unrated, else one rating level; attributes 0.

    Attributes
    ----------
    level : float or None
        The rating level taken to be the most common. None is the level three quarters up the grid
        (4 of 1..5), the mode of most published star ratings.
    """

    level: float | None = None
    name: str = "guess-majority"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Answer the same for every row."""

        def answer(manifest: Manifest, uploads: Uploads, rng: np.random.Generator) -> np.ndarray:
            if manifest.weighting == "include-unrated":
                return _constant(uploads, 0.0)
            return if_rated(manifest, uploads, rng)

        def if_rated(manifest: Manifest, uploads: Uploads, rng: np.random.Generator) -> np.ndarray:
            return _constant(uploads, self.level or _common_level(manifest))

        return _guess(view, key, self.name, asdict(self), answer, if_rated)

    def obstacle(self, view: View) -> str:
        """Why there is no list to guess about, or nothing."""
        return _obstacle(view)


@dataclass(frozen=True)
class GuessPopularity:
    """Rated items guessed from the broadcast alone: factors of popular items have grown longer.

    The value of an item is below every rating level, so that it counts as unrated; its size ranks the
    items for the rated-set metrics. Popularity needs training rounds to show in the factors. In
    observed-only the rated items are in the open, and the answer is that of ``GuessMajority``.
    """

    name: str = "guess-popularity"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Rank items by the norm of their broadcast factor."""

        def answer(manifest: Manifest, uploads: Uploads, rng: np.random.Generator) -> np.ndarray:
            if manifest.weighting == "observed-only":
                return if_rated(manifest, uploads, rng)
            factors = uploads.broadcast.factors
            norm = np.linalg.norm(factors / max(1.0, np.abs(factors).max(initial=0)), axis=1)
            share = norm / (1e-300 + norm.max(initial=0))
            return _constant(uploads, 0.49 * manifest.rating_levels[0] * share[uploads.position])

        def if_rated(manifest: Manifest, uploads: Uploads, rng: np.random.Generator) -> np.ndarray:
            return _constant(uploads, _common_level(manifest))

        return _guess(view, key, self.name, asdict(self), answer, if_rated)

    def obstacle(self, view: View) -> str:
        """Why there is no list to guess about, or nothing."""
        return _obstacle(view)
