"""F-NCF and F-LightGCN beside a plain program of one client, and the attacks on what they upload."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from audit.experiments.recordings import lists_open, uploads_name_lists
from audit.factories import make_defenses, make_victim
from audit.scoring.truth import read_truth
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.fedrec import NETWORK, widths_of
from victims.recording import record
from victims.training import sent_rows, start
from victims.transcript.beside import truth_path
from victims.transcript.manifest import ClientRule
from victims.transcript.reader import open_transcript

SCORERS = ("ncf", "lightgcn")


def implicit(n_users: int, n_items: int, seed: int) -> Ratings:
    """Interactions, eight to a user or so, of one size class: what is compiled is compiled once."""
    found = generate(Synthetic(n_users, n_items, ratings_per_user=9.0, single=0.0, seed=seed))
    nothing = np.zeros((n_users, 0))
    return replace(
        found, values=np.ones_like(found.values), levels=(1.0,), attributes=nothing, attribute_groups=(),
        attribute_names=(),
    )  # fmt: skip


def numeric_step(scorer: str, widths, client, label, rate: float, mu: float):
    """One step of Adam from finite differences of a loss that is written down once more."""
    sizes = [part.size for part in client]
    flat = np.concatenate([part.ravel() for part in client]).astype(np.float64)
    start_rows = client[1].astype(np.float64)

    def loss(point: np.ndarray) -> float:
        u, v, w = np.split(point, np.cumsum(sizes)[:-1])
        v = v.reshape(start_rows.shape)
        anchor = mu * ((v - start_rows) ** 2).sum()
        if scorer == "lightgcn":
            n = label.sum()
            u, v = (u + v[label].sum(0) / np.sqrt(n)) / 2, (v + label[:, None] * u / np.sqrt(n)) / 2
        total = 0.0
        for row, y in zip(v, label, strict=True):
            x, at = np.concatenate([u, row]), 0
            for depth, (a, b) in enumerate(pairwise(widths)):
                x = x @ w[at : at + a * b].reshape(a, b) + w[at + a * b : at + (a + 1) * b]
                at += (a + 1) * b
                x = np.maximum(x, 0) if depth < len(widths) - 2 else x
            total += np.log1p(np.exp(-x[0])) if y else np.log1p(np.exp(x[0]))
        return total / label.size + anchor

    one = 1e-6 * np.eye(flat.size)
    slope = np.array([(loss(flat + d) - loss(flat - d)) / 2e-6 for d in one])
    return -rate * slope / (np.abs(slope) + 1e-8), sizes  # Adam's first step


@pytest.mark.parametrize("scorer", SCORERS)
def test_one_step_is_that_of_a_plain_program(scorer: str):
    """Rows, network and client after one step over all samples, with the proximal term beside."""
    ratings = implicit(3, 20, 4)
    victim = make_victim(
        "fedrec",
        {"scorer": scorer, "factors": 4, "local_steps": 1, "batch_size": "all", "learning_rate": 0.01,
         "negatives": 2, "proximal": 0.3},
    )  # fmt: skip
    run = start(victim, ratings, (), 5)
    state, after = run.state, run.trained(0).state
    mine = slice(state.samples.start[1], state.samples.start[2])
    items, label = state.samples.item[mine], state.samples.label[mine]
    client = state.client_factors[1], state.item_factors[items], state.network
    step, sizes = numeric_step(scorer, widths_of(4, 2), client, label, 0.01, 0.3)
    own, rows, network = np.split(step, np.cumsum(sizes)[:-1])
    (sent,) = sent_rows(run, np.array([1]), 0)
    assert sent.index.tolist() == items.tolist()
    assert sorted(items[label]) == ratings.items[ratings.indptr[1] : ratings.indptr[2]].tolist()
    told = list(victim.shared_rows(state, ratings, np.array([1])))[1].value.ravel()[: network.size]
    for found, expected in (
        (sent.gradient.ravel(), rows), (told, network), (after.client_factors[1] - client[0], own),
    ):  # fmt: skip
        clear = np.abs(expected) > 9e-3  # elsewhere the gradient is about 0, and its sign rounding
        assert clear.mean() > 0.2
        assert np.abs(found - expected)[clear].max() < 5e-4


@pytest.fixture(scope="module", params=SCORERS)
def recorded(request, tmp_path_factory):
    """Forty clients of one round, all of whom take part."""
    path = tmp_path_factory.mktemp(request.param) / "r"
    victim = make_victim("fedrec", {"scorer": request.param, "factors": 16, "batch_size": 32})
    record(victim, implicit(40, 120, 2), path, rounds=[0])
    return path


def f1_of(path: Path, found) -> tuple[float, float]:
    """F1 of the positives, and its baseline."""
    row = fl.score(found, transcript=path).set_index("metric").loc["rated_set_f1"]
    return row["value"], row["baseline"]


def test_positives_are_recovered(recorded: Path):
    """By simulated clients, and better by directions of rows and by labels, which know of no network."""
    imia, base = f1_of(recorded, fl.attack(recorded, "imia", progress=False))
    ranked, _ = f1_of(recorded, fl.attack(recorded, "imia", compare="direction", progress=False))
    ours, _ = f1_of(recorded, fl.attack(recorded, "rated-set", progress=False))
    assert base < 0.35
    assert 0.6 < imia < min(ranked, ours)
    assert min(ranked, ours) > 0.9


def test_uploads_with_negatives_do_not_name_positives(recorded: Path):
    opened = open_transcript(recorded)
    assert not uploads_name_lists(opened.manifest, ())
    assert not lists_open(opened.view("server"))


def test_permuted_uploads_are_at_chance(recorded: Path):
    """A fifth of a list is positive, and a fifth is called so: F1 is 0.2, here below 0.3.

    About 380 of 1,900 rows are called positive and 76 rightly so, with a standard deviation below 8; a mean
    F1 of 0.3 is four of them away: by chance once in 30,000 views.
    """
    view = open_transcript(recorded).view("server").shuffled(3)
    found = fl.attack(view, "imia", progress=False)
    assert f1_of(recorded, found)[0] < 0.3


def test_the_network_is_recorded_and_told(recorded: Path):
    view = open_transcript(recorded).view("server")
    told = view.told[NETWORK]
    n_rows = -(-sum((a + 1) * b for a, b in pairwise(widths_of(16, 2))) // 16)
    assert (told.sender < 0).sum() == n_rows
    assert told.numbers.shape == (41 * n_rows, 16)
    deeper = {**view.manifest.declared_rule.model_dump(), "hidden_layers": 3}
    forged = replace(view, manifest=view.manifest.model_copy(update={"declared_rule": ClientRule(**deeper)}))
    assert "correct hidden_layers" in fl.attack(forged, "imia", progress=False).obstacle
    without = replace(view, told={})
    assert "no scorer or network" in fl.attack(without, "imia", progress=False).obstacle


def test_the_server_averages_what_defenses_leave():
    """An item's step is the mean over all who take part of what arrives, noise included."""
    ratings = implicit(12, 40, 3)
    victim = make_victim("fedrec", {"factors": 4, "local_steps": 1, "participation": 0.5})
    for text in ("none", "gaussian:scale=0.1"):
        run = start(victim, ratings, make_defenses(text), 1)
        rows = list(sent_rows(run, np.arange(12), 0))
        sums = np.zeros((40, 4))
        for some in rows:
            np.add.at(sums, some.index, some.gradient)
        moved = run.trained(0).state.item_factors - run.state.item_factors
        assert len({int(s) for some in rows for s in some.sender}) == 6
        assert np.abs(moved - sums / 6).max() < 1e-6


def test_it_learns():
    """After some rounds clients rank what they used above what they did not."""
    ratings = implicit(30, 60, 6)
    run = start(make_victim("fedrec", {"factors": 8, "learning_rate": 0.01}), ratings, (), 0)
    seen = ratings.matrix().toarray() > 0
    for round_ in range(12):
        run = run.trained(round_)
    scores = run.predictor(0).scores(np.arange(30))
    above = [(own[mine][:, None] > own[~mine]).mean() for own, mine in zip(scores, seen, strict=True)]
    assert np.mean(above) > 0.65
    assert (run.predictor(0).pairs(np.array([4, 2]), np.array([7, 9])) == scores[[4, 2], [7, 9]]).all()


def test_stars_are_interactions(tmp_path: Path):
    """Truth and usefulness are about what it learns from, and no network has a layer without units."""
    stars = generate(Synthetic(20, 40, seed=5))
    path = tmp_path / "recorded"
    record(make_victim("fedrec", {"factors": 4}), stars, path, rounds=[0])
    assert (read_truth(truth_path(path)).ratings.data == 1).all()
    found = fl.compare("none", stars, victim="fedrec", factors=4, users=5, rounds=[0, 1], trained=1, runs=1)
    of = found.set_index("metric")
    assert "rmse" not in of.index
    assert of.loc["ndcg_at_10", "value"] < 0.9
    assert of.loc["ndcg_at_10", "reason"].startswith("among all items")
    asked = fl.audit(stars, victim="fedrec", factors=4, attacks="guess-majority", rounds=[0])
    assert "rated_rating_accuracy" not in set(asked["metric"])
    with pytest.raises(InputError, match="hidden_layers of fedrec must be at most 2 where factors is 3"):
        make_victim("fedrec", {"factors": 3, "hidden_layers": 3})
