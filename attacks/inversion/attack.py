"""The inversion attack: start, ratings and constants of each client fitted to its rows under any client rule.

A client of K factors and n ratings that takes several local steps sends n K numbers about K + n unknown ones
and a few constants; with one step all its rows are parallel and most equations say the same, with several
they do not. Where all ratings take part in every step, min(n, K + 1) K of the equations are independent,
about K + min(n, K + 1) unknowns (``attacks.inversion.compression``).

Where the rule mixes rows, clients with more ratings than K + 1 are read without any fit
(``attacks.closed_form.integer_relation``). They tell the rest of the rule: number of steps, copies that move
or not, rates, weight decay, scale (``attacks.inversion.choice``); and constants that most of them share serve
for those with few ratings, whose ratings and start are fitted (``attacks.inversion.search``). The rule is an
object (``attacks.client_rules.differentiable``). What is declared of it says what is tried first, and is not
believed otherwise.

What it assumes: uploads of rated items in the clear, rounded at most; the rating grid. It abstains on a
client where no ratings on the grid explain its rows to their last digits, or several do.

References
----------
B. McMahan et al., arXiv:1602.05629 (local steps); D. W. Marquardt 1963, doi:10.1137/0111030; A. K. Lenstra,
H. W. Lenstra, L. Lovasz 1982, doi:10.1007/BF01457454. The use on recommenders is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Estimates, Progress, Reconstruction, all_abstain, silent, unreadable
from attacks.client_rules.differentiable import ClientRule, Family, broken, rule_named
from attacks.client_rules.local_passes import LocalPasses
from attacks.client_rules.local_steps import LocalSteps
from attacks.closed_form.common_scale import common
from attacks.closed_form.integer_relation import LOOSE, Relation, precision_of, ratings_in_span
from attacks.closed_form.reduction import leading_direction
from attacks.closed_form.row_readings import Rows
from attacks.closed_form.undeclared import rows_of, untold_offset
from attacks.inversion.choice import Choice, chosen, chosen_by_ratings
from attacks.inversion.passes import chosen_in_order, in_order, rules_to_try, told_in_order
from attacks.inversion.search import SPARE, Guess, Told, explained, told
from victims.common.errors import InputError
from victims.common.validation import at_least, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

ANY = "any"  # rule
BATCH_BYTES = 1 << 20
SAMPLE = 4  # clients that choose among hypotheses
SHARED = 0.5  # of the clients that must agree on a constant
ALIKE = 1e-3  # within which constants of all clients are one
FEWEST = 3  # clients that tell common constants
MAX_MISFIT = 0.25  # of readings that tell what is taken off ratings
MOST_FITTED = 400  # rows of a client that are fitted where the rule does not mix them


@dataclass(frozen=True)
class Inversion:
    """Hyper-parameters.

    Attributes
    ----------
    rule : str or ClientRule
        A name (``local-steps``, or what an installed package offers), or an object
        (``factorleak.ClientRule``).
    rounds : int
        Rounds of a client that are tried, the first ones, >= 1.
    """

    rule: Any = ANY
    rounds: int = 2
    name: str = "inversion"

    def __post_init__(self) -> None:
        require_fields(self, "inversion", rounds=at_least(1))
        if missing := broken(self._rule):
            raise InputError(f"rule of inversion {missing}; see factorleak.ClientRule")

    @property
    def _rule(self) -> Any:
        if self.rule == ANY:
            return LocalSteps()
        return rule_named(self.rule) if isinstance(self.rule, str) else self.rule

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Fit the clients of a view one round at a time.

        Parameters
        ----------
        view : View
        key : int
            Unused: the attack draws nothing at random.
        progress : callable

        Returns
        -------
        Reconstruction
            Diagnostics ``left`` (what the answer leaves unexplained, relative), ``fitted`` (1 where the
            answer took a fit) and ``outside`` (share of the rows that no rule that mixes rows makes).
        """
        rule = self._rule
        options = {"rule": rule.name, "rounds": self.rounds, "name": self.name, "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        found = _Found(view)
        self._by_span(view, rule, found)
        reason = _pointless(view, rule, found)
        choice = None if reason else _choice(view, rule, found)
        if choice is not None:
            options["hypothesis"] = f"{choice.guess.value:g} {choice.guess.family.label}"
            guess = choice.guess
            known = _common_constants(view, rule, guess, found)
            if known is not None:
                self._by_fit(view, rule, guess._replace(constants=known), found, progress)
            self._by_fit(view, rule, guess, found, progress)
            if known is None and (later := found.common(guess.family)) is not None:
                self._by_fit(view, rule, guess._replace(constants=later), found, silent)
        reason = reason or _unexplained(rule, choice)
        if self.rule == ANY and not view.manifest.n_attributes:
            for passes in rules_to_try(view.manifest):
                if not found.answered.all():
                    self._by_passes(view, passes, found, options)
        progress(view.users.size, view.users.size)
        return found.reconstruction(self.name, reason, options)

    def _by_span(self, view: View, rule: ClientRule, found: _Found) -> None:
        """Whose ratings are told without a fit."""
        if not rule.mixes_rows:
            return
        levels = np.array(view.manifest.rating_levels)
        for users, index, rows in self._open(view, found):
            relation = ratings_in_span(
                rows.rows, rows.factors, rows.offset, rows.item, levels, rows.precision
            )
            found.add_by_span(users, index, relation)

    def _by_fit(self, view: View, rule: ClientRule, guess: Guess, found: _Found, progress: Progress) -> None:
        """Whose ratings are told with one."""
        levels = np.array(view.manifest.rating_levels)
        for users, index, rows in self._open(view, found):
            if rule.mixes_rows or rows.item.sum(axis=1).max(initial=0) <= MOST_FITTED:
                found.add_by_fit(users, index, told(rule, guess, rows, levels))
            progress(int(found.answered.sum()), view.users.size)

    def _by_passes(self, view: View, rule: LocalPasses, found: _Found, options: dict[str, Any]) -> None:
        """Whose ratings are told by passes over them in one order."""
        levels = np.array(view.manifest.rating_levels)
        groups = [
            group for users, index, rows in self._open(view, found) for group in in_order(users, index, rows)
        ]
        groups.sort(key=lambda group: group.rows.item.shape[1])
        guess = chosen_in_order(rule, view.manifest, groups, levels)
        if guess is None:
            return
        options["hypothesis"] = f"{guess.value:g} {guess.family.label}, {rule.name}"
        for again in (False, True):
            constants = found.common(guess.family)
            if again and constants is None:
                break
            now = guess._replace(constants=constants) if again else guess
            for group in groups:
                here = ~found.answered[np.searchsorted(view.users, group.users)]
                if here.any():
                    part = _some(group.rows, here)
                    found.add_by_fit(
                        group.users[here], group.index[here], told_in_order(rule, now, part, levels)
                    )

    def _open(self, view: View, found: _Found) -> Iterator[tuple[np.ndarray, np.ndarray, Rows]]:
        """Clients without an answer: who, the items of their rows, and the rows."""
        for batch in view.batches(BATCH_BYTES):
            for uploads in batch.rounds[: self.rounds]:
                open_ = ~found.answered[np.searchsorted(view.users, batch.users)]
                if open_.any():
                    rows = _some(rows_of(_bare(view.manifest), uploads, None, found.lowered), open_)
                    index = np.broadcast_to(uploads.index, (batch.users.size, rows.item.shape[1]))[open_]
                    yield batch.users[open_], index, rows

    def obstacle(self, view: View) -> str:
        """Why the attack does not apply, or nothing."""
        if reason := unreadable(view):
            return reason
        if view.manifest.weighting != "observed-only":
            return "rows of unrated items have a weight of their own, which this attack does not model"
        if view.messages.reference is not None:
            return (
                "rows were computed at factors of their own, and this attack needs those that were broadcast"
            )
        if view.manifest.factors < 2:
            return "with one factor a row is one number, and there are more unknowns than equations"
        return ""


def _bare(manifest: Manifest) -> Manifest:
    """Without the scale of a single step: rows of several are what they are."""
    plain = manifest.upload.model_copy(update={"scale": 1.0, "regularization": 0.0})
    return manifest.model_copy(update={"upload": plain})


def _some(rows: Rows, here: np.ndarray) -> Rows:
    arrays = (rows.rows[here], rows.factors[here], rows.offset[here], rows.item[here], rows.scale[here])
    sequence = None if rows.sequence is None else rows.sequence[here]
    return Rows(*arrays, rows.precision, sequence)


def _known_clients(view: View, found: _Found) -> tuple[Rows, Float[np.ndarray, "clients n"]] | None:
    """Rows of the first round, and ratings, of some clients whose ratings are told."""
    parts: list[tuple[Rows, np.ndarray]] = []
    for batch in view.batches(BATCH_BYTES):
        lacking = SAMPLE - sum(len(ratings) for _, ratings in parts)
        here = np.flatnonzero(np.isin(batch.users, list(found.ratings)))[:lacking]
        if here.size:
            rows = _some(rows_of(_bare(view.manifest), batch.rounds[0], None, found.lowered), here)
            index = np.broadcast_to(batch.rounds[0].index, (batch.users.size, rows.item.shape[1]))[here]
            told_ = [found.ratings[int(user)] for user in batch.users[here]]
            value = [
                [own.get(item, np.nan) for item in items]
                for own, items in zip(told_, index.tolist(), strict=True)
            ]
            ratings = np.array(value)
            whole = np.isfinite(ratings).all(axis=1, where=rows.item)
            parts.append((_some(rows, whole), ratings[whole]))
    return _joined(parts) if any(len(ratings) for _, ratings in parts) else None


def _joined(parts: list[tuple[Rows, np.ndarray]]) -> tuple[Rows, Float[np.ndarray, "clients n"]]:
    """Several batches as one, padded."""
    n = max(ratings.shape[1] for _, ratings in parts)

    def longer(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, 0), (0, n - array.shape[1]), (0, 0)][: array.ndim])

    sent, factors, offset, item = (
        np.concatenate([longer(np.asarray(rows[number])) for rows, _ in parts]) for number in range(4)
    )
    scale = np.concatenate([rows.scale for rows, _ in parts])
    ratings = np.concatenate([longer(part) for _, part in parts])
    return Rows(sent, factors, offset, item, scale, parts[0][0].precision, None), ratings


def _pointless(view: View, rule: ClientRule, found: _Found) -> str:
    """Why nothing is to be fitted, or nothing."""
    if found.answered.all():
        return "all are answered"
    if not rule.mixes_rows:
        return ""
    told_of = ~np.isnan(found.outside)
    if told_of.any() and not (found.outside <= found.allowed)[told_of].any():
        return (
            "rows of clients with more ratings than factors are not affine in factors and ratings, as "
            "several steps over all ratings would make them"
        )
    if all(
        _parallel(rows_of(_bare(view.manifest), batch.rounds[0], None, found.lowered))
        for batch in view.batches(BATCH_BYTES)
    ):
        return "rows of a client are parallel: one step, of which undeclared reads what it tells"
    return ""


def _parallel(rows: Rows) -> bool:
    """Whether each client's rows have one direction, to their last digits."""
    direction, energy = leading_direction(rows.rows)
    off = rows.rows - np.matmul(rows.rows, direction[:, :, None]) * direction[:, None]
    limit = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    return bool((np.linalg.norm(off, axis=(1, 2)) <= limit * np.sqrt(energy)).all())


def _unexplained(rule: ClientRule, choice: Choice | None) -> str:
    """Why a client has no answer that nothing else was said of."""
    if choice is None:
        return f"no hypothesis about the rule {rule.name} explains the rows of any client that was tried"
    return "it has too many rows to be fitted one by one"


def _choice(view: View, rule: ClientRule, found: _Found) -> Choice | None:
    """The hypothesis that explains a sample best."""
    known = _known_clients(view, found)
    if known is not None:
        return chosen_by_ratings(rule, view.manifest, *known)
    levels = np.array(view.manifest.rating_levels)
    for batch in view.batches(BATCH_BYTES):
        rows = rows_of(_bare(view.manifest), batch.rounds[0], None, found.lowered)
        n_rated = rows.item.sum(axis=1)
        most = np.argsort(-n_rated, kind="stable")[: 2 * SAMPLE : 2]
        here = np.isin(np.arange(n_rated.size), most) & (n_rated > 1)
        if not rule.mixes_rows:
            here &= n_rated <= MOST_FITTED
        if here.any():
            return chosen(rule, view.manifest, _some(rows, here), levels)
    return None


def _common_constants(
    view: View, rule: ClientRule, guess: Guess, found: _Found
) -> Float[np.ndarray, " c"] | None:
    """Constants that most clients share whose ratings are told."""
    known = _known_clients(view, found)
    if known is None or len(known[1]) < FEWEST:
        return None
    fit, allowed = explained(rule, guess, *known)
    return _shared(fit.at.constants[fit.left <= allowed, 0], guess.family)


def _shared(table: Float[np.ndarray, "clients c"], family: Family) -> Float[np.ndarray, " c"] | None:
    """The constants that most clients share; None where they do not."""
    if len(table) < FEWEST:
        return None
    shared = table[0].copy()
    for number in np.flatnonzero(family.free):
        middle, share = common(table[:, number])
        close = np.mean(np.abs(table[:, number] - middle) <= ALIKE)
        if max(share, float(close)) < SHARED:
            return None
        shared[number] = middle
    return shared


class _Found:
    """Answers of all clients of a view, as they come in."""

    def __init__(self, view: View) -> None:
        self.users = view.users
        self.lowered = untold_offset(view, MAX_MISFIT)
        self.answered = np.zeros(view.users.size, bool)
        self.left = np.full(view.users.size, np.nan)
        self.fitted = np.zeros(view.users.size)
        self.outside = np.full(view.users.size, np.nan)
        self.allowed = np.full(view.users.size, np.nan)
        self.constants: dict[int, np.ndarray] = {}
        self.ratings: dict[int, dict[int, float]] = {}  # of those told without a fit
        self.reasons: dict[int, str] = {}
        self.blocks: list[Estimates] = []

    def add_by_span(self, users: np.ndarray, index: np.ndarray, new: Relation) -> None:
        """Take up whose ratings are told without a fit."""
        at = np.searchsorted(self.users, users)
        self.outside[at], self.allowed[at], self.left[at] = new.outside, new.allowed, new.left
        for user, items, value in zip(users[new.told], index[new.told], new.value[new.told], strict=True):
            self.ratings[int(user)] = dict(zip(items.tolist(), value.tolist(), strict=True))
        self._take(users, index, new.value, new.told)

    def add_by_fit(self, users: np.ndarray, index: np.ndarray, new: Told) -> None:
        """Take up whose ratings are told with one, and why others are not."""
        at = np.searchsorted(self.users, users)
        self.left[at], self.fitted[at] = new.left, new.answered
        for number, user in enumerate(users.tolist()):
            if new.answered[number]:
                self.constants[user] = new.at.constants[number, 0]
            else:
                self.reasons[user] = _reason(new, number)
        self._take(users, index, new.ratings, new.answered)

    def _take(
        self, users: np.ndarray, index: Int[np.ndarray, "c n"], value: np.ndarray, some: np.ndarray
    ) -> None:
        self.answered[np.searchsorted(self.users, users)] |= some
        if some.any():
            kind = np.full((1, index.shape[1]), ITEM, np.int8)
            self.blocks.append(Estimates(users[some], kind, index[some], value[some]))

    def common(self, family: Family) -> Float[np.ndarray, " c"] | None:
        """Constants that most fitted clients share; None where they do not, or all are answered."""
        if not self.constants or self.answered.all():
            return None
        return _shared(np.stack(list(self.constants.values())), family)

    def reconstruction(self, name: str, reason: str, options: dict) -> Reconstruction:
        """All answers, and why there are no others: for a reason of the client's own, or this one."""
        abstained = {user: self.reasons.get(user, reason) for user in self.users[~self.answered].tolist()}
        diagnostics = {"left": self.left, "fitted": self.fitted, "outside": self.outside}
        return Reconstruction(name, self.users, tuple(self.blocks), abstained, options, diagnostics)


def _reason(new: Told, number: int) -> str:
    """Why a client is abstained on."""
    if new.spare[number] < SPARE:
        return f"its rows give {new.spare[number]} equations more than there are unknowns; {SPARE} are needed"
    if new.rivals[number]:
        return "several ratings on the grid explain its rows equally well"
    return (
        f"no ratings on the grid explain its rows: {new.left[number]:.2g} of their size is left, at most "
        f"{new.allowed[number]:.2g} of right ones"
    )
