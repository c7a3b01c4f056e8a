"""Public functions name their parameters in their docstrings; files that do not do so yet are counted."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("attacks", "audit", "defenses", "reports", "victims")
HEAD = "Parameters\n----------\n"

# How many functions of each file have no section Parameters yet. A number may fall and must not rise; a line
# whose number is 0 goes, and no line is added.
LACKING: dict[str, int] = {
    "attacks/base.py": 1,
    "attacks/client_rules/client_update.py": 3,
    "attacks/closed_form/grid_reading.py": 4,
    "attacks/closed_form/link_grid.py": 4,
    "attacks/closed_form/moving_factor.py": 1,
    "attacks/closed_form/readings.py": 5,
    "attacks/inversion/answers.py": 1,
    "attacks/inversion/search.py": 4,
    "attacks/likelihood/modes.py": 3,
    "attacks/peers/explicit.py": 2,
    "attacks/peers/planes.py": 1,
    "attacks/trajectory/least_squares.py": 1,
    "audit/cli/build.py": 1,
    "audit/cli/gate.py": 2,
    "audit/cli/output.py": 3,
    "audit/cli/predict_trusted.py": 1,
    "audit/code_identity.py": 2,
    "audit/epsilon/claims.py": 2,
    "audit/experiments/answers.py": 3,
    "audit/registry.py": 4,
    "audit/requests/scoring.py": 1,
    "audit/scoring/ceiling.py": 3,
    "reports/cost.py": 3,
    "reports/trusted_prediction.py": 1,
    "reports/verdicts.py": 3,
    "victims/common/seeds.py": 2,
    "victims/data/communities.py": 1,
    "victims/evaluation/feedback_quality.py": 1,
    "victims/protocols/cofactor_round.py": 1,
    "victims/protocols/cofactor_steps.py": 1,
    "victims/protocols/fedmf_round.py": 4,
    "victims/protocols/network.py": 3,
    "victims/protocols/own_copies.py": 3,
    "victims/protocols/trust_graph.py": 1,
    "victims/training.py": 1,
    "victims/transcript/arrow.py": 2,
    "victims/transcript/beside.py": 5,
    "victims/transcript/changes.py": 1,
    "victims/transcript/given_columns.py": 10,
    "victims/transcript/kinds.py": 1,
    "victims/transcript/neighbourhood.py": 2,
    "victims/transcript/reader.py": 1,
    "victims/transcript/received.py": 3,
    "victims/transcript/row_checks.py": 3,
    "victims/transcript/runs.py": 3,
    "victims/transcript/sort_keys.py": 4,
}


def commands() -> set[tuple[str, str]]:
    """(module, function) of what the command line runs: such a docstring is the command's help."""
    tree = ast.parse((ROOT / "audit" / "cli" / "main.py").read_text())
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {(node.value.id, node.attr) for node in attributes if isinstance(node.value, ast.Name)}


def takes_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = function.args
    return bool(given.posonlyargs or given.args or given.kwonlyargs or given.vararg or given.kwarg)


def lacking(source: str) -> list[str]:
    """Names of the public functions of a module that take arguments and do not say which."""
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and takes_arguments(node)
        and HEAD not in (ast.get_docstring(node) or "")
    ]


def found() -> dict[str, list[str]]:
    help_texts = commands() | {("main", "options")}
    files = [ROOT / "factorleak.py", *(path for part in PACKAGES for path in (ROOT / part).rglob("*.py"))]
    by_file = {}
    for path in sorted(files):
        names = lacking(path.read_text())
        if path.parent == ROOT / "audit" / "cli":
            names = [name for name in names if (path.stem, name) not in help_texts]
        if names:
            by_file[path.relative_to(ROOT).as_posix()] = names
    return by_file


def test_a_function_without_parameters_is_seen():
    source = (
        'def lacks(a):\n    """Say."""\n'
        f'def has(a):\n    """Say.\n\n    {HEAD.replace(chr(10), chr(10) + "    ")}a : int\n    """\n'
        "def _hidden(a): ...\ndef takes_nothing(): ...\nasync def waits(*, a): ...\n"
    )
    assert lacking(source) == ["lacks", "waits"]


def test_commands_are_known():
    assert {("audit", "audit"), ("listing", "list_"), ("transcript", "check")} <= commands()


def test_public_functions_name_their_parameters():
    more = {file: names for file, names in found().items() if len(names) > LACKING.get(file, 0)}
    assert not more, f"add a section Parameters to the docstrings of (all that lack it in the file): {more}"
