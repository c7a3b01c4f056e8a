"""How much memory a process takes while something runs in it."""

from __future__ import annotations

import threading
import time
from pathlib import Path


class PeakMemory:
    """Largest growth of this process's anonymous memory (the mapped file does not count), MB."""

    def __enter__(self) -> PeakMemory:
        self.peak_megabytes = 0.0
        self._start = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.peak_megabytes = max(self.peak_megabytes, self._now() - self._start)
            time.sleep(0.005)

    @staticmethod
    def _now() -> float:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1000
        return 0.0
