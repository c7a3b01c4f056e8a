"""Many answers looked at together: noise is rarely called a leak, a planted one is found."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from audit.experiments.strongest import controlled
from audit.scoring.verdicts import INCONCLUSIVE, LEAK, summarise
from tests.reports.page.test_page import leak
from tests.tools.verdicts import CASES, HEAD, line

ROWS = Path(__file__).parents[3] / "docs" / "research" / "rows" / "verdicts.csv"

CELLS, CLIENTS = 40, 200


def campaign(rng: np.random.Generator, read: float = 0.0) -> list[dict]:
    """Rows of one campaign: 20 ratings a client, the guess right in 0.35 of them; in the first cell an attack
    is right in that and ``read`` more.
    """
    chance = np.full((CELLS, 1), 0.35)
    chance[0] += read
    ahead = rng.binomial(20, chance, (CELLS, CLIENTS)) / 20 - rng.binomial(20, 0.35, (CELLS, CLIENTS)) / 20
    wins, tries = (ahead > 0).sum(axis=1), (ahead != 0).sum(axis=1)
    p_values = stats.binom.sf(wins - 1, tries, 0.5)  # the sign test
    low = ahead.mean(axis=1) - 1.96 * ahead.std(axis=1) / CLIENTS**0.5
    leaks = (p_values < 0.01) & (low > 0)
    return [
        leak(f"b={cell}", p_value=float(p_value), verdict=LEAK if told else INCONCLUSIVE)
        for cell, (p_value, told) in enumerate(zip(p_values, leaks, strict=True))
    ]


def test_campaigns_of_pure_noise_rarely_tell_a_leak():
    """200 campaigns of 40 answers: at most 5 % of them by the bound; more than 20 has p < 1e-2 at 5 %."""
    rng = np.random.default_rng(0)
    made = [campaign(rng) for _ in range(200)]
    alone = sum(any(row["verdict"] == LEAK for row in rows) for rows in made)
    together = sum(any(row["verdict"] == LEAK for row in controlled(rows)) for rows in made)
    assert alone > 40  # what the control is for
    assert together <= 20


def test_a_planted_leak_is_found():
    """Ten points among 200 clients, one cell of 40: in at least 95 %; 90 of 100 or fewer has p < 0.03."""
    rng = np.random.default_rng(1)
    found = sum(controlled(campaign(rng, 0.1))[0]["verdict"] == LEAK for _ in range(100))
    assert found > 90


@pytest.mark.thorough
def test_the_published_rates_are_what_the_script_counts():
    """The whole chain of scoring, 400 campaigns; the rows that the handbook shows."""
    with ROWS.open(newline="") as file:
        published = list(csv.reader(file))
    assert published == [list(HEAD), *(line(*case, 200) for case in CASES)]


def test_a_total_leak_of_few_clients_stays_one_where_all_leak():
    summary = summarise("rated_rating_accuracy", np.ones(8), np.full(8, 0.3))
    rows = [leak(f"b={n}", p_value=summary.p_value, verdict=summary.verdict) for n in range(500)]
    assert {row["verdict"] for row in controlled(rows)} == {LEAK}


def test_the_reason_has_its_numbers_and_guesses_do_not_count():
    rows = [leak(f"b={n}", p_value=0.5, verdict=INCONCLUSIVE) for n in range(50)]
    rows += [leak("weak", p_value=0.009), leak("weak", attack="guess-majority", p_value=1e-9, verdict="")]
    changed = controlled(rows)
    assert changed[50]["verdict"] == INCONCLUSIVE
    assert "p = 0.009 alone; among 51 answers" in changed[50]["reason"]
    assert changed[50]["p_value"] == 0.009
    assert changed[:50] == rows[:50]
    assert controlled([]) == []
