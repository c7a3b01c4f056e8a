"""Docstrings of public functions name parameters, results and errors; there is no list of exceptions."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("attacks", "audit", "defenses", "reports", "victims")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def commands() -> set[tuple[str, str]]:
    """(module, function) of what the command line runs: such a docstring is the command's help."""
    tree = ast.parse((ROOT / "audit" / "cli" / "main.py").read_text())
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {(node.value.id, node.attr) for node in attributes if isinstance(node.value, ast.Name)}


def takes_arguments(function: Function) -> bool:
    given = function.args
    return bool(given.posonlyargs or given.args or given.kwonlyargs or given.vararg or given.kwarg)


def body_of(function: Function) -> list[ast.AST]:
    """What a function does itself, without functions inside it."""
    out: list[ast.AST] = []
    ahead: list[ast.AST] = list(function.body)
    while ahead:
        node = ahead.pop()
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            continue
        out.append(node)
        ahead += ast.iter_child_nodes(node)
    return out


def needed(function: Function) -> list[str]:
    """Sections that the code of a function asks for."""
    body = body_of(function)
    sections = ["Parameters"] if takes_arguments(function) else []
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in body):
        sections.append("Yields")
    elif any(isinstance(node, ast.Return) and node.value is not None for node in body):
        sections.append("Returns")
    if any(isinstance(node, ast.Raise) and node.exc is not None for node in body):
        sections.append("Raises")
    return sections


def lacking(source: str) -> list[str]:
    """``function: Section`` of all that the public functions of a module lack."""
    return [
        f"{node.name}: {section}"
        for node in ast.parse(source).body
        if isinstance(node, Function) and not node.name.startswith("_")
        for section in needed(node)
        if f"{section}\n{'-' * len(section)}\n" not in (ast.get_docstring(node) or "")
    ]


def all_lacking() -> dict[str, list[str]]:
    help_texts = commands() | {("main", "options")}
    files = [ROOT / "factorleak.py", *(path for part in PACKAGES for path in (ROOT / part).rglob("*.py"))]
    by_file = {}
    for path in sorted(files):
        said = lacking(path.read_text())
        if path.parent == ROOT / "audit" / "cli":
            said = [one for one in said if (path.stem, one.split(":")[0]) not in help_texts]
        if said:
            by_file[path.relative_to(ROOT).as_posix()] = said
    return by_file


def test_what_a_function_lacks_is_seen():
    source = '''
def lacks(a):
    """Say."""
    return 1 / a

def has(a):
    """Say.

    Parameters
    ----------
    a : int

    Yields
    ------
    int

    Raises
    ------
    ValueError
    """
    yield a
    raise ValueError

def ends_early(a: int) -> None:
    """Say.

    Parameters
    ----------
    a : int
    """
    def inner(): return a
    if inner():
        return
    raise ValueError

def _hidden(a): ...
def takes_nothing(): ...
async def waits(*, a): ...
'''
    assert lacking(source) == [
        "lacks: Parameters",
        "lacks: Returns",
        "ends_early: Raises",
        "waits: Parameters",
    ]


def test_commands_are_known():
    assert {("audit", "audit"), ("listing", "list_"), ("transcript", "check")} <= commands()


def test_public_functions_name_parameters_results_and_errors():
    assert not all_lacking()
