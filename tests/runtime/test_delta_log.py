"""Delta tables at two commits: only the files that the newest version of the log names count, by their partitions."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perago.errors import RuntimeConfigError
from perago.runtime.row_diff import ColumnChange, DiffRequest, RowDiff, diff_rows
from tests.contract.lakes import LAKES
from tests.support.worlds.lake_work import Work

FIELDS = [
    ("id", "long"),
    ("price", "decimal(10,2)"),
    ("tags", {"type": "array", "elementType": "string"}),
    ("day", "date"),
]
ROWS = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("tags", pa.list_(pa.string()))])


@pytest.fixture
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Work]:
    with LAKES["local"].open(request) as opened:
        yield Work(opened.lake, opened.repository, tmp_path / "files")


def parquet(*ids: int, schema: pa.Schema = ROWS) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"id": one, "tags": ["x"]} for one in ids], schema), sink)
    return sink.getvalue()


def metadata(fields: Sequence[tuple[str, Any]] = FIELDS, **configuration: str) -> dict[str, Any]:
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    schema = json.dumps({"type": "struct", "fields": columns})
    return {"metaData": {"schemaString": schema, "partitionColumns": ["day"], "configuration": configuration}}


def add(path: str, day: str | None, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {"day": day}, "size": 1, "dataChange": True, **more}}


def log(table: str, *versions: Sequence[Mapping[str, Any]], first: int = 0) -> dict[str, bytes]:
    return {
        f"{table}/_delta_log/{number:020}.json": "\n".join(map(json.dumps, version)).encode()
        for number, version in enumerate(versions, first)
    }


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
BEGIN = [PROTOCOL, metadata(), add("day=2026-11-18/a%20b.parquet", "2026-11-18")]
FILES = {"t/day=2026-11-18/a b.parquet": parquet(1, 2)}


def diff(work: Work, *states: Mapping[str, bytes], key: tuple[str, ...] = ("id",)) -> RowDiff:
    commits = []
    for number, files in enumerate(states):
        gone = {entry.path: None for entry in work.lake.list(work.repository, "main", "")}
        commits.append(work.edit("main", gone | dict(files) | {".state": str(number).encode()}))
    return diff_rows(work.lake, DiffRequest(work.repository, *commits, "t", key))


def test_files_that_a_version_removed_do_not_count_though_they_are_still_there(work: Work) -> None:
    before = FILES | log("t", BEGIN)
    rewritten = [
        {"remove": {"path": "day=2026-11-18/a%20b.parquet"}},
        add("day=2026-11-18/c.parquet", "2026-11-18"),
        add("x.parquet", None),
    ]
    after = FILES | log("t", BEGIN, rewritten)
    after |= {
        "t/day=2026-11-18/c.parquet": parquet(2, 3),
        "t/x.parquet": parquet(9),
        "t/left-over.parquet": b"junk",
    }

    found = diff(work, before, after)

    assert found.formats == ("delta", "delta")
    assert (found.added, found.removed, found.changed) == (2, 1, 0)
    assert found.samples.added == [
        {"id": 3, "price": None, "tags": "[x]", "day": "2026-11-18"},
        {"id": 9, "price": None, "tags": "[x]", "day": None},
    ]
    assert (found.files.a, found.files.b, found.files.read) == (1, 2, 3)


def test_columns_are_those_of_the_log_and_old_files_lack_new_ones(work: Work) -> None:
    wider = [*FIELDS[:1], ("price", "decimal(12,2)"), *FIELDS[2:], ("note", "string")]
    new = ROWS.set(1, pa.field("price", pa.decimal128(12, 2))).append(pa.field("note", pa.string()))
    after = FILES | log("t", BEGIN, [metadata(wider), add("d.parquet", "2026-11-19")])
    after |= {"t/d.parquet": parquet(5, schema=new)}

    found = diff(work, FILES | log("t", BEGIN), after)

    assert found.columns == [
        ColumnChange("price", "type", "DECIMAL(10,2)", "DECIMAL(12,2)"),
        ColumnChange("note", "added", None, "VARCHAR"),
    ]
    assert (found.added, found.removed, found.files.shared) == (1, 0, 1)


def test_a_changed_schema_without_new_files_is_a_change_of_columns(work: Work) -> None:
    after = FILES | log("t", BEGIN, [metadata([*FIELDS, ("note", "string")])])

    found = diff(work, FILES | log("t", BEGIN), after)

    assert [one.column for one in found.columns] == ["note"]
    assert (found.added, found.removed, found.changed) == (0, 0, 0)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_checkpoint_stands_for_the_versions_before_it(work: Work, parts: int) -> None:
    def checkpoint(actions: Sequence[Mapping[str, Any]]) -> bytes:
        values = pa.map_(pa.string(), pa.string())
        schema = pa.schema(
            [
                ("add", pa.struct([("path", pa.string()), ("partitionValues", values)])),
                (
                    "metaData",
                    pa.struct([("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string()))]),
                ),
                ("remove", pa.struct([("path", pa.string())])),
            ]
        )
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([dict(one) for one in actions], schema), sink)
        return sink.getvalue()

    path = "day=2026-11-18/a%20b.parquet"
    adds = [{"add": {"path": path, "partitionValues": {"day": "2026-11-18"}}}]
    halves = [[metadata(), {"remove": {"path": "gone.parquet"}}], adds]
    name = "t/_delta_log/00000000000000000010.checkpoint"
    log_files = (
        {f"{name}.parquet": checkpoint([*halves[0], *halves[1]])}
        if parts == 1
        else {f"{name}.{one + 1:010}.{2:010}.parquet": checkpoint(half) for one, half in enumerate(halves)}
    )
    after = log_files | log("t", [add("e.parquet", "2026-11-19")], first=11)

    found = diff(work, FILES | log_files, FILES | after | {"t/e.parquet": parquet(7)})

    assert (found.added, found.removed, found.changed, found.files.shared) == (1, 0, 0, 1)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            [add("b.parquet", "2026-11-18", deletionVector={"storageType": "u"})],
            "uses deletion vectors, which",
        ),
        ([metadata(**{"delta.columnMapping.mode": "name"})], "uses column mapping, which"),
        (
            [{"protocol": {"minReaderVersion": 3, "readerFeatures": ["typeWidening"]}}],
            "uses typeWidening, which",
        ),
        ([{"protocol": {"minReaderVersion": 4}}], "uses reader version 4, which"),
        ([add("s3://elsewhere/b.parquet", None)], "uses files elsewhere (s3://elsewhere/b.parquet), which"),
        ([add("missing.parquet", None)], "names 'missing.parquet', which is not there"),
        ([metadata([("id", "long"), ("v", "variant")])], "has the type 'variant', which cannot be compared"),
    ],
)
def test_a_table_that_would_be_read_wrong_is_refused_by_the_features_name(
    work: Work, version: Sequence[Mapping[str, Any]], said: str
) -> None:
    with pytest.raises(RuntimeConfigError) as refused:
        diff(work, FILES | log("t", BEGIN), FILES | log("t", BEGIN, version))

    assert said in str(refused.value)


def test_a_log_that_lacks_versions_is_refused(work: Work) -> None:
    with pytest.raises(RuntimeConfigError, match="lacks versions that this reader needs: it starts at 3"):
        diff(work, FILES | log("t", BEGIN), FILES | log("t", BEGIN, first=3))
