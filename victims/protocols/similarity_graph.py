"""Who sends to whom in PDMFRec: clients who rated enough items in common, weighted by their similarity.

Paper 003 (the report on E. Duriakova et al., RecSys 2019, doi:10.1145/3298689.3347035), equations (5) and
(6): W_uu' = |I_u n I_u'| / sqrt(|I_u| |I_u'|), kept where |I_u n I_u'| >= threshold. A helper computes it
once, of item sets in the clear, or of counts that a private set intersection shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from victims.data.ratings import Ratings
from victims.protocols.network import Edges

Variant = Literal["full", "-sim", "-sim,all"]


@dataclass(frozen=True, eq=False)
class SimilarityGraph:
    """The graph; it has no direction."""

    weight: Float[np.ndarray, "users users"]  # W, 0 where there is no edge

    @property
    def edges(self) -> Edges:
        """By receiver, then sender."""
        receiver, sender = np.nonzero(self.weight)
        return Edges(sender.astype(np.int32), receiver.astype(np.int32), self.weight[receiver, sender])


def co_rated(ratings: Ratings) -> Int[np.ndarray, "users users"]:
    """|I_u n I_u'| of all pairs; |I_u| on the diagonal."""
    ones = np.ones(ratings.n_ratings, np.int32)
    rated = sp.csr_array((ones, ratings.items, ratings.indptr), shape=(ratings.n_users, ratings.n_items))
    return (rated @ rated.T).toarray()


def similarity_graph(ratings: Ratings, threshold: int, variant: Variant) -> SimilarityGraph:
    """The graph of a variant of the protocol."""
    if variant == "-sim,all":
        weight = np.ones((ratings.n_users, ratings.n_users))
    else:
        common = co_rated(ratings)
        near = common >= threshold
        if variant == "-sim":
            weight = near.astype(np.float64)
        else:
            size = np.sqrt(np.maximum(np.diag(common), 1).astype(np.float64))
            weight = np.where(near, common, 0) / size[:, None] / size
    np.fill_diagonal(weight, 0.0)
    return SimilarityGraph(weight)
