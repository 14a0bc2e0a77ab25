"""Workers without servers: attempts, a scripted orchestrator, a backend that nothing opens, a result sender."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import Assignment, Orchestrator
from perago.protocol.attempt import Attempt, AttemptSnapshot
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.place import OpenPlace
from perago.runtime.execution_result import DeliveryResult
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.outbox import Outbox
from perago.runtime.worker.result_sender import RECHECK_SECONDS, ResultSender
from perago.settings import Settings
from tests.support.worlds.inboxes import ResultReports

WORKSPACE = {"repository": "songs", "branch": "main", "ref_type": "commit", "ref": "a" * 64}


def an_attempt(task_id: str = "task-1", task_name: str = "make", retry_count: int = 0) -> Attempt:
    return Attempt("workflow-1", task_id, "step", task_name, retry_count, 1, 0, response_timeout_seconds=3)


def an_assignment(task_id: str = "task-1", task_name: str = "make") -> Assignment:
    return Assignment(an_attempt(task_id, task_name), {"workspace": WORKSPACE, "params": {}})


def snapshot(attempt: Attempt, status: str = "IN_PROGRESS") -> AttemptSnapshot:
    return AttemptSnapshot(status, attempt.workflow_instance_id, attempt.task_id, attempt.retry_count)


Step = Callable[..., Any]


class ScriptedOrchestrator:
    """An orchestrator that answers each call with the next entry of its script; the last entry stays.

    An entry that is an exception is raised.  `calls` records every call; `used_up` is set when a script has reached its end.
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

    def queued_task_names(self, task_names: Sequence[str]) -> Sequence[str]:
        found: Sequence[str] = self._answer("queued_task_names", tuple(task_names))
        return found

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        found: AttemptSnapshot = self._answer("current", attempt)
        return found

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        return bool(self._answer("complete", outcome))

    def extend_lease(self, attempt: Attempt, *, worker_id: str) -> None:
        self._answer("extend_lease", attempt)

    def may_be_overwritten(self, attempt: Attempt, *, left_behind: bool) -> bool:
        return "may_be_overwritten" in self._scripts and bool(self._answer("may_be_overwritten", left_behind))

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


@dataclass(frozen=True, slots=True)
class NoBackend:
    """The backend of a worker whose executors are never started; nothing may open it."""

    settings: Settings
    embedded: bool = True

    def with_workspace_root(self, folder: Path) -> NoBackend:
        return self

    def open_ports(self) -> tuple[Lake, Orchestrator]:
        raise AssertionError("nothing is started here")

    def open_places(self, tasks: Sequence[TaskDefinition]) -> OpenPlace:
        raise AssertionError("nothing is started here")


CLAIM = "perago-claim-x"


@contextmanager
def claimed_lake(folder: Path) -> Iterator[LocalLake]:
    """Open a lake with a repository `songs` and a claim in it."""
    with closing(LocalLake(folder)) as made:
        made.create_repository("songs")
        made.create_branch("songs", CLAIM, "main")
        yield made


@contextmanager
def running_sender(
    orchestrator: Any,
    lake: Any,
    root: Path,
    *,
    mask: Callable[[str], str] = str,
    reason_limit: int = 500,
    recheck_seconds: float = RECHECK_SECONDS,
) -> Iterator[tuple[ResultSender, SimpleQueue[DeliveryResult]]]:
    """Run a result sender on one thread; yields it with the queue of what it delivered."""
    reports = ResultReports()
    hides: Any = mask
    with JobScheduler("test", threads=1) as table:
        sender = ResultSender(
            *(orchestrator, lake, Outbox(root), table, "worker", reason_limit, reports, hides),
            recheck_seconds=recheck_seconds,
        )
        yield sender, reports.delivered
