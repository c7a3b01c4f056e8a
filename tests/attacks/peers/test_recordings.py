"""Recordings of victims without a server, plain and under defenses."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.peers.nearby import read_nearby
from audit.factories import make_attack, make_defenses, make_victim
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.reader import open_transcript

# What neighbours read where rows are noisy, sampled, shrunk or added up, and what a coalition averages.


RATINGS = generate(Synthetic(users=24, items=60, seed=4))
EIGHT = "neighbours:" + ",".join(map(str, range(8)))
STARS = np.arange(1.0, 6)
VICTIMS = {
    "pdmfrec": ({"factors": "6", "init_scale": "1"}, "peers-named"),
    "pdmfrec named": ({"factors": "6", "init_scale": "1", "anonymous": "false"}, "peers"),
    "dmf": ({"factors": "4"}, "peers"),
    "dpmf-yang": ({"factors": "4"}, "cofactors"),
}
DEFENSES = [
    "none",
    "laplace:scale=0.01",
    "laplace:scale=0.01,per_message=true",
    "gaussian:scale=0.05",
    "personalized-sampling",
    "stretching",
    "secure-sum",
]


def read(path, victim, defense, rounds, adversaries):
    """Of each adversary the ratings that it claims to have read of rows, and how many are right."""
    options, attack = VICTIMS[victim]
    protocol = make_victim(victim.split()[0], options)
    record(protocol, RATINGS, path, rounds=rounds, defenses=make_defenses(defense))
    table = RATINGS.matrix().toarray()
    out = []
    for adversary in adversaries:
        found = make_attack(attack).attack(open_transcript(path).view(adversary), 0)
        n = right = 0
        for part in found.columns():
            user, item = part["user"].astype(int), part["index"].astype(int)
            claimed = part["probability"] > 0.6  # below it stands a usual rating
            assert (table[user, item] > 0).all()
            n += claimed.sum()
            right += (np.abs(part["value"] - table[user, item]) < 0.5)[claimed].sum()
        out.append((int(n), int(right)))
    return out


def test_noise_of_each_message_is_averaged_by_a_coalition(tmp_path):
    """Eight receivers put together noise that is drawn for each of them, and cannot what is of the row."""
    once, anew = (
        read(tmp_path / str(number), "dmf", f"laplace:scale=0.03{each}", [0], [EIGHT, "neighbour:1"])
        for number, each in enumerate(("", ",per_message=true"))
    )
    assert anew[0][0] > once[0][0]
    for n, right in (*once, *anew):
        assert right >= 0.95 * n


def test_a_missed_start_claims_nothing_that_is_wrong(tmp_path):
    """Before: of ratings that weights had shrunk, and of rounds with a missed past, one in five was right."""
    defense = "stretching"
    for n, right in read(tmp_path / "t", "dmf", defense, [3, 4], ["neighbour:4", "neighbour:12"]):
        assert right >= 0.95 * n


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("victim", "defense", "rounds"),
    [
        pytest.param(victim, defense, rounds, id=f"{victim}-{defense}-{name}")
        for number, victim in enumerate(VICTIMS)
        for place, defense in enumerate(DEFENSES)
        for name, rounds in (("watched", [0, 1]), ("missed", [3, 4]))
        # each defense with one of the victims, and every other one where the start was missed
        if (number + place) % (4 if name == "watched" else 8) == (name == "missed")
    ],
)
def test_every_defense(tmp_path, victim, defense, rounds):
    """Whatever is claimed is right; without noise somebody is read, and under sums nobody."""
    found = read(tmp_path / "t", victim, defense, rounds, ["neighbour:9", EIGHT])
    for n, right in found:
        assert right >= 0.95 * n
    claimed = sum(n for n, _ in found)
    if defense == "secure-sum":
        assert claimed == 0
    if defense in ("none", "personalized-sampling") and rounds == [0, 1]:
        assert claimed > 100


def test_ratings_that_a_constant_would_move_are_not_told():
    """Items nearly alike along u: a rating more for all, or upside down, explains the rows as well."""
    rng = np.random.default_rng(0)
    rating, h = rng.choice([2.0, 3.0, 4.0], 30), 1 + 1e-3 * rng.normal(size=30)
    u = 0.7
    g = u * h * u - rating * u  # (u . v - r) u, along u
    open_ = read_nearby(g, h * u, STARS, np.random.default_rng(1))
    assert np.isnan(open_.value).all()
    told = read_nearby(g, h * u, STARS, np.random.default_rng(1), product=-1.0)
    assert np.isnan(told.value).all() or (told.value == rating).all()


@pytest.mark.parametrize("ridge", [0.0, 0.02])
def test_one_round_after_a_private_start_tells_no_rating(ridge):
    """For any other ratings there are item factors, which the sender alone knows, that send the same rows."""
    rng = np.random.default_rng(3)
    u, v = rng.normal(size=5), rng.normal(size=(12, 5))
    rating, other = rng.choice(STARS, (2, 12))

    def rows(ratings, factors):
        return -(ratings - factors @ u)[:, None] * u + ridge * factors

    along = (other - rating) / (u @ u + ridge)  # moves u . v by so much that e u and the ridge change alike
    np.testing.assert_allclose(rows(other, v + along[:, None] * u), rows(rating, v), atol=1e-12)


def test_near_ratings_by_the_product_of_the_scales():
    """Noise of a tenth of a star; r = A g + B h with A B = -1."""
    rng = np.random.default_rng(2)
    rating, along = rng.choice(STARS, 100), rng.uniform(0.5, 1.5, 100)
    u = 2.0
    g = (u * along - rating + 0.1 * rng.normal(size=100)) * u
    told = read_nearby(g, along, STARS, np.random.default_rng(1), product=-1.0)
    assert (told.value == rating).all()
    assert np.isnan(read_nearby(g, rng.permutation(along), STARS, np.random.default_rng(1)).value).all()
