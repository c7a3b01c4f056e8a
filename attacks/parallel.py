"""Who was alone in a sum, without knowing who contributed: rows of one client are parallel.

For adversaries of encrypted protocols who see sums and no lists: a decrypter of PrivMVMF (paper 000,
section 5), and every client of FedMF (paper 001, section 5), who decrypts the item factors in each round and
sees them fall by the sum of all uploads, V^t - V^(t+1). A sum with one contributor is y p_i. Two sums of one
lone client are parallel; sums of several clients, whose y are real numbers, are not, but by accident. So
parallel sums are rows of one client each, without a name, and ``attacks.grid`` reads their ratings.

What it assumes: sums without noise. What a client itself uploaded is subtracted first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from attacks.grid import Grid
from attacks.interface import Reconstruction, all_abstain
from victims.view import ITEM, Messages, Sums, View

PARALLEL = 1e-6  # between unit vectors
SMALL = 1e-9  # of the largest sum: rounding
LEAST = 2  # sums of a client
NOBODY_ALONE = "no two sums are parallel, so no client is seen to be alone in any"


def read_parallel(name: str, view: View, options: Mapping[str, object]) -> Reconstruction:
    """Ratings of nameless clients, from the round in which most sums are parallel to another.

    Returns
    -------
    Reconstruction
        ``users`` are pseudonyms 0, 1, ..., one per group of parallel sums; the answers hold nothing but
        what was read. Option ``pseudonyms`` is true.
    """
    options = {**options, "pseudonyms": True}
    nobody = np.zeros(0, np.int64)
    seen = view.sums or _differences(view)
    best: tuple[int, Sums, np.ndarray] | None = None
    for number, sums in sorted(seen.items()):
        foreign = _without_own(view, number, sums)
        group = _groups(foreign.values)
        if best is None or (group >= 0).sum() > (best[2] >= 0).sum():
            best = number, foreign, group
    if best is None:
        return Reconstruction(name, nobody, (), {}, {**options, "obstacle": "the adversary sees no sums"})
    if not (best[2] >= 0).any():
        return Reconstruction(name, nobody, (), {}, {**options, "obstacle": NOBODY_ALONE})
    found = Grid().attack(_rows_of(view, *best), 0)
    if len(found.abstained) == found.users.size:
        return all_abstain(name, found.users, "parallel sums fit no rating grid", options)
    return replace(found, attack=name, options=options)


def _differences(view: View) -> dict[int, Sums]:
    """FedMF's server step, V^(t+1) = V^t - sum: what each pair of consecutive rounds shows."""
    if view.manifest.protocol != "fedmf":
        return {}
    out = {}
    for number, before in view.broadcasts.items():
        after = view.broadcasts.get(number + 1)
        if after is None or not np.array_equal(before.item_ids, after.item_ids):
            continue
        kind = np.full(before.item_ids.size, ITEM, np.int8)
        out[number] = Sums(kind, before.item_ids, before.factors - after.factors)
    return out


def _without_own(view: View, number: int, sums: Sums) -> Sums:
    """What others contributed, freed of one row's regularisation and of the scale of uploads."""
    manifest, messages = view.manifest, view.messages
    values = sums.values.copy()
    place = {pair: at for at, pair in enumerate(zip(sums.kind.tolist(), sums.index.tolist(), strict=True))}
    for chunk, gradient in enumerate(messages.gradient or ()):
        for row in np.flatnonzero(messages.round[chunk] == number).tolist():
            at = place.get((int(messages.kind[chunk][row]), int(messages.index[chunk][row])))
            if at is not None:
                values[at] -= gradient[row]
    broadcast = view.broadcasts[number]
    factor = broadcast.factors[broadcast.positions(sums.kind, sums.index)]
    largest = np.abs(values).max(initial=0)
    empty = np.abs(values).max(axis=1) <= SMALL * largest
    values = (values - manifest.upload.regularization * factor) / manifest.upload.scale
    values[empty] = 0
    return Sums(sums.kind, sums.index, values)


def _groups(values: Float[np.ndarray, "sums K"]) -> Int[np.ndarray, " sums"]:
    """Number of the group of parallel rows that each belongs to, -1 for rows that are parallel to none."""
    length = np.linalg.norm(values, axis=1)
    there = np.flatnonzero(length > 0)
    group = np.full(length.size, -1)
    if there.size < LEAST or values.shape[1] < 2:  # in one dimension everything is parallel
        return group
    unit = values[there] / length[there, None]
    largest = np.abs(unit).argmax(axis=1)
    unit *= np.sign(unit[np.arange(there.size), largest])[:, None]
    pairs = cKDTree(unit).query_pairs(PARALLEL, output_type="ndarray")
    graph = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(there.size, there.size))
    _, label = connected_components(graph, directed=False)
    count = np.bincount(label)
    number = np.cumsum(count >= LEAST) - 1
    group[there] = np.where(count[label] >= LEAST, number[label], -1)
    return group


def _rows_of(view: View, number: int, sums: Sums, group: np.ndarray) -> View:
    """The parallel sums as uploads of the pseudonyms."""
    order = np.lexsort((sums.index, sums.kind, group))
    order = order[group[order] >= 0]
    rows = Messages(
        (np.full(order.size, number, np.int32),),
        (group[order].astype(np.int32),),
        (sums.kind[order],),
        (sums.index[order],),
        (sums.values[order],),
    )
    plain = view.manifest.upload.model_copy(update={"scale": 1.0, "regularization": 0.0})
    manifest = view.manifest.model_copy(update={"upload": plain})
    return View(view.adversary, manifest, {number: view.broadcasts[number]}, rows)
