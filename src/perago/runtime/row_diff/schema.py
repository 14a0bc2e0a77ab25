"""The columns of both sides of a comparison, and the queries that read files with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perago.errors import RuntimeConfigError
from perago.protocol.suggestions import did_you_mean, listed
from perago.runtime.json_lines import JsonColumns
from perago.runtime.row_diff.column_types import common_type, delta_type, with_sorted_maps
from perago.runtime.row_diff.engine import quoted_name, quoted_text
from perago.runtime.row_diff.values import ColumnChange, DiffRequest, Side
from perago.runtime.table_files import Format, TableFile, TableFiles

_SMALLEST_BUFFER = 1024**2


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of one side as the engine can read it: its columns with their types, and where each is in the file.

    `shared` files have only a schema: none of their rows are read.
    """

    side: Side
    file: TableFile
    target: Path
    types: Mapping[str, str]
    places: Mapping[str, str]
    shared: bool = False


class Schema:
    """The columns of both sides, and how each is read: `names` are those in the engine, `types` the common ones."""

    def __init__(
        self,
        tables: tuple[TableFiles | None, TableFiles | None],
        files: Sequence[LocalFile],
        kind: Format,
        json_columns: Mapping[Side, JsonColumns],
    ) -> None:
        self.kind = kind
        self._json = json_columns
        self._there = {"a": tables[0] is not None, "b": tables[1] is not None}
        self.partitions = list(
            dict.fromkeys(
                name for table in tables if table for one in table.files for name, _ in one.partition
            )
        )
        self._of: dict[str, dict[str, list[str]]] = {
            "a": self._side("a", tables[0], files),
            "b": self._side("b", tables[1], files),
        }
        self.columns = list(dict.fromkeys([*self._of["a"], *self._of["b"]]))
        self.names = [f"c{number}" for number in range(len(self.columns))]
        self.types = [
            common_type({one for side in ("a", "b") for one in self._of[side].get(column, ())})
            for column in self.columns
        ]
        fields = [f"p{number} VARCHAR" for number in range(len(self.partitions))]
        self.partition_fields = ", ".join(fields) or "none VARCHAR"
        self.partition_names = ", ".join(["file", *(f"p{number}" for number in range(len(self.partitions)))])

    def _side(self, side: Side, table: TableFiles | None, files: Sequence[LocalFile]) -> dict[str, list[str]]:
        """Return a side's columns, each with the different types that its files have."""
        if table is None:
            return {}
        if table.declared is not None:
            return {name: [delta_type(kind)] for name, kind in table.declared.items()}
        found: dict[str, list[str]] = {}
        for one in files:
            if one.side == side:
                for name, kind in one.types.items():
                    found.setdefault(name, [])
                    found[name] += [kind] if kind not in found[name] else []
        # As in Spark, the folder's name wins over a column in the files.
        return found | {name: ["VARCHAR"] for one in table.files for name, _ in one.partition}

    def positions(self, request: DiffRequest) -> list[int]:
        """Return where the key's columns are.  Raises `RuntimeConfigError` if a side does not have one of them."""
        for name in request.key:
            for side, ref in (("a", request.a), ("b", request.b)):
                known = self._of[side]
                if known and name not in known:
                    raise RuntimeConfigError(
                        f"{request.path!r} at {ref} has no column {name!r} for --key; it has: {listed(known)}"
                        f"{did_you_mean(name, known)}"
                    )
        return [self.columns.index(name) for name in request.key]

    def changes(self) -> list[ColumnChange]:
        """Return the columns that differ.  A table that one side does not have has no columns to compare."""
        if not all(self._there.values()):
            return []
        found = []
        for column in self.columns:
            before, after = (self._shown(side, column) for side in ("a", "b"))
            if column not in self._of["a"]:
                found.append(ColumnChange(column, "added", None, after))
            elif column not in self._of["b"]:
                found.append(ColumnChange(column, "removed", before, None))
            elif before != after and before and after:
                found.append(ColumnChange(column, "type", before, after))
        return found

    def _shown(self, side: str, column: str) -> str:
        if self.kind == "json" and column not in self.partitions:
            kinds = self._json["a" if side == "a" else "b"].kinds.get(column, set())
            return " or ".join(sorted(kinds))
        if self.kind == "csv":
            return "text"
        return " or ".join(sorted(self._of[side].get(column, ())))

    def select(self, side: Side, group: Sequence[LocalFile]) -> str:
        """Return the query of some files that have the same columns."""
        first = group[0]
        paths = ", ".join(quoted_text(str(one.target)) for one in group)
        source = self._source(first, f"[{paths}]")
        chosen = []
        for name, column, kind in zip(self.names, self.columns, self.types, strict=True):
            if column in self.partitions:
                value = f"p.p{self.partitions.index(column)}"
                # An unpartitioned side may have the column in its files.
                if column not in dict(first.file.partition) and column in first.places:
                    value = f"t.{quoted_name(first.places[column])}"
            elif column in first.places:
                value = f"t.{quoted_name(first.places[column])}"
            else:
                value = "NULL"
            chosen.append(f"{with_sorted_maps(f'CAST({value} AS {kind})', kind)} AS {name}")
        return f"SELECT {', '.join(chosen)} FROM {source} AS t JOIN partition_{side} AS p ON p.file = t.perago_file"

    def _source(self, one: LocalFile, paths: str) -> str:
        if self.kind == "csv":
            columns = ", ".join(f"{quoted_text(place)}: 'VARCHAR'" for place in one.places.values())
            tab = one.file.entry.path.removesuffix(".gz").endswith(".tsv")
            return (
                f"read_csv({paths}, auto_detect = false, columns = {{{columns}}}, header = true, "
                f"delim = {quoted_text(chr(9) if tab else ',')}, quote = '\"', escape = '\"', hive_partitioning = false, "
                "filename = 'perago_file')"
            )
        if self.kind == "json":
            # Empty objects are rows, too.
            names = list(one.places.values()) or ["none"]
            # The engine allocates twice as much for each thread.
            longest = max(_SMALLEST_BUFFER, *(side.longest_line + 1 for side in self._json.values()))
            columns = ", ".join(f"{quoted_text(place)}: 'VARCHAR'" for place in names)
            return (
                f"read_json({paths}, columns = {{{columns}}}, format = 'newline_delimited', records = 'true', "
                f"maximum_object_size = {longest}, hive_partitioning = false, filename = 'perago_file')"
            )
        return f"read_parquet({paths}, hive_partitioning = false, filename = 'perago_file')"
