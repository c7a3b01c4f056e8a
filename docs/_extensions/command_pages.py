"""The directive ``command-help``: what ``factorleak COMMAND --help`` says, taken from the program itself."""

from __future__ import annotations

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx


class CommandHelp(Directive):
    """Options and examples of one command, or with no argument the table of commands."""

    optional_arguments = 2
    option_spec: ClassVar[dict] = {}

    def run(self) -> list[nodes.Node]:
        """One literal block."""
        from typer.main import get_command
        from typer.testing import CliRunner

        from audit.cli.main import app

        words = [*self.arguments, "--help"]
        done = CliRunner().invoke(app, words, env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
        if done.exit_code:
            known = ", ".join(sorted(get_command(app).commands))
            raise self.error(f"no command {' '.join(self.arguments)!r}; there are {known}")
        text = "\n".join(line.rstrip() for line in done.output.strip().splitlines())
        return [nodes.literal_block(text, text)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
