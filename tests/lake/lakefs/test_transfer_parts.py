"""In which parts a file goes: as many as S3 takes, as few in memory as the budget holds."""

from __future__ import annotations

import pytest

from perago.lake.lakefs.client import Options
from perago.lake.lakefs.transfer.upload import parts_of

MIB = 1024 * 1024
GIB = 1024 * MIB
ROOM = 64 * MIB
MOST_PARTS, LARGEST_PART = 10_000, 5 * GIB


@pytest.mark.parametrize(
    ("size", "part"),
    [
        (17 * MIB, 8 * MIB),
        (MOST_PARTS * 8 * MIB, 8 * MIB),
        (MOST_PARTS * 8 * MIB + 1, 9 * MIB),
        (100 * GIB, 11 * MIB),
        (1024 * GIB, 105 * MIB),
        (5 * 1024 * GIB, 525 * MIB),
    ],
)
def test_the_part_size_grows_with_the_file_and_s3_takes_its_parts(size: int, part: int) -> None:
    found = parts_of(size, Options(), ROOM)
    assert found.size == part <= LARGEST_PART
    assert -(-size // found.size) <= MOST_PARTS


@pytest.mark.parametrize("gib", [1, 78, 79, 100, 200, 300, 600, 5 * 1024])
def test_fewer_of_larger_parts_are_in_memory(gib: int) -> None:
    found = parts_of(gib * GIB, Options(), ROOM)
    assert 1 <= found.parallel <= 4
    assert (found.parallel + 1) * found.size <= max(ROOM, 2 * found.size)
