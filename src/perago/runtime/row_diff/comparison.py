"""Compares two states of a table: lists their files, downloads those that differ, and lets the engine count."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perago.errors import LakeNotFound, RuntimeConfigError
from perago.lake.base import Download, Entry, ReadableLake
from perago.protocol.suggestions import listed
from perago.runtime.json_lines import JsonColumns, open_bytes, rewrite
from perago.runtime.lake_lookup import all_changes, describe_missing_object
from perago.runtime.row_diff.column_types import WIDEST_DECIMAL, with_sorted_maps
from perago.runtime.row_diff.engine import naming_damaged_files, open_engine, quoted_text
from perago.runtime.row_diff.leftover import Leftover
from perago.runtime.row_diff.schema import LocalFile, Schema
from perago.runtime.row_diff.values import ComparedFiles, DiffRequest, RowDiff, Side
from perago.runtime.table_files import NAMES, Format, Partition, TableFile, TableFiles, list_table

_HEAD_BYTES = 64 * 1024
_SHARED_SCHEMAS = 3
"""The number of shared files whose schema is read, since the columns of a table are not only those of changed files."""


def diff_rows(lake: ReadableLake, request: DiffRequest) -> RowDiff:
    """Compare the rows of a table at two commits.

    Raises `RuntimeConfigError` if the table cannot be compared, and `LakeNotFound` if neither commit has it.
    """
    commits = tuple(lake.commit_at(request.repository, ref).id for ref in (request.a, request.b))
    with TemporaryDirectory(prefix="perago-diff-") as temporary, open_engine(Path(temporary)) as engine:
        comparison = _Comparison(lake, request, (commits[0], commits[1]), Path(temporary), engine)
        with naming_damaged_files(request.path, comparison.objects):
            return comparison.run()


@dataclass(slots=True)
class _Comparison:
    lake: ReadableLake
    request: DiffRequest
    commits: tuple[str, str]
    folder: Path
    engine: Any
    json_columns: dict[Side, JsonColumns] = field(
        default_factory=lambda: {"a": JsonColumns(), "b": JsonColumns()}
    )
    objects: dict[str, str] = field(default_factory=dict)
    """The paths of the objects, by the names of the files that they were downloaded to."""
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def run(self) -> RowDiff:
        tables = self._list("a"), self._list("b")
        if tables[0] is None and tables[1] is None:
            path = self.request.path
            raise LakeNotFound(
                describe_missing_object(self.lake, self.request.repository, self.request.b, path)
            )
        formats = (tables[0].format if tables[0] else None, tables[1].format if tables[1] else None)
        files = {
            "a": list(tables[0].files) if tables[0] else [],
            "b": list(tables[1].files) if tables[1] else [],
        }
        shared = self._drop_shared(files)
        counts = ComparedFiles(
            len(files["a"]) + len(shared), len(files["b"]) + len(shared), len(shared), 0, 0
        )
        if not files["a"] and not files["b"] and _columns_of(tables[0]) == _columns_of(tables[1]):
            changed = 0 if self.request.key else None
            return RowDiff(
                self.request.path, self.commits, formats, counts, key=self.request.key, changed=changed
            )
        kind = _one_kind(self.request.path, formats)
        partitions = self._sample(files)
        read = [*files["a"], *files["b"]]
        counts = ComparedFiles(
            counts.a, counts.b, counts.shared, len(read), sum(one.entry.size for one in read), partitions
        )
        locals_ = [*self._read(kind, files), *self._shared_schemas(kind, shared)]
        schema = Schema(tables, locals_, kind, self.json_columns)
        return self._compare(schema, [one for one in locals_ if not one.shared], counts, formats)

    def _list(self, side: Side) -> TableFiles | None:
        where = self.request.repository, self._commit(side), self.request.path
        return list_table(self.lake, where, self._new_folder(), self._read_checkpoint)

    def _commit(self, side: Side) -> str:
        return self.commits[0 if side == "a" else 1]

    def _new_folder(self) -> Path:
        folder = self.folder / f"files-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def _new_file(self, ending: str = "") -> Path:
        return self.folder / f"file-{next(self._numbers)}{ending}"

    def _read_checkpoint(self, file: Path) -> Iterator[Mapping[str, Any]]:
        source = f"read_parquet({quoted_text(str(file))})"
        there = [row[0] for row in self.engine.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()]
        for action in ("protocol", "metaData", "add"):
            if action in there:
                rows = self.engine.execute(
                    f"SELECT to_json({action}) FROM {source} WHERE {action} IS NOT NULL"
                )
                yield from ({action: json.loads(row[0])} for row in rows.fetchall())

    def _drop_shared(self, files: dict[str, list[TableFile]]) -> list[TableFile]:
        """Remove the files that both sides have, and return them, as the second side has them."""
        repository, path = self.request.repository, self.request.path
        changed = {one.path for one in all_changes(self.lake, (repository, *self.commits), path)}
        before = {(one.entry.path, one.partition) for one in files["a"] if one.entry.path not in changed}
        shared = [one for one in files["b"] if (one.entry.path, one.partition) in before]
        paths = {(one.entry.path, one.partition) for one in shared}
        for side in files:
            files[side] = [one for one in files[side] if (one.entry.path, one.partition) not in paths]
        # The same bytes elsewhere in the same partition, for example in a renamed file; as often as both sides have them.
        common = Counter(map(_identity, files["a"])) & Counter(map(_identity, files["b"]))
        common.pop(None, None)
        for side in files:
            left, remaining = common.copy(), []
            for one in files[side]:
                if left[_identity(one)] > 0:
                    left[_identity(one)] -= 1
                    shared += [one] if side == "b" else []
                else:
                    remaining.append(one)
            files[side] = remaining
        return shared

    def _sample(self, files: dict[str, list[TableFile]]) -> tuple[int, int] | None:
        """Keep only as many partitions as the limit allows.  Returns the number of kept ones, and of all that differ."""
        sizes: Counter[Partition] = Counter()
        for one in [*files["a"], *files["b"]]:
            sizes[one.partition] += one.entry.size
        total, limit = sum(sizes.values()), self.request.limit_bytes
        if total <= limit:
            return None
        kept: set[Partition] = set()
        room = limit
        # An order that has nothing to do with the values, but is the same each time.
        for partition in sorted(sizes, key=lambda one: hashlib.sha256(repr(one).encode()).digest()):
            if sizes[partition] <= room:
                kept.add(partition)
                room -= sizes[partition]
        if not kept:
            raise RuntimeConfigError(
                f"the files of {self.request.path!r} that differ have {total} bytes, more than the limit of {limit}: "
                f"allow them with --limit-bytes {total}, or name a smaller part of the table"
            )
        for side in files:
            files[side] = [one for one in files[side] if one.partition in kept]
        return len(kept), len(sizes)

    def _read(self, kind: Format, files: Mapping[str, Sequence[TableFile]]) -> Iterator[LocalFile]:
        """Download the files, and yield them as the engine can read them."""
        for side in ("a", "b"):
            ending = {"parquet": ".parquet", "csv": ".csv", "json": ".json"}.get(kind, "")
            targets = [
                (one, self._new_file(f"{ending}.gz" if one.entry.path.endswith(".gz") else ending))
                for one in files[side]
            ]
            downloads = [Download(one.entry, target) for one, target in targets]
            self.lake.download(self.request.repository, self._commit(side), downloads)
            for one, target in targets:
                yield self._local(kind, side, one, target)

    def _local(
        self, kind: Format, side: Side, file: TableFile, target: Path, *, shared: bool = False
    ) -> LocalFile:
        if kind == "csv":
            header = _csv_header(target, file.entry.path)
            types = dict.fromkeys(header, "VARCHAR")
            places = {name: f"c{number}" for number, name in enumerate(header)}
        elif kind == "json":
            columns = self.json_columns[side]
            plain = self._new_file(".ndjson")
            rewrite(target, plain, columns, name=file.entry.path)
            target.unlink()
            target = plain
            types = dict.fromkeys(columns.kinds, "VARCHAR")
            places = {name: f"c{number}" for number, name in enumerate(columns.kinds)}
        else:
            self.objects[str(target)] = file.entry.path
            types = self._parquet_types(target, file.entry.path)
            places = {name: name for name in types}
        self.objects[str(target)] = file.entry.path
        return LocalFile(side, file, target, types, places, shared)

    def _parquet_types(self, target: Path, path: str) -> dict[str, str]:
        source = quoted_text(str(target))
        wide = self.engine.execute(
            f"SELECT name, precision FROM parquet_schema({source}) WHERE precision > {WIDEST_DECIMAL}"
        ).fetchall()
        if wide:
            raise RuntimeConfigError(
                f"column {wide[0][0]!r} of {path!r} is a decimal with {wide[0][1]} digits: at most "
                f"{WIDEST_DECIMAL} can be compared"
            )
        rows = self.engine.execute(
            f"DESCRIBE SELECT * FROM read_parquet({source}, hive_partitioning = false)"
        )
        return {row[0]: row[1] for row in rows.fetchall()}

    def _shared_schemas(self, kind: Format, shared: Sequence[TableFile]) -> Iterator[LocalFile]:
        """Read the schema of some shared files, from their footers or first lines."""
        if kind == "delta":
            return
        chosen = {one.entry.path: one for one in (*shared[:1], *shared[len(shared) // 2 :][:1], *shared[-1:])}
        for one in list(chosen.values())[:_SHARED_SCHEMAS]:
            target = self._new_file(".shared")
            if kind == "parquet":
                self._write_footer(one.entry, target)
            else:
                target.write_bytes(self._first_lines(one.entry))
            for side in ("a", "b"):
                if kind == "json":
                    copy = self._new_file(".shared")
                    copy.write_bytes(target.read_bytes())
                    # The copy is not compressed, whatever the object is.
                    plain = TableFile(Entry(one.entry.path.removesuffix(".gz"), 0, None), one.partition)
                    yield self._local(kind, side, plain, copy, shared=True)
                else:
                    plain = TableFile(Entry(one.entry.path.removesuffix(".gz"), 0, None), one.partition)
                    yield self._local(kind, side, plain, target, shared=True)

    def _write_footer(self, entry: Entry, target: Path) -> None:
        """Write a file of the object's size that has the end of it, and nothing else."""
        length = min(entry.size, _HEAD_BYTES)
        tail = self._range(entry, entry.size - length, length)
        footer = int.from_bytes(tail[-8:-4], "little") + 8
        if footer > length:
            length = min(entry.size, footer)
            tail = self._range(entry, entry.size - length, length)
        with target.open("wb") as file:
            file.write(b"PAR1")
            file.truncate(entry.size)
            file.seek(entry.size - length)
            file.write(tail)

    def _first_lines(self, entry: Entry) -> bytes:
        head = self._range(entry, 0, min(entry.size, _HEAD_BYTES))
        if entry.path.endswith(".gz"):
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, 16 * _HEAD_BYTES)
        whole, newline, _ = head.rpartition(b"\n")
        return whole + newline if newline else head if entry.size <= _HEAD_BYTES else b""

    def _range(self, entry: Entry, start: int, length: int) -> bytes:
        return self.lake.read_range(self.request.repository, self._commit("b"), entry.path, start, length)

    def _compare(
        self,
        schema: Schema,
        files: Sequence[LocalFile],
        counts: ComparedFiles,
        formats: tuple[Format | None, Format | None],
    ) -> RowDiff:
        key = schema.positions(self.request)
        for side in ("a", "b"):
            self._create_view(schema, side, [one for one in files if one.side == side])
        columns = ", ".join(schema.names)
        self.engine.execute(
            f"CREATE TEMP TABLE leftover AS SELECT {columns}, sum(sign)::BIGINT AS n FROM "
            f"(SELECT {columns}, -1 AS sign FROM a UNION ALL SELECT {columns}, 1 FROM b) GROUP BY ALL HAVING sum(sign) <> 0"
        )
        found = Leftover(self.engine, schema, key)
        added, removed, changed, values = found.counts()
        return RowDiff(
            self.request.path,
            self.commits,
            formats,
            counts,
            schema.changes(),
            self.request.key,
            added,
            removed,
            changed,
            values,
            found.duplicate_keys(),
            found.samples(),
        )

    def _create_view(self, schema: Schema, side: Side, files: Sequence[LocalFile]) -> None:
        """Create a view of one side's rows, with the columns of both sides in one order and of one type."""
        if schema.kind == "csv":
            # Without a header there are no rows either.
            files = [one for one in files if one.places]
        groups: dict[tuple[tuple[str, str], ...], list[LocalFile]] = {}
        for one in files:
            groups.setdefault(
                (*one.types.items(), *one.places.items(), ("", file_ending(one.file))), []
            ).append(one)
        self.engine.execute(f"CREATE TEMP TABLE partition_{side} (file VARCHAR, {schema.partition_fields})")
        for one in files:
            values = dict(one.file.partition)
            row = [str(one.target), *(values.get(name) for name in schema.partitions)]
            marks = ", ".join("?" * len(row))
            self.engine.execute(
                f"INSERT INTO partition_{side} ({schema.partition_names}) VALUES ({marks})", row
            )
        selects = [schema.select(side, group) for group in groups.values()]
        nothing = ", ".join(
            f"{with_sorted_maps(f'CAST(NULL AS {kind})', kind)} AS {name}"
            for name, kind in zip(schema.names, schema.types, strict=True)
        )
        self.engine.execute(
            f"CREATE TEMP VIEW {side} AS {' UNION ALL '.join([f'SELECT {nothing} WHERE false', *selects])}"
        )


def _identity(file: TableFile) -> tuple[str, int, Partition] | None:
    """Return what equal files of a partition have in common, or None if the lake has no checksum of the bytes."""
    if file.entry.checksum is None:
        return None
    return f"{file.entry.checksum} {file_ending(file)}", file.entry.size, file.partition


def file_ending(file: TableFile) -> str:
    """Return the ending that says how a file is read, with that of its compression."""
    return ".".join(file.entry.path.rsplit(".", 2)[-2 if file.entry.path.endswith(".gz") else -1 :])


def _columns_of(table: TableFiles | None) -> object:
    return (table.format, table.declared) if table else None


def _one_kind(path: str, formats: tuple[Format | None, Format | None]) -> Format:
    """Return the format that the files are read in.  Raises `RuntimeConfigError` if the two sides have different ones."""
    there = {one for one in formats if one is not None}
    if len(there) == 1:
        return there.pop()
    raise RuntimeConfigError(
        f"{path!r} has another format at each commit ({' and '.join(NAMES[one] for one in formats if one)}): rows of one "
        "format can be compared"
    )


def _csv_header(file: Path, path: str) -> list[str]:
    tab = path.removesuffix(".gz").endswith(".tsv")
    try:
        with open_bytes(file, gzipped=file.suffix == ".gz") as data:
            text = io.TextIOWrapper(data, encoding="utf-8-sig", newline="")
            header = next(csv.reader(text, delimiter="\t" if tab else ","), [])
    except (ValueError, csv.Error) as error:
        raise RuntimeConfigError(f"{path!r} is not CSV in UTF-8: {error}") from error
    if len(set(header)) < len(header):
        raise RuntimeConfigError(f"the header of {path!r} names a column twice: {listed(header)}")
    return header
