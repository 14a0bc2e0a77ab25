"""What Spark leaves, told from files of a user whose names begin alike."""

from __future__ import annotations

import pytest

from perago.spark.paths import is_leftover
from tests.support.spark_files import USERS

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
    ],
)
def test_what_spark_leaves_is_a_leftover(folder: str, path: str, size: int) -> None:
    sizes = {folder + name: size for name, size in SIZES.items()}
    assert is_leftover(folder + path, size, sizes.get)
