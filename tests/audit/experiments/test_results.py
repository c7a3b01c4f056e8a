"""The result table on disk."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from audit.experiments.results import make_row, write_results


def test_spreadsheets_evaluate_nothing(tmp_path):
    rows = [
        make_row(victim=text, reason="ok", value=-1.5) for text in ("=1+1", "+1", "-1", "@x", "\t=1", "a=b")
    ]
    write_results(rows, tmp_path)
    shown = pd.read_csv(tmp_path / "results.csv")
    assert list(shown["victim"]) == ["'=1+1", "'+1", "'-1", "'@x", "'\t=1", "a=b"]
    assert list(shown["value"]) == [-1.5] * 6
    assert json.loads((tmp_path / "results.json").read_text())[0]["victim"] == "=1+1"


def test_a_column_that_does_not_exist_is_refused():
    with pytest.raises(KeyError, match="no such result columns"):
        make_row(speed=1.0)
