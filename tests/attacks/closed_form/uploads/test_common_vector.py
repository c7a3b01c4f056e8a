"""A vector that all rows of a client hold in a round hides no difference between its ratings."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.uploads.common_vector import centred_views

STARS = np.arange(1.0, 6.0)
USERS = 8


def recorded(path, rng, *, own=1.0, each=0.0, dtype=np.float64, references=False, rule=None):
    """Clients who add one draw to all of their rows in a round, or one to each."""
    q, table = rng.normal(0, 0.5, (40, 5)), np.zeros((USERS, 40))
    p = rng.normal(0, 0.6, (USERS, 5))
    with fl.Recorder(path, rating_levels=STARS, rule=rule or {}) as recorder:
        for round_ in range(2):
            recorder.broadcast(round_, q.astype(dtype))
            for user in range(USERS):
                if not round_:
                    items = rng.permutation(40)[: rng.integers(10, 20)]
                    table[user, items] = rng.choice(STARS, items.size, p=[0.1, 0.1, 0.2, 0.3, 0.3])
                items = np.flatnonzero(table[user])
                at = q[items] + (rng.normal(0, 0.01, (items.size, 5)) if references else 0)
                at = at.astype(dtype).astype(float)
                rows = -0.3 * (table[user, items] - at @ p[user])[:, None] * p[user]
                if rule:
                    rows /= items.size
                rows += rng.laplace(0, own, 5) + rng.normal(0, each, rows.shape)
                known = {"references": at.astype(dtype)} if references else {}
                recorder.upload(round_, user, rows.astype(dtype), items, **known)
            p += rng.normal(0, 0.05, p.shape)
    return table


@pytest.mark.parametrize(
    "kinds",
    [
        {},
    ],
    ids=[
        "vector",
    ],
)
def test_differences_are_read(tmp_path, kinds):
    table = recorded(tmp_path / "t", np.random.default_rng(1), **kinds)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert len(found.abstained) <= 1
    assert found.scope in (Scope.SIZES, Scope.RATINGS_AND_ATTRIBUTES)
    for block in found.blocks:
        index = np.broadcast_to(block.index, block.value.shape)
        for user, value, items in zip(block.users, block.value, index, strict=True):
            told = np.isfinite(value)
            apart, true = (part - part[:1] for part in (value[told], table[user, items[told]]))
            sizes = found.scope == Scope.SIZES
            np.testing.assert_allclose(
                *(np.abs(part) if sizes else part for part in (apart, true)), atol=1e-2
            )


@pytest.mark.thorough
def test_noise_on_each_row_is_no_common_vector(tmp_path):
    recorded(tmp_path / "t", np.random.default_rng(1), each=1e-3)
    path = tmp_path / "t"
    assert not list(centred_views(fl.open_transcript(path).view("server")))
    assert len(fl.attack(path, "undeclared").abstained) == USERS


def test_rows_without_one_are_left(tmp_path):
    recorded(tmp_path / "t", np.random.default_rng(1), own=0.0)
    assert not list(centred_views(fl.open_transcript(tmp_path / "t").view("server")))
