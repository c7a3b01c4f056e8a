"""Tables as text: in a pipe a line for each row, on a terminal in the shape that fits its width.

Columns stand two blanks apart, and no cell holds two blanks in a row, so that a pipe can be cut at ``'  +'``.
No word is ever cut: where columns do not fit, cells are stacked or wrapped between words, and where even
that is too wide each row becomes a list of names and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from victims.common.errors import printable

GAP = "  "
STYLES = {
    "LEAK": "bold red",
    "NO EVIDENCE": "green",
    "INCONCLUSIVE": "yellow",
    "NOT TESTED": "bold magenta",
}


@dataclass(frozen=True)
class Sheet:
    """A table that knows how it may be folded."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # A cell may hold several lines
    right: tuple[str, ...] = ()  # columns that are aligned to the right
    blocks: int = 0  # this many first columns are the heading of a block of rows on a terminal
    # columns that may stand in one, below each other, where the terminal is narrow
    stacks: tuple[tuple[str, ...], ...] = ()
    note: str = ""  # the column that goes below its row on a terminal, or empty
    caption: str = ""

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
            rows=tuple(tuple(row[position] for position in kept) for row in self.rows),
        )


def sheet_of(table: Table) -> Sheet:
    """Make a sheet of a rich table; first cells that are left empty repeat those above them."""
    names = [_flat(_plain(column.header)) for column in table.columns]
    cells = zip(*([_plain(cell) for cell in column.cells] for column in table.columns), strict=True)
    rows: list[tuple[str, ...]] = []
    for row in cells:
        blank = next((place for place, cell in enumerate(row) if cell), len(row))
        above = rows[-1][:blank] if rows and blank < len(row) else row[:blank]
        rows.append((*above, *row[blank:]))
    unique = [name if name not in names[:place] else f"{name} " for place, name in enumerate(names)]
    return Sheet(
        title=_plain(table.title),
        columns=tuple(unique),
        rows=tuple(rows),
        right=tuple(n for n, column in zip(unique, table.columns, strict=True) if column.justify == "right"),
        caption=_plain(table.caption),
    )


def _plain(cell: object) -> str:
    """What a cell says, markup and escape sequences included; its lines stay."""
    if cell is None:
        return ""
    return "\n".join(map(printable, str(cell).split("\n")))


def _flat(cell: str) -> str:
    """One line without two blanks in a row."""
    return " ".join(cell.split())


def piped(sheet: Sheet) -> str:
    """Write a sheet with one line for each row: columns aligned, nothing folded, no blanks at the ends."""
    cells = [[_flat(cell) or "-" for cell in row] for row in (sheet.columns, *sheet.rows)]
    lines = [sheet.title] if sheet.title else []
    lines += _aligned(sheet, cells)
    return "\n".join([*lines, *([sheet.caption] if sheet.caption else [])])


def _aligned(sheet: Sheet, cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    right = [name in sheet.right for name in sheet.columns]
    return [GAP.join(map(_padded, row, widths, right)).rstrip() for row in cells]


def _padded(cell: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(cell))
    return blanks + cell if right else cell + blanks


def on_terminal(sheet: Sheet, width: int) -> Text:
    """Draw a sheet in the first shape that fits: whole, stacked, wrapped, or a list for each row."""
    heads = sheet.columns[: sheet.blocks]
    notes = sheet.column(sheet.note) if sheet.note else [""] * len(sheet.rows)
    body = sheet.without(*heads, *([sheet.note] if sheet.note else []))
    blocks = [", ".join(filter(None, map(_flat, row[: sheet.blocks]))) for row in sheet.rows]
    for shape in (body, _stacked(body)):
        if sum(natural := _widths(shape, _longest_line)) + _gaps(shape) <= width:
            return _drawn(shape, natural, blocks, notes, width)
    if sum(least := _widths(shape, _longest_word)) + _gaps(shape) <= width:
        widths = _shared_out(least, natural, width - _gaps(shape))
        return _drawn(shape, widths, blocks, notes, width)
    return _listed(body, blocks, notes, width)


def _longest_line(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))


def _longest_word(cell: str) -> int:
    return max(map(cell_len, cell.split()), default=0)


def _widths(sheet: Sheet, measure: Callable[[str], int]) -> list[int]:
    return [max(map(measure, column)) for column in zip(sheet.columns, *sheet.rows, strict=True)]


def _gaps(sheet: Sheet) -> int:
    return len(GAP) * (len(sheet.columns) - 1)


def _shared_out(least: list[int], natural: list[int], room: int) -> list[int]:
    """Widths between the least and the natural ones; what is left goes where most is missing."""
    widths = list(least)
    for _ in range(room - sum(least)):
        missing = [want - have for want, have in zip(natural, widths, strict=True)]
        widths[missing.index(max(missing))] += 1
    return widths


def _stacked(sheet: Sheet) -> Sheet:
    """Columns of a stack below each other, at the place of the first one."""
    below = {name: stack for stack in sheet.stacks if stack[0] in sheet.columns for name in stack[:1]}
    gone = {name for stack in below.values() for name in stack[1:]}
    names = [name for name in sheet.columns if name not in gone]
    together = [[other for other in below.get(name, (name,)) if other in sheet.columns] for name in names]
    joined = ["\n".join(part) for part in together]
    place = {name: number for number, name in enumerate(sheet.columns)}
    rows = tuple(
        tuple("\n".join(filter(None, (row[place[name]] for name in part))) for part in together)
        for row in sheet.rows
    )
    right = tuple(new for new, part in zip(joined, together, strict=True) if part[0] in sheet.right)
    return replace(sheet, columns=tuple(joined), rows=rows, right=right, stacks=())


def _drawn(sheet: Sheet, widths: list[int], blocks: Sequence[str], notes: Sequence[str], width: int) -> Text:
    out = Text()
    _title(out, sheet.title, width)
    _row(out, sheet.columns, sheet, widths, "bold")
    out.append("-" * (sum(widths) + _gaps(sheet)) + "\n", "dim")
    tall = any(_height(row, widths) > 1 for row in sheet.rows)
    for number, (row, block, note) in enumerate(zip(sheet.rows, blocks, notes, strict=True)):
        if block and (number == 0 or block != blocks[number - 1]):
            out.append("\n" if number else "")
            _title(out, block, width)
        elif tall and number:
            out.append("\n")
        _row(out, row, sheet, widths)
        for line in _wrapped(_flat(note), width - len(GAP)):
            out.append(f"{GAP}{line}\n", "italic")
    _title(out, sheet.caption, width, "dim")
    out.rstrip()
    return out


def _wrapped(words: str, width: int) -> list[str]:
    return wrap(words, max(width, 1), break_on_hyphens=False, break_long_words=False)


def _title(out: Text, words: str, width: int, style: str = "bold") -> None:
    for line in _wrapped(words, width):
        out.append(f"{line}\n", style)


def _row(out: Text, row: Sequence[str], sheet: Sheet, widths: list[int], style: str = "") -> None:
    cells = [_lines(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        line = Text()
        for place, (name, cell, size) in enumerate(zip(sheet.columns, cells, widths, strict=True)):
            text = cell[number] if number < len(cell) else ""
            line.append(GAP if place else "")
            line.append(_padded(text, size, name in sheet.right), style or STYLES.get(text, ""))
        line.rstrip()
        out.append_text(line).append("\n")


def _height(row: Sequence[str], widths: list[int]) -> int:
    return max(len(_lines(cell, width)) for cell, width in zip(row, widths, strict=True))


def _lines(cell: str, width: int) -> list[str]:
    """A cell's lines, wrapped between words."""
    return [line for part in cell.split("\n") for line in _wrapped(part, width) or [""]]


def _listed(sheet: Sheet, blocks: Sequence[str], notes: Sequence[str], width: int) -> Text:
    """Names and values, a paragraph for each row."""
    out = Text()
    _title(out, sheet.title, width)
    names = [_flat(name) for name in sheet.columns]
    indent = max(map(cell_len, names)) + len(GAP)
    for number, (row, block, note) in enumerate(zip(sheet.rows, blocks, notes, strict=True)):
        out.append("\n" if number else "")
        if block and (number == 0 or block != blocks[number - 1]):
            _title(out, block, width)
        for name, cell in _named(names, row, note):
            for place, line in enumerate(_lines(cell, max(width - indent, 20))):
                out.append(_padded("" if place else name, indent, False), "bold")
                out.append(line, STYLES.get(line, "")).append("\n")
    _title(out, sheet.caption, width, "dim")
    out.rstrip()
    return out


def _named(names: Sequence[str], row: Sequence[str], note: str) -> Iterator[tuple[str, str]]:
    yield from ((name, cell) for name, cell in zip(names, row, strict=True) if cell not in ("", "-"))
    if note:
        yield "", note
