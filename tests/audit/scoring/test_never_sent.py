"""The limit of recordings whose clients keep ratings to themselves, counted by hand from what was sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from audit.actions import score as answer
from audit.factories import make_attack, make_victim
from audit.scoring.ceiling import ceilings, computable, obstacle
from audit.scoring.never_sent import OF_SETS, guessed
from audit.scoring.score import score
from audit.scoring.truth import Truth, read_truth
from victims.data.synthetic import Synthetic, generate
from victims.protocols.feedback import EXPLICIT
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript

RATINGS = generate(Synthetic(users=24, items=60, seed=4))


class Made(NamedTuple):
    """A recording, its truth, which pairs were sent with their rating, and the client who receives most."""

    transcript: Transcript
    truth: Truth
    sent: set[tuple[int, int]]
    adversary: str


def made(path, name, **options) -> Made:
    victim = make_victim(name, {"factors": "4", **options})
    record(victim, RATINGS, path, rounds=[0])
    samples = victim.init(RATINGS, 0).samples
    explicit = samples.kind == EXPLICIT
    sent = set(zip(samples.user[explicit].tolist(), samples.item[explicit].tolist(), strict=True))
    transcript = open_transcript(path)
    receiver = int(np.bincount(transcript.deliveries.receiver).argmax())
    return Made(transcript, read_truth(truth_path(path)), sent, f"neighbour:{receiver}")


@pytest.fixture(scope="module")
def yang(tmp_path_factory):
    return made(tmp_path_factory.mktemp("yang") / "t", "dpmf-yang")


def by_hand(truth: Truth, levels: list[float], user: int, item: int) -> tuple[float, float]:
    """Bayes' rule, one rating at a time."""
    table = truth.ratings.toarray()
    mine, others = np.delete(table[user], item), np.delete(table[:, item], user)
    weights = []
    for level in levels:
        share = ((table == level).sum() + 1) / ((table > 0).sum() + len(levels))
        of_client = ((mine == level).sum() + len(levels) * share) / ((mine > 0).sum() + len(levels))
        of_item = ((others == level).sum() + len(levels) * share) / ((others > 0).sum() + len(levels))
        weights.append(of_client * of_item / share)
    share_below = np.cumsum(weights) / np.sum(weights)
    return levels[int(np.argmax(weights))], levels[int((share_below >= 0.5).argmax())]


def test_guesses_by_hand(yang):
    levels = yang.transcript.manifest.rating_levels
    row, item = yang.truth.ratings.nonzero()
    mode, median = guessed(yang.truth, np.array(levels), row[::7], item[::7])
    expected = [by_hand(yang.truth, levels, user, at) for user, at in zip(row[::7], item[::7], strict=True)]
    np.testing.assert_array_equal(np.stack([mode, median], axis=1), expected)


def test_what_is_never_sent_is_guessed(yang):
    """Each client's limit is what explicit rows carry and the guesses that are right; sets are told whole.

    Of all ratings 3 stars is the most frequent one.
    """
    view, truth = yang.transcript.view(yang.adversary), yang.truth
    assert computable(view)
    limits = ceilings(view, truth)
    table, levels = truth.ratings.toarray(), yang.transcript.manifest.rating_levels
    users = limits["rated_rating_accuracy"].users
    assert users.size > 3
    for place, user in enumerate(users.tolist()):
        right, error, most = [], [], []
        for item in np.flatnonzero(table[user]).tolist():
            told = (user, item) in yang.sent
            mode, median = (table[user, item],) * 2 if told else by_hand(truth, levels, user, item)
            right.append(mode == table[user, item])
            error.append(abs(median - table[user, item]))
            most.append(told or table[user, item] == 3)
        assert limits["rated_rating_accuracy"].ml[place] == pytest.approx(np.mean(most))
        assert limits["rated_rating_accuracy"].map[place] == pytest.approx(np.mean(right))
        assert limits["rating_mae"].map[place] == pytest.approx(np.mean(error))
        assert limits["users_fully_recovered"].map[place] == all(right)
    assert 0.5 < limits["rated_rating_accuracy"].map.mean() < 0.9
    assert all(np.nanmin([limits[name].ml, limits[name].map]) == 1 for name in OF_SETS)


def test_beside_the_score(yang):
    """The attack's score has that limit, in the library and in the command; without the recording, none."""
    view = yang.transcript.view(yang.adversary)
    found = make_attack("cofactors").attack(view, 0)
    scored = answer(found, yang.truth, transcript=yang.transcript, adversary=yang.adversary)
    rows = {row["metric"]: row for row in scored.metrics}
    limit = rows["rated_rating_accuracy"]["ceiling"]
    limits = ceilings(view, yang.truth)["rated_rating_accuracy"]
    assert limit == pytest.approx(max(limits.ml.mean(), limits.map.mean()))
    assert limit < 0.9
    assert rows["rated_set_auc"]["ceiling"] == 1
    unseen = score(found, yang.transcript.manifest, yang.truth)
    assert all(one.ceiling is None for one in unseen)


def test_all_is_sent(tmp_path):
    """Without positives every rating has a row."""
    every = made(tmp_path / "t", "dpmf-yang", positive_share="0")
    assert not every.transcript.manifest.withholds_ratings
    found = make_attack("cofactors").attack(every.transcript.view(every.adversary), 0)
    scores = {one.metric: one for one in score(found, every.transcript.manifest, every.truth)}
    assert scores["rated_rating_accuracy"].ceiling.best == 1


def test_pairs_left_out(tmp_path):
    """DMF says nothing about the items of ratings that it leaves out: their set has no limit here."""
    left = made(tmp_path / "t", "dmf", positive_share="0.4")
    limits = ceilings(left.transcript.view(left.adversary), left.truth)
    assert 0.6 < limits["rated_rating_accuracy"].map.mean() < 1
    assert not set(OF_SETS) & set(limits)


def test_no_limit(yang):
    """For whoever receives no rows, and under a defense."""
    helper = yang.transcript.view("eavesdropper").select(np.zeros(0, int))
    assert obstacle(helper) == "the view has no clients"
    noisy = yang.transcript.manifest.model_copy(update={"defenses": [{"name": "laplace", "scale": 1.0}]})
    view = yang.transcript.view(yang.adversary)
    assert "together with laplace" in obstacle(type(view)(**{**vars(view), "manifest": noisy}))
