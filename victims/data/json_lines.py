"""Ratings in JSON lines: one object a row, as Yelp publishes its reviews."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from victims.common.errors import InputError
from victims.common.json_text import json_of
from victims.data.encoded_rows import Chunk
from victims.data.streams import MIB, TextStream
from victims.data.tables import shown
from victims.data.text_lines import lines_of
from victims.data.wanted import Wanted

MAX_JSON_BYTES = 16 * 1024 * MIB  # Yelp's reviews, with their texts, have 5 GiB
ROWS = 1 << 16
TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"')
DEEPEST = 32  # brackets of one line that are open at a time


def json_objects(path: Path, most: int = MAX_JSON_BYTES) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects of a file and the numbers of their lines; empty lines are passed over."""
    line_number = 0
    with TextStream(path, "utf-8", ",", most=most) as stream:
        rest = ""
        while text := stream.read():
            lines = list(lines_of(rest + text))
            rest = "" if lines[-1].endswith(("\n", "\r")) else lines.pop()
            for line in lines:
                line_number += 1
                if line.strip():
                    yield line_number, _object(path, line_number, line)
        if rest.strip():
            yield line_number + 1, _object(path, line_number + 1, rest)


def json_chunks(path: Path, wanted: Wanted) -> Iterator[Chunk]:
    """Read the rating rows of a file."""
    names: dict[str, str] = {}
    cells: dict[str, list[str | None]] = {}
    lines: list[int] = []
    for line_number, row in json_objects(path):
        if not names:
            header = list(row)
            names = {name: header[at] for name, at in wanted.columns(path, header).items()}
            cells = {name: [] for name in names}
        for name, key in names.items():
            cells[name].append(_cell(path, line_number, key, row))
        lines.append(line_number)
        if len(lines) == ROWS:
            yield _chunk(path, wanted, cells, lines)
            cells, lines = {name: [] for name in names}, []
    if lines:
        yield _chunk(path, wanted, cells, lines)


def _chunk(path: Path, wanted: Wanted, cells: dict[str, list[str | None]], lines: list[int]) -> Chunk:
    columns = {name: pa.array(values, pa.large_string()) for name, values in cells.items()}
    return wanted.chunk(columns, path, lambda row: f"line {lines[row]}")


def _object(path: Path, line_number: int, line: str) -> dict[str, Any]:
    if line.count("[") + line.count("{") > DEEPEST and _depth(TEXTS.sub("", line)) > DEEPEST:
        raise InputError(f"{path} line {line_number}: must be nested at most {DEEPEST} deep; repair it")
    try:
        found = json_of(line)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} line {line_number}: must be one JSON object, got {shown(str(error))}"
        ) from None
    if not isinstance(found, dict):
        raise InputError(f"{path} line {line_number}: must be one JSON object, got {shown(found)}")
    return found


def _depth(line: str) -> int:
    """Most brackets that are open at a time."""
    most = depth = 0
    for letter in line:
        depth += (letter in "[{") - (letter in "]}")
        most = max(most, depth)
    return most


def _cell(path: Path, line_number: int, key: str, row: dict[str, Any]) -> str | None:
    value = row.get(key)
    if isinstance(value, list | dict | bool):
        raise InputError(f"{path} line {line_number}: {key} must be a number or a text, got {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{path} line {line_number}: {key} must be finite, got {value}")
    return None if value is None else str(value)
