"""Noise that is the same in every round, as a program draws it that seeds its generator anew."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.repeated_noise import noise_repeats
from audit.scoring.ceiling import obstacle

K, ITEMS, CLIENTS, RATE = 6, 40, 30, 0.02
RULE = {
    "rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum",
    "upload": "gradient", "loss": "squared", "link": "identity", "clip": "none", "start": "kept",
}  # fmt: skip


def recorded(path, *, b=1.0, fresh=False, scale=-2.0, mean=False, rounds=6, seed=0, declared=None):
    """A stranger's federated factorisation whose clients add Laplace noise, and every rating by client."""
    rng = np.random.default_rng(seed)
    items, users = (rng.normal(0, 0.4, (n, K)) for n in (ITEMS, CLIENTS))
    lists = [np.sort(rng.choice(ITEMS, rng.integers(6, 15), replace=False)) for _ in range(CLIENTS)]
    ratings = [rng.integers(1, 6, rated.size).astype(float) for rated in lists]
    with fl.Recorder(path, rating_levels=[1, 2, 3, 4, 5], **(declared or {})) as recorder:
        for client in range(CLIENTS):
            recorder.truth(client, lists[client], ratings[client])
        for number in range(rounds):
            recorder.broadcast(number, items)
            step = np.zeros_like(items)
            for client, rated in enumerate(lists):
                q, u = items[rated], users[client]
                error = ratings[client] - q @ u
                rows = scale * error[:, None] * u / (rated.size if mean else 1)
                noise = np.random.default_rng((number, client) if fresh else client)
                recorder.upload(number, client, rows + noise.laplace(0, b, rows.shape), items=rated)
                step[rated] += error[:, None] * u
                users[client] = (1 - 0.02 * RATE) * u + 2 * RATE * error @ q
            items = items + RATE / 10 * step
    return fl.open_transcript(path)


def verdict(transcript, attack):
    """Value and verdict of the rated ratings."""
    scores = fl.score(fl.attack(transcript, attack), transcript=transcript).set_index("metric")
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
    assert verdict(transcript, "likelihood")[0] > claimed.mean() - 0.05


def test_there_is_no_ceiling_of_fresh_noise(tmp_path):
    constants = DECLARED["constants"] | {"upload_scale": -2.0}
    transcript = recorded(tmp_path / "once", declared=DECLARED | {"constants": constants})
    assert "the same in several rounds" in obstacle(transcript.view("server"))


def test_one_round_tells_nothing(tmp_path):
    assert not noise_repeats(recorded(tmp_path / "once", rounds=1).view("server"))
