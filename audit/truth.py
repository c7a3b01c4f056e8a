"""What the clients kept private, as scoring needs it. Attacks never see this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from victims.arrow import INT32_MAX, finite_chunks, integer_chunks, kind_chunks, open_columns
from victims.errors import InputError
from victims.files import existing_file
from victims.manifest import FREE, PLAUSIBLE, Manifest
from victims.view import ITEM, KINDS


@dataclass(frozen=True)
class Truth:
    """Ratings and attributes of the clients in a truth file.

    Attributes
    ----------
    users : (n_users,) ascending client numbers
    ratings : (n_users, n_item_columns) CSR, absent means unrated
        Columns up to the largest rated item.
    attributes : (n_users, n_attribute_columns)
        0 where the file has no row.
    """

    users: Int[np.ndarray, " users"]
    ratings: sp.csr_array
    attributes: Float[np.ndarray, "users attributes"]

    def refuse_beyond(self, manifest: Manifest) -> None:
        """Hold the clients, items and attributes of the file against what a recording declares.

        Raises
        ------
        InputError
            If one is beyond it.
        """
        for name, seen, limit in (
            ("client", int(self.users[-1]) + 1, manifest.n_users),
            ("item", self.ratings.shape[1], manifest.n_items),
            # protocols without attributes keep those of the clients private altogether
            ("attribute", self.attributes.shape[1] if manifest.n_attributes else 0, manifest.n_attributes),
        ):
            if seen > limit:
                raise InputError(
                    f"the truth names {name} {seen - 1}, and the recording has {limit} of them; give "
                    "the truth file that was recorded with it"
                )

    def rows(self, users: np.ndarray) -> np.ndarray:
        """Row of each client.

        Raises
        ------
        InputError
            If a client is not in the file.
        """
        row = np.minimum(np.searchsorted(self.users, users), self.users.size - 1)
        unknown = np.flatnonzero(self.users[row] != users)
        if unknown.size:
            raise InputError(
                f"the truth has no row for client {users[unknown[0]]}; give the truth file that was "
                "recorded with this transcript"
            )
        return row


def read_truth(path: Path) -> Truth:
    """Read ``NAME.truth.arrow`` (user, kind, index, value).

    Raises
    ------
    InputError
        Naming file, row and rule.
    """
    file = open_columns(existing_file(path))
    user, index = (
        np.concatenate(integer_chunks(file, name, 0, INT32_MAX - 1, ">= 0") or [np.zeros(0, int)])
        for name in ("user", "index")
    )
    if user.size == 0:
        raise InputError(f"{path} must hold at least one row")
    kind = np.concatenate(kind_chunks(file, KINDS[:2]))
    value = np.concatenate(finite_chunks(file, "value"))
    wrong = np.flatnonzero(np.where(kind == ITEM, value <= 0, (value < 0) | (value > 1)))
    if wrong.size:
        rule = "> 0 (only ratings that exist are listed)" if kind[wrong[0]] == ITEM else "in 0..1"
        raise InputError(f"{path} row {wrong[0]}: value must be {rule}, got {value[wrong[0]]:g}")
    order = np.lexsort((index, kind, user))
    same = (np.diff(user[order]) == 0) & (np.diff(kind[order]) == 0) & (np.diff(index[order]) == 0)
    if same.any():
        row = int(order[1:][same].min())
        raise InputError(f"{path} row {row}: each user, kind and index must occur once")
    users, client = np.unique(user, return_inverse=True)
    item = kind == ITEM
    limit = PLAUSIBLE * user.size + FREE
    for found, worst in (
        ("item", int(index[item].max(initial=0))),
        ("attribute", int(index[~item].max(initial=0))),
    ):
        if worst * (1 if found == "item" else users.size) > limit:
            raise InputError(f"{path}: index of kind {found} must be plausible beside the rows, got {worst}")
    shape = users.size, int(index[item].max(initial=-1)) + 1
    ratings = sp.csr_array((value[item], (client[item], index[item])), shape=shape)
    ratings.sort_indices()
    attributes = np.zeros((users.size, int(index[~item].max(initial=-1)) + 1))
    attributes[client[~item], index[~item]] = value[~item]
    return Truth(users, ratings, attributes)
