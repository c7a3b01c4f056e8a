"""The aggregate attack: what decrypted sums give away of clients who are alone in one, and of others next.

Mai & Pang 2022 (section 5, Eq. 37) and Chai et al. 2021 (section 5) hand the sums of all clients' rows to the
server, or to every client. Mai & Pang 2022 argues that the sums have more unknowns than equations. But an
item with one contributor shows that client's row itself, and from there the sums are peeled
(``attacks.sums.peeling``): factors and answers follow, and what is known is subtracted, until nothing follows
any more. Who contributed to which sum is read off the lists of the uploads, encrypted or not. An adversary
without these lists (a decrypter; a client of FedMF or ``mf``, who sees V fall by the sum in every round; the
item server or a client of FedMVMF, who sees the first step of Adam) still finds who was alone: rows of one
client are parallel; sums of several clients, whose y are real numbers, are not, but by accident. Parallel
sums are rows of one client each, without a name (``attacks.closed_form.grid.rating_grid`` reads them).

What it assumes: sums in the clear and without noise, alpha in include-unrated. What it did not read is
answered by the most frequent answer that it read.

What a client itself uploaded is subtracted first.

References
----------
P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775. D. Chai et al., "Secure Federated Matrix Factorization",
arXiv:1906.05108.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from attacks.base import (
    RELATIVE,
    ClientFactors,
    Estimates,
    Identities,
    Progress,
    Reconstruction,
    all_abstain,
    joined,
    silent,
)
from attacks.closed_form.fit.images import OPEN_OFFSET
from attacks.closed_form.grid.rating_grid import Grid
from attacks.obstacles import alpha_unknown, factors_hidden
from attacks.sums.broadcast_sums import LOOSE, implied_sums
from attacks.sums.peeling import Answers, Factors, columns_of, findings, sums_of_round
from victims.common.validation import at_least, require_fields
from victims.transcript.manifest import Manifest, Upload
from victims.transcript.view import Messages, Sums, View

DECRYPTED = "the adversary sees no decrypted sums"
LARGEST_TABLE = 1 << 27  # clients x columns: a gigabyte for each of the tables below
CROWDED = "no sum of few enough contributors shows this client"
WITHOUT_LISTS = ("client:", "decrypter", "item-server")  # adversaries who see sums, and not whose
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


@dataclass(frozen=True)
class Aggregate:
    """Hyper-parameters.

    Attributes
    ----------
    passes : int
        Most repetitions over all rounds.
    """

    passes: int = 20
    name: str = "aggregate"

    def __post_init__(self) -> None:
        require_fields(self, "aggregate", passes=at_least(1))

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Take the sums of all rounds apart."""
        options = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        if _without_lists(view):
            return read_parallel(self.name, view, options)
        answers, factors = peeled(view, self.passes, progress)
        return _reconstruction(self.name, view, answers, factors, options)

    def obstacle(self, view: View) -> str:
        """Why there is nothing to take apart, or nothing."""
        if reason := alpha_unknown(view):
            return reason
        if _without_lists(view):
            return factors_hidden(view) or ("" if view.sums else implied_sums(view).obstacle)
        return ("" if view.sums else DECRYPTED) or factors_hidden(view) or _too_large(view)


def _without_lists(view: View) -> bool:
    return view.adversary.startswith(WITHOUT_LISTS) or (bool(view.sums) and not view.messages.n_rows)


def peeled(view: View, passes: int, progress: Progress = silent) -> tuple[Answers, dict[int, Factors]]:
    """Repeat the step of peeling over all rounds until nothing follows any more."""
    manifest = view.manifest
    rounds = {round_: sums_of_round(view, view.users, round_) for round_ in sorted(view.sums)}
    answers = np.full((view.users.size, manifest.n_items + manifest.n_attributes), np.nan)
    factors = {number: np.full((view.users.size, manifest.factors), np.nan) for number in rounds}
    n_known = 0
    for repetition in range(passes):
        for round_, sums in rounds.items():
            for finding in findings(manifest, sums, factors[round_], answers):
                answers[finding.clients, finding.columns] = finding.answers
                if finding.factor is not None:
                    factors[round_][finding.clients] = finding.factor
        progress(repetition + 1, passes)
        tables = (answers, *factors.values())
        before, n_known = n_known, sum(int(np.isfinite(table).sum()) for table in tables)
        if n_known == before:
            break
    return answers, factors


def _latest(users: Int[np.ndarray, " clients"], factors: Mapping[int, Factors]) -> ClientFactors | None:
    """Each client's factor in the last round that shows it."""
    number = np.zeros(users.size, np.int64)
    value = np.full(next(iter(factors.values())).shape, np.nan)
    for round_, table in factors.items():
        shown = np.isfinite(table).all(axis=1)
        number[shown], value[shown] = round_, table[shown]
    return joined([(users, number, value)])


def _reconstruction(
    name: str, view: View, answers: Answers, factors: Mapping[int, Factors], options: Mapping[str, Any]
) -> Reconstruction:
    """What was read, and the most frequent answer for what was listed and not read."""
    manifest, users = view.manifest, view.users
    read = np.isfinite(answers)
    unread = ~read.any(axis=1)
    if unread.all():
        return all_abstain(name, users, CROWDED, options)
    listed = _listed(view)
    value, probability = _filled(manifest, answers, listed)
    value[unread] = np.nan
    rated, if_rated = None, None
    if manifest.weighting == "include-unrated":
        rated, if_rated = _if_rated(manifest, read, answers)
    kind = np.repeat([0, 1], [manifest.n_items, manifest.n_attributes]).astype(np.int8)[None]
    index = np.concatenate([np.arange(manifest.n_items), np.arange(manifest.n_attributes)]).astype(np.int32)
    block = Estimates(users.astype(np.int32), kind, index[None], value, probability, rated, if_rated)
    share = read.sum(axis=1) / np.maximum(listed.sum(axis=1), 1)
    abstained = dict.fromkeys(users[unread].tolist(), CROWDED)
    found = _latest(users, factors)
    found = None if found is None else found.of(users[~unread])
    return Reconstruction(name, users, (block,), abstained, options, {"read": share}, factors=found)


def _too_large(view: View) -> str:
    """Why the tables of answers would not fit into memory, or nothing."""
    n_columns = view.manifest.n_items + view.manifest.n_attributes
    if view.users.size * n_columns <= LARGEST_TABLE:
        return ""
    return (
        f"the table of {view.users.size:,} clients x {n_columns:,} items and attributes has more than the "
        f"{LARGEST_TABLE:,} answers that this attack keeps at a time; attack a part of the clients"
    )


def _listed(view: View) -> Bool[np.ndarray, "clients columns"]:
    """Which rows the clients uploaded."""
    manifest, messages = view.manifest, view.messages
    listed = np.zeros((view.users.size, manifest.n_items + manifest.n_attributes), bool)
    for sender, kind, index in zip(messages.sender, messages.kind, messages.index, strict=True):
        listed[np.searchsorted(view.users, sender), columns_of(manifest, kind, index)] = True
    return listed


def _filled(
    manifest: Manifest, answers: Answers, listed: Bool[np.ndarray, "clients columns"]
) -> tuple[Answers, Float[np.ndarray, "clients columns"]]:
    """Answers with their gaps filled by the most frequent one, and how probable each is."""
    read = np.isfinite(answers)
    value, probability = answers.copy(), np.where(read, 1.0, np.nan)
    for columns in (slice(0, manifest.n_items), slice(manifest.n_items, None)):
        some_read = read[:, columns].any(axis=1, keepdims=True)
        # nothing is said of a client's attributes where none was read
        gaps = listed[:, columns] & ~read[:, columns] & (some_read | (columns.start == 0))
        seen, counts = np.unique(answers[:, columns][read[:, columns]], return_counts=True)
        if seen.size:
            value[:, columns][gaps] = seen[counts.argmax()]
            probability[:, columns][gaps] = counts.max() / counts.sum()
    return value, probability


def _if_rated(
    manifest: Manifest, read: Bool[np.ndarray, "users rows"], answers: Float[np.ndarray, "users rows"]
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows"]]:
    """How likely each item is rated, and its rating if it is: what was read, else what is most frequent."""
    items = slice(0, manifest.n_items)
    seen = answers[:, items][read[:, items]]
    levels, counts = np.unique(seen[seen > 0], return_counts=True)
    rated, value = np.full((2, *answers.shape), np.nan)
    share = np.mean(seen > 0) if seen.size else np.nan
    rated[:, items] = np.where(read[:, items], answers[:, items] > 0, share)
    if levels.size:
        value[:, items] = np.where(answers[:, items] > 0, answers[:, items], levels[counts.argmax()])
    return rated, value
