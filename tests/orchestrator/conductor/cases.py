"""Workflows with what a real Conductor 3.32.3 made of them, and how to play them on any orchestrator.

`conductor_cases.json` holds one case a line.  The results are what the worker answers, by reference, in the order
of the tries; "HOLD" means that it takes the task and never answers.  A reference without results is completed with
its own name and iteration.  Names that must be unique stand as `@task` and `@workflow`, ids as `<reference#retry>`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.orchestrator.base import Assignment, Orchestrator, WorkflowState
from perago.protocol.attempt import TERMINAL_STATUSES
from perago.protocol.outcome import Outcome

CASES_FILE = Path(__file__).with_name("cases.json")
LONGEST_WAIT_SECONDS = 180.0
TASKDEF = {
    "ownerEmail": "cases@example.com",
    "retryCount": 1,
    "retryLogic": "FIXED",
    "retryDelaySeconds": 0,
    "timeoutSeconds": 0,
    "timeoutPolicy": "TIME_OUT_WF",
    "responseTimeoutSeconds": 60,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A workflow, the answers of its worker, and its outcome on Conductor."""

    name: str
    workflow: Mapping[str, Any]
    taskdef: Mapping[str, Any]
    input: Mapping[str, Any]
    results: Mapping[str, list[list[Any]]]
    expected: Mapping[str, Any]
    goes_on: int = 0
    """How many times somebody has the workflow go on after it ended badly."""


def load_cases() -> list[Case]:
    """Every recorded case."""
    return [Case(**json.loads(text)) for text in CASES_FILE.read_text(encoding="utf-8").splitlines()]


def play(orchestrator: Orchestrator, case: Case) -> dict[str, Any]:
    """Run the case to its end and describe it, with names and ids made comparable."""
    mark = uuid.uuid4().hex[:12]
    task, workflow = f"case_task_{mark}", f"case_workflow_{mark}"
    orchestrator.register_taskdefs([{**TASKDEF, **case.taskdef, "name": task}])
    definition = _replaced(case.workflow, {"@task": task})
    orchestrator.register_workflow({**definition, "name": workflow, "version": 1})
    workflow_id = orchestrator.start_workflow(workflow, input=case.input)
    answers = {reference: list(tries) for reference, tries in case.results.items()}
    until = time.monotonic() + LONGEST_WAIT_SECONDS
    left = case.goes_on
    while (state := orchestrator.workflow(workflow_id)).running or left:
        assert time.monotonic() < until, f"{case.name} is still {state}"
        # Conductor ends the workflow first, and its tasks a little later.
        if not state.running and all(task.status in TERMINAL_STATUSES for task in state.tasks):
            orchestrator.retry_workflow(workflow_id)
            left -= 1
        taken = orchestrator.poll(task, worker_id="cases", count=20, wait_seconds=0.1)
        for assignment in sorted(taken, key=lambda one: one.attempt.seq):
            _answer(orchestrator, assignment, answers)
    names = {workflow_id: "@id", task: "@task", workflow: "@workflow"}
    names |= {one.task_id: f"<{one.reference}#{one.retry_count}>" for one in state.tasks}
    described: dict[str, Any] = _replaced(_describe(state), names)
    return described


def _answer(orchestrator: Orchestrator, assignment: Assignment, answers: dict[str, list[list[Any]]]) -> None:
    attempt = assignment.attempt
    default = ["COMPLETED", {"ref": attempt.reference_task_name, "n": attempt.iteration}, None]
    tries = answers.get(attempt.reference_task_name)
    status, output, reason = tries.pop(0) if tries else default
    if status != "HOLD":
        orchestrator.complete(attempt, Outcome(status, output=output, reason=reason), worker_id="cases")


def _describe(state: WorkflowState) -> dict[str, Any]:
    return {
        "status": state.status,
        "reason": state.reason,
        "output": dict(state.output),
        "tasks": [
            {
                "reference": task.reference,
                "name": task.task_name,
                "type": task.task_type,
                "status": task.status,
                "retryCount": task.retry_count,
                "iteration": task.iteration,
                "input": dict(task.input),
                "output": dict(task.output),
                "reason": task.reason,
            }
            for task in sorted(state.tasks, key=lambda one: (one.reference, one.retry_count))
        ],
    }


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    text = json.dumps(value)
    for old, new in names.items():
        text = text.replace(old, new)
    return json.loads(text)
