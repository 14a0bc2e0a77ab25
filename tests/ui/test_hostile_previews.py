"""Previews of files that would take unlimited memory, time or space: bounded, and the page keeps working."""

from __future__ import annotations

import io
import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perago.lake.local.lake import LocalLake
from perago.testing.lake import put_objects
from perago.ui import parquet_preview
from perago.ui.rendering import pretty
from perago.ui.text_preview import MAX_INDENTED_CHARS, indent_json
from tests.support.processes.processes import command, descendants
from tests.support.servers.served_page import served_page
from tests.support.worlds.ui_fixture_data import table_bytes

MIB = 1024 * 1024


def peak_bytes() -> int:
    """The most memory that this process ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def decoders() -> list[int]:
    return [pid for pid in descendants(os.getpid()) if "decoder.py" in command(pid)]


def written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", **options)
    return out.getvalue()


def bomb(megabytes: int) -> bytes:
    """A few kilobytes that say: fifty rows, each a text of so many megabytes."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 50, pa.int32()), pa.array(["a" * megabytes * MIB]))
    return written(pa.table({"text": words}), dictionary_pagesize_limit=1 << 30, store_schema=False)


def look_into(data: bytes, **options: Any) -> parquet_preview.ParquetPreview | str:
    return parquet_preview.preview_parquet(
        lambda start, length: data[start : start + length], len(data), **options
    )


def test_a_small_file_that_unfolds_to_gigabytes_takes_no_memory_here_and_is_told() -> None:
    data = bomb(64)
    assert len(data) < 100_000
    before = peak_bytes()

    found = look_into(data)

    assert found == "Its first rows take too much memory or time to be shown here."
    assert peak_bytes() - before < 64 * MIB
    assert isinstance(look_into(table_bytes(1000)), parquet_preview.ParquetPreview)


def test_large_cells_are_cut_where_they_are_decoded() -> None:
    found = look_into(bomb(1))

    assert isinstance(found, parquet_preview.ParquetPreview)
    assert len(found.table.rows) == 50
    assert {len(cell) for row in found.table.rows for cell in row} == {302}


def test_of_many_columns_the_first_are_shown_and_all_are_counted() -> None:
    names = [f"{number}-{'n' * 400}" for number in range(5000)]
    data = written(pa.table({name: [1] for name in names}))

    found = look_into(data)

    assert isinstance(found, parquet_preview.ParquetPreview)
    assert (len(found.columns), found.all_columns, len(found.table.columns)) == (500, 5000, 60)
    assert found.table.more_columns == 4940
    assert max(len(column.name) for column in found.columns) == 302


def test_a_type_of_great_depth_is_told_in_a_few_words() -> None:
    kind = pa.int8()
    for _ in range(300):
        kind = pa.list_(kind)
    found = look_into(written(pa.table({"deep": pa.array([None], kind)})))

    if isinstance(found, parquet_preview.ParquetPreview):
        assert max(len(column.type) for column in found.columns) <= 302
    assert isinstance(look_into(table_bytes(1000)), parquet_preview.ParquetPreview)


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
def test_a_decoder_that_hangs_or_crashes_is_ended_and_the_next_preview_has_another(
    sent: signal.Signals,
) -> None:
    data = table_bytes(1000)
    assert isinstance(look_into(data), parquet_preview.ParquetPreview)
    [before] = decoders()

    def part(start: int, length: int) -> bytes:
        for pid in decoders():
            os.kill(pid, sent)
        return data[start : start + length]

    assert parquet_preview.preview_parquet(part, len(data), seconds=0.5) == parquet_preview._TOO_MUCH
    assert isinstance(look_into(data), parquet_preview.ParquetPreview)
    [after] = decoders()
    assert after != before


def test_a_lake_that_fails_is_the_lake_s_error_and_the_next_preview_works() -> None:
    def part(start: int, length: int) -> bytes:
        raise ConnectionError("no lake")

    with pytest.raises(ConnectionError, match="no lake"):
        parquet_preview.preview_parquet(part, 1000)
    assert isinstance(look_into(table_bytes(1000)), parquet_preview.ParquetPreview)


def test_the_decoder_knows_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in decoders():
        os.kill(pid, signal.SIGKILL)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "a secret")

    assert isinstance(look_into(table_bytes(1000)), parquet_preview.ParquetPreview)

    [pid] = decoders()
    assert b"a secret" not in Path(f"/proc/{pid}/environ").read_bytes()


DEEP = "[" * 700 + ",".join(["1"] * 31_000) + "]" * 700
WIDE = "[" * 45 + ",".join(["1"] * 20_000) + "]" * 45


@pytest.mark.parametrize("text", [DEEP, WIDE], ids=["deep", "wide"])
def test_json_that_grows_when_it_is_indented_is_shown_as_it_is(tmp_path: Path, text: str) -> None:
    assert len(text) < 64 * 1024
    assert indent_json(text) == text
    with closing(LocalLake(tmp_path / "lake")) as lake:
        lake.create_repository("music")
        put_objects(lake, "music", "main", {"some.json": text}, folder=tmp_path / "uploads")
        lake.commit("music", "main", "some JSON", {})

    with served_page(tmp_path, lambda: LocalLake(tmp_path / "lake")) as http:
        page = http.get("/object", params={"repo": "music", "path": "some.json"})

    assert page.status_code == 200
    assert len(page.content) < 128 * 1024


def test_params_and_results_of_great_depth_make_no_large_text() -> None:
    _, _, more = pretty(json.loads(DEEP)).rpartition("\n")

    assert int(more.split("(")[1].split()[0]) < 100_000, "of what was not shown"
    assert pretty({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'


def test_ordinary_json_is_indented() -> None:
    assert (
        indent_json('{"a":[1,{"b":"]]]]\\"[[["}]}')
        == '{\n  "a": [\n    1,\n    {\n      "b": "]]]]\\"[[["\n    }\n  ]\n}'
    )
    assert len(indent_json(json.dumps(list(range(9000))))) < MAX_INDENTED_CHARS
