"""Files: those of others are looked at before they are opened, ours are written whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EISDIR, ENAMETOOLONG, ENOSPC, ENOTDIR, EPERM, EROFS
from pathlib import Path

from victims.errors import InputError, OutputError

REMEDIES = {
    ENOSPC: "free some space or choose another disk; what was finished before is kept",
    EDQUOT: "free some space or choose another disk; what was finished before is kept",
    EROFS: "choose a directory that can be written to",
    EACCES: "choose a place that you may write to",
    EPERM: "choose a place that you may write to",
    ENOTDIR: "choose a path below a directory, not below a file",
    EISDIR: "choose the name of a file",
    ENAMETOOLONG: "choose a shorter name",
}
PRIVATE, PUBLIC = 0o600, 0o666  # the latter as the user's mask allows


def reason_of(error: OSError) -> str:
    """What the operating system says, without number and path."""
    return (error.strerror or str(error) or type(error).__name__).lower()


def existing_file(path: Path) -> Path:
    """The path, if a regular file stands there that may be read.

    Raises
    ------
    InputError
        If nothing is there, or a directory, a pipe or a device: reading one may never end.
    """
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
    """The content of a file that must be small.

    Raises
    ------
    InputError
        If it cannot be read or has more than ``most`` bytes.
    """
    existing_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from None
    if len(content) > most:
        raise InputError(f"{path} must be at most {most:,} bytes")
    return content


@contextmanager
def output(path: Path) -> Iterator[None]:
    """What the operating system refuses inside is an ``OutputError`` about ``path``."""
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "choose another place")
        raise OutputError(f"{path} cannot be written: {reason_of(error)}; {remedy}") from error


@contextmanager
def replacing(path: Path, mode: int = PUBLIC) -> Iterator[Path]:
    """A name beside ``path`` to write to; the file takes its place when all went well, else it is removed.

    Each process and thread has a name of its own, so that two may write the same file: the last one stays.
    Folders above are made.

    Raises
    ------
    OutputError
        If the operating system refuses.
    """
    partial = path.with_name(f".{path.name[:100]}.{os.getpid()}-{threading.get_ident()}.partial")
    with output(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if mode == PRIVATE:  # before anything is in it
                os.close(os.open(partial, os.O_CREAT | os.O_WRONLY, mode))
            yield partial
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str, mode: int = PUBLIC) -> None:
    """Write a file of text, whole or not at all."""
    with replacing(path, mode) as partial:
        partial.write_text(text, encoding="utf-8")


def prepare_directory(path: Path) -> None:
    """Make a directory for results, and find out before the work whether it can be written to.

    Raises
    ------
    OutputError
        If it is a file, or cannot be made or written to.
    """
    with output(path):
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".{os.getpid()}.probe"
        try:
            probe.touch()
        finally:
            probe.unlink(missing_ok=True)
