"""PDMFRec against a plain program, and what each of its adversaries sees of a recording."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from audit.factories import make_defenses
from tests.oracles.pdmfrec_program import weights_of
from tests.oracles.peer_programs import pdmfrec_of, uploads_of
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.pdmfrec import PDMFRec, order_of_pass
from victims.recording import record
from victims.training import start
from victims.transcript.reader import open_transcript
from victims.transcript.view import UNTOLD

SMALL = {"factors": 3, "learning_rate": 0.01, "regularization": 0.1}
VARIANTS = [
    {"weight": "twice", "shuffle": "rounds"},
    {"weight": "once", "threshold": 3},
    {"variant": "-sim", "threshold": 3, "start": "private"},
    {"variant": "-sim,all", "shuffle": "once", "own_step": False},
    {"order": "batch", "weight": "once", "start_law": "normal"},
]


@pytest.fixture(scope="module")
def ratings():
    """16 users with as few as one rating, 24 items: the plain program is slow."""
    return generate(Synthetic(users=16, items=24, ratings_per_user=8.0, single=0.1, seed=3))


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_rounds_are_algorithm_1(ratings, options):
    victim = PDMFRec(**(SMALL | options))
    run = start(victim, ratings, [], 1)
    _, program = pdmfrec_of(victim, run, ratings)
    every = np.arange(ratings.n_items)
    for number in range(3):
        seen, orders = uploads_of(run)
        sent = program.round(orders)
        for client, rows in sent.items():
            assert seen[client].keys() == rows.keys()
            np.testing.assert_allclose([seen[client][i] for i in rows], list(rows.values()), atol=1e-12)
        run = run.trained(number)
        np.testing.assert_allclose(run.state.clients, list(program.u.values()), atol=1e-12)
        for client in range(ratings.n_users):
            found = victim.items_of(run.state, ratings, np.full(every.size, client), every)
            np.testing.assert_allclose(found, program.v[client], atol=1e-12)
    scores = run.predictor(3).scores(np.array([4]))
    np.testing.assert_allclose(scores[0], np.array(program.v[4]) @ program.u[4], atol=1e-12)


@pytest.mark.parametrize("options", VARIANTS[:4], ids=str)
def test_receivers_may_step_at_every_row(ratings, options, tmp_path):
    """Against the plain program without its barrier; what neighbours cannot know is not recorded."""
    victim = PDMFRec(receive="arrival", **(SMALL | options))
    run = start(victim, ratings, [], 1)
    _, program = pdmfrec_of(victim, run, ratings)
    every = np.arange(ratings.n_items)
    for number in range(3):
        order = ratings.items[order_of_pass(ratings, victim.shuffle, 1, number)]
        cuts = np.split(order, ratings.indptr[1:-1])
        program.round_of_arrivals({client: part.tolist() for client, part in enumerate(cuts)})
        run = run.trained(number)
        np.testing.assert_allclose(run.state.clients, list(program.u.values()), atol=1e-12)
        for client in range(ratings.n_users):
            found = victim.items_of(run.state, ratings, np.full(every.size, client), every)
            np.testing.assert_allclose(found, program.v[client], atol=1e-12)
    with pytest.raises(InputError, match=r"receive=arrival of pdmfrec forms no rows .* use receive=barrier"):
        record(victim, ratings, tmp_path / "t", rounds=[0])
    with pytest.raises(InputError, match="use receive=barrier"):
        start(victim, ratings, make_defenses("laplace:scale=0.1"), 0).trained(0)
    with pytest.raises(InputError, match=r"dropout of pdmfrec must be 0\.0, for receive=arrival"):
        PDMFRec(receive="arrival", dropout=0.5)


def test_rows_that_defenses_leave_alone_are_delivered_as_the_victim_delivers_them(ratings):
    """The same factors whether rows go through the defenses' way or not: noise of size 0, masks, copies."""
    victim = PDMFRec(**SMALL)
    everybody = np.repeat(np.arange(ratings.n_users), ratings.n_items)
    every = np.tile(np.arange(ratings.n_items), ratings.n_users)
    found = []
    for text in (
        "none",
        "laplace:scale=0,clip=1e9",
        "laplace:scale=0,clip=1e9,per_message=true",
        "secure-sum",
    ):
        run = start(victim, ratings, make_defenses(text), 1)
        for number in range(2):
            run = run.trained(number)
        found.append(victim.items_of(run.state, run.ratings, everybody, every))
    np.testing.assert_allclose(found[1], found[0], atol=1e-12)
    np.testing.assert_allclose(found[2], found[0], atol=1e-12)
    np.testing.assert_allclose(found[3], found[0], atol=1e-10)  # 40 bits after the point


@pytest.fixture(scope="module")
def recorded(ratings, tmp_path_factory):
    """Recordings of rounds 0 and 2, by options of the victim and defense."""

    def make(defense="none", **options):
        path = tmp_path_factory.mktemp("pdmfrec") / "t"
        victim = PDMFRec(**(SMALL | options))
        record(victim, ratings, path, rounds=[0, 2], defenses=make_defenses(defense), seed=1)
        return victim, open_transcript(path)

    return make


def sent_in(victim, ratings, rounds=(0, 2)):
    """Gradients by (round, client, item), and the weights, of the plain program."""
    run = start(victim, ratings, [], 1)
    rated, program = pdmfrec_of(victim, run, ratings)
    out, tables = {}, {}
    for number in range(max(rounds) + 1):
        _, orders = uploads_of(run)
        tables[number] = np.array(list(program.v.values()))
        for client, rows in program.round(orders).items():
            out |= {(number, client, item): np.array(row) for item, row in rows.items()}
        run = run.trained(number)
    kept = {key: row for key, row in out.items() if key[0] in rounds}
    return kept, weights_of(rated, victim.threshold, victim.variant), rated, tables


def test_a_neighbour_sees_the_rows_of_its_neighbours_times_the_weights(recorded, ratings):
    victim, transcript = recorded(anonymous=False)
    sent, weights, _, tables = sent_in(victim, ratings)
    view = transcript.view("neighbour:3")
    expected = {key: row for key, row in sent.items() if (key[1], 3) in weights}
    copies = view.copies
    keys = list(zip(copies.round.tolist(), copies.sender.tolist(), copies.index.tolist(), strict=True))
    assert len(keys) == len(set(keys))
    assert set(keys) == set(expected)
    for key, row, weight in zip(keys, copies.gradient, copies.weight, strict=True):
        assert weight == pytest.approx(weights[key[1], 3])
        np.testing.assert_allclose(row, weight * expected[key], atol=1e-12)
    named = {
        (int(r), int(s), int(i)): g
        for r, s, i, g in zip(
            *(np.concatenate(c) for c in (view.messages.round, view.messages.sender, view.messages.index)),
            np.concatenate(view.messages.gradient),
            strict=True,
        )
    }
    own = {key: row for key, row in sent.items() if key[1] == 3}
    assert named.keys() == (expected | own).keys()
    for key, row in named.items():
        np.testing.assert_allclose(row, (expected | own)[key], atol=1e-12)
    assert set(zip(view.links.sender.tolist(), view.links.receiver.tolist(), strict=True)) == {
        pair for pair in weights if 3 in pair
    }
    np.testing.assert_allclose(view.broadcasts[2].factors, tables[2][3], atol=1e-12)
    np.testing.assert_allclose(view.broadcasts[0].factors, tables[0][0], atol=1e-12)


def test_without_names_rows_come_in_an_order_that_tells_nothing(recorded, ratings):
    _, transcript = recorded()
    named = recorded(anonymous=False)[1].view("neighbour:3")
    for adversary in ("neighbour:3", "client:3"):
        view = transcript.view(adversary)
        assert view.users.tolist() == [3]
        assert view.anonymous_rows == view.copies.sender.size == named.copies.sender.size
        assert (view.copies.sender == UNTOLD).all()
        assert np.isnan(view.copies.weight).all()
        order = np.lexsort([*view.copies.gradient.T[::-1], view.copies.index, view.copies.round])
        assert (order == np.arange(order.size)).all()
        by_content = np.lexsort([*named.copies.gradient.T[::-1], named.copies.index, named.copies.round])
        np.testing.assert_array_equal(view.copies.gradient, named.copies.gradient[by_content])


def test_a_coalition_averages_noise_per_message_and_not_noise_per_row(recorded, ratings):
    """With m copies of weight 1 the error is 1/sqrt(m) of one's, within 15 %: over 600 numbers, 5 standard
    deviations of the ratio, so a false alarm has a probability below 1e-5.
    """
    size, wide = 0.5, {"variant": "-sim,all", "factors": 32}
    members = "neighbours:0,1,2,3,5,7,9,11,13"
    sent, *_ = sent_in(PDMFRec(**(SMALL | wide)), ratings, (0,))
    error = {}
    for option in ("false", "true"):
        noise = f"gaussian:scale={size},per_message={option}"
        _, transcript = recorded(noise, anonymous=False, **wide)
        for adversary in ("neighbour:3", members):
            view = transcript.view(adversary).during([0])
            columns = (np.concatenate(c) for c in (view.messages.sender, view.messages.index))
            rows = zip(*columns, np.concatenate(view.messages.gradient), strict=True)
            away = [g - sent[0, int(s), int(i)] for s, i, g in rows if s not in view.members]
            error[option, adversary] = np.sqrt(np.mean(np.square(away)))
    assert np.size(away) > 600
    assert error["false", "neighbour:3"] == pytest.approx(size, rel=0.15)
    assert error["false", members] == pytest.approx(size, rel=0.15)
    assert error["true", "neighbour:3"] == pytest.approx(size, rel=0.15)
    assert error["true", members] == pytest.approx(size / 3, rel=0.15)


def test_under_a_secure_sum_a_neighbour_sees_sums(recorded, ratings):
    victim, transcript = recorded("secure-sum")
    sent, weights, _, _ = sent_in(victim, ratings)
    view = transcript.view("neighbour:3")
    assert (view.messages.gradient, view.copies) == (None, None)
    for round_ in (0, 2):
        expected: dict[int, np.ndarray] = {}
        for (number, sender, item), row in sent.items():
            if number == round_ and (sender, 3) in weights:
                expected[item] = expected.get(item, 0) + weights[sender, 3] * row
        sums = view.sums[round_]
        assert sums.index.tolist() == sorted(expected)
        np.testing.assert_allclose(sums.values, [expected[i] for i in sorted(expected)], atol=1e-9)
    assert not transcript.view("eavesdropper").sums
    two = transcript.view("neighbours:3,5").sums_of_members
    np.testing.assert_array_equal(two[3][0].values, view.sums[0].values)
    assert not np.array_equal(two[5][0].values, view.sums[0].values)


@pytest.mark.parametrize("helper", ["item-set", "counts"])
def test_the_helper_is_told_lists_or_counts_and_no_row(recorded, ratings, helper):
    victim, transcript = recorded(helper=helper)
    _, weights, rated, _ = sent_in(victim, ratings, (0,))
    view = transcript.view("helper")
    assert view.messages.n_rows == 0
    assert view.links.sender.size == len(weights)
    ends = zip(view.links.sender.tolist(), view.links.receiver.tolist(), strict=True)
    assert dict(zip(ends, view.links.weight.tolist(), strict=True)) == pytest.approx(weights)
    (kind, told), *more = view.told.items()
    assert not more
    if helper == "item-set":
        assert (kind, np.isnan(told.value).all()) == ("item-set", True)
        lists = {u: told.index[told.sender == u].tolist() for u in rated}
        assert lists == rated
    else:
        assert kind == "co-rated"
        pairs = zip(told.sender.tolist(), told.index.tolist(), told.value.tolist(), strict=True)
        counts = {(u, v): n for u, v, n in pairs}
        common = {(u, v): len(set(rated[u]) & set(rated[v])) for u in rated for v in rated if u <= v}
        assert counts == {pair: n for pair, n in common.items() if n}
    assert transcript.view("neighbour:3").told.keys() == {kind}  # its own alone
    assert set(transcript.view("neighbour:3").told[kind].sender.tolist()) == {3}


def test_who_listens_reads_plain_links_and_of_sealed_ones_who_sends_how_much(recorded, ratings):
    for links in ("plain", "sealed"):
        _, transcript = recorded(links=links)
        view = transcript.view("eavesdropper")
        assert np.isnan(view.links.weight).all()
        if links == "plain":
            assert view.messages.n_rows == 2 * ratings.n_ratings
            assert view.traffic is None
        else:
            assert view.messages.n_rows == 0
            per_client = view.traffic.rows[view.traffic.round == 0]
            assert (
                per_client.tolist()
                == np.diff(ratings.indptr)[view.traffic.sender[: per_client.size]].tolist()
            )


def test_what_makes_no_sense_is_refused_with_a_remedy(ratings, tmp_path):
    victim = PDMFRec(**SMALL)
    refused = partial(pytest.raises, InputError)
    with refused(match="use secure-sum"):
        start(victim, ratings, make_defenses("paillier:ideal=true"), 0)
    with refused(match="must not be sampled"):
        start(victim, ratings, make_defenses("unrated-sampling"), 0).trained(0)
    with refused(match="lower learning_rate"):
        run = start(PDMFRec(learning_rate=5.0), ratings, [], 0)
        for number in range(60):
            run = run.trained(number)
    with refused(match="threshold of pdmfrec must be >= 1"):
        PDMFRec(threshold=0)
