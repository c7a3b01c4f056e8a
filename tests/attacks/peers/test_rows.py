"""Rows among peers: their form, without a sender, and of other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import factorleak as fl
from attacks.peers.claims import read_senders
from attacks.peers.planes import linked_by_planes, numbered
from attacks.peers.row_form import form_of, ratings_of_steps, times_of_gradients
from attacks.peers.senders import dealt_out, linked_by_direction
from attacks.peers.weights import candidates, cosine, named
from audit.factories import make_attack, make_victim
from audit.scoring.pseudonyms import PRECISION, RECALL, link_scores, senders_of
from tests.oracles.pdmfrec_peers import LEVELS, Pdmfrec
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.manifest import Manifest
from victims.transcript.reader import open_transcript

# Rows without a sender: linked, named and read, as the tests' own PDMFRec sends them.


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


# Rows that are no plain gradients: means, changes and copies, read rightly or not at all.


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


# Recordings of other people's programs, who send what no victim of ours sends: by hand, row by row.


PROGRAM = Pdmfrec(n_users=12, n_items=40, density=0.3)
Edit = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def dense(rows: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A row for every item, zeros about unrated ones."""
    out = np.zeros((PROGRAM.n_items, rows.shape[1]))
    out[items] = rows
    return out, np.arange(PROGRAM.n_items)


def recorded(
    path: Path,
    program: Pdmfrec = PROGRAM,
    edit: Edit = lambda rows, items: (rows, items),
    edges: bool = True,
    present: Callable[[int, int], bool] = lambda user, round_: True,
    weight: Callable[[int], float] = lambda sender: 1.0,
) -> Path:
    """Rows to each receiver by itself, without a sender; nobody's own list is in the recording."""
    ratings, traffic = program.ratings, program.run()
    with fl.Recorder(path, rating_levels=LEVELS, n_items=program.n_items) as recorder:
        for user in range(program.n_users):
            items = np.flatnonzero(ratings[user])
            recorder.truth(user, items, ratings[user, items])
        for sender, receiver in np.argwhere(traffic.weight) if edges else ():
            w = float(traffic.weight[sender, receiver])
            recorder.edge(int(sender), int(receiver), w * weight(int(sender)))
        for round_, sent in enumerate(traffic.rows):
            recorder.broadcast(round_, traffic.held[0][0])
            for sender, (items, rows) in enumerate(sent):
                for receiver in np.flatnonzero(traffic.weight[sender]).tolist():
                    if not (present(sender, round_) and present(receiver, round_)):
                        continue
                    w = traffic.weight[sender, receiver] * weight(sender)
                    recorder.upload(round_, None, *edit(w * rows, items), to=receiver)
    return path


def read(path: Path, attack: str = "peers", adversary: str = "neighbour:1") -> dict[str, Any]:
    """Metric -> value, and under ``status`` what became of the attack."""
    rows = fl.audit_recording(path, adversary=adversary, attacks=[attack])
    return dict(zip(rows["metric"], rows["value"], strict=True)) | {"status": rows["status"].iloc[0]}


@pytest.mark.parametrize("edges", [True, False])
def test_a_member_without_a_list_of_its_own(tmp_path, edges):
    """Nothing tells a weight: read, and not named. Before: the attack failed where there were edges."""
    path = recorded(tmp_path / "t", edges=edges)
    found = read(path)
    assert found["status"] == "ran"
    assert found["claimed_rating_accuracy"] == 1
    assert found["share_of_ratings_read"] == pytest.approx(11 / 12)  # all but its own
    view = fl.open_transcript(path).view("neighbour:1")
    named = fl.attack(view, "peers-named")
    assert not named.blocks
    assert len(named.abstained) == named.users.size


@pytest.mark.parametrize(
    "edit",
    [
        dense,
        lambda rows, items: (np.repeat(rows, 2, axis=0), np.repeat(items, 2)),
        lambda rows, items: (-rows, items),
        lambda rows, items: (-1e4 * rows, items),
    ],
    ids=["zeros about unrated items", "every row twice", "sign turned", "scaled"],
)
@pytest.mark.parametrize("adversary", ["neighbour:1", "neighbours:1,2,5"])
def test_rows_of_other_forms_are_read_as_well(tmp_path, edit, adversary):
    """Before: where rows were zeros or sent twice nobody was linked, and of turned ones nothing was read."""
    found = read(recorded(tmp_path / "t", edit=edit), adversary=adversary)
    assert found["claimed_rating_accuracy"] == 1
    assert found["share_of_ratings_read"] > 0.9


def test_turned_rows_with_names(tmp_path):
    """Senders are told, and every weight of an edge is below 0."""
    traffic = PROGRAM.run()
    with fl.Recorder(tmp_path / "t", rating_levels=LEVELS, n_items=PROGRAM.n_items) as recorder:
        for sender, receiver in np.argwhere(traffic.weight):
            recorder.edge(int(sender), int(receiver), -float(traffic.weight[sender, receiver]))
        recorder.broadcast(0, traffic.held[0][0])
        for sender, (items, rows) in enumerate(traffic.rows[0]):
            recorder.upload(0, sender, -rows, items, to=recorder.NEIGHBOURS)
    found = fl.attack(fl.open_transcript(tmp_path / "t"), "peers", adversary="neighbour:1")
    claimed = 0
    for user, _, item, value, _ in found.rows():
        np.testing.assert_allclose(value, PROGRAM.ratings[user, item], atol=1e-3)
        claimed += value.size
    assert claimed == (PROGRAM.ratings > 0).sum() - (PROGRAM.ratings[1] > 0).sum()


def test_neighbours_who_leave_and_come(tmp_path):
    """A third joins after the first round, a third leaves before the last; what is claimed is right."""
    program = Pdmfrec(n_users=12, n_items=40, density=0.3, rounds=3)
    path = recorded(tmp_path / "t", program, present=lambda u, r: (u % 3, r) not in {(1, 0), (2, 2)})
    for adversary in ("neighbour:0", "neighbour:1", "neighbours:0,1,2"):
        found = read(path, adversary=adversary)
        assert found["status"] == "ran"
        assert np.isnan(found["claimed_rating_accuracy"]) or found["claimed_rating_accuracy"] > 0.95


def test_weights_of_zero_send_nothing(tmp_path):
    """Half of the senders weigh nothing, and their rows carry nothing: the others are read."""
    found = read(recorded(tmp_path / "t", weight=lambda sender: float(sender % 2)))
    assert found["claimed_rating_accuracy"] == 1
    assert found["share_of_ratings_read"] == pytest.approx(5 / 12)


def test_what_tells_nothing_is_not_said_to_be_safe(tmp_path):
    """Rows of zeros."""
    path = recorded(tmp_path / "t", edit=lambda rows, items: (0 * rows, items))
    rows = fl.audit_recording(path, adversary="neighbour:1", attacks=["peers", "peers-named"])
    assert "NO EVIDENCE" not in set(rows["verdict"])


def test_one_client_alone(tmp_path):
    """It hears nothing, and that is said."""
    traffic = PROGRAM.run()
    items, rows = traffic.rows[0][0]
    with fl.Recorder(tmp_path / "t", rating_levels=LEVELS, n_items=PROGRAM.n_items) as recorder:
        recorder.broadcast(0, traffic.held[0][0])
        recorder.upload(0, "anna", rows, items, to="anna")
    found = fl.attack(fl.open_transcript(tmp_path / "t"), "peers", adversary="neighbour:anna")
    assert found.obstacle == "the adversary receives nothing from others"
