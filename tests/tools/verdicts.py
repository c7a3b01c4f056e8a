"""How often a campaign's verdicts are wrong: ``python -m tests.tools.verdicts [CAMPAIGNS]``.

A campaign looks at 40 answers of 200 clients with 20 ratings each. The guess is right in 0.35 of them; of
noise so is the answer, independently, which no attack on noise surpasses. In the other half of the campaigns
the first answer is right in ten points more. p-values, intervals and verdicts are those of
``audit.scoring`` and ``audit.experiments.across_rows``. Prints the rows of
``docs/research/rows/verdicts.csv``: how many campaigns tell a LEAK (of noise: anywhere; planted: in the first
answer), one by one and controlled over the campaign, with the exact 95 % interval.
"""

from __future__ import annotations

import csv
import sys
from typing import Any

import numpy as np
from scipy.stats import binomtest

from audit.experiments.across_rows import controlled
from audit.experiments.results import make_row
from audit.scoring.statistics import LEAK_LEVEL, sign_test
from audit.scoring.verdicts import INCONCLUSIVE, LEAK, summarise

METRIC = "rated_rating_accuracy"
CELLS, CLIENTS, RATINGS, GUESS, PLANTED = 40, 200, 20, 0.35, 0.10
CASES = (("pure noise", 0.0), ("ten points planted in one answer", PLANTED))
HEAD = ("campaigns of", "campaigns", "LEAK, each answer alone", "LEAK, controlled", "share", "95 % interval")


def row_of(rng: np.random.Generator, share: float) -> dict[str, Any]:
    """One answer: the row that a campaign has of it."""
    values, guess = (rng.binomial(RATINGS, each, CLIENTS) / RATINGS for each in (share, GUESS))
    p_value, _ = sign_test(values - guess)
    told = INCONCLUSIVE  # where the sign test is not below its level, no interval makes it a leak
    if p_value < LEAK_LEVEL:
        told = summarise(METRIC, values, guess, int(rng.integers(2**31))).verdict
    return make_row(metric=METRIC, attack="an attack", status="ran", p_value=p_value, verdict=told)


def campaign(seed: int, planted: float) -> list[dict[str, Any]]:
    """The rows of one campaign, before they are looked at together."""
    rng = np.random.default_rng([seed, round(100 * planted)])
    return [row_of(rng, GUESS + (planted if cell == 0 else 0)) for cell in range(CELLS)]


def line(name: str, planted: float, campaigns: int) -> list[str]:
    """Count the campaigns that tell a leak."""
    looked = slice(1) if planted else slice(None)
    alone = together = 0
    for seed in range(campaigns):
        rows = campaign(seed, planted)
        alone += any(row["verdict"] == LEAK for row in rows[looked])
        together += any(row["verdict"] == LEAK for row in controlled(rows)[looked])
    low, high = binomtest(together, campaigns).proportion_ci()
    share = f"{100 * together / campaigns:.1f} %"
    return [name, str(campaigns), str(alone), str(together), share, f"{100 * low:.1f} to {100 * high:.1f} %"]


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(HEAD)
    out.writerows(line(*case, count) for case in CASES)
