"""The privacy account against closed forms and a direct integral."""

from __future__ import annotations

import numpy as np
import pytest

from defenses.accounting import account, rows_of_account
from victims.errors import InputError


def test_one_row_is_the_laplace_mechanism():
    """2 C / b; at delta > 0 the smallest epsilon with (1 - exp((epsilon - single) / 2)) <= delta."""
    found = account(scale=4.0, clip=1.0, rows=1, delta=1e-3)
    assert found.plain == 0.5
    exact = 0.5 + 2 * np.log(1 - 1e-3)
    assert exact <= found.composed <= exact + 0.01


def test_the_plain_sum_bounds_the_composition():
    for rows, rounds in ((1, 1), (10, 20), (500, 20)):
        found = account(scale=10.0, clip=1.0, rows=rows, rounds=rounds)
        assert found.rows == rows * rounds
        assert found.plain == pytest.approx(0.2 * rows * rounds)
        assert 0 < found.composed <= found.plain


def test_composition_grows_with_the_root_where_single_losses_are_small():
    """For many small losses the composition is nearly Gaussian: four times as many rows, twice epsilon,
    plus what the mean loss adds; the plain sum would be four times."""
    one, four = (account(scale=2000.0, clip=1.0, rows=n).composed for n in (10_000, 40_000))
    assert 1.9 < four / one < 2.3


@pytest.mark.parametrize("split", [0.5, 0.1])
def test_one_coordinate_dominates_a_row(split):
    """Two coordinates that share the distance are less distinguishable than one that has it all."""
    from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

    total = 1.5
    step = 1e-4
    parts = [from_laplace_mechanism(1 / (total * w), value_discretization_interval=step)
             for w in (split, 1 - split)]  # fmt: skip
    both = parts[0].compose(parts[1])
    alone = from_laplace_mechanism(1 / total, value_discretization_interval=step)
    for epsilon in np.linspace(0, total, 16):
        assert both.get_delta_for_epsilon(epsilon) <= alone.get_delta_for_epsilon(epsilon) + 1e-3


def test_no_clipping_no_epsilon():
    for scale, clip in ((2.0, None), (0.0, 1.0)):
        found = account(scale=scale, clip=clip, rows=3)
        assert found.plain == found.composed == np.inf


def test_rows_for_clients_of_several_sizes():
    table = rows_of_account({"scale": 2.0, "clip": 1.0}, {"small": 1, "large": 10}, rounds=5)
    assert [(row["who"], row["rounds"]) for row in table] == [
        ("small", 1), ("small", 5), ("large", 1), ("large", 5),
    ]  # fmt: skip
    assert table[3]["plain"] == pytest.approx(50.0)


def test_bad_numbers():
    with pytest.raises(InputError, match="delta must be between 0 and 1"):
        account(scale=1.0, clip=1.0, rows=1, delta=0.0)
    with pytest.raises(InputError, match="rows must be >= 1"):
        account(scale=1.0, clip=1.0, rows=0)
