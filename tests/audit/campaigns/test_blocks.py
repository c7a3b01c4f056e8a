"""Blocks of a campaign's file: the plans and the rows of the commands that they stand for."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from audit.campaigns.campaign_file import load_data, matrix_of, read_campaign
from audit.campaigns.matrix import listed
from audit.experiments.across_rows import controlled
from audit.experiments.results import rows_of
from victims.common.errors import InputError

DATA = "synthetic:users=20,items=20,ratings_per_user=8"
HEAD = f'format = "factorleak-campaign"\nversion = 1\n[[data]]\nname = "{DATA}"\n'
BLOCKS = {
    "audit": (
        'victim = "mf"\nattacks = ["spectral", "guess-majority"]\nset = { factors = 3 }\nrounds = [0, 1]\n',
        "audit --victim mf --attack spectral --attack guess-majority --set factors=3 --rounds 0-1",
    ),
    "sweep": (
        'victim = "mf"\nattacks = ["spectral"]\nscales = [0, 1]\nrounds = [1, 2]\nusers = 15\n',
        "sweep --victim mf --attack spectral --scales 0,1 --rounds 1,2 --users 15",
    ),
    "predict": (
        'methods = ["mf", "hdpmf"]\nfactors = [2]\nepochs = 2\nruns = 2\nnoise = "once"\n',
        "predict --method mf --method hdpmf --factors 2 --epochs 2 --runs 2 --noise once",
    ),
    "predict pdmfrec": (
        'victim = "pdmfrec"\nmethods = ["pmf"]\nrates = [0.01]\nrounds = [1, 2]\nruns = 1\n',
        "predict --victim pdmfrec --method pmf --rates 0.01 --epochs 2 --runs 1",
    ),
    "claims": (
        'protocols = ["hdpmf"]\nnoises = ["once"]\nepochs = 3\nrounds = 2\nset = { factors = 2 }\n'
        "bounds = false\n",
        "claims --protocol hdpmf --noise once --epochs 3 --rounds 2 --set factors=2 --no-bounds",
    ),
    "cost": (
        'victim = "fedmf"\nkey_bits = [1024]\nsample = 2\nset = { factors = 2 }\n',
        "cost --victim fedmf --key-bits 1024 --sample 2 --set factors=2",
    ),
    "quality": (
        'victim = "mf"\ndefense = "laplace:b=1"\nrounds = 1\nruns = 2\nscenarios = ["existing"]\n',
        "quality --victim mf --defense laplace:b=1 --rounds 1 --runs 2 --scenario existing",
    ),
}
SLOW = {"audit", "claims", "sweep", "predict"}
IN_ONE_PROCESS = {"audit", "cost"}


def content_of(tmp_path, text):
    path = tmp_path / "campaign.toml"
    path.write_text(HEAD + text)
    return read_campaign(path)


def all_of(tmp_path, text):
    content = content_of(tmp_path, text)
    return listed(matrix_of(content, tmp_path), load_data(content, tmp_path), tmp_path)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough if name in SLOW else ()) for name in BLOCKS]
)
def test_a_block_is_what_its_command_measures(run, tmp_path, name):
    """The same cells, so that none is computed again, and the same rows to the byte, verdicts controlled."""
    said, command = BLOCKS[name]
    content_of(tmp_path, f"[[{name.partition(' ')[0]}]]\n{said}")
    jobs = () if name in IN_ONE_PROCESS else ("--jobs", 1)
    code, _, error = run(*command.split(), "--data", DATA, "--out", tmp_path / "R", *jobs)
    assert code == 0, error
    own = (tmp_path / "R" / "results.json").read_text()
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "R" / "cells").glob("*.json")}
    words = ("compare", tmp_path / "campaign.toml", "--out", tmp_path / "R", "--jobs", 1)
    counts = json.loads(run(*words, "--dry-run", "--json")[1])
    assert counts["cells"] == counts["kept"] == len(files)
    assert run(*words)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "R" / "cells").glob("*.json")} == files
    rows, whole = (controlled(json.loads(text)) for text in (own, (tmp_path / "R/results.json").read_text()))
    assert json.dumps(whole[: len(rows)]) == json.dumps(rows)
    assert all(row["metric"].endswith("/strongest") for row in whole[len(rows) :])


@pytest.mark.thorough
def test_blocks_beside_victims(run, tmp_path):
    """One run, one page, counted by question; the second run computes nothing."""
    text = (
        '[grid]\nruns = 1\ntrained = 1\nadversaries = ["server"]\nattacks = ["guess-majority"]\n'
        'rounds = [[0]]\n[[victim]]\nname = "mf"\n[[quality]]\n' + BLOCKS["quality"][0]
        + '[[exclude]]\ndefense = "none"\nvictim = "mf"\nadversary = "eavesdropper"\nreason = "x"\n'
    )  # fmt: skip
    content_of(tmp_path, text.replace('["server"]', '["server", "eavesdropper"]'))
    words = ("compare", tmp_path / "campaign.toml", "--out", tmp_path / "R", "--jobs", 1, "--json")
    told = json.loads(run(*words)[1])
    assert {name: told[name] for name in ("cells", "leakage", "cost", "quality")} == {
        "cells": 7, "leakage": 1, "cost": 1, "quality": 5,
    }  # fmt: skip
    assert "ran" in {row["status"] for row in rows_of(tmp_path / "R" / "results.json")}
    assert (tmp_path / "R" / "report.html").exists()
    assert json.loads(run(*words, "--dry-run")[1])["kept"] == 7


def test_a_cell_that_cannot_be_is_a_row_and_ends_nothing(run, tmp_path):
    """The command itself stops there; a campaign goes on to the other cells."""
    block = BLOCKS["quality"][0]
    wild = "set = { learning_rate = 1e200 }\n"
    content_of(tmp_path, f"[[quality]]\n{block.replace('laplace:b=1', 'none')}{wild}[[quality]]\n{block}")
    assert run("compare", tmp_path / "campaign.toml", "--out", tmp_path / "R", "--jobs", 1)[0] == 0
    rows = rows_of(tmp_path / "R" / "results.json")
    failed = [row for row in rows if row["status"] == "failed"]
    assert {row["defense"] for row in failed} == {"none"}
    assert [row["defense"] for row in rows if row["status"] == "ran"]


def test_a_defense_that_a_victim_cannot_have(run, tmp_path):
    """A row where the grid crosses it with other victims, known beforehand; alone it is an error."""
    grid = '[grid]\nruns = 1\ntrained = 1\nadversaries = ["server"]\nattacks = ["guess-majority"]\n'
    victims = '[[victim]]\nname = "mf"\n[[victim]]\nname = "fedmf"\nset = { upload = "part-text" }\n'
    found = all_of(tmp_path, grid + 'defenses = ["unrated-sampling"]\n' + victims)
    assert {cell.task.task.plan.victim for cell in found.cells} == {"fedmf"}
    assert [(row["victim"], row["status"], row["metric"]) for row in found.excluded] == [
        ("mf", "not applicable", metric) for metric in ("rating_accuracy", "cost", "quality")
    ]
    assert all("they must not be sampled" in row["reason"] for row in found.excluded)
    twice = all_of(
        tmp_path, grid + 'defenses = ["unrated-sampling"]\n' + victims + '[[victim]]\nname = "mf"\n'
    )
    assert len(twice.excluded) == len(found.excluded)  # a row is written once, whoever asks for it
    alone = '[[victim]]\nname = "mf"\ndefenses = ["unrated-sampling"]\n'
    with pytest.raises(InputError, match=re.escape("[[victim]] mf: mf has no weight for unrated items")):
        all_of(tmp_path, grid + alone + victims)
    block = BLOCKS["quality"][0].replace("laplace:b=1", "unrated-sampling")
    with pytest.raises(InputError, match=re.escape("[[quality]] number 1: mf has no weight")):
        all_of(tmp_path, f"[[quality]]\n{block}")


def test_data_and_seeds_are_a_grid(tmp_path):
    other = 'name = "other"\npath = "synthetic:users=12,items=20,ratings_per_user=6"\n'
    block = "[[quality]]\n" + BLOCKS["quality"][0]
    found = all_of(
        tmp_path, f"[[data]]\n{other}{block}seeds = [0, 5]\n{block}data = ['other']\nseeds = [9]\n"
    )
    assert [(cell.task.data, cell.task.task.plan.seed) for cell in found.cells[::4]] == [
        (DATA, 0), (DATA, 5), ("other", 0), ("other", 5), ("other", 9),
    ]  # fmt: skip
    assert {cell.kind for cell in found.cells} == {f"quality on {DATA}", "quality on other"}


def test_cells_that_are_left_out_are_rows_of_their_own_columns(tmp_path):
    """By what their rows say: of a sweep the scale, the attack and the seed."""
    text = "[[sweep]]\n" + BLOCKS["sweep"][0].replace('["spectral"]', '["spectral", "guess-majority"]')
    text += '[[exclude]]\nvictim = "decentralised-mf"\ndefense = "laplace:scale=1"\nattack = "spectral"\n'
    found = all_of(tmp_path, text + 'reason = "noise"\n')
    assert len(found.cells) == 6
    assert [
        (row["attack"], row["rounds"], row["status"], row["verdict"], row["reason"]) for row in found.excluded
    ] == [
        ("spectral", rounds, "not applicable", "NOT TESTED", "excluded by the campaign: noise")
        for rounds in (1, 2)
    ]  # fmt: skip


def test_costs_are_measured_alone_and_files_read_here(tmp_path):
    """Whoever else works on the rest."""
    found = all_of(
        tmp_path, "".join(f"[[{name.partition(' ')[0]}]]\n{said}" for name, (said, _) in BLOCKS.items())
    )
    places = {cell.task.preset: cell.place for cell in found.cells}
    assert places == {
        "audit": "anywhere", "sweep": "anywhere", "predict mf": "anywhere", "predict pdmfrec": "anywhere",
        "claims": "anywhere", "cost": "alone", "quality": "anywhere",
    }  # fmt: skip
    (tmp_path / "weights.csv").write_text("kind,id,weight\n")
    text = f"[[predict]]\nmethods = ['hdpmf']\nweights = '{tmp_path / 'weights.csv'}'\n"
    assert {cell.place for cell in all_of(tmp_path, text).cells} == {"here"}


def test_the_published_split_is_that_of_the_ratings(tmp_path):
    """Beside the file that was loaded, whatever its name in the results; a sample has none."""
    (tmp_path / "folder").mkdir()
    content = content_of(tmp_path, '[[data]]\nname = "shop"\npath = "folder"\n[[predict]]\n')
    assert [part.plan.source for part in matrix_of(content, tmp_path).parts] == [
        DATA, str(tmp_path / "folder"),
    ]  # fmt: skip
    sample = content_of(
        tmp_path, '[[data]]\nname = "ml-100k"\ncommunity = 5\n[[claims]]\ndata = ["ml-100k"]\n'
    )
    assert [part.plan.source for part in matrix_of(sample, tmp_path).parts] == ["/dev/null"]


def test_the_file_of_the_handbook_is_understood(tmp_path):
    """Its blocks together, of other ratings."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "run-a-campaign.md").read_text()
    whole, more = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "campaign.toml"
    path.write_text(whole.replace("ratings.csv", DATA) + more)
    content = read_campaign(path)
    found = listed(matrix_of(content, tmp_path), load_data(content, tmp_path), tmp_path)
    asked = Counter(cell.task.preset for cell in found.cells)
    assert asked.keys() == {"compare", "sweep", "predict mf", "quality"}
    excluded = [row["reason"] for row in found.excluded if row["reason"].startswith("excluded")]
    reasons = {reason.rpartition(": ")[2] for reason in excluded}
    assert reasons == {"it sees what the server sees", "no root under noise"}


WRONG = {
    "a misspelt key": ("[[sweep]]\nscale = [1]\n", "there is no key 'scale'; did you mean 'scales'?"),
    "a key of the machine": ("[[predict]]\nsource = 'x'\n", "there is no key 'source'"),
    "an unknown victim": ("[[sweep]]\nvictim = 'mff'\n", "[[sweep]]: unknown victim 'mff'"),
    "no such method": ("[[predict]]\nvictim = 'pdmfrec'\nmethods = ['x']\n", "methods of a prediction with"),
    "nobody predicts so": ("[[predict]]\nvictim = 'fedmf'\n", "victim must be one of mf, pdmfrec, dpmf-yang"),
    "rounds after the end": ("[[claims]]\nepochs = 3\nrounds = 9\n", "must be between 2 and the 3 epochs"),
    "other data": ("[[sweep]]\ndata = ['x']\n", "[[sweep]] data must be of synthetic"),
    "an exclusion of nothing": (
        "[[quality]]\nruns = 1\n[[exclude]]\nseed = 7\nreason = 'x'\n", "means no cell; correct or remove it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_it_does_not_understand_is_said_before_anything_runs(tmp_path, name):
    text, words = WRONG[name]
    with pytest.raises(InputError, match=re.escape(words)):
        all_of(tmp_path, text)
    assert [path.name for path in tmp_path.iterdir()] == ["campaign.toml"]
