"""What a round of FedMVMF sums over ratings: products of sparse matrices; symbols as in ``fedmvmf``.

A round is bound by these sums. As a compressed matrix the entries are read once, in order, and what is
added to lies in the caches; a scatter of one row per entry, which XLA makes of a segment sum on processors,
took twenty times as long on ML-1M.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from victims.protocols.jax_ratings import Data

jax.config.update("jax_enable_x64", True)

COLUMN_BYTES = 1 << 26  # of the products of factors that are formed at a time


def normal_equations(
    data: Data, items: Float[np.ndarray, "items K"]
) -> tuple[Float[np.ndarray, "users pairs"], Float[np.ndarray, "users K"]]:
    """Sum c q q' and c r q over the entries of each client.

    References
    ----------
    Paper 000 (arXiv:2210.07775), Eq. (8).
    """
    n_items, k = items.shape
    weights = _matrix(data, data.weight, n_items)
    first, second = np.triu_indices(k)
    gram = np.empty((data.start.size - 1, first.size))
    width = max(1, COLUMN_BYTES // (8 * max(n_items, 1)))
    for start in range(0, first.size, width):
        some = slice(start, start + width)
        gram[:, some] = weights @ (items[:, first[some]] * items[:, second[some]])
    return gram, _matrix(data, data.value, n_items) @ items


@partial(jax.jit, static_argnums=3)
def weighted_errors(
    items: Float[Array, "items K"], clients: Float[Array, "users K"], data: Data, alpha: float
) -> Float[Array, " entries"]:
    """Compute c e of every entry, without its part of the sum over all items.

    c e over all items = alpha (0 - p . q) everywhere + (r - (1 - alpha) p . q) where rated.

    References
    ----------
    Paper 000 (arXiv:2210.07775), Algorithm 1.
    """
    by_item, by_user = items.T, clients.T

    def added(factor: Array, predicted: Array) -> Array:
        return predicted + by_item[factor][data.item] * by_user[factor][data.user]

    predicted = jax.lax.fori_loop(0, items.shape[1], added, jnp.zeros(data.value.shape))
    return data.weight * (data.value - (1 - alpha) * predicted)


def summed_by_item(
    data: Data, values: Float[Array, " entries"], clients: Float[np.ndarray, "users K"], n_items: int
) -> Float[np.ndarray, "items K"]:
    """Sum a number of each entry times its client's factor over the entries of each item."""
    return _matrix(data, values, n_items).T @ clients


def summed_by_user(
    data: Data, values: Float[Array, " entries"], items: Float[np.ndarray, "items K"]
) -> Float[np.ndarray, "users K"]:
    """Sum a number of each entry times its item's factor over the entries of each client."""
    return _matrix(data, values, items.shape[0]) @ items


def _matrix(data: Data, values: Float[Array, " entries"], n_items: int) -> sp.csr_array:
    """Clients by items; the arrays are those of the data, not copies."""
    shape = data.start.size - 1, n_items
    return sp.csr_array((np.asarray(values), np.asarray(data.item), np.asarray(data.start)), shape=shape)
