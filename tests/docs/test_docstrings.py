"""Docstrings of what the face offers name parameters, results and errors; inside one line is enough."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FACE, PLUGINS = ROOT / "factorleak.py", ROOT / "audit" / "face" / "plugins.py"

Function = ast.FunctionDef | ast.AsyncFunctionDef


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


def lacking(source: str, offered: tuple[str, ...] | None = None) -> list[str]:
    """``function: Section`` of all that a module lacks, in what it offers, or in its public functions."""
    return [
        f"{node.name}: {section}"
        for node in ast.parse(source).body
        if isinstance(node, Function)
        if (not node.name.startswith("_") if offered is None else node.name in offered)
        for section in needed(node)
        if f"{section}\n{'-' * len(section)}\n" not in (ast.get_docstring(node) or "")
    ]


def face() -> dict[Path, tuple[str, ...] | None]:
    """The face, and the modules whose names it and ``plugins`` offer, with those."""
    (offered,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(FACE.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_LOCATIONS"
    )
    found = dict(offered)
    for node in ast.parse(PLUGINS.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            found[node.module] = (*found.get(node.module, ()), *(alias.name for alias in node.names))
    return {FACE: None} | {ROOT / f"{module.replace('.', '/')}.py": names for module, names in found.items()}


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


def test_public_functions_name_parameters_results_and_errors():
    assert len(face()) > 10
    assert not {
        path.name: said for path, names in face().items() if (said := lacking(path.read_text(), names))
    }
