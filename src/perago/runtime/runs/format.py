"""Formats runs, attempts and retries as text, in the same way for the terminal and for run.log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord
from perago.runtime.observe.sanitize import overwritten
from perago.runtime.runs.inspect import OPEN, seconds_of

_UNITS = ("B", "KB", "MB", "GB", "TB")


def moment(seconds: float) -> str:
    """Format a time in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def duration(seconds: float | None) -> str:
    """Format a duration.  Returns an empty string if it is unknown."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def attempt_name(reference: str, retry: int) -> str:
    """Return the name of an attempt: its step, and its retry count if it is a retry."""
    return f"{reference} (retry {retry})" if retry else reference


def body_line(reference: str, retry: int, text: str) -> str:
    """Format a line printed by a body, with the step's name in front."""
    return f"{attempt_name(reference, retry)} | {overwritten(text)}"


def result_location(task: TaskState, length: int | None = None) -> str:
    """Return the repository, branch and commit of the attempt's result, or an empty string if there is none."""
    workspace = task.output.get("workspace") if task.status == "COMPLETED" else None
    if not isinstance(workspace, Mapping):
        return ""
    return f"{workspace.get('repository')} {workspace.get('branch')} {str(workspace.get('ref'))[:length]}"


def status_line(task: TaskState) -> str:
    """Format an attempt's status as one line, without its reason."""
    took = duration(seconds_of(task))
    after = f" after {took}" if took and task.status not in OPEN else ""
    return f"{attempt_name(task.reference, task.retry_count)}: {task.status}{after} {result_location(task)}".rstrip()


def record_lines(record: AttemptRecord) -> Iterator[str]:
    """Format an execution's record, with one line for each kind of information."""
    if record.seconds:
        yield "times: " + ", ".join(f"{step} {took:.2f} s" for step, took in record.seconds.items())
    for check in record.checks:
        found = f": {check.found}" if check.found else ""
        yield f"check {check.phase} {check.label}{found}{'' if check.passed else ' (did not pass)'}"
    if record.left_out:
        yield f"{record.left_out} more checks are not recorded"
    if record.downloaded or record.uploaded or record.saved:
        yield (
            f"bytes: {size(record.downloaded)} downloaded, {size(record.uploaded)} uploaded, "
            f"{size(record.saved)} not moved"
        )
    if moved := changes(record):
        yield f"published: {moved}" + (f", {record.fence} fence" if record.fence else "")


def changes(record: AttemptRecord | None) -> str:
    """Format how many files a publication wrote and removed.  Returns an empty string if there are none."""
    if record is None or not (record.changed or record.deleted):
        return ""
    return f"{record.changed} put, {record.deleted} removed"


def coming_retry(state: WorkflowState, failed: TaskState, now: float) -> str:
    """Format the retry that follows a failed attempt, such as `; retry 1 of 3 in 60 s`.

    Returns an empty string if no retry is scheduled.
    """
    for task in state.tasks:
        if (task.reference, task.retry_count) == (failed.reference, failed.retry_count + 1):
            return f"; {_number(task)} {poll_delay(task, now) or 'now'}" if task.status == "SCHEDULED" else ""
    return ""


def poll_delay(task: TaskState, now: float) -> str:
    """Format a scheduled task's delay, such as `in 60 s`.  Returns an empty string if it can be polled now."""
    seconds = round(task.available - now)
    return f"in {seconds} s" if task.status == "SCHEDULED" and seconds > 0 else ""


def _number(task: TaskState) -> str:
    limit = task.retry_limit
    # A resumed run may make more retries than the TaskDef allows.
    return f"retry {task.retry_count}" + (f" of {limit}" if limit and task.retry_count <= limit else "")
