"""Previews of text, CSV and JSON, truncated to what a page shows."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

ROWS = 100
COLUMNS = 60
CELL = 300
DEPTH = 50
MAX_INDENTED_CHARS = 512 * 1024
"""The maximum length of indented JSON. JSON that would be longer, or is nested deeper than `DEPTH`, is shown as is."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


@dataclass(frozen=True, slots=True)
class Table:
    """The first rows of a table, with truncated cells. `more_columns` is the number of columns that are not shown."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    more_columns: int = 0


def is_text(data: bytes) -> bool:
    """Return whether the bytes are UTF-8 text, ignoring a character truncated at the end."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(data) - 3 and len(data) > 3
    return True


def table_of(text: str, delimiter: str, *, whole: bool) -> Table | None:
    """Return the first rows of CSV text, or None if it is not CSV."""
    if not whole:
        # The last line may be incomplete.
        text = text.rpartition("\n")[0] or text
    try:
        rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), ROWS + 1))
    except csv.Error:
        return None
    if not rows or not rows[0]:
        return None
    return Table(
        [truncate(cell) for cell in rows[0][:COLUMNS]],
        [[truncate(cell) for cell in row[:COLUMNS]] for row in rows[1:]],
        max(0, max(map(len, rows)) - COLUMNS),
    )


def indent_json(text: str) -> str:
    """Indent JSON text. Returns it unchanged if it is not JSON, nested too deeply, or too long once indented."""
    if depth_of(text) > DEPTH:
        return text
    try:
        wide = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return wide if len(wide) <= MAX_INDENTED_CHARS else text


def depth_of(text: str) -> int:
    """Return the nesting depth of JSON text, without parsing it."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket, 0)
        deepest = max(deepest, depth)
    return deepest


def truncate(cell: object) -> str:
    """Return the text of a cell, truncated to `CELL` characters."""
    text = str(cell)
    return text if len(text) <= CELL else text[:CELL] + " …"
