"""Programs that shuffle and average, whose last minibatch is smaller, read by ``undeclared``.

So trains who hands ratings to a data loader with ``shuffle=True`` and takes the mean of the squared errors.
"""

from __future__ import annotations

import pytest

import factorleak as fl
from tests.attacks.closed_form.orders.test_hidden_orders import score
from tests.oracles.shuffled_passes import ShuffledPasses, made_up, recorded

USERS = 12


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("client", "items", "least"),
    [
        (ShuffledPasses(0.02, passes=2, batch=8, mean=True), 160, 0.6),
    ],
    ids=str,
)
def test_a_smaller_last_minibatch(tmp_path, client, items, least):
    table = recorded(tmp_path / "t", client, made_up(USERS, items, factors=8, seed=1), range(USERS), 2)
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == answers >= least * (table > 0).sum()


@pytest.mark.thorough
def test_shuffled_rows_are_not_read(tmp_path):
    client = ShuffledPasses(0.02, passes=3, batch=16, mean=True)
    recorded(tmp_path / "t", client, made_up(USERS, 160, factors=8, seed=1), range(USERS), 2)
    view = fl.open_transcript(tmp_path / "t").view("server").shuffled(3)
    assert len(fl.attack(view, "undeclared").abstained) == USERS
