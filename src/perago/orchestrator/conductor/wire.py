"""Converts between Conductor's JSON and the port's values.  No I/O.

A response without the fields that Conductor always sends comes from something else (a proxy, the web UI, a wrong path
in CONDUCTOR_SERVER_URL).  It says nothing about the call, so reading it raises `OrchestratorUnavailable`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from perago.errors import OrchestratorUnavailable
from perago.orchestrator.base import Assignment, Json, LogLine, TaskState, WorkflowState, WorkflowSummary
from perago.protocol.attempt import Attempt, AttemptSnapshot
from perago.protocol.outcome import Outcome, without_nul

T = TypeVar("T")
EXTERNAL_INPUT = "externalInputPayloadStoragePath"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server.  `path` is relative to `/api`."""

    method: str
    path: str
    query: Mapping[str, object] = field(default_factory=dict)
    body: object = None


def read(step: str, answer: object, parse: Callable[[Any], T]) -> T:
    """Parse a response.  If it is not Conductor's, raises `OrchestratorUnavailable` with an excerpt."""
    try:
        return parse(answer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        shown = repr(" ".join(str(answer).split())[:80])
        # For JSON, name what is missing; for a web page, the excerpt is enough.
        wrong = shown if isinstance(answer, str) else f"{type(error).__name__} {error} in {shown}"
        raise OrchestratorUnavailable(
            f"cannot {step}: the answer is not Conductor's ({wrong}); "
            "check CONDUCTOR_SERVER_URL, it ends in /api"
        ) from error


def address(url: str) -> str:
    """Normalize a server's URL, and remove its credentials and query."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}"


def segment(name: str) -> str:
    """Quote a name as a single path segment."""
    return quote(name, safe="")


def json_object(answer: Any) -> dict[str, Any]:
    """Parse a response that must be a JSON object."""
    return {**answer}


def assignment(task: Mapping[str, Any]) -> Assignment:
    """Parse a polled task."""
    return Assignment(
        Attempt(
            workflow_instance_id=task["workflowInstanceId"],
            task_id=task["taskId"],
            reference_task_name=task["referenceTaskName"],
            task_name=task["taskDefName"],
            retry_count=int(task["retryCount"]),
            seq=int(task["seq"]),
            iteration=int(task.get("iteration") or 0),
            response_timeout_seconds=float(task.get("responseTimeoutSeconds") or 0),
            scheduled_time=int(task.get("scheduledTime") or 0),
            workflow_name=str(task.get("workflowType") or ""),
        ),
        _input(task),
    )


def snapshot(task: Mapping[str, Any]) -> AttemptSnapshot:
    """Parse a task read back from Conductor into a snapshot of its attempt."""
    return AttemptSnapshot(
        status=task["status"],
        workflow_instance_id=task["workflowInstanceId"],
        task_id=task["taskId"],
        retry_count=int(task["retryCount"]),
        scheduled_time=int(task.get("scheduledTime") or 0),
        worker_id=task.get("workerId") or "",
    )


def workflow(answer: Mapping[str, Any]) -> WorkflowState:
    """Parse a workflow.  Its tasks are in the order in which they were scheduled."""
    tasks = sorted(answer.get("tasks") or [], key=lambda task: int(task["seq"]))
    return WorkflowState(
        id=answer["workflowId"],
        status=answer["status"],
        reason=answer.get("reasonForIncompletion"),
        output=answer.get("output") or {},
        tasks=tuple(_task_state(task) for task in tasks),
        name=answer.get("workflowName") or "",
        input=answer.get("input") or {},
        started=_seconds(answer.get("startTime")),
        ended=_seconds(answer.get("endTime")),
        definition=answer.get("workflowDefinition") or {},
    )


def versions(answer: Mapping[str, Any]) -> dict[str, list[int]]:
    """Parse the registered workflow definitions into a mapping from each name to its versions, oldest first."""
    return {name: sorted(int(one["version"]) for one in found) for name, found in answer.items()}


def summary(found: Mapping[str, Any]) -> WorkflowSummary:
    """Parse a workflow in a list.  A resumed workflow still has its old end time."""
    over = found["status"] not in ("RUNNING", "PAUSED")
    return WorkflowSummary(
        id=found["workflowId"],
        name=found.get("workflowName") or "",
        status=found["status"],
        started=_seconds(found.get("startTime")),
        ended=_seconds(found.get("endTime")) if over else None,
        reason=found.get("reasonForIncompletion"),
        input=found.get("input") or {},
    )


def log_entries(lines: Sequence[str], most_chars: int) -> Iterator[str]:
    """Join lines into as few log entries as the maximum length allows.  A single line that is too long is truncated."""
    entry: list[str] = []
    length = 0
    for line in (_bounded(line, most_chars) for line in lines):
        if entry and length + len(line) > most_chars:
            yield "\n".join(entry)
            entry, length = [], 0
        entry.append(line)
        length += len(line) + 1
    # An entry without text is of no use on the server.
    if any(entry):
        yield "\n".join(entry)


def _bounded(line: str, most_chars: int) -> str:
    line = without_nul(line)
    more = len(line) - most_chars
    return line if more <= 0 else f"{line[:most_chars]}\n… ({more} characters more are not kept)"


def log_lines(answer: Any) -> list[LogLine]:
    """Parse the lines of a task's log, oldest first.  For an unknown task, the server sends an empty response."""
    return [
        LogLine(entry["createdTime"] / 1000, line)
        for entry in sorted(answer or (), key=lambda entry: int(entry["createdTime"]))
        for line in entry["log"].split("\n")
    ]


def result(attempt: Attempt, outcome: Outcome, worker_id: str) -> dict[str, Any]:
    """Return the update that ends a task with this outcome."""
    body: dict[str, Any] = {
        "workflowInstanceId": attempt.workflow_instance_id,
        "taskId": attempt.task_id,
        "workerId": worker_id,
        "status": outcome.status,
        "outputData": dict(outcome.output or {}),
    }
    if outcome.reason is not None:
        body["reasonForIncompletion"] = outcome.reason
    return body


def lease(attempt: Attempt, worker_id: str) -> dict[str, Any]:
    """Return the update that renews a lease.  Without `extendLease`, the server would requeue the task."""
    return {
        "workflowInstanceId": attempt.workflow_instance_id,
        "taskId": attempt.task_id,
        "workerId": worker_id,
        "status": "IN_PROGRESS",
        "extendLease": True,
    }


def json_bytes(value: Json) -> int:
    """Return the size of a value's JSON in bytes, as the server counts it."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _task_state(task: Mapping[str, Any]) -> TaskState:
    # A SIMPLE task's taskType is its name; the real type is in its step in the definition.
    kind = (task.get("workflowTask") or {}).get("type") or task["taskType"]
    return TaskState(
        reference=task["referenceTaskName"],
        task_name=task.get("taskDefName") or task["taskType"],
        task_type=kind,
        task_id=task["taskId"],
        status=task["status"],
        retry_count=int(task["retryCount"]),
        iteration=int(task.get("iteration") or 0),
        seq=int(task["seq"]),
        input=_input(task),
        output=task.get("outputData") or {},
        reason=task.get("reasonForIncompletion"),
        scheduled=_seconds(task.get("scheduledTime")),
        started=_seconds(task.get("startTime")),
        ended=_seconds(task.get("endTime")),
        worker=task.get("workerId") or None,
        updated=_seconds(task.get("updateTime")),
        response_seconds=float(task.get("responseTimeoutSeconds") or 0),
        available=int(task.get("scheduledTime") or 0) / 1000 + float(task.get("callbackAfterSeconds") or 0),
        retry_limit=_retry_limit(task.get("workflowTask") or {}),
    )


def _seconds(milliseconds: int | None) -> float | None:
    """Convert a time from the server to seconds.  Returns None for 0, which the server sends if there is no time."""
    return milliseconds / 1000 if milliseconds else None


def _retry_limit(step: Mapping[str, Any]) -> int | None:
    """Return the number of retries set by the step, or else by its TaskDef; None if neither sets it."""
    for source in (step, step.get("taskDefinition") or {}):
        if source.get("retryCount") is not None:
            return int(source["retryCount"])
    return None


def _input(task: Mapping[str, Any]) -> Json:
    """Return the input.  If it is in external storage, returns only its path, so that validation reports the cause."""
    if task.get(EXTERNAL_INPUT):
        return {EXTERNAL_INPUT: task[EXTERNAL_INPUT]}
    return task.get("inputData") or {}
