"""A workflow that starts at a step of another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perago.errors import OrchestratorRefused
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.outcome import Outcome, completed
from tests.support.tasks.workflows import fork, join, simple, workflow

TASKDEF = {"name": "work", "retryCount": 0, "responseTimeoutSeconds": 600}


@pytest.fixture
def old(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with closing(LocalOrchestrator(tmp_path / "old.db")) as found:
        found.register_taskdefs([TASKDEF])
        yield found


@pytest.fixture
def new(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with closing(LocalOrchestrator(tmp_path / "new.db")) as found:
        found.register_taskdefs([{**TASKDEF, "retryCount": 2}])
        yield found


def start(orchestrator: LocalOrchestrator, *tasks: dict[str, Any]) -> str:
    orchestrator.register_workflow(workflow(*tasks))
    return orchestrator.start_workflow("flow", input={"x": 1})


def work(orchestrator: LocalOrchestrator, fails: str = "") -> list[tuple[str, Any]]:
    """Do all there is to do; what was done, with its input."""
    done = []
    while found := orchestrator.poll("work", worker_id="me", count=1, wait_seconds=0):
        attempt = found[0].attempt
        done.append((attempt.reference_task_name, dict(found[0].input)))
        failed = Outcome("FAILED", reason="x")
        outcome = (
            failed if attempt.reference_task_name == fails else completed({"by": attempt.reference_task_name})
        )
        orchestrator.complete(attempt, outcome, worker_id="me")
    return done


def step(reference: str, reads: str) -> dict[str, Any]:
    return {**simple(reference), "inputParameters": {"read": f"${{{reads}.output.by}}"}}


def loop(*body: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "again",
        "taskReferenceName": "again",
        "type": "DO_WHILE",
        "loopCondition": "$.again['iteration'] < 2",
        "loopOver": list(body),
    }


def switch(*case: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "which",
        "taskReferenceName": "which",
        "type": "SWITCH",
        "evaluatorType": "value-param",
        "expression": "kind",
        "inputParameters": {"kind": "yes"},
        "decisionCases": {"yes": list(case)},
        "defaultCase": [simple("never")],
    }


def test_the_step_and_what_follows_is_done_again_with_what_was_recorded(
    old: LocalOrchestrator, new: LocalOrchestrator
) -> None:
    workflow_id = start(old, simple("a"), step("b", "a"), step("c", "b"))
    work(old)
    started = new.start_from(old.recording(workflow_id, "b"), {})
    assert started != workflow_id
    assert work(new) == [("b", {"read": "a"}), ("c", {"read": "b"})]
    state = new.workflow(started)
    assert state.status == "COMPLETED"
    assert [(task.reference, task.status, task.seq) for task in state.tasks] == [
        ("a", "COMPLETED", 1),
        ("b", "COMPLETED", 2),
        ("c", "COMPLETED", 3),
    ]
    # Its tasks are its own, and so are the TaskDefs: a task id belongs to one orchestrator.
    before = {task.task_id for task in old.workflow(workflow_id).tasks}
    assert not before & {task.task_id for task in state.tasks}
    assert state.tasks[1].retry_limit == 2


@pytest.mark.parametrize(
    ("tasks", "at", "again"),
    [
        ([fork("f", [simple("a")], [simple("b")]), join("j", "a", "b"), step("c", "a")], "c", ["c"]),
        ([fork("f", [simple("a")], [simple("b")]), join("j", "a", "b"), simple("c")], "f", ["a", "b", "c"]),
        ([fork("f", [simple("a")], [simple("b")]), join("j", "a", "b"), simple("c")], "j", ["c"]),
        ([loop(simple("a")), step("c", "a")], "c", ["c"]),
        ([simple("b"), loop(simple("a")), step("c", "a")], "again", ["a__1", "a__2", "c"]),
        ([switch(simple("a"), simple("b")), simple("c")], "b", ["b", "c"]),
        ([switch(simple("a"), simple("b")), simple("c")], "which", ["a", "b", "c"]),
    ],
)
def test_steps_before_the_resumed_one_are_not_run_again(
    old: LocalOrchestrator, new: LocalOrchestrator, tasks: list[dict[str, Any]], at: str, again: list[str]
) -> None:
    workflow_id = start(old, *tasks)
    work(old)
    assert old.workflow(workflow_id).status == "COMPLETED"
    started = new.start_from(old.recording(workflow_id, at), {})
    assert [reference for reference, _ in work(new)] == again
    assert new.workflow(started).status == "COMPLETED"


def test_a_try_that_failed_before_the_one_that_did_not_is_left_behind(
    old: LocalOrchestrator, new: LocalOrchestrator
) -> None:
    workflow_id = start(old, simple("a"), simple("b"))
    work(old, fails="a")
    old.retry_workflow(workflow_id)
    work(old, fails="b")
    started = new.start_from(old.recording(workflow_id, "b"), {})
    work(new)
    assert [(task.reference, task.status) for task in new.workflow(started).tasks] == [
        ("a", "COMPLETED"),
        ("b", "COMPLETED"),
    ]


def test_every_task_works_on_the_new_branch_however_its_workspace_is_put_together(
    old: LocalOrchestrator, new: LocalOrchestrator
) -> None:
    def on(branch: str, repository: str = "songs") -> dict[str, str]:
        return {"repository": repository, "branch": branch, "ref_type": "commit", "ref": "A"}

    steps = [
        {**simple(name), "inputParameters": {"workspace": workspace}}
        for name, workspace in [
            ("a", on("main")),
            ("b", on("main")),
            ("c", on("dev")),
            ("d", on("main", "other")),
        ]
    ]
    workflow_id = start(old, *steps)
    work(old)
    branches = {"songs": {"main": "main-from-b"}}
    started = new.start_from(old.recording(workflow_id, "b"), branches)
    assert [given["workspace"]["branch"] for _, given in work(new)] == ["main-from-b", "dev", "main"]
    # What is recorded stays as it was, and the next recording knows the branch.
    assert new.workflow(started).tasks[0].input == {"workspace": on("main")}
    assert new.recording(started, "c").branches == branches


@pytest.mark.parametrize(
    ("tasks", "at", "text"),
    [
        ([simple("clean")], "claen", "has no step 'claen'; did you mean 'clean'"),
        ([simple("clean")], "x", "has no step 'x'; there are: clean"),
        ([fork("f", [simple("a")], [simple("b")]), join("j", "a", "b")], "a", "inside the FORK_JOIN 'f'"),
        ([loop(simple("a"))], "a", "inside the DO_WHILE 'again'.*start from 'again'"),
        ([simple("bad"), simple("b")], "b", "has not reached step 'b'.*--resume"),
        ([fork("f", [simple("a")], [simple("bad")]), join("j", "a", "bad")], "j", "bad.* has not ended well"),
    ],
)
def test_a_step_where_no_run_can_start_is_refused_by_name(
    old: LocalOrchestrator, tasks: list[dict[str, Any]], at: str, text: str
) -> None:
    workflow_id = start(old, *tasks)
    work(old, fails="bad")
    with pytest.raises(OrchestratorRefused, match=text):
        old.recording(workflow_id, at)
