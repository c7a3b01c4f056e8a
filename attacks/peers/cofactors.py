"""What those whom a user trusts read of it in DPMF-Yang: ratings, rated items, and implicit feedback.

Paper 004 sends the rows dL/dv_p of explicit samples, and dL/dz_p of positives and of as many sampled
negatives, to d users by name: "only non-private information". The items of explicit rows are in the clear,
their ratings follow through the sigmoid (``attacks.peers.explicit``), and positives lie on the other side
of the sender's factor than negatives (``attacks.peers.implicit``). Of positives no rating is sent: they are
said to be rated, with the sender's usual rating.

What it assumes: senders are told; rows in the clear and without noise; the start watched, or copies of V
that stayed near. Rows about Z are items from ``implicit_from`` on, where the manifest's rule has that key.

References
----------
Paper 004: X. Yang et al., "DPMF: Decentralized Probabilistic Matrix Factorization for Privacy-Preserving
Recommendation", Appl. Sci. 2022, doi:10.3390/app122111118, Eq. (14).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Progress, Reconstruction, Scope, all_abstain, factors_hidden, silent
from attacks.peers.answers import of_told, told_users
from attacks.peers.attack import NO_PEER
from attacks.peers.claims import Claims
from attacks.peers.explicit import Explicit, mappings, pull_of, read_explicit, starred
from attacks.peers.implicit import halves, positives
from attacks.peers.received import Arrived, arrived
from victims.common.errors import InputError
from victims.transcript.manifest import Manifest
from victims.transcript.view import UNTOLD, View

ANSWERS = {"ratings": "cofactors", "lists": "cofactors-lists"}  # and what that is called
ASKED = 40  # senders who tell how stars are mapped to 0..1


@dataclass(frozen=True)
class Cofactors:
    """Hyper-parameters.

    Attributes
    ----------
    answers : {"ratings", "lists"}
        Ratings and rated items, or rated items alone.
    max_misfit : float
        Abstain where the distance of the answer from the grid exceeds this share of what random numbers
        give, > 0.
    """

    answers: str = "ratings"
    max_misfit: float = 0.25

    def __post_init__(self) -> None:
        if self.answers not in ANSWERS:
            raise InputError(
                f"answers of cofactors must be one of {', '.join(ANSWERS)}, got {self.answers!r:.80}"
            )
        if not self.max_misfit > 0:
            raise InputError(
                f"max_misfit of {self.name} must be > 0, got {self.max_misfit}; the default is 0.25"
            )

    @property
    def name(self) -> str:
        """Name in the registry."""
        return ANSWERS[self.answers]

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read those who trust the adversary.

        Parameters
        ----------
        view : View
        key : int
            Unused: the attack draws nothing at random.
        progress : callable

        Returns
        -------
        Reconstruction
            Diagnostics: ``misfit`` of the ratings, NaN where there are none.
        """
        options = {**asdict(self), "seed": key}
        scope = Scope.RATED_SET if self.answers == "lists" else Scope.RATINGS_AND_ATTRIBUTES
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options, scope=scope)
        rounds, users = arrived(view), told_users(view)
        levels = np.array(view.manifest.rating_levels)
        mapped = _mapping(view.manifest, rounds, users[:ASKED], levels, self.max_misfit)
        parts, misfit = [], np.full(users.size, np.nan)
        for place, user in enumerate(users.tolist()):
            mine = [_of_sender(one, user) for one in rounds]
            best, of_best = _best(view.manifest, mine, mapped, self.max_misfit)
            misfit[place] = best.misfit
            parts += list(_claims(view.manifest, place, mine, best, of_best, mapped, levels))
            progress(place + 1, users.size)
        sender, item, value, probability = (np.concatenate(column) for column in zip(*parts, strict=True))
        claims = Claims(sender, item, value, probability, misfit, misfit)
        return replace(of_told(view, claims, scope), attack=self.name, options=options, scope=scope)

    def obstacle(self, view: View) -> str:
        """Why the attack does not apply, or nothing."""
        if view.copies is None:
            return NO_PEER
        if view.copies.round.size == 0:
            return "the adversary receives nothing from others"
        if view.manifest.rule.link != "sigmoid":
            return "it reads predictions through a sigmoid, and none is declared; use peers"
        if (view.copies.sender == UNTOLD).any():
            return "it needs to know which rows are one sender's, and some have no sender"
        return factors_hidden(view) or (
            "" if arrived(view) else "nothing arrived about items whose factors the adversary holds"
        )


def _implicit_from(manifest: Manifest) -> int:
    """First index of rows about Z; beyond all items where there are none."""
    found = (manifest.rule.model_extra or {}).get("implicit_from")
    known = isinstance(found, int) and not isinstance(found, bool) and 0 < found < manifest.n_items
    return found if known and isinstance(found, int) else manifest.n_items


def _of_sender(one: Arrived, user: int) -> Arrived:
    """The messages of one sender."""
    here = one.sender == user
    return one._replace(
        sender=one.sender[here], item=one.item[here], rows=one.rows[here], factors=one.factors[here]
    )


def _read(
    manifest: Manifest, one: Arrived, mapped: Float[np.ndarray, " levels"], max_misfit: float
) -> Explicit:
    """One sender's explicit rows of a round."""
    here = one.item < _implicit_from(manifest)
    declared = manifest.upload.regularization if manifest.scale_known else np.nan
    return read_explicit(
        one.rows[here], one.factors[here], one.item[here], mapped, max_misfit, one.precision, declared
    )


def _best(
    manifest: Manifest, mine: Sequence[Arrived], mapped: Float[np.ndarray, " levels"], max_misfit: float
) -> tuple[Explicit, int]:
    """The round that tells a sender's ratings best, or the first one; and its place."""
    found = [_read(manifest, one, mapped, max_misfit) for one in mine]
    fit = [np.inf if np.isnan(one.misfit) else one.misfit for one in found]
    best = int(np.argmin(fit))
    return found[best], best


def _mapping(
    manifest: Manifest,
    rounds: Sequence[Arrived],
    users: Int[np.ndarray, " users"],
    levels: Float[np.ndarray, " levels"],
    max_misfit: float,
) -> Float[np.ndarray, " levels"]:
    """How stars are mapped to 0..1: as most senders can be read in the first round."""
    first = [_of_sender(rounds[0], user) for user in users.tolist()]
    maps = mappings(levels)
    read = [
        sum(np.isfinite(_read(manifest, one, mapped, max_misfit).misfit) for one in first) for mapped in maps
    ]
    return maps[int(np.argmax(read))]


def _claims(
    manifest: Manifest,
    place: int,
    mine: Sequence[Arrived],
    best: Explicit,
    of_best: int,
    mapped: Float[np.ndarray, " levels"],
    levels: Float[np.ndarray, " levels"],
) -> Iterator[tuple[np.ndarray, ...]]:
    """Explicit items with their ratings, and positives with the sender's usual one."""
    start = _implicit_from(manifest)
    item = mine[of_best].item
    item = item[item < start]
    value = starred(best.value, mapped, levels)
    yield np.full(item.size, place), item, value, np.where(np.isfinite(value), 1.0, np.nan)
    found = _positives(manifest, mine, best.direction)
    found = np.setdiff1d(found - start, item)
    told = value[np.isfinite(value)]
    if found.size:
        usual = float(np.median(told)) if told.size else np.nan
        yield (
            np.full(found.size, place),
            found,
            np.full(found.size, usual),
            np.full(found.size, 1 / levels.size if told.size else np.nan),
        )


def _positives(
    manifest: Manifest, mine: Sequence[Arrived], factor: Float[np.ndarray, " K"]
) -> Int[np.ndarray, " items"]:
    """Items of a sender's implicit rows that are positives."""
    start = _implicit_from(manifest)
    rows, index, round_ = [], [], []
    for number, one in enumerate(mine):
        here = one.item >= start
        pull = pull_of(one.rows[here], one.factors[here], one.item[here], one.precision)
        declared = manifest.hyperparameters.get("lambda_implicit", np.nan)
        known = pull if np.isfinite(pull) else declared if np.isfinite(declared) else 0.0
        rows.append(one.rows[here] - known * one.factors[here])
        index.append(one.item[here])
        round_.append(np.full(int(here.sum()), number))
    item, when = np.concatenate(index), np.concatenate(round_)
    if not item.size:
        return item
    split = halves(np.concatenate(rows), when)
    told = positives(split, item, when, np.tile(factor, (len(split.direction), 1)))
    return np.unique(item[told > 0])
