"""Reconstruction files: what an attack says comes back; older files and those of other software are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from attacks.interface import OPTIONAL, Estimates, Reconstruction
from audit.reconstructions import read_reconstruction, write_reconstruction
from tests.test_metrics import manifest
from victims.errors import InputError
from victims.writing import kind_array, write_columns

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


def rows_of(found: Reconstruction) -> dict[str, np.ndarray]:
    parts = list(found.columns())
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((columns["index"], columns["user"]))
    return {name: column[order] for name, column in columns.items()}


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


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("rated_probability", [0.5, 1.5], "row 1: rated_probability must be in 0..1 or null, got 1.5"),
        ("rating_if_rated", [np.inf, 1.0], "row 0: rating_if_rated must be finite or null, got inf"),
        ("median_if_rated", ["a", "b"], "median_if_rated must hold numbers or null"),
    ],
)
def test_a_bad_column_is_refused(tmp_path, name, values, words):
    path = tmp_path / "bad.arrow"
    write_columns(path, iter([two_rows() | {name: pa.array(values)}]), {})
    with pytest.raises(InputError, match=words):
        read_reconstruction(path)
