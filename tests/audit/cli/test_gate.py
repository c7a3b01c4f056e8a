"""The build gate: what --fail-on understands, and that nothing unmeasured passes."""

from __future__ import annotations

import pytest

from audit.cli.gate import OF_ATTACKS, OF_CLAIMS, Vocabulary, check, parse, without_open
from audit.experiments.results import make_row
from victims.common.errors import InputError

AUDIT = Vocabulary(values=OF_ATTACKS, columns={"adversary": ("server",), "attack": ("spectral",)})


def row(**values):
    usual = {
        "update": "sgd",
        "weighting": "observed-only",
        "defense": "none",
        "adversary": "server",
        "attack": "spectral",
        "metric": "rating_accuracy",
        "status": "ran",
        "verdict": "NO EVIDENCE",
        "value": 0.4,
        "advantage": 0.02,
        "advantage_low": -0.01,
        "advantage_high": 0.04,
    }
    return make_row(**{**usual, **values})


SAFE = row()
READ = row(verdict="LEAK", value=1.0, advantage=1.0, advantage_low=0.9, advantage_high=1.0)
RAISED = row(status="failed", verdict="NOT TESTED", advantage=float("nan"), reason="ArithmeticError: boom")
IDLE = row(status="not applicable", verdict="NOT TESTED", advantage=float("nan"), reason="needs two rounds")
UPSIDE_DOWN = row(
    attack="rated-set", metric="rated_set_f1", verdict="INCONCLUSIVE", advantage=-0.4, advantage_low=-0.5,
    advantage_high=-0.3,
)  # fmt: skip
GUESS = row(attack="guess-majority")
SILENT = row(verdict="NOT TESTED", reason="30 of 40 clients got no answer")
OPEN = row(attack=None, metric="rated_set", verdict="OPEN", value=1.0, advantage=float("nan"))
LISTS = row(metric="rated_set_auc", verdict="LEAK", value=1.0, advantage=1.0)
TIMED = row(metric="seconds_per_user", verdict="", advantage=float("nan"), value=3.0)


@pytest.mark.parametrize(
    ("bars", "rows", "code"),
    [
        (["leak"], [SAFE], 0),
        (["leak"], [SAFE, READ], 1),
        (["leak"], [RAISED], 3),
        (["leak"], [RAISED, SAFE], 3),
        (["leak"], [RAISED, READ], 1),
        (["leak"], [IDLE], 3),
        (["leak"], [IDLE, SAFE], 0),
        (["leak"], [GUESS], 3),
        (["leak"], [IDLE, GUESS], 3),
        (["leak"], [SAFE, row(attack="guess-majority", verdict="LEAK")], 0),
        (["rating_accuracy.value>0.5"], [SAFE, row(attack="guess-majority", value=0.9)], 0),
        (["leak"], [SILENT], 3),
        (["leak"], [], 3),
        (["leak"], [SAFE, row(adversary="item-server", status="not applicable", verdict="NOT TESTED")], 3),
        (["leak@adversary=server"], [SAFE, row(adversary="item-server", verdict="LEAK")], 0),
        (["leak"], [OPEN, SAFE], 1),
        (["leak"], [OPEN, IDLE], 1),
        (["leak@attack=spectral"], [OPEN, SAFE], 0),
        (["rated_rating_accuracy=0.05"], [OPEN], 3),
        (["rating_accuracy=0.05"], [SAFE], 0),
        (["rating_accuracy=0.05"], [READ], 1),
        (["rating_accuracy=0.01"], [SAFE], 1),
        (["rating_accuracy.advantage_low>0.01"], [SAFE], 0),
        (["rating_accuracy.advantage_high>0.03"], [SAFE], 1),
        (["rating_accuracy.value>=0.4"], [SAFE], 1),
        (["rated_set_auc=0.1"], [SAFE], 3),
        (["rated_set_auc=0.1"], [READ, RAISED], 3),
        (["advantage>0.05"], [SAFE, READ], 1),
        (["leak"], [UPSIDE_DOWN], 3),
        (["leak"], [UPSIDE_DOWN, SAFE], 0),
        (["rating_accuracy=0.05"], [SILENT], 3),
        (["rating_accuracy=0.01"], [SILENT], 1),
        (["seconds_per_user.value>2"], [SAFE, TIMED], 1),
        (["seconds_per_user.value>9"], [SAFE, TIMED], 0),
        (["seconds_per_user.value>9"], [SAFE], 3),
        (["rating_accuracy=0.05", "rated_set_auc=0.1"], [SAFE], 3),
        (["rating_accuracy=0.01", "rated_set_auc=0.1"], [SAFE], 1),
        ([], [RAISED], 0),
    ],
)
def test_exit_codes(bars, rows, code):
    outcome = check(parse(bars, AUDIT), rows)
    assert outcome.code == code
    assert bool(outcome.lines) == (code != 0)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([OPEN, LISTS, SAFE], 0),
        ([OPEN, LISTS, SAFE, READ], 1),
        ([OPEN, LISTS, IDLE], 3),
        ([LISTS, SAFE], 1),
        ([OPEN, SAFE, {**LISTS, "weighting": "include-unrated"}], 1),
    ],
)
def test_lists_in_the_open_are_excepted_where_they_lie_and_nothing_else_is(rows, code):
    assert check(parse(["leak"], AUDIT), without_open(rows)).code == code


def test_the_line_says_which_row_crossed():
    (line,) = check(parse(["rating_accuracy.advantage_low>0.5"], AUDIT), [SAFE, READ]).lines
    assert line == (
        "--fail-on rating_accuracy.advantage_low>0.5 is crossed: spectral on sgd/observed-only, "
        "defense none, adversary server: rating_accuracy has advantage_low 0.9"
    )
    (line,) = check(parse(["leak"], AUDIT), [RAISED]).lines
    assert "was not measured: spectral failed on sgd/observed-only" in line
    assert "boom" in line
    (line,) = check(parse(["leak"], AUDIT), [OPEN, SAFE]).lines
    assert line.endswith("uploads on sgd/observed-only, defense none, adversary server: rated_set is OPEN")


def test_a_refuted_claim_is_a_condition_of_its_own():
    bars = parse(["refuted"], Vocabulary(("leak", "refuted"), OF_CLAIMS))
    bound = row(metric="empirical_epsilon", attack="neighbours", verdict="not refuted", value=0.3)
    assert check(bars, [SAFE, bound]).code == 0
    assert check(bars, [SAFE, bound, {**bound, "verdict": "CLAIM REFUTED"}]).code == 1
    assert check(bars, [READ]).code == 3


@pytest.mark.parametrize(
    ("bar", "says"),
    [
        ("rating_acuracy=0.5", "did you mean 'rating_accuracy'"),
        ("speed>1", "names no metric of this command"),
        ("rating_accuracy=nan", "finite number"),
        ("rating_accuracy=inf", "finite number"),
        ("rating_accuracy=much", "finite number"),
        ("rating_accuracy", "METRIC=NUMBER"),
        ("", "METRIC=NUMBER"),
        ("refuted", "METRIC=NUMBER"),
        ("seconds_per_user=3", "has no advantage; test seconds_per_user.value>NUMBER"),
        ("seconds_per_user.advantage>3", "has no advantage"),
        ("rating_accuracy.advantage_lo>0.1", "names no metric"),
        ("leak@advesary=server", "did you mean 'adversary'"),
        ("leak@adversary", "@adversary=server"),
        ("leak@adversary=sever", "did you mean 'server'"),
        ("leak@attack=grid", "speaks of no row of this run"),
    ],
)
def test_what_cannot_be_tested_is_refused_before_anything_runs(bar, says):
    with pytest.raises(InputError, match="--fail-on") as refused:
        parse([bar], AUDIT)
    assert says in str(refused.value)


def test_names_with_dots_and_blocks():
    bars = parse(["tpr_at_fpr_0.1pct=0.2", "tpr_at_fpr_0.1pct.value>0.2", "attribute_group_accuracy/3=0.1"])
    assert [(bar.metric, bar.field) for bar in bars] == [
        ("tpr_at_fpr_0.1pct", "advantage"),
        ("tpr_at_fpr_0.1pct", "value"),
        ("attribute_group_accuracy/3", "advantage"),
    ]


def test_metrics_of_one_attack_share_a_line():
    """A leak crosses in every metric; a build prints one line for each attack and place."""
    names = (
        "rating_accuracy",
        "rated_rating_accuracy",
        "rated_set_auc",
        "rated_set_f1",
        "rating_mae",
        "a",
        "b",
    )
    leaks = [row(metric=name, verdict="LEAK") for name in names]
    other = row(metric="rating_accuracy", verdict="LEAK", adversary="item-server")
    first, second = check(parse(["leak"], AUDIT), [*leaks, other]).lines
    assert first.endswith(
        "adversary server: rating_accuracy, rated_rating_accuracy, rated_set_auc, rated_set_f1, rating_mae "
        "and 2 more are LEAK"
    )
    assert second.endswith("adversary item-server: rating_accuracy is LEAK")
