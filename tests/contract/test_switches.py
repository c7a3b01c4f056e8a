"""Every victim of the registry takes every switch, or refuses it with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from audit.factories import make_victim
from audit.registry import BUILT_IN
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.training import sent_rows, start

BY_RATING, AT_ONCE = {"order": "per-rating"}, {"order": "batch"}
SWITCHES = {  # each with what it needs to mean something
    "order=batch": AT_ONCE,
    "order=per-rating": BY_RATING,
    "local_steps": {"local_steps": "2"},
    "batch_size": AT_ONCE | {"batch_size": "3"},
    "shuffle=never": BY_RATING | {"shuffle": "never"},
    "shuffle=once": BY_RATING | {"shuffle": "once"},
    "shuffle=rounds": BY_RATING | {"shuffle": "rounds"},
    "reduction": AT_ONCE | {"reduction": "mean"},
    "upload=gradient": {"upload": "gradient"},
    "upload=delta": {"upload": "delta"},
    "upload=weights": {"upload": "weights"},
    "row_factor": BY_RATING | {"row_factor": "after"},
    "participation": {"participation": "0.5"},
    "dropout": {"dropout": "0.5"},
    "biases=items": {"biases": "items"},
    "biases=both": {"biases": "both"},
}
SOLVED = "in semi-als clients solve for their factor"
COPY = "a row is the gradient by which its sender steps its own copy"
BIAS = "a row about a bias would be the error itself"
IN_TURN = "the recommender steps at every upload"
PEERS = {"row_factor": COPY, "biases=items": BIAS, "biases=both": BIAS}
VICTIMS = {  # other options, and the switches that are refused, with the reason
    "fedmvmf": ({"update": "sgd"}, {}),
    "fedmvmf semi-als": (
        {"update": "semi-als"},
        dict.fromkeys(
            (
                "order=per-rating",
                "local_steps",
                "batch_size",
                "shuffle=never",
                "shuffle=once",
                "shuffle=rounds",
                "row_factor",
                "biases=items",
                "biases=both",
            ),
            SOLVED,
        ),
    ),
    "fedmf": ({}, {}),
    "decentralised-mf": ({}, {"shuffle=once": IN_TURN, "shuffle=rounds": IN_TURN, "row_factor": IN_TURN}),
    "pdmfrec": ({}, PEERS),
    "dpmf-yang": ({}, PEERS),
    "dmf": ({}, PEERS),
    "fedrec": (
        {},
        {
            "order=per-rating": "draws minibatches anew",
            "shuffle=never": "draws minibatches anew",
            "shuffle=once": "draws minibatches anew",
            "shuffle=rounds": "draws minibatches anew",
            "upload=gradient": "Adam moves the rows",
            "upload=weights": "Adam moves the rows",
            "row_factor": "draws minibatches anew",
            "biases=items": "a network scores the items",
            "biases=both": "a network scores the items",
        },
    ),
}


@pytest.fixture(scope="module")
def few():
    return generate(Synthetic(users=8, items=12, ratings_per_user=5.0, seed=3))


def test_the_table_has_every_victim():
    assert {name.split()[0] for name in VICTIMS} == set(BUILT_IN["victims"])


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("name", VICTIMS)
def test_taken_or_refused(few, name, switch):
    options, refused = VICTIMS[name]
    options = options | {"factors": "3"} | SWITCHES[switch]
    if switch in refused:
        with pytest.raises(InputError, match=refused[switch]):
            make_victim(name.split()[0], options)
        return
    run = start(make_victim(name.split()[0], options), few, (), 1)
    senders = {int(s) for rows in sent_rows(run, np.arange(few.n_users), 0) for s in rows.sender}
    assert len(senders) == (few.n_users // 2 if switch in ("participation", "dropout") else few.n_users)
    assert run.trained(0).state.round == 1
    rule = run.victim.manifest(few, [0]).rule
    for key, value in SWITCHES[switch].items():
        if key in ("order", "local_steps", "reduction", "upload"):
            assert str(getattr(rule, key)) == value
