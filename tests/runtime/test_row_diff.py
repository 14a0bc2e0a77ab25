"""Row diffs against a second engine: pyarrow reads both states in full, and Python counts what differs."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import math
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perago.errors import LakeNotFound, RuntimeConfigError
from perago.runtime.row_diff import ColumnChange, DiffRequest, RowDiff, diff_rows
from tests.contract.lakes import LAKES
from tests.support.faults.ports import Wrapped
from tests.support.worlds.lake_work import Work

Rows = Sequence[Mapping[str, Any]]


@pytest.fixture(
    params=[pytest.param(name, marks=kind.marks) for name, kind in LAKES.items() if name != "production"]
)
def work(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with LAKES[request.param].open(request) as opened:
        yield Work(opened.lake, opened.repository, tmp_path / "files")
    assert list(temporary.iterdir()) == []


@pytest.fixture
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Work]:
    with LAKES["local"].open(request) as opened:
        yield Work(opened.lake, opened.repository, tmp_path / "files")


def states(work: Work, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> tuple[str, str]:
    """Commit both states of a repository, and return the commits."""
    commits = []
    for files in (before, after):
        gone = {entry.path: None for entry in work.lake.list(work.repository, "main", "")}
        commits.append(work.edit("main", gone | dict(files) | {".state": str(len(commits)).encode()}))
    return commits[0], commits[1]


def diff(
    work: Work, before: Mapping[str, bytes], after: Mapping[str, bytes], *key: str, **more: Any
) -> RowDiff:
    a, b = states(work, before, after)
    return diff_rows(work.lake, DiffRequest(work.repository, a, b, more.pop("path", "t"), key, **more))


def parquet(rows: Rows, schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema), sink)
    return sink.getvalue()


def lines(rows: Rows) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def comma_separated(rows: Rows) -> bytes:
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


# --- the other engine ------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value in a form in which equal ones are equal, and can be counted."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return ("struct", *((name, plain(one)) for name, one in value.items()))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return ("map", *sorted(((plain(k), plain(v)) for k, v in value), key=repr))
    if isinstance(value, list):
        return ("list", *map(plain, value))
    return value


def bag(rows: Rows, columns: Sequence[str]) -> Counter[Any]:
    return Counter(tuple(plain(row.get(name)) for name in columns) for row in rows)


def expected(before: Rows, after: Rows, key: Sequence[str]) -> tuple[int, int, int | None, dict[str, int]]:
    """Compare all rows, one by one.  The numbers by column are right only if each key has one row at most."""
    columns = list(dict.fromkeys(name for row in (*before, *after) for name in row))
    gone = bag(before, columns) - bag(after, columns)
    new = bag(after, columns) - bag(before, columns)
    if not key:
        return new.total(), gone.total(), None, {}
    at = [columns.index(name) for name in key]
    by_key: dict[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((gone, new)):
        for row in rows.elements():
            by_key[tuple(row[one] for one in at)][side].append(row)
    added = removed = changed = 0
    values: Counter[str] = Counter()
    for old, now in by_key.values():
        pairs = min(len(old), len(now))
        added, removed, changed = added + len(now) - pairs, removed + len(old) - pairs, changed + pairs
        values.update(
            name
            for one, two in zip(old, now, strict=False)
            for name, x, y in zip(columns, one, two, strict=True)
            if x != y
        )
    return added, removed, changed, dict(values)


# --- random tables ---------------------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("ratio", pa.float64()),
        ("price", pa.decimal128(38, 10)),
        ("title", pa.string()),
        ("raw", pa.binary()),
        ("on", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("fine", pa.timestamp("ns")),
        ("yes", pa.bool_()),
        ("nested", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))])),
        ("tags", pa.map_(pa.string(), pa.list_(pa.map_(pa.int32(), pa.float32())))),
    ]
)
FLOATS = [0.0, -0.0, float("nan"), float("inf"), 1.5, None, 1e300]


def random_row(dice: random.Random, number: int | None) -> dict[str, Any]:
    inner = [(one, dice.choice([0.5, float("nan"), None])) for one in dice.sample(range(4), 2)]
    tags = [(one, [inner]) for one in dice.sample("abc", dice.randrange(3))]
    when = dt.datetime(2026, 11, 19, dice.randrange(3), tzinfo=dt.UTC)
    return {
        "id": number,
        "small": dice.choice([1, -1, None]),
        "ratio": dice.choice(FLOATS),
        "price": dice.choice([Decimal("0.1"), Decimal("12345678901234567890123456.0000000001"), None]),
        "title": dice.choice(["So What", "", "naïve 'q\"", None]),
        "raw": dice.choice([b"\xff\x00", b"", None]),
        "on": dice.choice([dt.date(1, 1, 1), dt.date(2026, 11, 19), None]),
        "at": dice.choice([when, None]),
        "fine": dice.choice([when.replace(tzinfo=None), None]),
        "yes": dice.choice([True, False, None]),
        "nested": dice.choice([None, {"a": None, "b": None}, {"a": 1, "b": [dice.choice(FLOATS), None]}]),
        "tags": dice.choice([None, tags]),
    }


def random_change(dice: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    changed = dict(row)
    for name in dice.sample(list(row)[1:], dice.randrange(4)):
        changed[name] = random_row(dice, 0)[name]
    if changed["tags"]:
        changed["tags"] = changed["tags"][::-1]
    return changed


def random_states(dice: random.Random, *, unique: bool) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return the rows of both states by file; the second has the same, changed, renamed, missing and new files."""
    numbers = iter(range(1000))

    def rows(count: int) -> list[dict[str, Any]]:
        return [
            random_row(dice, next(numbers) if unique else dice.choice([None, 1, 2])) for _ in range(count)
        ]

    before = {f"t/day={file % 3}/part-{file}.parquet": rows(dice.randrange(1, 9)) for file in range(6)}
    after: dict[str, list[Any]] = {}
    for path, here in before.items():
        fate = dice.choice(["same", "changed", "renamed", "gone", "moved"])
        if fate in ("same", "renamed"):
            after[path if fate == "same" else path.replace("part", "renamed")] = here
        elif fate == "moved":
            after[path.replace("day=", "day=1")] = here
        elif fate == "changed":
            kept = [random_change(dice, row) for row in here if dice.random() < 0.8]
            after[path] = dice.sample(kept, len(kept)) + rows(dice.randrange(3))
    if not after or dice.random() < 0.5:
        after["t/day=__HIVE_DEFAULT_PARTITION__/new.parquet"] = rows(3)
    return before, after


def with_partitions(files: Mapping[str, Rows]) -> list[dict[str, Any]]:
    days = {path: path.split("=")[1].split("/")[0] for path in files}
    return [
        {**row, "day": None if days[path].startswith("__HIVE") else days[path]}
        for path, rows in files.items()
        for row in rows
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keyed", ["no key", "unique", "duplicates"])
def test_random_tables_differ_as_a_full_comparison_by_another_engine_says(
    embedded: Work, seed: int, keyed: str
) -> None:
    dice = random.Random(f"{seed} {keyed}")
    before, after = random_states(dice, unique=keyed == "unique")
    key = () if keyed == "no key" else ("id",)

    found = diff(
        embedded,
        {path: parquet(rows, SCHEMA) for path, rows in before.items()},
        {path: parquet(rows, SCHEMA) for path, rows in after.items()},
        *key,
    )

    added, removed, changed, values = expected(with_partitions(before), with_partitions(after), key)
    assert (found.added, found.removed, found.changed) == (added, removed, changed)
    if keyed == "unique":
        assert found.changed_values == values
        assert found.duplicate_keys == 0
    assert found.columns == []


def test_a_table_on_a_lake_differs_by_rows_values_and_columns(work: Work) -> None:
    first = pa.schema([("id", pa.int32()), ("seconds", pa.int32()), ("old", pa.string())])
    second = pa.schema([("id", pa.int64()), ("seconds", pa.int32()), ("new", pa.string())])
    before = [{"id": 1, "seconds": 10}, {"id": 2, "seconds": 20}, {"id": 3, "seconds": 30}]
    after = [{"id": 1, "seconds": 10}, {"id": 2, "seconds": 21, "new": "x"}, {"id": 4, "seconds": 40}]

    found = diff(work, {"t/a.parquet": parquet(before, first)}, {"t/b.parquet": parquet(after, second)}, "id")

    assert (found.added, found.removed, found.changed) == (1, 1, 1)
    assert found.changed_values == {"seconds": 1, "new": 1}
    assert found.columns == [
        ColumnChange("id", "type", "INTEGER", "BIGINT"),
        ColumnChange("old", "removed", "VARCHAR", None),
        ColumnChange("new", "added", None, "VARCHAR"),
    ]
    assert found.samples.changed == [({"id": 2}, {"seconds": 20, "new": None}, {"seconds": 21, "new": "x"})]
    assert found.samples.added == [{"id": 4, "seconds": 40, "old": None, "new": None}]


def test_shared_files_are_not_downloaded_and_an_appended_file_changes_no_column(work: Work) -> None:
    schema = pa.schema([("id", pa.int64()), ("title", pa.string())])
    shared = {f"t/part-{one}.parquet": parquet([{"id": one, "title": "x"}], schema) for one in range(5)}
    same_bytes = parquet([{"id": 99, "title": "renamed"}], schema)
    a, b = states(
        work,
        {**shared, "t/old-name.parquet": same_bytes},
        {
            **shared,
            "t/new-name.parquet": same_bytes,
            "t/new.parquet": parquet([{"id": 7, "title": "y"}], schema),
        },
    )
    downloaded: list[str] = []

    def around(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "download":
            downloaded.extend(one.entry.path for one in arguments[2])
        assert name != "read"
        return call(*arguments)

    found = diff_rows(Wrapped(work.lake, around), DiffRequest(work.repository, a, b, "t/", ("id",)))

    assert downloaded == ["t/new.parquet"]
    assert (found.files.a, found.files.b, found.files.shared, found.files.read) == (6, 7, 6, 1)
    assert (found.added, found.removed, found.changed, list(found.columns)) == (1, 0, 0, [])


def test_a_table_that_does_not_differ_is_not_read(embedded: Work) -> None:
    files = {"t/a.csv": b"id\n1\n"}

    found = diff(embedded, files, files, "id")

    assert (found.added, found.removed, found.changed, found.files.read) == (0, 0, 0, 0)


@pytest.mark.parametrize(("before", "after"), [(None, b"id\n1\n2\n"), (b"id\n1\n2\n", None)])
def test_a_table_that_only_one_commit_has_is_all_added_or_removed(
    embedded: Work, before: bytes | None, after: bytes | None
) -> None:
    found = diff(embedded, {"t/a.csv": before} if before else {}, {"t/a.csv": after} if after else {}, "id")

    assert (found.added, found.removed) == ((2, 0) if after else (0, 2))
    assert found.columns == []


def test_a_path_that_neither_commit_has_is_missing(embedded: Work) -> None:
    with pytest.raises(LakeNotFound, match="there is no object 'nope'"):
        diff(embedded, {"t/a.csv": b"id\n1\n"}, {"t/a.csv": b"id\n2\n"}, path="nope")


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "jsonl", "json", "ndjson.gz"])
@pytest.mark.parametrize("key", [(), ("id",)])
def test_text_tables_differ_as_a_full_comparison_says(
    embedded: Work, ending: str, key: tuple[str, ...]
) -> None:
    before = [{"id": str(one), "title": f'a,"{one}"\nb', "note": str(one % 2) or None} for one in range(20)]
    after = [{**row, "title": "new"} if one % 3 == 0 else row for one, row in enumerate(before[2:])] + [
        before[3]
    ]

    def encode(rows: Rows) -> bytes:
        data = lines(rows) if "json" in ending else comma_separated(rows)
        if ending == "tsv":
            text = io.StringIO()
            csv.writer(text, delimiter="\t").writerows(csv.reader(io.StringIO(data.decode())))
            data = text.getvalue().encode()
        return gzip.compress(data) if ending.endswith(".gz") else data

    found = diff(embedded, {f"t/x.{ending}": encode(before)}, {f"t/x.{ending}": encode(after)}, *key)

    assert (found.added, found.removed, found.changed) == expected(before, after, key)[:3]


def test_json_values_are_compared_as_json(embedded: Work) -> None:
    before = b'{"id":1,"v":1,"o":{"a":1,"b":[1.50]}}\n{"id":2,"v":"1"}\n{"id":3,"v":null}\n{"id":4,"v":9007199254740993}\n'
    after = (
        b'{"v":1.0,"id":1e0,"o":{"b":[1.5],"a":1}}\n{"id":2,"v":1}\n{"id":3}\n{"id":4,"v":9007199254740992}\n'
    )

    found = diff(embedded, {"t.jsonl": before}, {"t.jsonl": after}, "id", path="t.jsonl")

    assert (found.added, found.removed, found.changed) == (0, 0, 2)
    assert found.columns == [ColumnChange("v", "type", "number or text", "number")]
    assert found.samples.changed[0] == ({"id": 2}, {"v": "1"}, {"v": 1})


@pytest.mark.parametrize(
    ("one", "two", "changed"),
    [
        (pa.int32(), pa.int64(), 0),
        (pa.int64(), pa.decimal128(25, 3), 0),
        (pa.decimal128(10, 2), pa.decimal128(20, 5), 0),
        (pa.float32(), pa.float64(), 0),
        (pa.uint64(), pa.int64(), 0),
        # No type holds all values of both, so they are compared as text: 5 is not 5.0.
        (pa.int64(), pa.float64(), 1),
        (pa.int64(), pa.string(), 0),
    ],
)
def test_columns_whose_types_differ_are_compared_by_value_if_nothing_is_lost(
    embedded: Work, one: pa.DataType, two: pa.DataType, changed: int
) -> None:
    made = [
        parquet(
            [{"id": 1, "v": "5" if kind == pa.string() else 5}], pa.schema([("id", pa.int8()), ("v", kind)])
        )
        for kind in (one, two)
    ]

    found = diff(embedded, {"t.parquet": made[0]}, {"t.parquet": made[1]}, "id", path="t.parquet")

    assert found.changed == changed
    assert [one.change for one in found.columns] == ["type"]


def test_the_same_bytes_in_another_partition_are_other_rows(embedded: Work) -> None:
    data = b"id\n1\n"

    found = diff(embedded, {"t/day=1/a.csv": data}, {"t/day=2/a.csv": data}, "id")

    assert (found.changed, found.changed_values) == (1, {"day": 1})


def test_a_large_table_is_sampled_by_partitions_and_says_so(embedded: Work) -> None:
    def files(value: int) -> dict[str, bytes]:
        return {f"t/day={day}/a.csv": f"id,v\n{day},{value}\n".encode() for day in range(10)}

    found = diff(embedded, files(1), files(2), "id", limit_bytes=72)

    assert found.files.partitions == (4, 10)
    assert (found.changed, found.files.read) == (4, 8)


def test_a_large_table_without_partitions_is_refused_with_the_limit_it_needs(embedded: Work) -> None:
    with pytest.raises(
        RuntimeConfigError, match=r"have 12 bytes, more than the limit of 5.*--limit-bytes 12"
    ):
        diff(embedded, {"t/a.csv": b"id\n1\n2"}, {"t/a.csv": b"id\n3\n4"}, limit_bytes=5)


@pytest.mark.parametrize(
    ("before", "after", "key", "said"),
    [
        (
            {"t/a.csv": b"id\n1\n", "t/b.jsonl": b"{}\n"},
            {"t/a.csv": b"id\n2\n"},
            (),
            "have different formats",
        ),
        ({"t/a.avro": b"x"}, {"t/a.avro": b"y"}, (), "is not a .parquet, .csv"),
        ({"t/a.csv": b"id\n1\n"}, {"t/a.jsonl": b"{}\n"}, (), "another format at each commit (CSV and JSON"),
        (
            {"t/a.csv": b"id\n1\n"},
            {"t/a.csv": b"id\n2\n"},
            ("idd",),
            "no column 'idd' for --key; it has: id; did you",
        ),
        (
            {"t/a.parquet": b"nonsense"},
            {"t/a.parquet": b"and more"},
            (),
            "cannot compare the rows of 't/a.parquet': ",
        ),
        ({"t/a.jsonl": b"[1]\n"}, {}, (), "line 1 of 't/a.jsonl' is not a JSON object"),
        ({"t/a.jsonl": b"{}\n{\n"}, {}, (), "line 2 of 't/a.jsonl' is not JSON"),
        ({"t/a.csv": b"id,id\n1,2\n"}, {}, (), "names a column twice"),
        ({"t/a.csv": b"id\n1\n", "t/x=1/b.csv": b"id\n1\n"}, {}, (), "partitioned in different ways"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    embedded: Work, before: dict[str, bytes], after: dict[str, bytes], key: tuple[str, ...], said: str
) -> None:
    with pytest.raises(RuntimeConfigError) as refused:
        diff(embedded, before, after, *key)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_decimal_that_the_engine_would_round_is_refused(embedded: Work) -> None:
    schema = pa.schema([("v", pa.decimal256(60, 10))])
    made = [parquet([{"v": Decimal(one)}], schema) for one in (1, 2)]

    with pytest.raises(RuntimeConfigError, match=r"'v' of 't/a\.parquet' is a decimal with 60 digits"):
        diff(embedded, {"t/a.parquet": made[0]}, {"t/a.parquet": made[1]})


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (b"id,v\n1,2\n", b"id,v\n", (0, 1)),
        (b"id,v\n1,2\n", b"\n", (0, 1)),
        (b"id,v\r\n1,2\r\n3,4", b"\xef\xbb\xbfid,v\n1,2\n3,4\n", (0, 0)),
        (b'"id","the ""v"""\n1,2\n', b'id,"the ""v"""\n"1",2\n', (0, 0)),
        (b"v,id\n2,1\n", b"id,v\n1,2\n", (0, 0)),
        (b"id,v\n1,\n2,\n", b'id,v\n1,""\n2,\n', (0, 0)),
        (b"id,v\n1,-\n", b"id,v\n1,NULL\n", (1, 1)),
        (b"id\n01\n1.0\n", b"id\n1\n1\n", (2, 2)),
        (b"ID,id\n1,2\n", b"ID,id\n2,1\n", (1, 1)),
    ],
)
def test_csv_is_read_as_it_is_written(
    embedded: Work, before: bytes, after: bytes, counts: tuple[int, int]
) -> None:
    found = diff(embedded, {"t.csv": before}, {"t.csv": after}, path="t.csv")

    assert (found.added, found.removed) == counts


def test_a_long_json_line_is_a_row(embedded: Work) -> None:
    line = b'{"v": "%s"}\n' % (b"x" * 20_000_000)

    found = diff(embedded, {"t.jsonl": b"{}\n"}, {"t.jsonl": line}, path="t.jsonl")

    assert (found.added, found.removed) == (1, 1)


def test_empty_json_objects_are_rows(embedded: Work) -> None:
    found = diff(embedded, {"t.jsonl": b"{}\n{}\n"}, {"t.jsonl": b'{}\n\n{"v": null}\n{}\n'}, path="t.jsonl")

    assert (found.added, found.removed) == (1, 0)


def test_columns_whose_names_differ_only_in_case_are_two(embedded: Work) -> None:
    both = pa.schema([("id", pa.int64()), ("ID", pa.int64())])

    found = diff(
        embedded,
        {"t.parquet": parquet([{"id": 1, "ID": 2}], both)},
        {"t.parquet": parquet([{"id": 1, "ID": 3}], both)},
        "id",
        path="t.parquet",
    )

    assert (found.changed, list(found.changed_values.values())) == (1, [1])


def test_a_line_with_too_many_fields_is_refused_not_skipped(embedded: Work) -> None:
    with pytest.raises(RuntimeConfigError, match=r"cannot compare the rows of 't/b\.csv': .*Line: 2"):
        diff(embedded, {"t/b.csv": b"id,v\n1,2,3\n"}, {"t/b.csv": b"id,v\n1,2\n"})
