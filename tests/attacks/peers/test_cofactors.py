"""DPMF-Yang's rows, as the tests' own program sends them: ratings through the sigmoid, positives by sign."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.peers.explicit import mappings, pull_of, ratings_at, ratings_behind, read_explicit, starred
from attacks.peers.implicit import sampled_of
from tests.oracles.dpmf_yang_peers import STARS, DpmfYang

EPS = float(np.finfo(float).eps)
PROGRAMS = {
    "per-sample": DpmfYang(),
    "batch": DpmfYang(order="batch"),
    "min-max": DpmfYang(mapping="min-max", density=0.5),
    "small start": DpmfYang(spread=0.1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ratings_of_the_first_round(name):
    """What is answered is right, and most senders are answered; the positives tell the sign of a factor."""
    program = PROGRAMS[name]
    traffic = program.run()
    v, z = traffic.held_v[0][0], traffic.held_z[0][0]
    answered = 0
    for user, sent in enumerate(traffic.sent[0]):
        factors = v[sent.explicit]
        rows = sent.implicit_rows - program.ridge * z[sent.implicit]
        toward = sampled_of(rows, sent.implicit, np.zeros(len(rows), int), program.negative).toward
        given = sent.explicit_rows, factors, sent.explicit, program.levels, 0.25, EPS
        found = read_explicit(*given, toward=toward)
        told = np.isfinite(found.value)
        answered += told.any()
        stars = starred(found.value, program.levels, STARS)
        np.testing.assert_allclose(stars[told], program.ratings[user, sent.explicit][told], atol=0.1)
        assert found.pull == pytest.approx(program.ridge, rel=1e-6)
    assert answered > program.n_users / 2


@pytest.mark.parametrize("redrawn", [True, False])
def test_positives(redrawn):
    """Several rounds tell which half is the positives where negatives are drawn anew; else the ratings do."""
    program = DpmfYang(redrawn=redrawn)
    traffic = program.run()
    v, z = traffic.held_v[0][0], traffic.held_z[0][0]
    for user in range(program.n_users):
        sent = [one[user] for one in traffic.sent]
        round_ = np.repeat(np.arange(len(sent)), [one.implicit.size for one in sent])
        index, rows, truth = (
            np.concatenate(part)
            for part in (
                [s.implicit for s in sent],
                [s.implicit_rows for s in sent],
                [s.positive for s in sent],
            )
        )
        found = sampled_of(rows - program.ridge * z[index], index, round_, np.nan)
        explicit = read_explicit(
            sent[0].explicit_rows, v[sent[0].explicit], sent[0].explicit, program.levels, 0.25, EPS
        )
        for factor, told in ((np.zeros_like(explicit.direction), redrawn), (explicit.direction, True)):
            side = found.side(factor) * found.split.side
            if told and (redrawn or factor.any()):
                assert (side == np.where(truth, 1, -1)).mean() > 0.95
            assert (side == np.where(truth, -1, 1)).sum() == 0


def test_positives_of_one_round():
    """Without a factor of the ratings nothing is said."""
    rows, index, none = np.array([[-1.0, 0], [0.5, 0]]), np.array([0, 1]), np.zeros(2, int)
    found = sampled_of(rows, index, none, np.nan)
    assert found.positives(np.zeros(2)).tolist() == []
    assert found.toward is None
    assert found.positives(np.array([2.0, 0])).tolist() == [0]


@pytest.mark.parametrize("weight", [0.8, 1.0])
def test_positives_by_the_length_of_their_rows(weight):
    """One round and no ratings: W makes the rows of negatives shorter, and at 1 it does not."""
    program = DpmfYang(redrawn=False, negative=weight)
    traffic = program.run()
    z, answered = traffic.held_z[0][0], 0
    for sent in traffic.sent[0]:
        rows = sent.implicit_rows - program.ridge * z[sent.implicit]
        found = sampled_of(rows, sent.implicit, np.zeros(len(rows), int), weight)
        told = found.positives(np.zeros(program.factors))
        assert np.isin(told, sent.implicit[sent.positive]).all()
        answered += told.size > 0
    assert (answered > program.n_users / 2) == (weight < 0.7)


def test_rows_about_nothing_are_not_answered():
    """100 senders of 12 random rows: at the stated accident of 1e-4 none is answered, but 1 time in 100."""
    rng = np.random.default_rng(0)
    rows, along = rng.normal(size=(2, 100, 12))
    found = ratings_behind(rows, along, np.ones(rows.shape, bool), STARS / 4, 0.25)
    assert not (found.misfit <= found.allowed).any()


def test_ratings_that_their_mirror_image_fits():
    """With levels that look the same from both ends nothing is said until somebody tells the sign."""
    levels = np.linspace(0, 1, 5)
    along = np.random.default_rng(2).normal(size=(1, 8))
    g = 1 / (1 + np.exp(-1.3 * along))
    even = np.array([[0, 1, 0.5, 0.25, 0.75, 0, 1, 0.5]])
    row = 1.3 * g * (1 - g) * (g - even)
    open_ = ratings_behind(row, along, along < 9, levels, 0.25)
    assert not (open_.misfit <= open_.allowed).any()
    for sign, expected in ((1, even), (-1, 1 - even)):
        told = ratings_behind(row, along, along < 9, levels, 0.25, np.full(1, float(sign)))
        assert (told.misfit <= told.allowed).all()
        np.testing.assert_allclose(told.value, expected, atol=1e-6)
    np.testing.assert_allclose(ratings_at(row, along, np.array(1.3)), even, atol=1e-9)


def test_no_rows():
    nothing = np.zeros((0, 4))
    assert np.isnan(pull_of(nothing, nothing, np.zeros(0, int), EPS))
    assert read_explicit(nothing, nothing, np.zeros(0, int), STARS / 4, 0.25, EPS).value.size == 0
    assert mappings(np.array([2.0]))[0].tolist() == [1]
