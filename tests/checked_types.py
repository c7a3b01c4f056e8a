"""Every function of the packages checks its types and shapes in the test run.

A function whose annotations name an array is wrapped by ``jaxtyping.jaxtyped``, which binds the sizes of one
call to each other. That costs many times a plain check, so all others are checked by beartype alone; wrapping
them all (``--jaxtyping-packages``) took half of the time of tests that compile nothing.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any, get_args, get_type_hints

from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

PACKAGES = ("audit", "victims", "attacks", "defenses", "reports")
NAME = "_checks_its_types"  # of the decorator in the modules
BYTECODE = ".checked-1.pyc"  # raise the number when the decorated source changes


def checks_its_types(thing: Any) -> Any:
    """A function, or a dataclass whose fields are checked when one is made."""
    if isinstance(thing, type):
        return jaxtyped(thing, typechecker=beartype) if dataclasses.is_dataclass(thing) else thing
    hints = {name: hint for name in thing.__annotations__ if (hint := _hint(thing, name)) is not None}
    if any(map(_is_shaped, hints.values())):
        return jaxtyped(thing, typechecker=beartype)
    thing.__annotations__ = hints
    return beartype(thing)


def _hint(function: Any, name: str) -> Any:
    """What an annotation says; None where it names what is imported for type checkers only."""

    def alone() -> None: ...

    alone.__annotations__ = {"it": function.__annotations__[name]}
    try:
        return get_type_hints(alone, function.__globals__, include_extras=True)["it"]
    except (NameError, AttributeError, TypeError):
        return None


def _is_shaped(hint: Any) -> bool:
    if isinstance(hint, list | tuple):  # the arguments of a callable
        return any(map(_is_shaped, hint))
    return (inspect.isclass(hint) and issubclass(hint, AbstractArray)) or _is_shaped(get_args(hint))


class _Decorated(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list.append(ast.Name(NAME, ast.Load()))  # innermost: others may lose the annotations
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list.insert(0, ast.Name(NAME, ast.Load()))  # after ``dataclass``
        return self.generic_visit(node)


class _Loader(SourceFileLoader):
    """Compiles decorated source, and keeps it beside what Python keeps of the source as it is."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        tree = _Decorated().visit(ast.parse(data, path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True, optimize=_optimize)

    def get_data(self, path: str) -> bytes:
        return super().get_data(path.removesuffix(".pyc") + BYTECODE if path.endswith(".pyc") else path)

    def set_data(self, path: str, data: Any, **mode: Any) -> None:
        super().set_data(path.removesuffix(".pyc") + BYTECODE, data, **mode)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


loaded = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
assert not loaded, f"imported before their types could be checked: {loaded}"
setattr(builtins, NAME, checks_its_types)
sys.meta_path.insert(0, _Finder())
