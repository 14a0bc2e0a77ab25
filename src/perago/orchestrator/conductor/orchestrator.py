"""The orchestrator port on a real Conductor, over its REST API (behaviour measured on server 3.32.3).

Besides making plain calls, this adapter compensates for these properties of the server:

- *Late results.*  The server returns 200 for a result for a finished task, but ignores it.  So `complete` reads the
  task back: the result was accepted if the task now has the status and the output that were sent.
- *Updates that overwrite each other.*  The server renews a lease by reading the task and writing all of it back.  A
  result that lands in between is lost, and the task stays IN_PROGRESS, although the server returned 200 (seen in 40 of
  100 tries with such a race).  So a task's lease extension and its result never overlap here (both must go through the
  same `ConductorOrchestrator`), and a task that reads back as unfinished raises `OrchestratorUnavailable`: the caller
  must send the result again.
- *Updates that land late.*  A lease extension that got no response may still be pending on the server, and may
  overwrite a result that was already read back (seen in 1 of 50 tries after the server was paused).
  `may_be_overwritten` says when to check again.
- *Batches.*  A long poll for several tasks holds back the first ones until all have arrived or the time is up.  So the
  adapter always waits for a single task, and takes the rest of the batch without waiting.  The server waits at most 5 s.

Polls and results are not retried here.  For polls, see `http`; results are retried by the outbox.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from perago.errors import (
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
)
from perago.orchestrator.base import Assignment, Json, LogLine, WorkflowState, WorkflowSummary
from perago.orchestrator.conductor import wire
from perago.orchestrator.conductor.errors import is_internal_error
from perago.orchestrator.conductor.http import Address, ConductorApi
from perago.protocol.attempt import TERMINAL_STATUSES, Attempt, AttemptSnapshot
from perago.protocol.outcome import Outcome, without_nul

MOST_UNACKNOWLEDGED = 4096
"""Maximum number of task ids to remember, more than a worker ever has in flight.  The oldest are forgotten first."""
MAX_OUTPUT_BYTES = 3072 * 1024
"""The maximum size of a task's output.

The server stores a larger output outside the task (by default in a temporary folder that is lost on restart), and turns
an output of more than 10 MB into a terminal failure.
"""
MAX_LOG_CHARS = 64 * 1024
MAX_WAIT_SECONDS = 5.0
_LOCKS = 256
_NO_TASKDEF = "perago-asks-whether-this-is-conductor"
_FAILED_BUT_OPTIONAL = "COMPLETED_WITH_ERRORS"
_STORED_AS = {
    "COMPLETED": {"COMPLETED"},
    "FAILED": {"FAILED", _FAILED_BUT_OPTIONAL},
    "FAILED_WITH_TERMINAL_ERROR": {"FAILED_WITH_TERMINAL_ERROR", _FAILED_BUT_OPTIONAL},
}


class Unacknowledged:
    """The ids of tasks with an unacknowledged update.  Thread-safe.

    The server may still apply such an update at any time, or never.  A response does not remove an id: the response to
    a later update does not prove that the earlier update is no longer pending.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, None] = {}
        self._changing = threading.Lock()

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._tasks

    @contextmanager
    def noting(self, task_id: str) -> Iterator[None]:
        """Add the task if the update in the block gets no response."""
        try:
            yield
        except OrchestratorUnavailable:
            with self._changing:
                self._tasks[task_id] = None
                while len(self._tasks) > MOST_UNACKNOWLEDGED:
                    del self._tasks[next(iter(self._tasks))]
            raise


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a connection, for a response, and for the response to a result."""

    connect: float = 5.0
    read: float = 30.0
    completion: float = 30.0


class ConductorOrchestrator:
    """The orchestrator port on a Conductor server; thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        auth_key: str | None = None,
        auth_secret: str | None = None,
        timeouts: Timeouts | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = wire.address(url)
        self._timeouts = timeouts or Timeouts()
        self._max_output_bytes = max_output_bytes
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        self._unacknowledged = Unacknowledged()
        self._lists_by_id = False
        """True once the server has failed to list whole workflows."""
        self._api = ConductorApi(
            Address(url, auth_key, auth_secret),
            connect_timeout=self._timeouts.connect,
            read_timeout=self._timeouts.read,
            sleep=sleep,
        )

    @property
    def address(self) -> str:
        """The server's URL without secrets."""
        return self._address

    def server(self) -> str:
        """Return "Conductor" and its version.  Raises `OrchestratorUnavailable` if some other server responds."""
        step = f"find Conductor at {self._address}"
        # Ask for a TaskDef that does not exist: only Conductor rejects that in its own format.  The version proves
        # nothing: it is plain text, which any server that responds on every path would send.
        if self.taskdef(_NO_TASKDEF) is not None:
            raise OrchestratorUnavailable(
                f"cannot {step}: what answers there knows a TaskDef {_NO_TASKDEF!r}, so it is not Conductor; "
                "check CONDUCTOR_SERVER_URL, it ends in /api"
            )
        try:
            version = str(self._api.call(step, wire.Request("GET", "/version"), repeat=True)).strip()
        except OrchestratorError:
            version = ""
        return f"Conductor {version or 'of unknown version'}"

    def poll(
        self, task_name: str, *, worker_id: str, count: int, wait_seconds: float
    ) -> Sequence[Assignment]:
        """Take up to `count` tasks; wait up to `wait_seconds` (at most 5) for the first."""
        wait = min(max(wait_seconds, 0.0), MAX_WAIT_SECONDS)
        found: list[Assignment] = []
        if count > 1 or not wait:
            found = self._take(task_name, worker_id, count, 0)
        if not found and wait:
            found = self._take(task_name, worker_id, 1, wait)
            if found and count > 1:
                found += self._top_up(task_name, worker_id, count - 1)
        return found

    def queued_task_names(self, task_names: Sequence[str]) -> Sequence[str]:
        """Return the names with a non-empty queue.  Tasks that are waiting for their retry delay are included."""
        step = "read the sizes of queues"
        names = "&".join(f"taskType={wire.segment(name)}" for name in task_names)
        sizes = self._api.call(step, wire.Request("GET", f"/tasks/queue/sizes?{names}"))
        return wire.read(step, sizes, lambda found: [name for name in task_names if found[name] > 0])

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """Return the current state of the attempt's task."""
        return wire.read("read the task", self._task(attempt), wire.snapshot)

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        """Send the result and return whether it was accepted.  The call is safe to repeat."""
        if not outcome.send:
            raise ValueError(f"an outcome that must keep silent was to be sent: {outcome.status}")
        body = wire.result(attempt, outcome, worker_id)
        self._refuse_oversized(attempt, body["outputData"])
        step = f"complete task {attempt.task_id}"
        with self._update_lock(attempt):
            self._api.call(
                step, wire.Request("POST", "/tasks", body=body), read_timeout=self._timeouts.completion
            )
            found = self._task(attempt)
        return wire.read(step, found, lambda task: self._accepted(attempt, body, task))

    def extend_lease(self, attempt: Attempt, *, worker_id: str) -> None:
        """Renew the task's lease.  This has no effect on a finished task."""
        step = f"extend the lease of task {attempt.task_id}"
        request = wire.Request("POST", "/tasks", body=wire.lease(attempt, worker_id))

        def once() -> None:
            with self._unacknowledged.noting(attempt.task_id):
                self._api.call(step, request)

        with self._update_lock(attempt):
            self._api.persist(once)

    def may_be_overwritten(self, attempt: Attempt, *, left_behind: bool) -> bool:
        """Return whether a lease extension for the task may still be in flight."""
        return left_behind or attempt.task_id in self._unacknowledged

    def log(self, attempt: Attempt, lines: Sequence[str]) -> None:
        """Append lines to the task's log, in entries of at most `MAX_LOG_CHARS`.

        A line is truncated only if it exceeds that limit by itself.
        """
        path = f"/tasks/{wire.segment(attempt.task_id)}/log"
        for text in wire.log_entries(lines, MAX_LOG_CHARS):
            self._api.post_text(f"write the log of task {attempt.task_id}", path, text)

    def task_log(self, task_id: str) -> Sequence[LogLine]:
        """Return the lines of a task's log, oldest first."""
        step = f"read the log of task {task_id}"
        request = wire.Request("GET", f"/tasks/{wire.segment(task_id)}/log")
        answer = self._api.call(step, request, repeat=True)
        return wire.read(step, answer, wire.log_lines)

    def taskdef(self, name: str) -> Json | None:
        """Return the registered TaskDef with all fields that the server has, or None if there is none."""
        step = f"read the TaskDef {name!r}"
        try:
            answer = self._api.call(
                step, wire.Request("GET", f"/metadata/taskdefs/{wire.segment(name)}"), repeat=True
            )
        except OrchestratorNotFound:
            return None
        return wire.read(step, answer, wire.json_object)

    def register_taskdefs(self, definitions: Sequence[Json]) -> None:
        """Create or update TaskDefs, one by one: the server has no transactions."""
        for definition in definitions:
            step = f"register the TaskDef {definition.get('name')!r}"
            try:
                # A PUT preserves the creator and creation time; a POST would overwrite them.
                self._api.call(
                    step, wire.Request("PUT", "/metadata/taskdefs", body=dict(definition)), repeat=True
                )
            except OrchestratorNotFound:
                self._api.call(
                    step, wire.Request("POST", "/metadata/taskdefs", body=[dict(definition)]), repeat=True
                )

    def register_workflow(self, definition: Json) -> None:
        """Create or update a workflow definition."""
        step = f"register the workflow {definition.get('name')!r}"
        answer = self._api.call(
            step, wire.Request("PUT", "/metadata/workflow", body=[dict(definition)]), repeat=True
        )
        # The call always succeeds as a whole; its response lists the definitions that were rejected.
        errors = wire.read(step, answer, lambda found: found.get("bulkErrorResults") or {})
        if errors:
            raise OrchestratorRefused(f"cannot {step}: {'; '.join(map(str, errors.values()))}")

    def workflow_definition(self, name: str, version: int | None = None) -> Json | None:
        """Return the registered workflow definition with all fields that the server has, or None if there is none."""
        step = f"read the workflow definition {name!r}"
        query = {} if version is None else {"version": version}
        path = f"/metadata/workflow/{wire.segment(name)}"
        try:
            answer = self._api.call(step, wire.Request("GET", path, query), repeat=True)
        except OrchestratorNotFound:
            return None
        return wire.read(step, answer, wire.json_object)

    def workflow_versions(self) -> Mapping[str, Sequence[int]]:
        """Return a mapping from the name of every registered workflow to its versions."""
        step = "list the workflow definitions"
        request = wire.Request("GET", "/metadata/workflow/names-and-versions")
        answer = self._api.call(step, request, repeat=True)
        return wire.read(step, answer, wire.versions)

    def start_workflow(self, name: str, *, version: int | None = None, input: Json) -> str:
        """Start a workflow and return its id.

        The call is never retried, because every call that arrives starts a workflow.
        """
        query = {} if version is None else {"version": version}
        step = f"start the workflow {name!r}"
        return str(
            self._api.call(step, wire.Request("POST", f"/workflow/{wire.segment(name)}", query, dict(input)))
        )

    def workflow(self, workflow_id: str) -> WorkflowState:
        """Return the current state of the workflow, including every retry of every task."""
        step = f"read the workflow {workflow_id}"
        path = f"/workflow/{wire.segment(workflow_id)}"
        answer = self._api.call(step, wire.Request("GET", path, {"includeTasks": "true"}), repeat=True)
        return wire.read(step, answer, wire.workflow)

    def workflows(self, count: int, *, start: int = 0) -> Sequence[WorkflowSummary]:
        """Return up to `count` workflows from the server's index, newest first."""
        step = "list the workflows"
        query = {"start": start, "size": count, "sort": "startTime:DESC"}
        if not self._lists_by_id:
            try:
                answer = self._api.call(step, wire.Request("GET", "/workflow/search-v2", query), repeat=True)
                return wire.read(step, answer, lambda found: [wire.summary(one) for one in found["results"]])
            except OrchestratorUnavailable as error:
                if not is_internal_error(error):
                    raise
            # Conductor 3.32.3 answers so if its index is in PostgreSQL.
            self._lists_by_id = True
        # `/workflow/search` has the input as Java's text of a map, which cannot be parsed.
        answer = self._api.call(step, wire.Request("GET", "/workflow/search", query), repeat=True)
        ids = wire.read(step, answer, lambda found: [one["workflowId"] for one in found["results"]])
        return [self._summary(workflow_id) for workflow_id in ids]

    def _summary(self, workflow_id: str) -> WorkflowSummary:
        step = f"read the workflow {workflow_id}"
        path = f"/workflow/{wire.segment(workflow_id)}"
        answer = self._api.call(step, wire.Request("GET", path, {"includeTasks": "false"}), repeat=True)
        return wire.read(step, answer, wire.summary)

    def retry_workflow(self, workflow_id: str) -> None:
        """Resume a failed workflow.

        The call is never retried, because a second call would find the workflow running.
        """
        step = f"resume the workflow {workflow_id}"
        # The server returns 404 for a running workflow and 409 if nothing is left to do; neither makes a useful error.
        self._expect(step, workflow_id, lambda state: not state.running and state.status != "COMPLETED")
        self._api.call(step, wire.Request("POST", f"/workflow/{wire.segment(workflow_id)}/retry"))

    def pause_workflow(self, workflow_id: str) -> None:
        """Schedule no more steps of a running workflow."""
        step = f"pause the workflow {workflow_id}"
        # The server returns 200 for a workflow that is PAUSED already, and 409 for one that has ended.
        self._expect(step, workflow_id, lambda state: state.status == "RUNNING")
        self._api.call(step, wire.Request("PUT", f"/workflow/{wire.segment(workflow_id)}/pause"))

    def resume_workflow(self, workflow_id: str) -> None:
        """Continue a paused workflow."""
        step = f"resume the workflow {workflow_id}"
        # The server returns 500 for a workflow that is not PAUSED.
        self._expect(step, workflow_id, lambda state: state.status == "PAUSED")
        self._api.call(step, wire.Request("PUT", f"/workflow/{wire.segment(workflow_id)}/resume"))

    def terminate_workflow(self, workflow_id: str, reason: str) -> None:
        """End a workflow with the status TERMINATED."""
        step = f"terminate the workflow {workflow_id}"
        # The server returns 200 for a workflow that has failed, and changes nothing.
        self._expect(step, workflow_id, lambda state: state.running)
        path = f"/workflow/{wire.segment(workflow_id)}"
        self._api.call(step, wire.Request("DELETE", path, {"reason": without_nul(reason)}))

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _take(self, task_name: str, worker_id: str, count: int, wait: float) -> list[Assignment]:
        step = f"poll for {task_name}"
        query = {"count": count, "timeout": round(wait * 1000), "workerid": worker_id}
        request = wire.Request("GET", f"/tasks/poll/batch/{wire.segment(task_name)}", query)
        answer = self._api.call(step, request, read_timeout=self._timeouts.read + wait)
        return wire.read(step, answer, lambda tasks: [wire.assignment(task) for task in tasks])

    def _top_up(self, task_name: str, worker_id: str, count: int) -> list[Assignment]:
        try:
            return self._take(task_name, worker_id, count, 0)
        except OrchestratorError:
            # The first task is already ours: an error here must not lose it.  The next poll will raise the error again.
            return []

    def _expect(self, step: str, workflow_id: str, fits: Callable[[WorkflowState], bool]) -> None:
        """Raise `OrchestratorRefused` unless the workflow's state fits."""
        state = self._workflow_without_tasks(workflow_id)
        if not fits(state):
            raise OrchestratorRefused(f"cannot {step}: it is {state.status}")

    def _task(self, attempt: Attempt) -> Any:
        step = f"read task {attempt.task_id}"
        return self._api.call(
            step, wire.Request("GET", f"/tasks/{wire.segment(attempt.task_id)}"), repeat=True
        )

    def _accepted(self, attempt: Attempt, sent: Json, found: Json) -> bool:
        if found["status"] in TERMINAL_STATUSES:
            # Do not compare worker ids: a restarted worker may resend the result.
            stored_elsewhere = bool(found.get("externalOutputPayloadStoragePath"))
            same_output = stored_elsewhere or (found.get("outputData") or {}) == sent["outputData"]
            return found["status"] in _STORED_AS[sent["status"]] and same_output
        if not self._workflow_without_tasks(attempt.workflow_instance_id).running:
            return False
        raise OrchestratorUnavailable(
            f"the result of task {attempt.task_id} reads back as {found['status']}: an update at the same moment "
            "covered it; send it again"
        )

    def _workflow_without_tasks(self, workflow_id: str) -> WorkflowState:
        step = f"read the workflow {workflow_id}"
        path = f"/workflow/{wire.segment(workflow_id)}"
        answer = self._api.call(step, wire.Request("GET", path, {"includeTasks": "false"}), repeat=True)
        return wire.read(step, answer, wire.workflow)

    def _refuse_oversized(self, attempt: Attempt, output: Json) -> None:
        size = wire.json_bytes(output)
        if size > self._max_output_bytes:
            raise OrchestratorRefused(
                f"the result of task {attempt.task_id} ({attempt.task_name}) is {size} bytes of JSON and Conductor "
                f"takes {self._max_output_bytes}: put bulk into the workspace and return where it is"
            )

    def _update_lock(self, attempt: Attempt) -> threading.Lock:
        """Return the lock to hold while updating this task."""
        return self._locks[hash(attempt.task_id) % _LOCKS]
