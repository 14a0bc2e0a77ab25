"""Every mistake that the check of workflows finds, by name: the workflow, and its one line."""

from __future__ import annotations

from typing import Any

from tests.declare.workflow.flows import INPUT, Json, after, look, make, run, system
from tests.support.workflows import fork, join, loop, simple, switch, workflow

WORKSPACE: Json = {
    "repository": "songs",
    "branch": "main",
    "ref_type": "commit",
    "ref": "${workflow.input.ref}",
}


def with_input(reference: str, task: str = "make", /, **inputs: Any) -> Json:
    return simple(reference, name=task, inputParameters=inputs)


def cases(*, a: list[Json], default: list[Json] | None = None) -> Json:
    more = {} if default is None else {"defaultCase": default}
    return switch("choose", inputParameters={"x": "${workflow.input.x}"}, decisionCases={"a": a}, **more)


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
        "step 'one' has no \"name\", which says its task",
    ),
    "an input that is no object": (
        workflow(simple("one", name="other", inputParameters=["x"]), name="flow"),
        "step 'one': inputParameters must be an object, not list",
    ),
    "one reference twice": (
        workflow(cases(a=[look("one")], default=[look("one")])),
        "two steps are called 'one': a taskReferenceName must be unique in its workflow",
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
        "step 'one': params.rows is missing, and 'make' requires it",
    ),
    "a param that is missing beside one that is not known": (
        workflow(with_input("one", workspace=INPUT, params={"day": "${workflow.input.day}"})),
        "step 'one': params.rows is missing, and 'make' requires it",
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
        "step 'one': workspace.branch is missing",
    ),
    "a misspelt field of a workspace": (
        workflow(make("one", {"repo": "songs", "branch": "main", "ref": "${workflow.input.ref}"})),
        "step 'one': a workspace has no field 'repo'; did you mean 'repository'?",
    ),
    "a ref_type that is none": (
        workflow(make("one", {**WORKSPACE, "ref_type": "branch"})),
        "step 'one': workspace.ref_type must be 'commit', not 'branch'",
    ),
    "a blank repository": (
        workflow(make("one", {**WORKSPACE, "repository": " "})),
        "step 'one': workspace.repository must be a text that is not blank",
    ),
    "a workspace that is text": (
        workflow(make("one", "songs")),
        "step 'one': workspace must be an object, not str",
    ),
    "the ref of a workspace instead of the workspace": (
        workflow(make("one"), make("two", "${one.output.workspace.ref}")),
        "step 'two' takes its workspace from ${one.output.workspace.ref}, which is no workspace; "
        "did you mean ${one.output.workspace}?",
    ),
    "the whole output instead of the workspace": (
        workflow(make("one"), make("two", "${one.output}")),
        "step 'two' takes its workspace from ${one.output}, which is no workspace; did you mean "
        "${one.output.workspace}?",
    ),
    # what expressions name
    "a misspelt step": (
        workflow(make("one"), make("two", "${onne.output.workspace}")),
        "step 'two' takes ${onne.output.workspace}, but no step is called 'onne'; did you mean 'one'?",
    ),
    "a step that is not there": (
        workflow(make("one"), make("two", "${download.output.workspace}")),
        "step 'two' takes ${download.output.workspace}, but no step is called 'download'; the steps are one, two",
    ),
    "input instead of workflow.input": (
        workflow(make("one", "${input.workspace}")),
        "step 'one' takes ${input.workspace}, but no step is called 'input'; did you mean ${workflow.input.workspace}?",
    ),
    "a misspelt step inside a text": (
        workflow(make("one"), make("two", after("one"), label="after ${onee.output.result.rows} rows")),
        "step 'two' takes ${onee.output.result.rows}, but no step is called 'onee'; did you mean 'one'?",
    ),
    "a misspelt field of a workflow": (
        workflow(make("one", "${workflow.inputs.workspace}")),
        "step 'one' takes ${workflow.inputs.workspace}, but a workflow has no 'inputs'; did you mean 'input'?",
    ),
    "a misspelt field of a step": (
        workflow(make("one"), make("two", "${one.ouput.workspace}")),
        "step 'two' takes ${one.ouput.workspace}, but a step has no 'ouput'; did you mean 'output'?",
    ),
    "output left out": (
        workflow(make("one"), make("two", "${one.workspace}")),
        "step 'two' takes ${one.workspace}, but a step has no 'workspace'; did you mean ${one.output.workspace}?",
    ),
    "a misspelt field of an output": (
        workflow(make("one"), make("two", "${one.output.workspce}")),
        "step 'two' takes ${one.output.workspce}, but the output of 'one' has no 'workspce'; did you mean 'workspace'?",
    ),
    "result left out": (
        workflow(make("one"), make("two", after("one"), rows="${one.output.rows}")),
        "step 'two' takes ${one.output.rows}, but the output of 'one' has no 'rows'; did you mean "
        "${one.output.result.rows}?",
    ),
    "a workspace of a task without one": (
        workflow(run("count", "one"), make("two", after("one"))),
        "step 'two' takes ${one.output.workspace}, but its task 'count' declares no workspace, so the output has none",
    ),
    "a field that the workspace lacks": (
        workflow(make("one"), make("two", {**WORKSPACE, "ref": "${one.output.workspace.commit}"})),
        "step 'two' takes ${one.output.workspace.commit}, but ${one.output.workspace} has no 'commit'; it "
        "has repository, "
        "branch, ref_type, ref",
    ),
    "a field that the result lacks": (
        workflow(make("one"), make("two", after("one"), rows="${one.output.result.row}")),
        "step 'two' takes ${one.output.result.row}, but ${one.output.result} has no 'row'; did you mean 'rows'?",
    ),
    "a field that a nested model lacks": (
        workflow(make("one"), make("two", after("one"), rows="${one.output.result.parts[0].sise}")),
        "step 'two' takes ${one.output.result.parts[0].sise}, but ${one.output.result.parts[0]} has no 'sise'; "
        "did you mean 'size'?",
    ),
    "a field of a number": (
        workflow(make("one"), make("two", after("one"), rows="${one.output.result.rows.total}")),
        "step 'two' takes ${one.output.result.rows.total}, but ${one.output.result.rows} is of the type "
        "integer, in which there "
        "is no 'total'",
    ),
    "a wrong field that chooses a case": (
        workflow(
            make("one"),
            switch("choose", inputParameters={"x": "${one.output.result.kind}"}, decisionCases={"a": []}),
        ),
        "step 'choose' takes ${one.output.result.kind}, but ${one.output.result} has no 'kind'; it has rows, "
        "parts, totals, "
        "best, anything",
    ),
    # what has not run by then
    "a step that comes later": (
        workflow(look("one", after("two")), make("two")),
        "step 'one' takes ${two.output.workspace}, but 'two' comes later, so it has not run by then",
    ),
    "the step itself": (
        workflow(make("one", after("one"))),
        "step 'one' takes ${one.output.workspace}, but that is the step itself, so it has not run by then",
    ),
    "a step in another arm": (
        workflow(fork("fork", [make("left")], [look("right", after("left"))]), join("join", "left", "right")),
        "step 'right' takes ${left.output.workspace}, but 'left' runs side by side with it, in another arm "
        "of 'fork', so it has "
        "not run by then",
    ),
    "a step in another case": (
        workflow(cases(a=[make("one")], default=[look("two", after("one"))])),
        "step 'two' takes ${one.output.workspace}, but 'one' runs in another case of 'choose', so it has not "
        "run by then",
    ),
    "a step inside the one that reads it": (
        workflow(
            switch(
                "choose",
                inputParameters={"x": "${one.output.result.total}"},
                decisionCases={"a": [look("one")]},
            )
        ),
        "step 'choose' takes ${one.output.result.total}, but 'one' runs inside it, so it has not run by then",
    ),
    # outputs
    "an output of a step that is not there": (
        workflow(make("one"), outputParameters={"ref": "${on.output.workspace.ref}"}),
        "output 'ref' takes ${on.output.workspace.ref}, but no step is called 'on'; did you mean 'one'?",
    ),
    "an output that can only be null": (
        workflow(make("one"), outputParameters={"deep": {"rows": ["${one.output.rows}"]}}),
        "output 'deep' takes ${one.output.rows}, but the output of 'one' has no 'rows'; did you mean "
        "${one.output.result.rows}?",
    ),
    # heads
    "two writers of one workspace": (
        workflow(make("one"), make("two")),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' has moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a writer that starts two steps back": (
        workflow(make("one"), make("two", after("one")), make("three", after("one"))),
        "step 'three' starts from the workspace of step 'one', but step 'two' has moved that branch on by "
        "then; start it from "
        "${two.output.workspace}",
    ),
    "a writer behind a look from before": (
        workflow(look("before"), make("one"), make("two", after("before"))),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' has moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a writer after a join": (
        workflow(
            fork("fork", [make("left")], [look("right")]),
            join("join", "left", "right"),
            make("after", after("right")),
        ),
        "step 'after' starts from ${workflow.input.workspace}, but step 'left' has moved that branch on by "
        "then; start it from "
        "${left.output.workspace}",
    ),
    "a writer after writers in all cases": (
        workflow(cases(a=[make("one")], default=[make("two")]), make("three")),
        "step 'three' starts from ${workflow.input.workspace}, but step 'one' has moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a branch that is put together": (
        workflow(
            make("one"),
            make(
                "two",
                {
                    "repository": "${workflow.input.workspace.repository}",
                    "branch": "${one.output.workspace.branch}",
                    "ref": "${workflow.input.workspace.ref}",
                },
            ),
        ),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' has moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "two writers side by side": (
        workflow(
            fork("fork", [make("left")], [look("mid")], [make("right")]), join("join", "left", "mid", "right")
        ),
        "steps 'left' and 'right' run side by side in 'fork' and both write the branch of "
        "${workflow.input.workspace}: only one "
        "of them can publish; run them one after the other, or declare one that writes nothing with read_only=True",
    ),
    "two writers side by side on a branch by its name": (
        workflow(
            fork("fork", [make("left", WORKSPACE)], [make("right", WORKSPACE)]), join("join", "left", "right")
        ),
        "steps 'left' and 'right' run side by side in 'fork' and both write the branch of songs@main: only "
        "one of them can "
        "publish; run them one after the other, or declare one that writes nothing with read_only=True",
    ),
}

WARNINGS: dict[str, tuple[Json, str]] = {
    "a step that runs only in one case": (
        workflow(cases(a=[make("one")]), look("two", after("one"))),
        "step 'two' takes ${one.output.workspace}, but 'one' runs only in case 'a' of 'choose'; it is null "
        "where that has not run",
    ),
    "a step that runs only in the default case": (
        workflow(
            cases(a=[look("one")], default=[look("two")]), make("three", rows="${two.output.result.total}")
        ),
        "step 'three' takes ${two.output.result.total}, but 'two' runs only in the default case of 'choose'; "
        "it is null where "
        "that has not run",
    ),
    "a step in an arm that nobody waits for": (
        workflow(
            fork("fork", [look("left")], [look("right")]), join("join", "left"), look("after", after("right"))
        ),
        "step 'after' takes ${right.output.workspace}, but no JOIN before it waits for 'right', which runs "
        "in an arm of 'fork'; "
        "it is null where that has not run",
    ),
    "a later step of another arm": (
        workflow(
            fork("fork", [look("left")], [look("right"), look("more", after("left"))]),
            join("join", "left", "more"),
        ),
        "step 'more' takes ${left.output.workspace}, but 'left' runs side by side with it, in another arm of "
        "'fork'; it is null "
        "where that has not run",
    ),
    "an earlier iteration": (
        workflow(loop("loop", look("one", after("two")), look("two"))),
        "step 'one' takes ${two.output.workspace}, but 'two' has not run in the first iteration of the loop; "
        "it is null where "
        "that has not run",
    ),
    "a step that may fail": (
        workflow(look("one") | {"optional": True}, look("two", after("one"))),
        "step 'two' takes ${one.output.workspace}, but 'one' is optional, and has no output where it fails",
    ),
    "a join of nothing": (
        workflow(fork("fork", [look("left")], [look("right")]), join("join")),
        "step 'join' waits for nothing: its \"joinOn\" is empty, so the next step begins at once",
    ),
    "an input that the workflow does not name": (
        workflow(make("one", "${workflow.input.worksapce}"), inputParameters=["workspace"]),
        "step 'one' takes ${workflow.input.worksapce}, but the workflow's inputParameters do not name "
        "'worksapce'; did you mean "
        "'workspace'?",
    ),
    "an output that is written as null": (
        workflow(make("one"), outputParameters={"rows": None}),
        "output 'rows' is always null: it is written so in outputParameters",
    ),
    "a writer after a writer in one case": (
        workflow(cases(a=[make("one")]), make("two")),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' may have moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a writer after one that may fail": (
        workflow(make("one") | {"optional": True}, make("two")),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' may have moved that branch on by "
        "then; start it from "
        "${one.output.workspace}",
    ),
    "a writer in a loop that starts from the input": (
        workflow(loop("loop", make("one"))),
        "step 'one' writes the same branch in every iteration, but starts from ${workflow.input.workspace} "
        "each time; carry its "
        "output over to the next iteration (SET_VARIABLE), or move it out of the loop",
    ),
    "writers side by side, one of them in a case": (
        workflow(fork("fork", [make("left")], [cases(a=[make("right")])]), join("join", "left", "choose")),
        "steps 'left' and 'right' run side by side in 'fork' and both write the branch of "
        "${workflow.input.workspace}: only one "
        "of them can publish; run them one after the other, or declare one that writes nothing with read_only=True",
    ),
    "a rule of the author's": (
        workflow(run("careful", "one", high=3)),
        "step 'one': params.high: Value error, must be even, got int",
    ),
    "a field that no Conductor is known to have": (
        workflow(make("one", label="${workflow.zone}")),
        "step 'one' takes ${workflow.zone}, but a workflow has no 'zone'",
    ),
}

RIGHT: dict[str, Json] = {
    "a chain": workflow(
        make("one"),
        make("two", after("one"), rows="${one.output.result.rows}"),
        look("three", after("two")),
        make("four", after("three")),
        outputParameters={
            "ref": "${four.output.workspace.ref}",
            "first": "${one.output.result.parts[0].size}",
        },
    ),
    "what only conductor knows": workflow(
        make("one", rows="${workflow.variables.rows}", label="${CPEWF_TASK_ID}"),
        make(
            "two",
            after("one"),
            label="${one.output.result.parts[*].size}",
            rows="${one.output.result.anything.x.y}",
        ),
        outputParameters={
            "total": "${one.output.result.totals.whatever}",
            "length": "${one.output.result.parts.length()}",
            "name": "${one.output.result.best.name}",
            "nested": "${one.output.result.totals.${workflow.input.key}}",
            "escaped": "$${onne.output}",
            "key": "${one.output['result']['rows']}",
            "status": "${one.status} ${workflow.status} ${one.retryCount}",
            "whole": "${one}",
        },
    ),
    "params from elsewhere": workflow(
        with_input("one", workspace=INPUT, params="${workflow.input.params}"),
        run("moving", "two", one="${workflow.input.one}", top=3),
        run("careful", "three", low="${workflow.input.low}", high=2, file="${workflow.input.file}"),
        run("careful", "four", low=5, high="${workflow.input.high}"),
        run("loose", "five", anything=1),
        make(
            "six",
            after("one"),
            limits={"names": ["a", "${workflow.input.name}"]},
            label="x${workflow.input.x}",
        ),
    ),
    "system tasks, whose outputs nobody knows": workflow(
        system("INLINE", "inline", expression="1", evaluatorType="graaljs"),
        system("HTTP", "http", uri="http://example.com/${inline.output.result}"),
        system("SET_VARIABLE", "set", workspace="${workflow.input.workspace}"),
        make("one", "${workflow.variables.workspace}", rows="${http.output.response.body.rows}"),
        make("two", "${http.output.response.body.workspace}"),
        system("SUB_WORKFLOW", "sub", workspace="${one.output.workspace}"),
        make("three", "${sub.output.workspace}"),
        system("DYNAMIC", "dynamic", taskToExecute="make"),
        make("four", "${dynamic.output.workspace}"),
    ),
    "steps that come in while it runs": workflow(
        system("FORK_JOIN_DYNAMIC", "many", dynamicTasks="${workflow.input.tasks}"),
        join("join"),
        make("one", "${part_7.output.workspace}"),
        outputParameters={"last": "${part_9.output.result}"},
    ),
    "cases that leave null where null is taken": workflow(
        cases(a=[look("one")], default=[look("two")]),
        make("three", day="${one.output.result.total}"),
        system("INLINE", "both", left="${one.output.result.total}", right="${two.output.result.total}"),
        outputParameters={"one": "${one.output.result.total}", "two": "${two.output.result.total}"},
    ),
    "the only case that goes on": workflow(
        cases(a=[make("one")], default=[system("TERMINATE", "stop", terminationStatus="FAILED")]),
        make("two", after("one")),
    ),
    "a fork of looks, and one writer": workflow(
        make("one"),
        fork(
            "fork", [look("left", after("one"))], [make("right", after("one")), look("check", after("right"))]
        ),
        join("join", "left", "check"),
        make(
            "two",
            after("right"),
            rows="${left.output.result.total}",
            label="${join.output.left.result.total}",
        ),
    ),
    "arms on branches of their own": workflow(
        fork("fork", [make("left", "${workflow.input.left}")], [make("right", "${workflow.input.right}")]),
        join("join", "left", "right"),
        make("more", after("left")),
        make("most", after("right")),
    ),
    "an arm that waits for another": workflow(
        fork("fork", [make("left")], [join("wait", "left"), make("right", after("left"))]),
        join("join", "right"),
    ),
    "a loop": workflow(
        make("one"),
        loop(
            "loop",
            look("again", after("one")),
            run("loose", "two", top="${loop.output.iteration}", names="${again.output.result.total}"),
            inputParameters={"total": "${again.output.result.total}"},
        ),
        make("three", after("one"), rows="${again.output.result.total}"),
    ),
    "a loop that hands its workspace on": workflow(
        system("SET_VARIABLE", "start", workspace="${workflow.input.workspace}"),
        loop(
            "loop",
            make("one", "${workflow.variables.workspace}"),
            system("SET_VARIABLE", "next", workspace=after("one")),
        ),
        make("two", after("one")),
    ),
    "a loop of two writers": workflow(
        loop("loop", make("one", "${workflow.variables.workspace}"), make("two", after("one"))),
        make("three", after("two")),
    ),
    "another branch from the same commit": workflow(
        make("one"),
        make("two", {"repository": "songs", "branch": "other", "ref": "${workflow.input.workspace.ref}"}),
    ),
    "an input that is not inputParameters": workflow(
        {
            "name": "make",
            "taskReferenceName": "one",
            "inputExpression": {"type": "JSON_PATH", "expression": "x"},
        }
    ),
    "a retry that reads its own past": workflow(
        run("count", "one"), system("INLINE", "two", before="${two.retryCount}")
    ),
}
