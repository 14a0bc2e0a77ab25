"""The user-visible record of one execution: its times, checks and bytes, as one line in the orchestrator's task log.

Commands that show attempts (`perago run`, `perago show`) read this line, on either orchestrator, whichever worker
wrote it.  The rule: a line has at most 4 KB.  Checks are dropped from the end until the line fits, and `left_out`
counts them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from perago.protocol.provenance import Provenance

MARK = "perago.attempt "
MOST_BYTES = 4096
_VERSION = 1
_TEXT_CHARS = 300
_STAGE_CHARS = 100


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """One evaluated check: its phase (before or after the body), its label and its result."""

    phase: str
    label: str
    found: str = ""
    """The result in words ("3 files"), or the violation if `passed` is False."""
    passed: bool = True
    level: str = ""
    """`warn` if a violation is only recorded and logged."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """A Spark stage and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SparkFigures:
    """The work that Spark did for one execution, in its body and its table checks.  All sizes are in bytes."""

    jobs: int = 0
    stages: int = 0
    tasks: int = 0
    failed_tasks: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    shuffle_read: int = 0
    shuffle_written: int = 0
    spilled: int = 0
    """Bytes that did not fit into memory and were written to disk."""
    peak_memory: int = 0
    """The largest memory of one executor's JVM, heap and off-heap; 0 if no task ran long enough to measure it."""
    longest: Sequence[StageTime] = ()
    """The stages that took longest, in descending order."""
    partial: bool = False
    """True if Spark no longer had the figures of all jobs and stages, so the sums are too small."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """The record of one execution of an attempt.  Unknown values are empty."""

    execution: str
    status: str
    step: str = ""
    """The step at which the execution ended."""
    started: float = 0.0
    """The start time, in seconds since 1970."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The duration of each step in seconds, by step name."""
    checks: Sequence[CheckRecord] = ()
    left_out: int = 0
    """The number of checks that were dropped to make the line fit."""
    downloaded: int = 0
    uploaded: int = 0
    saved: int = 0
    """Bytes transferred (`downloaded`, `uploaded`), and bytes that did not need to be transferred (`saved`)."""
    changed: int = 0
    deleted: int = 0
    """The number of files that the publication wrote (`changed`) and removed (`deleted`)."""
    fence: str = ""
    """The fence level of the publication."""
    worker: str = ""
    replaced_unsigned: str = ""
    """The tag that keeps a commit that the publication replaced although no task had signed it; usually empty."""
    skipped: str = ""
    """The publication since which nothing has changed, if the body was skipped; usually empty."""
    code: str = ""
    packages: str = ""
    runtime: str = ""
    image: str = ""
    """`code`, `packages`, `runtime` and `image` are those of the commits (`protocol/provenance`)."""
    spark: SparkFigures | None = None
    """The work that Spark did, or None if the task is no Spark task or nothing is known."""

    @property
    def made_with(self) -> Provenance:
        """The code and the environment."""
        return Provenance(self.code, self.packages, self.runtime, self.image)


def record_line(record: AttemptRecord) -> str:
    """Format the record as a line for the task log."""
    record = replace(record, checks=tuple(_short(check) for check in record.checks))
    if record.spark is not None:
        longest = [replace(stage, name=_cut(stage.name, _STAGE_CHARS)) for stage in record.spark.longest]
        record = replace(record, spark=replace(record.spark, longest=longest))
    while len((line := _line(record)).encode()) > MOST_BYTES and record.checks:
        record = replace(record, checks=record.checks[:-1], left_out=record.left_out + 1)
    return line


def parse_record(line: str) -> AttemptRecord | None:
    """Parse a line of the task log, which may come from a body.  Returns None if it is not a record of this version."""
    if not line.startswith(MARK):
        return None
    try:
        read = json.loads(line[len(MARK) :])
        if read.pop("v") != _VERSION:
            return None
        checks = tuple(CheckRecord(**check) for check in read.pop("checks", ()))
        spark = _figures(read.pop("spark")) if "spark" in read else None
        return AttemptRecord(**read, checks=checks, spark=spark)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _figures(read: dict[str, Any]) -> SparkFigures:
    longest = tuple(StageTime(str(name), float(seconds)) for name, seconds in read.pop("longest", ()))
    partial = bool(read.pop("partial", False))
    return SparkFigures(
        **{name: int(value) for name, value in read.items()}, longest=longest, partial=partial
    )


def _line(record: AttemptRecord) -> str:
    seconds = {step: round(took, 3) for step, took in record.seconds.items()}
    kept = {name: value for name, value in asdict(replace(record, seconds=seconds)).items() if value}
    if record.checks:
        kept["checks"] = [
            {name: value for name, value in asdict(check).items() if name != "level" or value}
            for check in record.checks
        ]
    if record.spark is not None:
        figures = {name: value for name, value in asdict(record.spark).items() if value}
        if record.spark.longest:
            figures["longest"] = [[stage.name, round(stage.seconds, 3)] for stage in record.spark.longest]
        kept["spark"] = figures
    whole: dict[str, Any] = {"v": _VERSION, "execution": record.execution, "status": record.status, **kept}
    return MARK + json.dumps(whole, ensure_ascii=True, separators=(",", ":"))


def _short(check: CheckRecord) -> CheckRecord:
    return replace(check, label=_cut(check.label), found=_cut(check.found))


def _cut(text: str, chars: int = _TEXT_CHARS) -> str:
    return text if len(text) <= chars else text[: chars - 2] + " …"
