"""Checks on the tables of a Spark task, for `pre` and `post`.

A check is a value: it states what must hold, and knows nothing about Spark.  All checks on the same table are evaluated
together, in one Spark job (`table_audit`), when the first of them is needed.

`require_unique` treats null as a value like any other.  `require_values` ignores nulls; use `forbid_nulls` to reject
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from perago.declare.checks import CheckResult
from perago.declare.diagnostics import Diagnostic, calling_place, report
from perago.declare.file_tree import Tree
from perago.errors import GuardrailViolation
from perago.protocol.paths import either, is_absolute, is_empty, leads_out
from perago.protocol.view import View

TableCheckKind = Literal[
    "require_columns", "require_rows", "forbid_nulls", "require_unique", "require_values"
]
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
    format: str = "parquet"
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def source(self) -> Source:
        """The path, format and reader options with which Spark opens the table."""
        return self.table, self.format, self.options

    def label(self) -> str:
        """Return the check as written in the declaration."""
        said = [repr(self.table)]
        match self.kind:
            case "require_columns" if any(self.types):
                pairs = zip(self.columns, self.types, strict=True)
                said.append("{" + ", ".join(f"{name!r}: {kind!r}" for name, kind in pairs) + "}")
            case "require_columns":
                said.append(repr(list(self.columns)))
            case "require_rows":
                said += [
                    f"{name}={n}" for name, n in (("min", self.least), ("max", self.most)) if n is not None
                ]
            case "require_values":
                said += [repr(self.columns[0]), repr(list(self.allowed))]
            case _:
                said += [repr(name) for name in self.columns]
        if self.format != "parquet":
            said.append(f"format={self.format!r}")
        return f"{self.kind}({', '.join(said)})"

    def looks_outside(self, view: View) -> bool:
        """Return whether the table, or any part of it, is outside the view."""
        return self is not _MISTAKEN and not view.sees(self.table)

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


def require_columns(
    table: str,
    columns: Sequence[str] | Mapping[str, str] | type[BaseModel],
    *,
    format: str = "parquet",
    **options: Any,
) -> TableCheck:
    """Require these columns, given as names, as names with Spark types, or as a model."""
    if isinstance(columns, type) and issubclass(columns, BaseModel):
        columns = list(columns.model_fields)
    names = tuple(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else (columns,)
    types = tuple(columns.values()) if isinstance(columns, Mapping) else (None,) * len(names)
    return _check("require_columns", table, format, options, columns=names, types=types)


def require_rows(
    table: str, min: int = 1, max: int | None = None, *, format: str = "parquet", **options: Any
) -> TableCheck:
    """Require at least `min` and at most `max` rows."""
    return _check("require_rows", table, format, options, least=min, most=max)


def forbid_nulls(table: str, *columns: str, format: str = "parquet", **options: Any) -> TableCheck:
    """Forbid nulls in these columns, or in all columns if none is named."""
    return _check("forbid_nulls", table, format, options, columns=columns)


def require_unique(table: str, *columns: str, format: str = "parquet", **options: Any) -> TableCheck:
    """Require that no two rows have the same values in all of these columns."""
    return _check("require_unique", table, format, options, columns=columns)


def require_values(
    table: str, column: str, allowed: Iterable[Any], *, format: str = "parquet", **options: Any
) -> TableCheck:
    """Require that the column contains only these values."""
    return _check("require_values", table, format, options, columns=(column,), allowed=tuple(allowed))


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
    columns = said.get("columns", ())
    if not all(isinstance(name, str) and name for name in columns):
        yield Diagnostic(f"{kind} columns", "must be names of columns", columns)
    elif kind in ("require_columns", "require_unique") and not columns:
        yield Diagnostic(f"{kind} columns", "must name at least one column", columns)
    if kind == "require_values" and not said["allowed"]:
        yield Diagnostic("require_values allowed", "must hold at least one value", said["allowed"])
    if kind == "require_rows":
        least, most = said["least"], said["most"]
        if type(least) is not int or least < 0:
            yield Diagnostic("require_rows min", "must be a whole number, 0 or more", least)
        elif most is not None and (type(most) is not int or most < least):
            yield Diagnostic("require_rows max", f"must be a whole number, not below min ({least})", most)
