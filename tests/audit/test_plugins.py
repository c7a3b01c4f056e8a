"""Components of other packages: a real package on the path, whole and broken in every way."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from attacks.base import Estimates, Reconstruction
from attacks.metadata.guess import GuessMajority
from audit import plugins
from audit.code_identity import code_used
from audit.experiments.answers import WrongAnswer, answered
from audit.experiments.plan import Sweep
from audit.experiments.sweep import cells_of, settled
from audit.factories import make_attack, make_defense
from audit.registry import entries
from audit.shell.debugging import VARIABLE
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate

DATA = "synthetic:users=12,items=20,ratings_per_user=6"
ATTACK = """
    from dataclasses import dataclass
    import numpy as np
    from attacks.base import Estimates, Reconstruction

    @dataclass(frozen=True)
    class Stars:
        stars: float = 3.0
        name: str = "stars"

        def attack(self, view, key, progress=lambda done, total: None):
            items = np.arange(view.manifest.n_items, dtype=np.int32)[None]
            value = np.full((view.users.size, items.size), self.stars)
            block = Estimates(view.users, np.zeros_like(items, np.int8), items, value)
            return Reconstruction("stars", view.users, (block,), {}, {"seed": key})
"""


@pytest.fixture
def install(tmp_path, monkeypatch) -> Callable[..., Path]:
    """Put a package with one module and some entry points on the path, as an installer would."""
    root = tmp_path / "site"
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.setenv(VARIABLE, "")
    installed: list[str] = []

    def put(name: str = "theirs", source: str = ATTACK, group: str = "attacks", **offers: str) -> Path:
        package, info = root / name, root / f"{name}-0.1.dist-info"
        for folder in (package, info):
            folder.mkdir(parents=True, exist_ok=True)
        # of other source: Python takes it for this one's, if both are of one length and second
        shutil.rmtree(package / "__pycache__", ignore_errors=True)
        (package / "__init__.py").write_text("")
        (package / "mod.py").write_text(dedent(source))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        points = "".join(
            f"{key} = {value}\n" for key, value in (offers or {"stars": f"{name}.mod:Stars"}).items()
        )
        (info / "entry_points.txt").write_text(f"[factorleak.{group}]\n{points}")
        installed.append(name)
        forget()
        return package / "mod.py"

    def forget() -> None:
        for known in [part for part in sys.modules if part.partition(".")[0] in installed]:
            del sys.modules[known]
        importlib.invalidate_caches()
        for cached in (plugins.offered_on, plugins.code_at):
            cached.cache_clear()

    yield put
    forget()


def test_a_whole_one_is_listed_and_runs(install, run, tmp_path):
    install()
    assert "stars                 from theirs 0.1\n" in run("list", "attacks")[1]
    words = ["audit", "--data", DATA, "--victim", "mf", "--attack", "stars"]
    code, text, _ = run(*words, "--option", "stars.stars=4", "--out", tmp_path / "R")
    assert code == 0
    assert "stars   " in text


BROKEN = {
    "no package": ("", {"x": "nowhere.mod:Stars"}, "ModuleNotFoundError: No module named 'nowhere'"),
    "no name": (
        "",
        {"x": "theirs.mod:Nobody"},
        "AttributeError: module 'theirs.mod' has no attribute 'Nobody'",
    ),
    "no syntax": ("def (", {"x": "theirs.mod:Stars"}, "SyntaxError: invalid syntax"),
    "leaves": ("import sys; sys.exit(3)", {"x": "theirs.mod:Stars"}, "SystemExit: 3"),
    "no dataclass": ("class Stars: pass", {"x": "theirs.mod:Stars"}, "must be a dataclass"),
    "no verb": (ATTACK.replace("def attack", "def strike"), {"x": "theirs.mod:Stars"}, "has no 'attack'"),
    "other verb": (
        ATTACK.replace("self, view, key, progress", "self, view, progress"),
        {"x": "theirs.mod:Stars"},
        "'attack' that does not take (view, key, progress)",
    ),
    "strange type": (
        ATTACK.replace("stars: float", "stars: np.random.Generator"),
        {"x": "theirs.mod:Stars"},
        "cannot be made: PydanticSchemaGenerationError",
    ),
}


@pytest.mark.parametrize("how", list(BROKEN))
def test_a_broken_one_is_one_line(install, run, tmp_path, how):
    source, offers, message = BROKEN[how]
    install("theirs", source, **offers)
    line = next(line for line in run("list", "attacks")[1].splitlines() if line.startswith("x "))
    assert message in line
    assert "theirs" in line
    words = ["attack", tmp_path / "t", "--attack", "x"]
    code, _, error = run(*words)
    assert code == 2
    assert error.startswith("factorleak: error: attack 'x'")
    assert error.count("\n") == 1
    assert message in error
    code, _, error = run("--debug", *words)
    assert code == 2
    assert error.startswith("Traceback") or "The above exception" in error
    assert message in error.splitlines()[-1]


def test_debug_may_stand_anywhere_or_in_the_environment(install, run, tmp_path, monkeypatch):
    install("theirs", "raise ArithmeticError('boom')", x="theirs.mod:Stars")
    words = ["attack", tmp_path / "t", "--attack", "x"]
    assert "raise ArithmeticError('boom')" in run(*words, "--debug")[2]
    monkeypatch.setenv(VARIABLE, "0")
    assert "Traceback" not in run(*words)[2]
    monkeypatch.setenv(VARIABLE, "1")
    assert "raise ArithmeticError('boom')" in run(*words)[2]


class TestNames:
    """Two components of one name: neither answers, and the others still do."""

    def test_a_built_in_name_is_refused(self, install, run, tmp_path):
        install(spectral="theirs.mod:Stars", stars="theirs.mod:Stars")
        text = run("list", "attacks")[1]
        assert "spectral              refused: the name is offered by factorleak and by theirs 0.1 (" in text
        assert "likelihood            noisy uploads" in text
        code, _, error = run("attack", tmp_path / "t", "--attack", "spectral")
        assert code == 2
        assert "attack 'spectral' is refused: the name is offered by factorleak and by theirs 0.1" in error
        assert error.count("\n") == 1
        assert "manifest.json" in run("attack", tmp_path / "t", "--attack", "stars")[2]
        with pytest.raises(InputError, match="known are likelihood"):
            make_attack("telepathy")

    def test_two_packages(self, install):
        install("theirs")
        install("others")
        assert entries("attacks")["stars"].refused.startswith("the name is offered by ")
        with pytest.raises(InputError, match=r"theirs 0\.1 \(theirs\.mod:Stars\)"):
            make_attack("stars")

    def test_a_combined_name(self, install):
        install(group="defenses", hdpmf="theirs.mod:Stars")
        with pytest.raises(InputError, match="'hdpmf' is refused"):
            make_defense("hdpmf")
        with pytest.raises(InputError, match="'hdpmf' is refused"):
            code_used("mf", ["hdpmf:noise=fresh"])

    def test_a_name_that_no_command_line_holds(self, install):
        install(**{"a/b": "theirs.mod:Stars"})
        assert entries("attacks")["a/b"].refused.startswith("a name must be letters")


WRONG = {
    "a Reconstruction": "lambda view, found: None",
    "answered about client 99": (
        "lambda view, found: replace(found, users=np.append(view.users, 99).astype(np.int32))"
    ),
    "said nothing about client": "lambda view, found: replace(found, users=view.users[1:], blocks=())",
    "OSError: boom": "lambda view, found: (_ for _ in ()).throw(OSError('boom'))",
}


class TestAnswers:
    """An answer that is none: a failed row with its reason, or one line."""

    @pytest.mark.parametrize("reason", list(WRONG))
    def test_a_failed_row(self, install, run, tmp_path, reason):
        lines = dedent(ATTACK).replace("return Reconstruction", "return WRONG(view, Reconstruction")
        lines = lines.replace('{"seed": key})', '{"seed": key}))')
        install(source=f"from dataclasses import replace\n{lines}\nWRONG = {WRONG[reason]}\n")
        words = ["--data", DATA, "--victim", "mf", "--attack", "stars"]
        text = run("audit", *words, "--attack", "guess-majority", "--out", tmp_path / "R")[1]
        rows = json.loads((tmp_path / "R" / "results.json").read_text())
        (row,) = [row for row in rows if row["attack"] == "stars"]
        assert row["status"] == "failed"
        assert reason in row["reason"]
        assert reason in text
        assert any(row["attack"] == "guess-majority" and row["status"] == "ran" for row in rows)

    def test_one_that_leaves_the_program_on_the_way(self, install, run, tmp_path):
        """Before: exit code 0 without a word, and no result."""
        source = ATTACK.replace("items = np", "raise SystemExit(0); items = np")
        install(source=source)
        run("record", tmp_path / "t", "--data", DATA, "--victim", "mf", "--rounds", "0")
        code, _, error = run("attack", tmp_path / "t", "--attack", "stars", "--out", tmp_path / "r.arrow")
        assert code == 2
        assert error.startswith(
            "factorleak: error: attack 'stars' failed: SystemExit: 0; it is part of theirs"
        )
        run("audit", "--transcript", tmp_path / "t", "--attack", "stars", "--out", tmp_path / "R")
        row, named = json.loads((tmp_path / "R" / "results.json").read_text())
        assert (row["status"], named["verdict"]) == ("failed", "OPEN")
        assert "must not end the program, got SystemExit: 0" in row["reason"]

    def test_a_defense_that_leaves_the_program_on_the_way(self, install, run, tmp_path):
        source = """
            from dataclasses import dataclass
            from victims.protocols.base import Defense

            @dataclass(frozen=True)
            class Half(Defense):
                name: str = "half"

                def uploaded(self, rows, ratings, number, seed):
                    raise SystemExit(0)
        """
        install(source=source, group="defenses", half="theirs.mod:Half")
        words = ["--data", DATA, "--victim", "fedmf", "--defense", "half", "--rounds", "0"]
        code, _, error = run("record", tmp_path / "t", *words)
        assert code == 2
        assert "a victim or defense must not end the program, got SystemExit: 0" in error
        assert not (tmp_path / "t").exists()
        run("audit", *words, "--attack", "guess-majority", "--out", tmp_path / "R")
        (row,) = json.loads((tmp_path / "R" / "results.json").read_text())
        assert row["status"] == "failed"
        assert "must not end the program" in row["reason"]

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"value": np.full((12, 3), np.inf)}, "finite"),
            ({"value": np.zeros((3, 12))}, "a row of values for each of its clients"),
            ({"index": np.zeros((1, 2), np.int32)}, "index must have the shape"),
            ({"index": np.array([[0, 1, 20]], np.int32)}, "one of 20 items"),
            ({"index": np.array([[0, 1, 1]], np.int32)}, "once"),
            ({"kind": np.array([[0, 7, 0]], np.int8)}, "item or attribute"),
            ({"probability": np.full((12, 3), 1.5)}, r"0\.\.1"),
            ({"users": np.arange(2, 14)}, "not among its users"),
            ({"value": np.full((12, 3), 3 + 1j)}, "value must be real numbers"),
            ({"value": np.full((12, 3), "3")}, "value must be real numbers"),
            ({"index": np.array([[0.0, 1.0, 2.0]])}, "index must be whole numbers"),
        ],
    )
    def test_what_is_complained_of(self, small_view, monkeypatch, change, complaint):
        parts = {
            "users": small_view.users,
            "kind": np.zeros((1, 3), np.int8),
            "index": np.array([[0, 1, 2]], np.int32),
            "value": np.ones((12, 3)),
        }
        block = Estimates(**parts)
        found = Reconstruction("guess-majority", small_view.users, (block,))
        monkeypatch.setattr(GuessMajority, "attack", lambda *_: found)
        assert answered("guess-majority", None, small_view, 0) is found
        for name, value in change.items():
            object.__setattr__(block, name, value)  # as without the checks of the test run
        with pytest.raises(WrongAnswer, match=complaint):
            answered("guess-majority", None, small_view, 0)


class TestCode:
    """A cell is named by the code that answers."""

    def test_a_changed_attack_is_run_again(self, install, run, tmp_path):
        words = ["audit", "--data", DATA, "--victim", "mf"]
        words += ["--attack", "stars", "--attack", "guess-majority", "--out", tmp_path / "R"]

        def value() -> float:
            run(*words)
            rows = json.loads((tmp_path / "R" / "results.json").read_text())
            return next(r["value"] for r in rows if (r["attack"], r["metric"]) == ("stars", "rating_mae"))

        def cells() -> set[str]:
            return {path.name for path in (tmp_path / "R" / "cells").glob("*.json")}

        install()
        before, first = value(), cells()
        install()
        assert value() == before
        assert cells() == first
        install(source=ATTACK.replace("3.0", "5.0"))
        assert value() > before
        assert len(cells() - first) == 1
        settings = json.loads((tmp_path / "R" / "campaign.json").read_text())
        assert set(settings["code"]) == {"factorleak", "attack stars"}

    def test_other_files_and_versions_count(self, install):
        module = install()
        names = [code_used("mf", attacks=["stars"])["attack stars"]]
        (module.parent / "table.csv").write_text("1,2")
        plugins.code_at.cache_clear()
        names.append(code_used("mf", attacks=["stars"])["attack stars"])
        (module.parent.parent / "theirs-0.1.dist-info" / "METADATA").write_text(
            "Name: theirs\nVersion: 0.2\n"
        )
        plugins.offered_on.cache_clear()
        names.append(code_used("mf", attacks=["stars"])["attack stars"])
        assert [name.rpartition(" ")[0] for name in names] == ["theirs 0.1", "theirs 0.1", "theirs 0.2"]
        assert len(set(names)) == 3

    def test_an_edit_of_our_own_source_counts(self, tmp_path, monkeypatch):
        sweep, ratings = settled(Sweep()), generate(Synthetic(users=5, items=9, ratings_per_user=4.0))

        def name() -> str:
            plugins.own_code.cache_clear()
            return cells_of(sweep, ratings, Path("x"))[0].path.name

        before = name()
        assert name() == before
        for package in plugins.PACKAGES:
            source = plugins.ROOT / package
            shutil.copytree(source, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.setattr(plugins, "ROOT", tmp_path)
        assert name() == before
        edited = tmp_path / "attacks" / "closed_form" / "spectral.py"
        edited.write_text(edited.read_text().replace("0", "1", 1))
        assert name() != before
        plugins.own_code.cache_clear()

    def test_a_namespace_package_is_not_searched_whole(self, tmp_path, monkeypatch):
        for name in ("mine", "other"):
            (tmp_path / "corp" / name).mkdir(parents=True)
            (tmp_path / "corp" / name / "__init__.py").write_text("x = 1")
        monkeypatch.syspath_prepend(str(tmp_path))
        plugins.code_at.cache_clear()
        before = plugins.code_at("corp.mine:x", "corp 1")
        (tmp_path / "corp" / "other" / "__init__.py").write_text("x = 2")
        plugins.code_at.cache_clear()
        assert plugins.code_at("corp.mine:x", "corp 1") == before
        sys.modules.pop("corp", None)
        plugins.code_at.cache_clear()


def test_a_wrong_option_is_told_with_its_value():
    """Before: "inversion option rounds must be a valid integer", and of which value was not said."""
    with pytest.raises(InputError, match=r"inversion option rounds must be a valid integer, got 1e9$"):
        make_attack("inversion", {"rounds": "1e9"})
