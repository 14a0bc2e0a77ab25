"""A task delivered several times: one execution publishes, and the others report nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.faults.ports import before, recording
from tests.support.worlds.world import World, change_nothing, make_task, published_ref

POLICIES = ["replace", "replace-signed", "supersede", "reuse"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("changing", [True, False])
def test_eight_executions_of_one_task_end_in_one_commit_and_seven_silent_losers(
    world: World, policy: str, changing: bool
) -> None:
    together, names = threading.Barrier(8), iter(range(8))

    def body(workspace, params):
        if changing:
            (workspace / "result.txt").write_text(f"made by {next(names)}")
        together.wait(timeout=60)
        return change_nothing(workspace, params)

    definition, a = make_task(body, on_abandoned=policy), world.head().id
    workflow = world.start(definition)
    assignment, sent = world.poll(definition), []
    orchestrator = recording(world.orchestrator, sent)
    with ThreadPoolExecutor(8) as pool:
        runs = [
            pool.submit(world.execute, definition, assignment, orchestrator=orchestrator) for _ in range(8)
        ]
        ended = [run.result() for run in runs]
    state = world.workflow(workflow)
    winners = [settled for settled in ended if settled.outcome.status == "COMPLETED"]
    assert state.status == "COMPLETED"
    assert [(task.status, task.retry_count) for task in state.tasks] == [("COMPLETED", 0)]
    assert sent.count("complete") == len(winners) == 1
    assert published_ref(winners[0]) == world.head().id == state.output["ref"]
    assert world.history().index(a) == (1 if changing else 0)
    assert world.leftovers() == []
    assert world.workdirs() == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_twin_that_comes_between_publish_and_completion_finds_the_claim_taken(
    world: World, policy: str
) -> None:
    definition = make_task(on_abandoned=policy)
    workflow = world.start(definition)
    assignment, twins = world.poll(definition), []

    def twin_runs_whole() -> None:
        twins.append(world.execute(make_task(change_nothing, on_abandoned=policy), assignment))

    orchestrator = before(world.orchestrator, "complete", twin_runs_whole)
    settled = world.execute(definition, assignment, orchestrator=orchestrator)
    assert published_ref(settled) == world.head().id == world.workflow(workflow).output["ref"]
    if policy == "reuse":
        # The head records the same work, so the twin reports it: the same output, whichever is first.
        assert twins[0].outcome.output == settled.outcome.output
    else:
        assert twins[0].outcome.status == "LOST_TO_TWIN"
        assert not twins[0].outcome.send


def test_a_task_that_is_queued_again_while_it_runs_completes_at_retry_0(world: World) -> None:
    definition = make_task()
    workflow = world.start(definition)
    first, second = world.poll(definition), []

    def queued_again_and_run() -> None:
        world.orchestrator.requeue(first.attempt.task_id)
        second.append(world.execute(definition, world.poll(definition)))

    late = world.execute(
        definition, first, orchestrator=before(world.orchestrator, "current", queued_again_and_run)
    )
    state = world.workflow(workflow)
    assert [(task.status, task.retry_count) for task in state.tasks] == [("COMPLETED", 0)]
    assert published_ref(second[0]) == world.head().id == state.output["ref"]
    assert (late.outcome.status, late.outcome.send) == ("FAILED", False)
