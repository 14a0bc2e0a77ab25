"""Looking into tables for checks: all checks of one table cost one Spark job.

The whole-table counts (rows, nulls, values) come from one pass, each set of unique columns from a grouping of its
own; their one-row results are joined into one query.  Only counts reach the driver.  When a check fails, up to
three offending rows are fetched and go to the worker's log, never into the reason: reasons leave the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perago.declare.checks import Check, Tree
from perago.declare.table_checks import Source, TableCheck
from perago.errors import GuardrailViolation
from perago.spark.failures import SPARK_ERRORS, short_reason
from perago.spark.tables import read_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from perago.spark.workspace import SparkWorkspace

log = logging.getLogger("perago.spark")

_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class _Offence:
    """A check that does not hold: what to say, and where the offending rows are to be seen."""

    text: str
    rows: Callable[[], DataFrame] | None = None


class Auditor:
    """Evaluates the table checks of one phase, a table at a time."""

    def __init__(
        self, workspace: SparkWorkspace, session: Callable[[], SparkSession], checks: Sequence[Check]
    ) -> None:
        self._workspace = workspace
        self._session = session
        self._checks = [check for check in checks if isinstance(check, TableCheck)]
        self._found: dict[Source, dict[TableCheck, str]] = {}

    def violation(self, check: TableCheck, tree: Tree) -> str | None:
        """What is wrong with the check's table, or None."""
        if check.source not in self._found:
            checks = dict.fromkeys([*(one for one in self._checks if one.source == check.source), check])
            self._found[check.source] = self._evaluate(check.source, list(checks), tree)
        wrong = self._found[check.source]
        if check not in wrong:
            return None
        others = [
            f"{one.label()}: {text}" for one, text in wrong.items() if one is not check and one != check
        ]
        return "; also ".join([wrong[check], *others])

    def _evaluate(self, source: Source, checks: list[TableCheck], tree: Tree) -> dict[TableCheck, str]:
        table, format, options = source
        if not any(True for _ in tree.glob(table)):
            return dict.fromkeys(checks, f"there is no table {table!r}")
        try:
            frame = read_table(self._session(), self._workspace.uri(table), format, None, dict(options))
            offences = _offences(frame, checks)
            for check, offence in offences.items():
                if offence.rows is not None:
                    _log_samples(check, offence.rows())
        except SPARK_ERRORS as error:
            log.info("checking table %s failed", table, exc_info=error)
            reason = short_reason(error, base=self._workspace.base, tables=[table])
            raise GuardrailViolation(f"the table cannot be read: {reason}") from error
        return {check: offence.text for check, offence in offences.items()}


class AuditedTree:
    """A tree whose tables can be looked into."""

    def __init__(self, tree: Tree, auditor: Auditor) -> None:
        self._tree = tree
        self._auditor = auditor
        self.path = tree.path
        self.is_file = tree.is_file
        self.is_dir = tree.is_dir
        self.glob = tree.glob
        self.names = tree.names

    def table_problem(self, check: TableCheck) -> str | None:
        """What is wrong with the table, or None."""
        return self._auditor.violation(check, self._tree)


def _offences(frame: DataFrame, checks: Sequence[TableCheck]) -> dict[TableCheck, _Offence]:
    """Every check that does not hold; those that name a column which is not there need no look at the rows."""
    found: dict[TableCheck, _Offence] = {}
    counted = []
    for check in checks:
        text = _wrong_columns(frame, check)
        if text is not None:
            found[check] = _Offence(text)
        elif check.kind != "require_columns":
            counted.append(check)
    if counted:
        found |= _count(frame, counted)
    return {check: found[check] for check in checks if check in found}


def _wrong_columns(frame: DataFrame, check: TableCheck) -> str | None:
    there = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    missing = [name for name in check.columns if name not in there]
    types = dict(zip(check.columns, check.types, strict=False))
    wrong = [f"no column {', '.join(map(repr, missing))}; there are {', '.join(there)}"] if missing else []
    for name, kind in types.items():
        if kind is not None and name in there and there[name] != kind.lower():
            wrong.append(f"column {name!r} is {there[name]}, not {kind.lower()}")
    return "; ".join(wrong) or None


def _count(frame: DataFrame, checks: Sequence[TableCheck]) -> dict[TableCheck, _Offence]:
    from pyspark.sql import functions as F

    plain = [check for check in checks if check.kind != "require_unique"]
    whole = [F.count(F.lit(1)), *(_amount(column) for check in plain for column in _offending(frame, check))]
    query = frame.agg(F.lit(-1).alias("key"), F.array(*whole).alias("counts"))
    for number, check in enumerate(checks):
        if check.kind == "require_unique":
            twice = _grouped(frame, check)
            counts = F.array(F.count(F.lit(1)), F.coalesce(F.sum("count"), F.lit(0)))
            query = query.union(twice.agg(F.lit(number).alias("key"), counts.alias("counts")))
    rows = {row["key"]: list(row["counts"]) for row in query.collect()}
    total, *amounts = rows[-1]
    found: dict[TableCheck, _Offence] = {}
    for number, check in enumerate(checks):
        if check.kind == "require_unique":
            offence = _not_unique(frame, check, *rows[number])
        else:
            width = len(_offending(frame, check))
            offence, amounts = _judged(frame, check, total, amounts[:width]), amounts[width:]
        if offence is not None:
            found[check] = offence
    return found


def _judged(frame: DataFrame, check: TableCheck, total: int, amounts: Sequence[int]) -> _Offence | None:
    if check.kind == "require_rows":
        few, many = total < (check.least or 0), check.most is not None and total > check.most
        bound = f"{check.least} or more are required" if few else f"at most {check.most} are allowed"
        return _Offence(f"it has {total} rows, {bound}") if few or many else None
    if not any(amounts):
        return None
    any_of = _any(_offending(frame, check))
    if check.kind == "forbid_nulls":
        names = check.columns or frame.columns
        nulls = [f"{count} in {name!r}" for name, count in zip(names, amounts, strict=True) if count]
        return _Offence(f"nulls: {', '.join(nulls)}, of {total} rows", lambda: frame.where(any_of))
    text = f"{amounts[0]} of {total} rows hold other values in {check.columns[0]!r}"
    return _Offence(text, lambda: frame.where(any_of))


def _not_unique(frame: DataFrame, check: TableCheck, keys: int, rows: int) -> _Offence | None:
    if not keys:
        return None
    return _Offence(f"{keys} keys are there more than once, in {rows} rows", lambda: _grouped(frame, check))


def _offending(frame: DataFrame, check: TableCheck) -> list[Column]:
    """The conditions under which a row offends, one for each count that the check wants."""
    from pyspark.sql import functions as F

    if check.kind == "forbid_nulls":
        return [F.col(_quoted(name)).isNull() for name in check.columns or frame.columns]
    if check.kind == "require_values":
        return [~F.col(_quoted(check.columns[0])).isin(*check.allowed)]
    return []


def _grouped(frame: DataFrame, check: TableCheck) -> DataFrame:
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
