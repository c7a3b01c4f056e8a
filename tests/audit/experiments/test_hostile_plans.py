"""Hostile values of every command: refused before anything is loaded, in the same words whoever asks.

A value is given to a block of a campaign's file, to the command line and to the Python face, as far as each
of them has a way to say it.
"""

from __future__ import annotations

import re

import pytest

import factorleak as fl
from audit.campaigns.campaign_file import matrix_of, read_campaign
from audit.experiments.auditing import run as run_campaign
from audit.experiments.auditing import settled
from audit.experiments.plan import Audit
from audit.experiments.scenarios import obstacle_of, one_scenario, scenarios
from audit.factories import make_defenses
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Capabilities, Centralised
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.training import obstacle

HEAD = 'format = "factorleak-campaign"\nversion = 1\n[[data]]\nname = "synthetic"\n'
NOWHERE = "no-such-ratings"  # loading it would be another error
CLIENT = "a whole number from 1 to 2,147,483,647"
ROUND = "each a whole number from 0 to 999,999"

# command: {lines of a block: (words of the message, options of the command line, keywords of the face)}
BLOCKS = {
    "audit": {
        "sample = 0": (f"sample of an audit must be {CLIENT}, got 0", "--sample 0", {"sample": 0}),
        "users = -1": (f"users of an audit must be {CLIENT}, or none, got -1", "--users -1", {"users": -1}),
        "rounds = [-1]": (f"{ROUND}, got -1", None, {"rounds": [-1]}),
        "rounds = []": ("rounds of an audit must be 1 to 100,001 values", None, {"rounds": []}),
        "rounds = [2000000000]": (f"{ROUND}, got 2000000000", None, {"rounds": [2000000000]}),
        "attacks = ['']": ("each text of 1 to 500 characters, got ''", None, {"attacks": [""]}),
        "adversary = 'client:x'": (
            "adversary client must be clients by their numbers, as client:0, got 'client:x'",
            "--adversary client:x", {"adversary": "client:x"},
        ),
        "attacks = ['grid']\noptions = { spectral = { tolerance = 1 } }": (
            "options are given for spectral, which does not run; name it among the attacks, now grid",
            "--attack grid --option spectral.tolerance=1",
            {"attacks": "grid", "attack_options": {"spectral": {"tolerance": 1}}},
        ),
        "update = ['sgd']\nset = { update = 'semi-als' }": (
            "update must be said once, got sgd and update=semi-als in set; leave one out",
            "--update sgd --set update=semi-als", None,
        ),
        "defenses = ['laplace:scale=0']": (
            "scale of laplace must be > 0 where nothing is clipped, got 0",
            "--defense laplace:scale=0", {"defenses": "laplace:scale=0"},
        ),
    },
    "sweep": {
        "users = 0": (f"users of a sweep must be {CLIENT}, got 0", "--users 0", {"users": 0}),
        "sample = -2": (f"sample of a sweep must be {CLIENT}, got -2", "--sample -2", {"sample": -2}),
        "first = 99999999": ("first of a sweep must be a whole number from 0 to 999,999", "--first 99999999",
                             {"first": 99999999}),
        "scales = [nan]": ("or between 1e-09 and 1e+09, got nan", "--scales nan", {"scales": [float("nan")]}),
        "scales = [1e300]": ("got 1e+300", "--scales 1e300", {"scales": [1e300]}),
        "rounds = [0]": ("rounds of a sweep must be 1 to 1000 values", "--rounds 0", {"rounds": [0]}),
        "attacks = ['grid']\noptions = { root-hybr = { answr = 'any' } }": (
            "options are given for root-hybr, which does not run",
            "--attack grid --option root-hybr.answr=any",
            {"attacks": "grid", "attack_options": {"root-hybr": {"answr": "any"}}},
        ),
        f"scales = {[n / 10 for n in range(100)]}\nrounds = {list(range(1, 90))}": (
            "a sweep must have at most 10,000 cells, got 71,200", None,
            {"scales": [n / 10 for n in range(100)], "rounds": list(range(1, 90))},
        ),
    },
    "predict": {
        "methods = ['']": ("each text of 1 to 500 characters, got ''", None, None),
        "factors = [0]": ("each a whole number from 1 to 10,000, got 0", "--factors 0", None),
        "runs = 0": ("runs of a prediction must be a whole number from 1 to 1000, got 0", "--runs 0", None),
        "epochs = -1": ("epochs of a prediction must be a whole number from 1", "--epochs -1", None),
        "test_fraction = nan": ("between 0 and 1, exclusive, got nan", "--test-fraction nan", None),
        "test_fraction = inf": ("between 0 and 1, exclusive, got inf", "--test-fraction inf", None),
        "test_fraction = -1": ("between 0 and 1, exclusive, got -1", "--test-fraction -1", None),
        "split = 'last:0'": ("a split must be one of random, time, last:K", "--split last:0", None),
        "methods = ['mf']\nnoise = 'often'": ("noise of a prediction must be once, fresh or composed",
                                              "--method mf --noise often", None),
        "vary = 'fraction'\npoints = [7]": ("points of a prediction must be in (0, 1], got 7",
                                            "--vary fraction --points 7", None),
        "set = { factors = 3 }": ("must not name factors, got '3'; leave it out of set and say it by",
                                  "--set factors=3", None),
        "set = { epochs = 3 }": ("set of a prediction must not name epochs", "--set epochs=3", None),
        f"factors = {list(range(1, 900))}": ("must have at most 10,000 cells, got 22,475", None, None),
    },
    "predict pdmfrec": {
        "rates = [inf]": ("each > 0, got inf", "--rates inf", None),
        "rounds = []": ("rounds of a prediction with pdmfrec must be", None, None),
        "runs = 6": ("runs of a prediction with pdmfrec must be a whole", "--runs 6", None),
        "set = { learning_rate = 3 }": ("must not name learning_rate, got '3'", "--set learning-rate=3",
                                        None),
    },
    "predict dpmf-yang": {
        "rounds = 0": ("rounds of a prediction with dpmf-yang must be", "--epochs 0", None),
        "runs = 0": ("runs of a prediction with dpmf-yang must be", "--runs 0", None),
        "set = { factors = 3 }": ("must not name factors, got '3'; leave it", "--set factors=3", None),
        "vary = 'degree'\nset = { degree = 3 }": ("must not name degree, got '3'; leave it out of set",
                                                  "--vary degree --set degree=3", None),
    },
    "claims": {
        "protocols = []": ("protocols of claims must be 1 to 1000 values", None, None),
        "protocols = ['']": ("each text of 1 to 500 characters, got ''", None, None),
        "noises = []": ("noises of claims must be 1 to 1000 values, each once", None, None),
        "epsilons = []": ("epsilons of claims must be 1 to 1000 values", None, None),
        "epsilons = [0]": ("each between 1e-09 and 1e+09, got 0", "--epsilon 0", None),
        "epsilons = [nan]": ("each between 1e-09 and 1e+09, got nan", "--epsilon nan", None),
        "repetitions = -1": ("repetitions of claims must be a whole number from 0", "--repetitions -1", None),
        "rounds = 1": ("rounds of claims must be a whole number from 2", "--rounds 1", None),
        "epochs = 3\nrounds = 9": ("rounds of claims must be between 2 and the 3 epochs, got 9",
                                   "--epochs 3 --rounds 9", None),
    },
    "cost": {
        "items = [0]": ("items of a cost sheet must be at most 1000 values, each", "--items 0", None),
        "key_bits = [100]": ("key_bits of paillier must be 1024, 2048 or 3072", "--key-bits 100", None),
        "sample = 0": (f"sample of a cost sheet must be {CLIENT}, got 0", "--sample 0", None),
        "bits_per_second = nan": ("bits_per_second of a cost sheet must be > 0", None, None),
        "bits_per_second = 0": ("bits_per_second of a cost sheet must be > 0, got 0", None, None),
    },
    "quality": {
        "rounds = 0": ("rounds of a quality plan must be a whole number from 1", "--rounds 0", None),
        "runs = 0": ("runs of a quality plan must be a whole number from 1 to 1000, got 0", "--runs 0", None),
        "scenarios = ['old']": ("each existing, new user or new item, got 'old'", "--scenario old", None),
        "cut = { k = 0 }": ("k of a ranking must be a whole number from 1", "--k 0", None),
        "cut = { relevant = nan }": ("relevant of a ranking must be > 0, got nan", "--relevant nan", None),
        "cut = 3": ("must be a table of k and relevant, got 3", None, None),
        "split = 'foo'": ("a split must be one of random, time, last:K", "--split foo", None),
    },
}  # fmt: skip
COMPARED = {
    "runs = 0": ("runs of a comparison must be a whole number from 1", "--runs 0", {"runs": 0}),
    "users = 0": (f"users of a comparison must be {CLIENT}, got 0", "--users 0", {"users": 0}),
    "trained = 0": ("trained of a comparison must be a whole number from 1", "--trained 0", {"trained": 0}),
    "rounds = [[1000000]]": (f"{ROUND}, got 1000000", None, {"rounds": [1000000]}),
    "adversaries = ['neighbour:a']": (
        "adversary neighbour must be clients by their numbers", "--adversary neighbour:a",
        {"adversaries": "neighbour:a"},
    ),
}  # fmt: skip
TABLE = [(command, lines, *said) for command, block in BLOCKS.items() for lines, said in block.items()]


def refused_file(tmp_path, text: str) -> str:
    path = tmp_path / "campaign.toml"
    path.write_text(HEAD + text)
    with pytest.raises(InputError) as caught:
        matrix_of(read_campaign(path), tmp_path)
    return str(caught.value)


def refused_command(run, tmp_path, words: str) -> str:
    """What the command says; the ratings are not there, and would be told later."""
    code, _, error = run(*words.split(), "--data", NOWHERE, "--out", tmp_path / "R")
    assert code == 2
    assert not (tmp_path / "R" / "cells").exists()
    return error


@pytest.mark.parametrize(
    ("command", "lines", "message", "words", "keywords"),
    TABLE,
    ids=[f"{row[0]} {row[1]:.40}" for row in TABLE],
)
def test_it_is_refused_in_the_same_words(run, tmp_path, command, lines, message, words, keywords):
    name, _, victim = command.partition(" ")
    chosen = f'victim = "{victim}"\n' if victim else ""
    assert message in refused_file(tmp_path, f"[[{name}]]\n{chosen}{lines}\n")
    if words is not None:
        option = f" --victim {victim}" if victim else ""
        assert message in refused_command(run, tmp_path, f"{name}{option} {words}")
    if keywords is not None:
        with pytest.raises(InputError, match=re.escape(message)):
            getattr(fl, name)(NOWHERE, **keywords)


@pytest.mark.parametrize("lines", COMPARED)
def test_of_compare_too(run, tmp_path, lines):
    message, words, keywords = COMPARED[lines]
    told = refused_file(tmp_path, f'[[victim]]\nname = "mf"\n{lines}\n')
    assert message in told
    if words is not None:
        assert message in refused_command(run, tmp_path, f"compare none {words}")
    with pytest.raises(InputError, match=re.escape(message)):
        fl.compare("none", NOWHERE, **keywords)


@pytest.mark.parametrize("typed", ["0", "-1", "nan", "inf", "1e+300"])
def test_the_speed_of_a_network_is_refused_as_it_was_typed(run, tmp_path, typed):
    assert f"--gigabits must be > 0 and < 1e299, got {typed}" in refused_command(
        run, tmp_path, f"cost --gigabits {typed}"
    )


def test_two_samplers_are_known_before_anything_runs():
    two = "unrated-sampling:rho=1+unrated-sampling:rho=2"
    assert obstacle_of("fedmvmf", {}, two).startswith("at most one defense may sample unrated items")


def test_a_refused_audit_writes_nothing(tmp_path):
    wanted = settled(Audit(victim="pdmfrec", defenses=("paillier",)))
    with pytest.raises(InputError, match="paillier needs a server"):
        run_campaign(wanted, generate(Synthetic(users=6, items=8, ratings_per_user=4.0)), tmp_path / "R")
    assert not (tmp_path / "R").exists()


def test_no_update_among_the_options_is_no_choice():
    assert one_scenario("fedmf", "", "", {"update": None}) == one_scenario("fedmf", "", "", {})
    assert scenarios("fedmf", (), (), {"update": None}) == scenarios("fedmf", (), (), {})


class Unsteady(DecentralisedMF):
    @property
    def capabilities(self):
        return Capabilities(Centralised(1, 0.0), network=lambda state, ratings: 1 / 0)


@pytest.mark.parametrize("defense", ["laplace", "unrated-sampling:rho=1"])
def test_what_fails_on_a_few_synthetic_clients_is_tried(defense):
    assert obstacle(Unsteady(), make_defenses(defense)) == ""
