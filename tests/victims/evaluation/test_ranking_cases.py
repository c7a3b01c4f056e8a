"""What is held out is trained on nowhere."""

from __future__ import annotations

import numpy as np

from victims.evaluation.ranking import case


def test_cases_share_nothing(ratings):
    known = case("existing", ratings, 0)
    both = np.concatenate([c.users * 1000 + c.items for c in (known.train, known.test)])
    assert np.unique(both).size == both.size == ratings.n_ratings
    users = case("new user", ratings, 0)
    assert not set(users.train.user_ids.tolist()) & set(users.test.user_ids.tolist())
    assert users.test.n_users == 4
    items = case("new item", ratings, 0)
    assert not set(items.train.items.tolist()) & set(items.test.items.tolist())
    assert items.open_items.sum() == 6
