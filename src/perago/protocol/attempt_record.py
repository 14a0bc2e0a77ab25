"""What is kept of one execution for people: its times, checks and bytes, as one line of the orchestrator's task log.

Whatever shows attempts (`perago run`, `perago show`) reads this line, on either orchestrator, whoever's worker wrote it.
The rule: a line is at most 4 KB.  Checks are left out from the end until it fits, and `left_out` says how many.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

MARK = "perago.attempt "
MOST_BYTES = 4096
_VERSION = 1
_TEXT_CHARS = 300


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """One check that was evaluated: before or after the body, as it was written, and what it found."""

    phase: str
    label: str
    found: str = ""
    """Its figures in words ("3 files"), or what was wrong where `passed` is False."""
    passed: bool = True


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One execution of an attempt; what is not known is empty."""

    execution: str
    status: str
    step: str = ""
    """The step at which it ended."""
    started: float = 0.0
    """Seconds since 1970."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long each step took, by its name."""
    checks: Sequence[CheckRecord] = ()
    left_out: int = 0
    """How many checks there was no room for."""
    downloaded: int = 0
    uploaded: int = 0
    saved: int = 0
    """Bytes that moved, and bytes that did not need to."""
    changed: int = 0
    deleted: int = 0
    """Files that its publication put and removed."""
    fence: str = ""
    """The fence level that it published under."""
    worker: str = ""


def record_line(record: AttemptRecord) -> str:
    """The record as a line of the task log."""
    record = replace(record, checks=tuple(_short(check) for check in record.checks))
    while len((line := _line(record)).encode()) > MOST_BYTES and record.checks:
        record = replace(record, checks=record.checks[:-1], left_out=record.left_out + 1)
    return line


def parse_record(line: str) -> AttemptRecord | None:
    """The record in a line, or None: a body may print anything, and a newer Perago may write another version."""
    if not line.startswith(MARK):
        return None
    try:
        read = json.loads(line[len(MARK) :])
        if read.pop("v") != _VERSION:
            return None
        checks = tuple(CheckRecord(**check) for check in read.pop("checks", ()))
        return AttemptRecord(**read, checks=checks)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _line(record: AttemptRecord) -> str:
    seconds = {step: round(took, 3) for step, took in record.seconds.items()}
    kept = {name: value for name, value in asdict(replace(record, seconds=seconds)).items() if value}
    whole: dict[str, Any] = {"v": _VERSION, "execution": record.execution, "status": record.status, **kept}
    return MARK + json.dumps(whole, ensure_ascii=True, separators=(",", ":"))


def _short(check: CheckRecord) -> CheckRecord:
    return replace(check, label=_cut(check.label), found=_cut(check.found))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else text[: _TEXT_CHARS - 2] + " …"
