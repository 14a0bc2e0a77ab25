"""The Conductor adapter on the real server: what the contract suite, which names no backend, cannot ask for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from perago.errors import OrchestratorRefused
from perago.orchestrator.base import Assignment
from perago.orchestrator.conductor.orchestrator import MAX_OUTPUT_BYTES, ConductorOrchestrator
from perago.protocol.outcome import Outcome, completed
from tests.conftest import ConductorServer, ProductionServers
from tests.support.worlds.clock import eventually

ODD_VALUES: dict[str, Any] = {
    "null": None,
    "deep": {"null": None, "list": [1, None, 2.5, 1.0, -0.0, 0.1], "empty": {}, "none": []},
    "large": [2**63, 12345678901234567890123, 1e300, 1e-320, 3.141592653589793],
    "text": 'é 漢 \U0001f600 "quoted"\n\ttab \x00 end',
}


@pytest.mark.servers
@pytest.mark.slow
def test_workflows_are_listed_where_conductors_index_is_in_postgresql(
    production_servers: ProductionServers,
) -> None:
    name = f"test_{uuid.uuid4().hex[:12]}"
    step: dict[str, Any] = {"name": "nothing", "taskReferenceName": "only", "type": "NOOP"}
    definition = {
        "name": name,
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "test@example.com",
        "tasks": [step],
    }
    with closing(ConductorOrchestrator(production_servers.conductor.url)) as conductor:
        conductor.register_workflow(definition)
        workflow = conductor.start_workflow(name, version=1, input={"day": "monday"})

        def listed() -> Any:
            return next((one for one in conductor.workflows(20) if one.id == workflow), None)

        found = eventually(listed, "the workflow is in the index")
        assert (found.name, found.input) == (name, {"day": "monday"})
        assert conductor.workflows(20, start=10**6) == []


@dataclass(frozen=True, slots=True)
class Step:
    """A one-task workflow on the real server."""

    conductor: ConductorOrchestrator
    server: ConductorServer
    task_name: str

    def start(self, **params: Any) -> str:
        return self.conductor.start_workflow(f"{self.task_name}_wf", version=1, input={"params": params})

    def start_optional(self) -> str:
        return self.conductor.start_workflow(f"{self.task_name}_wf", version=2, input={"params": {}})

    def take(self, worker_id: str = "worker") -> Assignment:
        (found,) = self.conductor.poll(self.task_name, worker_id=worker_id, count=1, wait_seconds=5)
        return found


@pytest.fixture
def step(conductor_server: ConductorServer) -> Iterator[Step]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    owner = {"ownerEmail": "test@example.com"}
    task: dict[str, Any] = {"name": name, "taskReferenceName": "only", "type": "SIMPLE"}
    task["inputParameters"] = {"params": "${workflow.input.params}"}
    with closing(ConductorOrchestrator(conductor_server.url)) as conductor:
        limits = {"responseTimeoutSeconds": 60, "timeoutSeconds": 0, "retryCount": 1, "retryDelaySeconds": 0}
        conductor.register_taskdefs([{"name": name, **owner, **limits}])
        workflow = {"name": f"{name}_wf", "version": 1, "schemaVersion": 2, **owner, "tasks": [task]}
        conductor.register_workflow(workflow)
        optional = {**task, "taskReferenceName": "maybe", "optional": True}
        conductor.register_workflow({**workflow, "version": 2, "tasks": [optional, task]})
        yield Step(conductor, conductor_server, name)


def test_a_result_and_a_lease_sent_at_the_same_moment_do_not_cover_each_other(step: Step) -> None:
    # Without the rule that they take turns, a third of these results is lost.
    with ThreadPoolExecutor(3) as pool:
        for turn in range(20):
            workflow_id = step.start()
            attempt = step.take().attempt

            leases = [pool.submit(step.conductor.extend_lease, attempt, worker_id="w") for _ in range(2)]
            result = pool.submit(step.conductor.complete, attempt, completed({"turn": turn}), worker_id="w")

            assert result.result() is True
            assert [lease.result() for lease in leases] == [None, None]
            assert step.conductor.current(attempt).status == "COMPLETED"
            assert step.conductor.workflow(workflow_id).status == "COMPLETED"


def test_a_result_with_odd_values_is_known_again_when_it_is_read_back(step: Step) -> None:
    workflow_id = step.start()

    accepted = step.conductor.complete(step.take().attempt, completed(ODD_VALUES), worker_id="w")

    assert accepted is True
    assert step.conductor.workflow(workflow_id).tasks[0].output == ODD_VALUES


def test_a_result_sent_again_is_accepted_and_another_one_is_not(step: Step) -> None:
    step.start()
    attempt = step.take().attempt
    step.conductor.complete(attempt, completed({"a": 1}), worker_id="w")

    again = step.conductor.complete(attempt, completed({"a": 1}), worker_id="the worker's next life")
    other = step.conductor.complete(attempt, completed({"a": 2}), worker_id="w")
    failed = step.conductor.complete(attempt, Outcome("FAILED", reason="late"), worker_id="w")

    assert (again, other, failed) == (True, False, False)


def test_the_failure_of_an_optional_task_is_accepted_though_the_server_calls_it_completed(step: Step) -> None:
    workflow_id = step.start_optional()

    outcome = Outcome("FAILED_WITH_TERMINAL_ERROR", reason="never mind")
    accepted = step.conductor.complete(step.take().attempt, outcome, worker_id="w")

    assert accepted is True
    assert step.conductor.workflow(workflow_id).tasks[0].status == "COMPLETED_WITH_ERRORS"


def test_a_result_of_just_the_limit_is_kept_and_a_larger_one_leaves_the_task_as_it_is(step: Step) -> None:
    workflow_id = step.start()
    attempt = step.take().attempt
    shell = len('{"text":""}')

    with pytest.raises(OrchestratorRefused, match=r"3145729 bytes .* put bulk into the workspace"):
        step.conductor.complete(
            attempt, completed({"text": "x" * (MAX_OUTPUT_BYTES - shell + 1)}), worker_id="w"
        )
    assert step.conductor.current(attempt).status == "IN_PROGRESS"

    largest = {"text": "x" * (MAX_OUTPUT_BYTES - shell)}
    assert step.conductor.complete(attempt, completed(largest), worker_id="w") is True
    assert step.conductor.workflow(workflow_id).tasks[0].output == largest


def test_an_input_that_the_server_keeps_elsewhere_is_shown_as_such(step: Step) -> None:
    # Given an input over the server's own threshold, which a poll does not hand out.
    step.start(text="x" * (3 * 1024 * 1024 + 1024))

    found = step.take()

    assert list(found.input) == ["externalInputPayloadStoragePath"]


def test_lines_of_a_task_are_in_its_log(step: Step) -> None:
    step.start()
    attempt = step.take().attempt

    step.conductor.log(attempt, ["first é", 'second "quoted"'])
    step.conductor.log(attempt, ["third"])

    entries = step.server.call("GET", f"/tasks/{attempt.task_id}/log")
    assert [entry["log"] for entry in entries] == ['first é\nsecond "quoted"', "third"]


def test_every_retry_is_a_task_of_its_own_in_the_order_of_scheduling(step: Step) -> None:
    workflow_id = step.start(n=1)
    step.conductor.complete(step.take().attempt, Outcome("FAILED", reason="first time"), worker_id="w")
    step.conductor.complete(step.take().attempt, completed({"n": 2}), worker_id="w")

    state = step.conductor.workflow(workflow_id)

    first, second = state.tasks
    assert (first.status, first.retry_count, first.reason) == ("FAILED", 0, "first time")
    assert (second.status, second.retry_count, second.output) == ("COMPLETED", 1, {"n": 2})
    assert first.task_id != second.task_id
    assert {first.task_type, second.task_type} == {"SIMPLE"}
    assert first.input == second.input == {"params": {"n": 1}}


def test_an_assignment_carries_what_the_runtime_needs(step: Step) -> None:
    workflow_id = step.start(n=1)

    found = step.take()

    assert found.input == {"params": {"n": 1}}
    assert found.attempt.logical_task_key == f"{workflow_id}/only"
    assert found.attempt.task_name == step.task_name
    assert found.attempt.response_timeout_seconds == 60


def test_a_workflow_that_the_server_does_not_take_is_refused_with_its_words(step: Step) -> None:
    twice = {"name": step.task_name, "taskReferenceName": "same", "type": "SIMPLE"}

    with pytest.raises(OrchestratorRefused, match="should be unique"):
        step.conductor.register_workflow({"name": "twice", "version": 1, "tasks": [twice, twice]})
