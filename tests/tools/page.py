"""Bytes of a page of 500 cells, and how long Chromium takes to open it: ``python -m tests.tools.page``.

100 systems, five adversaries each, with every metric of the page, groups of clients and items, and usefulness
over two seeds. Prints the size, and of five openings the seconds until everything is loaded and drawn
(navigation to the second frame after the load event), and the processor seconds of the whole browser.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from audit.scoring.groups import GROUP_METRICS
from reports.page.render import write_page
from tests.reports.page.test_page import leak, page, quality

if TYPE_CHECKING:
    from playwright.sync_api import Page

OPENINGS = 5
METRICS = (
    "rating_accuracy", "rated_rating_accuracy", "rated_set_auc", "attribute_group_accuracy",
    "attribute_group_accuracy/0", "attribute_group_accuracy/1", "users_fully_recovered",
)  # fmt: skip
ADVERSARIES = ("server", "server+client", "decrypter", "eavesdropper", "item-server")
DRAWN = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
    done(performance.now()))))"""


def rows_of_cells() -> list[dict[str, Any]]:
    """500 cells: every adversary of every system."""
    rows = []
    for number, who in product(range(100), ADVERSARIES):
        name = f"laplace:scale={number}"
        value = (number + len(who)) / 130
        rows += [leak(name, who, value=value) | {"metric": metric} for metric in METRICS]
        rows += [leak(name, who, value=value, verdict="") | {"metric": metric} for metric in GROUP_METRICS]
    for number, seed in product(range(100), (0, 1)):
        name = f"laplace:scale={number}"
        rows.append(quality(name, 0.6 + number / 300, seed))
        rows.append(quality(name, 1.3 - number / 300, seed) | {"metric": "rmse", "baseline": 1.2})
    return rows


def opened(tab: Page, address: str) -> float:
    """Seconds until everything is loaded and drawn."""
    tab.goto(address, wait_until="load")
    return float(tab.evaluate(DRAWN)) / 1000


def main() -> None:
    """Print size and times."""
    from playwright.sync_api import sync_playwright  # an extra's, and doctests import this file

    with tempfile.TemporaryDirectory() as folder:
        path = write_page(page(rows_of_cells()), Path(folder))[0]
        print(f"{path.stat().st_size / 2**20:.2f} MB")
        with sync_playwright() as started:
            chromium = shutil.which("chromium")
            browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for _ in range(OPENINGS):
                tab = browser.new_page(viewport={"width": 1280, "height": 900})
                before = browser_seconds()
                wall = opened(tab, path.as_uri())
                print(f"{wall:.2f} s, processor {browser_seconds() - before:.2f} s")
                tab.close()
            browser.close()


def browser_seconds() -> float:
    """Processor seconds of the processes below this one."""
    total = 0.0
    for one in psutil.Process().children(recursive=True):
        try:
            total += sum(one.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


if __name__ == "__main__":
    start = time.process_time()
    main()
    print(f"made and measured in {time.process_time() - start:.1f} processor seconds of this process")
