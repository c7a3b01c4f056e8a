"""Rows of single clients in sums, isolated by a server that sent everybody else crafted factors.

The adversary is active (``active-server``), and knows what it sent. Restated from its name: who is read in
which round, in which coordinates. There all others' rows are zero, so that a sum is the target's row,
whatever was encrypted; ``grid`` reads it, in one round and without the client's update rule.

What it assumes: clients follow the protocol with whatever they are sent; decrypted sums without noise; alpha
in include-unrated. Of clients who were not targeted it says nothing. A factor so small that its rows are of
the size of what encryption rounds off is not read.

References
----------
D. Pasquini, D. Francati, G. Ateniese, "Eluding Secure Aggregation in Federated Learning via Model
Inconsistency", CCS 2022, doi:10.1145/3548606.3560557 (arXiv:2111.07380).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attacks.base import Progress, Reconstruction, all_abstain, silent
from attacks.closed_form.grid.rating_grid import Grid
from attacks.sums.aggregate import DECRYPTED
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, Messages, View

ACTIVE = "active-server"
BUDGET = r":manipulation=(suppress|canary),targets=(\d{1,9}),at_once=(\d{1,9}),first=(\d{1,9})"
TOLD = re.compile(ACTIVE + BUDGET, re.ASCII)
HONEST = "the server is honest but curious; --adversary active-server is one that sends crafted factors"
CLEAR = "nothing is encrypted: an active server sees each row as an honest one does"
REFUSED = "clients uploaded nothing in the rounds that were to be read, for what they were sent differed"
UNTOLD = "the adversary's name does not tell whom it targets, or tells more at once than there are factors"
ALIKE = "nobody is alone in having rated an item, so that no canary tells clients apart"
UNTARGETED = "the active server did not target this client in a recorded round"


class Target(NamedTuple):
    """Who is read in which round, and in which coordinates."""

    client: int
    round: int
    coordinates: Bool[np.ndarray, " K"]


def _told(view: View) -> tuple[bool, int, int, int] | None:
    """Whether there are canaries, targets, those of a batch and the first round; None where names lie."""
    told = TOLD.fullmatch(view.adversary)
    targets, at_once, first = (int(number) for number in told.groups()[1:]) if told else (0, 0, 0)
    if told is None or targets < 1 or not 1 <= at_once <= view.manifest.factors:
        return None
    return told[1] == "canary", min(targets, view.manifest.n_users), at_once, first


def plan_of(view: View) -> list[Target]:
    """Everybody who is read, as the adversary's name says; none where it says nothing of the kind."""
    manifest, each = view.manifest, 3 if view.manifest.update == "sgd" else 1
    if (told := _told(view)) is None:
        return []
    canaries, targets, at_once, first = told
    clients = np.arange(targets) * manifest.n_users // targets
    if canaries:
        clients = _alone(view.messages)[:targets]
    block = np.arange(manifest.factors) // (manifest.factors // at_once)
    return [
        Target(client, first + each * (number // at_once + 1) - 1, block == number % at_once)
        for number, client in enumerate(clients.tolist())
    ]


def targets_of(view: View) -> Int[np.ndarray, " clients"]:
    """The clients who are read in the rounds of a view."""
    read = [one.client for one in plan_of(view) if one.round in view.broadcasts]
    return np.unique(np.array(read, np.int64))


def _alone(messages: Messages) -> Int[np.ndarray, " clients"]:
    """Clients who alone rated some item, by the lists of what they upload."""
    sent = (np.concatenate(one) for one in (messages.sender, messages.kind, messages.index))
    sender, kind, index = (one.astype(np.int64) for one in sent)
    wide = index.max(initial=0) + 1
    sender, item = np.divmod(np.unique((sender * wide + index)[kind == ITEM]), wide)
    return np.unique(sender[np.bincount(item)[item] == 1])


def isolated(view: View) -> View:
    """The targets' rows, as if they had been uploaded in the clear."""
    manifest, rows = view.manifest, view.messages
    none = np.zeros(0, np.int32)
    parts = [(none, none, none.astype(np.int8), none, np.zeros((0, manifest.factors)))]
    for client, round_, own in plan_of(view):
        if round_ not in view.sums:
            continue
        sums = view.sums[round_]
        place = np.full((2, manifest.n_items + manifest.n_attributes), -1)
        place[sums.kind, sums.index] = np.arange(sums.kind.size)
        for chunk, sender in enumerate(rows.sender):
            sent = np.flatnonzero((sender == client) & (rows.round[chunk] == round_) & (rows.kind[chunk] < 2))
            kind, index = rows.kind[chunk][sent], rows.index[chunk][sent]
            at = place[kind, index]
            kept = at >= 0
            size = np.full(int(kept.sum()), client, np.int32)
            parts.append(
                (np.full_like(size, round_), size, kind[kept], index[kept], sums.values[at[kept]] * own)
            )
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    told: Manifest = manifest.model_copy(update={"defenses": []})
    return View(view.adversary, told, view.broadcasts, Messages(*((column,) for column in columns)))


@dataclass(frozen=True)
class Isolated:
    """It has no hyper-parameters: all that it knows is in the adversary's name."""

    name: str = "isolated"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read the targets of the recorded rounds."""
        options = {**asdict(self), "seed": key, "active": view.adversary}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        rows = isolated(view)
        found = Grid().attack(rows, key, progress)
        others = np.setdiff1d(view.users, found.users)
        users = np.union1d(view.users, found.users)
        return Reconstruction(
            self.name,
            users,
            found.blocks,
            {**found.abstained, **dict.fromkeys(others.tolist(), UNTARGETED)},
            options,
            outcome=found.outcome,
            scope=found.scope,
            factors=found.factors,
        )

    def obstacle(self, view: View) -> str:
        """Why nothing was isolated, or nothing."""
        if not view.adversary.startswith(ACTIVE):
            return HONEST
        if view.messages.gradient is not None and view.messages.n_rows:
            return CLEAR
        rounds = sorted({one.round for one in plan_of(view)})
        if not rounds:
            return UNTOLD if _told(view) is None else ALIKE
        if not targets_of(view).size:
            return f"none of the rounds that this server reads was recorded; --rounds {rounds[0]} is one"
        if not isolated(view).messages.n_rows:
            return REFUSED if not view.sums else DECRYPTED
        return ""
