"""Workflows that open and publish a run: ten that are wrong, each with its line, and some that are right."""

from __future__ import annotations

from typing import Any

import pytest

from perago.workflow.check.check import check_workflow
from tests.support.tasks.workflows import fork, join, loop, noop, simple, switch, workflow
from tests.support.worlds.run_world import (
    FIRST,
    FIVE,
    LAST,
    ORIGIN,
    five_steps,
    opening,
    publishing,
    running,
    writing,
)

TASKS = {task.name: task for task in (*FIVE, writing("other"))}
OTHER = TASKS["other"]
FROM_INPUT = {"workspace": "${workflow.input.workspace}", "params": {}}
TERMINATE = {"name": "end", "taskReferenceName": "end", "type": "TERMINATE", "inputParameters": {}}


def choice(reference: str, **branches: list[dict[str, Any]]) -> dict[str, Any]:
    default = branches.pop("default", [])
    return switch(
        reference, inputParameters={"x": "${workflow.input.x}"}, decisionCases=branches, defaultCase=default
    )


WRONG = {
    "a run that is never published": (
        [opening(), running(FIRST)],
        "step 'open' opens a run that is not published at all: add a publishing step with "
        '"origin": "${open.output.origin}", or a TERMINATE step, to every path',
    ),
    "a path without publishing": (
        [opening(), running(FIRST), choice("which", a=[publishing("first")])],
        "step 'open' opens a run that is not published on some paths: add a publishing step with "
        '"origin": "${open.output.origin}", or a TERMINATE step, to every path',
    ),
    "an optional publishing step": (
        [opening(), running(FIRST), {**publishing("first"), "optional": True}],
        "step 'open' opens a run that is not published on some paths: add a publishing step with "
        '"origin": "${open.output.origin}", or a TERMINATE step, to every path',
    ),
    "a step that writes the target": (
        [
            opening(),
            running(FIRST),
            simple("other", name="other", inputParameters=FROM_INPUT),
            publishing("first"),
        ],
        "step 'other' writes the branch that 'open' has opened a run on, before the run is published; start it from "
        "${open.output.workspace}, or from the step of the run before it",
    ),
    "a step that works on the origin": (
        [
            opening(),
            running(FIRST),
            simple("other", name="other", inputParameters={"workspace": ORIGIN, "params": {}}),
            publishing("first"),
        ],
        "step 'other' writes the branch that 'open' has opened a run on, before the run is published; start it from "
        "${open.output.workspace}, or from the step of the run before it",
    ),
    "published in two arms": (
        [
            opening(),
            running(FIRST),
            fork("both", [publishing("first")], [{**publishing("first"), "taskReferenceName": "again"}]),
            join("joined", "publish", "again"),
        ],
        "step 'again' publishes the run that 'open' opened, and so does step 'publish' in another arm of the fork; publish "
        "it once, behind the JOIN",
    ),
    "published twice": (
        [
            opening(),
            running(FIRST),
            publishing("first"),
            {**publishing("first"), "taskReferenceName": "again"},
        ],
        "step 'again' publishes the run that 'open' opened, and so does step 'publish' before it; take one of them out",
    ),
    "published in a loop": (
        [opening(), running(FIRST), loop("each", publishing("first"))],
        "step 'publish' publishes in every iteration of a loop the run that 'open' opened before it; move it behind the "
        "loop",
    ),
    "a step of the run after it was published": (
        [opening(), running(FIRST), publishing("first"), running(LAST, "first")],
        "step 'last' works on the run that 'publish' has published by then, so nobody would see its result; start it from "
        "${publish.output.workspace}",
    ),
    "an origin that is a workspace": (
        [opening(), running(FIRST), publishing("first", origin="${first.output.result}")],
        "step 'publish': params.origin takes ${first.output.result}, which is not the origin of a run; give it "
        "${open.output.origin}",
    ),
    "no origin": (
        [
            opening(),
            running(FIRST),
            simple("publish", name="perago_publish", inputParameters=FROM_INPUT),
        ],
        "step 'publish': params.origin is missing, and 'perago_publish' requires it; add it",
    ),
    "a misspelt param": (
        [opening(isolated=False), running(FIRST), publishing("first")],
        "step 'open': 'perago_open' has no params.isolated; did you mean 'isolate'?",
    ),
    "a workspace of another branch": (
        [
            opening(),
            running(FIRST),
            simple(
                "publish",
                name="perago_publish",
                inputParameters={"workspace": "${workflow.input.workspace}", "params": {"origin": ORIGIN}},
            ),
        ],
        "step 'publish' publishes the run that 'open' opened, but its workspace is not on that run's branch; give it the "
        "workspace of the run's last step",
    ),
    "a step before the last one": (
        [opening(), running(FIRST), running(LAST, "first"), publishing("first")],
        "step 'publish' starts from ${first.output.workspace}, but step 'last' has moved that branch on by then; start it "
        "from ${last.output.workspace}",
    ),
}

RIGHT = {
    "five steps": five_steps(),
    "not isolated": [opening(isolate=False), running(FIRST), publishing("first")],
    "a path that ends": [
        opening(),
        running(FIRST),
        choice("which", a=[TERMINATE], default=[publishing("first")]),
    ],
    "published in every case": [
        opening(),
        running(FIRST),
        choice(
            "which",
            a=[publishing("first")],
            default=[{**publishing("first"), "taskReferenceName": "otherwise"}],
        ),
    ],
    "published in one arm": [
        opening(),
        running(FIRST),
        fork("both", [publishing("first")], [noop("nothing")]),
        join("joined", "publish", "nothing"),
    ],
    "a step on the target after publishing": [
        opening(),
        running(FIRST),
        publishing("first"),
        running(OTHER, "publish"),
    ],
    "opened in a loop": [loop("each", opening(), running(FIRST), publishing("first"))],
}


def errors(steps: list[dict[str, Any]]) -> list[str]:
    found = check_workflow(workflow(*steps), TASKS, file="")
    return [one.message for one in found if one.level == "error"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_workflow_is_refused_with_one_line(name: str) -> None:
    steps, line = WRONG[name]
    found = errors(steps)
    assert [one for one in found if one.startswith(line)], found


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_workflow_passes(name: str) -> None:
    found = errors(RIGHT[name])
    assert [one for one in found if "run" in one.split("; ")[0] and "side by side" not in one] == []
