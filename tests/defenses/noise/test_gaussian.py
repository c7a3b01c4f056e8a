"""Normal noise on the uploads: its law, its seeds, its norm, and what attacks and the ceiling make of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from audit.factories import make_attack, make_defense
from audit.scoring.decoder import computable
from defenses.row_noise import Gaussian, Laplace
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


def test_law():
    """A Kolmogorov-Smirnov test of a fixed draw; under the law it fails once in 1000 seeds."""
    noise = Gaussian(scale=2.0).uploaded(rows(4, 2000), NOBODY, 3, 0).gradient
    assert stats.kstest(noise.ravel(), stats.norm(scale=2.0).cdf).pvalue > 1e-3


def test_seeds_are_per_client_and_round():
    defense, everyone = Gaussian(scale=1.0), rows()
    whole = defense.uploaded(everyone, NOBODY, 1, 0).gradient
    backwards = Rows(*(part[::-1].copy() for part in (everyone.sender, everyone.kind, everyone.index)),
                     everyone.gradient)  # fmt: skip
    other_way = defense.uploaded(backwards, NOBODY, 1, 0).gradient
    for client in range(4):
        mine = slice(50 * client, 50 * client + 50)
        np.testing.assert_array_equal(other_way[backwards.sender == client], whole[mine])
    for number, seed in ((2, 0), (1, 1)):
        assert not np.isin(defense.uploaded(everyone, NOBODY, number, seed).gradient, whole).any()


def test_its_noise_has_a_stream_of_its_own():
    """Not that of ``laplace``, from which the sign at least would be taken."""
    ours = Gaussian().uploaded(rows(1, 2000), NOBODY, 0, 0).gradient.ravel()
    theirs = Laplace().uploaded(rows(1, 2000), NOBODY, 0, 0).gradient.ravel()
    assert abs(stats.spearmanr(ours, theirs).statistic) < 4 / np.sqrt(ours.size)


def test_clipping_bounds_the_l2_norm():
    big = Rows(*(np.zeros(3, np.int32),) * 3, np.array([[3.0, -4.0], [0.1, 0.2], [0.0, 0.0]]))
    clipped = Gaussian(scale=0.0, clip=1.0).uploaded(big, NOBODY, 0, 0).gradient
    np.testing.assert_allclose(clipped, [[0.6, -0.8], [0.1, 0.2], [0.0, 0.0]])
    assert Gaussian().additive
    assert not Gaussian(clip=1.0).additive


def test_text_form():
    assert make_defense("gaussian:sigma=2,clip=10,known=false,delta=1e-6") == Gaussian(2.0, 10.0, False, 1e-6)
    assert isinstance(make_defense("gaussian"), Defense)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("scale=-1", r"scale of gaussian must be 0 or between 1e-09 and 1e\+09, got -1"),
        ("sigma=inf", r"scale of gaussian must be 0 or between 1e-09 and 1e\+09, got inf"),
        ("sigma=1e308", r"scale of gaussian must be 0 or between 1e-09 and 1e\+09, got 1e\+308"),
        ("clip=0", r"clip of gaussian must be between 1e-09 and 1e\+09, or none, got 0"),
        ("clip=-2", r"clip of gaussian must be between 1e-09 and 1e\+09, or none, got -2"),
        ("delta=0", "delta of gaussian must be between 0 and 1, exclusive, got 0"),
        ("delta=1", "delta of gaussian must be between 0 and 1, exclusive, got 1"),
    ],
)
def test_bad_options(option, message):
    with pytest.raises(InputError, match=message):
        make_defense(f"gaussian:{option}")


@pytest.fixture(scope="module")
def view(ratings, tmp_path_factory):
    path = tmp_path_factory.mktemp("gaussian") / "t"
    record(FedMVMF(), ratings, path, rounds=[0], defenses=[Gaussian(scale=2.0, clip=3.0)])
    return open_transcript(path).view("server")


def test_manifest_tells_what_is_public(view):
    assert view.manifest.defenses == [{"name": "gaussian", "scale": 2.0, "clip": 3.0}]
    assert Gaussian(scale=2.0, known=False).public() == {"name": "gaussian"}


def test_the_ceiling_of_laplace_noise_is_not_its_own(view):
    assert not computable(view)


@pytest.mark.parametrize("attack", ["spectral", "grid"])
def test_closed_forms_abstain_rather_than_misread(view, attack):
    found = make_attack(attack).attack(view, 0)
    assert len(found.abstained) == found.users.size
