"""A round is a function of the run before it, and decrypted sums are those of the uploads."""

from __future__ import annotations

import numpy as np
import pytest

from audit.factories import make_defenses
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import exchange_of
from victims.training import start


@pytest.fixture(scope="module")
def ratings():
    return generate(Synthetic(users=12, items=20, ratings_per_user=6.0))


@pytest.mark.parametrize(
    "victim",
    [FedMVMF(factors=3), FedMF(factors=3), DecentralisedMF(factors=3)],
    ids=lambda victim: type(victim).__name__,
)
def test_the_same_run_sends_the_same(victim, ratings):
    run = start(victim, ratings, make_defenses("laplace:scale=0.1"), 3)
    before = [np.asarray(table).copy() for table in victim.broadcast(run.state)]
    first, second = (list(exchange_of(run, np.arange(12), 0).batches) for _ in range(2))
    assert len(first) == len(second) >= 1
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.index, other.index)
        np.testing.assert_array_equal(one.gradient, other.gradient)
    for table, now in zip(before, victim.broadcast(run.state), strict=True):
        np.testing.assert_array_equal(table, now)


def test_decrypted_sums_are_the_sums_of_the_uploads(ratings):
    run = start(FedMVMF(factors=3), ratings, make_defenses("paillier:ideal=true"), 0)
    exchange = exchange_of(run, np.arange(12), 0)
    sums = np.zeros_like(exchange.sums[0].values)
    for batch in exchange.batches:
        upload = batch.sender >= 0
        if batch.ciphertext is not None and batch.ciphertext[0] is not None:
            row = np.where(batch.kind == 1, exchange.items.shape[0] + batch.index, batch.index)
            np.add.at(sums, row[upload], batch.gradient[upload])
    np.testing.assert_allclose(exchange.sums[0].values, sums, atol=1e-9)  # 40 bits after the point
