"""Counts and samples the rows that are left after equal ones have cancelled out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perago.runtime.row_diff.column_types import NATIVE
from perago.runtime.row_diff.schema import Schema
from perago.runtime.row_diff.values import Row, Samples

SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Leftover:
    """The rows that are left after equal ones have cancelled out, in the table `leftover`: `n` says how often, and where."""

    engine: Any
    schema: Schema
    key: Sequence[int]

    def counts(self) -> tuple[int, int, int | None, dict[str, int]]:
        """Return the numbers of rows that were added, removed and changed, and of changed values in each column."""
        if not self.key:
            row = self._one(
                "SELECT coalesce(sum(n) FILTER (n > 0), 0), coalesce(-sum(n) FILTER (n < 0), 0) FROM leftover"
            )
            return int(row[0]), int(row[1]), None, {}
        self._pair()
        columns = self._others()
        differs = "".join(
            f", count(*) FILTER (la AND lb AND a{one} IS DISTINCT FROM b{one})" for one in columns
        )
        row = self._one(
            "SELECT count(*) FILTER (la IS NULL), count(*) FILTER (lb IS NULL), count(*) FILTER (la AND lb)"
            f"{differs} FROM pairs"
        )
        values = {
            self.schema.columns[one]: number for one, number in zip(columns, row[3:], strict=True) if number
        }
        return row[0], row[1], row[2], values

    def _others(self) -> list[int]:
        return [one for one in range(len(self.schema.names)) if one not in self.key]

    def _pair(self) -> None:
        """Pair the rows by key.  Of several rows with one key, the first in order is paired with the first, and so on."""
        names, keys = self.schema.names, ", ".join(f"c{one}" for one in self.key)
        columns = ", ".join(names)
        order = ", ".join(f"c{one}" for one in self._others()) or keys
        self.engine.execute(
            f"CREATE TEMP TABLE numbered AS SELECT *, row_number() OVER (PARTITION BY {keys}, sign ORDER BY {order}) AS at "
            f"FROM (SELECT {columns}, sign(n) AS sign, unnest(range(abs(n))) AS copy FROM leftover)"
        )
        both = ", ".join(f"x.{name} AS a{name[1:]}, y.{name} AS b{name[1:]}" for name in names)
        on = " AND ".join(f"x.c{one} IS NOT DISTINCT FROM y.c{one}" for one in self.key)
        self.engine.execute(
            f"CREATE TEMP TABLE pairs AS SELECT {both}, x.there AS la, y.there AS lb FROM "
            "(SELECT *, true AS there FROM numbered WHERE sign < 0) AS x FULL JOIN "
            f"(SELECT *, true AS there FROM numbered WHERE sign > 0) AS y ON x.at = y.at AND {on}"
        )

    def duplicate_keys(self) -> int:
        """Return the number of keys that more than one row has on one side, among the rows that were read."""
        if not self.key:
            return 0
        keys = ", ".join(f"c{one}" for one in self.key)
        twice = " UNION ".join(
            f"SELECT {keys} FROM {side} GROUP BY ALL HAVING count(*) > 1" for side in ("a", "b")
        )
        return int(self._one(f"SELECT count(*) FROM ({twice})")[0])

    def samples(self) -> Samples:
        """Return the first rows of each kind, in the order of their keys or values."""
        if not self.key:
            added, removed = (
                self._rows(
                    f"SELECT {self._shown('c')} FROM leftover WHERE n {sign} 0 ORDER BY {self._order('c')}"
                )
                for sign in (">", "<")
            )
            return Samples(added, removed)
        added = self._rows(
            f"SELECT {self._shown('b')} FROM pairs WHERE la IS NULL ORDER BY {self._order('b')}"
        )
        removed = self._rows(
            f"SELECT {self._shown('a')} FROM pairs WHERE lb IS NULL ORDER BY {self._order('a')}"
        )
        return Samples(added, removed, self._changed())

    def _changed(self) -> list[tuple[Row, Row, Row]]:
        order = ", ".join(f"a{one}" for one in self.key)
        flags = "".join(f", a{one} IS DISTINCT FROM b{one}" for one in range(len(self.schema.names)))
        rows = self.engine.execute(
            f"SELECT {self._shown('a')}, {self._shown('b')}{flags} FROM pairs WHERE la AND lb "
            f"ORDER BY {order} LIMIT {SAMPLES}"
        ).fetchall()
        width = len(self.schema.columns)
        found: list[tuple[Row, Row, Row]] = []
        for row in rows:
            before, after = self._as_row(row[:width]), self._as_row(row[width : 2 * width])
            changed = [name for name, flag in zip(self.schema.columns, row[2 * width :], strict=True) if flag]
            key = {self.schema.columns[one]: before[self.schema.columns[one]] for one in self.key}
            found.append(
                (key, {name: before[name] for name in changed}, {name: after[name] for name in changed})
            )
        return found

    def _shown(self, side: str) -> str:
        """Return the columns of a side for people: types that JSON has as they are, all others as text."""
        return ", ".join(
            f"{side}{number}" if kind in NATIVE else f"CAST({side}{number} AS VARCHAR)"
            for number, kind in enumerate(self.schema.types)
        )

    def _order(self, side: str) -> str:
        others = [one for one in range(len(self.schema.names)) if one not in self.key]
        return ", ".join(f"{side}{one}" for one in (*self.key, *others))

    def _rows(self, query: str) -> list[Row]:
        return [self._as_row(row) for row in self.engine.execute(f"{query} LIMIT {SAMPLES}").fetchall()]

    def _as_row(self, values: Sequence[Any]) -> Row:
        return {
            name: self._value(name, value) for name, value in zip(self.schema.columns, values, strict=True)
        }

    def _value(self, column: str, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if self.schema.kind == "json" and isinstance(value, str) and column not in self.schema.partitions:
            return json.loads(value)
        return value

    def _one(self, query: str) -> Any:
        return self.engine.execute(query).fetchone()
