"""Which several steps between broadcast and upload explain the rows: steps over all ratings, or passes.

Steps over all ratings leave rows in the span of a client's factors and ratings, whatever their number
(``attacks.closed_form.numbers.integer_relation``): that is a test without any constant, on the equations that
the ratings do not take. Clients whose ratings are told by it are held against every number of steps, with
copies that move or not and as few open constants as explain them. Passes, one rating or minibatch at a time,
are fitted to a few clients in the order of their rows (``attacks.inversion.passes``).

A client is explained where nothing but the last digits of its rows is left. Where several numbers of steps
explain as many clients, none is told and all are named; nor is one whose rates no clients share, or that in
single precision another open constant makes up for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.client_rules import local_updates as at
from attacks.client_rules.differentiable import Family
from attacks.client_rules.local_updates import LocalUpdates, passes_to_try
from attacks.client_rules.named import OVER_ALL
from attacks.closed_form.uploads.common_scale import common
from attacks.closed_form.uploads.readings import Rows, some_of
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.inversion.answers import Found
from attacks.inversion.clients import answer_by_span, choice_of, is_one_pass, known_clients, open_clients
from attacks.inversion.least_squares import Guess
from attacks.inversion.passes import Ordered, chosen_in_order, in_order, sized, told_in_order
from attacks.inversion.search import explained, told
from victims.transcript.view import View

MOST = 0.5  # of the clients, that a rule must explain, or that must agree on a constant
FEWEST = 2  # clients that steps are told from
MOMENTUM_DIGITS = 3  # that clients agree on
EXACT = 1e-10  # relative size of last digits that show what is of third order in the rate
HIDDEN = (
    "local_steps: with a second rate, momentum or a scale of each client, rows of these digits leave it open"
)
OWN_RATES = (
    "local_steps: most clients' fits share no rate, as where steps of another kind are taken for these"
)
ASKED = 6  # clients that passes are fitted to
LABELLED = 0.1  # of a client's rows, that have the sign of fewer where they are of positives and negatives
SQUARED = ("squared", "identity")
LOSSES = {
    "squared": SQUARED,
    "sigmoid": ("squared", "sigmoid"),
    "cross-entropy": ("logistic", "sigmoid"),
}


class LocalFit(NamedTuple):
    """What explains the rows: keys of ``rule`` and ``constants``, how many clients of how many, and what
    explains them equally well.
    """

    rule: dict[str, Any]
    constants: dict[str, float]
    clients: int
    looked_at: int
    undecided: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For the table of families."""
        over = "all ratings" if self.rule["batch_size"] == "all" else f"{self.rule['batch_size']} at a time"
        return f"several steps over {over}, {self.rule['loss']} loss"


class _Tried(NamedTuple):
    """A hypothesis, and constants (clients, c) and numbers of ratings of the clients that it explains."""

    family: Family
    value: float
    constants: Float[np.ndarray, "clients c"]
    n_rated: Float[np.ndarray, " clients"]

    @property
    def clients(self) -> int:
        """Explained."""
        return len(self.constants)


def steps_fit(view: View) -> LocalFit | None:
    """Steps over all ratings at once that explain most clients."""
    found = Found(view)
    answer_by_span(view, OVER_ALL[0], found, 1)
    known = ~np.isnan(found.outside)
    inside = found.outside[known] <= found.allowed[known]
    if not known.any() or inside.mean() < MOST:
        return None
    keys: dict[str, Any] = {"loss": "squared", "link": "identity", "order": "batch", "batch_size": "all"}
    clients = int(inside.sum())
    for rule in OVER_ALL:
        sample = known_clients(view, found)
        if sample is None or len(sample[1]) < FEWEST:
            sample = _fitted_clients(rule, view, found)
        if sample is not None and len(sample[1]) >= FEWEST and (best := _simplest(rule, view, *sample)):
            none = LocalFit(keys, {}, clients, view.users.size)
            if sample[0].precision > EXACT and _is_any_number(best):
                return none._replace(undecided=(HIDDEN,))
            return _steps(none, best)
    return LocalFit(keys, {}, clients, view.users.size)


def _is_any_number(best: list[_Tried]) -> bool:
    """Whether what the rate leaves open can make up for a wrong number of steps, but for third orders.

    Rows of n steps at the rate h are n h of one order and n (n - 1) / 2 h^2 of the next, which a second rate,
    a scale or momentum turns into what it likes.
    """
    makes_up = (at.RATIO, at.SCALE, at.MOMENTUM)
    return any(one.family.free[constant] for one in best for constant in makes_up)


def _steps(none: LocalFit, best: list[_Tried]) -> LocalFit:
    """What numbers of steps say that explain clients equally well, beside what is said without them."""
    keys = dict(none.rule)
    values = sorted({int(one.value) for one in best})
    moving = sorted({bool(one.constants[0, at.MOVES]) for one in best})
    undecided = []
    if len(values) > 1:
        undecided.append(f"local_steps {_either(values)}")
    else:
        keys["local_steps"] = values[0]
    if len(moving) > 1:
        undecided.append("moves_items true or false")
    else:
        keys["moves_items"] = moving[0]
    constants: dict[str, float] = {}
    momentum, share = common(np.concatenate([one.constants[:, at.MOMENTUM] for one in best]))
    if momentum > 0 and share >= MOST:
        keys["momentum"] = round(momentum, MOMENTUM_DIGITS)
        if all(one.constants[0, at.AHEAD] > 0 for one in best):
            keys["nesterov"] = True
    if len(best) == 1:
        more, constants, either = _constants_of(best[0].constants, best[0].n_rated, by_ratings=True)
        if not (more or either):
            return none._replace(undecided=(OWN_RATES,))
        keys, undecided = keys | more, undecided + either
    return none._replace(rule=keys, constants=constants, undecided=tuple(undecided))


def _fitted_clients(
    rule: LocalUpdates, view: View, found: Found
) -> tuple[Rows, Float[np.ndarray, "clients n"]] | None:
    """Rows and ratings of a few clients that a fit tells, where the span tells next to nobody."""
    choice = choice_of(view, rule, found, 1 if rule.momentum else None)
    if choice is None:
        return None
    levels = np.array(view.manifest.rating_levels)
    for _, _, rows in open_clients(view, found, 1):
        most = np.argsort(-rows.item.sum(axis=1), kind="stable")[:ASKED]
        some = some_of(rows, most)
        read = told(rule, choice.guess, some, levels)
        return some_of(some, read.answered), read.ratings[read.answered]
    return None


def _simplest(
    rule: LocalUpdates, view: View, rows: Rows, ratings: Float[np.ndarray, "clients n"]
) -> list[_Tried]:
    """The hypotheses with fewest open constants that explain most clients; several where they tie."""
    families = sorted(rule.families(view.manifest), key=lambda one: sum(one.free))
    n_rated = rows.item.sum(axis=1).astype(float)
    for _, alike in groupby(families, key=lambda one: sum(one.free)):
        tried = []
        for family in alike:
            near = None
            for value in family.values:
                fit, allowed = explained(rule, Guess(family, value, None, near), rows, ratings)
                good, near = fit.left <= allowed, fit.at
                tried.append(_Tried(family, value, fit.at.constants[good, 0], n_rated[good]))
        most = max(one.clients for one in tried)
        if most >= max(FEWEST, MOST * len(ratings)):
            return [one for one in tried if one.clients == most]
    return []


def _constants_of(
    c: Float[np.ndarray, "clients c"], n_rated: Float[np.ndarray, " clients"], *, by_ratings: bool
) -> tuple[dict[str, Any], dict[str, float], list[str]]:
    """Reduction and constants of one step that most clients share, as they are or over their ratings."""
    rate, scale = np.exp(c[:, at.RATE]), np.exp(c[:, at.SCALE])
    of_factor = rate * np.exp(c[:, at.RATIO])
    shares = {"sum": common(of_factor)[1], "mean": common(of_factor * n_rated)[1] if by_ratings else 0.0}
    agreeing = [reduction for reduction, share in shares.items() if share >= MOST]
    if not agreeing or of_factor.size < FEWEST:
        return {}, {}, []
    times = n_rated if agreeing == ["mean"] else 1.0
    pace = common(of_factor * times)[0]
    constants = {"client_learning_rate": pace / 2}
    for name, numbers in (
        ("lambda_factors", c[:, at.FACTOR_DECAY] / pace),
        ("upload_scale", rate * scale * times),
        ("upload_regularization", -c[:, at.ITEM_DECAY] * scale),
    ):
        value, share = common(numbers)
        if share >= MOST:
            constants[name] = value
    if len(agreeing) == 1:
        return ({"reduction": agreeing[0]} if by_ratings else {}), constants, []
    return {}, {}, [f"reduction {_either(agreeing)}: all clients that tell it have as many ratings"]


def passes_fit(view: View) -> LocalFit | None:
    """Passes over the ratings that explain most of a few clients."""
    if view.manifest.n_attributes or is_one_pass(view, Found(view)):
        return None
    levels = np.array(view.manifest.rating_levels)
    parts = (in_order(*part) for part in open_clients(view, Found(view), 1))
    groups = sorted((group for part in parts for group in part), key=lambda one: one.rows.item.shape[1])
    if levels.size == 1 and np.mean(np.concatenate([_of_two_labels(one.rows) for one in groups])) >= MOST:
        return None  # passes over ratings have no negatives
    for rule in _rules(view, groups):
        guess = chosen_in_order(rule, view.manifest, groups, levels)
        if guess is None:
            continue
        group = max(groups, key=lambda one: len(one.users))
        rows = some_of(group.rows, np.argsort(-group.rows.item.sum(axis=1), kind="stable")[:ASKED])
        tried = [(value, *_explained_in_order(rule, guess, value, rows, levels)) for value in _near(guess)]
        most = max(good.sum() for _, good, _ in tried)
        if most < MOST * len(rows.item):
            continue
        best = [one for one in tried if one[1].sum() == most]
        return _passes(rule, best, rows, int(most))
    return None


def _of_two_labels(rows: Rows) -> Bool[np.ndarray, " clients"]:
    """Who has rows of both signs, as of positives and negatives."""
    direction, _ = leading_direction(rows.rows)
    scalar = np.matmul(rows.rows, direction[:, :, None])[..., 0]
    fewer = np.minimum((scalar > 0).sum(axis=1), (scalar < 0).sum(axis=1))
    return np.asarray(fewer >= LABELLED * rows.item.sum(axis=1))


def _rules(view: View, groups: list[Ordered]) -> Iterator[LocalUpdates]:
    """Losses, with sums and then means of minibatches."""
    for named in passes_to_try(view.manifest):
        rule = sized(named, view.manifest, groups)
        yield rule
        if rule.batch_size != 1:
            yield replace(rule, mean=True)


def _near(guess: Guess) -> tuple[float, ...]:
    """The number of passes that was found, and those beside it that may explain rows as well."""
    values = {guess.value, *(value for value in guess.family.values if abs(value - guess.value) <= 1)}
    return tuple(sorted(values))


def _explained_in_order(
    rule: LocalUpdates, guess: Guess, value: float, rows: Rows, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    told = told_in_order(rule, Guess(guess.family, value), rows, levels, free=value == guess.value)
    return told.answered, told.at.constants[:, 0]


def _passes(
    rule: LocalUpdates, best: list[tuple[float, np.ndarray, np.ndarray]], rows: Rows, clients: int
) -> LocalFit:
    """What passes say."""
    loss, link = LOSSES[rule.loss]
    told: dict[str, Any] = {"rule": "sgd", "loss": loss, "link": link, "moves_items": True}
    told |= {
        "order": "per-rating" if rule.batch_size == 1 else "batch",
        "batch_size": rule.batch_size or "all",
    }
    undecided: list[str] = []
    if rule.batch_size > 1:
        told["reduction"] = "mean" if rule.mean else "sum"
        if not (rows.item.sum(axis=1) % rule.batch_size).any():
            del told["reduction"]
            undecided.append("reduction sum or mean: all minibatches have as many ratings")
    constants: dict[str, float] = {}
    if len(best) > 1:
        undecided.append(f"local_steps {_either([int(one[0]) for one in best])}")
    else:
        value, good, c = best[0]
        told["local_steps"] = int(value)
        n_rated = rows.item.sum(axis=1)[good].astype(float)
        _, constants, _ = _constants_of(c[good], n_rated, by_ratings=False)
    return LocalFit(told, constants, clients, len(rows.item), tuple(undecided))


def _either(values: list[Any]) -> str:
    return " or ".join(map(str, values))
