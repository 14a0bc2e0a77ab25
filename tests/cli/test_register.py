"""`perago register`: what it plans, what it sends, and, on a real Conductor, what is there afterwards."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from perago import TaskDefinition, build_taskdef, load_tasks
from perago.cli import app
from perago.runtime.registration import apply_changes, plan_changes

Module = Callable[[str, str], str]


def source(name: str, **controls: str) -> str:
    said = ", ".join(f"{key}={value}" for key, value in controls.items())
    return f"""
@task(name={name!r}, owner_email="a@b.c", workspace=WorkspaceSpec(), controls=TaskControls({said}))
def registered(workspace: Path, params: Params) -> Result: ...
"""


class Server:
    """TaskDefs in memory, with a field that the server adds."""

    def __init__(self, *taskdefs: dict[str, Any]) -> None:
        self.taskdefs = {taskdef["name"]: taskdef for taskdef in taskdefs}
        self.calls = 0

    def taskdef(self, name: str) -> dict[str, Any] | None:
        return self.taskdefs.get(name)

    def register_taskdefs(self, definitions: Sequence[Any]) -> None:
        self.calls += 1
        self.taskdefs |= {taskdef["name"]: {**taskdef, "createTime": 5} for taskdef in definitions}


@pytest.fixture
def declared(module: Module) -> TaskDefinition:
    [task] = load_tasks([module("registers.py", source("registered"))])
    return task


def test_a_task_that_the_server_does_not_know_is_created(declared: TaskDefinition) -> None:
    server = Server()

    changes = plan_changes(server, [declared])
    apply_changes(server, changes)

    assert [change.action for change in changes] == ["create"]
    assert server.taskdefs["registered"] == {**build_taskdef(declared), "createTime": 5}


def test_a_task_that_is_there_as_declared_is_left_alone(declared: TaskDefinition) -> None:
    server = Server({**build_taskdef(declared), "createTime": 5})

    changes = plan_changes(server, [declared])
    apply_changes(server, changes)

    assert [change.action for change in changes] == ["keep"]
    assert server.calls == 0


def test_a_task_that_differs_is_updated_and_what_others_set_stays(declared: TaskDefinition) -> None:
    server = Server({**build_taskdef(declared), "retryCount": 9, "inputTemplate": {"a": 1}})

    changes = plan_changes(server, [declared])
    apply_changes(server, changes)

    assert [(change.action, change.fields) for change in changes] == [("update", (("retryCount", 3, 9),))]
    assert server.taskdefs["registered"]["retryCount"] == 3
    assert server.taskdefs["registered"]["inputTemplate"] == {"a": 1}


def test_planning_sends_nothing(declared: TaskDefinition) -> None:
    server = Server()

    plan_changes(server, [declared])

    assert server.taskdefs == {}


def test_register_without_a_server_says_what_to_set(module: Module) -> None:
    done = CliRunner(env={"CONDUCTOR_SERVER_URL": None}).invoke(
        app, ["register", module("registers.py", source("registered"))]
    )

    assert done.exit_code == 1
    assert (
        done.stderr
        == "error: Conductor is not configured: set CONDUCTOR_SERVER_URL, or add --local to work on the embedded servers\n"
    )


def test_the_embedded_orchestrator_is_told_where_local_is_said(module: Module) -> None:
    run = CliRunner(env={"CONDUCTOR_SERVER_URL": None, "PERAGO_ROOT": "embedded"})
    first = module("first.py", source("registered"))

    created = run.invoke(app, ["register", "--local", first])
    again = run.invoke(app, ["register", "--local", first])
    second = module("second.py", source("registered", retry="RetryPolicy(count=5)"))
    planned = run.invoke(app, ["register", "--local", "--dry-run", second])
    after = run.invoke(app, ["register", "--local", "--json", first])

    assert created.stdout == "registered: created\n", created.output
    assert again.stdout == "registered: unchanged\n"
    assert planned.stdout == "registered: would be updated\n  - retryCount: 3\n  + retryCount: 5\n"
    assert json.loads(after.stdout) == {
        "dry_run": False,
        "tasks": [{"name": "registered", "action": "keep", "fields": []}],
        "workflows": [],
    }


def test_a_root_without_local_is_refused_and_nothing_is_sent(module: Module) -> None:
    done = CliRunner(env={"CONDUCTOR_SERVER_URL": "http://127.0.0.1:9/api"}).invoke(
        app, ["register", "--root", "embedded", module("registers.py", source("registered"))]
    )

    assert done.exit_code == 2
    assert "add --local" in " ".join(done.stderr.replace("│", " ").split())


@pytest.fixture
def name(conductor_server: Any) -> Iterator[str]:
    """A name for a TaskDef on the real server; gone after the test."""
    taskdef = f"test_register_{uuid.uuid4().hex[:12]}"
    yield taskdef
    conductor_server.call("DELETE", f"/metadata/taskdefs/{taskdef}")


def test_a_real_conductor_is_told_and_shown(conductor_server: Any, name: str, module: Module) -> None:
    run = CliRunner(env={"CONDUCTOR_SERVER_URL": conductor_server.url})
    target = module("first.py", source(name))

    planned = run.invoke(app, ["register", target, "--dry-run"])
    created = run.invoke(app, ["register", "--yes", target])
    again = run.invoke(app, ["register", "--yes", target])
    other = module("second.py", source(name, retry="RetryPolicy(count=5)"))
    updated = run.invoke(app, ["register", "--yes", other])
    as_json = run.invoke(app, ["register", "--yes", other, "--json"])

    assert planned.stdout == f"{name}: would be created\n", planned.output
    assert created.stdout == f"{name}: created\n", created.output
    assert again.stdout == f"{name}: unchanged\n"
    assert updated.stdout == f"{name}: updated\n  - retryCount: 3\n  + retryCount: 5\n"
    assert json.loads(as_json.stdout)["tasks"] == [{"name": name, "action": "keep", "fields": []}]
    assert conductor_server.call("GET", f"/metadata/taskdefs/{name}")["retryCount"] == 5
