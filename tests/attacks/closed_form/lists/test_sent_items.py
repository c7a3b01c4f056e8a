"""Rated, drawn, or neither: what evidence says of the items that are sent, and nothing without it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

import factorleak as fl
from attacks.closed_form.lists.sent_items import direction_of, lists_of, share_of_hardly_used
from audit.experiments.hints import lists_open
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

N_CLIENTS, N_ITEMS, K = 60, 1000, 4


class Program(NamedTuple):
    path: object
    rated: np.ndarray


@pytest.fixture
def program(tmp_path):
    """Record implicit feedback: few items are used by many, and what is sent is the program's."""

    def record(send, *, n_clients=N_CLIENTS, rounds=1, levels=(1,), seed=0):
        rng = np.random.default_rng(seed)
        popular = rng.lognormal(0, 1.5, N_ITEMS)
        rated = np.zeros((n_clients, N_ITEMS), bool)
        items = rng.normal(0, 0.1, (N_ITEMS, K))
        with Recorder(tmp_path / "t", rating_levels=levels) as recorder:
            for client in range(n_clients):
                own = rng.choice(N_ITEMS, rng.integers(20, 120), replace=False, p=popular / popular.sum())
                rated[client, own] = True
                recorder.truth(client, own, np.ones(own.size))
            for number in range(rounds):
                recorder.broadcast(number, items)
                for client in range(n_clients):
                    rows = send(rng, items, rng.normal(0, 0.1, K), rated[client], number)
                    recorder.upload(number, client, rows)
        return Program(tmp_path / "t", rated)

    return record


def cross_entropy(rng, items, factor, rated, number):
    """Four distinct negatives for each positive."""
    drawn = rng.choice(np.flatnonzero(~rated), 4 * rated.sum(), replace=False)
    error = 1 / (1 + np.exp(-items @ factor)) - rated
    rows = np.zeros(items.shape)
    rows[rated] = error[rated, None] * factor
    rows[drawn] = error[drawn, None] * factor
    return rows


def negatives_alone(times):
    """BPR of one pass whose positives stay at home: ``times`` negatives for each."""

    def send(rng, items, factor, rated, number):
        rows = np.zeros(items.shape)
        for positive in np.repeat(np.flatnonzero(rated), times):
            drawn = rng.choice(np.flatnonzero(~rated))
            rows[drawn] -= factor / (1 + np.exp((items[positive] - items[drawn]) @ factor))
        return rows

    return send


def said(found, n_items=N_ITEMS):
    """P(rated) of every client and item, NaN of clients without an answer."""
    out = np.zeros((found.users.size, n_items))
    for block in found.blocks:
        here = np.isfinite(block.value)
        user = np.broadcast_to(block.users[:, None], here.shape)[here]
        out[user, block.index[here]] = block.rated_probability[here]
    out[np.isin(found.users, list(found.abstained))] = np.nan
    return out


def test_drawn_negatives_are_not_called_rated(program):
    """Before: all of them, with probability 1."""
    path, rated = program(cross_entropy)
    found = fl.attack(path, "rated-set")
    assert not found.abstained
    assert (found.diagnostics["classes"] == 2).all()
    np.testing.assert_array_equal(said(found) > 0.5, rated)
    assert not lists_open(open_transcript(path).view("server"))


def test_negatives_sent_alone_say_what_is_rated(program):
    """Before: the lists upside down, F1 0. Of 60 clients items that many use are missing by six standard
    deviations; a list of even draws is as far off in one of 10^8 recordings.
    """
    path, rated = program(negatives_alone(20))
    found = fl.attack(path, "rated-set")
    rows = fl.score(found, transcript=path).set_index("metric")
    assert rows.verdict["rated_set_f1"] == "LEAK"
    assert rows.value["rated_set_auc"] > 0.9
    probability = said(found)
    answered = ~np.isnan(probability).any(axis=1)
    for low in (0.2, 0.4, 0.6, 0.8):  # 0.25 for what is wrong about popularity and the length of lists
        here = (probability[answered] >= low) & (probability[answered] <= low + 0.2)
        assert abs(rated[answered][here].mean() - probability[answered][here].mean()) < 0.25
    assert not lists_open(open_transcript(path).view("server"))


def test_where_nothing_tells_nobody_is_answered(program, run, tmp_path):
    """Few negatives alone of few clients: before, all were called rated, and a bar was passed."""
    path, _ = program(negatives_alone(1), n_clients=10)
    found = fl.attack(path, "rated-set")
    assert set(found.abstained) == set(range(10))
    assert "rows may be of rated items, of drawn negatives or of both" in found.abstained[0]
    words = ("--transcript", path, "--attack", "rated-set", "--fail-on", "leak", "--out", tmp_path / "r")
    code, text, err = run("audit", *words)
    assert (code, "NOT TESTED" in text, "lies in the open" in text) == (3, True, False), err


def test_a_round_of_all_items_takes_no_answer_away(program):
    """Before: nobody was answered of both rounds."""

    def send(rng, items, factor, rated, number):
        rows = np.where(rated[:, None], rng.normal(0, 1, items.shape), 0)
        return rows + number * rng.normal(0, 0.1, items.shape)

    path, rated = program(send, rounds=2, levels=(1, 2, 3, 4, 5))
    found = fl.attack(path, "rated-set")
    assert not found.abstained
    claimed = np.zeros(rated.shape, bool)
    for block in found.blocks:
        assert block.probability is None  # nothing says so but that there are ratings on several levels
        here = block.value > 0
        claimed[np.broadcast_to(block.users[:, None], here.shape)[here], block.index[here]] = True
    np.testing.assert_array_equal(claimed, rated)


def test_rows_that_are_not_read_hold_as_many_draws_as_hardly_used_items_say():
    """Rated items and even draws: right in the mean to a tenth, and skewed to the right; the other way round
    where what is rated is not sent. 300 clients: five standard errors of c are 0.01.
    """
    rng = np.random.default_rng(0)
    share = np.minimum(4 / np.arange(1, 401) ** 0.9, 0.8)
    rated = rng.random((300, 400)) < share
    for drawn in (0.1, 0.5):
        other = rng.random(rated.shape) < drawn
        both, alone = sp.csr_array((rated | other) * 1.0), sp.csr_array((other & ~rated) * 1.0)
        assert direction_of(both) == 1
        assert direction_of(alone) == (-1 if drawn == 0.5 else 0)  # few draws say too little
        assert share_of_hardly_used(both, 1) == pytest.approx(
            drawn + (1 - drawn) * share[-40:].mean(), abs=0.02
        )
        assert direction_of(sp.csr_array(other * 1.0)) == 0


def test_rounds_of_all_items_are_left_out(program):
    path, rated = program(
        lambda rng, items, factor, own, number: (own | (number > 0))[:, None] * factor, rounds=3
    )
    view = open_transcript(path).view("server")
    np.testing.assert_array_equal(lists_of(view, every_round=False).listed.toarray() > 0, rated)
    assert lists_of(view, every_round=True).n_rounds.tolist() == [3] * N_CLIENTS
