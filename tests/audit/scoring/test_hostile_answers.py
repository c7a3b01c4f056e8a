"""Answers and truth files with numbers and types that nobody would expect."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from attacks.base import all_abstain
from audit.scoring.reconstruction_files import read_reconstruction, write_reconstruction
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from tests.oracles.simulator import Reference
from victims.common.errors import InputError
from victims.transcript.reader import open_transcript


@pytest.fixture
def answer(tmp_path):
    """A transcript, its truth and an answer about it, as files."""
    path = Reference().write(tmp_path / "t")
    view = open_transcript(path).view("server")
    found = all_abstain("none", view.users, "because", {})
    write_reconstruction(tmp_path / "r.arrow", found, view.manifest, adversary="server", seconds=0.0)
    return tmp_path


def rewritten(path, columns=None, **header):
    """Change columns, or entries of the header, of an Arrow file."""
    with pa.memory_map(str(path)) as source:
        found = pa.ipc.open_file(source).read_all()
    schema = dict(found.schema.metadata or {})
    if header:
        key = b"factorleak-reconstruction"
        content = json.loads(schema[key])
        for name, value in header.items():
            (content["manifest"] if name in content["manifest"] else content)[name] = value
        schema[key] = json.dumps(content).encode()
    if columns is not None:
        found = pa.table(columns)
    found = found.replace_schema_metadata(schema)
    with pa.ipc.new_file(path, found.schema) as writer:
        writer.write_table(found)


def rows(probability, index=0, kind="item", value=3.0):
    """One row of an answer."""
    return {
        "user": pa.array([0], pa.int32()),
        "kind": pa.array([kind]).dictionary_encode(),
        "index": pa.array([index], pa.int32()),
        "value": pa.array([value]),
        "probability": probability,
    }


class TestAnswers:
    """Before: 16 to 368 GB of memory, or a traceback."""

    @pytest.mark.parametrize(
        ("header", "rule"),
        [
            ({"n_items": 2**31 - 1}, "n_items must be at most"),
            ({"n_attributes": 2**31 - 1}, "n_attributes must be at most"),
            ({"n_users": 2**31 - 1}, "n_users must be at most"),
            ({"users": [10**30]}, "header is damaged"),
            ({"users": []}, "header is damaged"),
            ({"users": [-1]}, "header is damaged"),
            ({"abstained": {"7": "x", "4000": "y"}}, "abstained must name clients among users, got 4000"),
            ({"rating_levels": [1e300]}, "header is damaged"),
        ],
    )
    def test_header(self, answer, header, rule):
        rewritten(answer / "r.arrow", **header)
        with pytest.raises(InputError, match=rule):
            read_reconstruction(answer / "r.arrow")

    @pytest.mark.parametrize(
        ("columns", "rule"),
        [
            (rows(pa.array(["0.5"])), "probability must hold numbers"),
            (rows(pa.array([[0.5]])), "probability must hold numbers"),
            (rows(pa.array([{"p": 0.5}])), "probability must hold numbers"),
            (rows(pa.array([True])), "probability must hold numbers"),
            (rows(pa.array([1.5])), "in 0..1"),
            (rows(pa.array([0.5]), index=30), "index of kind item must be below 30"),
            (rows(pa.array([0.5]), index=5, kind="attribute"), "index of kind attribute must be below 5"),
            (rows(pa.array([0.5]), value=1e300), "at most 1e"),
            (rows(pa.array([0.5]), value=np.nan), "finite"),
        ],
    )
    def test_columns(self, answer, columns, rule):
        rewritten(answer / "r.arrow", columns)
        with pytest.raises(InputError, match=rule):
            read_reconstruction(answer / "r.arrow")

    def test_escapes_in_reasons_are_shown(self, answer):
        text, shown = "all is well\n\x1b[2Jverdict: LEAK", "all is well\\n\\x1b[2Jverdict: LEAK"
        rewritten(answer / "r.arrow", obstacle=text)
        assert read_reconstruction(answer / "r.arrow").reconstruction.obstacle == shown
        rewritten(answer / "r.arrow", abstained={"0": text}, outcome="answered", obstacle="")
        assert read_reconstruction(answer / "r.arrow").reconstruction.abstained[0] == shown


class TestTruth:
    @pytest.mark.parametrize(
        ("kind", "index", "user", "rule"),
        [
            ("item", 2**31 - 2, 0, "item index must be below n_items = 30"),  # before: 16 GB
            ("attribute", 2**31 - 2, 0, "plausible beside the rows"),
            ("item", 30, 0, "item index must be below n_items = 30"),
            ("attribute", 5, 0, "attribute index must be below n_attributes = 5"),
            ("item", 3, 12, "user must be below n_users = 12"),
        ],
    )
    def test_beyond_the_recording(self, answer, kind, index, user, rule):
        columns = rows(None, index, kind, 1.0)
        del columns["probability"]
        columns["user"] = pa.array([user], pa.int32())
        rewritten(answer / "t.truth.arrow", columns)
        stored = read_reconstruction(answer / "r.arrow")
        with pytest.raises(InputError, match=rule):
            score(stored.reconstruction, stored.origin.manifest, read_truth(answer / "t.truth.arrow"))
