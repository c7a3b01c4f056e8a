"""Sums of uploads from what is broadcast: against planted and recorded ones, and what is read of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.base import Identities
from attacks.sums.aggregate import NOBODY_ALONE, Aggregate, sums_of_others
from attacks.sums.broadcast_sums import (
    ITEM_SERVER,
    NO_PAIR,
    NO_START,
    NOT_ADAM,
    TOO_COARSE,
    first_step_gradient,
    implied_sums,
)
from audit.experiments import auditing
from audit.experiments.plan import Audit
from audit.factories import make_defenses
from audit.keys import view_of
from audit.scoring.pseudonyms import CLAIMED, CLIENTS, pseudonym_scores
from audit.scoring.truth import read_truth
from tests.oracles.simulator import SCENARIOS
from victims.data.subsets import of_users
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.view import ITEM

IDEAL = "paillier:ideal=true"
RATE, EPSILON = 0.05, 1e-8
UNIT = np.finfo(np.float64).eps


def recorded(victim, ratings, path, defense="none", rounds=(0, 1)):
    record(victim, ratings, path, rounds=rounds, defenses=make_defenses(defense))
    return open_transcript(path), read_truth(truth_path(path))


@pytest.fixture(scope="module")
def sparse():
    """300 users with about 6 of 900 items each: many items have one rater."""
    return generate(Synthetic(users=300, items=900, ratings_per_user=6.0, single=0.1, seed=5))


@pytest.fixture(scope="module")
def encrypted(ratings, tmp_path_factory):
    """The four scenarios of FedMVMF from the start, under encryption."""
    folder = tmp_path_factory.mktemp("encrypted")
    found = {}
    for update, weighting in SCENARIOS:
        victim = FedMVMF(update=update, weighting=weighting)
        found[update, weighting], _ = recorded(victim, ratings, folder / f"{update}-{weighting}", IDEAL)
    return found


class TestFirstStep:
    @settings(max_examples=100, deadline=None)
    @given(st.integers(0, 10_000), st.floats(-14, 4), st.sampled_from([0.0, 1e-3, 0.1, 3.0]))
    def test_planted_gradients(self, seed, magnitude, scale):
        """Every gradient lies within the bound, also where the bound says that nothing is known."""
        rng = np.random.default_rng(seed)
        gradient = 10.0**magnitude * rng.normal(size=20)
        gradient[0] = 0.0
        before = scale * rng.normal(size=20)
        after = before - RATE * gradient / (np.sqrt(gradient**2) + EPSILON)
        last = np.spacing(np.maximum(np.abs(before), np.abs(after)))
        found, error = first_step_gradient(after - before, RATE, EPSILON, last + 8 * UNIT * RATE)
        assert (np.abs(found - gradient) <= error).all()
        if scale <= 0.1 and -8 < magnitude < 0:  # what a start at 0.1 leaves of gradients below 1
            assert np.quantile(error / np.maximum(np.abs(gradient), 1e-12), 0.5) < 1e-5

    def test_a_step_that_is_the_rate_to_its_last_digit_tells_nothing(self):
        found, error = first_step_gradient(np.array([RATE]), RATE, EPSILON, np.array([1e-17]))
        assert np.isfinite(found).all()
        assert np.isinf(error).all()


class TestAgainstRecordedSums:
    @pytest.mark.parametrize("scenario", SCENARIOS, ids="/".join)
    def test_the_item_server_has_the_servers_sums(self, encrypted, scenario):
        """Items and attributes, as they were decrypted for the server in round 0."""
        transcript = encrypted[scenario]
        decrypted = view_of(transcript, "server").sums[0]
        view = view_of(transcript, "item-server")
        assert not view.sums
        assert view.messages.n_rows == 0
        found = implied_sums(view)
        assert set(found.sums) == {0}
        place = {
            pair: at for at, pair in enumerate(zip(found.sums[0].kind, found.sums[0].index, strict=True))
        }
        at = np.array([place[pair] for pair in zip(decrypted.kind, decrypted.index, strict=True)])
        away = np.linalg.norm(found.sums[0].values[at] - decrypted.values, axis=1)
        assert (away <= found.sums[0].error[at]).all()
        assert np.median(away / np.linalg.norm(decrypted.values, axis=1)) < 1e-6

    @pytest.mark.parametrize("scenario", SCENARIOS, ids="/".join)
    def test_a_client_lacks_the_item_servers_secret_in_sgd_alone(self, encrypted, scenario):
        found = implied_sums(view_of(encrypted[scenario], "client:3"))
        if scenario[0] == "sgd":
            assert found.obstacle == ITEM_SERVER
            return
        mine = implied_sums(view_of(encrypted[scenario], "item-server")).sums[0]
        # Eq. (11) restated: the item server's rows to the last digits
        np.testing.assert_allclose(found.sums[0].values, mine.values, rtol=0, atol=1e-12)

    def test_without_item_features_nothing_is_secret(self, ratings, tmp_path):
        bare = replace(ratings, item_features=np.zeros((ratings.n_items, 0)), item_feature_names=())
        transcript, _ = recorded(FedMVMF(update="sgd"), bare, tmp_path / "t", IDEAL)
        decrypted = view_of(transcript, "server").sums[0]
        found = implied_sums(view_of(transcript, "client:3")).sums[0]
        item = decrypted.kind == ITEM
        away = found.values[decrypted.index[item]] - decrypted.values[item]
        assert (np.linalg.norm(away, axis=1) <= found.error[decrypted.index[item]]).all()

    @pytest.mark.parametrize(
        "victim",
        [
            DecentralisedMF(factors=4, epochs=8, learning_rate=0.01, regularization=0.3),
            DecentralisedMF(factors=4, epochs=8, learning_rate=0.01, regularization=0.3, regularize="sample"),
            FedMF(factors=4),
            FedMF(factors=4, upload="full-text"),
        ],
        ids=["mf", "mf each", "fedmf", "fedmf full-text"],
    )
    def test_plain_steps_tell_the_sums_of_every_round(self, ratings, tmp_path, victim):
        """Across the round in which mf divides its rate (2 of 8)."""
        transcript, _ = recorded(victim, ratings, tmp_path / "t", rounds=(1, 2, 3))
        server, found = transcript.view("server"), implied_sums(transcript.view("client:0"))
        assert set(found.sums) == {1, 2}
        raters = np.bincount(ratings.items, minlength=ratings.n_items)[:, None]
        for number, sums in found.sums.items():
            one = server.during([number])
            index, rows = np.concatenate(one.messages.index), np.concatenate(one.messages.gradient)
            expected = np.zeros_like(sums.values)
            np.add.at(expected, index, rows)
            expected += found.pull * raters * one.broadcasts[number].factors
            np.testing.assert_allclose(sums.values, expected, atol=1e-11)
            assert (np.linalg.norm(sums.values - expected, axis=1) <= sums.error + 1e-14).all()


class TestWhereItEnds:
    def test_reasons(self, encrypted, transcripts):
        view = view_of(encrypted["semi-als", "observed-only"], "item-server")

        def with_constants(**changes):
            known = {**view.manifest.hyperparameters, **changes}
            known = {name: value for name, value in known.items() if value is not None}
            return replace(view, manifest=view.manifest.model_copy(update={"hyperparameters": known}))

        assert implied_sums(with_constants(server_learning_rate=0.04)).obstacle == NOT_ADAM
        assert implied_sums(with_constants(adam_epsilon=None)).obstacle == "adam_epsilon are not public"
        later = transcripts["semi-als", "observed-only"].view("item-server")
        assert implied_sums(later).obstacle == NO_START
        assert Aggregate().attack(later, 0).obstacle == NO_START
        assert (
            implied_sums(replace(view, broadcasts={})).obstacle == "the adversary sees no broadcast factors"
        )
        other = view.manifest.model_copy(update={"protocol": "another"})
        assert "the server's step of another" in implied_sums(replace(view, manifest=other)).obstacle
        alone = {0: view.broadcasts[0]}
        fedmf = view.manifest.model_copy(update={"protocol": "fedmf"})
        assert implied_sums(replace(view, manifest=fedmf, broadcasts=alone)).obstacle == NO_PAIR

    @pytest.mark.parametrize("scenario", SCENARIOS, ids="/".join)
    def test_float32_ends_in_abstention(self, encrypted, scenario):
        view = view_of(encrypted[scenario], "item-server")
        rounded = {
            number: replace(each, factors=each.factors.astype(np.float32).astype(np.float64))
            for number, each in view.broadcasts.items()
        }
        view = replace(view, broadcasts=rounded)
        assert implied_sums(view).obstacle == TOO_COARSE
        assert Aggregate().attack(view, 0).obstacle == TOO_COARSE

    def test_features_without_names_are_not_public(self, ratings, tmp_path):
        """Principal components: the item server alone knows them."""
        turned = replace(ratings, item_features=ratings.item_features + 0.5)
        transcript, _ = recorded(FedMVMF(), turned, tmp_path / "t")
        assert transcript.manifest.item_features is None
        assert implied_sums(transcript.view("client:0")).obstacle == ITEM_SERVER
        assert implied_sums(transcript.view("item-server")).sums

    def test_item_features_of_a_manifest_are_checked(self, encrypted):
        manifest = encrypted["sgd", "observed-only"].manifest
        with pytest.raises(ValueError, match="item_features must have a list for each of 60 items, got 1"):
            type(manifest).model_validate({**manifest.model_dump(), "item_features": [[0]]})

    def test_who_sees_what_the_item_server_sends(self, encrypted):
        for name, sees in (
            ("server", 1),
            ("eavesdropper", 1),
            ("item-server", 1),
            ("client:3", 0),
            ("decrypter", 0),
        ):
            assert bool(view_of(encrypted["sgd", "observed-only"], name).item_server) == bool(sees)


def read(transcript, truth, adversary):
    view = view_of(transcript, adversary)
    found = Aggregate().attack(view, 0)
    assert found.identities == Identities.PSEUDONYMS
    return pseudonym_scores(found, transcript.manifest, truth), found, view


def alone_in_several(ratings, fewest=3):
    """Clients who are alone in so many sums; with two rows more than one length may be left."""
    lone = np.bincount(ratings.items, minlength=ratings.n_items)[ratings.items] == 1
    return int((np.bincount(ratings.users[lone], minlength=ratings.n_users) >= fewest).sum())


@pytest.fixture(scope="module")
def plain(sparse, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return {
        "mf": recorded(DecentralisedMF(), sparse, folder / "mf", rounds=(3, 4)),
        "fedmf": recorded(FedMF(factors=20), sparse, folder / "fedmf", rounds=(3, 4)),
    }


class TestReading:
    def test_every_client_reads_the_long_tail(self, plain, sparse):
        victim = "fedmf"
        scores, found, _ = read(*plain[victim], "client:7")
        assert scores[CLAIMED][1].mean() > 0.99
        assert scores[CLIENTS][1].sum() > 0.9 * alone_in_several(sparse)
        assert 7 not in found.abstained

    def test_the_item_server_reads_the_long_tail_under_encryption(self, sparse, tmp_path):
        update = "sgd"
        victim = FedMVMF(update=update)
        scores, _, _ = read(*recorded(victim, sparse, tmp_path / "t", IDEAL), "item-server")
        assert scores[CLAIMED][1].mean() > 0.95
        assert scores[CLIENTS][1].sum() > 0.7 * alone_in_several(sparse)

    def test_of_two_clients_each_reads_the_other(self, sparse, tmp_path):
        """PrivMVMF: its own rows subtracted, one client's are left."""
        two = of_users(sparse, np.argsort(-np.diff(sparse.indptr))[:2])
        victim = FedMVMF(weighting="include-unrated")
        transcript, truth = recorded(victim, two, tmp_path / "t", f"unrated-sampling:rho=1+{IDEAL}")
        scores, _, _ = read(transcript, truth, "client:0")
        assert scores[CLAIMED][1].tolist() == [1.0]
        assert scores["share_of_ratings_read"][1].tolist() == [0.0, 1.0]

    def test_noise_is_not_read(self, sparse, tmp_path):
        for defense in ("laplace:scale=0.5", "objective-noise:noise=once"):
            transcript, _ = recorded(DecentralisedMF(), sparse, tmp_path / defense[:3], defense)
            found = Aggregate().attack(transcript.view("client:7"), 0)
            assert found.users.size == 0
            assert found.obstacle == NOBODY_ALONE

    def test_the_null_deals_out_what_the_broadcasts_tell(self, plain):
        """Parallel sums stay parallel, so that pseudonyms remain, but items and ratings no longer belong."""
        transcript, truth = plain["mf"]
        scores, _, view = read(transcript, truth, "client:7")
        others, obstacle = sums_of_others(view)
        assert not obstacle
        again, _ = sums_of_others(others)
        for number, sums in others.sums.items():
            np.testing.assert_array_equal(again.sums[number].values, sums.values)
        null = others.shuffled(1)
        assert not np.array_equal(null.sums[3].values, others.sums[3].values)
        found = pseudonym_scores(Aggregate().attack(null, 0), transcript.manifest, truth)
        assert found[CLIENTS][1].sum() < 0.1 * scores[CLIENTS][1].sum()

    def test_a_campaign_says_so(self, sparse, tmp_path):
        plan = Audit(
            updates=("semi-als", "sgd"), weightings=("observed-only",), attacks=("aggregate",),
            rounds=(0, 1), adversary="item-server", defenses=(IDEAL,),
        )  # fmt: skip
        rows = auditing.run(auditing.settled(plan), sparse, tmp_path)
        for update in plan.updates:
            mine = {row["metric"]: row for row in rows if row["update"] == update}
            assert mine[CLAIMED]["verdict"] == "LEAK"
            assert mine[CLAIMED]["baseline"] < 0.6
        later = auditing.run(
            auditing.settled(replace(plan, rounds=(4, 5), updates=("semi-als",))), sparse, tmp_path
        )
        assert [(row["status"], row["reason"]) for row in later] == [("not applicable", NO_START)]


def test_a_victim_needs_no_item_server(plain):
    transcript, _ = plain["mf"]
    assert not transcript.view("server").item_server
    assert transcript.manifest.item_features is None
