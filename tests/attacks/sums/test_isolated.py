"""An active server's reading of sums against planted ratings, and against clients who compare broadcasts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attacks.sums.aggregate import Aggregate
from attacks.sums.isolated import CLEAR, HONEST, UNTARGETED, Isolated, isolated, targets_of
from audit.accounts import accounts_of
from audit.experiments.answers import answered
from audit.experiments.auditing import audit, settled
from audit.experiments.plan import Audit
from audit.factories import make_defenses, make_served, make_victim
from audit.keys import view_of
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.training import start
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

RATINGS = generate(Synthetic(users=40, items=300, ratings_per_user=12.0))
SEALED = "paillier:ideal=true"
COVERED = [
    pytest.param(update, weighting, manipulation, id=f"{update}/{weighting}/{manipulation}")
    for update, weighting, manipulation in (
        ("semi-als", "include-unrated", "suppress"),
        ("semi-als", "observed-only", "suppress"),
        ("sgd", "include-unrated", "suppress"),
        ("sgd", "observed-only", "suppress"),
        ("semi-als", "observed-only", "canary"),
    )
]


def served(update: str, weighting: str, server: str) -> Any:
    """FedMVMF under a server, honest where no name is given."""
    return make_served(make_victim("fedmvmf", {"update": update, "weighting": weighting}), server)


def seen(tmp_path, victim, defense: str, rounds: range = range(1, 7)) -> View:
    """What the server sees."""
    path = tmp_path / "r"
    record(victim, RATINGS, path, rounds=list(rounds), defenses=make_defenses(defense), seed=3)
    return view_of(open_transcript(path), getattr(victim, "text", "server"))


def recovered(view: View, table: np.ndarray) -> tuple[int, float]:
    """How many clients are answered, and the share of their answers about listed items that is right."""
    found = Isolated().attack(view, 0)
    right, n = [], 0
    for block in found.blocks:
        for user, value, kind, index in zip(
            block.users, block.value, *np.broadcast_arrays(*map(np.atleast_2d, (block.kind, block.index))),
            strict=False,
        ):  # fmt: skip
            there = ~np.isnan(value) & (kind == 0)
            right.append(np.rint(value[there]) == table[user, index[there]])
            n += bool(there.any())
    return n, float(np.concatenate(right).mean()) if n else np.nan


@pytest.mark.parametrize(("update", "weighting", "manipulation"), COVERED)
def test_targets_are_read_out_of_decrypted_sums(tmp_path, update, weighting, manipulation):
    """Ten planted clients, five in each round that is read; whom it did not target it says nothing about."""
    server = f"active-server:manipulation={manipulation},targets=10,at_once=5,first=1"
    view = seen(tmp_path, served(update, weighting, server), SEALED)
    targets = targets_of(view)
    assert targets.size == 10
    n, right = recovered(view, RATINGS.matrix().toarray())
    assert (n >= 9, right) == (True, 1.0)  # rounding of encrypted numbers may hide a small factor's
    found = Isolated().attack(view, 0)
    others = np.setdiff1d(np.arange(RATINGS.n_users), targets)
    assert {found.abstained[user] for user in others.tolist()} == {UNTARGETED}
    assert set(answered("isolated", None, view, 0).users.tolist()) == set(targets.tolist())


def test_the_rows_are_those_that_the_target_would_upload_in_the_clear(tmp_path):
    """One target, all coordinates: its honest upload, number by number, but for the rounding of 40 bits."""
    victim = served("semi-als", "observed-only", "active-server:targets=1,at_once=1,first=1")
    rows = isolated(seen(tmp_path, victim, SEALED, range(1, 2))).messages
    run = start(victim.victim, RATINGS, (), 3).trained(0)
    (upload,) = victim.victim.uploads(run.state, RATINGS, np.array([0]))
    np.testing.assert_array_equal(rows.index[0], upload.index)
    np.testing.assert_allclose(rows.gradient[0], upload.gradient, atol=1e-9)  # trained on rounded sums


def test_kept_factors_are_zero_after_two_crafted_rounds():
    """Sgd: everybody's but the targets', whose own coordinates only decay."""
    victim = served("sgd", "observed-only", "active-server:targets=3,at_once=3,first=0")
    run = start(victim, RATINGS, (), 3)
    before = np.asarray(run.state.model.client_factors)
    after = np.asarray(run.trained(0).trained(1).state.model.client_factors)
    targets = run.state.targets
    decay = 1 - 2 * victim.victim.client_learning_rate * victim.victim.lambda_factors
    assert np.abs(np.delete(after, targets, axis=0)).max() < 1e-14
    kept = np.repeat(np.eye(3, dtype=bool), 2, axis=1)
    np.testing.assert_allclose(after[targets][kept], decay**2 * before[targets][kept], rtol=1e-12)
    assert np.abs(after[targets][~kept]).max() < 1e-14


class TestCompareHashes:
    """What clients who compare notice, and what not."""

    @pytest.mark.parametrize(
        ("update", "weighting"), [("semi-als", "observed-only"), ("sgd", "include-unrated")]
    )
    def test_nothing_is_read_where_broadcasts_differ(self, tmp_path, update, weighting):
        victim = served(update, weighting, "active-server:targets=6,at_once=6,first=1")
        view = seen(tmp_path, victim, f"compare-hashes+{SEALED}")
        assert recovered(view, RATINGS.matrix().toarray())[0] == 0

    def test_a_crafted_broadcast_to_everybody_goes_through(self, tmp_path):
        server = "active-server:manipulation=canary,targets=6,at_once=6,first=1"
        view = seen(tmp_path, served("semi-als", "observed-only", server), f"compare-hashes+{SEALED}")
        assert recovered(view, RATINGS.matrix().toarray()) == (6, 1.0)

    def test_an_honest_server_sees_the_same(self, tmp_path):
        victim = served("semi-als", "observed-only", "")
        one, other = (seen(tmp_path / name, victim, name) for name in ("none", "compare-hashes"))
        np.testing.assert_array_equal(one.messages.gradient[0], other.messages.gradient[0])
        assert other.manifest.defenses == []  # so that attacks and proofs read its rows as they are
        stated = [
            accounts_of("fedmvmf", [victim], make_defenses(text), RATINGS, n_rounds=1, seed=0)[-1].accounts
            for text in ("laplace:scale=1,clip=1", "compare-hashes+laplace:scale=1,clip=1")
        ]
        assert stated[0] == stated[1]
        assert stated[0][0].lines


def test_an_honest_server_isolates_nobody(tmp_path):
    view = seen(tmp_path, served("semi-als", "include-unrated", ""), SEALED)
    assert Isolated().attack(view, 0).obstacle == HONEST
    found = Aggregate().attack(view, 0)
    assert len(found.abstained) == found.users.size == RATINGS.n_users


def test_rows_in_the_clear_need_no_active_server(tmp_path):
    view = seen(tmp_path, served("semi-als", "observed-only", "active-server:first=1"), "none")
    assert Isolated().attack(view, 0).obstacle == CLEAR


@pytest.mark.parametrize(
    ("victim", "server", "words"),
    [
        (
            ("fedmvmf", "semi-als", "include-unrated"),
            "active-server:manipulation=canary",
            "must have semi-als/observed-only",
        ),
        (("fedmf", "sgd", "observed-only"), "active-server", "must be fedmvmf"),
        (("fedmvmf", "semi-als", "observed-only"), "active-server:at_once=7", "at most the 6 factors, got 7"),
        (("fedmvmf", "semi-als", "observed-only"), "active-server:targets=1000000000", "to 999,999,999, got"),
        (("fedmvmf", "semi-als", "observed-only"), "active-server:target=7", "target"),
    ],
)
def test_what_does_not_work_is_refused(victim, server, words):
    name, update, weighting = victim
    with pytest.raises(InputError, match=words):
        start(
            make_served(make_victim(name, {"update": update, "weighting": weighting}), server), RATINGS, (), 0
        )


@pytest.mark.parametrize(
    "told", ["", "targets=9", "manipulation=suppress,targets=0,at_once=1,first=1",
             "manipulation=canary,targets=3,at_once=7,first=1"],
)  # fmt: skip
def test_a_recording_whose_adversary_says_nothing_usable_is_abstained_on(tmp_path, told):
    view = seen(tmp_path, served("semi-als", "observed-only", ""), SEALED)
    found = Isolated().attack(replace(view, adversary=f"active-server:{told}"), 0)
    assert len(found.abstained) == RATINGS.n_users
    assert "does not tell whom it targets" in found.abstained[0]


def test_an_audit_names_the_active_server_and_its_budget(tmp_path):
    """In the adversary's column, with all of its budget, though the command named a part."""
    asked = Audit(
        updates=("semi-als",), weightings=("observed-only",), attacks=("isolated", "rated-set"),
        adversary="active-server:targets=8", defenses=(SEALED,), rounds=(4, 5),
    )  # fmt: skip
    found = audit(settled(asked), lambda: RATINGS, tmp_path / "out")
    name = "active-server:manipulation=suppress,targets=8,at_once=6,first=4"
    assert {row["adversary"] for row in found.rows} == {name}
    told = {row["metric"]: row for row in found.rows if row["attack"] == "isolated"}
    assert (told["rated_rating_accuracy"]["value"], told["rated_rating_accuracy"]["n_users"]) == (1.0, 8)
    (budget,) = found.budgets
    assert "8 clients are targeted, in 2 rounds from round 4 on" in budget
    assert "they are sent zeros" in budget


def test_without_targets_anybody_is_recorded(tmp_path):
    """Every item of these is rated by several, so that nobody is targeted."""
    plan = settled(
        Audit(
            victim="fedmvmf", updates=("semi-als",), weightings=("observed-only",), users=3, rounds=(0, 1),
            adversary="active-server:manipulation=canary,first=1", attacks=("isolated",),
        )
    )  # fmt: skip
    two = generate(Synthetic(users=8, items=3, ratings_per_user=3.0, single=0.0))
    (row, *_) = audit(plan, lambda: two, tmp_path).rows
    assert (row["status"], row["reason"]) == ("not applicable", CLEAR)
