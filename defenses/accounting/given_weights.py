"""Privacy weights from a file: a table kind, id, weight, with a line for each user and each item.

W_ij = beta_i gamma_j stays a product (paper 002, section 5.1.3), of weights that somebody asked for instead
of drawn ones. The file is read once while it stays as it is.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from victims.common.errors import InputError
from victims.common.given_files import existing_file
from victims.data.ratings import Ratings
from victims.data.tables import read_table

KINDS = ("user", "item")
Tables = dict[str, dict[str, float]]


def given_weights(
    path: str, ratings: Ratings
) -> tuple[Float[np.ndarray, " users"], Float[np.ndarray, " items"]]:
    """The weights of all users and items of some ratings."""
    stat = existing_file(Path(path)).stat()
    tables = _read(path, stat.st_mtime_ns, stat.st_size)
    users, items = (
        _of(path, tables[kind], kind, ids)
        for kind, ids in zip(KINDS, (ratings.user_ids, ratings.item_ids), strict=True)
    )
    return users, items


@lru_cache(maxsize=4)
def _read(path: str, changed: int, size: int) -> Tables:
    """The table; what follows the path tells one state of the file from another."""
    table = read_table(Path(path))
    table.require("kind", "id", "weight")
    found: Tables = {kind: {} for kind in KINDS}
    for row, (kind, name, text) in enumerate(
        zip(table.text("kind"), table.text("id"), table.text("weight"), strict=True)
    ):
        where = f"{path} {table.locate(row)}"
        if kind not in found:
            raise InputError(f"{where}: kind must be user or item, got {kind[:40]!r}")
        if name in found[kind]:
            raise InputError(f"{where}: {kind} {name[:40]!r} must be named once")
        try:
            weight = float(text)
        except ValueError:
            weight = float("nan")
        if not 0 < weight <= 1:
            raise InputError(f"{where}: weight must be in (0, 1], got {text[:40]!r}")
        found[kind][name] = weight
    return found


def _of(path: str, weights: dict[str, float], kind: str, ids: np.ndarray) -> Float[np.ndarray, " some"]:
    names = [str(name) for name in ids.tolist()]
    missing = [name for name in names if name not in weights]
    if missing:
        raise InputError(
            f"{path} must have a weight for every {kind} of the ratings; {len(missing):,} of {len(names):,} "
            f"have none, {missing[0][:40]!r} among them"
        )
    return np.array([weights[name] for name in names])
