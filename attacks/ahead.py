"""The next batch is packed while this one is climbed: packing reads the recording and keeps one core busy.

Nothing here may execute JAX programs: two of them at once can wait for each other's threads for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from attacks.packing import Rows


class Ahead:
    """One batch that is asked for before it is needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._asked: tuple[int, Future[Rows]] | None = None

    def ask(self, number: int, pack: Callable[[int], Rows]) -> None:
        """Begin to pack a batch in the background; one that was asked for earlier is forgotten."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        self._asked = number, self._pool.submit(pack, number)

    def take(self, number: int, pack: Callable[[int], Rows]) -> Rows:
        """A batch: the one that was asked for, or packed here and now."""
        asked, self._asked = self._asked, None
        if asked is None or asked[0] != number:
            return pack(number)
        return asked[1].result()
