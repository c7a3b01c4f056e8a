"""What every command has: examples, --quiet, --json, repeated options; completion and the version."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer

from audit.cli.main import app
from audit.factories import make_attack
from audit.option_texts import names, parse_floats, parse_numbers, parse_rounds
from audit.registry import BUILT_IN

SMALL = "synthetic:users=15,items=20,ratings_per_user=6"
ONE = ["--data", SMALL, "--victim", "mf", "--set", "factors=2"]


def commands(group=None, words=()):
    """Words and command of every leaf of the command line."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(commands())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
class TestEveryCommand:
    def test_has_quiet_and_json(self, words):
        flags = {flag for parameter in COMMANDS[words].params for flag in parameter.opts}
        assert {"--quiet", "-q", "--json"} <= flags

    def test_its_examples_are_of_it_and_can_be_parsed(self, words):
        """As far as options and values go; nothing runs."""
        epilog = COMMANDS[words].epilog
        assert epilog.startswith("\b\nExamples:\n")
        lines = epilog.splitlines()[2:]
        assert lines
        for line in lines:
            given = shlex.split(line)
            assert given[: 1 + len(words)] == ["factorleak", *words]
            COMMANDS[words].make_context("factorleak", given[1 + len(words) :])

    def test_its_help_shows_them(self, run, words):
        code, text, _ = run(*words, "--help")
        assert code == 0
        assert "Examples:\n" in text
        assert f"    factorleak {' '.join(words)}" in text

    def test_its_help_is_escaped_for_nobody(self, monkeypatch, words):
        """As typer did that Flower asks for, wherever rich is installed."""
        context = COMMANDS[words].make_context("factorleak", [], resilient_parsing=True)
        monkeypatch.setattr(COMMANDS[words].params[0], "help", r"What it is for.  \[default: SWEEP]")
        assert "\\" not in COMMANDS[words].get_help(context)


class TestJson:
    """One value that another program can read, and nothing beside it on stdout."""

    @pytest.mark.parametrize(
        ("words", "keys"),
        [
            (
                ["audit", *ONE, "--rounds", 0, "--attack", "guess-majority", "--out", "R"],
                {"rows", "accounts", "out"},
            ),
            (["record", "t", *ONE, "--rounds", 0], {"transcript", "truth", "accounts"}),
            (["list", "attacks"], {"attacks"}),
            (["list", "defenses", "laplace"], {"name", "options"}),
            (["data", "list"], {"data"}),
        ],
        ids=lambda value: " ".join(map(str, value[:2])) if isinstance(value, list) else "",
    )
    def test_commands(self, run, tmp_path, monkeypatch, words, keys):
        monkeypatch.chdir(tmp_path)
        code, text, _ = run(*words, "--json")
        assert code == 0
        assert keys <= set(json.loads(text))

    def test_an_attack_says_who_abstained(self, run, tmp_path):
        run("record", tmp_path / "t", *ONE, "--rounds", 0)
        words = ["attack", tmp_path / "t", "--attack", "eq24-corrected", "--out", tmp_path / "r"]
        content = json.loads(run(*words, "--json")[1])
        assert content["clients"] == 15
        assert sum(group["clients"] for group in content["abstained"]) == 15

    def test_a_crossed_bar_is_still_an_exit_code(self, run, tmp_path):
        words = ["audit", "--data", SMALL, "--update", "semi-als", "--weighting", "observed-only", "--attack",
                 "spectral", "--fail-on", "leak", "--out", tmp_path / "R"]  # fmt: skip
        code, text, error = run(*words, "--json", "--quiet")
        assert code == 1
        assert json.loads(text)["rows"]
        assert all(line.startswith("factorleak: --fail-on leak is crossed") for line in error.splitlines())

    def test_an_error_is_no_json(self, run, tmp_path):
        code, text, error = run("attack", tmp_path / "nowhere", "--json")
        assert code == 2
        assert text == ""
        assert error.startswith("factorleak: error: ")


class TestQuiet:
    def test_files_are_written_and_nothing_is_said(self, run, tmp_path):
        (tmp_path / "a.csv").write_text("user,item,rating\n1,5,3\n1,5,4\n2,6,1\n2,5,2\n")
        words = ["record", tmp_path / "t", "--data", tmp_path / "a.csv", "--victim", "mf", "--rounds", 0]
        assert "the same user and item" in run(*words)[1]
        words[1] = tmp_path / "u"
        assert run(*words, "--quiet") == (0, "", "")
        assert (tmp_path / "u").is_dir()

    def test_lists_are_names(self, run):
        assert run("list", "victims", "-q")[1].split() == list(BUILT_IN["victims"])


class TestRepeatedOptions:
    def test_repeated_or_listed(self):
        assert parse_rounds(["4", "6-7"]) == parse_rounds("4,6-7") == (4, 6, 7)
        assert parse_numbers("--items", ["4", "5,6"]) == (4, 5, 6)
        assert parse_floats("--scales", ["0", "0.5,2"], "0,1") == (0, 0.5, 2)
        assert names(["a,b", "b"]) == ("a", "b")


class TestOptionsOfAComponent:
    def test_name_default_type_and_meaning(self, run):
        code, text, _ = run("list", "attacks", "likelihood")
        assert code == 0
        lines = {line.partition("=")[0]: line for line in text.splitlines()}
        assert lines["prior"].split(maxsplit=1)[0] == "prior=estimated"
        assert "estimated | flat; Maximum a posteriori" in lines["prior"]
        assert lines["steps"].startswith(f"steps={make_attack('likelihood').steps} ")
        assert "name" not in lines

    def test_other_names_and_fixed_values(self, run):
        assert "also b." in run("list", "defenses", "laplace")[1]
        assert "method=" not in run("list", "attacks", "root-lm")[1]

    def test_one_that_is_not_there(self, run):
        code, _, error = run("list", "attacks", "telepathy")
        assert code == 2
        assert "unknown attack 'telepathy'" in error

    def test_options_written_as_those_of_defenses(self, run):
        code, _, error = run("list", "attacks", "undeclared:max_misfit=0.1")
        assert code == 2
        assert "--option max_misfit=0.1 in `factorleak attack`" in error
        assert "--option undeclared.max_misfit=0.1 in `audit`" in error
        assert "known are" not in error
        # nothing is said of options where the attack is unknown, too
        assert "--option" not in run("list", "attacks", "telepathy:x=1")[2]


def test_version(run):
    assert run("--version") == (0, f"factorleak {version('factorleak')}\n", "")


@pytest.mark.parametrize(
    ("line", "offered"), [("factorleak audit --attack spec", "spectral"), ("factorleak list vic", "victims")]
)
def test_completion(line, offered, tmp_path):
    """As bash asks for it."""
    words = line.split()
    environment = {
        **os.environ,
        "_FACTORLEAK_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    code = "import sys; sys.argv = ['factorleak']; from factorleak import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert offered in done.stdout.split()


@pytest.mark.parametrize("words", [["--help"], ["audit", "--help"]])
def test_they_answer_at_once(words, tmp_path):
    """Nothing heavy is imported, whichever way the program is started."""
    code = (
        "import sys\nfrom factorleak import main\n"
        f"sys.argv = ['factorleak', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('jax','numpy','pandas','scipy','pyarrow','seaborn') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_that_moved_answers_with_its_new_name(run):
    code, _, error = run("predict", "--vary", "mood")
    assert code == 2
    assert "predict is now `factorleak papers predict`" in error
    assert "vary of a prediction must be nothing" in error
    code, _, error = run("train", "--tune", "0")
    assert code == 2
    assert "train is now `factorleak papers tune`" in error
    assert "trials of a search must be" in error
