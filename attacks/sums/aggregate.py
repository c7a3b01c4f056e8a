"""What decrypted sums give away: clients who are alone in one, and everybody who can be peeled off next.

Papers 000 (section 5, Eq. 37) and 001 (section 5) hand the sums of all clients' rows to the server, or to
every client. Paper 000 argues that the sums have more unknowns than equations. But an item with one
contributor shows that client's row itself, and from there a sum T = sum of y_i p_i is taken apart:

1. a client's direction d lies in the span of T and the known p_i, where it is the only unknown contributor
   (with one contributor that is T itself), and in the span of c sums of the same c < K unknown clients. Where
   these spans have one direction in common it is d: nobody need be alone, if K is larger than the sets;
2. its rows in those sums are y = g / s along d; the length s is the one that puts them on the rating grid
   (``attacks.closed_form.rating_grid``), and then p = s d and its answers follow;
3. a sum of at most K - 1 rows with known p_i is an over-determined linear system for its y_i, so the answers
   of all of them follow (of some more, when all combinations of a few answers are tried), and what is known
   is subtracted, in this round by its row, in others by its answer.

Repeated until nothing follows any more. Who contributed to which sum is read off the lists of the uploads,
encrypted or not. An adversary without these lists (a decrypter; a client of FedMF or ``mf``, who sees V fall
by the sum in every round; the item server or a client of FedMVMF, who sees the first step of Adam) still
finds who was alone: rows of one client are parallel (``attacks.sums.parallel_rows``).

What it assumes: sums in the clear and without noise, alpha in include-unrated. What it did not read is
answered by the most frequent answer that it read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from attacks.base import (
    Estimates,
    Progress,
    Reconstruction,
    all_abstain,
    alpha_unknown,
    factors_hidden,
    silent,
)
from attacks.closed_form.decoding import distance_to_levels, looks_unrated
from attacks.closed_form.rating_grid import RowNumbers, best_length, distance_from_grid
from attacks.sums.parallel_rows import read_parallel
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, Broadcast, Sums, View

ALONE = 1e-8  # smallest eigenvalue of the spans' complement, of the next one, for one direction in all
APART = 1e-6  # next eigenvalue, below which two directions are in all spans
FITS = 1e-6  # residual of an over-determined system, of its right side
ON_GRID = 1e-3  # stars, within which answers must be on the grid
COMBINATIONS = 4096  # of answers that are tried for one sum
DECRYPTED = "the adversary sees no decrypted sums"


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
        if self.passes < 1:
            raise ValueError(f"aggregate passes must be >= 1, got {self.passes}")

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Take the sums of all rounds apart.

        Parameters
        ----------
        view : View
        key : int
            Unused: the attack draws nothing at random.
        progress : callable
            Called with (repetitions, most repetitions).

        Returns
        -------
        Reconstruction
            ``probability`` is 1 for answers that follow, and the share of the most frequent answer for the
            others. Diagnostics: ``read``, the share of each client's listed rows that follow. Without lists
            the clients are pseudonyms (``identities``): see ``attacks.sums.parallel_rows``.
        """
        options = {**asdict(self), "seed": key}
        parallel = view.adversary.startswith(("client:", "decrypter", "item-server"))
        no_sums = "" if parallel or view.sums else DECRYPTED
        obstacle = alpha_unknown(view) or no_sums or factors_hidden(view)
        if obstacle:
            return all_abstain(self.name, view.users, obstacle, options)
        if parallel:
            return read_parallel(self.name, view, options)
        knowledge = _Knowledge.of(view)
        for number in range(self.passes):
            before = knowledge.known()
            for part in knowledge.rounds:
                _peel(view.manifest, part, knowledge.answers)
            progress(number + 1, self.passes)
            if knowledge.known() == before:
                break
        return _answered(self.name, view, knowledge, options)


@dataclass
class _Round:
    """Sums of one round, who contributed to each, and the factors found so far.

    sums (n_sums, K): sum of y_i p_i; column (n_sums,): place among items, then attributes; item (n_sums,);
    factor (n_sums, K): what was broadcast; members: clients of each sum, CSR (n_sums, clients); p (clients,
    K): NaN where unknown.
    """

    sums: Float[np.ndarray, "sums K"]
    column: Int[np.ndarray, " sums"]
    item: Bool[np.ndarray, " sums"]
    factor: Float[np.ndarray, "sums K"]
    members: sp.csr_array
    p: Float[np.ndarray, "clients K"]

    def clients(self, row: int) -> Int[np.ndarray, " contributors"]:
        """Contributors of one sum."""
        return self.members.indices[self.members.indptr[row] : self.members.indptr[row + 1]]


@dataclass
class _Knowledge:
    """Answers of all clients, (clients, items + attributes), NaN unknown; and the rounds."""

    answers: Float[np.ndarray, "clients columns"]
    rounds: list[_Round] = field(default_factory=list)

    @staticmethod
    def of(view: View) -> _Knowledge:
        manifest = view.manifest
        width = manifest.n_items + manifest.n_attributes
        found = _Knowledge(np.full((view.users.size, width), np.nan))
        for number in sorted(view.sums):
            found.rounds.append(_round_of(view.during([number]), view.users, view.sums[number]))
        return found

    def known(self) -> tuple[int, int]:
        """Numbers of answers and of factors that are known."""
        factors = sum(int(np.isfinite(part.p[:, 0]).sum()) for part in self.rounds)
        return int(np.isfinite(self.answers).sum()), factors


def columns_of(manifest: Manifest, kind: np.ndarray, index: np.ndarray) -> Int[np.ndarray, " rows"]:
    """Items first, then attributes."""
    return np.where(kind == ITEM, index, manifest.n_items + index).astype(np.int64)


def broadcast_of(broadcast: Broadcast, sums: Sums) -> Float[np.ndarray, "sums K"]:
    """The factor that belongs to each sum."""
    return broadcast.factors[broadcast.positions(sums.kind, sums.index)]


def _round_of(part: View, users: np.ndarray, sums: Sums) -> _Round:
    manifest, messages = part.manifest, part.messages
    column = columns_of(manifest, sums.kind, sums.index)
    place = np.full(manifest.n_items + manifest.n_attributes, -1)
    place[column] = np.arange(column.size)
    kind, index, sender = (np.concatenate(c) for c in (messages.kind, messages.index, messages.sender))
    row = place[columns_of(manifest, kind, index)]
    seen = row >= 0
    pairs = row[seen], np.searchsorted(users, sender[seen])
    members = sp.csr_array(
        sp.coo_array((np.ones(seen.sum()), pairs), shape=(column.size, users.size)).tocsr()
    )
    (number,) = part.sums
    factor = broadcast_of(part.broadcasts[number], sums)
    count = np.diff(members.indptr)[:, None]
    values = (sums.values - count * manifest.upload.regularization * factor) / manifest.upload.scale
    unknown = np.full((users.size, manifest.factors), np.nan)
    return _Round(values, column, sums.kind == ITEM, factor, members, unknown)


class _Open(NamedTuple):
    """A sum of which the known rows were subtracted: what is left, and whose rows those are.

    solved: clients with known p and unknown answer; unknown: clients without p.
    """

    row: int
    rest: Float[np.ndarray, " K"]
    solved: Int[np.ndarray, " solved"]
    unknown: Int[np.ndarray, " unknown"]


def _open(manifest: Manifest, part: _Round, answers: np.ndarray) -> list[_Open]:
    """Sums that may tell something, after what is known was subtracted."""
    k = part.p.shape[1]
    has_p = np.isfinite(part.p[:, 0])
    counts = np.diff(part.members.indptr)
    owner = np.repeat(np.arange(counts.size), counts)
    without = np.bincount(owner, ~has_p[part.members.indices], minlength=counts.size)
    open_answer = has_p[part.members.indices] & np.isnan(answers[part.members.indices, part.column[owner]])
    waiting = np.bincount(owner, open_answer, minlength=counts.size)
    most = k - 1 + _guessed(manifest)
    small = (waiting > 0) & (waiting <= most) & (without == 0)
    small |= (without == 1) & (waiting <= k - 2)
    small |= (without > 1) & (without < k) & (waiting == 0)
    found = []
    for row in np.flatnonzero(small).tolist():
        clients = part.clients(row)
        answer = answers[clients, part.column[row]]
        done = has_p[clients] & np.isfinite(answer)
        predicted = part.p[clients[done]] @ part.factor[row]
        y = _scalars(manifest, answer[done], predicted, bool(part.item[row]))
        rest = part.sums[row] - y @ part.p[clients[done]]
        solved = clients[has_p[clients] & ~done]
        found.append(_Open(row, rest, solved, clients[~has_p[clients]]))
    return found


def _options(manifest: Manifest, item: bool) -> Float[np.ndarray, " options"]:
    """Possible answers."""
    if not item:
        return np.array([0.0, 1.0])
    unrated = [0.0] if manifest.weighting == "include-unrated" else []
    return np.array([*unrated, *manifest.rating_levels])


def _guessed(manifest: Manifest) -> int:
    """How many answers of one sum are found by trying all combinations."""
    return int(np.log(COMBINATIONS) / np.log(max(_options(manifest, item=True).size, 2)))


def _scalars(
    manifest: Manifest, answer: np.ndarray, predicted: np.ndarray, item: bool
) -> Float[np.ndarray, " *rows"]:
    """y = c (z - p . q) of known answers."""
    weight = np.ones_like(answer)
    if item and manifest.weighting == "include-unrated":
        weight[answer == 0] = manifest.hyperparameters["alpha"]
    return weight * (answer - predicted)


def _peel(manifest: Manifest, part: _Round, answers: np.ndarray) -> None:
    """One repetition over a round; new factors and answers are written into it."""
    sums = _open(manifest, part, answers)
    for each in sums:
        if not each.unknown.size:
            _solve_sum(manifest, part, each, answers)
    unknown = [each for each in sums if each.unknown.size]
    directions = _directions(part, unknown)
    rows: dict[int, list[tuple[int, float]]] = {}
    for each in unknown:
        if all(client in directions for client in each.unknown.tolist()):
            shares = _shares(part, each, directions)
            for client, share in zip(each.unknown.tolist(), shares, strict=True):
                rows.setdefault(client, []).append((each.row, share))
    for client, own in rows.items():
        _solve_length(manifest, part, client, directions[client], own, answers)


def _solve_sum(manifest: Manifest, part: _Round, each: _Open, answers: np.ndarray) -> None:
    """Step 3: the answers of clients whose factors are known."""
    p, item = part.p[each.solved], bool(part.item[each.row])
    guessed = max(0, each.solved.size - (p.shape[1] - 1))
    options = _options(manifest, item)
    if options.size**guessed > COMBINATIONS:
        return
    predicted = p @ part.factor[each.row]
    table = np.array(list(product(options, repeat=guessed))).reshape(options.size**guessed, guessed)
    rest = each.rest - _scalars(manifest, table, predicted[:guessed], item) @ p[:guessed]
    columns = p[guessed:].T
    y = rest @ np.linalg.pinv(columns).T
    off = np.linalg.norm(y @ columns.T - rest, axis=1)
    found = _decoded(manifest, y, np.broadcast_to(predicted[guessed:], y.shape), np.array(item))
    size = max(float(np.linalg.norm(part.sums[each.row])), 1e-12)
    # all answers together and one way only, so that no wrong one stands beside right ones
    fits = np.flatnonzero((off <= FITS * size) & np.isfinite(found).all(axis=1))
    if fits.size == 1:
        answers[each.solved, part.column[each.row]] = np.concatenate([table[fits[0]], found[fits[0]]])


def _directions(part: _Round, sums: list[_Open]) -> dict[int, Float[np.ndarray, " K"]]:
    """Step 1: clients for whom one direction alone lies in all spans that must hold theirs."""
    spans: dict[int, list[np.ndarray]] = {}
    same: dict[tuple[int, ...], list[np.ndarray]] = {}
    for each in sums:
        if each.unknown.size == 1:
            basis = np.linalg.qr(np.column_stack([each.rest, *part.p[each.solved]]))[0]
            spans.setdefault(int(each.unknown[0]), []).append(basis)
        else:
            same.setdefault(tuple(each.unknown.tolist()), []).append(each.rest)
    for clients, rests in same.items():
        size = len(clients)
        if len(rests) < size:
            continue
        _, values, axes = np.linalg.svd(np.stack(rests), full_matrices=False)
        if values[size - 1] > APART * values[0]:
            for client in clients:
                spans.setdefault(client, []).append(axes[:size].T)
    found = {client: _common(bases) for client, bases in spans.items()}
    return {client: direction for client, direction in found.items() if direction is not None}


def _common(bases: list[np.ndarray]) -> Float[np.ndarray, " K"] | None:
    """The one direction in all spans, or None."""
    complement = np.sum([np.eye(basis.shape[0]) - basis @ basis.T for basis in bases], axis=0)
    values, vectors = np.linalg.eigh(complement)
    if values.size > 1 and (values[1] < APART or values[0] > ALONE * values[1]):
        return None
    return vectors[:, 0]


def _shares(part: _Round, each: _Open, directions: dict[int, np.ndarray]) -> Float[np.ndarray, " unknown"]:
    """y s of the unknown clients of a sum, along their directions; NaN where the sum does not fit them."""
    own = [directions[client] for client in each.unknown.tolist()]
    columns = np.column_stack([*own, *part.p[each.solved]])
    y, *_ = np.linalg.lstsq(columns, each.rest)
    off = np.linalg.norm(columns @ y - each.rest)
    fits = off <= FITS * max(float(np.linalg.norm(part.sums[each.row])), 1e-12)
    return y[: len(own)] if fits else np.full(len(own), np.nan)


def _solve_length(
    manifest: Manifest,
    part: _Round,
    client: int,
    direction: Float[np.ndarray, " K"],
    own: list[tuple[int, float]],
    answers: np.ndarray,
) -> None:
    """Step 2: the length that puts a client's rows on the rating grid, and the answers."""
    row, scalar = np.array([at for at, _ in own]), np.array([share for _, share in own])
    known = np.isfinite(scalar) & (scalar != 0)
    if known.sum() < 2:
        return
    row, scalar = row[known], scalar[known]
    item = part.item[row]
    along = part.factor[row] @ direction
    rows = RowNumbers(scalar[None], along[None], item[None], np.ones((1, row.size), bool))
    length = best_length(manifest, rows)
    if not length[0] > 0 or distance_from_grid(manifest, rows, length)[0] > ON_GRID:
        return
    for sign in (1.0, -1.0):
        p = sign * length[0] * direction
        found = _decoded(manifest, sign * scalar / length[0], part.factor[row] @ p, item)
        if np.isfinite(found).all():
            part.p[client] = p
            answers[client, part.column[row]] = found
            return


def _decoded(
    manifest: Manifest, y: np.ndarray, predicted: np.ndarray, item: np.ndarray
) -> Float[np.ndarray, " *rows"]:
    """Answers from y = c (z - p . q), NaN where none is near."""
    value = y + predicted
    levels = np.array(manifest.rating_levels)
    away = distance_to_levels(value, levels)
    nearest = levels[np.abs(value[..., None] - levels).argmin(axis=-1)]
    if manifest.weighting == "include-unrated":
        alpha = manifest.hyperparameters["alpha"]
        unrated = looks_unrated(y, predicted, levels, alpha)
        nearest = np.where(unrated, 0.0, nearest)
        away = np.where(unrated, np.abs(y + alpha * predicted), away)
    flag = np.clip(np.rint(value), 0, 1)
    away, nearest = np.where(item, away, np.abs(value - flag)), np.where(item, nearest, flag)
    return np.where(away < ON_GRID, nearest, np.nan)


def _answered(name: str, view: View, knowledge: _Knowledge, options: dict[str, object]) -> Reconstruction:
    """Read answers, and the most frequent one for what was listed and not read."""
    manifest, users = view.manifest, view.users
    answers = knowledge.answers
    listed, messages = np.zeros(answers.shape, bool), view.messages
    for sender, kind, index in zip(messages.sender, messages.kind, messages.index, strict=True):
        listed[np.searchsorted(users, sender), columns_of(manifest, kind, index)] = True
    read = np.isfinite(answers)
    silent_ones = ~read.any(axis=1)
    reason = "no sum of few enough contributors shows this client"
    if silent_ones.all():
        return all_abstain(name, users, reason, options)
    value, sure = answers.copy(), np.where(read, 1.0, np.nan)
    for columns in (slice(0, manifest.n_items), slice(manifest.n_items, None)):
        told = read[:, columns].any(axis=1, keepdims=True)  # nothing is said of a client's attributes at all
        gaps = listed[:, columns] & ~read[:, columns] & (told | (columns.start == 0))
        seen, counts = np.unique(answers[:, columns][read[:, columns]], return_counts=True)
        if seen.size:
            value[:, columns][gaps] = seen[counts.argmax()]
            sure[:, columns][gaps] = counts.max() / counts.sum()
    value[silent_ones] = np.nan
    rated, if_rated = None, None
    if manifest.weighting == "include-unrated":
        rated, if_rated = _if_rated(manifest, read, answers)
    kind = np.repeat([0, 1], [manifest.n_items, manifest.n_attributes]).astype(np.int8)[None]
    index = np.concatenate([np.arange(manifest.n_items), np.arange(manifest.n_attributes)]).astype(np.int32)
    block = Estimates(users.astype(np.int32), kind, index[None], value, sure, rated, if_rated)
    share = read.sum(axis=1) / np.maximum(listed.sum(axis=1), 1)
    abstained = dict.fromkeys(users[silent_ones].tolist(), reason)
    return Reconstruction(name, users, (block,), abstained, options, {"read": share})


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
