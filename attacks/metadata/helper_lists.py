"""What a helper reads of the lists that clients tell it so that it finds their neighbours.

Duriakova et al. 2019 does not say what the helper gets for the cosine of lists. Sets of items in the clear
are the lists. Counts, as of a private set intersection, are |I_u| and |I_u and I_w| for pairs of clients and
name no item: from them alone nobody's list follows, only its length and with whom it is shared.

What it assumes: rows of a declared kind of role other, of items or of clients, that reach the adversary.

References
----------
PDMFRec, doi:10.1145/3298689.3347035, Eqs. (5) and (6).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Bool

from attacks.base import Estimates, Progress, Reconstruction, Scope, all_abstain, silent
from victims.transcript.view import ITEM, Told, View

COUNTS_ALONE = (
    "sizes of lists and of what they share name no item: they tell how long lists are, and whose are alike"
)
NAMED_NONE = "the client named no item to the adversary"
NOTHING_TOLD = "nobody tells the adversary anything before the first round"


@dataclass(frozen=True)
class HelperLists:
    """It has no hyper-parameters."""

    name: str = "helper-lists"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read the lists."""
        options = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options, scope=Scope.RATED_SET)
        sets = _sets(view)
        pairs = np.unique(np.stack([sets.sender, sets.index]), axis=1)
        users, row = np.unique(pairs[0], return_inverse=True)
        count = np.bincount(row)
        slot = np.arange(row.size) - (np.cumsum(count) - count)[row]
        value = np.full((users.size, int(count.max())), np.nan)
        index = np.zeros(value.shape, np.int32)
        value[row, slot], index[row, slot] = 1.0, pairs[1]
        kind = np.full((1, value.shape[1]), ITEM, np.int8)
        block = Estimates(users.astype(np.int32), kind, index, value, value, rated_probability=value)
        progress(users.size, users.size)
        everybody = np.union1d(view.users, users)
        silent = dict.fromkeys(np.setdiff1d(everybody, users).tolist(), NAMED_NONE)
        return Reconstruction(self.name, everybody, (block,), silent, options, scope=Scope.RATED_SET)

    def obstacle(self, view: View) -> str:
        """Why there is no list to read, or nothing."""
        about = [name for name, kind in view.manifest.kinds.items() if kind.of != "model"]
        if not any(_of_others(view, told).any() for name, told in view.told.items() if name in about):
            return NOTHING_TOLD
        return "" if _sets(view).index.size else COUNTS_ALONE


def _of_others(view: View, told: Told) -> Bool[np.ndarray, " rows"]:
    """Rows of one number or none of clients, that the adversary does not tell somebody else itself."""
    return (told.sender >= 0) & (told.numbers.shape[1] == 1) & ~np.isin(told.sender, view.members)


def _sets(view: View) -> Told:
    """Items that other clients name; of kinds that carry numbers none."""
    nothing = np.zeros(0, np.int32)
    out = Told(nothing, nothing, nothing, nothing, np.zeros((0, 1)))
    for name, told in view.told.items():
        kind = view.manifest.kinds.get(name)
        here = (told.index < view.manifest.n_items) & np.isnan(told.value)
        here &= _of_others(view, told)
        if kind is not None and kind.of == "item" and here.any():
            return Told(**{key: column[here] for key, column in vars(told).items()})
    return out
