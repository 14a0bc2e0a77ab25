"""Checks on the tables of a Spark task, for `pre` and `post`.

A check is a value: it states what must hold, and knows nothing about Spark.  All checks on the same table are evaluated
together, in one Spark job (`table_audit`), when the first of them is needed.

`require_unique` treats null as a value like any other.  `require_values` and `require_foreign_key` ignore nulls; use
`forbid_nulls` to reject them.  `require` counts a row for which the condition is null as a violation.

`require_rows(change=…)` and `require_columns(evolve=…)` compare the result with the table at the input commit.  A table
that is not there yet has nothing to be compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from perago.declare.checks import CheckResult, Level, level_diagnostics, level_label
from perago.declare.diagnostics import Diagnostic, calling_place, report
from perago.declare.file_tree import Tree
from perago.errors import GuardrailViolation
from perago.protocol.paths import either, is_absolute, is_empty, leads_out
from perago.protocol.view import View

TableCheckKind = Literal[
    "require",
    "require_columns",
    "require_foreign_key",
    "require_rows",
    "forbid_nulls",
    "require_unique",
    "require_values",
]
Evolution = Literal["additive"]
Source = tuple[str, str, tuple[tuple[str, Any], ...]]
"""The table that a check refers to: its path, its format and the reader options."""

_is_no_table = either(is_empty, is_absolute, leads_out)


@runtime_checkable
class TableTree(Protocol):
    """A file tree that can evaluate checks on its tables."""

    def table_finding(self, check: TableCheck) -> CheckResult:
        """Evaluate the check on its table, and return the result."""


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A rule about a table.  The check's kind determines which of its fields are used."""

    __perago_check__: ClassVar[str] = "table"

    kind: TableCheckKind
    table: str
    columns: tuple[str, ...] = ()
    types: tuple[str | None, ...] = ()
    allowed: tuple[Any, ...] = ()
    least: int | None = None
    most: int | None = None
    condition: str = ""
    allow: float = 0.0
    other: str = ""
    """The table with the keys that a foreign key refers to."""
    keys: tuple[str, ...] = ()
    change: float | None = None
    evolve: Evolution | None = None
    level: Level = "fail"
    format: str = "parquet"
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def source(self) -> Source:
        """The path, format and reader options with which Spark opens the table."""
        return self.table, self.format, self.options

    @property
    def compares(self) -> bool:
        """True if the check compares the table with the same table at the input commit."""
        return self.change is not None or self.evolve is not None

    def label(self) -> str:
        """Return the check as written in the declaration."""
        said = [repr(self.table)]
        match self.kind:
            case "require":
                said += [repr(self.condition), *([f"allow={self.allow}"] if self.allow else [])]
            case "require_foreign_key":
                names = self.columns[0] if len(self.columns) == 1 else list(self.columns)
                keys = self.keys[0] if len(self.keys) == 1 else list(self.keys)
                said += [repr(names), repr(self.other), *([f"key={keys!r}"] if keys != names else [])]
            case "require_columns" if any(self.types):
                pairs = zip(self.columns, self.types, strict=True)
                said.append("{" + ", ".join(f"{name!r}: {kind!r}" for name, kind in pairs) + "}")
            case "require_columns":
                said += [repr(list(self.columns))] if self.columns else []
            case "require_rows":
                said += [
                    f"{name}={n}" for name, n in (("min", self.least), ("max", self.most)) if n is not None
                ]
            case "require_values":
                said += [repr(self.columns[0]), repr(list(self.allowed))]
            case _:
                said += [repr(name) for name in self.columns]
        said += [f"change={self.change}"] if self.change is not None else []
        said += [f"evolve={self.evolve!r}"] if self.evolve is not None else []
        if self.format != "parquet":
            said.append(f"format={self.format!r}")
        return f"{self.kind}({', '.join(said)}{level_label(self.level)})"

    @property
    def paths(self) -> tuple[str, ...]:
        """The tables that the check reads."""
        return () if self is _MISTAKEN else (self.table, self.other) if self.other else (self.table,)

    def looks_outside(self, view: View) -> bool:
        """Return whether a table, or any part of it, is outside the view."""
        return any(self.is_outside(table, view) for table in self.paths)

    def is_outside(self, path: str, view: View) -> bool:
        """Return whether this table, or any part of it, is outside the view."""
        return not view.sees(path)

    def filled(self, fill: Callable[[str], str]) -> TableCheck:
        """Return the check with its tables filled by `fill`."""
        return replace(self, table=fill(self.table), other=fill(self.other))

    def violation(self, tree: Tree) -> str | None:
        """Return the violation, with the number of rows affected, or None if the check passes."""
        return self.finding(tree).violation

    def finding(self, tree: Tree) -> CheckResult:
        """Return the counts or, if the check fails, the violation with the number of rows affected."""
        if not isinstance(tree, TableTree):
            raise GuardrailViolation("it looks into a table, which only a Spark task can")
        return tree.table_finding(self)


_MISTAKEN = TableCheck("require_rows", "mistaken", least=0)
"""Placeholder for an invalid check whose diagnostics were collected."""


def require(
    table: str,
    condition: str,
    allow: float = 0.0,
    *,
    level: Level = "fail",
    format: str = "parquet",
    **options: Any,
) -> TableCheck:
    """Require that a Spark SQL condition holds for every row, such as `require("plays", "ms >= 0 AND user IS NOT NULL")`.

    Args:
        table: The table's path in the workspace.
        condition: A Spark SQL condition on the columns of one row. A row for which it is null counts as a violation.
        allow: The share of rows that may violate it: 0.001 is one row in a thousand.
        level: `warn` records and logs a violation, and fails nothing.
        format: The table's format.
        options: Spark's options for reading it.
    """
    said = {"condition": condition, "allow": allow, "level": level}
    return _check("require", table, format, options, **said)


def require_columns(
    table: str,
    columns: Sequence[str] | Mapping[str, str] | type[BaseModel] = (),
    *,
    evolve: Evolution | None = None,
    level: Level = "fail",
    format: str = "parquet",
    **options: Any,
) -> TableCheck:
    """Require these columns, given as names, as names with Spark types, or as a model.

    Args:
        table: The table's path in the workspace.
        columns: The columns; may be left out with `evolve`.
        evolve: `additive` requires that the table has every column, with the same type, that it has at the input
            commit. New columns may be added. Only for `post`.
        level: `warn` records and logs a violation, and fails nothing.
        format: The table's format.
        options: Spark's options for reading it.
    """
    if isinstance(columns, type) and issubclass(columns, BaseModel):
        columns = list(columns.model_fields)
    names = tuple(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else (columns,)
    types = tuple(columns.values()) if isinstance(columns, Mapping) else (None,) * len(names)
    said = {"columns": names, "types": types, "evolve": evolve, "level": level}
    return _check("require_columns", table, format, options, **said)


def require_foreign_key(
    table: str,
    column: str | Sequence[str],
    other: str,
    key: str | Sequence[str] | None = None,
    *,
    level: Level = "fail",
    format: str = "parquet",
    **options: Any,
) -> TableCheck:
    """Require that every value of a column occurs in another table: `require_foreign_key("plays", "song_id", "songs")`.

    Rows with a null in the column are left out.

    Args:
        table: The table's path in the workspace.
        column: The column, or several of them.
        other: The path of the table with the keys.
        key: The key's columns there, if they have other names.
        level: `warn` records and logs a violation, and fails nothing.
        format: The format of both tables.
        options: Spark's options for reading both.
    """
    columns = (column,) if isinstance(column, str) else tuple(column)
    keys = columns if key is None else (key,) if isinstance(key, str) else tuple(key)
    said = {"columns": columns, "other": other, "keys": keys, "level": level}
    return _check("require_foreign_key", table, format, options, **said)


def require_rows(
    table: str,
    min: int = 1,
    max: int | None = None,
    *,
    change: float | None = None,
    level: Level = "fail",
    format: str = "parquet",
    **options: Any,
) -> TableCheck:
    """Require at least `min` and at most `max` rows.

    Args:
        table: The table's path in the workspace.
        min: The smallest number of rows.
        max: The largest number of rows.
        change: The share by which the number of rows may differ from that at the input commit: 0.2 allows a fifth more
            or fewer. Only for `post`.
        level: `warn` records and logs a violation, and fails nothing.
        format: The table's format.
        options: Spark's options for reading it.
    """
    said = {"least": min, "most": max, "change": change, "level": level}
    return _check("require_rows", table, format, options, **said)


def forbid_nulls(
    table: str, *columns: str, level: Level = "fail", format: str = "parquet", **options: Any
) -> TableCheck:
    """Forbid nulls in these columns, or in all columns if none is named.

    With `level="warn"`, a violation is recorded and logged, and fails nothing.
    """
    return _check("forbid_nulls", table, format, options, columns=columns, level=level)


def require_unique(
    table: str, *columns: str, level: Level = "fail", format: str = "parquet", **options: Any
) -> TableCheck:
    """Require that no two rows have the same values in all of these columns.

    With `level="warn"`, a violation is recorded and logged, and fails nothing.
    """
    return _check("require_unique", table, format, options, columns=columns, level=level)


def require_values(
    table: str,
    column: str,
    allowed: Iterable[Any],
    *,
    level: Level = "fail",
    format: str = "parquet",
    **options: Any,
) -> TableCheck:
    """Require that the column contains only these values.

    With `level="warn"`, a violation is recorded and logged, and fails nothing.
    """
    said = {"columns": (column,), "allowed": tuple(allowed), "level": level}
    return _check("require_values", table, format, options, **said)


def _check(
    kind: TableCheckKind, table: str, format: str, options: Mapping[str, Any], **said: Any
) -> TableCheck:
    diagnostics = list(_argument_diagnostics(kind, table, format, said))
    if diagnostics:
        report(diagnostics, calling_place())
        return _MISTAKEN
    return TableCheck(kind, table, format=format, options=tuple(sorted(options.items())), **said)


def _argument_diagnostics(
    kind: str, table: object, format: object, said: Mapping[str, Any]
) -> Iterable[Diagnostic]:
    if not isinstance(table, str) or _is_no_table(table):
        yield Diagnostic(f"{kind} table", "must be a path below the workspace's prefix", table)
    if not isinstance(format, str) or not format.strip():
        yield Diagnostic(f"{kind} format", "must be the name of a format, such as 'parquet'", format)
    yield from level_diagnostics(kind, said["level"])
    columns = said.get("columns", ())
    if not _are_names(columns):
        yield Diagnostic(f"{kind} columns", "must be names of columns", columns)
    elif kind in _NEED_COLUMNS and not (columns or said.get("evolve")):
        yield Diagnostic(f"{kind} columns", "must name at least one column", columns)
    if kind == "require_values" and not said["allowed"]:
        yield Diagnostic("require_values allowed", "must hold at least one value", said["allowed"])
    if kind == "require":
        yield from _condition_diagnostics(said["condition"], said["allow"])
    if kind == "require_foreign_key":
        yield from _key_diagnostics(said["other"], columns, said["keys"])
    if kind == "require_rows":
        yield from _bound_diagnostics(said["least"], said["most"], said["change"])
    if said.get("evolve") not in (None, "additive"):
        yield Diagnostic(f"{kind} evolve", "must be 'additive' or left out", said["evolve"])


_NEED_COLUMNS = ("require_columns", "require_unique", "require_foreign_key")


def _are_names(columns: Iterable[object]) -> bool:
    return all(isinstance(name, str) and name for name in columns)


def _condition_diagnostics(condition: object, allow: object) -> Iterable[Diagnostic]:
    if not isinstance(condition, str) or not condition.strip():
        yield Diagnostic("require condition", "must be a Spark SQL condition, such as 'ms >= 0'", condition)
    if isinstance(allow, bool) or not isinstance(allow, int | float) or not 0 <= allow < 1:
        yield Diagnostic("require allow", "must be a share of the rows, from 0 to less than 1", allow)


def _key_diagnostics(other: object, columns: Sequence[str], keys: Sequence[object]) -> Iterable[Diagnostic]:
    if not isinstance(other, str) or _is_no_table(other):
        yield Diagnostic("require_foreign_key other", "must be a path below the workspace's prefix", other)
    if not _are_names(keys) or len(keys) != len(columns):
        rule = f"must name as many columns as column does ({len(columns)})"
        yield Diagnostic("require_foreign_key key", rule, keys)


def _bound_diagnostics(least: object, most: object, change: object) -> Iterable[Diagnostic]:
    if type(least) is not int or least < 0:
        yield Diagnostic("require_rows min", "must be a whole number, 0 or more", least)
    elif most is not None and (type(most) is not int or most < least):
        yield Diagnostic("require_rows max", f"must be a whole number, not below min ({least})", most)
    if change is not None and (
        isinstance(change, bool) or not isinstance(change, int | float) or not 0 <= change < math.inf
    ):
        yield Diagnostic("require_rows change", "must be a share such as 0.2, 0 or more", change)
