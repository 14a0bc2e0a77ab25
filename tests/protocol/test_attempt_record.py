"""An execution's record survives its line, and the line is never over 4 KB."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perago.protocol.attempt_record import (
    MARK,
    MOST_BYTES,
    AttemptRecord,
    CheckRecord,
    SparkFigures,
    StageTime,
    parse_record,
    record_line,
)
from perago.protocol.provenance import Provenance

WHOLE = AttemptRecord(
    execution="e1",
    status="COMPLETED",
    step="publish",
    started=1.5,
    seconds={"body": 0.25, "publish": 0.125},
    checks=(
        CheckRecord("pre", "require_file('a')", "1 file"),
        CheckRecord("post", "odd", "ß\n", passed=False),
    ),
    downloaded=3,
    uploaded=4,
    saved=5,
    changed=1,
    deleted=2,
    fence="hard",
    worker="w",
    code="0123456789ab+dirty",
    packages="0123456789ab",
    runtime="perago 1, python 3",
    image="songs:1",
    spark=SparkFigures(
        jobs=2, stages=3, rows_read=10**12, longest=(StageTime("3 Scan csv", 1.5),), partial=True
    ),
)


def test_a_record_is_read_back_as_it_was_written() -> None:
    line = record_line(WHOLE)

    assert "\n" not in line
    assert parse_record(line) == WHOLE


def test_figures_without_stages_and_a_warning_are_read_back_too() -> None:
    warned = CheckRecord("post", "require_rows('a')", "0 rows", passed=False, level="warn")
    record = replace(WHOLE, checks=(warned,), spark=SparkFigures(jobs=1))

    assert parse_record(record_line(record)) == record


def test_unknown_values_are_not_written() -> None:
    line = record_line(AttemptRecord("e1", "FAILED"))

    assert json.loads(line.removeprefix(MARK)) == {"v": 1, "execution": "e1", "status": "FAILED"}
    assert parse_record(line) == AttemptRecord("e1", "FAILED")


def test_checks_are_left_out_from_the_end_until_the_line_fits_and_are_counted() -> None:
    checks = tuple(CheckRecord("post", f"{n} " + "ü" * 1000, "x" * 1000) for n in range(50))

    line = record_line(AttemptRecord("e1", "COMPLETED", checks=checks))
    read = parse_record(line)

    assert read is not None
    assert len(line.encode()) <= MOST_BYTES
    assert len(read.checks) + read.left_out == 50
    assert read.checks
    assert read.checks[0].label.startswith("0 ")
    assert read.checks[0].label.endswith(" …")


def test_names_of_stages_are_cut_and_take_no_room_from_the_rest_of_the_record() -> None:
    longest = tuple(StageTime("ü" * 10_000, 1.0) for _ in range(3))

    read = parse_record(record_line(AttemptRecord("e1", "COMPLETED", spark=SparkFigures(longest=longest))))

    assert read is not None
    assert read.spark is not None
    assert [len(stage.name) for stage in read.spark.longest] == [100, 100, 100]


@pytest.mark.parametrize(
    "line",
    [
        "printed by a body",
        MARK + "not JSON",
        MARK + "[1]",
        MARK + '{"execution": "e"}',
        MARK + '{"v": 2, "execution": "e", "status": "s"}',
        MARK + '{"v": 1, "execution": "e", "status": "s", "of_a_newer": 1}',
        MARK + '{"v": 1, "execution": "e", "status": "s", "checks": [1]}',
        MARK + '{"v": 1, "execution": "e", "status": "s", "spark": 1}',
        MARK + '{"v": 1, "execution": "e", "status": "s", "spark": {"jobs": "many"}}',
        MARK + '{"v": 1, "execution": "e", "status": "s", "spark": {"longest": ["stage"]}}',
        MARK + '{"v": 1, "execution": "e", "status": "s", "spark": {"of_a_newer": 1}}',
    ],
)
def test_a_line_that_is_not_a_record_is_none(line: str) -> None:
    assert parse_record(line) is None


def test_a_record_has_the_code_and_the_environment() -> None:
    assert WHOLE.made_with == Provenance(
        "0123456789ab+dirty", "0123456789ab", "perago 1, python 3", "songs:1"
    )
