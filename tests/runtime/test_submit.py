"""Starting and following on servers that do not always answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from perago.errors import OrchestratorUnavailable, RuntimeConfigError
from perago.orchestrator.base import Orchestrator, TaskState, WorkflowState
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.submit import POLL_SECONDS, PreparedSubmission, SubmitRequest, follow, prepare, start
from tests.support.tasks.workflows import simple, workflow

PREPARED = PreparedSubmission("flow", 1, {}, ())


class Scripted:
    """An orchestrator with a scripted answer to each call."""

    address = "scripted"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls = 0

    def _next(self, *_: Any, **__: Any) -> Any:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    workflow = start_workflow = workflow_versions = _next

    def workflow_definition(self, name: str, version: int | None = None) -> None:
        return None


class RecordingObserver:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def show(self, state: WorkflowState) -> None:
        self.seen.append(state.status)

    def on_step_waiting(self, step: TaskState, seconds: float) -> None:
        self.seen.append(f"{step.reference} waits {seconds:.0f} s")


def state(status: str, *tasks: TaskState) -> WorkflowState:
    return WorkflowState("id", status, None, {}, tasks)


def task(status: str, retry_count: int = 0, kind: str = "SIMPLE") -> TaskState:
    return TaskState("one", "work", kind, "task-id", status, retry_count, 0, 1)


def following(*answers: Any) -> tuple[list[str], list[float], Callable[[], WorkflowState]]:
    observer, slept = RecordingObserver(), list[float]()
    orchestrator = cast(Orchestrator, Scripted(*answers))
    return observer.seen, slept, lambda: follow(orchestrator, "id", observer, slept.append)


def test_a_workflow_is_shown_until_it_is_over() -> None:
    seen, slept, ends = following(state("RUNNING"), state("PAUSED"), state("FAILED"))

    assert ends().status == "FAILED"
    assert seen == ["RUNNING", "PAUSED", "FAILED"]
    assert slept == [POLL_SECONDS] * 2


def test_a_server_that_is_away_for_a_while_is_waited_for() -> None:
    away = [OrchestratorUnavailable("away")] * 20
    seen, _, ends = following(*away, state("RUNNING"), *away, state("COMPLETED"))

    assert ends().status == "COMPLETED"
    assert seen == ["RUNNING", "COMPLETED"]


def test_a_server_that_stays_away_ends_the_following() -> None:
    _, slept, ends = following(OrchestratorUnavailable("away"))

    with pytest.raises(OrchestratorUnavailable, match="away"):
        ends()
    assert len(slept) == 20


def test_a_step_that_no_worker_takes_is_told_once() -> None:
    waiting = state("RUNNING", task("IN_PROGRESS", kind="JOIN"), task("SCHEDULED"))
    seen, _, ends = following(*[waiting] * 60, state("COMPLETED"))

    ends()
    assert [line for line in seen if "waits" in line] == ["one waits 10 s"]
    assert seen.index("one waits 10 s") * POLL_SECONDS == 10.0 + POLL_SECONDS


@pytest.mark.parametrize("open_task", [task("IN_PROGRESS"), task("SCHEDULED", retry_count=1)])
def test_a_step_that_a_worker_has_had_does_not_wait_for_one(open_task: TaskState) -> None:
    seen, _, ends = following(*[state("RUNNING", open_task)] * 60, state("COMPLETED"))

    ends()
    assert set(seen) == {"RUNNING", "COMPLETED"}


def test_a_start_without_an_answer_is_not_tried_again_and_says_that_it_may_have_happened() -> None:
    orchestrator = Scripted(OrchestratorUnavailable("no answer"))

    with pytest.raises(OrchestratorUnavailable, match="no answer; it may have been started all the same"):
        start(cast(Orchestrator, orchestrator), PREPARED)
    assert orchestrator.calls == 1


def test_an_unknown_name_is_said_also_where_the_server_lists_no_names() -> None:
    orchestrator = cast(Orchestrator, Scripted(OrchestratorUnavailable("no such path")))

    with pytest.raises(RuntimeConfigError) as caught:
        prepare(orchestrator, None, SubmitRequest("flow", {}), remedy="perago register")

    assert str(caught.value) == (
        "no workflow 'flow' is registered on scripted; there is none yet; register it with `perago register`"
    )


@pytest.fixture
def orchestrator(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with closing(LocalOrchestrator(tmp_path / "orchestrator.db")) as opened:
        yield opened


def test_the_version_that_was_checked_is_the_one_that_starts(orchestrator: LocalOrchestrator) -> None:
    orchestrator.register_workflow(workflow(simple("checked"), version=3))
    prepared = prepare(orchestrator, None, SubmitRequest("flow", {}), remedy="")
    orchestrator.register_workflow(workflow(simple("newer"), version=4))

    started = orchestrator.workflow(start(orchestrator, prepared))

    assert [task.reference for task in started.tasks] == ["checked"]


def test_a_task_that_is_not_registered_is_warned_about(orchestrator: LocalOrchestrator) -> None:
    orchestrator.register_workflow(workflow(simple("one")))

    prepared = prepare(orchestrator, None, SubmitRequest("flow", {}), remedy="")

    assert prepared.warnings == (
        "the task 'work' has no TaskDef there: its input is not checked, and no Perago worker takes it",
    )


def test_the_input_is_not_changed(orchestrator: LocalOrchestrator) -> None:
    orchestrator.register_workflow(workflow(simple("one"), inputTemplate={"more": 1}))
    given: Mapping[str, Any] = {"text": "a"}

    assert prepare(orchestrator, None, SubmitRequest("flow", given), remedy="").input == given
