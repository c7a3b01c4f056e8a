"""Where the clients' rule is not the declared one, no attack reassures or accuses with wrong answers.

Of every attack either next to nobody is answered, or those who are answered are read better than by a guess.
Accidents: each client is answered about nothing with a probability of at most 0.001
(``attacks.closed_form.fit.goodness_of_fit``), so that three of 60 in any one case are next to impossible; the
bar is 5 % of the clients.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.closed_form.fit.goodness_of_fit import accidental, log_odds_between, misfit
from audit.factories import make_attack, make_defenses
from audit.scoring.answers import round_ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.reader import open_transcript
from victims.transcript.view import Messages, View

ACCIDENTS = 0.05
STEPS = DecentralisedMF(factors=5, learning_rate=0.01)
VICTIMS = {
    "mf": (STEPS, "none"),
    "fedmf": (FedMF(factors=5, client_learning_rate=3e-3), "none"),
    "fedmvmf": (FedMVMF("sgd", factors=5), "none"),
    "noise once": (STEPS, "objective-noise:noise=once"),
}


@pytest.fixture(scope="module")
def community():
    return generate(Synthetic(users=60, items=16, ratings_per_user=9.0, single=0.03, seed=2))


@pytest.fixture(scope="module")
def seen(community, tmp_path_factory):
    """The server's views by victim, four rounds."""
    found: dict[str, View] = {}

    def of(name: str) -> View:
        if name not in found:
            path = tmp_path_factory.mktemp("wrong") / "t"
            victim, defenses = VICTIMS[name]
            record(victim, community, path, rounds=range(4), defenses=make_defenses(defenses), seed=4)
            found[name] = open_transcript(path).view("server")
        return found[name]

    return of


def changed(view: View, rule: str) -> View:
    """The view of a server whose clients follow another rule."""
    round_, sender, kind, index = (
        np.concatenate(getattr(view.messages, name)) for name in ("round", "sender", "kind", "index")
    )
    rows, upload = np.concatenate(view.messages.gradient), view.manifest.upload
    factors = np.zeros_like(rows)
    for number, broadcast in view.broadcasts.items():
        here = round_ == number
        factors[here] = broadcast.factors[broadcast.positions(kind[here], index[here])]
    clean = (rows - upload.regularization * factors) / upload.scale
    if rule == "mean loss":
        clean = clean / np.bincount(sender)[sender, None] * view.rounds.size
    elif rule == "half the scale":
        clean = clean / 2
    elif rule == "sign":
        clean = -clean
    mixed = clean * upload.scale + upload.regularization * factors
    messages = Messages((round_,), (sender,), (kind,), (index,), (mixed,))
    return replace(view, messages=messages)


def answers(view: View, name: str, options: dict | None = None) -> np.ndarray:
    """Rounded ratings (users, items), NaN where there is no answer."""
    found = make_attack(name, options).attack(view, 0)
    out = np.full((view.manifest.n_users, view.manifest.n_items), np.nan)
    for user, kind, index, value, _ in found.rows():
        item = kind == 0
        out[user[item], index[item]] = round_ratings(value[item], view.manifest.rating_levels)
    return out


def errors(found: np.ndarray, community) -> tuple[np.ndarray, np.ndarray]:
    """Mean absolute error and that of the most frequent rating, of the clients that are answered."""
    truth = community.matrix().toarray()
    there = np.isfinite(found) & (truth > 0)
    answered = there.any(axis=1)
    count = there.sum(axis=1)[answered]
    values, shares = np.unique(community.values, return_counts=True)
    guess = np.abs(values[shares.argmax()] - truth)
    both = (np.abs(np.nan_to_num(found) - truth), guess)
    mine, guessed = ((part * there).sum(axis=1)[answered] / count for part in both)
    return mine, guessed


RULES = ("mean loss", "half the scale", "sign")
CASES = [
    (victim, attack, rule)
    for victim in ("mf", "fedmf", "fedmvmf")
    for attack in ("spectral", "grid")
    for rule in RULES
    if (victim, attack) != ("fedmvmf", "spectral") or rule == "sign"
]


@pytest.mark.parametrize(
    ("victim", "attack", "rule"),
    [*CASES, pytest.param("noise once", "trajectory", "mean loss", marks=pytest.mark.thorough)],
)
def test_answers_are_right_or_missing(seen, community, victim, attack, rule):
    options = {"starts": 1, "steps": 30} if attack == "trajectory" else None
    mine, guessed = errors(answers(changed(seen(victim), rule), attack, options), community)
    assert np.sum(mine > guessed) <= ACCIDENTS * community.n_users


@pytest.mark.parametrize(
    ("victim", "attack"), [*sorted({case[:2] for case in CASES}), ("noise once", "trajectory")]
)
def test_the_declared_rule_is_read(seen, community, victim, attack):
    """The same attacks on what the clients did declare: nearly everybody with four ratings, which the closed
    form without a rule needs, and nobody wrongly.
    """
    found = answers(seen(victim), attack)
    mine, _ = errors(found, community)
    enough = np.diff(community.indptr) >= 4
    assert np.isfinite(found).any(axis=1)[enough].mean() >= 0.95
    assert np.mean(mine == 0) > 0.98


class TestChance:
    @pytest.mark.parametrize("count", [1, 2, 5, 16])
    def test_accidents_are_as_rare_as_said(self, count):
        """Numbers about nothing pass with at most the stated probability, 1 %; 20 000 draws, 5 sigma."""
        rng = np.random.default_rng(count)
        value = rng.uniform(1, 5, (20_000, count))
        everything = np.ones(value.shape, bool)
        off, judged = misfit(value, np.zeros_like(value), everything, everything, np.arange(1.0, 6.0), None)
        share = np.mean(off <= accidental(judged, accident=0.01))
        assert share <= 0.01 + 5 * np.sqrt(0.01 * 0.99 / 20_000)

    def test_attributes_near_zero_excuse_no_rating(self):
        value = np.array([[1.5, 2.5, 3.5, *np.zeros(40)]])
        item = np.arange(43)[None] < 3
        off, judged = misfit(value, np.zeros_like(value), item, np.ones_like(item), np.arange(1.0, 6.0), None)
        assert judged[0] == 3
        assert off[0] == 1.0

    def test_odds_against_the_grid(self):
        """On the grid they exceed e^3 with probability e^-3 at most; between the levels they grow."""
        rng, levels = np.random.default_rng(0), np.arange(1.0, 6.0)
        share, noise = np.full(5, 0.2), 0.2
        for shift, exceeds in ((0.0, False), (0.5, True)):
            value = rng.choice(levels, (4000, 20)) + shift + noise * rng.standard_normal((4000, 20))
            odds = log_odds_between(value, np.full(value.shape, noise), levels, share).sum(axis=1)
            assert (np.mean(odds > 3) > 0.95) if exceeds else (np.mean(odds > 3) < np.exp(-3))
