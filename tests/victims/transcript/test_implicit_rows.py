"""Rows about a second table of item factors: as they are written, read, summed, damaged and dealt out."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from audit.factories import make_defenses, make_victim
from tests.contract.version_2 import read_table, with_column, write_table
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.cofactor_draws import EXPLICIT
from victims.protocols.cofactor_round import trained_of
from victims.recording import record
from victims.training import start
from victims.transcript.kinds import Kind
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

RATINGS = generate(Synthetic(users=10, items=25, ratings_per_user=8.0, seed=1))
EDGES = make_victim("dpmf-yang").init(RATINGS, 0).edges
MOST = int(np.bincount(EDGES.receiver).argmax())  # who receives from most


def recorded(path, defense="none", **options):
    victim = make_victim("dpmf-yang", {"factors": "3", **options})
    record(victim, RATINGS, path, rounds=[0, 1], defenses=make_defenses(defense))
    return victim, open_transcript(path)


def test_what_neighbours_receive_is_what_was_sent(tmp_path):
    """Rows about V and about Z apart, with the receiver's own factors of both."""
    victim, transcript = recorded(tmp_path / "t")
    run = start(victim, RATINGS, (), 0).trained(0)
    samples = victim.samples_of(run.state, RATINGS)
    rows = trained_of(victim.rules, run.state, samples).last.rows
    view = transcript.view(f"neighbour:{MOST}")
    senders = run.network.edges.sender[run.network.edges.receiver == MOST]
    tables = (view, run.state.items, True), (view.implicit, run.state.implicit, False)
    for seen, table, explicit in tables:
        wanted = np.isin(samples.user, senders) & ((samples.kind == EXPLICIT) == explicit)
        copies = seen.during([1]).copies
        assert copies.round.size > 10
        order = np.lexsort((copies.index, copies.sender))
        expected = np.lexsort((samples.item[wanted], samples.user[wanted]))
        np.testing.assert_array_equal(copies.gradient[order], rows[wanted][expected])
        held = seen.holdings[MOST][1]
        keys = MOST * RATINGS.n_items + held.item_ids
        np.testing.assert_allclose(held.factors, table.at(keys), atol=1e-15)
    assert view.implicit.broadcasts[0].item_ids.size == RATINGS.n_items


def test_restricted_and_dealt_out(tmp_path):
    view = recorded(tmp_path / "t")[1].view(f"neighbours:1,{MOST}")
    null = view.shuffled(3)
    assert null is not None
    assert null.implicit is not None
    copies, dealt = view.implicit.copies, null.implicit.copies
    assert not np.array_equal(copies.gradient, dealt.gradient)
    np.testing.assert_array_equal(np.sort(copies.gradient, axis=0), np.sort(dealt.gradient, axis=0))
    assert set(view.during([1]).implicit.copies.round.tolist()) == {1}
    some = view.select(np.array([int(copies.sender[0])]))
    assert np.unique(some.implicit.copies.sender).size == 1


@pytest.mark.parametrize("defense", ["laplace:scale=0.1", "gaussian:scale=0.1,per_message=true"])
def test_noise_is_on_them_too_and_moves_the_factors(tmp_path, defense):
    exact, noisy = (
        recorded(tmp_path / str(number), text)[1] for number, text in enumerate(("none", defense))
    )
    one, other = (found.view(f"neighbour:{MOST}").implicit for found in (exact, noisy))
    away = other.during([0]).copies.gradient - one.during([0]).copies.gradient
    assert 0.05 < np.std(away) < 0.3
    assert not np.array_equal(one.holdings[MOST][1].factors, other.holdings[MOST][1].factors)


def test_sums_of_neighbours(tmp_path):
    """Sealed rows, and the sum that a neighbour sees of each item."""
    sealed = recorded(tmp_path / "s", "secure-sum:min_contributors=1")[1].view(f"neighbour:{MOST}").implicit
    plain = recorded(tmp_path / "t")[1].view(f"neighbour:{MOST}").implicit.during([0]).copies
    assert sealed.copies is None
    sums = sealed.sums[0]
    expected = np.zeros((RATINGS.n_items, 3))
    np.add.at(expected, plain.index, plain.gradient)
    np.testing.assert_array_equal(sums.index, np.unique(plain.index))
    np.testing.assert_allclose(sums.values, expected[sums.index], atol=1e-4)


def test_a_stranger_records_them(tmp_path):
    """The table and the rows come late, after a file has been begun without them; ids may repeat V's."""
    with Recorder(tmp_path / "t", rating_levels=[1, 2]) as recorder:
        recorder.edge("b", "a")
        for round_ in (0, 1):
            recorder.broadcast(round_, np.ones((3, 2)))
            recorder.upload(round_, "b", np.ones((2, 2)), [0, 2], to=recorder.NEIGHBOURS)
        with pytest.raises(InputError, match="item-implicits whose factors were broadcast before"):
            recorder.upload(1, "b", np.ones((1, 2)), [2], kind="item-implicit", to=recorder.NEIGHBOURS)
        recorder.broadcast(1, 3 * np.ones((4, 2)), kind="item-implicit")
        recorder.upload(1, "b", [[5.0, 6.0]], [2], kind="item-implicit", to=recorder.NEIGHBOURS)
        recorder.upload(1, "b", [[7.0, 8.0]], [2], kind="item-implicit", to=recorder.NEIGHBOURS)
    transcript = open_transcript(tmp_path / "t")
    view = transcript.view("neighbour:a")
    assert (transcript.manifest.n_items, transcript.other) == (4, {"item-implicit-again": 1})
    assert view.copies.index.tolist() == [0, 2, 0, 2]
    assert view.implicit.copies.index.tolist() == [2]
    assert view.implicit.copies.gradient.tolist() == [[5.0, 6.0]]
    assert view.implicit.broadcasts[1].factors.tolist() == [[3.0, 3.0]] * 4


@pytest.mark.parametrize(
    ("file", "column", "value", "message"),
    [
        ("messages", "index", 99, "must be below"),
        ("messages", "round", 7, "round must be one of the manifest's rounds"),
        ("state", "holder", 77, "holder must be"),
    ],
)
def test_damaged_ones_are_refused(tmp_path, file, column, value, message):
    recorded(tmp_path / "t")
    path = tmp_path / "t" / f"{file}.arrow"
    table = read_table(path)
    kinds, numbers = table["kind"].to_pylist(), table[column].to_pylist()
    numbers[kinds.index("item-implicit")] = value
    write_table(path, with_column(table, column, pa.array(numbers, pa.int32())))
    with pytest.raises(InputError, match=message):
        open_transcript(tmp_path / "t")


def test_a_reader_that_knows_no_second_table_counts_them(tmp_path):
    """The key left out, as an older reader sees it: rows of role other."""
    _, transcript = recorded(tmp_path / "t")
    file = tmp_path / "t" / "manifest.json"
    manifest = json.loads(file.read_text())
    for kind in manifest["kinds"].values():
        kind.pop("implicit", None)
    file.write_text(json.dumps(manifest))
    older = open_transcript(tmp_path / "t")
    assert older.implicit is None
    assert older.other["item-implicit"] > transcript.implicit.messages.n_rows  # and those of the state
    np.testing.assert_array_equal(older.messages.index[0], transcript.messages.index[0])


def test_a_kind_of_them_says_no_more():
    for more in ({"role": "gradient"}, {"role": "other", "width": 2}, {"role": "other", "of": "attribute"}):
        with pytest.raises(ValueError, match="rows of implicit feedback must be of: item and role: other"):
            Kind(**{"of": "item", **more, "implicit": "gradient"})
