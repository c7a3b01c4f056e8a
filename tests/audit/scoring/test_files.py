"""Reconstruction files: what an attack says comes back; older files and those of other software are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from attacks.base import OPTIONAL, Estimates, Identities, Outcome, Reconstruction, Scope, all_abstain
from audit.scoring.files import KEY, read_reconstruction, write_reconstruction
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from tests.audit.scoring.test_metrics import manifest
from victims.common.errors import InputError
from victims.transcript.beside import write_columns
from victims.transcript.given_columns import kind_array
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

NAN = np.nan


def estimates(users: np.ndarray, **optional: np.ndarray) -> Estimates:
    kind, index = np.zeros((1, 3), np.int8), np.array([[0, 2, 5]])
    value = np.where(users[:, None] == 4, [[NAN, 3.0, 0.0]], [[4.0, 0.0, 0.0]])
    return Estimates(users.astype(np.int32), kind, index, value, **optional)


def saved(tmp_path, *blocks: Estimates) -> Reconstruction:
    users = np.sort(np.concatenate([block.users for block in blocks]))
    found = Reconstruction("test", users, blocks)
    path = tmp_path / "found.arrow"
    write_reconstruction(path, found, manifest("include-unrated", 9, 6), adversary="server", seconds=1.0)
    return read_reconstruction(path).reconstruction


def two_rows() -> dict[str, pa.Array]:
    """What every file has."""
    zero = np.zeros(2, np.int32)
    index = pa.array(np.array([0, 3], np.int32))
    return {"user": pa.array(zero), "kind": kind_array(zero), "index": index, "value": pa.array([3.0, 0.0])}


def about(n_items: int = 9, n_attributes: int = 0, **changes: object) -> dict[str, object]:
    """A header in the form of JSON."""
    shape = manifest("include-unrated", 5, n_items, groups=()).model_dump() | {"n_attributes": n_attributes}
    shape |= changes.pop("manifest", {})
    return {"attack": "other", "users": [0], "manifest": shape, **changes}


def written(path: Path, header: object = None, **columns: object) -> Path:
    """A file of two rows about client 0 with some columns changed."""
    metadata = {} if header is None else {KEY: header if isinstance(header, bytes) else dumps(header)}
    write_columns(path, iter([two_rows() | columns]), metadata)
    return path


def dumps(content: object) -> bytes:
    return json.dumps(content).encode()


def rows_of(found: Reconstruction) -> dict[str, np.ndarray]:
    parts = list(found.columns())
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((columns["index"], columns["user"]))
    return {name: column[order] for name, column in columns.items()}


def test_the_manifest_of_either_version_comes_back(tmp_path):
    """What version 2 alone tells, too: rule, kinds, constants that are unknown."""
    with Recorder(tmp_path / "run", rating_levels=[1, 2], rule={"local_steps": 3}) as recorder:
        recorder.broadcast(0, np.ones((6, 2)))
        recorder.upload(0, "anna", np.ones((1, 2)), [5])
    second = open_transcript(tmp_path / "run").manifest
    for here in (manifest("include-unrated", 9, 6), second):
        found = Reconstruction("test", np.array([0], np.int32), (estimates(np.array([0])),))
        write_reconstruction(tmp_path / "found.arrow", found, here, adversary="server", seconds=1.0)
        assert read_reconstruction(tmp_path / "found.arrow").origin.manifest == here
    assert second.rule.local_steps == 3


def test_a_damaged_manifest_of_version_2_is_told_in_one_line(tmp_path):
    header = about(manifest={"version": 2, "kinds": 7})
    with pytest.raises(InputError, match=r"its header is damaged \(manifest: kinds must be [^\n]*\); run"):
        read_reconstruction(written(tmp_path / "found.arrow", header))


def test_optional_columns_come_back(tmp_path):
    """Of two attacks' blocks one has answers if rated, with gaps, and the other has none."""
    full = estimates(
        np.array([1, 4]),
        probability=np.array([[0.5, 0.6, NAN], [NAN, 0.7, 0.8]]),
        rated_probability=np.array([[0.9, 0.1, 0.2], [NAN, 0.3, NAN]]),
        rating_if_rated=np.array([[4.0, 3.0, 2.0], [NAN, 3.3, 1.0]]),
    )
    bare = estimates(np.array([7]))
    found = rows_of(saved(tmp_path, full, bare))
    expected = rows_of(Reconstruction("test", np.array([1, 4, 7]), (full, bare)))
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)
    assert np.isnan(found["median_if_rated"]).all()


def test_a_file_without_them(tmp_path):
    """As ``attack`` wrote files before, and as other software may: only what has a column is answered."""
    (block,) = saved(tmp_path, estimates(np.array([1])), estimates(np.array([4]))).blocks
    assert [getattr(block, name) for name in OPTIONAL] == [None] * 4
    path = tmp_path / "other.arrow"
    write_columns(path, iter([two_rows()]), {})
    found = read_reconstruction(path)
    assert found.origin is None
    assert rows_of(found.reconstruction)["value"].tolist() == [3.0, 0.0]


def saved_fields(tmp_path, found: Reconstruction) -> Reconstruction:
    write_reconstruction(
        tmp_path / "r.arrow", found, manifest("include-unrated", 9, 6), adversary="a", seconds=1.0
    )
    return read_reconstruction(tmp_path / "r.arrow").reconstruction


def test_outcome_scope_and_identities_come_back(tmp_path):
    users = np.array([1, 4])
    nothing = all_abstain(
        "test", users, "why", {}, outcome=Outcome.NOTHING_FOUND, identities=Identities.PSEUDONYMS
    )
    found = saved_fields(tmp_path, nothing)
    assert (found.outcome, found.obstacle) == (Outcome.NOTHING_FOUND, "")
    assert (found.scope, found.identities) == (Scope.RATINGS_AND_ATTRIBUTES, Identities.PSEUDONYMS)
    found = saved_fields(tmp_path, all_abstain("test", users, "why", {}, scope=Scope.RATED_SET))
    assert (found.outcome, found.obstacle, found.scope) == (Outcome.NOT_APPLICABLE, "why", Scope.RATED_SET)
    taken_over = Reconstruction("test", users, (estimates(users),), answered_by="grid")
    assert saved_fields(tmp_path, taken_over).answered_by == "grid"


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ({"found_nothing": True}, "outcome", Outcome.NOTHING_FOUND),
        ({"pseudonyms": True}, "identities", Identities.PSEUDONYMS),
        ({"reads": "rated set"}, "scope", Scope.RATED_SET),
    ],
)
def test_older_files_said_it_among_the_options(tmp_path, option, field, value):
    header = about(options={"seed": 3, **option})
    found = read_reconstruction(written(tmp_path / "r.arrow", header)).reconstruction
    assert getattr(found, field) == value
    assert found.options == {"seed": 3}
    plain = read_reconstruction(written(tmp_path / "p.arrow", about(options={"seed": 3}))).reconstruction
    assert getattr(plain, field) != value


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (about(outcome="perhaps"), "outcome"),
        (about(outcome="not applicable"), "must abstain on all 1 clients, got 0"),
        (about(obstacle="x"), "obstacle of a reconstruction must be empty"),
        (about(options=3), "options"),
    ],
)
def test_a_contradictory_header_is_refused(tmp_path, header, words):
    with pytest.raises(InputError, match=f"header is damaged.*{words}"):
        read_reconstruction(written(tmp_path / "r.arrow", header))


def nested(depth: int) -> bytes:
    """A header with an option of that depth; Python's own writer would give up."""
    return dumps(about(options={"deep": 0})).replace(b'"deep": 0', b'"deep": ' + b"[" * depth + b"]" * depth)


STRUCT = pa.array([{"a": 1.0}, {"a": 2.0}])


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["0.5", "1"]),
        pa.array([[0.5], [1.0]]),
        STRUCT,
        pa.array([True, False]),
        pa.array([b"0", b"1"]),
        pa.array([1, 2], pa.timestamp("s")),
        pa.array(["1", "1"]).dictionary_encode(),
    ],
    ids=lambda values: str(values.type),
)
def test_columns_of_other_types_are_refused(tmp_path, name, values):
    with pytest.raises(InputError, match=f"{name} must hold numbers or null, got"):
        read_reconstruction(written(tmp_path / "r.arrow", **{name: values}))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (about(users=[10**30]), "users"),
        (about(users=[-1, 0]), "users must be clients below 5, got -1"),
        (about(users=[0, 5]), "users must be clients below 5, got 5"),
        (about(users=[0, 0]), "users must name each client once"),
        (about(users=[]), "client"),
        (about(users=list(range(100_000))), "users must be clients below 5"),
        (about(abstained={"3": "x"}), "abstained must name clients among users, got 3"),
        (about(abstained={str(10**30): "x"}), "abstained"),
        (about(abstained={"x": "y"}), "abstained"),
        (about(n_items=3), r"row 1: index of kind item must be below 3 \(its header\), got 3"),
        (about(n_items=2**31 - 1), "n_items must be at most"),
        (about(manifest={"n_attributes": 2**31 - 1}), "n_attributes must be at most"),
        (about(manifest={"n_users": 2**31 - 1}), "n_users must be at most"),
        (about(manifest={"factors": 10**30}), "factors"),
        (about(manifest={"rounds": [10**30]}), "rounds"),
        (about(manifest={"rating_levels": [1e300]}), "rating_levels"),
        (nested(900), "header is damaged"),
        (nested(100), "options must be nested at most 32 deep"),
        (nested(100_000), "header is damaged"),
        (b"\xff\xfe", "header is damaged"),
        (b"[]", "header is damaged"),
    ],
)
def test_a_bad_header_is_refused(tmp_path, header, words):
    with pytest.raises(InputError, match=words):
        read_reconstruction(written(tmp_path / "r.arrow", header))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"value": pa.array([np.nan, 1.0])}, "value must be finite"),
        ({"value": pa.array([1.0, np.inf])}, "value must be finite"),
        ({"value": pa.array([1.0, 1e300])}, r"value must be at most 1e\+30"),
        ({"value": STRUCT}, "value must be float64"),
        ({"user": pa.array([0, 2**31 - 1])}, "user must be >= 0"),
        ({"user": pa.array([0.0, 1.0])}, "user must be int32"),
        ({"user": pa.array([0, 4], pa.int32())}, "client 4 is not in its header"),
        ({"kind": pa.array(["item", "item-sum"])}, "kind must be one of item, attribute"),
        ({"kind": pa.array([0, 0])}, "kind must be dictionary"),
        ({"kind": pa.array(["item", "attribute"])}, "index of kind attribute must be below 2"),
        ({"index": pa.array([0, 0], pa.int32())}, "must occur once"),
    ],
)
def test_bad_rows_are_refused(tmp_path, columns, words):
    with pytest.raises(InputError, match=words):
        read_reconstruction(written(tmp_path / "r.arrow", about(n_attributes=2), **columns))


def test_escapes_in_reasons_are_shown(tmp_path):
    text, shown = "all is well\n\x1b[2Jverdict: LEAK", "all is well\\n\\x1b[2Jverdict: LEAK"
    header = about(n_attributes=2, outcome="not applicable", obstacle=text, abstained={"0": text})
    found = read_reconstruction(written(tmp_path / "r.arrow", header)).reconstruction
    assert (found.obstacle, found.abstained[0]) == (shown, shown)


def truth_file(path: Path, user: list[int], kind: list[int], index: list[int], value: list[float]) -> Path:
    columns = {"user": pa.array(user, pa.int32()), "kind": kind_array(np.array(kind, np.int8))}
    columns |= {"index": pa.array(index, pa.int32()), "value": pa.array(value)}
    write_columns(path, iter([columns]), {})
    return path


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (([0], [0], [2**31 - 2], [3.0]), "item index must be below n_items = 9"),
        (([0, 2**31 - 2], [0, 0], [1, 1], [3.0, 3.0]), "user must be below n_users = 5"),
        (([0, 0], [0, 1], [1, 7], [3.0, 1.0]), "attribute index must be below n_attributes = 2"),
        (([1], [0], [1], [3.0]), r"that upload \(0\); it is about 1;"),
    ],
)
def test_a_truth_beyond_the_manifest_is_refused(tmp_path, rows, words):
    """Before any table is as wide as the file claims."""
    truth = read_truth(truth_file(tmp_path / "x.truth.arrow", *rows))
    stored = read_reconstruction(written(tmp_path / "r.arrow", about(n_attributes=2)))
    assert stored.origin is not None
    with pytest.raises(InputError, match=words):
        score(stored.reconstruction, stored.origin.manifest, truth)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (([0, 1], [1, 1], [2**31 - 2, 0], [1.0, 1.0]), "attributes must be plausible beside the rows"),
        (([0], [0], [1], [1e300]), "value must be"),
        (([0], [0], [1], [1e20]), r"value must be a rating within 1e-06\.\.1e\+06"),
        (([0], [0], [1], [5e-324]), "value must be a rating within"),
        (([0], [0], [1], [np.nan]), "value must be finite"),
        (([0], [1], [1], [2.0]), r"value must be in 0\.\.1"),
        (([0, 0], [0, 0], [1, 1], [2.0, 2.0]), "must occur once"),
    ],
)
def test_a_bad_truth_is_refused(tmp_path, rows, words):
    with pytest.raises(InputError, match=words):
        read_truth(truth_file(tmp_path / "x.truth.arrow", *rows))


def test_a_truth_may_have_attributes_that_the_protocol_ignores(tmp_path):
    truth = read_truth(truth_file(tmp_path / "x.truth.arrow", [0, 0], [0, 1], [0, 3], [3.0, 1.0]))
    stored = read_reconstruction(written(tmp_path / "r.arrow", about()))
    assert stored.origin is not None
    rows = score(stored.reconstruction, stored.origin.manifest, truth)
    assert {row.metric for row in rows} >= {"rating_accuracy"}


def test_answers_beyond_another_manifest_are_refused(tmp_path):
    """A file of other software says nothing of its own sizes."""
    truth = read_truth(truth_file(tmp_path / "x.truth.arrow", [0], [0], [0], [3.0]))
    stored = read_reconstruction(written(tmp_path / "r.arrow"))
    with pytest.raises(InputError, match=r"index of kind item must be below 2 \(manifest\), got 3"):
        score(stored.reconstruction, manifest("include-unrated", 5, 2), truth)


SCORED_IN = """
import sys
from pathlib import Path
from audit.scoring.files import read_reconstruction
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from victims.common.limits import peak_memory
stored = read_reconstruction(Path(sys.argv[1]))
score(stored.reconstruction, stored.origin.manifest, read_truth(Path(sys.argv[2])))
print(peak_memory() // 2**20)
"""


@pytest.mark.thorough
def test_a_large_catalogue_takes_little_memory(tmp_path):
    """16 million items, of which a small file names the last: below a gigabyte in a process of its own."""
    truth = truth_file(tmp_path / "x.truth.arrow", [0, 0], [0, 0], [1, 15_999_999], [3.0, 4.0])
    path = written(tmp_path / "r.arrow", about(n_items=16_000_000))
    words = [sys.executable, "-c", SCORED_IN, str(path), str(truth)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1000
