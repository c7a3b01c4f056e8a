"""The ratings that a request is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.data.subsets import of_users, with_principal_components
from victims.data.synthetic import generate, is_synthetic, parse_synthetic, with_sybils


def ratings_of(
    data: str | Path | Ratings,
    item_components: int | None = None,
    community: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    item_tags: Path | None = None,
    sybils: int | None = None,
) -> Ratings:
    """Load the ratings that a name or path stands for."""
    ratings = data if isinstance(data, Ratings) else _loaded(str(data), options)
    if item_tags is not None:
        from victims.data.published import with_tag_genome

        ratings = with_tag_genome(ratings, item_tags)
    if item_components is not None:
        ratings = with_principal_components(ratings, item_components)
    if community is not None and community < ratings.n_users:
        chosen = generator(seed, Purpose.COMMUNITY).choice(ratings.n_users, community, replace=False)
        ratings = of_users(ratings, chosen)
    return ratings if sybils is None else with_sybils(ratings, sybils)


def _loaded(text: str, options: Mapping[str, Any] | None) -> Ratings:
    if is_synthetic(text) and not options:
        return generate(parse_synthetic(text))
    from victims.data.loaders import load  # whose pandas takes a second to import

    return load(text, options)


def sample_of(users: np.ndarray, count: int | None, purpose: Purpose, seed: int) -> np.ndarray | None:
    """Draw a random sample of clients."""
    if count is None or count >= users.size:
        return None
    return generator(seed, purpose).choice(users, count, replace=False)


def label_of(data: str | Path | Ratings) -> str:
    """Say what the column ``data`` of the results holds."""
    return data.name if isinstance(data, Ratings) else str(data)


def as_real(given: Any) -> Any:
    """A whole number as a real one; what is no number is refused where it is used."""
    whole = isinstance(given, int) and not isinstance(given, bool) and abs(given) < 2**53
    return float(given) if whole else given
