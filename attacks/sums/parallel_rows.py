"""Who was alone in a sum, without knowing who contributed: rows of one client are parallel.

For adversaries who know sums and no lists: a decrypter of PrivMVMF (Mai & Pang 2022, section 5), and
everybody to whom factors are broadcast, for the server's steps tell the sums
(``attacks.sums.broadcast_sums``): every client of FedMF (Chai et al. 2021, section 5) and of ``mf``, and in
the first round of FedMVMF the item server and, in semi-als or without item features, every client. A sum with
one contributor is y p_i. Two sums of one lone client are parallel; sums of several clients, whose y are real
numbers, are not, but by accident. So parallel sums are rows of one client each, without a name, and
``attacks.closed_form.grid.rating_grid`` reads their ratings.

What it assumes: sums without noise. What a client itself uploaded is subtracted first.

References
----------
P. Mai, Y. Pang, arXiv:2210.07775, section 5; D. Chai et al., arXiv:1906.05108, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from attacks.base import RELATIVE, Identities, Reconstruction, all_abstain
from attacks.closed_form.fit.images import OPEN_OFFSET
from attacks.closed_form.grid.rating_grid import Grid
from attacks.sums.broadcast_sums import LOOSE, implied_sums
from victims.transcript.manifest import Upload
from victims.transcript.view import Messages, Sums, View

PARALLEL = 1e-6  # between unit vectors, beside what their own errors allow
SMALL = 1e-9  # of the largest sum: rounding
LEAST = 2  # sums of a client
NOBODY_ALONE = "no two sums are parallel: nobody is seen to be alone in two of them, or they carry noise"


def read_parallel(name: str, view: View, options: Mapping[str, object]) -> Reconstruction:
    """Read ratings of nameless clients, from the round in which most sums are parallel to another."""

    def unread(users: np.ndarray, reason: str) -> Reconstruction:
        return all_abstain(name, users, reason, options, identities=Identities.PSEUDONYMS)

    nobody = np.zeros(0, np.int64)
    view, obstacle = sums_of_others(view)
    best: tuple[int, Sums, np.ndarray] | None = None
    for round_, sums in sorted(view.sums.items()):
        group = _groups(sums)
        if best is None or (group >= 0).sum() > (best[2] >= 0).sum():
            best = round_, sums, group
    if best is None:
        return unread(nobody, obstacle)
    if not (best[2] >= 0).any():
        return unread(nobody, NOBODY_ALONE)
    found = Grid().attack(_rows_of(view, *best), 0)
    if len(found.abstained) == found.users.size:
        return unread(found.users, "parallel sums fit no rating grid")
    if found.scope in RELATIVE:  # a claim about nobody by name is a rating or nothing
        return unread(found.users, OPEN_OFFSET)
    return replace(found, attack=name, options=options, identities=Identities.PSEUDONYMS)


def sums_of_others(view: View) -> tuple[View, str]:
    """Reduce a view to the sums of what others uploaded; doing it twice changes nothing.

    Sums that were decrypted for the adversary, and those that the broadcasts tell beside; its own rows
    subtracted, scaled as if ``upload`` were 1 and 0, freed of one contributor's regularisation. ``shuffled``
    of it is the null of what is read from it.
    """
    implied = implied_sums(view)
    found = {round_: _foreign(view, round_, sums, implied.pull) for round_, sums in implied.sums.items()}
    for round_, sums in view.sums.items():
        decrypted = _foreign(view, round_, sums, 0.0)
        found[round_] = _joined(decrypted, found[round_]) if round_ in found else decrypted
    none = (np.zeros(0, np.int32),)
    nothing = Messages(none, none, none, none, None)
    manifest = view.manifest.model_copy(update={"upload": Upload()})
    return replace(view, manifest=manifest, messages=nothing, sums=found), implied.obstacle


def _joined(exact: Sums, more: Sums) -> Sums:
    """All of the first, and those of the second that are not among them."""
    seen = set(zip(exact.kind.tolist(), exact.index.tolist(), strict=True))
    new = [pair not in seen for pair in zip(more.kind.tolist(), more.index.tolist(), strict=True)]
    parts = [
        (exact.kind, exact.index, exact.values, _error(exact)),
        (more.kind[new], more.index[new], more.values[new], _error(more)[new]),
    ]
    return Sums(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _error(sums: Sums) -> Float[np.ndarray, " sums"]:
    return np.zeros(sums.kind.size) if sums.error is None else sums.error


def _foreign(view: View, round_: int, sums: Sums, pull: float) -> Sums:
    """What others contributed, freed of one row's regularisation and of the scale of uploads."""
    manifest, messages = view.manifest, view.messages
    broadcast = view.broadcasts[round_]
    factor = broadcast.factors[broadcast.positions(sums.kind, sums.index)]
    values = sums.values.copy()
    place = {pair: at for at, pair in enumerate(zip(sums.kind.tolist(), sums.index.tolist(), strict=True))}
    for chunk, gradient in enumerate(messages.gradient or ()):
        for row in np.flatnonzero(messages.round[chunk] == round_).tolist():
            at = place.get((int(messages.kind[chunk][row]), int(messages.index[chunk][row])))
            if at is not None:
                values[at] -= gradient[row] + pull * factor[at]
    largest = np.abs(values).max(initial=0)
    empty = np.abs(values).max(axis=1) <= SMALL * largest
    values = (values - (manifest.upload.regularization + pull) * factor) / manifest.upload.scale
    values[empty] = 0
    return Sums(sums.kind, sums.index, values, _error(sums) / abs(manifest.upload.scale))


def _groups(sums: Sums) -> Int[np.ndarray, " sums"]:
    """Number of the group of parallel rows that each belongs to, -1 for rows that are parallel to none."""
    values, length = sums.values, np.linalg.norm(sums.values, axis=1)
    away = _error(sums) / np.where(length > 0, length, 1)
    there = np.flatnonzero((length > 0) & (away <= LOOSE))
    group = np.full(length.size, -1)
    if there.size < LEAST or values.shape[1] < 2:  # in one dimension everything is parallel
        return group
    unit = values[there] / length[there, None]
    largest = np.abs(unit).argmax(axis=1)
    unit *= np.sign(unit[np.arange(there.size), largest])[:, None]
    allowed = PARALLEL / 2 + away[there]
    pairs = cKDTree(unit).query_pairs(2 * allowed.max(), output_type="ndarray")
    apart = np.linalg.norm(unit[pairs[:, 0]] - unit[pairs[:, 1]], axis=1)
    pairs = pairs[apart <= allowed[pairs].sum(axis=1)]
    graph = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(there.size, there.size))
    _, label = connected_components(graph, directed=False)
    count = np.bincount(label)
    number = np.cumsum(count >= LEAST) - 1
    group[there] = np.where(count[label] >= LEAST, number[label], -1)
    return group


def _rows_of(view: View, round_: int, sums: Sums, group: np.ndarray) -> View:
    """The parallel sums as uploads of the pseudonyms."""
    order = np.lexsort((sums.index, sums.kind, group))
    order = order[group[order] >= 0]
    rows = Messages(
        (np.full(order.size, round_, np.int32),),
        (group[order].astype(np.int32),),
        (sums.kind[order],),
        (sums.index[order],),
        (sums.values[order],),
    )
    return View(view.adversary, view.manifest, {round_: view.broadcasts[round_]}, rows)
