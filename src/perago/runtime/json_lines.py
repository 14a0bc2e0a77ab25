"""Brings JSON lines into one form, in which equal values have equal text.

Numbers are equal if their values are (`1`, `1.0` and `1e0`), and so are objects with the same keys in another order.
"""

from __future__ import annotations

import decimal
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from perago.errors import RuntimeConfigError

_EXACT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_LONGEST_WHOLE = 30
"""Whole numbers with more digits are written with an exponent, which may be far beyond any memory."""
_MOST_BYTES_OF_A_LINE = 64 * 1024 * 1024


@dataclass(slots=True)
class JsonColumns:
    """The columns seen in JSON lines, and the kinds of values in each: `number`, `text`, `boolean`, `object`, `list`."""

    kinds: dict[str, set[str]] = field(default_factory=dict)
    longest_line: int = 0
    """The number of characters in the longest line that was written."""

    def number(self, name: str) -> int:
        """Return a column's number.  A new column gets the next one."""
        self.kinds.setdefault(name, set())
        return list(self.kinds).index(name)


def open_bytes(file: Path, *, gzipped: bool) -> IO[bytes]:
    """Open a file that may be compressed by gzip."""
    return gzip.open(file, "rb") if gzipped else file.open("rb")  # type: ignore[return-value]


def rewrite(source: Path, target: Path, columns: JsonColumns, *, name: str) -> None:
    """Write the JSON lines of `source` to `target`, with the columns' numbers as keys and every value as one text.

    Raises `RuntimeConfigError` for a line that is not a JSON object.  `name` is the object's path, for that error.
    """
    numbers = {column: number for number, column in enumerate(columns.kinds)}
    with open_bytes(source, gzipped=name.endswith(".gz")) as lines, target.open("w", encoding="utf-8") as out:
        for at, row in enumerate(_rows(lines, name), 1):
            if not isinstance(row, dict):
                raise RuntimeConfigError(
                    f"line {at} of {name!r} is not a JSON object: only JSON lines, one object in each, can be compared"
                )
            written = {}
            for column, value in row.items():
                if column not in numbers:
                    numbers[column] = columns.number(column)
                if value is not None:
                    columns.kinds[column].add(_kind(value))
                    written[f"c{numbers[column]}"] = canonical(value)
            text = json.dumps(written)
            columns.longest_line = max(columns.longest_line, len(text))
            out.write(f"{text}\n")


def _rows(lines: IO[bytes], name: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(parse_float=decimal.Decimal, parse_int=decimal.Decimal)
    at = 0
    while line := lines.readline(_MOST_BYTES_OF_A_LINE):
        at += 1
        try:
            text = line.decode("utf-8-sig").strip()
            if text:
                yield decoder.decode(text)
        except ValueError as error:
            raise RuntimeConfigError(f"line {at} of {name!r} is not JSON: {error}") from error


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, dict) else "list" if isinstance(value, list) else "number"


def canonical(value: Any) -> str:
    """Return the one text of a JSON value whose numbers are `Decimal`."""
    if isinstance(value, decimal.Decimal):
        return _number(value)
    if isinstance(value, dict):
        inner = (f"{json.dumps(key)}:{canonical(one)}" for key, one in sorted(value.items()))
        return f"{{{','.join(inner)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    return json.dumps(value)


def _number(value: decimal.Decimal) -> str:
    if not value:
        return "0"
    plain = value.normalize(_EXACT)
    if int(plain.as_tuple().exponent) >= 0 and plain.adjusted() < _LONGEST_WHOLE:
        return format(plain, "f")
    return str(plain)
