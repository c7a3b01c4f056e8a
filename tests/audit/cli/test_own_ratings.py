"""Ratings of one's own on the command line: attributes and features of their users and items, splits."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def folder(tmp_path):
    """Reviews with users, items and times, and tables beside them."""
    rng = np.random.default_rng(0)
    pairs = [(user, item) for user in range(24) for item in rng.choice(30, 10, replace=False)]
    frame = pd.DataFrame(pairs, columns=["uid", "sku"])
    frame["stars"] = rng.integers(1, 6, len(frame))
    frame["day"] = rng.permutation(len(frame)) + 1_500_000_000
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    people = pd.DataFrame(
        {"uid": range(24), "sex": rng.choice(["f", "m"], 24), "town": rng.choice(["a", "b", "c"], 24)}
    )
    people.to_csv(tmp_path / "users.csv", index=False)
    things = pd.DataFrame(
        {"sku": range(30), "kind": rng.choice(["x|y", "y", "z"], 30), "price": rng.random(30)}
    )
    things.to_csv(tmp_path / "items.csv", index=False)
    return tmp_path


NAMED = "user=uid,item=sku,rating=stars,time=day"


def test_fedmvmf_with_attributes_and_features_of_one_s_own(run, folder):
    data = f"{folder / 'reviews.csv'}:{NAMED},attributes=users.csv,features=items.csv"
    out = folder / "results"
    words = ("--attack", "spectral", "--update", "semi-als", "--weighting", "observed-only", "--out", out)
    code, said, noted = run("audit", "--data", data, *words)
    assert code == 0, noted
    assert "loses" not in said  # all 24 users and 30 items are described
    rows = {
        row["metric"]: row
        for row in json.loads((out / "results.json").read_text())
        if row["attack"] == "spectral"
    }
    assert rows["attribute_group_accuracy"]["value"] == 1
    assert rows["rated_rating_accuracy"]["value"] == 1
    assert rows["attribute_group_accuracy"]["baseline"] < 0.8
    assert {"attribute_group_accuracy/0", "attribute_group_accuracy/1"} <= set(rows)


@pytest.mark.parametrize("split", ["random", "time", "last:2"])
def test_splits(run, folder, split):
    data = f"{folder / 'reviews.csv'}:{NAMED}"
    words = ("--victim", "mf", "--set", "factors=2", "--rounds", "1", "--split", split, "--json")
    code, said, error = run("papers", "train", "--data", data, *words)
    assert code == 0, error
    assert json.loads(said)["rows"][0]["rmse"] > 0


@pytest.mark.thorough
def test_splits_of_predict_and_quality(run, folder, tmp_path):
    split = "time"
    data = f"{folder / 'reviews.csv'}:{NAMED}"
    words = (
        "--method",
        "mf",
        "--factors",
        2,
        "--epochs",
        1,
        "--runs",
        1,
        "--jobs",
        1,
        "--out",
        tmp_path / "P",
    )
    code, said, error = run("papers", "predict", "--data", data, *words, "--split", split, "--json")
    assert code == 0, error
    words = (
        "--rounds",
        1,
        "--runs",
        1,
        "--jobs",
        1,
        "--scenario",
        "existing",
        "--defense",
        "none",
        "--out",
        tmp_path / "Q",
    )
    code, said, error = run("papers", "quality", "--data", data, *words, "--split", split, "--json")
    assert code == 0, error
    assert json.loads(said)["rows"]


def test_a_wrong_option_is_one_line(run, folder):
    code, said, error = run("audit", "--data", f"{folder / 'reviews.csv'}:users=uid")
    assert (code, said) == (2, "")
    assert "did you mean 'user'" in error
