"""Defenses side by side: rows, resumption, reasons, and what is shown of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from audit.experiments.comparison import Asked, open_rows, run, settled
from audit.experiments.plan import Comparison
from audit.experiments.rows import open_row
from audit.experiments.scenarios import encrypts, standing_in, without_encryption
from reports.figures import comparison_figure
from reports.tables import comparison_table
from reports.verdicts import LEAKS, best, leak_cell, leak_of, worst, worst_cell
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate

RAN = {"adversary": "server", "status": "ran"}
DEFENSES = ("none", "unrated-sampling:rho=1", "privmvmf")


@pytest.fixture(scope="module")
def compared(ratings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    attacks = ("spectral", "aggregate", "rated-set")
    plan = Comparison(DEFENSES, attacks=attacks, rounds=(4, 5), trained=3, runs=2)
    return plan, folder, run(plan, ratings, folder, jobs=1)


def test_every_cell_is_a_row_with_its_reason(compared):
    plan, folder, rows = compared
    for defense in DEFENSES:
        part = [row for row in rows if row["defense"] == defense]
        for adversary in plan.adversaries:
            seen = {row["attack"] for row in part if row["adversary"] == adversary}
            assert seen, (defense, adversary)
        assert sum(row["metric"] == "ndcg_at_10" for row in part) == 2
        assert any(row["metric"] == "bytes_sent_mean" for row in part)
    assert not [row for row in rows if row["status"] == "failed"]
    assert all(row["reason"] for row in rows if row["status"] == "not applicable")
    assert json.loads((folder / "results.json").read_text())
    assert not list(folder.glob("leakage/*/transcripts"))


def test_what_leaks_to_whom(compared):
    _, _, rows = compared

    def advantage(defense, adversary, metric):
        part = [row for row in rows if row["defense"] == defense and row["adversary"] == adversary]
        found = best(part, metric)
        return None if found is None else found["advantage"]

    assert advantage("none", "server", "rated_rating_accuracy") == 1
    assert advantage("unrated-sampling:rho=1", "server", "rated_rating_accuracy") == 1
    assert advantage("privmvmf", "server", "rated_rating_accuracy") is None
    assert advantage("privmvmf", "server", "rated_set_auc") > 0.2
    assert advantage("privmvmf", "server+client", "rated_rating_accuracy") == 1
    assert advantage("privmvmf", "item-server", "rated_set_auc") is None


def test_own_uploads_are_no_leak(compared):
    _, _, rows = compared
    part = [row for row in rows if row["adversary"] == "decrypter" and row["attack"] == "spectral"]
    assert part
    (reason,) = {row["reason"] for row in part}
    assert "the adversary is a client and receives nobody else's uploads" in reason


def test_repeating_reads_the_cells(compared, ratings):
    plan, folder, rows = compared
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")}
    assert len(kept) == len(DEFENSES) * 4
    again = run(plan, ratings, folder, jobs=1)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")} == kept
    assert len(again) == len(rows)


def test_a_defense_that_does_not_apply_is_a_row(ratings, tmp_path):
    """One for each adversary, beside what applies; asked for alone it is an error."""
    sampled = "unrated-sampling:rho=1"
    plan = Comparison(
        (sampled, "none"), weighting="observed-only", attacks=("guess-majority",), trained=1, runs=1
    )
    rows = run(plan, ratings, tmp_path, jobs=1)
    found = [row for row in rows if row["defense"] == sampled]
    assert {row["status"] for row in found} == {"not applicable"}
    assert all("weighting of fedmvmf must be include-unrated" in row["reason"] for row in found)
    assert len(found) == 5 + 2
    assert {row["verdict"] for row in found if row["metric"] == "rating_accuracy"} == {"NOT TESTED"}
    assert "ran" in {row["status"] for row in rows if row["defense"] == "none"}
    assert len(comparison_table(rows, "x").rows) >= 1
    comparison_figure(rows, tmp_path)
    with pytest.raises(InputError, match="weighting of fedmvmf must be include-unrated"):
        run(replace(plan, defenses=(sampled,)), ratings, tmp_path / "alone", jobs=1)
    assert not (tmp_path / "alone").exists()


def test_encryption():
    text = "laplace:b=2+paillier:key_bits=1024"
    assert standing_in("privmvmf") == "unrated-sampling:rho=1+paillier:ideal=true"
    assert standing_in(text) == "laplace:b=2+paillier:key_bits=1024,ideal=true"
    assert standing_in("none") == ""
    assert without_encryption(text) == "laplace:b=2"
    assert [encrypts(defense) for defense in ("privmvmf", text, "laplace:b=2", "none")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_names(ratings, tmp_path):
    with pytest.raises(InputError, match="unknown defense"):
        run(Comparison(("lapace:b=2",)), ratings, tmp_path)
    with pytest.raises(InputError, match="a comparison must have a defense at least"):
        run(Comparison(()), ratings, tmp_path)


def test_what_nobody_answered_is_words_and_no_number(compared):
    """Before: PrivMVMF's server stood at advantage 0, as the winner, though it reads the rated set."""
    _, _, rows = compared
    part = [row for row in rows if row["defense"] == "privmvmf" and row["adversary"] == "server"]
    leaks = [leak_of(part, metric) for metric in LEAKS]
    cells = [leak_cell(leak) for leak in leaks]
    assert cells[0].startswith("NOT TESTED")
    assert "no sum of few enough contributors" in cells[0]
    assert cells[1].splitlines()[2:] == ["LEAK", "rated-set"]
    assert worst(leaks).kind == "rated set"
    assert "untested: ratings, attributes" in worst_cell(leaks)
    nobody = [row for row in part if row["status"] != "ran"]
    assert worst_cell([leak_of(nobody, metric) for metric in LEAKS]) == "NOT TESTED"


def test_a_failure_is_no_safety(compared):
    _, _, rows = compared
    part = [row for row in rows if row["defense"] == "none" and row["adversary"] == "server"]
    failed = {**part[0], "status": "failed", "verdict": "NOT TESTED", "reason": "ArithmeticError: boom"}
    read = best(part, "rated_rating_accuracy")
    assert best([read, failed], "rated_rating_accuracy") is read  # a leak stands
    for others in ([], [{**read, "verdict": "NO EVIDENCE"}]):
        cell = leak_cell(leak_of([*others, failed], "rated_rating_accuracy"))
        assert cell == "NOT TESTED\nfailed: ArithmeticError: boom"


def test_table_and_figure(compared, tmp_path):
    _, _, rows = compared
    assert len(comparison_table(rows, "x").rows) >= 8
    written = comparison_figure(rows, tmp_path)
    assert {path.suffix for path in written} == {".svg", ".png"}
    first = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in comparison_figure(rows, tmp_path)] == first


def test_lists_that_uploads_name_need_no_attack(compared):
    """Before: NOT TESTED, of the same recording of which audit says that they lie in the open."""
    _, _, rows = compared
    silent = [
        {**row, "verdict": "NOT TESTED", "advantage": float("nan")}
        if row["metric"] == "rated_set_auc"
        else row
        for row in rows
        if row["defense"] == "none" and row["adversary"] == "server"
    ]
    leak = leak_of(silent, "rated_set_auc")
    assert leak_cell(leak).startswith("NOT TESTED")
    in_open = leak_of([*silent, open_row(adversary="server", defense="none")], "rated_set_auc")
    assert leak_cell(in_open) == "OPEN\nuploads name the items"
    assert "untested" not in worst_cell([leak_of(silent, "rated_rating_accuracy"), in_open])
    plan = settled(
        Comparison(
            ("none", "unrated-sampling:rho=1"),
            weighting="observed-only",
            adversaries=("server", "item-server"),
        )
    )
    few = generate(Synthetic(users=12, items=20, ratings_per_user=8.0))
    (row,) = open_rows(plan, few, cells := [Asked(plan, "none", "leakage").columns() | RAN])
    assert (row["defense"], row["adversary"], row["verdict"]) == ("none", "server", "OPEN")
    assert not open_rows(plan, few, [{**one, "status": "failed"} for one in cells])
