"""Every function of the packages checks its types and shapes in the test run.

A function whose annotations name an array is wrapped by ``jaxtyping.jaxtyped``, which binds the sizes of one
call to each other. That costs many times a plain check, so all others are checked by beartype alone, and a
function is checked once for all calls of the same types, shapes and dtypes; wrapping them all
(``--jaxtyping-packages``) took half of the time of tests that compile nothing. Of a function that is called
often a call in 1,024 is looked at, for telling what calls have in common costs as much as they do.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import inspect
import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any, get_args, get_type_hints

import numpy as np
from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

PACKAGES = ("audit", "victims", "attacks", "defenses", "reports")
NAME = "_checks_its_types"  # of the decorator in the modules
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")  # of statements, and what lies in these
BYTECODE = ".checked-2.pyc"  # raise the number when the decorated source changes
CLOSURES = (
    2  # functions of one definition inside a function that are checked; wrapping takes longer than a call
)
OFTEN, EVERY = 8, 1024  # calls of a function that are all looked at; after them every so many
_made = Counter[Any]()


def checks_its_types(thing: Any) -> Any:
    """A function, or a dataclass whose fields are checked when one is made."""
    if isinstance(thing, type):
        return jaxtyped(thing, typechecker=beartype) if dataclasses.is_dataclass(thing) else thing
    if not thing.__annotations__:
        return thing
    if "<locals>" in thing.__qualname__:
        _made[thing.__code__] += 1
        if _made[thing.__code__] > CLOSURES:
            return thing
    here: list[Callable] = []  # what checks, made at the first call: many functions get none in one worker
    calls = itertools.count()

    @functools.wraps(thing)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (now := next(calls)) > OFTEN and now % EVERY:
            return thing(*args, **kwargs)
        if not here:
            here.append(_checked(thing))
        return here[0](*args, **kwargs)

    return call


def _checked(function: Callable) -> Callable:
    """``function``, checked by jaxtyping where its annotations name an array, by beartype otherwise."""
    hints = {name: hint for name in function.__annotations__ if (hint := _hint(function, name)) is not None}
    if any(map(_is_shaped, hints.values())):
        return _once_for_all_alike(function, hints)
    function.__annotations__ = hints
    return beartype(function)


def _once_for_all_alike(function: Callable, hints: dict[str, Any]) -> Callable:
    """``function``, checked by jaxtyped where no call of these types, shapes and dtypes was checked yet."""
    here = threading.local()  # holds a result that is to be checked without computing it again
    known: dict[Hashable, set[Hashable]] = {}  # kinds of results by kinds of arguments

    @functools.wraps(function)
    def body(*args: Any, **kwargs: Any) -> Any:
        return here.held.pop() if getattr(here, "held", None) else function(*args, **kwargs)

    plain = inspect.signature(function)
    named = [one.replace(annotation=hints.get(name, Any)) for name, one in plain.parameters.items()]
    answer = hints.get("return", Any) if "return" in function.__annotations__ else plain.return_annotation
    body.__signature__ = plain.replace(parameters=named, return_annotation=answer)  # type: ignore[attr-defined]
    checked = jaxtyped(body, typechecker=beartype)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kind = _alike((args, tuple(kwargs.items())))
        if kind is None:
            return checked(*args, **kwargs)
        if kind not in known:
            result = checked(*args, **kwargs)
            known[kind] = {_alike(result)}
            return result
        result = function(*args, **kwargs)
        answered = _alike(result)
        if answered is None or answered not in known[kind]:
            here.held = [result]
            try:
                checked(*args, **kwargs)
            finally:
                here.held = []
            known[kind].add(answered)
        return result

    return call


def _alike(value: Any) -> Hashable:
    """What values have in common that pass the same checks; None where each must be looked at."""
    kind = type(value)
    if kind is np.ndarray:  # nearly all
        return value.shape, value.dtype
    if kind in (int, str, bool):
        return kind, value
    if isinstance(value, tuple):
        parts = tuple([_alike(part) for part in value])
        return None if None in parts else (kind, parts)
    if isinstance(value, list | dict | set | frozenset):
        return None
    shape = getattr(value, "shape", None)
    return kind if shape is None else (kind, shape, getattr(value, "dtype", None))


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


def _decorate(statements: list[ast.stmt]) -> None:
    """Decorate what statements define. Expressions, most of a tree, define no function with a name."""
    for one in statements:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            named = ast.copy_location(ast.Name(NAME, ast.Load()), one)
            if isinstance(one, ast.ClassDef):
                one.decorator_list.insert(0, named)  # after ``dataclass``
            else:
                one.decorator_list.append(named)  # innermost: others may lose the annotations
        for name in BODIES:
            _decorate(getattr(one, name, []))


class _Loader(SourceFileLoader):
    """Compiles decorated source, and keeps it beside what Python keeps of the source as it is."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        tree = ast.parse(data, path)
        _decorate(tree.body)
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

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
