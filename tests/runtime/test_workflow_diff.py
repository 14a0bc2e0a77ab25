"""What registering a workflow would change: what people wrote, and not what the server fills in."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perago.connect import open_conductor
from perago.orchestrator.base import Orchestrator
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.workflow_diff import plan_workflow
from perago.settings import load_settings
from tests.conftest import ConductorServer


def a_flow() -> dict[str, Any]:
    def step(name: str) -> dict[str, Any]:
        return {
            "name": "make",
            "taskReferenceName": name,
            "inputParameters": {"n": 1, "off": False, "none": None},
        }

    switch = {"name": "sw", "taskReferenceName": "sw", "type": "SWITCH", "inputParameters": {"x": 1}}
    switch |= {"evaluatorType": "value-param", "expression": "x", "decisionCases": {"1": [step("inner")]}}
    return {
        "name": f"diff_{uuid.uuid4().hex[:10]}",
        "schemaVersion": 2,
        "ownerEmail": "tests@example.com",
        "tasks": [step("one"), step("two"), switch],
        "outputParameters": {"r": "${one.output}"},
    }


@pytest.fixture(params=["local", pytest.param("conductor", marks=pytest.mark.servers)])
def orchestrator(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "local":
        opened: Orchestrator = LocalOrchestrator(tmp_path / "orchestrator.db")
    else:
        server: ConductorServer = request.getfixturevalue("conductor_server")
        opened = open_conductor(load_settings({"CONDUCTOR_SERVER_URL": server.url}))
    with closing(opened):
        yield opened


def test_a_workflow_that_is_not_there_is_created_and_one_that_is_stays(orchestrator: Orchestrator) -> None:
    flow = a_flow()

    before = plan_workflow(orchestrator, flow)
    orchestrator.register_workflow(flow)
    after = plan_workflow(orchestrator, flow)
    other_version = plan_workflow(orchestrator, {**flow, "version": 2})

    assert before.action == "create"
    assert (after.action, after.fields) == ("keep", ())
    assert other_version.action == "create"
    assert orchestrator.workflow_definition(flow["name"], version=7) is None


CHANGES: list[tuple[Callable[[dict[str, Any]], object], tuple[str, Any, Any]]] = [
    (
        lambda flow: flow["tasks"][0]["inputParameters"].update(n=2),
        ("tasks[one].inputParameters.n", 2, 1),
    ),
    (
        lambda flow: flow["tasks"][2]["decisionCases"]["1"][0].update(optional=True),
        ("tasks[sw].decisionCases.1[inner].optional", True, None),
    ),
    (lambda flow: flow["tasks"].pop(1), ("tasks", ["one", "sw"], ["one", "two", "sw"])),
    (lambda flow: flow.pop("outputParameters"), ("outputParameters", None, {"r": "${one.output}"})),
    (lambda flow: flow.update(timeoutSeconds=9), ("timeoutSeconds", 9, None)),
]


@pytest.mark.parametrize(("change", "told"), CHANGES)
def test_every_change_is_told_by_its_place(
    orchestrator: Orchestrator, change: Callable[[dict[str, Any]], object], told: tuple[str, Any, Any]
) -> None:
    flow = a_flow()
    orchestrator.register_workflow(flow)
    wanted = copy.deepcopy(flow)
    change(wanted)

    planned = plan_workflow(orchestrator, wanted)

    (path, new, old), *_ = planned.fields
    assert planned.action == "update"
    assert len(planned.fields) == 1
    assert (path, new, old or None) == told
