"""Score answers about nameless clients: of what an attack claims, how much is true of one client?

Each pseudonym is credited to the client who sent most of its rows, where the recording tells that, else to
the client who rated most of the items that it is said to have rated (the lower number where two did). That
is the scorer's help, who knows the truth: the attack claims that the rows belong together and what was
rated how, not whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from attacks.base import Reconstruction
from audit.scoring.answers_said import round_ratings
from audit.scoring.metrics import UserScores
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM

CLAIMED, SHARE, CLIENTS = "claimed_rating_accuracy", "share_of_ratings_read", "share_of_clients_read"


def pseudonym_scores(
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    clients: Mapping[int, int] | None = None,
) -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """Score the claims about nameless clients.

    ``claimed_rating_accuracy``, one entry per pseudonym: share of its claimed ratings that its client gave;
    beside it the most frequent rating. ``share_of_ratings_read``, one entry per client of the truth: share
    of its ratings that some pseudonym of it claims rightly; ``share_of_clients_read``: 1 where there is one.
    Beside both 0, for nothing is claimed unseen.
    """
    levels, counts = np.unique(truth.ratings.data, return_counts=True)
    mode = levels[counts.argmax()]
    read = np.zeros(truth.users.size)
    right, guessed = [], []
    for pseudonym, items, answer in _claims(reconstruction, manifest):
        known = items < truth.ratings.shape[1]
        table = np.zeros((truth.users.size, items.size))
        table[:, known] = truth.ratings[:, items[known]].toarray()
        client = int((table > 0).sum(axis=1).argmax())
        if clients is not None and pseudonym in clients:
            client = int(truth.rows(np.array([clients[pseudonym]]))[0])
        right.append(float(np.mean(table[client] == answer)))
        guessed.append(float(np.mean(table[client] == mode)))
        read[client] += np.sum(table[client] == answer)
    n_rated = np.diff(truth.ratings.indptr)
    share = np.where(n_rated > 0, np.minimum(read / np.maximum(n_rated, 1), 1), np.nan)
    nothing = np.where(n_rated > 0, 0.0, np.nan)
    return {
        CLAIMED: ("majority", np.array(right), np.array(guessed)),
        SHARE: ("nothing", share, nothing),
        CLIENTS: ("nothing", np.where(n_rated > 0, np.sign(read), np.nan), nothing),
    }


def null_scores(
    reconstruction: Reconstruction, manifest: Manifest, truth: Truth, n_pseudonyms: int
) -> UserScores:
    """Score claims from dealt-out sums, beside an attack that claims ``n_pseudonyms`` clients.

    One number for everybody: whom the null does not claim counts as wrong, for one lucky claim is no guess
    about all of them.
    """
    right = pseudonym_scores(reconstruction, manifest, truth)[CLAIMED][1]
    worth = right.sum() / max(n_pseudonyms, right.size, 1)
    return UserScores(truth.users, {CLAIMED: np.full(truth.users.size, worth)})


def _claims(
    reconstruction: Reconstruction, manifest: Manifest
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Every pseudonym about whom something is claimed, items and ratings."""
    for user, kind, index, value, _ in reconstruction.rows():
        answer = round_ratings(value, manifest.rating_levels)
        claimed = (kind == ITEM) & (answer > 0)
        for name in np.unique(user[claimed]):
            mine = claimed & (user == name)
            yield int(name), index[mine], answer[mine]
