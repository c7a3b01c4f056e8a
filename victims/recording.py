"""Run a victim and stream what each party sees to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from victims.errors import InputError
from victims.protocol import Defense, Received, Rows, Sample, Victim
from victims.ratings import Ratings
from victims.view import ATTRIBUTE, ITEM
from victims.writing import TranscriptWriter, truth_path, write_truth


def record(
    victim: Victim,
    ratings: Ratings,
    path: Path,
    *,
    rounds: Sequence[int],
    users: Sequence[int] | np.ndarray | None = None,
    defenses: Sequence[Defense] = (),
    train_on_received: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Run a victim up to the last of ``rounds`` and write the transcript ``path`` and its truth.

    Parameters
    ----------
    victim : Victim
    ratings : Ratings
    path : Path
        Directory to create. The truth goes to ``NAME.truth.arrow`` beside it.
    rounds : sequence of int
        Rounds to keep, counted from 0; all rounds up to the largest are trained.
    users : sequence of int, optional
        Clients to keep; everybody takes part in training either way.
    defenses : sequence of Defense
        Applied in this order to every upload.
    train_on_received : bool
        Whether the server trains on what it receives, as it would; False trains it on the uploads before
        the defenses, so that recordings under different defenses show the same factors.
    seed : int
    progress : callable
        Called with (rounds done, rounds in all).

    Raises
    ------
    InputError
        If a round or user does not exist, ``path`` exists, or training diverges.
    """
    wanted = sorted({int(number) for number in rounds})
    if not wanted or wanted[0] < 0:
        raise InputError(f"rounds must be a non-empty list of numbers >= 0, got {list(rounds)}")
    kept = np.arange(ratings.n_users) if users is None else np.unique(np.asarray(users))
    if kept.size == 0 or kept[0] < 0 or kept[-1] >= ratings.n_users:
        raise InputError(f"users must be between 0 and {ratings.n_users - 1}, got {kept}")
    if truth_path(path).exists():
        raise InputError(f"{truth_path(path)} exists; choose another name or remove it first")
    manifest = victim.manifest(ratings, wanted)
    manifest = manifest.model_copy(update={"defenses": [defense.public() for defense in defenses]})
    with TranscriptWriter(path, manifest) as writer:
        state = victim.init(ratings, seed)
        for number in range(wanted[-1] + 1):
            if number in wanted:
                writer.state(number, *victim.broadcast(state))
                for rows in _defended(victim, defenses, state, ratings, kept, number, seed):
                    writer.messages(number, rows.sender, rows.kind, rows.index, rows.gradient)
            if number < wanted[-1]:
                applied = defenses if train_on_received else ()
                sums = received(victim, applied, state, ratings, number, seed)
                state = victim.round(state, ratings, sums, sampled(defenses, ratings, number, seed))
            progress(number + 1, wanted[-1] + 1)
        write_truth(truth_path(path), *truth_columns(ratings, kept))


def _defended(
    victim: Victim,
    defenses: Sequence[Defense],
    state: Any,
    ratings: Ratings,
    users: np.ndarray,
    number: int,
    seed: int,
) -> Iterator[Rows]:
    """Uploads as they leave the clients."""
    for piece in victim.uploads(state, ratings, users, sampled(defenses, ratings, number, seed)):
        rows = piece
        for defense in defenses:
            rows = defense.uploaded(rows, number, seed)
        yield rows


def sampled(defenses: Sequence[Defense], ratings: Ratings, number: int, seed: int) -> Sample | None:
    """Unrated items that take part in a round, by the one defense that chooses them.

    Raises
    ------
    InputError
        If two defenses choose.
    """
    found = [sample for d in defenses if (sample := d.sampled(ratings, number, seed)) is not None]
    if len(found) > 1:
        raise InputError("at most one defense may sample unrated items")
    return found[0] if found else None


def received(
    victim: Victim, defenses: Sequence[Defense], state: Any, ratings: Ratings, number: int, seed: int
) -> Received | None:
    """Sums over all clients of what they send in a round, as the server forms them.

    None without defenses: the victim then sums by itself, without forming the rows.
    """
    if not defenses:
        return None
    items, attributes = victim.broadcast(state)
    sums = Received(np.zeros_like(items), np.zeros_like(attributes))
    everybody = np.arange(ratings.n_users)
    for rows in _defended(victim, defenses, state, ratings, everybody, number, seed):
        for kind, total in ((ITEM, sums.items), (ATTRIBUTE, sums.attributes)):
            here = rows.kind == kind
            for column in range(total.shape[1]):
                index, values = rows.index[here], rows.gradient[here, column]
                total[:, column] += np.bincount(index, values, minlength=total.shape[0])
    return sums


def truth_columns(
    ratings: Ratings, users: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """User, kind, index and value of the ratings that exist and of all attribute columns."""
    mine = np.isin(ratings.users, users)
    n_attributes = ratings.n_attributes
    user = np.concatenate([ratings.users[mine], np.repeat(users, n_attributes)])
    kind = np.repeat([ITEM, ATTRIBUTE], [mine.sum(), users.size * n_attributes])
    index = np.concatenate([ratings.items[mine], np.tile(np.arange(n_attributes), users.size)])
    value = np.concatenate([ratings.values[mine], ratings.attributes[users].ravel()])
    return user, kind, index, value
