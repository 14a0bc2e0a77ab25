"""Text, CSV and JSON, as far as a page shows them."""

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


INDENTED = 512 * 1024
"""JSON that is deeper, or longer once it is indented, is shown as it is."""


_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


@dataclass(frozen=True, slots=True)
class Table:
    """The first rows of a table, its cells cut; `more_columns` are not shown."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    more_columns: int = 0


def is_text(data: bytes) -> bool:
    """Whether bytes are text as far as they go; a character that the cut went through does not count."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(data) - 3 and len(data) > 3
    return True


def table_of(text: str, delimiter: str, *, whole: bool) -> Table | None:
    """The first rows of a CSV; None where it is none."""
    if not whole:
        # The last line may be cut.
        text = text.rpartition("\n")[0] or text
    try:
        rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), ROWS + 1))
    except csv.Error:
        return None
    if not rows or not rows[0]:
        return None
    return Table(
        [cut(cell) for cell in rows[0][:COLUMNS]],
        [[cut(cell) for cell in row[:COLUMNS]] for row in rows[1:]],
        max(0, max(map(len, rows)) - COLUMNS),
    )


def indented(text: str) -> str:
    """A JSON text, indented; as it is where it is none, or where that would make much more of it."""
    if depth_of(text) > DEPTH:
        return text
    try:
        wide = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return wide if len(wide) <= INDENTED else text


def depth_of(text: str) -> int:
    """How deeply a JSON text is nested, before it is parsed."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket, 0)
        deepest = max(deepest, depth)
    return deepest


def cut(cell: object) -> str:
    """A cell, no longer than people read."""
    text = str(cell)
    return text if len(text) <= CELL else text[:CELL] + " …"
