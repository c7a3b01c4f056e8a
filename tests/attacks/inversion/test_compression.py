"""What local steps along the items' factors leave of rows off these."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks.base import Reconstruction
from attacks.client_rules.local_steps import LocalSteps
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.attack import Inversion
from attacks.inversion.compression import aside, spare_of
from attacks.inversion.one_step import ASIDE
from attacks.inversion.told import SPARE
from tests.oracles.local_training import Client, Program
from tests.oracles.pass_programs import Passer
from victims.transcript.reader import open_transcript

FACTORS = 12


def rows_about(uploaded: np.ndarray, factors: np.ndarray) -> Rows:
    """Rows of one client."""
    n = len(uploaded)
    item, precision = np.ones((1, n), bool), float(np.finfo(uploaded.dtype).eps)
    return Rows(uploaded[None], factors[None], np.zeros((1, n)), item, np.full(1, np.nan), precision, None)


LEVELS = np.arange(1.0, 6.0)


@pytest.mark.parametrize(
    "client",
    [
        Client(steps=20, momentum=0.5, decay=0.1),
        Client(ratio=3.0, moves=False, mean=True),
        Passer(passes=3, batch=1, loss="sigmoid"),
        Passer(passes=2, batch=3, loss="clipped", mean=True, item_decay=0.1, own_bias=True),
    ],
    ids=["steps", "fixed items", "ratings in turn", "minibatches"],
)
def test_steps_of_any_kind_leave_one_direction_and_noise_leaves_more(client):
    rng = np.random.default_rng(0)
    p, q, r = rng.normal(0, 0.5, FACTORS), rng.normal(0, 0.5, (7, FACTORS)), rng.choice(LEVELS, 7)
    rows = client.train(p, r, q)[0] - q if isinstance(client, Client) else client.train(p, q, r, LEVELS)[0]
    assert aside(rows_about(rows, q))[0] < 1e-10
    noisy = rows + rng.normal(0, 1e-3 * np.abs(rows).max(), rows.shape)
    assert aside(rows_about(noisy, q))[0] > 1e-4


def test_as_many_rows_as_factors_say_nothing():
    rng = np.random.default_rng(0)
    for n in (1, FACTORS - 1, FACTORS + 5):
        assert np.isnan(aside(rows_about(rng.normal(size=(n, FACTORS)), rng.normal(size=(n, FACTORS))))[0])


def test_noise_on_few_rows_is_refused_before_anything_is_fitted(tmp_path):
    """With 40 factors all hypotheses together took ten minutes."""
    program = Program(factors=40, n_users=20, density=0.2)
    program.record(tmp_path / "t")
    view = open_transcript(tmp_path / "t").view("server").shuffled(0)
    found = Inversion().attack(view, 0)
    assert isinstance(found, Reconstruction)
    assert set(found.abstained) == set(view.users.tolist())
    assert ASIDE in next(iter(found.abstained.values()))


@pytest.mark.thorough
def test_two_rows_are_fewer_equations_than_numbers():
    """Factor, two ratings, a rate and two decays move 24 numbers in 15 directions: nothing is to spare."""
    rng = np.random.default_rng(0)
    constants = np.array([np.log(0.05), 0.0, 0.02, 0.03, 0.0, 0.0, 2.0, 1.0])
    unknown = np.concatenate([rng.normal(0, 0.4, FACTORS), [2.5, 3.0], constants[[0, 2, 3]]])
    q = rng.normal(0, 0.4, (2, FACTORS))

    def rows(at):
        own = jnp.asarray(constants).at[jnp.array([0, 2, 3])].set(at[FACTORS + 2 :])
        return LocalSteps().upload(at[:FACTORS], at[FACTORS : FACTORS + 2], jnp.asarray(q), own)[0].ravel()

    with jax.enable_x64(True):
        size = np.linalg.svd(np.asarray(jax.jacfwd(rows)(jnp.asarray(unknown))), compute_uv=False)
    equations = int((size > 1e-10 * size[0]).sum())
    assert equations <= 2 * 2 + FACTORS - 1
    assert spare_of(np.array([2]), FACTORS, 3)[0] == 2 * 2 + FACTORS - 1 - FACTORS - 3 < SPARE
