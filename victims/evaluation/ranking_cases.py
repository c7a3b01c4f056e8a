"""What a ranking is trained on and tested with: ratings held out of known users, new users, or new items.

Scenarios: ``existing`` (20 % of every user's ratings held out, or by a rule of ``victims.data.subsets``),
``new user`` (10 % of the users), ``new item`` (10 % of the items).

References
----------
Paper 000 (arXiv:2210.07775), section 6.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import one_of, require
from victims.data.ratings import Ratings
from victims.data.subsets import of_users, split_by, without

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
