"""Recordings of clients without a server, attacked by receivers of rows, by a helper and from outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from audit.factories import make_attack, make_defenses, make_victim
from audit.registry import entries
from audit.scoring.pseudonyms import senders_of
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from tests.oracles.dpmf_yang_peers import DpmfYang
from tests.oracles.pdmfrec_peers import Pdmfrec
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript

KNOWN = {"upload_scale": -1.0, "upload_regularization": 0.03}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> dict[str, Transcript]:
    """PDMFRec with names and without, two rounds; DPMF-Yang, three."""
    folder = tmp_path_factory.mktemp("peers")
    for name, anonymous in (("anonymous", True), ("named", False)):
        Pdmfrec().record(folder / name, watched=(0, 1), anonymous=anonymous, constants=KNOWN)
    DpmfYang(n_users=16).record(folder / "yang", watched=(0, 1, 2))
    return {path.name: open_transcript(path) for path in folder.iterdir() if path.is_dir()}


def values(transcript: Transcript, adversary: str, attack: str, rounds: list[int] | None = None) -> dict:
    """Metric -> (value, best guess)."""
    view = transcript.view(adversary)
    view = view if rounds is None else view.during(rounds)
    found = make_attack(attack).attack(view, 0)
    truth = read_truth(truth_path(transcript.path))
    rows = score(found, transcript.manifest, truth, senders=senders_of(transcript, view))
    return {row.metric: (row.summary.value, row.summary.baseline) for row in rows}


def test_without_names_one_neighbour_reads_everybody_in_one_round(recorded):
    """Every claim and every linked pair is right; 15 of 23 senders have a weight of their own."""
    found = values(recorded["anonymous"], "neighbour:0", "peers", [0])
    for metric in ("claimed_rating_accuracy", "link_precision", "link_recall", "claimed_names_right"):
        assert found[metric][0] == 1 > found[metric][1], metric
    assert found["names_right"][0] == pytest.approx(15 / 23)
    assert found["share_of_ratings_read"][0] == pytest.approx(23 / 24)


def test_those_whom_a_weight_names_are_read_under_their_names(recorded):
    view = recorded["anonymous"].view("neighbour:0")
    found = make_attack("peers-named").attack(view, 0)
    assert found.users.tolist() == list(range(24))
    assert len(found.abstained) == 24 - 15
    ratings = Pdmfrec().ratings
    for user, _, index, value, _ in found.rows():
        np.testing.assert_allclose(value, ratings[user, index], atol=1e-3)
    lists = make_attack("peers-lists").attack(view, 0)
    (block,) = lists.blocks
    for user, row in zip(block.users, block.value, strict=True):
        assert np.isfinite(row).sum() == (ratings[user] > 0).sum()


def test_a_coalition_names_more(recorded):
    """Two weights tell apart whom one does not."""
    one, two = (
        values(recorded["anonymous"], who, "peers")["names_right"][0]
        for who in ("neighbour:0", "neighbours:0,1")
    )
    assert two > one


def test_with_names_and_ridge_and_steps_inside_the_round(recorded):
    """What ``undeclared`` does not read: a ridge of the item, and a factor that moves with every rating."""
    found = values(recorded["named"], "neighbour:0", "peers")
    value, guess = found["rated_rating_accuracy"]
    assert value > 0.95
    assert guess < 0.5
    assert values(recorded["named"], "neighbour:0", "peers-lists")["rated_set_auc"][0] > 0.99


@pytest.mark.parametrize("rounds", [[0], [0, 1]])
def test_links_of_some_rounds_are_scored_through_the_face(recorded, rounds):
    """Before: left out without a word for all but the whole recording, and where no adversary was named."""
    transcript = recorded["anonymous"]
    view = transcript.view("neighbour:0").during(rounds)
    found = fl.attack(view, "peers")
    told = fl.score(found, transcript=transcript)
    assert {"link_precision", "link_recall", "names_right"} <= set(told["metric"])
    by_metric = dict(zip(told["metric"], told["value"], strict=True))
    expected = values(transcript, "neighbour:0", "peers", rounds)
    for metric in ("link_precision", "link_recall", "names_right"):
        assert by_metric[metric] == expected[metric][0]
    with pytest.raises(InputError, match=r"says who sent [\d,]+ rows, and 'server' receives 0"):
        fl.score(found, transcript=transcript, adversary="server")


@pytest.mark.parametrize("anonymous", ["true", "false"])
def test_under_secure_sums_the_reason_is_encryption(tmp_path, anonymous):
    """Before: "the adversary is none of them", of a client of the graph."""
    ratings = generate(Synthetic(users=12, items=20, ratings_per_user=8.0, seed=3))
    victim = make_victim("pdmfrec", {"anonymous": anonymous})
    record(victim, ratings, tmp_path / "t", rounds=[0], defenses=make_defenses("secure-sum"))
    for attack in ("peers", "peers-named", "peers-lists", "cofactors"):
        for adversary in ("neighbour:3", "neighbours:3,4"):
            found = fl.attack(tmp_path / "t", attack, adversary=adversary)
            assert "is encrypted" in found.obstacle, (attack, adversary)
    assert "none of them" in fl.attack(tmp_path / "t", "peers", adversary="helper").obstacle


def test_dealt_out_rows_say_nothing(recorded):
    for name in ("anonymous", "named"):
        view = recorded[name].view("neighbour:0").during([0]).shuffled(1)
        assert view is not None
        found = make_attack("peers").attack(view, 0)
        assert not found.blocks
        assert len(found.abstained) == found.users.size
        assert found.outcome == "answered"  # that no ratings fit bounds nothing


def test_order_of_the_recording_and_seed_change_nothing(recorded):
    view = recorded["anonymous"].view("neighbours:0,1")
    first, second = (make_attack("peers").attack(view, 0) for _ in range(2))
    for a, b in zip(first.columns(), second.columns(), strict=True):
        for name, column in a.items():
            np.testing.assert_array_equal(column, b[name])
    assert first.linked is not None
    assert first.linked.label.size == view.copies.round.size


def test_trusted_users_read_ratings_lists_and_positives(recorded):
    """Nearly the whole list of everybody; without the rows about Z hardly half of it, and fewer ratings."""
    program, view = DpmfYang(n_users=16), recorded["yang"].view("neighbours:0,1,2")
    rated = (program.ratings[np.unique(view.copies.sender)] > 0).sum()
    found = {}
    for name, seen in (("both", view), ("ratings", replace(view, implicit=None))):
        told = list(make_attack("cofactors").attack(seen, 0).columns())
        user, item, value, sure = (
            np.concatenate([part[name] for part in told])
            for name in ("user", "index", "value", "probability")
        )
        read = sure == 1
        np.testing.assert_allclose(value[read], program.ratings[user, item][read], atol=0.1)
        assert (program.ratings[user, item] > 0).all()  # no sampled negative among them
        assert program.positives[user, item][sure < 1].all()
        found[name] = user.size, read.sum()
    assert found["both"][0] > 0.8 * rated > 0.55 * rated > found["ratings"][0]
    assert found["both"][1] > found["ratings"][1] > 20


@pytest.mark.parametrize("helper", ["item-set", "counts"])
def test_what_a_helper_is_told(tmp_path, helper):
    """Lists in the clear are read, beside popularity; counts name no item."""
    ratings = generate(Synthetic(users=30, items=40, seed=3))
    victim = make_victim("pdmfrec", {"helper": helper, "links": "sealed"})
    record(victim, ratings, tmp_path / "t", rounds=[0], watched=[0])
    transcript = open_transcript(tmp_path / "t")
    found = make_attack("helper-lists").attack(transcript.view("helper"), 0)
    if helper == "counts":
        assert "name no item" in found.obstacle
    else:
        auc = values(transcript, "helper", "helper-lists")["rated_set_auc"]
        assert auc[0] == 1 > auc[1]
    lengths = values(transcript, "eavesdropper", "traffic")["list_length_accuracy"]
    assert lengths[0] == 1 > lengths[1]
    assert "sealed links" in make_attack("traffic").attack(transcript.view("helper"), 0).obstacle


def test_what_does_not_apply_says_why(recorded):
    reasons = {
        ("anonymous", "server", "peers"): "the adversary is none of them",
        ("yang", "neighbour:0", "peers"): "use cofactors",
        ("named", "neighbour:0", "cofactors"): "use peers",
        ("anonymous", "neighbour:0", "helper-lists"): "nobody tells the adversary",
    }
    for (name, adversary, attack), words in reasons.items():
        found = make_attack(attack).attack(recorded[name].view(adversary), 0)
        assert words in found.obstacle, (name, attack)
    with pytest.raises(InputError, match="answers of peers must be claims, ratings or lists"):
        make_attack("peers", {"answers": "all"})
    with pytest.raises(InputError, match="max_misfit of cofactors must be > 0"):
        make_attack("cofactors", {"max_misfit": "0"})


@pytest.mark.parametrize("helper", ["item-set", "counts"])
def test_a_reason_is_the_same_before_and_after(tmp_path, helper):
    """Before: the check said that a neighbour reads the list that it told the helper itself, and the audit
    that ``traffic`` needs to know whose rows are whose.
    """
    adversary = "eavesdropper"
    ratings = generate(Synthetic(users=12, items=20, ratings_per_user=8.0, seed=3))
    victim = make_victim("pdmfrec", {"helper": helper, "links": "sealed"})
    record(victim, ratings, tmp_path / "t", rounds=[0], watched=[0])
    attacks = [name for name, one in entries("attacks").items() if one.unsigned]
    told = {one.attack: one for one in fl.check_transcript(tmp_path / "t", adversary=adversary).attacks}
    rows = fl.audit_recording(tmp_path / "t", adversary=adversary, attacks=attacks)
    for name, found in rows.groupby("attack"):
        assert ("ran" in set(found["status"])) == told[name].applies, name
        assert told[name].applies or set(found["reason"]) == {told[name].reason}, name
    applies = {name for name in attacks if told[name].applies}
    reads = {"helper": {"helper-lists"} if helper == "item-set" else set(), "eavesdropper": {"traffic"}}
    assert applies == reads.get(adversary, {"peers", "peers-named", "peers-lists"})


@pytest.mark.parametrize("weight", [None, np.nan])
def test_nobody_is_named_where_no_weight_is_told(recorded, weight):
    """Before: looked, and "receives no uploads" where there was no graph either."""
    view = recorded["anonymous"].view("neighbour:0")
    links = None if weight is None else replace(view.links, weight=np.full_like(view.links.weight, weight))
    for attack in ("peers-named", "peers-lists"):
        found = make_attack(attack).attack(replace(view, links=links), 0)
        assert "knows no weight" in found.obstacle
    assert not make_attack("peers").obstacle(replace(view, links=links))
    assert not make_attack("peers-named").obstacle(view)
    told = recorded["named"].view("neighbour:0")  # senders with a name need none
    assert not make_attack("peers-named").obstacle(replace(told, links=links))


def test_few_factors_and_few_rows(tmp_path: Path):
    """Three factors: planes always meet, and nothing is claimed of them; two: not applicable."""
    for factors, words in ((3, ""), (2, "fewer than 3 factors")):
        Pdmfrec(factors=factors, n_users=6, n_items=12).record(tmp_path / str(factors), watched=(0,))
        view = open_transcript(tmp_path / str(factors)).view("neighbour:0")
        found = make_attack("peers").attack(view, 0)
        assert words in found.obstacle
        assert bool(found.obstacle) == bool(words)
