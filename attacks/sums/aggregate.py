"""The aggregate attack: what decrypted sums give away of clients who are alone in one, and of others next.

Mai & Pang 2022 (section 5, Eq. 37) and Chai et al. 2021 (section 5) hand the sums of all clients' rows to the
server, or to every client. Mai & Pang 2022 argues that the sums have more unknowns than equations. But an
item with one contributor shows that client's row itself, and from there the sums are peeled
(``attacks.sums.peeling``): factors and answers follow, and what is known is subtracted, until nothing follows
any more. Who contributed to which sum is read off the lists of the uploads, encrypted or not. An adversary
without these lists (a decrypter; a client of FedMF or ``mf``, who sees V fall by the sum in every round; the
item server or a client of FedMVMF, who sees the first step of Adam) still finds who was alone: rows of one
client are parallel (``attacks.sums.parallel_rows``).

What it assumes: sums in the clear and without noise, alpha in include-unrated. What it did not read is
answered by the most frequent answer that it read.

References
----------
P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775. D. Chai et al., "Secure Federated Matrix Factorization",
arXiv:1906.05108.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import ClientFactors, Estimates, Progress, Reconstruction, all_abstain, joined, silent
from attacks.obstacles import alpha_unknown, factors_hidden
from attacks.sums.broadcast_sums import implied_sums
from attacks.sums.parallel_rows import read_parallel
from attacks.sums.peeling import Answers, Factors, columns_of, findings, sums_of_round
from victims.common.validation import at_least, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

DECRYPTED = "the adversary sees no decrypted sums"
LARGEST_TABLE = 1 << 27  # clients x columns: a gigabyte for each of the tables below
CROWDED = "no sum of few enough contributors shows this client"
WITHOUT_LISTS = ("client:", "decrypter", "item-server")  # adversaries who see sums, and not whose


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
    return view.adversary.startswith(WITHOUT_LISTS)


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
