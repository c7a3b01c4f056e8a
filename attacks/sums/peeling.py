"""One step of peeling: what the sums of a round tell, given the factors and answers that are known so far.

The step is a pure function, ``findings``; ``attacks.sums.aggregate`` repeats it and keeps what it finds.
With p_i the clients' factors and sum T = sum of y_i p_i over its contributors:

1. a client's direction d lies in the span of T and the known p_i, where it is the only unknown contributor
   (with one contributor that is T itself), and in the span of c sums of the same c < K unknown clients. Where
   these spans have one direction in common it is d: nobody need be alone, if K is larger than the sets;
2. its rows in those sums are y = g / s along d; the length s is the one that puts them on the rating grid
   (``attacks.closed_form.grid.rating_grid``), and then p = s d and its answers follow;
3. a sum of at most K - 1 rows with known p_i is an over-determined linear system for its y_i, so the answers
   of all of them follow (of some more, when all combinations of a few answers are tried), and what is known
   is subtracted, in this round by its row, in others by its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.decoding import distance_to_levels, looks_unrated
from attacks.closed_form.grid.rating_grid import RowNumbers, best_length, distance_from_grid
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

ALONE = 1e-8  # smallest eigenvalue of the spans' complement, of the next one, for one direction in all
APART = 1e-6  # next eigenvalue, below which two directions are in all spans
FITS = 1e-6  # residual of an over-determined system, of its right side
COMBINATIONS = 4096  # of answers that are tried for one sum

Factors = Float[np.ndarray, "clients K"]  # p of a round, NaN where unknown
Answers = Float[np.ndarray, "clients columns"]  # z of items, then attributes; NaN where unknown
ON_GRID = 1e-3  # stars, within which answers must be on the grid


def possible_answers(manifest: Manifest, item: bool) -> Float[np.ndarray, " answers"]:
    """List the answers that a row may hold."""
    if not item:
        return np.array([0.0, 1.0])
    unrated = [0.0] if manifest.weighting == "include-unrated" else []
    return np.array([*unrated, *manifest.rating_levels])


def scalars_of(
    manifest: Manifest,
    answer: Float[np.ndarray, "*batch rows"],
    predicted: Float[np.ndarray, " rows"],
    item: bool,
) -> Float[np.ndarray, "*batch rows"]:
    """Compute y = c (z - p . t) of known answers."""
    weight = np.ones_like(answer)
    if item and manifest.weighting == "include-unrated":
        weight[answer == 0] = manifest.hyperparameters["alpha"]
    return weight * (answer - predicted)


def answers_of(
    manifest: Manifest,
    scalar: Float[np.ndarray, "*rows"],
    predicted: Float[np.ndarray, "*rows"],
    item: Bool[np.ndarray, "*some"],
) -> Float[np.ndarray, "*rows"]:
    """Decode answers from y = c (z - p . t)."""
    value = scalar + predicted
    levels = np.array(manifest.rating_levels)
    away = distance_to_levels(value, levels)
    nearest = levels[np.abs(value[..., None] - levels).argmin(axis=-1)]
    if manifest.weighting == "include-unrated":
        alpha = manifest.hyperparameters["alpha"]
        unrated = looks_unrated(scalar, predicted, levels, alpha)
        nearest = np.where(unrated, 0.0, nearest)
        away = np.where(unrated, np.abs(scalar + alpha * predicted), away)
    flag = np.clip(np.rint(value), 0, 1)
    away, nearest = np.where(item, away, np.abs(value - flag)), np.where(item, nearest, flag)
    return np.where(away < ON_GRID, nearest, np.nan)


@dataclass(frozen=True)
class RoundSums:
    """The sums of one round, and who contributed to each."""

    sums: Float[np.ndarray, "sums K"]  # sum of y_i p_i
    column: Int[np.ndarray, " sums"]  # position among items, then attributes
    item: Bool[np.ndarray, " sums"]  # whether a sum is about an item
    factor: Float[np.ndarray, "sums K"]  # what was broadcast
    members: sp.csr_array  # the contributors

    def __repr__(self) -> str:
        """One line: of how many sums and clients."""
        return f"RoundSums(sums={self.column.size}, clients={self.members.shape[1]})"

    def contributors(self, row: int) -> Int[np.ndarray, " contributors"]:
        """Contributors of one sum."""
        return self.members.indices[self.members.indptr[row] : self.members.indptr[row + 1]]

    def tolerance(self, row: int) -> float:
        """Length of a residual that is rounding, beside one sum."""
        return FITS * max(float(np.linalg.norm(self.sums[row])), 1e-12)


class Finding(NamedTuple):
    """Answers that follow: clients and columns (or one of either), z, and the factor of a single client."""

    clients: Int[np.ndarray, "*clients"]
    columns: Int[np.ndarray, "*columns"]
    answers: Float[np.ndarray, " answers"]
    factor: Float[np.ndarray, " K"] | None = None


def columns_of(
    manifest: Manifest, kind: Int[np.ndarray, " rows"], index: Int[np.ndarray, " rows"]
) -> Int[np.ndarray, " rows"]:
    """Number the columns of a table of answers: items first, then attributes."""
    return np.where(kind == ITEM, index, manifest.n_items + index).astype(np.int64)


def sums_of_round(view: View, users: Int[np.ndarray, " clients"], round_: int) -> RoundSums:
    """Collect the sums of one round, freed of regularisation and of the scale of uploads."""
    view, sums = view.during([round_]), view.sums[round_]
    manifest, messages = view.manifest, view.messages
    column = columns_of(manifest, sums.kind, sums.index)
    row_of_column = np.full(manifest.n_items + manifest.n_attributes, -1)
    row_of_column[column] = np.arange(column.size)
    kind, index, sender = (np.concatenate(c) for c in (messages.kind, messages.index, messages.sender))
    row = row_of_column[columns_of(manifest, kind, index)]
    seen = row >= 0
    pairs = row[seen], np.searchsorted(users, sender[seen])
    members = sp.csr_array(
        sp.coo_array((np.ones(seen.sum()), pairs), shape=(column.size, users.size)).tocsr()
    )
    broadcast = view.broadcasts[round_]
    factor = broadcast.factors[broadcast.positions(sums.kind, sums.index)]
    count = np.diff(members.indptr)[:, None]
    values = (sums.values - count * manifest.upload.regularization * factor) / manifest.upload.scale
    return RoundSums(values, column, sums.kind == ITEM, factor, members)


def findings(manifest: Manifest, sums: RoundSums, factors: Factors, answers: Answers) -> list[Finding]:
    """Find what follows from the sums of a round; nothing that is given is changed."""
    remainders = _remainders(manifest, sums, factors, answers)
    solved = [_solved_sum(manifest, sums, factors, one) for one in remainders if not one.unknown.size]
    unknown = [one for one in remainders if one.unknown.size]
    directions = _directions(factors, unknown)
    rows: dict[int, list[tuple[int, float]]] = {}
    for one in unknown:
        if all(client in directions for client in one.unknown.tolist()):
            shares = _shares(sums, factors, one, directions)
            for client, share in zip(one.unknown.tolist(), shares, strict=True):
                rows.setdefault(client, []).append((one.row, share))
    lengths = [
        _solved_length(manifest, sums, client, directions[client], client_rows)
        for client, client_rows in rows.items()
    ]
    return [finding for finding in (*solved, *lengths) if finding is not None]


class _Remainder(NamedTuple):
    """A sum of which the known rows were subtracted.

    rest: what is left; solved: clients with known p and unknown answer; unknown: clients without p.
    """

    row: int
    rest: Float[np.ndarray, " K"]
    solved: Int[np.ndarray, " solved"]
    unknown: Int[np.ndarray, " unknown"]


def _remainders(manifest: Manifest, sums: RoundSums, factors: Factors, answers: Answers) -> list[_Remainder]:
    """Sums that may tell something, after what is known was subtracted."""
    has_factor = np.isfinite(factors[:, 0])
    remainders = []
    for row in _promising(manifest, sums, factors.shape[1], has_factor, answers).tolist():
        clients = sums.contributors(row)
        answer = answers[clients, sums.column[row]]
        done = has_factor[clients] & np.isfinite(answer)
        predicted = factors[clients[done]] @ sums.factor[row]
        y = scalars_of(manifest, answer[done], predicted, bool(sums.item[row]))
        rest = sums.sums[row] - y @ factors[clients[done]]
        solved = clients[has_factor[clients] & ~done]
        remainders.append(_Remainder(row, rest, solved, clients[~has_factor[clients]]))
    return remainders


def _promising(
    manifest: Manifest, sums: RoundSums, k: int, has_factor: Bool[np.ndarray, " clients"], answers: Answers
) -> Int[np.ndarray, " rows"]:
    """Sums with few enough unknown clients and answers."""
    contributors, counts = sums.members.indices, np.diff(sums.members.indptr)
    owner = np.repeat(np.arange(counts.size), counts)
    without = np.bincount(owner, ~has_factor[contributors], minlength=counts.size)
    open_answer = has_factor[contributors] & np.isnan(answers[contributors, sums.column[owner]])
    waiting = np.bincount(owner, open_answer, minlength=counts.size)
    most = k - 1 + _n_guessed(manifest)
    few = (waiting > 0) & (waiting <= most) & (without == 0)
    few |= (without == 1) & (waiting <= k - 2)
    few |= (without > 1) & (without < k) & (waiting == 0)
    return np.flatnonzero(few)


def _n_guessed(manifest: Manifest) -> int:
    """How many answers of one sum are found by trying all combinations."""
    return int(np.log(COMBINATIONS) / np.log(max(possible_answers(manifest, item=True).size, 2)))


def _solved_sum(
    manifest: Manifest, sums: RoundSums, factors: Factors, remainder: _Remainder
) -> Finding | None:
    """Step 3: the answers of clients whose factors are known."""
    p, item = factors[remainder.solved], bool(sums.item[remainder.row])
    n_guessed = max(0, remainder.solved.size - (p.shape[1] - 1))
    possible = possible_answers(manifest, item)
    if possible.size**n_guessed > COMBINATIONS:
        return None
    predicted = p @ sums.factor[remainder.row]
    table = np.array(list(product(possible, repeat=n_guessed)))
    table = table.reshape(possible.size**n_guessed, n_guessed)
    rest = remainder.rest - scalars_of(manifest, table, predicted[:n_guessed], item) @ p[:n_guessed]
    columns = p[n_guessed:].T
    y = rest @ np.linalg.pinv(columns).T
    off = np.linalg.norm(y @ columns.T - rest, axis=1)
    decoded = answers_of(manifest, y, np.broadcast_to(predicted[n_guessed:], y.shape), np.array(item))
    # all answers together and one way only, so that no wrong one stands beside right ones
    fits = np.flatnonzero((off <= sums.tolerance(remainder.row)) & np.isfinite(decoded).all(axis=1))
    if fits.size != 1:
        return None
    whole = np.concatenate([table[fits[0]], decoded[fits[0]]])
    return Finding(remainder.solved, np.asarray(sums.column[remainder.row]), whole)


def _directions(factors: Factors, remainders: list[_Remainder]) -> Mapping[int, Float[np.ndarray, " K"]]:
    """Step 1: clients for whom one direction alone lies in all spans that must hold theirs."""
    spans: dict[int, list[np.ndarray]] = {}
    same_clients: dict[tuple[int, ...], list[np.ndarray]] = {}
    for one in remainders:
        if one.unknown.size == 1:
            basis = np.linalg.qr(np.column_stack([one.rest, *factors[one.solved]]))[0]
            spans.setdefault(int(one.unknown[0]), []).append(basis)
        else:
            same_clients.setdefault(tuple(one.unknown.tolist()), []).append(one.rest)
    for clients, rests in same_clients.items():
        size = len(clients)
        if len(rests) < size:
            continue
        _, values, axes = np.linalg.svd(np.stack(rests), full_matrices=False)
        if values[size - 1] > APART * values[0]:
            for client in clients:
                spans.setdefault(client, []).append(axes[:size].T)
    directions = {client: _common_direction(bases) for client, bases in spans.items()}
    return {client: direction for client, direction in directions.items() if direction is not None}


def _common_direction(bases: list[np.ndarray]) -> Float[np.ndarray, " K"] | None:
    """The one direction in all spans, or None."""
    complement = np.sum([np.eye(basis.shape[0]) - basis @ basis.T for basis in bases], axis=0)
    values, vectors = np.linalg.eigh(complement)
    if values.size > 1 and (values[1] < APART or values[0] > ALONE * values[1]):
        return None
    return vectors[:, 0]


def _shares(
    sums: RoundSums, factors: Factors, remainder: _Remainder, directions: Mapping[int, np.ndarray]
) -> Float[np.ndarray, " unknown"]:
    """y s of the unknown clients of a sum, along their directions; NaN where the sum does not fit them."""
    along = [directions[client] for client in remainder.unknown.tolist()]
    columns = np.column_stack([*along, *factors[remainder.solved]])
    y, *_ = np.linalg.lstsq(columns, remainder.rest)
    off = np.linalg.norm(columns @ y - remainder.rest)
    return y[: len(along)] if off <= sums.tolerance(remainder.row) else np.full(len(along), np.nan)


def _solved_length(
    manifest: Manifest,
    sums: RoundSums,
    client: int,
    direction: Float[np.ndarray, " K"],
    client_rows: list[tuple[int, float]],
) -> Finding | None:
    """Step 2: the length that puts a client's rows on the rating grid, and the answers."""
    row, scalar = np.array([at for at, _ in client_rows]), np.array([share for _, share in client_rows])
    usable = np.isfinite(scalar) & (scalar != 0)
    if usable.sum() < 2:
        return None
    row, scalar = row[usable], scalar[usable]
    item, along = sums.item[row], sums.factor[row] @ direction
    rows = RowNumbers(scalar[None], along[None], item[None], np.ones((1, row.size), bool))
    length = best_length(manifest, rows)
    if not length[0] > 0 or distance_from_grid(manifest, rows, length)[0] > ON_GRID:
        return None
    for sign in (1.0, -1.0):
        factor = sign * length[0] * direction
        decoded = answers_of(manifest, sign * scalar / length[0], sums.factor[row] @ factor, item)
        if np.isfinite(decoded).all():
            return Finding(np.asarray(client), sums.column[row], decoded, factor)
    return None
