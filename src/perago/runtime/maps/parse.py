"""Turns the records of a map's table into rows, and checks its columns against the params of the task.

    column        meaning
    repository    required
    branch        defaults to `main`
    ref           a commit id; if empty or missing, the branch's head when the row starts
    params        one JSON object; if there is such a column, other columns are ignored
    any other     the param with that name

A table with invalid columns is rejected as a whole, and so is one with conflicting rows.  If only a single row is
invalid, only that row fails.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic_core import to_jsonable_python

from perago.declare.payload import json_type
from perago.declare.task import TaskDefinition
from perago.declare.user_code import user_code
from perago.errors import RuntimeConfigError, TaskInputError
from perago.protocol.suggestions import did_you_mean, listed
from perago.runtime.maps.rows import Row

WORKSPACE = ("repository", "branch", "ref")
PARAMS = "params"
_SHOWN = 5
_ROWS_CHECKED = 100
"""The number of rows that are compared with the params model before anything runs."""


def rows_of(task: TaskDefinition, records: Sequence[Mapping[str, Any]], *, text: bool) -> list[Row]:
    """Parse the rows of a table.  Raises `RuntimeConfigError` if the table is invalid.

    `text` is True if every cell is text, as in a CSV file.
    """
    check_task(task)
    columns = {name for record in records for name in record}
    if WORKSPACE[0] not in columns:
        near = did_you_mean(WORKSPACE[0], sorted(columns))
        raise RuntimeConfigError(
            f"the table has no column 'repository'; it has {', '.join(sorted(columns))}{near}"
        )
    texts = text_params(task) if text else frozenset()
    rows = [
        _row(number, record, text=text, whole=PARAMS in columns, texts=texts)
        for number, record in enumerate(records, start=1)
    ]
    _check_branches(task, rows)
    return rows


def diagnostic_in(task: TaskDefinition, row: Row) -> str:
    """Return why the row would fail before any data is transferred, or an empty string if it would not."""
    if row.diagnostic:
        return row.diagnostic
    try:
        task.parse_params(json.dumps(row.params))
    except TaskInputError as error:
        return str(error)
    return ""


def check_columns(task: TaskDefinition, rows: Sequence[Row]) -> None:
    """Raise `RuntimeConfigError` if the table's columns do not fit the task's params, judging by its first rows.

    A column that the model does not declare is always an error.  A missing or invalid value is one only if every row
    has it: otherwise the rows without it can run.
    """
    checked = [row for row in rows[:_ROWS_CHECKED] if not row.diagnostic]
    problems: Counter[tuple[str, str, bool]] = Counter()
    for row in checked:
        problems.update(set(_param_problems(task, row)))
    known = sorted(task.params_model.model_json_schema().get("properties", {}))
    there_are = f"; there are: {listed(known)}"
    wrong = [
        f"{name}: is not a param{did_you_mean(name, known, otherwise=there_are)}"
        if undeclared
        else f"{name}: {problem}"
        for (name, problem, undeclared), count in problems.items()
        if undeclared or count == len(checked)
    ]
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise RuntimeConfigError(
            f"the table does not fit the params of task {task.name!r}: column {'; column '.join(wrong[:_SHOWN])}{more}"
        )


def _param_problems(task: TaskDefinition, row: Row) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of each invalid param, its problem, and whether the model does not declare it."""
    # A validator may raise anything.  Its row then fails by itself.
    with suppress(Exception), user_code("the params model"):
        yield from task.invalid_params(json.dumps(row.params))


def check_task(task: TaskDefinition) -> None:
    """Raise `RuntimeConfigError` if an engine cannot run the task on rows."""
    if task.workspace is None:
        raise RuntimeConfigError(
            f"task {task.name!r} has no workspace, and a map runs a task over workspaces: run it with `perago run`"
        )
    if task.kind != "plain":
        raise RuntimeConfigError(
            f"task {task.name!r} is a Spark task, which drives Spark itself and cannot run inside it: run it with "
            "`perago run`, or map a task that takes a Path"
        )


def _row(number: int, record: Mapping[str, Any], *, text: bool, whole: bool, texts: frozenset[str]) -> Row:
    wrong = []
    found = {}
    for name in WORKSPACE:
        value = record.get(name)
        if value is not None and not isinstance(value, str):
            wrong.append(f"{name} must be a string, not {json_type(value)}")
        found[name] = value.strip() if isinstance(value, str) else ""
    if not found["repository"] and not wrong:
        wrong.append("repository is empty; give its name")
    params: Mapping[str, Any] = {}
    try:
        params = _params_cell(record.get(PARAMS)) if whole else _by_columns(record, text=text, texts=texts)
    except TaskInputError as error:
        wrong.append(str(error))
    return Row(
        number,
        found["repository"],
        found["branch"] or "main",
        found["ref"],
        params,
        diagnostic="; ".join(wrong),
    )


def _params_cell(value: Any) -> Mapping[str, Any]:
    """Parse the `params` cell: an object, or its JSON text."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise TaskInputError(f"params is not JSON: {error}; write one JSON object") from None
    if not isinstance(value, Mapping):
        raise TaskInputError(f"params is {json_type(value)}; write one JSON object")
    return _as_json(value)


def _by_columns(record: Mapping[str, Any], *, text: bool, texts: frozenset[str]) -> Mapping[str, Any]:
    params = {name: value for name, value in record.items() if name not in WORKSPACE}
    if text:
        return {name: parse_cell(name, cell, texts) for name, cell in params.items() if cell != ""}
    # Parquet represents an absent value as null: the model's default applies.
    return _as_json({name: value for name, value in params.items() if value is not None})


def parse_cell(name: str, cell: str, texts: frozenset[str]) -> Any:
    """Parse a text cell as JSON, unless the param takes text, so that `007` stays text."""
    if name in texts:
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def _as_json(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the params as JSON values.  Parquet has types, such as dates and decimals, that JSON writes as text."""
    try:
        found: dict[str, Any] = to_jsonable_python(params)
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TaskInputError(f"params have no JSON form: {error}") from None
    return found


def text_params(task: TaskDefinition) -> frozenset[str]:
    """Return the names of the params that take text according to the schema."""
    schema = task.params_model.model_json_schema()
    return frozenset(
        name
        for name, one in schema.get("properties", {}).items()
        if _takes_text(one, schema.get("$defs", {}))
    )


def _takes_text(schema: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    if "$ref" in schema:
        return _takes_text(known.get(schema["$ref"].rpartition("/")[2], {}), known)
    parts = [part for key in ("anyOf", "oneOf", "allOf") for part in schema.get(key, ())]
    of_text = any(isinstance(one, str) for one in (*schema.get("enum", ()), schema.get("const")))
    return schema.get("type") == "string" or of_text or any(_takes_text(part, known) for part in parts)


def _check_branches(task: TaskDefinition, rows: Iterable[Row]) -> None:
    """Raise `RuntimeConfigError` if two rows have the same branch.

    Without rebase, the publication of one row would cause the other's to be refused.
    """
    spec = task.workspace
    if spec is None or spec.read_only or spec.rebases:
        return
    first: dict[tuple[str, str], int] = {}
    pairs = []
    for row in rows:
        if row.diagnostic:
            continue
        other = first.setdefault((row.repository, row.branch), row.number)
        if other != row.number:
            pairs.append(f"rows {other} and {row.number} ({row.repository}@{row.branch})")
    if pairs:
        more = f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
        raise RuntimeConfigError(
            f"two rows have the same branch: {', '.join(pairs[:_SHOWN])}{more}; keep one of them, give them branches of "
            'their own, or declare WorkspaceSpec(on_advanced="rebase"), which lets rows publish on top of each other'
        )
