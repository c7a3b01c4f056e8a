"""``factorleak predict --victim dpmf-yang``: paper 004."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from audit.cli.output import Output
from audit.option_texts import names
from victims.common.files import refuse_unwritable

if TYPE_CHECKING:
    from audit.experiments.cluster import Cluster


def predict_trusted(
    output: Output,
    data: str,
    out: Path,
    method: list[str] | None,
    factors: tuple[int, ...],
    rounds: int,
    runs: int,
    vary: str,
    who: int | Cluster,
    seed: int,
    set_: list[str],
) -> None:
    """Train and show.

    References
    ----------
    Paper 004, doi:10.3390/app122111118.
    """
    from audit.option_texts import parse_options
    from audit.papers.yang import EXPERIMENT, TrustedPlan, settled
    from reports.paper_figures import trusted_figures
    from reports.paper_tables import error_table, recommendation_table, traffic_table

    refuse_unwritable(out)
    plan = settled(
        TrustedPlan(
            systems=names(method),
            data=data,
            factors=factors,
            rounds=rounds,
            runs=runs,
            seed=seed,
            vary=vary,
            victim_options=parse_options(set_),
        )
    )
    begin = time.perf_counter()
    ratings = output.load(data)
    rows = output.grid("predict", EXPERIMENT, plan, ratings, out, who)
    output.show(f"{ratings.describe()}, {len(ratings.trust):,} statements of trust")
    output.show(error_table(rows, "Held-out RMSE, units of 0..1, mean and 95 % interval over seeds"))
    if vary == "nothing":
        title = "Recommended items, mean and 95 % interval over seeds"
        output.show(recommendation_table(rows, ratings.name, title))
    output.show(traffic_table(rows, "Sent in a round"))
    figures = trusted_figures(rows, vary, out)
    for path in figures:
        output.show(f"figure {path}")
    for reason in dict.fromkeys(row["reason"] for row in rows if row["status"] != "ran"):
        output.show(f"not measured: {reason}")
    output.results(rows, out, time.perf_counter() - begin, figures=figures)
