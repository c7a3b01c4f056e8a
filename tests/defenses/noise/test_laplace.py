"""Noise on the uploads: its law, its seeds, and that the server trains on what it receives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from audit.factories import make_defense
from defenses.row_noise import Laplace
from victims.common.errors import InputError
from victims.data.loaders import load
from victims.protocols.base import Defense, Rows
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.reader import open_transcript

NOBODY = load("synthetic:users=2,items=40")


def rows(n_users=4, n=50, k=3):
    sender = np.repeat(np.arange(n_users, dtype=np.int32), n)
    zero = np.zeros(sender.size, np.int32)
    return Rows(sender, zero, zero, np.zeros((sender.size, k)))


def gradients(path):
    view = open_transcript(path).view("server")
    return np.concatenate(view.messages.gradient)


def test_law():
    """A Kolmogorov-Smirnov test of a fixed draw; under the law it fails once in 1000 seeds."""
    noise = Laplace(scale=2.0).uploaded(rows(4, 2000), NOBODY, 3, 0).gradient
    assert stats.kstest(noise.ravel(), stats.laplace(scale=2.0).cdf).pvalue > 1e-3


def test_seeds_are_per_client_and_round():
    defense, everyone = Laplace(scale=1.0), rows()
    whole = defense.uploaded(everyone, NOBODY, 1, 0).gradient
    third = Rows(*(part[100:150] for part in (everyone.sender, everyone.kind, everyone.index)),
                 everyone.gradient[100:150])  # fmt: skip
    np.testing.assert_array_equal(defense.uploaded(third, NOBODY, 1, 0).gradient, whole[100:150])
    assert not np.isin(defense.uploaded(everyone, NOBODY, 2, 0).gradient, whole).any()
    assert not np.isin(defense.uploaded(everyone, NOBODY, 1, 1).gradient, whole).any()


def test_clipping_bounds_the_l1_norm():
    big = Rows(*(np.zeros(2, np.int32),) * 3, np.array([[3.0, -4.0], [0.1, 0.2]]))
    clipped = Laplace(scale=0.0, clip=1.0).uploaded(big, NOBODY, 0, 0).gradient
    np.testing.assert_allclose(clipped, [[3 / 7, -4 / 7], [0.1, 0.2]])


def test_the_server_trains_on_what_it_receives(ratings, tmp_path):
    """Noise of round 0 moves the broadcast of round 1; a scale of 0 changes nothing but rounding."""
    victim = FedMVMF()
    for name, defenses in (
        ("plain", ()),
        ("zero", (Laplace(scale=0.0, clip=1e9),)),
        ("noisy", (Laplace(scale=5.0),)),
    ):
        record(victim, ratings, tmp_path / name, rounds=[0, 1], defenses=defenses, seed=1)
    states = [
        open_transcript(tmp_path / name).view("server").broadcasts[1].factors
        for name in ("plain", "zero", "noisy")
    ]
    np.testing.assert_allclose(states[0], states[1], atol=1e-9)
    assert np.abs(states[0] - states[2]).max() > 1e-3
    plain, noisy = gradients(tmp_path / "plain"), gradients(tmp_path / "noisy")
    half = plain.shape[0] // 2  # round 0, whose broadcast is the same; fails once in 1000 seeds
    difference = (noisy - plain)[:half].ravel()
    assert stats.kstest(difference, stats.laplace(scale=5).cdf).pvalue > 1e-3


def test_manifest_tells_what_is_public(ratings, tmp_path):
    for known in (True, False):
        path = tmp_path / str(known)
        record(FedMVMF(), ratings, path, rounds=[0], defenses=[Laplace(scale=2.0, known=known)])
        entry = {"name": "laplace", "scale": 2.0} if known else {"name": "laplace"}
        assert open_transcript(path).manifest.defenses == [entry]


def test_text_form():
    assert make_defense("laplace:scale=2,clip=10,known=false") == Laplace(2.0, 10.0, known=False)
    assert isinstance(make_defense("laplace"), Defense)
    with pytest.raises(InputError, match=r"scale of laplace must be 0 or between 1e-09 and 1e\+09, got -1"):
        make_defense("laplace:scale=-1")
    with pytest.raises(InputError, match="unknown defense 'gauss'"):
        make_defense("gauss")
