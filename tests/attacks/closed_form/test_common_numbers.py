"""What many clients tell together, and what stays open where they do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.common_numbers import pulls_of
from audit.scoring.metrics import DIFFERENCES

STARS = np.arange(1.0, 6.0)
ITEMS, K = 40, 4


def recorded(path: Path, levels: list[list[float]], mapped: bool, scale: float = -1.0) -> None:
    """A client for each list of levels that it uses; ratings as they are, or from 0 to 1."""
    rng = np.random.default_rng(5)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.4, (len(levels), K))
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user, used in enumerate(levels):
            items = rng.choice(ITEMS, 14, replace=False)
            ratings = rng.permutation(np.resize(used, items.size))
            learned = (ratings - 1) / 4 if mapped else ratings
            recorder.upload(0, user, scale * (learned - q[items] @ p[user])[:, None] * p[user], items)
            recorder.truth(user, items, ratings)


def right(path: Path, attack: str) -> float | None:
    """Share of rated items that were answered rightly; None where none is, or differences alone."""
    found = fl.attack(path, attack)
    if len(found.abstained) == found.users.size or found.scope == Scope.DIFFERENCES:
        return None
    return float(fl.score(found, transcript=path).set_index("metric").loc["rated_rating_accuracy", "value"])


def right_differences(path: Path, attack: str) -> float:
    """Share of pairs of a client's ratings whose difference is right, where nothing else is answered."""
    found = fl.attack(path, attack)
    assert found.scope == Scope.DIFFERENCES
    rows = fl.score(found, transcript=path).set_index("metric")
    assert "rated_rating_accuracy" not in rows.index
    return float(rows.loc[DIFFERENCES, "value"])


@pytest.mark.parametrize("attack", ["undeclared"])
def test_ratings_from_0_to_1_are_open_where_nobody_tells(tmp_path, attack):
    """Nobody has the lowest level, so that all fit one level too low as well; they were answered so."""
    recorded(tmp_path / "open", [[2, 3, 4, 5]] * 8, mapped=True)
    assert right_differences(tmp_path / "open", attack) == 1
    rows = fl.audit_recording(tmp_path / "open", attacks=[attack])
    assert rows.loc[rows.metric == DIFFERENCES, "verdict"].tolist() == ["LEAK"]
    (reason,) = rows.loc[rows.metric == "rating_accuracy", "reason"]
    assert "by how many levels" in reason


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_ratings_stored_the_other_way_round_are_answered_so(tmp_path, dtype):
    """Uploads of a program that stores 6 - r are those of people who rate 6 - r: nothing else can be told."""
    rng = np.random.default_rng(9)
    q, p = rng.normal(0, 0.4, (ITEMS, K)).astype(dtype), rng.normal(0, 0.4, (6, K))
    table = rng.integers(1, 6, (6, 14))
    with fl.Recorder(tmp_path / "t", rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user in range(6):
            rows = (q[:14] @ p[user] - (6 - table[user]))[:, None] * p[user]
            recorder.upload(0, user, rows.astype(dtype), np.arange(14))
    found = fl.attack(tmp_path / "t", "undeclared")
    assert not found.abstained
    for user, _, item, value, _ in found.rows():
        assert (np.rint(value) == 6 - table[user, item]).all()


@pytest.mark.parametrize("attack", ["undeclared", "inversion"])
@pytest.mark.parametrize("mapped", [True, False])
def test_who_has_the_lowest_or_the_highest_level_tells(tmp_path, mapped, attack):
    """Three who have the lowest tell that it is taken off, one who has the highest that it is not."""
    told_by = [[1.0, 2, 3, 5]] * 4 if mapped else [[1.0, 3, 4, 5]]
    others = [2.0, 3, 4, 5] if mapped else [1.0, 2, 3, 4]
    recorded(tmp_path / "told", [others] * 4 + told_by, mapped)
    assert right(tmp_path / "told", attack) == 1


def test_a_row_that_is_not_told_hides_no_highest_level(tmp_path):
    """Of sixteen clients two have a row off the grid; the others would show a level that rows hide there."""
    rng = np.random.default_rng(6)
    q, p = rng.normal(0, 0.4, (ITEMS, K)).astype(np.float32), rng.normal(0, 0.4, (16, K))
    with fl.Recorder(tmp_path / "open", rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user in range(16):
            items = rng.choice(ITEMS, 14, replace=False)
            ratings = rng.permutation(np.resize([2.0, 3, 4], items.size))
            error = (ratings - 1) / 4 - q[items] @ p[user]
            error[np.abs(error).argmax()] += 0.001 * (user < 2)
            recorder.upload(0, user, np.float32(-error[:, None] * p[user]), items)
            recorder.truth(user, items, ratings)
    assert right(tmp_path / "open", "undeclared") is None


@pytest.mark.parametrize("declared", [True])
def test_nobody_of_many_has_the_last_level(tmp_path, declared):
    """Ratings 2 to 5 less 1 and ratings 1 to 4 make the same rows: open, however many there are."""
    told = {"rule": {"rule": "sgd"}, "constants": {"upload_scale": -1.0}} if declared else {}
    lowered(tmp_path / "many", 12, [2, 3, 4, 5], **told)
    for attack in ("undeclared", "grid") if declared else ("undeclared",):
        assert right_differences(tmp_path / "many", attack) == 1
    lowered(tmp_path / "open", 12, [2, 3], **told)
    assert right(tmp_path / "open", "undeclared") is None


@pytest.mark.parametrize("attack", ["undeclared", "inversion"])
def test_ratings_as_they_are_without_the_last_level_are_not_raised(tmp_path, attack):
    """Of as many clients with the last level but one they were answered one level too high."""
    recorded(tmp_path / "plain", [[1.0, 2, 3, 4]] * 12, mapped=False)
    assert right_differences(tmp_path / "plain", attack) == 1


def lowered(path: Path, clients: int, used: list[int], **told) -> None:
    """Clients whose program learns ratings less the lowest level, at the scale that may be declared."""
    rng = np.random.default_rng(6)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.4, (clients, K))
    with fl.Recorder(path, rating_levels=STARS, **told) as recorder:
        recorder.broadcast(0, q)
        for user in range(clients):
            items = rng.choice(ITEMS, 14, replace=False)
            ratings = rng.permutation(np.resize(used, items.size)).astype(float)
            recorder.upload(0, user, -(ratings - 1 - q[items] @ p[user])[:, None] * p[user], items)
            recorder.truth(user, items, ratings)


def test_whole_stars_of_a_grid_of_halves_are_not_ratings_less_a_number(tmp_path):
    """Half as large they fit as well: 24 of 30 were open, so that ratings were taken for less a number."""
    halves = np.arange(0.5, 5.01, 0.5)
    levels = [[2.0, 3, 4, 5]] * 24 + [[2.5, 3, 3.5, 5]] * 6
    rng = np.random.default_rng(8)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.4, (len(levels), K))
    with fl.Recorder(tmp_path / "whole", rating_levels=halves) as recorder:
        recorder.broadcast(0, q)
        for user, used in enumerate(levels):
            items = rng.choice(ITEMS, int(rng.integers(8, 16)), replace=False)
            ratings = rng.permutation(np.resize(used, items.size))
            error = ratings - q[items] @ p[user]
            rows = error[:, None] * p[user] / items.size - 0.02 * q[items]
            recorder.upload(0, user, rows, items)
            recorder.truth(user, items, ratings)
    assert not fl.attack(tmp_path / "whole", "undeclared").abstained
    assert right(tmp_path / "whole", "undeclared") == 1


def test_rows_as_long_as_equal_factors_are_no_copies_alone(tmp_path):
    """Chai et al.'s published start with ratings from 0.2 to 1: rows e p lie at the factors, as copies do."""
    rng = np.random.default_rng(7)
    q, levels = np.full((ITEMS, K), 0.01), STARS / 5
    with fl.Recorder(
        tmp_path / "t",
        rating_levels=levels,
        rule={"rule": "sgd", "upload": "delta"},
        constants={"upload_scale": 1.0},
    ) as recorder:
        recorder.broadcast(0, q)
        for user in range(6):
            p, rows = np.full(K, 0.01), []
            items, ratings = rng.choice(ITEMS, 30, replace=False), rng.choice(levels[2:], 30)
            for j, r in zip(items, ratings, strict=True):
                error = r - p @ q[j]
                p = p + 0.002 * error * q[j]
                rows.append(error * p)
            recorder.upload(0, user, np.array(rows), items)
            recorder.truth(user, items, ratings)
    assert right(tmp_path / "t", "undeclared") == 1


@pytest.mark.thorough
def test_half_stars_under_declared_whole_ones_are_not_ratings_less_a_number(tmp_path):
    """Twice as large they fit, for who uses few levels; who uses more shows that the grid is too short."""
    halves, rng = np.arange(0.5, 4.01, 0.5), np.random.default_rng(4)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.4, (30, K))
    high = np.array([1, 1, 1, 1, 1, 2, 6, 8.0])
    with fl.Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4]) as recorder:
        recorder.broadcast(0, q)
        for user in range(30):
            items, first = rng.choice(ITEMS, 14, replace=False), 4 if user % 3 else 0
            ratings = rng.choice(halves[first:], items.size, p=high[first:] / high[first:].sum())
            recorder.upload(0, user, (ratings - q[items] @ p[user])[:, None] * p[user] / items.size, items)
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == 30


@pytest.mark.parametrize("mean", [False])
def test_one_client_tells_the_scale_that_two_others_confirm(tmp_path, mean):
    """Whole stars of a grid of halves may be half as large, and so were taken for ratings less a number."""
    rng = np.random.default_rng(8)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.4, (4, K))
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(0.5, 5.01, 0.5)) as recorder:
        recorder.broadcast(0, q)
        for user, used in enumerate(([1.0, 2, 3], [2.0, 3, 4], [3.0, 4, 5], [1.5, 2, 3, 3.5, 4, 5])):
            items = rng.choice(ITEMS, 12 + 3 * user, replace=False)
            ratings = rng.permutation(np.resize(used, items.size))
            scale = 0.02 / (items.size if mean else 1)
            recorder.upload(0, user, scale * (ratings - q[items] @ p[user])[:, None] * p[user], items)
            recorder.truth(user, items, ratings)
    assert right(tmp_path / "t", "undeclared") == 1


@pytest.mark.parametrize(
    ("levels", "used", "less"), [([4, 5], [3, 5], 2.5), ([3, 4, 5], [1, 3, 5], 2.5), ([2, 3], [3, 5], 0.5)]
)
def test_few_levels_less_a_number_are_open_where_nobody_uses_others(tmp_path, levels, used, less):
    """Twice 4 and 5 less 2.5 are 3 and 5; one client with other levels tells which."""
    rng = np.random.default_rng(3)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.4, (8, K))
    for name, own, off in (("less", levels, less), ("as they are", used, 0.0), ("told", used, 0.0)):
        with fl.Recorder(tmp_path / name, rating_levels=STARS) as recorder:
            recorder.broadcast(0, q)
            for user in range(8):
                items = rng.choice(ITEMS, 12, replace=False)
                here = [1.0, 2.0, 4.0, 5.0] if name == "told" and user == 0 else own
                ratings = rng.permutation(np.resize(np.array(here, float), items.size))
                error = ratings - off - q[items] @ p[user]
                recorder.upload(0, user, -2 * error[:, None] * p[user], items)
                recorder.truth(user, items, ratings)
    assert right(tmp_path / "less", "undeclared") is None
    assert right(tmp_path / "as they are", "undeclared") is None
    assert right(tmp_path / "told", "undeclared") == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_one_client_contradicts_a_declared_scale(tmp_path, dtype):
    """Whole stars at four times their scale are half as large: before, 21 of 42 answers were."""
    rng = np.random.default_rng(3)
    q, p = rng.normal(0, 0.4, (ITEMS, K)).astype(dtype).astype(float), rng.normal(0, 0.4, (2, K))
    table = np.zeros((2, ITEMS))
    told = {"upload_scale": -8.0, "upload_regularization": 0.0}
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(0.5, 5.01, 0.5), constants=told) as recorder:
        recorder.broadcast(0, q.astype(dtype))
        for user, used in enumerate((np.arange(0.5, 5.01, 0.5), [1.0, 2.0, 5.0])):
            items = rng.choice(ITEMS, 20, replace=False)
            ratings = rng.permutation(np.resize(used, items.size))
            rows = -2 * (ratings - q[items] @ p[user])[:, None] * p[user]
            recorder.upload(0, user, rows.astype(dtype), items)
            table[user, items] = ratings
    found = fl.attack(tmp_path / "t", "undeclared")
    assert list(found.abstained) == [1]
    for user, _, index, value, _ in found.rows():
        assert np.abs(value - table[user, index]).max() < 0.1


def test_who_is_read_with_a_bias_does_not_deny_ratings_less_a_level(tmp_path):
    """Six clients fit the grid with a bias of a star each, which is what nobody told; the seventh without."""
    rng = np.random.default_rng(0)
    q, p, truth = rng.normal(0, 0.4, (30, 6)), rng.normal(0, 0.6, (7, 6)), np.zeros((7, 30))
    levels = [1.0, 2, 3, 5, 10]
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(p):
            items = rng.choice(30, 6 if user else 3, replace=False)
            truth[user, items] = rng.choice(levels[1:], 6) if user else 3
            error = truth[user, items] - 1 - q[items] @ own
            recorder.upload(0, user, 0.05 * q[items] - error[:, None] * own, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert list(found.abstained) == [0]
    for user, _, index, value, _ in found.rows():
        np.testing.assert_allclose(value, truth[user, index], atol=1e-6)


def test_two_levels_less_a_number_are_open_after_several_steps(tmp_path):
    """Steps over all ratings tell them up to a factor in a span: 7 and 9 less 5.5 were 3 and 7."""
    rng, levels, k = np.random.default_rng(11), np.arange(1.0, 11.0), 3
    q, p = rng.normal(0, 0.5, (ITEMS, k)), rng.normal(0, 0.6, (6, k))
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user in range(6):
            items, ratings = rng.permutation(ITEMS)[:18], rng.choice([7.0, 9.0], 18)
            copy, factor = q[items], p[user]
            for _ in range(4):
                error = ratings - 5.5 - copy @ factor
                copy, factor = copy + 0.05 * error[:, None] * factor, factor + 0.05 * error @ copy
            recorder.upload(0, user, q[items] - copy, items)
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == 6


def test_a_declared_mean_over_minibatches_divides_by_their_size(tmp_path):
    """Four whole stars at a fourth of the declared scale had been answered half as large."""
    halves, rng = np.arange(0.5, 5.01, 0.5), np.random.default_rng(3)
    rule = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": 5, "reduction": "mean"}
    rule |= {"upload": "gradient", "loss": "squared", "start": "kept"}
    q, table = rng.normal(0, 0.5, (30, 6)), np.zeros((3, 30))
    with fl.Recorder(
        tmp_path / "t", rating_levels=halves, rule=rule, constants={"upload_scale": -2.0}
    ) as recorder:
        recorder.broadcast(0, q)
        for user in range(3):
            items, p = rng.permutation(30)[:4], rng.normal(0, 0.5, 6)
            table[user, items] = rng.choice([1.0, 2.0, 4.0, 5.0], 4)
            error = table[user, items] - q[items] @ p
            recorder.upload(0, user, -2 / 4 * error[:, None] * p, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    for user, _, index, value, _ in found.rows():
        np.testing.assert_allclose(value, table[user, index], atol=1e-6)
    assert not found.abstained


@pytest.mark.thorough
def test_a_regularisation_that_rows_contradict_is_not_taken_off(tmp_path):
    """Rows of one direction; with a multiple of their factors off, whole errors were read as ratings."""
    rng = np.random.default_rng(1)
    q, p = rng.normal(0, 0.6, (ITEMS, K)), rng.normal(0, 0.6, (12, K))
    told = {"rule": {"rows": "rated"}, "constants": {"upload_regularization": 0.001}}
    with fl.Recorder(tmp_path / "t", rating_levels=STARS, **told) as recorder:
        recorder.broadcast(0, q)
        for user in range(12):
            items = rng.choice(ITEMS, 20, replace=False)
            error = np.rint(rng.choice(STARS, 20) - q[items] @ p[user])
            recorder.upload(0, user, error[:, None] * p[user], items)
    view = fl.open_transcript(tmp_path / "t").view("server")
    assert pulls_of(view) == (0.0,)
    assert len(fl.attack(view, "undeclared").abstained) == 12
