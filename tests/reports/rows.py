"""Result rows that reports are tried on."""

from __future__ import annotations

from audit.experiments.results import make_row

METRICS = ("rating_accuracy", "rated_rating_accuracy", "rated_set_auc", "attribute_group_accuracy")


def ran(metric, verdict="LEAK", **changes):
    values = {
        "update": "semi-als", "weighting": "include-unrated", "attack": "root-linearmixing",
        "adversary": "server", "defense": "laplace:scale=0.5", "rounds": 20, "seconds": 12.3,
        "status": "ran", "metric": metric,
        "value": 0.971, "ci_low": 0.95, "ci_high": 0.99, "baseline": 0.345, "baseline_name": "popularity",
        "ceiling": 0.98, "ceiling_ml": 0.97, "ceiling_map": 0.98, "advantage": 0.956, "verdict": verdict,
        "n_users": 943, "n_abstained": 3,
    }  # fmt: skip
    return make_row(**{**values, **changes})


WHY = "the clients' step of fedmvmf/semi-als is not one that this attack knows, so that nothing was tried"
LOST = ran("rating_accuracy", "", status="not applicable", reason=WHY, attack="trajectory", value=0.123)
SILENT = ran(
    "rated_rating_accuracy", "NOT TESTED", n_abstained=900, attack="spectral", value=0.456, reason="bad fit"
)
ROWS = [*(ran(name) for name in METRICS), LOST, SILENT]
