"""The public face as a stranger uses it: nothing else of the project is imported by the scripts in here."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import factorleak as fl
from audit.experiments.results import COLUMNS
from audit.registry import BUILT_IN
from factorleak import plugins
from victims.protocols.fedmvmf import FedMVMF

HEAVY = ("jax", "numpy", "pandas", "scipy", "pyarrow", "seaborn", "typer", "pydantic", "audit.registry")
PACKAGES = ("victims", "defenses", "attacks", "reports", "audit")

ELSEWHERE = f"""
import builtins, importlib, pkgutil, sys

UNIX = {{"resource", "fcntl", "termios", "tty", "pty", "pwd", "grp"}}
real = builtins.__import__

def only_elsewhere(name, importer=None, *rest):
    whose = str((importer or {{}}).get("__name__")).partition(".")[0]
    if name in UNIX and whose in {(*PACKAGES, "factorleak")!r}:
        raise ModuleNotFoundError(f"No module named {{name!r}}")
    return real(name, importer, *rest)

builtins.__import__ = only_elsewhere
import factorleak as fl

for package in map(importlib.import_module, {PACKAGES!r}):
    for found in pkgutil.walk_packages(package.__path__, f"{{package.__name__}}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
few = fl.synthetic(users=40, items=20, ratings_per_user=6)
found = fl.audit(few, attacks="spectral", updates="sgd", weightings="include-unrated", rounds=[0])
print(found[found.metric == "rated_rating_accuracy"].verdict.iloc[0])
"""


def python(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A new interpreter in a folder."""
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.fixture(scope="module")
def few() -> fl.Ratings:
    return fl.synthetic(users=15, items=20, ratings_per_user=6)


@pytest.fixture(scope="module")
def recorded(few, tmp_path_factory) -> fl.Transcript:
    path = tmp_path_factory.mktemp("face") / "demo"
    return fl.record(path, few, victim="mf", factors=2, rounds=[0, 1])


class TestNames:
    def test_importing_it_imports_nothing_heavy(self, tmp_path):
        """Nor does listing its names."""
        code = f"import sys, factorleak; dir(factorleak); print([m for m in {HEAVY!r} if m in sys.modules])"
        assert python("-c", code, cwd=tmp_path).stdout == "[]\n"

    def test_what_types_see_is_what_is_loaded(self):
        """The imports under TYPE_CHECKING name the same objects as the lazy ones."""
        tree = ast.parse(Path(fl.__file__).read_text())
        branches = (node for node in tree.body if isinstance(node, ast.If))
        (typed,) = (node for node in branches if ast.unparse(node.test) == "TYPE_CHECKING")
        found = {
            alias.name: node.module
            for node in typed.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert set(fl.__all__) <= set(found) | functions
        for name in set(fl.__all__) & set(found):
            assert getattr(fl, name) is getattr(sys.modules[found[name]], name)

    def test_what_authors_need_lies_below_it(self):
        assert fl.plugins is plugins is import_module("factorleak.plugins")
        assert not set(fl.__all__) & set(plugins.__all__)
        assert all(getattr(plugins, name) is not None for name in plugins.__all__)

    def test_its_stubs_are_itself(self):
        """Type checkers take the types of a single module from such a package alone (PEP 561)."""
        stubs = Path(fl.__file__).with_name("factorleak-stubs") / "__init__.pyi"
        assert stubs.read_bytes() == Path(fl.__file__).read_bytes()

    def test_a_name_of_plugins_says_where_it_is(self):
        with pytest.raises(AttributeError, match="'Defense'; it is in factorleak"):
            fl.Defense  # noqa: B018

    def test_an_unknown_name(self):
        with pytest.raises(AttributeError, match="no attribute 'telepathy'"):
            fl.telepathy  # noqa: B018


class TestElsewhere:
    """Where Python has no modules of Unix alone, as on Windows: our code finds none, whoever else does."""

    @pytest.mark.thorough
    def test_every_module_and_an_audit(self, tmp_path):
        script = tmp_path / "elsewhere.py"
        script.write_text(ELSEWHERE)
        done = python(script, cwd=tmp_path)
        assert done.stdout.split() == ["LEAK"], done.stderr[-2000:]


class TestHidden:
    """A stranger's module of the same name as one of our packages, in the folder of a script."""

    def test_a_file_beside_a_script(self, tmp_path):
        name = "reports"
        (tmp_path / f"{name}.py").write_text("print('mine')")
        script = tmp_path / "use.py"
        script.write_text("import factorleak")
        done = python(script, cwd=tmp_path)
        last = done.stderr.splitlines()[-1]
        assert last.startswith("ImportError: ")
        assert f"{tmp_path / name}.py hides factorleak's package {name!r}; rename it" in last
        assert "mine" not in done.stdout

    def test_the_program_says_it_in_one_line(self, tmp_path):
        package = tmp_path / "reports"
        package.mkdir()
        (package / "__init__.py").write_text("")
        done = python("-m", "factorleak", "list", "victims", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"factorleak: error: {package / '__init__.py'} hides")
        assert done.stderr.count("\n") == 1

    def test_a_folder_of_files_hides_nothing(self, tmp_path, monkeypatch):
        (tmp_path / "reports").mkdir()
        (tmp_path / "reports" / "january.txt").write_text("")
        script = tmp_path / "use.py"
        script.write_text("import factorleak; print('well')")
        # as after a plain installation: what is on the path goes before a folder without __init__.py
        monkeypatch.setenv("PYTHONPATH", str(Path(fl.__file__).parent))
        assert python(script, cwd=tmp_path).stdout == "well\n"

    def test_a_folder_of_files_before_an_editable_installation(self, tmp_path, monkeypatch):
        """What is left of a version that was removed goes before what an editable one finds."""
        (tmp_path / "left" / "victims").mkdir(parents=True)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "left"))
        (tmp_path / "alone").mkdir()
        shutil.copy(fl.__file__, tmp_path / "alone")
        done = python("-c", "import factorleak", cwd=tmp_path / "alone")
        assert f"{tmp_path / 'left' / 'victims'} has no __init__.py and hides" in done.stderr
        assert done.stderr.rstrip().endswith("remove or rename that folder")


@dataclass(frozen=True)
class Fives:
    """An attack that no package offers."""

    stars: float = 5.0
    name: str = "fives"

    def attack(
        self, view: fl.View, key: int, progress: plugins.Progress = lambda done, total: None
    ) -> fl.Reconstruction:
        items = np.arange(view.manifest.n_items, dtype=np.int32)[None]
        value = np.full((view.users.size, items.size), self.stars)
        block = fl.Estimates(view.users, np.full_like(items, plugins.ITEM, np.int8), items, value)
        return fl.Reconstruction(self.name, view.users, (block,), {}, {"seed": key})


@dataclass(frozen=True)
class Halved(plugins.Defense):
    """A defense that no package offers: half of every upload."""

    share: float = 0.5
    name: str = "halved"

    def uploaded(self, rows: plugins.Rows, ratings: fl.Ratings, number: int, seed: int) -> plugins.Rows:
        return plugins.Rows(rows.sender, rows.kind, rows.index, self.share * rows.gradient)


class TestOneAfterTheOther:
    def test_what_the_commands_say(self, recorded, run, tmp_path):
        """The face and the command line answer alike."""
        found = fl.attack(recorded, "grid", seed=3)
        scores = fl.score(found, transcript=recorded)
        out, truth = tmp_path / "r.arrow", recorded.path.with_name("demo.truth.arrow")
        assert run("attack", recorded.path, "--attack", "grid", "--seed", 3, "--out", out)[0] == 0
        _, text, _ = run("score", out, "--truth", truth, "--json")
        theirs = pd.DataFrame(json.loads(text)["scores"])
        assert scores["metric"].tolist() == theirs["metric"].tolist()
        assert np.allclose(scores["value"], theirs["value"].astype(float), equal_nan=True)
        pd.testing.assert_frame_equal(pd.DataFrame(scores), pd.DataFrame(fl.score(out, truth)))

    def test_an_object_is_as_good_as_a_name(self, recorded):
        by_name = fl.attack(recorded, "guess-majority")
        view = recorded.view("server")
        assert fl.attack(view, "guess-majority").attack == by_name.attack
        value = fl.attack(recorded, Fives(stars=4.0)).blocks[0].value
        assert set(value.ravel()) == {4}

    def test_an_object_that_breaks_the_interface(self, recorded):
        class Silent:
            name = "silent"

            def attack(self, view, key, progress=None):
                return None

        with pytest.raises(fl.InputError, match="'silent' must return a Reconstruction"):
            fl.attack(recorded, Silent())
        with pytest.raises(fl.InputError, match="must be a name or have the verb"):
            fl.attack(recorded, 3)

    def test_a_defense_as_an_object(self, few, recorded, tmp_path):
        halved = fl.record(tmp_path / "t", few, victim="mf", factors=2, rounds=[0], defenses=Halved())
        assert halved.manifest.defenses == [{"name": "halved"}]
        plain = recorded.view("server").during([0]).messages.gradient
        assert np.allclose(2 * np.concatenate(halved.messages.gradient), np.concatenate(plain))

    def test_scoring_needs_the_truth(self, recorded):
        found = fl.attack(recorded, "guess-majority")
        with pytest.raises(fl.InputError, match="the reconstruction does not say which transcript"):
            fl.score(found)


class TestGrids:
    def test_audit_of_objects(self, few, recorded, tmp_path):
        """Components that no package offers; what differs from their defaults counts."""
        rows = fl.audit(
            few, victim="mf", attacks=[Fives(), "guess-majority"], defenses=[Halved(share=0.25)], rounds=[0],
            factors=2, out=tmp_path / "R",
        )  # fmt: skip
        assert tuple(rows.columns) == COLUMNS
        assert set(rows["attack"].dropna()) == {"fives", "guess-majority"}
        assert set(rows["defense"]) == {"halved:share=0.25"}
        assert set(rows["status"]) == {"ran"}
        kept = pd.read_json(tmp_path / "R" / "results.json")
        assert np.allclose(kept["value"], rows["value"], equal_nan=True)
        later = {one.attack for one in fl.check_transcript(recorded.path).attacks}
        assert "grid" in later
        assert "fives" not in later  # it was given to one call

    def test_a_victim_as_an_object_has_one_scenario(self, few):
        rows = fl.audit(few, victim=FedMVMF(update="sgd", factors=2), attacks="guess-majority", rounds=[0])
        assert set(rows["update"]) == {"sgd"}
        assert set(rows["weighting"]) == {"observed-only"}

    def test_a_scenario_as_an_option(self, few):
        """It was overridden without a word."""
        rows = fl.audit(few, attacks="guess-majority", rounds=[0], update="sgd", weighting="observed-only")
        assert set(rows["update"]) == {"sgd"}

    def test_a_name_that_is_taken(self, few):
        with pytest.raises(fl.InputError, match="'grid' of Fives has the name of another one"):
            fl.audit(few, victim="mf", attacks=Fives(name="grid"))

    def test_an_object_that_is_none(self, few):
        with pytest.raises(fl.InputError, match="must be a name or an instance of a dataclass"):
            fl.audit(few, attacks=[3])

    def test_sweep(self, few):
        rows = fl.sweep(
            few, victim="mf", attacks=Fives(), scales=[0, 1], rounds=[1], first=0, users=5, factors=2
        )
        assert set(rows["defense"]) == {"laplace:scale=0", "laplace:scale=1"}
        assert set(rows["attack"]) == {"fives"}

    def test_defenses_of_a_recording(self, few, recorded):
        words = {"attacks": "guess-majority", "progress": False, "jobs": 1}
        swept = fl.sweep(transcript=recorded, defense="top-k", scales=[0.5], **words)
        assert set(swept["defense"]) == {"none", "top-k:share=0.5"}
        compared = fl.compare("top-k:0.5", transcript=recorded.path, **words)
        assert set(compared["metric"]) == set(swept["metric"]) >= {"distortion", "rated_rating_accuracy"}
        assert compared["value"].equals(swept["value"])
        with pytest.raises(fl.InputError, match="victim says what to run"):
            fl.compare("none", transcript=recorded, victim="mf")
        with pytest.raises(fl.InputError, match="ratings says what to run"):
            fl.sweep(few, transcript=recorded)
        with pytest.raises(fl.InputError, match="defense is about a recording"):
            fl.sweep(few, defense="top-k")

    def test_compare(self, few):
        rows = fl.compare(
            ["none", Halved()], few, victim="mf", attacks="guess-majority", adversaries="server", rounds=[0],
            trained=2, runs=1, factors=2,
        )  # fmt: skip
        assert set(rows["defense"]) == {"none", "halved"}
        assert "failed" not in set(rows["status"])


class TestText:
    """What an interpreter shows is short; a Reconstruction was 49,479 characters."""

    def test_objects(self, few, recorded):
        found = fl.attack(recorded, "guess-majority")
        view = recorded.view("server")
        for thing in (few, recorded, found, found.blocks[0], view):
            assert len(repr(thing)) < 200
            assert "\n" not in repr(thing)
        assert repr(found) == "Reconstruction(attack='guess-majority', users=15, blocks=1, abstained=0)"

    def test_results(self, recorded):
        scores = fl.score(fl.attack(recorded, "guess-majority"), transcript=recorded)
        many = type(scores)(pd.concat([scores] * 50))
        assert len(repr(many)) < 2500
        assert repr(many).endswith(f"[{len(many)} rows x {many.shape[1]} columns, the first 12 shown]")
        assert type(many[many["value"] > 0]) is pd.DataFrame


class TestLists:
    def test_all_groups(self):
        found = fl.list_components()
        assert set(found["group"]) == {"victims", "defenses", "attacks", "adversaries"}

    @pytest.mark.parametrize("victim", ["pdmfrec", "dpmf-yang", "dmf"])
    def test_switches_that_a_victim_refuses_are_listed_so(self, victim):
        """Before: with their meaning among clients of a server, as if any value were taken."""
        told = fl.list_components("victims", victim).set_index("name")["meaning"]
        for switch, value in (("row_factor", "after"), ("biases", "items")):
            assert told[switch].startswith(("No other is taken here", "No others are taken here"))
            with pytest.raises(fl.InputError, match=f"{switch} of {victim} must be"):
                fl.record("never", fl.synthetic(users=5), victim=victim, **{switch: value})

    def test_options_of_every_component_are_explained(self):
        for group in ("victims", "defenses", "attacks"):
            for name in BUILT_IN[group]:
                options = fl.list_components(group, name)
                assert list(options.columns) == ["name", "type", "default", "meaning"]
                assert (options["meaning"].str.len() > 0).all(), (group, name, options)

    def test_who_takes_no_options(self):
        for group, name, message in (
            ("adversaries", "server", "options of an adversary stand in its name"),
            ("defenses", "privmvmf", "unrated-sampling and paillier together"),
            ("attacks", "telepathy", "unknown attack"),
        ):
            with pytest.raises(fl.InputError, match=message):
                fl.list_components(group, name)
        with pytest.raises(fl.InputError, match="must be one of victims"):
            fl.list_components("spells")
