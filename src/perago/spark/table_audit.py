"""Evaluates table checks.  All checks on the same table are evaluated in a single Spark job.

The whole-table counts (rows, nulls, values, conditions) come from one pass, and each set of unique columns and each
foreign key needs a separate grouping.  Their one-row results are combined into one query.  A foreign key is checked by
grouping both tables' keys together, never by a join: groupings are aggregated before they are shuffled, so a key that
half of the rows have costs no more than another.  Only counts reach the driver.  When a check fails, up to three
offending rows are fetched and written to the worker's log.  They never appear in the reason, because reasons leave the
machine.

What a check compares with, the table at the input commit, is read before the body runs, from the files that the body
is about to change: that works on a workdir and on a branch alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from perago.declare.checks import Check, CheckResult, failed_result, format_count
from perago.declare.file_tree import Tree
from perago.declare.table_checks import Source, TableCheck
from perago.errors import GuardrailViolation
from perago.spark.failures import SPARK_ERRORS, short_reason
from perago.spark.tables import TableSource, quoted, read_table, unknown_format

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from perago.declare.workspace import WorkspaceSpec
    from perago.spark.workspace import SparkWorkspace


log = logging.getLogger("perago.spark")

_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at the input commit: its columns with their types, and its number of rows if a check asks for it."""

    columns: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    problem: str = ""
    """The reason why the table could not be read."""


@dataclass(frozen=True, slots=True)
class _CheckOutcome:
    """The result of a check and, if it failed because of certain rows, a query for those rows."""

    finding: CheckResult
    rows: Callable[[], DataFrame] | None = None


class Auditor:
    """Evaluates the table checks of one phase (`pre` or `post`), one table at a time."""

    def __init__(
        self,
        workspace: SparkWorkspace,
        session: Callable[[], SparkSession],
        checks: Sequence[Check],
        before: Mapping[Source, TableState] | None = None,
    ) -> None:
        self._workspace = workspace
        self._session = session
        self._checks = [check for check in checks if isinstance(check, TableCheck)]
        self._before = before or {}
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
            if one != check and one.level == check.level and not other.passed
        ]
        return failed_result("; also ".join([found[check].text, *others]))

    def call(self, check: Callable[[Any, Any], None], params: object) -> object:
        """Call a check of the author's with the workspace, which it can only read.

        Raises `GuardrailViolation` with a short reason if Spark fails.
        """
        workspace = self._workspace.without_writes()
        try:
            return check(workspace, params)  # type: ignore[func-returns-value]
        except SPARK_ERRORS as error:
            log.debug("a check failed in Spark", exc_info=error)
            reason = short_reason(error, base=workspace.base, tables=workspace.tables)
            raise GuardrailViolation(f"Spark failed: {reason}") from error

    def states(self, tree: Tree) -> dict[Source, TableState]:
        """Return the current state of each table that a check compares with. Tables that do not exist are left out."""
        found = {}
        for source in dict.fromkeys(check.source for check in self._checks if check.compares):
            if _exists(tree, source[0]):
                found[source] = self._state(source)
        return found

    def _state(self, source: Source) -> TableState:
        table, format, _ = source
        counted = any(check.change is not None for check in self._checks if check.source == source)
        try:
            frame = self._open(source)
            columns = {one.name: one.dataType.simpleString() for one in frame.schema.fields}
            return TableState(columns, frame.count() if counted else None)
        except SPARK_ERRORS as error:
            log.debug("reading table %s at the input commit failed", table, exc_info=error)
            reason = unknown_format(error, format) or short_reason(
                error, base=self._workspace.base, tables=[table]
            )
        except GuardrailViolation as error:
            reason = str(error)
        return TableState(problem=reason)

    def _open(self, source: Source) -> DataFrame:
        table, format, options = source
        return read_table(
            self._session(), TableSource(self._workspace.uri(table)), format, None, dict(options)
        )

    def _evaluate(
        self, source: Source, checks: list[TableCheck], tree: Tree
    ) -> dict[TableCheck, CheckResult]:
        table, format, options = source
        if not _exists(tree, table):
            return dict.fromkeys(checks, failed_result(f"there is no table {table!r}"))
        try:
            others = {
                name: self._open((name, format, options)) if _exists(tree, name) else None
                for name in {check.other for check in checks if check.other}
            }
            findings = _evaluate_all(self._open(source), checks, others, self._before.get(source))
            for check, found in findings.items():
                if found.rows is not None:
                    _log_samples(check, found.rows())
        except SPARK_ERRORS as error:
            if len(checks) > 1:
                # One condition may fail on a row, such as a cast; it must not fail the other checks with it.
                return {check: self._evaluate(source, [check], tree)[check] for check in checks}
            log.debug("checking table %s failed", table, exc_info=error)
            base = self._workspace.base
            reason = unknown_format(error, format) or short_reason(error, base=base, tables=[table])
            failed = "it cannot be evaluated" if checks[0].kind == "require" else "the table cannot be read"
            return {checks[0]: failed_result(f"{failed}: {reason}")}
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

    def call_with_workspace(self, check: Callable[[Any, Any], None], params: object) -> object:
        """Call a check of the author's with the workspace, which it can only read."""
        return self._auditor.call(check, params)

    def table_finding(self, check: TableCheck) -> CheckResult:
        """Return the result of a check on a table in this tree."""
        return self._auditor.finding(check, self._tree)


class Audits:
    """Provides the trees on which one attempt's checks are evaluated.

    The first tree, for the checks before the body, also reads the tables that checks after the body compare with.
    """

    def __init__(
        self, workspace: SparkWorkspace, session: Callable[[], SparkSession], spec: WorkspaceSpec | None
    ) -> None:
        self._workspace = workspace
        self._session = session
        self._later = spec.post if spec is not None else ()
        self._before: Mapping[Source, TableState] | None = None

    def tree(self, checks: Sequence[Check], tree: Tree) -> AuditedTree:
        """Return a tree that can evaluate these checks."""
        if self._before is None:
            self._before = Auditor(self._workspace, self._session, self._later).states(tree)
        return AuditedTree(tree, Auditor(self._workspace, self._session, checks, self._before))


def _exists(tree: Tree, table: str) -> bool:
    return any(True for _ in tree.glob(table))


def _evaluate_all(
    frame: DataFrame,
    checks: Sequence[TableCheck],
    others: Mapping[str, DataFrame | None],
    before: TableState | None,
) -> dict[TableCheck, _CheckOutcome]:
    """Return the result of every check. No rows are read for `require_columns`, or if a column is missing."""
    found: dict[TableCheck, _CheckOutcome] = {}
    to_count = []
    for check in checks:
        text = (
            (before.problem and f"the table at the input commit cannot be read: {before.problem}")
            if before is not None and check.compares and before.problem
            else _column_problems(frame, check)
            or _evolution_problems(frame, check, before)
            or _key_problems(frame, check, others)
            or _condition_problem(frame, check)
        )
        if text:
            found[check] = _CheckOutcome(failed_result(text))
        elif check.kind == "require_columns":
            found[check] = _CheckOutcome(CheckResult(_columns_text(frame, check, before)))
        else:
            to_count.append(check)
    if to_count:
        found |= _count(frame, to_count, others, before)
    return {check: found[check] for check in checks}


def _column_problems(frame: DataFrame, check: TableCheck) -> str | None:
    there = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    missing = [name for name in check.columns if name not in there]
    types = dict(zip(check.columns, check.types, strict=False))
    problems = [f"no column {', '.join(map(repr, missing))}; there are {', '.join(there)}"] if missing else []
    for name, kind in types.items():
        if kind is not None and name in there and there[name] != (wanted := _simple_type(kind)):
            problems.append(f"column {name!r} is {there[name]}, not {wanted}")
    return "; ".join(problems) or None


def _simple_type(kind: str) -> str:
    """Return a type in the form in which Spark shows it: "int" for "INTEGER", "decimal(10,2)" for "decimal(10, 2)"."""
    from pyspark.sql.types import DataType

    try:
        return DataType.fromDDL(kind).simpleString()
    except SPARK_ERRORS:
        return kind  # no type of Spark, so no column has it


def _evolution_problems(frame: DataFrame, check: TableCheck, before: TableState | None) -> str | None:
    if check.evolve is None or before is None:
        return None
    now = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    problems = []
    if gone := [name for name in before.columns if name not in now]:
        problems.append(f"column {', '.join(map(repr, gone))} of the input is gone")
    for name, kind in before.columns.items():
        if name in now and now[name] != kind:
            problems.append(f"column {name!r} was {kind} in the input and is {now[name]}")
    return "; ".join(problems) or None


def _key_problems(frame: DataFrame, check: TableCheck, others: Mapping[str, DataFrame | None]) -> str | None:
    if check.kind != "require_foreign_key":
        return None
    other = others[check.other]
    if other is None:
        return f"there is no table {check.other!r}"
    own, there = ({field.name: field.dataType for field in one.schema.fields} for one in (frame, other))
    missing = [name for name in check.keys if name not in there]
    if missing:
        return f"{check.other!r} has no column {', '.join(map(repr, missing))}; there are {', '.join(there)}"
    for name, key in zip(check.columns, check.keys, strict=True):
        if own[name] != there[key] and not (_is_integral(own[name]) and _is_integral(there[key])):
            return (
                f"column {name!r} is {own[name].simpleString()}, and {key!r} of {check.other!r} is "
                f"{there[key].simpleString()}"
            )
    return None


def _is_integral(kind: object) -> bool:
    from pyspark.sql.types import IntegralType

    return isinstance(kind, IntegralType)


def _condition_problem(frame: DataFrame, check: TableCheck) -> str | None:
    """Return why the condition cannot be evaluated on a row. Spark analyses it without running a job."""
    if check.kind != "require":
        return None
    from pyspark.sql import functions as F

    try:
        # `where` rejects aggregates and conditions that are not boolean; `agg` rejects subqueries.
        frame.where(F.expr(check.condition)).agg(_amount(_violation_conditions(frame, check)[0])).schema  # noqa: B018
    except SPARK_ERRORS as error:
        return f"it is not a condition on a row: {short_reason(error, base='', tables=[check.table])}"
    return None


def _columns_text(frame: DataFrame, check: TableCheck, before: TableState | None) -> str:
    texts = [f"{len(check.columns)} of {format_count(frame.columns, 'column')}"] if check.columns else []
    if check.evolve is not None and before is None:
        texts.append("there was no such table in the input")
    elif check.evolve is not None and before is not None:
        texts.append(f"all {format_count(before.columns, 'column')} of the input, now {len(frame.columns)}")
    return ", ".join(texts)


def _count(
    frame: DataFrame,
    checks: Sequence[TableCheck],
    others: Mapping[str, DataFrame | None],
    before: TableState | None,
) -> dict[TableCheck, _CheckOutcome]:
    from pyspark.sql import functions as F

    plain = [check for check in checks if check.kind not in _GROUPED]
    whole = [
        F.count(F.lit(1)),
        *(_amount(column) for check in plain for column in _violation_conditions(frame, check)),
    ]
    query = frame.agg(F.lit(-1).alias("key"), F.array(*whole).alias("counts"))
    for number, check in enumerate(checks):
        if check.kind in _GROUPED:
            groups = _violating_keys(frame, check, others)
            counts = F.array(F.count(F.lit(1)), F.coalesce(F.sum("count"), F.lit(0)))
            query = query.union(groups.agg(F.lit(number).alias("key"), counts.alias("counts")))
    rows = {row["key"]: list(row["counts"]) for row in query.collect()}
    total, *amounts = rows[-1]
    found: dict[TableCheck, _CheckOutcome] = {}
    for number, check in enumerate(checks):
        if check.kind in _GROUPED:
            keys, violating = rows[number]
            found[check] = _finding_of_keys(frame, check, others, total, keys, violating)
        else:
            width = len(_violation_conditions(frame, check))
            found[check] = _finding_of_counts(frame, check, total, amounts[:width], before)
            amounts = amounts[width:]
    return found


_GROUPED = ("require_unique", "require_foreign_key")


def _finding_of_counts(
    frame: DataFrame, check: TableCheck, total: int, amounts: Sequence[int], before: TableState | None
) -> _CheckOutcome:
    if check.kind == "require_rows":
        return _CheckOutcome(_finding_of_rows(check, total, before))
    any_of = _any(_violation_conditions(frame, check))
    if check.kind == "require":
        return _finding_of_condition(check, total, amounts[0], lambda: frame.where(any_of))
    if not any(amounts):
        none = "no nulls" if check.kind == "forbid_nulls" else "no other values"
        return _CheckOutcome(CheckResult(f"{none} in {_rows(total)}"))
    if check.kind == "forbid_nulls":
        names = check.columns or frame.columns
        nulls = [f"{count} in {name!r}" for name, count in zip(names, amounts, strict=True) if count]
        return _CheckOutcome(
            failed_result(f"nulls: {', '.join(nulls)}, of {total} rows"), lambda: frame.where(any_of)
        )
    text = f"{amounts[0]} of {total} rows hold other values in {check.columns[0]!r}"
    return _CheckOutcome(failed_result(text), lambda: frame.where(any_of))


def _finding_of_rows(check: TableCheck, total: int, before: TableState | None) -> CheckResult:
    if total < (check.least or 0):
        return failed_result(f"it has {total} rows, {check.least} or more are required")
    if check.most is not None and total > check.most:
        return failed_result(f"it has {total} rows, at most {check.most} are allowed")
    if check.change is None:
        return CheckResult(_rows(total))
    if before is None or before.rows is None:
        return CheckResult(f"{_rows(total)}; there was no such table in the input")
    text = f"{_rows(total)}, {before.rows} in the input"
    if abs(total - before.rows) > _share(check.change, before.rows):
        return failed_result(f"{text}; the number may change by {_percent(check.change)}")
    return CheckResult(text)


def _finding_of_condition(
    check: TableCheck, total: int, violating: int, rows: Callable[[], DataFrame]
) -> _CheckOutcome:
    tolerated = f", {_percent(check.allow)} may" if check.allow else ""
    text = f"{violating or 'none'} of {_rows(total)} violate it{tolerated}"
    if violating <= _share(check.allow, total):
        return _CheckOutcome(CheckResult(text))
    return _CheckOutcome(failed_result(text), rows)


def _finding_of_keys(
    frame: DataFrame,
    check: TableCheck,
    others: Mapping[str, DataFrame | None],
    total: int,
    keys: int,
    rows: int,
) -> _CheckOutcome:
    if check.kind == "require_foreign_key":
        passed = f"no key is missing in {check.other!r}, in {_rows(total)}"
        failed = f"{keys} keys are not in {check.other!r}, in {rows} of {_rows(total)}"
    else:
        passed = f"no key twice in {_rows(total)}"
        failed = f"{keys} keys are there more than once, in {rows} rows"
    if not keys:
        return _CheckOutcome(CheckResult(passed))
    return _CheckOutcome(failed_result(failed), lambda: _violating_keys(frame, check, others))


def _share(share: float, rows: int) -> Fraction:
    """Return a share of some rows as the author wrote it: 0.29 of 100 is 29, and 28.999999999999996 in floats."""
    return Fraction(str(share)) * rows


def _percent(share: float) -> str:
    return f"{share * 100:.4g} %"


def _rows(total: int) -> str:
    return "1 row" if total == 1 else f"{total} rows"


def _violation_conditions(frame: DataFrame, check: TableCheck) -> list[Column]:
    """Return the conditions under which a row violates the check. Rows are counted separately for each condition."""
    from pyspark.sql import functions as F

    if check.kind == "forbid_nulls":
        return [F.col(quoted(name)).isNull() for name in check.columns or frame.columns]
    if check.kind == "require_values":
        return [~F.col(quoted(check.columns[0])).isin(*check.allowed)]
    if check.kind == "require":
        return [~F.coalesce(F.expr(check.condition), F.lit(False))]
    return []


def _violating_keys(frame: DataFrame, check: TableCheck, others: Mapping[str, DataFrame | None]) -> DataFrame:
    """Return the keys that violate the check, each with the number of its rows in the column `count`."""
    if check.kind == "require_foreign_key":
        return _missing_keys(frame, check, others)
    named = _keys_of(frame, check.columns)
    return named.groupBy(*named.columns).count().where("count > 1")


def _missing_keys(frame: DataFrame, check: TableCheck, others: Mapping[str, DataFrame | None]) -> DataFrame:
    from pyspark.sql import functions as F

    other = others[check.other]
    assert other is not None  # noqa: S101 - `_key_problems` has checked it
    own, there = _without_nulls(_keys_of(frame, check.columns)), _without_nulls(_keys_of(other, check.keys))
    names = own.columns
    both = own.select(*names, F.lit(0).alias("known"), F.lit(1).alias("amount")).unionAll(
        there.select(*names, F.lit(1).alias("known"), F.lit(0).alias("amount"))
    )
    groups = both.groupBy(*names).agg(F.max("known").alias("known"), F.sum("amount").alias("count"))
    return groups.where("known = 0").drop("known")


def _without_nulls(keys: DataFrame) -> DataFrame:
    """Return the keys in which no column is null. `dropna` would drop NaN too, which is a value."""
    return keys.where(" AND ".join(f"{name} IS NOT NULL" for name in keys.columns))


def _keys_of(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    return frame.select(*(frame[quoted(name)].alias(f"key{number}") for number, name in enumerate(columns)))


def _amount(condition: Column) -> Column:
    from pyspark.sql import functions as F

    return F.count(F.when(condition, F.lit(1)))


def _any(conditions: Sequence[Column]) -> Column:
    first, *rest = conditions
    for condition in rest:
        first = first | condition
    return first


def _log_samples(check: TableCheck, rows: DataFrame) -> None:
    samples: list[Any] = rows.limit(_SAMPLES).collect()
    for row in samples:
        log.warning("%s: offending row %s", check.label(), row.asDict())
