"""Noise that is the same in every round, as a program draws it that seeds its generator anew."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.uploads.repeated_noise import noise_repeats
from audit.scoring.decoder import obstacle
from audit.scoring.truth import read_truth
from victims.transcript.beside import truth_path

K, ITEMS, CLIENTS, RATE = 6, 40, 30, 0.02
RULE = {
    "rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum",
    "upload": "gradient", "loss": "squared", "link": "identity", "clip": "none", "start": "kept",
}  # fmt: skip


def recorded(
    path, *, b=1.0, fresh=False, scale=-2.0, mean=False, rounds=6, seed=0, declared=None, part=1.0,
    learned=lambda stars: stars, used=None,
):  # fmt: skip
    """A stranger's federated factorisation whose clients add Laplace noise, and every rating by client.

    ``learned`` of a rating is what is learned, and ``used`` draws the levels of a client, five by default.

    In every round a client takes part with a random ``part`` of its items; the noise is of client and item.
    """
    rng = np.random.default_rng(seed)
    items, users = (rng.normal(0, 0.4, (n, K)) for n in (ITEMS, CLIENTS))
    lists = [np.sort(rng.choice(ITEMS, rng.integers(6, 15), replace=False)) for _ in range(CLIENTS)]
    draw = (lambda n: rng.integers(1, 6, n)) if used is None else (lambda n: rng.choice(used(rng), n))
    ratings = [draw(rated.size).astype(float) for rated in lists]
    with fl.Recorder(path, rating_levels=[1, 2, 3, 4, 5], **(declared or {})) as recorder:
        for client in range(CLIENTS):
            recorder.truth(client, lists[client], ratings[client])
        for number in range(rounds):
            recorder.broadcast(number, items)
            step = np.zeros_like(items)
            for client, whole in enumerate(lists):
                now = np.random.default_rng((number, client, 1)).random(whole.size) < part
                rated, u = whole[now], users[client]
                q = items[rated]
                error = learned(ratings[client][now]) - q @ u
                rows = scale * error[:, None] * u / (rated.size if mean else 1)
                noise = np.random.default_rng((number, client) if fresh else client)
                rows += noise.laplace(0, b, (whole.size, K))[now]
                recorder.upload(number, client, rows, items=rated)
                step[rated] += error[:, None] * u
                users[client] = (1 - 0.02 * RATE) * u + 2 * RATE * error @ q
            items = items + RATE / 10 * step
    return fl.open_transcript(path)


def verdict(transcript, attack):
    """Value and verdict of the rated ratings."""
    return verdict_on(fl.attack(transcript, attack), transcript)


def verdict_on(found, transcript):
    """The same of an answer."""
    scores = fl.score(found, transcript=transcript).set_index("metric")
    return scores.loc["rated_rating_accuracy", ["value", "verdict"]].tolist()


DECLARED = {"rule": RULE, "constants": {"client_learning_rate": RATE, "lambda_factors": 0.01}}


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"b": 10.0, "mean": True},
        {"scale": 0.01},
        {"declared": DECLARED | {"constants": DECLARED["constants"] | {"upload_scale": -2.0}}},
        {"declared": DECLARED | {"constants": DECLARED["constants"] | {"upload_scale": 1.0}}},
        {"declared": {"rule": {"rule": "semi-als"}, "constants": {"lambda_factors": 0.1}}},
    ],
    ids=["nothing declared", "mean", "little", "declared", "another scale", "another rule"],
)
def test_differences_are_free_of_it_whatever_is_declared(tmp_path, program):
    transcript = recorded(tmp_path / "once", **program)
    assert noise_repeats(transcript.view("server"))
    value, said = verdict(transcript, "trajectory")
    assert value == 1.0
    assert said == "LEAK"


@pytest.mark.parametrize("b", [1.0, 30.0])
def test_items_in_common_are_enough_where_lists_change(tmp_path, b):
    """Nine tenths of its items by chance in every round: two thirds are in all of four, and read."""
    transcript = recorded(tmp_path / "once", b=b, part=0.9)
    assert noise_repeats(transcript.view("server"))
    found = fl.attack(transcript, "trajectory")
    ratings = read_truth(truth_path(tmp_path / "once")).ratings.toarray()
    user, _, item, value, _ = (np.concatenate(column) for column in zip(*found.rows(), strict=True))
    assert len(found.abstained) <= 8  # those with fewer than four items in common
    assert user.size > 0.5 * (ratings > 0).sum()
    np.testing.assert_array_equal(np.round(value), ratings[user, item])


def test_fresh_noise_under_changing_lists_does_not_repeat(tmp_path):
    transcript = recorded(tmp_path / "other", fresh=True, part=0.9)
    assert not noise_repeats(transcript.view("server"))
    assert len(fl.attack(transcript, "trajectory").abstained) == CLIENTS


@pytest.mark.parametrize("program", [{"fresh": True}, {"b": 0.0}], ids=["fresh", "none"])
def test_other_noise_does_not_repeat(tmp_path, program):
    transcript = recorded(tmp_path / "other", **program)
    assert not noise_repeats(transcript.view("server"))
    found = fl.attack(transcript, "trajectory")
    if program.get("fresh"):
        assert len(found.abstained) == CLIENTS


@pytest.mark.thorough
def test_likelihood_reads_one_round_of_it(tmp_path):
    constants = DECLARED["constants"] | {"upload_scale": -2.0}
    transcript = recorded(tmp_path / "once", b=0.5, declared=DECLARED | {"constants": constants})
    found = fl.attack(transcript, "likelihood")
    assert found.options["rounds_read"] == [5]
    claimed = np.concatenate([block.probability[~np.isnan(block.value)] for block in found.blocks])
    assert verdict_on(found, transcript)[0] > claimed.mean() - 0.05


def test_there_is_no_ceiling_of_fresh_noise(tmp_path):
    constants = DECLARED["constants"] | {"upload_scale": -2.0}
    transcript = recorded(tmp_path / "once", declared=DECLARED | {"constants": constants})
    assert "the same in several rounds" in obstacle(transcript.view("server"))


def test_one_round_tells_nothing(tmp_path):
    assert not noise_repeats(recorded(tmp_path / "once", rounds=1).view("server"))
