"""The victims without a server, read by attacks that were written against programs of the tests."""

from __future__ import annotations

import numpy as np
import pytest

from audit.factories import make_attack, make_victim
from audit.scoring.pseudonyms import link_scores, senders_of
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.kinds import ITEM
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript

DENSE = Synthetic(users=24, items=60, seed=4)


@pytest.fixture(scope="module")
def ratings() -> Ratings:
    return generate(DENSE)


def told(transcript: Transcript, adversary: str, attack: str) -> tuple[np.ndarray, ...]:
    """Client, item, value and probability of all answers."""
    found = make_attack(attack).attack(transcript.view(adversary), 0)
    parts = list(found.columns())
    names = ("user", "index", "value", "probability")
    return tuple(np.concatenate([np.zeros(0), *(part[name] for part in parts)]) for name in names)


def table_of(ratings: Ratings) -> np.ndarray:
    out = np.zeros((ratings.n_users, ratings.n_items))
    out[ratings.users, ratings.items] = ratings.values
    return out


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"order": "batch"}, marks=pytest.mark.thorough),
        pytest.param({"variant": "-sim"}, marks=pytest.mark.thorough),
    ],
)
def test_pdmfrec(tmp_path, ratings, options):
    """Anonymous rows of the first round: all links right, and every rating that is claimed of a name."""
    victim = make_victim("pdmfrec", {"factors": "6", "init_scale": "1", **options})
    record(victim, ratings, tmp_path / "t", rounds=[0], watched=[1])
    transcript = open_transcript(tmp_path / "t")
    view = transcript.view("neighbour:1")
    found = make_attack("peers").attack(view, 0)
    who = senders_of(transcript, view)
    assert who is not None
    assert found.linked is not None
    scores = link_scores(found.linked.label, found.linked.name, *who)
    assert scores["link_precision"][1].min() == scores["link_recall"][1].min() == 1
    user, item, value, _ = told(transcript, "neighbour:1", "peers-named")
    assert (user.size > 0) == (options.get("variant") != "-sim")
    np.testing.assert_allclose(value, table_of(ratings)[user.astype(int), item.astype(int)], atol=1e-3)


def test_dmf(tmp_path, ratings):
    """Named rows of a squared loss."""
    record(make_victim("dmf", {"factors": "4"}), ratings, tmp_path / "t", rounds=[0], watched=[0])
    transcript = open_transcript(tmp_path / "t")
    receiver = int(np.bincount(transcript.deliveries.receiver).argmax())
    user, item, value, sure = told(transcript, f"neighbour:{receiver}", "peers")
    read = sure == 1
    assert read.sum() > 20
    expected = table_of(ratings)[user.astype(int), item.astype(int)]
    np.testing.assert_allclose(value[read], expected[read], atol=0.05)


@pytest.mark.parametrize("order", ["per-rating", pytest.param("batch", marks=pytest.mark.thorough)])
def test_dpmf_yang(tmp_path, ratings, order):
    """Explicit ratings through the sigmoid, most of a receiver's neighbours, all right."""
    victim = make_victim("dpmf-yang", {"factors": "4", "order": order})
    record(victim, ratings, tmp_path / "t", rounds=[0, 1, 2])
    transcript = open_transcript(tmp_path / "t")
    receiver = int(np.bincount(transcript.deliveries.receiver).argmax())
    user, item, value, sure = told(transcript, f"neighbour:{receiver}", "cofactors")
    read = sure == 1
    assert read.sum() > 20
    expected = table_of(ratings)[user.astype(int), item.astype(int)]
    np.testing.assert_allclose(value[read], expected[read], atol=0.1)


def test_the_personal_part_of_dpmf_yang_adds_up_from_the_rows_sent(ratings):
    """v_q moves by -theta times the rows that a user sends about v_p, and by nothing else."""
    victim = make_victim("dpmf-yang", {"factors": "4"})
    state, everybody = victim.init(ratings, 0), np.arange(ratings.n_users)
    total = np.zeros((ratings.n_users, ratings.n_items, 4))
    for _ in range(3):
        for rows in victim.uploads(state, ratings, everybody):
            about_v = rows.kind == ITEM
            total[rows.sender[about_v], rows.index[about_v]] += rows.gradient[about_v]
        state = victim.round(state, ratings)
    user, item = np.divmod(state.items.personal.keys, ratings.n_items)
    assert user.size > 100
    moved = state.items.personal.values - state.items.personal.start[item]
    np.testing.assert_allclose(moved, -victim.learning_rate * total[user, item], atol=1e-12)
    assert np.abs(moved).max() > 1e-3
