"""What is proved of noise on clipped rows, and which settings a proof covers; of others nothing is proved.

What is listed are the options of a victim whose values a proof does not depend on; every other option must
have its default. So an option that somebody adds has no account until its author has looked at the proof and
added it here. Likewise for the defenses that may stand beside the one that states the account: what an
unknown one does with the ratings nobody knows.

``tests/contract/test_accounts.py`` holds the lists against the victims: with the rows that arrive
kept as they are, no value of a rating changes what is broadcast.

The differential privacy that noise on clipped rows gives: of one rating, and of one client.

Two recordings are neighbours if they differ in the values of one rating, or of all ratings and attributes of
one client. The set of rated items is not protected: in observed-only it is in the clear, in include-unrated
all items are uploaded either way. A row that is clipped to norm C moves by at most 2 C in that norm,
whatever the client did before it sent it, and all that a server or a neighbour makes of noisy rows is
post-processing. So all m rows of a client in all T rounds compose m T times. One rating moves all of these
rows through p_i, but for round 0 where p_i is the start factor: one row there, and m in each later round.

T counts every round that ran: the broadcast of a round depends on the uploads of all rounds before it,
recorded or not.

Where rows go along a graph, noise that is drawn once for a row is the same at all receivers, and whatever
they put together or pass on is made of the same m T rows. Noise that is drawn anew for every message gives c
receivers of a row c draws, whose mean has 1/sqrt(c) of the noise: c m T rows. Their own copies are all that
they see in one round; later rows of others depend on the copies that those got, so that beyond it the count
of all receivers alone bounds a view.

Laplace noise of scale b, rows clipped in L1: a row is 2 C / b - private (Dwork, McSherry, Nissim, Smith 2006,
Proposition 1), m T of them by the plain sum, and by the privacy loss distribution (dp-accounting; Sommer,
Meiser, Mohammadi 2019, doi:10.2478/popets-2019-0029), for which the one-dimensional Laplace pair at distance
2 C dominates a row's.

Normal noise of standard deviation sigma, rows clipped in L2: no finite epsilon with delta = 0. m T rows are
one row at distance 2 C sqrt(m T), also where later rows depend on earlier ones (Dong, Roth, Su 2019,
arXiv:1905.02383, Corollary 3.3), whose epsilon at delta is exact (Balle, Wang 2018, arXiv:1805.06530, Theorem
8, as dp-accounting has it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from defenses.ranges import usable, usable_or_0
from victims.common.validation import at_least, or_none, require, strictly_between
from victims.protocols.account import DELTA, Account, Line, Listeners, Setting
from victims.transcript.manifest import AGREEMENTS

SCENARIO = frozenset({"update", "weighting", "factors", "init_scale"})
STEPS = frozenset(
    {"order", "local_steps", "batch_size", "shuffle", "reduction", "upload", "row_factor"}
    | {"participation", "dropout"}
)
AMONG_TRUSTED = frozenset(
    {"degree", "learning_rate", "lambda_users", "lambda_items", "regularize", "positive_share", "fallback"}
    | {"rating_map", "start", "init_spread", "personal_start"}
)
DEFENSES = frozenset(
    {"laplace", "gaussian", "objective-noise", "stretching", "personalized-sampling", "unrated-sampling"}
    | {"paillier", "secure-sum"}
)


@dataclass(frozen=True)
class Proof:
    """The settings that a proof covers."""

    victims: Mapping[str, frozenset[str]]  # options of each victim whose values do not matter
    rounds: int | None = None  # rounds from round 0 on that it counts; None counts any number
    beside: frozenset[str] = DEFENSES  # those that may stand beside the one that it is about

    def gap(self, setting: Setting) -> str:
        """What of a setting is not covered, in words; empty where all of it is."""
        covered = self.victims.get(setting.victim)
        if covered is None:
            known = ", ".join(self.victims)
            return f"the proof is for {known}, and knows nothing of what {setting.victim} sends"
        others = sorted(set(setting.changed) - covered)
        if others:
            said = ", ".join(f"{name}={setting.options[name]}" for name in others)
            return f"the proof does not cover {said} of {setting.victim}"
        strangers = sorted(set(setting.defenses) - self.beside - set(AGREEMENTS))
        if strangers:
            return f"the proof does not know what {', '.join(strangers)} does with the ratings"
        if not setting.on_received and setting.n_rounds > 1:
            return "receivers trained on the rows before the defenses, so that broadcasts show them"
        if self.rounds is not None and setting.n_rounds > self.rounds:
            return f"the proof is for {self.rounds} round from round 0 on, and {setting.n_rounds} ran"
        return ""


# everything that a client sends is a row, and receivers step with what the defenses made of it
ROWS = Proof(
    {
        "fedmvmf": SCENARIO
        | STEPS
        | {"lambda_attributes", "lambda_factors", "alpha", "server_learning_rate", "beta_1", "beta_2"}
        | {"epsilon", "client_learning_rate"},
        # not stop_gradient: when a training is over hangs on gradients that no defense has seen
        "fedmf": SCENARIO
        | STEPS
        | {"lambda_factors", "item_regularization", "client_learning_rate", "start", "stop_side"},
        "mf": SCENARIO | STEPS | {"learning_rate", "epochs", "regularization", "regularize"},
        "pdmfrec": SCENARIO
        | STEPS
        | {"learning_rate", "regularization", "variant", "threshold", "weight", "own_step", "start"}
        | {"start_law", "helper", "anonymous", "links"},
        "dpmf-yang": SCENARIO
        | STEPS
        | AMONG_TRUSTED
        | {"implicit_weight", "negative_weight", "lambda_implicit", "lambda_offsets", "negatives"}
        | {"receivers", "implicit_scale", "predict_with"},
        "dmf": SCENARIO | STEPS | AMONG_TRUSTED | {"walk_length", "walks", "personal_scale"},
    }
)

# a rating moves its own row alone, on the unit ball, and all raters add their share: nothing of STEPS
ONE_RATING = Proof({"mf": SCENARIO | {"learning_rate", "epochs", "regularization", "regularize"}}, rounds=1)


def one_row_at_first(setting: Setting) -> bool:
    """Whether one rating enters one row in round 0, for no rating has moved the start factor yet."""
    needed = {"update": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all"}
    needed["row_factor"] = "before"
    return all(setting.options.get(name) == value for name, value in needed.items())


NAMED = "which items a client rated: the uploads name them"
REPEATED = (
    "what repeats: the noise is fresh in every round, the ratings stay, so T rounds average it",
    "the direction that all rows of a client share: many rows tell it",
)
NEIGHBOURS = (
    "neighbours: recordings that differ in the values of one rating, or of all ratings and attributes of one "
    "client; which items it rated is the same in both"
)
NOT_CLAIMED = (
    "not claimed: user-level privacy (whether a client takes part, or which items it rated), nor central "
    "privacy (more for those who see sums alone); a sum or a sample of clients amplifies nothing here"
)
CELLS = 2_000_000  # of the discretised privacy loss
LARGE, SMALL = 1e3, 1e-6  # epsilon of one Laplace mechanism, and of all together
LEAST_MULTIPLIER, MOST_MULTIPLIER = 1e-6, 1e5  # of normal noise, sigma over the distance


class Spent(NamedTuple):
    """What a number of noisy rows gives away at most.

    rows : all rounds together; pure : epsilon with delta = 0, infinite where no finite one holds; composed :
    epsilon at delta, never above ``pure``; delta.
    """

    rows: int
    pure: float
    composed: float
    delta: float


def of_laplace(scale: float, clip: float | None, rows: int, rounds: int = 1, delta: float = DELTA) -> Spent:
    """What ``rows`` rows in each of ``rounds`` rounds give away under Laplace noise.

    Examples
    --------
    >>> of_laplace(scale=2.0, clip=1.0, rows=1).pure
    1.0
    >>> of_laplace(scale=2.0, clip=None, rows=1).pure
    inf
    """
    count = _checked(scale, clip, rows, rounds, delta)
    if clip is None or scale == 0:
        return Spent(count, float("inf"), float("inf"), delta)
    single = 2 * clip / scale
    return Spent(count, single * count, _composed(single, count, delta), delta)


def of_gaussian(scale: float, clip: float | None, rows: int, rounds: int = 1, delta: float = DELTA) -> Spent:
    """What ``rows`` rows in each of ``rounds`` rounds give away under normal noise.

    Examples
    --------
    >>> spent = of_gaussian(scale=2.0, clip=1.0, rows=1)
    >>> spent.pure, round(spent.composed, 3)
    (inf, 4.377)
    """
    count = _checked(scale, clip, rows, rounds, delta)
    if clip is None or scale == 0:
        return Spent(count, float("inf"), float("inf"), delta)
    from dp_accounting import get_epsilon_gaussian

    multiplier = scale / (2 * clip * np.sqrt(count))
    if multiplier < LEAST_MULTIPLIER:  # an epsilon above 1e11 is none
        return Spent(count, float("inf"), float("inf"), delta)
    # less noise than there is gives a bound, and the library's numbers do not overflow
    composed = float(get_epsilon_gaussian(min(multiplier, MOST_MULTIPLIER), delta))
    return Spent(count, float("inf"), composed, delta)


def _checked(scale: float, clip: float | None, rows: int, rounds: int, delta: float) -> int:
    """The number of rows of all rounds."""
    require("the account", "scale", scale, usable_or_0())
    require("the account", "clip", clip, or_none(usable()))
    require("the account", "rows", rows, at_least(1))
    require("the account", "rounds", rounds, at_least(1))
    require("the account", "delta", delta, strictly_between(0, 1))
    return rows * rounds


def _composed(single: float, count: int, delta: float) -> float:
    """Epsilon of ``count`` Laplace mechanisms of epsilon ``single`` each."""
    from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

    total = single * count
    step = max(single / 100, total / CELLS)
    # the plain sum where the grid is too coarse to do better; where it is at most a thousandth too large (a
    # loss of one mechanism is on average within 1 of its epsilon); and where it is so small that the library
    # overflows
    if step > single or single > LARGE or total < SMALL:
        return total
    loss = from_laplace_mechanism(1 / single, value_discretization_interval=step)
    return min(total, float(loss.self_compose(count).get_epsilon_for_delta(delta)))


def of_rows(
    name: str,
    setting: Setting,
    spent: Callable[[int, int], Spent],
    how: str,
) -> Account:
    """The account of noise on clipped rows: of one rating, the median client and the largest one."""
    title = f"Privacy account of {name}, {setting.text}"
    not_hidden = (NAMED, *REPEATED) if setting.weighting == "observed-only" else REPEATED
    why = ROWS.gap(setting)
    if not why and not np.isfinite(spent(1, 1).composed):
        why = "rows have no bound without clipping and noise (clip=C, scale=b), and so no finite epsilon"
    if why:
        return Account(title, unproved=f"nothing is proved: {why}", not_hidden=not_hidden)
    lines = []
    # beyond the first round others pass on what they got, so that the last view alone, of all, has a bound
    views = setting.listeners[-1 if setting.n_rounds > 1 else 0 :]
    for view in views if setting.fresh_messages and views else (None,):
        unit = "rows" if view is None else "messages"
        for what, count in _counted(setting, view).items():
            given_away = spent(max(count, 1), 1)
            why = f"{count:,} {unit} in {setting.n_rounds:,} rounds from round 0 on; {how}"
            lines.append(Line(what, given_away.pure, given_away.composed, given_away.delta, why))
    view_text = (
        f"view: every message and broadcast of all rounds that ran ({setting.n_rounds:,} from round 0 on), "
        "whatever was recorded"
    )
    return Account(title, tuple(lines), claims=(NEIGHBOURS, view_text, NOT_CLAIMED), not_hidden=not_hidden)


def _counted(setting: Setting, view: Listeners | None) -> dict[str, int]:
    """What is protected, and how many draws of noise in all rounds are about it."""
    rows, later = setting.rows, setting.n_rounds - 1
    copies = np.ones_like(rows) if view is None else view.copies
    sends, seen = copies > 0, "" if view is None else f"; {view.who}"
    of_client = (rows * copies * setting.n_rounds)[sends]
    at_first = np.minimum(rows, 1) if one_row_at_first(setting) else rows
    of_rating = ((at_first + rows * later) * copies)[sends]
    counted = {"one rating": of_rating.max(), "one client, median": np.ceil(np.median(of_client))}
    counted["one client, largest"] = of_client.max()
    return {f"{what}{seen}": int(count) for what, count in counted.items()}
