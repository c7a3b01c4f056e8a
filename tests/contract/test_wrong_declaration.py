"""A wrong declaration of the clients' rule hides nothing and makes no attack answer wrongly.

``python -m tests.tools.declarations`` tries every key on every program. Seeds are fixed. With others an
attack may answer a client about whom the rows tell it nothing with a probability of at most 0.001.
"""

from __future__ import annotations

import pytest

import factorleak as fl
from tests.oracles.client_programs import RULES, Program
from tests.tools.declarations import WRONG, counted, declaration, tried, wrongly

READERS = ("spectral", "grid", "undeclared")
JUDGING = ("trajectory", "likelihood", "root-hybr")  # read less, and say so
FEW = tuple(
    change
    for change in WRONG
    if change[0] in ("order", "upload", "upload_scale", "upload_regularization", "weighting")
)

# a multiple of its factor in each row that nobody tells, where the client's factor moves between rows
UNREAD = {("per-rating", "upload_regularization")}


def check(program, changes, folder):
    told = list(tried(program, changes, READERS, folder))
    assert [one for one in told if one.wrong] == []
    for key in {one.wrong_key for one in told}:
        if program.pull and (program.rule, key.partition("=")[0]) in UNREAD:
            continue
        read = max(one.answered - one.wrong for one in told if one.wrong_key == key)
        assert read >= program.n_users / 2, key


def test_few_keys(tmp_path):
    rule = "semi-als"
    check(Program(rule, n_users=8, n_items=40), FEW, tmp_path)


@pytest.mark.parametrize(
    ("attack", "change"),
    [
        pytest.param("root-hybr", ("upload_scale", 2.0), marks=pytest.mark.thorough),
        ("root-hybr", ("lambda_factors", 0.0)),  # ends where it began, at a level of the grid
        ("likelihood", ("upload", "weights")),
    ],
)
def test_attacks_that_need_the_declaration_notice(attack, change, tmp_path):
    (told,) = tried(Program("semi-als", n_users=6, n_items=30, seed=2), (change,), (attack,), tmp_path)
    assert (told.answered, told.wrong) == (0, 0)


@pytest.mark.parametrize("attack", ["root-hybr", "likelihood"])
def test_they_answer_what_is_declared_rightly(attack, tmp_path):
    program = Program("semi-als", n_users=6, n_items=30, seed=2)
    ratings = program.record(tmp_path / "t", declaration(program))
    assert counted(fl.attack(tmp_path / "t", attack), ratings) == (6, 0)


@pytest.mark.thorough
@pytest.mark.usefixtures("optimised")
def test_noise_of_unknown_scale_does_not_hide_the_rule(tmp_path):
    """Gradient steps, declared as solutions, under noise that nobody declared, and whose scale is found."""
    program = Program("noise", n_users=10, n_items=40, seed=2, rounds=4)
    ratings = program.record(tmp_path / "t", wrongly(declaration(program), "rule", "semi-als"))
    found = fl.attack(tmp_path / "t", "likelihood")
    assert counted(found, ratings) == (10, 0)
    assert "gradient steps of another size" in found.options["declared_rule"]
    assert found.options["noise"] == pytest.approx(0.5, rel=0.05)  # of rows twice as long


@pytest.mark.thorough
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("rule", RULES[:-1])  # the last is noise, above
def test_no_attack_that_follows_the_rule_is_wrong(rule, tmp_path):
    """Each rule under some keys, so that all of those are tried; the tool tries all with all."""
    program = Program(rule, n_users=4, n_items=30, seed=2, rounds=4)
    told = tried(program, WRONG[RULES.index(rule) :: len(RULES) - 1], JUDGING, tmp_path)
    assert [one for one in told if one.wrong] == []


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["sgd-mean", "per-rating"])
def test_every_key(rule, tmp_path):
    check(Program(rule, n_users=10, n_items=40, pull=0.05, seed=1), WRONG, tmp_path)
