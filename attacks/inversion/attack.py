"""The inversion attack: start, ratings and constants of each client fitted to its rows under any client rule.

A client of K factors and n ratings that takes several local steps sends n K numbers about K + n unknown ones
and a few constants; with one step all its rows are parallel and most equations say the same, with several
they do not. Where all ratings take part in every step, min(n, K + 1) K of the equations are independent,
about K + min(n, K + 1) unknowns (``attacks.inversion.compression``).

Where the rule mixes rows, clients with more ratings than K + 1 are read without any fit
(``attacks.closed_form.numbers.integer_relation``). They tell the rest of the rule: number of steps, copies
that move or not, rates, weight decay, scale (``attacks.inversion.clients``); and constants that most of them
share serve for those with few ratings, whose ratings and start are fitted (``attacks.inversion.search``).
Passes are read in the order of the rows (``attacks.inversion.passes``), steps of Adam otherwise
(``attacks.inversion.adaptive.adaptive_recording``). The rule is an object
(``attacks.client_rules.differentiable``). What is declared of it says what is tried first, and is not
believed otherwise.

What it assumes: uploads of rated items in the clear, rounded at most; the rating grid. It abstains on a
client where no ratings on the grid explain its rows to their last digits, or several do.

References
----------
B. McMahan et al., arXiv:1602.05629 (local steps); D. W. Marquardt 1963, doi:10.1137/0111030; A. K. Lenstra,
H. W. Lenstra, L. Lovasz 1982, doi:10.1007/BF01457454. The use on recommenders is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from attacks.base import Progress, Reconstruction, all_abstain, silent
from attacks.client_rules.adaptive_rule import ADAPTIVE, AdaptiveSteps
from attacks.client_rules.differentiable import ClientRule
from attacks.client_rules.local_updates import (
    NAMES,
    LocalUpdates,
    declared_momentum,
    passes_named,
    passes_to_try,
)
from attacks.client_rules.named import ANY, OVER_ALL, WITH_MOMENTUM, broken, rule_named
from attacks.closed_form.lists.others_items import abstain_if_drawn
from attacks.inversion.adaptive.adaptive_recording import read_adaptive
from attacks.inversion.answers import FEWEST, Found, shared_constants
from attacks.inversion.clients import (
    MOST_FITTED,
    Choice,
    answer_by_span,
    choice_of,
    known_clients,
    open_clients,
    pointless,
)
from attacks.inversion.least_squares import Guess
from attacks.inversion.passes import read_passes
from attacks.inversion.search import explained, told
from attacks.obstacles import unreadable
from victims.common.errors import InputError
from victims.common.validation import at_least, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import View


@dataclass(frozen=True)
class Inversion:
    """Hyper-parameters.

    Attributes
    ----------
    rule : str or ClientRule
        ``any``: those below that the declaration leaves. Or one of them: ``local-steps``, ``local-momentum``,
        ``adam``, ``adamw``, ``rmsprop``, ``adagrad``; passes, ``per-rating``, ``minibatch``, ``sigmoid``,
        ``cross-entropy``; a name that an installed package offers; or an object
        (``factorleak.plugins.ClientRule``).
    rounds : int
        Rounds of a client that are tried one by one, the first ones, >= 1.
    """

    rule: Any = ANY
    rounds: int = 2
    name: str = "inversion"

    def __post_init__(self) -> None:
        require_fields(self, "inversion", rounds=at_least(1))
        named = self.rule == ANY or (isinstance(self.rule, str) and rule_named(self.rule))
        if not named and (missing := broken(self.rule)):
            raise InputError(f"rule of inversion {missing}; see factorleak.plugins.ClientRule")

    def _rules(self, manifest: Manifest) -> tuple[Any, ...]:
        """What is tried, in this order."""
        if self.rule == ANY:
            adaptive = (rule for rule in ADAPTIVE if rule.name == manifest.rule.rule)
            return (*adaptive, *OVER_ALL, *passes_to_try(manifest))
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
        reasons = [
            self._answer(view, rule, found, options, progress)
            for rule in self._rules(view.manifest)
            if not found.answered.all()
        ]
        reason = "; ".join(dict.fromkeys(filter(None, reasons)))
        if self.rule == ANY:
            told = found.reconstruction(self.name, reason, options)
            for one in read_adaptive(view, told, (view.manifest.upload.regularization,)):
                found.add_read(one)
        progress(view.users.size, view.users.size)
        told = found.reconstruction(self.name, reason, options)
        return abstain_if_drawn(told, view) if found.answered.any() else told

    def _answer(
        self, view: View, rule: Any, found: Found, options: dict[str, Any], progress: Progress
    ) -> str:
        """Answers under a rule; why there are no others."""
        if isinstance(rule, AdaptiveSteps):
            told = found.reconstruction(self.name, "", options)
            read = read_adaptive(view, told, (view.manifest.upload.regularization,), (rule,))
            for one in read:
                found.add_read(one)
            return "" if read else f"rows do not look like several steps of {rule.name}"
        if isinstance(rule, LocalUpdates) and not rule.mixes_rows:
            hypothesis, reason = read_passes(view, rule, found, self.rounds, progress)
            options |= {"hypothesis": hypothesis} if hypothesis else {}
            return reason
        return self._by_rule(view, rule, found, options, progress)

    def _by_rule(
        self, view: View, rule: ClientRule, found: Found, options: dict[str, Any], progress: Progress
    ) -> str:
        """Answers under a rule whose steps are over all ratings, or one's own; why there are no others."""
        answer_by_span(view, rule, found, self.rounds)
        if reason := pointless(view, rule, found):
            return reason
        # with momentum that nobody declared, only the usual one: most recordings have none, and fits are slow
        unlikely = rule == WITH_MOMENTUM and self.rule == ANY and declared_momentum(view.manifest) is None
        choice = choice_of(view, rule, found, 1 if unlikely else None)
        if choice is not None:
            guess = choice.guess
            options["hypothesis"] = f"{guess.value:g} {guess.family.label}"
            known = _common_constants(view, rule, guess, found)
            if known is not None:
                self._by_fit(view, rule, guess._replace(constants=known), found, progress)
            self._by_fit(view, rule, guess, found, progress)
            if known is None and (known := found.common(guess.family)) is not None:
                self._by_fit(view, rule, guess._replace(constants=known), found, silent)
            if known is not None and rule in OVER_ALL:
                found.drop_unlike(known, guess.family)
                self._by_fit(view, rule, guess._replace(constants=known), found, silent)
        return _unexplained(rule, choice)

    def _by_fit(self, view: View, rule: ClientRule, guess: Guess, found: Found, progress: Progress) -> None:
        """Whose ratings are told with one."""
        levels = np.array(view.manifest.rating_levels)
        for users, index, rows in open_clients(view, found, self.rounds):
            if rule.mixes_rows or rows.item.sum(axis=1).max(initial=0) <= MOST_FITTED:
                found.add_by_fit(users, index, told(rule, guess, rows, levels))
            progress(int(found.answered.sum()), view.users.size)

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


def _unexplained(rule: ClientRule, choice: Choice | None) -> str:
    """Why a client has no answer that nothing else was said of."""
    if choice is None:
        return f"no hypothesis about the rule {rule.name} explains the rows of any client that was tried"
    return "it has too many rows to be fitted one by one"


def _common_constants(
    view: View, rule: ClientRule, guess: Guess, found: Found
) -> Float[np.ndarray, " c"] | None:
    """Constants that most clients share whose ratings are told."""
    known = known_clients(view, found)
    if known is None or len(known[1]) < FEWEST:
        return None
    fit, allowed = explained(rule, guess, *known)
    return shared_constants(fit.at.constants[fit.left <= allowed, 0], guess.family)
