"""Recordings of victims without a server, plain and under defenses."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.peers.nearby import read_nearby
from audit.factories import make_attack, make_defenses, make_victim
from audit.scoring.pseudonyms import link_scores, senders_of
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.kinds import ITEM
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript

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
        or (name == "watched" and defense in ("none", "secure-sum"))
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


# The victims without a server, read by attacks that were written against programs of the tests.


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
