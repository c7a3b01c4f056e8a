"""The page in a real browser: no error, links and sorting work, axe-core finds nothing.

Runs where Chromium, Playwright and axe-core (``FACTORLEAK_AXE``, the path of its script) are there: in the
gate.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from reports.page.render import write_page
from tests.reports.page.test_page import leak, page, quality, untested

CHROMIUM = shutil.which("chromium")
AXE = os.environ.get("FACTORLEAK_AXE", "")

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and AXE), reason="needs Chromium, and FACTORLEAK_AXE as the path of axe-core's script"
)
sync_api = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    rows = [leak(f"laplace:scale={n}", value=(7 * n % 10) / 10) for n in range(10)]
    rows += [leak("none", "peer"), untested("none")]
    rows += [quality(f"laplace:scale={n}", 0.6 + n / 50, seed) for n in range(10) for seed in (0, 1)]
    return write_page(page(rows), tmp_path_factory.mktemp("page"))[0].as_uri()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=[(375, "light"), (1280, "light"), (1280, "dark")], ids=str)
def tab(browser, address, request):
    width, scheme = request.param
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened.said = []
    opened.on("console", lambda message: opened.said.append(message.text))
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.on("request", lambda asked: opened.said.append(asked.url) if "http" in asked.url[:4] else None)
    opened.goto(address)
    yield opened
    opened.close()


def test_nothing_is_complained_of_and_nothing_is_loaded(tab):
    assert tab.said == []
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_axe_finds_nothing(tab):
    tab.add_script_tag(content=Path(AXE).read_text())
    found = tab.evaluate("axe.run()")
    told = [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found["violations"]]
    assert told == []
    assert len(found["passes"]) > 20


def test_headings_sort_by_mouse_and_keyboard(tab):
    heading = tab.locator("#results th button", has_text="value").first
    column = heading.evaluate("button => button.parentElement.cellIndex")
    values = (
        f"[...document.querySelectorAll('#results tbody tr')].map(row => row.cells[{column}].textContent)"
    )
    heading.click()
    up = [float(value) for value in tab.evaluate(values) if value != "-"]
    assert up == sorted(up)
    assert len(set(up)) > 5
    heading.press("Enter")
    down = [float(value) for value in tab.evaluate(values) if value != "-"]
    assert down == up[::-1]
    assert tab.locator("#results th[aria-sort=descending]").count() == 1
    assert tab.locator("#said").inner_text() == "value: descending"


def test_links_lead_somewhere(tab):
    for link in tab.locator("nav a").all():
        target = link.get_attribute("href")
        assert tab.locator(target).count() == 1


def test_marks_say_their_numbers(tab):
    titles = tab.locator("#chart-leakage svg title").all_text_contents()
    assert sum("best guess" in title for title in titles) == 11
    assert sum("NOT TESTED" in title for title in titles) == 1


def test_text_of_charts_is_legible_on_any_ground(tab):
    """Black text on dark ground: it had no colour of its own, and panels were white."""
    ink = tab.evaluate("getComputedStyle(document.body).color")
    inks = tab.evaluate(
        "[...document.querySelectorAll('figure svg text')].map(one => getComputedStyle(one).fill)"
    )
    assert len(inks) > 20
    assert set(inks) == {ink}
    assert tab.locator("figure svg path[style*='fill: #ffffff']").count() == 0
