"""Rows that are no plain gradients: means, changes and copies, read rightly or not at all."""

from __future__ import annotations

import json
from itertools import chain

import numpy as np
import pytest

from attacks.peers.row_form import form_of, ratings_of_steps, times_of_gradients
from audit.factories import make_attack, make_victim
from audit.scoring.pseudonyms import link_scores, senders_of
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.reader import open_transcript

BASE = {
    "pdmfrec": ({"factors": "6", "init_scale": "1"}, "peers-named"),
    "dmf": ({"factors": "4"}, "peers"),
    "dpmf-yang": ({"factors": "4"}, "cofactors"),
}
MEAN = {"order": "batch", "reduction": "mean"}


@pytest.fixture(scope="module")
def ratings():
    return generate(Synthetic(users=24, items=60, seed=4))


def claimed(ratings, path, name, switches, receivers=(7,)):
    """How many ratings some receivers claim and are sure of, and how many of them are right."""
    options, attack = BASE[name]
    record(make_victim(name, options | switches), ratings, path, rounds=[0], watched=[1, 7, 13])
    return said_by(open_transcript(path), attack, receivers, ratings)


def said_by(transcript, attack, receivers, ratings):
    """The same of a recording."""
    found = [make_attack(attack).attack(transcript.view(f"neighbour:{one}"), 0) for one in receivers]
    table, said = ratings.matrix().toarray(), [np.zeros((0, 2))]
    for part in chain.from_iterable(one.columns() for one in found):
        sure = np.isfinite(part["value"]) & ~(np.asarray(part["probability"]) <= 0.9)
        user, item, value = (np.asarray(part[column])[sure] for column in ("user", "index", "value"))
        said.append(np.stack([value, table[user.astype(int), item.astype(int)]], axis=1))
    value, truth = np.concatenate(said).T
    return value.size, int((np.abs(value - truth) < 0.2).sum())


@pytest.mark.parametrize("name", BASE)
@pytest.mark.parametrize(
    "switches",
    [
        MEAN,
        MEAN | {"upload": "delta"},
        pytest.param({"upload": "delta"}, marks=pytest.mark.thorough),
        {"order": "batch", "upload": "weights"},
        pytest.param({"participation": "0.7", "dropout": "0.2"}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_what_is_claimed_is_right(ratings, tmp_path, name, switches):
    """Of one step, whatever of it is sent; by name where nobody sees who sends."""
    receivers = (1, 7, 13) if "participation" in switches else (7,)  # of whom some are absent
    n_claims, n_right = claimed(ratings, tmp_path / "t", name, switches, receivers)
    assert n_claims == n_right > 20


@pytest.mark.parametrize(
    "switches",
    [
        MEAN | {"batch_size": "5"},
        {"upload": "delta", "local_steps": "3"},
        {"upload": "weights", "local_steps": "3"},
    ],
    ids=str,
)
def test_rows_that_no_number_turns_into_gradients_tell_no_rating_behind_a_sigmoid(
    ratings, tmp_path, switches
):
    """Nothing is claimed of them, and rated items are told."""
    assert claimed(ratings, tmp_path / "t", "dpmf-yang", switches) == (0, 0)
    found = make_attack("cofactors-lists").attack(open_transcript(tmp_path / "t").view("neighbour:7"), 0)
    pairs = np.concatenate([np.stack([part["user"], part["index"]]) for part in found.columns()], axis=1)
    assert pairs.shape[1] > 20
    assert (ratings.matrix().toarray()[tuple(pairs.astype(int))] > 0).all()


@pytest.mark.parametrize(
    ("switches", "form", "divisor", "times"),
    [
        ({}, (-1.0, 0.25), 1, 1),
        ({"upload": "delta"}, (0.5, -0.125), 1, -2),
        ({"upload": "weights"}, (0.5, 0.875), 1, -2),
        (MEAN, (-1.0, 0.25), 7, 7),
        (MEAN | {"batch_size": "3"}, (-1.0, 0.25), np.nan, np.nan),
        ({"upload": "delta", "local_steps": "2"}, (0.5, -0.125), 1, np.nan),
        ({"local_steps": "2"}, (-1.0, 0.25), 1, 1),
    ],
    ids=str,
)
def test_forms(ratings, switches, form, divisor, times):
    """Of the loss's gradient -e u + 1/4 v, at steps of 1/2, by a sender of seven rows."""
    options = {"learning_rate": "0.5", "lambda_items": "0.25", **switches}
    manifest = make_victim("dmf", options).manifest(ratings, [0])
    np.testing.assert_allclose(form_of(manifest), form)
    np.testing.assert_array_equal(ratings_of_steps(manifest, np.array([7.0])), [divisor])
    np.testing.assert_allclose(times_of_gradients(manifest, np.array([7.0])), [times])


def test_rows_that_move_no_rating_from_its_prediction_say_nothing(ratings, tmp_path):
    """Means that are declared as sums, so that errors are tiny: predictions near one level were answered."""
    path, (options, _) = tmp_path / "t", BASE["dpmf-yang"]
    record(make_victim("dpmf-yang", options | MEAN), ratings, path, rounds=[0], watched=[7])
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["rule"]["reduction"] = "sum"
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert said_by(open_transcript(path), "cofactors", (7,), ratings) == (0, 0)


def test_means_of_uneven_minibatches_are_read_but_for_the_last(ratings, tmp_path):
    """A last minibatch of fewer ratings has another divisor: its rows were answered wrongly, by rounding."""
    switches = MEAN | {"batch_size": "5", "anonymous": "false"}
    n_claims, n_right = claimed(ratings, tmp_path / "t", "pdmfrec", switches)
    assert n_claims == n_right > 300


@pytest.mark.parametrize("switches", [{"dropout": "0.4"}, {"participation": "0.5"}], ids=str)
def test_rows_of_clients_who_come_later_are_not_given_to_others(ratings, tmp_path, switches):
    """All links and names of three rounds are right; of dealt-out rows some were another sender's."""
    victim = make_victim("pdmfrec", BASE["pdmfrec"][0] | switches)
    record(victim, ratings, tmp_path / "t", rounds=[0, 1, 2], watched=[1])
    transcript = open_transcript(tmp_path / "t")
    view = transcript.view("neighbour:1")
    found, who = make_attack("peers").attack(view, 0).linked, senders_of(transcript, view)
    assert who is not None
    scores = link_scores(found.label, found.name, *who)
    assert scores["link_precision"][1].min() == 1
    linked = (found.label >= 0) & (found.name[np.maximum(found.label, 0)] >= 0)
    assert linked.sum() > 100
    assert (found.name[found.label[linked]] == who.sender[linked]).all()
