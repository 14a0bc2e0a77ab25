"""TaskDefs on a real Conductor: what we set reads back equal, and what it refuses we refuse first."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago import build_taskdef, load_module_task
from perago.declare.taskdef import difference
from perago.errors import OrchestratorRefused
from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator

MODULES = sorted((Path(__file__).parents[2] / "declare" / "modules061").glob("*.py"))


@pytest.fixture
def conductor(conductor_server: Any) -> Iterator[ConductorOrchestrator]:
    """Our adapter of the real server."""
    orchestrator = ConductorOrchestrator(conductor_server.url)
    yield orchestrator
    orchestrator.close()


@pytest.fixture
def name(conductor_server: Any, conductor: ConductorOrchestrator) -> Iterator[str]:
    """A name for a TaskDef on the real server; gone after the test."""
    taskdef = f"test_taskdef_{uuid.uuid4().hex[:12]}"
    yield taskdef
    if conductor.taskdef(taskdef):
        conductor_server.call("DELETE", f"/metadata/taskdefs/{taskdef}")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_every_field_that_we_set_reads_back_equal(
    conductor_server: Any, conductor: ConductorOrchestrator, name: str, module: Path
) -> None:
    wanted = {**build_taskdef(load_module_task(str(module))), "name": name}

    conductor.register_taskdefs([wanted])

    found = conductor.taskdef(name)
    assert found is not None
    assert difference(wanted, found) == []
    assert found == conductor_server.call("GET", f"/metadata/taskdefs/{name}")


def test_the_extracted_array_is_taken_by_the_server_s_own_call(conductor_server: Any, name: str) -> None:
    wanted = {**build_taskdef(load_module_task(str(MODULES[0]))), "name": name}

    conductor_server.call("POST", "/metadata/taskdefs", [wanted])

    assert difference(wanted, conductor_server.call("GET", f"/metadata/taskdefs/{name}")) == []


def test_an_update_keeps_when_the_definition_was_created(conductor: ConductorOrchestrator, name: str) -> None:
    wanted = {**build_taskdef(load_module_task(str(MODULES[0]))), "name": name}
    conductor.register_taskdefs([wanted])
    before = conductor.taskdef(name)

    conductor.register_taskdefs([{**wanted, "retryCount": 8}])

    after = conductor.taskdef(name)
    assert before is not None
    assert after is not None
    assert (after["createTime"], after["retryCount"]) == (before["createTime"], 8)


def test_a_definition_that_is_not_there_is_none(conductor: ConductorOrchestrator) -> None:
    assert conductor.taskdef("test no such;näme") is None


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"responseTimeoutSeconds": 0}, "responseTimeoutSeconds: 0 should be minimum 1"),
        ({"responseTimeoutSeconds": 9, "timeoutSeconds": 8}, "must be less than timeoutSeconds: 8"),
        (
            {"timeoutSeconds": 900, "totalTimeoutSeconds": 800},
            "less than or equal to totalTimeoutSeconds: 800",
        ),
        ({"retryCount": -1}, "retryCount"),
        ({"backoffJitterMs": -1}, "backoffJitterMs"),
        ({"maxRetryDelaySeconds": -1}, "maxRetryDelaySeconds"),
        ({"pollTimeoutSeconds": -1}, "pollTimeoutSeconds"),
    ],
)
def test_the_rules_that_we_hold_are_conductor_s_own(
    conductor: ConductorOrchestrator, name: str, wrong: dict[str, Any], text: str
) -> None:
    taskdef = {**build_taskdef(load_module_task(str(MODULES[0]))), "name": name, **wrong}

    with pytest.raises(OrchestratorRefused) as caught:
        conductor.register_taskdefs([taskdef])

    assert f"cannot register the TaskDef '{name}': 400" in str(caught.value)
    assert text in str(caught.value)
