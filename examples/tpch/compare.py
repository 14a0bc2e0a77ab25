"""Answers the 22 queries with DuckDB, from the same raw files, and compares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import duckdb
import pyarrow.parquet as pq
from pydantic import BaseModel

from .models import TABLES
from .tasks import read_query

_TYPES = {int: "BIGINT", str: "VARCHAR", date: "DATE", Decimal: "DECIMAL(15,2)"}
Row = tuple[Any, ...]


def differences(raw: Path, answers: Path, numbers: Iterable[int] = range(1, 23)) -> list[str]:
    """Return one line for each of these queries whose answer differs from DuckDB's."""
    with duckdb.connect() as engine:
        for name, model in TABLES.items():
            columns = {column: _type(model, column) for column in model.model_fields}
            engine.execute(
                f"CREATE VIEW {name} AS SELECT * FROM read_csv('{raw / name}.csv', header=true, columns={columns})"
            )
        found = []
        for number in numbers:
            _, text = read_query(number)
            expected = engine.execute(text).fetchall()
            table = pq.read_table(answers / f"q{number:02}")
            actual = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
            if problem := _difference(expected, actual):
                found.append(f"q{number:02}: {problem}")
        return found


def _type(model: type[BaseModel], column: str) -> str:
    kind = model.model_fields[column].annotation
    return _TYPES[next(iter(get_args(kind)), kind)]


def _difference(expected: Iterable[Row], actual: Iterable[Row]) -> str:
    ours, theirs = sorted(map(_plain, actual), key=str), sorted(map(_plain, expected), key=str)
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, DuckDB has {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        if len(one) != len(other) or not all(map(_same, one, other)):
            return f"{one}, DuckDB has {other}"
    return ""


def _plain(row: Row) -> Row:
    """Return the row with numbers as floats, rounded for sorting where engines round averages in their own way."""
    return tuple(
        round(float(value), 4) if isinstance(value, Decimal | float | int) else _day(value) for value in row
    )


def _day(value: Any) -> Any:
    return value.date() if isinstance(value, datetime) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-3)
    return bool(one == other)
