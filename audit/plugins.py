"""Components of other packages: finding them, importing them safely, and telling which code they are.

A package offers a component by an entry point of the group ``factorleak.victims``, ``factorleak.defenses`` or
``factorleak.attacks``: a dataclass whose fields are the options and whose instances keep the interface
(``factorleak.plugins.Victim``, ``factorleak.plugins.Defense``, ``factorleak.plugins.Attack``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any
from uuid import uuid4

from attacks.base import Attack
from audit.shell.debugging import HINT
from victims.common.errors import InputError, words_of
from victims.protocols.base import Defense, Victim

INTERFACES: dict[str, Any] = {"victims": Victim, "defenses": Defense, "attacks": Attack}
OURS = "factorleak"
HERE = "this program"  # the package of a class of which an object was given
ROOT = Path(__file__).resolve().parents[1]  # of the packages
PACKAGES = ("victims", "defenses", "attacks", "audit")  # reports only draws rows


def offered(group: str) -> dict[str, list[EntryPoint]]:
    """Find the components that installed packages offer in a group."""
    return offered_on(group, tuple(sys.path))


@cache
def offered_on(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Find the components that packages on the present search path offer, reading each path once."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=f"factorleak.{group}"):
        found.setdefault(point.name, []).append(point)
    return found


def package_of(point: EntryPoint) -> str:
    """Name and version of the package that an entry point belongs to."""
    return "an unnamed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def imported(what: str, location: str, package: str) -> type:
    """Import the dataclass of a component."""
    module, _, names = location.partition(":")
    try:
        found: Any = importlib.import_module(module.strip())
        for name in names.partition("[")[0].strip().split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{what} of {package} cannot be loaded: {said(error)} ({location}); mend or uninstall "
            f"{package.split(maxsplit=1)[0]}; {HINT}"
        ) from error
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise InputError(
            f"{what} of {package} must be a dataclass whose fields are its options, got {found!r:.80}"
        )
    return found


def said(error: BaseException) -> str:
    """Write an exception in one line."""
    words = " ".join(words_of(error).split())[:300]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def broken_member(group: str, component: object) -> str:
    """Say what a component lacks of its group's interface."""
    interface = INTERFACES[group]
    name_of = f"factorleak.{interface.__name__}"
    for name, member in {**interface.__annotations__, **vars(interface)}.items():
        if name.startswith("_"):
            continue
        if name not in dir(component):
            return f"has no {name!r}, which {name_of} asks for"
        if isinstance(member, FunctionType) and not _takes(getattr(component, name), member):
            return f"has a {name!r} that does not take {_arguments(member)}, as {name_of} asks for"
    return ""


def _takes(verb: Any, asked: FunctionType) -> bool:
    if not callable(verb):
        return False
    try:
        inspect.signature(verb).bind(*list(inspect.signature(asked).parameters)[1:])
    except TypeError:
        return False
    except ValueError:  # compiled code may have no signature
        return True
    return True


def _arguments(asked: FunctionType) -> str:
    return f"({', '.join(list(inspect.signature(asked).parameters)[1:])})"


@cache
def own_code() -> str:
    """Version and hash of the source of our packages that make rows."""
    return f"{OURS} {version(OURS)} {_hash([ROOT / name for name in PACKAGES], '*.py')}"


@cache
def code_at(location: str, package: str) -> str:
    """Package, version and hash of the source of a component of another package.

    The source is all of the package that the module is in, below namespace packages; other packages that
    it uses are not looked at.
    """
    parts = location.partition(":")[0].strip().split(".")
    for depth in range(1, len(parts) + 1):
        spec = find_spec(".".join(parts[:depth]))
        if spec is None or (spec.origin is None and depth < len(parts)):
            continue  # a namespace package: others live in it, too
        places = [Path(folder) for folder in spec.submodule_search_locations or ()]
        return f"{package} {_hash(places or [Path(str(spec.origin))])}"
    return package


def code_of(component: type) -> str:
    """Hash the source of a class of this program; where none can be read, the hash never comes again."""
    try:
        source = inspect.getsource(component)
    except (OSError, TypeError):  # typed at a prompt
        source = uuid4().hex
    return f"{HERE} {hashlib.sha256(source.encode()).hexdigest()[:16]}"


def _hash(places: Sequence[Path], pattern: str = "*") -> str:
    content = hashlib.sha256()
    for folder in places:
        for file in sorted(folder.rglob(pattern)) if folder.is_dir() else [folder]:
            if file.is_file() and file.parent.name != "__pycache__":
                content.update(f"{file.relative_to(folder.parent).as_posix()}\0".encode())
                content.update(hashlib.sha256(file.read_bytes()).digest())
    return content.hexdigest()[:16]
