"""Neighbours are not answered wrongly where their rule is declared wrongly; the soak tries all keys."""

from __future__ import annotations

import pytest

from tests.tools.peer_declarations import BATCH, tried

FEW = (("reduction", "mean"), ("upload", "delta"), ("upload_scale", 2.0), ("rule", None))


@pytest.mark.parametrize(
    ("victim", "attack"),
    [("pdmfrec, no senders", "peers-named"), ("dmf", "peers"), ("dpmf-yang", "cofactors")],
)
def test_few_keys(victim, attack, tmp_path):
    told = list(tried(victim, BATCH, FEW, (attack,), tmp_path))
    assert len(told) == len(FEW)
    assert [one for one in told if one.wrong] == []
    assert any(one.answered for one in told)
