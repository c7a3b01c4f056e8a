"""What is cut off uploads: golden rows, each client by itself, and that nothing is proved of it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from audit.contracts import check_defense
from audit.factories import make_defense
from defenses.compression import Clip, Quantise, Round, TopK
from victims.common.errors import InputError
from victims.data.loaders import load
from victims.protocols.account import Setting
from victims.protocols.base import Rows

NOBODY = load("synthetic:users=2,items=40")
SENT = np.array([[3.0, 4.0], [0.06, -0.08], [0.0, 0.0], [12.5, 0.0], [0.0, -7.06]])
EVERYBODY = np.array([0, 0, 0, 4, 4], np.int32)


def uploaded(defense, gradient=SENT, sender=EVERYBODY, seed=0, round_=0):
    index = np.arange(sender.size, dtype=np.int32)
    rows = Rows(sender, np.zeros(sender.size, np.int8), index, gradient, sequence=index[::-1].copy())
    return defense.uploaded(rows, NOBODY, round_, seed)


SHORTENED = SENT * np.array([0.2, 1, 1, 0.08, 1 / 7.06])[:, None]
GOLDEN = {
    "clip:norm=1,of=row": SHORTENED,
    "clip:norm=5,of=client": SENT * np.r_[[5 / np.sqrt(25.01)] * 3, [5 / np.hypot(12.5, 7.06)] * 2][:, None],
    "clip:norm=100": SENT,
    "top-k:share=0.3": [[3, 4], [0, 0], [0, 0], [12.5, 0], [0, -7.06]],
    "top-k:share=0.01": [[0, 4], [0, 0], [0, 0], [12.5, 0], [0, 0]],
    "top-k:share=1": SENT,
    "quantise:bits=3,stochastic=false": [[8 / 3, 4], [0, 0], [0, 0], [12.5, 0], [0, -12.5 * 2 / 3]],
    "round:digits=1": [[3, 4], [0.1, -0.1], [0, 0], [12.5, 0], [0, -7.1]],
    "round:digits=1,of=significand": [[3, 4], [0.06, -0.08], [0, 0], [10, 0], [0, -7]],
}


@pytest.mark.parametrize("text", GOLDEN)
def test_golden_rows(text):
    np.testing.assert_allclose(uploaded(make_defense(text)).gradient, GOLDEN[text], rtol=1e-12, atol=1e-12)


def test_rows_that_are_left_out_take_all_their_columns_along():
    left = uploaded(TopK(0.5, "rows"))
    assert (left.index.tolist(), left.sender.tolist()) == ([0, 1, 3], [0, 0, 4])
    assert left.sequence.tolist() == [4, 3, 1]
    assert all(len(getattr(left, one.name)) == 3 for one in fields(Rows)[:5])


def test_stochastic_rounding_keeps_the_mean():
    """The mean of 20,000 draws, within five of its standard deviations: fails once in a million seeds."""
    size = 20_000
    sender = np.zeros(size, np.int32)
    gradient = np.full((size, 1), 0.37)
    gradient[0] = 1.0
    drawn = uploaded(Quantise(3), gradient, sender).gradient[1:]
    assert set(np.unique(drawn.round(6))) == {0.333333, 0.666667}
    assert abs(drawn.mean() - 0.37) < 5 * (1 / 6) / np.sqrt(size)
    np.testing.assert_array_equal(drawn, uploaded(Quantise(3), gradient, sender).gradient[1:])
    assert (drawn != uploaded(Quantise(3), gradient, sender, round_=1).gradient[1:]).any()


@pytest.mark.parametrize("defense", [Clip(), TopK(), Quantise(), Round()], ids=lambda one: one.name)
def test_contract_and_account(defense):
    check_defense(defense)
    account = defense.account(NOBODY, Setting("fedmf"))
    assert not account.lines
    assert account.unproved == f"nothing is proved: {defense.name} adds no noise"
    alone = uploaded(defense, SENT[3:], EVERYBODY[3:]).gradient
    np.testing.assert_array_equal(alone, uploaded(defense).gradient[3:])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clip:norm=0", "norm of clip must be between"),
        ("clip:norm=nan", "norm of clip must be between"),
        ("clip:of=item", "'client' or 'row'"),
        ("top-k:share=0", r"share of top-k must be in \(0, 1\]"),
        ("top-k:share=1e400", r"share of top-k must be in \(0, 1\]"),
        ("quantise:bits=1", "bits of quantise must be a whole number from 2 to 16"),
        ("quantise:bits=2.5", "bits must be a valid integer"),
        ("round:digits=0,of=significand", "digits of round must be a whole number from 1 to 15"),
        ("round:digits=-1", "digits of round must be a whole number from 0 to 15"),
    ],
)
def test_hostile_options(text, said):
    with pytest.raises(InputError, match=said):
        make_defense(text)
