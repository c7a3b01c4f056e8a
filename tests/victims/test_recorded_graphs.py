"""The graph of every recorded round, where it is drawn anew."""

from __future__ import annotations

import numpy as np
import pytest

from audit.factories import make_victim
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.training import start
from victims.transcript.reader import open_transcript
from victims.transcript.writer import TranscriptWriter

ALWAYS = 2**31 - 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dpmf-yang", {"receivers": "rounds"}),
        ("dpmf-yang", {}),
        ("dmf", {}),
        pytest.param("pdmfrec", {}, marks=pytest.mark.thorough),
    ],
)
def test_rows_reach_those_whom_the_victim_sends_them_to(tmp_path, name, options):
    ratings, rounds = generate(Synthetic(users=14, items=25, ratings_per_user=8.0, seed=1)), [0, 1, 3]
    victim = make_victim(name, options)
    record(victim, ratings, tmp_path / "t", rounds=rounds)
    found = open_transcript(tmp_path / "t").deliveries
    fixed = name == "pdmfrec" or (options == {} and name != "dmf")
    assert (found.last == ALWAYS).all() == fixed
    run = start(victim, ratings, (), 0)
    for round_ in range(4):
        if round_ in rounds:
            here = (found.first <= round_) & (round_ <= found.last)
            edges = run.network.edges
            np.testing.assert_array_equal(found.receiver[here], edges.receiver)
            np.testing.assert_array_equal(found.sender[here], edges.sender)
            np.testing.assert_array_equal(found.weight[here], edges.weight)
        run = run.trained(round_)


def test_rounds_of_edges_are_checked(tmp_path):
    manifest = make_victim("dmf").manifest(
        generate(Synthetic(users=5, items=9, ratings_per_user=3.0, seed=1)), [0]
    )
    with (
        pytest.raises(InputError, match="first_round must be between 0 and last_round = 2, got 3"),
        TranscriptWriter(tmp_path / "t", manifest) as writer,
    ):
        writer.deliveries([0], [1], [1.0], 3, 2)
