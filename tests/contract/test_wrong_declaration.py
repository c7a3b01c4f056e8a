"""A wrong declaration of the clients' rule hides nothing and makes no attack answer wrongly.

``python -m tests.soak.declarations`` tries every key on every program. Seeds are fixed. With others an attack
may answer a client about whom the rows tell it nothing with a probability of at most 0.001
(``attacks.closed_form.goodness_of_fit``).
"""

from __future__ import annotations

import pytest

from tests.oracles.client_programs import RULES, Program
from tests.soak.declarations import SEALED, WRONG, tried

READERS = ("spectral", "grid", "undeclared")
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


@pytest.mark.parametrize("rule", ["semi-als", "per-rating"])
def test_few_keys(rule, tmp_path):
    check(Program(rule, n_users=8, n_items=40), FEW, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in SEALED])
def test_every_key(rule, tmp_path):
    check(Program(rule, pull=0.05, seed=1), WRONG, tmp_path)
