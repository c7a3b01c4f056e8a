"""Other names of components: they work everywhere, and results keep one name for both."""

from __future__ import annotations

import json

import pytest

from audit.factories import expanded, make_victim
from audit.registry import ALIASES, BUILT_IN, COMBINED, adopt, entries, entry
from factorleak import list_components
from victims.common.errors import InputError
from victims.protocols.decentralised_mf import DecentralisedMF

DATA = "synthetic:users=12,items=20,ratings_per_user=6"


def test_an_alias_is_the_same_component():
    for group, aliases in ALIASES.items():
        for alias, name in aliases.items():
            assert alias not in entries(group)
            assert name in BUILT_IN[group] or name in COMBINED
    assert entry("victims", "mf") is entry("victims", "decentralised-mf")
    assert make_victim("mf") == make_victim("decentralised-mf") == DecentralisedMF()
    assert expanded("dpmf:noise=once") == expanded("dpmf-hua:noise=once")
    assert list_components("victims", "mf").equals(list_components("victims", "decentralised-mf"))
    with pytest.raises(InputError, match="objective-noise together"):
        list_components("defenses", "dpmf")


def test_results_keep_one_name(run, tmp_path):
    rows = []
    for name in ("mf", "decentralised-mf"):
        words = ["audit", "--data", DATA, "--victim", name, "--set", "factors=2", "--rounds", "0"]
        code, _, error = run(*words, "--attack", "guess-majority", "--out", tmp_path / name)
        assert code == 0, error
        rows.append(json.loads((tmp_path / name / "results.json").read_text()))
        for row in rows[-1]:
            row.pop("seconds")
    assert rows[0] == rows[1]
    assert {row["victim"] for row in rows[0]} == {"mf"}


def test_nobody_takes_an_alias():
    class Mine(DecentralisedMF):
        name = "mf"

    with pytest.raises(InputError, match="has the name of another one"):
        adopt("victims", Mine())
