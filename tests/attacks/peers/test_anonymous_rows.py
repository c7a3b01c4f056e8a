"""Rows without a sender: linked, named and read, as the tests' own PDMFRec sends them."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.peers.directions import linked_by_direction
from attacks.peers.naming import candidates, cosine, named
from attacks.peers.planes import linked_by_planes, numbered
from attacks.peers.reading import read_senders
from attacks.peers.rounds import dealt_out
from audit.scoring.pseudonyms import PRECISION, RECALL, link_scores
from tests.oracles.pdmfrec_peers import Pdmfrec
from victims.transcript.manifest import Manifest

EPS = float(np.finfo(float).eps)
MANIFEST = Manifest(
    format="factorleak-transcript", version=1, protocol="pdmfrec", update="sgd", weighting="observed-only",
    n_users=24, n_items=90, n_attributes=0, factors=8, rounds=[0], rating_levels=[1.0, 2.0, 3.0, 4.0, 5.0],
)  # fmt: skip
PROGRAMS = {
    "per-rating": Pdmfrec(),
    "batch": Pdmfrec(order="batch"),
    "without a ridge": Pdmfrec(ridge=0.0),
    "four factors": Pdmfrec(factors=4),
    "no weights": Pdmfrec(weights="everybody"),
}


def linked(label, sender, name) -> float:
    """Mean of a link score of one round."""
    n = int(label.max(initial=-1)) + 1
    return float(link_scores(label, np.full(n, -1), sender, np.zeros(label.size, int))[name][1].mean())


@pytest.mark.parametrize("name", PROGRAMS)
def test_after_a_shared_start_everything_is_read(name):
    """One round, one receiver, no constant: all rows are linked, and all that is answered is right."""
    program = PROGRAMS[name]
    traffic, ratings = program.run(), program.ratings
    sender, item, rows = traffic.received(0, 0)
    v = traffic.held[0][0][item]
    found = linked_by_planes(rows, v, item, EPS)
    assert linked(found.label, sender, PRECISION) == linked(found.label, sender, RECALL) == 1
    np.testing.assert_allclose(found.pull, traffic.weight[sender, 0] * program.ridge, atol=1e-9)
    read = read_senders(found.label, rows - found.pull[:, None] * v, v, MANIFEST, 0.25, EPS)
    told = np.isfinite(read.value)
    assert told.mean() > 0.9
    np.testing.assert_allclose(read.value[told], ratings[sender, item][told], atol=1e-3)
    of_label = np.array([traffic.weight[sender[found.label == one][0], 0] for one in range(read.scale.size)])
    known = np.isfinite(read.scale)
    np.testing.assert_allclose(read.scale[known], of_label[known], rtol=1e-6)


def test_names_from_weights():
    """Whoever has a weight of its own is named by each of three ways; who shares one is by none."""
    program = PROGRAMS["per-rating"]
    traffic, rated = program.run(), program.ratings > 0
    sender, item, rows = traffic.received(0, 0)
    v = traffic.held[0][0][item]
    found = linked_by_planes(rows, v, item, EPS)
    read = read_senders(found.label, rows - found.pull[:, None] * v, v, MANIFEST, 0.25, EPS)
    size = np.bincount(found.label)
    together = np.bincount(found.label, rated[0, item]).astype(int)
    pull = np.array([found.pull[found.label == one][0] for one in range(size.size)])
    neighbours = np.flatnonzero(traffic.weight[:, 0])
    weight = traffic.weight[neighbours, 0]
    who = np.array([sender[found.label == one][0] for one in range(size.size)])
    alone = (np.abs(weight - weight[:, None]) < 1e-9).sum(axis=1) == 1
    expected = np.where(alone, neighbours, -1)[np.searchsorted(neighbours, who)]
    assert 0 < (expected >= 0).sum() < who.size
    for told in (cosine(together, size, int(rated[0].sum())), pull / program.ridge, read.scale):
        name = named(candidates(told[:, None], weight[:, None]))
        assert np.where(name < 0, -1, neighbours[name]).tolist() == expected.tolist()


def test_equal_weights_name_nobody():
    assert named(candidates(np.ones((3, 1)), np.ones((3, 1)))).tolist() == [-1, -1, -1]
    assert named(candidates(np.full((3, 2), np.nan), np.ones((1, 2)))).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("changes", [{"rounds": 4}, {"shared": False}, {"rounds": 4, "order": "batch"}])
def test_without_the_factors_what_is_linked_is_right(changes):
    """A start that was missed or is everybody's own: planes say nothing, directions nothing wrong."""
    traffic = Pdmfrec(factors=20, **changes).run()
    sender, item, rows = traffic.received(0, len(traffic.rows) - 1)
    assert (linked_by_planes(rows, traffic.held[-1][0][item], item, EPS).label < 0).all()
    label = linked_by_direction(rows, item)
    assert linked(label, sender, PRECISION) == 1
    assert linked(label, sender, RECALL) > 0.5


def test_from_round_to_round():
    """The senders of the first round are followed into the fourth."""
    traffic = Pdmfrec(rounds=4).run()
    sender, item, rows = traffic.received(0, 0)
    label = linked_by_planes(rows, traffic.held[0][0][item], item, EPS).label
    for round_ in (1, 2, 3):
        sender, now, more = traffic.received(0, round_)
        label, item, rows = dealt_out(more, now, rows, item, label), now, more
        assert linked(label, sender, PRECISION) > 0.9


def test_noise_links_nothing():
    """Rows about nothing: none of 400 is linked by planes, and none by nearness."""
    rng = np.random.default_rng(3)
    rows, item = rng.normal(size=(400, 8)), rng.integers(0, 90, 400)
    assert (linked_by_planes(rows, rng.normal(size=(90, 8))[item], item, EPS).label < 0).all()
    assert (linked_by_direction(rows, item) < 0).all()


def test_senders_of_few_factors_rows_or_errors():
    rng = np.random.default_rng(0)
    three = linked_by_planes(rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), np.arange(5), EPS)
    assert (three.label < 0).all()  # planes in three numbers always meet
    v = rng.normal(size=(6, 5))
    rows = 0.1 * v + np.array([1.0, -2, 0.5, 0, 0, 3])[:, None] * rng.normal(size=5)
    assert linked_by_planes(rows, v, np.arange(6), EPS).label.tolist() == [0, 0, 0, -1, -1, 0]
    nothing = np.zeros((0, 5))
    assert linked_by_planes(nothing, nothing, np.zeros(0, int), EPS).label.size == 0
    assert linked_by_direction(nothing, np.zeros(0, int)).size == 0
    empty = np.zeros(0, int)
    assert dealt_out(nothing, empty, nothing, empty, empty).size == 0


def test_an_item_is_sent_once():
    """Two senders with one factor would have items twice: they are not told apart, and nothing is linked."""
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=5), rng.normal(size=(4, 5))
    item = np.array([0, 1, 2, 3, 0, 1])
    rows = rng.normal(size=(6, 1)) * u
    assert (linked_by_planes(rows, v[item], item, EPS).label == -1).all()
    assert numbered(np.array([5, 5, -1, 2])).tolist() == [0, 0, -1, 1]
