"""Adaptive optimizers: fits of several steps, and recordings."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import factorleak as fl
from attacks.client_rules.adaptive_steps import ADAM
from attacks.inversion.adaptive import adaptive_choice
from attacks.inversion.adaptive.adaptive_choice import IN_VAIN, PER_STEP
from attacks.inversion.adaptive.adaptive_fit import Fit, Rule, fitted
from attacks.inversion.adaptive.adaptive_numbers import Own
from attacks.inversion.adaptive.adaptive_recording import NOT_FITTED, ONE_STEP, OPEN_ENDS
from factorleak import plugins
from tests.oracles.adaptive_client import LEVELS, AdaptiveClient

# Ratings and factor of single clients that take steps of Adam, fitted when the rule is known.


EPS = 2.0**-52


def answers(
    client: AdaptiveClient, rule: Rule, seeds: range, n: int, k: int, digits: type = float
) -> tuple[int, int]:
    """How many clients are told, and how many of these with any wrong rating."""
    told = wrong = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        u, v, r = rng.normal(0, 0.3, k), rng.normal(0, 0.3, (n, k)), rng.choice(LEVELS, n)
        rows = (client.change(u, r, v) + v).astype(digits).astype(float) - v
        digit = float(np.finfo(digits).eps) * np.abs(v).max() / np.abs(rows).max()
        fit = fitted(Own(rows, v, np.zeros(n), np.array(LEVELS), digit), rule)
        if fit is not None and fit.told:
            told += 1
            wrong += not np.array_equal(fit.ratings, r)
    return told, wrong


@pytest.mark.parametrize("rate", [0.002, 0.01, 0.1])
def test_two_steps(rate):
    """Most, and none wrongly."""
    told, wrong = answers(AdaptiveClient(rate=rate), Rule(ADAM, 2, rate), range(8), 15, 5)
    assert told >= 4
    assert wrong == 0


def test_more_steps():
    """About half of clients."""
    told, wrong = answers(AdaptiveClient(steps=4, rate=0.005), Rule(ADAM, 4, 0.005), range(6), 15, 4)
    assert told >= 2
    assert wrong == 0


def test_few_digits_are_not_answered_wrongly():
    """Single precision, and a rate that leaves next to nothing of the ratios."""
    for rate in (0.001, 0.02):
        _, wrong = answers(AdaptiveClient(rate=rate), Rule(ADAM, 2, rate), range(4), 15, 5, np.float32)
        assert wrong == 0


@pytest.mark.parametrize("other", [Rule(ADAM, 3, 0.01), Rule(ADAM, 2, 0.012)], ids=["steps", "rate"])
def test_another_rule_explains_nothing(other):
    """Three steps for two; a rate that is not near."""
    assert answers(AdaptiveClient(), other, range(2), 15, 5) == (0, 0)


def test_ratings_off_the_grid_are_not_answered():
    assert answers(AdaptiveClient(less=0.53), Rule(ADAM, 2, 0.01), range(3), 15, 5) == (0, 0)


# Steps of Adam between broadcast and upload, of recordings that declare nothing.


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
        pytest.param(AdaptiveClient("adagrad"), plugins.Inversion(), 5, 3, marks=pytest.mark.thorough),
        pytest.param(
            AdaptiveClient(steps=3, rate=0.005), plugins.Inversion("adam"), 5, 2, marks=pytest.mark.thorough
        ),
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_step_is_not_answered(tmp_path, dtype):
    AdaptiveClient(steps=1).recorded(tmp_path / "t", 3, 0, dtype=dtype)
    found = fl.attack(tmp_path / "t", plugins.Inversion("adam"))
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
    found = fl.attack(tmp_path / "t", plugins.Inversion("adam"))
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
    found = fl.attack(tmp_path / "t", plugins.Inversion("adam"))
    assert len(found.abstained) == 3


def test_nobody_is_answered_without_both_ends_of_the_grid(tmp_path):
    """The client is read; that its ratings are not all one less, nothing tells."""
    client = AdaptiveClient()
    rng = np.random.default_rng(3)
    v, r = rng.normal(0, 0.3, (12, 5)), rng.integers(2, 5, 12).astype(float)
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0, 2.0, 3.0, 4.0, 5.0]) as recorder:
        recorder.broadcast(0, v)
        recorder.upload(0, 0, client.change(rng.normal(0, 0.3, 5), r, v), np.arange(12))
    assert fl.attack(tmp_path / "t", plugins.Inversion("adam")).abstained == {0: OPEN_ENDS}
