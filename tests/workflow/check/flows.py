"""Steps that run the tasks of these tests, with an input that is right unless a test says otherwise."""

from __future__ import annotations

from typing import Any

from tests.support.tasks.workflows import simple, switch

INPUT = "${workflow.input.workspace}"
Json = dict[str, Any]
WORKSPACE: Json = {
    "repository": "songs",
    "branch": "main",
    "ref_type": "commit",
    "ref": "${workflow.input.ref}",
}


def after(reference: str) -> str:
    """The workspace that a step leaves."""
    return f"${{{reference}.output.workspace}}"


def make(reference: str, workspace: Any = INPUT, **params: Any) -> Json:
    """A writable step."""
    return simple(
        reference, name="make", inputParameters={"workspace": workspace, "params": {"rows": 1} | params}
    )


def look(reference: str, workspace: Any = INPUT) -> Json:
    """A read-only step."""
    return simple(reference, name="look", inputParameters={"workspace": workspace, "params": {}})


def run(task: str, reference: str, **params: Any) -> Json:
    """A step whose task has no workspace."""
    return simple(reference, name=task, inputParameters={"params": params})


def system(kind: str, reference: str, **inputs: Any) -> Json:
    """A step that Conductor does itself."""
    return {"name": reference, "taskReferenceName": reference, "type": kind, "inputParameters": inputs}


def with_input(reference: str, task: str = "make", /, **inputs: Any) -> Json:
    """A step with just that input."""
    return simple(reference, name=task, inputParameters=inputs)


def cases(*, a: list[Json], default: list[Json] | None = None) -> Json:
    """A SWITCH between steps."""
    more = {} if default is None else {"defaultCase": default}
    return switch("choose", inputParameters={"x": "${workflow.input.x}"}, decisionCases={"a": a}, **more)
