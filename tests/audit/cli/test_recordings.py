"""``audit --transcript``: recordings of any origin, with and without truth."""

from __future__ import annotations

import json

import numpy as np
import pytest

import factorleak as fl
from audit.experiments.recordings import rows_of_others
from audit.registry import BUILT_IN
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

LEVELS = [1, 2, 3, 4, 5]
N_CLIENTS, N_ITEMS, K = 24, 40, 5


@pytest.fixture
def recording(tmp_path):
    """One round of clients who upload the gradient of a mean loss, of which nothing is declared."""
    rng = np.random.default_rng(0)
    items = rng.normal(0, 0.3, (N_ITEMS, K))
    with Recorder(tmp_path / "run", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, items)
        for client in range(N_CLIENTS):
            rated = rng.choice(N_ITEMS, rng.integers(8, 20), replace=False)
            ratings = rng.choice(LEVELS, rated.size).astype(float)
            factor = rng.normal(0, 0.3, K)
            error = ratings - items[rated] @ factor
            recorder.upload(0, client, -2 / rated.size * error[:, None] * factor, rated)
            recorder.truth(client, rated, ratings)
    return tmp_path / "run"


def rows_of(folder, attack, metric):
    rows = json.loads((folder / "results.json").read_text())
    return [row for row in rows if row["attack"] == attack and row["metric"] == metric]


def kept_rows(folder):
    """Rows of our attacks: those of objects that other tests gave to this process are made anew."""
    rows = json.loads((folder / "results.json").read_text())
    return [row for row in rows if row["attack"] in BUILT_IN["attacks"]]


def test_names_stand_beside_clients_only_where_they_are_asked_for(run, recording, tmp_path):
    """Of clients and of whom nothing is known but what is claimed."""
    (tmp_path / "run.clients.json").write_text(json.dumps({"0": "'ann'"}))
    words = ("audit", "--transcript", recording, "--out", tmp_path / "R", "--attack", "undeclared", "-q")
    lines = tmp_path / "clients.csv"
    assert run(*words, "--by-client", lines)[0] == 0
    head, *rest = lines.read_text().splitlines()
    assert head == "update,weighting,adversary,client,items,recovered,guess,claim,what,attack"
    assert len(rest) == N_CLIENTS
    assert all(",1.0," in line and line.endswith(",ratings,undeclared") for line in rest)
    read, truth = tmp_path / "read.arrow", tmp_path / "run.truth.arrow"
    assert run("attack", recording, "--attack", "undeclared", "--out", read)[0] == 0
    asked = ("score", read, "--truth", truth, "--by-client", "--json")
    content = json.loads(run(*asked, "--names", "--transcript", recording)[1])["clients"]
    assert [one["recovered"] for one in content] == [1.0] * N_CLIENTS
    assert [one["name"] for one in content[:2]] == ["'ann'", ""]
    assert run(*asked, "--names")[0] == 2
    truth.unlink()
    assert run(*words, "--by-client", lines, "--names")[0] == 0
    head, first, *_ = lines.read_text().splitlines()
    assert (head.split(",")[0], first.split(",")[0]) == ("name", "'ann'")
    assert ",1.0," not in first
    assert run(*words, "--names")[0] == 2


def test_every_attack_is_a_row_and_a_leak_is_one(run, recording, tmp_path):
    out = tmp_path / "results"
    code, said, _ = run("audit", "--transcript", recording, "--out", out, "--fail-on", "leak", "--exhaustive")
    assert code == 1
    (read,) = rows_of(out, "undeclared", "rating_accuracy")
    assert read["value"] == 1
    assert read["verdict"] == "LEAK"
    (silent,) = rows_of(out, "root-krylov", "rating_accuracy")
    assert silent["verdict"] == "NOT TESTED"
    assert "not declared" in silent["reason"]
    assert "undeclared" in said
    rows = json.loads((out / "results.json").read_text())
    assert [row["metric"] for row in rows if row["verdict"] == "OPEN"] == ["rated_set"]
    before = kept_rows(out)
    assert run("audit", "--transcript", recording, "--out", out, "--exhaustive")[0] == 0
    assert kept_rows(out) == before


def test_without_truth_it_says_for_whom_there_is_an_answer(run, recording, tmp_path):
    recording.with_name("run.truth.arrow").unlink()
    out = tmp_path / "results"
    words = ("--attack", "undeclared", "--attack", "spectral")
    assert run("audit", "--transcript", recording, "--out", out, *words)[0] == 0
    (claimed,) = rows_of(out, "undeclared", "clients_answered")
    assert claimed["value"] == 1
    assert claimed["baseline"] < 0.1
    assert claimed["verdict"] == "LEAK"
    (silent,) = rows_of(out, "spectral", "rating_accuracy")
    assert silent["verdict"] == "NOT TESTED"


def test_shuffled_uploads_are_no_leak_without_truth(run, recording, tmp_path):
    """Rows dealt out at random: whoever gets an answer gets it by accident."""
    recording.with_name("run.truth.arrow").unlink()
    rng = np.random.default_rng(1)
    with Recorder(tmp_path / "noise", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, rng.normal(0, 0.3, (N_ITEMS, K)))
        for client in range(N_CLIENTS):
            rated = rng.choice(N_ITEMS, 12, replace=False)
            recorder.upload(0, client, rng.normal(size=(12, 1)) * rng.normal(size=K), rated)
    out = tmp_path / "results"
    assert run("audit", "--transcript", tmp_path / "noise", "--out", out, "--attack", "undeclared")[0] == 0
    rows = json.loads((out / "results.json").read_text())
    assert all(row["verdict"] != "LEAK" for row in rows)


@pytest.mark.parametrize("n_clients", [2, 4])
def test_few_clients_are_a_leak_without_truth(tmp_path, n_clients):
    """Before: INCONCLUSIVE, for a sign test of fewer than seven clients ends at 0.016."""
    rng = np.random.default_rng(2)
    items = rng.normal(0, 0.3, (N_ITEMS, K))
    constants = {"upload_scale": -2.0, "upload_regularization": 0.0}
    with Recorder(tmp_path / "few", rating_levels=LEVELS, constants=constants) as recorder:
        recorder.broadcast(0, items)
        for client in range(n_clients):
            rated, factor = rng.choice(N_ITEMS, 20, replace=False), rng.normal(0, 0.3, K)
            error = rng.choice(LEVELS, 20) - items[rated] @ factor
            recorder.upload(0, client, -2 * error[:, None] * factor, rated)
    (row,) = (
        fl.audit_recording(tmp_path / "few", attacks="grid")
        .query("metric == 'clients_answered'")
        .itertuples()
    )
    assert (row.value, row.baseline, row.verdict) == (1, 0, "LEAK")
    assert row.p_value == pytest.approx({1: 1 / 101, 2: 1 / 121, 4: 1 / 256}[n_clients])


def test_a_bar_without_truth_is_passed_by_nothing_that_was_measured(run, recording, tmp_path):
    """Lists are open whatever the rows hold: what answers shuffled uploads, too, measures nothing."""
    recording.with_name("run.truth.arrow").unlink()
    words = ("--attack", "rated-set", "--out", tmp_path / "r", "--fail-on", "leak")
    code, _, said = run("audit", "--transcript", recording, *words)
    assert code == 1, said
    assert "rated_set is OPEN" in said
    code, _, said = run("audit", "--transcript", recording, *words, "--allow-open")
    assert code == 3, said


def test_options_of_victims_are_refused(run, recording, tmp_path):
    code, _, said = run("audit", "--transcript", recording, "--victim", "mf", "--out", tmp_path / "r")
    assert code == 2, said
    assert "--victim" in said
    assert "leave it out" in said


def test_lists_that_say_nothing_are_not_tested(run, tmp_path):
    """Noise on every row: the lists do not tell which items were rated, and nobody may call that safe."""
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "run", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, rng.normal(0, 0.3, (N_ITEMS, K)))
        for client in range(N_CLIENTS):
            recorder.upload(0, client, rng.normal(0, 1, (N_ITEMS, K)))
            recorder.truth(client, np.arange(10), rng.choice(LEVELS, 10))
    out = tmp_path / "results"
    assert run("audit", "--transcript", tmp_path / "run", "--out", out, "--attack", "rated-set")[0] == 0
    rows = json.loads((out / "results.json").read_text())
    assert {row["verdict"] for row in rows} == {"NOT TESTED"}
    assert all("lists say nothing" in row["reason"] for row in rows)


@pytest.fixture
def peers(tmp_path):
    """Clients who send their rows to half of the others, at half their size."""
    rng = np.random.default_rng(0)
    items = rng.normal(0, 0.3, (N_ITEMS, K))
    with Recorder(tmp_path / "peers", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, items)
        for client in range(N_CLIENTS):
            rated = rng.choice(N_ITEMS, rng.integers(8, 20), replace=False)
            ratings, factor = rng.choice(LEVELS, rated.size), rng.normal(0, 0.3, K)
            gradient = -2 * (ratings - items[rated] @ factor)[:, None] * factor
            recorder.upload(0, client, gradient, rated, to=Recorder.NEIGHBOURS)
            recorder.truth(client, rated, ratings)
            for step in range(1, 13):
                recorder.edge(client, (client + step) % N_CLIENTS, 0.5)
    return tmp_path / "peers"


def test_a_peer_is_scored_on_what_it_reads_of_others(run, peers, tmp_path):
    """Before: nobody was answered, for the peer was said to receive nothing but its own rows."""
    out = tmp_path / "results"
    words = ("--attack", "undeclared", "--adversary", "client:9", "--out", out)
    assert run("audit", "--transcript", peers, *words)[0] == 0
    (read,) = rows_of(out, "undeclared", "rating_accuracy")
    assert (read["n_users"], read["value"], read["verdict"]) == (12, 1, "LEAK")
    code, said, _ = run("transcript", "check", peers, "--adversary", "client:9", "--json")
    assert code == 0
    told = {one["attack"]: one for one in json.loads(said)["attacks"]}
    assert told["undeclared"]["applies"]


def test_a_client_of_a_server_receives_nothing_of_others(run, recording, tmp_path):
    out = tmp_path / "results"
    words = ("--attack", "undeclared", "--adversary", "client:9", "--out", out)
    assert run("audit", "--transcript", recording, *words)[0] == 0
    (read,) = rows_of(out, "undeclared", "rating_accuracy")
    assert read["verdict"] == "NOT TESTED"
    assert "nobody else's uploads" in read["reason"]
    _, said, _ = run("transcript", "check", recording, "--adversary", "client:9", "--json")
    told = {one["attack"]: one for one in json.loads(said)["attacks"]}
    assert "nobody else's uploads" in told["undeclared"]["reason"]


@pytest.mark.parametrize("attack", ["trajectory", "grid"])
def test_own_rows_are_no_answer_about_others(peers, attack):
    """Whether an attack gets them or not."""
    view = open_transcript(peers).view("client:9")
    seen = rows_of_others(view, attack)
    assert (9 in seen.users) == (attack == "trajectory")
