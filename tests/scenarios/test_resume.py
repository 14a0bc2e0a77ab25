"""A workflow that a user resumes: its next attempts revoke and publish as any retry does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perago.orchestrator.base import Assignment
from perago.protocol.outcome import Outcome
from tests.support.faults.gates import Died
from tests.support.faults.ports import before
from tests.support.worlds.world import World, change_nothing, make_task, published_ref


def writing(text: str) -> Any:
    def body(workspace: Path, params: Any) -> Any:
        (workspace / "result.txt").write_text(text)
        return change_nothing(workspace, params)

    return body


def dies_before(world: World, call: str, assignment: Assignment) -> None:
    """Run an attempt whose worker dies right before it makes that call."""

    def die() -> None:
        raise Died

    definition = make_task(writing("first"), retries=0)
    port = "orchestrator" if call == "complete" else "lake"
    with pytest.raises(Died):
        world.execute(definition, assignment, **{port: before(getattr(world, port), call, die)})


@pytest.mark.parametrize("call", ["merge", "complete"])
def test_staged_or_published_work_of_a_dead_process_does_not_block_the_resume(
    world: World, call: str
) -> None:
    a = world.head().id
    definition = make_task(writing("second"), retries=0)
    workflow = world.start(definition)
    dies_before(world, call, world.poll(definition))
    assert (world.head().id == a, world.leftovers() != []) == (call == "merge", True)
    world.orchestrator.take_over(workflow, "the process is gone")
    c = published_ref(world.execute(definition, world.poll(definition)))
    assert world.history()[:2] == [c, a]
    assert world.files()["data/result.txt"] == "second"
    assert world.workflow(workflow).status == "COMPLETED"
    assert world.leftovers() == []


@pytest.mark.parametrize("status", ["FAILED", "FAILED_WITH_TERMINAL_ERROR"])
def test_a_failed_workflow_resumes_over_what_its_last_attempt_left(world: World, status: Any) -> None:
    a = world.head().id
    definition = make_task(writing("second"), retries=0)
    workflow = world.start(definition)
    last = world.poll(definition)
    # Its executor died after it had published, and the supervisor says so.
    dies_before(world, "complete", last)
    world.orchestrator.complete(last.attempt, Outcome(status, reason="the executor died"), worker_id="tests")
    assert world.workflow(workflow).status == "FAILED"
    abandoned = world.head().id

    world.orchestrator.retry_workflow(workflow)

    c = published_ref(world.execute(definition, world.poll(definition)))
    assert abandoned not in (a, c)
    assert world.history()[:2] == [c, a]
    assert world.workflow(workflow).status == "COMPLETED"
    assert world.leftovers() == []
