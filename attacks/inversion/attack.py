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
from jaxtyping import Float

from attacks.base import Progress, Reconstruction, all_abstain, silent, unreadable
from attacks.client_rules.differentiable import ClientRule
from attacks.client_rules.local_passes import NAMES, LocalPasses, passes_named, passes_to_try
from attacks.client_rules.local_steps import LocalSteps
from attacks.client_rules.named import broken, rule_named
from attacks.closed_form.integer_relation import LOOSE, precision_of, ratings_in_span
from attacks.closed_form.reduction import leading_direction
from attacks.closed_form.row_readings import Rows
from attacks.closed_form.undeclared import rows_of
from attacks.inversion.answers import FEWEST, Found, shared_constants
from attacks.inversion.choice import Choice, chosen, chosen_by_ratings
from attacks.inversion.passes import chosen_in_order, in_order, sized, told_in_order
from attacks.inversion.search import Guess, explained, told
from victims.common.errors import InputError
from victims.common.validation import at_least, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

ANY = "any"  # rule
BATCH_BYTES = 1 << 20
SAMPLE = 4  # clients that choose among hypotheses
MOST_FITTED = 400  # rows of a client that are fitted where the rule does not mix them


@dataclass(frozen=True)
class Inversion:
    """Hyper-parameters.

    Attributes
    ----------
    rule : str or ClientRule
        A name (``local-steps``, one of ``attacks.client_rules.local_passes.NAMES``, or what an installed
        package offers), an object (``factorleak.ClientRule``), or ``any``: all of ours that the declaration
        leaves.
    rounds : int
        Rounds of a client that are tried, the first ones, >= 1.
    """

    rule: Any = ANY
    rounds: int = 2
    name: str = "inversion"

    def __post_init__(self) -> None:
        require_fields(self, "inversion", rounds=at_least(1))
        named = self.rule == ANY or (isinstance(self.rule, str) and rule_named(self.rule))
        if not named and (missing := broken(self.rule)):
            raise InputError(f"rule of inversion {missing}; see factorleak.ClientRule")

    def _rules(self, manifest: Manifest) -> tuple[Any, ...]:
        """What is tried, in this order."""
        if self.rule == ANY:
            return (LocalSteps(), *passes_to_try(manifest))
        if self.rule in NAMES:
            return (passes_named(self.rule, manifest),)
        return (rule_named(self.rule) if isinstance(self.rule, str) else self.rule,)

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
        named = self.rule if isinstance(self.rule, str) else self.rule.name
        options = {"rule": named, "rounds": self.rounds, "name": self.name, "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        found = Found(view)
        reasons = []
        for rule in self._rules(view.manifest):
            if not found.answered.all():
                by = self._by_passes if isinstance(rule, LocalPasses) else self._by_rule
                reasons.append(by(view, rule, found, options, progress))
        progress(view.users.size, view.users.size)
        return found.reconstruction(self.name, "; ".join(dict.fromkeys(filter(None, reasons))), options)

    def _by_rule(
        self, view: View, rule: ClientRule, found: Found, options: dict[str, Any], progress: Progress
    ) -> str:
        """Answers under a rule whose steps are over all ratings, or one's own; why there are no others."""
        self._by_span(view, rule, found)
        if reason := _pointless(view, rule, found):
            return reason
        choice = _choice(view, rule, found)
        if choice is not None:
            options["hypothesis"] = f"{choice.guess.value:g} {choice.guess.family.label}"
            guess = choice.guess
            known = _common_constants(view, rule, guess, found)
            if known is not None:
                self._by_fit(view, rule, guess._replace(constants=known), found, progress)
            self._by_fit(view, rule, guess, found, progress)
            if known is None and (later := found.common(guess.family)) is not None:
                self._by_fit(view, rule, guess._replace(constants=later), found, silent)
        return _unexplained(rule, choice)

    def _by_span(self, view: View, rule: ClientRule, found: Found) -> None:
        """Whose ratings are told without a fit."""
        if not rule.mixes_rows:
            return
        levels = np.array(view.manifest.rating_levels)
        for users, index, rows in self._open(view, found):
            relation = ratings_in_span(
                rows.rows, rows.factors, rows.offset, rows.item, levels, rows.precision
            )
            found.add_by_span(users, index, relation)

    def _by_fit(self, view: View, rule: ClientRule, guess: Guess, found: Found, progress: Progress) -> None:
        """Whose ratings are told with one."""
        levels = np.array(view.manifest.rating_levels)
        for users, index, rows in self._open(view, found):
            if rule.mixes_rows or rows.item.sum(axis=1).max(initial=0) <= MOST_FITTED:
                found.add_by_fit(users, index, told(rule, guess, rows, levels))
            progress(int(found.answered.sum()), view.users.size)

    def _by_passes(
        self, view: View, rule: LocalPasses, found: Found, options: dict[str, Any], progress: Progress
    ) -> str:
        """Answers under passes over the ratings in one order; why there are no others."""
        if view.manifest.n_attributes:
            return "attributes take part in the steps, which passes over ratings do not model"
        if reason := _one_step(view, found):
            return reason
        levels = np.array(view.manifest.rating_levels)
        parts = (in_order(*part) for part in self._open(view, found))
        groups = sorted((group for part in parts for group in part), key=lambda one: one.rows.item.shape[1])
        rule = sized(rule, view.manifest, groups)
        guess = chosen_in_order(rule, view.manifest, groups, levels)
        if guess is None:
            return f"passes ({rule.name}) in the order of the rows explain no client that was tried"
        options["hypothesis"] = f"{guess.value:g} {guess.family.label}, {rule.name}"
        for again in (False, True):
            constants = found.common(guess.family)
            if again and constants is None:
                break
            now = guess._replace(constants=constants) if again else guess
            for group in groups:
                here = ~found.answered[np.searchsorted(view.users, group.users)]
                if here.any():
                    told_ = told_in_order(rule, now, _some(group.rows, here), levels)
                    found.add_by_fit(group.users[here], group.items[here], told_)
                progress(int(found.answered.sum()), view.users.size)
        return ""

    def _open(self, view: View, found: Found) -> Iterator[tuple[np.ndarray, np.ndarray, Rows]]:
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


def _known_clients(view: View, found: Found) -> tuple[Rows, Float[np.ndarray, "clients n"]] | None:
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


def _pointless(view: View, rule: ClientRule, found: Found) -> str:
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
    return _one_step(view, found)


def _one_step(view: View, found: Found) -> str:
    """Why neither steps nor passes are to be fitted, or nothing."""
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


def _choice(view: View, rule: ClientRule, found: Found) -> Choice | None:
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
    view: View, rule: ClientRule, guess: Guess, found: Found
) -> Float[np.ndarray, " c"] | None:
    """Constants that most clients share whose ratings are told."""
    known = _known_clients(view, found)
    if known is None or len(known[1]) < FEWEST:
        return None
    fit, allowed = explained(rule, guess, *known)
    return shared_constants(fit.at.constants[fit.left <= allowed, 0], guess.family)
