"""What the last minibatch weighs, against passes that are counted."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from attacks.closed_form.orders.last_minibatch import ONE, Batches, multiples_of


@pytest.mark.parametrize(("n", "size", "passes"), [(20, 8, 3), (25, 20, 6), (11, 5, 2)])
def test_multiples_and_shares_are_those_of_counted_passes(n, size, passes):
    rng, trials = np.random.default_rng(0), 400
    weight = np.zeros((trials, n))
    for trial in range(trials):
        for _ in range(passes):
            order = rng.permutation(n)
            for start in range(0, n, size):
                at = order[start : start + size]
                weight[trial, at] += size / at.size / passes
    found = multiples_of(n, Batches(size, passes))
    near = np.abs(weight[..., None] - found.times).argmin(axis=2)
    seen = np.bincount(near.ravel(), minlength=found.times.size) / weight.size
    known = np.abs(weight - found.times[near]) < 1e-9
    assert known.mean() > 0.999  # others are too rare to be told apart
    # n items of one pass are not independent, trials are: four standard errors of the latter
    assert (np.abs(seen - np.exp(found.nats)) < 4 * np.sqrt(0.25 / trials)).all()


@pytest.mark.parametrize(("n", "size", "passes"), [(20, 8, 3), (25, 20, 4)])
def test_errors_come_before_the_steps_that_they_make(n, size, passes):
    """Mean over all orders of turns of what a copy had moved before each, weighed as the turns are."""
    found = multiples_of(n, Batches(size, passes))
    last = n % size
    for often, (before, times) in enumerate(zip(found.before, found.times, strict=True)):
        shares = np.array([size / last] * often + [1.0] * (passes - often))
        shares /= shares.sum()
        ways = [np.cumsum(order) - order for order in permutations(shares)]
        weighed = [way @ order for way, order in zip(ways, permutations(shares), strict=True)]
        assert before + (1 - 1 / (passes * times)) / 2 == pytest.approx(np.mean(weighed))


@pytest.mark.parametrize(("n", "size"), [(16, 8), (5, 8), (8, 8)])
def test_equal_minibatches_have_one_multiple(n, size):
    assert multiples_of(n, Batches(size, 3)) is ONE
