"""Formats runs, attempts and retries as text, in the same way for the terminal and for run.log.

`OutputFold` leaves out what Spark's JVM prints beside the line that matters.  run.log and the task's log keep it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord, SparkFigures
from perago.protocol.provenance import Provenance
from perago.runtime.observe.sanitize import overwritten
from perago.runtime.runs.inspect import OPEN, seconds_of
from perago.runtime.runs.run_input import workspaces_in

NOTHING_CHANGED = "nothing changed"
SKIPPED = "skipped, nothing changed since"
_JVM_NOISE = "WARNING: Using incubator modules: jdk.incubator.vector"
_JVM_FRAME = re.compile(
    r"\s*(at )?[\w$@/-]+(\.[\w$<>@/-]+)+\(([\w$-]+\.(java|scala|kt)(:\d+)?|Native Method|Unknown Source|<generated>)\)\s*"
    r"|\s+\.\.\. \d+ more\s*"
)
_JVM_ERROR = re.compile(
    r"(?P<record>(\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d .*?: )?(?P<error>(Caused by: )?([a-z]\w*\.){2,}\w*(Exception|Error)\b.*)"
)
_ERROR_LINES = 200
_SPARK_JSON = re.compile(r'\{"ts": "[^"]*", "level": "(\w+)", "logger": "([^"]*)", "msg": "((?:[^"\\]|\\.)*)')
"""Matches the beginning of a line from PySpark's own logger.  Its end may have been cut off."""
_MESSAGE_CHARS = 300
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


class OutputFold:
    """Folds the lines of one attempt: what Spark prints twice or more, and what nobody reads.

    Folded are JVM stacks, errors with a JVM stack that were shown before (Spark logs one failure four times), PySpark's
    JSON lines, and a warning that every start of a JVM prints.  `hint` says where the whole text is.
    """

    def __init__(self, hint: str = ": --verbose shows it") -> None:
        self._stack = f"    … (a JVM stack{hint})"
        self._again = f"… (the same error again{hint})"
        self._in_stack = False
        self._error: list[str] = []
        self._shown = set[tuple[str, ...]]()
        self._held: list[str] = []

    def __call__(self, line: str) -> list[str]:
        """Return the lines to show now: none if the line is left out or held back, more if held lines are released.

        Lines of an error are held back while they equal an error that was shown before.
        """
        if line.strip() == _JVM_NOISE:
            return []
        before, self._in_stack = self._in_stack, _JVM_FRAME.fullmatch(line) is not None
        if self._in_stack:
            return [] if before else self._end_error()
        if found := _JVM_ERROR.fullmatch(line):
            self._error, released = [found["error"]], self._release()
        elif len(self._error) < _ERROR_LINES:
            self._error, released = [*self._error, line] if self._error else [], []
        else:
            self._error, released = [], []
        if self._error and self._may_be_shown_before():
            self._held.append(line)
            return released
        return [*released, *self._release(), _without_json(line)]

    def _end_error(self) -> list[str]:
        """Return what to show at the beginning of a JVM stack, which ends the error above it."""
        error, self._error = tuple(self._error), []
        if error and error in self._shown:
            record = _JVM_ERROR.fullmatch(self._held[0])
            self._held = []
            return [f"{(record and record['record']) or '    '}{self._again}"]
        if error:
            self._shown.add(error)
        return [*self._release(), self._stack]

    def _may_be_shown_before(self) -> bool:
        lines = tuple(self._error)
        return any(error[: len(lines)] == lines for error in self._shown)

    def _release(self) -> list[str]:
        held, self._held = self._held, []
        return held


def _without_json(line: str) -> str:
    found = _SPARK_JSON.match(line)
    return line if found is None else f"{found[1]} {found[2]}: {_first_line_of_json(found[3])}"


def _first_line_of_json(text: str) -> str:
    with suppress(ValueError):
        text = str(json.loads(f'"{text}"', strict=False))
    text = text.partition("\n")[0]
    return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + " …"


def result_location(task: TaskState, length: int | None = None) -> str:
    """Return the repository, branch and commit of the attempt's result, or an empty string if there is none."""
    workspace = task.output.get("workspace") if task.status == "COMPLETED" else None
    if not isinstance(workspace, Mapping):
        return ""
    return f"{workspace.get('repository')} {workspace.get('branch')} {str(workspace.get('ref'))[:length]}"


def changed_nothing(task: TaskState) -> bool:
    """Return whether the attempt completed with its input as its result, so that nothing was published."""
    made = workspaces_in(task.output, only="workspace") if task.status == "COMPLETED" else []
    return bool(made) and made[0].ref in {one.ref for one in workspaces_in(task.input, only="workspace")}


def status_line(task: TaskState) -> str:
    """Format an attempt's status as one line, without its reason."""
    took = duration(seconds_of(task))
    after = f" after {took}" if took and task.status not in OPEN else ""
    line = f"{attempt_name(task.reference, task.retry_count)}: {task.status}{after} {result_location(task)}".rstrip()
    return f"{line} ({NOTHING_CHANGED})" if changed_nothing(task) else line


def record_lines(record: AttemptRecord) -> Iterator[str]:
    """Format an execution's record, with one line for each kind of information."""
    if record.seconds:
        yield "times: " + ", ".join(f"{step} {took:.2f} s" for step, took in record.seconds.items())
    for check in record.checks:
        found = f": {check.found}" if check.found else ""
        failed = " (did not pass, only a warning)" if check.level == "warn" else " (did not pass)"
        yield f"check {check.phase} {check.label}{found}{'' if check.passed else failed}"
    if made := made_with(record.made_with):
        yield f"made with: {made}"
    if record.left_out:
        yield f"{record.left_out} more checks are not recorded"
    if record.downloaded or record.uploaded or record.saved:
        yield (
            f"bytes: {size(record.downloaded)} downloaded, {size(record.uploaded)} uploaded, "
            f"{size(record.saved)} not moved"
        )
    if record.spark is not None:
        yield from spark_lines(record.spark)
    if moved := changes(record):
        yield f"published: {moved}" + (f", {record.fence} fence" if record.fence else "")
    if record.skipped:
        yield f"{SKIPPED} {record.skipped}"
    if record.replaced_unsigned:
        yield f"warning: {replaced_unsigned(record.replaced_unsigned)}"


def made_with(found: Provenance) -> str:
    """Format the code and the environment of an attempt.  Returns an empty string if nothing is known."""
    packages = f"packages {found.packages}" if found.packages else ""
    return ", ".join(part for part in (found.short, packages, found.image) if part)


def spark_lines(figures: SparkFigures) -> Iterator[str]:
    """Format the work that Spark did for an execution."""
    yield (
        f"spark: read {figures.rows_read:,} rows ({size(figures.bytes_read)}), "
        f"wrote {figures.rows_written:,} rows ({size(figures.bytes_written)})"
        + (" at least: Spark no longer had the figures of all stages" if figures.partial else "")
    )
    if figures.shuffle_read or figures.shuffle_written or figures.spilled:
        yield (
            f"spark shuffle: {size(figures.shuffle_written)} written, {size(figures.shuffle_read)} read, "
            f"{size(figures.spilled)} spilled to disk"
        )
    failed = f" ({figures.failed_tasks:,} failed)" if figures.failed_tasks else ""
    memory = f", {size(figures.peak_memory)} peak executor memory" if figures.peak_memory else ""
    yield f"spark work: {figures.jobs:,} jobs, {figures.stages:,} stages, {figures.tasks:,} tasks{failed}{memory}"
    if figures.longest:
        yield "spark longest stages: " + ", ".join(
            f"{stage.name} {duration(stage.seconds)}" for stage in figures.longest
        )


def replaced_unsigned(tag: str) -> str:
    """Return the warning about a replaced commit that no task had signed."""
    return f"replaced a commit that no Perago task made; the tag {tag} keeps it"


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
