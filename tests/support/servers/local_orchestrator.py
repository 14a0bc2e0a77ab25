"""The embedded orchestrator on a test's own file, and short forms of its calls."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from perago.orchestrator.base import Assignment
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from tests.support.tasks.workflows import simple, workflow
from tests.support.worlds.clock import Clock

TASKDEF = {"name": "work", "retryCount": 1, "retryDelaySeconds": 10, "responseTimeoutSeconds": 30}


def opened(path: Path, clock: Clock) -> LocalOrchestrator:
    ids = count(1)
    return LocalOrchestrator(
        path, clock=clock, sleep=clock.sleep, new_id=lambda: f"id-{next(ids)}", random=lambda: 0.0
    )


def start(orchestrator: LocalOrchestrator, *tasks: dict[str, Any], **fields: Any) -> str:
    orchestrator.register_workflow(workflow(*(tasks or (simple("a"),)), **fields))
    return orchestrator.start_workflow("flow", input={"x": 1})


def poll(orchestrator: LocalOrchestrator, number: int = 1, wait_seconds: float = 0) -> list[Assignment]:
    return list(orchestrator.poll("work", worker_id="me", count=number, wait_seconds=wait_seconds))


def brief(orchestrator: LocalOrchestrator, workflow_id: str) -> list[tuple[str, str, int]]:
    state = orchestrator.workflow(workflow_id)
    return [(task.reference, task.status, task.retry_count) for task in state.tasks]
