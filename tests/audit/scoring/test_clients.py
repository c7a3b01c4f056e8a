"""Of whom how much is recovered: lines of clients, held against what was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.base import Identities
from audit.scoring.clients import as_records, client_table, clients_of, strongest
from audit.scoring.score import score
from tests.audit.scoring.test_groups import planted


@pytest.fixture
def scored():
    found, facts, truth, ratings, hit = planted(right_for=lambda user, item, counts: user < 12)
    return found, truth, score(found, facts, truth), (ratings > 0).sum(axis=1), hit


def test_shares_are_those_that_were_planted(scored):
    found, truth, scores, counts, hit = scored
    lines = list(clients_of("spectral", client_table(found, truth, scores)))
    assert [one.client for one in lines] == list(range(36))
    assert [one.items for one in lines] == counts.tolist()
    assert [one.recovered for one in lines] == pytest.approx(hit.sum(axis=1) / counts)
    assert {one.what for one in lines} == {"ratings"}
    assert all(np.isnan(one.claim) for one in lines)
    mean = next(one.summary for one in scores if one.metric == "rated_rating_accuracy")
    assert np.mean([one.guess for one in lines]) == pytest.approx(mean.baseline)


def test_who_got_no_answer_is_not_counted_with_the_guess(scored):
    found, truth, scores, *_ = scored
    each = next(one.clients for one in scores if one.metric == "rated_rating_accuracy")
    each.silent[3] = True
    lines = list(clients_of("spectral", client_table(found, truth, scores)))
    assert np.isnan(lines[3].recovered)
    assert not np.isnan(lines[4].recovered)


def test_without_truth_it_is_what_is_claimed(scored):
    found, _, _, counts, _ = scored
    block = replace(found.blocks[0], probability=np.full(found.blocks[0].value.shape, 0.9))
    lines = list(clients_of("grid", client_table(replace(found, blocks=(block,)))))
    assert [one.items for one in lines] == counts.tolist()
    assert all(np.isnan(one.recovered) and one.claim == pytest.approx(0.9) for one in lines)


def test_nobody_is_named_where_answers_name_nobody(scored):
    nameless = replace(scored[0], identities=Identities.PSEUDONYMS)
    assert not list(clients_of("peers", client_table(nameless)))


def test_each_client_has_the_attack_that_recovers_most():
    def table(recovered, claim, what=0):
        n = len(recovered)
        return np.stack([np.arange(n), np.full(n, 9.0), recovered, np.zeros(n), claim, np.full(n, what)])

    nan = np.nan
    lines = strongest(
        {
            "lists": table([1.0, 1.0, nan], [nan, nan, nan], 3),
            "first": table([0.5, nan, nan], [0.9, 0.9, 0.2]),
            "second": table([0.7, nan, nan], [0.1, 0.1, 0.3]),
        }
    )
    assert [(one.attack, one.what) for one in lines] == [
        ("second", "ratings"), ("lists", "rated items (F1)"), ("second", "ratings"),
    ]  # fmt: skip
    assert [one["name"] for one in as_records(lines, {1: "ann"})] == ["", "ann", ""]
    assert "name" not in as_records(lines)[0]
