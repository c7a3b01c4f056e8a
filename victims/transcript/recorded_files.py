"""The files that a recorder writes: hidden while they are unfinished, and then there all at once."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from victims.common.errors import InputError
from victims.common.files import PRIVATE, output, partial_name, remove, unfinished, write_text
from victims.transcript.beside import clients_path, truth_path
from victims.transcript.manifest import Manifest
from victims.transcript.manifest_2 import file_of
from victims.transcript.spool import Spool


class RecordedFiles:
    """A transcript, and what lies beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = partial_name(path)
        self._spools: dict[str, Spool] = {}
        self._open = ExitStack()
        self._stage = "not begun"
        self._refuse_existing()

    @property
    def state(self) -> Spool:
        """``state.arrow``."""
        return self._spool("state")

    @property
    def messages(self) -> Spool:
        """``messages.arrow``."""
        return self._spool("messages")

    @property
    def deliveries(self) -> Spool:
        """``deliveries.arrow``."""
        return self._spool("deliveries")

    @property
    def truth(self) -> Spool:
        """``NAME.truth.arrow``."""
        return self._spool("truth")

    def begin(self) -> None:
        """Make the hidden folder."""
        if self._stage != "not begun":
            raise InputError(
                f"a Recorder writes one recording, this one of {self.path} is {self._stage}; make another"
            )
        made = [above for above in self.path.parents if not above.exists()]
        self._open.callback(_remove_empty, made)
        with output(self.path), self._open.pop_all() as opening:
            self.folder.mkdir(parents=True)
            opening.enter_context(unfinished(self.folder))
            self._open = opening.pop_all()
        nullable = {"state": ("holder",), "messages": ("sender", "receiver")}
        self._spools = {
            name: Spool(self.folder / f"{name}.arrow", nullable.get(name, ()))
            for name in ("state", "messages", "deliveries")
        }
        self._spools["truth"] = Spool(self.folder / "truth.arrow", mode=PRIVATE)
        self._stage = "open"

    @contextmanager
    def ending(self, error: type | None) -> Iterator[None]:
        """Whatever happens inside, nothing unfinished is left; after an error, nothing at all."""
        with self._open, output(self.path):
            try:
                yield
            finally:
                self._stage = "over"
                for spool in self._spools.values():
                    with suppress(OSError):  # the first error is what counts
                        spool.abandon()

    def end(self) -> None:
        """Write what waits."""
        for spool in self._spools.values():
            spool.close()

    def appear(self, manifest: Manifest, clients: Mapping[Hashable, int]) -> None:
        """Give the files their names, all or none of them."""
        write_text(self.folder / "manifest.json", json.dumps(file_of(manifest), indent=1) + "\n")
        names = {str(number): repr(key) for key, number in clients.items()}
        write_text(self.folder / "clients.json", json.dumps(names, indent=1) + "\n", PRIVATE)
        beside = {self.folder / "clients.json": clients_path(self.path)}
        truth = self.folder / "truth.arrow"
        if truth.exists():
            beside[truth] = truth_path(self.path)
        self._refuse_existing()  # somebody else may have made them meanwhile
        with ExitStack() as moved:
            for source, target in beside.items():
                moved.callback(remove, target)
                source.rename(target)
            self.folder.rename(self.path)
            moved.pop_all()

    def _spool(self, name: str) -> Spool:
        if self._stage != "open":
            raise InputError(
                f"a Recorder must be called inside its context, this one of {self.path} is {self._stage}; "
                "write with Recorder(...) as recorder: and call it there"
            )
        return self._spools[name]

    def _refuse_existing(self) -> None:
        for there in (self.path, truth_path(self.path), clients_path(self.path)):
            if there.exists():
                raise InputError(f"{there} exists; choose another name or remove it first")


def _remove_empty(folders: list[Path]) -> None:
    """Folders that were made for a recording that came to nothing, the deepest first."""
    for folder in folders:
        with suppress(OSError):  # others use it, or it holds the recording
            folder.rmdir()
