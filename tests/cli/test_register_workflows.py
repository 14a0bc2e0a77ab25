"""`perago register` with workflow files: its output, the registered workflows, and the errors it reports."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from perago.cli import app

Module = Callable[[str, str], str]
TASK = """
@task(name="clean", owner_email="a@b.c", workspace=WorkspaceSpec(read_only=True))
def clean(workspace: Path, params: Params) -> Result: ...
"""


BARE = {"name": "clean", "inputParameters": {"params": {"stem": "x"}}}


def step(reference: str, **fields: Any) -> dict[str, Any]:
    given = {"workspace": "${workflow.input.workspace}", "params": {"stem": "x"}}
    return {"name": "clean", "taskReferenceName": reference, "inputParameters": given, **fields}


def flow(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "flow", "tasks": list(steps or [step("one")]), **fields}


def every_kind(name: str) -> dict[str, Any]:
    """A workflow with each kind of step and field that Conductor completes by itself."""
    loop = {"name": "l", "type": "DO_WHILE", "loopCondition": "$.l.iteration < 2", "loopOver": [step("e")]}
    switch = {"name": "s", "type": "SWITCH", "evaluatorType": "value-param", "expression": "k"}
    return flow(
        step("a", inputParameters={"params": {"n": "${workflow.input.n}", "none": None, "one": 1.0}}),
        {
            "name": "f",
            "taskReferenceName": "f",
            "type": "FORK_JOIN",
            "forkTasks": [[step("b")], [step("c", optional=True, retryCount=2)]],
        },
        {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["b", "c"]},
        {**switch, "taskReferenceName": "s", "decisionCases": {"x": [step("d")]}, "defaultCase": []},
        {**loop, "taskReferenceName": "l"},
        step("own", taskDefinition={"name": "clean", "retryCount": 7}),
        name=name,
        description=None,
        comment="Conductor does not keep this",
        inputSchema={"name": "q", "version": 1, "type": "JSON", "data": {"type": "object"}},
        rateLimitConfig={"rateLimitKey": "k", "concurrentExecLimit": 3},
        outputParameters={"end": "${a.output}"},
        inputTemplate={"n": 1},
    )


@pytest.fixture
def folder(tmp_path: Path, module: Module) -> Path:
    module("tasks.py", TASK)
    return tmp_path


@pytest.fixture
def known_tasks(folder: Path) -> Path:
    """The folder, once the tasks are registered, so that workflow files can be registered alone."""
    assert register("--local", "tasks.py").exit_code == 0
    return folder


def write(folder: Path, definition: Any, file: str = "flow.json") -> str:
    (folder / file).write_text(definition if isinstance(definition, str) else json.dumps(definition))
    return file


def register(*arguments: str, **environ: str | None) -> Result:
    runner = CliRunner(env={"CONDUCTOR_SERVER_URL": None, "PERAGO_ROOT": "embedded", **environ})
    return runner.invoke(app, ["register", *arguments, "--yes"])


def test_tasks_and_workflows_are_registered_together_and_shown(folder: Path) -> None:
    both = ("tasks.py", write(folder, flow(step("one"), step("two"))))

    planned = register("--local", "--dry-run", *both)
    created = register("--local", *both)
    again = register("--local", *both)

    assert planned.stdout == "clean: would be created\nworkflow flow version 1: would be created\n"
    assert created.stdout == "clean: created\nworkflow flow version 1: created\n", created.output
    assert again.stdout == "clean: unchanged\nworkflow flow version 1: unchanged\n"
    assert again.stderr == f"embedded servers: {folder / 'embedded'}\n"


def test_a_workflow_that_changes_is_shown_step_by_step(known_tasks: Path) -> None:
    old = flow(step("one"), {**BARE, "taskReferenceName": "gone", "optional": True}, description="a")
    given = {"workspace": "${workflow.input.workspace}", "params": {"stem": "y"}}
    new = flow(step("one", inputParameters=given, optional=True), {**BARE, "taskReferenceName": "new"})
    register("--local", write(known_tasks, old))

    updated = register("--local", write(known_tasks, new))

    bare = json.dumps(BARE).removesuffix("}")
    assert updated.stdout.splitlines() == [
        "workflow flow version 1: updated",
        '  - description: "a"',
        '  - tasks[one].inputParameters.params.stem: "x"',
        '  + tasks[one].inputParameters.params.stem: "y"',
        "  - tasks[one].optional: false",
        "  + tasks[one].optional: true",
        f'  + tasks[new]: {bare}, "taskReferenceName": "new"}}',
        f'  - tasks[gone]: {bare}, "taskReferenceName": "gone", "optional": true}}',
    ]
    assert register("--local", "flow.json").stdout == "workflow flow version 1: unchanged\n"


def test_steps_in_another_order_are_a_change(known_tasks: Path) -> None:
    register("--local", write(known_tasks, flow(step("one"), step("two"))))

    swapped = register("--local", "--dry-run", write(known_tasks, flow(step("two"), step("one"))))

    assert swapped.stdout.splitlines() == [
        "workflow flow version 1: would be updated",
        '  - tasks (order): ["one", "two"]',
        '  + tasks (order): ["two", "one"]',
    ]


def test_a_new_version_is_registered_beside_the_old_one(known_tasks: Path) -> None:
    register("--local", write(known_tasks, flow(step("one"))))

    second = register("--local", "--json", write(known_tasks, flow(step("two"), version=2)))
    first = register("--local", write(known_tasks, flow(step("one"), version=1)))

    assert json.loads(second.stdout)["workflows"] == [
        {"name": "flow", "action": "create", "fields": [], "version": 2}
    ]
    assert first.stdout == "workflow flow version 1: unchanged\n"


ERRORS = {
    "no such file": (None, "there is no file flow.json"),
    "no JSON": ("{", "flow.json is not JSON: Expecting property name"),
    "a list": ([], "flow.json must hold one JSON object, {…}, and holds a list"),
    "no name": ({"tasks": []}, 'flow.json is not a workflow definition: it has no name; add "name": '),
    "a name that no address can hold": (
        flow(name="a/b"),
        "flow.json: the workflow's name is 'a/b', but must be a text without '/'",
    ),
    "a version in words": (
        flow(version="two"),
        "flow.json: version is 'two', but must be a whole number of at least 1",
    ),
    "a version of null": (
        flow(version=None),
        "flow.json: version is None, but must be a whole number of at least 1",
    ),
    "no steps": (
        {"name": "flow", "tasks": []},
        "flow.json: the workflow has no steps: give it a list `tasks` with at least one",
    ),
    "a step without a task": (
        flow({"taskReferenceName": "one"}),
        "flow.json: step 'one' has no name",
    ),
    "a step without a reference": (
        flow(step("one"), {"name": "f", "taskReferenceName": "f", "forkTasks": [[{"name": "clean"}]]}),
        "flow.json: step 'clean' has no taskReferenceName",
    ),
    "a reference twice": (
        flow(step("one"), step("one")),
        "flow.json: 2 steps have the taskReferenceName 'one': give each its own",
    ),
}


@pytest.mark.parametrize(("definition", "line"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_line_and_nothing_is_registered(folder: Path, definition: Any, line: str) -> None:
    if definition is not None:
        write(folder, definition)

    done = register("--local", "tasks.py", "flow.json")

    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {line}"), done.output
    assert done.stderr.count("\n") == 1
    assert register("--local", "--dry-run", "tasks.py").stdout == "clean: would be created\n"


def test_two_files_that_define_the_same_version_are_refused(known_tasks: Path) -> None:
    files = (write(known_tasks, flow()), write(known_tasks, flow(version=1), "other.json"))

    done = register("--local", *files)

    assert done.stderr == (
        f"embedded servers: {known_tasks / 'embedded'}\n"
        "error: flow.json and other.json both define version 1 of the workflow 'flow': "
        "give one another name or version\n"
    )


@pytest.fixture
def name(conductor_server: Any) -> Iterator[str]:
    """A name for a workflow on the real server, gone after the test; its task is known there."""
    taskdef = {"name": "clean", "ownerEmail": "a@b.c", "retryCount": 0}
    conductor_server.call("POST", "/metadata/taskdefs", [taskdef])
    workflow = f"test_register_{uuid.uuid4().hex[:12]}"
    yield workflow
    conductor_server.call("DELETE", f"/metadata/workflow/{workflow}/1")


def test_a_real_conductor_completes_a_definition_and_the_file_still_counts_as_unchanged(
    conductor_server: Any, name: str, folder: Path
) -> None:
    url = conductor_server.url
    file = write(folder, every_kind(name))

    created = register(file, CONDUCTOR_SERVER_URL=url)
    again = register(file, CONDUCTOR_SERVER_URL=url)

    assert created.stdout == f"workflow {name} version 1: created\n", created.output
    assert again.stdout == f"workflow {name} version 1: unchanged\n"
    assert again.stderr == f"Conductor: {url}\n"


def test_a_real_conductor_is_told_what_a_file_leaves_out_and_keeps_when_it_was_created(
    conductor_server: Any, name: str, folder: Path
) -> None:
    before = {**every_kind(name), "description": "made by hand", "createTime": 1234567890123}
    conductor_server.call("PUT", "/metadata/workflow", [before])
    after = every_kind(name)
    after["tasks"][1]["forkTasks"][1][0] = step("c")
    del after["rateLimitConfig"]

    updated = register(write(folder, after), CONDUCTOR_SERVER_URL=conductor_server.url)

    assert updated.stdout.splitlines() == [
        f"workflow {name} version 1: updated",
        '  - description: "made by hand"',
        "  - tasks[f].forkTasks[1][c].optional: true",
        "  + tasks[f].forkTasks[1][c].optional: false",
        "  - tasks[f].forkTasks[1][c].retryCount: 2",
        '  - rateLimitConfig: {"rateLimitKey": "k", "concurrentExecLimit": 3, "policy": "QUEUE"}',
    ]
    found = conductor_server.call("GET", f"/metadata/workflow/{name}")
    assert found["createTime"] == 1234567890123
    assert "description" not in found
