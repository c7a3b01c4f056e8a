"""A campaign as a file: what it means, and what it says of what it does not understand."""

from __future__ import annotations

import re

import pytest

from audit.campaigns.campaign_file import load_data, matrix_of, read_campaign
from audit.campaigns.matrix import listed
from victims.common.errors import InputError

HEAD = 'format = "factorleak-campaign"\nversion = 1\n'
DATA = '[[data]]\nname = "small"\npath = "synthetic:users=12,items=20,ratings_per_user=6"\n'
MF = '[[victim]]\nname = "mf"\ndefenses = ["none", "laplace:b=2"]\n'
GOOD = HEAD + "[grid]\nseeds = [0, 1]\nruns = 2\n" + DATA + MF


def read(tmp_path, text):
    path = tmp_path / "campaign.toml"
    path.write_text(text)
    return read_campaign(path)


def all_of(content, tmp_path):
    return listed(matrix_of(content, tmp_path), load_data(content, tmp_path), tmp_path)


def test_it_is_the_product_of_what_it_names(tmp_path):
    content = read(
        tmp_path, GOOD + '[[victim]]\nname = "fedmf"\nupdate = ["sgd"]\nseeds = [5]\nset = { factors = 3 }\n'
    )
    plans = [part.plan for part in matrix_of(content, tmp_path).parts]
    assert [(plan.victim, plan.seed, plan.defenses) for plan in plans] == [
        ("decentralised-mf", 0, ("none", "laplace:b=2")),
        ("decentralised-mf", 1, ("none", "laplace:b=2")),
        ("fedmf", 5, ("none",)),
    ]
    assert plans[2].victim_options == {"factors": "3"}
    cells = all_of(content, tmp_path).cells
    assert len(cells) == len({cell.path for cell in cells})
    leakage = [cell for cell in cells if cell.task.question == "leakage"]
    assert len(leakage) == 5
    assert load_data(content, tmp_path)["small"].n_users == 12


def test_what_two_blocks_ask_for_is_excluded_once(tmp_path):
    content = read(
        tmp_path, GOOD + '[[exclude]]\ndefense = "laplace:b=2"\nadversary = "server"\nreason = "known"\n'
    )
    twice = content.model_copy(update={"victim": [*content.victim, *content.victim]})
    assert all_of(content, tmp_path).excluded
    assert len(all_of(twice, tmp_path).excluded) == len(all_of(content, tmp_path).excluded)


def test_exclusions_are_rows_with_their_reason(tmp_path):
    out = '[[exclude]]\ndefense = "laplace:b=2"\nadversary = "server"\nreason = "known"\n'
    whole = '[[exclude]]\nvictim = "mf"\ndefense = "none"\nseed = 1\nreason = "done before"\n'
    content = read(tmp_path, GOOD + out + whole)
    cells, rows, _ = all_of(content, tmp_path)
    assert [(row["seed"], row["defense"], row["adversary"]) for row in rows[:1]] == [
        (0, "laplace:b=2", "server")
    ]
    assert len(rows) == 2 + len(matrix_of(content, tmp_path).parts[0].plan.adversaries)
    assert {row["verdict"] for row in rows} == {"NOT TESTED"}
    assert rows[0]["reason"] == "excluded by the campaign: known"
    tasks = [cell.task.task for cell in cells]
    assert not any(task.defense == "none" and task.plan.seed == 1 for task in tasks)
    assert all(
        "server" not in task.plan.adversaries
        for task in tasks
        if task.defense == "laplace:b=2" and task.question == "leakage"
    )


WRONG = {
    "no toml": ("[[", "must be TOML"),
    "another format": (GOOD.replace("factorleak-campaign", "other"), "format must be 'factorleak-campaign'"),
    "another version": (GOOD.replace("version = 1", "version = 2"), "version must be 1"),
    "no data": (HEAD + MF, "data"),
    "nothing that is measured": (HEAD + DATA, "[[victim]], [[audit]], [[sweep]]"),
    "a misspelt key": (GOOD.replace("defenses", "defences"), "did you mean 'defenses'?"),
    "a key of another place": (GOOD + "\n[grid2]\n", "there is no key 'grid2'; did you mean 'grid'?"),
    "an unknown victim": (GOOD.replace('"mf"', '"mff"'), "unknown victim 'mff'"),
    "an unknown defense": (GOOD.replace("laplace:b", "laplas:b"), "unknown defense 'laplas'"),
    "an unknown adversary": (GOOD.replace("runs", 'adversaries = ["servr"]\nruns'), "adversary"),
    "an unknown attack": (GOOD.replace("runs", 'attacks = ["spectal"]\nruns'), "unknown attack 'spectal'"),
    "a scenario among the options": (
        GOOD.replace('name = "mf"', 'name = "mf"\nset = { update = "sgd" }'),
        "campaign: set of [[victim]] mf must not name update, got 'sgd'; leave it out of set and say it by",
    ),
    "an exclusion of nothing": (GOOD + '[[exclude]]\nseed = 7\nreason = "x"\n', "means no cell"),
    "an exclusion of everything": (GOOD + '[[exclude]]\nreason = "x"\n', "an exclusion must name"),
    "an exclusion without a reason": (GOOD + "[[exclude]]\nseed = 0\n", "reason"),
    "two data of one name": (GOOD + DATA.replace("[[data]]", "[[data]]"), "must have a name each"),
    "a huge grid": (GOOD.replace("runs = 2", "runs = 2000000000"), "a whole number from 1 to 1000"),
    "a grid of nothing": (
        HEAD + DATA + "[grid]\nusers = 3\n[[quality]]\n", "[grid] users is about [[victim]] blocks",
    ),
    "a name that no victim uses": (
        GOOD.replace("runs", 'attacks = ["spectal"]\nruns') + 'attacks = ["grid"]\n', "unknown attack",
    ),
    "users that no victim uses": (
        GOOD.replace("runs", "users = -5\nruns") + "users = 3\n", "campaign: [grid]: users of a comparison",
    ),
    "runs that no victim uses": (
        GOOD.replace("runs = 2", "runs = -1") + "runs = 1\n", "campaign: [grid]: runs of a comparison must",
    ),
    "rounds that no victim uses": (
        GOOD.replace("runs", "rounds = [[0], [-3]]\nruns") + "rounds = [[0]]\n", "campaign: [grid]: rounds",
    ),
    "clients by name that no victim uses": (
        GOOD.replace("runs", 'adversaries = ["client:anna"]\nruns') + 'adversaries = ["server"]\n',
        "campaign: [grid]: adversary client must be clients by their numbers",
    ),
    "no format": (DATA + MF, 'format must be given; write format = "factorleak-campaign"'),
    "too many seeds": (GOOD.replace("[0, 1]", str(list(range(600)))), "at most 500 parts"),
    "a thousand blocks": (GOOD + "[[quality]]\n" * 1000, "at most 500 parts"),
    "text for a list": (GOOD.replace('["none", "laplace:b=2"]', '"none"'), "must be a list, got 'none'"),
    "no defense": (GOOD.replace("laplace:b=2", "laplace:b=0"), "scale of laplace must be > 0 where"),
    "a negative seed": (GOOD.replace("[0, 1]", "[-1]"), "campaign: seeds of [grid] must be"),
    "a negative seed of a victim": (GOOD + "seeds = [-1]\n", "campaign: seeds of [[victim]] mf must be"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_it_does_not_understand_is_said_before_anything_runs(tmp_path, name):
    text, words = WRONG[name]
    with pytest.raises(InputError, match=re.escape(words)):
        all_of(read(tmp_path, text), tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="nothing is there"):
        read_campaign(tmp_path / "campaign.toml")


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "campaign.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="must be TOML"):
        read_campaign(tmp_path / "campaign.toml")
