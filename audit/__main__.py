"""The program ``factorleak``, also ``python -m audit``: signals first, what takes long after them."""

from __future__ import annotations

from audit.shell import interrupts


def main() -> None:
    """Run the program; see ``audit.shell.exits`` for how it ends."""
    interrupts.watch()
    from audit.cli.main import main as run

    try:
        run()
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    interrupts.finish(code)


if __name__ == "__main__":
    main()
