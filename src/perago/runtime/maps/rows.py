"""The rows of a map and their outcomes, and the parser that turns a table's records into rows.

Rows and outcomes are sent between processes and machines, so they are plain data.  An outcome is stored as JSON in the
run's record, and becomes a row in the table of outcomes.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from perago.declare.payload import json_type
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError, TaskInputError
from perago.protocol.suggestions import did_you_mean

Status = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR", "UNSETTLED"]
UNSETTLED: Status = "UNSETTLED"
"""The outcome is not known yet: the record was unreachable, or another execution has claimed the row.

It is never recorded.
"""
WORKSPACE = ("repository", "branch", "ref")
PARAMS = "params"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One workspace to run the task on.  An empty `ref` means the branch's head."""

    number: int
    """The row's number, starting at 1.  The table's header is not counted."""
    repository: str
    branch: str
    ref: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    diagnostic: str = ""
    """The reason why the row cannot run at all; empty if it can."""

    @property
    def label(self) -> str:
        """The label that identifies the row in messages."""
        return f"row {self.number} ({self.repository}@{self.branch})"


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """The outcome of a row after all its attempts.  Its figures are those of the last attempt."""

    row: int
    repository: str
    branch: str
    status: Status
    reason: str = ""
    ref: str = ""
    """The input commit of the last attempt."""
    published: str = ""
    """The commit that contains the row's result; the same as `ref` if nothing changed."""
    attempts: int = 0
    seconds: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    """The duration of each step, in seconds."""
    downloaded: int = 0
    uploaded: int = 0
    saved: int = 0
    """`downloaded`, `uploaded` and `saved`: numbers of bytes.  `saved` counts bytes that did not have to be moved."""
    changed: int = 0
    deleted: int = 0
    """`changed` and `deleted`: the numbers of files that the publication wrote and removed."""
    result: Mapping[str, Any] | None = None

    @property
    def done(self) -> bool:
        """True if the row is COMPLETED and needs no more work."""
        return self.status == "COMPLETED"

    @property
    def label(self) -> str:
        """The label that identifies the row in messages."""
        return f"row {self.row} ({self.repository}@{self.branch})"

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def unsettled(row: Row, reason: str, *, attempts: int = 0) -> RowOutcome:
    """Return an UNSETTLED outcome for a row."""
    return RowOutcome(
        row.number, row.repository, row.branch, UNSETTLED, reason, ref=row.ref, attempts=attempts
    )


def rows_of(task: TaskDefinition, records: Sequence[Mapping[str, Any]], *, text: bool) -> list[Row]:
    """Parse the rows of a table.  Raises `RuntimeConfigError` if the table is invalid.

    `text` is True if every cell is text, as in a CSV file.
    """
    _check_task(task)
    columns = {name for record in records for name in record}
    if WORKSPACE[0] not in columns:
        near = did_you_mean(WORKSPACE[0], sorted(columns))
        raise RuntimeConfigError(
            f"the table has no column 'repository'; it has {', '.join(sorted(columns))}{near}"
        )
    texts = _text_params(task) if text else frozenset()
    rows = [
        _row(number, record, text=text, whole=PARAMS in columns, texts=texts)
        for number, record in enumerate(records, start=1)
    ]
    _check_branches(task, rows)
    return rows


def input_of(row: Row, ref: str) -> dict[str, Any]:
    """Return the task's input for a row."""
    workspace = {"repository": row.repository, "branch": row.branch, "ref_type": "commit", "ref": ref}
    return {"workspace": workspace, "params": row.params}


def diagnostic_in(task: TaskDefinition, row: Row) -> str:
    """Return why the row would fail before any data is transferred, or an empty string if it would not."""
    if row.diagnostic:
        return row.diagnostic
    try:
        task.parse_params(json.dumps(row.params))
    except TaskInputError as error:
        return str(error)
    return ""


def _check_task(task: TaskDefinition) -> None:
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
    _check_json(value)
    return value


def _by_columns(record: Mapping[str, Any], *, text: bool, texts: frozenset[str]) -> Mapping[str, Any]:
    params = {name: value for name, value in record.items() if name not in WORKSPACE}
    if text:
        return {name: _parse_cell(name, cell, texts) for name, cell in params.items() if cell != ""}
    # Parquet represents an absent value as null: the model's default applies.
    params = {name: value for name, value in params.items() if value is not None}
    _check_json(params)
    return params


def _parse_cell(name: str, cell: str, texts: frozenset[str]) -> Any:
    """Parse a text cell as JSON, unless the param takes text, so that `007` stays text."""
    if name in texts:
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def _check_json(value: object) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TaskInputError(f"params have no JSON form: {error}") from None


def _text_params(task: TaskDefinition) -> frozenset[str]:
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
