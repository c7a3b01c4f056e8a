"""Recordings that cells attack: how they are made, whose rows they show, and what to say about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attacks.closed_form.lists.rated_set import RatedSet, rated_items
from attacks.obstacles import nothing_received
from audit.factories import make_defenses
from audit.registry import entry
from audit.scoring.truth import Truth, read_truth
from victims.common.files import remove
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.active_server import ActiveServer
from victims.protocols.base import Defense, Victim
from victims.recording import record
from victims.transcript.adversaries import ACTIVE, CLIENT, names_of, spoken
from victims.transcript.beside import factors_path, key_path, truth_path
from victims.transcript.manifest import SAMPLING, Manifest
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript
from victims.transcript.sybils import SYBILS
from victims.transcript.view import ITEM, View


class Recorded(NamedTuple):
    """A transcript, and the truth beside it."""

    transcript: Transcript
    truth: Truth


def files_of(path: Path) -> tuple[Path, ...]:
    """List what a recording consists of."""
    return path, truth_path(path), factors_path(path), key_path(path)


def recorded(
    path: Path,
    victim: Victim,
    ratings: Ratings,
    *,
    rounds: Sequence[int],
    users: int | None,
    defenses: Sequence[str],
    seed: int,
    train_on_received: bool = True,
) -> Recorded:
    """Record a victim, or open what was recorded under that name before."""
    if not (path.exists() and truth_path(path).exists()):
        for old in files_of(path):
            remove(old)
        record(
            victim,
            ratings,
            path,
            rounds=rounds,
            users=_chosen(victim, ratings, users, seed),
            defenses=[defense for text in defenses for defense in make_defenses(text)],
            train_on_received=train_on_received,
            seed=seed,
        )
    return Recorded(open_transcript(path), read_truth(truth_path(path)))


def _chosen(victim: Victim, ratings: Ratings, users: int | None, seed: int) -> np.ndarray | None:
    """So many clients at random; those whom an active server is after, where there is one."""
    n_users = ratings.n_users
    if users is None or users >= n_users:
        return None
    if isinstance(victim, ActiveServer) and (targets := victim.targeted(ratings)[0]).size:
        return targets[:users]
    return generator(seed, Purpose.RECORDED_CLIENTS).choice(n_users, users, replace=False)


def sampled(view: View, attack: str, sample: int, seed: int) -> View:
    """Leave some clients of a view for an attack that solves client by client."""
    if not entry("attacks", attack).per_client or view.users.size <= sample:
        return view
    rng = generator(seed, Purpose.ATTACKED_CLIENTS)
    return view.select(rng.choice(view.users, sample, replace=False))


OWN_ROWS = "the adversary is a client and receives nobody else's uploads"


def rows_of_others(view: View, attack: str) -> View:
    """Leave out what a client itself uploaded, where it receives rows of others and the attack takes any."""
    others = users_of_others(view)
    whole = others.size in (0, view.users.size) or entry("attacks", attack).whole
    return view if whole else view.select(others)


def users_of_others(view: View) -> np.ndarray:
    """Clients whose uploads an adversary receives, without itself."""
    return view.users[~np.isin(view.users, view.members)]


def own_rows_alone(view: View) -> str:
    """Say that a client receives nothing of others, or nothing."""
    if not view.members or not view.users.size or users_of_others(view).size:
        return ""
    return f"beside its own uploads, {nothing_received(view)}" if view.anonymous_rows else OWN_ROWS


def receives_uploads(adversary: str) -> bool:
    """Tell whether somebody receives the uploads of all clients."""
    passive = ("server", "server+client", "eavesdropper")
    return adversary in passive or adversary.startswith((ACTIVE, SYBILS))


def other_adversary(opened: Transcript, view: View) -> str:
    """Say whose view is worth an audit, where nothing was sent to the one that was asked about."""
    if view.messages.n_rows or view.anonymous_rows or view.sums:
        return ""
    columns = [*opened.receiver, *opened.anonymous_receiver]
    if opened.deliveries is not None:
        columns.append(opened.deliveries.receiver)
    receiving = np.unique(
        np.concatenate([np.zeros(0, np.int64), *(column[column >= 0] for column in columns)])
    )
    if not receiving.size:
        return ""
    first = int(receiving[0])
    name = spoken(names_of(opened.path).get(first, str(first)))
    return (
        f"Nothing was sent to the {view.adversary}, and something to {receiving.size:,} clients: --adversary "
        f"{CLIENT}{name} shows what one of them sees, --adversary eavesdropper what is on the wire."
    )


def uploads_name_lists(manifest: Manifest, defenses: Iterable[Defense]) -> bool:
    """Tell whether a victim's uploads name the items that clients rated."""
    others = manifest.upload.zeros_if_unrated or manifest.draws_negatives
    return (
        not others
        and not manifest.senders_hidden
        and not any(defense.name == SAMPLING for defense in defenses)
    )


def lists_open(view: View, truth: Truth | None = None) -> bool:
    """Tell whether uploads name the items that clients rated: rows of these alone, whatever is in them."""
    manifest = view.manifest
    lists = manifest.weighting == "observed-only" and not (manifest.unrated_rows or manifest.draws_negatives)
    if not lists or manifest.senders_hidden or not users_of_others(view).size:
        return False
    if truth is not None:
        return _all_rated(view, truth)
    return not RatedSet().obstacle(view) and rated_items(view).all_sent


def _all_rated(view: View, truth: Truth) -> bool:
    """Whether every item that an upload is about was rated by its client."""
    width = max(view.manifest.n_items, truth.ratings.shape[1])
    listed = truth.ratings.tocoo()
    rated = np.unique(truth.users[listed.row].astype(np.int64) * width + listed.col)
    messages = view.messages
    for sender, kind, index in zip(messages.sender, messages.kind, messages.index, strict=True):
        about = (kind == ITEM) & np.isin(sender, truth.users)
        cells = sender[about].astype(np.int64) * width + index[about]
        if not np.isin(cells, rated).all():
            return False
    return True
