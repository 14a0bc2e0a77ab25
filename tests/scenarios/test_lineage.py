"""Lineage of real executions: a twin that lost, and an attempt that went stale, have published nothing."""

from __future__ import annotations

from typing import Any

from openlineage.client.serde import Serde

from perago.declare.task import TaskDefinition
from perago.orchestrator.base import Assignment
from perago.runtime.execution_result import ExecutionResult, pending_result_of
from perago.runtime.observe.events import Event
from perago.runtime.worker.lineage import LineageListener, RunReport
from perago.runtime.worker.openlineage_sender import EventBuilder, run_id
from tests.support.faults.ports import before
from tests.support.servers.lineage_receiver import judged
from tests.support.worlds.world import World, change_nothing, make_task


class Watched:
    """Tells lineage what a worker would tell, and returns the events of the endings."""

    def __init__(self, definition: TaskDefinition) -> None:
        self.reports: list[RunReport] = []
        self.listener = LineageListener({definition.name: definition}, self.reports.append)

    def ended(self, execution_id: str, assignment: Assignment, result: ExecutionResult) -> dict[str, Any]:
        attempt = assignment.attempt
        self.listener(Event("polled", attempt, execution_id, assignment=assignment))
        self.listener(Event("ended", attempt, execution_id, result=result))
        if result.outcome.send:
            pending = pending_result_of(execution_id, assignment, result)
            self.listener(Event("accepted", attempt, execution_id, result=result, pending=pending))
        return dict(judged(Serde.to_dict(EventBuilder("lakefs://lake", str).event(self.reports[-1]))))


def test_a_twin_that_lost_aborts_a_run_of_its_own_without_outputs(world: World) -> None:
    definition = make_task()
    world.start(definition)
    assignment, twins = world.poll(definition), []

    def twin_runs_whole() -> None:
        twins.append(world.execute(make_task(change_nothing), assignment))

    orchestrator = before(world.orchestrator, "complete", twin_runs_whole)
    won = world.execute(definition, assignment, orchestrator=orchestrator)
    watched = Watched(definition)
    lost, complete = (
        watched.ended("twin", assignment, twins[0]),
        watched.ended("winner", assignment, won),
    )

    assert (lost["eventType"], lost["outputs"], lost["run"]["runId"]) == ("ABORT", [], run_id("twin"))
    (output,) = complete["outputs"]
    assert complete["eventType"] == "COMPLETE"
    assert output["facets"]["version"]["datasetVersion"] == world.head().id
    assert output["name"] == "main/data"


def test_an_attempt_that_went_stale_aborts_without_outputs_and_its_retry_completes(world: World) -> None:
    definition = make_task()
    world.start(definition)
    first = world.poll(definition)
    second = world.retry(definition)
    watched = Watched(definition)

    stale = watched.ended("first", first, world.execute(definition, first))
    complete = watched.ended("second", second, world.execute(definition, second))

    assert (stale["eventType"], stale["outputs"]) == ("ABORT", [])
    assert stale["run"]["facets"]["errorMessage"]["message"]
    assert (complete["eventType"], len(complete["outputs"])) == ("COMPLETE", 1)
    assert stale["run"]["facets"]["parent"] == complete["run"]["facets"]["parent"]
