"""What attacks assume of the clients' rule, against what is declared and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.experiments.answers import answered
from tests.oracles.simulator import Reference
from victims.transcript.manifest import ClientRule
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

FOLLOWERS = ("spectral", "trajectory", "eq24-corrected", "root-hybr")
WITHOUT_JUDGEMENT = ("likelihood", "root-hybr")


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> View:
    """A server's view of gradient steps, everything declared."""
    folder = tmp_path_factory.mktemp("premises") / "t"
    Reference("sgd", groups=(), rounds=(1, 2), scale=1.0).write(folder)
    return open_transcript(folder).view("server")


def declaring(view: View, **changes: object) -> View:
    """The same view with other keys of the rule; None leaves one out."""
    rule = ClientRule.model_validate(view.manifest.rule.model_dump() | changes)
    manifest = view.manifest.model_copy(update={"version": 2, "declared_rule": rule})
    return replace(view, manifest=manifest)


@pytest.mark.parametrize("name", FOLLOWERS)
def test_factors_that_begin_anew_are_not_followed(seen, name):
    found = answered(name, None, declaring(seen, start="fresh"), 0)
    assert found.abstained.keys() == set(seen.users.tolist())
    assert "begins anew in every round (start fresh), which this attack does not model" in found.obstacle


@pytest.mark.parametrize("key", ["link", "clip"])
@pytest.mark.parametrize("name", WITHOUT_JUDGEMENT)
def test_what_does_not_judge_asks_for_the_rule(seen, name, key):
    found = answered(name, None, declaring(seen, **{key: None}), 0)
    assert f"not declared ({key})" in found.obstacle


@pytest.mark.parametrize(
    ("name", "options"),
    [("eq24-corrected", {"answer": "any"}), pytest.param("root-hybr", None, marks=pytest.mark.thorough)],
)
def test_and_for_the_start_where_it_follows_factors(seen, name, options):
    assert "not declared (start)" in answered(name, options, declaring(seen, start=None), 0).obstacle
    assert not answered(name, options, declaring(seen), 0).obstacle


def test_who_judges_its_answer_needs_no_declared_start(seen):
    assert not answered("eq24-corrected", None, declaring(seen, start=None), 0).obstacle


@pytest.mark.parametrize("start", [None, "fresh"])
def test_the_decoder_reads_each_round_by_itself(seen, start):
    """Nothing ties the factors of two rounds, so it answers as if nothing was known of the client's step."""
    found = answered("likelihood", None, declaring(seen, start=start), 0)
    assert not found.obstacle
