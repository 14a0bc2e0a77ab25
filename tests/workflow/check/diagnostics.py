"""Errors in the steps of a workflow, their tasks and inputs, by name: the workflow, and its one line."""

from __future__ import annotations

from tests.support.tasks.workflows import fork, join, simple, workflow
from tests.workflow.check.flows import (
    INPUT,
    WORKSPACE,
    Json,
    cases,
    look,
    make,
    run,
    with_input,
)

ERRORS: dict[str, tuple[Json, str]] = {
    # the tree of steps
    "no steps": (workflow(), 'the workflow has no steps: "tasks" must be a list of them'),
    "a step that is no object": (workflow(make("one"), "two"), "step 2 must be an object, not str"),  # type: ignore[arg-type]
    "a step without a reference": (
        workflow({"name": "make", "type": "SIMPLE"}),
        "step 1 (make) has no taskReferenceName",
    ),
    "a step without a task": (
        workflow({"taskReferenceName": "one"}),
        "step 'one' has no \"name\", which names its task",
    ),
    "an input that is no object": (
        workflow(simple("one", name="other", inputParameters=["x"]), name="flow"),
        "step 'one': inputParameters must be an object, not list",
    ),
    "one reference twice": (
        workflow(cases(a=[look("one")], default=[look("one")])),
        "two steps are called 'one': a taskReferenceName must be unique in its workflow; rename one of them",
    ),
    "a fork without a join": (
        workflow(fork("fork", [look("one")], [look("two")]), look("three")),
        "step 'fork' is a FORK_JOIN, and the step after it must be a JOIN",
    ),
    "a join on a step that is not there": (
        workflow(fork("fork", [look("left")], [look("right")]), join("join", "left", "rigth")),
        "step 'join' joins on 'rigth', but no step is called that; did you mean 'right'?",
    ),
    "a join that is no list": (
        workflow(fork("fork", [look("left")], [look("right")]), {**join("join"), "joinOn": "left"}),
        "step 'join': \"joinOn\" must be a list of steps, not str",
    ),
    # tasks
    "a misspelt task": (
        workflow(simple("one", name="mak")),
        "step 'one' runs the task 'mak', which no given module declares; did you mean 'make'?",
    ),
    "a task of another module": (
        workflow(simple("one", name="transcribe")),
        "step 'one' runs the task 'transcribe', which no given module declares; declared are careful, count, "
        "look, loose, "
        "make, moving; add the module that declares it",
    ),
    # the input's shape
    "a forgotten workspace": (
        workflow(with_input("one", params={"rows": 1})),
        "step 'one' has no workspace, and its task 'make' works on one; give it \"workspace\": "
        '"${workflow.input.workspace}", or an earlier step\'s ${….output.workspace}',
    ),
    "forgotten params": (
        workflow(with_input("one", workspace=INPUT)),
        "step 'one' has no params, which its task 'make' takes; give it \"params\": {…}, which may be empty where the task "
        "requires none",
    ),
    "a misspelt workspace": (
        workflow(with_input("one", worksapce=INPUT, params={"rows": 1})),
        "step 'one' has the input 'worksapce'; did you mean 'workspace'?",
    ),
    "a workspace for a task without one": (
        workflow(with_input("one", "count", workspace=INPUT, params={})),
        "step 'one' has the input 'workspace', but its task 'count' declares no workspace; take it out",
    ),
    "a param beside params": (
        workflow(with_input("one", workspace=INPUT, params={"rows": 1}, limits={})),
        "step 'one' has the input 'limits', which is a param of 'make'; put it inside \"params\"",
    ),
    "an input that nobody takes": (
        workflow(with_input("one", workspace=INPUT, params={"rows": 1}, queue="x")),
        "step 'one' has the input 'queue', but its task 'make' takes workspace and params and nothing else",
    ),
    "params that are no object": (
        workflow(with_input("one", workspace=INPUT, params=[1])),
        "step 'one': params: must be an object, not list",
    ),
    # params
    "a misspelt param": (
        workflow(make("one", limit={})),
        "step 'one': 'make' has no params.limit; did you mean 'limits'?",
    ),
    "a param that is not declared": (
        workflow(make("one", queue=1)),
        "step 'one': 'make' has no params.queue; it has rows, day, limits, label",
    ),
    "a misspelt param that is required": (
        workflow(with_input("one", workspace=INPUT, params={"row": 1})),
        "step 'one': 'make' has no params.row; did you mean 'rows'?",
    ),
    "a param that is missing": (
        workflow(with_input("one", workspace=INPUT, params={})),
        "step 'one': params.rows is missing, and 'make' requires it; add it",
    ),
    "a param that is missing beside one that is not known": (
        workflow(with_input("one", workspace=INPUT, params={"day": "${workflow.input.day}"})),
        "step 'one': params.rows is missing, and 'make' requires it; add it",
    ),
    "text for a number": (
        workflow(make("one", rows="3")),
        "step 'one': params.rows: Input should be a valid integer, got str",
    ),
    "null for a number": (
        workflow(make("one", rows=None)),
        "step 'one': params.rows: Input should be a valid integer, got null",
    ),
    "a day that is none": (
        workflow(make("one", day="2026-02-30")),
        "step 'one': params.day: Input should be a valid date in the format YYYY-MM-DD, day value is outside "
        "expected range, "
        "got str",
    ),
    "a field of a nested model": (
        workflow(make("one", limits={"topp": 3, "names": "${workflow.input.names}"})),
        "step 'one': 'make' has no params.limits.topp; did you mean 'top'?",
    ),
    "an item of a list": (
        workflow(make("one", limits={"names": ["a", 2]})),
        "step 'one': params.limits.names[1]: Input should be a valid string, got int",
    ),
    "a value that no choice takes": (
        workflow(make("one", label=[1])),
        "step 'one': params.label: Input should be a valid string, got list",
    ),
    "a wrong literal for a task that is not strict": (
        workflow(run("loose", "one", top="x", more=1)),
        "step 'one': params.top: Input should be a valid integer, got str",
    ),
    # the workspace
    "a workspace without a branch": (
        workflow(make("one", {"repository": "songs", "ref": "${workflow.input.ref}"})),
        "step 'one': workspace.branch is missing; --workspace REPO[@BRANCH] gives a whole one, as "
        "${workflow.input.workspace}",
    ),
    "a misspelt field of a workspace": (
        workflow(make("one", {"repo": "songs", "branch": "main", "ref": "${workflow.input.ref}"})),
        "step 'one': a workspace has no field 'repo'; did you mean 'repository'?",
    ),
    "a ref_type that is none": (
        workflow(make("one", {**WORKSPACE, "ref_type": "branch"})),
        "step 'one': workspace.ref_type must be 'commit', not 'branch'; --workspace REPO[@BRANCH] gives a whole one, as "
        "${workflow.input.workspace}",
    ),
    "a blank repository": (
        workflow(make("one", {**WORKSPACE, "repository": " "})),
        "step 'one': workspace.repository must be a non-blank string",
    ),
    "a workspace that is text": (
        workflow(make("one", "songs")),
        "step 'one': workspace must be an object, not str",
    ),
    "the ref of a workspace instead of the workspace": (
        workflow(make("one"), make("two", "${one.output.workspace.ref}")),
        "step 'two' takes its workspace from ${one.output.workspace.ref}, which is not a workspace; "
        "did you mean ${one.output.workspace}?",
    ),
    "the whole output instead of the workspace": (
        workflow(make("one"), make("two", "${one.output}")),
        "step 'two' takes its workspace from ${one.output}, which is not a workspace; did you mean "
        "${one.output.workspace}?",
    ),
}
