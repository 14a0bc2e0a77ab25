"""Previews of objects. The kind depends on the name, or on the first bytes if the name does not say.

    kind       shown as                          bytes read
    parquet    the schema and the first rows     footer and first pages, as ranges
    csv        the first rows                    the first 64 KB
    json       as is, or indented if complete    the first 64 KB
               and not deeply nested
    text       the first lines                   the first 64 KB
    picture    the picture                       all, by the browser, up to 20 MB
    html       the page, in a sandbox            all, by the browser, up to 20 MB
    none       nothing, but it can be downloaded

The number of bytes that a preview reads and shows is limited, whatever the object claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perago.lake.base import Entry, ReadableLake
from perago.ui.parquet_preview import ParquetPreview, preview_parquet
from perago.ui.text_preview import Table, indent_json, is_text, table_of

FIRST_BYTES = 64 * 1024
MOST_SHOWN_WHOLE = 20 * 1024 * 1024
Kind = Literal["parquet", "csv", "json", "text", "picture", "html", "none"]
PICTURES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "svg": "image/svg+xml",
}
_BY_ENDING: dict[str, Kind] = {
    **dict.fromkeys(PICTURES, "picture"),
    "parquet": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "text",
    "ndjson": "text",
    "html": "html",
    "htm": "html",
}


@dataclass(frozen=True, slots=True)
class Preview:
    """The preview of an object. `note` tells the user if something is not shown."""

    kind: Kind
    text: str = ""
    table: Table | None = None
    parquet: ParquetPreview | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Object:
    """An object in a commit, and the lake to read it from."""

    lake: ReadableLake
    repository: str
    commit: str
    entry: Entry

    def part(self, start: int, length: int) -> bytes:
        """Read a range of the object's bytes, truncated at the end of the object."""
        length = min(length, self.entry.size - start)
        if length <= 0:
            return b""
        return self.lake.read_range(self.repository, self.commit, self.entry.path, start, length)


def ending_of(path: str) -> str:
    """Return the part of the file name after its last dot, in lower case."""
    return path.rpartition("/")[2].rpartition(".")[2].lower()


def preview_of(one: Object) -> Preview:
    """Return the preview of an object."""
    kind = _BY_ENDING.get(ending_of(one.entry.path), "text")
    if kind in ("picture", "html"):
        if one.entry.size > MOST_SHOWN_WHOLE:
            return Preview("none", note="It is too large to be shown here.")
        return Preview(kind)
    if kind == "parquet":
        found = preview_parquet(one.part, one.entry.size)
        return Preview("none", note=found) if isinstance(found, str) else Preview("parquet", parquet=found)
    return _first_bytes(one, kind)


def _first_bytes(one: Object, kind: Kind) -> Preview:
    data = one.part(0, FIRST_BYTES)
    whole = len(data) >= one.entry.size
    if not is_text(data):
        return Preview("none", note="It is not text.")
    text = data.decode("utf-8", "ignore" if not whole else "replace")
    note = "" if whole else f"These are its first {FIRST_BYTES // 1024} KB."
    if kind == "csv":
        table = table_of(text, "\t" if ending_of(one.entry.path) == "tsv" else ",", whole=whole)
        return Preview("csv", table=table, note=note) if table else Preview("text", text=text, note=note)
    if kind == "json" and whole:
        return Preview("json", text=indent_json(text))
    return Preview(kind, text=text, note=note)
