"""Attempts for tests that need no server, and an orchestrator that follows a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt, AttemptSnapshot
from perago.protocol.outcome import Outcome

WORKSPACE = {"repository": "songs", "branch": "main", "ref_type": "commit", "ref": "a" * 64}


def an_attempt(task_id: str = "task-1", task_name: str = "make", retry_count: int = 0) -> Attempt:
    return Attempt("workflow-1", task_id, "step", task_name, retry_count, 1, 0, response_timeout_seconds=3)


def an_assignment(task_id: str = "task-1", task_name: str = "make") -> Assignment:
    return Assignment(an_attempt(task_id, task_name), {"workspace": WORKSPACE, "params": {}})


def snapshot(attempt: Attempt, status: str = "IN_PROGRESS") -> AttemptSnapshot:
    return AttemptSnapshot(status, attempt.workflow_instance_id, attempt.task_id, attempt.retry_count)


Step = Callable[..., Any]


class Scripted:
    """An orchestrator that answers each call with the next entry of its script; the last entry stays.

    An entry that is an exception is raised.  `calls` holds what was asked; `used_up` tells when a script is at its end.
    """

    def __init__(self, **scripts: Sequence[Any]) -> None:
        self._scripts = {name: list(entries) for name, entries in scripts.items()}
        self.calls: list[tuple[str, Any]] = []
        self.used_up = {name: threading.Event() for name in scripts}

    def poll(
        self, task_name: str, *, worker_id: str, count: int, wait_seconds: float
    ) -> Sequence[Assignment]:
        found: Sequence[Assignment] = self._answer("poll", (task_name, count, wait_seconds))
        return found

    def waiting(self, task_names: Sequence[str]) -> Sequence[str]:
        found: Sequence[str] = self._answer("waiting", tuple(task_names))
        return found

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        found: AttemptSnapshot = self._answer("current", attempt)
        return found

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        return bool(self._answer("complete", outcome))

    def extend_lease(self, attempt: Attempt, *, worker_id: str) -> None:
        self._answer("extend_lease", attempt)

    def may_be_covered(self, attempt: Attempt, *, left_behind: bool) -> bool:
        return "may_be_covered" in self._scripts and bool(self._answer("may_be_covered", left_behind))

    def asked(self, name: str) -> list[Any]:
        return [what for called, what in self.calls if called == name]

    def _answer(self, name: str, what: Any) -> Any:
        self.calls.append((name, what))
        script = self._scripts[name]
        answer = script.pop(0) if len(script) > 1 else script[0]
        if len(script) == 1:
            self.used_up[name].set()
        if isinstance(answer, Exception):
            raise answer
        return answer
