"""Recordings of other people's programs, who send what no victim of ours sends: by hand, row by row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import factorleak as fl
from tests.oracles.pdmfrec_peers import LEVELS, Pdmfrec

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
