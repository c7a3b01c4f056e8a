"""Steps of Adam between broadcast and upload, of recordings that declare nothing."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import factorleak as fl
from attacks.client_rules.adaptive_steps import ADAM
from attacks.closed_form.adaptive import adaptive_choice
from attacks.closed_form.adaptive.adaptive_choice import IN_VAIN, PER_STEP
from attacks.closed_form.adaptive.adaptive_fit import Fit, Rule
from attacks.closed_form.adaptive.adaptive_numbers import Own
from attacks.closed_form.adaptive.adaptive_recording import NOT_FITTED, ONE_STEP, OPEN_ENDS
from factorleak import plugins
from tests.oracles.adaptive_client import AdaptiveClient


def score(found: fl.Reconstruction, truth: np.ndarray) -> tuple[int, int]:
    """Clients answered, and wrong ratings."""
    wrong = sum(
        int((np.abs(one["value"] - truth[one["user"], one["index"]]) > 0.1).sum()) for one in found.columns()
    )
    return len(truth) - len(found.abstained), wrong


@pytest.mark.parametrize(
    ("client", "attack", "n", "least"),
    [
        (AdaptiveClient("rmsprop", rate=0.001), plugins.Inversion("rmsprop"), 8, 7),
        pytest.param(AdaptiveClient("adagrad"), "undeclared", 5, 3, marks=pytest.mark.thorough),
        pytest.param(AdaptiveClient(steps=3, rate=0.005), "undeclared", 5, 2, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_steps_are_read(tmp_path, client, attack, n, least):
    """Of a few clients; none wrongly."""
    truth = client.recorded(tmp_path / "t", n, 0, weights=client.mean)
    answered, wrong = score(fl.attack(tmp_path / "t", attack), truth)
    assert answered >= least
    assert wrong == 0


@pytest.fixture
def few_fits(monkeypatch):
    """Where nothing fits, less is tried than usual."""
    monkeypatch.setattr(adaptive_choice, "Effort", partial(adaptive_choice.Effort, IN_VAIN // 4))


@pytest.mark.thorough
@pytest.mark.usefixtures("few_fits")
def test_another_optimizer_than_the_declared_one_is_not_answered(tmp_path):
    AdaptiveClient("adagrad").recorded(tmp_path / "t", 8, 0)
    found = fl.attack(tmp_path / "t", plugins.Inversion("rmsprop"))
    assert set(found.abstained.values()) == {NOT_FITTED}


def test_one_step_is_not_answered_in_single_precision(tmp_path):
    AdaptiveClient(steps=1).recorded(tmp_path / "t", 3, 0, dtype=np.float32)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert set(found.abstained.values()) == {ONE_STEP}
    assert not any(np.isfinite(one["value"]).any() for one in found.columns())


@pytest.mark.thorough
def test_what_nothing_fits_ends(tmp_path, monkeypatch):
    """The rule is looked for with a number of steps of entries, however large clients are."""
    work = []
    monkeypatch.setattr(
        adaptive_choice,
        "fitted",
        lambda own, rule, **_: work.append(rule.n_steps * (PER_STEP + own.rows.size)),
    )
    AdaptiveClient().recorded(tmp_path / "t", 8, 0, factors=20)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert set(found.abstained.values()) == {NOT_FITTED}
    assert IN_VAIN - max(work) < sum(work) <= IN_VAIN


def test_clients_that_are_told_pay_for_others(tmp_path, monkeypatch):
    """Of those who are all told, all are asked; where one in three is, the last are not."""
    one = 2 * (PER_STEP + 20 * 5)
    monkeypatch.setattr(adaptive_choice, "fitted", lambda own, rule, **_: next(answers))
    none, own = (
        np.zeros(20),
        Own(np.zeros((20, 5)), np.zeros((20, 5)), np.zeros(20), np.arange(1.0, 6.0), 0.0),
    )
    effort, rule = adaptive_choice.Effort(3 * one), Rule(ADAM, 2, 0.01)
    told = Fit(none, np.zeros(5), np.zeros(5), left=0.0, allowed=0.0, sure=True)
    answers = iter([told] * 30)
    assert all(effort.fitted(own, rule) for _ in range(30))
    answers = iter([None, None, told] * 30)
    effort = adaptive_choice.Effort(3 * one)
    assert sum(effort.fitted(own, rule) is not None for _ in range(90)) < 5


@pytest.mark.thorough
@pytest.mark.usefixtures("few_fits")
def test_ratings_less_a_number_are_not_answered(tmp_path):
    """Less 1 they are levels for those without the lowest; nobody has the highest then."""
    truth = AdaptiveClient(less=1.0).recorded(tmp_path / "t", 3, 5)
    assert (np.min(np.where(truth > 0, truth, 9), axis=1) == 1).all()
    found = fl.attack(tmp_path / "t", "undeclared")
    assert len(found.abstained) == 3


def test_nobody_is_answered_without_both_ends_of_the_grid(tmp_path):
    """The client is read; that its ratings are not all one less, nothing tells."""
    client = AdaptiveClient()
    rng = np.random.default_rng(3)
    v, r = rng.normal(0, 0.3, (12, 5)), rng.integers(2, 5, 12).astype(float)
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0, 2.0, 3.0, 4.0, 5.0]) as recorder:
        recorder.broadcast(0, v)
        recorder.upload(0, 0, client.change(rng.normal(0, 0.3, 5), r, v), np.arange(12))
    assert fl.attack(tmp_path / "t", "undeclared").abstained == {0: OPEN_ENDS}
