"""Several passes over the ratings, with a step after every rating or minibatch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attacks.inversion.answers import Found
from attacks.inversion.attack import Inversion
from attacks.inversion.clients import open_clients
from attacks.inversion.momentum_starts import kinds
from attacks.inversion.passes import asked, block_size, in_order
from tests.attacks.inversion.test_inversion import score
from tests.oracles.pass_programs import Passer, Passes
from victims.transcript.reader import open_transcript


@pytest.mark.thorough
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(
            Passer(batch=4, mean=True, rate=0.02, momentum=0.7, nesterov=True, decay=0.1),
            marks=pytest.mark.thorough,
        ),
        pytest.param(Passer(passes=1, momentum=0.8, coasts=False), marks=pytest.mark.thorough),
    ],
    ids=[
        "minibatches, Nesterov, decay",
        "one pass, the factor alone",
    ],
)
def test_passes_with_momentum_that_nobody_declared_are_read(client: Passer, tmp_path: Path):
    """In the order of the rows; nobody was answered before."""
    ratings = Passes(client, shuffled=True, n_users=4).record(tmp_path / "t")
    found = Inversion("momentum-passes").attack(open_transcript(tmp_path / "t").view("server"), 0)
    right, wrong = score(found, ratings)
    assert wrong == 0
    assert right >= 0.8 * (ratings > 0).sum()
    assert found.options["hypothesis"].startswith(f"{client.passes} passes with momentum")
    assert ("Nesterov" in found.options["hypothesis"]) == client.nesterov


def test_passes_without_momentum_are_not_fitted_with_any(tmp_path: Path):
    """The drift of the directions says that there is none, before any fit."""
    for name, client in (("plain", Passer()), ("with it", Passer(momentum=0.9, rate=0.003))):
        Passes(client, shuffled=True).record(tmp_path / name)
        view = open_transcript(tmp_path / name).view("server")
        parts = (in_order(*part) for part in open_clients(view, Found(view), 1))
        rows = asked(
            sorted((group for part in parts for group in part), key=lambda one: one.rows.item.shape[1])
        )
        assert bool(kinds(rows, 1, (1.0, 2.0, 3.0, 5.0))) == (name == "with it")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "rule", "declared"),
    [
        (Passes(shuffled=True), "any", {}),
        pytest.param(
            Passes(Passer(batch=4, decay=0.1)),
            "any",
            {"batch_size": 4, "local_steps": 3, "upload": "delta"},
            marks=pytest.mark.thorough,
        ),
        (Passes(Passer(loss="sigmoid", rate=0.05)), "sigmoid", {"order": "per-rating", "local_steps": 3}),
    ],
    ids=["per rating, order seen", "minibatches by item", "sigmoid"],
)
def test_passes_are_read(program: Passes, rule: str, declared: dict, tmp_path: Path):
    """By the order of the rows, and where that is not seen by that of the items; every answer is right."""
    ratings = program.record(tmp_path / "t", declared)
    found = Inversion(rule).attack(open_transcript(tmp_path / "t").view("server"), 0)
    right, wrong = score(found, ratings)
    assert wrong == 0
    assert right >= 0.8 * (ratings > 0).sum()
    assert found.options["hypothesis"].startswith("3 passes")


def test_another_order_explains_nothing(tmp_path: Path):
    """Rows in the order of the items, ratings gone through in another: abstention, and a reason."""
    program = Passes(shuffled=True)
    program.record(tmp_path / "t", {"local_steps": 3, "order": "per-rating"})
    view = open_transcript(tmp_path / "t").view("server")
    hidden = view.__class__(
        **{
            **view.__dict__,
            "messages": view.messages.__class__(**{**view.messages.__dict__, "sequence": None}),
        }
    )
    found = Inversion("per-rating").attack(hidden, 0)
    assert not found.blocks
    assert all("in the order of the rows" in reason for reason in found.abstained.values())


def test_minibatches_show_in_the_ranks_of_rows():
    """Two passes: rows of one minibatch have two directions, those of two have four."""
    from attacks.closed_form.uploads.readings import Rows

    rng = np.random.default_rng(0)
    v, u, r = rng.normal(0, 0.5, (22, 6)), rng.normal(0, 0.5, 6), rng.integers(1, 6, 22) * 1.0
    for batch in (1, 5):
        rows, _ = Passer(0.02, 2, batch).train(u, v, r, np.arange(1.0, 6.0))
        none, every = np.zeros((1, 22)), np.ones((1, 22), bool)
        assert block_size(Rows(rows[None], v[None], none, every, np.ones(1), 2e-16, None)) == batch


def test_no_pass_starts_where_predictions_are_on_the_flat_of_a_sigmoid(tmp_path: Path):
    """Factors so long that the slope is 0 in floating point: it was divided by."""
    from attacks.client_rules.local_passes import LocalPasses
    from attacks.closed_form.uploads.readings import Rows
    from attacks.inversion.guess import Guess
    from attacks.inversion.pass_starts import pass_starts

    Passes().record(tmp_path / "t", {})
    rule = LocalPasses(1, "sigmoid")
    family = rule.families(open_transcript(tmp_path / "t").manifest)[0]
    rng = np.random.default_rng(0)
    v, u = rng.normal(0, 100, (8, 4)), rng.normal(0, 1, 4)
    sent = rng.normal(0, 1, (1, 8, 1)) * u
    rows = Rows(sent, v[None], np.zeros((1, 8)), np.ones((1, 8), bool), np.ones(1), 2e-16, None)
    found = pass_starts(rows, np.ones(1), rule, Guess(family, 2.0))
    assert np.isfinite(found.factor).all()
