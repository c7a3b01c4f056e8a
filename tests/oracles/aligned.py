"""Answers about ratings relative to each other alone, put where most of a client's are right."""

from __future__ import annotations

import numpy as np

import factorleak as fl
from attacks.base import Scope


def item_answers(
    found: fl.Reconstruction, ratings: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clients, items and ratings that are answered, in stars."""
    parts = list(found.columns())
    if not parts:
        return np.zeros(0, int), np.zeros(0, int), np.zeros(0)
    user, item, value = (np.concatenate([one[name] for one in parts]) for name in ("user", "index", "value"))
    if found.scope not in (Scope.DIFFERENCES, Scope.SIZES):
        return user, item, value
    value = value.astype(float)
    signs = (1.0, -1.0) if found.scope == Scope.SIZES else (1.0,)
    for one in np.unique(user):
        own = user == one
        near = levels[np.abs(value[own][:, None] - levels).argmin(axis=1)]
        ways = []
        for sign in signs:
            shift, count = np.unique(np.round(ratings[one, item[own]] - sign * near, 6), return_counts=True)
            ways.append((count.max(), sign * near + shift[count.argmax()]))
        value[own] = max(ways, key=lambda way: way[0])[1]
    return user, item, value
