"""Prints the difference between two states of a table, as lines or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output

if TYPE_CHECKING:
    from perago.lake.base import ReadableLake
    from perago.runtime.row_diff import Row, RowDiff

Rows = Annotated[
    bool, typer.Option("--rows", help="Compare the rows of tables, with DuckDB (the extra `diff`).")
]
Key = Annotated[
    str,
    typer.Option(
        "--key",
        metavar="COLUMN,…",
        help="With --rows: the columns that identify a row; rows with one key are shown as changed.",
    ),
]
LimitBytes = Annotated[
    int | None,
    typer.Option(
        "--limit-bytes",
        metavar="N",
        min=1,
        help="With --rows: how many bytes of files to download at most for a table (1 GiB).",
    ),
]
_LONGEST_VALUE = 60


def read_key(key: str, *, rows: bool, limit_bytes: int | None) -> tuple[str, ...]:
    """Return the columns of --key.  Raises `BadParameter` for options that need --rows."""
    if not rows and (key or limit_bytes is not None):
        raise typer.BadParameter(f"{'--key' if key else '--limit-bytes'} is for rows: add --rows")
    columns = tuple(name for name in key.split(",") if name)
    if len(set(columns)) < len(columns):
        raise typer.BadParameter(f"--key {key} names a column twice")
    return columns


def compare_rows(
    lake: ReadableLake,
    between: tuple[str, str, str],
    paths: Sequence[str],
    key: tuple[str, ...],
    limit_bytes: int | None,
) -> list[RowDiff]:
    """Compare the rows of tables.  `between` is the repository and the two refs."""
    from perago.runtime.row_diff import LIMIT_BYTES, DiffRequest, diff_rows

    limit = LIMIT_BYTES if limit_bytes is None else limit_bytes
    return [diff_rows(lake, DiffRequest(*between, path, key, limit)) for path in paths]


def row_diff_json(diff: RowDiff) -> dict[str, Any]:
    """Return a difference of rows as `--json` prints it."""
    files, samples = diff.files, diff.samples
    return {
        "path": diff.path,
        "commits": list(diff.commits),
        "formats": list(diff.formats),
        "compared": "sample" if files.partitions else "files that differ",
        "files": {
            "a": files.a,
            "b": files.b,
            "shared": files.shared,
            "read": files.read,
            "bytes": files.size,
        },
        "partitions": (
            {"compared": files.partitions[0], "differ": files.partitions[1]} if files.partitions else None
        ),
        "columns": [
            {
                "column": one.column,
                "change": one.change,
                "type_before": one.type_before,
                "type_after": one.type_after,
            }
            for one in diff.columns
        ],
        "key": list(diff.key),
        "rows": {"added": diff.added, "removed": diff.removed, "changed": diff.changed},
        "changed_values": dict(diff.changed_values),
        "duplicate_keys": diff.duplicate_keys,
        "samples": {
            "added": list(samples.added),
            "removed": list(samples.removed),
            "changed": [
                {"key": key, "before": before, "after": after} for key, before, after in samples.changed
            ],
        },
    }


def say_row_diff(diff: RowDiff) -> None:
    """Print a difference of rows."""
    for line, style in row_diff_lines(diff):
        output.say(line, style)


def row_diff_lines(diff: RowDiff) -> Iterator[tuple[str, str | None]]:
    """Yield the lines about a difference of rows, each with its style."""
    yield f"{diff.path}: {describe_files(diff)}", "bold"
    for one in diff.columns:
        match one.change:
            case "added":
                yield f"  + column {one.column} ({one.type_after})", "green"
            case "removed":
                yield f"  - column {one.column} ({one.type_before})", "red"
            case "type":
                yield f"  ~ column {one.column}: {one.type_before} is now {one.type_after}", "yellow"
    counts = f"{diff.added} added, {diff.removed} removed"
    yield f"  rows: {counts}{'' if diff.changed is None else f', {diff.changed} changed'}", None
    if diff.changed_values:
        values = ", ".join(f"{column} {number}" for column, number in diff.changed_values.items())
        yield f"  changed values: {values}", None
    if diff.duplicate_keys:
        yield f"  {diff.duplicate_keys} keys have several rows, which were paired in order", "yellow"
    for row in diff.samples.added:
        yield f"  + {_row(row)}", "green"
    for row in diff.samples.removed:
        yield f"  - {_row(row)}", "red"
    for key, before, after in diff.samples.changed:
        changes = ", ".join(f"{name}: {_value(before[name])} is now {_value(after[name])}" for name in after)
        yield f"  ~ {_row(key)}: {changes}", "yellow"


def describe_files(diff: RowDiff) -> str:
    """Return which files were compared, and whether the result is a sample."""
    files = diff.files
    if not files.read:
        return f"the same {files.shared} files, none of which was read"
    text = f"{files.read} files were read ({files.size} bytes), {files.shared} that both have were not"
    if files.partitions is None:
        return text
    compared, differ = files.partitions
    return f"a sample of {compared} of the {differ} partitions that differ: {text}"


def _row(row: Row) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in row.items())


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
