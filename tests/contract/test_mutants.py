"""Damaged recordings of version 2 are refused, or every attack answers or abstains; nothing raises or hangs.

The suite runs a sample that does not change; ``python -m tests.tools.mutants`` runs as many as are asked for.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.contract.damages import DAMAGES
from tests.contract.extremes import Outcome, outcome, seen_in
from tests.contract.mutants import limited, make, mutants
from tests.contract.test_extremes import COMPILED
from tests.contract.version_2 import recordings
from victims.transcript.reader import open_transcript

EACH = 4  # mutants of each recording and damage that are opened
OPENED = 2  # mutants that open and are given to the attacks that compile; the tool has all attacks
STRIDE = 131  # names are gone through in this: a prime, so that all damages come


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mutants")


@pytest.mark.parametrize("damage", DAMAGES)
def test_refused_or_opened(folder, damage):
    counts = Counter[str]()
    for name in mutants(EACH):
        if f": {damage} " in name:
            with limited():
                seen = seen_in(make(name, folder))
            counts[seen.what if isinstance(seen, Outcome) else "opened"] += 1
            if isinstance(seen, Outcome):
                assert seen.what == "refused", (name, seen.words)
                assert len(seen.words) <= 300
                assert "\n" not in seen.words
    assert counts.total() == EACH * len(recordings())
    assert counts["refused"] > 0


def test_what_opens_is_answered_or_abstained_on(folder):
    opened = 0
    for name in (list(mutants(EACH)) * STRIDE)[::STRIDE]:  # every one once, however many are refused
        seen = seen_in(make(name, folder))
        if isinstance(seen, Outcome):
            continue
        for attack in COMPILED:
            with limited():
                found = outcome(attack, seen["server"], None, folder)
            assert found.what in ("answered", "abstained"), (name, attack, found.words)
        opened += 1
        if opened == OPENED:
            break
    assert opened == OPENED


@pytest.mark.parametrize("recording", recordings())
def test_what_is_damaged_opens_before(tmp_path, recording):
    recordings()[recording](tmp_path / "t")
    transcript = open_transcript(tmp_path / "t")
    shown = {
        "anonymous": transcript.anonymous is not None and transcript.anonymous.n_rows > 0,
        "references": transcript.messages.reference is not None,
        "held": set(transcript.held) == {0, 1, 2, 3},
        "graph": transcript.deliveries is not None,
        "kinds": transcript.other == {"counts": 2} and transcript.sums.index.size == 2,
    }
    assert shown.get(recording, True)


def test_a_name_tells_the_mutant(tmp_path):
    for name in list(mutants(2))[::31]:
        first, second = (
            {
                path.name: path.read_bytes()
                for path in make(name, tmp_path / place).iterdir()
                if path.is_file()
            }
            for place in ("a", "b")
        )
        assert first == second, name
