"""Run a victim and stream what each party sees to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.common.files import PRIVATE, replacing
from victims.data.ratings import Ratings
from victims.protocols.base import (
    Cipher,
    Defense,
    Received,
    Rows,
    Sample,
    Total,
    Unchanged,
    Victim,
    WithItemServer,
)
from victims.transcript.view import ATTRIBUTE, ITEM, KINDS
from victims.transcript.writer import TranscriptWriter, key_path, truth_path, write_key, write_truth

ITEM_SERVER = -2  # of the parties
ITEM_SUM, ATTRIBUTE_SUM = KINDS.index("item-sum"), KINDS.index("attribute-sum")


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
        Directory to create. The truth goes to ``NAME.truth.arrow`` beside it, and where uploads are
        encrypted the clients' key to ``NAME.key.json``.
    rounds : sequence of int
        Rounds to keep, counted from 0; all rounds up to the largest are trained.
    users : sequence of int, optional
        Clients to keep; everybody takes part in training either way. Where sums are decrypted all clients
        are kept, for the sums are of all.
    defenses : sequence of Defense
        Applied in this order to every upload; encryption comes last.
    train_on_received : bool
        Whether the server trains on what it receives, as it would; False trains it on the uploads before
        the defenses, so that recordings under different defenses show the same factors.
    seed : int
    progress : callable
        Called with (rounds done, rounds in all).

    Raises
    ------
    InputError
        If a round or user does not exist, ``path`` exists, training diverges, a number is too large to
        encrypt, or some clients are left out where sums are decrypted.
    """
    wanted = sorted({int(number) for number in rounds})
    if not wanted or wanted[0] < 0:
        raise InputError(f"rounds must be a non-empty list of numbers >= 0, got {list(rounds)}")
    kept = np.arange(ratings.n_users) if users is None else np.unique(np.asarray(users))
    if kept.size == 0 or kept[0] < 0 or kept[-1] >= ratings.n_users:
        raise InputError(f"users must be between 0 and {ratings.n_users - 1}, got {kept}")
    for beside in (truth_path(path), key_path(path)):
        if beside.exists():
            raise InputError(f"{beside} exists; choose another name or remove it first")
    run = start(victim, ratings, defenses, seed)
    if run.cipher is not None and not victim.blind_server and kept.size < ratings.n_users:
        raise InputError(
            f"users must be all {ratings.n_users} where sums are decrypted, for they are sums over all "
            f"clients; got {kept.size}"
        )
    manifest = victim.manifest(run.ratings, wanted)
    manifest = manifest.model_copy(update={"defenses": [_told(defense, run) for defense in defenses]})
    with _beside(path, run.cipher) as (truth, key), TranscriptWriter(path, manifest) as writer:
        write_truth(truth, *truth_columns(ratings, kept))
        if run.cipher is not None:
            write_key(key, run.cipher.key())
        for number in range(wanted[-1] + 1):
            trains = number < wanted[-1]
            sums = None
            if number in wanted:
                _write_round(writer, run, kept, number)
                if run.cipher is not None and not victim.blind_server:
                    sums = _sums(run, number)
                    _write_sums(writer, run.cipher, sums, number)
            if trains:
                run = run.trained(number, sums, train_on_received)
            progress(number + 1, wanted[-1] + 1)


@contextmanager
def _beside(path: Path, cipher: Cipher | None) -> Iterator[tuple[Path, Path]]:
    """Names to write the truth and, under encryption, the key to; they appear after the recording."""
    with ExitStack() as stack:
        truth = stack.enter_context(replacing(truth_path(path), PRIVATE))
        yield truth, truth if cipher is None else stack.enter_context(replacing(key_path(path), PRIVATE))


class Run(NamedTuple):
    """A training in progress: who trains on what, under which defenses, and the state of the moment.

    ``ratings`` are those that clients train on, on their devices.
    """

    victim: Victim
    ratings: Ratings
    defenses: tuple[Defense, ...]
    seed: int
    cipher: Cipher | None
    state: Any

    def trained(self, number: int, sums: Sums | None = None, on_received: bool = True) -> Run:
        """The next state; ``sums`` of round ``number``, where they are known already."""
        sample = sampled(self.defenses, self.ratings, number, self.seed)
        arrived = received(self, number, sums, sample) if on_received else None
        return self._replace(state=self.victim.round(self.state, self.ratings, arrived, sample))

    def user_factors(self, number: int) -> Float[np.ndarray, "users factors"]:
        """The clients' factors in round ``number``."""
        sample = sampled(self.defenses, self.ratings, number, self.seed)
        return self.victim.user_factors(self.state, self.ratings, sample)


def start(victim: Victim, ratings: Ratings, defenses: Sequence[Defense], seed: int) -> Run:
    """A training before round 0.

    Raises
    ------
    InputError
        If encryption is not the last defense, or named twice.
    """
    for defense in defenses:
        ratings = defense.on_device(ratings, seed)
        if victim.stepwise and not defense.additive and _touches(defense):
            raise InputError(
                f"{defense.name} cannot be applied where the server steps at every upload: what is done to "
                "a row must not depend on the row; use order=batch"
            )
    state, cipher = victim.init(ratings, seed), None
    factors = victim.broadcast(state)[0].shape[1]
    for place, defense in enumerate(defenses):
        cipher = defense.cipher(ratings.n_users, factors, seed)
        if cipher is not None and place < len(defenses) - 1:
            raise InputError(
                f"{defense.name} must be the last defense, for nothing can be done to encrypted rows; "
                f"got {defenses[place + 1].name} after it"
            )
    if cipher is not None and victim.blind_server:  # which starts from encrypted, so from rounded, factors
        state = state._replace(item_factors=cipher.rules.rounded(np.asarray(state.item_factors)))
    return Run(victim, ratings, tuple(defenses), seed, cipher, state)


def _touches(defense: Defense) -> bool:
    """Whether a defense changes uploads at all."""
    return type(defense).uploaded is not Unchanged.uploaded


def _told(defense: Defense, run: Run) -> dict[str, Any]:
    """The manifest's entry of a defense."""
    told = defense.public()
    if run.cipher is not None and defense is run.defenses[-1]:
        told |= run.cipher.public()
    return told


def _write_round(writer: TranscriptWriter, run: Run, users: np.ndarray, number: int) -> None:
    """What is broadcast, and what the clients send."""
    items, attributes = run.victim.broadcast(run.state)
    hidden = run.cipher is not None and run.victim.blind_server
    sealed = run.cipher.seal(np.concatenate([items, attributes])) if run.cipher and hidden else None
    writer.state(number, items, attributes, sealed, _noise_scale(run, items, attributes, number))
    for rows in sent_rows(run, users, number):
        columns = number, rows.sender, rows.kind, rows.index, rows.gradient
        if run.cipher is None:
            writer.messages(*columns)
        else:
            exponents = run.cipher.rules.exponents(rows.gradient)
            writer.messages(*columns, ciphertext=run.cipher.seal(rows.gradient), exponent=exponents)
    if isinstance(run.victim, WithItemServer) and run.ratings.item_features.shape[1]:
        rows_of_items = run.victim.item_server_rows(run.state, run.ratings)
        index = np.arange(items.shape[0])
        sender = np.full(index.size, ITEM_SERVER)
        _write_plain(writer, run.cipher, number, sender, np.full(index.size, ITEM), index, rows_of_items)


def _noise_scale(
    run: Run, items: np.ndarray, attributes: np.ndarray, number: int
) -> Float[np.ndarray, "rows factors"] | None:
    """Standard deviation of the noise in every upload about each broadcast row, where the server knows it."""
    known = [d.noise_scale(run.ratings, items.shape[1], number, run.seed) for d in run.defenses]
    squares = [scale**2 for scale in known if scale is not None]
    if not squares:
        return None
    return np.concatenate([np.sqrt(sum(squares)), np.zeros_like(attributes)])


def _write_sums(writer: TranscriptWriter, cipher: Cipher, sums: Sums, number: int) -> None:
    """What the decrypters send back to the server."""
    index = np.flatnonzero(sums.released)
    n_items = sums.n_items
    kind = np.where(index < n_items, ITEM_SUM, ATTRIBUTE_SUM)
    sender = cipher.rules.decrypters[index % cipher.rules.decrypters.size]
    place = np.where(index < n_items, index, index - n_items)
    _write_plain(writer, cipher, number, sender, kind, place, sums.values[index])


def _write_plain(
    writer: TranscriptWriter,
    cipher: Cipher | None,
    number: int,
    sender: Int[np.ndarray, " rows"],
    kind: Int[np.ndarray, " rows"],
    index: Int[np.ndarray, " rows"],
    values: Float[np.ndarray, "rows factors"],
) -> None:
    """Rows to the server that stay in the clear, also where uploads are encrypted."""
    if cipher is None:
        writer.messages(number, sender, kind, index, values)
        return
    exponent = None if cipher.rules.exponents(values[:0]) is None else np.zeros(index.size, np.int32)
    writer.messages(number, sender, kind, index, values, ciphertext=[None] * index.size, exponent=exponent)


def sent_rows(run: Run, users: np.ndarray, number: int, sample: Sample | None = None) -> Iterator[Rows]:
    """Uploads as they leave the clients, before they are encrypted; ``sample`` where it is known already."""
    sample = sample or sampled(run.defenses, run.ratings, number, run.seed)
    for piece in run.victim.uploads(run.state, run.ratings, users, sample):
        rows = piece
        for defense in run.defenses:
            rows = defense.uploaded(rows, run.ratings, number, run.seed)
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


class Sums(NamedTuple):
    """Sums over all clients of what they send in a round; items first, then attributes.

    values (n_items + n_attributes, factors), zero where not released; released: formed and decrypted.
    """

    values: Float[np.ndarray, "rows factors"]
    released: Bool[np.ndarray, " rows"]
    n_items: int


class _Plain:
    """Sums of numbers in the clear."""

    def __init__(self, groups: int, factors: int) -> None:
        self._values = np.zeros((groups, factors))

    def add(self, group: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows factors"]) -> None:
        """Add each row to the sum of its group."""
        for column in range(values.shape[1]):
            self._values[:, column] += np.bincount(group, values[:, column], minlength=len(self._values))

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The sums."""
        return self._values


def _sums(run: Run, number: int, sample: Sample | None = None) -> Sums:
    """Form the sums as the server does, and decrypt those that may be."""
    items, attributes = run.victim.broadcast(run.state)
    size = items.shape[0] + attributes.shape[0]
    new = run.cipher.total if run.cipher is not None else _Plain
    total: Total = new(size, items.shape[1])
    count = np.zeros(size, np.int64)
    for rows in sent_rows(run, np.arange(run.ratings.n_users), number, sample):
        group = np.where(rows.kind == ATTRIBUTE, items.shape[0] + rows.index, rows.index).astype(np.int64)
        total.add(group, rows.gradient)
        count += np.bincount(group, minlength=size)
    fewest = run.cipher.rules.min_contributors if run.cipher is not None else 1
    released = count >= max(fewest, 1)
    return Sums(total.opened(released), released, items.shape[0])


def received(
    run: Run, number: int, sums: Sums | None = None, sample: Sample | None = None
) -> Received | None:
    """Sums over all clients of what they send in a round, as the server's step uses them.

    None where nothing is done to them: the victim then sums by itself, without forming the rows.
    """
    if run.cipher is None and not any(_touches(defense) for defense in run.defenses):
        return None
    if run.victim.stepwise:
        return _added(run, number)
    sums = sums or _sums(run, number, sample)
    return Received(sums.values[: sums.n_items], sums.values[sums.n_items :])


def _added(run: Run, number: int) -> Received:
    """What additive defenses add to the upload of every rating."""
    ratings, factors = run.ratings, run.victim.broadcast(run.state)[0].shape[1]
    kind = np.full(ratings.n_ratings, ITEM, np.int8)
    rows = Rows(ratings.users, kind, ratings.items, np.zeros((ratings.n_ratings, factors)))
    for defense in run.defenses:
        rows = defense.uploaded(rows, ratings, number, run.seed)
    nothing = np.zeros((0, factors))
    return Received(nothing, nothing, rows.gradient)


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
