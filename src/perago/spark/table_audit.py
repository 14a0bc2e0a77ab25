"""Evaluates table checks.  All checks on the same table are evaluated in a single Spark job.

The whole-table counts (rows, nulls, values) come from one pass, and each set of unique columns needs a separate
grouping.  Their one-row results are combined into one query.  Only counts reach the driver.  When a check fails, up to
three offending rows are fetched and written to the worker's log.  They never appear in the reason, because reasons
leave the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perago.declare.checks import Check, CheckResult, failed_result, format_count
from perago.declare.file_tree import Tree
from perago.declare.table_checks import Source, TableCheck
from perago.errors import GuardrailViolation
from perago.spark.failures import SPARK_ERRORS, short_reason
from perago.spark.tables import read_table, unknown_format

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from perago.spark.workspace import SparkWorkspace


log = logging.getLogger("perago.spark")

_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class _CheckOutcome:
    """The result of a check and, if it failed because of certain rows, a query for those rows."""

    finding: CheckResult
    rows: Callable[[], DataFrame] | None = None


class Auditor:
    """Evaluates the table checks of one phase (`pre` or `post`), one table at a time."""

    def __init__(
        self, workspace: SparkWorkspace, session: Callable[[], SparkSession], checks: Sequence[Check]
    ) -> None:
        self._workspace = workspace
        self._session = session
        self._checks = [check for check in checks if isinstance(check, TableCheck)]
        self._found: dict[Source, dict[TableCheck, CheckResult]] = {}

    def finding(self, check: TableCheck, tree: Tree) -> CheckResult:
        """Return the result of a check.

        If the check failed, the result also names the other failed checks on the same table.
        """
        if check.source not in self._found:
            checks = dict.fromkeys([*(one for one in self._checks if one.source == check.source), check])
            self._found[check.source] = self._evaluate(check.source, list(checks), tree)
        found = self._found[check.source]
        if found[check].passed:
            return found[check]
        others = [
            f"{one.label()}: {other.text}"
            for one, other in found.items()
            if one != check and not other.passed
        ]
        return failed_result("; also ".join([found[check].text, *others]))

    def _evaluate(
        self, source: Source, checks: list[TableCheck], tree: Tree
    ) -> dict[TableCheck, CheckResult]:
        table, format, options = source
        if not any(True for _ in tree.glob(table)):
            return dict.fromkeys(checks, failed_result(f"there is no table {table!r}"))
        try:
            frame = read_table(self._session(), self._workspace.uri(table), format, None, dict(options))
            findings = _evaluate_all(frame, checks)
            for check, found in findings.items():
                if found.rows is not None:
                    _log_samples(check, found.rows())
        except SPARK_ERRORS as error:
            log.debug("checking table %s failed", table, exc_info=error)
            base = self._workspace.base
            reason = unknown_format(error, format) or short_reason(error, base=base, tables=[table])
            raise GuardrailViolation(f"the table cannot be read: {reason}") from error
        return {check: found.finding for check, found in findings.items()}


class AuditedTree:
    """A file tree that can also evaluate checks on the tables in it."""

    def __init__(self, tree: Tree, auditor: Auditor) -> None:
        self._tree = tree
        self._auditor = auditor
        self.path = tree.path
        self.is_file = tree.is_file
        self.is_dir = tree.is_dir
        self.glob = tree.glob
        self.names = tree.names

    def table_finding(self, check: TableCheck) -> CheckResult:
        """Return the result of a check on a table in this tree."""
        return self._auditor.finding(check, self._tree)


def _evaluate_all(frame: DataFrame, checks: Sequence[TableCheck]) -> dict[TableCheck, _CheckOutcome]:
    """Return the result of every check. No rows are read for `require_columns`, or if a column is missing."""
    found: dict[TableCheck, _CheckOutcome] = {}
    to_count = []
    for check in checks:
        text = _column_problems(frame, check)
        if text is not None:
            found[check] = _CheckOutcome(failed_result(text))
        elif check.kind == "require_columns":
            found[check] = _CheckOutcome(
                CheckResult(f"{len(check.columns)} of {format_count(frame.columns, 'column')}")
            )
        else:
            to_count.append(check)
    if to_count:
        found |= _count(frame, to_count)
    return {check: found[check] for check in checks}


def _column_problems(frame: DataFrame, check: TableCheck) -> str | None:
    there = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    missing = [name for name in check.columns if name not in there]
    types = dict(zip(check.columns, check.types, strict=False))
    problems = [f"no column {', '.join(map(repr, missing))}; there are {', '.join(there)}"] if missing else []
    for name, kind in types.items():
        if kind is not None and name in there and there[name] != kind.lower():
            problems.append(f"column {name!r} is {there[name]}, not {kind.lower()}")
    return "; ".join(problems) or None


def _count(frame: DataFrame, checks: Sequence[TableCheck]) -> dict[TableCheck, _CheckOutcome]:
    from pyspark.sql import functions as F

    plain = [check for check in checks if check.kind != "require_unique"]
    whole = [
        F.count(F.lit(1)),
        *(_amount(column) for check in plain for column in _violation_conditions(frame, check)),
    ]
    query = frame.agg(F.lit(-1).alias("key"), F.array(*whole).alias("counts"))
    for number, check in enumerate(checks):
        if check.kind == "require_unique":
            duplicates = _duplicate_keys(frame, check)
            counts = F.array(F.count(F.lit(1)), F.coalesce(F.sum("count"), F.lit(0)))
            query = query.union(duplicates.agg(F.lit(number).alias("key"), counts.alias("counts")))
    rows = {row["key"]: list(row["counts"]) for row in query.collect()}
    total, *amounts = rows[-1]
    found: dict[TableCheck, _CheckOutcome] = {}
    for number, check in enumerate(checks):
        if check.kind == "require_unique":
            keys, duplicate_rows = rows[number]
            found[check] = _finding_of_keys(frame, check, total, keys, duplicate_rows)
        else:
            width = len(_violation_conditions(frame, check))
            found[check], amounts = _finding_of_counts(frame, check, total, amounts[:width]), amounts[width:]
    return found


def _finding_of_counts(
    frame: DataFrame, check: TableCheck, total: int, amounts: Sequence[int]
) -> _CheckOutcome:
    if check.kind == "require_rows":
        few, many = total < (check.least or 0), check.most is not None and total > check.most
        bound = f"{check.least} or more are required" if few else f"at most {check.most} are allowed"
        return _CheckOutcome(
            failed_result(f"it has {total} rows, {bound}") if few or many else CheckResult(_rows(total))
        )
    if not any(amounts):
        none = "no nulls" if check.kind == "forbid_nulls" else "no other values"
        return _CheckOutcome(CheckResult(f"{none} in {_rows(total)}"))
    any_of = _any(_violation_conditions(frame, check))
    if check.kind == "forbid_nulls":
        names = check.columns or frame.columns
        nulls = [f"{count} in {name!r}" for name, count in zip(names, amounts, strict=True) if count]
        return _CheckOutcome(
            failed_result(f"nulls: {', '.join(nulls)}, of {total} rows"), lambda: frame.where(any_of)
        )
    text = f"{amounts[0]} of {total} rows hold other values in {check.columns[0]!r}"
    return _CheckOutcome(failed_result(text), lambda: frame.where(any_of))


def _finding_of_keys(frame: DataFrame, check: TableCheck, total: int, keys: int, rows: int) -> _CheckOutcome:
    if not keys:
        return _CheckOutcome(CheckResult(f"no key twice in {_rows(total)}"))
    return _CheckOutcome(
        failed_result(f"{keys} keys are there more than once, in {rows} rows"),
        lambda: _duplicate_keys(frame, check),
    )


def _rows(total: int) -> str:
    return "1 row" if total == 1 else f"{total} rows"


def _violation_conditions(frame: DataFrame, check: TableCheck) -> list[Column]:
    """Return the conditions under which a row violates the check. Rows are counted separately for each condition."""
    from pyspark.sql import functions as F

    if check.kind == "forbid_nulls":
        return [F.col(_quoted(name)).isNull() for name in check.columns or frame.columns]
    if check.kind == "require_values":
        return [~F.col(_quoted(check.columns[0])).isin(*check.allowed)]
    return []


def _duplicate_keys(frame: DataFrame, check: TableCheck) -> DataFrame:
    keys = [frame[_quoted(name)].alias(f"key{number}") for number, name in enumerate(check.columns)]
    named = frame.select(*keys)
    return named.groupBy(*named.columns).count().where("count > 1")


def _amount(condition: Column) -> Column:
    from pyspark.sql import functions as F

    return F.count(F.when(condition, F.lit(1)))


def _any(conditions: Sequence[Column]) -> Column:
    first, *rest = conditions
    for condition in rest:
        first = first | condition
    return first


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _log_samples(check: TableCheck, rows: DataFrame) -> None:
    samples: list[Any] = rows.limit(_SAMPLES).collect()
    for row in samples:
        log.warning("%s: offending row %s", check.label(), row.asDict())
