"""One round of clients whose rule nobody declared: an unknown scale, minibatches, a step after every rating.

Beyond Chai et al. 2021 and Hu & Fang 2023, for what programs really send. It takes every row for sigma e u
with the u of that moment, and asks for nothing else:

- rows of one direction are one step; where there are several, ``attacks.closed_form.uploads.moving_factor``
  finds their order and each row's error up to two numbers that all rows of the client share;
- several steps over all ratings on copies of the items that move, too, leave the ratings in a subspace that
  the rows span with the factors, and there they are the only integers
  (``attacks.closed_form.numbers.integer_relation``);
- rows of unrated items, where they are sent, tell the length of the factor row by row
  (``attacks.closed_form.rows.unrated_rows``);
- momentum that clients keep of what they send is a share of the round before, told by the rank of the rest
  (``attacks.closed_form.uploads.carried_rows``);
- errors that ratings weigh, of implicit feedback with confidences, are told by three rows at a time
  (``attacks.closed_form.rows.confidence_weights``);
- ratings less a number that nobody told are read up to their mirror image, which makes the same rows; who is
  which is asked of clients who rated the same items, and of how high people rate
  (``attacks.closed_form.centres.unmirrored``);
- a bias of the client beside known biases of items leaves a shift of its ratings, which rounds tell
  (``attacks.closed_form.biases.own_biases_recording``);
- a column of the rows that holds errors, as biases of items do in one table with their factors, tells the
  client's factor row by row (``attacks.closed_form.biases.error_column_recording``);
- rows of positives and of negatives that were drawn (implicit feedback) are told apart by their sign, and
  named by counts, rounds and other clients (``attacks.closed_form.implicit.implicit_recording``);
- entries that are not sent follow from those that are (``attacks.closed_form.gaps.gaps``);
- means over minibatches at one factor of the client, of which the last is smaller, get one scale
  (``attacks.closed_form.rows.whole_minibatches``);
- rows of a client that all hold one vector (noise drawn once per epoch) are ratings less the client's own
  mean in their differences (``attacks.closed_form.uploads.common_vector``);
- where sigma is the declared one, a single number is left (``attacks.closed_form.grid.rating_grid``); where
  that puts the rows nowhere, sigma is taken for unknown, a mean over the client's ratings, say, and both are
  searched for (``attacks.closed_form.fit.affine_grid``);
- clients whom none of these reads to the last digit, where most are left open, are read with a noise term and
  a probability for each rating (``attacks.closed_form.noisy_recording``).

No constant of the step, no order of the rows and, but for momentum, no second round is needed.

What is declared of the clients' rule is not believed: a wrong declaration hides nothing from it.

What it assumes: uploads in the clear, without noise but for the noise term, the rating grid, three factors
or more where the client steps several times; the scale and alpha where rows of unrated items are sent and the
factor moves between rows. It judges its answer by the grid, as the other closed forms do, and abstains where
no numbers, or more than one pair, meet it. Where all ratings may be some levels higher or lower, and nobody's
tell, it answers how each client's ratings differ (``attacks.base.Scope.DIFFERENCES``); where all may be
upside down as well, by how much (``attacks.base.Scope.SIZES``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool

from attacks.base import Progress, Reconstruction, Scope, all_abstain, joined, silent, silent_about
from attacks.closed_form.biases.bias_column import bias_column, with_ones, without_column
from attacks.closed_form.biases.error_column_recording import read_error_column, with_error_column
from attacks.closed_form.biases.own_biases_recording import own_biases_of, with_own_biases
from attacks.closed_form.centres.centred_recording import read_centred_recording
from attacks.closed_form.centres.unmirrored import MIRRORED
from attacks.closed_form.common_numbers import Learned, learned_of, pulls_of
from attacks.closed_form.fit.arbiter import abstain_if_biased_alone, abstain_if_off_the_grid
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.images import (
    OPEN_OFFSET,
    abstain_if_higher,
    abstain_if_own_lowest,
    abstain_if_shifted,
)
from attacks.closed_form.implicit.implicit_recording import positives_of, with_positives
from attacks.closed_form.lists.others_items import abstain_if_at_mean, abstain_if_drawn
from attacks.closed_form.noisy_recording import with_noise_term
from attacks.closed_form.read_rounds import read_rounds
from attacks.closed_form.round_answers import DIAGNOSTICS, NO_NUMBERS, by_best_round, off_the_grid
from attacks.closed_form.rows.unrated_rows import obstacle_with_unrated
from attacks.closed_form.rows.whole_minibatches import whole_minibatch_views
from attacks.closed_form.uploads.answered import Answered
from attacks.closed_form.uploads.common_vector import NO_COMMON_VECTOR, centred_views
from attacks.closed_form.uploads.item_rows import BATCH_BYTES
from attacks.closed_form.uploads.noise_floor import without_noise
from attacks.obstacles import unreadable
from victims.common.validation import above, require_fields
from victims.transcript.view import ITEM, View

ByRounds = tuple[list[Answered], Bool[np.ndarray, " users"]]


@dataclass(frozen=True)
class Undeclared:
    """Hyper-parameters.

    Attributes
    ----------
    max_misfit : float
        Abstain where the distance of the answer from the grid exceeds this share of what random pairing
        gives, > 0.
    """

    max_misfit: float = 0.25
    name: str = "undeclared"

    def __post_init__(self) -> None:
        require_fields(self, "undeclared", max_misfit=above(0))

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read all clients of a view, each in the round that fits the grid best."""
        options = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        view = without_noise(view)
        rated = view.declared(weighting="observed-only")
        if view.manifest.weighting == "observed-only" or obstacle_with_unrated(view):
            return self._read_rated(rated, key, options, progress)
        found = self._read(view, key, options, progress)
        if not _mostly_silent(found):
            return found
        # the declared weighting may be wrong
        instead = self._read_rated(rated, key, options, progress)
        return instead if len(instead.abstained) < len(_unsized(found).abstained) else found

    def _read_rated(
        self, view: View, key: int, options: dict[str, Any], progress: Progress
    ) -> Reconstruction:
        """Read rows of rated items; where clients are left open, with a column of biases if there is one."""
        found = self._instead(view, self._read(view, key, options, progress), key, options)
        if _mostly_silent(found) and (told := read_error_column(view)) is not None:
            found = with_error_column(_unsized(found), told, np.array(view.manifest.rating_levels))
        column = bias_column(view, _unsized(found).abstained, self.max_misfit)
        if column is not None:
            found = with_ones(self._read(without_column(view, column), key, options, progress), column)
        if 2 * len(found.abstained) > view.users.size and _mostly_silent(found):
            found = _fuller(found, with_noise_term(_unsized(found), view, key))
        return abstain_if_at_mean(abstain_if_drawn(found, view), np.array(view.manifest.rating_levels))

    def _instead(
        self, view: View, found: Reconstruction, key: int, options: dict[str, Any]
    ) -> Reconstruction:
        """Read other rows that those sent tell, where most clients are left open and these answer more."""
        if not _mostly_silent(found):
            return found
        for others, reason in _other_rows(view):
            for instead in others:
                new = self._read(instead, key, options, silent)
                if 2 * len(new.abstained) < instead.users.size:
                    return _of_everybody(new, view, reason)
        return found

    def _read(self, view: View, key: int, options: dict[str, Any], progress: Progress) -> Reconstruction:
        """Read all clients under the weighting that the manifest has."""
        off, levels = np.zeros(view.users.size, bool), np.array(view.manifest.rating_levels)
        positives = positives_of(view) if levels.size == 1 else None
        if positives is not None and positives.two.all():
            told = with_positives(_nothing_read(self.name, view, options), view, positives)
            # rows of confidences tell zeros by their weight, whatever labels say
            if len(told.abstained) < view.users.size or view.manifest.weighting == "observed-only":
                return told
        own = own_biases_of(view, view.manifest.upload.regularization)
        if own is not None and own.complete:
            return with_own_biases(_nothing_read(self.name, view, options), own, levels)
        learned = learned_of(view, self.max_misfit)
        scope = Scope.RATINGS_AND_ATTRIBUTES if learned.upright >= BARS.upright else Scope.SIZES
        if learned.centred:
            found, scope = read_centred_recording(view, learned.pulls[0], key, progress)
        else:
            found, off = self._by_rounds(view, learned, progress)
        told = self._believed(view, found, off, learned, options, scope)
        if levels.size == 1:
            labelled = positives is not None and positives.two.all()
            return told if labelled else with_positives(told, view, positives)
        rest = _unsized(told)
        return (
            told if own is None or not rest.abstained else _fuller(told, with_own_biases(rest, own, levels))
        )

    def _believed(
        self,
        view: View,
        found: Sequence[Answered],
        off: Bool[np.ndarray, " users"],
        learned: Learned,
        options: dict[str, Any],
        scope: Scope,
    ) -> Reconstruction:
        """Keep what levels tell from other ratings that send the same rows, and clients do not contradict."""
        levels = np.array(view.manifest.rating_levels)
        told = _put_together(self.name, view, found, options, scope)
        plain, doubted, spanned = (_of_all(found, name) for name in ("plain", "doubted", "spanned"))
        if not learned.settled:
            told = abstain_if_higher(told, levels, doubted, unscaled=learned.scale is None)
        elif learned.lowered == levels[0]:
            told = abstain_if_own_lowest(told, levels)
        told = abstain_if_biased_alone(abstain_if_off_the_grid(told, off, levels, plain), ~plain & ~spanned)
        if learned.centred or not _rated_alone(view):
            return told
        # who fits the declared scale is on no other multiple of the grid; all others may be
        by_declared = learned.by_declared
        free = (plain | spanned) & ~(by_declared & (told.diagnostics["declared"] == 1))
        one = learned.scale is not None and not by_declared
        return abstain_if_shifted(
            told, levels, free, learned.lowered, one_scale=one, settled=learned.settled, alike=by_declared
        )

    def _by_rounds(self, view: View, learned: Learned, progress: Progress) -> ByRounds:
        """Read each client in its rounds; and who is off the grid."""
        off, levels = np.zeros(view.users.size, bool), np.array(view.manifest.rating_levels)
        found: list[Answered] = []
        done = 0
        for batch in view.batches(BATCH_BYTES):
            rounds = read_rounds(view.manifest, batch.rounds, learned, self.max_misfit)
            found += by_best_round(batch, rounds, learned, levels)
            off[np.searchsorted(view.users, batch.users)] = off_the_grid(
                view.manifest, batch.rounds[0], rounds, learned
            )
            done += batch.users.size
            progress(done, view.users.size)
        return found, off

    def obstacle(self, view: View) -> str:
        """Why the attack does not apply, or nothing."""
        if reason := unreadable(view):
            return reason
        if view.manifest.weighting == "observed-only" or not _long_lists(view):
            return ""
        return obstacle_with_unrated(view)


def _other_rows(view: View) -> Iterator[tuple[Iterator[View], str]]:
    """Views of other rows that those sent tell, and why nothing is told of whom these do not have."""
    yield centred_views(view), NO_COMMON_VECTOR
    yield whole_minibatch_views(view, pulls_of(view)[0]), NO_NUMBERS


def _of_everybody(told: Reconstruction, view: View, reason: str) -> Reconstruction:
    """Say why nothing is told of those who are not among the clients of another view."""
    place = np.searchsorted(view.users, told.users)
    diagnostics = {}
    for name, own in told.diagnostics.items():
        diagnostics[name] = np.full(view.users.size, np.nan)
        diagnostics[name][place] = own
    rest = np.setdiff1d(view.users, told.users).tolist()
    reasons = {**told.abstained, **dict.fromkeys(rest, reason)}
    return replace(told, users=view.users, abstained=reasons, diagnostics=diagnostics)


def _rated_alone(view: View) -> bool:
    """Whether rows of rated items without biases are read, whatever weighting is declared."""
    biased = any(bool((one.bias != 0).any()) for batch in view.batches(BATCH_BYTES) for one in batch.rounds)
    return not biased and (view.manifest.weighting == "observed-only" or not _long_lists(view))


def _long_lists(view: View) -> bool:
    """Whether somebody sends rows of half of the items, as one who sends those of unrated ones, too."""
    return any(
        bool(((one.valid & (one.kind == ITEM)).sum(axis=1) >= view.manifest.n_items / 2).any())
        for batch in view.batches(BATCH_BYTES)
        for one in batch.rounds
    )


def _mostly_silent(found: Reconstruction) -> bool:
    """Whether most clients fit the declared weighting nowhere; those who lack the highest level do."""
    left = _unsized(found).abstained
    return sum(reason != OPEN_OFFSET for reason in left.values()) > found.users.size / 2


def _unsized(found: Reconstruction) -> Reconstruction:
    """Abstain on everybody of sizes of differences, so that a reading that tells more is tried."""
    if found.scope != Scope.SIZES:
        return found
    everybody = np.ones(found.users.size, bool)
    return silent_about(replace(found, scope=Scope.RATINGS_AND_ATTRIBUTES), everybody, MIRRORED)


def _fuller(told: Reconstruction, instead: Reconstruction) -> Reconstruction:
    """Another reading, but where it leaves most of the ratings open whose distances are told."""
    if told.scope != Scope.SIZES:
        return instead
    n_told, n_instead = (
        sum(int(np.isfinite(block.value).sum()) for block in one.blocks) for one in (told, instead)
    )
    enough = 2 * n_instead >= n_told if instead.scope != Scope.SIZES else n_instead > n_told
    return instead if n_instead and enough else told


def _nothing_read(name: str, view: View, options: dict[str, float | int | str]) -> Reconstruction:
    """Nobody is answered, for a reason of each client's."""
    reasons = dict.fromkeys(view.users.tolist(), NO_NUMBERS)
    diagnostics = {one: np.full(view.users.size, np.nan) for one in DIAGNOSTICS}
    return Reconstruction(name, view.users, (), reasons, options, diagnostics)


def _put_together(
    name: str,
    view: View,
    found: Sequence[Answered],
    options: dict[str, float | int | str],
    scope: Scope = Scope.RATINGS_AND_ATTRIBUTES,
) -> Reconstruction:
    """All clients' answers."""
    users = np.concatenate([one.block.users for one in found])
    table = np.concatenate([one.diagnostics for one in found])[np.argsort(users)]
    return Reconstruction(
        name,
        view.users,
        tuple(one.block for one in found),
        {user: reason for one in found for user, reason in one.reasons.items()},
        options,
        dict(zip(DIAGNOSTICS, table.T, strict=True)),
        factors=joined(one.factors for one in found),
        scope=scope,
    )


def _of_all(found: Sequence[Answered], name: str) -> Bool[np.ndarray, " users"]:
    """What is so of whom, in the order of all clients."""
    users = np.concatenate([one.block.users for one in found])
    each = [np.broadcast_to(getattr(one, name), one.block.users.shape) for one in found]
    return np.concatenate(each)[np.argsort(users)]
