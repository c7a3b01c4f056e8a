"""Tables as text: in a pipe a line for each row, on a terminal by rich in the shape that fits its width.

In a pipe columns stand two blanks apart, and no cell holds two blanks in a row, so that it can be cut at
``'  +'``. On a terminal neither a number nor a word is ever broken: where columns do not fit, some stand
below each other, and where even that is too wide each row becomes a list of names and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from victims.common.errors import printable

GAP = "  "
STYLES = {
    "LEAK": "bold red",
    "OPEN": "bold red",
    "NO EVIDENCE": "green",
    "INCONCLUSIVE": "yellow",
    "NOT TESTED": "bold magenta",
}


@dataclass(frozen=True)
class Sheet:
    """A table of texts, and how it may be arranged on a terminal."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]  # A cell may hold several lines
    right: tuple[str, ...] = ()  # columns that are aligned to the right
    blocks: int = 0  # this many first columns are the heading of a block of rows on a terminal
    # columns that may stand in one, below each other, where the terminal is narrow
    stacks: tuple[tuple[str, ...], ...] = ()
    note: str = ""  # the column that goes below its row on a terminal, or empty
    caption: str = ""

    @property
    def tall(self) -> bool:
        """Whether some row has several lines."""
        return any("\n" in cell for row in self.rows for cell in row)

    def column(self, name: str) -> list[str]:
        """The cells below a heading."""
        position = self.columns.index(name)
        return [row[position] for row in self.rows]

    def without(self, *names: str) -> Sheet:
        """The same without some columns."""
        kept = [position for position, name in enumerate(self.columns) if name not in names]
        return replace(
            self,
            columns=tuple(self.columns[position] for position in kept),
            rows=[[row[position] for position in kept] for row in self.rows],
        )

    def stacked(self) -> Sheet:
        """Columns of a stack below each other, at the place of the first one."""
        stacks = [
            [self.columns.index(name) for name in stack if name in self.columns] for stack in self.stacks
        ]
        first = {stack[0]: stack for stack in stacks if stack}
        below = {position for stack in stacks for position in stack[1:]}
        parts = [first.get(n, [n]) for n in range(len(self.columns)) if n not in below]
        names = ["\n".join(_flat(self.columns[n]) for n in part) for part in parts]
        return replace(
            self,
            columns=tuple(names),
            rows=[["\n".join(filter(None, (row[n] for n in part))) for part in parts] for row in self.rows],
            right=tuple(
                name for name, part in zip(names, parts, strict=True) if self.columns[part[0]] in self.right
            ),
        )


def piped(sheet: Sheet) -> str:
    """Write a sheet with one line for each row: columns aligned, nothing folded, no blanks at the ends."""
    cells = [[_flat(cell) or "-" for cell in row] for row in (sheet.columns, *sheet.rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = []
        for name, cell, width in zip(sheet.columns, row, widths, strict=True):
            blanks = " " * (width - cell_len(cell))
            padded.append(blanks + cell if name in sheet.right else cell + blanks)
        lines.append(GAP.join(padded).rstrip())
    return "\n".join(filter(None, [sheet.title, *lines, sheet.caption]))


def on_terminal(sheet: Sheet, console: Console) -> RenderableType:
    """Arrange a sheet in the first shape that fits: as it is, with stacked columns, a list for each row."""
    heads = sheet.columns[: sheet.blocks]
    blocks = [", ".join(filter(None, map(_flat, row[: sheet.blocks]))) for row in sheet.rows]
    notes = sheet.column(sheet.note) if sheet.note else [""] * len(sheet.rows)
    body = sheet.without(*heads, *filter(None, [sheet.note]))
    for shape in (body, body.stacked()):
        parts = _tables(shape, blocks, notes) if sheet.blocks or sheet.note else [_table(shape, shape.rows)]
        drawn = Group(*parts)
        least = max(
            sum(column.min_width or 0 for column in one.columns) for one in parts if isinstance(one, Table)
        )
        least += len(GAP) * (len(shape.columns) - 1)
        widest = max(map(Segment.get_line_length, Segment.split_lines(console.render(drawn))))
        if max(least, widest) <= console.width:  # rich leaves out a column for which there is no room
            break
    else:
        drawn = Group(*_lists(body, blocks, notes))
    around = [_text(words, style) for words, style in ((sheet.title, "bold"), (sheet.caption, "dim"))]
    return Group(*filter(None, [around[0]]), drawn, *filter(None, [around[1]]))


def _flat(cell: str) -> str:
    """One line without two blanks in a row; nothing in it is obeyed."""
    return printable(" ".join(cell.split()))


def _text(cell: str, style: str = "") -> Text:
    """A cell with its lines, verdicts in their colours; nothing in it is obeyed."""
    lines = map(printable, cell.split("\n"))
    return Text("\n").join(Text(line, style or STYLES.get(line, "")) for line in lines)


def _widest(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))


def _least(cell: str) -> int:
    """The width below which a number, a verdict or a word would be broken."""
    lines = cell.split("\n")
    whole = [line for line in lines if line in STYLES or not any(map(str.isalpha, line))]
    return max(map(cell_len, [*whole, *cell.split()]), default=0)


def _table(sheet: Sheet, rows: Sequence[Sequence[str]], fixed: bool = False, header: bool = True) -> Table:
    """Some rows of a sheet; ``fixed`` keeps the widths that all of its rows need."""
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, show_header=header,
        border_style="dim", header_style="bold", leading=int(sheet.tall),
    )  # fmt: skip
    for name, *cells in zip(sheet.columns, *sheet.rows, strict=True):
        # in a stack each value stands at the height of its name
        kept = [cell for cell in cells if fixed or (sheet.stacks and "\n" in cell)]
        least = max([*map(_least, cells), *map(_widest, kept), _widest(name) if kept else _least(name)])
        justify: Literal["left", "right"] = "right" if name in sheet.right else "left"
        no_wrap = least == max(map(_widest, (name, *cells)))
        table.add_column(_text(name), justify=justify, min_width=least, no_wrap=no_wrap)
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _tables(sheet: Sheet, blocks: Sequence[str], notes: Sequence[str]) -> list[RenderableType]:
    """The heading, then the rows below the names of their blocks, each note below its row."""
    parts: list[RenderableType] = [_table(sheet, [], fixed=True)]
    numbered = zip(range(len(blocks)), blocks, strict=True)
    for number, (block, lines) in enumerate(groupby(numbered, key=lambda line: line[1])):
        parts += [Text("")] * bool(number and block)
        parts += [_text(block, "bold")] * bool(block)
        for line, (place, _) in enumerate(lines):
            parts += [Text("")] * (sheet.tall and line > 0)
            parts.append(_table(sheet, [sheet.rows[place]], fixed=True, header=False))
            if notes[place]:
                parts.append(Padding(Text(_flat(notes[place]), "italic"), (0, 0, 0, len(GAP))))
    return parts


def _lists(sheet: Sheet, blocks: Sequence[str], notes: Sequence[str]) -> list[RenderableType]:
    """Names and values, a paragraph for each row."""
    parts: list[RenderableType] = []
    for number, (row, block, note) in enumerate(zip(sheet.rows, blocks, notes, strict=True)):
        parts += [Text("")] * bool(number)
        if block and (number == 0 or block != blocks[number - 1]):
            parts.append(_text(block, "bold"))
        grid = Table.grid(padding=(0, len(GAP), 0, 0))
        grid.add_column(style="bold", no_wrap=True, min_width=max(cell_len(_flat(n)) for n in sheet.columns))
        grid.add_column(overflow="fold")
        for name, cell in zip((*sheet.columns, ""), (*row, note), strict=True):
            if cell not in ("", "-"):
                grid.add_row(_flat(name), _text(cell))
        parts.append(grid)
    return parts
