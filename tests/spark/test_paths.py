"""Files that Spark leaves behind, distinguished from a user's files with similar names."""

from __future__ import annotations

import pytest

from perago.spark.paths import is_leftover
from tests.support.worlds.spark_world import USERS

PART = "part-00000-6ad9b5c1-7e1e-4b8e-9d1e-0f1d4c2b7a10-c000.snappy.parquet"
SIZES = {
    "ours.txt": 4,
    ".ours.txt.crc": 4,
    PART: 1000,
    "_SUCCESS": 0,
    "v1.metadata.json": 513,
    "_metadata": 9,
}


@pytest.mark.parametrize("folder", ["", "table/", "table/day=1/"])
@pytest.mark.parametrize("path", USERS)
def test_a_users_file_is_no_leftover(folder: str, path: str) -> None:
    sizes = {folder + name: size for name, size in SIZES.items()}
    assert not is_leftover(folder + path, 4, sizes.get)


@pytest.mark.parametrize(
    "path",
    [
        "_delta_log/00000000000000000001.json",
        "_delta_log/00000000000000000001.crc",
        "_delta_log/00000000000000000010.checkpoint.parquet",
        "_delta_log/_last_checkpoint",
        "_delta_log/_sidecars/3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet",
        "_change_data/cdc-00000-6ad9b5c1.c000.snappy.parquet",
        "deletion_vector_3a0d65cd-4056-49b8-937b-95f9e3ee90e5.bin",
        "deltas/.draft.tmp",
    ],
)
def test_files_that_delta_needs_are_no_leftovers(path: str) -> None:
    assert not is_leftover(f"table/{path}", 700, SIZES.get)


@pytest.mark.parametrize("folder", ["", "table/", "table/day=1/"])
@pytest.mark.parametrize(
    ("path", "size"),
    [
        ("_SUCCESS", 0),
        ("._SUCCESS.crc", 8),
        (f".{PART}.crc", 16),
        (f".{PART}.crc", 99),
        ("._metadata.crc", 12),
        (".v1.metadata.json.crc", 16),
        ("_temporary/", 0),
        ("_temporary/0/_temporary/attempt_20/part-00000", 5),
        ("__magic/job/tasks/a", 5),
        ("__magic_job-6ad9b5c1-7e1e/tasks/attempt/__base/part-00000", 5),
        (".spark-staging-6ad9b5c1-7e1e-4b8e-9d1e-0f1d4c2b7a10/day=1/part-00000", 5),
        ("_delta_log/.00000000000000000001.json.6ad9b5c1-7e1e-4b8e-9d1e-0f1d4c2b7a10.tmp", 700),
        ("_delta_log/._last_checkpoint.6ad9b5c1-7e1e-4b8e-9d1e-0f1d4c2b7a10.tmp", 0),
        ("_delta_log/..00000000000000000001.json.6ad9b5c1.tmp.crc", 16),
        ("_delta_log/.00000000000000000001.json.crc", 16),
        ("_delta_log/.00000000000000000001.crc.crc", 16),
    ],
)
def test_files_that_spark_leaves_are_leftovers(folder: str, path: str, size: int) -> None:
    sizes = {folder + name: size for name, size in SIZES.items()}
    assert is_leftover(folder + path, size, sizes.get)
