"""Who is of a community of interest: clients whose rated items are most like target items.

The adversary chooses target items and ranks clients by their expected Jaccard index with them, from the
probability that each item is rated which any attack recovered: the expected number of common items over the
expected number of items of either.

References
----------
Y. Belal, S. Ben Mokhtar, M. Maouche, A. Simonet-Boulogne, "Inferring Communities of Interest in Collaborative
Learning-based Recommender Systems", ICDCS 2025, arXiv:2306.08929.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from attacks.attributes import chance_rated
from attacks.base import Identities, Reconstruction, Scope
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM


def likeness(
    found: Reconstruction, manifest: Manifest, targets: sp.csr_array
) -> tuple[Int[np.ndarray, " users"], Float[np.ndarray, "targets users"]]:
    """The clients that an attack answered, and their expected Jaccard index with lists of items (0 or 1)."""
    users, shared = found.users, np.zeros((found.users.size, targets.shape[0]))
    length, answered = np.zeros((users.size, 1)), np.zeros(users.size, bool)
    told = found.scope in (Scope.RATINGS_AND_ATTRIBUTES, Scope.RATED_SET)
    for block in found.blocks if told and found.identities == Identities.CLIENTS else ():
        user, row = np.nonzero(~np.isnan(block.value) & (block.kind == ITEM))
        item = np.broadcast_to(block.index, block.value.shape)[user, row]
        chance = chance_rated(block, manifest)[user, row]
        lists = sp.csr_array((chance, (user, item)), shape=(block.users.size, manifest.n_items))
        at = np.searchsorted(users, block.users)
        shared[at] += (lists @ targets.T).toarray()
        length[at] += lists.sum(axis=1)[:, None]
        answered[at[user]] = True
    return users[answered], jaccard(shared, length, targets)[answered].T


def jaccard(
    shared: Float[np.ndarray, "users targets"], length: Float[np.ndarray, "users 1"], targets: sp.csr_array
) -> Float[np.ndarray, "users targets"]:
    """The index from numbers of common items and lengths of lists, expected ones or counted."""
    return shared / np.maximum(length + np.diff(targets.indptr) - shared, 1e-12)
