"""Files are written whole or not at all; those of others are looked at before they are opened."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import (
    EACCES,
    EDQUOT,
    EEXIST,
    EFBIG,
    EISDIR,
    ENAMETOOLONG,
    ENOSPC,
    ENOTDIR,
    ENOTEMPTY,
    EPERM,
    EROFS,
)
from itertools import count
from pathlib import Path
from typing import Any

from victims.common.errors import InputError, OutputError

REMEDIES = {
    EFBIG: "raise the limit on the size of files, or record less",
    ENOSPC: "free some space or choose another disk; what was finished before is kept",
    EDQUOT: "free some space or choose another disk; what was finished before is kept",
    EROFS: "choose a directory that can be written to",
    EACCES: "choose a place that you may write to",
    EPERM: "choose a place that you may write to",
    ENOTDIR: "choose a path below a directory, not below a file",
    EEXIST: "choose another name or remove it first",
    ENOTEMPTY: "choose another name or remove it first",
    EISDIR: "choose the name of a file",
    ENAMETOOLONG: "choose a shorter name",
}
PRIVATE, PUBLIC = 0o600, 0o666  # the latter as the user's mask allows
NAME_BYTES = 100  # of a name that stay in the name of its partial file; file systems allow 255
_NUMBERS = count()
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_UNFINISHED: set[Path] = set()  # of this process, also while it is ended from another thread
_ENDING = threading.Event()  # this process is being ended
SETTLED = 0.05  # seconds after which a thread that saw no end coming has made its file


def reason_of(error: OSError) -> str:
    """Tell in lower case what the operating system says, without number and path."""
    said = os.strerror(error.errno) if error.errno else str(error)
    return (said or type(error).__name__).lower()


@contextmanager
def output(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses inside the context into an ``OutputError`` about ``path``."""
    try:
        yield
    except OSError as error:
        shown = error
        if error.errno == EEXIST and any(above.is_file() for above in path.parents):
            shown = NotADirectoryError(ENOTDIR, "")
        remedy = REMEDIES.get(shown.errno or 0, "choose another place")
        raise OutputError(f"{path} cannot be written: {reason_of(shown)}; {remedy}") from error


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Hold a file or folder that does not outlive the context, nor a process that is stopped inside it."""
    _halt_at_the_end()
    _UNFINISHED.add(path)
    try:
        yield path
    finally:
        _halt_at_the_end()
        remove(path)
        _UNFINISHED.discard(path)


def remove_unfinished() -> None:
    """Remove what this process has begun to write; called where it is stopped, and nothing is begun after it.

    Other threads go on meanwhile: one that has announced a file makes it after the first pass.
    """
    _ENDING.set()
    for wait in (SETTLED, 0.0):
        for path in list(_UNFINISHED):
            remove(path)
        time.sleep(wait)


def _halt_at_the_end() -> None:
    """Keep a thread that writes from beginning anew, and from complaining that its file is gone."""
    while _ENDING.is_set():
        time.sleep(1)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError:  # a folder
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for what is needed for a while, and remove it after the context."""
    with output(Path(tempfile.gettempdir())):
        path = Path(tempfile.mkdtemp(prefix="factorleak-"))
    with unfinished(path):
        yield path


def partial_name(path: Path) -> Path:
    """Make up a hidden name beside ``path`` that nobody else uses."""
    name = path.name.encode(errors="ignore")[:NAME_BYTES].decode(errors="ignore")
    return path.with_name(f".{name}.{_HOST}-{os.getpid()}-{next(_NUMBERS)}.partial")


def writer_of(partial: Path) -> int | None:
    """Find the process of this machine that made up the name of a partial file."""
    words = partial.name.removesuffix(".partial").rpartition(".")[2].split("-")
    return int(words[1]) if len(words) == 3 and words[0] == _HOST and words[1].isdecimal() else None


def make_private(path: Path) -> None:
    """Make an empty file that its owner alone may read, before anything is in it; what was there goes."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))


@contextmanager
def replacing(path: Path, mode: int = PUBLIC) -> Iterator[Path]:
    """Give a name beside ``path`` to write to; the file takes its place if all went well, else it goes.

    Each writer has a name of its own, so that two may write the same file: the last one stays.
    Folders above are made.
    """
    partial = partial_name(path)
    with output(path):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OutputError(
                f"{path} cannot be written: it is a device, a pipe or a socket, in whose place a file would "
                "come; choose the name of a file"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(partial):
            if mode == PRIVATE:
                make_private(partial)
            yield partial
            partial.replace(path)


def write_text(path: Path, text: str, mode: int = PUBLIC) -> None:
    """Write a file of text, whole or not at all."""
    with replacing(path, mode) as partial:
        partial.write_text(text, encoding="utf-8")


def refuse_unwritable(directory: Path) -> None:
    """Find out before the work whether a directory for results can be made and written to."""
    with output(directory):
        made = [path for path in (directory, *directory.parents) if not path.exists()]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with unfinished(partial_name(directory / "probe")) as probe:
                probe.touch()
        finally:
            for path in made:
                with suppress(OSError):  # was not made, or is used by somebody already
                    path.rmdir()


def existing_file(path: Path) -> Path:
    """Check that a regular file stands at a path that may be read, and give the path back."""
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise InputError(f"{path} cannot be read: {reason}; check the name") from None
    if not stat.S_ISREG(kind):
        what = "a directory" if stat.S_ISDIR(kind) else "a pipe, socket or device"
        raise InputError(f"{path} must be a file, it is {what}; give a regular file")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read: permission denied; change its mode")
    return path


def small_file(path: Path, most: int) -> bytes:
    """Read the content of a file that must be small."""
    existing_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from None
    if len(content) > most:
        raise InputError(f"{path} must be at most {most:,} bytes, it has more; give the right file")
    return content


def json_of(text: str | bytes) -> Any:
    """Read JSON whose objects give each key once.

    Examples
    --------
    >>> json_of('{"a": [1]}')
    {'a': [1]}
    >>> json_of('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is given twice; keep one of the two
    """
    return json.loads(text, object_pairs_hook=_unrepeated)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is given twice; keep one of the two")
    return whole
