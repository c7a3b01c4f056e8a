"""What the audit of epsilon asks of the trajectory attack."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from attacks.trajectory.hypotheses import fitted_values, log_likelihood_ratio
from audit.factories import make_defenses
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.recording import record
from victims.transcript.reader import open_transcript

VICTIM = DecentralisedMF(factors=4, learning_rate=0.01)


@pytest.fixture(scope="module")
def community():
    return generate(Synthetic(users=16, items=30, ratings_per_user=10.0, seed=3))


def view_of(community, path, defense):
    record(VICTIM, community, path, rounds=range(4), defenses=make_defenses(defense), seed=4)
    return open_transcript(path).view("server")


def test_fitted_values_are_the_ratings_where_noise_repeats(community, tmp_path):
    view = view_of(community, tmp_path / "t", "objective-noise:noise=once")
    first = community.items[community.indptr[:-1]].astype(np.int64)
    first[3] = -1  # nothing is asked of this client
    values = fitted_values(view, first)
    assert np.isnan(values[3])
    asked = np.flatnonzero(~np.isnan(values))
    assert asked.size >= 12
    np.testing.assert_allclose(values[asked], community.values[community.indptr[asked]], atol=1e-3)


def test_the_ratio_favours_the_world_that_was_recorded(community, tmp_path):
    """One rating of each client at the other end of the grid in the false world, under little noise."""
    view = view_of(community, tmp_path / "t", "objective-noise:noise=fresh,epsilon=100")
    actual = community.matrix().tocsr()
    false = actual.copy()
    first = community.indptr[:-1]
    false.data[first] = np.where(community.values[first] > 3, 1.0, 5.0)
    ratio = log_likelihood_ratio(view, sp.csr_array(false), sp.csr_array(actual), 0)
    assert ratio.shape == (community.n_users,)
    # a fair coin for each of 16 clients is right 14 times or more with a probability of 0.002
    assert (ratio > 0).sum() >= 14
    np.testing.assert_allclose(log_likelihood_ratio(view, actual, actual, 0), 0)


def test_noise_of_an_unknown_scale_is_refused(community, tmp_path):
    """Before: an assertion failed."""
    view = view_of(community, tmp_path / "t", "none")
    values = community.matrix()
    with pytest.raises(InputError, match="must tell the scale of its noise"):
        log_likelihood_ratio(view, values, values, 0)
