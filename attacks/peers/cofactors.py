"""What those whom a user trusts read of it in DPMF-Yang: ratings, rated items, and implicit feedback.

Yang et al. 2022 sends the rows dL/dv_p of explicit samples, and dL/dz_p of positives and of as many sampled
negatives, to d users by name: "only non-private information". The items of explicit rows are in the clear,
their ratings follow through the sigmoid (``attacks.peers.explicit``), and positives lie on the other side
of the sender's factor than negatives (``attacks.peers.implicit``). Of positives no rating is sent: they are
said to be rated, with the sender's usual rating.

What it assumes: senders are told; rows in the clear and without noise; the start watched, or copies of V
that stayed near. Where a recording has no rows about Z, ratings are read alone.

References
----------
X. Yang et al., "DPMF: Decentralized Probabilistic Matrix Factorization for Privacy-Preserving
Recommendation", Appl. Sci. 2022, doi:10.3390/app122111118, Eq. (14).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Progress, Reconstruction, all_abstain, silent
from attacks.obstacles import factors_hidden
from attacks.peers.answers import of_told, scope_of, told_users
from attacks.peers.attack import no_copies
from attacks.peers.claims import Claims
from attacks.peers.explicit import Explicit, mappings, pull_of, read_explicit, starred
from attacks.peers.implicit import Sampled, sampled_of
from attacks.peers.received import Arrived, arrived
from attacks.peers.row_form import form_of, times_of_gradients
from victims.common.validation import above, one_of, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import UNTOLD, View

ANSWERS = {"ratings": "cofactors", "lists": "cofactors-lists"}  # and what that is called
MAPS = ["max", "min-max"]  # names of the maps of stars to 0..1, in the order of ``mappings``
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
        require_fields(self, "cofactors", answers=one_of(*ANSWERS), max_misfit=above(0))

    @property
    def name(self) -> str:
        """Name in the registry."""
        return ANSWERS[self.answers]

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read those who trust the adversary."""
        options = {**asdict(self), "seed": key}
        scope = scope_of(self.answers)
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options, scope=scope)
        (rounds, implicit), users = _arrived(view), told_users(view)
        of_v, of_z = (
            [[_of_sender(one, user) for one in some] for user in users.tolist()]
            for some in (rounds, implicit)
        )
        told = _told(view.manifest)
        of_v = [
            _gradients(view.manifest, *both) if told else both[0] for both in zip(of_v, of_z, strict=True)
        ]
        levels = np.array(view.manifest.rating_levels)
        sampled = [_implicit(view.manifest, mine) for mine in of_z]
        mapped = _mapping(view.manifest, of_v[:ASKED] if told else [], sampled, levels, self.max_misfit)
        parts, misfit = [], np.full(users.size, np.nan)
        for place, (rows, samples) in enumerate(zip(of_v, sampled, strict=True)):
            best = _best(view.manifest, rows, mapped, self.max_misfit, samples.toward)
            misfit[place] = best[0].misfit
            parts += list(_claims(place, best, samples, mapped, levels))
            progress(place + 1, users.size)
        sender, item, value, probability = (np.concatenate(column) for column in zip(*parts, strict=True))
        claims = Claims(sender, item, value, probability, misfit, misfit)
        return replace(of_told(view, claims, scope), attack=self.name, options=options, scope=scope)

    def obstacle(self, view: View) -> str:
        """Why the attack does not apply, or nothing."""
        if view.copies is None:
            return no_copies(view)
        copies = [one.copies for one in (view, view.implicit) if one is not None and one.copies is not None]
        if not sum(one.round.size for one in copies):
            return "the adversary receives nothing from others"
        if view.manifest.rule.link != "sigmoid":
            return "it reads predictions through a sigmoid, and none is declared; use peers"
        if any((one.sender == UNTOLD).any() for one in copies):
            return "it needs to know which rows are one sender's, and some have no sender"
        return factors_hidden(view) or (
            "" if any(_arrived(view)) else "nothing arrived about items whose factors the adversary holds"
        )


def _arrived(view: View) -> tuple[list[Arrived], list[Arrived]]:
    """Rows about V, and rows about Z."""
    return arrived(view), [] if view.implicit is None else arrived(view.implicit)


def _of_sender(one: Arrived, user: int) -> Arrived:
    """The messages of one sender."""
    here = one.sender == user
    return one._replace(
        sender=one.sender[here], item=one.item[here], rows=one.rows[here], factors=one.factors[here]
    )


def _told(manifest: Manifest) -> bool:
    """Whether rows can be turned into gradients of single ratings, which ratings through a sigmoid need."""
    return bool(np.isfinite(times_of_gradients(manifest, np.ones(1)))[0])


def _gradients(manifest: Manifest, explicit: Sequence[Arrived], implicit: Sequence[Arrived]) -> list[Arrived]:
    """One sender's explicit rows as gradients, freed of multiples of their factors that are declared."""
    pull = np.nan_to_num(form_of(manifest).pull)
    others, out = {one.round: one.item.size for one in implicit}, []
    for one in explicit:
        n_rows = np.array([float(one.item.size + others.get(one.round, 0))])
        times = times_of_gradients(manifest, n_rows)[0]
        out.append(one._replace(rows=times * (one.rows - pull * one.factors)))
    return out


def _read(
    manifest: Manifest,
    one: Arrived,
    mapped: Float[np.ndarray, " levels"],
    max_misfit: float,
    toward: Float[np.ndarray, " K"] | None = None,
) -> Explicit:
    """One sender's explicit rows of a round; nothing of rows that are no gradients."""
    if not _told(manifest):
        return Explicit(np.full(len(one.rows), np.nan), np.nan, np.zeros(manifest.factors), np.nan)
    left = 0.0 if np.isfinite(form_of(manifest).pull) else np.nan
    return read_explicit(one.rows, one.factors, one.item, mapped, max_misfit, one.precision, left, toward)


def _best(
    manifest: Manifest,
    mine: Sequence[Arrived],
    mapped: Float[np.ndarray, " levels"],
    max_misfit: float,
    toward: Float[np.ndarray, " K"] | None,
) -> tuple[Explicit, Int[np.ndarray, " rows"]]:
    """The round that tells a sender's ratings best, or the first one; and its items."""
    if not mine:
        return Explicit(np.zeros(0), np.nan, np.zeros(manifest.factors), np.nan), np.zeros(0, int)
    found = [_read(manifest, one, mapped, max_misfit, toward) for one in mine]
    fit = [np.inf if np.isnan(one.misfit) else one.misfit for one in found]
    best = int(np.argmin(fit))
    return found[best], mine[best].item


def _mapping(
    manifest: Manifest,
    mine: Sequence[Sequence[Arrived]],
    sampled: Sequence[Sampled],
    levels: Float[np.ndarray, " levels"],
    max_misfit: float,
) -> Float[np.ndarray, " levels"]:
    """How stars are mapped to 0..1: as declared, or as most senders can be read in the first round."""
    maps = mappings(levels)
    declared = (manifest.rule.model_extra or {}).get("rating_map")
    if declared in MAPS:
        return maps[MAPS.index(declared) % len(maps)]
    first = [(rows[0], one.toward) for rows, one in zip(mine, sampled, strict=False) if rows]
    read = [
        sum(np.isfinite(_read(manifest, rows, mapped, max_misfit, toward).misfit) for rows, toward in first)
        for mapped in maps
    ]
    return maps[int(np.argmax(read))]


def _claims(
    place: int,
    explicit: tuple[Explicit, Int[np.ndarray, " rows"]],
    sampled: Sampled,
    mapped: Float[np.ndarray, " levels"],
    levels: Float[np.ndarray, " levels"],
) -> Iterator[tuple[np.ndarray, ...]]:
    """Explicit items with their ratings, and positives with the sender's usual one."""
    best, item = explicit
    value = starred(best.value, mapped, levels)
    yield np.full(item.size, place), item, value, np.where(np.isfinite(value), 1.0, np.nan)
    found = np.setdiff1d(sampled.positives(best.direction), item)
    told = value[np.isfinite(value)]
    usual = float(np.median(told)) if told.size else np.nan
    sure = 1 / levels.size if told.size else np.nan
    yield np.full(found.size, place), found, np.full(found.size, usual), np.full(found.size, sure)


def _implicit(manifest: Manifest, mine: Sequence[Arrived]) -> Sampled:
    """One sender's implicit rows, freed of multiples of their factors, with the sign of gradients.

    Copies hold what others sent their sender, too, which is as large as its own step: those of the start
    alone tell it.
    """
    error, copies = form_of(manifest).error, manifest.rule.upload == "weights"
    turned, whole = np.sign(-error) if np.isfinite(error) else 1.0, 1.0 if copies else 0.0
    mine = [one for one in mine if one.round == 0 or not copies]
    declared = manifest.hyperparameters.get("lambda_implicit", np.nan)
    declared = whole - declared * (error if np.isfinite(error) else -1.0)
    rows = [np.zeros((0, manifest.factors))]
    for one in mine:
        pull = pull_of(one.rows, one.factors, one.item, one.precision)
        known = pull if np.isfinite(pull) else declared if np.isfinite(declared) else whole
        rows.append(turned * (one.rows - known * one.factors))
    item = np.concatenate([np.zeros(0, int), *(one.item for one in mine)])
    when = np.repeat(np.arange(len(mine)), [one.item.size for one in mine])
    weight = manifest.hyperparameters.get("negative_weight", np.nan)
    return sampled_of(np.concatenate(rows), item, when, weight)
