"""Views, and recordings that only version 2 can hold."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from audit.experiments.answers import answered
from tests.contract.version_2 import read_table, recordings, with_column, write_table
from victims.common.errors import InputError
from victims.transcript.manifest import Manifest, Manifest2, file_of
from victims.transcript.reader import open_transcript, read_manifest


@pytest.fixture
def kinds(tmp_path):
    """Sums, an item server, and rows of a kind that no attack reads."""
    recordings()["kinds"](tmp_path / "t")
    return tmp_path / "t"


@pytest.mark.parametrize("name", ["state", "messages", "deliveries"])
def test_a_file_without_batches(tmp_path, name):
    recordings()["graph"](tmp_path / "t")
    schema = read_table(tmp_path / "t" / f"{name}.arrow").schema
    with pa.ipc.new_file(tmp_path / "t" / f"{name}.arrow", schema):
        pass
    if name == "deliveries":
        assert open_transcript(tmp_path / "t").view("client:1").messages.n_rows == 6  # its own
        return
    with pytest.raises(
        InputError, match="has no state in round 0" if name == "state" else "at least one row"
    ):
        open_transcript(tmp_path / "t")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_other_kinds_are_counted_and_left_out(kinds, kind):
    file = kinds / "messages.arrow"
    table = read_table(file)
    column = table["kind"].cast(pa.string()).combine_chunks().cast(kind)
    write_table(file, with_column(table, "kind", column))
    transcript = open_transcript(kinds)
    assert transcript.other == {"counts": 2}
    assert transcript.messages.n_rows == 28
    assert [column.size for column in (transcript.sums.index, transcript.item_server.index)] == [2, 2]


@pytest.mark.parametrize("place", [0, -1])
def test_a_kind_that_is_null(kinds, place):
    file = kinds / "messages.arrow"
    table = read_table(file)
    words = table["kind"].cast(pa.string()).to_pylist()
    words[place] = None
    write_table(file, with_column(table, "kind", pa.array(words).dictionary_encode()))
    with pytest.raises(InputError, match="kind must not be null"):
        open_transcript(kinds)


def test_sums_about_what_a_party_has_no_factor_of(kinds):
    """Client 3 alone knows item 0, which a sum is about: the server sees the other sum, client 3 both."""
    file = kinds / "state.arrow"
    table = read_table(file)
    assert "holder" in table.column_names
    holder = [3 if index == 0 else None for index in table["index"].to_pylist()]
    write_table(file, with_column(table, "holder", pa.array(holder, pa.int32())))
    messages = read_table(kinds / "messages.arrow")
    receiver = messages["receiver"].to_pylist()
    receiver[-4:-2] = [3, 3]
    seen = {}
    for party, to in (("server", messages["receiver"]), ("client:3", pa.array(receiver, pa.int32()))):
        write_table(kinds / "messages.arrow", with_column(messages, "receiver", to))
        view = open_transcript(kinds).view(party)
        seen[party] = view.sums[0].index.tolist()
        answered("aggregate", None, view, 0)
    assert seen == {"server": [1], "client:3": [0, 1]}


def test_references_beside_factors_that_are_encrypted(tmp_path):
    recordings()["references"](tmp_path / "t")
    file = tmp_path / "t" / "state.arrow"
    table = read_table(file)
    table = with_column(table, "factor", pa.nulls(len(table), table.schema.field("factor").type))
    sealed = pa.array([b"x"] * len(table), pa.large_binary())
    write_table(file, table.append_column("ciphertext", sealed))
    view = open_transcript(tmp_path / "t").view("server")
    assert not view.broadcasts
    assert view.messages.reference is not None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"constants": {"alpha": 1e300}}, "alpha of constants must be 0 or of a magnitude in .*, got 1e.300"),
        ({"constants": {"alpha": 10**400}}, "alpha of constants must be .*, got 1000"),
        ({"constants": {"upload_scale": 0}}, "upload_scale of constants must not be 0"),
        ({"constants": {"alpha": "3"}}, "alpha of constants must be a number, got 3; leave it out"),
        ({"constants": {"client_learning_rate": [1]}}, r"client_learning_rate of .* a number, got \[1\]"),
        ({"constants": {"lambda_factors": True}}, "lambda_factors of constants must be a number, got True"),
        ({"constants": {"upload_scale": "2"}}, "upload_scale of constants must be a number, got 2"),
        ({"rule": {"clip": [0, 1e308]}}, "clip must be numbers of 0 or of a magnitude in .*"),
        ({"rating_levels": [1, 1e308]}, r"rating_levels must be within .*, got 1 to 1e.308$"),
        ({"rounds": [3, 3]}, "rounds must not repeat, got 3"),
        ({"kinds": {"x": 5}}, "kinds.x must be an object with keys, got 5"),
    ],
)
def test_a_wrong_manifest_is_told_in_the_keys_of_the_file(tmp_path, changed, says):
    """Before: of "hyperparameters" and "upload", which version 2 has not, or with the whole file as value."""
    recordings()["references"](tmp_path / "t")
    file = tmp_path / "t" / "manifest.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | changed))
    with pytest.raises(InputError, match=says):
        read_manifest(tmp_path / "t")
    file.write_text("[1]")
    with pytest.raises(InputError, match="must hold a JSON object"):
        read_manifest(tmp_path / "t")


def test_a_party_with_a_second_name_is_written_once():
    """Adversaries are known by their roles; what is written must be readable."""
    content = {
        "format": "factorleak-transcript",
        "version": 2,
        "weighting": "observed-only",
        "n_users": 1,
        "n_items": 1,
        "factors": 1,
        "rounds": [0],
        "rating_levels": [1],
        "parties": {"server": -1, "second server": {"id": -5, "role": "item_server"}},
    }
    manifest = Manifest2.model_validate(content).as_manifest()
    assert manifest.parties["item_server"] == manifest.parties["second server"] == -5
    written = json.loads(json.dumps(file_of(manifest)))
    assert set(written["parties"]) == {"server", "second server"}
    again = Manifest2.model_validate(written).as_manifest()
    assert isinstance(again, Manifest)
    assert again.parties == manifest.parties


def test_a_length_comes_from_rounds_in_which_the_client_sent_rows(tmp_path):
    """A client with one attribute in one round alone: it is abstained on, with a reason."""
    recordings()["attributes"](tmp_path / "t")
    file = tmp_path / "t" / "messages.arrow"
    table = read_table(file)
    sender, round_, kind = (np.array(table[name].to_pylist()) for name in ("sender", "round", "kind"))
    keep = (sender != 0) | ((round_ == 0) & (kind == "attribute"))
    write_table(file, table.filter(pa.array(keep)))
    found = answered("grid", None, open_transcript(tmp_path / "t").view("server"), 0)
    assert 0 in found.abstained


def test_a_view_of_some_rounds(transcripts):
    view = transcripts["sgd", "include-unrated"].view("server")
    part = view.during(view.rounds[:1])
    assert part.rounds.tolist() == part.manifest.rounds == view.rounds[:1].tolist()
    assert np.array_equal(part.users, view.users)
    with pytest.raises(InputError, match="round 77 is not in the view"):
        view.during([77])
