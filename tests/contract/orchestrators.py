"""The orchestrators that the contract suite runs on.

An orchestrator joins by an entry in `ORCHESTRATORS`: a name, how to open it, and a mark where it needs a real server.
No test changes, so no test may pass in a clock: where time must go by, it really does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.orchestrator.base import Assignment, LogLine, Orchestrator, TaskState, WorkflowState
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.outcome import Outcome

WORKER = "contract-worker"
LONGEST_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class OrchestratorUnderTest:
    """A kind of orchestrator and how to open it; `request` reaches the fixtures it depends on."""

    open: Callable[[pytest.FixtureRequest], AbstractContextManager[Orchestrator]]
    marks: tuple[pytest.MarkDecorator, ...] = ()


@contextmanager
def _local(request: pytest.FixtureRequest) -> Iterator[Orchestrator]:
    folder: Path = request.getfixturevalue("tmp_path")
    with closing(LocalOrchestrator(folder / "orchestrator.db")) as orchestrator:
        yield orchestrator


@contextmanager
def _conductor(request: pytest.FixtureRequest) -> Iterator[Orchestrator]:
    # Imported here: the embedded one does not need the adapter's libraries.
    from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator

    server = request.getfixturevalue("conductor_server")
    with closing(ConductorOrchestrator(server.url)) as orchestrator:
        yield orchestrator


ORCHESTRATORS: dict[str, OrchestratorUnderTest] = {
    "local": OrchestratorUnderTest(_local),
    "conductor": OrchestratorUnderTest(_conductor, (pytest.mark.servers,)),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A task type and a workflow with unique names, and short forms of the calls that most tests make."""

    orchestrator: Orchestrator
    task: str
    workflow: str

    @classmethod
    def fresh(cls, orchestrator: Orchestrator) -> Line:
        """Return a line with unique names."""
        mark = uuid.uuid4().hex[:12]
        return cls(orchestrator, f"contract_task_{mark}", f"contract_workflow_{mark}")

    def taskdef(self, **fields: Any) -> dict[str, Any]:
        """A TaskDef that retries once, at once; `fields` go over it."""
        return {
            "name": self.task,
            "ownerEmail": "contract@example.com",
            "retryCount": 1,
            "retryLogic": "FIXED",
            "retryDelaySeconds": 0,
            "timeoutSeconds": 0,
            "timeoutPolicy": "TIME_OUT_WF",
            "responseTimeoutSeconds": 60,
            **fields,
        }

    def step(self, reference: str, inputs: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """A SIMPLE step of this line's task."""
        return {
            "name": self.task,
            "taskReferenceName": reference,
            "type": "SIMPLE",
            "inputParameters": dict(inputs or {}),
            **fields,
        }

    def define(
        self, steps: Sequence[Mapping[str, Any]], *, taskdef: Mapping[str, Any] | None = None, **fields: Any
    ) -> None:
        """Register the TaskDef and a workflow of these steps."""
        self.orchestrator.register_taskdefs([self.taskdef(**(taskdef or {}))])
        self.orchestrator.register_workflow(
            {
                "name": self.workflow,
                "version": 1,
                "schemaVersion": 2,
                "ownerEmail": "contract@example.com",
                "timeoutSeconds": 0,
                "timeoutPolicy": "ALERT_ONLY",
                "tasks": list(steps),
                **fields,
            }
        )

    def start(self, **values: Any) -> str:
        """Start the workflow."""
        return self.orchestrator.start_workflow(self.workflow, input=values)

    def begin(self, *, taskdef: Mapping[str, Any] | None = None, **values: Any) -> str:
        """Define and start a workflow of the one step `only`."""
        self.define([self.step("only", {"given": "${workflow.input}"})], taskdef=taskdef)
        return self.start(**values)

    def take(self, count: int = 1) -> list[Assignment]:
        """Poll until that many tasks have come."""
        taken: list[Assignment] = []
        until = time.monotonic() + LONGEST_WAIT_SECONDS
        while len(taken) < count and time.monotonic() < until:
            missing = count - len(taken)
            taken.extend(self.orchestrator.poll(self.task, worker_id=WORKER, count=missing, wait_seconds=1))
        assert len(taken) == count, f"{len(taken)} of {count} tasks came in time"
        return taken

    def take_one(self) -> Assignment:
        """Poll until a task has come."""
        return self.take()[0]

    def send(
        self, assignment: Assignment, status: str = "COMPLETED", *, reason: str | None = None, **output: Any
    ) -> bool:
        """Send a result; whether it was accepted."""
        outcome = Outcome(status, output=output, reason=reason)  # type: ignore[arg-type]
        return self.orchestrator.complete(assignment.attempt, outcome, worker_id=WORKER)

    def work(self, reference: str, **output: Any) -> Assignment:
        """Take the next task, which must be this one, and complete it."""
        assignment = self.take_one()
        assert assignment.attempt.reference_task_name == reference
        assert self.send(assignment, **output)
        return assignment

    def comes_to(self, workflow_id: str, reached: Callable[[WorkflowState], bool]) -> bool:
        """Return whether the workflow satisfies the condition within ten seconds."""
        return any(reached(self.orchestrator.workflow(workflow_id)) for _ in _looks(10))

    def until(self, workflow_id: str, reached: Callable[[WorkflowState], bool]) -> WorkflowState:
        """Read the workflow until it is as wanted."""
        for _ in _looks(LONGEST_WAIT_SECONDS):
            if reached(state := self.orchestrator.workflow(workflow_id)):
                return state
        raise AssertionError(f"still {state}")

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Look until it is as wanted."""
        assert any(reached() for _ in _looks(LONGEST_WAIT_SECONDS)), "it did not come to that"

    def until_log(self, task_id: str, lines: int) -> Sequence[LogLine]:
        """Read a task's log until it has that many lines."""
        self.wait_until(lambda: len(self.orchestrator.task_log(task_id)) >= lines)
        return self.orchestrator.task_log(task_id)

    def end_of(self, workflow_id: str) -> WorkflowState:
        """Read the workflow until it is over."""
        return self.until(workflow_id, lambda state: not state.running)


def _looks(seconds: float) -> Iterator[None]:
    """Times to look at a server, until that long has passed."""
    until = time.monotonic() + seconds
    yield
    while time.monotonic() < until:
        time.sleep(0.05)
        yield


def brief(tasks: Sequence[TaskState]) -> list[tuple[str, str, int]]:
    """Reference, status and retry count of every task, in order."""
    return [(task.reference, task.status, task.retry_count) for task in tasks]


def by_reference(state: WorkflowState) -> dict[str, TaskState]:
    """The newest task of every reference."""
    return {task.reference: task for task in state.tasks}


def fork(line: Line, last: Mapping[str, object] | None = None) -> list[dict[str, object]]:
    """Two branches and their join; with `last`, such a step ends each branch, and the join waits for those."""
    arms = {"left": [line.step("left")], "right": [line.step("right"), line.step("right_too")]}
    if last is not None:
        for name, arm in arms.items():
            arm.append({"name": "last", "taskReferenceName": f"{name}_last", **last})
    forked: dict[str, object] = {
        "name": "fork",
        "taskReferenceName": "fork",
        "type": "FORK_JOIN",
        "forkTasks": list(arms.values()),
    }
    join: dict[str, object] = {
        "name": "join",
        "taskReferenceName": "join",
        "type": "JOIN",
        "joinOn": [arm[-1]["taskReferenceName"] for arm in arms.values()],
    }
    return [forked, join]
