"""Does the recommender rank well? A victim is trained on a case, and its lists are measured.

A case is what is held out; measures are over the lists of its users.
Factors of new users come from attributes by (15) of Mai & Pang 2022, those of new items from features by
(17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import above, one_of, require, require_fields, whole
from victims.data.ratings import Ratings
from victims.data.subsets import of_users, split_by, without
from victims.protocols.base import Defense, Predictor, Products, Victim, changes
from victims.training import Run, start

HELD_OUT, NEW = 0.2, 0.1  # of a user's ratings; of the users or items
EXISTING = "existing"
SCENARIOS = (EXISTING, "new user", "new item")


class Case(NamedTuple):
    """What one scenario trains on and is tested with.

    train, test : Ratings
        Of the same users and items; test users are those with test ratings.
    open_items : (n_items,) bool
        Items that may be recommended.
    """

    scenario: str
    train: Ratings
    test: Ratings
    open_items: Bool[np.ndarray, " items"]


def case(scenario: str, ratings: Ratings, seed: int, rule: str = "random") -> Case:
    """Split ratings for one scenario; everything is drawn from the seed."""
    chosen = _split(scenario, ratings, seed, rule)
    if chosen.test.n_ratings == 0:
        raise InputError(f"{scenario} holds out no rating of {ratings.name}: users have too few of them")
    return chosen


def _split(scenario: str, ratings: Ratings, seed: int, rule: str) -> Case:
    everything = np.ones(ratings.n_items, bool)
    if scenario == EXISTING:
        return Case(scenario, *split_by(rule, ratings, HELD_OUT, seed), everything)
    sizes = {"new user": ratings.n_users, "new item": ratings.n_items}
    require("a split", "scenario", scenario, one_of(*SCENARIOS))
    count = round(NEW * sizes[scenario])
    if count < 1:
        raise InputError(f"{scenario} holds out a tenth of {sizes[scenario]}, which is none")
    rng = generator(seed, Purpose.NEW_USERS if scenario == "new user" else Purpose.NEW_ITEMS)
    chosen = np.zeros(sizes[scenario], bool)
    chosen[rng.choice(sizes[scenario], count, replace=False)] = True
    if scenario == "new user":
        return Case(
            scenario,
            of_users(ratings, np.flatnonzero(~chosen)),
            of_users(ratings, np.flatnonzero(chosen)),
            everything,
        )
    held_out = chosen[ratings.items]
    return Case(scenario, without(ratings, held_out), without(ratings, ~held_out), chosen)


BLOCK = 512  # users ranked together
READINGS = ("rated", "all")


@dataclass(frozen=True)
class Cut:
    """Where a list ends, and which ratings are worth listing.

    References
    ----------
    Mai & Pang 2022 (arXiv:2210.07775), appendix .2: 10 and 4.
    """

    k: int = 10  # length of the list, >= 1
    relevant: float = 4.0  # smallest rating that counts as relevant, in stars; if none is, the highest level

    def __post_init__(self) -> None:
        require_fields(self, "a ranking", k=whole(1, 2**31 - 1), relevant=above(0))


PAPER = Cut()


class Quality(NamedTuple):
    """Means over users, each between 0 and 1; f1 is that of the mean precision and recall (53)."""

    ndcg: float
    precision: float
    recall: float
    f1: float


def rank(chosen: Case, predict: Callable[[np.ndarray], np.ndarray], cut: Cut = PAPER) -> dict[str, Quality]:
    """Quality of a ranking in both readings."""
    cut = replace(cut, relevant=min(cut.relevant, chosen.test.levels[-1]))  # implicit feedback is all 1
    per_user: dict[str, list[np.ndarray]] = {reading: [] for reading in READINGS}
    for users, actual, trained in _blocks(chosen):
        scores = predict(users)
        for reading in READINGS:
            among = actual > 0 if reading == "rated" else chosen.open_items & ~trained
            per_user[reading].append(_at(cut, np.where(among, scores, -np.inf), actual))
    return {reading: _means(np.concatenate(blocks)) for reading, blocks in per_user.items()}


def popular(chosen: Case, seed: int, cut: Cut = PAPER) -> dict[str, Quality]:
    """Rank items by their number of training ratings; ties, and new items, at random."""
    counts = np.bincount(chosen.train.items, minlength=chosen.train.n_items).astype(np.float64)
    counts += generator(seed, Purpose.POPULARITY_TIES).random(counts.size)
    return rank(chosen, lambda users: np.broadcast_to(counts, (users.size, counts.size)), cut)


def constant(chosen: Case, seed: int, cut: Cut = PAPER) -> dict[str, Quality]:
    """Rank where every prediction is equal, so that all items are tied: each user's in a random order."""
    rng = generator(seed, Purpose.POPULARITY_TIES)
    return rank(chosen, lambda users: rng.random((users.size, chosen.train.n_items)), cut)


def _blocks(chosen: Case) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Users with test ratings; their test ratings, 0 where there is none; what they rated in training."""
    test, train = chosen.test.matrix(), chosen.train.matrix()
    if chosen.scenario == "new user":
        train = sp.csr_array(test.shape)
    tested = np.flatnonzero(np.diff(chosen.test.indptr))
    for first in range(0, tested.size, BLOCK):
        users = tested[first : first + BLOCK]
        yield users, test[users].toarray(), train[users].toarray() > 0


def _at(
    cut: Cut, scores: Float[np.ndarray, "users items"], actual: Float[np.ndarray, "users items"]
) -> Float[np.ndarray, "users 3"]:
    """NDCG, precision and recall of every user; recall is NaN where nothing is relevant."""
    top = np.argsort(-scores, axis=1, kind="stable")[:, : cut.k]
    listed = np.isfinite(np.take_along_axis(scores, top, axis=1))
    stars_listed = np.where(listed, np.take_along_axis(actual, top, axis=1), 0.0)
    discount = 1 / np.log2(np.arange(2, top.shape[1] + 2))
    ideal = -np.sort(-actual, axis=1)[:, : top.shape[1]]
    gain, most = ((2.0**stars - 1) @ discount for stars in (stars_listed, ideal))
    hits = (stars_listed >= cut.relevant).sum(axis=1)
    relevant = (actual >= cut.relevant).sum(axis=1)
    precision = hits / np.maximum(listed.sum(axis=1), 1)
    recall = np.where(relevant > 0, hits / np.maximum(relevant, 1), np.nan)
    return np.stack([gain / most, precision, recall], axis=1)


def _means(users: Float[np.ndarray, "users 3"]) -> Quality:
    if not np.isfinite(users[:, 2]).any():
        return Quality(float(users[:, 0].mean()), float(users[:, 1].mean()), float("nan"), float("nan"))
    ndcg, precision = (float(column.mean()) for column in users.T[:2])
    recall = float(np.nanmean(users[:, 2]))
    both = precision + recall
    return Quality(ndcg, precision, recall, 2 * precision * recall / both if both else 0.0)


Progress = Callable[[int, int], None]


def measure(
    victim: Victim,
    chosen: Case,
    *,
    rounds: int,
    defenses: Sequence[Defense] = (),
    seed: int = 0,
    cut: Cut = PAPER,
    progress: Progress = lambda done, total: None,
) -> dict[str, Quality]:
    """Train a victim on a case and rank with it (Mai & Pang 2022, section 6.3 and Eq. (51) to (54))."""
    run = trained(victim, chosen, rounds=rounds, defenses=defenses, seed=seed, progress=progress)
    return ranked(run, chosen, cut)


def fold_in_obstacle(victim: Victim, scenario: str) -> str:
    """Say why a victim cannot be measured in a scenario."""
    can = victim.capabilities
    if scenario == EXISTING or (can.new_clients is not None and can.new_items is not None):
        return ""
    return f"this victim has no factors for a {scenario}: it knows ratings alone; measure existing users"


def readings_of(victim: Victim) -> tuple[str, ...]:
    """Readings that tell something: where ratings are interactions, those held out are all alike."""
    return READINGS[1:] if victim.capabilities.implicit else READINGS


def trained(
    victim: Victim,
    chosen: Case,
    *,
    rounds: int,
    defenses: Sequence[Defense] = (),
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Run:
    """Train a victim on a case."""
    if obstacle := fold_in_obstacle(victim, chosen.scenario):
        raise InputError(obstacle)
    run = start(victim, chosen.train, defenses, seed)
    for round_ in range(rounds):
        run = run.trained(round_)
        progress(round_ + 1, rounds)
        if run.stopped:
            break
    return run


def ranked(run: Run, chosen: Case, cut: Cut = PAPER) -> dict[str, Quality]:
    """Rank with what was trained."""
    predictor = _with_newcomers(run, chosen, int(run.state.round))

    def scores(users: np.ndarray) -> np.ndarray:
        return _as_used(predictor.scores(users), users, chosen.test, run.defenses, run.seed)

    return rank(chosen, scores, cut)


def _with_newcomers(run: Run, chosen: Case, rounds: int) -> Predictor:
    """Predictions after some rounds; of a scenario with new users or items, with their factors folded in."""
    known = run.predictor(rounds)
    if chosen.scenario == EXISTING:
        return known
    tables = cast(Products, known)
    if chosen.scenario == "new user":
        assert run.can.new_clients is not None
        return Products(run.can.new_clients(run.state, chosen.test.attributes), tables.items)
    items, new = np.array(tables.items), chosen.open_items
    assert run.can.new_items is not None
    items[new] = run.can.new_items(run.state, chosen.train.item_features[new])
    return Products(tables.clients, items)


def _as_used(
    scores: Float[np.ndarray, "some items"],
    users: Int[np.ndarray, " some"],
    ratings: Ratings,
    defenses: Sequence[Defense],
    seed: int,
) -> Float[np.ndarray, "some items"]:
    """Scores as the clients use them: a defense may rescale predictions, which reorders items."""
    changing = [defense for defense in defenses if changes(defense, "predicted")]
    if not changing:
        return scores
    counts = np.zeros(ratings.n_users, np.int64)
    counts[users] = ratings.n_items
    every = np.tile(np.arange(ratings.n_items, dtype=np.int32), users.size)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    pairs = replace(ratings, indptr=indptr, items=every, values=np.zeros(every.size))
    flat = scores.ravel()
    for defense in changing:
        flat = defense.predicted(flat, pairs, seed)
    return flat.reshape(scores.shape)
