"""A stranger's Flower app, recorded in Flower's simulation and between a SuperLink and two SuperNodes.

The app is the tutorial's. Skipped where Flower is not installed (the extra ``flower``), and by pytest-xdist,
each worker of which would start networks of its own.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import factorleak
from tests.victims.recorders.network import flower

pytest.importorskip("flwr")
pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ, reason="starts networks; run it without -n"
)

APP = Path(__file__).parents[3] / "docs" / "tutorials" / "flower-mf"
KINDS = {  # of clients, with the run's configuration
    "gradient": {"upload": "gradient"},
    "mean": {"upload": "mean"},
    "weights": {"upload": "weights"},
    "three steps": {"upload": "weights", "local-steps": 3},
}
EVERY_KIND = f'''"""One run that records clients of every kind, one after the other."""

from dataclasses import replace
from pathlib import Path

from flower_mf import client, main
from flwr.serverapp import ServerApp

KINDS = {KINDS!r}
server = ServerApp()


@server.main()
def all_kinds(grid, context):
    config = dict(context.run_config)
    for name, kind in KINDS.items():
        here = {{**config, **kind, "recording": str(Path(config["recording"]) / name)}}
        main(grid, replace(context, run_config=here))
'''
READ = 0.98  # of the ratings of clients that the attack can read


@pytest.fixture(scope="module", params=[(6, 2, True), (2, 1, False)], ids=["simulation", "superlink"])
def recordings(request, tmp_path_factory) -> tuple[Path, int, int]:
    """A folder with a recording for each kind of client; numbers of clients and of rounds."""
    users, rounds, simulated = request.param
    folder = tmp_path_factory.mktemp("flower")
    app = folder / "app"
    shutil.copytree(APP, app, ignore=shutil.ignore_patterns("__pycache__"))
    (app / "every_kind.py").write_text(EVERY_KIND)
    settings = app / "pyproject.toml"
    settings.write_text(settings.read_text().replace("flower_mf:server", "every_kind:server"))
    out = folder / "recordings"
    out.mkdir()
    with flower(folder, users, simulated=simulated) as network:
        printed = network.run(app, users=users, rounds=rounds, recording=str(out))
    missing = [kind for kind in KINDS if not (out / kind).is_dir()]
    assert not missing, f"{missing} were not recorded:\n{printed}"
    return out, users, rounds


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_holds_what_the_server_saw(recordings, kind):
    folder, users, rounds = recordings
    transcript = factorleak.open_transcript(folder / kind)
    manifest = transcript.manifest
    assert (manifest.version, manifest.factors, manifest.n_items, manifest.n_users) == (2, 5, 60, users)
    assert manifest.rounds == list(range(1, 1 + rounds))
    for batch in transcript.view("server").batches(1 << 20):
        assert batch.users.tolist() == list(range(users))
        assert all(uploads.valid.any(axis=1).all() for uploads in batch.rounds)


@pytest.mark.parametrize("kind", ["gradient", "mean", "weights"])
def test_clients_of_one_step_are_read(recordings, kind):
    """Nothing of the rule is declared but what a row is."""
    row = scored(recordings[0] / kind)
    assert row["value"] >= READ
    assert row["n_abstained"] == 0


def test_clients_of_three_steps_are_read(recordings):
    """On copies of their own, nothing declared; they have more ratings than factors."""
    row = scored(recordings[0] / "three steps")
    assert row["value"] >= READ
    assert row["n_abstained"] == 0


def scored(recording: Path):
    """What the attack reads of the ratings that there are."""
    found = factorleak.attack(recording, "undeclared")
    return factorleak.score(found, transcript=recording).set_index("metric").loc["rated_rating_accuracy"]
