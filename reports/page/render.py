"""A page as files: HTML that needs no network, Markdown, and its charts as SVG and PNG."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.text import Text

from reports.figures import save
from reports.page.charts import inline_svg
from reports.page.content import Page
from victims.common.files import write_text

NAME = "report"
PAPER_WIDTH = 7.0  # inches, of both columns
STYLES = ("screen", "paper")


def write_page(page: Page, directory: Path, style: str = "screen") -> list[Path]:
    """Write a page and its charts, which in the style of a paper are as wide as its text and serif."""
    html, text = directory / f"{NAME}.html", directory / f"{NAME}.md"
    write_text(html, as_html(page))
    write_text(text, as_markdown(page))
    written = [html, text]
    for chart in page.charts:
        chart.figure.set_facecolor("white")  # on the page the ground is the page's
        if style == "paper":
            _as_in_papers(chart.figure)
        written += save(chart.figure, directory / f"{NAME}_{chart.name}", pdf=True)
    return written


def _as_in_papers(figure: Figure) -> None:
    width, height = figure.get_size_inches()
    figure.set_size_inches(min(width, PAPER_WIDTH), height)
    for text in figure.findobj(Text):
        text.set_fontfamily("serif")


def as_html(page: Page) -> str:
    """Form the page; everything from outside is escaped."""
    environment = _environment()
    pictures = [(chart, Markup(inline_svg(chart))) for chart in page.charts]
    style, script = (Markup(environment.get_template(name).render()) for name in ("page.css", "page.js"))
    template = environment.get_template("page.html.j2")
    return template.render(page=page, pictures=pictures, style=style, script=script)


def as_markdown(page: Page) -> str:
    """Form the same in Markdown, charts as links to their files."""
    return _environment().get_template("page.md.j2").render(page=page, name=NAME)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reports.page"),
        autoescape=select_autoescape(enabled_extensions=("html.j2",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = lambda text: " ".join(str(text).split()).replace("|", "\\|")
    return environment
